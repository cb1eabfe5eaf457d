"""Effective resistances of a weighted graph: exact while it is small, estimated beyond."""

from __future__ import annotations

import logging

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.errors import ConvergenceError
from graphquilt.linalg import adjacency, components, conjugate_gradients, solve_grounded
from graphquilt.linalg.laplacian import laplacian

__all__ = ["effective_resistance", "projected_resistance"]

logger = logging.getLogger(__name__)

CG_ITERATIONS = 300  # an expander needs tens; a long thin graph needs more, and its sparse factors are cheap


def effective_resistance(edges: Int64Array, conductances: Float64Array, n: int) -> Float64Array:
    """Return the resistance between the ends of each edge in the network of conductances, exactly.

    r_ij = (e_i - e_j)' L⁺ (e_i - e_j) with L the Laplacian. Adding 11'/n inside each component makes L definite
    and leaves every r_ij inside it unchanged, so one dense inverse of that matrix serves: O(n³) time, three n × n
    arrays. There are n vertices, ``edges`` (m, 2) and positive ``conductances`` (m,); the result is (m,).

    Examples
    --------
    >>> effective_resistance(np.array([[0, 1], [1, 2], [0, 2]]), np.ones(3), 3).round(4).tolist()
    [0.6667, 0.6667, 0.6667]
    """
    from scipy.linalg import lapack

    A, component = adjacency(edges, conductances, n), components(edges, n)
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
    edges: Int64Array, conductances: Float64Array, n: int, *, projections: int = 200, tol: float = 1e-4, seed: int = 0
) -> Float64Array:
    """Estimate the resistance between the ends of each edge by random projection (Spielman and Srivastava 2011).

    The columns of Z = Q W^(1/2) B L⁺, with Q of random signs over sqrt(projections), keep the squared distances
    r_ij = |Z (e_i - e_j)|² to a relative standard deviation of about sqrt(2 / projections). Each row of Z is one
    Laplacian system, all solved at once by conjugate gradients with a diagonal preconditioner. Patch graphs are
    expanders more often than not, where that takes some tens of steps; where it takes more than 300, the graph is long
    and thin, and a sparse factorisation, which fills in little there, solves the same systems. If neither reaches the
    relative residual ``tol``, a ConvergenceError is raised. r_ij c_ij is at most 1 and estimates are clipped to that.

    Examples
    --------
    >>> r = projected_resistance(np.array([[0, 1], [1, 2], [0, 2]]), np.ones(3), 3, projections=4000)
    >>> bool(abs(r - 2 / 3).max() < 0.05)
    True
    """
    L, component = laplacian(edges, conductances, n), components(edges, n)
    rng = np.random.default_rng(seed)
    squared = np.zeros(len(edges))
    block = max(1, min(projections, (1 << 27) // max(8 * n, 1)))
    entries = np.concatenate([np.sqrt(conductances), -np.sqrt(conductances)])
    places = edges.T.ravel(), np.tile(np.arange(len(edges)), 2)
    incidence = sp.csr_array((entries, places), shape=(n, len(edges)))
    for done in range(0, projections, block):
        width = min(block, projections - done)
        right = np.empty((n, width))
        for column in range(width):
            right[:, column] = incidence @ rng.choice([-1.0, 1.0], size=len(edges))
        Z = _solve(L, component, right, tol)
        for start in range(0, len(edges), 1 << 16):
            part = edges[start : start + (1 << 16)]
            squared[start : start + (1 << 16)] += ((Z[part[:, 0]] - Z[part[:, 1]]) ** 2).sum(axis=1)
    return np.minimum(squared / projections, 1 / conductances)


def _solve(L: sp.csr_array, component: Int64Array, right: Float64Array, tol: float) -> Float64Array:
    """Solve L Z = right, each column orthogonal to the constants of each component."""
    Z, residual = conjugate_gradients(L, right, tol=tol, max_iterations=CG_ITERATIONS)
    if residual > tol:
        message = "conjugate gradients reached a residual of %.1e in %d steps: factorising instead"
        logger.info(message, residual, CG_ITERATIONS)
        Z = solve_grounded(L, right, component)
        scale = np.maximum(np.linalg.norm(right, axis=0), np.finfo(float).tiny)
        residual = float((np.linalg.norm(L @ Z - right, axis=0) / scale).max())
        if not residual < tol:
            raise ConvergenceError(
                f"the resistances of {len(component)} patches reached a residual of {residual:.1e}, not {tol:.1e}: the "
                "conductances span too many orders of magnitude. Use Conductance() as the edge weight.",
                residual=residual,
            )
    means = np.zeros((int(component.max()) + 1, Z.shape[1]))
    np.add.at(means, component, Z)
    return np.asarray(Z - (means / np.bincount(component)[:, None])[component])
