"""Effective resistances of a weighted graph: exact while it is small, estimated beyond."""

from __future__ import annotations

import logging

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.errors import ConvergenceError

__all__ = ["effective_resistance", "projected_resistance"]

logger = logging.getLogger(__name__)


def _adjacency(edges: Int64Array, conductances: Float64Array, n: int) -> sp.csr_array:
    rows = np.concatenate([edges[:, 0], edges[:, 1]])
    columns = np.concatenate([edges[:, 1], edges[:, 0]])
    return sp.csr_array((np.concatenate([conductances, conductances]), (rows, columns)), shape=(n, n))


def effective_resistance(edges: Int64Array, conductances: Float64Array, n: int) -> Float64Array:
    """Return the resistance between the ends of each edge in the network of conductances, exactly.

    r_ij = (e_i - e_j)' L⁺ (e_i - e_j) with L the Laplacian. Adding 11'/n inside each component makes L definite
    and leaves every r_ij inside it unchanged, so one dense inverse of that matrix serves: O(n³) time, three n × n
    arrays.

    Parameters
    ----------
    edges : int array (m, 2)
    conductances : float array (m,)
        Positive.
    n : int
        Number of vertices.

    Returns
    -------
    float array (m,)

    Examples
    --------
    >>> effective_resistance(np.array([[0, 1], [1, 2], [0, 2]]), np.ones(3), 3).round(4).tolist()
    [0.6667, 0.6667, 0.6667]
    """
    from scipy.linalg import lapack
    from scipy.sparse.csgraph import connected_components

    A = _adjacency(edges, conductances, n)
    _, component = connected_components(A, directed=False)
    resistances = np.empty(len(edges))
    sizes = np.bincount(component)
    place = np.empty(n, dtype=np.int64)
    of_edge = component[edges[:, 0]] if len(edges) else np.empty(0, dtype=np.int64)
    for c in np.unique(of_edge):
        nodes = np.flatnonzero(component == c)
        place[nodes] = np.arange(len(nodes))
        L = np.asfortranarray(-A[nodes][:, nodes].toarray())
        degree = -L.sum(axis=1)
        # The scale of the added constant is that of the Laplacian, which keeps the factorisation well conditioned.
        L += degree.mean() / sizes[c]
        L[np.diag_indices_from(L)] += degree
        factor, info = lapack.dpotrf(L, lower=1, overwrite_a=1)
        if info != 0:
            raise ConvergenceError(
                f"the Laplacian of a patch graph component of {sizes[c]} patches is singular at pivot {info}: its "
                "conductances span too many orders of magnitude. Use Conductance() as the edge weight.",
                residual=float("nan"),
            )
        inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
        here = of_edge == c
        i, j = place[edges[here, 0]], place[edges[here, 1]]
        low, high = np.minimum(i, j), np.maximum(i, j)
        diagonal = inverse.diagonal()
        resistances[here] = diagonal[i] + diagonal[j] - 2 * inverse[high, low]
    return resistances


