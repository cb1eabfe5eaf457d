"""Records: how the data of patches is kept in a store, and the fingerprints of graphs and patch graphs."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, IntArray
from graphquilt.embedders import FarField
from graphquilt.errors import FormatError, InputError
from graphquilt.files import is_size
from graphquilt.graph import Graph
from graphquilt.graph.checks import ColumnCheck, check_rows
from graphquilt.graph.files import graph_checksums
from graphquilt.jobs.description import fingerprint
from graphquilt.jobs.store import Parameters, Record
from graphquilt.patches import NodeSets, PatchGraph


def patch_key(patch: int, content: str) -> str:
    """Return the key of one patch's record."""
    return f"patches/{patch:05d}/{content}"


def graph_fingerprint(graph: Graph) -> str:
    """Return the fingerprint of the checksums that :meth:`Graph.save` writes; those of a graph folder are known."""
    content = {"directed": graph.directed, "arrays": graph_checksums(graph)}
    return fingerprint(np.frombuffer(json.dumps(content, sort_keys=True).encode(), dtype=np.uint8))


def patch_graph_fingerprint(patch_graph: PatchGraph) -> str:
    """Return the fingerprint of node sets and patch edges, whatever the type of the node ids."""
    sets = patch_graph.node_sets
    if not isinstance(sets, NodeSets):
        sets = NodeSets.gather(sets)
    return fingerprint(sets.starts, sets.nodes, patch_graph.edges, wide=True)


def graph_record(nodes: IntArray, graph: Graph, far: FarField | None = None) -> Record:
    """Return everything that is needed to embed one patch: its nodes and their induced subgraph with features."""
    arrays: dict[str, AnyArray] = {
        "nodes": np.asarray(nodes, dtype=np.int64),
        "indptr": np.asarray(graph.indptr),
        "indices": np.asarray(graph.indices),
    }
    if graph.weights is not None:
        arrays["weights"] = np.asarray(graph.weights)
    shape: list[int] | None = None
    if sp.issparse(graph.features):
        features = sp.csr_array(graph.features)
        arrays |= {f"features_{part}": getattr(features, part) for part in ("data", "indices", "indptr")}
        shape = [int(size) for size in features.shape]
    elif graph.features is not None:
        arrays["features"] = np.asarray(graph.features)
        shape = [int(size) for size in graph.features.shape]
    parameters: dict[str, object] = {"directed": graph.directed, "features": shape}
    if far is not None:
        arrays |= {f"survey_{name}": np.asarray(array) for name, array in far.nodes.items()}
        arrays |= {"far_indptr": np.asarray(far.indptr), "far_clusters": np.asarray(far.clusters)}
        if far.weights is not None:
            arrays["far_weights"] = np.asarray(far.weights)
        parameters |= {"n_nodes": far.n_nodes}
    return Record(arrays, parameters)


def graph_of(record: Record) -> tuple[AnyArray, Graph, FarField | None]:
    """Return the nodes and the graph of a patch's record, and what it knows of the rest, without what is for all."""
    arrays, parameters = record.arrays, record.parameters
    missing = {"nodes", "indptr", "indices"} - set(arrays)
    if missing:
        raise FormatError(f"a patch's record lacks {sorted(missing)}; see docs/job-format.md for what it holds.")
    try:
        graph = Graph.from_arrays(
            arrays["indptr"],
            arrays["indices"],
            arrays.get("weights"),
            features=_sparse_features(arrays, parameters) if "features_data" in arrays else arrays.get("features"),
            node_ids=arrays["nodes"],
            directed=bool(parameters.get("directed", False)),
        )
    except (InputError, KeyError, ValueError, TypeError) as error:
        raise FormatError(f"a patch's record is not a graph: {error} Make it again.") from error
    if "far_indptr" not in arrays:
        return arrays["nodes"], graph, None
    return arrays["nodes"], graph, _far_of(arrays, parameters, graph.n_nodes)


def _far_of(arrays: Mapping[str, AnyArray], parameters: Parameters, n: int) -> FarField:
    """Return the far field of a record with n nodes, and refuse one that cannot be."""
    n_nodes = parameters.get("n_nodes")
    if not (is_size(n_nodes) and n <= n_nodes):
        raise FormatError(f"a patch's record has {n} nodes, and says that the whole graph has {n_nodes!r}.")
    nodes = {name.removeprefix("survey_"): array for name, array in arrays.items() if name.startswith("survey_")}
    if any(array.ndim == 0 or len(array) != n for array in nodes.values()):
        raise FormatError(f"the survey in a patch's record does not have one row for each of {n} nodes.")
    indptr, clusters, weights = arrays["far_indptr"], arrays.get("far_clusters"), arrays.get("far_weights")
    whole = all(array is not None and array.ndim == 1 and array.dtype.kind in "iu" for array in (indptr, clusters))
    if clusters is None or not whole or len(indptr) != n + 1:
        raise FormatError(f"the edges that leave a patch of {n} nodes are not one list of clusters per node.")
    try:
        check_rows(np.asarray(indptr), len(clusters))
    except InputError as error:
        raise FormatError(f"the edges that leave a patch of {n} nodes cannot be read: {error}") from error
    if weights is not None and (weights.shape != clusters.shape or not np.isfinite(weights).all()):
        raise FormatError(f"{len(clusters)} edges leave a patch, and their weights are not as many finite numbers.")
    return FarField(n_nodes, nodes, {}, np.asarray(indptr), np.asarray(clusters), weights)


def _sparse_features(arrays: Mapping[str, AnyArray], parameters: Parameters) -> sp.csr_array:
    data, indices, indptr = (np.asarray(arrays[f"features_{part}"]) for part in ("data", "indices", "indptr"))
    shape = parameters.get("features")
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(size) is int and size >= 0 for size in shape):
        raise FormatError(f"a patch's record gives {shape!r} as the shape of its features; two numbers belong there.")
    check_rows(indptr, len(indices))
    ColumnCheck(indptr, shape[1], ascending=False)(indices)
    return sp.csr_array((data, indices, indptr), shape=(shape[0], shape[1]))
