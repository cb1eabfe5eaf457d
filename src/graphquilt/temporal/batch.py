"""Score all windows at once: embed each, align them, score every node in every window, and rank the alerts."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

import numpy as np

from graphquilt.alignment import Alignment, align
from graphquilt.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from graphquilt.errors import DisconnectedError, InputError
from graphquilt.linalg import components
from graphquilt.patches import Patch
from graphquilt.progress import ProgressCallback, report
from graphquilt.temporal.alerts import Alert, Explanation, Pattern, explain
from graphquilt.temporal.embedding import embed_or_explain, warn_left_out
from graphquilt.temporal.scores import ScoringOptions, deviations, leave_one_out_zscore, threshold
from graphquilt.temporal.windows import SIDES, Window, first_few, lag_edges

__all__ = ["AnomalyScores", "SideScores", "rank_alerts", "score_windows"]

_IN_FLIGHT = 4  # windows that wait for the executor at the same time

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class SideScores:
    """Scores of the sources, or of the destinations.

    Attributes
    ----------
    patches : tuple of Patch
        The embedding of each window that was aligned.
    alignment : Alignment
    raw, standardised : float arrays (n, windows)
        Distance from the reference position, and its leave-one-out z-score; NaN where there is none.
    limit : float
        The quantile of the standardised scores above which a node is flagged.
    """

    patches: tuple[Patch, ...]
    alignment: Alignment
    raw: FloatArray
    standardised: FloatArray
    limit: float

    @property
    def flagged(self) -> BoolArray:
        """Which scores lie above the limit, (n, windows)."""
        return np.asarray(self.standardised > self.limit)


@dataclass(frozen=True, eq=False)
class AnomalyScores:
    """The result of :func:`score_windows`.

    Attributes
    ----------
    numbers, times : int array and float array (windows,)
        Number and start of each window that was aligned; column t of every score belongs to ``numbers[t]``.
    sides : mapping of "source" and "destination" to SideScores
    left_out : mapping of int to str
        The windows that could not be embedded, each with the reason.
    patterns : tuple of Pattern
        The pairs of each aligned window, for explanations.
    """

    numbers: Int64Array
    times: Float64Array
    sides: Mapping[str, SideScores]
    left_out: Mapping[int, str]
    patterns: tuple[Pattern, ...]

    def explain(self, number: int, side: str, node: int) -> Explanation:
        """Return which neighbours of a node are new or gone in window ``number``, compared with all other windows."""
        return explain(self.patterns, node, int(np.searchsorted(self.numbers, number)), side=side)


def score_windows(
    windows: Iterable[Window],
    options: ScoringOptions | None = None,
    *,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> AnomalyScores:
    """Score every node in every window against all its other windows (the paper's application).

    Parameters
    ----------
    windows : iterable of Window
        For example ``snapshots(...).windows()``; read once, in order.
    executor : concurrent.futures.Executor, optional
        Embeds several windows at the same time; None is a plain loop.

    Raises
    ------
    DisconnectedError
        If the lags do not connect all windows that could be embedded.
    """
    options = options or ScoringOptions()
    embedded: list[tuple[int, float, Pattern, tuple[Patch, Patch]]] = []
    left_out: dict[int, str] = {}
    for window, result in _embedded(windows, options, executor):
        report(progress, "windows embedded", len(embedded) + len(left_out) + 1)
        if isinstance(result, str):
            left_out[window.number] = result
            warn_left_out(window.number, result)
        else:
            embedded.append((window.number, window.start, Pattern.of(window.matrix), result))
    if len(embedded) < 3:
        raise InputError(
            f"{len(embedded)} windows could be embedded in {options.dim} dimensions, {len(left_out)} could not"
            + (f" (the first: {next(iter(left_out.values()))})" if left_out else "")
            + "; scoring needs at least 3."
        )
    window_numbers, starts, patterns, embeddings = zip(*embedded, strict=True)
    numbers = np.array(window_numbers)
    edges = lag_edges(numbers, options.lags)
    sides = {}
    for k, (side, patches) in enumerate(zip(SIDES, zip(*embeddings, strict=True), strict=True)):
        alignment = align(patches, usable_edges(patches, edges, numbers, side))
        D = deviations(patches, alignment)
        Z = leave_one_out_zscore(D, min_observations=options.min_observations)
        sides[side] = SideScores(patches, alignment, D, Z, threshold(Z, options.quantile))
        report(progress, "sides scored", k + 1, len(SIDES))
    return AnomalyScores(numbers, np.array(starts, dtype=np.float64), sides, left_out, patterns)


def rank_alerts(scores: AnomalyScores) -> list[Alert]:
    """List the scores above the limit of their side, the most unusual first."""
    alerts = [
        Alert(int(scores.numbers[t]), side, int(node), float(part.raw[node, t]), float(part.standardised[node, t]))
        for side, part in scores.sides.items()
        for t, node in np.argwhere(part.flagged.T)
    ]
    return sorted(alerts, key=lambda alert: -alert.standardised)


def _embedded(
    windows: Iterable[Window], options: ScoringOptions, executor: Executor | None
) -> Iterator[tuple[Window, tuple[Patch, Patch] | str]]:
    """Embed windows in order; a window that cannot be embedded gives the reason."""
    waiting: deque[tuple[Window, Future[tuple[Patch, Patch] | str]]] = deque()
    for window in windows:
        if executor is None:
            yield window, embed_or_explain(window.matrix, options)
            continue
        waiting.append((window, executor.submit(embed_or_explain, window.matrix, options)))
        if len(waiting) >= _IN_FLIGHT:
            first, future = waiting.popleft()
            yield first, future.result()
    for first, future in waiting:
        yield first, future.result()


def usable_edges(patches: Sequence[Patch], edges: Int64Array, numbers: Int64Array, side: str) -> Int64Array:
    """Return the pairs of windows that share enough nodes to be aligned; together they must connect all windows."""
    required = patches[0].dim + 1
    common = np.array([np.isin(patches[i].nodes, patches[j].nodes, assume_unique=True).sum() for i, j in edges])
    enough = common >= required
    shortage = ""
    if not enough.all():
        worst = int(np.argmin(common))
        a, b = numbers[edges[worst]]
        shortage = (
            f"{int((~enough).sum())} of {len(edges)} pairs of windows share fewer than the {required} {side}s that "
            f"{required - 1} dimensions need; windows {a} and {b} share {common[worst]}"
        )
        _log.warning("%s: these pairs are not aligned with each other", shortage)
    label = components(edges[enough], len(patches))
    if label.max() > 0:
        apart = numbers[label != np.bincount(label).argmax()]
        raise DisconnectedError(
            f"the lags leave {label.max() + 1} groups of windows that cannot be aligned with each other; outside the "
            f"largest group are {first_few(apart.tolist())}. {f'{shortage}. ' if shortage else ''}"
            "Add lags that bridge the gap, use wider windows, or embed in fewer dimensions."
        )
    return edges[enough]
