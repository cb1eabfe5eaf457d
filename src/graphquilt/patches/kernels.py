"""Growing patches, counting what they share, and choosing patch edges, compiled."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import BoolArray, Int64Array, IntArray
from graphquilt.kernels import jit, kernel

__all__ = [
    "degrees_inside",
    "fill_up",
    "frontiers",
    "grow",
    "inner_graph",
    "overlap_sizes",
    "random_bits",
    "spanning_tree",
]

UInt64Array: TypeAlias = npt.NDArray[np.uint64]
Csr: TypeAlias = tuple[IntArray, IntArray]  # indptr, indices
Clusters: TypeAlias = tuple[IntArray, Int64Array, Int64Array]  # labels (n,), members (n,) by cluster, starts (p + 1,)


@jit
def random_bits(state: UInt64Array) -> np.uint64:
    """Advance a splitmix64 generator (Steele et al. 2014) and return 64 random bits."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z: np.uint64 = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@jit
def _append(array: Int64Array, used: int, value: int) -> Int64Array:
    """Put ``value`` at place ``used``, in an array twice as long if there is no room; return the array."""
    if used == len(array):
        longer = np.empty(2 * used, np.int64)
        longer[:used] = array
        array = longer
    array[used] = value
    return array


@jit
def _sample(values: Int64Array, wanted: int, state: UInt64Array) -> Int64Array:
    """Return ``wanted`` of ``values``, uniformly without replacement; ``values`` is shuffled."""
    for f in range(wanted):
        pick = f + np.int64(random_bits(state) % np.uint64(len(values) - f))
        values[f], values[pick] = values[pick], values[f]
    return values[:wanted]


@kernel("borders of patches", writes=("mark",))
def frontiers(
    csr: Csr, clusters: Clusters, i: int, neighbours: Int64Array, demand: tuple[Int64Array, UInt64Array], mark: IntArray
) -> tuple[Int64Array, Int64Array]:
    """Find F = N(C_i) ∩ C_j for every neighbour j in one scan of the edges of cluster i, none larger than its cap.

    ``neighbours`` ascend, ``demand`` is the largest number of nodes to take from each and its random seed, and ``mark``
    (n,) is zeros, and left so. Return the nodes neighbour by neighbour, ascending unless sampled, and where each
    neighbour's end.
    """
    indptr, indices = csr
    labels, members, starts = clusters
    cap, seeds = demand
    slot = np.full(len(starts) - 1, -1, np.int32)
    for t in range(len(neighbours)):
        slot[neighbours[t]] = t
    nodes = np.empty(256, np.int64)
    n_nodes = 0
    for u in members[starts[i] : starts[i + 1]]:
        for e in range(indptr[u], indptr[u + 1]):
            v = indices[e]
            # The clusters first: most edges lead to none of the neighbours, and the table is small.
            if slot[labels[v]] >= 0 and mark[v] == 0:
                mark[v] = 1
                nodes = _append(nodes, n_nodes, v)
                n_nodes += 1
    for k in range(n_nodes):
        mark[nodes[k]] = 0
    # Sorted, so that a sample does not depend on the order in which the frontier was found.
    nodes = np.sort(nodes[:n_nodes])
    slots = slot[labels[nodes]]
    nodes = nodes[np.argsort(slots, kind="mergesort")]
    ends = np.zeros(len(neighbours) + 1, np.int64)
    for t in slots:
        ends[t + 1] += 1
    ends = np.cumsum(ends)
    taken = np.empty(n_nodes, np.int64)
    taken_ends = np.zeros(len(neighbours) + 1, np.int64)
    state = np.empty(1, np.uint64)
    for t in range(len(neighbours)):
        part = nodes[ends[t] : ends[t + 1]]
        if len(part) > cap[t]:
            state[0] = seeds[t]
            part = _sample(part, cap[t], state)
        taken[taken_ends[t] : taken_ends[t] + len(part)] = part
        taken_ends[t + 1] = taken_ends[t] + len(part)
    return taken[: taken_ends[-1]], taken_ends


@kernel("graphs of clusters")
def inner_graph(csr: Csr, clusters: Clusters, cluster: int, position: IntArray) -> tuple[Int64Array, Int64Array]:
    """Return the CSR arrays of the subgraph of one cluster, in positions within the cluster."""
    indptr, indices = csr
    labels, members, starts = clusters
    own = members[starts[cluster] : starts[cluster + 1]]
    ends = np.zeros(len(own) + 1, np.int64)
    columns = np.empty(256, np.int64)
    n_columns = 0
    for k in range(len(own)):
        for e in range(indptr[own[k]], indptr[own[k] + 1]):
            v = indices[e]
            if labels[v] == cluster:
                columns = _append(columns, n_columns, position[v])
                n_columns += 1
        ends[k + 1] = n_columns
    return ends, columns[:n_columns]


