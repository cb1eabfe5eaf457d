"""Leading eigenvectors and singular vectors with the trivial ones taken out, in a fixed order and with fixed signs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.errors import ConvergenceError

__all__ = ["fixed_signs", "leading_eigenpairs"]

FloatArray = npt.NDArray[np.float64]

# Below this many rows, or when a large share of all vectors is wanted, a dense solver is the faster one.
DENSE_ROWS = 1000


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


def leading_eigenpairs(
    product: Callable[[FloatArray], FloatArray], n: int, k: int, *, tol: float = 1e-10
) -> tuple[FloatArray, FloatArray]:
    """Return the k algebraically largest eigenvalues, descending, and their vectors (n, k), of a symmetric operator.

    Parameters
    ----------
    product : callable
        Multiplies an (n, c) array by the operator.
    """
    if n <= DENSE_ROWS or 3 * k >= n:
        from scipy.linalg import eigh

        G = product(np.eye(n))
        values, U = eigh((G + G.T) / 2, subset_by_index=(n - k, n - 1))
    else:
        values, U = _lanczos(product, n, k, tol)
    order = np.argsort(-values, kind="stable")
    U = np.ascontiguousarray(U[:, order])
    return values[order], U * fixed_signs(U)


def _lanczos(product: Callable[[FloatArray], FloatArray], n: int, k: int, tol: float) -> tuple[FloatArray, FloatArray]:
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    def once(x: npt.NDArray[Any]) -> FloatArray:
        return product(x.reshape(n, -1)).reshape(x.shape)

    start = np.random.default_rng(0).standard_normal(n)
    try:
        values, U = eigsh(LinearOperator((n, n), matvec=once, dtype=np.float64), k=k, which="LA", v0=start, tol=tol)
    except ArpackNoConvergence as stopped:
        raise ConvergenceError(
            f"the eigensolver found {len(stopped.eigenvalues)} of {k} vectors of a matrix of {n} rows; "
            "ask for fewer dimensions.",
            residual=float("nan"),
        ) from stopped
    return values, U
