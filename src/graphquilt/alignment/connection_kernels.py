"""Compiled loops over the blocks of a connection Laplacian, in which a call of NumPy for each block would cost most."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.kernels import kernel

__all__ = ["apply_connection"]


# X is not changed; it is named so that some columns of a wide matrix are not copied before every call.
@kernel("products with rotations", writes=("X", "out"))
def apply_connection(
    vertices: tuple[int, int],
    incidence: tuple[Int64Array, Int64Array, Int64Array],
    coupling: AnyArray,
    rotations: AnyArray,
    X: AnyArray,
    out: AnyArray,
) -> None:
    """Write ``X - A X`` for the blocks of ``X (n*d, c)`` from the first of the ``vertices`` up to the second.

    ``incidence`` has, one vertex after the other, where its edges start, the number e of each edge, and the vertex at
    its other end. The block of A is ``coupling[e] * rotations[e]`` or, where the number is ``-1 - e``, its transpose.
    """
    starts, numbers, others = incidence
    d, c = rotations.shape[1], X.shape[1]
    turn, block = np.empty((d, d), dtype=X.dtype), np.empty((d, c), dtype=X.dtype)
    product, total = np.empty((d, c), dtype=X.dtype), np.empty((d, c), dtype=X.dtype)
    for v in range(vertices[0], vertices[1]):
        total[:] = 0
        for k in range(starts[v], starts[v + 1]):
            e, u = numbers[k], others[k]
            back = e < 0
            if back:
                e = -1 - e
            turn[:] = rotations[e]
            for r in range(d):
                for s in range(c):
                    block[r, s] = coupling[e] * X[u * d + r, s]
            if back:
                np.dot(turn.T, block, product)
            else:
                np.dot(turn, block, product)
            for r in range(d):
                for s in range(c):
                    total[r, s] += product[r, s]
        for r in range(d):
            for s in range(c):
                out[v * d + r, s] = X[v * d + r, s] - total[r, s]
