"""Compiled loops: one pass over an overlap, sums of centroids, and products with a connection Laplacian."""

from __future__ import annotations

import math

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, Int64Array
from graphquilt.kernels import jit, kernel

LARGEST = 2.0**1000  # about 1e301; sums of larger coordinates could exceed what a double holds
RUN = 2**15  # rotations with about as many entries are multiplied at a time: they stay in the cache of the processor
LONGEST = 32  # and at most as many


@kernel("sizes of coordinates", writes=("magnitudes",))
def row_magnitudes(X: AnyArray, magnitudes: Float64Array) -> None:
    """Write the largest absolute coordinate of each row of ``X (k, d)``."""
    for r in range(X.shape[0]):
        largest = 0.0
        for c in range(X.shape[1]):
            largest = max(largest, abs(X[r, c]))
        magnitudes[r] = largest


@kernel("centroids", writes=("total", "mass"))
def add_rows(
    nodes: AnyArray, X: FloatArray, shift: FloatArray, weights: Float64Array, total: FloatArray, mass: Float64Array
) -> None:
    """Add the rows of ``X (k, d)``, moved by ``shift (d,)``, to those of their nodes, times their weights or 1."""
    for r in range(len(nodes)):
        node = nodes[r]
        weight = weights[r] if len(weights) > 0 else 1.0
        mass[node] += weight
        for c in range(X.shape[1]):
            total[node, c] += weight * (X[r, c] + shift[c])


@kernel("statistics of overlaps", writes=("measured",))
def measure_pairs(
    pairs: Int64Array,
    places: Int64Array,
    patches: tuple[tuple[AnyArray, ...], ...],
    extents: Float64Array,
    point: float,
    measured: tuple[AnyArray, ...],
) -> None:
    """Measure the overlaps of ``pairs (m, 2)``: counts, sizes, means, spreads and products, at ``places (m,)``.

    ``patches`` are three tuples with one array for each patch: its ids, which ascend, its coordinates, and the weights
    of its rows, or none. Points closer together than ``point`` times their size, or times the ``extents`` of their
    patch, are one point. Of pairs without shared nodes only the count is written.
    """
    ids, coordinates, weights = patches
    counts, sizes, means, spreads, products = measured
    d = means.shape[2]
    longest = 0
    for k in range(pairs.shape[0]):
        longest = max(longest, min(len(ids[pairs[k, 0]]), len(ids[pairs[k, 1]])))
    rows = np.empty((2, longest), dtype=np.int64)
    root, flat, product = np.empty(longest), np.empty((2, longest * d)), np.empty((d, d))
    columns = np.empty(d)
    for place in range(pairs.shape[0]):
        e, i, j = places[place], pairs[place, 0], pairs[place, 1]
        n = _shared(ids[i], ids[j], rows)
        counts[e] = n
        if n == 0:
            continue
        weighted = len(weights[i]) > 0
        sizes[e] = _joint_weights(weights[i], weights[j], rows, n, root) if weighted else n
        for side in range(2):
            k = pairs[place, side]
            offsets = flat[side, : n * d].reshape((n, d))
            _gather(coordinates[k], rows[side], root, weighted, sizes[e], offsets, means[e, side])
            spreads[e, side] = _normalise(offsets, means[e, side], extents[k], point, sizes[e], columns)
        if spreads[e, 0] > 0 and spreads[e, 1] > 0:
            a, b = flat[0, : n * d].reshape((n, d)), flat[1, : n * d].reshape((n, d))
            np.dot(a.T, b, product)
            for r in range(d):
                for c in range(d):
                    products[e, r, c] = product[r, c]
        else:
            products[e] = 0.0


@jit
def _shared(a: AnyArray, b: AnyArray, rows: Int64Array) -> int:
    """Write the places of the ids that both have, which ascend in both; return how many there are."""
    n, i, j = 0, 0, 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            rows[0, n], rows[1, n] = i, j
            n += 1
            i += 1
            j += 1
        else:
            below = a[i] < b[j]
            i += below
            j += not below
    return n


@jit
def _joint_weights(a: Float64Array, b: Float64Array, rows: Int64Array, n: int, root: Float64Array) -> float:
    """Write the root of the weight of each shared node, the product of its two weights; return their sum."""
    total = 0.0
    for r in range(n):
        weight = a[rows[0, r]] * b[rows[1, r]]
        total += weight
        root[r] = math.sqrt(weight)
    return total


@jit
def _gather(
    X: AnyArray,
    rows: Int64Array,
    root: Float64Array,
    weighted: bool,
    size: float,
    offsets: Float64Array,
    mean: Float64Array,
) -> None:
    """Write the rows of X as offsets from their mean, times the root of their weight, and write the mean."""
    n, d = offsets.shape
    mean[:] = 0.0
    for r in range(n):
        row = X[rows[r]]
        for c in range(d):
            offsets[r, c] = row[c]
        share = root[r] * root[r] / size if weighted else 1.0
        for c in range(d):
            mean[c] += share * offsets[r, c]
    if not weighted:
        for c in range(d):
            mean[c] /= size
    for r in range(n):
        weight = root[r] if weighted else 1.0
        for c in range(d):
            offsets[r, c] = weight * (offsets[r, c] - mean[c])


@jit
def _normalise(
    offsets: Float64Array, mean: Float64Array, extent: float, point: float, size: float, columns: Float64Array
) -> float:
    """Divide the offsets by their norm, and return it; a norm that is only rounding errors is 0.

    Maxima and sums are taken in ``columns (d,)``, which lets the processor work on several at once.
    """
    n, d = offsets.shape
    columns[:] = 0.0
    for r in range(n):
        for c in range(d):
            columns[c] = max(columns[c], abs(offsets[r, c]))
    largest = columns.max()
    if largest == 0.0:
        return 0.0
    for c in range(d):
        extent = max(extent, abs(mean[c]))
    unit = math.ldexp(1.0, min(math.frexp(largest)[1], 1023))
    shrink = 1.0 / unit  # exact, because the unit is a power of two
    columns[:] = 0.0
    for r in range(n):
        for c in range(d):
            share = offsets[r, c] * shrink
            columns[c] += share * share
    norm = math.sqrt(columns.sum())
    if unit <= point * extent * math.sqrt(size) / norm:
        return 0.0
    inverse = 1.0 / norm
    for r in range(n):
        for c in range(d):
            offsets[r, c] = (offsets[r, c] * shrink) * inverse
    return unit * norm


# X is not changed; naming it avoids copies of some columns of a wide matrix before every call.
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

    ``incidence`` is that of a Connection. The block of A is ``coupling[e] * rotations[e]`` or, where the number of the
    edge is ``-1 - e``, its transpose. Edges of one kind that follow each other are one product of matrices.
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
