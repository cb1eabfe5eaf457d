"""Write the results of a batch run: scores, alerts, figures, a page and a summary."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from graphquilt.alignment import centroid
from graphquilt.arrays import BoolArray, FloatArray, Int64Array
from graphquilt.errors import InputError
from graphquilt.files import beside, explained, write_text
from graphquilt.report.anomaly_figures import draw_outliers, draw_reference, draw_scores
from graphquilt.temporal import COMPONENTS, SIDES, Alert, AnomalyScores, Names
from graphquilt.temporal.alerts import describe_alert
from graphquilt.temporal.calibration import severity

__all__ = ["ReportOptions", "parse_marks", "render_page", "window_labels", "write_report", "write_scores"]

_TEMPLATE = Path(__file__).with_name("anomaly_page.html")
_SHOWN = 500  # alerts on the page
_UNUSUAL = 60.0  # a host with at least this severity, which is p = 0.001, is counted in the timeline
_LAST_DATE = 253_402_300_799.0  # the last second of the year 9999, in seconds since 1970

_Node: TypeAlias = tuple[str, int]  # side and id


class Timeline(NamedTuple):
    """The windows of a report: the label of each, the number of outliers by side, and which windows are marked."""

    labels: list[str]
    outliers: dict[str, Int64Array]
    marked: BoolArray


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
    budget : int
        How many alerts there are for each window at most.
    """

    title: str = "Anomalies"
    marked: frozenset[int] = frozenset()
    nodes: tuple[_Node, ...] = ()
    explained: int = 200
    figures: bool = True
    budget: int = 20


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
    alerts = scores.alerts(options.budget)
    counts = {
        side: np.array([int((w.sides[side].severity >= _UNUSUAL).sum()) for w in scores.windows]) for side in SIDES
    }
    timeline = Timeline(window_labels(scores), counts, np.isin(scores.numbers, list(options.marked)))
    label = dict(zip(scores.numbers.tolist(), timeline.labels, strict=True))
    records = []
    for rank, alert in enumerate(alerts):
        is_explained = rank < options.explained
        explanation = scores.explain(alert.number, alert.side, alert.node) if is_explained else None
        records.append({"label": label[alert.number], **describe_alert(alert, names, explanation)})
    summary = {**_summary(scores, timeline), "alerts": len(alerts), **(facts or {})}
    page = render_page(_page_data(scores, alerts, records, timeline=timeline, title=options.title))
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
    drift = None if scores.drift is None else scores.drift.sides.items()
    return {
        "windows": len(scores.numbers),
        "left_out": {str(number): reason for number, reason in scores.left_out.items()},
        "node_windows_scored": {side: sum(len(w.sides[side].nodes) for w in scores.windows) for side in SIDES},
        "outliers": {side: count.tolist() for side, count in timeline.outliers.items()},
        "numbers": scores.numbers.tolist(),
        "drift_missing": scores.drift_missing,
        "median_edge_error": drift and {side: float(np.median(part.alignment.edge_errors)) for side, part in drift},
    }


def window_labels(scores: AnomalyScores) -> list[str]:
    """Label each window with its date if times are seconds since 1970, and with its number otherwise."""
    times = scores.times
    if len(times) == 0 or float(times.min()) < 1e8 or float(times.max()) > _LAST_DATE:
        return [str(number) for number in scores.numbers]
    daily = bool(np.all(times % 86400 == 0))
    stamps = [datetime.fromtimestamp(float(t), UTC) for t in times]
    return [stamp.strftime("%Y-%m-%d" if daily else "%Y-%m-%d %H:%M") for stamp in stamps]


