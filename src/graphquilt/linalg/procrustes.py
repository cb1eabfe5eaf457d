"""Find how one of two sets of corresponding points must be scaled and turned to fit the other (Horn 1988).

Points are rows. If ``a = s_a * Z @ Q_a + t_a`` and ``b = s_b * Z @ Q_b + t_b`` are two views of the same ``Z``, then
``relative_scale(a, b)`` is ``s_a / s_b`` and ``relative_rotation(a, b)`` is ``Q_a.T @ Q_b``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import Float64Array
from graphquilt.linalg.orthogonal import polar_factors

__all__ = ["Polar", "centred", "nearest_orthogonal", "polar", "relative_rotation", "relative_scale", "unit"]


class Polar(NamedTuple):
    """Nearest orthogonal matrices ``(..., d, d)`` and the singular values ``(..., d)`` they were found through."""

    rotation: Float64Array
    singular_values: Float64Array


def unit(*arrays: npt.ArrayLike) -> float:
    """Return the power of two just above the largest magnitude in ``arrays``, or 1 where all are 0.

    Numbers divided by it lie in [-1, 1], so that their squares and products do not overflow, and lose no digit.

    Examples
    --------
    >>> unit([3e200, -5e200]) / 2.0**667, unit([0.0])
    (1.0, 1.0)
    """
    largest = max(float(np.max(np.abs(array), initial=0.0)) for array in arrays)
    return float(np.ldexp(1.0, min(int(np.frexp(largest)[1]), 1023))) if largest > 0 else 1.0


def centred(points: npt.ArrayLike, weights: Float64Array | None = None) -> tuple[Float64Array, Float64Array]:
    """Split points ``(k, d)`` into their offsets from the mean ``(k, d)`` and the mean ``(d,)``, in float64.

    With ``weights (k,)`` the mean is weighted and each offset is multiplied by the root of its weight, so that sums of
    squares and of products of offsets are weighted too.
    """
    values = np.asarray(points, dtype=np.float64)
    if weights is None:
        mean = values.mean(axis=0)
        return values - mean, mean
    mean = weights @ values / weights.sum()
    return np.sqrt(weights)[:, None] * (values - mean), mean


def polar(matrices: npt.ArrayLike) -> Polar:
    """Project matrices ``(..., d, d)`` onto O(d): ``U @ V.T`` of the singular value decomposition ``U S V.T``.

    Where a singular value is zero the projection is one of many, so the singular values are returned too.

    Examples
    --------
    >>> import numpy as np
    >>> polar([[0.0, -2.0], [1.0, 0.0]]).rotation.round().tolist()
    [[0.0, -1.0], [1.0, 0.0]]
    """
    U, singular_values, Vt = np.linalg.svd(np.asarray(matrices, dtype=np.float64))
    return Polar(U @ Vt, singular_values)


def nearest_orthogonal(matrices: npt.ArrayLike) -> Float64Array:
    """Return the orthogonal matrix nearest to each of ``matrices (..., d, d)`` in the Frobenius norm.

    Examples
    --------
    >>> nearest_orthogonal([[-3.0]]).tolist()
    [[-1.0]]
    """
    given = np.asarray(matrices, dtype=np.float64)
    stack = given.reshape(-1, *given.shape[-2:])
    rotations, sound = polar_factors(stack)
    if not sound.all():
        rotations[~sound] = polar(stack[~sound]).rotation
    return np.asarray(rotations, dtype=np.float64).reshape(given.shape)


def relative_scale(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    r"""Return the spread of ``a (k, d)`` over that of ``b (k, d)``: :math:`\|a - \bar a\|_F / \|b - \bar b\|_F`.

    # Differs from the paper: its formula takes the root of a sum of vectors; norms are meant (Horn 1988).

    Examples
    --------
    >>> relative_scale([[0.0], [8.0]], [[1.0], [3.0]])
    4.0
    """
    (x, _), (y, _) = centred(a), centred(b)
    of_a, of_b = unit(x), unit(y)
    return float(np.linalg.norm(x / of_a) / np.linalg.norm(y / of_b) * (of_a / of_b))


def relative_rotation(a: npt.ArrayLike, b: npt.ArrayLike) -> Float64Array:
    r"""Return the orthogonal ``R (d, d)`` that turns ``a (k, d)`` onto ``b (k, d)``.

    :math:`(a - \bar a) R \approx b - \bar b`. It is the polar factor of :math:`(a - \bar a)^T (b - \bar b)`, the
    relative transformation of the paper's rotation step. A reflection is allowed.

    Examples
    --------
    >>> points, turned = [[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], [[5.0, 5.0], [5.0, 6.0], [3.0, 5.0]]
    >>> (relative_rotation(points, turned).round(9) + 0.0).tolist()
    [[0.0, 1.0], [-1.0, 0.0]]
    """
    (x, _), (y, _) = centred(a), centred(b)
    return nearest_orthogonal((x / unit(x)).T @ (y / unit(y)))
