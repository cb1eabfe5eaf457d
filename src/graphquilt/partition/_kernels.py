"""Fennel's pass over the nodes, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphquilt.graph._kernels import jit

__all__ = ["cut", "fennel_pass", "sizes_in_order"]


def sizes_in_order(sizes: Any, cap: int) -> tuple[Any, Any, Any]:
    """Return clusters by size, each one's place, and where each size starts: what :func:`fennel_pass` keeps up."""
    order = np.argsort(sizes, kind="stable").astype(np.int64)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    first = np.searchsorted(sizes[order], np.arange(cap + 2)).astype(np.int64)
    return order, place, first


@jit
def fennel_pass(
    indptr: Any,
    indices: Any,
    weights: Any,
    visits: Any,
    penalty: Any,
    labels: Any,
    sizes: Any,
    order: Any,
    place: Any,
    first: Any,
) -> int:  # pragma: no cover - compiled
    """Put every node, in the order of ``visits``, where Fennel's rule wants it; return how many changed cluster.

    Only the clusters of a node's neighbours and the least loaded one can win, so a node costs its degree. Clusters
    lie in ``order`` by size and ``first[s]`` is where size s begins: a size that changes by one moves its cluster
    across one border, in O(1). ``labels``, ``sizes``, ``order``, ``place`` and ``first`` are changed in place.
    """
    p = len(sizes)
    cap = len(penalty) - 1
    weighted = len(weights) > 0
    gain = np.zeros(p)
    touched = np.empty(p, np.int64)
    moved = 0
    natural = len(visits) == 0  # saves 8 bytes a node
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
            s = sizes[old]
            other, here, there = order[first[s]], place[old], first[s]
            order[there], order[here] = old, other
            place[old], place[other] = there, here
            first[s] += 1
            sizes[old] = s - 1
        best = order[0]
        best_score = gain[best] - penalty[sizes[best]]
        for t in range(n_touched):
            c = touched[t]
            s = sizes[c]
            if s < cap:
                score = gain[c] - penalty[s]
                if score > best_score or (score == best_score and gain[c] > gain[best]):
                    best, best_score = c, score
        for t in range(n_touched):
            gain[touched[t]] = 0.0
        if best != old:
            moved += 1
        labels[v] = best
        s = sizes[best]
        last = first[s + 1] - 1
        other, here = order[last], place[best]
        order[last], order[here] = best, other
        place[best], place[other] = last, here
        first[s + 1] = last
        sizes[best] = s + 1
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
