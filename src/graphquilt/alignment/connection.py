"""The connection Laplacian of a graph with a rotation on every edge, and preconditioners for it.

``L = I - D^-1/2 (w R) D^-1/2`` acts on vectors with one block of length d per vertex. It is the symmetric form of the
paper's row-normalised matrix M: the d lowest eigenvectors of L, times D^-1/2, are the d leading ones of M. All
eigenvalues of L lie between 0 and 2. Chebyshev acceleration: Y. Saad, Iterative methods for sparse linear systems, 2nd
edition, SIAM 2003, section 12.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.alignment.kernels import apply_connection
from graphquilt.arrays import Float64Array, FloatArray, Int64Array, pieces
from graphquilt.kernels import map_threads, thread_count
from graphquilt.linalg.eigenpairs import Preconditioner
from graphquilt.linalg.laplacian import DENSE_LIMIT, adjacency, spanning_tree

HIGHEST = 2.0  # no eigenvalue of a normalised Laplacian is larger
SWEEPS = 4  # Chebyshev steps of the scalar preconditioner on large, well connected graphs
FEW = 300  # up to this many vertices the scalar Laplacian is factorised densely
WELL_CONNECTED = 0.05  # the second eigenvalue of the scalar Laplacian above which those steps are enough
DEGREES = (4, 24)  # the fewest and the most steps of the polynomial preconditioner
SPARSE_DIM = 16  # up to this dimension a sparse product is faster than one dense product per vertex
COLUMNS = 64  # the polynomial preconditioner takes this many columns at a time, for the sake of memory


@dataclass(frozen=True, eq=False)
class Connection:
    """Rotations on the edges of a graph, each stored once: ``rotations[e]`` estimates ``S_i @ S_j.T``.

    Edges are sorted by their second vertex: the rotations of one vertex are stored next to each other.
    """

    edges: Int64Array  # (m, 2), vertices i and j
    rotations: FloatArray  # (m, d, d)
    weights: Float64Array  # (m,)
    n: int  # the number of vertices

    @property
    def dim(self) -> int:
        """The number of rows of a rotation, d."""
        return int(self.rotations.shape[1])

    @cached_property
    def degrees(self) -> Float64Array:
        """The total weight of the edges of each vertex, (n,)."""
        return np.bincount(self.edges.ravel(), weights=np.repeat(self.weights, 2), minlength=self.n).astype(np.float64)

    @cached_property
    def coupling(self) -> Float64Array:
        """The normalised weight ``w_ij / sqrt(D_i D_j)`` of each edge, (m,)."""
        return np.asarray(self.weights / np.sqrt(self.degrees[self.edges[:, 0]] * self.degrees[self.edges[:, 1]]))

    @cached_property
    def scalar(self) -> sp.csr_array:
        """The normalised Laplacian of the graph without its rotations, (n, n)."""
        return sp.csr_array(sp.eye_array(self.n) - adjacency(self.edges, self.coupling, self.n))

    @cached_property
    def incidence(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Where the edges of each vertex start (n + 1,), their numbers, and the vertices at their other ends (2m,).

        The number of edge e at its second vertex, which the transpose of its rotation leads to, is -1 - e.
        """
        m, (i, j) = len(self.edges), self.edges.T
        ends, others = np.r_[i, j], np.r_[j, i]
        numbers = np.r_[np.arange(m), -1 - np.arange(m)]
        order = np.argsort(ends, kind="stable")
        return np.searchsorted(ends[order], np.arange(self.n + 1)), numbers[order], others[order]

    def __call__(self, X: FloatArray, out: FloatArray, factors: tuple[float, float, float] = (1.0, 0.0, 0.0)) -> None:
        """Write ``a L X + b X + c out`` with the ``factors`` a, b, c into ``out (n*d, c)``, in the precision of X.

        Each block of the result is computed by one thread: it does not depend on how many there are.
        """
        coupling, numbers, threads = self.coupling.astype(X.dtype), np.array(factors, dtype=X.dtype), thread_count()
        bounds = np.linspace(0, self.n, (4 * threads if threads > 1 else 1) + 1).astype(np.int64).tolist()

        def apply(vertices: tuple[int, int]) -> None:
            apply_connection(vertices, self.incidence, coupling, self.rotations, X, out, numbers)

        map_threads(apply, pairwise(bounds))

    def sparse(self) -> sp.csr_array:
        """Return L as a sparse matrix (n*d, n*d)."""
        size, (i, j) = self.n * self.dim, self.edges.T
        scaled = self.coupling[:, None, None] * self.rotations
        rows, columns = np.r_[i, j], np.r_[j, i]
        order = np.argsort(rows, kind="stable")
        starts = np.searchsorted(rows[order], np.arange(self.n + 1))
        blocks = np.concatenate([scaled, scaled.transpose(0, 2, 1)])[order]
        A = sp.bsr_array((blocks, columns[order], starts), shape=(size, size))
        return sp.csr_array(sp.eye_array(size) - A.tocsr())


def tree_guess(connection: Connection) -> Float64Array:
    """Multiply the rotations along a maximum spanning tree: a first guess ``(n, d, d)``, exact without noise."""
    n, d = connection.n, connection.dim
    order, parents = spanning_tree(connection.edges, connection.weights, n)
    starts, numbers, others = connection.incidence
    guess = np.empty((n, d, d))
    guess[order[0]] = np.eye(d)
    for child, parent in zip(order[1:].tolist(), parents[order[1:]].tolist(), strict=True):
        here = slice(starts[child], starts[child + 1])
        e = int(numbers[here][others[here] == parent][0])
        R = connection.rotations[e] if e >= 0 else connection.rotations[-1 - e].T
        guess[child] = R.astype(np.float64) @ guess[parent]
    return guess


