"""What the page of a batch run shows: the timeline, alerts, all hosts, and the fit in words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np

from graphquilt.arrays import Int64Array
from graphquilt.temporal.batch import AnomalyScores, Detection
from graphquilt.temporal.judging import LEARNT
from graphquilt.temporal.names import Names
from graphquilt.temporal.records import date_of
from graphquilt.temporal.results import MEANINGS
from graphquilt.temporal.windows import SIDES

UNUSUAL = 40.0  # a host with at least this severity is counted in the timeline: chance alone gives one per window
_SHOWN = 1000  # alerts and connections on the page
_MOST_HOSTS = 100_000  # names that can be searched
_MOST_POINTS = 400_000  # severities of hosts in windows
_LONG = 8  # windows judged, from which a host is mostly compared with itself
_VERDICTS = (
    (0.4, "Good", "good", "agree well from window to window"),
    (0.7, "Fair", "fair", "agree roughly from window to window"),
    (np.inf, "Weak", "fair", "hardly agree from window to window, and say little about groups of hosts"),
)


def count_unusual(scores: AnomalyScores) -> dict[str, Int64Array]:
    """Return the number of unusual hosts of each window, (windows,), by side."""
    return {side: np.array([int((w.sides[side].severity >= UNUSUAL).sum()) for w in scores.windows]) for side in SIDES}


def window_labels(scores: AnomalyScores) -> list[str]:
    """Label each window with its date if times are seconds since 1970, and with its number otherwise."""
    times = scores.times
    if any(date_of(float(time)) is None for time in times):
        return [str(number) for number in scores.numbers]
    daily = bool(np.all(times % 86400 == 0))
    stamps = [datetime.fromtimestamp(float(t), UTC) for t in times]
    return [stamp.strftime("%Y-%m-%d" if daily else "%Y-%m-%d %H:%M") for stamp in stamps]


def judged_in_words(scores: AnomalyScores) -> list[dict[str, str]]:
    """Say what was judged and what was not: the windows that were learnt from, and how well positions agree."""
    windows = scores.windows
    n_judged = sum(window.n_learnt >= LEARNT for window in windows)
    if n_judged == 0:
        text = (
            f"Nothing could be judged: there are {len(windows)} windows, and the first {LEARNT} are only learnt from. "
        )
        return [
            {"word": "Nothing", "kind": "bad", "text": text + "Use narrower windows (--width), or give a longer log."}
        ]
    text = f"{n_judged} of {len(windows)} windows were judged; the first {LEARNT} were only learnt from."
    if n_judged < _LONG:
        text += " After so few windows, hosts are compared with each other rather than with themselves."
    words = [{"word": "Judged" if n_judged >= _LONG else "Learning", "kind": "good" if n_judged >= _LONG else "fair"}]
    words[0]["text"] = text
    errors = np.array([window.fit for window in windows], dtype=np.float64)
    known = errors[np.isfinite(errors)]
    if len(known) == 0:
        text = "No window could be placed among earlier ones: hosts are judged by counts, not by groups of hosts."
        return [*words, {"word": "Counts only", "kind": "fair", "text": text}]
    middle = float(np.median(known))
    word, kind, meaning = next(words for limit, *words in _VERDICTS if middle <= limit)
    text = f"Positions {meaning}: the median error is {middle:.2f} of their spread."
    return [*words, {"word": word, "kind": kind, "text": text}]


def page_data(detection: Detection) -> dict[str, object]:
    """Collect what the page shows."""
    scores, facts = detection.scores, detection.facts
    labels, unusual = window_labels(scores), count_unusual(scores)
    position = {int(number): t for t, number in enumerate(scores.numbers)}
    by_kind = {kind: [alert for alert in detection.alerts if alert["kind"] == kind] for kind in ("host", "pair")}
    placed = {
        kind: [alert | {"window": position[alert["window"]]} for alert in alerts[:_SHOWN]]
        for kind, alerts in by_kind.items()
    }
    windows = [
        {
            "number": window.number,
            "label": labels[t],
            "flows": window.rows,
            "left_out": window.left_out,
            **{side: int(count[t]) for side, count in unusual.items()},
            "learning": window.n_learnt < LEARNT,
            "fit": round(float(window.fit), 3) if np.isfinite(window.fit) else None,
        }
        for t, window in enumerate(scores.windows)
    ]
    rows_read = [["flows", facts["kept_rows"]], ["bad rows", facts["bad_rows"]]] if "kept_rows" in facts else []
    return {
        "windows": windows,
        "facts": [
            *rows_read,
            ["windows", len(windows)],
            ["not embedded", len(scores.left_out)],
            ["alerts", len(detection.alerts)],
            ["incidents", len(detection.incidents)],
        ],
        "unusual": UNUSUAL,
        "meanings": MEANINGS,
        "n_alerts": {kind: len(alerts) for kind, alerts in by_kind.items()},
        "alerts": placed["host"],
        "pairs": placed["pair"],
        "incidents": [
            incident | {"windows": [position[number] for number in incident["windows"]]}
            for incident in detection.incidents[:_SHOWN]
        ],
        "hosts": _all_hosts(scores, detection.names),
        "judged": judged_in_words(scores),
        "n_learnt": LEARNT,
    }


def _all_hosts(scores: AnomalyScores, names: Mapping[str, Names]) -> dict[str, object]:
    """Return every host with its severities: names, sides, and of each the windows and severities one after another."""
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
