"""The lowest eigenvectors of a symmetric operator, by block Rayleigh-Ritz with a preconditioner (LOBPCG).

The operator is any function on tall matrices. The basis of each step is the current block, its preconditioned
residual and the previous step, kept orthonormal throughout: the step back is orthogonalised in the small space of
coefficients (Hetmaniuk and Lehoucq 2006), so the tall matrices are touched as little as possible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Eigenpairs", "lowest_eigenpairs", "orthonormal"]

Block = npt.NDArray[np.floating[Any]]
Operator = Callable[[Block], Block]

WELL_CONDITIONED = 0.03  # a Gram matrix with no smaller ratio of eigenvalues needs no second pass


class Eigenpairs(NamedTuple):
    """``values (c,)`` ascending, orthonormal ``vectors (n, c)``, the residual norms ``(c,)`` and the steps taken."""

    values: npt.NDArray[np.float64]
    vectors: Block
    residuals: npt.NDArray[np.float64]
    iterations: int


def orthonormal(block: Block) -> Block:
    """Return an orthonormal basis of the columns of ``block (n, c)``; columns that depend on others are dropped.

    Examples
    --------
    >>> import numpy as np
    >>> orthonormal(np.array([[3.0, 6.0], [4.0, 8.0]])).round(3).tolist()
    [[0.6], [0.8]]
    """
    norms = np.linalg.norm(block, axis=0)
    keep = norms > 0
    basis = block[:, keep] / norms[keep]
    for _ in range(2):
        values, vectors = np.linalg.eigh((basis.T @ basis).astype(np.float64))
        # A Gram matrix squares the condition: what lies below the root of the precision is noise.
        sound = values > len(values) * np.finfo(block.dtype).eps * values.max(initial=0.0)
        basis = basis @ (vectors[:, sound] / np.sqrt(values[sound])).astype(block.dtype)
        if values.min(initial=1.0) > WELL_CONDITIONED * values.max(initial=0.0):
            break
    return np.asarray(basis)


def lowest_eigenpairs(
    operator: Operator,
    start: Block,
    *,
    preconditioner: Operator,
    deflate: Block | None = None,
    tol: float,
    max_iterations: int = 100,
    stop: Callable[[npt.NDArray[np.float64], npt.NDArray[np.float64]], bool] | None = None,
) -> Eigenpairs:
    """Find as many of the lowest eigenpairs as ``start (n, c)`` has columns.

    Parameters
    ----------
    operator, preconditioner : functions of a block (n, k)
        The symmetric operator, and an approximation of its inverse on residuals.
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
    >>> A = np.diag(np.arange(1.0, 30.0))
    >>> start = np.random.default_rng(0).normal(size=(29, 2))
    >>> inverse = np.linalg.inv(A)
    >>> pairs = lowest_eigenpairs(lambda X: A @ X, start, preconditioner=lambda X: inverse @ X, tol=1e-9)
    >>> pairs.values.round(6).tolist()
    [1.0, 2.0]
    """
    c = start.shape[1]
    X = orthonormal(_without(start, deflate))
    AX = operator(X)
    values, rotation = _ritz(X.T @ AX)
    X, AX = X @ rotation, AX @ rotation
    XP, AXP, known = X, AX, np.diag(values)
    iterations = 0
    while True:
        R = AX - X * values.astype(X.dtype)
        residuals = np.linalg.norm(R, axis=0).astype(np.float64)
        done = bool(residuals.max(initial=0.0) <= tol) or iterations == max_iterations
        if done or (stop is not None and stop(values, residuals)):
            return Eigenpairs(values, X, residuals, iterations)
        iterations += 1
        W = orthonormal(_without(_without(preconditioner(R), deflate), XP))
        # Where the step lies nearly in the block, scaling it up has scaled up what was left of the block in it: without
        # a second pass the basis is no longer orthonormal and the Ritz values fall below the spectrum.
        W = orthonormal(_without(W, XP))
        basis, image = np.hstack([XP, W]), np.hstack([AXP, operator(W)])
        border = basis.T @ image[:, XP.shape[1] :]
        corner = len(known)
        small = np.block([[known, border[:corner]], [border[:corner].T, border[corner:]]])
        values, vectors = _ritz(small)
        values, C = values[:c], vectors[:, :c]
        back = C.copy()
        back[:c] = 0
        back = orthonormal(_without(_without(back, C), C))
        coefficients = np.hstack([C, back])
        known = (coefficients.T @ small @ coefficients).astype(np.float64)
        XP, AXP = basis @ coefficients.astype(X.dtype), image @ coefficients.astype(X.dtype)
        X, AX = XP[:, :c], AXP[:, :c]


def _without(block: Block, basis: Block | None) -> Block:
    """Remove from ``block`` its part in the span of the orthonormal ``basis``."""
    return block if basis is None or basis.shape[1] == 0 else block - basis @ (basis.T @ block)


def _ritz(small: Block) -> tuple[npt.NDArray[np.float64], Block]:
    symmetric = (small.astype(np.float64) + small.T) / 2
    values, vectors = np.linalg.eigh(symmetric)
    return values, vectors.astype(small.dtype)
