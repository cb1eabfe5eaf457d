"""Records: how graphs, patch graphs, alignments and targets are kept in a store."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, FloatArray, IntArray
from graphquilt.embedders.contract import Target
from graphquilt.errors import FormatError
from graphquilt.graph import Graph
from graphquilt.patches import NodeSets, PatchGraph
from graphquilt.pipeline.description import fingerprint
from graphquilt.pipeline.store import Record

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
    """Return the fingerprint of a graph in the number types that :meth:`Graph.save` writes."""
    small = np.int32 if graph.n_nodes <= np.iinfo(np.int32).max else np.int64
    indptr, indices = graph.indptr.astype(np.int64, copy=False), graph.indices.astype(small, copy=False)
    return fingerprint(indptr, indices, graph.weights, graph.features)


def patch_graph_fingerprint(patch_graph: PatchGraph) -> str:
    """Return the fingerprint of node sets and patch edges."""
    sets = patch_graph.node_sets
    if not isinstance(sets, NodeSets):
        sets = NodeSets.gather(sets)
    sums = np.add.reduceat(sets.nodes, sets.starts[:-1])
    return fingerprint(sets.starts, sums, patch_graph.edges)


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
    features: FloatArray | sp.csr_array | None = arrays.get("features")
    if "features_data" in arrays:
        parts = tuple(np.asarray(arrays[f"features_{part}"]) for part in ("data", "indices", "indptr"))
        shape = parameters.get("features")
        if not isinstance(shape, list) or len(shape) != 2:
            raise FormatError(
                f"a patch's record gives {shape!r} as the shape of its features; two numbers belong there."
            )
        features = sp.csr_array(parts, shape=(int(shape[0]), int(shape[1])))
    graph = Graph.from_arrays(
        arrays["indptr"],
        arrays["indices"],
        arrays.get("weights"),
        features=features,
        node_ids=arrays["nodes"],
        directed=bool(parameters.get("directed", False)),
    )
    return arrays["nodes"], graph


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
