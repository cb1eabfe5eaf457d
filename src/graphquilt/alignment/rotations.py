"""Synchronise rotations: noisy relative rotations on edges in, one rotation for each vertex out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import connection as connections
from graphquilt.alignment.connection import HIGHEST, Connection
from graphquilt.arrays import Float64Array, FloatArray, Int64Array, pieces
from graphquilt.errors import ConvergenceError
from graphquilt.kernels import one_blas_thread
from graphquilt.linalg.eigenpairs import Eigenpairs, Preconditioner, filtered_eigenpairs, lowest_eigenpairs
from graphquilt.linalg.procrustes import nearest_orthogonal
from graphquilt.progress import ProgressCallback, report

DENSE_SIZE = 1000  # a matrix of this order is diagonalised whole: 0.2 s on one 2.4 GHz core, 0.6 s at order 1500
DENSE_RESCUE = 4000  # so is one of this order if the iteration fails: about 15 s and 0.4 GB
SINGLE_TOL = 2e-6  # down to this residual single precision usually does as well as double, in half the time
NEARLY_SOLVED = 1e-4  # a larger residual is not the fault of single precision
PATIENCE = 8  # a stage that does not halve its residual in this many steps is given up
MISSED = 1e-5  # a following eigenvalue this far below the d-th is not a rounding error of single precision
ONE_THREAD = 2**22  # up to this many entries of the eigenvectors a second BLAS thread costs more than it saves
WIDE_GAP = 0.1  # the second eigenvalue of the scalar Laplacian above which a filter is tried first
GUARDS = 4  # vectors that look for the next eigenvalue; at least as many guard the block of the third stage
MAX_GUARDS = 32  # and at most this many, because each one makes every step slower
GAP_SHARE = 0.1  # the next eigenvalue is computed to this share of its distance from the d-th one
CHUNK = 2**16  # entries of rotations that are compared at a time: they stay in the cache of the processor


@dataclass(frozen=True, eq=False)
class Rotations:
    """One rotation per vertex, and how accurately the eigenproblem behind them was solved.

    The eigenvalues are the d leading ones of D^-1/2 (w R) D^-1/2, descending, and an estimate of the next. All d are 1
    without noise; the further the next one lies below them, the more stable the answer.
    """

    rotations: Float64Array  # (n, d, d)
    eigenvalues: Float64Array  # (d + 1,)
    residual: float  # the largest residual norm of the d eigenvectors, in float64
    next_residual: float  # an eigenvalue lies within this distance of the last one
    iterations: int  # of all stages together; 0 where the matrix was diagonalised whole
    vectors: FloatArray  # (n*d, d) eigenvectors, a good start for a similar problem


def synchronise_rotations(
    edges: npt.ArrayLike,
    rotations: FloatArray,
    *,
    weights: npt.ArrayLike,
    n: int,
    tol: float = 1e-5,
    start: FloatArray | None = None,
    max_iterations: int = 200,
    progress: ProgressCallback | None = None,
) -> Rotations:
    """Return one rotation per vertex with ``rotations[e]`` close to ``S_i @ S_j.T`` (the paper's equation for M).

    The answer is the orthogonal matrices nearest to the blocks of the d leading eigenvectors of D^-1/2 (w R) D^-1/2. No
    eigenvector has a residual norm above ``tol``: otherwise a ConvergenceError carries the norm reached. ``edges (m,
    2)`` are a connected graph on 0..n-1, each edge once, best sorted by their second vertex, and ``start (n*d, d)`` are
    eigenvectors of a similar problem.
    """
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    d = rotations.shape[1] if len(pairs) else 0
    if n == 1 or d == 0:
        raise ValueError("synchronisation needs at least two vertices and one edge")
    w = np.asarray(weights, dtype=np.float64)
    # Only ratios matter. A power of two changes no digit, and keeps tiny weights from vanishing in products.
    connection = Connection(pairs, rotations, np.ldexp(w, -np.frexp(w.max())[1]), n)
    with one_blas_thread() if n * d * d <= ONE_THREAD else nullcontext():
        if n * d <= DENSE_SIZE or n <= 3:
            return _dense(connection, tol)
        return _iterative(connection, tol=tol, start=start, max_iterations=max_iterations, progress=progress)


def _dense(connection: Connection, tol: float) -> Rotations:
    d = connection.dim
    L = connection.sparse().toarray()
    # All eigenvectors are computed: LAPACK's solver for a few of them loses vectors of repeated eigenvalues, and
    # without noise all d wanted eigenvalues are equal.
    values, vectors = np.linalg.eigh(L)
    values, vectors = values[: d + 1], vectors[:, : d + 1]
    residuals = np.linalg.norm(L @ vectors - vectors * values, axis=0)
    # Rounding errors alone can leave a residual of this size, however small ``tol`` is.
    return _rotations(connection, Eigenpairs(values, vectors, residuals, 0), max(tol, 1e-10))


def _iterative(
    connection: Connection,
    *,
    tol: float,
    start: FloatArray | None,
    max_iterations: int,
    progress: ProgressCallback | None,
) -> Rotations:
    """Solve in up to three stages. A stage begins only if those before it did not reach ``tol``.

    1. Single precision, a block of d vectors, the scalar preconditioner. Most problems end here.
    2. The same in double precision, for a residual that is too small for single precision.
    3. Double precision, guard vectors, and a preconditioner that is a polynomial in L (see :func:`_guarded`).

    If all stages fail, the matrix is diagonalised whole unless it is too large for that.
    """
    n, d = connection.n, connection.dim
    gauge = connections.tree_guess(connection) if start is None else nearest_orthogonal(start.reshape(n, d, d))
    gauge = gauge.astype(connection.rotations.dtype, copy=False)  # single precision where memory is short
    second, slow = connections.fiedler(connection)
    if start is None:
        lengths = np.sqrt(connection.degrees).astype(gauge.dtype)
        start = (lengths[:, None, None] * gauge).reshape(n * d, d)
    single = connections.scalar_preconditioner(connection, gauge, second, np.float32)
    steps = count()

    def watch(_values: Float64Array, residuals: Float64Array) -> bool:
        values = {"residual": float(residuals.max(initial=0.0)), "wanted": tol}
        report(progress, "rotation steps", next(steps), values=values)
        return False

    stage = partial(lowest_eigenpairs, max_iterations=max_iterations, patience=PATIENCE, stop=watch)
    iterations = 0
    if rotation_misfit(connection.edges, connection.rotations, gauge).max() > tol:
        in_single, goal = _in_single(connection), max(tol / 2, SINGLE_TOL)
        block = start.astype(np.float32, copy=False)
        if second > WIDE_GAP:
            rough = filtered_eigenpairs(in_single, block, interval=(second, HIGHEST), tol=goal, stop=watch)
            block, iterations = rough.vectors, rough.iterations
        if second <= WIDE_GAP or rough.residuals.max() > goal:
            rough = stage(in_single, block, preconditioner=single, tol=goal)
            iterations += rough.iterations
        start = rough.vectors
        del block, rough
    # Without a step, this gives the Ritz values and the true residuals in double precision.
    pairs = stage(connection, start.astype(np.float64), preconditioner=single, tol=np.inf, max_iterations=0)
    if tol < pairs.residuals.max() <= NEARLY_SOLVED:
        double = connections.scalar_preconditioner(connection, gauge, second, np.float64)
        pairs = stage(connection, pairs.vectors, preconditioner=double, tol=tol)
        iterations += pairs.iterations
    block = pairs.vectors
    if pairs.residuals.max() <= tol:
        following = _following_eigenpairs(connection, pairs, single, _guards(gauge, slow, min(GUARDS, d)))
        if following.values[0] > pairs.values[-1] - MISSED:
            values, residuals = np.r_[pairs.values, following.values], np.r_[pairs.residuals, following.residuals]
            return _rotations(connection, Eigenpairs(values, pairs.vectors, residuals, iterations), tol)
        # All residuals are small, but a vector in the complement has a lower Rayleigh quotient, so one of the d lowest
        # eigenvectors was missed.
        block = np.hstack([block, following.vectors.astype(np.float64)])
    pairs = _guarded(connection, block, slow, watch, tol=tol, max_iterations=max_iterations)
    iterations += pairs.iterations
    if pairs.residuals[:d].max() > tol and n * d <= DENSE_RESCUE:
        return replace(_dense(connection, tol), iterations=iterations)
    return _rotations(connection, pairs._replace(iterations=iterations), tol)


def _guarded(
    connection: Connection,
    block: FloatArray,
    slow: Float64Array,
    watch: Callable[[Float64Array, Float64Array], bool],
    *,
    tol: float,
    max_iterations: int,
) -> Eigenpairs:
    """Solve where the first two stages fail: much noise, or hardly a gap below the d-th eigenvalue.

    A Chebyshev polynomial in L assumes no good first guess. With g guard vectors the rate depends on the distance
    between eigenvalues d and d + g + 1, not d + 1, which may be zero (Knyazev 2001).
    """
    n, d = connection.n, connection.dim
    # The basis of a step has three times as many columns as the block and must fit into the whole space.
    width = min(d + min(max(GUARDS, d // 2), MAX_GUARDS), n * d // 3)
    if block.shape[1] < width:
        gauge = nearest_orthogonal(block[:, :d].reshape(n, d, d))
        block = np.hstack([block, _guards(gauge, slow, width - block.shape[1])])

    def solved(values: Float64Array, residuals: Float64Array) -> bool:
        gap = values[d] - values[d - 1]
        watch(values, residuals[:d])
        return bool(residuals[:d].max() <= tol and residuals[d] <= max(tol, GAP_SHARE * gap))

    iterate = partial(
        lowest_eigenpairs, preconditioner=connections.polynomial_preconditioner(connection), tol=0.0, stop=solved
    )
    patience = 2 * PATIENCE if n * d <= DENSE_RESCUE else None
    return iterate(connection, block[:, :width], max_iterations=max_iterations, patience=patience)


def _rotations(connection: Connection, pairs: Eigenpairs, tol: float) -> Rotations:
    """Turn at least d + 1 eigenpairs into rotations, or raise if the first d are not accurate enough."""
    n, d = connection.n, connection.dim
    residual = float(pairs.residuals[:d].max())
    if residual > tol:
        raise ConvergenceError(
            f"the rotations of {n} vertices in {d} dimensions were solved to a residual of {residual:.1e} in "
            f"{pairs.iterations} steps; {tol:.1e} is required. Allow a larger tol, or drop edges that contradict the "
            "others.",
            residual=residual,
        )
    vectors = np.ascontiguousarray(pairs.vectors[:, :d])  # a copy does not keep the guard vectors in memory
    rotations = nearest_orthogonal(vectors.reshape(n, d, d))
    eigenvalues, next_residual = 1 - pairs.values[: d + 1], float(pairs.residuals[d])
    return Rotations(rotations, eigenvalues, residual, next_residual, pairs.iterations, vectors)


def _in_single(connection: Connection) -> Connection:
    rotations = connection.rotations.astype(np.float32, copy=False)
    return Connection(connection.edges, rotations, connection.weights, connection.n)


def _guards(gauge: FloatArray, slow: Float64Array, number: int) -> Float64Array:
    """Return starting vectors ``(n*d, number)`` for the eigenvectors that follow the d lowest ones.

    Without noise those are the slowest scalar eigenvector times any constant vector, in the frame of the gauge.
    """
    n, d, _ = gauge.shape
    rng = np.random.default_rng(0)
    vectors = (slow[:, None, None] * (gauge @ rng.normal(size=(d, number)))).reshape(n * d, number)
    size = np.linalg.norm(vectors) / np.sqrt(vectors.size)
    return np.asarray(vectors + 0.1 * size * rng.normal(size=vectors.shape))


def _following_eigenpairs(
    connection: Connection, lowest: Eigenpairs, preconditioner: Preconditioner, start: Float64Array
) -> Eigenpairs:
    """Look for the (d+1)-st eigenvector among the vectors orthogonal to the first d."""
    top = lowest.values[-1]
    return lowest_eigenpairs(
        _in_single(connection),
        start.astype(np.float32),
        preconditioner=preconditioner,
        deflate=lowest.vectors.astype(np.float32),
        tol=1e-5,
        max_iterations=60,
        stop=lambda values, residuals: bool(residuals[0] <= GAP_SHARE * abs(values[0] - top)),
    )


def rotation_misfit(edges: Int64Array, measured: FloatArray, rotations: Float64Array) -> Float64Array:
    """Return how far, (m,), measured rotations are from those implied: 0 is agreement, sqrt(2) nothing in common."""
    m, d, (i, j) = len(edges), measured.shape[1], edges.T
    misfit = np.empty(m)
    for here in pieces(m, CHUNK // d**2):
        difference = measured[here] @ rotations[j[here]] - rotations[i[here]]
        misfit[here] = np.sqrt(np.einsum("eij,eij->e", difference, difference) / d)
    return misfit
