"""Weighted graphs as sparse matrices, and the solvers of linear systems in their Laplacians."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import Float64Array, Int64Array

__all__ = ["adjacency", "conjugate_gradients", "solve_grounded"]


def adjacency(edges: Int64Array, weights: Float64Array, n: int) -> sp.csr_array:
    """Return the symmetric weighted adjacency matrix (n, n) of ``edges (m, 2)``, each given once.

    Examples
    --------
    >>> adjacency(np.array([[0, 1]]), np.array([2.0]), 2).toarray().tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    i, j = edges.T
    return sp.csr_array((np.r_[weights, weights], (np.r_[i, j], np.r_[j, i])), shape=(n, n))


def conjugate_gradients(
    L: sp.csr_array, rhs: Float64Array, *, tol: float, max_iterations: int
) -> tuple[Float64Array, float]:
    """Run one Jacobi-preconditioned conjugate gradient iteration per column of ``rhs (n, c)``, all at the same time.

    Parameters
    ----------
    L : sparse array (n, n)
        A Laplacian. Rows of zeros are vertices without edges.
    rhs : float array (n, c)
        Each column sums to 0 over each component of the graph.
    tol : float
        The relative residual of every column at which to stop.

    Returns
    -------
    x : float array (n, c)
    residual : float
        The largest relative residual of a column, as the iteration tracks it; it is for the caller to judge it.

    Examples
    --------
    >>> L = sp.csr_array(np.array([[2.0, -2.0], [-2.0, 2.0]]))
    >>> conjugate_gradients(L, np.array([[4.0], [-4.0]]), tol=1e-12, max_iterations=5)[0].ravel().tolist()
    [1.0, -1.0]
    """
    diagonal = L.diagonal()[:, None]
    inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    norms = np.maximum(np.linalg.norm(rhs, axis=0), np.finfo(float).tiny)
    x, r = np.zeros_like(rhs), rhs.copy()
    direction = inverse * r
    rz = np.sum(r * direction, axis=0)
    residual = 1.0
    for _ in range(max_iterations):
        image = L @ direction
        step = _ratio(rz, np.sum(direction * image, axis=0))
        x += step * direction
        r -= step * image
        residual = float((np.linalg.norm(r, axis=0) / norms).max(initial=0.0))
        if residual <= tol:
            break
        z = inverse * r
        previous, rz = rz, np.sum(r * z, axis=0)
        direction = z + _ratio(rz, previous) * direction
    return x, residual


def _ratio(numerator: Float64Array, denominator: Float64Array) -> Float64Array:
    """Return the ratio of each column, 0 where the column is solved and the denominator is 0."""
    return np.asarray(np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0))


def solve_grounded(L: sp.csr_array, rhs: Float64Array, component: Int64Array) -> Float64Array:
    """Solve ``L x = rhs (n, c)`` by a sparse factorisation, with the first vertex of each component fixed at 0.

    Examples
    --------
    >>> L = sp.csr_array(np.array([[2.0, -2.0], [-2.0, 2.0]]))
    >>> solve_grounded(L, np.array([[4.0], [-4.0]]), np.zeros(2, dtype=np.int64)).ravel().tolist()
    [0.0, -2.0]
    """
    from scipy.sparse.linalg import splu

    _, first = np.unique(component, return_index=True)
    free = np.setdiff1d(np.arange(len(component)), first)
    x = np.zeros_like(rhs)
    if len(free):
        factor = splu(
            sp.csc_array(L[free][:, free]),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        x[free] = factor.solve(rhs[free])
    return x
