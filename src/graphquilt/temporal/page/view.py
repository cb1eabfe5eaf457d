"""What the page of a batch run shows: the timeline, alerts with their components, all hosts, and the fit in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from graphquilt.arrays import BoolArray, FloatArray, Int64Array
from graphquilt.temporal import SIDES, AnomalyScores, Names
from graphquilt.temporal.calibration import severity
from graphquilt.temporal.records import Record, date_of

__all__ = ["MEANINGS", "UNUSUAL", "Timeline", "fit_in_words", "page_data", "severities", "window_labels"]

UNUSUAL = 60.0  # a host with at least this severity, which is p = 0.001, is counted in the timeline
_SHOWN = 1000  # alerts and connections on the page
_MOST_HOSTS = 100_000  # names that can be searched
_MOST_POINTS = 400_000  # severities of hosts in windows
_AGREES = 0.9  # the relative error of a side above which it has no drift

MEANINGS = {
    "drift": "its position in the embedding moved",
    "affinity": "it talks to other groups of hosts than usual",
    "degree": "how many partners it has",
    "volume": "how many flows it has",
    "peak rate": "how many flows it has in its busiest moment",
    "new pairs": "partners that it never had before",
    "pair surprise": "how improbable its partners are together",
    "newcomers": "partners that nobody had seen before",
    "inside pairs": "hosts inside that it never talked to before",
    "callbacks": "it returns to a young address outside that nobody else talks to",
    "level": "how high its counts are among all hosts",
    "tokens": "what ran on it",
    "company": "its partners are unusual themselves",
}


class Timeline(NamedTuple):
    """The windows of a report: the label of each, the number of unusual hosts by side, and which are marked."""

    labels: list[str]
    outliers: dict[str, Int64Array]
    marked: BoolArray

    @classmethod
    def of(cls, scores: AnomalyScores, marked: frozenset[int]) -> Timeline:
        """Return the timeline of some scores."""
        counts = {
            side: np.array([int((w.sides[side].severity >= UNUSUAL).sum()) for w in scores.windows]) for side in SIDES
        }
        return cls(window_labels(scores), counts, np.isin(scores.numbers, list(marked)))


def window_labels(scores: AnomalyScores) -> list[str]:
    """Label each window with its date if times are seconds since 1970, and with its number otherwise."""
    times = scores.times
    if any(date_of(float(time)) is None for time in times):
        return [str(number) for number in scores.numbers]
    daily = bool(np.all(times % 86400 == 0))
    stamps = [datetime.fromtimestamp(float(t), UTC) for t in times]
    return [stamp.strftime("%Y-%m-%d" if daily else "%Y-%m-%d %H:%M") for stamp in stamps]


def severities(scores: AnomalyScores, side: str, node: int) -> FloatArray:
    """Return the severity of a node in each window, (windows,); NaN where it is absent."""
    history = np.full(len(scores.windows), np.nan)
    for t, window in enumerate(scores.windows):
        table = window.sides[side]
        row = int(np.searchsorted(table.nodes, node))
        if row < len(table.nodes) and table.nodes[row] == node:
            history[t] = float(severity(table.pvalue[row]))
    return history


def fit_in_words(scores: AnomalyScores) -> list[dict[str, str]]:
    """Say for each side how well the positions of its windows agree, and whether it can alert by drift.

    The error of a window is that of placing its hosts among the earlier windows, relative to the spread of their
    positions: 0 is perfect agreement, and 1 is none.
    """
    verdicts = []
    for side in SIDES:
        errors = np.array([window.fits.get(side, np.nan) for window in scores.windows], dtype=np.float64)
        known = errors[np.isfinite(errors)]
        if len(known) == 0:
            text = f"No window of the {side}s could be placed among earlier ones, so that no {side} alerts by drift."
            verdicts.append({"side": side, "word": "None", "kind": "bad", "text": text})
            continue
        middle, n_apart = float(np.median(known)), int((known > _AGREES).sum())
        apart = (
            f" In {n_apart} of {len(known)} windows the overlaps do not agree (error above {_AGREES}): "
            f"there, no {side} alerts by drift."
            if n_apart
            else f" All {len(known)} windows that were placed can alert by drift."
        )
        word, kind, meaning = next(
            verdict
            for limit, *verdict in (
                (0.4, "Good", "good", "positions agree well from window to window"),
                (0.7, "Fair", "fair", "positions agree roughly; a drift must be large to stand out"),
                (_AGREES, "Weak", "fair", "positions hardly agree; drift says little"),
                (np.inf, "Bad", "bad", "positions do not agree from window to window"),
            )
            if middle <= limit
        )
        text = f"For {side}s, {meaning}: the median error is {middle:.2f} of their spread.{apart}"
        verdicts.append({"side": side, "word": word, "kind": kind, "text": text})
    return verdicts


def page_data(
    scores: AnomalyScores,
    names: Mapping[str, Names],
    records: Sequence[Record],
    incidents: Sequence[Mapping[str, Any]],
    *,
    timeline: Timeline,
    facts: Mapping[str, Any],
) -> dict[str, object]:
    """Collect what the page shows; ``records`` are the alerts, the most severe first."""
    position = {int(number): t for t, number in enumerate(scores.numbers)}
    hosts = [record for record in records if record["kind"] == "host"]
    pairs = [record for record in records if record["kind"] == "pair"]
    windows = [
        {
            "number": window.number,
            "label": timeline.labels[t],
            "marked": bool(timeline.marked[t]),
            "flows": window.rows,
            "left_out": window.left_out,
            **{side: int(count[t]) for side, count in timeline.outliers.items()},
            "fits": {side: round(float(fit), 3) for side, fit in window.fits.items()},
        }
        for t, window in enumerate(scores.windows)
    ]
    rows_read = {"flows": facts["kept_rows"], "bad rows": facts["bad_rows"]} if "kept_rows" in facts else {}
    return {
        "windows": windows,
        "facts": [
            *([label, value] for label, value in rows_read.items()),
            ["windows", len(windows)],
            ["not embedded", len(scores.left_out)],
            ["alerts", len(records)],
            ["incidents", len(incidents)],
        ],
        "unusual": UNUSUAL,
        "meanings": MEANINGS,
        "n_alerts": {"host": len(hosts), "pair": len(pairs)},
        "alerts": [_placed(record, position) for record in hosts[:_SHOWN]],
        "pairs": [_placed(record, position) for record in pairs[:_SHOWN]],
        "incidents": [
            dict(incident) | {"windows": [position[number] for number in incident["windows"]]}
            for incident in incidents[:_SHOWN]
        ],
        "hosts": _all_hosts(scores, names),
        "fit": fit_in_words(scores),
        "drift_missing": scores.drift_missing,
    }


def _placed(record: Record, position: Mapping[int, int]) -> Record:
    return record | {"window": position[record["window"]]}


def _all_hosts(scores: AnomalyScores, names: Mapping[str, Names]) -> dict[str, object]:
    """Return every host with its severities: names, sides, and of each the windows and severities one after another.

    Hosts with higher severities come first; beyond the bounds of the page, names have no severities or are left out.
    """
    parts = [
        (k, t, window.sides[side].nodes, window.sides[side].severity)
        for k, side in enumerate(SIDES)
        for t, window in enumerate(scores.windows)
    ]
    side = np.concatenate([np.full(len(nodes), k) for k, _, nodes, _ in parts]).astype(np.int64)
    window = np.concatenate([np.full(len(nodes), t) for _, t, nodes, _ in parts]).astype(np.uint16)
    node = np.concatenate([nodes for *_, nodes, _ in parts]).astype(np.int64)
    level = np.concatenate([values for *_, values in parts])
    keys, group = np.unique(side << 40 | node, return_inverse=True)
    highest = np.zeros(len(keys))
    np.maximum.at(highest, group, level)
    rank = np.empty(len(keys), dtype=np.int64)
    order = np.argsort(-highest, kind="stable")
    rank[order] = np.arange(len(keys))
    by_host = np.lexsort((window, rank[group]))[:_MOST_POINTS]
    counts = np.bincount(rank[group[by_host]], minlength=len(keys))[:_MOST_HOSTS]
    shown = keys[order][:_MOST_HOSTS]
    is_shown = rank[group[by_host]] < _MOST_HOSTS
    return {
        "names": [names[SIDES[key >> 40]][key & ((1 << 40) - 1)] for key in shown.tolist()],
        "sides": (shown >> 40).astype(np.uint8),
        "highest": np.round(highest[order][:_MOST_HOSTS]).astype(np.uint8),
        "starts": np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32),
        "windows": window[by_host][is_shown],
        "severities": np.round(level[by_host][is_shown]).astype(np.uint8),
        "n_all": len(keys),
    }
