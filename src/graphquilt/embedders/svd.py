"""SVD: spectral embedding of the normalised adjacency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array
from graphquilt.embedders.contract import check_dim
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.linalg.lanczos import DENSE_ROWS, Operator, leading_eigenpairs
from graphquilt.linalg.motions import Motions

__all__ = ["SVD"]


@dataclass(frozen=True)
class SVD:
    """Spectral embedding of the normalised adjacency, corrected for degree.

    Parameters
    ----------
    dim : int
        Number of vectors.
    tol : float
        The largest residual norm of a vector.
    motions : Motions
        The motions by which embeddings of overlapping graphs differ: all of them.

    Notes
    -----
    With A_n = D^-1/2 A D^-1/2 and its ``dim`` leading vectors U beside the trivial ones (one for each connected
    component), node u lies at sqrt(Σ D / D_u) U_u. A node without edges lies at the origin. A directed graph is made
    undirected by the larger of both weights. The seed is not used: the result is always the same.

    Examples
    --------
    >>> ring = Graph(sp.csr_array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]))
    >>> SVD(2)(ring, 0).shape
    (4, 2)
    """

    dim: int
    tol: float = 1e-6
    motions: Motions = Motions(scale=True)
    deterministic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_dim(self.dim, "SVD")
        if not self.tol > 0:
            raise InputError(f"tol of SVD must be positive, not {self.tol}.")

    def __call__(self, graph: Graph, seed: int) -> Float64Array:  # noqa: ARG002
        """Return the embedding (n, dim)."""
        A = graph.adjacency
        if graph.directed:
            A = sp.csr_array(A.maximum(A.T))
        weight = np.asarray(A.sum(axis=1)).ravel()
        nodes = np.flatnonzero(weight > 0)
        A = A[nodes][:, nodes] if len(nodes) < len(weight) else A
        trivial = _trivial(A, weight[nodes])
        count = trivial.shape[1]
        if self.dim > len(nodes) - count:
            raise InputError(
                f"SVD was asked for {self.dim} dimensions and the graph allows {len(nodes) - count}: {len(nodes)} of "
                f"{graph.n_nodes} nodes have edges, in {count} connected components, and each component has one "
                "trivial vector. Lower dim, or embed larger patches."
            )
        scale = 1 / np.sqrt(weight[nodes])
        A = sp.csr_array(sp.diags_array(scale) @ A @ sp.diags_array(scale))
        trivial_t = sp.csr_array(trivial.T)
        multiply = _product_by(A)

        def deflated(x: Float64Array) -> Float64Array:
            # Twice the projection puts the trivial vectors at -1, below every other.
            y = multiply(x)
            y -= 2 * (trivial @ (trivial_t @ x))
            return y

        _, U = leading_eigenpairs(deflated, len(nodes), self.dim, tol=self.tol)
        X = np.zeros((graph.n_nodes, self.dim))
        X[nodes] = np.sqrt(weight.sum()) * scale[:, None] * U
        return X


def _product_by(A: sp.csr_array) -> Operator:
    """Return the product by A: that of SciPy for small matrices, and a compiled one for others."""
    if A.shape[0] <= DENSE_ROWS:
        return lambda x: np.asarray(A @ x)
    from graphquilt.embedders._kernels import multiply_rows

    def product(x: Float64Array) -> Float64Array:
        out = np.empty_like(x)
        multiply_rows(A.indptr, A.indices, A.data, x, out)
        return out

    return product


def _trivial(A: sp.csr_array, weight: AnyArray) -> sp.csr_array:
    """Return D^1/2 1 on each component, of unit length, as the columns of an (n, components) matrix."""
    from scipy.sparse.csgraph import connected_components

    if not len(weight):
        return sp.csr_array((0, 0))
    count, label = connected_components(A, directed=False)
    root = np.sqrt(weight) / np.sqrt(np.bincount(label, weights=weight))[label]
    return sp.csr_array((root, (np.arange(len(weight)), label)), shape=(len(weight), count))
