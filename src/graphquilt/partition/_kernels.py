"""Fennel's pass over the nodes, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphquilt.kernels import jit

__all__ = ["cut", "fennel_pass", "sizes_in_order"]


def sizes_in_order(sizes: Any, cap: int) -> tuple[Any, Any, Any]:
    """Return clusters by size, each one's place, and where each size starts: what :func:`fennel_pass` keeps up."""
    order = np.argsort(sizes, kind="stable").astype(np.int64)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    first = np.searchsorted(sizes[order], np.arange(cap + 2)).astype(np.int64)
    return order, place, first


@jit
def _shrink(c: int, sizes: Any, order: Any, place: Any, first: Any) -> None:  # pragma: no cover - compiled
    """Take one node out of cluster c."""
    s = sizes[c]
    there, here = first[s], place[c]
    other = order[there]
    order[there], order[here] = c, other
    place[c], place[other] = there, here
    first[s] += 1
    sizes[c] = s - 1


@jit
def _swell(c: int, sizes: Any, order: Any, place: Any, first: Any) -> None:  # pragma: no cover - compiled
    """Put one node into cluster c."""
    s = sizes[c]
    there, here = first[s + 1] - 1, place[c]
    other = order[there]
    order[there], order[here] = c, other
    place[c], place[other] = there, here
    first[s + 1] = there
    sizes[c] = s + 1


@jit
def _best(touched: Any, gain: Any, sizes: Any, penalty: Any, start: int) -> int:  # pragma: no cover - compiled
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
def fennel_pass(
    csr: Any, visits: Any, penalty: Any, labels: Any, sizes: Any, order: Any, place: Any, first: Any
) -> int:  # pragma: no cover - compiled
    """Put every node, in the order of ``visits``, where Fennel's rule wants it; return how many changed cluster.

    Only the clusters of a node's neighbours and the least loaded one can win, so a node costs its degree. Clusters
    lie in ``order`` by size and ``first[s]`` is where size s begins: a size that changes by one moves its cluster
    across one border, in O(1). Of equal scores the first cluster wins, in a first pass strictly. ``labels``,
    ``sizes``, ``order``, ``place`` and ``first`` are changed in place.
    """
    indptr, indices, weights = csr
    p = len(sizes)
    weighted = len(weights) > 0
    gain = np.zeros(p)
    touched = np.empty(p, np.int64)
    natural = len(visits) == 0  # saves 8 bytes a node
    fresh = sizes.sum() == 0
    cursor = level = moved = 0
    for k in range(len(indptr) - 1):
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
    return moved


@jit
def cut(indptr: Any, indices: Any, weights: Any, labels: Any) -> float:  # pragma: no cover - compiled
    """Sum the weight of the entries between clusters."""
    total = 0.0
    weighted = len(weights) > 0
    for u in range(len(indptr) - 1):
        for e in range(indptr[u], indptr[u + 1]):
            if labels[u] != labels[indices[e]]:
                total += weights[e] if weighted else 1.0
    return total
