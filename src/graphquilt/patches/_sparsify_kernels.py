"""Union-find over weighted patch edges, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphquilt.kernels import jit

__all__ = ["fill_up", "spanning_tree"]


@jit
def spanning_tree(edges: Any, order: Any, limit: Any, chosen: Any, degree: Any, parent: Any) -> int:  # pragma: no cover
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


@jit
def fill_up(edges: Any, order: Any, limit: Any, chosen: Any, degree: Any, wanted: int) -> int:  # pragma: no cover
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


UNBOUNDED = np.iinfo(np.int64).max
