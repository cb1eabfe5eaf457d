"""How far a node strays from its usual place, and how unusual that is for this node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from graphquilt.errors import CoverError, InputError

if TYPE_CHECKING:
    from graphquilt.alignment import Alignment

__all__ = ["check_quantile", "deviations", "leave_one_out_zscore", "outliers", "threshold"]


_ROWS = 1 << 15  # nodes standardised at a time, so that temporaries stay small


def deviations(patches: Sequence[Any], alignment: Alignment, *, n_nodes: int | None = None) -> FloatArray:
    r"""Measure how far each node lies from its reference position in each window.

    The reference position of node i is the mean of its aligned positions over the windows T_i that have it, and
    :math:`D_{it} = \|x_{it} - \frac{1}{|T_i|} \sum_{s \in T_i} x_{is}\|` (the raw score of the paper's application).

    Parameters
    ----------
    patches : sequence of Patch, p of them
        One a window; a pair (nodes, coordinates) will do.
    alignment : Alignment
        Of those patches.
    n_nodes : int, optional
        Number of rows; one more than the largest id.

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
    largest = max(int(np.max(nodes)) for nodes, _ in patches)
    n = largest + 1 if n_nodes is None else n_nodes
    if largest >= n:
        raise CoverError(f"node {largest} is outside 0..{n - 1}: raise n_nodes to {largest + 1}.")
    count = np.zeros(n, dtype=np.int64)
    _, X = patches[0]
    reference = np.zeros((n, np.asarray(X).shape[1]))
    for k, (nodes, X) in enumerate(patches):
        reference[nodes] += alignment.apply(k, np.asarray(X))
        count[nodes] += 1
    reference /= np.maximum(count, 1)[:, None]
    D = np.full((n, len(patches)), np.nan, dtype=_precision(patches))
    for k, (nodes, X) in enumerate(patches):
        D[nodes, k] = np.linalg.norm(alignment.apply(k, np.asarray(X)) - reference[nodes], axis=1)
    return D


def leave_one_out_zscore(D: npt.ArrayLike, *, min_observations: int = 21) -> FloatArray:
    r"""Standardise each value by the mean and population deviation of the *other* values in its row.

    With n values in the row, their mean m, :math:`y = x - m` and :math:`Q = \sum y^2`, leaving one out gives
    :math:`z = \frac{n}{n-1} y \Big/ \sqrt{\frac{1}{n-1}\big(Q - \frac{n}{n-1} y^2\big)}`: one pass, nothing recomputed.

    Parameters
    ----------
    D : array (n, windows)
        NaN where a node is absent.
    min_observations : int
        Rows with fewer values are NaN throughout; at least 3.

    Returns
    -------
    float array (n, windows)
        NaN where D is, where the row is too short, and where the other values are all equal.

    Examples
    --------
    >>> leave_one_out_zscore([[1.0, 3.0, 8.0]], min_observations=3).round(3).tolist()
    [[-1.8, -0.429, 6.0]]
    """
    values = np.asarray(D)
    if values.ndim != 2:
        raise InputError(f"scores are standardised along the rows of a matrix; this array has {values.ndim} axes.")
    if min_observations < 3:
        raise InputError(f"a z-score needs two other values: min_observations is at least 3, not {min_observations}.")
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
    # Equal values leave rounding behind, of the order of eps times their size and times the outlier's distance.
    eps = np.finfo(np.float64).eps
    noise = (16 * eps * np.abs(x).max(axis=1, keepdims=True)) ** 2 + 16 * n * eps * y**2
    fine = seen & (variance > noise)
    return np.where(fine, y * n / (n - 1) / np.sqrt(np.where(fine, variance, 1.0)), np.nan)


def threshold(Z: npt.ArrayLike, quantile: float = 0.999) -> float:
    """Return the value that all but a share ``1 - quantile`` of the standardised scores stay below.

    Examples
    --------
    >>> import numpy as np
    >>> threshold([[0.0, 1.0, np.nan], [2.0, 3.0, 4.0]], 0.75)
    3.0
    """
    check_quantile(quantile)
    values = np.asarray(Z)
    known = values[~np.isnan(values)]
    if len(known) == 0:
        raise InputError(
            "no node has a standardised score: every one was seen in too few windows. "
            "Lower min_observations, or score more windows."
        )
    return float(np.quantile(known, quantile))


def check_quantile(quantile: float) -> None:
    """Raise an InputError where a quantile does not lie between 0 and 1."""
    if not 0 < quantile < 1:
        raise InputError(f"a quantile lies between 0 and 1, not at {quantile}.")


def outliers(Z: npt.ArrayLike, limit: float) -> Int64Array:
    """Count the nodes above ``limit`` in each window, (windows,).

    Examples
    --------
    >>> outliers([[0.0, 5.0], [6.0, 7.0]], 4.0).tolist()
    [1, 2]
    """
    values = np.asarray(Z)
    return np.asarray(np.sum(np.nan_to_num(values, nan=-np.inf) > limit, axis=0), dtype=np.int64)


def _precision(patches: Sequence[Any]) -> npt.DTypeLike:
    return np.float32 if all(np.asarray(X).dtype == np.float32 for _, X in patches) else np.float64
