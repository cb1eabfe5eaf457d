"""The connection Laplacian of a graph with a rotation on every edge, and what solves systems in it fast.

``L = I - D^-1/2 (w R) D^-1/2`` acts on vectors with one block of length d a vertex. The symmetric similar form of the
paper's row-normalised matrix: its d lowest eigenvectors are the d leading ones of the paper's M.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import Float64Array, FloatArray, Int64Array
from graphquilt.linalg.laplacian import DENSE_LIMIT, spanning_tree
from graphquilt.linalg.systems import adjacency

__all__ = ["Connection", "fiedler", "scalar_preconditioner", "tree_guess"]


SWEEPS = 4  # Chebyshev steps of the preconditioner on large, well connected graphs
WELL_CONNECTED = 0.05  # the second eigenvalue of the scalar Laplacian above which those steps are enough


@dataclass(frozen=True, eq=False)
class Connection:
    """Rotations on the edges of a graph, each stored once.

    Attributes
    ----------
    edges : int array (m, 2)
        Sorted by the second vertex, so that the rotations of one vertex lie side by side.
    rotations : float array (m, d, d)
        ``rotations[e]`` estimates ``S_i @ S_j.T`` for ``edges[e] = (i, j)``.
    weights : float array (m,)
    n : int
        Number of vertices.
    """

    edges: Int64Array
    rotations: FloatArray
    weights: Float64Array
    n: int

    @property
    def dim(self) -> int:
        """Size of a rotation."""
        return int(self.rotations.shape[1])

    @cached_property
    def degrees(self) -> Float64Array:
        """Total weight at each vertex, (n,)."""
        both = np.bincount(self.edges.ravel(), weights=np.repeat(self.weights, 2), minlength=self.n)
        return np.asarray(both, dtype=np.float64)

    @cached_property
    def coupling(self) -> Float64Array:
        """The normalised weight ``w_ij / sqrt(D_i D_j)`` of each edge, (m,)."""
        return np.asarray(self.weights / np.sqrt(self.degrees[self.edges[:, 0]] * self.degrees[self.edges[:, 1]]))

    @cached_property
    def scalar(self) -> sp.csr_array:
        """The normalised Laplacian of the graph without its rotations, (n, n)."""
        return sp.csr_array(sp.eye_array(self.n) - adjacency(self.edges, self.coupling, self.n))

    def __call__(self, X: FloatArray, out: FloatArray) -> None:
        """Write L applied to ``X (n*d, c)`` into ``out (n*d, c)``, in the precision of X.

        Two products for each vertex j, of all its rotations at once: one sends X_j to its neighbours, the
        transpose gathers theirs.
        """
        d, c = self.dim, X.shape[1]
        out[:] = X
        blocks, result = X.reshape(self.n, d, c), out.reshape(self.n, d, c)
        coupling = self.coupling.astype(X.dtype)
        starts = np.searchsorted(self.edges[:, 1], np.arange(self.n + 1))
        for j in np.flatnonzero(np.diff(starts)):
            here = slice(starts[j], starts[j + 1])
            neighbours = self.edges[here, 0]
            stacked = self.rotations[here].reshape(-1, d).astype(X.dtype, copy=False)
            weights = coupling[here, None, None]
            result[neighbours] -= weights * (stacked @ blocks[j]).reshape(-1, d, c)
            result[j] -= stacked.T @ (weights * blocks[neighbours]).reshape(-1, c)

    def dense(self) -> Float64Array:
        """Return L as a matrix (n*d, n*d), for small problems."""
        n, d = self.n, self.dim
        L = np.zeros((n, d, n, d))
        i, j = self.edges.T
        scaled = self.coupling[:, None, None] * self.rotations
        L[i, :, j, :] = -scaled
        L[j, :, i, :] = -scaled.transpose(0, 2, 1)
        return np.asarray(L.reshape(n * d, n * d) + np.eye(n * d))


def tree_guess(connection: Connection) -> Float64Array:
    """Multiply the rotations along a maximum spanning tree: a first guess ``(n, d, d)``, exact without noise."""
    n, d = connection.n, connection.dim
    order, parents = spanning_tree(connection.edges, connection.weights, n)
    i, j = connection.edges.T
    place = dict(zip(zip(i.tolist(), j.tolist(), strict=True), range(len(i)), strict=True))
    guess = np.empty((n, d, d))
    guess[order[0]] = np.eye(d)
    for child in order[1:].tolist():
        parent = int(parents[child])
        if (child, parent) in place:
            R = connection.rotations[place[child, parent]]
        else:
            R = connection.rotations[place[parent, child]].T
        guess[child] = R.astype(np.float64) @ guess[parent]
    return guess


def fiedler(connection: Connection) -> tuple[float, Float64Array]:
    """Return the second eigenvalue of the scalar Laplacian and its vector ``(n,)``."""
    if connection.n <= DENSE_LIMIT:
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
) -> Callable[[FloatArray], None]:
    """Return an approximate inverse of L, in place: that of the scalar Laplacian, in the frame of ``gauge (n, d, d)``.

    Seen from a good guess of the answer every rotation is near the identity, and L is near the scalar Laplacian
    times the identity. Small graphs are inverted, long thin ones factorised, and large well connected ones
    (``second`` eigenvalue away from 0) get a few Chebyshev steps, because their factors fill in.
    """
    n, d = connection.n, connection.dim
    turn = np.asarray(gauge, dtype=dtype)
    inverse = _scalar_inverse(connection, second, dtype)

    def apply(R: FloatArray) -> None:
        c = R.shape[1]
        blocks = R.reshape(n, d, c)
        _turn(turn.transpose(0, 2, 1), blocks)
        for k in range(d):  # one row of every block at a time: the rest waits where it is
            blocks[:, k] = inverse(np.ascontiguousarray(blocks[:, k]))
        _turn(turn, blocks)

    return apply


def _turn(rotations: FloatArray, blocks: FloatArray) -> None:
    """Multiply each of ``blocks (n, d, c)`` by its rotation, in place."""
    for start in range(0, len(blocks), 256):
        here = slice(start, start + 256)
        blocks[here] = np.matmul(rotations[here], blocks[here])


def _scalar_inverse(connection: Connection, second: float, dtype: npt.DTypeLike) -> Callable[[FloatArray], FloatArray]:
    n, scalar = connection.n, connection.scalar
    if n <= DENSE_LIMIT:
        null = np.sqrt(connection.degrees / connection.degrees.sum())
        dense: FloatArray = np.linalg.inv(scalar.toarray() + np.outer(null, null)).astype(dtype)
        return dense.__matmul__
    if second > WELL_CONNECTED:
        return _chebyshev(sp.csr_array(scalar.astype(dtype)), second, 2.0)
    from scipy.sparse.linalg import splu

    factor = splu(sp.csc_array(scalar + 1e-3 * second * sp.eye_array(n)))
    return lambda B: np.asarray(factor.solve(B.astype(np.float64)), dtype=dtype)


def _chebyshev(A: Any, low: float, high: float) -> Callable[[FloatArray], FloatArray]:
    """Return a few steps of Chebyshev iteration for ``A x = b`` with the spectrum in ``[low, high]``."""
    centre, half = (high + low) / 2, (high - low) / 2

    def solve(b: FloatArray) -> FloatArray:
        sigma = centre / half
        rho = 1 / sigma
        step = b / centre
        x, residual = step.copy(), b
        for _ in range(SWEEPS - 1):
            residual = residual - A @ step
            following = 1 / (2 * sigma - rho)
            step = following * rho * step + (2 * following / half) * residual
            rho = following
            x += step
        return np.asarray(x)

    return solve
