"""Extreme eigenvectors of a symmetric operator: block Rayleigh-Ritz steps (LOBPCG), and a Chebyshev filter.

The operator A is any function on tall matrices. A Rayleigh-Ritz step minimises the trace of ``Y.T @ A @ Y`` over all
orthonormal ``Y (n, c)`` in the span of three blocks: the current vectors X, their preconditioned residuals W, and the
direction P of the step before, which adds what conjugate gradients add to steepest descent (Knyazev 2001). The whole
basis stays orthonormal: P is made orthogonal to X in the small space of coefficients (Hetmaniuk and Lehoucq 2006), and
W is orthogonalised against the rest, twice where needed (Duersch, Shao, Yang and Gu 2018).

A Chebyshev polynomial of the operator that is large on the wanted eigenvalues, and at most 1 on all others, removes the
other eigenvectors from a block, for problems with a wide gap or blocks wider than wanted (Zhou et al. 2006).

References
----------
A. V. Knyazev, Toward the optimal preconditioned eigensolver. SIAM J. Sci. Comput. 23 (2001) 517-541.
U. Hetmaniuk and R. Lehoucq, Basis selection in LOBPCG. J. Comput. Phys. 218 (2006) 324-332.
J. A. Duersch, M. Shao, C. Yang and M. Gu, A robust and efficient implementation of LOBPCG. SIAM J. Sci. Comput. 40
(2018) C655-C676.
Y. Zhou, Y. Saad, M. L. Tiago and J. R. Chelikowsky, Self-consistent-field calculations using Chebyshev-filtered
subspace iteration. J. Comput. Phys. 219 (2006) 172-184.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, pieces
from graphquilt.errors import ConvergenceError

logger = logging.getLogger("graphquilt")
Operator: TypeAlias = Callable[[AnyArray], AnyArray]
Preconditioner: TypeAlias = Callable[[FloatArray, Float64Array], None]
Stop: TypeAlias = Callable[[Float64Array, Float64Array], bool]  # of values and residuals: a reason to stop

# lowest_eigenpairs
WELL_CONDITIONED = 0.03  # a Gram matrix whose smallest and largest eigenvalue have no smaller ratio needs one pass only
STRAY = 100  # times the precision: the largest product allowed of vectors that should be orthogonal
ROWS = 8192  # tall matrices are changed in place, this many rows at a time
PROGRESS = 0.5  # the factor by which residuals must fall within the patience of the caller
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


class Eigenpairs(NamedTuple):
    """``values (c,)`` ascending, orthonormal ``vectors (n, c)``, the residual norms ``(c,)`` and the steps taken."""

    values: Float64Array
    vectors: FloatArray
    residuals: Float64Array
    iterations: int


def orthonormalise(block: FloatArray) -> int:
    """Turn the first k columns of ``block (n, c)`` into an orthonormal basis of its span, and return k."""
    k = block.shape[1]
    for _ in range(2):
        part = block[:, :k]
        gram = (part.T @ part).astype(np.float64)
        norms = np.sqrt(np.diag(gram))
        scale = np.divide(1.0, norms, out=np.zeros(k), where=norms > 0)
        values, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
        # The Gram matrix has the squared condition number: eigenvalues below the precision are rounding errors.
        sound = values > k * np.finfo(block.dtype).eps * values.max(initial=0.0)
        k = _combine(part, scale[:, None] * vectors[:, sound] / np.sqrt(values[sound]))
        # The error of one pass grows with the condition of the Gram matrix; the second pass starts from a good one.
        if values.min(initial=1.0) > WELL_CONDITIONED * values.max(initial=0.0):
            break
    return int(k)


def lowest_eigenpairs(
    operator: Recurrence,
    start: FloatArray,
    *,
    preconditioner: Preconditioner,
    deflate: FloatArray | None = None,
    tol: float,
    max_iterations: int = 100,
    stop: Stop | None = None,
    patience: int | None = None,
) -> Eigenpairs:
    """Find the c lowest eigenpairs from a guess ``start (n, c)``; residuals may be larger than ``tol``.

    ``preconditioner(R, values)`` applies an approximate inverse to the residuals ``R (n, c)`` in place. The iteration
    has the precision of ``start`` and stays orthogonal to known eigenvectors ``deflate (n, k)``. It stops when every
    residual norm is at most ``tol``, when ``stop`` says so, or when ``patience`` steps did not halve the largest one.
    """
    n, c = start.shape
    width = c * (3 if max_iterations else 1)
    basis, image = np.empty((n, width), dtype=start.dtype), np.empty((n, width), dtype=start.dtype)
    X, AX = basis[:, :c], image[:, :c]
    X[:] = start
    _remove(X, deflate)
    values = _ritz_values(operator, X, AX)
    projected, history = np.diag(values), []  # the operator in the basis of X and P; the residual of every step
    while True:
        residuals = residual_norms(X, AX, values)
        history.append(float(residuals.max(initial=0.0)))
        # Residuals of a converging iteration do not fall in every step: the smallest ones are compared.
        late, early = history[-(patience or 0) :], history[: -patience if patience else 0]
        stagnates = bool(early) and min(late) > PROGRESS * min(early)
        done = history[-1] <= tol or len(history) > max_iterations or stagnates
        if done or (stop is not None and stop(values, residuals)):
            return Eigenpairs(values, X if X.shape == basis.shape else X.copy(), residuals, len(history) - 1)
        k = len(projected)
        W = basis[:, k : k + c]
        for rows, R in _residual_rows(X, AX, values):
            W[rows] = R
        preconditioner(W, values)
        total = k + _new_directions(W, basis[:, :k], deflate)
        operator(basis[:, k:total], image[:, k:total])
        values, projected = _minimise(basis[:, :total], image[:, :total], projected, c)


def ritz_block(
    operator: Recurrence, start: FloatArray, *, out: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, Float64Array]:
    """Return the Ritz vectors of the span of ``start (n, c)``, the operator times these, and the Ritz values (c,).

    With memory ``out (n, c)`` for the second, the first take the place of ``start``.
    """
    X, image = (start.copy(), np.empty_like(start)) if out is None else (start, out)
    independent = orthonormalise(X)
    if independent < X.shape[1]:
        X[:, independent:] = np.random.default_rng(0).standard_normal((len(X), X.shape[1] - independent))
    return X, image, _ritz_values(operator, X, image, orthonormal=independent == X.shape[1])


def residual_norms(X: FloatArray, AX: FloatArray, values: Float64Array) -> Float64Array:
    """Return the norm of each column of ``AX - X * values``, (c,)."""
    squares = [(R**2).sum(axis=0) for _, R in _residual_rows(X, AX, values)]
    return np.asarray(np.sqrt(sum(squares, np.zeros(X.shape[1]))))


def _ritz_values(operator: Recurrence, X: FloatArray, AX: FloatArray, *, orthonormal: bool = False) -> Float64Array:
    """Replace ``X (n, c)`` by its Ritz vectors, write the operator times these to ``AX``, and return their values."""
    if not orthonormal and orthonormalise(X) < X.shape[1]:
        raise ValueError("the columns of the starting block depend on each other")
    operator(X, AX)
    values, turn = _ritz(X.T @ AX)
    _combine(X, turn)
    _combine(AX, turn)
    return values


def _minimise(
    basis: FloatArray, image: FloatArray, projected: Float64Array, c: int
) -> tuple[Float64Array, Float64Array]:
    """Replace basis and image by those of the new X and P; return the Ritz values and the projected operator."""
    k = len(projected)
    border = (basis.T @ image[:, k:]).astype(np.float64)
    small = np.block([[projected, border[:k]], [border[:k].T, border[k:]]])
    values, vectors = _ritz(small)
    coefficients = _with_last_step(vectors[:, :c], c)
    _combine(basis, coefficients)
    _combine(image, coefficients)
    return values[:c], coefficients.T @ small @ coefficients


def _new_directions(W: FloatArray, basis: FloatArray, deflate: FloatArray | None) -> int:
    """Make ``W`` orthonormal to the ``basis`` and in itself, in place; return the number of columns left."""
    _remove(W, deflate)
    _remove(W, basis)
    k = orthonormalise(W)
    # Where W lies nearly in the span of the basis, rounding errors left a part of the basis in it, and making W
    # orthonormal enlarged that part. Without a second pass, Ritz values can fall below the spectrum.
    if np.abs(basis.T @ W[:, :k]).max(initial=0.0) > STRAY * np.finfo(W.dtype).eps:
        _remove(W[:, :k], deflate)
        _remove(W[:, :k], basis)
        k = orthonormalise(W[:, :k])
    return k


def _with_last_step(C: Float64Array, c: int) -> Float64Array:
    """Return the coefficients ``C (k, c)`` of the new X beside those of the new P, orthonormal to them."""
    step = C.copy()
    step[:c] = 0
    for _ in range(2):
        step -= C @ (C.T @ step)
    return np.hstack([C, step[:, : orthonormalise(step)]])


def _combine(block: FloatArray, coefficients: Float64Array) -> int:
    """Replace the first k columns of ``block (n, c)`` by ``block @ coefficients (c, k)``; return k."""
    C = coefficients.astype(block.dtype)
    for rows in pieces(len(block), ROWS):
        block[rows, : C.shape[1]] = block[rows] @ C
    return int(C.shape[1])


def _remove(block: FloatArray, basis: FloatArray | None) -> None:
    """Remove from ``block`` its part in the span of the orthonormal ``basis``, in place."""
    if basis is None or basis.shape[1] == 0:
        return
    share = basis.T @ block
    for rows in pieces(len(block), ROWS):
        block[rows] -= basis[rows] @ share


def _residual_rows(X: FloatArray, AX: FloatArray, values: Float64Array) -> Iterator[tuple[slice, FloatArray]]:
    """Yield the residuals ``AX - X * values`` of some rows at a time, with those rows."""
    for rows in pieces(len(X), ROWS):
        yield rows, AX[rows] - X[rows] * values.astype(X.dtype)


def _ritz(small: FloatArray) -> tuple[Float64Array, Float64Array]:
    """Return the eigenvalues and eigenvectors of the projected operator, always in double precision."""
    values, vectors = np.linalg.eigh((small.astype(np.float64) + small.T) / 2)
    return values, vectors


def filtered_eigenpairs(
    operator: Recurrence, start: FloatArray, *, interval: tuple[float, float], tol: float, stop: Stop | None = None
) -> Eigenpairs:
    """Find the c lowest eigenpairs from a guess ``start (n, c)``; residuals may be larger than ``tol``.

    The other eigenvalues lie in the ``interval``. A lower end that is too high only costs time; no eigenvalue may lie
    above the upper end. The precision is that of ``start``; ``iterations`` counts products with the operator.
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

    The polynomial is 1 at the first of the ``bounds`` and small between the other two; both blocks are changed.
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
    """Return the sign, ±1, that makes the first entry of largest magnitude, to six digits, positive in each column."""
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
    residual of up to 1e-3 is accepted, with a warning in the log; above that, ConvergenceError is raised. If
    eigenvalues differ by less than ``tol``, the vectors may be mixtures of theirs.
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
        words = f"{k} eigenvectors of a matrix of {n} rows have a residual of {residual:.1e} after {products} products"
        logger.warning(f"{words}; {tol:.0e} was asked for.")
    return values[:k], X[:, :k].astype(np.float64)
