"""Everything that a batch run leaves behind: scores, alerts, figures, a page and a summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt.arrays import BoolArray, FloatArray, Int64Array
from graphquilt.errors import InputError
from graphquilt.report.anomaly_figures import draw_outliers, draw_reference, draw_scores
from graphquilt.report.anomaly_page import write_page
from graphquilt.temporal import Alert, AnomalyScores, SideScores, explain, outliers, rank_alerts

__all__ = ["ReportOptions", "describe_alert", "parse_marks", "window_labels", "write_report", "write_scores"]

_LISTED = 20  # neighbours named in an explanation
_HISTORIES = 500  # alerts on the page, with the histories of their nodes

NameOf = Callable[[str, int], str]


@dataclass(frozen=True)
class ReportOptions:
    """What to put into a report.

    Attributes
    ----------
    title : str
    marked : frozenset of int
        Window numbers to shade: days of a known attack, say.
    nodes : tuple of (side, id)
        Whose scores to draw; the nodes of the highest alerts where empty.
    explained : int
        How many alerts, from the top, get their new and gone neighbours.
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
    name_of: NameOf,
    options: ReportOptions | None = None,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write ``scores.parquet``, ``alerts.jsonl``, figures, ``report.html`` and, last, ``summary.json``.

    Parameters
    ----------
    folder : path
        Made if it is not there.
    scores : AnomalyScores
    name_of : callable (side, id) -> str
    options : ReportOptions, optional
    facts : mapping, optional
        What else belongs into the summary: parameters, rows read, rows left out.

    Returns
    -------
    dict
        The summary.
    """
    options = options or ReportOptions()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    labels = window_labels(scores)
    write_scores(folder / "scores.parquet", scores, name_of)
    alerts = rank_alerts(scores)
    described = [
        describe_alert(scores, alert, name_of, labels=labels, why=rank < options.explained)
        for rank, alert in enumerate(alerts)
    ]
    with open(folder / "alerts.jsonl", "w", encoding="utf-8") as out:
        for row in described:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    counts = {side: outliers(part.standardised, part.limit) for side, part in scores.sides.items()}
    marked = np.isin(scores.numbers, list(options.marked))
    if options.figures:
        _figures(folder, scores, (labels, counts, marked), name_of, options.nodes or _top_nodes(alerts))
    summary = {
        "windows": len(scores.numbers),
        "left_out": {str(number): reason for number, reason in scores.left_out.items()},
        "limits": {side: part.limit for side, part in scores.sides.items()},
        "nodes": {side: len(part.raw) for side, part in scores.sides.items()},
        "scored": {side: int(np.isfinite(part.standardised).sum()) for side, part in scores.sides.items()},
        "alerts": len(alerts),
        "outliers": {side: count.tolist() for side, count in counts.items()},
        "numbers": scores.numbers.tolist(),
        "median_edge_error": {
            side: float(np.median(part.alignment.edge_errors)) for side, part in scores.sides.items()
        },
        **(facts or {}),
    }
    write_page(folder / "report.html", _page(scores, described, (labels, counts, marked), name_of, options))
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def window_labels(scores: AnomalyScores) -> list[str]:
    """Name each window: its date where times are seconds since 1970, its number where they count from elsewhere."""
    times = scores.times
    if len(times) == 0 or float(times.min()) < 1e8:
        return [str(number) for number in scores.numbers]
    daily = bool(np.all(times % 86400 == 0))
    stamps = [datetime.fromtimestamp(float(t), UTC) for t in times]
    return [stamp.strftime("%Y-%m-%d" if daily else "%Y-%m-%d %H:%M") for stamp in stamps]


def write_scores(path: str | Path, scores: AnomalyScores, name_of: NameOf) -> Path:
    """Write one row for each node and window it is in: node, side, window, raw, standardised, flagged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    label = pa.dictionary(pa.int32(), pa.string())
    number = pa.float32()
    schema = pa.schema(
        [
            ("node", label),
            ("side", label),
            ("window", pa.int64()),
            ("raw", number),
            ("standardised", number),
            ("flagged", pa.bool_()),
        ]
    )
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for side, part in scores.sides.items():
            for t, window in enumerate(scores.numbers):
                nodes = np.flatnonzero(~np.isnan(part.raw[:, t]))
                z = part.standardised[nodes, t]
                names = pa.array([name_of(side, int(node)) for node in nodes], pa.string()).dictionary_encode()
                columns = [
                    names.cast(label),
                    pa.DictionaryArray.from_arrays(np.zeros(len(nodes), np.int32), [side]),
                    pa.array(np.full(len(nodes), window), pa.int64()),
                    pa.array(part.raw[nodes, t], number),
                    pa.array(z, number, from_pandas=True),
                    pa.array(np.nan_to_num(z, nan=-np.inf) > part.limit),
                ]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    return Path(path)


