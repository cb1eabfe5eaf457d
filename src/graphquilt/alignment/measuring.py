"""Measure overlaps: the statistics of the nodes that two patches share, for one pair or for all edges.

Few patches are open at a time, so a lazy sequence that opens a file when it is indexed is as good as a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import lru_cache, partial
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.overlap import (
    PatchIndex,
    PatchLike,
    coordinates,
    index_patches,
    shared_rows,
)
from graphquilt.alignment.patch_edges import check_overlap
from graphquilt.alignment.statistics import OverlapStatistics, empty_products
from graphquilt.arrays import FloatArray, Int64Array
from graphquilt.errors import OverlapError
from graphquilt.kernels import one_blas_thread
from graphquilt.linalg import centred, unit
from graphquilt.progress import ProgressCallback, report

__all__ = ["measure_overlaps", "overlap_statistics", "results"]

Patches: TypeAlias = Sequence[PatchLike] | Mapping[int, PatchLike]
Result = TypeVar("Result")

CHUNK = 2**21  # entries of d × d matrices worked on at a time
RECENT = 32  # how many patches of a lazy sequence stay open for the edges that follow
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
    if len(shared_rows(index, 0, 1)[0]) == 0:
        raise OverlapError("the two patches share no node, so there is nothing to measure. Leave out this pair.")
    return measure_overlaps(patches, index, np.array([[0, 1]]))


def measure_overlaps(
    patches: Sequence[PatchLike],
    index: PatchIndex,
    edges: Int64Array,
    *,
    least: int = 1,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> OverlapStatistics:
    """Measure the overlap of the two patches of each of ``edges (m, 2)``; fewer than ``least`` nodes are an error."""
    m, d = len(edges), index.dim
    counts, sizes, means, spreads = np.empty(m, dtype=np.int64), np.empty(m), np.empty((m, 2, d)), np.empty((m, 2))
    products = empty_products(m, d)
    # Edges of one patch follow each other, so that it is opened only once or a few times.
    order, done = np.lexsort((edges[:, 0], edges[:, 1])), 0
    report(progress, "relative transforms", 0, m)
    for part in _map_chunks(partial(_measure_chunk, least=least), patches, index, edges[order], executor):
        here = order[done : done + len(part)]
        counts[here], sizes[here], means[here], spreads[here] = part.counts, part.sizes, part.means, part.spreads
        products[here] = part.products
        done += len(part)
        report(progress, "relative transforms", done, m)
    return OverlapStatistics(counts, sizes, means, spreads, products)


def _measure_chunk(patches: Patches, index: PatchIndex, edges: Int64Array, *, least: int) -> OverlapStatistics:
    m, d = len(edges), index.dim
    counts, sizes = np.empty(m, dtype=np.int64), np.empty(m)
    means, spreads, products = np.empty((m, 2, d)), np.empty((m, 2)), np.zeros((m, d, d))
    opened: Callable[[int], FloatArray] = lru_cache(maxsize=RECENT)(lambda k: coordinates(patches[k]))
    with one_blas_thread():
        for e, (i, j) in enumerate(edges.tolist()):
            rows = shared_rows(index, i, j)
            counts[e] = len(rows[0])
            check_overlap(i, j, len(rows[0]), least=least, dim=d)
            w = None if index.weights is None else index.weights[i][rows[0]] * index.weights[j][rows[1]]
            sizes[e] = len(rows[0]) if w is None else w.sum()
            directions = []
            for side, k in enumerate((i, j)):
                offsets, means[e, side] = centred(opened(k)[rows[side]], w)
                scale = unit(offsets)
                offsets /= scale
                norm = float(np.linalg.norm(offsets))
                extent = max(index.magnitudes[k], float(np.abs(means[e, side]).max()))
                single = norm == 0 or scale <= POINT * extent * np.sqrt(sizes[e]) / norm
                spreads[e, side] = 0.0 if single else scale * norm
                directions.append(offsets / (norm or 1.0))
            if spreads[e].all():
                products[e] = directions[0].T @ directions[1]
    return OverlapStatistics(counts, sizes, means, spreads, products)


def _map_chunks(
    function: Callable[[Patches, PatchIndex, Int64Array], Result],
    patches: Sequence[PatchLike],
    index: PatchIndex,
    edges: Int64Array,
    executor: Executor | None,
) -> Iterator[Result]:
    """Call ``function`` on runs of edges; an executor is sent only the patches that each run needs."""
    size = max(1, CHUNK // index.dim**2)
    if executor is not None:
        size = max(1, min(size, -(-len(edges) // 16)))
    chunks = [edges[start : start + size] for start in range(0, len(edges), size)]
    if executor is None:
        return results(None, function, [(patches, index, chunk) for chunk in chunks])
    return results(executor, function, [(*_needed(patches, index, chunk), chunk) for chunk in chunks])


def _needed(patches: Sequence[PatchLike], index: PatchIndex, edges: Int64Array) -> tuple[Patches, PatchIndex]:
    """Return what ``edges`` need; a lazy sequence stays as it is, and the worker opens the patches that it needs."""
    numbers = np.unique(edges).tolist()
    nodes, rows = {k: index.nodes[k] for k in numbers}, {k: index.rows[k] for k in numbers}
    weights = None if index.weights is None else {k: index.weights[k] for k in numbers}
    part = {k: patches[k] for k in numbers} if isinstance(patches, list | tuple) else patches
    magnitudes = {k: index.magnitudes[k] for k in numbers}
    return part, PatchIndex(nodes, rows, index.dim, magnitudes, weights)


def results(
    executor: Executor | None, function: Callable[..., Result], tasks: Sequence[tuple[object, ...]]
) -> Iterator[Result]:
    """Yield ``function(*task)`` of each task, in order; without an executor only when it is asked for."""
    if executor is None:
        return (function(*task) for task in tasks)
    futures = [executor.submit(function, *task) for task in tasks]
    return (future.result() for future in futures)
