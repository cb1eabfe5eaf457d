"""The paper's score: align all windows, and measure how far a node lies from its usual position."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import Alignment, PatchLike, align, centroid
from graphquilt.arrays import BoolArray, Float64Array, FloatArray, Int64Array, refuse_masked
from graphquilt.errors import DisconnectedError, InputError
from graphquilt.linalg import components
from graphquilt.patches import Patch
from graphquilt.progress import ProgressCallback, report
from graphquilt.temporal.embedding import EmbeddedWindow, embed_or_explain, warn_left_out
from graphquilt.temporal.tokens import TokenWindows, WindowTokens
from graphquilt.temporal.tracker import LAGS, ScoringOptions, check_min_observations
from graphquilt.temporal.windows import SIDES, Window

_ROWS = 1 << 15  # nodes that are standardised at a time, to keep temporary arrays small
_IN_FLIGHT = 4  # windows that wait for the executor at the same time

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class SideScores:
    """Scores of the sources, or of the destinations.

    ``raw`` and ``standardised`` (n, windows) are distances from the reference position and their leave-one-out
    z-scores, with NaN where a node has none; a node is flagged above the ``limit``. ``patches`` embed each aligned
    window.
    """

    patches: tuple[Patch, ...]
    alignment: Alignment
    raw: FloatArray
    standardised: FloatArray
    limit: float


@dataclass(frozen=True, eq=False)
class DriftScores:
    """The paper's scores: column t of every score belongs to window ``numbers[t]``, which starts at ``times[t]``.

    ``left_out`` has the reason for each window that could not be embedded.
    """

    numbers: Int64Array
    times: Float64Array
    sides: Mapping[str, SideScores]
    left_out: Mapping[int, str]


def drift_scores(
    windows: Iterable[Window],
    options: ScoringOptions | None = None,
    *,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> DriftScores:
    """Score every node in every window against all its other windows, by its position alone (the paper's application).

    The windows are read once, in order; an executor embeds several of them at the same time. If the lags do not connect
    all windows that could be embedded, a DisconnectedError says so.
    """
    options = options or ScoringOptions()
    embedded: list[WindowEmbedding] = []
    for window, _, result in embed_windows(windows, options, executor, None):
        embedded.append(WindowEmbedding(window.number, window.start, result))
        if isinstance(result, str):
            warn_left_out(window.number, result)
        report(progress, "windows embedded", len(embedded))
    return align_windows(embedded, options, progress)


class WindowEmbedding(NamedTuple):
    """The number and the start of a window, and its embedding or the reason why it has none."""

    number: int
    start: float
    result: EmbeddedWindow | str


def align_windows(
    embedded: Sequence[WindowEmbedding], options: ScoringOptions, progress: ProgressCallback | None
) -> DriftScores:
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
    fitting = [lag for lag in LAGS if lag <= numbers[-1] - numbers[0]] or LAGS[:1]
    edges = lag_edges(numbers, fitting if options.lags == LAGS else options.lags)  # nobody chose the default ones
    sides = {}
    for k, (side, patches) in enumerate(zip(SIDES, zip(*embeddings, strict=True), strict=True)):
        alignment = align(patches, usable_edges(patches, edges, numbers, side))
        D = deviations(patches, alignment)
        Z = leave_one_out_zscore(D, min_observations=options.min_observations)
        known = Z[~np.isnan(Z)]
        if len(known) == 0:
            raise InputError(
                "no node has a standardised score: every node was seen in too few windows. "
                "Lower min_observations, or score more windows."
            )
        sides[side] = SideScores(patches, alignment, D, Z, float(np.quantile(known, options.quantile)))
        report(progress, "sides aligned", k + 1, len(SIDES))
    return DriftScores(numbers, np.array(starts, dtype=np.float64), sides, left_out)


def embed_windows(
    windows: Iterable[Window], options: ScoringOptions, executor: Executor | None, tokens: TokenWindows | None
) -> Iterator[tuple[Window, WindowTokens | None, EmbeddedWindow | str]]:
    """Embed windows in order, with their tokens; a window that cannot be embedded gives the reason."""
    waiting: deque[tuple[Window, WindowTokens | None, Future[EmbeddedWindow | str]]] = deque()
    for window in windows:
        own = None if tokens is None else tokens.of(window.number)
        if executor is None:
            yield window, own, embed_or_explain(window.matrix, options, own)
            continue
        waiting.append((window, own, executor.submit(embed_or_explain, window.matrix, options, own)))
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
            f"largest group are {_first_few(apart.tolist())}. {f'{shortage}. ' if shortage else ''}"
            "Add lags that bridge the gap, use wider windows, or embed in fewer dimensions."
        )
    return edges[enough]


def lag_edges(times: int | npt.ArrayLike, lags: int | Sequence[int]) -> Int64Array:
    """Pair the windows whose numbers differ by one of ``lags`` (the patch graph of the paper's section on anomalies).

    ``times`` are increasing window numbers; an int n means 0..n-1. A lag longer than the data joins no windows and logs
    a warning. Returns positions (i, j) in ``times``, i < j, sorted, (m, 2).

    Examples
    --------
    >>> lag_edges(4, (1, 3)).tolist()
    [[0, 1], [0, 3], [1, 2], [2, 3]]
    >>> lag_edges([10, 11, 14], (1, 3, 4)).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    numbers = np.arange(times) if isinstance(times, int | np.integer) else np.asarray(times)
    steps = np.unique(np.atleast_1d(np.asarray(lags)))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InputError("windows are numbered by integers: pass the numbers, not times in seconds.")
    if len(numbers) > 1 and bool(np.any(np.diff(numbers) <= 0)):
        raise InputError("the window numbers must increase; sort the windows and keep each once.")
    if len(steps) == 0 or steps.dtype.kind not in "iu" or int(steps[0]) < 1:
        raise InputError(f"lags are positive whole numbers of windows, not {lags!r}.")
    span = int(numbers[-1] - numbers[0]) if len(numbers) else 0
    shared = [np.intersect1d(numbers + step, numbers, assume_unique=True, return_indices=True) for step in steps]
    edges = np.concatenate([np.column_stack(positions) for _, *positions in shared]).astype(np.int64)
    too_long = steps[steps > span].tolist()
    if len(edges) == 0 and len(numbers) > 1:
        raise InputError(
            f"no two of the {len(numbers)} windows (numbers {numbers[0]} to {numbers[-1]}) are "
            f"{_first_few(steps.tolist())} apart: give shorter lags."
        )
    if too_long and len(numbers) > 1:
        _log.warning("the windows span %d, so the lags %s join nothing", span, _first_few(too_long))
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))]


