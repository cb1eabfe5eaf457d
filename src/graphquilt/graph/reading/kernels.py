"""Counting, distributing and sorting edges, compiled."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array, IntArray
from graphquilt.kernels import kernel

__all__ = ["distribute", "histogram", "sort_rows"]


@kernel("counting edges", writes=("counts",))
def histogram(
    source: IntArray, target: IntArray, n: int, shift: int, both: bool, counts: Int64Array
) -> tuple[int, int]:
    """Add the entries of each block of 2^shift rows to ``counts``; return self loops and the first bad edge or -1."""
    loops = 0
    for k in range(len(source)):
        u, v = np.int64(source[k]), np.int64(target[k])
        if u < 0 or v < 0 or u >= n or v >= n:
            return loops, k
        if u == v:
            loops += 1
            continue
        counts[u >> shift] += 1
        if both:
            counts[v >> shift] += 1
    return loops, -1


@kernel("distributing edges")
def distribute(
    source: IntArray,
    target: IntArray,
    weights: Float64Array,
    both: bool,
    shift: int,
    bucket: Int64Array,
    first: Int64Array,
    columns: IntArray,
) -> tuple[IntArray, IntArray, Float64Array, Int64Array]:
    """Sort a batch of edges by bucket of rows, dropping self loops.

    ``bucket`` is that of each block of 2^shift rows, ``first`` the first row of each bucket, and ``columns`` an empty
    array of the type that columns are to have. Return rows, counted from the first of their bucket, columns, weights,
    and where each bucket starts.
    """
    starts = np.zeros(len(first) + 1, np.int64)
    for k in range(len(source)):
        u, v = np.int64(source[k]), np.int64(target[k])
        if u != v:
            starts[bucket[u >> shift] + 1] += 1
            if both:
                starts[bucket[v >> shift] + 1] += 1
    starts = np.cumsum(starts)
    place = starts.copy()
    total = starts[-1]
    weighted = len(weights) > 0
    rows = np.empty(total, np.uint32)
    entries = np.empty(total, columns.dtype)
    values = np.empty(total if weighted else 0, np.float64)
    for k in range(len(source)):
        u, v = np.int64(source[k]), np.int64(target[k])
        if u == v:
            continue
        for _ in range(2 if both else 1):
            b = bucket[u >> shift]
            at = place[b]
            rows[at] = u - first[b]
            entries[at] = v
            if weighted:
                values[at] = weights[k]
            place[b] = at + 1
            u, v = v, u
    return rows, entries, values, starts


@kernel("sorting edges")
def sort_rows(
    rows: IntArray, columns: IntArray, weights: Float64Array, n_rows: int
) -> tuple[Int64Array, IntArray, Float64Array]:
    """Return CSR rows, sorted and unique: row ends from 0, (n_rows + 1,), columns and weights, if there are any.

    Of an entry given more than once the heaviest stays.
    """
    weighted = len(weights) > 0
    starts = np.zeros(n_rows + 1, np.int64)
    for r in rows:
        starts[r + 1] += 1
    for r in range(n_rows):
        starts[r + 1] += starts[r]
    entries = np.empty(len(columns), columns.dtype)
    values = np.empty(len(weights), np.float64)
    place = starts[:-1].copy()
    for k in range(len(columns)):
        at = place[rows[k]]
        entries[at] = columns[k]
        if weighted:
            values[at] = weights[k]
        place[rows[k]] = at + 1
    filled = 0
    a = 0
    for r in range(n_rows):
        b = starts[r + 1]
        if weighted or b - a > 24:
            order = np.argsort(entries[a:b])  # not sort: see graph/kernels.py
            entries[a:b] = entries[a:b][order]
            if weighted:
                values[a:b] = values[a:b][order]
        else:
            for k in range(a + 1, b):
                value = entries[k]
                t = k - 1
                while t >= a and entries[t] > value:
                    entries[t + 1] = entries[t]
                    t -= 1
                entries[t + 1] = value
        for k in range(a, b):
            new = k == a or entries[k] != entries[filled - 1]
            filled += new
            entries[filled - 1] = entries[k]
            if weighted:
                values[filled - 1] = values[k] if new else max(values[filled - 1], values[k])
        starts[r + 1] = filled
        a = b
    return starts, entries[:filled], values[:filled]
