"""The public functions: align patches, or the statistics of their overlaps, together or component by component."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.fit import EdgeTable
from graphquilt.alignment.hierarchy import check_levels, synchronise_levels
from graphquilt.alignment.measuring import measure_overlaps
from graphquilt.alignment.patch_index import (
    PatchesLike,
    PatchIndex,
    PatchLike,
    check_connected,
    check_count,
    index_patches,
    keep_open,
    stranded_nodes,
    with_numbers,
)
from graphquilt.alignment.relative import check_statistics, patch_extents
from graphquilt.alignment.statistics import OverlapStatistics
from graphquilt.alignment.synchronisation import AlignOptions
from graphquilt.alignment.transforms import Alignment, with_worst_fit
from graphquilt.arrays import Int64Array
from graphquilt.errors import InputError
from graphquilt.linalg import Motions, components
from graphquilt.patches import LazySequence
from graphquilt.patches.graph import checked_pairs, overlapping_pairs
from graphquilt.progress import ProgressCallback

logger = logging.getLogger(__name__)


def align(
    patches: PatchesLike,
    edges: npt.ArrayLike | None = None,
    *,
    scale: bool = False,
    rotate: bool = True,
    translate: bool = True,
    robust: bool = False,
    tol: float = 1e-5,
    branching: int | None = None,
    clusters: npt.ArrayLike | None = None,
    weights: Sequence[npt.ArrayLike] | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> Alignment:
    """Find the scale, rotation and translation of every patch that make the overlaps agree.

    The coordinates are read once, to measure the overlaps: this is :func:`overlap_statistics` of every edge, followed
    by :func:`align_statistics`.

    Parameters
    ----------
    patches : sequence of Patch or (nodes (k,), coordinates (k, d)) pairs
        Arrays or memory maps, of any float type; a lazy sequence is read patch by patch. They are never changed. Nodes
        may also have names: pairs with text ids, dicts of names to vectors, vector files, or a dict of any of these;
        see :func:`graphquilt.align_files`.
    edges : int array (m, 2), optional
        Which pairs of patches to compare; by default all that share at least d + 1 nodes.
    scale, rotate, translate : bool
        Which motions to undo: those that the embedding method leaves free. ``rotate`` includes reflections.
    robust : bool
        Doubt edges that contradict the others: those whose error, after an alignment by iterative reweighting, is far
        outside the spread of all errors. They hardly count any more, and ``Alignment.distrusted`` lists them.
    tol : float
        The largest residual norm that an eigenvector of the rotation step may have.
    branching : int, optional
        Align level by level, about this many patches at a time; at least 2. The patch graph is cut into clusters, each
        is aligned on its own, and the clusters are aligned in the same way. A few sweeps over all patch edges polish
        the rotations; scales and translations are those of all edges. Without noise the result is the same, and the
        largest problem is small. Eigenvalues and residual are the worst over all levels; an edge between clusters
        has the undetermined directions of the edge that joins its two clusters.
    clusters : int array (p,), optional
        The cluster of each patch on the first level. A cluster whose patches are not connected is split.
    weights : sequence of p arrays (k_i,), optional
        How much to trust each row of each patch, for instance :func:`graphquilt.coverage_weights`; positive. A shared
        node counts with the product of its two weights.
    executor : concurrent.futures.Executor, optional
        Measures the overlaps and aligns the clusters of a level; None is a plain loop.
    progress : function of a Progress, optional

    Raises
    ------
    InputError, OverlapError, DisconnectedError
        If the patches or edges cannot be aligned; the message names them.
    ConvergenceError
        If the rotation step does not reach ``tol``.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(12, 2))
    >>> turned = 3 * X[4:] @ np.array([[0.0, 1.0], [1.0, 0.0]]) + 7
    >>> alignment = align([(np.arange(8), X[:8]), (np.arange(4, 12), turned)], scale=True)
    >>> round(float(alignment.scales[0] / alignment.scales[1]), 6), round(float(alignment.edge_errors[0]), 6)
    (3.0, 0.0)
    """
    motions = Motions(scale=scale, rotate=rotate, translate=translate)
    options = AlignOptions(motions=motions, robust=robust, tol=tol)
    numbered = keep_open(with_numbers(patches))
    index = index_patches(numbered, weights)
    pairs = _compared_pairs(index, edges)
    p, dim, least = index.n_patches, index.dim, motions.points_needed(index.dim)
    labels = check_levels(branching, clusters, p)
    if p == 1:
        return Alignment.identity(1, dim)
    statistics = measure_overlaps(numbered, index, pairs, least=least, executor=executor, progress=progress)
    extents = patch_extents(numbered, dim) if rotate else None
    node_sets = index.nodes if robust else ()
    del patches, numbered, index  # neither open files nor node lists are needed any more
    check_statistics(statistics, pairs, least=least, names=range(p))
    work = partial(synchronise_levels, branching=branching, clusters=labels, executor=executor, progress=progress)
    result = work(statistics, pairs, p, options, extents=extents)
    return replace(result, n_stranded=len(stranded_nodes(node_sets, result.left_out)))


def align_statistics(
    statistics: OverlapStatistics | Sequence[OverlapStatistics],
    edges: npt.ArrayLike,
    *,
    n_patches: int | None = None,
    names: Sequence[str] | None = None,
    scale: bool = False,
    rotate: bool = True,
    translate: bool = True,
    robust: bool = False,
    tol: float = 1e-5,
    branching: int | None = None,
    clusters: npt.ArrayLike | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> Alignment:
    """Find what :func:`align` finds, from the statistics of the overlaps alone: no coordinates, no node ids.

    Parameters
    ----------
    statistics : OverlapStatistics, or a sequence of them
        Of m overlaps.
    edges : int array (m, 2)
        The patches a and b of each overlap.
    n_patches : int, optional
        By default one more than the largest number in ``edges``.
    names : sequence of p strings, optional
        What error messages call the patches; by default their numbers.
    scale, rotate, translate, robust, tol, branching, clusters, executor, progress
        As for :func:`align`.

    Examples
    --------
    >>> from graphquilt.alignment import overlap_statistics
    >>> nodes, X = np.arange(9), np.random.default_rng(0).normal(size=(9, 2))
    >>> alignment = align_statistics([overlap_statistics((nodes, X), (nodes, 5 - X))], [[0, 1]])
    >>> bool(np.allclose(alignment.apply(1, 5 - X), alignment.apply(0, X)))
    True
    """
    options = AlignOptions(motions=Motions(scale=scale, rotate=rotate, translate=translate), robust=robust, tol=tol)
    if not isinstance(statistics, OverlapStatistics):
        statistics = OverlapStatistics.concatenate(statistics)
    p = _patch_count(edges, n_patches, names)
    given = checked_pairs(edges, p)
    if len(given) != len(statistics):
        raise InputError(
            f"there are {len(given)} edges and the statistics of {len(statistics)} overlaps; give one each."
        )
    called: Sequence[object] = range(p) if names is None else names
    check_connected(given, called)
    check_statistics(statistics, given, least=options.motions.points_needed(statistics.dim), names=called)
    labels = check_levels(branching, clusters, p)
    if p == 1:
        return Alignment.identity(1, statistics.dim)
    statistics, pairs = statistics.flipped(given[:, 0] > given[:, 1]), np.sort(given, axis=1)
    result = synchronise_levels(
        statistics, pairs, p, options, branching=branching, clusters=labels, executor=executor, progress=progress
    )
    return replace(result, n_stranded=-1 if len(result.left_out) else 0)


def _patch_count(edges: npt.ArrayLike, n_patches: int | None, names: Sequence[str] | None) -> int:
    if n_patches is not None and names is not None and n_patches != len(names):
        raise InputError(f"there are {n_patches} patches and {len(names)} names; give one name per patch.")
    if names is not None:
        return len(names)
    if n_patches is not None:
        return n_patches
    return int(np.max(edges, initial=0)) + 1


def _compared_pairs(index: PatchIndex, edges: npt.ArrayLike | None) -> Int64Array:
    """Return the patch edges ``(m, 2)`` with i < j, after checking that they make one connected graph.

    Without ``edges``, every pair of patches that shares at least d + 1 nodes is one.
    """
    names, dim = range(index.n_patches), index.dim
    if edges is None:
        node_sets = [index.nodes[k] for k in names]
        pairs = overlapping_pairs(node_sets, dim + 1)
        check_connected(pairs, names, node_sets=node_sets, dim=dim)
        return pairs
    pairs = np.sort(checked_pairs(edges, len(names)), axis=1)
    check_connected(pairs, names)
    return pairs


def align_components(
    patches: Sequence[PatchLike],
    edges: npt.ArrayLike,
    *,
    scale: bool = False,
    rotate: bool = True,
    translate: bool = True,
    robust: bool = False,
    weights: Sequence[npt.ArrayLike] | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[Alignment, Int64Array]:
    """Align each component of a patch graph alone, for patch graphs made with ``components="each"``.

    The parameters are those of :func:`align`. If a motion is free, nothing relates one component to another: compare
    positions only within a component.

    Returns
    -------
    alignment : Alignment
        Of all patches; ``eigenvalues`` are those of the largest component, ``residual`` is the worst of all.
    component : int array (p,)
        The component of each patch; the log warns if there are several.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(6, 2))
    >>> ids = np.arange(6)
    >>> four = [(ids, X), (ids, X + 1), (ids + 6, X), (ids + 6, 2 - X)]
    >>> alignment, component = align_components(four, [[0, 1], [2, 3]])
    >>> component.tolist(), float(alignment.edge_errors.max().round(6))
    ([0, 0, 1, 1], 0.0)
    """
    if weights is not None:
        check_count(weights, patches)
    pairs = np.sort(checked_pairs(edges, len(patches)), axis=1)
    component = components(pairs, len(patches))
    parts = _split_patches(patches, pairs, component, weights)
    alignments = [
        align(
            part.patches,
            part.edges,
            scale=scale,
            rotate=rotate,
            translate=translate,
            robust=robust,
            weights=part.weights,
            executor=executor,
            progress=progress,
        )
        for part in parts
    ]
    if len(parts) > 1 and (scale or rotate or translate):
        logger.warning("%d components were aligned alone: where one lies relative to another is arbitrary", len(parts))
    largest = max(alignments, key=lambda alignment: alignment.n_patches)
    whole = _join_parts(parts, alignments, pairs)
    return replace(whole, eigenvalues=largest.eigenvalues, next_residual=largest.next_residual), component


class _Part(NamedTuple):
    """Some of the patches, with the edges between them, and where both are in the whole."""

    numbers: Int64Array  # (k,) of the patches
    rows: Int64Array  # (m,) of the edges
    patches: Sequence[PatchLike]
    edges: Int64Array  # (m, 2), between 0 and k - 1
    weights: list[npt.ArrayLike] | None


@dataclass(frozen=True, eq=False)
class _SelectedPatches(LazySequence[PatchLike]):
    """Some of the patches of a lazy sequence, each opened when it is needed."""

    patches: Sequence[PatchLike]
    numbers: Int64Array

    def __len__(self) -> int:
        return len(self.numbers)

    def _item(self, k: int) -> PatchLike:
        return self.patches[int(self.numbers[k])]


def _split_patches(
    patches: Sequence[PatchLike], edges: Int64Array, labels: Int64Array, weights: Sequence[npt.ArrayLike] | None
) -> list[_Part]:
    """Return the patches of each of the ``labels (p,)``, which no edge crosses; lazy sequences stay lazy."""
    parts = []
    for label in range(int(labels.max(initial=0)) + 1):
        numbers, rows = np.flatnonzero(labels == label), np.flatnonzero(labels[edges[:, 0]] == label)
        members: Sequence[PatchLike] = _SelectedPatches(patches, numbers)
        if isinstance(patches, list | tuple):
            members = list(members)
        part_weights = None if weights is None else [weights[k] for k in numbers.tolist()]
        parts.append(_Part(numbers, rows, members, np.searchsorted(numbers, edges[rows]), part_weights))
    return parts


def _join_parts(parts: Sequence[_Part], alignments: Sequence[Alignment], pairs: Int64Array) -> Alignment:
    """Put the alignments of all parts together, each where it is, as one with the edges ``pairs (m, 2)``."""
    order = np.argsort(np.concatenate([part.numbers for part in parts]))
    rows = np.argsort(np.concatenate([part.rows for part in parts]))
    table = EdgeTable.concatenate(alignment.edge_table for alignment in alignments).take(rows)
    scales = np.concatenate([alignment.scales for alignment in alignments])[order]
    rotations = np.concatenate([alignment.rotations for alignment in alignments])[order]
    translations = np.concatenate([alignment.translations for alignment in alignments])[order]
    whole = replace(alignments[0], scales=scales, rotations=rotations, translations=translations)
    stranded = sum(alignment.n_stranded for alignment in alignments)
    return with_worst_fit(replace(whole, edge_table=replace(table, pairs=pairs), n_stranded=stranded), alignments)
