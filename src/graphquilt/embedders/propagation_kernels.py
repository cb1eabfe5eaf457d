"""One step of propagation on a graph in CSR form, for a block of columns (numba, one thread, a fixed order)."""

from __future__ import annotations

from graphquilt.arrays import AnyArray
from graphquilt.embedders._kernels import FAST
from graphquilt.kernels import kernel

__all__ = ["propagation_step"]


@kernel("propagation", writes=("out",), fastmath=FAST)
def propagation_step(
    csr: tuple[AnyArray, AnyArray, AnyArray],
    scale: tuple[AnyArray, AnyArray, AnyArray],
    restart: float,
    start: AnyArray,
    H: AnyArray,
    out: AnyArray,
) -> None:
    """Out ← restart · start + (1 - restart) · L (A + loops) R H, with the diagonals ``scale`` = (L, R, loops)."""
    indptr, indices, weights = csr
    left, right, loop = scale
    weighted = len(weights) > 0
    width = H.shape[1]
    a = H.dtype.type(restart)
    for i in range(len(indptr) - 1):
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
            row[j] = a * start[i, j] + c * row[j]