def write_scores(path: str | Path, scores: AnomalyScores, names: Mapping[str, Names]) -> Path:
    """Write one row per node and window: node, side, window, pvalue, severity, and the z-score of each component."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    label, number = pa.dictionary(pa.int32(), pa.string()), pa.float32()
    components = [name.replace(" ", "_") for name in COMPONENTS]
    fields = [("node", label), ("side", label), ("window", pa.int64()), ("pvalue", pa.float64()), ("severity", number)]
    schema = pa.schema([*fields, *((name, number) for name in components)])
    path = Path(path)
    with explained(path.parent), beside(path) as unfinished:
        with pq.ParquetWriter(unfinished, schema, compression="zstd") as writer:
            for side in SIDES:
                for window in scores.windows:
                    table = window.sides[side]
                    columns = [
                        pa.array([names[side][int(node)] for node in table.nodes], label),
                        pa.array([side] * len(table.nodes), label),
                        pa.array(np.full(len(table.nodes), window.number), pa.int64()),
                        pa.array(table.pvalue),
                        pa.array(table.severity, number),
                        *(pa.array(z, number, from_pandas=True) for z in table.z.T),
                    ]
                    writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        os.replace(unfinished, path)
    return path


def _top_nodes(alerts: Sequence[Alert]) -> tuple[_Node, ...]:
    """Return the four nodes with the highest alerts, sources before destinations."""
    ordered = sorted(alerts, key=lambda alert: (alert.side != "source", alert.pvalue))
    return tuple(dict.fromkeys((alert.side, alert.node) for alert in ordered))[:4]


def _severities(scores: AnomalyScores, side: str, node: int) -> FloatArray:
    """Return the severity of a node in each window, (windows,); NaN where it is absent."""
    history = np.full(len(scores.windows), np.nan)
    for t, window in enumerate(scores.windows):
        table = window.sides[side]
        row = int(np.searchsorted(table.nodes, node))
        if row < len(table.nodes) and table.nodes[row] == node:
            history[t] = float(severity(table.pvalue[row]))
    return history


def _draw_figures(
    folder: Path, scores: AnomalyScores, timeline: Timeline, names: Mapping[str, Names], nodes: tuple[_Node, ...]
) -> None:
    labels, counts, marked = timeline
    draw_outliers(folder / "outliers.png", labels, counts, marked=marked)
    for side in SIDES:
        curves = {names[side][node]: _severities(scores, side, node) for node_side, node in nodes if node_side == side}
        if curves:
            draw_scores(folder / f"scores_{side}.png", labels, curves, limit=_UNUSUAL, marked=marked)
        if scores.drift is None:
            continue
        part = scores.drift.sides[side]
        is_scored = np.isfinite(part.standardised).any(axis=1)
        if is_scored.sum() >= 10:
            X = centroid(part.patches, part.alignment, missing="nan")[is_scored]
            title = f"Reference positions of {len(X)} {side}s"
            mean_score = np.nanmean(part.raw[is_scored], axis=1)
            draw_reference(folder / f"reference_{side}.png", X, mean_score, title=title)


def _page_data(
    scores: AnomalyScores,
    alerts: Sequence[Alert],
    records: Sequence[Mapping[str, object]],
    *,
    timeline: Timeline,
    title: str,
) -> dict[str, object]:
    """Collect what :func:`render_page` needs; alerts whose record has no explanation are counted but not shown."""
    labels = timeline.labels
    position = {int(number): t for t, number in enumerate(scores.numbers)}
    shown = [(alert, row) for alert, row in zip(alerts[:_SHOWN], records, strict=False) if "degree" in row]
    left_out = f", of which {len(scores.left_out)} could not be embedded" if scores.left_out else ""
    return {
        "title": title,
        "notes": [
            f"The report covers {len(labels)} windows, from {labels[0]} to {labels[-1]}{left_out}. There are "
            f"{len(alerts)} alerts; the page shows {len(shown)} of them.",
            "The severity is 20 points for each factor of ten by which the p-value lies below 1: p = 0.001 is 60.",
        ],
        "windows": [
            {
                "number": int(number),
                "label": labels[t],
                "marked": bool(timeline.marked[t]),
                **{side: int(count[t]) for side, count in timeline.outliers.items()},
            }
            for t, number in enumerate(scores.numbers)
        ],
        "limits": dict.fromkeys(SIDES, _UNUSUAL),
        "alerts": [
            {
                "window": position[alert.number],
                "severity": alert.severity,
                "usual": row["usual_degree"],
                "reason": ", ".join(component.name for component in alert.components[:2]),
                **{key: row[key] for key in ("side", "node", "degree", "new", "gone", "n_new", "n_gone")},
            }
            for alert, row in shown
        ],
        "nodes": {
            f"{alert.side} {row['node']}": _severities(scores, alert.side, alert.node).tolist() for alert, row in shown
        },
    }


def render_page(data: Mapping[str, object]) -> str:
    """Return the page as text.

    Parameters
    ----------
    data : mapping
        ``title``; ``windows``: a list of ``{"number", "label", "source", "destination", "marked"}`` with the outlier
        counts; ``limits``: side to limit; ``alerts``: a list of ``{"window", "side", "node", "severity",
        "reason", "new", "gone", "degree", "usual"}`` where ``window`` is a position; ``nodes``: ``"side name"`` to the
        severities of all windows; ``notes``: a list of lines.

    Examples
    --------
    >>> page = render_page({"title": "t", "windows": [], "limits": {}, "alerts": [], "nodes": {}, "notes": ["<b>"]})
    >>> "http://" in page or "https://" in page, "<b>" in page
    (False, False)
    """
    text = json.dumps(_finite(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A name from the network must not be able to end the script that contains it.
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return _TEMPLATE.read_text(encoding="utf-8").replace("/*DATA*/null", text)


def _finite(value: object) -> object:
    """Round to three digits, which are enough on a page, and replace NaN, which JSON does not have, by None."""
    if isinstance(value, float):
        return round(value, 3) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return value


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