def projected_resistance(
    edges: Int64Array,
    conductances: Float64Array,
    n: int,
    *,
    projections: int = 200,
    tol: float = 1e-4,
    seed: int = 0,
) -> Float64Array:
    """Estimate the resistance between the ends of each edge by random projection (Spielman and Srivastava 2011).

    The columns of Z = Q W^(1/2) B L⁺, with Q of random signs over sqrt(projections), keep the squared distances
    r_ij = |Z (e_i - e_j)|² to a relative standard deviation of about sqrt(2 / projections). Each row of Z is one
    Laplacian system, all solved at once by conjugate gradients with a diagonal preconditioner. Patch graphs are
    expanders more often than not, where that takes some tens of steps; where it takes more than 300, the graph is long
    and thin, and a sparse factorisation, which fills in little there, solves the same systems. r_ij c_ij is at most 1
    and estimates are clipped to that.

    Parameters
    ----------
    edges : int array (m, 2)
    conductances : float array (m,)
    n : int
    projections : int
    tol : float
        Relative residual of every system.
    seed : int

    Returns
    -------
    float array (m,)

    Raises
    ------
    ConvergenceError
        If neither reaches ``tol``; it carries the residual reached.

    Examples
    --------
    >>> r = projected_resistance(np.array([[0, 1], [1, 2], [0, 2]]), np.ones(3), 3, projections=4000)
    >>> bool(abs(r - 2 / 3).max() < 0.05)
    True
    """
    from scipy.sparse.csgraph import connected_components

    A = _adjacency(edges, conductances, n)
    _, component = connected_components(A, directed=False)
    degree = np.asarray(A.sum(axis=1)).ravel()
    rng = np.random.default_rng(seed)
    squared = np.zeros(len(edges))
    block = max(1, min(projections, (1 << 27) // max(8 * n, 1)))
    incidence = sp.csr_array(
        (
            np.concatenate([np.sqrt(conductances), -np.sqrt(conductances)]),
            (edges.T.ravel(), np.tile(np.arange(len(edges)), 2)),
        ),
        shape=(n, len(edges)),
    )
    done = 0
    while done < projections:
        width = min(block, projections - done)
        right = np.empty((n, width))
        for column in range(width):
            right[:, column] = incidence @ rng.choice([-1.0, 1.0], size=len(edges))
        Z = _solve_laplacian(A, degree, component, right, tol)
        for start in range(0, len(edges), 1 << 16):
            part = edges[start : start + (1 << 16)]
            squared[start : start + (1 << 16)] += ((Z[part[:, 0]] - Z[part[:, 1]]) ** 2).sum(axis=1)
        done += width
    return np.minimum(squared / projections, 1 / conductances)


def _solve_laplacian(
    A: sp.csr_array, degree: Float64Array, component: Int64Array, right: Float64Array, tol: float
) -> Float64Array:
    """Solve L Z = right, each column orthogonal to the constants of each component, by block-wise independent CG."""
    sizes = np.bincount(component).astype(np.float64)
    inverse = np.where(degree > 0, 1 / np.where(degree > 0, degree, 1), 0.0)[:, None]
    Z = np.zeros_like(right)
    R = right.copy()
    scale = np.maximum(np.linalg.norm(right, axis=0), np.finfo(float).tiny)
    Y = inverse * R
    P = Y.copy()
    rho = np.einsum("ij,ij->j", R, Y)
    limit = 300
    worst = 1.0
    for _ in range(limit):
        LP = degree[:, None] * P - A @ P
        curvature = np.einsum("ij,ij->j", P, LP)
        step = np.where(curvature > 0, rho / np.where(curvature > 0, curvature, 1), 0.0)
        Z += step * P
        R -= step * LP
        worst = float((np.linalg.norm(R, axis=0) / scale).max())
        if worst < tol:
            break
        Y = inverse * R
        rho, before = np.einsum("ij,ij->j", R, Y), rho
        P = Y + np.where(before > 0, rho / np.where(before > 0, before, 1), 0.0) * P
    else:
        logger.info("conjugate gradients stand at a residual of %.1e after %d steps: factorising instead", worst, limit)
        Z = _factorised(A, degree, component, right)
        worst = float((np.linalg.norm(degree[:, None] * Z - A @ Z - right, axis=0) / scale).max())
        if not worst < tol:
            raise ConvergenceError(
                f"the resistances of {len(degree)} patches reached a residual of {worst:.1e}, not {tol:.1e}: the "
                "conductances span too many orders of magnitude. Use Conductance() as the edge weight.",
                residual=worst,
            )
    means = np.zeros((len(sizes), Z.shape[1]))
    np.add.at(means, component, Z)
    return np.asarray(Z - (means / sizes[:, None])[component])


def _factorised(A: sp.csr_array, degree: Float64Array, component: Int64Array, right: Float64Array) -> Float64Array:
    """Solve L Z = right with the first vertex of each component held at zero."""
    from scipy.sparse.linalg import splu

    _, first = np.unique(component, return_index=True)
    free = np.setdiff1d(np.arange(len(degree)), first)
    L = (sp.diags_array(degree) - A).tocsr()[free][:, free].tocsc()
    Z = np.zeros_like(right)
    symmetric = {"SymmetricMode": True}
    Z[free] = splu(L, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=symmetric).solve(right[free])
    return Z
