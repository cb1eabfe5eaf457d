"""Far clusters as nodes of a graph convolution: what lies outside of a patch, on average."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array, IntArray
from graphquilt.embedders.features import Features
from graphquilt.embedders.gcn import adjacency_with_loops
from graphquilt.embedders.shared_start import Arrays, FarField, check_far_clusters
from graphquilt.graph import Graph

__all__ = ["far_clusters", "with_far_clusters"]


def far_clusters(A: sp.csr_array, degree: Float64Array, X: Features, clusters: IntArray) -> dict[str, AnyArray]:
    """Return far clusters as nodes: their degrees, the matrix between them, and their features.

    With S = D^-1/2 A D^-1/2, where A (n, n) has loops and row sums D, the mean of D^-1/2 X over a cluster, weighted by
    D, is that of one node with degree (Σ d / Σ √d)² and features Σ √d x / Σ √d.
    """
    k = int(clusters.max(initial=-1)) + 1
    members = sp.csr_array((np.ones(len(clusters)), (clusters, np.arange(len(clusters)))), shape=(k, len(clusters)))
    root, volume = (np.asarray(members @ values) for values in (np.sqrt(degree), degree))
    between = sp.csr_array(sp.diags_array(volume / root**2) @ (members @ A @ members.T))
    means = sp.csr_array(sp.diags_array(1 / root) @ members @ sp.diags_array(np.sqrt(degree)) @ X)
    arrays = {"degree": ((volume / root) ** 2).astype(np.float32)}
    for name, matrix in (("between", between), ("features", means)):
        arrays |= {f"{name}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
    return {name: array.astype(np.float32) if array.dtype == np.float64 else array for name, array in arrays.items()}


def with_far_clusters(graph: Graph, far: FarField, X: Features) -> tuple[sp.csr_array, Features]:
    """Return the normalised adjacency and the features of a patch with the far clusters as further nodes.

    Edges that leave the patch lead to clusters; clusters are joined with clusters only, so the matrix is not symmetric.
    """
    own = np.asarray(far.nodes["degree"], dtype=np.float64)
    A = adjacency_with_loops(graph)
    if "degree" not in far.shared:
        return _normalized(A, own), X
    shared, n, k = far.shared, graph.n_nodes, len(far.shared["degree"])
    check_far_clusters(far, k)  # compiled products do not look at what they are given
    weights = np.ones(len(far.clusters)) if far.weights is None else np.asarray(far.weights)
    out = sp.csr_array((weights, np.asarray(far.clusters), np.asarray(far.indptr)), shape=(n, k))
    between = _matrix(shared, "between", (k, k))
    whole = sp.csr_array(sp.block_array([[A, out], [None, between]], format="csr"))
    means = _matrix(shared, "features", (k, X.shape[1]))
    both = sp.vstack([X, means], format="csr") if sp.issparse(X) else np.vstack([X, means.toarray()]).astype(X.dtype)
    return _normalized(whole, np.concatenate([own, shared["degree"]])), both


def _normalized(A: sp.csr_array, degree: Float64Array) -> sp.csr_array:
    scale = 1 / np.sqrt(degree)
    return sp.csr_array(sp.diags_array(scale) @ A @ sp.diags_array(scale))


def _matrix(shared: Arrays, name: str, shape: tuple[int, int]) -> sp.csr_array:
    parts = (np.asarray(shared[f"{name}_{part}"]) for part in ("data", "indices", "indptr"))
    return sp.csr_array(tuple(parts), shape=shape)