@kernel("growing patches", writes=("frontier", "mark"))
def grow(inner: Csr, frontier: Int64Array, need: int, cap: int, seed: int, mark: BoolArray) -> tuple[Int64Array, int]:
    """Take nodes of a cluster, ring by ring from ``frontier``, until there are ``need``, never more than ``cap``.

    The second half of Algorithm 2, in positions within the cluster; ``mark`` is False everywhere. Return the positions
    taken, and how often an exhausted frontier had to be seeded again.
    """
    indptr, indices = inner
    n = len(indptr) - 1
    state = np.full(1, seed, np.uint64)
    pool = np.empty(0, np.int64)
    untried = n
    taken = np.empty(cap, np.int64)
    n_taken = 0
    reseeded = 0
    for v in frontier:
        mark[v] = True
    while True:
        if len(frontier) > cap - n_taken:
            frontier = _sample(frontier, cap - n_taken, state)
        taken[n_taken : n_taken + len(frontier)] = frontier
        n_taken += len(frontier)
        if n_taken >= need:
            return taken[:n_taken], reseeded
        ring = np.empty(64, np.int64)
        n_ring = 0
        for u in frontier:
            for e in range(indptr[u], indptr[u + 1]):
                v = indices[e]
                if not mark[v]:
                    mark[v] = True
                    ring = _append(ring, n_ring, v)
                    n_ring += 1
        if n_ring == 0:
            # Differs from the paper: an exhausted frontier is seeded again with a random node of the cluster.
            if reseeded == 0:
                pool = np.arange(n)
            reseeded += 1
            while n_ring == 0:
                k = np.int64(random_bits(state) % np.uint64(untried))
                untried -= 1
                v = pool[k]
                pool[k] = pool[untried]
                if not mark[v]:
                    mark[v] = True
                    ring[0] = v
                    n_ring = 1
        frontier = np.sort(ring[:n_ring])


@kernel("edges inside patches", writes=("mark",))
def degrees_inside(csr: Csr, nodes: IntArray, mark: IntArray) -> Int64Array:
    """Count each node's neighbours among the sorted ``nodes (k,)``, (k,); ``mark`` (n,) is zeros, and left so.

    A node with far more neighbours than the patch has nodes is looked up from the patch's side.
    """
    indptr, indices = csr
    for u in nodes:
        mark[u] = 1
    counts = np.zeros(len(nodes), np.int64)
    for k, u in enumerate(nodes):
        a, b = indptr[u], indptr[u + 1]
        if b - a > 16 * len(nodes):
            row = indices[a:b]
            for v in nodes:
                place = np.searchsorted(row, v)
                if place < len(row) and row[place] == v:
                    counts[k] += 1
        else:
            for e in range(a, b):
                counts[k] += mark[indices[e]]
    for u in nodes:
        mark[u] = 0
    return counts


@kernel("overlaps of patches")
def overlap_sizes(nodes: Int64Array, starts: Int64Array, edges: Int64Array) -> Int64Array:
    """Count the nodes shared by the two patches of each edge; patches are sorted runs of ``nodes``."""
    result = np.zeros(len(edges), np.int64)
    for k in range(len(edges)):
        a, a_end = starts[edges[k, 0]], starts[edges[k, 0] + 1]
        b, b_end = starts[edges[k, 1]], starts[edges[k, 1] + 1]
        while a < a_end and b < b_end:
            if nodes[a] < nodes[b]:
                a += 1
            elif nodes[a] > nodes[b]:
                b += 1
            else:
                result[k] += 1
                a += 1
                b += 1
    return result


@kernel("spanning tree of the patch graph", writes=("chosen", "degree", "parent"))
def spanning_tree(
    edges: Int64Array, order: Int64Array, limit: Int64Array, chosen: BoolArray, degree: Int64Array, parent: Int64Array
) -> int:
    """Take edges in ``order`` that join two trees while both ends are below their ``limit``; return how many.

    ``chosen``, ``degree`` and ``parent`` (union-find) are changed in place, so a second call goes on from the first.
    """
    taken = 0
    for k in order:
        if chosen[k]:
            continue
        i, j = edges[k, 0], edges[k, 1]
        if degree[i] >= limit[i] or degree[j] >= limit[j]:
            continue
        a, b = i, j
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a != b:
            parent[max(a, b)] = min(a, b)
            chosen[k] = True
            degree[i] += 1
            degree[j] += 1
            taken += 1
    return taken


@kernel("choice of patch edges", writes=("chosen", "degree"))
def fill_up(
    edges: Int64Array, order: Int64Array, limit: Int64Array, chosen: BoolArray, degree: Int64Array, wanted: int
) -> int:
    """Take edges in ``order`` while both ends are below their ``limit``, at most ``wanted``; return how many."""
    taken = 0
    for k in order:
        if taken == wanted:
            break
        i, j = edges[k, 0], edges[k, 1]
        if not chosen[k] and degree[i] < limit[i] and degree[j] < limit[j]:
            chosen[k] = True
            degree[i] += 1
            degree[j] += 1
            taken += 1
    return taken
