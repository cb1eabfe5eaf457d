"""Fennel's pass over the nodes, and the weight between clusters, compiled."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array, IntArray
from graphquilt.kernels import jit, kernel

__all__ = ["cut", "fennel_pass"]

_AHEAD = 32  # nodes whose neighbours' labels are read together


@jit
def _shrink(c: int, sizes: Int64Array, order: Int64Array, place: Int64Array, first: Int64Array) -> None:
    """Take one node out of cluster c."""
    s = sizes[c]
    there, here = first[s], place[c]
    other = order[there]
    order[there], order[here] = c, other
    place[c], place[other] = there, here
    first[s] += 1
    sizes[c] = s - 1


@jit
def _swell(c: int, sizes: Int64Array, order: Int64Array, place: Int64Array, first: Int64Array) -> None:
    """Put one node into cluster c."""
    s = sizes[c]
    there, here = first[s + 1] - 1, place[c]
    other = order[there]
    order[there], order[here] = c, other
    place[c], place[other] = there, here
    first[s + 1] = there
    sizes[c] = s + 1


@jit
def _best(touched: Int64Array, gain: Float64Array, sizes: Int64Array, penalty: Float64Array, start: int) -> int:
    """Return the cluster with the best score of ``touched`` and ``start``; of equals the first."""
    cap = len(penalty) - 1
    best = start
    best_score = gain[best] - penalty[sizes[best]]
    for c in touched:
        if sizes[c] < cap:
            score = gain[c] - penalty[sizes[c]]
            if score > best_score or (score == best_score and c < best):
                best, best_score = c, score
    return best


@jit
def _look_ahead(indptr: IntArray, indices: IntArray, labels: IntArray, begin: int, end: int) -> int:
    """Read the labels of all neighbours of some nodes, which brings them into the cache at once; return their sum.

    Later each label decides what is done next, and the processor would wait for one after the other.
    """
    total = 0
    for e in range(indptr[begin], indptr[end]):
        total += labels[indices[e]]
    return total


@kernel("Fennel", writes=("labels", "sizes", "order", "place", "first", "state"))
def fennel_pass(
    csr: tuple[IntArray, IntArray, Float64Array],
    visits: Int64Array,
    penalty: Float64Array,
    labels: IntArray,
    sizes: Int64Array,
    order: Int64Array,
    place: Int64Array,
    first: Int64Array,
    state: Int64Array,
) -> None:
    """Put nodes, in the order of ``visits``, where Fennel's rule wants them.

    Only the clusters of a node's neighbours and the least loaded one can win, so that the work for a node
    is proportional to its degree. Clusters are in ``order`` by size, at their ``place``, and ``first[s]`` is where size
    s begins: a size that changes by one moves its cluster across one border, in O(1). Of equal scores the first cluster
    wins, in a first pass strictly. ``state`` is which visits to make, from and to, whether this is a first pass, how
    many nodes have changed cluster, where to look for the least loaded one (two numbers), and a sum that keeps the
    compiler from leaving out reads. All but the first three are changed in place, so that the next call goes on from
    there.
    """
    indptr, indices, weights = csr
    p = len(sizes)
    weighted = len(weights) > 0
    gain = np.zeros(p)
    touched = np.empty(p, np.int64)
    natural = len(visits) == 0  # saves 8 bytes per node
    begin, end, fresh, moved, cursor, level, total = state
    for k in range(begin, end):
        if natural and (k - begin) % _AHEAD == 0:
            total += _look_ahead(indptr, indices, labels, k, min(k + _AHEAD, end))
        v = k if natural else visits[k]
        old = labels[v]
        n_touched = 0
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            c = labels[u]
            if c >= 0 and u != v:
                w = weights[e] if weighted else 1.0
                if gain[c] == 0 and w > 0:
                    touched[n_touched] = c
                    n_touched += 1
                gain[c] += w
        if old >= 0:
            _shrink(old, sizes, order, place, first)
        # Sizes only grow in a first pass, so the first of the least loaded is found by going round: O(n) in all.
        while fresh and sizes[cursor] > level:
            cursor += 1
            if cursor == p:
                cursor = 0
                level += 1
        best = _best(touched[:n_touched], gain, sizes, penalty, cursor if fresh else order[0])
        for t in range(n_touched):
            gain[touched[t]] = 0.0
        moved += best != old
        labels[v] = best
        _swell(best, sizes, order, place, first)
    state[3:] = moved, cursor, level, total


@kernel("edge cut")
def cut(csr: tuple[IntArray, IntArray, Float64Array], labels: IntArray) -> float:
    """Sum the weight of the entries between clusters."""
    indptr, indices, weights = csr
    total = 0.0
    weighted = len(weights) > 0
    for u in range(len(indptr) - 1):
        for e in range(indptr[u], indptr[u + 1]):
            if labels[u] != labels[indices[e]]:
                total += weights[e] if weighted else 1.0
    return total
