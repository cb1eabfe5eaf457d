"""Read a file of edges into memory: NumPy, SciPy, Parquet or text."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError
from graphquilt.files import load_arrays
from graphquilt.graph import Graph
from graphquilt.graph.files import open_array, sparse_features
from graphquilt.graph.sparse import saved_sparse
from graphquilt.graph.structure import Rows
from graphquilt.ingest.assembly import Columns, assemble
from graphquilt.ingest.sources import edge_ends, read_parquet, signed, text_ids
from graphquilt.ingest.text_files import IdKind, read_text

__all__ = ["read_edges"]


def read_edges(
    path: str | PathLike[str],
    *,
    columns: tuple[int | str, ...] = (0, 1),
    directed: bool = False,
    n_nodes: int | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    ids: IdKind = "auto",
    features: Rows = None,
    labels: npt.ArrayLike | None = None,
) -> Graph:
    r"""Read a file of edges into memory; the ending of its name tells the kind of file.

    Self loops and duplicates are removed, and the log says how many. Of an edge given more than once the largest weight
    stays.

    Parameters
    ----------
    path : path
        ``.parquet``; ``.npy``, an integer array (2, m) or (m, 2); ``.npz``, with ``edge_index`` or ``edges`` and, if
        there are any, ``edge_weight``, ``x`` (or ``x_data``, ``x_indices``, ``x_indptr``, ``x_shape``), ``y`` and
        ``node_id``, or what ``scipy.sparse.save_npz`` writes; anything else is text, ``.gz`` or not, with comma, tab,
        semicolon, bar or blanks between columns, where lines that begin with ``#``, ``%`` or ``//`` are comments.
        Text is UTF-8, in lines of less than a million letters.
    columns : pair or triple of int or str
        Position (from 0) or name of the source, the target and, if there are to be weights, the weight.
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
    source = Path(path)
    if source.suffix == ".npy":
        edges = _array_columns(source, open_array(source))
    elif source.suffix == ".npz":
        edges = _read_npz(source)
    elif source.suffix in (".parquet", ".pq"):
        edges = _read_parquet(source, columns)
    else:
        edges = read_text(source, columns=columns, header=header, delimiter=delimiter, ids=ids)
    features = edges.features if features is None else features
    labels = edges.labels if labels is None else labels
    if n_nodes is None and np.issubdtype(edges.source.dtype, np.integer):
        n_nodes = edges.n_nodes
        for values in (labels, features):
            if values is not None:
                n_nodes = (values if hasattr(values, "shape") else np.asarray(values)).shape[0]
    graph = assemble(edges, directed=directed, n_nodes=n_nodes, features=features, labels=labels)
    return graph if edges.node_ids is None else graph.renamed(edges.node_ids)


def _array_columns(path: Path, edges: AnyArray, weights: AnyArray | None = None) -> Columns:
    u, v = (signed(path, np.asarray(ids)) for ids in edge_ends(edges, path))
    values = None if weights is None else np.asarray(weights, dtype=np.float64).reshape(-1)
    if values is not None and len(values) != len(u):
        raise FormatError(f"{path}: {len(u)} edges and {len(values)} weights.")
    return Columns(u, v, values)


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
    edges = _array_columns(path, arrays[name], arrays.get("edge_weight"))
    return replace(edges, n_nodes=n_nodes, features=features, labels=labels, node_ids=ids)


def _read_parquet(path: Path, columns: tuple[int | str, ...]) -> Columns:
    import pyarrow as pa

    try:
        parts = list(read_parquet(path, columns, 1 << 20))
        if not parts:
            raise FormatError(f"{path} is empty: it holds no edges.")
        source, target, *weights = (pa.chunked_array(arrays) for arrays in zip(*parts, strict=True))
        ends = [
            signed(path, ids.to_numpy()) if pa.types.is_integer(ids.type) else text_ids(path, ids)
            for ids in (source, target)
        ]
        values = weights[0].to_numpy().astype(np.float64) if weights else None
    except MemoryError as error:
        raise InputError(
            f"the edges in {path} do not fit in memory ({error}). Build the graph out of core: graphquilt ingest "
            "--memory, or build_csr in Python."
        ) from error
    if ends[0].dtype.kind != ends[1].dtype.kind and not all(np.issubdtype(ids.dtype, np.integer) for ids in ends):
        raise FormatError(
            f"{path}: one of the columns {columns[0]!r} and {columns[1]!r} has numbers and the other has text. Write "
            "both in the same way."
        )
    return Columns(ends[0], ends[1], values)
