"""From the statistics of overlaps to relative transforms, and from transforms to the error left on each overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.fit import Fit
from graphquilt.alignment.patch_index import PatchLike, coordinates
from graphquilt.alignment.statistics import OverlapStatistics, empty_products, slack
from graphquilt.arrays import Float64Array, FloatArray, Int64Array, pieces
from graphquilt.errors import InputError, OverlapError
from graphquilt.kernels import map_threads, one_blas_thread
from graphquilt.linalg import centred, polar, unit
from graphquilt.linalg.procrustes import polar_factors
from graphquilt.patches.graph import check_overlap

CHUNK = 2**16  # entries of d × d matrices worked on at a time: they stay in the cache of the processor
COLLAPSED = 1e-5  # singular values below this share of the largest leave a direction undetermined
SAMPLE = 2**12  # rows of a patch that are enough to see how far it extends
DOUBT, HOPELESS = 0.05, 1.0  # how often noise may be larger than its bound; noise of which nothing is known
UNRELATED, OPPOSITE = 2.0, 4.0  # mean square distances of unrelated and of opposite points, as shares of their extent


class RelativeTransforms(NamedTuple):
    """How patch i of each of m edges (i, j) must be turned to fit patch j (Horn 1988)."""

    order: Int64Array  # (m,) of the edges by their second patch, as the rotation solver expects them
    rotations: FloatArray  # (m, d, d) R_ij of the edges in this order
    misfits: Float64Array  # (m,) the error left on each overlap when the two patches are fitted to each other alone
    undetermined: Int64Array  # (m,) how many directions the overlap says nothing about
    play: Float64Array  # (m, 2) mean squares by which noise lets the patches move, and that nothing determines


class Extents(NamedTuple):
    """How far the points of each patch extend, in units that keep squares from overflowing."""

    units: Float64Array  # (p,)
    means: Float64Array  # (p, d)
    covariances: FloatArray  # (p, d, d)

    def take(self, patches: Int64Array) -> Extents:
        """Return those of the ``patches (k,)`` named."""
        return Extents(self.units[patches], self.means[patches], self.covariances[patches])


def patch_extents(patches: Sequence[PatchLike], dim: int) -> Extents:
    """Return the extents of all patches, from at most about ``SAMPLE`` rows of each."""
    p = len(patches)
    extents = Extents(np.empty(p), np.empty((p, dim)), empty_products(p, dim))
    with one_blas_thread():
        for k in range(p):
            X = coordinates(patches[k])
            X = np.asarray(X[:: len(X) // SAMPLE + 1], dtype=np.float64)
            extents.units[k] = unit(X)
            offsets, extents.means[k] = centred(X / extents.units[k])
            extents.covariances[k] = offsets.T @ offsets / len(X)
    return extents


def check_statistics(statistics: OverlapStatistics, edges: Int64Array, *, least: int, names: Sequence[object]) -> None:
    """Refuse overlaps of fewer than ``least`` nodes and, unless ``least`` is 1, overlaps that are a single point."""
    few = np.flatnonzero(statistics.counts < least)
    for e in few[:1].tolist():
        i, j = (names[k] for k in edges[e].tolist())
        check_overlap(i, j, int(statistics.counts[e]), least=least, dim=statistics.dim)
    flat = np.argwhere(statistics.spreads == 0) if least > 1 else np.empty((0, 2), dtype=np.int64)
    for e, side in flat[:1].tolist():
        i, j = (names[k] for k in edges[e].tolist())
        k = (i, j)[side]
        raise OverlapError(
            f"all {statistics.counts[e]} nodes that patches {i} and {j} share lie at one point in patch {k}, which "
            f"does not determine its rotation or scale. Embed patch {k} again or drop this edge."
        )
    with np.errstate(all="ignore"):
        ratios = statistics.spreads[:, 0] / statistics.spreads[:, 1]
    both = (statistics.spreads > 0).all(axis=1)
    for e in np.flatnonzero(both & ~((ratios > 0) & np.isfinite(ratios)))[:1].tolist():
        i, j = (names[k] for k in edges[e].tolist())
        raise OverlapError(
            f"patches {i} and {j} differ in scale by a factor beyond 1e308 on the {statistics.counts[e]} nodes that "
            "they share. Divide the coordinates of the larger one by its size."
        )


def relative_transforms(
    statistics: OverlapStatistics,
    edges: Int64Array,
    *,
    rotate: bool = True,
    scale: bool = True,
    extents: Extents | None = None,
) -> RelativeTransforms:
    """Return the relative rotation of the overlap of each of ``edges (m, 2)``; without ``rotate``, none."""
    m, d = len(statistics), statistics.dim
    if not rotate:
        agreements = np.einsum("eii->e", statistics.products)
        none = np.empty((0, d, d)), np.sqrt(np.maximum(1 - agreements, 0)), np.zeros(m, dtype=np.int64)
        return RelativeTransforms(np.arange(m), *none, play=np.zeros((m, 2)))
    order = np.lexsort((edges[:, 0], edges[:, 1]))
    rotations, agreements = np.empty((m, d, d), dtype=statistics.products.dtype), np.empty(m)
    undetermined, play = np.zeros(m, dtype=np.int64), np.zeros((m, 2))
    size = CHUNK // d**2

    def transform(here: slice) -> None:
        rows = order[here]
        products = statistics.products[rows]
        factors, sound = polar_factors(products)
        if not sound.all():  # among small singular values are those that are 0 in truth
            factors[~sound], singular_values = polar(products[~sound])
            flat = singular_values <= COLLAPSED * singular_values[:, :1]
            undetermined[rows[~sound]] = flat.sum(axis=1)
        rotations[here] = factors
        # The singular values sum to the trace of the symmetric polar factor.
        agreements[rows] = np.einsum("eij,eij->e", factors, products)

    def measure_play(here: slice) -> None:
        rows = order[here]
        play[rows] = _play(statistics, edges, rows, rotations[here], noise=noise[rows], extents=extents)

    map_threads(transform, pieces(m, size))  # the parts are the same for any number of threads
    noise = _noise(statistics, agreements, scale=scale)
    map_threads(measure_play, pieces(m, size))
    # With both patches scaled to unit length, |a R - b|^2 is 2 - 2 times the sum of the singular values (Horn 1988).
    beyond = np.flatnonzero(agreements > 1 + slack(statistics.products))
    if len(beyond):
        raise InputError(
            f"the numbers of {len(beyond)} overlaps contradict each other, the first is number {beyond[0]}: the "
            f"singular values of its product sum to {agreements[beyond[0]]:.6g}, and its spreads allow at most 1 "
            "(Cauchy-Schwarz). Measure this overlap again."
        )
    return RelativeTransforms(order, rotations, np.sqrt(np.maximum(1 - agreements, 0)), undetermined, play)


def _noise(statistics: OverlapStatistics, agreements: Float64Array, *, scale: bool) -> Float64Array:
    """Bound the variance of the differences of coordinates on each overlap, over the product of its spreads, (m,).

    The bound allows for chance, for each overlap alone or, unless scales are free, for all together.
    """
    from scipy.special import gammaincinv

    def least_square(freedom: npt.ArrayLike) -> Float64Array:  # a quantile of chi squared
        return np.asarray(2 * gammaincinv(np.asarray(freedom) / 2, DOUBT))

    d, (a, b) = statistics.dim, statistics.spreads.T
    freedom = (statistics.counts - 1) * d - d * (d - 1) // 2 - 1  # of two points in one dimension nothing is known
    left = np.maximum(1 - agreements, np.finfo(statistics.products.dtype).eps) * 2
    with np.errstate(all="ignore"):
        if scale:
            noise = left / least_square(freedom)
        else:
            left += np.maximum(a / b + b / a - 2, 0)
            together = (left * a * b).sum() / least_square(freedom.sum()) / (a * b)
            noise = np.clip(together, left / freedom, left / least_square(freedom))
    return np.where((freedom > 0) & np.isfinite(noise), np.minimum(noise, HOPELESS), HOPELESS)


def _play(
    statistics: OverlapStatistics,
    edges: Int64Array,
    rows: Int64Array,
    factors: FloatArray,
    *,
    noise: Float64Array,
    extents: Extents | None,
) -> Float64Array:
    """Return by how much noise lets the patches of the edges ``rows (r,)`` move, and what is not determined, (r, 2).

    Both are mean squares, as shares of how far the patches extend. With singular values s, noise of variance v turns
    singular direction k towards l by an angle of variance v / (s_k + s_l). A singular value that noise alone could give
    determines nothing, not even a sign. A direction counts as much as the patches extend in it.
    """
    n, d = statistics.counts[rows], statistics.dim
    s, V = np.linalg.eigh(factors.transpose(0, 2, 1) @ statistics.products[rows])
    resolved = s > 1e4 * np.finfo(s.dtype).eps * s[:, -1:]  # the rest is rounding errors
    chance = (noise * np.sqrt(n))[:, None] * (np.sqrt(np.arange(1, d + 1)) + 0.5)  # s ascends; k directions of noise
    firm = np.where(resolved, np.maximum(s - chance, 0), 0)
    angles = noise[:, None, None] / np.maximum(firm[:, :, None] + firm[:, None, :], np.finfo(s.dtype).tiny)
    angles[:, range(d), range(d)] = 0
    moved = np.where(firm > 0, np.minimum(angles.sum(axis=2), UNRELATED), 0)
    extent = s / n[:, None] if extents is None else np.zeros_like(s)
    for side, directions in enumerate((factors @ V, V)):
        if extents is None:
            break
        k, (units, means, covariances) = edges[rows, side], extents
        lever = means[k] - statistics.means[rows, side] / units[k, None]
        squares = np.einsum("eik,eij,ejk->ek", directions, covariances[k], directions, optimize=True)
        squares += np.einsum("eik,ei->ek", directions, lever) ** 2
        ratio = np.minimum(units[k] / statistics.spreads[rows, side], 1e100)  # whose square is still finite
        extent += ratio[:, None] ** 2 * squares / 2
    signal = np.maximum(extent - noise[:, None] / 2, 0)
    parts = (signal * moved).sum(axis=1) + d * noise / n, OPPOSITE * (signal * (firm == 0)).sum(axis=1)
    both: Float64Array = np.stack(parts, axis=1) / np.maximum(extent.sum(axis=1), np.finfo(s.dtype).tiny)[:, None]
    return both


def edge_errors(
    statistics: OverlapStatistics, edges: Int64Array, transforms: Fit, *, absolute: bool = False
) -> Float64Array:
    r"""Return :math:`\|a - b\| / \sqrt{\|a - \bar a\|^2 + \|b - \bar b\|^2}` on each overlap after alignment, (m,).

    0 is a perfect fit, 1 is no better than unrelated. With the transforms (s, R, t), the spreads A and B, and the
    product C, :math:`\|a - b\|^2` is :math:`(s_i A - s_j B)^2 + 2 s_i A s_j B\,(1 - \mathrm{tr}\,R_i^T C R_j)` and the
    size times the squared distance of the means. In double precision an error below 1e-7 cannot be told from 0.

    With ``absolute`` the distance is divided by :math:`\sqrt{\|a\|^2 + \|b\|^2}`: where no motion is free, the origin
    has a meaning, and the points of a small overlap may lie close together.
    """
    m, (i, j), size = len(edges), edges.T, CHUNK // statistics.dim**2
    agreement, between, length = np.empty(m), np.empty((m, statistics.dim)), np.zeros(m)
    scales, rotations, translations = transforms.scales, transforms.rotations, transforms.translations
    with one_blas_thread():
        for here in pieces(m, size):
            R_i, R_j = rotations[i[here]], rotations[j[here]]
            agreement[here] = np.einsum("eij,eij->e", statistics.products[here] @ R_j, R_i)
            a = scales[i[here], None] * turn_rows(statistics.means[here, 0], rotations, i[here])
            b = scales[j[here], None] * turn_rows(statistics.means[here, 1], rotations, j[here])
            between[here] = a - b
            if absolute:
                norms = np.hypot(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1))
                length[here] = np.sqrt(statistics.sizes[here]) * norms
    between += translations[i] - translations[j]
    distance = np.abs(between).max(axis=1, initial=0.0)
    A, B = scales[i] * statistics.spreads[:, 0], scales[j] * statistics.spreads[:, 1]
    unit = np.maximum(np.maximum(A, B), length)
    # Where all points of an overlap coincide in both patches, they fit or they do not.
    errors = (distance > 0).astype(np.float64)
    wide = unit > 0
    A, B, unit, length = A[wide] / unit[wide], B[wide] / unit[wide], unit[wide], length[wide]
    shifts = np.linalg.norm(between[wide] / unit[:, None], axis=1)
    squares = (A - B) ** 2 + 2 * A * B * np.maximum(1 - agreement[wide], 0)
    errors[wide] = np.hypot(np.sqrt(squares), np.sqrt(statistics.sizes[wide]) * shifts)
    errors[wide] /= np.hypot(np.hypot(A, B), length / unit)
    return np.asarray(errors)


def turn_rows(points: Float64Array, rotations: Float64Array, numbers: Int64Array) -> Float64Array:
    """Multiply each of ``points (m, d)`` by that of the ``rotations (p, d, d)`` whose number is given, (m, d)."""
    result = np.empty_like(points)
    for here in pieces(len(points), CHUNK // points.shape[1] ** 2):
        result[here] = np.matmul(points[here, None], rotations[numbers[here]])[:, 0]
    return result
