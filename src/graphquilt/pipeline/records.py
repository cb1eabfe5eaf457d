"""Records: how graphs, patch graphs, alignments and targets are kept in a store."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, IntArray
from graphquilt.embedders.contract import Target
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import Graph
from graphquilt.graph.checks import ColumnCheck, check_rows
from graphquilt.graph.files import graph_checksums
from graphquilt.patches import NodeSets, PatchGraph
from graphquilt.pipeline.description import fingerprint
from graphquilt.pipeline.store import Parameters, Record

__all__ = [
    "graph_fingerprint",
    "graph_of",
    "graph_record",
    "patch_graph_fingerprint",
    "patch_key",
    "target_fingerprint",
    "target_of",
    "target_record",
]


def patch_key(patch: int, content: str, round_number: int = 0) -> str:
    """Return the key of one patch's record; consensus rounds after the first embedding have keys of their own.

    Examples
    --------
    >>> patch_key(17, "embedding")
    'patches/00017/embedding'
    >>> patch_key(17, "embedding", 2)
    'rounds/2/patches/00017/embedding'
    """
    return (f"rounds/{round_number}/" if round_number else "") + f"patches/{patch:05d}/{content}"


def graph_fingerprint(graph: Graph) -> str:
    """Return the fingerprint of the checksums that :meth:`Graph.save` writes; those of a graph folder are known."""
    content = {"directed": graph.directed, "arrays": graph_checksums(graph)}
    return fingerprint(np.frombuffer(json.dumps(content, sort_keys=True).encode(), dtype=np.uint8))


def patch_graph_fingerprint(patch_graph: PatchGraph) -> str:
    """Return the fingerprint of node sets and patch edges."""
    sets = patch_graph.node_sets
    if not isinstance(sets, NodeSets):
        sets = NodeSets.gather(sets)
    return fingerprint(sets.starts, sets.nodes, patch_graph.edges)


def graph_record(nodes: IntArray, graph: Graph) -> Record:
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
    return Record(arrays, {"directed": graph.directed, "features": shape})


def graph_of(record: Record) -> tuple[AnyArray, Graph]:
    """Return the nodes and the graph of a patch's record.

    Examples
    --------
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> nodes, graph = graph_of(graph_record(np.array([4, 5, 9]), path))
    >>> nodes.tolist(), graph.n_edges
    ([4, 5, 9], 4)
    """
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
        raise FormatError(f"a patch's record is no graph: {error} It has to be made again.") from error
    return arrays["nodes"], graph


def _sparse_features(arrays: Mapping[str, AnyArray], parameters: Parameters) -> sp.csr_array:
    data, indices, indptr = (np.asarray(arrays[f"features_{part}"]) for part in ("data", "indices", "indptr"))
    shape = parameters.get("features")
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(size) is int and size >= 0 for size in shape):
        raise FormatError(f"a patch's record gives {shape!r} as the shape of its features; two numbers belong there.")
    check_rows(indptr, len(indices))
    ColumnCheck(indptr, shape[1], ascending=False)(indices)
    return sp.csr_array((data, indices, indptr), shape=(shape[0], shape[1]))


def target_fingerprint(target: Target) -> str:
    """Return what the marker of an embedding says about the target that the patch was pulled to."""
    return f"{fingerprint(target.rows, target.coordinates)} weight {target.weight:g}"


def target_record(target: Target) -> Record:
    """Return where a consensus round pulls a patch's nodes, as a record."""
    return Record({"rows": target.rows, "coordinates": target.coordinates}, {"weight": target.weight})


def target_of(record: Record) -> Target:
    """Return the target of a record."""
    weight = record.parameters.get("weight")
    if not isinstance(weight, int | float):
        raise FormatError(f"a target's record has the weight {weight!r}; a number belongs there.")
    return Target(record.arrays["rows"], record.arrays["coordinates"], float(weight))
