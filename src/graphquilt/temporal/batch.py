"""Score all windows of a recording: each from the windows before it, and by the paper's drift from all others."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from graphquilt.alignment import Alignment, align
from graphquilt.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from graphquilt.errors import DisconnectedError, InputError, QuiltError
from graphquilt.linalg import components
from graphquilt.patches import Patch
from graphquilt.progress import ProgressCallback, report
from graphquilt.temporal.alerts import Explanation, Pattern, explain
from graphquilt.temporal.embedding import EmbeddedWindow, embed_or_explain, warn_left_out
from graphquilt.temporal.lags import first_few, lag_edges
from graphquilt.temporal.results import Alert, WindowScores
from graphquilt.temporal.scores import ScoringOptions, deviations, leave_one_out_zscore, threshold
from graphquilt.temporal.tokens import TokenWindows, WindowTokens
from graphquilt.temporal.tracker import Tracker
from graphquilt.temporal.windows import SIDES, Window

__all__ = ["AnomalyScores", "DriftScores", "SideScores", "drift_scores", "score_windows"]

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
class DriftScores:
    """The paper's scores, the result of :func:`drift_scores`.

    Attributes
    ----------
    numbers, times : int array and float array (windows,)
        Number and start of each window that was aligned; column t of every score belongs to ``numbers[t]``.
    sides : mapping of "source" and "destination" to SideScores
    left_out : mapping of int to str
        The windows that could not be embedded, each with the reason.
    """

    numbers: Int64Array
    times: Float64Array
    sides: Mapping[str, SideScores]
    left_out: Mapping[int, str]


@dataclass(frozen=True, eq=False)
class AnomalyScores:
    """The result of :func:`score_windows`.

    Attributes
    ----------
    windows : tuple of WindowScores
        One for each window, in order; each is what :meth:`graphquilt.temporal.Tracker.update` gives.
    drift : DriftScores or None
        The paper's scores, which compare a window with all others; None if the windows cannot be aligned.
    drift_missing : str or None
        Why they cannot.
    patterns : tuple of Pattern
        The pairs of each window, for explanations.
    """

    windows: tuple[WindowScores, ...]
    drift: DriftScores | None
    drift_missing: str | None
    patterns: tuple[Pattern, ...]

    @property
    def numbers(self) -> Int64Array:
        """The number of each window, (windows,)."""
        return np.array([window.number for window in self.windows], dtype=np.int64)

    @property
    def times(self) -> Float64Array:
        """The start of each window in seconds, (windows,)."""
        return np.array([window.start for window in self.windows], dtype=np.float64)

    @property
    def left_out(self) -> dict[int, str]:
        """The windows without positions, each with the reason."""
        return {window.number: window.left_out for window in self.windows if window.left_out is not None}

    def alerts(self, budget: int = 20, *, max_pvalue: float = 1.0) -> list[Alert]:
        """Return up to ``budget`` alerts of each window, those with the smallest p-values first."""
        alerts = [alert for window in self.windows for alert in window.alerts(budget, max_pvalue=max_pvalue)]
        return sorted(alerts, key=lambda alert: alert.pvalue)

    def explain(self, number: int, side: str, node: int) -> Explanation:
        """Return which neighbours of a node are new or gone in window ``number``, compared with all other windows."""
        return explain(self.patterns, node, int(np.searchsorted(self.numbers, number)), side=side)


def score_windows(
    windows: Iterable[Window],
    options: ScoringOptions | None = None,
    *,
    history: int | None = None,
    tokens: TokenWindows | None = None,
    keep: int | None = 10_000,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> AnomalyScores:
    """Score every host in every window from the windows before it, and by the paper's drift from all other windows.

    Parameters
    ----------
    windows : iterable of Window
        For example ``snapshots(...).windows()``; read once, in order.
    history : int, optional
        As in :class:`graphquilt.temporal.Tracker`.
    tokens : TokenWindows, optional
        What device logs say of the sources in each window.
    keep : int or None
        Of each window, the ``keep`` hosts of each side and pairs with the smallest p-values are kept; None keeps all.
    executor : concurrent.futures.Executor, optional
        Embeds several windows at the same time; None is a plain loop.
    """
    options = options or ScoringOptions()
    tracker = Tracker(options, history=history)
    scored: list[WindowScores] = []
    patterns: list[Pattern] = []
    embedded: list[_Embedded] = []
    for window, found, result in _embedded(windows, options, executor, tokens):
        scores = tracker.update(window, found, embedded=result)
        scored.append(scores if keep is None else scores.lowest(keep))
        patterns.append(Pattern.of(window.matrix))
        embedded.append(_Embedded(window.number, window.start, result))
        report(progress, "windows scored", len(scored))
    del tracker
    drift, missing = None, None
    try:
        drift = _aligned(embedded, options, progress)
    except QuiltError as error:
        missing = str(error)
        if scored:
            _log.warning("there are no drift scores over all windows: %s", missing)
    return AnomalyScores(tuple(scored), drift, missing, tuple(patterns))


def drift_scores(
    windows: Iterable[Window],
    options: ScoringOptions | None = None,
    *,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> DriftScores:
    """Score every node in every window against all its other windows, by its position alone (the paper's application).

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
    embedded: list[_Embedded] = []
    for window, _, result in _embedded(windows, options, executor, None):
        embedded.append(_Embedded(window.number, window.start, result))
        if isinstance(result, str):
            warn_left_out(window.number, result)
        report(progress, "windows embedded", len(embedded))
    return _aligned(embedded, options, progress)


class _Embedded(NamedTuple):
    """The number and the start of a window, and its embedding or the reason why there is none."""

    number: int
    start: float
    result: EmbeddedWindow | str


def _aligned(embedded: Sequence[_Embedded], options: ScoringOptions, progress: ProgressCallback | None) -> DriftScores:
    """Align embedded windows, and score the distance of each node from its mean position."""
    left_out = {window.number: window.result for window in embedded if isinstance(window.result, str)}
    usable = [(w.number, w.start, w.result[:2]) for w in embedded if not isinstance(w.result, str)]
    if len(usable) < 3:
        raise InputError(
            f"{len(usable)} windows could be embedded in {options.dim} dimensions, {len(left_out)} could not"
            + (f" (the first: {next(iter(left_out.values()))})" if left_out else "")
            + "; drift over all windows needs at least 3."
        )
    window_numbers, starts, embeddings = zip(*usable, strict=True)
    numbers = np.array(window_numbers)
    edges = lag_edges(numbers, options.lags)
    sides = {}
    for k, (side, patches) in enumerate(zip(SIDES, zip(*embeddings, strict=True), strict=True)):
        alignment = align(patches, usable_edges(patches, edges, numbers, side))
        D = deviations(patches, alignment)
        Z = leave_one_out_zscore(D, min_observations=options.min_observations)
        sides[side] = SideScores(patches, alignment, D, Z, threshold(Z, options.quantile))
        report(progress, "sides aligned", k + 1, len(SIDES))
    return DriftScores(numbers, np.array(starts, dtype=np.float64), sides, left_out)


def _embedded(
    windows: Iterable[Window], options: ScoringOptions, executor: Executor | None, tokens: TokenWindows | None
) -> Iterator[tuple[Window, WindowTokens | None, EmbeddedWindow | str]]:
    """Embed windows in order, with their tokens; a window that cannot be embedded gives the reason."""
    waiting: deque[tuple[Window, WindowTokens | None, Future[EmbeddedWindow | str]]] = deque()
    for window in windows:
        found = None if tokens is None else tokens.of(window.number)
        if executor is None:
            yield window, found, embed_or_explain(window.matrix, options, found)
            continue
        waiting.append((window, found, executor.submit(embed_or_explain, window.matrix, options, found)))
        if len(waiting) >= _IN_FLIGHT:
            earlier, its_tokens, future = waiting.popleft()
            yield earlier, its_tokens, future.result()
    for earlier, its_tokens, future in waiting:
        yield earlier, its_tokens, future.result()


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
