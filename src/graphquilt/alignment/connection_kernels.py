"""Compiled loops over the blocks of a connection Laplacian, in which a call of NumPy for each block would cost most."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.kernels import jit, kernel

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
    for v in range(vertices[0], vertices[1]):
        total[:] = 0
        k = starts[v]
        while k < starts[v + 1]:
            n = _same_kind(numbers, k, min(k + run, starts[v + 1]))
            for r in range(n):
                e = max(numbers[k + r], -1 - numbers[k + r])
                _scale(coupling[e], others[k + r] * d, X, blocks[r * d : (r + 1) * d])
            if numbers[k] < 0:
                below = turns[: n * d * d].reshape((n * d, d))
                for r in range(n):
                    below[r * d : (r + 1) * d] = rotations[-1 - numbers[k + r]]
                np.dot(below.T, blocks[: n * d], product)
            else:
                beside = turns[: n * d * d].reshape((d, n * d))
                for r in range(n):
                    beside[:, r * d : (r + 1) * d] = rotations[numbers[k + r]]
                np.dot(beside, blocks[: n * d], product)
            for s in range(d):
                for t in range(c):
                    total[s, t] += product[s, t]
            k += n
        _write(v * d, total, factors, X, out)


@jit
def _same_kind(numbers: Int64Array, first: int, last: int) -> int:
    """Return how many edges from the first on, before the last, are passed in the same direction as the first."""
    n = 1
    while first + n < last and (numbers[first + n] < 0) == (numbers[first] < 0):
        n += 1
    return n


@jit
def _scale(factor: float, first: int, X: AnyArray, block: AnyArray) -> None:
    """Write some rows of X, from the first on, times a factor."""
    for s in range(block.shape[0]):
        for t in range(block.shape[1]):
            block[s, t] = factor * X[first + s, t]


@jit
def _write(first: int, total: AnyArray, factors: AnyArray, X: AnyArray, out: AnyArray) -> None:
    """Write the rows of the result from the first on; what was there before is not read if its factor is 0."""
    image, itself, before = factors
    for s in range(total.shape[0]):
        for t in range(total.shape[1]):
            value = image * (X[first + s, t] - total[s, t]) + itself * X[first + s, t]
            out[first + s, t] = value + before * out[first + s, t] if before != 0 else value
