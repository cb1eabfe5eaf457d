"""Compiled loops over the blocks of a connection Laplacian, in which a call of NumPy for each block would cost most."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.kernels import kernel

__all__ = ["apply_connection"]

RUN = 2**15  # rotations with about as many entries are multiplied at a time: they stay in the cache of the processor
LONGEST = 32  # and at most as many


# X is not changed; it is named so that some columns of a wide matrix are not copied before every call.
@kernel("products with rotations", writes=("X", "out"))
def apply_connection(
    vertices: tuple[int, int],
    incidence: tuple[Int64Array, Int64Array, Int64Array],
    coupling: AnyArray,
    rotations: AnyArray,
    X: AnyArray,
    out: AnyArray,
    factors: AnyArray,
) -> None:
    """Write ``a (X - A X) + b X + c out`` for the blocks of ``X (n*d, c)`` from one of the ``vertices`` to another.

    ``factors`` are a, b and c. ``incidence`` has, one vertex after the other, where its edges start, the number e of
    each edge, and the vertex at its other end. The block of A is ``coupling[e] * rotations[e]`` or, where the number is
    ``-1 - e``, its transpose. Edges of one kind that follow each other are one product of matrices.
    """
    starts, numbers, others = incidence
    d, c = rotations.shape[1], X.shape[1]
    run = max(1, min(LONGEST, RUN // (d * d)))
    turns, blocks = np.empty(run * d * d, dtype=X.dtype), np.empty((run * d, c), dtype=X.dtype)
    product, total = np.empty((d, c), dtype=X.dtype), np.empty((d, c), dtype=X.dtype)
    image, itself, before = factors
    for v in range(vertices[0], vertices[1]):
        total[:] = 0
        k = starts[v]
        while k < starts[v + 1]:
            back = numbers[k] < 0
            n = 1
            while n < run and k + n < starts[v + 1] and (numbers[k + n] < 0) == back:
                n += 1
            beside, below = turns[: n * d * d].reshape((d, n * d)), turns[: n * d * d].reshape((n * d, d))
            for r in range(n):
                e, u = numbers[k + r], others[k + r]
                if back:
                    e = -1 - e
                    below[r * d : (r + 1) * d] = rotations[e]
                else:
                    beside[:, r * d : (r + 1) * d] = rotations[e]
                for s in range(d):
                    for t in range(c):
                        blocks[r * d + s, t] = coupling[e] * X[u * d + s, t]
            if back:
                np.dot(below.T, blocks[: n * d], product)
            else:
                np.dot(beside, blocks[: n * d], product)
            for s in range(d):
                for t in range(c):
                    total[s, t] += product[s, t]
            k += n
        for s in range(d):
            row = v * d + s
            if before == 0:
                for t in range(c):
                    out[row, t] = image * (X[row, t] - total[s, t]) + itself * X[row, t]
            else:
                for t in range(c):
                    out[row, t] = image * (X[row, t] - total[s, t]) + itself * X[row, t] + before * out[row, t]
