"""Growing one patch, and counting what patches share, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphquilt.graph._kernels import jit

__all__ = ["edges_inside", "expand_patch", "overlap_sizes"]


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
def _frontiers(
    csr: Any, labels: Any, own: Any, neighbours: Any, mark: Any, stamp: int
) -> tuple[Any, Any]:  # pragma: no cover
    """Find N(C_i) ∩ C_j for every neighbour j in one scan of the cluster's edges: nodes by neighbour, and ends."""
    indptr, indices = csr
    found = np.empty(256, np.int64)
    n_found = 0
    for u in own:
        for e in range(indptr[u], indptr[u + 1]):
            v = indices[e]
            if mark[v] != stamp:
                t = np.searchsorted(neighbours, labels[v])
                if t < len(neighbours) and neighbours[t] == labels[v]:
                    mark[v] = stamp
                    found = _append(found, n_found, v)
                    n_found += 1
    # Sorted, so that a sample does not depend on the order in which the frontier was found.
    found = np.sort(found[:n_found])
    slots = np.searchsorted(neighbours, labels[found])
    ends = np.zeros(len(neighbours) + 1, np.int64)
    for t in slots:
        ends[t + 1] += 1
    return found[np.argsort(slots, kind="mergesort")], np.cumsum(ends)


@jit
def _following(csr: Any, labels: Any, frontier: Any, j: int, mark: Any, stamp: int) -> Any:  # pragma: no cover
    """Return (N(F) ∩ C_j) without what the patch has, and mark it."""
    indptr, indices = csr
    found = np.empty(64, np.int64)
    n_found = 0
    for u in frontier:
        for e in range(indptr[u], indptr[u + 1]):
            v = indices[e]
            if labels[v] == j and mark[v] != stamp:
                mark[v] = stamp
                found = _append(found, n_found, v)
                n_found += 1
    return np.sort(found[:n_found])


@jit
def _grow_into(
    csr: Any, clusters: Any, j: int, frontier: Any, need: int, cap: int, seed: int, mark: Any, stamp: int
) -> tuple[Any, int]:  # pragma: no cover - compiled
    """Take nodes of cluster j, ring by ring, until there are ``need`` and never more than ``cap``."""
    labels, members, starts = clusters
    state = np.full(1, seed, np.uint64)
    pool = members[starts[j] : starts[j + 1]].copy()
    untried = len(pool)
    taken = np.empty(cap, np.int64)
    n_taken: Any = 0
    reseeded = 0
    while n_taken < need:
        if len(frontier) == 0:
            # Differs from the paper: an exhausted frontier is seeded again with a random node of the cluster.
            reseeded += 1
            while len(frontier) == 0 and untried > 0:
                k = np.int64(_next(state) % np.uint64(untried))
                untried -= 1
                v = pool[k]
                pool[k] = pool[untried]
                if mark[v] != stamp:
                    mark[v] = stamp
                    frontier = np.full(1, v, np.int64)
        space = cap - n_taken
        if len(frontier) > space:
            for f in range(space):
                pick = f + np.int64(_next(state) % np.uint64(len(frontier) - f))
                frontier[f], frontier[pick] = frontier[pick], frontier[f]
            frontier = frontier[:space]
        taken[n_taken : n_taken + len(frontier)] = frontier
        n_taken += len(frontier)
        if n_taken < need:
            frontier = _following(csr, labels, frontier, j, mark, stamp)
    return taken[:n_taken], reseeded


@jit
def expand_patch(
    csr: Any, clusters: Any, cluster: int, neighbours: Any, demand: Any, mark: Any
) -> tuple[Any, Any, Any]:  # pragma: no cover - compiled
    """Grow patch ``cluster`` into each of ``neighbours`` until it holds enough of its nodes (Algorithm 2).

    The clusters are disjoint, so growing into one does not depend on growing into another: each pair has a random
    stream of its own, and the order of the pairs is of no consequence.

    Parameters
    ----------
    csr : indptr, indices
    clusters : labels (n,), members (n,) by cluster, starts (p + 1,)
    cluster : which to grow
    neighbours : clusters to grow into, ascending
    demand : for each neighbour, the least and the largest number of nodes to take, and a random seed
    mark : int array (n,), stamped with cluster + 1

    Returns
    -------
    The nodes of the patch, how many came from each neighbour, and how often the frontier had to be seeded again.
    """
    _, members, starts = clusters
    need, cap, seeds = demand
    stamp = cluster + 1
    own = members[starts[cluster] : starts[cluster + 1]]
    for u in own:
        mark[u] = stamp
    nodes, ends = _frontiers(csr, clusters[0], own, neighbours, mark, stamp)
    taken = np.zeros(len(neighbours), np.int64)
    reseeded = np.zeros(len(neighbours), np.int64)
    patch = np.empty(len(own) + cap.sum(), np.int64)
    patch[: len(own)] = own
    size = len(own)
    for t in range(len(neighbours)):
        frontier = nodes[ends[t] : ends[t + 1]].copy()
        more, reseeded[t] = _grow_into(csr, clusters, neighbours[t], frontier, need[t], cap[t], seeds[t], mark, stamp)
        patch[size : size + len(more)] = more
        size += len(more)
        taken[t] = len(more)
    return np.sort(patch[:size]), taken, reseeded


@jit
def edges_inside(indptr: Any, indices: Any, nodes: Any, mark: Any, stamp: int) -> int:  # pragma: no cover - compiled
    """Count the entries of the subgraph induced by the sorted ``nodes``.

    A node with far more neighbours than the patch has nodes is looked up from the patch's side.
    """
    for k in range(len(nodes)):
        mark[nodes[k]] = stamp
    total = 0
    for k in range(len(nodes)):
        u = nodes[k]
        a, b = indptr[u], indptr[u + 1]
        if b - a > 16 * len(nodes):
            row = indices[a:b]
            for v in nodes:
                place = np.searchsorted(row, v)
                if place < len(row) and row[place] == v:
                    total += 1
        else:
            for e in range(a, b):
                if mark[indices[e]] == stamp:
                    total += 1
    return total


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
