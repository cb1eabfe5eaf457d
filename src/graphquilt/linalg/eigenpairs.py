"""Leading eigenpairs of a symmetric operator, by subspace iteration with a Chebyshev filter."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array
from graphquilt.errors import ConvergenceError

__all__ = ["DENSE_ROWS", "Operator", "fixed_signs", "leading_eigenpairs"]

logger = logging.getLogger("graphquilt")
Operator = Callable[[Any], Any]

DENSE_ROWS = 1000  # up to this many rows, or where a large share of all vectors is wanted, a dense solver is faster
MAX_PRODUCTS = 2000  # of the whole block, after which the vectors are accepted or refused as they are
MAX_DEGREE = 60
ACCEPTED = 1e-3  # a residual that is accepted when the work is used up
GROWTH = 9.0  # the logarithm of how much one filter may enlarge the leading vector over the last


def fixed_signs(U: Float64Array) -> Float64Array:
    """Return the sign, ±1, to give each column of U so that its entry of largest magnitude is positive.

    Of several entries that are equally large to six digits the first decides, so that rounding does not matter.

    Examples
    --------
    >>> fixed_signs(np.array([[1.0, 0.5], [-2.0, -0.5]])).tolist()
    [-1.0, 1.0]
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
    dtype: type[np.floating[Any]] = np.float64,
) -> tuple[Float64Array, Float64Array]:
    """Return the k largest eigenvalues, descending, and their vectors (n, k), of a symmetric operator.

    Parameters
    ----------
    product : callable
        Multiplies an (n, c) array by the operator, whose eigenvalues lie in [0, 1].
    tol : float
        The largest residual norm |A u - λ u| of a pair with |u| = 1. Where it is not reached in a fixed amount of work,
        a residual of up to 1e-3 is accepted, with a warning in the log; above that, ConvergenceError is raised.
    project : callable, optional
        Removes from an (n, c) array the eigenvectors that are known already and not wanted.
    dtype : type
        The arrays that ``product`` and ``project`` receive; float32 is twice as fast, and allows a ``tol`` of 1e-5.

    Notes
    -----
    Each step multiplies a block of more than k vectors by a Chebyshev polynomial of the operator that is small on the
    unwanted part of the spectrum, and then takes the best vectors that the block contains (Rayleigh and Ritz). An
    eigenvalue that repeats gets all its vectors, or any orthonormal ones among them where more exist than are wanted.
    No eigenvector that is missing has an eigenvalue much above the last; where eigenvalues differ by less than ``tol``,
    the vectors may be mixtures of theirs.

    Examples
    --------
    >>> values, U = leading_eigenpairs(lambda x: np.array([[0.2, 0.0], [0.0, 0.3]]) @ x, 2, 1)
    >>> values.round(12).tolist(), U.tolist()
    ([0.3], [[0.0], [1.0]])
    """
    if n <= DENSE_ROWS or 4 * k >= n:
        values, U = _dense(product, n, k, project)
    else:
        values, U = _filtered(product, n, k, tol=tol, project=project, dtype=dtype)
    return values, U * fixed_signs(U) + 0.0


def _dense(product: Operator, n: int, k: int, project: Operator | None) -> tuple[Float64Array, Float64Array]:
    from scipy.linalg import eigh

    identity = np.eye(n)
    if project is not None:
        # The wanted eigenvalues lie in [1, 2], and those of the removed vectors are 0.
        kept = project(identity.copy())
        G = project(np.asarray(product(kept))) + kept
    else:
        G = np.asarray(product(identity))
    values, U = eigh((G + G.T) / 2, subset_by_index=(n - k, n - 1))
    if len(values) < k:
        # LAPACK's solver for some of the vectors loses copies of a repeated eigenvalue where the cut falls into it.
        values, U = (all_of_them[..., n - k :] for all_of_them in np.linalg.eigh((G + G.T) / 2))
    return values[::-1] - (project is not None), np.ascontiguousarray(U[:, ::-1])


