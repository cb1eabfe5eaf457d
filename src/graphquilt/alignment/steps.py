"""The scale and translation steps of an alignment: from statistics of overlaps to one scale and one shift per patch."""

from __future__ import annotations

import numpy as np

from graphquilt.alignment.groups import reweighted, synchronise_scales, synchronise_translations
from graphquilt.alignment.relative import turned
from graphquilt.alignment.statistics import OverlapStatistics
from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.errors import InputError
from graphquilt.linalg import unit

__all__ = ["scale_step", "translation_step"]


def scale_step(
    statistics: OverlapStatistics, edges: Int64Array, trust: Float64Array, p: int, *, robust: bool
) -> tuple[Float64Array, Float64Array]:
    """Return the scales ``(p,)`` that undo those of the patches, and the doubt that robust ones cast on edges, (m,)."""
    i, j = edges.T
    spreads = statistics.spreads
    ratios = np.divide(spreads[:, 0], spreads[:, 1], out=np.ones(len(edges)), where=(spreads > 0).all(axis=1))
    distortion, doubt = reweighted(
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
    """Return the translations ``(p, d)`` that bring the means of all overlaps together, after scales and rotations.

    Every edge weighs the same here, as in the paper, but for the doubt that the steps before cast on it.
    """
    (i, j), size = edges.T, unit(statistics.means)
    means = statistics.means / size
    a, b = turned(means[:, 0], rotations, i), turned(means[:, 1], rotations, j)
    offsets = scales[i, None] * a - scales[j, None] * b
    translations, _ = reweighted(
        lambda weights, _: synchronise_translations(edges, offsets, weights=weights, n=len(scales)),
        lambda t: np.asarray(np.linalg.norm(t[j] - t[i] - offsets, axis=1)),
        weights,
        robust=robust,
        floor=1e-6 * float(np.abs(means).max()),
    )
    return np.asarray(size * translations)
