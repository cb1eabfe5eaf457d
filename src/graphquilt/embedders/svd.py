"""SVD: spectral embedding of the normalised adjacency, scaled to make inner products local."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array
from graphquilt.embedders.contract import check_dim
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.linalg import DENSE_ROWS, Motions, leading_eigenpairs

SINGLE_PRECISION = 1e-5  # the least tolerance that float32 can reach


@dataclass(frozen=True)
class SVD:
    """Spectral embedding of the normalised adjacency: U Σ^steps, from its leading singular vectors and values.

    Parameters
    ----------
    steps : int
        The length of the walks that are compared. More steps make embeddings of overlapping graphs agree better.
    tol : float
        The largest residual |M² u - σ² u| of a vector u of length 1, where the largest σ is 1. See
        :func:`graphquilt.linalg.leading_eigenpairs` for what happens if it is not reached.
    motions : Motions
        The motions by which embeddings of overlapping graphs differ.

    Notes
    -----
    With M = (D + I)^-1/2 (A + I) (D + I)^-1/2 and its ``dim`` leading singular vectors U and values Σ, node u lies at
    row u of U Σ^steps. So x_u · x_v approximates the inner product of rows u and v of M^steps, which depends only on
    what lies within ``steps`` edges of u and v: two patches agree on it wherever they agree on those edges, and their
    scale is not free. Of the singular vectors (D + I)^1/2 1 of the components, which have the value 1, only the sum is
    kept, as the first column: a node without edges lies on the first axis. Columns that the graph does not have are 0.
    A directed graph is made undirected by the larger of both weights. The seed is not used.

    Examples
    --------
    >>> ring = Graph(sp.csr_array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]))
    >>> X = SVD(2)(ring, 0)
    >>> X[:, 0].round(3).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """

    dim: int
    steps: int = 4
    tol: float = 1e-3
    motions: Motions = Motions()
    deterministic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_dim(self.dim, "SVD")
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise InputError(f"steps of SVD must be an integer of at least 1, not {self.steps!r}.")
        if not self.tol > 0:
            raise InputError(f"tol of SVD must be positive, not {self.tol}.")

    def __call__(self, graph: Graph, seed: int) -> Float64Array:  # noqa: ARG002
        """Return the embedding (n, dim)."""
        A = graph.undirected().adjacency
        degree = np.asarray(A.sum(axis=1), dtype=np.float64).ravel() + 1
        X = np.zeros((graph.n_nodes, self.dim))
        X[:, 0] = np.sqrt(degree / degree.sum())
        nodes = np.flatnonzero(degree > 1)
        if self.dim > 1 and len(nodes):
            part = A[nodes][:, nodes] if len(nodes) < graph.n_nodes else A
            squares, U = _leading(sp.csr_array(part), degree[nodes], self.dim - 1, self.tol)
            X[nodes, 1 : U.shape[1] + 1] = U * np.maximum(squares, 0) ** (self.steps / 2)
        return X


def _leading(A: sp.csr_array, degree: AnyArray, dim: int, tol: float) -> tuple[Float64Array, Float64Array]:
    """Return the ``dim`` largest squares of singular values, beside the trivial ones, and their vectors."""
    from scipy.sparse.csgraph import connected_components

    n, (count, label) = len(degree), connected_components(A, directed=False)
    root = np.sqrt(degree) / np.sqrt(np.bincount(label, weights=degree))[label]
    trivial = sp.csr_array((root, (np.arange(n), label)), shape=(n, count))  # (D + I)^1/2 1 on each component
    k = min(dim, n - trivial.shape[1])
    if not k:
        return np.zeros(0), np.zeros((n, 0))
    small = n <= DENSE_ROWS
    dtype = np.float32 if tol >= SINGLE_PRECISION and not small else np.float64
    scale = sp.diags_array(1 / np.sqrt(degree))
    M = sp.csr_array(scale @ (A + sp.eye_array(n)) @ scale).astype(dtype)
    trivial = sp.csr_array(trivial.astype(dtype))
    trivial_t = sp.csr_array(trivial.T)

    def square(x: AnyArray) -> AnyArray:
        if small:
            return np.asarray(M @ (M @ x))
        from graphquilt.embedders.kernels import multiply_rows

        between, out = np.empty_like(x), np.empty_like(x)
        multiply_rows(M.indptr, M.indices, M.data, x, between)
        multiply_rows(M.indptr, M.indices, M.data, between, out)
        return out

    def project(x: AnyArray) -> AnyArray:
        return np.asarray(x - trivial @ (trivial_t @ x))

    return leading_eigenpairs(square, n, k, tol=tol, project=project, dtype=dtype)
