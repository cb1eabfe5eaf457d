"""Graphs and patch graphs as records of a job, and the fingerprints that tell one graph from another."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.alignment import Alignment
from graphquilt.alignment.transforms import FORMAT as ALIGNMENT_FORMAT
from graphquilt.embedders.contract import Target
from graphquilt.errors import FormatError, JobError
from graphquilt.graph import Graph
from graphquilt.patches import NodeSets, PatchGraph
from graphquilt.store import Record, Store

__all__ = [
    "alignment_of",
    "alignment_record",
    "embedded_counts",
    "embedded_patch_graph",
    "fingerprint",
    "graph_of",
    "graph_record",
    "keep_patch_graph",
    "kept_alignment",
    "kept_patch_graph",
    "patch_key",
    "target_of",
    "target_record",
]

IntArray = npt.NDArray[np.integer[Any]]
_SAMPLES = 4096  # places of an array that a fingerprint looks at


def patch_key(patch: int, what: str, round_number: int = 0) -> str:
    """Return the key of one patch's record, in a consensus round after the first embedding if one is named.

    Examples
    --------
    >>> patch_key(17, "embedding")
    'patches/00017/embedding'
    >>> patch_key(17, "embedding", 2)
    'rounds/2/patches/00017/embedding'
    """
    return (f"rounds/{round_number}/" if round_number else "") + f"patches/{patch:05d}/{what}"


def fingerprint(*arrays: Any) -> str:
    """Return a short digest that differs for arrays that differ in type, shape or any of 4096 evenly spaced places.

    It guards against resuming a job with another graph, at a cost that does not grow with the graph.

    Examples
    --------
    >>> fingerprint(np.arange(5)) == fingerprint(np.arange(5)), fingerprint(np.arange(5)) == fingerprint(np.ones(5))
    (True, False)
    """
    digest = hashlib.sha256()
    for array in arrays:
        if sp.issparse(array):
            digest.update(fingerprint(array.indptr, array.indices, array.data).encode())
            continue
        digest.update(b"-" if array is None else f"{array.dtype.str}{array.shape}".encode())
        if array is not None and len(array):
            places = np.unique(np.linspace(0, len(array) - 1, _SAMPLES).astype(np.int64))
            digest.update(np.ascontiguousarray(array[places]).tobytes())
    return digest.hexdigest()[:16]


def graph_record(nodes: IntArray, graph: Graph) -> Record:
    """Return everything that is needed to embed one patch: its nodes and their induced subgraph with features."""
    arrays: dict[str, npt.NDArray[Any]] = {
        "nodes": np.asarray(nodes, dtype=np.int64),
        "indptr": np.asarray(graph.indptr),
        "indices": np.asarray(graph.indices),
    }
    if graph.weights is not None:
        arrays["weights"] = np.asarray(graph.weights)
    parameters: dict[str, Any] = {"directed": graph.directed, "features": None}
    if sp.issparse(graph.features):
        features = sp.csr_array(graph.features)
        arrays |= {f"features_{part}": getattr(features, part) for part in ("data", "indices", "indptr")}
        parameters["features"] = [int(size) for size in features.shape]
    elif graph.features is not None:
        arrays["features"] = np.asarray(graph.features)
        parameters["features"] = [int(size) for size in graph.features.shape]
    return Record(arrays, parameters)


def graph_of(record: Record) -> tuple[IntArray, Graph]:
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
    features: Any = arrays.get("features")
    if "features_data" in arrays:
        parts = tuple(np.asarray(arrays[f"features_{part}"]) for part in ("data", "indices", "indptr"))
        features = sp.csr_array(parts, shape=tuple(parameters["features"]))
    graph = Graph.from_arrays(
        arrays["indptr"],
        arrays["indices"],
        arrays.get("weights"),
        features=features,
        node_ids=arrays["nodes"],
        directed=bool(parameters.get("directed", False)),
    )
    return arrays["nodes"], graph


def target_record(target: Target) -> Record:
    """Return where a consensus round draws a patch's nodes, as a record."""
    return Record({"rows": target.rows, "coordinates": target.coordinates}, {"weight": target.weight})


def target_of(record: Record) -> Target:
    """Return the target of a record."""
    return Target(record.arrays["rows"], record.arrays["coordinates"], float(record.parameters["weight"]))


