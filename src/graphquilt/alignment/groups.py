"""Group synchronization: measurements on edges in, one group element for each vertex out.

For scales (R+), rotations (O(d)) and translations (R^d). Nothing here knows of nodes or patches: a vertex is a number,
and an edge carries a measured ratio, rotation or offset.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.connection import Connection, fiedler, scalar_preconditioner, tree_guess
from graphquilt.arrays import Float64Array, FloatArray, Int64Array
from graphquilt.errors import ConvergenceError
from graphquilt.kernels import one_blas_thread
from graphquilt.linalg.eigen import Eigenpairs, lowest_eigenpairs
from graphquilt.linalg.laplacian import solve_laplacian
from graphquilt.linalg.procrustes import nearest_orthogonal

__all__ = [
    "Rotations",
    "reweighted",
    "rotation_misfit",
    "synchronize_rotations",
    "synchronize_scales",
    "synchronize_translations",
]


DENSE_SIZE = 400  # a matrix of this order is diagonalised whole
SINGLE_TOL = 2e-6  # down to this residual single precision does as well as double, in half the time
ONE_THREAD = 2**22  # up to this many entries of the eigenvectors a second BLAS thread costs more than it saves
GUARDS = 4  # vectors that look for the next eigenvalue
GAP_SHARE = 0.1  # and stop when they know it to this share of the gap
REWEIGHTINGS = 15


@dataclass(frozen=True, eq=False)
class Rotations:
    """One rotation a vertex, and how well the eigenproblem behind them was solved.

    Attributes
    ----------
    rotations : float array (n, d, d)
    eigenvalues : float array (d + 1,)
        The d leading eigenvalues of D^-1/2 (w R) D^-1/2, descending, and an estimate of the next one. All d are 1
        without noise; the further the next one lies below them, the more stable the answer.
    residual : float
        The largest residual norm of the d eigenvectors, in float64.
    next_residual : float
        The residual norm behind the last eigenvalue: an eigenvalue lies within this distance of it.
    iterations : int
    vectors : float array (n*d, d)
        The eigenvectors: a start for the next solve of a similar problem.
    """

    rotations: Float64Array
    eigenvalues: Float64Array
    residual: float
    next_residual: float
    iterations: int
    vectors: FloatArray


def synchronize_scales(edges: npt.ArrayLike, ratios: npt.ArrayLike, *, weights: npt.ArrayLike, n: int) -> Float64Array:
    r"""Return scales ``(n,)`` of mean 1 with ``ratios[e]`` as near as can be to ``scales[i] / scales[j]``.

    Weighted least squares on the logarithms, :math:`\min \sum_e w_e (\log r_e - \log s_i + \log s_j)^2`.

    # Differs from the paper: it takes the Perron vector of D^-1 (w r), which agrees without noise and to first order
    # with it, but lets one large ratio outweigh all others and treats r and 1/r differently.

    Examples
    --------
    >>> synchronize_scales([[0, 1], [1, 2]], [2.0, 1.0], weights=[1.0, 1.0], n=3).round(12).tolist()
    [1.5, 0.75, 0.75]
    """
    logs = np.log(np.asarray(ratios, dtype=np.float64))[:, None]
    scales = np.exp(-synchronize_translations(edges, logs, weights=weights, n=n)[:, 0])
    return np.asarray(scales / scales.mean())


def synchronize_translations(
    edges: npt.ArrayLike, offsets: npt.ArrayLike, *, weights: npt.ArrayLike, n: int
) -> Float64Array:
    r"""Return translations ``(n, d)`` of mean 0 with ``t[j] - t[i]`` as near as can be to ``offsets[e]``.

    The least squares problem of the paper's translation step, :math:`\min_T \|W^{1/2} (B T - C)\|_F`, through its
    normal equations :math:`B^T W B\, T = B^T W C`: the Laplacian of the graph.

    Examples
    --------
    >>> synchronize_translations([[0, 1]], [[2.0]], weights=[1.0], n=2).tolist()
    [[-1.0], [1.0]]
    """
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    w = np.asarray(weights, dtype=np.float64)
    pull = w[:, None] * np.asarray(offsets, dtype=np.float64)
    rhs = np.zeros((n, pull.shape[1]))
    np.add.at(rhs, pairs[:, 1], pull)
    np.add.at(rhs, pairs[:, 0], -pull)
    return solve_laplacian(pairs, w, rhs, n=n) if len(pairs) else rhs


def synchronize_rotations(
    edges: npt.ArrayLike,
    rotations: FloatArray,
    *,
    weights: npt.ArrayLike,
    n: int,
    tol: float = 1e-5,
    start: FloatArray | None = None,
    max_iterations: int = 200,
) -> Rotations:
    """Return one rotation a vertex with ``rotations[e]`` as near as can be to ``S_i @ S_j.T`` (the paper's eq. for M).

    The d leading eigenvectors of D^-1/2 (w R) D^-1/2, and the orthogonal matrix nearest to each of their blocks. A
    small problem is diagonalised whole. A larger one starts from the product of rotations along a spanning tree and
    is improved by block Rayleigh-Ritz steps, preconditioned by the Laplacian of the graph without its rotations; each
    step costs O(m d^3). Single precision carries it as far as it can; the last steps and the residual are in double.

    Parameters
    ----------
    edges : int array (m, 2)
        A connected graph on 0..n-1, each edge once.
    rotations : float array (m, d, d)
        In edges' order. If edges are sorted by their second vertex the array is used as it is, without a copy.
    weights : float array (m,)
        Positive.
    tol : float
        The largest residual norm allowed of any eigenvector.
    start : array (n*d, d), optional
        Eigenvectors of a similar problem.

    Raises
    ------
    ConvergenceError
        If ``max_iterations`` steps do not reach ``tol``; the error carries the residual.

    Examples
    --------
    >>> import numpy as np
    >>> flip = np.array([[[-1.0]], [[1.0]], [[-1.0]]])
    >>> solved = synchronize_rotations([[0, 1], [1, 2], [0, 2]], flip, weights=[1.0, 1.0, 1.0], n=3)
    >>> solved.eigenvalues.round(3).tolist()
    [1.0, -0.5]
    """
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    d = rotations.shape[1] if len(pairs) else 0
    if n == 1 or d == 0:
        raise ValueError("synchronization needs at least two vertices and one edge")
    order = np.argsort(pairs[:, 1], kind="stable")
    if np.any(np.diff(order) != 1):
        pairs, rotations, weights = pairs[order], rotations[order], np.asarray(weights)[order]
    connection = Connection(pairs, rotations, np.asarray(weights, dtype=np.float64), n)
    with one_blas_thread() if n * d * d <= ONE_THREAD else nullcontext():
        if n * d <= DENSE_SIZE or n <= 3:
            return _dense(connection, tol)
        return _iterative(connection, tol=tol, start=start, max_iterations=max_iterations)


def _dense(connection: Connection, tol: float) -> Rotations:
    n, d = connection.n, connection.dim
    L = connection.dense()
    # All of them: LAPACK's solver for a few loses the vectors of repeated values, and without noise all d are equal.
    values, vectors = np.linalg.eigh(L)
    values, vectors = values[: d + 1], vectors[:, : d + 1]
    residuals = np.linalg.norm(L @ vectors - vectors * values, axis=0)
    _check_residual(float(residuals[:d].max()), max(tol, 1e-10), connection, 0)
    return Rotations(
        nearest_orthogonal(vectors[:, :d].reshape(n, d, d)),
        1 - values,
        float(residuals[:d].max()),
        float(residuals[d]),
        0,
        vectors[:, :d],
    )


def _iterative(connection: Connection, *, tol: float, start: FloatArray | None, max_iterations: int) -> Rotations:
    n, d = connection.n, connection.dim
    gauge = tree_guess(connection) if start is None else nearest_orthogonal(start.reshape(n, d, d))
    gauge = gauge.astype(connection.rotations.dtype, copy=False)  # single where memory is short
    second, slow = fiedler(connection)
    if start is None:
        lengths = np.sqrt(connection.degrees).astype(gauge.dtype)
        start = (lengths[:, None, None] * gauge).reshape(n * d, d)
    iterations = 0
    single = scalar_preconditioner(connection, gauge, second, np.float32)
    if rotation_misfit(connection.edges, connection.rotations, gauge).max() > tol:
        pairs = lowest_eigenpairs(
            _in_single(connection),
            start.astype(np.float32, copy=False),
            preconditioner=single,
            tol=max(tol / 2, SINGLE_TOL),
            max_iterations=max_iterations,
        )
        start, iterations = pairs.vectors, pairs.iterations
    exact = _rayleigh_ritz(connection, start)
    if exact.residuals.max() > tol:
        double = scalar_preconditioner(connection, gauge, second, np.float64)
        exact = lowest_eigenpairs(
            connection, exact.vectors, preconditioner=double, tol=tol, max_iterations=max_iterations - iterations
        )
        iterations += exact.iterations
    residual = float(exact.residuals.max())
    _check_residual(residual, tol, connection, iterations)
    guard = _next_eigenpair(connection, exact, single, gauge, slow)
    return Rotations(
        nearest_orthogonal(exact.vectors.reshape(n, d, d)),
        1 - np.r_[exact.values, guard.values[0]],
        residual,
        float(guard.residuals[0]),
        iterations,
        exact.vectors,
    )


def _check_residual(residual: float, tol: float, connection: Connection, iterations: int) -> None:
    if residual > tol:
        raise ConvergenceError(
            f"the rotations of {connection.n} vertices in {connection.dim} dimensions were solved to a residual of "
            f"{residual:.1e} in {iterations} steps; {tol:.1e} was asked. Allow a larger tol, or look for edges that "
            "contradict the others (robust=True).",
            residual=residual,
        )


def _in_single(connection: Connection) -> Connection:
    rotations = connection.rotations.astype(np.float32, copy=False)
    return Connection(connection.edges, rotations, connection.weights, connection.n)


def _rayleigh_ritz(connection: Connection, block: FloatArray) -> Eigenpairs:
    """Judge a block in float64: its Ritz values and true residuals."""
    return lowest_eigenpairs(
        connection, np.asarray(block, dtype=np.float64), preconditioner=lambda _: None, tol=np.inf, max_iterations=0
    )


def _next_eigenpair(
    connection: Connection,
    found: Eigenpairs,
    preconditioner: Callable[[FloatArray], None],
    gauge: FloatArray,
    slow: Float64Array,
) -> Eigenpairs:
    """Look for the (d+1)-st eigenvector in the complement of the d found.

    The Ritz values of a block of exactly d say nothing safe about the next eigenvalue. Without noise the next d
    eigenvectors are the slowest scalar one times any vector; the search starts from some of those.
    """
    n, d = connection.n, connection.dim
    rng = np.random.default_rng(0)
    spread = rng.normal(size=(d, min(GUARDS, d)))
    start = (slow[:, None, None] * (gauge @ spread)).reshape(n * d, -1)
    start += 0.1 * np.linalg.norm(start) / np.sqrt(start.size) * rng.normal(size=start.shape)
    top = found.values[-1]
    return lowest_eigenpairs(
        _in_single(connection),
        start.astype(np.float32),
        preconditioner=preconditioner,
        deflate=found.vectors.astype(np.float32),
        tol=1e-5,
        max_iterations=60,
        stop=lambda values, residuals: bool(residuals[0] <= GAP_SHARE * abs(values[0] - top)),
    )


def rotation_misfit(edges: Int64Array, measured: FloatArray, rotations: Float64Array) -> Float64Array:
    """Return how far each measured rotation is from the one that ``rotations (n, d, d)`` imply, ``(m,)``.

    In the Frobenius norm over sqrt(d): 0 where they agree, about sqrt(2) where they have nothing in common.
    """
    misfit = np.empty(len(edges))
    for e, (i, j) in enumerate(edges.tolist()):
        misfit[e] = np.linalg.norm(measured[e] @ rotations[j] - rotations[i])
    return np.asarray(misfit / np.sqrt(measured.shape[1]))


def reweighted(
    solve: Callable[[Float64Array, Any], tuple[Any, Float64Array]], weights: Float64Array, *, floor: float = 1e-6
) -> tuple[Any, Float64Array]:
    """Solve with iteratively reweighted edges, so that a few wrong measurements do not bend all the others.

    ``solve(weights, previous) -> (solution, misfit (m,))``. Each round divides an edge's weight by its misfit (least
    absolute deviations); misfits below the median, or below ``floor``, count as that, so that good edges keep their
    weights. Where more than half of a vertex's edges lie no method can tell which.

    Returns
    -------
    solution
        That of the last round.
    trust : float array (m,)
        By which factor, 0 to 1, each weight was reduced.
    """
    trust = np.ones_like(weights)
    solution, misfit = solve(weights, None)
    for _ in range(REWEIGHTINGS):
        usual = max(float(np.median(misfit)), floor)
        revised = usual / np.maximum(misfit, usual)
        settled = bool(np.max(np.abs(revised - trust)) < 1e-3)
        trust = revised
        solution, misfit = solve(weights * trust, solution)
        if settled:
            break
    return solution, trust
