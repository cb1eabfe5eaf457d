"""Compiled loops over CSR arrays.

Every kernel takes read-only views (see :func:`frozen`), so that a memory map and an array in memory share one
compiled version. Compilation happens once an installation and is cached beside the source.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["announce", "breadth_first", "components", "frozen", "quotient", "volumes"]

logger = logging.getLogger("graphquilt")
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def jit(function: Kernel) -> Kernel:
    """Compile ``function`` with its result cached on disk; the GIL is released while it runs."""
    compiled: Kernel = numba.njit(cache=True, nogil=True)(function)
    return compiled


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only, contiguous view of ``array`` as a plain array."""
    view = np.ascontiguousarray(array).view(np.ndarray)
    if view.flags.writeable:
        view = view[:]
        view.flags.writeable = False
    return view


_announced: list[bool] = []


def announce(kernel: Any, work: str) -> None:
    """Tell the user, before the first call of ``kernel`` on this machine, that it will be compiled.

    Once a process as a warning, which is seen without any setting; further kernels at the level of information.
    """
    if kernel.signatures or _is_compiled(kernel):
        return
    level = logging.INFO if _announced else logging.WARNING
    _announced.append(True)
    logger.log(level, "%s: compiling, which takes some seconds the first time and is kept for later", work)


def _is_compiled(kernel: Any) -> bool:
    """Return whether numba has an index of compiled versions on disk; True where it does not say."""
    file = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    index = getattr(file, "_index_path", None)
    return index is None or Path(index).exists()


@jit
def quotient(
    indptr: Any, indices: Any, weights: Any, labels: Any, members: Any, starts: Any
) -> tuple[Any, Any, Any]:  # pragma: no cover - compiled
    """Sum the weight between every two clusters, one cluster at a time: O(m) time, memory for the result only."""
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
        found = np.sort(touched[:n_touched])
        for j in found:
            columns[filled] = j
            values[filled] = total[j]
            total[j] = 0.0
            filled += 1
        row_ends[i + 1] = filled
    return row_ends, columns[:filled].copy(), values[:filled].copy()


@jit
def volumes(indptr: Any, weights: Any, labels: Any, p: int) -> Any:  # pragma: no cover - compiled
    """Sum the (weighted) degrees of the nodes of each cluster."""
    result = np.zeros(p)
    weighted = len(weights) > 0
    for u in range(len(indptr) - 1):
        if weighted:
            for e in range(indptr[u], indptr[u + 1]):
                result[labels[u]] += weights[e]
        else:
            result[labels[u]] += indptr[u + 1] - indptr[u]
    return result


@jit
def components(indptr: Any, indices: Any) -> Any:  # pragma: no cover - compiled
    """Number every node's component by union-find, weakly connected, in the order of the least node."""
    n = len(indptr) - 1
    parent = np.arange(n)
    for u in range(n):
        a: Any = u
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        for e in range(indptr[u], indptr[u + 1]):
            b = np.int64(indices[e])
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            # The lesser root wins, so a root is the least node of its component.
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


@jit
def breadth_first(indptr: Any, indices: Any, starts: Any) -> Any:  # pragma: no cover - compiled
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
