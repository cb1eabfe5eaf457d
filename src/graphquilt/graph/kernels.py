"""Compiled loops over CSR arrays."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array, IntArray
from graphquilt.kernels import kernel

__all__ = ["breadth_first", "components", "quotient", "volumes"]


@kernel("graph of clusters")
def quotient(
    csr: tuple[IntArray, IntArray, Float64Array], labels: Int64Array, members: Int64Array, starts: Int64Array
) -> tuple[Int64Array, Int64Array, Float64Array]:
    """Sum the weight between every two clusters, one cluster at a time: O(m) time, memory for the result only."""
    indptr, indices, weights = csr
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
        for j in np.sort(touched[:n_touched]):
            columns[filled] = j
            values[filled] = total[j]
            total[j] = 0.0
            filled += 1
        row_ends[i + 1] = filled
    return row_ends, columns[:filled].copy(), values[:filled].copy()


@kernel("volumes of clusters")
def volumes(csr: tuple[IntArray, IntArray, Float64Array], labels: Int64Array, p: int) -> Float64Array:
    """Sum the (weighted) degrees of the nodes of each cluster."""
    indptr, _, weights = csr
    result = np.zeros(p)
    weighted = len(weights) > 0
    for u in range(len(indptr) - 1):
        if weighted:
            for e in range(indptr[u], indptr[u + 1]):
                result[labels[u]] += weights[e]
        else:
            result[labels[u]] += indptr[u + 1] - indptr[u]
    return result


@kernel("components")
def components(indptr: IntArray, indices: IntArray) -> Int64Array:
    """Number every node's component by union-find, weakly connected, in the order of their smallest nodes."""
    n = len(indptr) - 1
    parent = np.arange(n)
    for u in range(n):
        a = np.int64(u)
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        for e in range(indptr[u], indptr[u + 1]):
            b = np.int64(indices[e])
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            # The smaller root wins, so that a root is the smallest node of its component.
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


@kernel("breadth-first order")
def breadth_first(indptr: IntArray, indices: IntArray, starts: Int64Array) -> Int64Array:
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
