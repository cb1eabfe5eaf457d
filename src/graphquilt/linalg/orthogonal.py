"""Polar factors of many small matrices at once, by matrix products alone.

An odd polynomial ``p(X) = X (a + b X^T X + c (X^T X)^2)`` maps every singular value s of X to ``p(s)`` and keeps the
singular vectors, so that polynomials that drive all singular values to 1 lead to the polar factor. The first are the
best uniform approximations of 1 on the interval in which the singular values lie; the last one converges with order
three. For small matrices this is several times as fast as an eigenvalue or singular value decomposition, because
matrix products are what processors do best.

References
----------
A. Bjorck and C. Bowie, An iterative algorithm for computing the best estimate of an orthogonal matrix. SIAM J. Numer.
Anal. 8 (1971) 358-364.
Y. Nakatsukasa and R. W. Freund, Computing fundamental matrix decompositions accurately via the matrix sign function in
two iterations: the power of Zolotarev's functions. SIAM Review 58 (2016) 461-493.
"""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import BoolArray, FloatArray, IntArray

__all__ = ["polar_factors"]

# Each polynomial is the best one of degree 5 on the interval that the one before it leaves; the first interval is
# from 0.01 to 1, and after the last all singular values are within 0.013 of 1.
FIRST = (
    (8.0934, -23.6204, 17.4462),
    (3.6366, -2.7219, 0.5365),
    (2.6613, -1.9772, 0.4526),
    (1.9562, -1.3375, 0.3839),
)
NEARLY = 0.6  # a matrix with |X^T X - I| below this needs none of them
MAX_STEPS = 9  # a singular value below about 1e-4 of the largest does not come near 1 in so many
ENTRIES = 2**15  # matrices worked on at a time have about as many entries: they stay in the cache of the processor


def polar_factors(matrices: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return the orthogonal polar factors of ``matrices (m, d, d)`` and which of them are sound, (m,).

    The factors have the precision of the matrices. One is not sound if a singular value is below about 1e-4 of the
    largest: it must then be found in another way.

    Examples
    --------
    >>> rotations, sound = polar_factors(np.array([[[0.0, -2.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]]))
    >>> (rotations[0].round(9) + 0.0).tolist(), sound.tolist()
    ([[0.0, -1.0], [1.0, 0.0]], [True, False])
    """
    m, d, _ = matrices.shape
    rotations, sound = np.empty_like(matrices), np.empty(m, dtype=np.bool_)
    size = max(1, ENTRIES // d**2)
    with np.errstate(all="ignore"):  # what is not finite is not sound
        for start in range(0, m, size):
            here = slice(start, start + size)
            rotations[here], sound[here] = _iterated(matrices[here])
    return rotations, sound


def _iterated(matrices: FloatArray) -> tuple[FloatArray, BoolArray]:
    close = 4e-5 if matrices.dtype == np.float64 else 4e-3  # so near to I, one more step reaches the precision
    diagonal = np.arange(matrices.shape[1])
    X, E = _started(matrices, diagonal)
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


def _started(matrices: FloatArray, diagonal: IntArray) -> tuple[FloatArray, FloatArray]:
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