def _filtered(
    product: Operator, n: int, k: int, *, tol: float, project: Operator | None, dtype: type[np.floating[Any]]
) -> tuple[Float64Array, Float64Array]:
    """Compute the pairs of :func:`leading_eigenpairs` by subspace iteration with a Chebyshev filter."""
    size = k + max(k // 4, 8)  # the vectors beyond k make the last wanted ones converge
    X = np.random.default_rng(0).standard_normal((n, size)).astype(dtype)
    products = degree = 0
    while True:
        X = _orthonormal(X if project is None else project(X))
        values, X, residual = _best_vectors(product, X, k)
        products += degree + 1
        if residual <= tol or products >= MAX_PRODUCTS:
            break
        # Ritz values lie below the eigenvalues that they approximate, so that every wanted one is above this bound.
        # Rounding errors along removed vectors grow as well, and their eigenvalues may be 1.
        top = float(values[0]) if project is None else 1.0
        bound = float(np.clip(values[-1], 1e-3 * top, (1 - 1e-6) * top))
        degree = int(np.clip(GROWTH / np.arccosh(2 * top / bound - 1), 1, MAX_DEGREE))
        # The last step needs only the degree that takes the residual of the last wanted vector to the tolerance.
        rate = float(np.arccosh(max(2 * float(values[k - 1]) / bound - 1, 1.0)))
        if rate * degree > np.log(4 * residual / tol):
            degree = max(int(np.ceil(np.log(4 * residual / tol) / rate)), 1)
        X = _chebyshev(product, X, bound, degree)
    if residual > max(tol, ACCEPTED):
        raise ConvergenceError(
            f"the eigensolver reached a residual of {residual:.1e} in {products} products; {max(tol, ACCEPTED):.0e} is "
            f"needed, for {k} vectors of a matrix of {n} rows. Ask for other dimensions, fewer or more.",
            residual=residual,
        )
    if residual > tol:
        logger.warning(
            "%d eigenvectors of a matrix of %d rows have a residual of %.1e after %d products; %.0e was asked for.",
            *(k, n, residual, products, tol),
        )
    return values[:k], X[:, :k].astype(np.float64)


def _best_vectors(product: Operator, X: AnyArray, k: int) -> tuple[Float64Array, AnyArray, float]:
    """Return the Ritz values of the block X, descending, its Ritz vectors, and the largest residual of the first k."""
    W = product(X)
    H = (X.T @ W).astype(np.float64)
    values, turn = np.linalg.eigh((H + H.T) / 2)
    values, turn = values[::-1], np.ascontiguousarray(turn[:, ::-1]).astype(X.dtype)
    X = X @ turn
    R = W @ turn[:, :k] - X[:, :k] * values[:k].astype(X.dtype)
    return values, X, float(np.linalg.norm(R, axis=0).max())


def _chebyshev(product: Operator, X: AnyArray, bound: float, degree: int) -> AnyArray:
    """Return T_m(L(A)) X, where L maps [0, bound] to [-1, 1]; above the bound the polynomial grows fast."""
    stretch = 2 / bound
    before, now = X, stretch * product(X) - X
    for _ in range(degree - 1):
        after = product(now)
        after *= 2 * stretch
        after -= 2 * now
        after -= before
        before, now = now, after
    return np.asarray(now)


def _orthonormal(X: AnyArray) -> AnyArray:
    """Return an orthonormal basis of the columns, by Cholesky twice where X allows it: it is far faster than QR."""
    Q = X
    for _ in range(2):
        Q = Q / np.maximum(np.linalg.norm(Q, axis=0), np.finfo(X.dtype).tiny)
        try:
            L = np.linalg.cholesky((Q.T @ Q).astype(np.float64))
        except np.linalg.LinAlgError:
            L = np.zeros((1, 1))
        if L.diagonal().min() < 1e-3:
            return np.ascontiguousarray(np.linalg.qr(Q)[0])
        Q = Q @ np.linalg.inv(L).T.astype(X.dtype)
    return np.ascontiguousarray(Q)
