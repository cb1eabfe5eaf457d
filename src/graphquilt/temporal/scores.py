"""Measure how far a node lies from its usual position, and how unusual that is for this node; options of scoring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import Alignment, PatchLike, centroid
from graphquilt.arrays import BoolArray, Float64Array, FloatArray, Int64Array, refuse_masked
from graphquilt.errors import InputError

__all__ = ["LAGS", "ScoringOptions", "deviations", "leave_one_out_zscore", "outliers", "threshold"]

LAGS = (1, 7, 14, 21, 28, 35, 42, 49)
_ROWS = 1 << 15  # nodes that are standardised at a time, so that temporary arrays stay small


@dataclass(frozen=True)
class ScoringOptions:
    """How windows are embedded, aligned and scored.

    Attributes
    ----------
    dim : int
        Dimensions of the embedding of each window.
    lags : tuple of int
        Windows whose numbers differ by one of these lags are aligned with each other.
    min_observations : int
        A node that is seen in fewer windows gets no leave-one-out z-score of its drift; at least 3.
    quantile : float
        A node is flagged by that score if it lies above this quantile of the scores of its side.
    background : float
        Weight of the background edges, see :func:`graphquilt.temporal.embed_window`; 0 is the paper's embedding.
    prior : float
        How many earlier values of a host count as much as the population; see
        :func:`graphquilt.temporal.calibration.shrunk_zscores`.
    concentration : float
        How many earlier contacts of a host count as much as the contacts of all hosts, for the surprise of a pair.
    pool : int
        How many hosts of one window and side are remembered for p-values at most.
    max_pairs : int
        How many pairs are remembered at most.
    token_weight : float
        The weight c of the tokens of hosts as further columns of a window's matrix, [A | c F]; 0 leaves them out of the
        embedding.

    Examples
    --------
    >>> ScoringOptions(dim=5, lags=[7, 1, 7]).lags
    (1, 7)
    """

    dim: int = 20
    lags: tuple[int, ...] = LAGS
    min_observations: int = 21
    quantile: float = 0.999
    background: float = 1.0
    prior: float = 1.0
    concentration: float = 2.0
    pool: int = 2000
    max_pairs: int = 1 << 24
    token_weight: float = 0.0

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise InputError(f"dim must be at least 1, not {self.dim}.")
        if not self.lags or min(self.lags) < 1 or any(int(lag) != lag for lag in self.lags):
            raise InputError(f"lags are positive whole numbers of windows, not {self.lags!r}.")
        _check_min_observations(self.min_observations)
        _check_quantile(self.quantile)
        if not 0 <= self.background < float("inf"):
            raise InputError(f"the weight of the background is finite and not negative; it is {self.background}.")
        for name in ("prior", "concentration"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name} is a positive number, not {getattr(self, name)}.")
        if not 0 <= self.token_weight < float("inf"):
            raise InputError(f"the weight of tokens is finite and not negative; it is {self.token_weight}.")
        if self.pool < 16 or self.max_pairs < 1:
            raise InputError(
                f"pool is {self.pool} hosts and max_pairs {self.max_pairs} pairs; at least 16 and 1 must be remembered."
            )
        object.__setattr__(self, "lags", tuple(sorted({int(lag) for lag in self.lags})))


def deviations(patches: Sequence[PatchLike], alignment: Alignment, *, n_nodes: int | None = None) -> FloatArray:
    r"""Measure how far each node lies from its reference position in each window.

    The reference position of node i is the mean of its aligned positions over the windows T_i that have it, and
    :math:`D_{it} = \|x_{it} - \frac{1}{|T_i|} \sum_{s \in T_i} x_{is}\|` (the raw score of the paper's application).

    Parameters
    ----------
    patches : sequence of Patch or pairs (nodes, coordinates)
        One patch per window, p of them.
    alignment : Alignment
    n_nodes : int, optional
        Number of rows; by default one more than the largest id.

    Returns
    -------
    float array (n_nodes, p)
        NaN where the node is absent. Single precision if all patches are.

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

    Parameters
    ----------
    D : array (n, windows)
        NaN where a node is absent.
    min_observations : int
        Rows with fewer values get no scores; at least 3.

    Returns
    -------
    float array (n, windows)
        NaN where D is NaN, where the row has too few values, and where the other values are all equal.

    Examples
    --------
    >>> leave_one_out_zscore([[1.0, 3.0, 8.0]], min_observations=3).round(3).tolist()
    [[-1.8, -0.429, 6.0]]
    """
    refuse_masked(scores=D)
    values = np.asarray(D)
    if values.ndim != 2:
        raise InputError(f"scores are standardised along the rows of a matrix; this array has {values.ndim} axes.")
    _check_min_observations(min_observations)
    Z = np.full(values.shape, np.nan, dtype=values.dtype if values.dtype == np.float32 else np.float64)
    for start in range(0, len(values), _ROWS):
        rows = slice(start, start + _ROWS)
        seen = ~np.isnan(values[rows])
        enough = np.flatnonzero(seen.sum(axis=1) >= min_observations)
        if len(enough):
            Z[start + enough] = _standardised(values[rows][enough].astype(np.float64), seen[enough])
    return Z


def _standardised(x: Float64Array, seen: BoolArray) -> Float64Array:
    n = seen.sum(axis=1, keepdims=True)
    x = np.where(seen, x, 0.0)
    y = np.where(seen, x - x.sum(axis=1, keepdims=True) / n, 0.0)
    variance = ((y**2).sum(axis=1, keepdims=True) - y**2 * n / (n - 1)) / (n - 1)
    # The variance of equal values is rounding error, of the order of eps times their size and the outlier's distance.
    eps = np.finfo(np.float64).eps
    noise = (16 * eps * np.abs(x).max(axis=1, keepdims=True)) ** 2 + 16 * n * eps * y**2
    varies = seen & (variance > noise)
    return np.where(varies, y * n / (n - 1) / np.sqrt(np.where(varies, variance, 1.0)), np.nan)


def threshold(Z: npt.ArrayLike, quantile: float = 0.999) -> float:
    """Return the quantile of all standardised scores; NaN is no score.

    Examples
    --------
    >>> import numpy as np
    >>> threshold([[0.0, 1.0, np.nan], [2.0, 3.0, 4.0]], 0.75)
    3.0
    """
    _check_quantile(quantile)
    refuse_masked(scores=Z)
    values = np.asarray(Z)
    known = values[~np.isnan(values)]
    if len(known) == 0:
        raise InputError(
            "no node has a standardised score: every node was seen in too few windows. "
            "Lower min_observations, or score more windows."
        )
    return float(np.quantile(known, quantile))


def _check_quantile(quantile: float) -> None:
    if not 0 < quantile < 1:
        raise InputError(f"a quantile lies between 0 and 1, not at {quantile}.")


def _check_min_observations(min_observations: int) -> None:
    if min_observations < 3:
        raise InputError(f"a z-score needs two other values: min_observations is at least 3, not {min_observations}.")


def outliers(Z: npt.ArrayLike, limit: float) -> Int64Array:
    """Count the nodes above ``limit`` in each window, (windows,).

    Examples
    --------
    >>> outliers([[0.0, 5.0], [6.0, 7.0]], 4.0).tolist()
    [1, 2]
    """
    return np.asarray(np.sum(np.asarray(Z) > limit, axis=0), dtype=np.int64)
