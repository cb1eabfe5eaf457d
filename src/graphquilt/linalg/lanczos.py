"""Leading eigenvectors of a symmetric operator, by a block Lanczos method, in a fixed order and with fixed signs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphquilt.arrays import Float64Array
from graphquilt.errors import ConvergenceError

__all__ = ["DENSE_ROWS", "Operator", "fixed_signs", "leading_eigenpairs"]

Operator = Callable[[Float64Array], Float64Array]

DENSE_ROWS = 1000  # up to this many rows, or where a large share of all vectors is wanted, a dense solver is faster
BLOCKS = (32, 128, 512)  # columns multiplied at once; where an eigenvalue repeats more often, the next number is tried
MAX_RESTARTS = 200
LARGEST_GROWTH = 9.0  # the logarithm of how much a filter may enlarge the leading vector over the last
NEGLIGIBLE = 1e-12  # a direction shorter than this is rounding error


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


def leading_eigenpairs(product: Operator, n: int, k: int, *, tol: float = 1e-9) -> tuple[Float64Array, Float64Array]:
    """Return the k algebraically largest eigenvalues, descending, and their vectors (n, k), of a symmetric operator.

    Parameters
    ----------
    product : callable
        Multiplies an (n, c) array by the operator, whose eigenvalues lie in [-1, 1].
    tol : float
        The largest residual norm of an eigenpair.

    Examples
    --------
    >>> values, U = leading_eigenpairs(lambda x: np.array([[0.2, 0.0], [0.0, 0.3]]) @ x, 2, 1)
    >>> values.tolist(), U.tolist()
    ([0.3], [[0.0], [1.0]])
    """
    if n <= DENSE_ROWS or 3 * k >= n:
        from scipy.linalg import eigh

        G = product(np.eye(n))
        values, U = eigh((G + G.T) / 2, subset_by_index=(n - k, n - 1))
        if len(values) < k:
            # LAPACK's solver for some of the vectors loses copies of a repeated eigenvalue where the cut falls into it.
            values, U = (all_of_them[..., n - k :] for all_of_them in np.linalg.eigh((G + G.T) / 2))
        values, U = values[::-1], np.ascontiguousarray(U[:, ::-1])
        return values, U * fixed_signs(U) + 0.0
    for block in BLOCKS:
        values, U = _block_lanczos(product, n, k, tol=tol, block=block)
        if not _one_is_missing(product, U, float(values[-1]) + 100 * tol, block):
            return values, U * fixed_signs(U)
    raise ConvergenceError(
        f"an eigenvalue of this matrix of {n} rows repeats more than {BLOCKS[-1]} times, and {k} leading vectors are "
        "not defined by it. Ask for fewer dimensions, or embed each component by itself.",
        residual=float("nan"),
    )


def _block_lanczos(product: Operator, n: int, k: int, *, tol: float, block: int) -> tuple[Float64Array, Float64Array]:
    """Compute the pairs of :func:`leading_eigenpairs` with blocks of this many columns.

    One basis of about 2k vectors shows where the wanted part of the spectrum begins. If its vectors are not accurate
    enough, a second basis is built with a Chebyshev polynomial of the operator that is small on the unwanted part:
    orthogonalising costs most, and a polynomial of degree 10 needs a tenth of it.
    """
    rng = np.random.default_rng(0)
    size = 2 * k + 2 * block
    count = k + (size - k) // 4  # the vectors that a restart retains
    krylov = _Krylov(product, rng.standard_normal((n, block)), size, rng)
    krylov.grow()
    values, S = krylov.ritz()
    if np.linalg.norm(krylov.tail(S[:, :k]), axis=0).max() <= tol:
        return values[:k], krylov.vectors(S[:, :k])
    # Ritz values lie below the eigenvalues that they approximate, so that every wanted eigenvalue is above this bound.
    filtered = _chebyshev(product, float(values[count - 1]), float(values[0]))
    start = krylov.vectors(S[:, :count]) @ rng.standard_normal((count, block))
    krylov = _Krylov(filtered, start, size, rng)
    residual = np.inf
    for _ in range(MAX_RESTARTS):
        krylov.grow()
        _, S = krylov.ritz()
        U = krylov.vectors(S[:, :k])
        W = product(np.ascontiguousarray(U))
        values, turn = np.linalg.eigh(U.T @ W)
        U, W, values = U @ turn[:, ::-1], W @ turn[:, ::-1], values[::-1]
        residual = float(np.linalg.norm(W - U * values, axis=0).max())
        if residual <= tol:
            return values, U
        krylov.restart(count)
    raise ConvergenceError(
        f"the eigensolver reached a residual of {residual:.1e} in {MAX_RESTARTS} restarts; {tol:.0e} is needed, "
        f"for {k} vectors of a matrix of {n} rows. Ask for fewer dimensions.",
        residual=residual,
    )


def _chebyshev(product: Operator, bound: float, top: float) -> Operator:
    """Return the product by T_m(L(A)), where L maps [-1, bound] to [-1, 1]; above the bound it grows fast."""
    bound = max(bound, -0.9)
    growth = np.arccosh(max(2 * top + 1 - bound, 1 + bound) / (1 + bound))
    degree = int(np.clip(LARGEST_GROWTH / max(growth, 1e-3), 1, 10))
    stretch, shift = 2 / (1 + bound), (1 - bound) / (1 + bound)

    def filtered(x: Float64Array) -> Float64Array:
        before, now = x, stretch * product(x) + shift * x
        for _ in range(degree - 1):
            after = product(now)
            after *= 2 * stretch
            after += 2 * shift * now
            after -= before
            before, now = now, after
        return now

    return filtered


class _Krylov:
    """An orthonormal basis V that grows by a block at a time, with T = V^T A V."""

    def __init__(self, product: Operator, start: Float64Array, size: int, rng: np.random.Generator) -> None:
        n, self.block = start.shape
        self.product, self.size, self.rng = product, size, rng
        self.V = np.empty((n, size + self.block), order="F")
        self.T = np.zeros((size + self.block, size + self.block))
        self.V[:, : self.block] = np.linalg.qr(start)[0]
        self.done = self.restarted = 0

    def grow(self) -> None:
        """Multiply and orthogonalise block after block until the basis is full."""
        V, T, block = self.V, self.T, self.block
        while self.done + block <= self.size:
            done, have = self.done, self.done + block
            W = self.product(np.ascontiguousarray(V[:, done:have]))
            # W has components along the last two blocks, or after a restart along all: they are subtracted twice.
            for first in (0 if done == self.restarted else done - block, 0):
                coefficients = V[:, first:have].T @ W
                W -= V[:, first:have] @ coefficients
                T[first:have, done:have] += coefficients
            V[:, have : have + block], T[have : have + block, done:have] = _next_block(W, V[:, :have], self.rng)
            self.done = have

    def ritz(self) -> tuple[Float64Array, Float64Array]:
        """Return the eigenvalues of T, descending, and its eigenvectors."""
        head = self.T[: self.done, : self.done]
        values, S = np.linalg.eigh((head + head.T) / 2)
        return values[::-1], S[:, ::-1]

    def vectors(self, S: Float64Array) -> Float64Array:
        """Return V S."""
        return np.asarray(self.V[:, : self.done] @ S)

    def tail(self, S: Float64Array) -> Float64Array:
        """Return the components of A V S along the block after the last: the residuals of the Ritz vectors V S."""
        done, block = self.done, self.block
        return np.asarray(self.T[done : done + block, done - block : done] @ S[done - block : done])

    def restart(self, count: int) -> None:
        """Reduce the basis to its ``count`` leading Ritz vectors and the block after the last."""
        values, S = self.ritz()
        tail, block, done = self.tail(S), self.block, self.done
        self.V[:, :count] = self.vectors(S[:, :count])
        self.V[:, count : count + block] = self.V[:, done : done + block]
        self.T[:] = 0
        self.T[np.arange(count), np.arange(count)] = values[:count]
        self.T[count : count + block, :count] = tail[:, :count]
        self.done = self.restarted = count


def _orthonormal(W: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return Q, R with W = Q R, by Cholesky twice where W allows it: that is far faster than reflections."""
    Q, R = W, np.eye(W.shape[1])
    for _ in range(2):
        try:
            L = np.linalg.cholesky(Q.T @ Q)
        except np.linalg.LinAlgError:
            L = np.zeros_like(R)
        if L.diagonal().min() <= 1e-6 * L.diagonal().max():
            Q, R = np.linalg.qr(W)
            return Q, R
        Q, R = Q @ np.linalg.inv(L).T, L.T @ R
    return Q, R


