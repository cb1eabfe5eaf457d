"""The Laplacian of a weighted graph, and linear systems in it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.errors import ConvergenceError

DENSE_LIMIT = 1500  # up to this many vertices a dense factorisation is the fastest
CG_ITERATIONS = 400  # an expander needs tens; a long thin graph would need thousands, and its factors are sparse


def components(edges: npt.ArrayLike, n: int) -> Int64Array:
    """Return the component of each of ``n`` vertices joined by ``edges (m, 2)``, numbered from 0."""
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    A = sp.coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return np.asarray(sp.csgraph.connected_components(A, directed=False)[1], dtype=np.int64)


def adjacency(edges: Int64Array, weights: Float64Array, n: int) -> sp.csr_array:
    """Return the symmetric weighted adjacency matrix (n, n) of ``edges (m, 2)``, each given once."""
    i, j = edges.T
    return sp.csr_array((np.r_[weights, weights], (np.r_[i, j], np.r_[j, i])), shape=(n, n))


def laplacian(edges: Int64Array, weights: Float64Array, n: int) -> sp.csr_array:
    """Return ``D - W`` of ``n`` vertices joined by ``edges (m, 2)`` with positive ``weights (m,)``."""
    W = adjacency(edges, weights, n)
    return sp.csr_array(sp.diags_array(np.asarray(W.sum(axis=1)).ravel()) - W)


def spanning_tree(edges: Int64Array, weights: Float64Array, n: int) -> tuple[Int64Array, Int64Array]:
    """Return the vertices of a maximum spanning tree in breadth-first order, and their parents (-1 for vertex 0)."""
    A = sp.csr_array((-weights, tuple(edges.T.astype(np.int32))), shape=(n, n))  # SciPy's trees take no other type
    tree = sp.csgraph.minimum_spanning_tree(A)
    order, parents = sp.csgraph.breadth_first_order(tree, 0, directed=False)
    return order.astype(np.int64), np.where(parents < 0, -1, parents).astype(np.int64)


def solve_laplacian(edges: Int64Array, weights: Float64Array, rhs: npt.ArrayLike, *, n: int) -> Float64Array:
    """Solve ``L x = rhs`` for a connected graph, where every column of ``rhs (n, c)`` and of ``x`` sums to 0."""
    from scipy.linalg import cho_factor, cho_solve

    b = np.asarray(rhs, dtype=np.float64).reshape(n, -1)
    L = laplacian(edges, weights, n)
    if n <= DENSE_LIMIT:
        # Adding the projector on the null space (the constant vector) makes the matrix definite and keeps the solution.
        x = cho_solve(cho_factor(L.toarray() + weights.mean() / n, overwrite_a=True), b)
    else:
        x, reached = conjugate_gradients(L, b - b.mean(axis=0), tol=1e-13, max_iterations=CG_ITERATIONS)
        if reached > 1e-11:
            x = solve_grounded(L, b, np.zeros(n, dtype=np.int64))
        residual = float(np.linalg.norm(L @ x - b) / (np.linalg.norm(b) or 1.0))
        if residual > 1e-8:
            raise ConvergenceError(
                f"the Laplacian system of {n} vertices was solved to a relative residual of {residual:.1e} only; its "
                f"weights span {weights.min():.1e} to {weights.max():.1e}. Make them less extreme.",
                residual=residual,
            )
    return np.asarray(x - x.mean(axis=0))


def conjugate_gradients(
    L: sp.csr_array, rhs: Float64Array, *, tol: float, max_iterations: int
) -> tuple[Float64Array, float]:
    """Run one Jacobi-preconditioned conjugate gradient iteration per column of ``rhs (n, c)``, all at the same time.

    L is a Laplacian (n, n), and each column of ``rhs`` sums to 0 over each component of its graph. Returns the solution
    (n, c) and the largest relative residual reached, which may be above ``tol``.
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
    """Solve ``L x = rhs (n, c)`` by a sparse factorisation, with the first vertex of each component fixed at 0."""
    from scipy.sparse.linalg import splu

    _, first = np.unique(component, return_index=True)
    free = np.setdiff1d(np.arange(len(component)), first)
    x = np.zeros_like(rhs)
    if len(free):
        A, symmetric = sp.csc_array(L[free][:, free]), {"SymmetricMode": True}
        factor = splu(A, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=symmetric)
        x[free] = factor.solve(rhs[free])
    return x
