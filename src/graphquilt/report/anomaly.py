"""Write the results of a batch run: scores, alerts, figures, a page and a summary."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from graphquilt.alignment import centroid
from graphquilt.arrays import FloatArray
from graphquilt.errors import InputError
from graphquilt.files import beside, explained, write_text
from graphquilt.report.anomaly_figures import draw_outliers, draw_reference, draw_scores
from graphquilt.report.anomaly_page import Timeline, page_data, render_page
from graphquilt.temporal import Alert, AnomalyScores, Names, SideScores, outliers, rank_alerts
from graphquilt.temporal.alerts import describe_alert

__all__ = ["ReportOptions", "parse_marks", "window_labels", "write_report", "write_scores"]


@dataclass(frozen=True)
class ReportOptions:
    """What a report contains.

    Attributes
    ----------
    title : str
    marked : frozenset of int
        Numbers of the windows to shade, such as the days of a known attack.
    nodes : tuple of (side, id)
        The nodes whose scores are drawn; if empty, the nodes of the highest alerts.
    explained : int
        How many alerts, from the top, are described with their new and gone neighbours.
    figures : bool
        Draw the PNG figures.
    """

    title: str = "Anomalies"
    marked: frozenset[int] = frozenset()
    nodes: tuple[tuple[str, int], ...] = ()
    explained: int = 200
    figures: bool = True


def write_report(
    folder: str | Path,
    scores: AnomalyScores,
    *,
    names: Mapping[str, Names],
    options: ReportOptions | None = None,
    facts: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Write ``scores.parquet``, ``alerts.jsonl``, figures, ``report.html`` and, last, ``summary.json``.

    The folder is created if it does not exist; ``names`` maps ``"source"`` and ``"destination"`` to the names of their
    nodes, and ``facts`` are further entries of the summary, such as the number of rows read. Return the summary.
    """
    options = options or ReportOptions()
    folder = Path(folder)
    alerts = rank_alerts(scores)
    counts = {side: outliers(part.standardised, part.limit) for side, part in scores.sides.items()}
    timeline = Timeline(window_labels(scores), counts, np.isin(scores.numbers, list(options.marked)))
    label = dict(zip(scores.numbers.tolist(), timeline.labels, strict=True))
    records = []
    for rank, alert in enumerate(alerts):
        is_explained = rank < options.explained
        explanation = scores.explain(alert.number, alert.side, alert.node) if is_explained else None
        records.append({"label": label[alert.number], **describe_alert(alert, names, explanation)})
    summary = {**_summary(scores, timeline), "alerts": len(alerts), **(facts or {})}
    page = render_page(page_data(scores, alerts, records, timeline=timeline, title=options.title))
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_scores(folder / "scores.parquet", scores, names)
        path = folder / "alerts.jsonl"
        with beside(path) as part:
            lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            part.write_text("".join(lines), encoding="utf-8")
            os.replace(part, path)
        if options.figures:
            _draw_figures(folder, scores, timeline, names, options.nodes or _top_nodes(alerts))
        write_text(folder / "report.html", page)
        write_text(folder / "summary.json", json.dumps(summary, indent=2))
    return summary


def _summary(scores: AnomalyScores, timeline: Timeline) -> dict[str, object]:
    sides = scores.sides.items()
    return {
        "windows": len(scores.numbers),
        "left_out": {str(number): reason for number, reason in scores.left_out.items()},
        "limits": {side: part.limit for side, part in sides},
        "nodes": {side: len(part.raw) for side, part in sides},
        "scored": {side: int(np.isfinite(part.standardised).sum()) for side, part in sides},
        "outliers": {side: count.tolist() for side, count in timeline.outliers.items()},
        "numbers": scores.numbers.tolist(),
        "median_edge_error": {side: float(np.median(part.alignment.edge_errors)) for side, part in sides},
    }


def window_labels(scores: AnomalyScores) -> list[str]:
    """Label each window with its date if times are seconds since 1970, and with its number otherwise."""
    times = scores.times
    if len(times) == 0 or float(times.min()) < 1e8:
        return [str(number) for number in scores.numbers]
    daily = bool(np.all(times % 86400 == 0))
    stamps = [datetime.fromtimestamp(float(t), UTC) for t in times]
    return [stamp.strftime("%Y-%m-%d" if daily else "%Y-%m-%d %H:%M") for stamp in stamps]


def write_scores(path: str | Path, scores: AnomalyScores, names: Mapping[str, Names]) -> Path:
    """Write one row per node and window: node, side, window, raw, standardised, flagged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    label, number = pa.dictionary(pa.int32(), pa.string()), pa.float32()
    types = {"node": label, "side": label, "window": pa.int64(), "raw": number, "standardised": number}
    schema = pa.schema([*types.items(), ("flagged", pa.bool_())])
    path = Path(path)
    with explained(path.parent), beside(path) as unfinished:
        with pq.ParquetWriter(unfinished, schema, compression="zstd") as writer:
            for side, part in scores.sides.items():
                for t, window in enumerate(scores.numbers):
                    nodes = np.flatnonzero(~np.isnan(part.raw[:, t]))
                    z = part.standardised[nodes, t]
                    columns = [
                        pa.array([names[side][int(node)] for node in nodes], label),
                        pa.array([side] * len(nodes), label),
                        pa.array(np.full(len(nodes), window), pa.int64()),
                        pa.array(part.raw[nodes, t], number),
                        pa.array(z, number, from_pandas=True),
                        pa.array(z > part.limit),
                    ]
                    writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        os.replace(unfinished, path)
    return path


def _top_nodes(alerts: Sequence[Alert]) -> tuple[tuple[str, int], ...]:
    """Return the four nodes with the highest alerts, sources before destinations."""
    ordered = sorted(alerts, key=lambda alert: (alert.side != "source", -alert.standardised))
    return tuple(dict.fromkeys((alert.side, alert.node) for alert in ordered))[:4]


def _draw_figures(
    folder: Path,
    scores: AnomalyScores,
    timeline: Timeline,
    names: Mapping[str, Names],
    nodes: Iterable[tuple[str, int]],
) -> None:
    labels, counts, marked = timeline
    draw_outliers(folder / "outliers.png", labels, counts, marked=marked)
    for side, part in scores.sides.items():
        curves = {names[side][node]: part.standardised[node] for node_side, node in nodes if node_side == side}
        if curves:
            draw_scores(folder / f"scores_{side}.png", labels, curves, limit=part.limit, marked=marked)
        X, error = _reference(part)
        if len(error) >= 10:
            title = f"Reference positions of {len(error)} {side}s"
            draw_reference(folder / f"reference_{side}.png", X, error, title=title)


def _reference(part: SideScores) -> tuple[FloatArray, FloatArray]:
    """Return the mean aligned position and the mean raw score of the nodes that have a standardised score."""
    is_scored = np.isfinite(part.standardised).any(axis=1)
    X = centroid(part.patches, part.alignment, missing="nan")
    return X[is_scored], np.nanmean(part.raw[is_scored], axis=1)


def parse_marks(text: str) -> frozenset[int]:
    """Read ``"49-88,90"`` as window numbers.

    Examples
    --------
    >>> sorted(parse_marks("3-5,9"))
    [3, 4, 5, 9]
    """
    marks: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not first.strip().isdigit() or (last and not last.strip().isdigit()):
            raise InputError(f"{part!r} is no window or range of windows: write 49-88 or 3,5,9.")
        marks |= set(range(int(first), int(last or first) + 1))
    return frozenset(marks)