def fiedler(connection: Connection) -> tuple[float, Float64Array]:
    """Return the second eigenvalue of the scalar Laplacian and its vector ``(n,)``."""
    if connection.n <= FEW:
        from scipy.linalg import eigh

        values, vectors = eigh(connection.scalar.toarray(), subset_by_index=[1, 1], driver="evx")
        return float(values[0]), vectors[:, 0]
    from scipy.sparse.linalg import eigsh

    # The lowest of L are the largest of 2 - L, which needs no factorisation; a rough value is all that is wanted.
    shifted = 2 * sp.eye_array(connection.n) - connection.scalar
    start = np.random.default_rng(0).normal(size=connection.n)
    values, vectors = eigsh(shifted, k=2, which="LA", tol=1e-2, v0=start, maxiter=20 * connection.n)
    return float(2 - values[0]), vectors[:, 0]


def scalar_preconditioner(
    connection: Connection, gauge: FloatArray, second: float, dtype: npt.DTypeLike
) -> Preconditioner:
    """Return an approximate inverse of L, to be applied in place: that of the scalar Laplacian, in another frame.

    If ``gauge (n, d, d)`` is a good guess of the answer, every rotation of ``G.T @ L @ G`` is close to the identity, so
    this matrix is close to the scalar Laplacian, and the number of steps does not grow with the graph. That of a small
    graph is inverted, of a long thin one factorised; a large well connected one takes a few Chebyshev steps instead.
    """
    frame, inverse = np.asarray(gauge, dtype=dtype), _scalar_inverse(connection, second, dtype)

    def apply(R: FloatArray, _values: Float64Array) -> None:
        blocks = R.reshape(*frame.shape[:2], -1)
        _turn(frame.transpose(0, 2, 1), blocks)
        for k in range(connection.dim):  # one row of every block at a time needs only a small copy
            blocks[:, k] = inverse(np.ascontiguousarray(blocks[:, k]))
        _turn(frame, blocks)

    return apply


def polynomial_preconditioner(connection: Connection) -> Preconditioner:
    """Return a Chebyshev polynomial in L, to be applied in place, that amplifies the lowest eigenvectors.

    It approximates the inverse of ``L - t I``, with t the lowest Ritz value, above the highest Ritz value, and is
    positive below that. No guess of the answer enters, so noise does no harm.
    """
    matrix = connection.sparse() if connection.dim <= SPARSE_DIM else None

    def image(X: FloatArray) -> FloatArray:
        if matrix is not None:
            return np.asarray(matrix @ X)
        out = np.empty_like(X)
        connection(X, out)
        return out

    def apply(R: FloatArray, values: Float64Array) -> None:
        lowest, width = float(values[0]), HIGHEST - float(values[0])
        distance = max(float(values[-1] - values[0]), 0.0)
        # Degree k resolves a distance of about width / k^2 at the end of the spectrum; a shorter interval below the
        # damped one would give the polynomial zeros.
        degree = int(np.clip(np.sqrt(width / max(distance, 1e-12)), *DEGREES))
        low = max(distance, width / degree**2)
        solve = _chebyshev(lambda X: np.asarray(image(X) - lowest * X), low, width, degree)
        for here in pieces(R.shape[1], COLUMNS):
            R[:, here] = solve(np.ascontiguousarray(R[:, here]))

    return apply


def _turn(rotations: FloatArray, blocks: FloatArray) -> None:
    """Multiply each of ``blocks (n, d, c)`` by its rotation, in place."""
    for here in pieces(len(blocks), 256):
        blocks[here] = np.matmul(rotations[here], blocks[here])


def _scalar_inverse(connection: Connection, second: float, dtype: npt.DTypeLike) -> Callable[[FloatArray], FloatArray]:
    n, scalar = connection.n, connection.scalar
    if n <= FEW or (n <= DENSE_LIMIT and second <= WELL_CONNECTED):
        # The projector on the null space makes the matrix definite and changes nothing else.
        null = np.sqrt(connection.degrees / connection.degrees.sum())
        dense: FloatArray = np.linalg.inv((scalar.toarray() + np.outer(null, null)).astype(dtype))
        return dense.__matmul__
    if second > WELL_CONNECTED:
        return _chebyshev(sp.csr_array(scalar.astype(dtype)).__matmul__, second, HIGHEST, SWEEPS)
    from scipy.sparse.linalg import splu

    # The small shift makes the matrix definite; it is far below the second eigenvalue and changes little else.
    factor = splu(sp.csc_array(scalar + 1e-3 * second * sp.eye_array(n)))
    return lambda B: np.asarray(factor.solve(B.astype(np.float64)), dtype=dtype)


def _chebyshev(
    matrix: Callable[[FloatArray], FloatArray], low: float, high: float, degree: int
) -> Callable[[FloatArray], FloatArray]:
    """Return ``degree`` steps of Chebyshev iteration for ``A x = b``, where ``matrix(x)`` is ``A @ x``.

    The result is ``p(A) b`` with ``1 - t p(t) = T((c - t) / h) / T(c / h)``, where T is the Chebyshev polynomial of
    this degree and c and h are the centre and half the length of ``[low, high]``: algorithm 12.1 of Saad (2003). p is
    positive from 0 to high.
    """
    centre, half = (high + low) / 2, (high - low) / 2

    def solve(b: FloatArray) -> FloatArray:
        sigma = centre / half
        rho = 1 / sigma
        step = b / centre
        x, residual = step.copy(), b
        for _ in range(degree - 1):
            residual = residual - matrix(step)
            following = 1 / (2 * sigma - rho)
            step = following * rho * step + (2 * following / half) * residual
            rho = following
            x += step
        return np.asarray(x)

    return solve
