"""Steps of propagation on a graph in CSR form, for a block of columns (numba, one thread, in a fixed order)."""

from __future__ import annotations

from graphquilt.arrays import AnyArray
from graphquilt.embedders._kernels import FAST
from graphquilt.kernels import kernel

__all__ = ["mark_neighbours", "membership_step", "propagation_step"]


@kernel("propagation", writes=("out",), fastmath=FAST)
def propagation_step(
    csr: tuple[AnyArray, AnyArray, AnyArray],
    scale: tuple[AnyArray, AnyArray, AnyArray],
    restart: float,
    rows: AnyArray,
    start: AnyArray,
    H: AnyArray,
    out: AnyArray,
) -> None:
    """Out ← restart · start + (1 - restart) · L (A + loops) R H, with the diagonals ``scale`` = (L, R, loops).

    Only these ``rows`` of out are written. A ``start`` without rows counts as zero.
    """
    indptr, indices, weights = csr
    left, right, loop = scale
    weighted = len(weights) > 0
    started = len(start) > 0
    width = H.shape[1]
    a = H.dtype.type(restart)
    for i in rows:
        row, own = out[i], loop[i] * right[i]
        for j in range(width):
            row[j] = own * H[i, j]
        for e in range(indptr[i], indptr[i + 1]):
            other = indices[e]
            c = right[other]
            if weighted:
                c *= weights[e]
            neighbour = H[other]
            for j in range(width):
                row[j] += c * neighbour[j]
        c = (1 - a) * left[i]
        for j in range(width):
            row[j] *= c
        if started:
            for j in range(width):
                row[j] += a * start[i, j]


@kernel("propagation", writes=("out",))
def membership_step(
    csr: tuple[AnyArray, AnyArray, AnyArray],
    scale: tuple[AnyArray, AnyArray, AnyArray],
    restart: float,
    rows: AnyArray,
    cluster: AnyArray,
    first: int,
    out: AnyArray,
) -> None:
    """Out ← the step above without its start, where H has a 1 in the column of each node's cluster, from ``first``."""
    indptr, indices, weights = csr
    left, right, loop = scale
    weighted = len(weights) > 0
    width = out.shape[1]
    one = out.dtype.type(1)
    a = out.dtype.type(restart)
    for i in rows:
        row = out[i]
        row[:] = 0
        c = (1 - a) * left[i]
        column = cluster[i] - first
        if 0 <= column < width:
            row[column] = c * loop[i] * right[i]
        for e in range(indptr[i], indptr[i + 1]):
            other = indices[e]
            column = cluster[other] - first
            if 0 <= column < width:
                row[column] += c * right[other] * (weights[e] if weighted else one)


@kernel("propagation", writes=("marked",))
def mark_neighbours(indptr: AnyArray, indices: AnyArray, rows: AnyArray, marked: AnyArray) -> None:
    """Set ``marked`` for these rows and for their neighbours."""
    for i in rows:
        marked[i] = True
        for e in range(indptr[i], indptr[i + 1]):
            marked[indices[e]] = True
