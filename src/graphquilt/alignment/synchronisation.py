"""Synchronise: from the statistics of overlaps to the scales, rotations and translations of all patches.

Robust alignment reweights the edges inside each step, and repeats all steps with doubt in those with large errors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import minimum_spanning_tree

from graphquilt.alignment.fit import EdgeTable
from graphquilt.alignment.relative import Extents, RelativeTransforms, edge_errors, relative_transforms, turn_rows
from graphquilt.alignment.rotations import Rotations, rotation_misfit, synchronise_rotations
from graphquilt.alignment.statistics import OverlapStatistics
from graphquilt.alignment.transforms import Alignment
from graphquilt.alignment.verdict import is_tied, tie
from graphquilt.arrays import BoolArray, Float64Array, Int64Array
from graphquilt.errors import InputError
from graphquilt.kernels import one_blas_thread
from graphquilt.linalg import Motions, components, unit
from graphquilt.linalg.laplacian import solve_laplacian
from graphquilt.progress import ProgressCallback, report

logger = logging.getLogger(__name__)

JUDGEMENTS = 3  # how often robust alignment decides which edges to doubt
DOUBTED = 1e-4  # the trust in a doubted edge; not 0, because a patch without other edges must stay attached
REWEIGHTINGS = 15
FAR = 6.0  # spreads above the median: of clean errors hardly one in a million is as large
CHANCE = 5.0  # and as many standard deviations of what chance alone does to an error that few numbers determine
RIGID = 1e-6  # an edge has at least this play, which keeps Laplacians well conditioned
PROBES = 64  # random vectors that estimate a trace
NEGLIGIBLE = 1e-3  # an error below this raises no doubt

Solution = TypeVar("Solution")


@dataclass(frozen=True, kw_only=True)
class AlignOptions:
    """The checked options of :func:`graphquilt.align` that every step needs."""

    motions: Motions = Motions()
    robust: bool = False
    tol: float = 1e-5
    branching: int | None = None

    def __post_init__(self) -> None:
        if not self.tol > 0:
            raise InputError(f"tol is the residual to reach and must be positive; it is {self.tol}.")
        if self.branching is not None and not (isinstance(self.branching, int | np.integer) and self.branching >= 2):
            raise InputError(
                "branching is how many patches are aligned at once, a whole number of at least 2; it is "
                f"{self.branching}."
            )


def synchronise(
    statistics: OverlapStatistics,
    edges: Int64Array,
    p: int,
    options: AlignOptions,
    extents: Extents | None = None,
    *,
    progress: ProgressCallback | None = None,
) -> Alignment:
    """Align ``p`` patches from the statistics of ``edges (m, 2)``, i < j, which join all of them."""
    if not (options.motions.free or options.robust):  # all patches lie in one frame: only the errors are of interest
        ones = np.ones(len(edges))
        table = EdgeTable(edges, 0 * ones, statistics.sizes, ones, np.zeros(len(edges), dtype=np.int64))
        still = replace(Alignment.identity(p, statistics.dim), edge_table=table, motions=options.motions)
        errors = edge_errors(statistics, edges, still, absolute=True)
        report(progress, "synchronised", 1, 1)
        return replace(still, edge_table=replace(table, errors=errors))
    free = options.motions
    measured = relative_transforms(statistics, edges, rotate=free.rotate, scale=free.scale, extents=extents)
    trust = edge_trust(statistics, edges, measured.misfits) if options.robust else np.ones(len(edges))
    for judgement in range(1 + JUDGEMENTS):
        alignment = _solve_steps(statistics, edges, measured, p, options=options, trust=trust, progress=progress)
        errors = edge_errors(statistics, edges, alignment, absolute=not options.motions.free)
        if not options.robust or judgement == JUDGEMENTS:
            break
        revised = edge_trust(statistics, edges, errors)
        if np.array_equal(trust, revised):
            break
        trust = revised
    report(progress, "synchronised", 1, 1)
    table = replace(alignment.edge_table, errors=np.minimum(errors, 1))
    result = replace(alignment, edge_table=table, uncertainty=_uncertainty(edges, measured.play, trust, p))
    if is_tied(result):
        logger.warning(tie(result))
    return result


def _uncertainty(edges: Int64Array, play: Float64Array, trust: Float64Array, p: int) -> float:
    """Return how far patches may be misplaced: a root mean square, as a share of how far they extend.

    The play of noise adds up as resistances do, and what an edge does not determine along the tree of the best edges.
    Edges that robust alignment doubts, and patches that hang on them alone, do not count.
    """
    part = components(edges[trust >= 1], p)
    members = np.flatnonzero(part == np.bincount(part).argmax())
    inside = (trust >= 1) & np.isin(edges, members).all(axis=1)
    pairs, (noise, unknown) = np.searchsorted(members, edges[inside]), play[inside].T
    ends = tuple(pairs.T.astype(np.int32))
    tree = minimum_spanning_tree(sp.csr_array((RIGID + unknown, ends), shape=(len(members),) * 2)).tocoo()
    lost = _spread(np.stack(tree.coords, axis=1), 1 / tree.data, len(members))
    lost = min(lost, float(unknown.max(initial=0)) / 2)
    return min(1.0, float(np.sqrt(_spread(pairs, 1 / (RIGID + noise), len(members)) + lost)))


def _spread(edges: Int64Array, weights: Float64Array, p: int) -> float:
    """Return the trace of the pseudoinverse of a Laplacian over p; of a large one an estimate from random signs."""
    probes = np.eye(p) if p <= PROBES else np.random.default_rng(0).choice([-1.0, 1.0], (p, PROBES))
    probes -= probes.mean(axis=0)
    products = probes * solve_laplacian(edges, weights, probes, n=p) if len(edges) else np.zeros((1, 1))
    return float(products.sum()) / min(p, PROBES) / (p if p > PROBES else 1)


def _solve_steps(
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

    Robust options reweight the edges in each step. The errors of the edges are not known yet and are left at 0.
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

        solution, doubt = reweight(
            rotate,
            lambda solution: rotation_misfit(pairs, measured.rotations, solution.rotations),
            (sizes * weights)[order],
            robust=robust,
        )
        weights = weights * doubt[np.argsort(order)]
        rotations, eigenvalues = solution.rotations, solution.eigenvalues
        with one_blas_thread():  # one global rotation leaves the first patch as it is
            rotations = (rotations.reshape(-1, statistics.dim) @ rotations[0].T).reshape(rotations.shape)
        residuals = solution.residual, solution.next_residual
        del solution  # with its eigenvectors
    else:
        rotations = np.tile(np.eye(statistics.dim), (p, 1, 1))
    translations = np.zeros((p, statistics.dim))
    if motions.translate:
        translations = translation_step(statistics, edges, scales, rotations, weights, robust=robust)
    table = EdgeTable(edges, np.zeros(len(edges)), sizes * trust, trust, measured.undetermined)
    return Alignment(scales, rotations, translations, table, eigenvalues, *residuals, robust=robust, motions=motions)


def edge_trust(statistics: OverlapStatistics, edges: Int64Array, errors: Float64Array) -> Float64Array:
    """Return the trust in each of ``edges (m, 2)``: 1, or little where its error is far outside the spread of all.

    A patch is judged too, by the median of the errors of its edges, and with it all its edges.
    """
    freedom = ((statistics.counts - 1) * statistics.dim).astype(np.float64)
    ends, p = edges.ravel(), int(edges.max(initial=0)) + 1
    by_patch = np.lexsort((np.repeat(errors, 2), ends))
    degrees = np.bincount(ends, minlength=p)
    typical = np.repeat(errors, 2)[by_patch][np.cumsum(degrees) - degrees + (degrees - 1) // 2]
    together = np.bincount(ends, weights=np.repeat(freedom, 2), minlength=p).astype(np.float64)
    misfits = far_outside(typical, together)
    return np.where(far_outside(errors, freedom) | misfits[edges].any(axis=1), DOUBTED, 1.0)


def scale_step(
    statistics: OverlapStatistics, edges: Int64Array, trust: Float64Array, p: int, *, robust: bool
) -> tuple[Float64Array, Float64Array]:
    """Return the scales ``(p,)`` that undo those of the patches, and the doubt that robust ones cast on edges, (m,)."""
    i, j = edges.T
    spreads = statistics.spreads
    ratios = np.divide(spreads[:, 0], spreads[:, 1], out=np.ones(len(edges)), where=(spreads > 0).all(axis=1))
    distortion, doubt = reweight(
        lambda weights, _: synchronise_scales(edges, ratios, weights=weights, n=p),
        lambda scales: np.asarray(np.abs(np.log(ratios * scales[j] / scales[i]))),
        statistics.sizes * trust,
        robust=robust,
    )
    # Differs from the paper: r_ij is the ratio of what the patches have, so the estimate must be undone.
    if not distortion.min() > np.finfo(np.float64).tiny:
        raise InputError(
            "the patches differ in scale by a factor beyond 1e300. Divide the coordinates of each patch by their "
            "largest magnitude first."
        )
    return 1 / distortion, doubt


def translation_step(
    statistics: OverlapStatistics,
    edges: Int64Array,
    scales: Float64Array,
    rotations: Float64Array,
    weights: Float64Array,
    *,
    robust: bool,
) -> Float64Array:
    """Return the translations ``(p, d)`` that bring the means of all overlaps together; edges weigh by doubt only."""
    (i, j), size = edges.T, unit(statistics.means)
    means = statistics.means / size
    a, b = turn_rows(means[:, 0], rotations, i), turn_rows(means[:, 1], rotations, j)
    offsets = scales[i, None] * a - scales[j, None] * b
    translations, _ = reweight(
        lambda weights, _: synchronise_translations(edges, offsets, weights=weights, n=len(scales)),
        lambda t: np.asarray(np.linalg.norm(t[j] - t[i] - offsets, axis=1)),
        weights,
        robust=robust,
        floor=1e-6 * float(np.abs(means).max()),
    )
    return np.asarray(size * translations)


def synchronise_scales(edges: npt.ArrayLike, ratios: npt.ArrayLike, *, weights: npt.ArrayLike, n: int) -> Float64Array:
    r"""Return scales ``(n,)`` of mean 1 that minimise :math:`\sum_e w_e (\log r_e - \log s_i + \log s_j)^2`.

    # Differs from the paper: it takes the Perron vector of D^-1 (w r), which agrees without noise and to first order
    # with it, but lets one large ratio outweigh all others and treats r and 1/r differently.
    """
    logs = np.log(np.asarray(ratios, dtype=np.float64))[:, None]
    scales = np.exp(-synchronise_translations(edges, logs, weights=weights, n=n)[:, 0])
    return np.asarray(scales / scales.mean())


def synchronise_translations(
    edges: npt.ArrayLike, offsets: npt.ArrayLike, *, weights: npt.ArrayLike, n: int
) -> Float64Array:
    r"""Return translations ``(n, d)`` of mean 0 with ``t[j] - t[i]`` as close as possible to ``offsets[e]``.

    This is the paper's translation step, :math:`\min_T \|W^{1/2} (B T - C)\|_F`, through its normal equations, whose
    matrix is the Laplacian of the graph.
    """
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    w = np.asarray(weights, dtype=np.float64)
    pull = w[:, None] * np.asarray(offsets, dtype=np.float64)
    rhs = np.zeros((n, pull.shape[1]))
    np.add.at(rhs, pairs[:, 1], pull)
    np.add.at(rhs, pairs[:, 0], -pull)
    return solve_laplacian(pairs, w, rhs, n=n) if len(pairs) else rhs


def reweight(
    solve: Callable[[Float64Array, Solution | None], Solution],
    misfits: Callable[[Solution], Float64Array],
    weights: Float64Array,
    *,
    robust: bool = True,
    floor: float = 1e-6,
) -> tuple[Solution, Float64Array]:
    """Solve with iteratively reweighted edges; return the solution, and by what factor each weight was reduced, (m,).

    ``solve(weights, previous)`` returns a solution and ``misfits`` its misfit on each edge ``(m,)``. Each round divides
    the weight of an edge by its misfit (least absolute deviations), but by no less than the median or ``floor``. Unless
    ``robust``, the first solution is final.
    """
    trust = np.ones_like(weights)
    solution = solve(weights, None)
    for _ in range(REWEIGHTINGS if robust else 0):
        misfit = misfits(solution)
        usual = max(float(np.median(misfit)), floor)
        revised = usual / np.maximum(misfit, usual)
        settled = bool(np.max(np.abs(revised - trust)) < 1e-3)
        trust = revised
        solution = solve(weights * trust, solution)
        if settled:
            break
    return solution, trust


def far_outside(errors: Float64Array, freedom: Float64Array) -> BoolArray:
    """Return which of the relative ``errors (m,)`` are far larger than the spread of all of them explains, (m,).

    An error is far outside if it exceeds the median by several spreads, those of the errors below it, which wrong
    measurements do not enlarge. Few errors may lie close together by chance: a second bound must be exceeded too. The
    logarithm of an error that comes from ``freedom (m,)`` independent numbers has a standard deviation of about
    1 / sqrt(freedom).
    """
    if len(errors) == 0:
        return np.zeros(0, dtype=np.bool_)
    middle = float(np.median(errors))
    spread = 1.4826 * float(np.median(middle - errors[errors <= middle]))
    chance = CHANCE / np.sqrt(np.maximum(freedom, 1))
    by_chance = np.minimum(middle * np.expm1(chance), (1 - middle) * np.maximum(chance, 0.5))
    return np.asarray(errors > middle + np.maximum(np.maximum(FAR * spread, by_chance), NEGLIGIBLE))
