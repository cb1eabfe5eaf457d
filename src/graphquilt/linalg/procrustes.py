"""Orthogonal matrices nearest to given ones, and how one set of points must be scaled and turned to fit another.

Points are rows. If ``a = s_a * Z @ Q_a + t_a`` and ``b = s_b * Z @ Q_b + t_b`` are two views of the same ``Z``, and A
and B their offsets from their means, then the orthogonal matrix nearest to ``A.T @ B`` is ``Q_a.T @ Q_b`` (Horn 1988).

Polar factors of many small matrices come from matrix products alone, several times as fast as from a decomposition. An
odd polynomial ``p(X) = X (a + b X^T X + c (X^T X)^2)`` maps every singular value s of X to ``p(s)`` and keeps the
singular vectors. The first polynomials are the best uniform approximations of 1 where the singular values lie
(Nakatsukasa and Freund, SIAM Review 58 (2016) 461-493); the last one converges with order three (Bjorck and Bowie, SIAM
J. Numer. Anal. 8 (1971) 358-364).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import BoolArray, Float64Array, FloatArray, IntArray
from graphquilt.errors import InputError

# Each polynomial is the best one of degree 5 on the interval that the one before it leaves; the first interval is
# from 0.01 to 1, and after the last all singular values are within 0.013 of 1.
FIRST = ((8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526), (1.9562, -1.3375, 0.3839))
NEARLY = 0.6  # a matrix with |X^T X - I| below this needs none of them
MAX_STEPS = 9  # a singular value below about 1e-4 of the largest does not come near 1 in so many
ENTRIES = 2**15  # matrices worked on at a time have about as many entries: they stay in the cache of the processor


class Polar(NamedTuple):
    """Nearest orthogonal matrices ``(..., d, d)`` and the singular values ``(..., d)`` they were found through."""

    rotation: Float64Array
    singular_values: Float64Array


def unit(*arrays: npt.ArrayLike) -> float:
    """Return the power of two just above the largest magnitude in ``arrays``, or 1 where all are 0.

    Numbers divided by it lie in [-1, 1] and lose no digit; their squares and products do not overflow.
    """
    largest = max(float(np.max(np.abs(array), initial=0.0)) for array in arrays)
    return float(np.ldexp(1.0, min(int(np.frexp(largest)[1]), 1023))) if largest > 0 else 1.0


def centred(points: npt.ArrayLike, weights: Float64Array | None = None) -> tuple[Float64Array, Float64Array]:
    """Split points ``(k, d)`` into their offsets from the mean ``(k, d)`` and the mean ``(d,)``, in float64.

    With ``weights (k,)`` the mean is weighted and each offset is multiplied by the root of its weight: sums of
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
    """
    U, singular_values, Vt = np.linalg.svd(np.asarray(matrices, dtype=np.float64))
    return Polar(U @ Vt, singular_values)


def nearest_orthogonal(matrices: npt.ArrayLike) -> Float64Array:
    """Return the orthogonal matrix nearest to each of ``matrices (..., d, d)`` in the Frobenius norm."""
    given = np.asarray(matrices, dtype=np.float64)
    stack = given.reshape(-1, *given.shape[-2:])
    rotations, sound = polar_factors(stack)
    if not sound.all():
        rotations[~sound] = polar(stack[~sound]).rotation
    return np.asarray(rotations, dtype=np.float64).reshape(given.shape)


def polar_factors(matrices: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return the orthogonal polar factors of ``matrices (m, d, d)`` and which of them are sound, (m,).

    The factors have the precision of the matrices. One is not sound if a singular value is below about 1e-4 of the
    largest: it must then be found in another way.
    """
    m, d, _ = matrices.shape
    rotations, sound = np.empty_like(matrices), np.empty(m, dtype=np.bool_)
    size = max(1, ENTRIES // d**2)
    with np.errstate(all="ignore"):  # what is not finite is not sound
        for start in range(0, m, size):
            here = slice(start, start + size)
            rotations[here], sound[here] = _iterate(matrices[here])
    return rotations, sound


def _iterate(matrices: FloatArray) -> tuple[FloatArray, BoolArray]:
    close = 4e-5 if matrices.dtype == np.float64 else 4e-3  # so near to I, one more step reaches the precision
    diagonal = np.arange(matrices.shape[1])
    X, E = _bring_near_one(matrices, diagonal)
    result, sound = np.full_like(X, np.nan), np.zeros(len(X), dtype=np.bool_)
    active = np.arange(len(X))
    for _ in range(MAX_STEPS):
        distance = np.sqrt(np.einsum("eij,eij->e", E, E))
        # X (I - E / 2 + 3 E^2 / 8): of order three, and convergent from any singular values in this range.
        step = E @ E
        step *= 0.375
        E *= 0.5
        step -= E
        step[:, diagonal, diagonal] += 1
        X = X @ step
        done = distance <= close
        if done.any():
            result[active[done]], sound[active[done]] = X[done], True
            if done.all():
                break
            active, X = active[~done], X[~done]
        E = _gram(X)
        E[:, diagonal, diagonal] -= 1
    return result, sound


def _bring_near_one(matrices: FloatArray, diagonal: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return matrices with the same polar factors and singular values near 1, and ``E = X^T X - I`` of them."""
    A = _gram(matrices)
    scale = A[:, diagonal, diagonal].mean(axis=1)[:, None, None]
    E = A / scale
    E[:, diagonal, diagonal] -= 1
    if np.einsum("eij,eij->e", E, E).max() <= NEARLY**2:
        return matrices / np.sqrt(scale), E
    # No singular value is larger than the eighth root of the sum of their eighth powers.
    square = A @ A
    scale = np.sqrt(np.sqrt(np.einsum("eij,eij->e", square, square)))[:, None, None]
    A /= scale
    square /= scale**2
    X = matrices / np.sqrt(scale)
    for number, (a, b, c) in enumerate(FIRST):
        if number:
            square = A @ A
        square *= c
        A *= b
        square += A
        square[:, diagonal, diagonal] += a
        X = X @ square
        A = _gram(X)
    A[:, diagonal, diagonal] -= 1
    return X, A


def _gram(X: FloatArray) -> FloatArray:
    """Return ``X^T X``; of a matrix and its own transpose NumPy computes one half only, which is slower here."""
    return np.asarray(X.copy().transpose(0, 2, 1) @ X)


@dataclass(frozen=True, kw_only=True)
class Motions:
    """Which motions of an embedding carry no meaning: alignment has to undo them.

    ``scale`` multiplies all coordinates by one positive number, ``rotate`` is the orthogonal group O(d) with its
    reflections, and ``translate`` shifts all points by one vector.

    Examples
    --------
    >>> Motions(scale=True)
    Motions(scale=True, rotate=True, translate=True)
    >>> Motions(rotate=False) | Motions(translate=False)
    Motions(scale=False, rotate=True, translate=True)
    """

    scale: bool = False
    rotate: bool = True
    translate: bool = True

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, bool):
                raise InputError(f"{name} of Motions is True or False, not {value!r}.")

    def __or__(self, other: Motions) -> Motions:
        """Return the motions that are free in either of two."""
        return Motions(**{name: value or getattr(other, name) for name, value in vars(self).items()})

    @property
    def free(self) -> bool:
        """Whether any motion is free; otherwise all embeddings lie in one frame and there is nothing to align."""
        return self.scale or self.rotate or self.translate

    def points_needed(self, dim: int) -> int:
        """Return how many shared points two patches need in ``dim`` dimensions."""
        return dim + 1 if self.rotate else 2 if self.scale else 1
