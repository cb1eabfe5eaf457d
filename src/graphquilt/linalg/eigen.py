"""The lowest eigenvectors of a symmetric operator, by block Rayleigh-Ritz with a preconditioner (LOBPCG).

The operator is any function on tall matrices. The basis of each step is the current block, its preconditioned
residual and the previous step, kept orthonormal throughout: the step back is orthogonalised in the small space of
coefficients (Hetmaniuk and Lehoucq 2006), so the tall matrices are touched as little as possible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from graphquilt.arrays import Float64Array, FloatArray

__all__ = ["Eigenpairs", "lowest_eigenpairs", "orthonormalize"]

Operator = Callable[[FloatArray, FloatArray], None]

WELL_CONDITIONED = 0.03  # a Gram matrix with no smaller ratio of eigenvalues needs no second pass
STRAY = 100  # times the precision: how much of a basis may be left in what is orthogonal to it
ROWS = 8192  # tall matrices are changed in place, this many rows at a time


class Eigenpairs(NamedTuple):
    """``values (c,)`` ascending, orthonormal ``vectors (n, c)``, the residual norms ``(c,)`` and the steps taken."""

    values: Float64Array
    vectors: FloatArray
    residuals: Float64Array
    iterations: int


def orthonormalize(block: FloatArray) -> int:
    """Make the columns of ``block (n, c)`` orthonormal in place and return how many there are.

    Columns that depend on others are dropped: the first k of the block are the basis, the rest is left over.

    Examples
    --------
    >>> import numpy as np
    >>> block = np.array([[3.0, 6.0], [4.0, 8.0]])
    >>> orthonormalize(block), abs(block[:, 0]).round(3).tolist()
    (1, [0.6, 0.8])
    """
    k = block.shape[1]
    for _ in range(2):
        part = block[:, :k]
        gram = (part.T @ part).astype(np.float64)
        norms = np.sqrt(np.diag(gram))
        scale = np.divide(1.0, norms, out=np.zeros(k), where=norms > 0)
        values, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
        # A Gram matrix squares the condition: what lies below the root of the precision is noise.
        sound = values > k * np.finfo(block.dtype).eps * values.max(initial=0.0)
        k = _combine(part, scale[:, None] * vectors[:, sound] / np.sqrt(values[sound]))
        if values.min(initial=1.0) > WELL_CONDITIONED * values.max(initial=0.0):
            break
    return int(k)


def lowest_eigenpairs(
    operator: Operator,
    start: FloatArray,
    *,
    preconditioner: Callable[[FloatArray], None],
    deflate: FloatArray | None = None,
    tol: float,
    max_iterations: int = 100,
    stop: Callable[[Float64Array, Float64Array], bool] | None = None,
) -> Eigenpairs:
    """Find as many of the lowest eigenpairs as ``start (n, c)`` has columns.

    Beside two blocks of three times the size of ``start``, for the basis and its image, nothing tall is allocated.

    Parameters
    ----------
    operator : function of (X, out)
        Writes the symmetric operator applied to ``X (n, k)`` into ``out (n, k)``.
    preconditioner : function of R
        Replaces residuals ``R (n, k)`` by an approximate inverse applied to them, in place.
    start : array (n, c)
        A guess; its precision is the precision of the iteration.
    deflate : array (n, k), optional
        Orthonormal vectors to stay orthogonal to.
    tol : float
        Stop when every residual norm is at most this.
    stop : function of (values, residuals), optional
        A further reason to stop.

    Returns
    -------
    Eigenpairs
        With the residuals reached; it is for the caller to judge them.

    Examples
    --------
    >>> import numpy as np
    >>> diagonal = np.arange(1.0, 30.0)[:, None]
    >>> def apply(X, out):
    ...     out[:] = diagonal * X
    >>> def invert(R):
    ...     R /= diagonal
    >>> start = np.random.default_rng(0).normal(size=(29, 2))
    >>> lowest_eigenpairs(apply, start, preconditioner=invert, tol=1e-9).values.round(6).tolist()
    [1.0, 2.0]
    """
    n, c = start.shape
    width = c if max_iterations == 0 else 3 * c
    basis, image = np.empty((n, width), dtype=start.dtype), np.empty((n, width), dtype=start.dtype)
    X, AX = basis[:, :c], image[:, :c]
    X[:] = start
    _remove(X, deflate)
    if orthonormalize(X) < c:
        raise ValueError("the columns of the starting block depend on each other")
    operator(X, AX)
    values, turn = _ritz(X.T @ AX)
    _combine(X, turn)
    _combine(AX, turn)
    known, iterations = np.diag(values), 0
    while True:
        residuals = _residuals(X, AX, values)
        done = bool(residuals.max(initial=0.0) <= tol) or iterations == max_iterations
        if done or (stop is not None and stop(values, residuals)):
            return Eigenpairs(values, X if width == c else X.copy(), residuals, iterations)
        iterations += 1
        k = len(known)
        W = basis[:, k : k + c]
        _residual_into(W, X, AX, values)
        preconditioner(W)
        total = k + _new_directions(W, basis[:, :k], deflate)
        operator(basis[:, k:total], image[:, k:total])
        border = (basis[:, :total].T @ image[:, k:total]).astype(np.float64)
        small = np.block([[known, border[:k]], [border[:k].T, border[k:]]])
        values, vectors = _ritz(small)
        values, coefficients = values[:c], _with_the_step_back(vectors[:, :c], c)
        known = coefficients.T @ small @ coefficients
        _combine(basis[:, :total], coefficients)
        _combine(image[:, :total], coefficients)


def _new_directions(W: FloatArray, basis: FloatArray, deflate: FloatArray | None) -> int:
    """Make ``W`` orthonormal to the ``basis`` and in itself, in place; return how many columns are left."""
    _remove(W, deflate)
    _remove(W, basis)
    k = orthonormalize(W)
    # Where the step lies nearly in the block, scaling it up has scaled up what was left of the block in it: without
    # a second pass the basis is no longer orthonormal and the Ritz values fall below the spectrum.
    if np.abs(basis.T @ W[:, :k]).max(initial=0.0) > STRAY * np.finfo(W.dtype).eps:
        _remove(W[:, :k], deflate)
        _remove(W[:, :k], basis)
        k = orthonormalize(W[:, :k])
    return k


def _with_the_step_back(C: Float64Array, c: int) -> Float64Array:
    """Add to the coefficients ``C`` of the new block those of the step to it, orthonormal to them."""
    back = C.copy()
    back[:c] = 0
    for _ in range(2):
        back -= C @ (C.T @ back)
    return np.hstack([C, back[:, : orthonormalize(back)]])


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


def _residual_into(out: FloatArray, X: FloatArray, AX: FloatArray, values: Float64Array) -> None:
    for start in range(0, len(X), ROWS):
        rows = slice(start, start + ROWS)
        out[rows] = AX[rows] - X[rows] * values.astype(X.dtype)


def _residuals(X: FloatArray, AX: FloatArray, values: Float64Array) -> Float64Array:
    squares = np.zeros(len(values))
    for start in range(0, len(X), ROWS):
        rows = slice(start, start + ROWS)
        squares += ((AX[rows] - X[rows] * values.astype(X.dtype)) ** 2).sum(axis=0)
    return np.sqrt(squares)


def _ritz(small: FloatArray) -> tuple[Float64Array, Float64Array]:
    symmetric = (small.astype(np.float64) + small.T) / 2
    values, vectors = np.linalg.eigh(symmetric)
    return values, vectors
