"""What the page and the figures of a batch run show: the timeline, alerts, all hosts, and the fit in words."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import centroid
from graphquilt.arrays import BoolArray, FloatArray, Int64Array
from graphquilt.errors import InputError, MissingExtraError
from graphquilt.report import new_figure, save_figure
from graphquilt.temporal.batch import AnomalyScores, Detection
from graphquilt.temporal.judging import LEARNT
from graphquilt.temporal.names import Names
from graphquilt.temporal.records import date_of
from graphquilt.temporal.results import MEANINGS
from graphquilt.temporal.windows import SIDES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
_SOURCE, _DESTINATION, _FLAGGED = "#2563a8", "#c2571a", "#b42318"


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


def _severities(scores: AnomalyScores, side: str, node: int) -> FloatArray:
    """Return the severity of a node in each window, (windows,); NaN where it is absent."""
    history = np.full(len(scores.windows), np.nan)
    for t, window in enumerate(scores.windows):
        table = window.sides[side]
        row = int(np.searchsorted(table.nodes, node))
        if row < len(table.nodes) and table.nodes[row] == node:
            history[t] = float(table.severity[row])
    return history


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


def page_data(detection: Detection, timeline: Timeline) -> dict[str, object]:
    """Collect what the page shows."""
    scores, facts = detection.scores, detection.facts
    position = {int(number): t for t, number in enumerate(scores.numbers)}
    by_kind = {kind: [alert for alert in detection.alerts if alert["kind"] == kind] for kind in ("host", "pair")}
    placed = {
        kind: [alert | {"window": position[alert["window"]]} for alert in alerts[:_SHOWN]]
        for kind, alerts in by_kind.items()
    }
    windows = [
        {
            "number": window.number,
            "label": timeline.labels[t],
            "marked": bool(timeline.marked[t]),
            "flows": window.rows,
            "left_out": window.left_out,
            **{side: int(count[t]) for side, count in timeline.outliers.items()},
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


def draw_figures(folder: Path, detection: Detection, timeline: Timeline, nodes: Sequence[tuple[str, int]]) -> None:
    """Draw all figures; ``nodes`` are sides and ids, by default those of the highest alerts."""
    hosts = [alert for alert in detection.alerts if alert["kind"] == "host"]
    hosts.sort(key=lambda alert: (alert["side"] != "source", alert["pvalue"]))
    nodes = nodes or list(dict.fromkeys((a["side"], detection.names[a["side"]].id(a["node"])) for a in hosts))[:4]
    scores, (labels, counts, marked) = detection.scores, timeline
    draw_outliers(folder / "outliers.png", labels, counts, marked=marked)
    for side in SIDES:
        names = detection.names[side]
        curves = {names[node]: _severities(scores, side, node) for node_side, node in nodes if node_side == side}
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


def draw_outliers(
    path: str | Path, labels: Sequence[str], counts: dict[str, Int64Array], *, marked: npt.ArrayLike | None = None
) -> Path:
    """Draw the number of outliers per window, one panel per side (the paper's last figure)."""
    figure, panels = _window_panels(len(counts), 2.1, labels, marked)
    for panel, (side, count) in zip(panels, counts.items(), strict=True):
        panel.bar(np.arange(len(labels)), count, width=0.8, color=_SOURCE if side == "source" else _DESTINATION)
        panel.set_ylabel(f"outlying\n{side}s")
        panel.locator_params(axis="y", integer=True)
    return save_figure(figure, path)


def draw_scores(
    path: str | Path,
    labels: Sequence[str],
    scores: dict[str, FloatArray],
    *,
    limit: float,
    marked: npt.ArrayLike | None = None,
) -> Path:
    """Draw the severity of some nodes over time, one panel per node, with the limit as a line."""
    if not scores:
        raise InputError("no nodes were chosen to draw.")
    figure, panels = _window_panels(len(scores), 1.5, labels, marked)
    windows = np.arange(len(labels))
    for panel, (name, z) in zip(panels, scores.items(), strict=True):
        panel.plot(windows, z, color=_SOURCE, linewidth=1.2, marker="o", markersize=2.5)
        flagged = z > limit
        panel.plot(windows[flagged], z[flagged], "o", color=_FLAGGED, markersize=4.5)
        panel.axhline(limit, color=_FLAGGED, linestyle="--", linewidth=0.9)
        panel.set_title(name, fontsize=9, loc="left", pad=2)
        panel.set_ylabel("severity")
    return save_figure(figure, path)


def draw_reference(
    path: str | Path, reference: FloatArray, error: FloatArray, *, seed: int = 0, limit: int = 4_000, title: str = ""
) -> Path:
    """Draw the reference embedding by UMAP, coloured by each node's mean raw score (the paper's first figure)."""
    try:
        import umap
    except ImportError:
        raise MissingExtraError("the map of the reference", "viz") from None
    rows = np.flatnonzero(np.isfinite(reference).all(axis=1) & np.isfinite(error))
    if len(rows) < 10:
        raise InputError(f"{len(rows)} nodes have a reference position; a map needs at least 10.")
    rng = np.random.default_rng(seed)
    if len(rows) > limit:
        rows = np.sort(rng.choice(rows, limit, replace=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap warns that a seed prevents the use of threads
        flat = umap.UMAP(n_neighbors=min(15, len(rows) - 1), random_state=seed).fit_transform(reference[rows])
    figure = new_figure(6.4, 5.7, purpose="a figure")
    axes = figure.subplots()
    order = np.argsort(error[rows])  # the largest errors lie on top
    shade = np.log10(np.maximum(error[rows][order], np.finfo(float).tiny))
    low, high = np.quantile(shade, [0.01, 0.99])
    x, y = flat[order].T
    dots = axes.scatter(x, y, c=shade, s=6, cmap="viridis", vmin=low, vmax=high, linewidths=0)
    figure.colorbar(dots, ax=axes, label="mean distance from the reference position, log10")
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=10, loc="left")
    return save_figure(figure, path)


def _window_panels(
    count: int, height: float, labels: Sequence[str], marked: npt.ArrayLike | None
) -> tuple[Figure, list[Axes]]:
    """Return a figure with ``count`` panels above each other, whose common axis is the windows."""
    n = len(labels)
    flags = np.zeros(n, dtype=bool) if marked is None else np.asarray(marked, dtype=bool)
    if flags.shape != (n,):
        raise InputError(f"there are {n} windows and {flags.size} marks; give one for each.")
    figure = new_figure(8.0, 0.5 + height * count, purpose="a figure")
    panels = list(figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0])
    for panel in panels:
        for t in np.flatnonzero(flags):
            panel.axvspan(t - 0.5, t + 0.5, color="#fdecea", linewidth=0)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    # As many labels as fit beside each other on an axis of about 7 inches.
    n_labels = max(1, int(7.0 / (0.07 * max(map(len, labels), default=1) + 0.2)))
    ticks = range(0, n, max(1, -(-n // n_labels)))
    panels[-1].set_xticks(ticks, [labels[t] for t in ticks], fontsize=8)
    panels[-1].set_xlim(-0.7, n - 0.3)
    return figure, panels
