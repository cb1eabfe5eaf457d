"""Align patches inside clusters of the patch graph, then the clusters with each other, and so on, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.centroids import centroid
from graphquilt.alignment.components import join_parts, split_patches
from graphquilt.alignment.edge_table import EdgeTable
from graphquilt.alignment.measuring import measure_overlaps, results
from graphquilt.alignment.overlap import PatchLike, index_patches
from graphquilt.alignment.relative import edge_errors
from graphquilt.alignment.solve import AlignOptions, align, compared_pairs, judged
from graphquilt.alignment.transforms import Alignment, with_fixed_frame, with_worst_fit
from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.errors import InputError
from graphquilt.linalg import adjacency, components
from graphquilt.patches import Patch
from graphquilt.progress import ProgressCallback, report

__all__ = ["align_hierarchical"]


def align_hierarchical(
    patches: Sequence[PatchLike],
    edges: npt.ArrayLike | None = None,
    *,
    branching: int = 100,
    clusters: npt.ArrayLike | None = None,
    options: AlignOptions = AlignOptions(),
    weights: Sequence[npt.ArrayLike] | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> Alignment:
    """Align many patches level by level: never more than about ``branching`` at a time.

    The patch graph is cut into clusters of about ``branching`` patches. Each cluster is aligned on its own and becomes
    one patch, the weighted centroid of its members. The clusters are then aligned in the same way. Without noise the
    result is that of :func:`align`; with noise it is a little less accurate, but the largest problem is small.

    Parameters
    ----------
    branching : int
        How many patches, or clusters, to align at once; at least 2.
    clusters : int array (p,), optional
        A cluster for each patch on the first level. A cluster whose patches are not connected is split.
    executor : concurrent.futures.Executor, optional
        Aligns the clusters of a level at the same time.
    patches, edges, options, weights, progress
        As for :func:`align`, on every level.

    Returns
    -------
    Alignment
        Of all patches. Its eigenvalues and residual are the worst over all levels; an edge between clusters has the
        undetermined directions of the edge that joins its two clusters. Robust alignment judges the edges of every
        level, and ``edge_trust`` is its last judgement, of the edges between patches.

    Examples
    --------
    >>> from graphquilt.synthetic import quilt
    >>> example = quilt(30, 2, seed=0)
    >>> bool(align_hierarchical(example.patches, example.edges, branching=6).edge_errors.max() < 1e-6)
    True
    """
    if not isinstance(branching, int | np.integer) or branching < 2:
        raise InputError(
            f"branching is how many patches are aligned at once, a whole number of at least 2; it is {branching}."
        )
    index = index_patches(patches, weights)
    pairs = compared_pairs(index, edges)
    least = options.motions.points_needed(index.dim)
    statistics = measure_overlaps(patches, index, pairs, least=least, executor=executor)
    sizes = statistics.sizes
    row_weights = None if index.weights is None else [index.weights[k] for k in range(index.n_patches)]
    level = _Level(patches, row_weights, pairs, sizes, branching, options, executor, progress)
    if clusters is not None and np.shape(clusters) != (index.n_patches,):
        raise InputError(
            f"there are {index.n_patches} patches and clusters of shape {np.shape(clusters)}; give one per patch."
        )
    alignment = _align_level(level, _cut(level) if clusters is None else np.asarray(clusters))
    errors = edge_errors(statistics, pairs, alignment)
    trust = judged(statistics, pairs, errors) if options.robust else np.ones(len(pairs))
    table = EdgeTable(pairs, errors, sizes * trust, trust, alignment.undetermined)
    # One level fixes the similarity of the whole; on several, that of the clusters is fixed, not that of the patches.
    size = float(np.mean(1 / alignment.scales))
    scales, translations = size * alignment.scales, size * alignment.translations
    return with_fixed_frame(replace(alignment, scales=scales, translations=translations, edge_table=table))


class _Level(NamedTuple):
    """The patches of one level (on the first the patches themselves, then clusters), and how to align them."""

    patches: Sequence[PatchLike]
    weights: Sequence[Float64Array] | None
    edges: Int64Array
    sizes: Float64Array
    branching: int
    options: AlignOptions
    executor: Executor | None
    progress: ProgressCallback | None
    number: int = 1


def _cut(level: _Level) -> Int64Array:
    """Cut a patch graph into clusters of about ``branching`` patches, cutting small overlaps rather than large ones."""
    n = len(level.patches)
    if n <= level.branching:
        return np.zeros(n, dtype=np.int64)
    from graphquilt.graph import Graph
    from graphquilt.partition import Metis

    graph = Graph(adjacency(level.edges, level.sizes, n))
    return np.asarray(Metis(n_patches=-(-n // level.branching))(graph), dtype=np.int64)


def _align_level(level: _Level, labels: Int64Array) -> Alignment:
    """Align one level and all above it; of each edge the result knows the trust and the undetermined directions."""
    p, edges, executor, progress = len(labels), level.edges, level.executor, level.progress
    inside = labels[edges[:, 0]] == labels[edges[:, 1]]
    labels = components(edges[inside], p)  # a cluster whose patches are not connected is split
    if labels.max() == 0 or labels.max() == p - 1:
        options, weights = level.options, level.weights
        return align(level.patches, edges, options=options, weights=weights, executor=executor, progress=progress)
    parts = split_patches(level.patches, edges[inside], labels, level.weights)
    tasks = [(part.patches, part.edges, level.options, part.weights) for part in parts]
    alignments, patches, totals = [], [], []
    for alignment, patch, total in results(executor, _align_cluster, tasks):
        alignments.append(alignment)
        patches.append(patch)
        totals.append(total)
        report(progress, f"clusters of level {level.number}", len(patches), len(parts))
    lower = join_parts(parts, alignments, edges[inside])
    pairs, inverse = np.unique(np.sort(labels[edges[~inside]], axis=1), axis=0, return_inverse=True)
    which = inverse.ravel()
    sizes = np.bincount(which, weights=level.sizes[~inside]).astype(np.float64)
    clusters = level._replace(patches=patches, weights=totals, edges=pairs, sizes=sizes, number=level.number + 1)
    upper = _align_level(clusters, _cut(clusters))
    table = EdgeTable.concatenate([lower.edge_table, upper.edge_table.take(which)])
    table = table.take(np.argsort(np.r_[np.flatnonzero(inside), np.flatnonzero(~inside)]))
    whole = replace(lower.compose(upper.take(labels)), edge_table=replace(table, pairs=edges))
    return with_worst_fit(whole, [lower, upper])


def _align_cluster(
    patches: Sequence[PatchLike], edges: Int64Array, options: AlignOptions, weights: Sequence[Float64Array] | None
) -> tuple[Alignment, Patch, Float64Array]:
    """Return the alignment of one cluster, its weighted centroid as one patch, and the weight of each of its rows."""
    members = list(patches)
    alignment = align(members, edges, options=options, weights=weights)
    nodes = np.unique(np.concatenate([np.asarray(ids) for ids, _ in members]))
    local = [(np.searchsorted(nodes, ids), X) for ids, X in members]
    total = np.zeros(len(nodes))
    for k, (rows, _) in enumerate(local):
        total[rows] += 1.0 if weights is None else weights[k]
    return alignment, Patch(nodes, centroid(local, alignment, weights=weights, n_nodes=len(nodes))), total
