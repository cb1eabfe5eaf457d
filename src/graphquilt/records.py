"""What a job keeps: graphs, patch graphs and results as records, and the fingerprints that tell one from another."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from graphquilt.alignment import Alignment
from graphquilt.alignment.transforms import FORMAT as ALIGNMENT_FORMAT
from graphquilt.arrays import AnyArray, FloatArray, IntArray
from graphquilt.embedders.contract import Target
from graphquilt.errors import FormatError, JobError
from graphquilt.files import beside, explained
from graphquilt.graph import Graph
from graphquilt.patches import NodeSets, PatchGraph
from graphquilt.store import DirectoryStore, Record, Store

__all__ = [
    "alignment_of",
    "alignment_record",
    "differences",
    "embedded_counts",
    "embedded_patch_graph",
    "embedding_record",
    "fingerprint",
    "graph_fingerprint",
    "graph_of",
    "graph_record",
    "job_graph",
    "keep_graph",
    "keep_node_ids",
    "keep_patch_graph",
    "kept_alignment",
    "kept_embedding",
    "kept_patch_graph",
    "patch_graph_record",
    "patch_key",
    "target_of",
    "target_record",
]

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
    arrays: dict[str, AnyArray] = {
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


def keep_graph(store: DirectoryStore, graph: Graph, made_from: dict[str, Any], *, folder: Path | None = None) -> None:
    """Write down which graph the job is about, and keep a copy of it unless it is in a ``folder`` of its own."""
    store.start()  # first: a folder with a graph and nothing else in it is not known as a job
    if folder is None:
        with explained(store.path):
            graph.save(store.path / "graph")
    where = "graph" if folder is None else str(folder.absolute())
    store["source"] = Record({}, {"graph": where, "made_from": made_from})


def job_graph(store: DirectoryStore, made_from: dict[str, Any] | None = None) -> Graph | None:
    """Open the graph of a job, or return None where it has none yet.

    Parameters
    ----------
    made_from : dict, optional
        What the job is to be made from. A job without patches that was made from something else has no graph yet.

    Raises
    ------
    JobError
        The job's patches were made from something else than ``made_from``, or the graph is no longer the one that they
        were cut from.
    """
    try:
        source = store["source"].parameters
    except KeyError:
        return None
    others = "" if made_from is None else differences(_meaning(source["made_from"]), _meaning(made_from), _CALLED)
    if others and "patch_graph" not in store:
        return None
    if others:
        raise JobError(f"{store} was made from other input: {others}. Use another folder, or remove this one first.")
    folder = store.path / source["graph"]
    graph = Graph.open(folder)
    kept = store["patch_graph"].parameters.get("graph") if "patch_graph" in store else None
    if kept is not None and kept not in _graph_fingerprints(graph):
        raise JobError(
            f"{store} was begun with another graph than the one that is now in {folder} (fingerprint {kept}, now "
            f"{graph_fingerprint(graph)}). Put the first one back, or use another folder for the job."
        )
    return graph


_CALLED = {
    "sha256": "edges with sha256",
    "fingerprint": "graph folder with fingerprint",
    "features_sha256": "features with sha256",
    "labels_sha256": "labels with sha256",
}


def _meaning(made_from: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a job was made from without where that lies: equal bytes are the same input anywhere."""
    return {name: value for name, value in made_from.items() if name not in ("path", "features", "labels")}


def differences(kept: Mapping[str, Any], asked: Mapping[str, Any], names: Mapping[str, str] | None = None) -> str:
    """Say in which entries two mappings differ, and in nothing else.

    Examples
    --------
    >>> differences({"dim": 8, "negatives": 2}, {"dim": 8, "negatives": 1})
    'negatives 2 (now 1)'
    """
    both = dict.fromkeys((*kept, *asked))
    found = [(name, kept.get(name), asked.get(name)) for name in both if kept.get(name) != asked.get(name)]
    return ", ".join(f"{(names or {}).get(name, name)} {_brief(then)} (now {_brief(now)})" for name, then, now in found)


def _brief(value: Any) -> str:
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:16]}…"