def _next_block(W: Float64Array, V: Float64Array, rng: np.random.Generator) -> tuple[Float64Array, Float64Array]:
    """Return Q, R with W = Q R, Q orthonormal and orthogonal to V; random directions replace those that W lacks."""
    Q, R = _orthonormal(W)
    left, sizes, right = np.linalg.svd(R)
    lost = sizes < NEGLIGIBLE
    if not lost.any():
        return Q, R
    Q, R = Q @ left, sizes[:, None] * right
    R[lost] = 0
    known = np.concatenate([V, Q[:, ~lost]], axis=1)
    fresh = rng.standard_normal((len(W), int(lost.sum())))
    for _ in range(2):
        fresh = np.linalg.qr(fresh - known @ (known.T @ fresh))[0]
    Q[:, lost] = fresh
    return Q, R


def _one_is_missing(product: Operator, U: Float64Array, least: float, block: int) -> bool:
    """Return whether a short search orthogonal to U finds an eigenvalue above ``least``.

    A Krylov space contains as many copies of a repeated eigenvalue as its block has columns, and its residuals do not
    show that there are others.
    """
    rng = np.random.default_rng(1)
    V = rng.standard_normal((len(U), block))
    V = np.linalg.qr(V - U @ (U.T @ V))[0]
    basis = V
    for _ in range(5):
        W = product(np.ascontiguousarray(V))
        W -= U @ (U.T @ W)
        for _ in range(2):
            W -= basis @ (basis.T @ W)
        # A matrix of low rank has no more directions; what rounding leaves of them is not orthogonal to the others.
        left, sizes, _ = np.linalg.svd(W, full_matrices=False)
        V = left[:, sizes > NEGLIGIBLE]
        if not V.shape[1]:
            break
        V = np.linalg.qr(V - basis @ (basis.T @ V))[0]
        basis = np.concatenate([basis, V], axis=1)
    head = basis.T @ product(np.ascontiguousarray(basis))
    return bool(np.linalg.eigvalsh((head + head.T) / 2)[-1] > least)
