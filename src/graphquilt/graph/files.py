"""A graph as a folder of ``.npy`` files (format 2).

::

    graph.json        format, version, n_nodes, n_edges, directed; shape, dtype and SHA-256 of each array; its own
                      checksum; written last
    indptr.npy        int64 (n + 1,)
    indices.npy       int32 where the ids fit, else int64 (m,)
    weights.npy       float (m,), only if the edges carry weights
    features.npy      (n, f); or features_data.npy, features_indices.npy, features_indptr.npy and
                      features_shape.npy for sparse ones; or none, where graph.json names the file that has them
    labels.npy        (n,)          node_ids.npy  (n,)
    checked.json      size, times and inode that the files of a large graph had when they were checked last

The SHA-256 of an array is that of its values in C order, without the header of its file.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, pieces
from graphquilt.errors import FormatError, InputError
from graphquilt.files import array_writer, check_disk, checksums, map_array, translate_disk_errors, write_text
from graphquilt.files.checksums import array_checksum, is_reference, is_size, reference, stamp
from graphquilt.graph.checks import ColumnCheck, check_rows, check_weights, index_type, sparse_of
from graphquilt.graph.structure import Features, Graph
from graphquilt.progress import ProgressCallback, report

FORMAT = "graphquilt-graph"
VERSION = 2
DESCRIPTION = "graph.json"
_CSR_PARTS = ("data", "indices", "indptr", "shape")
_FEATURE_PARTS = tuple(f"features_{part}" for part in _CSR_PARTS)
_NAMES = ("indptr", "indices", "weights", "labels", "node_ids", "features", *_FEATURE_PARTS)
_ENTRIES = 1 << 22  # edges, or values of other arrays, that are read at once
_REMEDY = "The folder is damaged: bring back its files, or write the graph again"

_log = logging.getLogger(__name__)
Folder: TypeAlias = str | PathLike[str]
Entries: TypeAlias = Mapping[str, Mapping[str, object]]  # shape, dtype and sha256 of arrays by their names


def write_description(folder: Path, *, n_nodes: int, n_edges: int, directed: bool, arrays: Entries) -> None:
    """Write ``graph.json``: from then on the folder is a graph."""
    sizes = {"n_nodes": n_nodes, "n_edges": n_edges, "directed": directed}
    content = {"format": FORMAT, "version": VERSION, **sizes, "arrays": dict(sorted(arrays.items()))}
    write_text(folder / DESCRIPTION, checksums.sealed_text(content))
    here = {name: str(entry["sha256"]) for name, entry in arrays.items() if not is_reference(entry)}
    checksums.remember(folder, here)


def save(graph: Graph, folder: Folder) -> None:
    """Write ``graph`` to ``folder``; an older graph there stops being one before the first file changes."""
    target = Path(folder)
    with translate_disk_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        (target / DESCRIPTION).unlink(missing_ok=True)
        _write(graph, target, _arrays(graph), {})


def attach(folder: Folder, *, features: Features | Path | None = None, labels: AnyArray | None = None) -> None:
    """Add features or labels to a graph on disk without writing its edges again.

    Features that are the path of a ``.npy`` file stay there: the folder then holds a reference to that file.
    """
    graph = open_graph(folder)
    target = Path(folder)
    elsewhere = {"features": reference(features)} if isinstance(features, Path) else {}
    rows = {} if features is None else {"features": open_array(features) if isinstance(features, Path) else features}
    for name, values in (rows if labels is None else {**rows, "labels": labels}).items():
        if values.shape[0] != graph.n_nodes:
            raise InputError(f"the graph has {graph.n_nodes} nodes and the {name} have {values.shape[0]} rows.")
    known = _description(target)["arrays"]
    replaced = ("features",) * (features is not None) + ("labels",) * (labels is not None)
    left = {name: entry for name, entry in known.items() if not (replaced and name.startswith(replaced))}
    with translate_disk_errors(target):
        # What is replaced is not part of the graph while it is written: a killed writer leaves a whole graph.
        _write(graph, target, {}, left)
        arrays = {} if elsewhere or features is None else _feature_arrays(rows["features"])
        _write(graph, target, ({} if labels is None else {"labels": labels}) | arrays, left | elsewhere)


def _write(graph: Graph, target: Path, arrays: Mapping[str, AnyArray], present: Entries) -> None:
    """Write the arrays, and then the description, which also lists those that are ``present``."""
    entries = dict(present)
    for name, array in arrays.items():
        values = array.astype(str) if array.dtype.hasobject else array
        entries[name] = _write_array(target, name, checksums.blocks(values), values.dtype, values.shape[1:])
    write_description(target, n_nodes=graph.n_nodes, n_edges=graph.n_entries, directed=graph.directed, arrays=entries)


def _write_array(
    target: Path, name: str, parts: Iterable[AnyArray], kind: npt.DTypeLike, row: tuple[int, ...] = ()
) -> dict[str, Any]:
    """Write an array part by part, in C order, and return what the description says about it."""
    with array_writer(target / f"{name}.npy", np.dtype(kind), row) as file:
        for part in parts:
            file.append(part)
    return file.entry


def _arrays(graph: Graph) -> dict[str, AnyArray]:
    """Return the arrays of a graph by their names in a folder, in the number types that :func:`save` gives them."""
    arrays: dict[str, AnyArray | None] = {
        "indptr": np.asanyarray(graph.indptr).astype(np.int64, copy=False),
        "indices": np.asanyarray(graph.indices).astype(index_type(graph.n_nodes), copy=False),
        "weights": graph.weights,
        "labels": graph.labels,
        "node_ids": graph.node_ids,
        **_feature_arrays(graph.features),
    }
    return {name: values for name, values in arrays.items() if values is not None}


def graph_checksums(graph: Graph) -> dict[str, list[object]]:
    """Return type, shape and SHA-256 of everything that an embedding depends on; of large features 64 samples."""
    return {
        name: [values.dtype.str, list(values.shape), graph.checksums.get(name) or _checksum(values)]
        for name, values in _arrays(graph).items()
        if name not in ("labels", "node_ids")
    }


def _checksum(values: AnyArray) -> str:
    file = checksums.large_file(values)
    return array_checksum(values) if file is None else str(reference(file)["sha256"])


def with_checksums(graph: Graph, folder: str | None = None) -> Graph:
    """Return the graph with the checksums of all that an embedding depends on; ``folder`` has the same graph."""
    known = {name: str(entry[2]) for name, entry in graph_checksums(graph).items()}
    return Graph.__new__(Graph)._set(
        (graph.indptr, graph.indices, graph.weights),
        graph.features,
        graph.labels,
        graph.node_ids,
        directed=graph.directed,
        checksums=known,
        folder=graph.folder if folder is None else folder,
    )


def _feature_arrays(features: Features | None) -> dict[str, AnyArray]:
    if features is None:
        return {}
    if not isinstance(features, sp.sparray | sp.spmatrix):
        return {"features": features}
    X = sp.csr_array(features)
    return {f"features_{part}": np.asarray(getattr(X, part)) for part in _CSR_PARTS}


def sparse_features(arrays: Mapping[str, AnyArray], prefix: str) -> sp.csr_array | None:
    """Return the CSR matrix whose parts are named ``<prefix>_data`` and so on; None where they are not there."""
    if f"{prefix}_data" not in arrays:
        return None
    return sparse_of("csr", {part: arrays[f"{prefix}_{part}"] for part in _CSR_PARTS if f"{prefix}_{part}" in arrays})


def open_array(path: Path) -> AnyArray:
    """Open a ``.npy`` file memory-mapped; a file that is missing, cut short or not NumPy is an error that names it."""
    try:
        return map_array(path)
    except OSError as error:
        problem = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise FormatError(f"{path} {problem}; write the graph again.") from error


def open_graph(folder: Folder, *, verify: bool = False) -> Graph:
    """Open the graph in ``folder``; ``verify`` reads everything, whether or not it has been checked before."""
    source = Path(folder)
    description = _description(source)
    entries: dict[str, Any] = description["arrays"]
    elsewhere = {name: entry for name, entry in entries.items() if is_reference(entry)}
    arrays = {name: open_array(source / f"{name}.npy") for name in entries if name not in elsewhere}
    marks = {name: stamp(source / f"{name}.npy") for name in arrays}
    referenced = {name: checksums.open_reference(source, entry, verify=verify) for name, entry in elsewhere.items()}
    now = time.time_ns()
    known = before = {} if verify else checksums.remembered(source, marks)
    try:
        _check_shapes({**arrays, **referenced}, description)
        if not known:
            _log.info("checking the graph in %s (%d bytes)", source, sum(values.nbytes for values in arrays.values()))
            known = _check_content(arrays)
        features = (arrays | referenced).get("features", sparse_features(arrays, "features"))
        for name in arrays:
            if (expected := entries[name]["sha256"]) != known[name]:
                raise InputError(
                    f"{name}.npy does not have the SHA-256 that {DESCRIPTION} says (found {known[name][:12]}…, "
                    f"expected {expected[:12]}…): its bytes have changed."
                )
        usual = arrays["indices"].dtype == index_type(description["n_nodes"])  # as :func:`save` gives them
        sealed = known | {name: entry["sha256"] for name, entry in elsewhere.items()}
        graph = Graph.__new__(Graph)._set(
            (arrays["indptr"], arrays["indices"], arrays.get("weights")),
            features,
            arrays.get("labels"),
            arrays.get("node_ids"),
            directed=description["directed"],
            checksums={name: value for name, value in sealed.items() if name != "indices" or usual},
            folder=str(source.absolute()),
        )
    except InputError as error:
        raise FormatError(f"the graph in {source} cannot be used: {error} {_REMEDY}.") from error
    if not before:
        checksums.remember_checked(source, marks, known, now)
    return graph


def folder_version(folder: Folder) -> tuple[tuple[int, ...], ...]:
    """Return sizes, times and inodes of all files of a graph folder: others mean that it must be opened again."""
    source = Path(folder)
    entries = _description(source)["arrays"].items()
    paths = [Path(entry["path"]) if is_reference(entry) else source / f"{name}.npy" for name, entry in entries]
    try:
        return tuple(tuple(stamp(path)) for path in (source / DESCRIPTION, *paths))
    except OSError as error:
        raise FormatError(f"{error.filename} of the graph in {source} cannot be read ({error.strerror}).") from error


def _description(source: Path) -> dict[str, Any]:
    """Read and check ``graph.json``."""
    path = source / DESCRIPTION
    if not path.is_file():
        if source.is_dir() and not any(source.iterdir()):
            raise FormatError(f"{source} is empty. Give an edge list, or a folder that graphquilt ingest wrote.")
        raise FormatError(f"{source} holds no graph: {DESCRIPTION}, which is written last, is missing. Run it again.")
    content, whole = checksums.read_sealed(path)
    form, version = content.get("format"), content.get("version")
    if form != FORMAT or version != VERSION:
        raise FormatError(
            f"{path} says {str(form)[:40]} version {str(version)[:40]}; this release reads {FORMAT} version {VERSION}. "
            "Write the graph again, or use the release that wrote it."
        )
    names, sizes = content.get("arrays"), [content.get("n_nodes"), content.get("n_edges")]
    if not isinstance(names, dict) or not all(map(_is_entry, names.values())):
        problem = "is not a graph's description: it does not list its arrays"
    elif not {"indptr", "indices"} <= set(names) <= set(_NAMES):
        problem = f"is not a graph's description: it lists {', '.join(map(repr, sorted(names)))[:200]}"
    elif not all(map(is_size, sizes)) or not isinstance(content.get("directed"), bool):
        problem = "is not a graph's description: n_nodes, n_edges or directed is wrong"
    elif any(is_reference(entry) for name, entry in names.items() if name != "features"):
        problem = "says that arrays lie elsewhere, and only features can"
    elif not whole:
        problem = "does not have its own checksum: it was changed"
    else:
        return content
    raise FormatError(f"{path} {problem}. {_REMEDY}.")


def _is_entry(entry: object) -> bool:
    if not (checksums.is_array_entry(entry) and isinstance(entry, dict)):
        return False
    return checksums.is_checksum(entry.get("sha256")) and (not is_reference(entry) or checksums.check_reference(entry))


def _check_shapes(arrays: Mapping[str, AnyArray], description: Mapping[str, Any]) -> None:
    """Raise unless types and shapes of the arrays are those of the description, and those of the edges fit."""
    n, m = description["n_nodes"], description["n_edges"]
    if set(_FEATURE_PARTS) & set(arrays) and (not set(_FEATURE_PARTS) <= set(arrays) or "features" in arrays):
        raise InputError("sparse features have the four parts data, indices, indptr and shape, and no others.")
    for name, entry in description["arrays"].items():
        values = arrays[name]
        if [list(values.shape), values.dtype.str] != [entry["shape"], entry["dtype"]] or not values.flags.c_contiguous:
            raise InputError(
                f"{name} is {values.dtype.str} {values.shape} where {DESCRIPTION} promises {entry['dtype']} "
                f"{tuple(entry['shape'])}."
            )
    for name, length, kind in (("indptr", n + 1, "i"), ("indices", m, "i"), ("weights", m, "f")):
        row = arrays.get(name)
        if row is not None and (row.shape != (length,) or row.dtype.kind != kind or not row.dtype.isnative):
            raise InputError(f"{name} is {row.dtype.str} {row.shape} where a row of {length} numbers is needed.")


def _check_content(arrays: Mapping[str, AnyArray]) -> dict[str, str]:
    """Read all arrays once, in pieces; raise unless they are a graph, and return their checksums."""
    looks: dict[str, Callable[[AnyArray], None]] = {"weights": check_weights}
    check_rows(arrays["indptr"], len(arrays["indices"]))
    looks["indices"] = ColumnCheck(arrays["indptr"], len(arrays["indptr"]) - 1)
    return {name: array_checksum(values, look=looks.get(name)) for name, values in arrays.items()}


def save_largest_component(graph: Graph, folder: Folder, *, progress: ProgressCallback | None = None) -> Graph:
    """Write the largest component of ``graph`` to ``folder``, and open it, memory-mapped.

    Its ``node_ids`` are those of the nodes in ``graph``. Some 4 bytes of memory are needed per node, below 2^31 nodes;
    :meth:`Graph.largest_component` gives the same graph in memory.
    """
    target = Path(folder)
    report(progress, "components", 0, 1)
    ranks = graph.largest_component_ranks()
    report(progress, "components", 1, 1)
    n = int(ranks.max()) + 1
    # Ranges of rows with about as many entries as are read at once, and not many more rows.
    cuts = np.searchsorted(graph.indptr, np.arange(0, graph.n_entries, _ENTRIES))
    spans = list(pairwise(np.unique([*range(0, graph.n_nodes, _ENTRIES), *cuts, graph.n_nodes]).tolist()))

    def edges(values: AnyArray) -> Iterator[AnyArray]:
        for a, b in spans:
            ends = np.asarray(graph.indptr[a : b + 1])
            yield np.asarray(values[ends[0] : ends[-1]])[np.repeat(ranks[a:b] >= 0, np.diff(ends))]
            if values is graph.indices:
                report(progress, "largest component", int(ends[-1]), graph.n_entries)

    def ends() -> Iterator[AnyArray]:
        done = np.zeros(1, dtype=np.int64)
        yield done
        for a, b in spans:
            parts = done[-1] + np.cumsum(np.diff(graph.indptr[a : b + 1])[ranks[a:b] >= 0], dtype=np.int64)
            yield parts
            done = parts if len(parts) else done

    def rows(values: AnyArray) -> Iterator[AnyArray]:
        for here in pieces(graph.n_nodes, _ENTRIES // max(1, int(np.prod(values.shape[1:])))):
            yield np.ascontiguousarray(values[here][ranks[here] >= 0])

    n_edges = sum(int(np.diff(graph.indptr[a : b + 1])[ranks[a:b] >= 0].sum()) for a, b in spans)
    width = index_type(n)().itemsize + (0 if graph.weights is None else graph.weights.itemsize)
    dense = None if sp.issparse(graph.features) else graph.features
    given = {"features": dense, "labels": graph.labels, "node_ids": graph.node_ids}
    kept: dict[str, AnyArray] = {name: values for name, values in given.items() if values is not None}
    needed = 8 * (2 * n + 1) + n_edges * width + sum(n * v.nbytes // max(1, len(v)) for v in kept.values())
    check_disk(target, needed, "the largest component")
    with translate_disk_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        (target / DESCRIPTION).unlink(missing_ok=True)
        entries = {"indptr": _write_array(target, "indptr", ends(), np.int64)}
        columns = (ranks[part].astype(index_type(n), copy=False) for part in edges(graph.indices))
        entries["indices"] = _write_array(target, "indices", columns, index_type(n))
        if graph.weights is not None:
            entries["weights"] = _write_array(target, "weights", edges(graph.weights), graph.weights.dtype)
        for name, values in kept.items():
            entries[name] = _write_array(target, name, rows(values), values.dtype, values.shape[1:])
        if graph.node_ids is None:
            ids = (here.start + np.flatnonzero(ranks[here] >= 0) for here in pieces(graph.n_nodes, _ENTRIES))
            entries["node_ids"] = _write_array(target, "node_ids", ids, np.int64)
        write_description(target, n_nodes=n, n_edges=n_edges, directed=graph.directed, arrays=entries)
    if sp.issparse(graph.features):
        attach(target, features=sp.csr_array(graph.features)[np.flatnonzero(ranks >= 0)])
    return open_graph(target)
