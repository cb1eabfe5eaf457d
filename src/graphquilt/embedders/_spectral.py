"""Leading eigenvectors of a symmetric operator, in a fixed order and with fixed signs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from graphquilt.errors import ConvergenceError

__all__ = ["block_lanczos", "fixed_signs", "leading_eigenpairs"]

FloatArray = npt.NDArray[np.float64]
Operator = Callable[[FloatArray], FloatArray]

# Below this many rows, or when a large share of all vectors is wanted, a dense solver is the faster one.
DENSE_ROWS = 1000
# Columns multiplied at once. An eigenvalue of higher multiplicity than this is found by starting again with more.
BLOCKS = (32, 128, 512)
MAX_RESTARTS = 200
# A direction shorter than this is rounding error.
NEGLIGIBLE = 1e-12


def fixed_signs(U: FloatArray) -> FloatArray:
    """Return the sign, ±1, to give each column of U so that its entry of largest magnitude is positive.

    Of several entries that are largest to six digits the first decides, so that rounding does not.

    Examples
    --------
    >>> fixed_signs(np.array([[1.0, 0.5], [-2.0, -0.5]])).tolist()
    [-1.0, 1.0]
    """
    size = np.abs(U)
    first = np.argmax(size >= (1 - 1e-6) * size.max(axis=0), axis=0)
    chosen = U[first, np.arange(U.shape[1])]
    return np.where(chosen < 0, -1.0, 1.0)


def leading_eigenpairs(product: Operator, n: int, k: int, *, tol: float = 1e-9) -> tuple[FloatArray, FloatArray]:
    """Return the k algebraically largest eigenvalues, descending, and their vectors (n, k), of a symmetric operator.

    Parameters
    ----------
    product : callable
        Multiplies an (n, c) array by the operator, whose norm is about 1.
    tol : float
        The largest residual norm of an eigenpair.

    Examples
    --------
    >>> values, U = leading_eigenpairs(lambda x: np.array([[2.0, 0.0], [0.0, 3.0]]) @ x, 2, 1)
    >>> values.tolist(), U.tolist()
    ([3.0], [[0.0], [1.0]])
    """
    if n <= DENSE_ROWS or 3 * k >= n:
        from scipy.linalg import eigh

        G = product(np.eye(n))
        values, U = eigh((G + G.T) / 2, subset_by_index=(n - k, n - 1))
        values, U = values[::-1], np.ascontiguousarray(U[:, ::-1])
        return values, U * fixed_signs(U) + 0.0
    for block in BLOCKS:
        values, U = block_lanczos(product, n, k, tol=tol, block=block)
        if not _one_is_missing(product, U, float(values[-1]) + 100 * tol, block):
            return values, U * fixed_signs(U)
    raise ConvergenceError(
        f"an eigenvalue of this matrix of {n} rows repeats more than {BLOCKS[-1]} times, and {k} leading vectors are "
        "not defined by it. Ask for fewer dimensions, or embed each component by itself.",
        residual=float("nan"),
    )


def block_lanczos(
    product: Operator, n: int, k: int, *, tol: float = 1e-9, block: int = 32
) -> tuple[FloatArray, FloatArray]:
    """Return what :func:`leading_eigenpairs` does, by a block Lanczos method with thick restarts.

    A basis of about 2k vectors grows by a block at a time, each orthogonalised against all others, and is then cut
    down to its best Ritz vectors. All work is matrix times matrix, which is what makes it faster than one vector at a
    time. The start is random with a fixed seed.
    """
    rng = np.random.default_rng(0)
    size = 2 * k + 2 * block
    V = np.empty((n, size + block), order="F")
    T = np.zeros((size + block, size + block))
    V[:, :block] = np.linalg.qr(rng.standard_normal((n, block)))[0]
    done = kept = 0
    residual = np.inf
    for _ in range(MAX_RESTARTS):
        while done + block <= size:
            have = done + block
            W = product(np.ascontiguousarray(V[:, done:have]))
            # W leans on the last two blocks, or after a restart on all of them: what it leans on is subtracted twice.
            for first in (0 if done == kept else done - block, 0):
                coefficients = V[:, first:have].T @ W
                W -= V[:, first:have] @ coefficients
                T[first:have, done:have] += coefficients
            V[:, have : have + block], T[have : have + block, done:have] = _next_block(W, V[:, :have], rng)
            done = have
        head = T[:done, :done]
        values, S = np.linalg.eigh((head + head.T) / 2)
        values, S = values[::-1], S[:, ::-1]
        tail = T[done : done + block, done - block : done] @ S[done - block : done]
        residual = float(np.linalg.norm(tail[:, :k], axis=0).max())
        if residual <= tol:
            return values[:k], V[:, :done] @ S[:, :k]
        kept = k + (size - k) // 4
        V[:, :kept] = V[:, :done] @ S[:, :kept]
        V[:, kept : kept + block] = V[:, done : done + block]
        T[:] = 0
        T[np.arange(kept), np.arange(kept)] = values[:kept]
        T[kept : kept + block, :kept] = tail[:, :kept]
        done = kept
    raise ConvergenceError(
        f"the eigensolver reached a residual of {residual:.1e} in {MAX_RESTARTS} restarts and was to reach {tol:.0e}, "
        f"for {k} vectors of a matrix of {n} rows. Ask for fewer dimensions.",
        residual=residual,
    )


def _next_block(W: FloatArray, V: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return Q, R with W = Q R, Q orthonormal and orthogonal to V; a direction that W lacks is made up."""
    Q, R = np.linalg.qr(W)
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


def _one_is_missing(product: Operator, U: FloatArray, least: float, block: int) -> bool:
    """Return whether a short search away from U meets an eigenvalue above ``least``.

    A Krylov space holds as many copies of a repeated eigenvalue as its block has columns, and its residuals do not
    tell of others.
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
        # A matrix of low rank runs out of directions; what rounding leaves of them is not orthogonal to the others.
        left, sizes, _ = np.linalg.svd(W, full_matrices=False)
        V = left[:, sizes > NEGLIGIBLE]
        if not V.shape[1]:
            break
        V = np.linalg.qr(V - basis @ (basis.T @ V))[0]
        basis = np.concatenate([basis, V], axis=1)
    head = basis.T @ product(basis)
    return bool(np.linalg.eigvalsh((head + head.T) / 2)[-1] > least)