def keep_patch_graph(
    store: Store, patch_graph: PatchGraph, graph: Graph | None, parameters: dict[str, Any] | None = None
) -> None:
    """Keep the patch graph in the store, or refuse if the store holds another one.

    Parameters
    ----------
    graph : Graph, optional
        The graph that the patches are cut from; where it is given, it is compared with the one that the job began with.
    parameters : dict, optional
        How the patches were made, to be written down beside them.
    """
    sets, edges = patch_graph.patches, patch_graph.edges
    if not isinstance(sets, NodeSets):
        sets = NodeSets.gather(sets)
    sums = np.add.reduceat(sets.nodes, sets.starts[:-1])
    said: dict[str, Any] = {"patches": fingerprint(sets.starts, sums, edges)}
    if graph is not None:
        said["graph"] = fingerprint(graph.indptr, graph.indices, graph.weights, graph.features)
    if "patch_graph" not in store:
        arrays = {
            "nodes": sets.nodes,
            "starts": sets.starts,
            "edges": edges,
            "n_nodes": np.array(patch_graph.n_nodes),
            "components": np.array(patch_graph.components),
            "report": np.array(json.dumps(patch_graph.report)),
        }
        store["patch_graph"] = Record(arrays, said | {"made_with": parameters or {}})
        return
    kept = store["patch_graph"].parameters
    for name, what in (("graph", "another graph"), ("patches", "other patches")):
        if name in said and name in kept and kept[name] != said[name]:
            raise JobError(
                f"{store!r} was begun with {what} ({name} fingerprint {kept[name]}, now {said[name]}): its embeddings "
                "do not belong to these. Use another folder, or remove this one first."
            )


def kept_patch_graph(store: Store) -> PatchGraph:
    """Open the patch graph of a job; its node lists stay on disk until they are asked for."""
    try:
        record = store["patch_graph"]
    except KeyError:
        raise JobError(f"{store!r} has no patches yet; make them first (graphquilt patch).") from None
    arrays = record.arrays
    return PatchGraph(
        NodeSets(arrays["nodes"], arrays["starts"]),
        np.array(arrays["edges"]),
        int(arrays["n_nodes"]),
        components=str(arrays["components"]),  # type: ignore[arg-type]
        report=json.loads(str(arrays["report"])),
    )


def embedded_patch_graph(store: Store) -> PatchGraph:
    """Open the patch graph that a job's embeddings belong to: that of the job, as often as it has runs."""
    runs = store["embed"].parameters.get("runs", 1) if "embed" in store else 1
    return kept_patch_graph(store).repeat(runs)


def kept_alignment(store: Store) -> Alignment:
    """Open the alignment of a job.

    Raises
    ------
    JobError
        There is none, or it is one of other runs or rounds than the job has now.
    """
    if "alignment" not in store:
        raise JobError(f"{store!r} is not aligned yet; align it first (graphquilt align).")
    record, counts = store["alignment"], embedded_counts(store)
    aligned = {name: record.parameters.get(name, least) for name, least in (("runs", 1), ("rounds", 0))}
    if aligned != counts:
        raise JobError(
            f"{store!r} was aligned with {aligned['runs']} runs and {aligned['rounds']} rounds and now has "
            f"{counts['runs']} and {counts['rounds']}; align it again (graphquilt align)."
        )
    return alignment_of(record)


def embedded_counts(store: Store) -> dict[str, int]:
    """Return how many runs and consensus rounds a job was asked for last."""
    settings = store["embed"].parameters if "embed" in store else {}
    return {"runs": settings.get("runs", 1), "rounds": settings.get("rounds", 0)}


def alignment_record(alignment: Alignment, parameters: dict[str, Any]) -> Record:
    """Return an alignment as a record; its file is one that ``Alignment.load`` reads."""
    arrays = {field.name: np.asarray(getattr(alignment, field.name)) for field in dataclasses.fields(alignment)}
    return Record({"format": np.asarray(ALIGNMENT_FORMAT), **arrays}, parameters)


def alignment_of(record: Record) -> Alignment:
    """Return the alignment of a record.

    Examples
    --------
    >>> alignment_of(alignment_record(Alignment.identity(3, 2), {})).rotations.shape
    (3, 2, 2)
    """
    arrays = {field.name: record.arrays[field.name] for field in dataclasses.fields(Alignment)}
    values: dict[str, Any] = {name: np.array(array) if array.ndim else array[()] for name, array in arrays.items()}
    return Alignment(**values)