def describe_alert(
    scores: AnomalyScores, alert: Alert, name_of: NameOf, *, labels: Sequence[str], why: bool = True
) -> dict[str, Any]:
    """Return an alert in words: names, times and, with ``why``, which neighbours are new or gone."""
    t = int(np.searchsorted(scores.numbers, alert.number))
    row: dict[str, Any] = {
        "window": alert.number,
        "label": labels[t],
        "side": alert.side,
        "node": name_of(alert.side, alert.node),
        "raw": alert.raw,
        "standardised": alert.standardised,
    }
    if why:
        other = "destination" if alert.side == "source" else "source"
        found = explain(scores.patterns, alert.node, t, side=alert.side)
        row |= {
            "degree": found.degree,
            "usual_degree": found.usual_degree if np.isfinite(found.usual_degree) else None,
            "n_new": len(found.new),
            "n_gone": len(found.gone),
            "new": [name_of(other, int(node)) for node in found.new[:_LISTED]],
            "gone": [name_of(other, int(node)) for node in found.gone[:_LISTED]],
        }
    return row


def _top_nodes(alerts: Sequence[Alert]) -> tuple[tuple[str, int], ...]:
    """The four source nodes (or whatever there is) with the highest alerts."""
    ordered = sorted(alerts, key=lambda alert: (alert.side != "source", -alert.standardised))
    return tuple(dict.fromkeys((alert.side, alert.node) for alert in ordered))[:4]


def _figures(
    folder: Path,
    scores: AnomalyScores,
    windows: tuple[list[str], dict[str, Int64Array], BoolArray],
    name_of: NameOf,
    nodes: Sequence[tuple[str, int]],
) -> None:
    labels, counts, marked = windows
    draw_outliers(folder / "outliers.png", labels, counts, marked=marked)
    for side, part in scores.sides.items():
        chosen = [node for where, node in nodes if where == side]
        if chosen:
            curves = {name_of(side, node): part.standardised[node] for node in chosen}
            draw_scores(folder / f"scores_{side}.png", labels, curves, limit=part.limit, marked=marked)
        X, error = _reference(part)
        if len(error) >= 10:
            title = f"reference positions of {len(error)} {side}s"
            draw_reference(folder / f"reference_{side}.png", X, error, title=title)


def _reference(part: SideScores) -> tuple[FloatArray, FloatArray]:
    """Mean aligned position and mean raw score of the nodes that have a standardised score."""
    rows = np.flatnonzero(np.isfinite(part.standardised).any(axis=1))
    at = np.full(len(part.raw), -1)
    at[rows] = np.arange(len(rows))
    X, count = np.zeros((len(rows), part.patches[0].dim)), np.zeros(len(rows))
    for k, (nodes, coordinates) in enumerate(part.patches):
        here = at[nodes] >= 0
        X[at[nodes[here]]] += part.alignment.apply(k, coordinates[here])
        count[at[nodes[here]]] += 1
    return X / np.maximum(count, 1)[:, None], np.nanmean(part.raw[rows], axis=1)


def _page(
    scores: AnomalyScores,
    described: Sequence[Mapping[str, Any]],
    windows: tuple[list[str], dict[str, Int64Array], BoolArray],
    name_of: NameOf,
    options: ReportOptions,
) -> dict[str, Any]:
    labels, counts, marked = windows
    position = {int(number): t for t, number in enumerate(scores.numbers)}
    shown = [row for row in described[:_HISTORIES] if "degree" in row]
    wanted = {(row["side"], row["node"]) for row in shown}
    nodes = {}
    for alert in rank_alerts(scores)[: len(shown)]:
        name = name_of(alert.side, alert.node)
        if (alert.side, name) in wanted:
            nodes[f"{alert.side} {name}"] = scores.sides[alert.side].standardised[alert.node].astype(float).tolist()
    left_out = f"; {len(scores.left_out)} windows left out" if scores.left_out else ""
    nodes_scored = " and ".join(
        f"{int(np.isfinite(part.standardised).any(axis=1).sum())} of {len(part.raw)} {side}s"
        for side, part in scores.sides.items()
    )
    return {
        "title": options.title,
        "notes": [
            f"{len(labels)} windows, {labels[0]} to {labels[-1]}{left_out}; {nodes_scored} were seen often enough to "
            f"be standardised. {len(described)} alerts, of which {len(shown)} are shown.",
            "z: how many deviations a node's distance from its usual place lies above its other windows.",
        ],
        "windows": [
            {
                "number": int(number),
                "label": labels[t],
                "source": int(counts["source"][t]),
                "destination": int(counts["destination"][t]),
                "marked": bool(marked[t]),
            }
            for t, number in enumerate(scores.numbers)
        ],
        "limits": {side: part.limit for side, part in scores.sides.items()},
        "alerts": [
            {
                "window": position[row["window"]],
                "z": row["standardised"],
                "usual": row["usual_degree"],
                **{key: row[key] for key in ("side", "node", "raw", "degree", "new", "gone", "n_new", "n_gone")},
            }
            for row in shown
        ],
        "nodes": nodes,
    }


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
