"""read_edges(): a graph of edges in files (NumPy, SciPy, Parquet or text), or in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import refuse_masked
from graphquilt.errors import FormatError, InputError
from graphquilt.files.array_files import load_arrays, open_archive
from graphquilt.files.writing import check_memory
from graphquilt.graph.checks import saved_sparse
from graphquilt.graph.files import open_array, sparse_features
from graphquilt.graph.reading import conversion
from graphquilt.graph.reading import ids as naming
from graphquilt.graph.reading.assembly import Columns, Duplicates, assemble
from graphquilt.graph.reading.edge_columns import BadRows, EdgeRows, EdgeTable, IdKind
from graphquilt.graph.reading.node_tables import NodeRows, add_node_tables, open_features, open_labels
from graphquilt.graph.reading.sources import (
    ArrowFrame,
    TextOptions,
    frame_edges,
    is_frame,
    is_parquet,
    open_text,
    parquet_table,
)
from graphquilt.graph.structure import Graph, SparseMatrix

# Any is a graph of PyG, NetworkX or igraph, which need not be installed.
GraphLike: TypeAlias = Graph | SparseMatrix | ArrowFrame | npt.ArrayLike | str | PathLike[str] | Any
_TAKEN = (
    "a Graph, a PyG Data, a graph of NetworkX or igraph, a SciPy sparse matrix, an array or list of edges (2, m) or "
    "(m, 2), a DataFrame (pandas, polars, DuckDB or Arrow), or the path of a file or graph folder"
)
_ROW, _WEIGHT = 70, 30  # bytes that an edge takes while the graph is assembled, and its weight


def read_edges(
    edges: GraphLike,
    *,
    columns: tuple[int | str, ...] | None = None,
    directed: bool = False,
    n_nodes: int | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    ids: IdKind = "auto",
    bad_rows: BadRows = "stop",
    duplicates: Duplicates = "max",
    features: NodeRows | None = None,
    labels: NodeRows | None = None,
) -> Graph:
    r"""Make a graph of edges, in whatever form you have them: in a file, or in memory.

    Self loops are removed, and duplicates become one edge; the log says how many there were.

    Parameters
    ----------
    edges : path, Graph, PyG Data, NetworkX or igraph graph, SciPy sparse matrix, array or list of edges, or DataFrame
        Edges of NetworkX or igraph may have the attribute ``weight``. An array is (2, m) or (m, 2), whole numbers or
        text, or (m, 3) with weights; a list has tuples (source, target) or (source, target, weight). A DataFrame is
        anything that exports Arrow's C stream: pandas, polars, DuckDB, Arrow. A path is that of a graph folder or a
        file: ``.parquet``; ``.npy``, an integer array; ``.npz``, with ``edge_index`` or ``edges`` and, if there are
        any, ``edge_weight``, ``x`` (or ``x_data``, ``x_indices``, ``x_indptr``, ``x_shape``), ``y`` and ``node_id``, or
        what ``scipy.sparse.save_npz`` writes; anything else is text in UTF-8, ``.gz`` or not, with comma, tab,
        semicolon, bar or blanks between columns, where ``#``, ``%`` or ``//`` begin a comment.
    columns : pair or triple of int or str, optional
        Position (from 0) or name of the source, the target and, if there are to be weights, the weight. By default the
        ends are the columns with names such as source and target, or the first two of a table without names; a table
        with more than two columns and unknown names is refused. A column named weight has the weights. The log warns
        of other columns with numbers, which are not used.
    directed : bool
        Treat edges as directed. By default each edge counts in both directions.
    n_nodes : int, optional
        Take integer ids as 0..n_nodes-1, isolated nodes included. By default that is the number of rows of features
        or labels that are arrays; without them the ids that occur are numbered anew in ascending order, and
        ``node_ids`` lists them. Text ids are always numbered in ascending order.
    header : bool, optional
        Whether the first row of a text file names the columns. By default it does if it has the words for source and
        target, or words only, one of them above numbers, or words that occur nowhere else, which the log tells.
    delimiter : str, optional
        What stands between the columns of a text file; by default this is guessed.
    ids : {"auto", "integer", "text"}
        The kind of ids in a text file. By default they are integers if all of them are, and text if one has a leading
        zero.
    bad_rows : {"stop", "skip"}
        What happens to rows of a table that have no id or weight, a weight that is not a number or negative, too few
        or too many cells, or a word where other ids are integers. By default they are an error, which counts them;
        "skip" leaves them out, and the log counts them.
    duplicates : {"max", "sum", "last", "count"}
        The weight of an edge that is there more than once, in either direction unless ``directed``: the largest of
        its weights, their sum, the last one, or the number of times it is there.
    features, labels : table or array, optional
        A table with an id column, matched by id: a DataFrame, or the path of a CSV, TSV or Parquet file. Every node
        needs features; nodes without a label get -1, and the log counts ids that the graph does not have. Or an array
        with one row per node, or the path of one (``.npy``; ``.npz`` of ``scipy.sparse.save_npz``): its rows are in
        the order of ``node_ids``, which is ascending for files.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "edges.csv"
    >>> _ = file.write_text("from,to\na,b\nb,c\nb,a\n")
    >>> graph = read_edges(file)
    >>> graph.n_edges, graph.node_ids.tolist()
    (2, ['a', 'b', 'c'])
    """
    node_features, node_labels = open_features(features), open_labels(labels)
    n_rows = n_nodes
    for values in (node_labels, node_features):
        if n_nodes is None and isinstance(values, np.ndarray | sp.csr_array):
            n_rows = values.shape[0] if values.ndim else None
    if isinstance(edges, str | PathLike):
        text = TextOptions(header, delimiter, ids)
        given = _read_file(Path(edges), columns, text, bad_rows=bad_rows, n_nodes=n_rows)
    else:
        options = {"header": header, "delimiter": delimiter, "ids": None if ids == "auto" else ids}
        if named := [name for name, value in options.items() if value is not None]:
            raise InputError(f"{' and '.join(named)} say how a text file is read, and these edges are not in a file.")
        given = _read_object(edges, columns, n_rows, directed=directed, bad_rows=bad_rows, duplicates=duplicates)
    if isinstance(given, Graph):
        if n_nodes is not None and n_nodes != given.n_nodes:
            raise InputError(f"n_nodes is {n_nodes}, and the graph has {given.n_nodes} nodes already; leave it out.")
        return add_node_tables(given, node_features, node_labels)
    if n_nodes is None:
        integers = given.source.dtype.kind in "iu"
        n_nodes = given.n_nodes if given.n_nodes is not None or not integers else n_rows
    elif given.coded:
        raise InputError("n_nodes states the range of integer ids; these ids are text. Leave n_nodes out.")
    graph = assemble(
        given,
        directed=directed,
        n_nodes=n_nodes,
        duplicates=duplicates,
        features=given.features if node_features is None else None,
        labels=given.labels if node_labels is None else None,
    )
    return add_node_tables(graph.with_attributes(node_ids=given.node_ids), node_features, node_labels)


def _read_file(
    path: Path, columns: tuple[int | str, ...] | None, text: TextOptions, *, bad_rows: BadRows, n_nodes: int | None
) -> Graph | Columns:
    if path.is_dir():
        return Graph.open(path)
    if path.suffix == ".npy":
        return conversion.array_columns(path, open_array(path))
    if path.suffix == ".npz":
        return _read_npz(path)
    if is_parquet(path):
        return _read_table(parquet_table([path], path, columns, 1 << 20), bad_rows, n_nodes)
    return _read_table(open_text(path, columns, text), bad_rows, n_nodes)


def _read_table(table: EdgeTable, bad_rows: BadRows, n_nodes: int | None) -> Columns:
    """Read all edges; integer ids stay as they are if ``n_nodes`` is stated, other ids are numbered."""
    import pyarrow as pa

    tally = table.tally()
    batches = _within_memory(table, table.batches(tally))
    if table.unit == "row" and table.ids == "integer":
        parts = [(np.asarray(rows.source), np.asarray(rows.target), rows.weights) for rows in batches]
        tally.close(bad_rows)
        if not parts:
            raise FormatError(f"{table.where} is empty: it holds no edges.")
        source, target = (naming.signed(table.where, np.concatenate([part[k] for part in parts])) for k in (0, 1))
        weights = None if parts[0][2] is None else np.concatenate([w for *_, w in parts if w is not None])
        return Columns(source, target, weights)
    run, census = next(naming.collect_runs(batches), None), naming.Census(table.ids)
    if run is not None:
        census.count(run)
    kind = naming.settle_kind(table, tally, census, bad_rows)
    assert run is not None  # there are rows that can be used
    again = table.below_header if kind == "text" else None
    if again is not None and naming.begins_with_names(run.ends.shape[1], np.bincount(run.ends.ravel()), [run.ends]):
        return _read_table(again(), bad_rows, n_nodes)
    names, ranks = naming.sort_names(run.names, kind)
    ends, weights = run.ends, run.weights
    del run  # with the names in another order
    pa.default_memory_pool().release_unused()
    if kind == "mixed":
        usable = (ranks[ends] >= 0).all(axis=0)
        ends, weights = ends[:, usable], None if weights is None else weights[usable]
    if kind != "text" and n_nodes is not None:
        ids = names[ranks]
        return Columns(ids[ends[0]], ids[ends[1]], weights)
    ids = naming.text_ids(table.where, names) if kind == "text" else names
    ranks = ranks.astype(np.int32)
    plain = kind != "text" and len(ids) and bool(ids[0] == 0) and bool(ids[-1] == len(ids) - 1)
    source, target = ranks[ends[0]], ranks[ends[1]]
    return Columns(source, target, weights, len(ids), node_ids=None if plain else ids, coded=kind == "text")


def _within_memory(table: EdgeTable, batches: Iterator[EdgeRows]) -> Iterator[EdgeRows]:
    """Yield the rows; raise before they become more than memory has room for."""
    needed, checked = 0, 1 << 26
    for rows in batches:
        needed += len(rows.source) * (_ROW + (0 if rows.weights is None else _WEIGHT))
        if needed > checked:
            check_memory(needed, f"{table.where}, with the rows that have been read,")
            checked = needed + (1 << 26)
        yield rows


def _read_npz(path: Path) -> Columns:
    """Read the arrays that :func:`read_edges` names, or the adjacency that ``scipy.sparse.save_npz`` wrote."""
    try:
        with open_archive(path) as archive:
            check_memory(3 * sum(map(archive.size, archive.names)), f"{path}, unpacked,")
        arrays = load_arrays(path)
    except FileNotFoundError as error:
        raise FormatError(f"{path} does not exist.") from error
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error}.") from error
    try:
        matrix = saved_sparse(arrays) if {"format", "shape", "data"} <= set(arrays) else None
        features = arrays["x"] if "x" in arrays else sparse_features(arrays, "x")
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
    if matrix is not None:
        A = sp.coo_array(matrix)
        weights = None if bool(np.all(A.data == 1)) else A.data.astype(float)
        return Columns(A.row.astype(np.int64), A.col.astype(np.int64), weights, A.shape[0])
    name = next((name for name in ("edge_index", "edges") if name in arrays), None)
    if name is None:
        raise FormatError(f"{path} holds {', '.join(arrays)}; expected an array edge_index or edges.")
    for word, kinds in (("x", "biuf"), ("edge_weight", "biuf"), ("y", "biufSU"), ("node_id", "iuSU")):
        if word in arrays and (arrays[word].ndim == 0 or arrays[word].dtype.kind not in kinds):
            kind = f"{arrays[word].dtype} of shape {arrays[word].shape}"
            raise FormatError(f"{path}: {word} is {kind}; it must have one row per node or edge. Write it again.")
    labels, ids = arrays.get("y"), arrays.get("node_id")
    n_nodes = next((values.shape[0] for values in (features, labels, ids) if values is not None), None)
    edges = conversion.array_columns(path, arrays[name], arrays.get("edge_weight"))
    return replace(edges, n_nodes=n_nodes, features=features, labels=labels, node_ids=ids)


def _read_object(
    edges: Any,
    columns: tuple[int | str, ...] | None,
    n_nodes: int | None,
    *,
    directed: bool,
    bad_rows: BadRows,
    duplicates: Duplicates,
) -> Graph | Columns:
    """Return a graph as it is, and an edge list that has yet to be assembled as columns."""
    if isinstance(edges, Graph | sp.sparray | sp.spmatrix):
        return edges if isinstance(edges, Graph) else Graph(edges)
    if hasattr(edges, "edge_types") or (hasattr(edges, "edge_index") and hasattr(edges, "num_nodes")):
        return conversion.from_pyg(edges, directed=directed, duplicates=duplicates)
    if hasattr(edges, "get_edgelist"):
        return conversion.from_igraph(edges, duplicates=duplicates)
    if all(hasattr(edges, name) for name in ("nodes", "edges", "is_directed")):
        weighted = any("weight" in attributes for *_, attributes in edges.edges(data=True))
        return conversion.from_networkx(edges, weight="weight" if weighted else None, duplicates=duplicates)
    if is_frame(edges):
        return _read_table(frame_edges("the table", edges, columns), bad_rows, n_nodes)
    if isinstance(edges, np.ndarray | list | tuple) or hasattr(edges, "detach"):
        refuse_masked(edges=edges)
        pairs = isinstance(edges, list) and edges and all(isinstance(edge, tuple) for edge in edges)
        return conversion.list_columns(edges) if pairs else conversion.array_columns(None, conversion.to_numpy(edges))
    raise InputError(f"edges are {_TAKEN}; not {type(edges).__name__}.")
