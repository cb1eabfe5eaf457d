"""A graph as a folder of ``.npy`` files.

::

    graph.json        format, version, n_nodes, n_edges, directed, names of the arrays; written last
    indptr.npy        int64 (n + 1,)
    indices.npy       int32 where the ids fit, else int64 (m,)
    weights.npy       float (m,), only if the edges carry weights
    features.npy      (n, f); or features_data.npy, features_indices.npy, features_indptr.npy and
                      features_shape.npy for sparse ones
    labels.npy        (n,)          node_ids.npy  (n,)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError
from graphquilt.files import explained, map_arrays, save_arrays, write_text
from graphquilt.graph.checks import index_type
from graphquilt.graph.structure import Features, Graph

__all__ = ["DESCRIPTION", "attach", "open_array", "open_graph", "save", "sparse_features", "write_description"]

FORMAT = "graphquilt-graph"
VERSION = 1
DESCRIPTION = "graph.json"
_CSR_PARTS = ("data", "indices", "indptr", "shape")


def write_description(folder: Path, *, n_nodes: int, n_edges: int, directed: bool, arrays: Iterable[str]) -> None:
    """Write ``graph.json``: from then on the folder is a graph."""
    description = {
        "format": FORMAT,
        "version": VERSION,
        "n_nodes": n_nodes,
        "n_edges": n_edges,
        "directed": directed,
        "arrays": sorted(arrays),
    }
    write_text(folder / DESCRIPTION, json.dumps(description, indent=2))


def save(graph: Graph, folder: str | PathLike[str]) -> None:
    """Write ``graph`` to ``folder``; an older graph there stops being one before the first file changes."""
    arrays: dict[str, AnyArray | None] = {
        "indptr": np.asanyarray(graph.indptr).astype(np.int64, copy=False),
        "indices": graph.indices.astype(index_type(graph.n_nodes), copy=False),
        "weights": graph.weights,
        "labels": graph.labels,
        "node_ids": graph.node_ids,
    }
    target = Path(folder)
    with explained(target):
        target.mkdir(parents=True, exist_ok=True)
        (target / DESCRIPTION).unlink(missing_ok=True)
        _write(graph, target, arrays | _feature_arrays(graph.features))


def attach(folder: str | PathLike[str], *, features: Features | None = None, labels: AnyArray | None = None) -> None:
    """Add features or labels to a graph on disk without writing its edges again."""
    graph = open_graph(folder)
    for name, values in (("features", features), ("labels", labels)):
        if values is not None and values.shape[0] != graph.n_nodes:
            raise InputError(f"the graph has {graph.n_nodes} nodes and the {name} have {values.shape[0]} rows.")
    target = Path(folder)
    present = json.loads((target / DESCRIPTION).read_text(encoding="utf-8"))["arrays"]
    if features is not None:  # which may be sparse where the old ones are dense
        present = [name for name in present if not name.startswith("features")]
    with explained(target):
        _write(graph, target, {"labels": labels} | _feature_arrays(features), present)


def _write(graph: Graph, target: Path, arrays: Mapping[str, AnyArray | None], present: Iterable[str] = ()) -> None:
    """Write the arrays that are not None, and then the description, which also lists those that are ``present``."""
    names = set(present)
    for name, values in arrays.items():
        if values is not None:
            save_arrays(target / f"{name}.npy", {name: values.astype(str) if values.dtype.hasobject else values})
            names.add(name)
    write_description(target, n_nodes=graph.n_nodes, n_edges=graph.n_edges, directed=graph.directed, arrays=names)


def _feature_arrays(features: Features | None) -> dict[str, AnyArray | None]:
    if not isinstance(features, sp.sparray | sp.spmatrix):
        return {"features": features}
    X = sp.csr_array(features)
    return {f"features_{part}": np.asarray(getattr(X, part)) for part in _CSR_PARTS}


def sparse_features(arrays: Mapping[str, AnyArray], prefix: str) -> sp.csr_array | None:
    """Return the CSR matrix whose parts are named ``<prefix>_data`` and so on; None where they are not there."""
    if f"{prefix}_data" not in arrays:
        return None
    data, indices, indptr, shape = (arrays[f"{prefix}_{part}"] for part in _CSR_PARTS)
    return sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))


def open_array(path: Path) -> AnyArray:
    """Open a ``.npy`` file memory-mapped; a file that is missing, cut short or not NumPy is an error that names it."""
    try:
        return map_arrays(path, (path.stem,))[path.stem]
    except OSError as error:
        problem = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise FormatError(f"{path} {problem}; write the graph again.") from error


def open_graph(folder: str | PathLike[str]) -> Graph:
    """Open the graph in ``folder``."""
    source = Path(folder)
    path = source / DESCRIPTION
    if not path.is_file():
        raise FormatError(
            f"{source} holds no graph: {DESCRIPTION} is missing. It is written last, so an interrupted "
            "save or build leaves none; run it again."
        )
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        form, version, names = description["format"], description["version"], description["arrays"]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path} is not a graph's description: {error!r}.") from error
    if form != FORMAT or version != VERSION:
        raise FormatError(f"{path} says {form} version {version}; this release reads {FORMAT} version {VERSION}.")
    arrays = {name: open_array(source / f"{name}.npy") for name in names}
    n, m = description["n_nodes"], description["n_edges"]
    for name, expected in (("indptr", n + 1), ("indices", m)):
        if len(arrays[name]) != expected:
            raise FormatError(
                f"{source / name}.npy has {len(arrays[name])} entries where {DESCRIPTION} promises {expected}."
            )
    return Graph.from_arrays(
        arrays["indptr"],
        arrays["indices"],
        arrays.get("weights"),
        features=arrays.get("features", sparse_features(arrays, "features")),
        labels=arrays.get("labels"),
        node_ids=arrays.get("node_ids"),
        directed=bool(description["directed"]),
    )
