"""Compiled loops over CSR arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphquilt.arrays import Float64Array, FloatArray, Int64Array, IntArray
from graphquilt.kernels import jit, kernel


@jit
def _sum_row(
    csr: tuple[IntArray, IntArray, Float64Array],
    clusters: tuple[IntArray, IntArray, Int64Array],
    row: tuple[int, int],
    total: Float64Array,
    touched: IntArray,
) -> int:
    """Add the weight between cluster ``row[0]`` and each other one from ``row[1]`` on to ``total``.

    Write down in ``touched`` which these are, and return how many.
    """
    indptr, indices, weights = csr
    labels, members, starts = clusters
    i, least = row
    weighted = len(weights) > 0
    n_touched = 0
    for k in range(starts[i], starts[i + 1]):
        u = members[k]
        for e in range(indptr[u], indptr[u + 1]):
            j = np.int64(labels[indices[e]])
            if j == i or j < least:
                continue
            w = weights[e] if weighted else 1.0
            if w > 0 and total[j] == 0:
                touched[n_touched] = j
                n_touched += 1
            total[j] += w
    return n_touched


@jit
def _move_row(
    total: Float64Array, touched: IntArray, columns: IntArray, values: Float64Array, filled: int
) -> tuple[IntArray, Float64Array]:
    """Move the sums of the ``touched`` clusters to the end of columns and values, which grow where they are full."""
    if filled + len(touched) > len(columns):
        size = max(2 * len(columns), filled + len(touched))
        more_columns = np.empty(size, columns.dtype)
        more_values = np.empty(size, values.dtype)
        more_columns[:filled] = columns[:filled]
        more_values[:filled] = values[:filled]
        columns, values = more_columns, more_values
    for j in touched[np.argsort(touched)]:
        columns[filled] = j
        values[filled] = total[j]
        total[j] = 0.0
        filled += 1
    return columns, values


@kernel("nodes by cluster", writes=("places", "members"))
def group(labels: IntArray, places: Int64Array, members: IntArray) -> None:
    """Put the nodes of each cluster, ascending, into ``members`` from its place in ``places`` on."""
    for u in range(len(labels)):
        c = labels[u]
        members[places[c]] = u
        places[c] += 1


@kernel("graph of clusters")
def cluster_pairs(
    csr: tuple[IntArray, IntArray, Float64Array],
    clusters: tuple[IntArray, IntArray, Int64Array],
    first: int,
    last: int,
    later: bool,
) -> tuple[Int64Array, IntArray, Float64Array]:
    """Sum the weight between each of the clusters first..last-1 and every other one, or every ``later`` one.

    ``clusters`` are labels, members and starts. Return how many clusters each is joined to, which, and by what weight:
    O(m) time, memory for the result only.
    """
    p = len(clusters[2]) - 1
    total = np.zeros(p)
    touched = np.empty(p, np.int32)
    counts = np.zeros(last - first, np.int64)
    columns: IntArray = np.empty(max(p, 16), np.int32)
    values: Float64Array = np.empty(max(p, 16), np.float64)
    filled = 0
    for i in range(first, last):
        n_touched = _sum_row(csr, clusters, (i, i + 1 if later else 0), total, touched)
        columns, values = _move_row(total, touched[:n_touched], columns, values, filled)
        counts[i - first] = n_touched
        filled += n_touched
    return counts, columns[:filled].copy(), values[:filled].copy()


def quotient(
    csr: tuple[IntArray, IntArray, Float64Array], clusters: tuple[IntArray, IntArray, Int64Array]
) -> tuple[Int64Array, IntArray, Float64Array]:
    """Return the weight between every two clusters, labels, members and starts, as CSR arrays."""
    counts, columns, weights = cluster_pairs(csr, clusters, 0, len(clusters[2]) - 1, False)
    return np.concatenate([[0], np.cumsum(counts)]), columns, weights


@kernel("volumes of clusters")
def volumes(csr: tuple[IntArray, IntArray, Float64Array], labels: IntArray, p: int) -> Float64Array:
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


@kernel("components", writes=("parent",))
def components(indptr: IntArray, indices: IntArray, parent: IntArray) -> int:
    """Number every node's component by union-find, weakly connected, in the order of their smallest nodes.

    ``parent`` (n,), the only memory used, holds the numbers of the components afterwards; return how many there are.
    """
    n = len(indptr) - 1
    for u in range(n):
        parent[u] = u
    for u in range(n):
        a = np.int64(u)
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = np.int64(parent[a])
        for e in range(indptr[u], indptr[u + 1]):
            b = np.int64(indices[e])
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = np.int64(parent[b])
            # The smaller root wins: a root is the smallest node of its component.
            if a < b:
                parent[b] = a
            elif b < a:
                parent[a] = b
                a = b
    return _numbered(parent)


@jit
def _numbered(parent: IntArray) -> int:
    """Turn parents, none of which is larger than its child, into numbers of components; return how many."""
    count = 0
    for u in range(len(parent)):
        if parent[u] == u:
            parent[u] = count
            count += 1
        else:
            parent[u] = parent[parent[u]]  # which is smaller than u, and has its number already
    return count


def join_ends(edges: Int64Array, parent: IntArray) -> int:
    """Do as :func:`components` does for ``edges`` (m, 2)."""
    row_ends = np.cumsum(np.bincount(edges[:, 0] + 1, minlength=len(parent) + 1))
    return components(row_ends, edges[np.argsort(edges[:, 0], kind="stable"), 1], parent)


@kernel("self loops")
def count_loops(indptr: IntArray, indices: IntArray) -> int:
    """Count the entries on the diagonal."""
    loops = 0
    for u in range(len(indptr) - 1):
        for e in range(indptr[u], indptr[u + 1]):
            loops += indices[e] == u
    return loops


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


@jit
def _slot(node: np.integer[Any], bits: int) -> np.int64:
    """Return the first place for a node in a table of 2^bits places: Fibonacci hashing."""
    return np.int64((np.uint64(node) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - bits))


@jit
def _places(rows: Int64Array) -> tuple[Int64Array, int]:
    """Return a hash table of the places of unique nodes, and how many bits its slots have."""
    bits = 2
    while 1 << bits < 2 * len(rows):
        bits += 1
    table = np.full(1 << bits, -1, np.int64)
    mask = len(table) - 1
    for k in range(len(rows)):
        slot = _slot(rows[k], bits)
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = k
    return table, bits


@jit
def _place(table: Int64Array, bits: int, rows: Int64Array, node: np.integer[Any]) -> np.int64:
    """Return the place of a node in ``rows``, or -1."""
    mask = len(table) - 1
    slot = _slot(node, bits)
    while table[slot] >= 0 and rows[table[slot]] != node:
        slot = (slot + 1) & mask
    place: np.int64 = table[slot]
    return place


@kernel("subgraphs", writes=("inside", "outside"))
def induced(
    csr: tuple[IntArray, IntArray, FloatArray],
    rows: Int64Array,
    ascending: bool,
    cluster: IntArray,
    inside: tuple[Int64Array, IntArray, FloatArray],
    outside: tuple[Int64Array, IntArray, FloatArray],
) -> None:
    """Write the entries between ``rows``, numbered by their place in it, and the clusters of all other neighbours.

    ``inside`` and ``outside`` are row ends, (k + 1,), places or clusters, and any weights; without clusters nothing is
    written outside. Places are found in a hash table: memory does not depend on the size of the graph.
    """
    indptr, indices, weights = csr
    ends, columns, values = inside
    far_ends, far_columns, far_values = outside
    table, bits = _places(rows)
    filled, left = 0, 0
    for k in range(len(rows)):
        u, begin = rows[k], filled
        ends[k] = begin
        if len(cluster):
            far_ends[k] = left
        for e in range(indptr[u], indptr[u + 1]):
            v = indices[e]
            place = _place(table, bits, rows, v)
            if place >= 0:
                columns[filled] = place
                if len(weights):
                    values[filled] = weights[e]
                filled += 1
            elif len(cluster):
                far_columns[left] = cluster[v]
                if len(weights):
                    far_values[left] = weights[e]
                left += 1
        if not ascending and filled - begin > 1:
            # Only argsort: numba may take one cached sort for another (docs/decisions.md).
            order = np.argsort(columns[begin:filled])
            columns[begin:filled] = columns[begin:filled][order]
            if len(weights):
                values[begin:filled] = values[begin:filled][order]
    ends[len(rows)] = filled
    if len(cluster):
        far_ends[len(rows)] = left