def _first_few(values: Sequence[int], limit: int = 8) -> str:
    """List the first values, with an ellipsis if there are more."""
    return ", ".join(map(str, values[:limit])) + (" …" if len(values) > limit else "")


def deviations(patches: Sequence[PatchLike], alignment: Alignment, *, n_nodes: int | None = None) -> FloatArray:
    r"""Measure how far each node lies from its reference position in each window, (n_nodes, p).

    The reference position of node i is the mean of its aligned positions over the windows T_i that have it, and
    :math:`D_{it} = \|x_{it} - \frac{1}{|T_i|} \sum_{s \in T_i} x_{is}\|` (the raw score of the paper's application).
    It is NaN where the node is absent, and in single precision if all p patches are. By default there is one row more
    than the largest id.

    Examples
    --------
    >>> from graphquilt import Alignment
    >>> patches = [([0, 1], [[0.0], [1.0]]), ([0], [[4.0]])]
    >>> deviations(patches, Alignment.identity(2, 1)).tolist()
    [[2.0, 2.0], [0.0, nan]]
    """
    if len(patches) == 0:
        raise InputError("there are no windows to measure.")
    reference = centroid(patches, alignment, n_nodes=n_nodes, missing="nan")
    pairs = [(np.asarray(nodes, dtype=np.int64), np.asarray(X)) for nodes, X in patches]
    single = all(X.dtype == np.float32 for _, X in pairs)
    D = np.full((len(reference), len(pairs)), np.nan, dtype=np.float32 if single else np.float64)
    for k, (nodes, X) in enumerate(pairs):
        D[nodes, k] = np.linalg.norm(alignment.apply(k, X) - reference[nodes], axis=1)
    return D


def leave_one_out_zscore(D: npt.ArrayLike, *, min_observations: int = 21) -> FloatArray:
    r"""Standardise each value by the mean and population deviation of the *other* values in its row.

    With n values in the row, their mean m, :math:`y = x - m` and :math:`Q = \sum y^2`, leaving one out gives
    :math:`z = \frac{n}{n-1} y \Big/ \sqrt{\frac{1}{n-1}\big(Q - \frac{n}{n-1} y^2\big)}`, in one pass.

    Returns NaN where D (n, windows) is NaN, where a row has fewer than ``min_observations`` values, which is at least
    3, and where the other values are all equal.

    Examples
    --------
    >>> leave_one_out_zscore([[1.0, 3.0, 8.0]], min_observations=3).round(3).tolist()
    [[-1.8, -0.429, 6.0]]
    """
    refuse_masked(scores=D)
    values = np.asarray(D)
    if values.ndim != 2:
        raise InputError(f"scores are standardised along the rows of a matrix; this array has {values.ndim} axes.")
    check_min_observations(min_observations)
    Z = np.full(values.shape, np.nan, dtype=values.dtype if values.dtype == np.float32 else np.float64)
    for start in range(0, len(values), _ROWS):
        rows = slice(start, start + _ROWS)
        seen = ~np.isnan(values[rows])
        enough = np.flatnonzero(seen.sum(axis=1) >= min_observations)
        if len(enough):
            Z[start + enough] = _standardise(values[rows][enough].astype(np.float64), seen[enough])
    return Z


def _standardise(x: Float64Array, seen: BoolArray) -> Float64Array:
    n = seen.sum(axis=1, keepdims=True)
    x = np.where(seen, x, 0.0)
    y = np.where(seen, x - x.sum(axis=1, keepdims=True) / n, 0.0)
    variance = ((y**2).sum(axis=1, keepdims=True) - y**2 * n / (n - 1)) / (n - 1)
    # The variance of equal values is rounding error, of the order of eps times their size and the outlier's distance.
    eps = np.finfo(np.float64).eps
    noise = (16 * eps * np.abs(x).max(axis=1, keepdims=True)) ** 2 + 16 * n * eps * y**2
    varies = seen & (variance > noise)
    return np.where(varies, y * n / (n - 1) / np.sqrt(np.where(varies, variance, 1.0)), np.nan)
