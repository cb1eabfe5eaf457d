"""All windows at once: embed each, align them, score every node in every window, rank what stands out."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import BoolArray, Float64Array, FloatArray, Int64Array, IntArray
from graphquilt.errors import ConvergenceError, DisconnectedError, InputError
from graphquilt.linalg import components
from graphquilt.patches import Patch
from graphquilt.progress import ProgressCallback, report
from graphquilt.temporal.explanations import SIDES
from graphquilt.temporal.scores import check_quantile, deviations, leave_one_out_zscore, threshold
from graphquilt.temporal.windows import lag_edges

if TYPE_CHECKING:
    from graphquilt.alignment import Alignment

__all__ = ["LAGS", "Alert", "AnomalyScores", "Pattern", "SideScores", "embed_window", "rank_alerts", "score_windows"]

LAGS = (1, 7, 14, 21, 28, 35, 42, 49)

_log = logging.getLogger(__name__)


class TimedMatrix(Protocol):
    """What is needed of a window: its number, where it starts, and its matrix."""

    @property
    def number(self) -> int: ...
    @property
    def start(self) -> float: ...
    @property
    def matrix(self) -> Any: ...


class Pattern(NamedTuple):
    """Who was joined to whom in one window, as CSR arrays without values."""

    indptr: IntArray
    indices: npt.NDArray[np.int32]
    shape: tuple[int, int]


class Alert(NamedTuple):
    """One node in one window that stands out."""

    number: int
    side: str
    node: int
    raw: float
    standardised: float


@dataclass(frozen=True, eq=False)
class SideScores:
    """Scores of the sources, or of the destinations.

    Attributes
    ----------
    side : {"source", "destination"}
    patches : tuple of Patch
        The embedding of each window that was aligned.
    alignment : Alignment
    raw, standardised : float arrays (n, windows)
        Distance to the reference, and its leave-one-out z-score; NaN where there is none.
    limit : float
        The quantile of the standardised scores above which a node is flagged.
    """

    side: str
    patches: tuple[Patch, ...]
    alignment: Alignment
    raw: FloatArray
    standardised: FloatArray
    limit: float

    @property
    def flagged(self) -> BoolArray:
        """Which scores lie above the limit, (n, windows)."""
        return np.asarray(np.nan_to_num(self.standardised, nan=-np.inf) > self.limit, dtype=bool)


@dataclass(frozen=True, eq=False)
class AnomalyScores:
    """What :func:`score_windows` found.

    Attributes
    ----------
    numbers, times : int array and float array (windows,)
        Of the windows that were aligned; column t of every score belongs to ``numbers[t]``.
    sides : mapping
        ``"source"`` and ``"destination"`` to their :class:`SideScores`.
    left_out : mapping of int to str
        Windows that could not be embedded, each with the reason.
    patterns : tuple of Pattern
        The pairs of each aligned window, for explanations.
    """

    numbers: Int64Array
    times: Float64Array
    sides: Mapping[str, SideScores]
    left_out: Mapping[int, str]
    patterns: tuple[Pattern, ...]


def embed_window(matrix: Any, dim: int, background: float = 1.0) -> tuple[Patch, Patch]:
    """Embed the sources and the destinations of one window, in single precision.

    Parameters
    ----------
    matrix : CSR array (sources, destinations)
    dim : int
    background : float
        Weight of a faint edge between every source and every destination, all together, against that of the window.

    Returns
    -------
    source, destination : Patch
        What :func:`graphquilt.embedders.bipartite_svd` gives, times sqrt((1 + background) · sum of the matrix).

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> A = sp.csr_array([[1.0, 1, 0], [1, 1, 1], [0, 1, 1]])
    >>> source, destination = embed_window(A, dim=1, background=0)
    >>> [f"{abs(x):.2f}" for x in source.coordinates[:, 0]]
    ['1.32', '0.00', '1.32']
    """
    from graphquilt.embedders import bipartite_svd

    # Differs from the paper: D^-1/2 U shrinks with the square root of the day's traffic, so that every node seems to
    # move on a weekend; multiplied by that root, the traffic-weighted mean square is 1 in each dimension of every
    # window. And a faint background keeps the vectors off the dangling bits of a sparse day, where they mean nothing
    # from one day to the next; ``background=0`` is the paper's embedding.
    source, destination = bipartite_svd(matrix, dim, background=background)
    factor = float(np.sqrt((1 + background) * matrix.sum()))
    for side, patch in zip(SIDES, (source, destination), strict=True):
        if len(patch.nodes) < dim + 1:
            raise InputError(f"{len(patch.nodes)} {side}s have a position; {dim} dimensions need at least {dim + 1}.")
    return (
        Patch(source.nodes, (factor * source.coordinates).astype(np.float32)),
        Patch(destination.nodes, (factor * destination.coordinates).astype(np.float32)),
    )


def score_windows(
    windows: Iterable[TimedMatrix],
    *,
    dim: int = 20,
    lags: Sequence[int] = LAGS,
    min_observations: int = 21,
    quantile: float = 0.999,
    background: float = 1.0,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> AnomalyScores:
    """Score every node in every window against all its other windows (the paper's application).

    Parameters
    ----------
    windows : iterable of Window
        For example ``snapshots(...).windows()``; read once, in order.
    dim : int
        Dimensions of each window's embedding.
    lags : sequence of int
        Windows that far apart are aligned with each other.
    min_observations : int
        Nodes seen in fewer windows get no standardised score.
    quantile : float
        A node is flagged above this quantile of all standardised scores of its side.
    background : float
        See :func:`embed_window`.
    executor : concurrent.futures.Executor, optional
        Embeds windows side by side; None is a plain loop.
    progress : callable, optional

    Returns
    -------
    AnomalyScores

    Raises
    ------
    DisconnectedError
        If the lags do not join all windows that could be embedded.
    """
    check_quantile(quantile)
    pairs: list[tuple[Patch, Patch]] = []
    numbers: list[int] = []
    times: list[float] = []
    patterns: list[Pattern] = []
    left_out: dict[int, str] = {}
    for window, result in _embedded(windows, dim, background, executor):
        report(progress, "windows embedded", len(numbers) + len(left_out) + 1)
        if isinstance(result, str):
            left_out[window.number] = result
            _log.warning("window %d is left out and its nodes are not scored: %s", window.number, result)
            continue
        numbers.append(window.number)
        times.append(window.start)
        patterns.append(_pattern(window.matrix))
        pairs.append(result)
    if len(numbers) < 3:
        raise InputError(
            f"{len(numbers)} windows could be embedded in {dim} dimensions, {len(left_out)} could not"
            + (f" (the first: {next(iter(left_out.values()))})" if left_out else "")
            + "; scoring needs at least 3."
        )
    edges = lag_edges(np.array(numbers), lags)
    sides = {}
    for k, side in enumerate(SIDES):
        patches = tuple(pair[k] for pair in pairs)
        usable = usable_edges(patches, edges, np.array(numbers), side)
        sides[side] = _score_side(side, patches, usable, min_observations=min_observations, quantile=quantile)
        report(progress, "sides scored", k + 1, len(SIDES))
    return AnomalyScores(np.array(numbers), np.array(times, dtype=np.float64), sides, left_out, tuple(patterns))


def rank_alerts(scores: AnomalyScores) -> list[Alert]:
    """List the scores above the limit of their side, the most unusual first."""
    alerts = []
    for side, part in scores.sides.items():
        for node, t in zip(*np.nonzero(part.flagged), strict=True):
            raw, z = float(part.raw[node, t]), float(part.standardised[node, t])
            alerts.append(Alert(int(scores.numbers[t]), side, int(node), raw, z))
    return sorted(alerts, key=lambda alert: -alert.standardised)


def _embedded(
    windows: Iterable[TimedMatrix], dim: int, background: float, executor: Executor | None
) -> Iterator[tuple[TimedMatrix, tuple[Patch, Patch] | str]]:
    """Embed windows in order; a window that cannot be embedded gives the reason. Only a few are in flight."""
    waiting: deque[tuple[TimedMatrix, Future[tuple[Patch, Patch] | str]]] = deque()
    for window in windows:
        if executor is None:
            yield window, _try_embed(window.matrix, dim, background)
            continue
        waiting.append((window, executor.submit(_try_embed, window.matrix, dim, background)))
        if len(waiting) >= 4:
            first, future = waiting.popleft()
            yield first, future.result()
    while waiting:
        first, future = waiting.popleft()
        yield first, future.result()


def _try_embed(matrix: Any, dim: int, background: float) -> tuple[Patch, Patch] | str:
    try:
        return embed_window(matrix, dim, background)
    except (InputError, ConvergenceError) as problem:
        return str(problem)


def _pattern(matrix: Any) -> Pattern:
    return Pattern(matrix.indptr, matrix.indices.astype(np.int32, copy=False), matrix.shape)


def _score_side(
    side: str,
    patches: tuple[Patch, ...],
    edges: Int64Array,
    *,
    min_observations: int,
    quantile: float,
) -> SideScores:
    from graphquilt.alignment import align

    alignment = align(patches, edges)
    D = deviations(patches, alignment)
    Z = leave_one_out_zscore(D, min_observations=min_observations)
    return SideScores(side, patches, alignment, D, Z, threshold(Z, quantile))


def usable_edges(patches: Sequence[Patch], edges: Int64Array, numbers: Int64Array, side: str) -> Int64Array:
    """Keep the pairs of windows that share enough nodes; they must still join all windows.

    Raises
    ------
    DisconnectedError
        If they do not; the message names the windows, the smallest overlap and what to change.
    """
    need = patches[0].dim + 1
    mark = np.zeros(max(int(patch.nodes.max()) for patch in patches) + 1, dtype=bool)
    common = np.empty(len(edges), dtype=np.int64)
    for i in np.unique(edges[:, 0]):
        mark[:] = False
        mark[patches[i].nodes] = True
        for row in np.flatnonzero(edges[:, 0] == i):
            common[row] = np.count_nonzero(mark[patches[edges[row, 1]].nodes])
    enough = common >= need
    said = ""
    if not enough.all():
        worst = int(np.argmin(common))
        a, b = numbers[edges[worst]]
        said = (
            f"{int((~enough).sum())} of {len(edges)} pairs of windows share fewer than the {need} {side}s that "
            f"{need - 1} dimensions need; windows {a} and {b} share {common[worst]}"
        )
        _log.warning("%s: these pairs are not aligned with each other", said)
    label = components(edges[enough], len(patches))
    if label.max() > 0:
        apart = numbers[label != np.bincount(label).argmax()]
        raise DisconnectedError(
            f"the lags leave {label.max() + 1} groups of windows that cannot be aligned with each other; apart from "
            f"the largest group are {', '.join(map(str, apart[:8]))}{' …' if len(apart) > 8 else ''}. "
            + (f"{said}. " if said else "")
            + "Add lags that bridge the gap, use wider windows, or embed in fewer dimensions."
        )
    return edges[enough]
