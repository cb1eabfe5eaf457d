"""The shared start of graph auto-encoders: samples of all patches, one seed encoder, and the average of encoders.

Every patch offers a few ego nets. An encoder is trained on all of them together, and every patch goes on from it alone.
The encoders of all patches can then be averaged into one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, FloatArray, Int64Array
from graphquilt.embedders.features import Features
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.graph.sparse import csr_of

__all__ = ["averaged", "ego_nets", "feature_counts", "joined", "sample_of"]

_FOLLOWED = 4  # neighbours of a sampled node that are sampled with it
_PARTS = {"indptr", "indices", "features_data", "features_indices", "features_indptr", "width"}  # of a sample
_LEAST = 24  # sampled nodes of a patch, where it has as many


def ego_nets(graph: Graph, seed: int, *, n_inner: int, n_nodes: int) -> Int64Array:
    """Return some nodes of a patch with at most 4 neighbours of each, in ascending order.

    With patches that cover the graph twice, the samples of all patches have about as many nodes as one patch.

    Examples
    --------
    >>> path = Graph(sp.csr_array(np.eye(6, k=1) + np.eye(6, k=-1)))
    >>> ego_nets(path, 0, n_inner=6, n_nodes=6).tolist()
    [0, 1, 2, 3, 4, 5]
    """
    rng = np.random.default_rng(seed)
    wanted = max(_LEAST, n_inner * n_inner // (2 * max(n_nodes, 1)))
    chosen: set[int] = set()
    for node in rng.permutation(n_inner).tolist():
        if len(chosen) >= wanted:
            break
        neighbours = np.asarray(graph.indices[graph.indptr[node] : graph.indptr[node + 1]])
        if len(neighbours) > _FOLLOWED:
            neighbours = rng.choice(neighbours, _FOLLOWED, replace=False)
        chosen.update([node, *neighbours.tolist()])
    return np.array(sorted(chosen), dtype=np.int64)


def sample_of(graph: Graph, nodes: Int64Array, features: Features) -> dict[str, AnyArray]:
    """Return the subgraph of the nodes and their features as named arrays."""
    part = Graph(graph.adjacency).subgraph(nodes)
    rows = sp.csr_array(features[nodes])
    return {
        "indptr": np.asarray(part.indptr),
        "indices": np.asarray(part.indices),
        "features_data": rows.data.astype(np.float32),
        "features_indices": rows.indices.astype(np.int32),
        "features_indptr": rows.indptr.astype(np.int64),
        "width": np.array(rows.shape[1]),
    }


def joined(offers: Sequence[Mapping[str, AnyArray]]) -> Graph:
    """Return the samples of all patches as one graph with features; a node that two patches offer is in it twice."""
    if not all(set(offer) >= _PARTS and _is_whole(offer["width"]) for offer in offers):
        raise InputError("the sample that a patch offers is not a graph with features; let the patches offer again.")
    widths = sorted({int(offer["width"]) for offer in offers})
    if len(widths) != 1:
        raise InputError(
            f"the patches have {widths[0]} to {widths[-1]} features; a shared start needs the same features everywhere."
        )
    graphs = [Graph.from_arrays(offer["indptr"], offer["indices"], None) for offer in offers]
    features = [
        csr_of(offer["features_data"], offer["features_indices"], offer["features_indptr"], (graph.n_nodes, widths[0]))
        for offer, graph in zip(offers, graphs, strict=True)
    ]
    A = sp.block_diag([graph.adjacency for graph in graphs], format="csr")
    return Graph(sp.csr_array(A), sp.csr_array(sp.vstack(features, format="csr")))


def _is_whole(number: AnyArray) -> bool:
    return number.shape == () and number.dtype.kind == "i"


def feature_counts(features: Features) -> FloatArray:
    """Return how many nodes have each feature, (f,)."""
    if isinstance(features, sp.csr_array):
        return np.bincount(features.indices, minlength=features.shape[1]).astype(np.float64)
    counts: FloatArray = np.count_nonzero(features, axis=0).astype(np.float64)
    return counts


def averaged(offers: Sequence[Mapping[str, AnyArray]], names: Sequence[str]) -> dict[str, AnyArray]:
    """Return the average of the encoders of all patches.

    Row f of ``weight0`` is weighted by how often each patch has feature f: a patch without it has learned nothing about
    it. A feature that no patch has is averaged without weights.

    Examples
    --------
    >>> one = {"weight0": np.array([[1.0], [1.0]]), "counts": np.array([3.0, 0.0])}
    >>> two = {"weight0": np.array([[5.0], [5.0]]), "counts": np.array([1.0, 0.0])}
    >>> averaged([one, two], ["weight0"])["weight0"].ravel().tolist()
    [2.0, 3.0]
    """
    counts = np.stack([offer["counts"] for offer in offers])
    total = counts.sum(axis=0)
    shares = np.where(total > 0, counts / np.where(total > 0, total, 1), 1 / len(offers))
    result: dict[str, AnyArray] = {}
    for name in names:
        mean = np.zeros(offers[0][name].shape)
        for offer, share in zip(offers, shares, strict=True):
            mean += offer[name] * (share[:, None] if name == "weight0" else 1 / len(offers))
        result[name] = mean.astype(offers[0][name].dtype)
    return result
