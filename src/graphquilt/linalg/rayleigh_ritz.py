"""The lowest eigenvectors of a symmetric operator, by a preconditioned block Rayleigh-Ritz iteration (LOBPCG).

The operator A is any function on tall matrices. Each step minimises the trace of ``Y.T @ A @ Y`` over all orthonormal
``Y (n, c)`` in the span of three blocks: the current vectors X, their preconditioned residuals W, and the direction P
of the step before. P adds what conjugate gradients add to steepest descent: the number of steps grows with the square
root of the condition number, not with the condition number (Knyazev 2001).

The textbook form loses its accuracy near convergence, where X, W and P are nearly dependent. Here the whole basis stays
orthonormal. P is made orthogonal to X in the small space of coefficients (Hetmaniuk and Lehoucq 2006), which costs no
product of tall matrices. W is orthogonalised against the rest, a second time where that is needed, and columns that
depend on others are dropped (Duersch, Shao, Yang and Gu 2018).

References
----------
A. V. Knyazev, Toward the optimal preconditioned eigensolver: locally optimal block preconditioned conjugate gradient
method. SIAM J. Sci. Comput. 23 (2001) 517-541.
U. Hetmaniuk and R. Lehoucq, Basis selection in LOBPCG. J. Comput. Phys. 218 (2006) 324-332.
J. A. Duersch, M. Shao, C. Yang and M. Gu, A robust and efficient implementation of LOBPCG. SIAM J. Sci. Comput. 40
(2018) C655-C676.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from graphquilt.arrays import Float64Array, FloatArray

Operator = Callable[[FloatArray, FloatArray], None]
Preconditioner = Callable[[FloatArray, Float64Array], None]

WELL_CONDITIONED = 0.03  # a Gram matrix whose smallest and largest eigenvalue have no smaller ratio needs one pass only
STRAY = 100  # times the precision: the largest product allowed of vectors that should be orthogonal
ROWS = 8192  # tall matrices are changed in place, this many rows at a time
PROGRESS = 0.5  # the factor by which residuals must fall within the patience of the caller


class Eigenpairs(NamedTuple):
    """``values (c,)`` ascending, orthonormal ``vectors (n, c)``, the residual norms ``(c,)`` and the steps taken."""

    values: Float64Array
    vectors: FloatArray
    residuals: Float64Array
    iterations: int


def orthonormalise(block: FloatArray) -> int:
    """Make the columns of ``block (n, c)`` orthonormal in place and return the number k of independent ones.

    The first k columns become an orthonormal basis of the span of the block; the others then hold nothing of use. The
    basis comes from the eigenvectors of the Gram matrix, which also works where columns depend on each other.
    """
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
    operator: Operator,
    start: FloatArray,
    *,
    preconditioner: Preconditioner,
    deflate: FloatArray | None = None,
    tol: float,
    max_iterations: int = 100,
    stop: Callable[[Float64Array, Float64Array], bool] | None = None,
    patience: int | None = None,
) -> Eigenpairs:
    """Find the c lowest eigenpairs from a guess ``start (n, c)``; residuals may be larger than ``tol``.

    ``operator(X, out)`` writes the symmetric operator applied to ``X (n, k)`` into ``out``, and ``preconditioner(R,
    values)`` applies an approximate inverse to the residuals ``R (n, c)`` in place. The iteration has the precision of
    ``start`` and stays orthogonal to the known eigenvectors ``deflate (n, k)``. It stops when every residual norm is at
    most ``tol``, when ``stop(values, residuals)`` says so, or when ``patience`` steps did not halve the largest one.
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
        done = history[-1] <= tol or len(history) > max_iterations or _stagnates(history, patience)
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
    operator: Operator, start: FloatArray, *, out: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, Float64Array]:
    """Return the Ritz vectors of the span of ``start (n, c)``, the operator times these, and the Ritz values (c,).

    With memory ``out (n, c)`` for the second, the first take the place of ``start``. Columns that depend on others are
    replaced by random ones.
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


def _ritz_values(operator: Operator, X: FloatArray, AX: FloatArray, *, orthonormal: bool = False) -> Float64Array:
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


def _stagnates(history: list[float], patience: int | None) -> bool:
    """Return whether the last ``patience`` entries of ``history`` are not much better than those before."""
    if patience is None or len(history) <= patience:
        return False
    # The smallest entries are compared, because the residuals of a converging iteration do not fall in every step.
    return min(history[-patience:]) > PROGRESS * min(history[:-patience])


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
    for start in range(0, len(block), ROWS):
        rows = block[start : start + ROWS]
        rows[:, : C.shape[1]] = rows @ C
    return int(C.shape[1])


def _remove(block: FloatArray, basis: FloatArray | None) -> None:
    """Remove from ``block`` its part in the span of the orthonormal ``basis``, in place."""
    if basis is None or basis.shape[1] == 0:
        return
    share = basis.T @ block
    for start in range(0, len(block), ROWS):
        rows = slice(start, start + ROWS)
        block[rows] -= basis[rows] @ share


def _residual_rows(X: FloatArray, AX: FloatArray, values: Float64Array) -> Iterator[tuple[slice, FloatArray]]:
    """Yield the residuals ``AX - X * values`` of some rows at a time, with those rows."""
    for start in range(0, len(X), ROWS):
        rows = slice(start, start + ROWS)
        yield rows, AX[rows] - X[rows] * values.astype(X.dtype)


def _ritz(small: FloatArray) -> tuple[Float64Array, Float64Array]:
    """Return the eigenvalues and eigenvectors of the projected operator, always in double precision."""
    values, vectors = np.linalg.eigh((small.astype(np.float64) + small.T) / 2)
    return values, vectors
