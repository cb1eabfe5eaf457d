"""Find the transforms that make patches with coordinates of their own agree."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.edge_table import EdgeTable
from graphquilt.alignment.groups import far_outside, reweighted
from graphquilt.alignment.measuring import measure_overlaps, overlap_statistics
from graphquilt.alignment.named import PatchesLike, with_numbers
from graphquilt.alignment.opened import kept_open
from graphquilt.alignment.overlap import PatchIndex, PatchLike, index_patches
from graphquilt.alignment.patch_edges import check_connected, checked_pairs, overlapping_pairs
from graphquilt.alignment.relative import (
    COLLAPSED,
    RelativeTransforms,
    check_statistics,
    edge_errors,
    relative_transforms,
)
from graphquilt.alignment.rotations import Rotations, rotation_misfit, synchronise_rotations
from graphquilt.alignment.statistics import OverlapStatistics
from graphquilt.alignment.steps import scale_step, translation_step
from graphquilt.alignment.transforms import Alignment
from graphquilt.alignment.verdict import is_tied, tie
from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.errors import InputError
from graphquilt.kernels import one_blas_thread
from graphquilt.linalg import Motions
from graphquilt.progress import ProgressCallback, report

__all__ = [
    "AlignOptions",
    "align",
    "align_statistics",
    "checked_statistics",
    "compared_pairs",
    "judged",
    "undetermined_directions",
]

logger = logging.getLogger(__name__)

JUDGEMENTS = 3  # how often robust alignment decides which edges to doubt
DOUBTED = 1e-4  # the trust in an edge that is doubted; not 0, so that a patch without other edges stays attached


@dataclass(frozen=True, kw_only=True)
class AlignOptions:
    """How to align: the same value serves :func:`align`, :func:`align_hierarchical` and :func:`align_components`.

    Attributes
    ----------
    motions : Motions
        Which motions to undo: those that the embedding method leaves free.
    robust : bool
        Doubt edges that contradict the others: those whose error, after an alignment by iterative reweighting, is far
        outside the spread of all errors. They hardly count any more, and ``Alignment.distrusted`` names them.
    tol : float
        The largest residual norm that an eigenvector of the rotation step may have.
    """

    motions: Motions = Motions()
    robust: bool = False
    tol: float = 1e-5

    def __post_init__(self) -> None:
        if not isinstance(self.motions, Motions):
            raise InputError(f"motions is a Motions, such as Motions(scale=True), not {self.motions!r}.")
        if not self.tol > 0:
            raise InputError(f"tol is the residual to reach and must be positive; it is {self.tol}.")


def align(
    patches: Sequence[PatchLike] | PatchesLike,
    edges: npt.ArrayLike | None = None,
    *,
    options: AlignOptions = AlignOptions(),
    weights: Sequence[npt.ArrayLike] | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> Alignment:
    """Find the scale, rotation and translation of every patch that make the overlaps agree.

    The coordinates are looked at once, to measure the overlaps: this is :func:`overlap_statistics` of every edge,
    followed by :func:`align_statistics`.

    Parameters
    ----------
    patches : sequence of Patch or (nodes (k,), coordinates (k, d)) pairs
        Arrays or memory maps, of any float type; a lazy sequence is read patch by patch. They are never changed. Nodes
        may also have names: pairs with text ids, dicts of names to vectors, files of vectors, or a dict of any of
        these; see :func:`graphquilt.stitch_files`.
    edges : int array (m, 2), optional
        Which pairs of patches to compare. Without it, all that share at least d + 1 nodes.
    options : AlignOptions
    weights : sequence of p arrays (k_i,), optional
        How much each row of each patch is to be trusted, for instance :func:`graphquilt.coverage_weights`; positive. A
        shared node counts with the product of its two weights.
    executor : concurrent.futures.Executor, optional
        Compares the overlaps; None is a plain loop.
    progress : function of a Progress, optional

    Raises
    ------
    InputError, OverlapError, DisconnectedError
        If the patches or edges cannot be aligned; the message names them.
    ConvergenceError
        If the rotation step does not reach ``options.tol``.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(12, 2))
    >>> turned = 3 * X[4:] @ np.array([[0.0, 1.0], [1.0, 0.0]]) + 7
    >>> options = AlignOptions(motions=Motions(scale=True))
    >>> alignment = align([(np.arange(8), X[:8]), (np.arange(4, 12), turned)], options=options)
    >>> round(float(alignment.scales[0] / alignment.scales[1]), 6), round(float(alignment.edge_errors[0]), 6)
    (3.0, 0.0)
    """
    patches = kept_open(with_numbers(patches))
    index = index_patches(patches, weights)
    pairs = compared_pairs(index, edges)
    p = index.n_patches
    if p == 1:
        return Alignment.identity(1, index.dim)
    least = options.motions.points_needed(index.dim)
    statistics = measure_overlaps(patches, index, pairs, least=least, executor=executor, progress=progress)
    del patches, index  # neither open files nor node lists are needed any more
    return align_statistics(statistics, pairs, n_patches=p, options=options, progress=progress)


def align_statistics(
    statistics: OverlapStatistics,
    edges: npt.ArrayLike,
    *,
    n_patches: int | None = None,
    names: Sequence[str] | None = None,
    options: AlignOptions = AlignOptions(),
    progress: ProgressCallback | None = None,
) -> Alignment:
    """Find what :func:`align` finds, from the statistics of the overlaps alone: no coordinates, no node ids.

    Parameters
    ----------
    statistics : OverlapStatistics
        Of m overlaps.
    edges : int array (m, 2)
        Which patches a and b each overlap is of.
    n_patches : int, optional
        Without it, one more than the largest number in ``edges``.
    names : sequence of p strings, optional
        What error messages call the patches; without it, their numbers.
    options, progress
        As for :func:`align`.

    Examples
    --------
    >>> import numpy as np
    >>> nodes, X = np.arange(9), np.random.default_rng(0).normal(size=(9, 2))
    >>> alignment = align_statistics(overlap_statistics((nodes, X), (nodes, 5 - X)), [[0, 1]])
    >>> bool(np.allclose(alignment.apply(1, 5 - X), alignment.apply(0, X)))
    True
    """
    statistics, given, p = checked_statistics(statistics, edges, n_patches=n_patches, names=names, options=options)
    if p == 1:
        return Alignment.identity(1, statistics.dim)
    measured = relative_transforms(statistics, given, rotate=options.motions.rotate)
    trust = judged(statistics, given, measured.misfits) if options.robust else np.ones(len(given))
    for judgement in range(1 + JUDGEMENTS):
        synchronise = partial(_synchronise, options=options, trust=trust, progress=progress)
        alignment = synchronise(statistics, given, measured, p)
        errors = edge_errors(statistics, given, alignment, absolute=not options.motions.free)
        if not options.robust or judgement == JUDGEMENTS:
            break
        revised = judged(statistics, given, errors)
        if np.array_equal(trust, revised):
            break
        trust = revised
    report(progress, "synchronised", 1, 1)
    result = replace(alignment, edge_table=replace(alignment.edge_table, errors=errors))
    if is_tied(result):
        logger.warning(tie(result))
    return result


def checked_statistics(
    statistics: OverlapStatistics,
    edges: npt.ArrayLike,
    *,
    n_patches: int | None,
    names: Sequence[str] | None,
    options: AlignOptions,
) -> tuple[OverlapStatistics, Int64Array, int]:
    """Return the statistics with their ``edges (m, 2)``, i < j, and the number of patches, if they can be aligned."""
    p = _patch_count(edges, n_patches, names)
    given = checked_pairs(edges, p)
    if len(given) != len(statistics):
        raise InputError(
            f"there are {len(given)} edges and the statistics of {len(statistics)} overlaps; give one each."
        )
    called: Sequence[object] = range(p) if names is None else names
    check_connected(given, called)
    check_statistics(statistics, given, least=options.motions.points_needed(statistics.dim), names=called)
    return statistics.flipped(given[:, 0] > given[:, 1]), np.sort(given, axis=1), p


def _patch_count(edges: npt.ArrayLike, n_patches: int | None, names: Sequence[str] | None) -> int:
    if n_patches is not None and names is not None and n_patches != len(names):
        raise InputError(f"there are {n_patches} patches and {len(names)} names; give one name per patch.")
    if names is not None:
        return len(names)
    if n_patches is not None:
        return n_patches
    return int(np.max(edges, initial=0)) + 1


def compared_pairs(index: PatchIndex, edges: npt.ArrayLike | None) -> Int64Array:
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


def judged(statistics: OverlapStatistics, edges: Int64Array, errors: Float64Array) -> Float64Array:
    """Return the trust in each of ``edges (m, 2)``: 1, or little where its error is far outside the spread of all.

    A patch is judged too, by the median of the errors of its edges, and with it all its edges. This finds a patch that
    fits nowhere also where its overlaps are too small to be judged one by one.
    """
    freedom = ((statistics.counts - 1) * statistics.dim).astype(np.float64)
    ends, p = edges.ravel(), int(edges.max(initial=0)) + 1
    by_patch = np.lexsort((np.repeat(errors, 2), ends))
    degrees = np.bincount(ends, minlength=p)
    typical = np.repeat(errors, 2)[by_patch][np.cumsum(degrees) - degrees + (degrees - 1) // 2]
    together = np.bincount(ends, weights=np.repeat(freedom, 2), minlength=p).astype(np.float64)
    misfits = far_outside(typical, together)
    return np.where(far_outside(errors, freedom) | misfits[edges].any(axis=1), DOUBTED, 1.0)


def _synchronise(
    statistics: OverlapStatistics,
    edges: Int64Array,
    measured: RelativeTransforms,
    p: int,
    *,
    options: AlignOptions,
    trust: Float64Array,
    progress: ProgressCallback | None,
) -> Alignment:
    """Find scales, then rotations, then translations, with the ``trust (m,)`` in each of ``edges (m, 2)``.

    Robust options reweight the edges in each step, and an edge that fits badly in one step weighs less in the next. The
    errors of the edges are not known yet and are left at 0.
    """
    motions, robust, sizes = options.motions, options.robust, statistics.sizes
    weights, residuals, scales = trust, (0.0, 0.0), np.ones(p)
    if motions.scale:
        scales, doubt = scale_step(statistics, edges, trust, p, robust=robust)
        weights = weights * doubt
    eigenvalues = np.r_[np.ones(statistics.dim), -1.0]
    if motions.rotate:
        order = measured.order
        pairs = edges[order]

        def rotate(weights: Float64Array, previous: Rotations | None) -> Rotations:
            start = None if previous is None else previous.vectors
            solve = partial(synchronise_rotations, tol=options.tol, start=start, progress=progress)
            return solve(pairs, measured.rotations, weights=weights, n=p)

        solution, doubt = reweighted(
            rotate,
            lambda solution: rotation_misfit(pairs, measured.rotations, solution.rotations),
            (sizes * weights)[order],
            robust=robust,
        )
        weights = weights * doubt[np.argsort(order)]
        rotations, eigenvalues = _turned_back(solution.rotations), solution.eigenvalues
        residuals = solution.residual, solution.next_residual
        del solution  # with its eigenvectors
    else:
        rotations = np.tile(np.eye(statistics.dim), (p, 1, 1))
    translations = np.zeros((p, statistics.dim))
    if motions.translate:
        translations = translation_step(statistics, edges, scales, rotations, weights, robust=robust)
    table = EdgeTable(edges, np.zeros(len(edges)), sizes * trust, trust, measured.undetermined)
    return Alignment(scales, rotations, translations, table, eigenvalues, *residuals, robust=robust)


def _turned_back(rotations: Float64Array) -> Float64Array:
    """Return ``rotations (p, d, d)`` after the one global rotation that leaves the first patch as it is."""
    p, d, _ = rotations.shape
    with one_blas_thread():
        return np.asarray(rotations.reshape(p * d, d) @ rotations[0].T).reshape(p, d, d)


def undetermined_directions(patches: Sequence[PatchLike], alignment: Alignment, edge: tuple[int, int]) -> Float64Array:
    """Return orthonormal directions (r, d) of the global embedding that the overlap of one edge says nothing about.

    Examples
    --------
    >>> import numpy as np
    >>> flat = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [4.0, 0.0]])
    >>> patches = [(np.arange(4), flat), (np.arange(4), flat)]
    >>> abs(undetermined_directions(patches, align(patches), (0, 1))).round(6).tolist()
    [[0.0, 1.0]]
    """
    i, j = edge
    product = overlap_statistics(patches[i], patches[j]).products[0]
    with one_blas_thread():
        U, singular_values, _ = np.linalg.svd(alignment.rotations[i].T @ product @ alignment.rotations[j])
    return np.asarray(U[:, singular_values <= COLLAPSED * singular_values[0]].T)
