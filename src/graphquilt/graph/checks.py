"""Checks of the arrays of a graph, and lookups by node id and by cluster."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import FloatArray, Int64Array, IntArray, refuse_masked
from graphquilt.errors import InputError
from graphquilt.graph import kernels

__all__ = [
    "ColumnCheck",
    "check_csr",
    "check_labels",
    "check_rows",
    "check_weights",
    "group",
    "index_type",
    "short_labels",
]

_PIECE = 1 << 22  # entries that are checked at once


def index_type(n_nodes: int) -> type[np.int32] | type[np.int64]:
    """Return the smaller of the types of integers that node ids below ``n_nodes`` fit in."""
    return np.int32 if n_nodes <= np.iinfo(np.int32).max else np.int64


def check_weights(weights: FloatArray, *, unit: str = "entry", first: int = 0) -> None:
    """Raise unless all weights are finite and not negative; ``unit`` and ``first`` say how to count them."""
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        k = int(bad.argmax())
        raise InputError(
            f"edge weights must be finite and not negative; {int(bad.sum())} of {len(weights)} are not, the first is "
            f"{weights[k]} ({unit} {first + k}). Drop or repair those edges."
        )


def check_rows(indptr: IntArray, n_entries: int) -> None:
    """Raise unless ``indptr`` goes from 0 to the number of entries and never decreases; it is read in pieces."""
    n = len(indptr) - 1
    if n < 0 or indptr[0] != 0 or indptr[-1] != n_entries:
        ends = f" and ends at {indptr[-1]}" if n >= 0 else ""
        raise InputError(
            f"indptr must start at 0 and end at the number of indices, {n_entries}; it has {len(indptr)} entries{ends}."
        )
    for start in range(0, n, _PIECE):
        part = np.asarray(indptr[start : start + _PIECE + 1])
        falls = part[1:] < part[:-1]
        if falls.any():
            k = int(falls.argmax())
            raise InputError(f"indptr must not decrease; it does after row {start + k}: {part[k]}, {part[k + 1]}.")


class ColumnCheck:
    """Raise unless columns are in range and, if ``ascending``, sorted and unique in each row.

    It is called with one piece of the columns after the other, so that it needs little memory. ``indptr`` must have
    passed :func:`check_rows`.

    Examples
    --------
    >>> check = ColumnCheck(np.array([0, 2, 3]), 2)
    >>> check(np.array([0, 1])), check(np.array([0]))
    (None, None)
    """

    def __init__(self, indptr: IntArray, n_columns: int, *, ascending: bool = True) -> None:
        self.indptr, self.n_columns, self.ascending = indptr, n_columns, ascending
        self.place, self.last = 0, -1

    def __call__(self, part: IntArray) -> None:
        """Check the next piece."""
        if len(part) == 0:
            return
        if part.min() < 0 or part.max() >= self.n_columns:
            raise InputError(f"columns must lie in 0..{self.n_columns - 1}; found {part.min()}..{part.max()}.")
        if self.ascending:
            self._check_order(part)
        self.place += len(part)
        self.last = int(part[-1])

    def _check_order(self, part: IntArray) -> None:
        begin, end = self.place, self.place + len(part)
        rises = np.empty(len(part), dtype=bool)
        rises[0] = int(part[0]) > self.last
        np.greater(part[1:], part[:-1], out=rises[1:])
        first, after = (int(row) for row in np.searchsorted(self.indptr, [begin, end]))
        for row in range(first, after, _PIECE):  # a row may begin with any column
            rises[np.asarray(self.indptr[row : min(row + _PIECE, after)]) - begin] = True
        if not rises.all():
            k = int(rises.argmin())
            row = int(np.searchsorted(self.indptr, begin + k, side="right")) - 1
            raise InputError(
                f"the columns of each row must ascend; row {row} has {part[k - 1] if k else self.last}, {part[k]}. "
                "Graph(A) sorts a SciPy matrix."
            )


def check_csr(indptr: IntArray, indices: IntArray) -> None:
    """Raise unless rows are in order, and columns in range, sorted and unique in each row."""
    check_rows(indptr, len(indices))
    check = ColumnCheck(indptr, len(indptr) - 1)
    for start in range(0, len(indices), _PIECE):
        check(np.asarray(indices[start : start + _PIECE]))


def check_labels(labels: npt.ArrayLike, n_nodes: int) -> Int64Array:
    """Return ``labels`` as 64-bit integers after checking that they are one cluster per node, 0..p-1 without gaps."""
    return _cluster_labels(labels, n_nodes)[0].astype(np.int64)


def short_labels(labels: npt.ArrayLike, n_nodes: int) -> IntArray:
    """Check ``labels`` as :func:`check_labels` does, and return them in the shortest type that loops are compiled for.

    Loops over all edges look up the label of every neighbour, so that these should take as little memory as possible.

    Examples
    --------
    >>> short_labels([1, 0, 1], 3).dtype.name
    'uint16'
    """
    values, p = _cluster_labels(labels, n_nodes)
    return values.astype(np.uint16 if p <= 1 << 16 else index_type(p))


def _cluster_labels(labels: npt.ArrayLike, n_nodes: int) -> tuple[IntArray, int]:
    """Return labels as an array, and how many clusters there are, after checking them."""
    refuse_masked(cluster_labels=labels)
    values = np.asarray(labels)
    if values.shape != (n_nodes,):
        raise InputError(f"the graph has {n_nodes} nodes and the cluster labels have shape {values.shape}.")
    if not np.issubdtype(values.dtype, np.integer):
        raise InputError(f"cluster labels must be integers, not {values.dtype}.")
    if n_nodes == 0:
        raise InputError("the graph has no nodes; there is nothing to partition.")
    if values.min() < 0:
        raise InputError(f"cluster labels must not be negative; node {int(values.argmin())} has {int(values.min())}.")
    p = int(values.max()) + 1
    remedy = "Number the clusters without gaps: np.unique(labels, return_inverse=True)[1]."
    if p > n_nodes:
        raise InputError(f"some of the clusters 0..{p - 1} are empty, as there are only {n_nodes} nodes. {remedy}")
    empty = np.flatnonzero(np.bincount(values, minlength=p) == 0)
    if len(empty):
        raise InputError(f"{len(empty)} of the clusters 0..{p - 1} have no nodes, the first is {empty[0]}. {remedy}")
    return values, p


def group(labels: IntArray) -> tuple[IntArray, Int64Array]:
    """Return the nodes in the order of their clusters, and where each cluster starts: (n,) and (p + 1,).

    Examples
    --------
    >>> members, starts = group(np.array([1, 0, 1]))
    >>> members.tolist(), starts.tolist()
    ([1, 0, 2], [0, 1, 3])
    """
    starts = np.concatenate([[0], np.cumsum(np.bincount(labels))]).astype(np.int64)
    members = np.empty(len(labels), dtype=index_type(len(labels)))
    kernels.group(labels, starts[:-1].copy(), members)
    return members, starts
