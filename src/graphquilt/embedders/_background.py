"""Bipartite spectral embedding of a graph with a faint uniform background."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import Float64Array
from graphquilt.embedders._spectral import DENSE_ROWS, Operator, fixed_signs, leading_eigenpairs
from graphquilt.errors import ConvergenceError, InputError
from graphquilt.patches import Patch

ZERO = 1e-7  # a singular value below this is zero up to rounding
TOL = 1e-6  # of the eigenvalues: vectors beyond that are noise of the day


def background_svd(M: sp.csr_array, dim: int, background: float) -> tuple[Patch, Patch]:
    """Embed M + c 1 1^T, where the second term has ``background`` times the total weight of the first.

    Every node with an edge has a position, and there is one trivial pair, D_s^1/2 1 and D_d^1/2 1 with the degrees of
    the sum. The sum itself is never formed.
    """
    source_degree, destination_degree = (np.asarray(M.sum(axis=axis)).ravel() for axis in (1, 0))
    sources, destinations = np.flatnonzero(source_degree > 0), np.flatnonzero(destination_degree > 0)
    allowed = min(len(sources), len(destinations)) - 1
    if dim > allowed:
        raise InputError(
            f"dim is {dim} and this bipartite graph allows {max(allowed, 0)}: {len(sources)} sources and "
            f"{len(destinations)} destinations have an edge. Use dim={allowed} or less, or a wider window."
            if allowed > 0
            else f"dim is {dim} and this bipartite graph of {M.nnz} edges allows none. Use a wider window."
        )
    M = M[sources][:, destinations]
    turned = M.shape[0] > M.shape[1]
    B = sp.csr_array(M.T) if turned else M
    faint = background * float(M.sum()) / (B.shape[0] * B.shape[1])
    left = 1 / np.sqrt(np.asarray(B.sum(axis=1)).ravel() + faint * B.shape[1])
    right = 1 / np.sqrt(np.asarray(B.sum(axis=0)).ravel() + faint * B.shape[0])
    B = sp.csr_array(sp.diags_array(left) @ B @ sp.diags_array(right))
    Bt = sp.csr_array(B.T)
    a, b = left[:, None], right[:, None]
    trivial = (1 / a) / np.linalg.norm(1 / left)

    def across(x: Float64Array) -> Float64Array:
        y: Float64Array = Bt @ x + faint * b * (a.T @ x)
        return y

    def gram(x: Float64Array) -> Float64Array:
        y = across(x)
        z: Float64Array = B @ y + faint * a * (b.T @ y) - trivial * (trivial.T @ x)
        return z

    squares, U = _leading(gram, B.shape[0], dim)
    values = np.sqrt(np.maximum(squares, 0))
    if values[-1] < ZERO:
        raise InputError(
            f"dim is {dim} and this bipartite graph allows {int((values >= ZERO).sum())}. Lower dim, or use a wider "
            "window."
        )
    V = across(U) / values
    if turned:
        signs = fixed_signs(V)
        U, V, a, b = V * signs, U * signs, b, a
    return Patch(sources, a * U), Patch(destinations, b * V)


def _leading(gram: Operator, n: int, k: int) -> tuple[Float64Array, Float64Array]:
    """Return the k largest eigenvalues and their vectors, one Krylov vector at a time.

    A single vector may miss a copy of a repeated eigenvalue, which a block would find. The background joins all nodes,
    so that leading eigenvalues do not repeat but by accident, and a day is embedded several times faster.
    """
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    if n <= DENSE_ROWS or 3 * k >= n:
        return leading_eigenpairs(gram, n, k)
    operator = LinearOperator((n, n), matvec=lambda x: gram(x.reshape(n, 1)).ravel(), dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n)
    try:
        values, U = eigsh(operator, k=k, which="LA", v0=start, tol=TOL)
    except ArpackNoConvergence as stopped:
        raise ConvergenceError(
            f"{len(stopped.eigenvalues)} of {k} singular vectors of a graph with {n} nodes on its smaller side were "
            "found. Ask for fewer dimensions, or use a wider window.",
            residual=float("nan"),
        ) from stopped
    U = np.ascontiguousarray(U[:, ::-1])
    return values[::-1], U * fixed_signs(U)
