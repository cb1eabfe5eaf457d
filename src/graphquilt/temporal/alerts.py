"""Why a node stands out in a window: which of its neighbours are new, and which are gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import Int64Array, IntArray
from graphquilt.errors import InputError
from graphquilt.temporal.windows import SIDES

__all__ = ["Explanation", "Pattern", "compare_neighbours", "explain"]

_RARE, _USUAL = 0.1, 0.5  # shares of a node's other windows


class Pattern(NamedTuple):
    """The pairs of nodes that were joined in one window, as CSR arrays without values."""

    indptr: IntArray
    indices: npt.NDArray[np.int32]
    shape: tuple[int, int]

    @classmethod
    def of(cls, matrix: sp.csr_array) -> Pattern:
        """Return the pattern of a matrix; it shares memory with the matrix."""
        return cls(matrix.indptr, matrix.indices.astype(np.int32, copy=False), matrix.shape)


PairMatrix: TypeAlias = Pattern | sp.csr_array


@dataclass(frozen=True, eq=False)
class Explanation:
    """Compare one node in one window with the same node in its other windows.

    Attributes
    ----------
    node, window : int
        The id of the node, and the position of the window in the sequence.
    new, gone : int arrays
        Neighbours in this window that are rare in the others; usual neighbours that are missing from this window.
        The clearest cases come first.
    degree : int
        Number of neighbours in this window.
    usual_degree : float
        Mean number of neighbours in the other windows; NaN if there is no other window.
    """

    node: int
    window: int
    new: Int64Array
    gone: Int64Array
    degree: int
    usual_degree: float


def explain(matrices: Sequence[PairMatrix], node: int, window: int, *, side: str = "source") -> Explanation:
    """Compare the neighbours of a node in one window with its neighbours in the other windows.

    Only the other windows in which the node has neighbours count. A neighbour is new if it occurs in less than a tenth
    of them, and gone if it occurs in at least half of them but not in this window.

    Parameters
    ----------
    matrices : sequence of CSR arrays (sources, destinations)
        One matrix per window; their shapes may grow.
    node, window : int
        The id of the node on its side, and the position of the window in ``matrices``.
    side : {"source", "destination"}

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> days = [sp.csr_array([[1, 1, 0]]), sp.csr_array([[1, 1, 0]]), sp.csr_array([[1, 0, 1]])]
    >>> explanation = explain(days, node=0, window=2)
    >>> explanation.new.tolist(), explanation.gone.tolist(), explanation.degree, explanation.usual_degree
    ([2], [1], 2, 2.0)
    """
    if side not in SIDES:
        raise InputError(f"a side is 'source' or 'destination', not {side!r}.")
    today = _neighbours(matrices[window], node, side)
    others = [_neighbours(matrix, node, side) for k, matrix in enumerate(matrices) if k != window]
    others = [ids for ids in others if len(ids)]
    known, times = np.unique(np.concatenate([today[:0], *others]), return_counts=True)
    usual = sum(map(len, others)) / len(others) if others else float("nan")
    return compare_neighbours(node, window, today, (known, times), n_windows=len(others), usual_degree=usual)


def compare_neighbours(
    node: int,
    window: int,
    today: Int64Array,
    others: tuple[Int64Array, npt.ArrayLike],
    *,
    n_windows: float,
    usual_degree: float,
) -> Explanation:
    """Explain a window of a node from its neighbours in it, and those of its ``n_windows`` other windows.

    ``others`` are the neighbours in the other windows, each once, and the number of windows that had each.
    """
    if n_windows == 0:
        return Explanation(node, window, today, today[:0], len(today), float("nan"))
    known = np.union1d(others[0], today)
    share = np.zeros(len(known))
    share[np.searchsorted(known, others[0])] = np.asarray(others[1]) / n_windows
    is_here = np.isin(known, today)
    order = np.argsort(share, kind="stable")
    new = known[order][(is_here & (share < _RARE))[order]]
    order = np.argsort(-share, kind="stable")
    gone = known[order][(~is_here & (share >= _USUAL))[order]]
    return Explanation(node, window, new, gone, len(today), usual_degree)


def _neighbours(matrix: PairMatrix, node: int, side: str) -> Int64Array:
    """Return the ids that a node is joined to in one window; none if the node is outside the matrix."""
    if side == "source":
        if node >= matrix.shape[0]:
            return np.zeros(0, dtype=np.int64)
        return np.asarray(matrix.indices[matrix.indptr[node] : matrix.indptr[node + 1]], dtype=np.int64)
    entries = np.flatnonzero(matrix.indices == node)
    return np.asarray(np.searchsorted(matrix.indptr, entries, side="right") - 1, dtype=np.int64)
