"""Compiled loops over CSR arrays.

Every kernel takes read-only views (see :func:`graphquilt.kernels.frozen`), so that a memory map and an array in memory
share one compiled version.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphquilt.kernels import jit

__all__ = ["breadth_first", "components", "quotient", "volumes"]


@jit
def quotient(
    indptr: Any, indices: Any, weights: Any, labels: Any, members: Any, starts: Any
) -> tuple[Any, Any, Any]:  # pragma: no cover - compiled
    """Sum the weight between every two clusters, one cluster at a time: O(m) time, memory for the result only."""
    p = len(starts) - 1
    total = np.zeros(p)
    touched = np.empty(p, np.int64)
    row_ends = np.zeros(p + 1, np.int64)
    columns = np.empty(max(p, 16), np.int64)
    values = np.empty(max(p, 16), np.float64)
    weighted = len(weights) > 0
    filled = 0
    for i in range(p):
        n_touched = 0
        for k in range(starts[i], starts[i + 1]):
            u = members[k]
            for e in range(indptr[u], indptr[u + 1]):
                w = weights[e] if weighted else 1.0
                j = labels[indices[e]]
                if j == i:
                    continue
                if w > 0 and total[j] == 0:
                    touched[n_touched] = j
                    n_touched += 1
                total[j] += w
        if filled + n_touched > len(columns):
            size = max(2 * len(columns), filled + n_touched)
            more_columns = np.empty(size, np.int64)
            more_values = np.empty(size, np.float64)
            more_columns[:filled] = columns[:filled]
            more_values[:filled] = values[:filled]
            columns, values = more_columns, more_values
        found = np.sort(touched[:n_touched])
        for j in found:
            columns[filled] = j
            values[filled] = total[j]
            total[j] = 0.0
            filled += 1
        row_ends[i + 1] = filled
    return row_ends, columns[:filled].copy(), values[:filled].copy()


@jit
def volumes(indptr: Any, weights: Any, labels: Any, p: int) -> Any:  # pragma: no cover - compiled
    """Sum the (weighted) degrees of the nodes of each cluster."""
    result = np.zeros(p)
    weighted = len(weights) > 0
    for u in range(len(indptr) - 1):
        if weighted:
            for e in range(indptr[u], indptr[u + 1]):
                result[labels[u]] += weights[e]
        else:
            result[labels[u]] += indptr[u + 1] - indptr[u]
    return result


@jit
def components(indptr: Any, indices: Any) -> Any:  # pragma: no cover - compiled
    """Number every node's component by union-find, weakly connected, in the order of the least node."""
    n = len(indptr) - 1
    parent = np.arange(n)
    for u in range(n):
        a: Any = u
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        for e in range(indptr[u], indptr[u + 1]):
            b = np.int64(indices[e])
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            # The lesser root wins, so a root is the least node of its component.
            if a < b:
                parent[b] = a
            elif b < a:
                parent[a] = b
                a = b
    count = 0
    label = np.empty(n, np.int64)
    for u in range(n):
        if parent[u] == u:
            label[u] = count
            count += 1
        else:
            label[u] = label[parent[u]]
    return label


@jit
def breadth_first(indptr: Any, indices: Any, starts: Any) -> Any:  # pragma: no cover - compiled
    """Order all nodes breadth first, taking the next unseen node of ``starts`` whenever the queue is empty."""
    n = len(indptr) - 1
    order = np.empty(n, np.int64)
    seen = np.zeros(n, np.bool_)
    head = tail = 0
    for s in starts:
        if seen[s]:
            continue
        seen[s] = True
        order[tail] = s
        tail += 1
        while head < tail:
            u = order[head]
            head += 1
            for e in range(indptr[u], indptr[u + 1]):
                v = indices[e]
                if not seen[v]:
                    seen[v] = True
                    order[tail] = v
                    tail += 1
    return order
