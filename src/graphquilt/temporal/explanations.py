"""Why a node was flagged: whom it met that it does not usually meet, and whom it missed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphquilt.arrays import Int64Array
from graphquilt.errors import InputError

__all__ = ["SIDES", "Explanation", "explain", "neighbours"]

SIDES = ("source", "destination")

_RARE, _USUAL = 0.1, 0.5  # shares of a node's other windows


@dataclass(frozen=True, eq=False)
class Explanation:
    """One node in one window against its usual windows.

    Attributes
    ----------
    node, window : int
        The id, and the position of the window in the sequence.
    new, gone : int arrays
        Neighbours of this window that are rare otherwise; usual neighbours that are missing. Most telling first.
    usual_degree : float
        Mean number of neighbours in the other windows; NaN where there is no other.
    degree : int
        Number of neighbours in this window.
    """

    node: int
    window: int
    new: Int64Array
    gone: Int64Array
    degree: int
    usual_degree: float


def explain(matrices: Sequence[Any], node: int, window: int, *, side: str = "source") -> Explanation:
    """Compare the neighbours of a node in one window with those of its other windows.

    A neighbour is new if it occurs in less than a tenth of the node's other windows (those in which it has any
    neighbour), and gone if it occurs in at least half of them and not in this one.

    Parameters
    ----------
    matrices : sequence of CSR arrays (sources, destinations)
        One a window; their shapes may grow.
    node, window : int
        Node id on its side, and position in ``matrices``.
    side : {"source", "destination"}

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> days = [sp.csr_array([[1, 1, 0]]), sp.csr_array([[1, 1, 0]]), sp.csr_array([[1, 0, 1]])]
    >>> why = explain(days, node=0, window=2)
    >>> why.new.tolist(), why.gone.tolist(), why.degree, why.usual_degree
    ([2], [1], 2, 2.0)
    """
    if side not in SIDES:
        raise InputError(f"a side is 'source' or 'destination', not {side!r}.")
    today = neighbours(matrices[window], node, side)
    others = [neighbours(A, node, side) for k, A in enumerate(matrices) if k != window]
    others = [met for met in others if len(met)]
    if not others:
        return Explanation(node, window, today, today[:0], len(today), float("nan"))
    met, times = np.unique(np.concatenate(others), return_counts=True)
    share = dict(zip(met.tolist(), (times / len(others)).tolist(), strict=True))
    shares = np.array([share.get(k, 0.0) for k in today.tolist()])
    new = today[shares < _RARE][np.argsort(shares[shares < _RARE], kind="stable")]
    missing = (times / len(others) >= _USUAL) & ~np.isin(met, today)
    gone = met[missing][np.argsort(-times[missing], kind="stable")]
    return Explanation(node, window, new, gone, len(today), float(times.sum() / len(others)))


def neighbours(matrix: Any, node: int, side: str) -> Int64Array:
    """Ids that a node is joined to in one window; none where the matrix does not reach it.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> neighbours(sp.csr_array([[0, 1], [1, 1]]), 1, "destination").tolist()
    [0, 1]
    """
    if side == "source":
        if node >= matrix.shape[0]:
            return np.zeros(0, dtype=np.int64)
        return np.asarray(matrix.indices[matrix.indptr[node] : matrix.indptr[node + 1]], dtype=np.int64)
    entries = np.flatnonzero(matrix.indices == node)
    return np.asarray(np.searchsorted(matrix.indptr, entries, side="right") - 1, dtype=np.int64)