def keep_node_ids(store: DirectoryStore, graph: Graph | None, n_nodes: int) -> None:
    """Write what the outside world calls each row of the embedding."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = np.arange(n_nodes) if graph is None or graph.node_ids is None else graph.node_ids
    path = store.path / "node_ids.parquet"
    with explained(store.path), beside(path) as part:
        pq.write_table(pa.table({"node_id": pa.array(ids)}), part)
        os.replace(part, path)


def keep_patch_graph(
    store: Store, patch_graph: PatchGraph, graph: Graph | None, parameters: dict[str, Any] | None = None
) -> None:
    """Keep the patch graph in the store, or refuse if the store holds another one; see :func:`patch_graph_record`."""
    record = patch_graph_record(store, patch_graph, graph, parameters)
    if record is not None:
        store["patch_graph"] = record


def patch_graph_record(
    store: Store, patch_graph: PatchGraph, graph: Graph | None, parameters: dict[str, Any] | None = None
) -> Record | None:
    """Return the patch graph as a record, or None where the store has it; refuse if the store holds another one.

    Parameters
    ----------
    graph : Graph, optional
        The graph that the patches are cut from; where it is given, it is compared with the one that the job began with.
    parameters : dict, optional
        How the patches were made, to be written down beside them.
    """
    sets, edges = patch_graph.node_sets, patch_graph.edges
    if not isinstance(sets, NodeSets):
        sets = NodeSets.gather(sets)
    sums = np.add.reduceat(sets.nodes, sets.starts[:-1])
    said = {"patches": [fingerprint(sets.starts, sums, edges)]}
    if graph is not None:
        said["graph"] = _graph_fingerprints(graph)
    if "patch_graph" not in store:
        arrays = {
            "nodes": sets.nodes,
            "starts": sets.starts,
            "edges": edges,
            "n_nodes": np.array(patch_graph.n_nodes),
            "components": np.array(patch_graph.components),
            "report": np.array(json.dumps(patch_graph.report)),
        }
        return Record(arrays, {name: prints[0] for name, prints in said.items()} | {"made_with": parameters or {}})
    kept = store["patch_graph"].parameters
    for name, what in (("graph", "another graph"), ("patches", "other patches")):
        if name in said and name in kept and kept[name] not in said[name]:
            raise JobError(
                f"{store} was begun with {what} ({name} fingerprint {kept[name]}, now {said[name][0]}): its "
                "embeddings do not belong to these. Use another folder, or remove this one first."
            )
    return None


def graph_fingerprint(graph: Graph) -> str:
    """Return the :func:`fingerprint` of a graph as :meth:`Graph.save` writes it."""
    return _graph_fingerprints(graph)[0]


def _graph_fingerprints(graph: Graph) -> list[str]:
    """Return the fingerprint of a graph as :meth:`Graph.save` writes it, and as it is: older jobs have that one."""
    small = np.int32 if graph.n_nodes <= np.iinfo(np.int32).max else np.int64
    saved = graph.indptr.astype(np.int64, copy=False), graph.indices.astype(small, copy=False)
    rest = (graph.weights, graph.features)
    found = [fingerprint(*saved, *rest)]
    if saved[0].dtype != graph.indptr.dtype or saved[1].dtype != graph.indices.dtype:
        found.append(fingerprint(graph.indptr, graph.indices, *rest))
    return found


def kept_patch_graph(store: Store) -> PatchGraph:
    """Open the patch graph of a job; its node lists stay on disk until they are asked for."""
    try:
        record = store["patch_graph"]
    except KeyError:
        raise JobError(f"{store} has no patches yet; make them first (graphquilt patch).") from None
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
        raise JobError(f"{store} is not aligned yet; align it first (graphquilt align).")
    record, counts = store["alignment"], embedded_counts(store)
    aligned = {name: record.parameters.get(name, least) for name, least in (("runs", 1), ("rounds", 0))}
    if aligned != counts:
        raise JobError(
            f"{store} was aligned with {aligned['runs']} runs and {aligned['rounds']} rounds and now has "
            f"{counts['runs']} and {counts['rounds']}; align it again (graphquilt align)."
        )
    return alignment_of(record)


def kept_embedding(store: Store) -> FloatArray:
    """Open the embedding of a job.

    Raises
    ------
    JobError
        There is none, or it is not the one of the alignment, runs and rounds that the job has now.
    """
    if "embedding" not in store:
        raise JobError(f"{store} has no embedding yet; align it first (graphquilt align).")
    record = store["embedding"]
    kept_alignment(store)
    # Embeddings of older jobs do not say which alignment they are of.
    if record.parameters.get("alignment") not in (None, _alignment_fingerprint(store["alignment"])):
        raise JobError(
            f"the embedding in {store} is not the one of its alignment: an alignment was stopped before its end. "
            "Align it again (graphquilt align)."
        )
    return record.arrays["embedding"]


def embedding_record(X: FloatArray, aligned: Record) -> Record:
    """Return the embedding of a job as a record that says which alignment it is of."""
    n_nodes, dim = X.shape
    return Record({"embedding": X}, {"n_nodes": n_nodes, "dim": dim, "alignment": _alignment_fingerprint(aligned)})


def _alignment_fingerprint(record: Record) -> str:
    settings = np.frombuffer(json.dumps(dict(record.parameters), sort_keys=True).encode(), dtype=np.uint8)
    return fingerprint(*(record.arrays[name] for name in ("scales", "rotations", "translations")), settings)


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
