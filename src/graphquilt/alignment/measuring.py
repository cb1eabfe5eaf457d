"""Measure overlaps: the statistics of the nodes that two patches share, for one pair or for all edges.

A lazy sequence that opens a file when it is indexed is as good as a list: see patch_index.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.kernels import measure_pairs
from graphquilt.alignment.patch_index import OpenPatches, PatchIndex, PatchLike, coordinates, index_patches
from graphquilt.alignment.statistics import OverlapStatistics, empty_products
from graphquilt.arrays import Float64Array, FloatArray, Int64Array, IntArray
from graphquilt.errors import OverlapError
from graphquilt.kernels import one_blas_thread, read_only, thread_count
from graphquilt.patches.graph import check_overlap
from graphquilt.progress import ProgressCallback, report

OpenPatch: TypeAlias = tuple[IntArray, FloatArray, Float64Array, float]  # ids, coordinates, weights, magnitude
Measured: TypeAlias = tuple[Int64Array, Float64Array, Float64Array, Float64Array, FloatArray]

REPORT = 2**24  # entries of d × d matrices after which threads wait for each other and progress is reported
GROUP = 16  # the compiled pass gets this many patches at a time
RECENT = 16  # how many other patches stay as the compiled pass takes them, for the edges that follow
POINT = 1e-12  # points closer together than this share of their size are one point


def overlap_statistics(
    patch_a: PatchLike, patch_b: PatchLike, weights: Sequence[npt.ArrayLike] | None = None
) -> OverlapStatistics:
    """Measure the overlap of two patches: all that alignment needs of it, without node ids and coordinates.

    Parameters
    ----------
    patch_a, patch_b : Patch or (nodes (k,), coordinates (k, d)) pairs
    weights : pair of arrays (k_a,) and (k_b,), optional
        How much each row of either patch is to be trusted; positive. A shared node counts with the product of its two.

    Returns
    -------
    OverlapStatistics
        Of one overlap. :func:`align_statistics` aligns patches from those of several, put together.

    Examples
    --------
    >>> nodes, X = np.arange(4), np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> statistics = overlap_statistics((nodes, X), (nodes + 1, 10 * X))
    >>> int(statistics.counts[0]), statistics.means.ravel().tolist(), statistics.products.ravel().round(9).tolist()
    (3, [2.0, 10.0], [1.0])
    """
    patches = [patch_a, patch_b]
    index = index_patches(patches, weights)
    if not np.isin(index.nodes[0], index.nodes[1]).any():
        raise OverlapError("the two patches share no node, so there is nothing to measure. Leave out this pair.")
    return measure_overlaps(patches, index, np.array([[0, 1]]))


def measure_overlaps(
    patches: Sequence[PatchLike],
    index: PatchIndex,
    edges: Int64Array,
    *,
    least: int = 1,
    progress: ProgressCallback | None = None,
) -> OverlapStatistics:
    """Measure the overlap of the two patches of each of ``edges (m, 2)``; fewer than ``least`` nodes are an error.

    The edges are shared among as many threads as the settings of the user allow. Every overlap is measured by one
    thread: the result does not depend on their number.
    """
    m, d = len(edges), index.dim
    products = empty_products(m, d)
    measured = np.empty(m, dtype=np.int64), np.ones(m), np.zeros((m, 2, d)), np.zeros((m, 2)), products
    prepared, size = _Prepared(patches, index), max(1, REPORT // d**2)
    # Edges of one patch follow each other, and it is opened only once or a few times.
    order = np.lexsort((edges[:, 0], edges[:, 1]))
    report(progress, "overlaps", 0, m)
    for start in range(0, m, size):
        rows = order[start : start + size]
        _measure_rows(prepared, edges, rows, measured, least=least)
        report(progress, "overlaps", start + len(rows), m)
    return OverlapStatistics(*measured)


def _measure_rows(prepared: _Prepared, edges: Int64Array, rows: Int64Array, measured: Measured, *, least: int) -> None:
    """Measure the overlaps of the edges ``rows (r,)`` in groups that need few patches; one thread measures a group."""
    pairs, threads = edges[rows], thread_count()
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[None]] = deque()
        for start, stop, numbers in _groups(pairs):
            group = [prepared[k] for k in numbers]
            group += group[-1:] * (GROUP - len(group))
            ids, X, weights, extents = zip(*group, strict=True)
            slots = np.searchsorted(numbers, pairs[start:stop])
            data = (ids, X, weights)
            measure = partial(measure_pairs, slots, rows[start:stop], data, np.array(extents), POINT, measured)
            if threads == 1:
                measure()
                continue
            waiting.append(pool.submit(measure))
            if len(waiting) > 2 * threads:  # no more patches are open than the threads need
                waiting.popleft().result()
        for future in waiting:
            future.result()
    few = rows[measured[0][rows] < least]
    for e in few[:1].tolist():
        i, j = edges[e].tolist()
        check_overlap(i, j, int(measured[0][e]), least=least, dim=prepared.index.dim)


def _groups(edges: Int64Array) -> Iterator[tuple[int, int, list[int]]]:
    """Yield runs of edges with at most ``GROUP`` patches: where each begins and ends, and its patches in order."""
    start, numbers = 0, set[int]()
    for e, pair in enumerate(edges.tolist()):
        if len(numbers) > GROUP - 2 and not numbers.issuperset(pair) and len(numbers.union(pair)) > GROUP:
            yield start, e, sorted(numbers)
            start, numbers = e, set()
        numbers.update(pair)
    if numbers:
        yield start, len(edges), sorted(numbers)


class _Prepared(dict[int, OpenPatch]):
    """Patches as the compiled pass takes them; the last few stay so, and all that stay open anyway."""

    def __init__(self, patches: Sequence[PatchLike], index: PatchIndex) -> None:
        super().__init__()
        self.patches, self.index = patches, index

    def __missing__(self, k: int) -> OpenPatch:
        index, given = self.index, coordinates(self.patches[k])
        order = index.rows[k]
        X = np.ascontiguousarray(given if order is None else given[order], dtype=index.dtype)
        weights = np.empty(0) if index.weights is None else index.weights[k]
        if len(weights) and order is not None:
            weights = weights[order]
        patches = self.patches
        stays = isinstance(patches, list | tuple) or (isinstance(patches, OpenPatches) and patches.stays(k))
        if not (stays and np.may_share_memory(X, given)):
            while len(self) >= RECENT:
                del self[next(iter(self))]
        self[k] = (read_only(index.nodes[k]), read_only(X), read_only(weights), index.magnitudes[k])
        return self[k]
