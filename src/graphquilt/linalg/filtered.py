"""The lowest eigenvectors of a symmetric operator, by a Chebyshev filter: products with the operator, and little else.

A polynomial of the operator that is large on the wanted eigenvalues, and at most 1 on all others, removes the other
eigenvectors from a block. Of all polynomials of its degree, a Chebyshev polynomial does so best. Each step costs one
product with the operator, while those of a Rayleigh-Ritz iteration (eigen.py) cost several products of tall matrices
too; but the number of steps grows with the square root of the ratio of the whole spectrum to the gap, so that this is
for problems with a wide gap.

References
----------
Y. Zhou, Y. Saad, M. L. Tiago and J. R. Chelikowsky, Self-consistent-field calculations using Chebyshev-filtered
subspace iteration. J. Comput. Phys. 219 (2006) 172-184.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from graphquilt.arrays import Float64Array, FloatArray
from graphquilt.linalg.eigen import Eigenpairs, residual_norms, ritz_block

__all__ = ["Recurrence", "filtered_eigenpairs"]

MAX_DEGREE = 12  # of one filter: the Ritz values after it tell how good the bounds were
ROUNDS = 6  # filters in all
GUESSED = 0.25  # the Ritz values of a poor guess are too high: at first the wanted ones are taken to lie so far up
SLOWEST = 1.5  # the least factor by which one product with the operator must reduce what is not wanted
EXPECTED = 0.5  # a filter that reaches less than this share of the digits expected is the last


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
    """Find as many of the lowest eigenpairs as ``start (n, c)`` has columns; residuals may be larger than ``tol``.

    Parameters
    ----------
    operator : Recurrence
    start : array (n, c)
        A guess. Its precision is the precision of the iteration.
    interval : pair of float
        Where the other eigenvalues lie, as far as is known. A lower end that is too high does no harm but to the speed;
        no eigenvalue may lie above the upper end.
    stop : function of (values, residuals), optional
        A further reason to stop.

    Returns
    -------
    Eigenpairs
        ``iterations`` is the number of products with the operator.

    Examples
    --------
    >>> import numpy as np
    >>> diagonal = np.r_[0.1, 0.2, np.linspace(1, 2, 50)][:, None]
    >>> def apply(X, out, factors=(1.0, 0.0, 0.0)):
    ...     out[:] = factors[0] * diagonal * X + factors[1] * X + factors[2] * out
    >>> start = np.random.default_rng(0).normal(size=(52, 2))
    >>> filtered_eigenpairs(apply, start, interval=(1.0, 2.0), tol=1e-9).values.round(6).tolist()
    [0.1, 0.2]
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
        degree = min(max(math.ceil(math.log(2 * worst / tol) / math.log(rate)), 2), MAX_DEGREE)
        X, image = _filtered(operator, X, image, (float(values[0]), low, high), degree)
        X, image, values = ritz_block(operator, X, out=image)
        residuals, highest = residual_norms(X, image, values), float(values[-1])
        products += degree
        digits = math.log(worst / max(float(residuals.max()), 1e-300))
        if digits < EXPECTED * (degree - 1) * math.log(rate) and residuals.max() > tol:
            break
    return Eigenpairs(values, X, residuals, products)


def _filtered(
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
