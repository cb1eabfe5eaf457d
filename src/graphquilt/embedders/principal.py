"""The principal directions of the rows of a matrix, with fixed signs."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import AnyArray, Float32Array, Float64Array
from graphquilt.linalg.lanczos import fixed_signs, leading_eigenpairs

__all__ = ["principal_directions"]

NEGLIGIBLE = 1e-6  # a direction with less than this share of the largest variance is rounding error
TOLERANCE = 1e-6  # of the eigenvectors, for a matrix of trace 1


def principal_directions(H: AnyArray, dim: int) -> tuple[Float32Array, Float32Array]:
    """Return the mean row (w,) and the leading principal directions (w, dim) of H (k, w).

    Columns beyond the rank are zero. The entry of largest magnitude of each direction is positive.

    Examples
    --------
    >>> mean, V = principal_directions(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 0.0]]), 2)
    >>> mean.tolist(), V.tolist()
    ([2.0, 0.0], [[1.0, 0.0], [0.0, 0.0]])
    """
    V = np.zeros((H.shape[1], dim), dtype=np.float32)
    if not len(H):
        return V[:, 0].copy(), V
    mean = H.mean(axis=0, dtype=np.float64).astype(np.float32)
    C = H.astype(np.float32) - mean
    tall = len(C) >= C.shape[1]
    # The smaller of both products: its eigenvectors are the directions, or give them.
    G = (C.T @ C if tall else C @ C.T).astype(np.float64)
    trace = float(np.trace(G))
    if not trace > 0:
        return mean, V

    def product(x: Float64Array) -> Float64Array:
        return np.asarray(G @ x) / trace

    values, U = leading_eigenpairs(product, len(G), min(dim, len(G)), tol=TOLERANCE)
    useful = values > NEGLIGIBLE * values[0]
    U = U[:, useful]
    if not tall:
        U = (C.T @ U) / np.sqrt(trace * values[useful])
    V[:, : U.shape[1]] = U * fixed_signs(U)
    return mean, V
