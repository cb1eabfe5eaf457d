"""The Laplacian of a small weighted graph (a patch graph), and linear systems in it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.errors import ConvergenceError
from graphquilt.linalg.systems import adjacency, conjugate_gradients, solve_grounded

__all__ = ["components", "laplacian", "solve_laplacian", "spanning_tree"]


DENSE_LIMIT = 1500  # up to this many vertices a dense factorisation is the fastest
CG_ITERATIONS = 400  # an expander needs tens; a long thin graph would need thousands, and its factors are sparse


def components(edges: npt.ArrayLike, n: int) -> Int64Array:
    """Return the component of each of ``n`` vertices joined by ``edges (m, 2)``, numbered from 0.

    Examples
    --------
    >>> components([[0, 2], [3, 1]], 4).tolist()
    [0, 1, 0, 1]
    """
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    A = sp.coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return np.asarray(sp.csgraph.connected_components(A, directed=False)[1], dtype=np.int64)


def laplacian(edges: Int64Array, weights: Float64Array, n: int) -> sp.csr_array:
    """Return ``D - W`` of ``n`` vertices joined by ``edges (m, 2)`` with positive ``weights (m,)``."""
    W = adjacency(edges, weights, n)
    return sp.csr_array(sp.diags_array(np.asarray(W.sum(axis=1)).ravel()) - W)


def spanning_tree(edges: Int64Array, weights: Float64Array, n: int) -> tuple[Int64Array, Int64Array]:
    """Return the vertices of a maximum spanning tree in breadth-first order, and their parents (-1 for vertex 0)."""
    A = sp.csr_array((-weights, (edges[:, 0], edges[:, 1])), shape=(n, n))
    tree = sp.csgraph.minimum_spanning_tree(A)
    order, parents = sp.csgraph.breadth_first_order(tree, 0, directed=False)
    return order.astype(np.int64), np.where(parents < 0, -1, parents).astype(np.int64)


def solve_laplacian(
    edges: Int64Array, weights: Float64Array, rhs: npt.ArrayLike, *, n: int, tol: float = 1e-13
) -> Float64Array:
    """Solve ``L x = rhs`` for a connected graph, where every column of ``rhs (n, c)`` and of ``x`` sums to 0.

    The matrix of a small graph is factorised densely. A larger system is solved by conjugate gradients, which takes
    tens of steps on a well connected graph. Where it takes more, the graph is long and thin, and a sparse factorisation
    is cheap.

    Examples
    --------
    >>> import numpy as np
    >>> solve_laplacian(np.array([[0, 1]]), np.array([2.0]), [[4.0], [-4.0]], n=2).ravel().tolist()
    [1.0, -1.0]
    """
    b = np.asarray(rhs, dtype=np.float64).reshape(n, -1)
    L = laplacian(edges, weights, n)
    if n <= DENSE_LIMIT:
        # The constant vector spans the null space. Adding its projector, scaled like L, makes the matrix definite and
        # does not change the solution.
        x = _dense_solve(L.toarray() + weights.mean() / n, b)
    else:
        x, reached = conjugate_gradients(L, b - b.mean(axis=0), tol=tol, max_iterations=CG_ITERATIONS)
        if reached > 100 * tol:
            x = solve_grounded(L, b, np.zeros(n, dtype=np.int64))
        residual = float(np.linalg.norm(L @ x - b) / (np.linalg.norm(b) or 1.0))
        if residual > 1e-8:
            raise ConvergenceError(
                f"the Laplacian system of {n} vertices was solved to a relative residual of {residual:.1e} only; its "
                f"weights span {weights.min():.1e} to {weights.max():.1e}. Make them less extreme.",
                residual=residual,
            )
    return np.asarray(x - x.mean(axis=0))


def _dense_solve(A: Float64Array, b: Float64Array) -> Float64Array:
    from scipy.linalg import cho_factor, cho_solve

    return np.asarray(cho_solve(cho_factor(A, overwrite_a=True), b))
