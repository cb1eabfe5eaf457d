"""Extreme eigenpairs of a symmetric operator, by subspace iteration with a Chebyshev filter.

A polynomial of the operator that is large on the wanted eigenvalues, and at most 1 on all others, removes the other
eigenvectors from a block. Of all polynomials of its degree, a Chebyshev polynomial does so best. Each degree costs one
product with the operator and little else, but the number of products grows with the square root of the ratio of the
whole spectrum to the gap: this is for problems with a wide gap, or with blocks wider than the number of vectors wanted.

References
----------
Y. Zhou, Y. Saad, M. L. Tiago and J. R. Chelikowsky, Self-consistent-field calculations using Chebyshev-filtered
subspace iteration. J. Comput. Phys. 219 (2006) 172-184.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float64Array, FloatArray
from graphquilt.errors import ConvergenceError
from graphquilt.linalg.rayleigh_ritz import Eigenpairs, residual_norms, ritz_block

logger = logging.getLogger("graphquilt")
Operator: TypeAlias = Callable[[AnyArray], AnyArray]

# filtered_eigenpairs
SHORT_FILTER = 12  # largest degree of one filter: the Ritz values after it tell how good the bounds were
ROUNDS = 6  # filters in all
GUESSED = 0.25  # the Ritz values of a poor guess are too high: the first filter assumes that the wanted ones lie here
SLOWEST = 1.5  # the least factor by which one product with the operator must reduce the unwanted part
EXPECTED = 0.5  # a filter that reaches less than this share of the expected digits is the last
# leading_eigenpairs
DENSE_ROWS = 1000  # up to this many rows, or for a large share of all vectors, a dense solver is faster
MAX_PRODUCTS = 2000  # of the whole block, after which the vectors are accepted or refused as they are
LONG_FILTER = 60  # largest degree of one filter
ACCEPTED = 1e-3  # a residual that is accepted after MAX_PRODUCTS
GROWTH = 9.0  # the logarithm of how much one filter may enlarge the leading vector over the last


class Recurrence(Protocol):
    """An operator L that can write ``a L X + b X + c out`` into ``out`` for factors (a, b, c)."""

    def __call__(self, X: FloatArray, out: FloatArray, factors: tuple[float, float, float] = ..., /) -> None:
        """Write the sum; the default factors give L X."""


def filtered_eigenpairs(
    operator: Recurrence,
    start: FloatArray,
    *,
    interval: tuple[float, float],
    tol: float,
    stop: Callable[[Float64Array, Float64Array], bool] | None = None,
) -> Eigenpairs:
    """Find the c lowest eigenpairs from a guess ``start (n, c)``; residuals may be larger than ``tol``.

    The other eigenvalues lie in the ``interval``. A lower end that is too high only costs time; no eigenvalue may lie
    above the upper end. ``stop(values, residuals)`` is a further reason to stop. The iteration has the precision of
    ``start``, and ``iterations`` counts products with the operator.
    """
    X, image, values = ritz_block(operator, start)
    residuals, products = residual_norms(X, image, values), 1
    low, high = interval
    highest = min(float(values[-1]), GUESSED * low)
    for _ in range(ROUNDS):
        worst = float(residuals.max())
        if (stop is not None and stop(values, residuals)) or worst <= tol:
            break
        # From the highest wanted value to the interval, the polynomial falls by this factor for each degree.
        distance = ((high + low) / 2 - highest) / ((high - low) / 2)
        rate = distance + math.sqrt(max(distance**2 - 1, 0.0)) if distance > 1 else 1.0
        if rate < SLOWEST:
            break
        degree = min(max(math.ceil(math.log(2 * worst / tol) / math.log(rate)), 2), SHORT_FILTER)
        X, image = _filter_block(operator, X, image, (float(values[0]), low, high), degree)
        X, image, values = ritz_block(operator, X, out=image)
        residuals, highest = residual_norms(X, image, values), float(values[-1])
        products += degree
        digits = math.log(worst / max(float(residuals.max()), 1e-300))
        if digits < EXPECTED * (degree - 1) * math.log(rate) and residuals.max() > tol:
            break
    return Eigenpairs(values, X, residuals, products)


def _filter_block(
    operator: Recurrence, X: FloatArray, image: FloatArray, bounds: tuple[float, float, float], degree: int
) -> tuple[FloatArray, FloatArray]:
    """Return the filter applied to ``X (n, c)``, and memory for another block; ``image`` is the operator times X.

    The polynomial of this degree is 1 at the first of the ``bounds`` and small between the other two. This is the
    scaled three-term recurrence of Zhou et al. (2006); it changes both blocks.
    """
    lowest, low, high = bounds
    centre, half = (high + low) / 2, (high - low) / 2
    first = half / (lowest - centre)
    sigma = first
    image -= X.dtype.type(centre) * X
    image *= X.dtype.type(sigma / half)
    before, current = X, image
    for _ in range(degree - 1):
        following = 1 / (2 / first - sigma)
        scale = 2 * following / half
        operator(current, before, (scale, -scale * centre, -sigma * following))
        before, current, sigma = current, before, following
    return current, before


def fixed_signs(U: Float64Array) -> Float64Array:
    """Return the sign, ±1, to give each column of U: its entry of largest magnitude is then positive.

    Among entries that are equally large to six digits the first decides, so rounding does not matter.
    """
    size = np.abs(U)
    first = np.argmax(size >= (1 - 1e-6) * size.max(axis=0), axis=0)
    return np.where(U[first, np.arange(U.shape[1])] < 0, -1.0, 1.0)


def leading_eigenpairs(
    product: Operator,
    n: int,
    k: int,
    *,
    tol: float = 1e-9,
    project: Operator | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> tuple[Float64Array, Float64Array]:
    """Return the k largest eigenvalues, descending, and their vectors (n, k), of a symmetric operator.

    ``product`` multiplies an (n, c) array by the operator, whose eigenvalues lie in [0, 1], and ``project`` removes
    known, unwanted eigenvectors from one; both receive arrays of ``dtype``, and float32 is twice as fast. ``tol`` is
    the largest residual norm |A u - λ u| of a pair with |u| = 1. If it is not reached in a fixed amount of work, a
    residual of up to 1e-3 is accepted, with a warning in the log; above that, ConvergenceError is raised.

    The block has more than k vectors. An eigenvalue that repeats gets all its vectors, or any orthonormal ones among
    them if more exist than are wanted. No missing eigenvector has an eigenvalue much above the last; if eigenvalues
    differ by less than ``tol``, the vectors may be mixtures of theirs.
    """
    if n <= DENSE_ROWS or 4 * k >= n:
        values, U = _dense(product, n, k, project)
    else:
        values, U = _iterate(product, n, k, tol=tol, project=project, dtype=dtype)
    return values, U * fixed_signs(U) + 0.0


def _dense(product: Operator, n: int, k: int, project: Operator | None) -> tuple[Float64Array, Float64Array]:
    from scipy.linalg import eigh

    identity = np.eye(n)
    if project is not None:
        # The wanted eigenvalues lie in [1, 2], and those of the removed vectors are 0.
        remaining = project(identity.copy())
        G = project(np.asarray(product(remaining))) + remaining
    else:
        G = np.asarray(product(identity))
    values, U = eigh((G + G.T) / 2, subset_by_index=(n - k, n - 1))
    if len(values) < k:
        # LAPACK's solver for some of the vectors loses copies of a repeated eigenvalue if the cut falls into it.
        values, U = (all_of_them[..., n - k :] for all_of_them in np.linalg.eigh((G + G.T) / 2))
    return values[::-1] - (project is not None), np.ascontiguousarray(U[:, ::-1])


def _iterate(
    product: Operator, n: int, k: int, *, tol: float, project: Operator | None, dtype: npt.DTypeLike
) -> tuple[Float64Array, Float64Array]:
    """Compute the pairs of :func:`leading_eigenpairs` as the lowest ones of the negative operator."""

    def operator(X: FloatArray, out: FloatArray, factors: tuple[float, float, float] = (1.0, 0.0, 0.0)) -> None:
        total = -factors[0] * product(X) + factors[1] * X
        out[:] = total if factors[2] == 0 else total + factors[2] * out

    size = k + max(k // 4, 8)  # the vectors beyond k make the last wanted ones converge
    X = np.random.default_rng(0).standard_normal((n, size)).astype(dtype)
    image, products, degree = np.empty_like(X), 0, 1
    while True:
        X, image, negative = ritz_block(operator, X if project is None else project(X), out=image)
        values, residual = -negative, float(residual_norms(X, image, negative)[:k].max())
        products += degree
        if residual <= tol or products >= MAX_PRODUCTS:
            break
        # Ritz values lie below the eigenvalues that they approximate, so every wanted one is above this bound.
        # Rounding errors along removed vectors grow as well, and their eigenvalues may be 1.
        top = float(values[0]) if project is None else 1.0
        bound = float(np.clip(values[-1], 1e-3 * top, (1 - 1e-6) * top))
        degree = int(np.clip(GROWTH / np.arccosh(2 * top / bound - 1), 1, LONG_FILTER))
        # The last filter needs only the degree that takes the residual of the last wanted vector to the tolerance.
        rate = float(np.arccosh(max(2 * float(values[k - 1]) / bound - 1, 1.0)))
        if rate * degree > np.log(4 * residual / tol):
            degree = max(int(np.ceil(np.log(4 * residual / tol) / rate)), 1)
        X, image = _filter_block(operator, X, image, (-top, -bound, 0.0), degree)
        if products == 1:
            # The bounds from random vectors are rough: the columns may be too close to parallel for a Gram matrix.
            X = np.ascontiguousarray(np.linalg.qr(X)[0])
    if residual > max(tol, ACCEPTED):
        raise ConvergenceError(
            f"the eigensolver reached a residual of {residual:.1e} in {products} products; {max(tol, ACCEPTED):.0e} is "
            f"needed, for {k} vectors of a matrix of {n} rows. Ask for fewer or more dimensions.",
            residual=residual,
        )
    if residual > tol:
        logger.warning(
            "%d eigenvectors of a matrix of %d rows have a residual of %.1e after %d products; %.0e was asked for.",
            *(k, n, residual, products, tol),
        )
    return values[:k], X[:, :k].astype(np.float64)
