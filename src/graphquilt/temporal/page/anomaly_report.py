"""Write the results of a batch run: scores, alerts, incidents, figures, a page and a summary."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from graphquilt.alignment import centroid
from graphquilt.errors import InputError
from graphquilt.files import temporary_sibling, translate_disk_errors, write_text
from graphquilt.report import render_page
from graphquilt.temporal import COMPONENTS, SIDES, AnomalyScores, Names
from graphquilt.temporal.alert_files import write_alerts, write_lines
from graphquilt.temporal.incidents import Incidents, merge_incidents
from graphquilt.temporal.page.figures import draw_outliers, draw_reference, draw_scores
from graphquilt.temporal.page.view import UNUSUAL, Timeline, page_data, severities
from graphquilt.temporal.records import AlertOptions, Record, add_explanation, window_records

__all__ = ["ReportOptions", "parse_marks", "write_report", "write_scores"]

_Node: TypeAlias = tuple[str, int]  # side and id


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
    alerts : AlertOptions
        Which alerts there are.
    merge : int
        How many windows may lie between two alerts of one incident.
    formats : tuple of str
        Any of ``json``, ``csv`` and ``parquet``: the files of alerts.
    ecs : bool
        Write the lines of JSON with the names of the Elastic Common Schema.
    """

    title: str = "Anomalies"
    marked: frozenset[int] = frozenset()
    nodes: tuple[_Node, ...] = ()
    explained: int = 200
    figures: bool = True
    alerts: AlertOptions = field(default_factory=AlertOptions)
    merge: int = 7
    formats: tuple[str, ...] = ("json",)
    ecs: bool = False


def write_report(
    folder: str | Path,
    scores: AnomalyScores,
    *,
    names: Mapping[str, Names],
    settings: Mapping[str, object],
    options: ReportOptions | None = None,
    facts: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Write ``scores.parquet``, alerts, ``incidents.jsonl``, figures, ``report.html`` and, last, ``summary.json``.

    Parameters
    ----------
    folder : path
        Created if it does not exist.
    names : mapping of "source" and "destination" to Names
    settings : mapping
        What the windows and scores were made with; the ids of alerts depend on them.
    facts : mapping, optional
        Further entries of the summary, such as the number of rows read.

    Returns
    -------
    dict
        The summary.

    Raises
    ------
    InputError
        There are no windows, because no row of the logs is a flow that was kept.
    """
    if not scores.windows:
        raise _nothing_to_score(facts or {})
    options = options or ReportOptions()
    folder = Path(folder)
    records = _records(scores, names, options, settings)
    incidents = merge_incidents(records)
    timeline = Timeline.of(scores, options.marked)
    summary = {
        **_summary(scores, timeline),
        "alerts": len(records),
        "incidents": len(incidents),
        "highest_severity": max((record["severity"] for record in records), default=None),
        **(facts or {}),
    }
    data = page_data(scores, names, records, incidents, timeline=timeline, facts=summary)
    page = render_page(
        Path(__file__).with_name("anomaly_page"), title=options.title, data={"title": options.title, **data}
    )
    with translate_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_scores(folder / "scores.parquet", scores, names)
        write_alerts(folder, records, options.formats, ecs=options.ecs)
        write_lines(folder / "incidents.jsonl", [json.dumps(incident) for incident in incidents])
        if options.figures:
            _draw_figures(folder, scores, timeline, names, options.nodes or _top_nodes(records, names))
        write_text(folder / "report.html", page)
        write_text(folder / "summary.json", json.dumps(summary, indent=2))
    return summary


def _nothing_to_score(facts: Mapping[str, object]) -> InputError:
    """Return the error for logs without flows, with the numbers that say where the rows went."""
    parts = {"rows": "rows were read", "filtered_rows": "have another protocol", "bad_rows": "could not be read"}
    counts = ", ".join(f"{facts.get(name, 0)} {words}" for name, words in parts.items())
    skipped = facts.get("skipped_files")
    files = f", and {len(skipped)} files are no logs of flows" if isinstance(skipped, Sequence) and skipped else ""
    return InputError(
        f"there are no flows to score: {counts}{files}. Name a log that has flows, and look at --protocol and "
        "--ignore, which leave flows out."
    )


def _records(
    scores: AnomalyScores, names: Mapping[str, Names], options: ReportOptions, settings: Mapping[str, object]
) -> list[Record]:
    """Return the alerts of all windows, the most severe first; those at the top with their neighbours."""
    incidents = Incidents(options.merge)
    records = [
        record
        for window in scores.windows
        for record in window_records(window, names, options.alerts, settings=settings, incidents=incidents)
    ]
    records.sort(key=lambda record: (record["pvalue"], record["window"]))
    hosts = [record for record in records if record["kind"] == "host"]
    for record in hosts[: options.explained]:
        node = names[record["side"]].id(record["node"])
        add_explanation(record, scores.explain(record["window"], record["side"], node), names)
    return records


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


def write_scores(path: str | Path, scores: AnomalyScores, names: Mapping[str, Names]) -> Path:
    """Write one row per node and window: node, side, window, pvalue, severity, and the z-score of each component."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    label, number = pa.dictionary(pa.int32(), pa.string()), pa.float32()
    components = [name.replace(" ", "_") for name in COMPONENTS]
    fields = [("node", label), ("side", label), ("window", pa.int64()), ("pvalue", pa.float64()), ("severity", number)]
    schema = pa.schema([*fields, *((name, number) for name in components)])
    path = Path(path)
    with translate_disk_errors(path.parent), temporary_sibling(path) as unfinished:
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


def _top_nodes(records: Sequence[Record], names: Mapping[str, Names]) -> tuple[_Node, ...]:
    """Return the four nodes with the highest alerts, sources before destinations."""
    hosts = sorted((r for r in records if r["kind"] == "host"), key=lambda r: (r["side"] != "source", r["pvalue"]))
    return tuple(dict.fromkeys((r["side"], names[r["side"]].id(r["node"])) for r in hosts))[:4]


def _draw_figures(
    folder: Path, scores: AnomalyScores, timeline: Timeline, names: Mapping[str, Names], nodes: tuple[_Node, ...]
) -> None:
    labels, counts, marked = timeline
    draw_outliers(folder / "outliers.png", labels, counts, marked=marked)
    for side in SIDES:
        curves = {names[side][node]: severities(scores, side, node) for node_side, node in nodes if node_side == side}
        if curves:
            draw_scores(folder / f"scores_{side}.png", labels, curves, limit=UNUSUAL, marked=marked)
        if scores.drift is None:
            continue
        part = scores.drift.sides[side]
        is_scored = np.isfinite(part.standardised).any(axis=1)
        if is_scored.sum() >= 10:
            X = centroid(part.patches, part.alignment, missing="nan")[is_scored]
            title = f"Reference positions of {len(X)} {side}s"
            mean_score = np.nanmean(part.raw[is_scored], axis=1)
            draw_reference(folder / f"reference_{side}.png", X, mean_score, title=title)


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
