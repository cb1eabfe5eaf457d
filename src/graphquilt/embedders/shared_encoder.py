"""The shared start of graph auto-encoders: samples of all patches, the average of encoders, and far clusters.

Every patch contributes a few ego nets. An encoder is trained on all of them, and every patch starts from it. The
encoders of all patches can then be averaged. Far clusters are nodes of the convolution in a patch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, Int64Array, IntArray
from graphquilt.embedders.network import Features
from graphquilt.embedders.shared_start import Arrays, FarField, check_far_clusters
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.graph.checks import csr_of

_FOLLOWED = 4  # neighbours of a sampled node that are sampled with it
_PARTS = {"indptr", "indices", "features_data", "features_indices", "features_indptr", "width"}  # of a sample
_UNIT = 2.0**24  # of sums of weights, which are whole numbers
_LEAST = 24  # sampled nodes of a patch, where it has as many


def ego_nets(graph: Graph, seed: int, *, n_nodes: int) -> Int64Array:
    """Return some nodes of a patch with at most 4 neighbours of each, in ascending order."""
    rng, n = np.random.default_rng(seed), graph.n_nodes
    count = max(_LEAST, n * n // (2 * max(n_nodes, 1)))
    chosen: set[int] = set()
    for node in rng.permutation(n).tolist():
        if len(chosen) >= count:
            break
        neighbours = np.asarray(graph.indices[graph.indptr[node] : graph.indptr[node + 1]])
        if len(neighbours) > _FOLLOWED:
            neighbours = rng.choice(neighbours, _FOLLOWED, replace=False)
        chosen.update([node, *neighbours.tolist()])
    return np.array(sorted(chosen), dtype=np.int64)


def sample_of(graph: Graph, nodes: Int64Array, features: Features) -> dict[str, AnyArray]:
    """Return the subgraph of the nodes and their features as named arrays."""
    part, rows = Graph(graph.adjacency).subgraph(nodes), sp.csr_array(features[nodes])
    arrays = {"indptr": part.indptr, "indices": part.indices, "width": np.array(rows.shape[1])}
    kinds = {"data": np.float32, "indices": np.int32, "indptr": np.int64}
    packed = {f"features_{name}": getattr(rows, name).astype(kind) for name, kind in kinds.items()}
    return {name: np.asarray(array) for name, array in {**arrays, **packed}.items()}


def add_samples(total: Arrays, more: Arrays) -> dict[str, AnyArray]:
    """Return two samples side by side as one; a node that is in both is there twice."""
    for sample in (total, more):
        _check_sample(sample)
    widths = [int(sample["width"]) for sample in (total, more)]
    if widths[0] != widths[1]:
        raise InputError(f"the patches have {min(widths)} to {max(widths)} features; a shared start needs the same.")
    n = len(total["indptr"]) - 1
    indices = np.concatenate([total["indices"].astype(np.int64), more["indices"].astype(np.int64) + n])
    joined: dict[str, AnyArray] = {"width": total["width"], "indices": indices}
    for name in ("features_data", "features_indices"):
        joined[name] = np.concatenate([total[name], more[name]])
    for name in ("indptr", "features_indptr"):
        joined[name] = np.concatenate([total[name], more[name][1:] + total[name][-1]])
    return joined


def sample_graph(sample: Arrays) -> Graph:
    """Return a sample as a graph with features."""
    _check_sample(sample)
    graph = Graph.from_arrays(np.asarray(sample["indptr"]), np.asarray(sample["indices"]), None)
    return Graph(graph.adjacency, csr_of(*_csr(sample, "features"), (graph.n_nodes, int(sample["width"]))))


def _check_sample(sample: Arrays) -> None:
    width = sample.get("width", np.empty(0))
    if not set(sample) >= _PARTS or width.shape != () or width.dtype.kind != "i":
        raise InputError("the sample of a patch is not a graph with features; let the patches prepare again.")


def feature_counts(features: Features) -> FloatArray:
    """Return how many nodes have each feature, (f,)."""
    if isinstance(features, sp.csr_array):
        return np.bincount(features.indices, minlength=features.shape[1]).astype(np.float64)
    return np.asarray(np.count_nonzero(features, axis=0), dtype=np.float64)


def weight_sums(encoder: Arrays, names: Sequence[str]) -> dict[str, AnyArray]:
    """Return what the encoder of one patch adds to the average, as whole multiples of 2^-24."""
    counts = np.asarray(encoder["counts"], dtype=np.float64)
    sums: dict[str, AnyArray] = {"counts": counts.astype(np.int64), "encoders": np.array(1, dtype=np.int64)}
    for name in names:
        sums[name] = np.rint(np.asarray(encoder[name], dtype=np.float64) * _UNIT).astype(np.int64)
    counted = np.asarray(encoder["weight0"], dtype=np.float64) * counts[:, None] * _UNIT
    return {**sums, "counted": np.rint(counted).astype(np.int64)}


def add_weights(total: Arrays, more: Arrays) -> dict[str, AnyArray]:
    """Return the sum of what encoders add."""
    return {name: np.asarray(total[name]) + np.asarray(more[name]) for name in total}


def average(total: Arrays, names: Sequence[str], dtype: str) -> dict[str, AnyArray]:
    """Return the average of the encoders of all patches; a feature that no patch has is averaged without weights."""
    counts, number = np.asarray(total["counts"], dtype=np.float64)[:, None], float(total["encoders"])
    means = {name: np.asarray(total[name]) / _UNIT / number for name in names}
    counted = np.asarray(total["counted"]) / _UNIT / np.where(counts > 0, counts, 1)
    means["weight0"] = np.where(counts > 0, counted, means["weight0"])
    return {name: mean.astype(dtype) for name, mean in means.items()}


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
    """Return the normalised adjacency and the features of a patch with the far clusters as further nodes."""
    from graphquilt.embedders.gcn import adjacency_with_loops

    own = np.asarray(far.nodes["degree"], dtype=np.float64)
    A = adjacency_with_loops(graph)
    if "degree" not in far.shared:
        return _normalise(A, own), X
    shared, n, k = far.shared, graph.n_nodes, len(far.shared["degree"])
    check_far_clusters(far, k)  # compiled products do not look at what they are given
    weights = np.ones(len(far.clusters)) if far.weights is None else np.asarray(far.weights)
    out = sp.csr_array((weights, np.asarray(far.clusters), np.asarray(far.indptr)), shape=(n, k))
    between = sp.csr_array(_csr(shared, "between"), shape=(k, k))
    whole = sp.csr_array(sp.block_array([[A, out], [None, between]], format="csr"))
    means = sp.csr_array(_csr(shared, "features"), shape=(k, X.shape[1]))
    both = sp.vstack([X, means], format="csr") if sp.issparse(X) else np.vstack([X, means.toarray()]).astype(X.dtype)
    return _normalise(whole, np.concatenate([own, shared["degree"]])), both


def _normalise(A: sp.csr_array, degree: Float64Array) -> sp.csr_array:
    scale = 1 / np.sqrt(degree)
    return sp.csr_array(sp.diags_array(scale) @ A @ sp.diags_array(scale))


def _csr(arrays: Arrays, name: str) -> tuple[AnyArray, AnyArray, AnyArray]:
    data, indices, indptr = (np.asarray(arrays[f"{name}_{part}"]) for part in ("data", "indices", "indptr"))
    return data, indices, indptr
