"""Checks of the arrays of a graph, and lookups by node id and by cluster."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import FloatArray, Int64Array, IntArray, refuse_masked
from graphquilt.errors import InputError

__all__ = ["Position", "check_csr", "check_labels", "check_weights", "group", "index_type"]

_TABLE = 1 << 22  # up to this many nodes a lookup table is made, whatever the number of rows


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


def check_csr(indptr: IntArray, indices: IntArray) -> None:
    """Raise unless rows are in order, and columns in range, sorted and unique in each row."""
    n, m = len(indptr) - 1, len(indices)
    if n < 0 or indptr[0] != 0 or indptr[-1] != m:
        ends = f" and ends at {indptr[-1]}" if n >= 0 else ""
        raise InputError(
            f"indptr must start at 0 and end at the number of indices, {m}; it has {len(indptr)} entries{ends}."
        )
    if isinstance(indices, np.memmap):  # checked when it was written; reading it all here would defeat it
        return
    if n and np.diff(indptr).min() < 0:
        row = int(np.diff(indptr).argmin())
        raise InputError(f"indptr must not decrease; it does after row {row}: {indptr[row]}, {indptr[row + 1]}.")
    if m and (indices.min() < 0 or indices.max() >= n):
        raise InputError(f"columns must lie in 0..{n - 1}; found {indices.min()}..{indices.max()}.")
    for start in range(0, m - 1, _TABLE):  # in pieces, to need little memory
        part = indices[start : start + _TABLE + 1]
        falls = np.flatnonzero(part[1:] <= part[:-1]) + start + 1
        inside = falls[indptr[np.searchsorted(indptr, falls)] != falls]
        if len(inside):
            row = int(np.searchsorted(indptr, inside[0], side="right")) - 1
            raise InputError(
                f"the columns of each row must ascend; row {row} has {indices[inside[0] - 1]}, {indices[inside[0]]}. "
                "Graph(A) sorts a SciPy matrix."
            )


class Position:
    """A lookup of the position of nodes in ``rows``; -1 for a node that is not among them."""

    def __init__(self, rows: Int64Array, n_nodes: int) -> None:
        self.ascending = bool(np.all(rows[1:] > rows[:-1]))
        self.table: Int64Array | None = None
        if n_nodes <= max(_TABLE, 4 * len(rows)):
            self.table = np.full(n_nodes, -1, dtype=np.int64)
            self.table[rows] = np.arange(len(rows))
        else:
            self.order = np.argsort(rows, kind="stable")
            self.rows = rows[self.order]

    def __call__(self, nodes: IntArray) -> Int64Array:
        """Return the position of each of ``nodes``."""
        if self.table is not None:
            return self.table[nodes]
        if len(self.rows) == 0:
            return np.full(len(nodes), -1, dtype=np.int64)
        place = np.minimum(np.searchsorted(self.rows, nodes), len(self.rows) - 1)
        return np.where(self.rows[place] == nodes, self.order[place], -1)


def check_labels(labels: npt.ArrayLike, n_nodes: int) -> Int64Array:
    """Return ``labels`` as 64-bit integers after checking that they are one cluster per node, 0..p-1 without gaps."""
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
    return values.astype(np.int64)


def group(labels: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the nodes in the order of their clusters, and where each cluster starts: (n,) and (p + 1,).

    Examples
    --------
    >>> members, starts = group(np.array([1, 0, 1]))
    >>> members.tolist(), starts.tolist()
    ([1, 0, 2], [0, 1, 3])
    """
    starts = np.concatenate([[0], np.cumsum(np.bincount(labels))]).astype(np.int64)
    return np.argsort(labels, kind="stable"), starts
