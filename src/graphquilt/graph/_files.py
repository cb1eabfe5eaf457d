"""A graph as a folder of ``.npy`` files.

::

    graph.json        format, version, n_nodes, n_edges, directed, names and checks of the arrays; written last
    indptr.npy        int64 (n + 1,)
    indices.npy       int32 where the ids fit, else int64 (m,)
    weights.npy       float (m,), only if the edges carry weights
    features.npy      (n, f); or features_data.npy, features_indices.npy, features_indptr.npy for sparse ones
    labels.npy        (n,)          node_ids.npy  (n,)
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError

if TYPE_CHECKING:
    from graphquilt.graph import Graph

__all__ = ["attach", "describe", "disk_errors", "open_array", "open_graph", "save", "write_array", "write_description"]

FORMAT = "graphquilt-graph"
VERSION = 1
DESCRIPTION = "graph.json"


def narrow(indices: AnyArray, n_nodes: int) -> AnyArray:
    """Return ``indices`` in 32 bits where node ids fit."""
    return indices.astype(np.int32 if n_nodes <= np.iinfo(np.int32).max else np.int64, copy=False)


@contextmanager
def disk_errors(target: Path, advice: str) -> Iterator[None]:
    """Turn a full disk, or a folder that cannot be written, into an error that says what to do."""
    try:
        yield
    except OSError as error:
        # NumPy reports a short write without a number.
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None):
            reason = error.strerror or error
            raise InputError(f"the disk under {target} is full ({reason}). Free some space; {advice}") from error
        if isinstance(error, PermissionError | NotADirectoryError | FileExistsError) or error.errno == errno.EROFS:
            raise InputError(f"{target} cannot be written: {error.strerror}. Choose another place.") from error
        raise


def write_array(path: Path, array: AnyArray) -> None:
    """Write a ``.npy`` file under another name and rename it when it is complete."""
    if array.dtype.hasobject:
        array = array.astype(str)
    partial = path.with_name(path.name + ".part")
    try:
        with partial.open("wb") as file:
            np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    partial.replace(path)


def write_description(folder: Path, description: dict[str, Any]) -> None:
    """Write ``graph.json``: from then on the folder is a graph."""
    partial = folder / (DESCRIPTION + ".part")
    partial.write_text(json.dumps(description, indent=2) + "\n")
    partial.replace(folder / DESCRIPTION)


def describe(*, n_nodes: int, n_edges: int, directed: bool, arrays: list[str]) -> dict[str, Any]:
    """Return what ``graph.json`` says."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "n_nodes": n_nodes,
        "n_edges": n_edges,
        "directed": directed,
        "arrays": arrays,
    }


def save(graph: Graph, folder: str | PathLike[str]) -> None:
    """Write ``graph`` to ``folder``; an older graph there stops being one before the first file changes."""
    target = Path(folder)
    with disk_errors(target, "nothing there is taken for a finished graph."):
        target.mkdir(parents=True, exist_ok=True)
        (target / DESCRIPTION).unlink(missing_ok=True)
        _write(graph, target)


def _write(graph: Graph, target: Path) -> None:
    arrays: dict[str, AnyArray] = {
        "indptr": np.asanyarray(graph.indptr).astype(np.int64, copy=False),
        "indices": narrow(graph.indices, graph.n_nodes),
    }
    if graph.weights is not None:
        arrays["weights"] = graph.weights
    if graph.features is not None:
        arrays |= _feature_arrays(graph.features)
    for name, values in (("labels", graph.labels), ("node_ids", graph.node_ids)):
        if values is not None:
            arrays[name] = values
    for name, values in arrays.items():
        write_array(target / f"{name}.npy", values)
    description = describe(n_nodes=graph.n_nodes, n_edges=graph.n_edges, directed=graph.directed, arrays=sorted(arrays))
    write_description(target, description)


def attach(folder: str | PathLike[str], *, features: Any = None, labels: AnyArray | None = None) -> None:
    """Add features or labels to a graph on disk without writing its edges again."""
    target = Path(folder)
    graph = open_graph(target)
    description = json.loads((target / DESCRIPTION).read_text())
    arrays: dict[str, AnyArray] = {} if labels is None else {"labels": labels}
    if features is not None:
        arrays |= _feature_arrays(features)
    for name, values in arrays.items():
        if name in ("features", "labels") and len(values) != graph.n_nodes:
            raise InputError(f"the graph has {graph.n_nodes} nodes and the {name} have {len(values)} rows.")
        write_array(target / f"{name}.npy", values)
    write_description(target, description | {"arrays": sorted({*description["arrays"], *arrays})})


def _feature_arrays(features: Any) -> dict[str, AnyArray]:
    if not sp.issparse(features):
        return {"features": np.asanyarray(features)}
    X = sp.csr_array(features)
    return {
        "features_data": X.data,
        "features_indices": X.indices,
        "features_indptr": X.indptr,
        "features_shape": np.array(X.shape, dtype=np.int64),
    }


def open_array(path: Path) -> AnyArray:
    """Open a ``.npy`` file memory-mapped; what is missing, cut short or not NumPy is an error that names it."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except FileNotFoundError as error:
        raise FormatError(f"{path} is missing; write the graph again.") from error
    except (ValueError, OSError, EOFError) as error:
        size = path.stat().st_size if path.exists() else 0
        # An empty array cannot be mapped, and need not be.
        try:
            with path.open("rb") as file:
                whole = np.load(file, allow_pickle=False)
            if isinstance(whole, np.ndarray):
                return whole
        except (ValueError, OSError, EOFError):
            pass
        raise FormatError(
            f"{path} ({size} bytes) is not a complete .npy file: {error}. It may have been cut short; write it again."
        ) from error


def open_graph(folder: str | PathLike[str]) -> Graph:
    """Open the graph in ``folder``."""
    from graphquilt.graph import Graph

    source = Path(folder)
    path = source / DESCRIPTION
    if not path.is_file():
        raise FormatError(
            f"{source} holds no graph: {DESCRIPTION} is missing. It is written last, so an interrupted "
            "save or build leaves none; run it again."
        )
    try:
        description = json.loads(path.read_text())
        form, version, names = description["format"], description["version"], description["arrays"]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path} is not a graph's description: {error!r}.") from error
    if form != FORMAT or version != VERSION:
        raise FormatError(f"{path} says {form} version {version}; this release reads {FORMAT} version {VERSION}.")
    arrays = {name: open_array(source / f"{name}.npy") for name in names}
    n, m = description["n_nodes"], description["n_edges"]
    for name, found, expected in (("indptr", len(arrays["indptr"]), n + 1), ("indices", len(arrays["indices"]), m)):
        if found != expected:
            raise FormatError(f"{source / name}.npy has {found} entries where {DESCRIPTION} promises {expected}.")
    features: Any = arrays.get("features")
    if "features_data" in arrays:
        parts = (arrays["features_data"], arrays["features_indices"], arrays["features_indptr"])
        features = sp.csr_array(parts, shape=tuple(arrays["features_shape"].tolist()))
    return Graph.from_arrays(
        arrays["indptr"],
        arrays["indices"],
        arrays.get("weights"),
        features=features,
        labels=arrays.get("labels"),
        node_ids=arrays.get("node_ids"),
        directed=bool(description["directed"]),
    )
