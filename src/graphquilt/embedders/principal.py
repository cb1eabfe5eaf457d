"""The principal directions of the rows of a matrix, with fixed signs."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import AnyArray, Float32Array
from graphquilt.linalg.eigenpairs import fixed_signs

__all__ = ["principal_directions"]

NEGLIGIBLE = 1e-6  # a direction with less than this share of the largest eigenvalue is rounding error


def principal_directions(H: AnyArray, dim: int) -> Float32Array:
    """Return the leading right singular vectors of H (k, w), (w, dim); columns beyond the rank are zero.

    The entry of largest magnitude of each direction is positive.

    Examples
    --------
    >>> principal_directions(np.array([[-1.0, 0.0], [-2.0, 0.0]]), 2).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    H = H.astype(np.float32, copy=False)
    V = np.zeros((H.shape[1], dim), dtype=np.float32)
    tall = len(H) >= H.shape[1]
    # The smaller of both products has at most some 2000 rows; its eigenvectors are the directions, or give them.
    G = (H.T @ H if tall else H @ H.T).astype(np.float64)
    k = min(dim, len(G))
    if not k or not G.any():
        return V
    from scipy.linalg import eigh

    values, U = eigh(G, subset_by_index=(len(G) - k, len(G) - 1))
    values, U = values[::-1], U[:, ::-1]
    useful = values > NEGLIGIBLE * values[0]
    U = U[:, useful]
    if not tall:
        U = (H.T @ U) / np.sqrt(values[useful])
    V[:, : U.shape[1]] = U * fixed_signs(U)
    return V
