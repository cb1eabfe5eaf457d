"""Growing patches, and counting what they share, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphquilt.kernels import jit

__all__ = ["degrees_inside", "frontiers", "grow", "inner_graph", "overlap_sizes"]


@jit
def _next(state: Any) -> Any:  # pragma: no cover - compiled
    """Advance a splitmix64 generator (Steele et al. 2014) and return 64 random bits."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@jit
def _append(array: Any, used: int, value: Any) -> Any:  # pragma: no cover - compiled
    """Put ``value`` at place ``used``, in an array twice as long if there is no room; return the array."""
    if used == len(array):
        longer = np.empty(2 * used, np.int64)
        longer[:used] = array
        array = longer
    array[used] = value
    return array


@jit
def _sample(values: Any, wanted: int, state: Any) -> Any:  # pragma: no cover - compiled
    """Return ``wanted`` of ``values``, uniformly without replacement; ``values`` is shuffled."""
    for f in range(wanted):
        pick = f + np.int64(_next(state) % np.uint64(len(values) - f))
        values[f], values[pick] = values[pick], values[f]
    return values[:wanted]


@jit
def frontiers(
    csr: Any, clusters: Any, cluster: int, neighbours: Any, demand: Any, mark: Any
) -> Any:  # pragma: no cover
    """Find F = N(C_i) ∩ C_j for every neighbour j in one scan of the cluster's edges, none larger than its cap.

    Parameters
    ----------
    csr : indptr, indices
    clusters : labels (n,), members (n,) by cluster, starts (p + 1,)
    cluster : the cluster C_i
    neighbours : the clusters C_j, ascending
    demand : for each neighbour, the largest number of nodes to take, and a random seed
    mark : array (n,) of zeros, left so

    Returns
    -------
    The nodes neighbour by neighbour, ascending unless sampled, and where each neighbour's end.
    """
    indptr, indices = csr
    labels, members, starts = clusters
    cap, seeds = demand
    slot = np.full(len(starts) - 1, -1, np.int32)
    for t in range(len(neighbours)):
        slot[neighbours[t]] = t
    found = np.empty(256, np.int64)
    n_found = 0
    for u in members[starts[cluster] : starts[cluster + 1]]:
        for e in range(indptr[u], indptr[u + 1]):
            v = indices[e]
            # The clusters first: most edges lead to none of the neighbours, and the table is small.
            if slot[labels[v]] >= 0 and mark[v] == 0:
                mark[v] = 1
                found = _append(found, n_found, v)
                n_found += 1
    for k in range(n_found):
        mark[found[k]] = 0
    # Sorted, so that a sample does not depend on the order in which the frontier was found.
    found = np.sort(found[:n_found])
    slots = slot[labels[found]]
    found = found[np.argsort(slots, kind="mergesort")]
    ends = np.zeros(len(neighbours) + 1, np.int64)
    for t in slots:
        ends[t + 1] += 1
    ends = np.cumsum(ends)
    kept = np.empty(n_found, np.int64)
    kept_ends = np.zeros(len(neighbours) + 1, np.int64)
    state = np.empty(1, np.uint64)
    for t in range(len(neighbours)):
        part = found[ends[t] : ends[t + 1]]
        if len(part) > cap[t]:
            state[0] = seeds[t]
            part = _sample(part, cap[t], state)
        kept[kept_ends[t] : kept_ends[t] + len(part)] = part
        kept_ends[t + 1] = kept_ends[t] + len(part)
    return kept[: kept_ends[-1]], kept_ends


@jit
def inner_graph(csr: Any, clusters: Any, cluster: int, position: Any) -> Any:  # pragma: no cover - compiled
    """Return the CSR arrays of the subgraph of one cluster, in positions within the cluster."""
    indptr, indices = csr
    labels, members, starts = clusters
    own = members[starts[cluster] : starts[cluster + 1]]
    ends = np.zeros(len(own) + 1, np.int64)
    found = np.empty(256, np.int64)
    n_found = 0
    for k in range(len(own)):
        for e in range(indptr[own[k]], indptr[own[k] + 1]):
            v = indices[e]
            if labels[v] == cluster:
                found = _append(found, n_found, position[v])
                n_found += 1
        ends[k + 1] = n_found
    return ends, found[:n_found]


@jit
def grow(inner: Any, frontier: Any, need: int, cap: int, seed: int, mark: Any) -> Any:  # pragma: no cover - compiled
    """Take nodes of a cluster, ring by ring from ``frontier``, until there are ``need``, never more than ``cap``.

    The second half of Algorithm 2, in positions within the cluster; ``mark`` is a clean array of booleans.

    Returns
    -------
    The positions taken, and how often an exhausted frontier had to be seeded again.
    """
    indptr, indices = inner
    n = len(indptr) - 1
    state = np.full(1, seed, np.uint64)
    pool = np.empty(0, np.int64)
    untried = n
    taken = np.empty(cap, np.int64)
    n_taken: Any = 0
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
        found = np.empty(64, np.int64)
        n_found = 0
        for u in frontier:
            for e in range(indptr[u], indptr[u + 1]):
                v = indices[e]
                if not mark[v]:
                    mark[v] = True
                    found = _append(found, n_found, v)
                    n_found += 1
        if n_found == 0:
            # Differs from the paper: an exhausted frontier is seeded again with a random node of the cluster.
            if reseeded == 0:
                pool = np.arange(n)
            reseeded += 1
            while n_found == 0:
                k = np.int64(_next(state) % np.uint64(untried))
                untried -= 1
                v = pool[k]
                pool[k] = pool[untried]
                if not mark[v]:
                    mark[v] = True
                    found[0] = v
                    n_found = 1
        frontier = np.sort(found[:n_found])


@jit
def degrees_inside(csr: Any, nodes: Any, mark: Any) -> Any:  # pragma: no cover - compiled
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


@jit
def overlap_sizes(nodes: Any, starts: Any, edges: Any) -> Any:  # pragma: no cover - compiled
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
