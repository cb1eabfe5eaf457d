"""Counting, distributing and sorting edges, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphquilt.kernels import jit

__all__ = ["distribute", "histogram", "sort_rows", "sort_weighted_rows"]


@jit
def histogram(source: Any, target: Any, n: int, shift: int, both: bool, counts: Any) -> Any:  # pragma: no cover
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


@jit
def distribute(
    source: Any, target: Any, weights: Any, both: bool, shift: int, bucket: Any, first: Any, columns: Any
) -> Any:  # pragma: no cover - compiled
    """Sort a batch of edges by bucket of rows, dropping self loops.

    Parameters
    ----------
    bucket : the bucket of each block of 2^shift rows
    first : the first row of each bucket
    columns : an empty array of the type that columns are to have

    Returns
    -------
    rows (from the first of the bucket), columns, weights, and where each bucket starts
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
    out = np.empty(total, columns.dtype)
    heavy = np.empty(total if weighted else 0, np.float64)
    for k in range(len(source)):
        u, v = np.int64(source[k]), np.int64(target[k])
        if u == v:
            continue
        for _ in range(2 if both else 1):
            b = bucket[u >> shift]
            at = place[b]
            rows[at] = u - first[b]
            out[at] = v
            if weighted:
                heavy[at] = weights[k]
            place[b] = at + 1
            u, v = v, u
    return rows, out, heavy, starts


@jit
def _scatter(rows: Any, n_rows: int) -> Any:  # pragma: no cover - compiled
    """Return where each row starts, (n_rows + 1,)."""
    starts = np.zeros(n_rows + 1, np.int64)
    for r in rows:
        starts[r + 1] += 1
    for r in range(n_rows):
        starts[r + 1] += starts[r]
    return starts


@jit
def sort_rows(rows: Any, columns: Any, n_rows: int) -> Any:  # pragma: no cover - compiled
    """Return CSR rows, sorted and unique: row ends from 0, (n_rows + 1,), and columns."""
    starts = _scatter(rows, n_rows)
    out = np.empty(len(columns), columns.dtype)
    place = starts[:-1].copy()
    for k in range(len(columns)):
        r = rows[k]
        out[place[r]] = columns[k]
        place[r] += 1
    filled = 0
    a = 0
    for r in range(n_rows):
        b = starts[r + 1]
        if b - a > 24:
            out[a:b] = np.sort(out[a:b])
        else:
            for k in range(a + 1, b):
                value = out[k]
                t = k - 1
                while t >= a and out[t] > value:
                    out[t + 1] = out[t]
                    t -= 1
                out[t + 1] = value
        for k in range(a, b):
            if k == a or out[k] != out[filled - 1]:
                out[filled] = out[k]
                filled += 1
        starts[r + 1] = filled
        a = b
    return starts, out[:filled]


@jit
def sort_weighted_rows(rows: Any, columns: Any, weights: Any, n_rows: int) -> Any:  # pragma: no cover - compiled
    """Return CSR rows as :func:`sort_rows`, and weights; of an entry given more than once the heaviest stays."""
    starts = _scatter(rows, n_rows)
    out = np.empty(len(columns), columns.dtype)
    heavy = np.empty(len(columns), np.float64)
    place = starts[:-1].copy()
    for k in range(len(columns)):
        r = rows[k]
        out[place[r]] = columns[k]
        heavy[place[r]] = weights[k]
        place[r] += 1
    filled = 0
    a = 0
    for r in range(n_rows):
        b = starts[r + 1]
        order = np.argsort(out[a:b])
        sorted_columns, sorted_weights = out[a:b][order], heavy[a:b][order]
        begin = filled
        for k in range(b - a):
            if filled > begin and out[filled - 1] == sorted_columns[k]:
                heavy[filled - 1] = max(heavy[filled - 1], sorted_weights[k])
            else:
                out[filled] = sorted_columns[k]
                heavy[filled] = sorted_weights[k]
                filled += 1
        starts[r + 1] = filled
        a = b
    return starts, out[:filled], heavy[:filled]
