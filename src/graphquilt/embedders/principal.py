"""The principal directions of the rows of a matrix, with fixed signs, and a few rows that have nearly the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphquilt.arrays import AnyArray, Float32Array
from graphquilt.linalg.eigenpairs import fixed_signs

__all__ = ["leading_rows", "principal_directions"]

SPARE = 32  # rows of a sketch beyond the number of directions that are wanted
POWERS = 2  # of the sketch of a matrix
LARGE = 4  # a matrix with so many times the rows and columns of its sketch is sketched first
NEGLIGIBLE = 1e-6  # a direction with less than this share of the largest eigenvalue is rounding error


def leading_rows(
    times: Callable[[Float32Array], Float32Array],
    transposed_times: Callable[[Float32Array], Float32Array],
    Y: Float32Array,
    powers: int,
) -> Float32Array:
    """Return at most k rows B with B' B near H' H for a matrix H that is only known by its products, (k, w).

    Parameters
    ----------
    times, transposed_times : callable
        Return H V for V (w, b), and H' Q for Q (n, b).
    Y : (n, k) array
        H R with random R: what H makes large is large in Y (Halko, Martinsson and Tropp 2011, Algorithm 4.4).
    powers : int
        How often Y is multiplied by H H' first, which makes it nearer to the leading directions.

    Examples
    --------
    >>> H = np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]], dtype=np.float32)
    >>> B = leading_rows(lambda V: H @ V, lambda Q: H.T @ Q, H @ np.eye(2, dtype=np.float32), 1)
    >>> np.allclose(B.T @ B, H.T @ H, atol=1e-5)
    True
    """
    for _ in range(powers):
        Y = times(_orthonormal(transposed_times(_orthonormal(Y))))
    B: Float32Array = transposed_times(_orthonormal(Y)).T
    return B


def _orthonormal(Y: Float32Array) -> Float32Array:
    """Return orthonormal columns that span those of Y, up to what is rounding error."""
    values, U = np.linalg.eigh((Y.T @ Y).astype(np.float64))
    useful = values > NEGLIGIBLE * max(values.max(initial=0), np.finfo(np.float32).tiny)
    Q: Float32Array = Y @ (U[:, useful] / np.sqrt(values[useful])).astype(np.float32)
    return Q


def principal_directions(H: AnyArray, dim: int) -> Float32Array:
    """Return the leading right singular vectors of H (k, w), (w, dim); columns beyond the rank are zero.

    The entry of largest magnitude of each direction is positive. Those of a large matrix are those of a sketch of it.

    Examples
    --------
    >>> principal_directions(np.array([[-1.0, 0.0], [-2.0, 0.0]]), 2).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    H = H.astype(np.float32, copy=False)
    k = dim + SPARE
    if min(H.shape) > LARGE * k:
        R = np.random.default_rng(0).standard_normal((H.shape[1], k), dtype=np.float32)
        H = leading_rows(H.__matmul__, H.T.__matmul__, H @ R, POWERS)
    V = np.zeros((H.shape[1], dim), dtype=np.float32)
    tall = len(H) >= H.shape[1]
    # The eigenvectors of the smaller of both products are the directions, or give them.
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
