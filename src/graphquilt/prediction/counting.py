"""Count what two nodes have in common: compiled passes over CSR arrays, which may be memory maps."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import Float64Array, FloatArray, Int64Array, IntArray
from graphquilt.graph import Graph
from graphquilt.kernels import kernel

_WORK = 1 << 30  # entries that the search for common neighbours may look at, and 64 more for each entry of the graph


def count_common(graph: Graph, pairs: Int64Array) -> Float64Array:
    r"""Return what the neighbours of each pair have in common, (k, 4).

    The columns are, over the common neighbours :math:`w`, with strengths :math:`s`, and 1 for an unweighted edge:
    common neighbours :math:`\sum_w m_w`, Adamic-Adar :math:`\sum_w m_w / \log(1 + s_w)`, resource allocation
    :math:`\sum_w m_w / s_w`, where :math:`m_w` is the smaller of both weights; and the weight of the pair itself.
    """
    counts = np.zeros((len(pairs), 4))
    _count_common(graph.csr, strengths(graph), pairs, counts)
    return counts


def strengths(graph: Graph) -> Float64Array:
    """Return the sum of the weights of each node's edges, (n,); its degree where there are no weights."""
    if graph.weights is None:
        return np.diff(graph.indptr).astype(np.float64)
    return np.asarray(graph.adjacency @ np.ones(graph.n_nodes))


def nodes_two_steps_away(graph: Graph, nodes: Int64Array, limit: int) -> Int64Array:
    """Return for each node those with the most resource allocation to it, (k, limit), -1 where there are fewer.

    Neighbours of a node are not among them. Hubs are skipped as common neighbours where all paths through them are
    too many to look at; they add least to the sum.
    """
    partners = np.full((len(nodes), limit), -1, dtype=np.int64)
    scratch = np.zeros(graph.n_nodes, dtype=np.float32), np.empty(graph.n_nodes, dtype=np.int32)
    degrees = np.sort(graph.degrees)
    work = np.cumsum(degrees.astype(np.float64) ** 2)
    place = int(np.searchsorted(work, _WORK + 64.0 * graph.n_entries, side="right"))
    hub = int(degrees[min(place, len(degrees) - 1)]) if len(degrees) else 0
    _two_steps(graph.csr, strengths(graph), (nodes, hub), scratch, partners)
    return partners


@kernel("counts of common neighbours", writes=("counts",))
def _count_common(
    csr: tuple[IntArray, IntArray, Float64Array], strength: Float64Array, pairs: Int64Array, counts: Float64Array
) -> None:
    """Walk along the shorter row, and search the longer one from where the last search ended."""
    indptr, indices, weights = csr
    weighted = len(weights) > 0
    for k in range(len(pairs)):
        u, v = pairs[k, 0], pairs[k, 1]
        if indptr[u + 1] - indptr[u] > indptr[v + 1] - indptr[v]:
            u, v = v, u
        a, b, end = indptr[u], indptr[v], indptr[v + 1]
        while a < indptr[u + 1]:
            w = indices[a]
            if w == v:
                counts[k, 3] = weights[a] if weighted else 1.0
            step = 1
            while b + step < end and indices[b + step] < w:
                step *= 2
            high = min(b + step, end)
            while b < high:
                middle = (b + high) // 2
                if indices[middle] < w:
                    b = middle + 1
                else:
                    high = middle
            if b == end:
                break
            if indices[b] == w and w not in (u, v):
                m = min(weights[a], weights[b]) if weighted else 1.0
                counts[k, 0] += m
                counts[k, 1] += m / np.log(1 + strength[w])
                counts[k, 2] += m / strength[w]
            a += 1
        while a < indptr[u + 1]:  # the row of v is used up; v may still be a neighbour of u
            if indices[a] == v:
                counts[k, 3] = weights[a] if weighted else 1.0
            a += 1


@kernel("nodes two steps away", writes=("scratch", "partners"))
def _two_steps(
    csr: tuple[IntArray, IntArray, Float64Array],
    strength: Float64Array,
    search: tuple[Int64Array, int],
    scratch: tuple[FloatArray, IntArray],
    partners: Int64Array,
) -> None:
    indptr, indices, weights = csr
    nodes, hub = search
    sums, touched = scratch
    limit, weighted = partners.shape[1], len(weights) > 0
    best = np.empty(limit)
    for k in range(len(nodes)):
        u, n_touched = nodes[k], 0
        for a in range(indptr[u], indptr[u + 1]):
            w = indices[a]
            if w == u or indptr[w + 1] - indptr[w] > hub:
                continue
            for b in range(indptr[w], indptr[w + 1]):
                v = indices[b]
                if sums[v] == 0:
                    touched[n_touched] = v
                    n_touched += 1
                sums[v] += (min(weights[a], weights[b]) if weighted else 1.0) / strength[w]
        sums[u] = 0
        for a in range(indptr[u], indptr[u + 1]):
            sums[indices[a]] = 0
        count, least = 0, 0
        for t in range(n_touched):
            v = touched[t]
            value, sums[v] = sums[v], 0
            if value == 0:
                continue
            if count < limit:
                best[count], partners[k, count] = value, v
                count += 1
            elif value > best[least]:
                best[least], partners[k, least] = value, v
            else:
                continue
            if count == limit:
                least = int(np.argmin(best))
