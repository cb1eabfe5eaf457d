"""read_edges(): a graph of edges in files (NumPy, SciPy, Parquet or text), or in memory."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.errors import FormatError, InputError
from graphquilt.files import load_arrays
from graphquilt.graph.files import open_array, sparse_features
from graphquilt.graph.reading.assembly import Columns, assemble
from graphquilt.graph.reading.given import GraphLike, array_columns, arrow_columns, given_edges
from graphquilt.graph.reading.sources import read_parquet
from graphquilt.graph.reading.text_files import IdKind, read_text
from graphquilt.graph.sparse import saved_sparse
from graphquilt.graph.structure import Graph, Rows

__all__ = ["read_edges"]


def read_edges(
    edges: GraphLike,
    *,
    columns: tuple[int | str, ...] | None = None,
    directed: bool = False,
    n_nodes: int | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    ids: IdKind = "auto",
    features: Rows = None,
    labels: npt.ArrayLike | None = None,
) -> Graph:
    r"""Make a graph of edges, in whatever form you have them: in a file, or in memory.

    Self loops and duplicates are removed, and the log says how many. Of an edge given more than once the largest weight
    stays.

    Parameters
    ----------
    edges : path, Graph, PyG Data, NetworkX graph, SciPy sparse matrix, array or list of edges, or DataFrame
        A NetworkX graph has weights where its edges have the attribute ``weight``. An array is (2, m) or (m, 2), whole
        numbers or text, or (m, 3) with weights; a list has tuples (source, target) or (source, target, weight). A
        DataFrame is one of pandas, polars or Arrow. A path is that of a graph folder or a file, whose ending tells its
        kind: ``.parquet``; ``.npy``, an integer array (2, m) or (m, 2); ``.npz``, with ``edge_index`` or ``edges`` and,
        if there are any, ``edge_weight``, ``x`` (or ``x_data``, ``x_indices``, ``x_indptr``, ``x_shape``), ``y`` and
        ``node_id``, or what ``scipy.sparse.save_npz`` writes; anything else is text, ``.gz`` or not, with comma, tab,
        semicolon, bar or blanks between columns, where lines that begin with ``#``, ``%`` or ``//`` are comments.
        Text is UTF-8, in lines of less than a million letters.
    columns : pair or triple of int or str, optional
        Position (from 0) or name of the source, the target and, if there are to be weights, the weight. By default the
        ends are the columns with names such as source and target, or else the first two, and a column of numbers named
        weight has the weights. The log warns of numbers in a third column that are not used.
    directed : bool
        Keep edges one-way. By default each edge counts in both directions.
    n_nodes : int, optional
        Take integer ids as 0..n_nodes-1, isolated nodes included. By default that is the number of rows of features
        or labels where they are given; without them the ids that occur are numbered anew in ascending order, and
        ``node_ids`` lists them. Text ids are always numbered in ascending order.
    header : bool, optional
        Whether the first row of a text file names the columns; by default this is guessed.
    delimiter : str, optional
        What stands between the columns of a text file; by default this is guessed.
    ids : {"auto", "integer", "text"}
        The kind of ids in a text file; by default that of most of the first rows, and text where an id has a leading
        zero.
    features, labels : arrays with n rows, optional

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "edges.csv"
    >>> _ = file.write_text("from,to\na,b\nb,c\nb,a\n")
    >>> graph = read_edges(file)
    >>> graph.n_edges, graph.node_ids.tolist()
    (4, ['a', 'b', 'c'])
    """
    if isinstance(edges, str | PathLike):
        given = _read_file(Path(edges), columns=columns, header=header, delimiter=delimiter, ids=ids)
    else:
        _refuse_for_memory(header=header, delimiter=delimiter, ids=None if ids == "auto" else ids)
        given = given_edges(edges, columns, directed=directed)
    if isinstance(given, Graph):
        if n_nodes is not None and n_nodes != given.n_nodes:
            raise InputError(f"n_nodes is {n_nodes}, and the graph has {given.n_nodes} nodes already; leave it out.")
        return given if features is None and labels is None else given.with_attributes(features=features, labels=labels)
    features = given.features if features is None else features
    labels = given.labels if labels is None else labels
    if n_nodes is None and np.issubdtype(given.source.dtype, np.integer):
        n_nodes = given.n_nodes
        for values in (labels, features):
            if values is not None:
                n_nodes = (values if hasattr(values, "shape") else np.asarray(values)).shape[0]
    graph = assemble(given, directed=directed, n_nodes=n_nodes, features=features, labels=labels)
    return graph if given.node_ids is None else graph.renamed(given.node_ids)


def _refuse_for_memory(**options: object) -> None:
    """Refuse options that say how a text file is read, where there is no file."""
    named = [name for name, value in options.items() if value is not None]
    if named:
        raise InputError(f"{' and '.join(named)} say how a text file is read, and these edges are not in a file.")


def _read_file(
    path: Path,
    *,
    columns: tuple[int | str, ...] | None,
    header: bool | None,
    delimiter: str | None,
    ids: IdKind,
) -> Graph | Columns:
    if path.is_dir():
        return Graph.open(path)
    if path.suffix == ".npy":
        return array_columns(path, open_array(path))
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix in (".parquet", ".pq"):
        return _read_parquet(path, columns)
    return read_text(path, columns=columns, header=header, delimiter=delimiter, ids=ids)


def _read_npz(path: Path) -> Columns:
    """Read the arrays that :func:`read_edges` names, or the adjacency that ``scipy.sparse.save_npz`` wrote."""
    try:
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
        raise FormatError(f"{path} holds {', '.join(arrays)}; an array edge_index or edges is wanted.")
    for word, kinds in (("x", "biuf"), ("edge_weight", "biuf"), ("y", "biufSU"), ("node_id", "iuSU")):
        if word in arrays and (arrays[word].ndim == 0 or arrays[word].dtype.kind not in kinds):
            kind = f"{arrays[word].dtype} of shape {arrays[word].shape}"
            raise FormatError(f"{path}: {word} is {kind}; it must have one row per node or edge. Write it again.")
    labels, ids = arrays.get("y"), arrays.get("node_id")
    n_nodes = next((values.shape[0] for values in (features, labels, ids) if values is not None), None)
    edges = array_columns(path, arrays[name], arrays.get("edge_weight"))
    return replace(edges, n_nodes=n_nodes, features=features, labels=labels, node_ids=ids)


def _read_parquet(path: Path, columns: tuple[int | str, ...] | None) -> Columns:
    try:
        return arrow_columns(path, list(read_parquet(path, columns, 1 << 20)))
    except MemoryError as error:
        raise InputError(
            f"the edges in {path} do not fit in memory ({error}). Build the graph out of core: graphquilt ingest "
            "--memory, or build_csr in Python."
        ) from error
