"""The public functions: align patches, or the statistics of their overlaps, together or component by component."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import patch_index
from graphquilt.alignment.hierarchy import synchronise_levels, synchronise_parts
from graphquilt.alignment.patch_index import PatchesLike, PatchLike
from graphquilt.alignment.relative import check_statistics, patch_extents
from graphquilt.alignment.statistics import OverlapStatistics, measure_overlaps
from graphquilt.alignment.synchronisation import AlignOptions
from graphquilt.alignment.transforms import Alignment
from graphquilt.arrays import Int64Array
from graphquilt.errors import InputError
from graphquilt.linalg import Motions, components
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
    weights : sequence of p arrays (k_i,), optional
        How much to trust each row of each patch, for instance :func:`graphquilt.coverage_weights`; positive. A shared
        node counts with the product of its two weights.
    executor : concurrent.futures.Executor, optional
        Aligns the clusters of a level; None is a plain loop.
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
    options = AlignOptions(motions=motions, robust=robust, tol=tol, branching=branching)
    return _align(patches, edges, options, weights=weights, executor=executor, progress=progress)[0]


def _align(
    patches: PatchesLike,
    edges: npt.ArrayLike | None,
    options: AlignOptions,
    *,
    weights: Sequence[npt.ArrayLike] | None,
    executor: Executor | None,
    progress: ProgressCallback | None,
    apart: bool = False,
) -> tuple[Alignment, Int64Array]:
    """Measure the overlaps and align; several components are an error unless they are to be aligned ``apart``."""
    numbered = patch_index.keep_open(patch_index.with_numbers(patches))
    index = patch_index.index_patches(numbered, weights)
    p, dim, least = index.n_patches, index.dim, options.motions.points_needed(index.dim)
    if edges is None:  # every pair of patches that shares at least d + 1 nodes
        sets = [*index.nodes]
        pairs = overlapping_pairs(sets, dim + 1)
        patch_index.check_connected(pairs, range(p), node_sets=sets, dim=dim)
    else:
        pairs = np.sort(checked_pairs(edges, p), axis=1)
        if not apart:
            patch_index.check_connected(pairs, range(p))
    component = components(pairs, p)
    if p == 1:
        return Alignment.identity(1, dim), component
    statistics = measure_overlaps(numbered, index, pairs, least=least, progress=progress)
    extents = patch_extents(numbered, dim) if options.motions.rotate else None
    node_sets = index.nodes if options.robust else ()
    del patches, numbered, index  # neither open files nor node lists are needed any more
    check_statistics(statistics, pairs, least=least, names=range(p))
    if component.any():
        solve = partial(synchronise_parts, labels=component, what="components")
    else:
        solve = partial(synchronise_levels, p=p)
    result = solve(statistics, pairs, options=options, executor=executor, progress=progress, extents=extents)
    return replace(result, n_stranded=len(patch_index.stranded_nodes(node_sets, result.left_out))), component


def align_statistics(
    statistics: OverlapStatistics | Sequence[OverlapStatistics],
    edges: npt.ArrayLike,
    *,
    names: Sequence[str] | None = None,
    scale: bool = False,
    rotate: bool = True,
    translate: bool = True,
    robust: bool = False,
    tol: float = 1e-5,
    branching: int | None = None,
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
    names : sequence of p strings, optional
        What error messages call the p patches; by default their numbers.
    scale, rotate, translate, robust, tol, branching, executor, progress
        As for :func:`align`.

    Examples
    --------
    >>> from graphquilt.alignment import overlap_statistics
    >>> nodes, X = np.arange(9), np.random.default_rng(0).normal(size=(9, 2))
    >>> alignment = align_statistics([overlap_statistics((nodes, X), (nodes, 5 - X))], [[0, 1]])
    >>> bool(np.allclose(alignment.apply(1, 5 - X), alignment.apply(0, X)))
    True
    """
    motions = Motions(scale=scale, rotate=rotate, translate=translate)
    options = AlignOptions(motions=motions, robust=robust, tol=tol, branching=branching)
    if not isinstance(statistics, OverlapStatistics):
        statistics = OverlapStatistics.concatenate(statistics)
    p = int(np.max(edges, initial=0)) + 1 if names is None else len(names)
    given = checked_pairs(edges, p)
    if len(given) != len(statistics):
        raise InputError(f"there are {len(given)} edges and statistics of {len(statistics)} overlaps; give one each.")
    called: Sequence[object] = range(p) if names is None else names
    patch_index.check_connected(given, called)
    check_statistics(statistics, given, least=options.motions.points_needed(statistics.dim), names=called)
    if p == 1:
        return Alignment.identity(1, statistics.dim)
    statistics, pairs = statistics.flipped(given[:, 0] > given[:, 1]), np.sort(given, axis=1)
    result = synchronise_levels(statistics, pairs, p, options, executor=executor, progress=progress)
    return replace(result, n_stranded=-1 if len(result.left_out) else 0)


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
        Of all patches; eigenvalues and residual are the worst of all components.
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
    options = AlignOptions(motions=Motions(scale=scale, rotate=rotate, translate=translate), robust=robust)
    whole, part = _align(patches, edges, options, weights=weights, executor=executor, progress=progress, apart=True)
    count = int(part.max()) + 1
    if count > 1 and options.motions.free:
        logger.warning("%d components were aligned alone: where one lies relative to another is arbitrary", count)
    return whole, part
