"""read_edges(): a graph of edges in files (NumPy, SciPy, Parquet or text), or in memory."""

from __future__ import annotations

import logging
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, refuse_masked
from graphquilt.errors import FormatError, InputError
from graphquilt.files import load_arrays
from graphquilt.graph.checks import saved_sparse
from graphquilt.graph.files import open_array, sparse_features
from graphquilt.graph.reading.assembly import Columns, Duplicates, assemble
from graphquilt.graph.reading.conversion import (
    NetworkXGraph,
    PyGData,
    array_columns,
    from_networkx,
    from_pyg,
    list_columns,
    to_numpy,
)
from graphquilt.graph.reading.edge_columns import (
    ENDS,
    SOURCES,
    TARGETS,
    WEIGHTS,
    BadRows,
    IdKind,
    choose_edge_columns,
    find_bad_ids,
    find_missing,
    leave_out,
    parse_ids,
    parse_weights,
    signed,
    text_ids,
)
from graphquilt.graph.reading.node_tables import NodeRows, add_node_tables, open_features, open_labels
from graphquilt.graph.reading.sources import (
    ArrowFrame,
    choose_edge_fields,
    frame_table,
    plain_column,
    read_parquet,
)
from graphquilt.graph.reading.tables import (
    COMMENTS,
    Place,
    TextTable,
)
from graphquilt.graph.structure import Graph, SparseMatrix

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


GraphLike: TypeAlias = Graph | PyGData | NetworkXGraph | SparseMatrix | ArrowFrame | npt.ArrayLike | str | PathLike[str]
_TAKEN = (
    "a Graph, a PyG Data, a NetworkX graph, a SciPy sparse matrix, an array or list of edges (2, m) or (m, 2), a "
    "DataFrame (pandas, polars or Arrow), or the path of a file or graph folder"
)
_TABLE = "the table"
_NO_HEADER = "If this row is an edge: header=False in Python, or graphquilt ingest --no-header."
_LEAST_ROWS = 10  # of a file whose first row can be seen to be a header by its words alone


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
        ends are the columns with names such as source and target, or the first two of a table without names; a table
        with more than two columns and unknown names is refused. A column of numbers named weight has the weights. The
        log warns of numbers in a third column that are not used.
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
    if isinstance(edges, str | PathLike):
        text = TextOptions(header, delimiter, ids)
        given = _read_file(Path(edges), columns, text, bad_rows=bad_rows)
    else:
        _refuse_for_memory(header=header, delimiter=delimiter, ids=None if ids == "auto" else ids)
        given = _read_object(edges, columns, directed=directed, bad_rows=bad_rows, duplicates=duplicates)
    node_features, node_labels = open_features(features), open_labels(labels)
    if isinstance(given, Graph):
        if n_nodes is not None and n_nodes != given.n_nodes:
            raise InputError(f"n_nodes is {n_nodes}, and the graph has {given.n_nodes} nodes already; leave it out.")
        return add_node_tables(given, node_features, node_labels)
    if n_nodes is None and np.issubdtype(given.source.dtype, np.integer):
        n_nodes = given.n_nodes
        for values in (node_labels, node_features):
            if isinstance(values, np.ndarray | sp.csr_array):
                n_nodes = values.shape[0] if values.ndim else None
    graph = assemble(
        given,
        directed=directed,
        n_nodes=n_nodes,
        duplicates=duplicates,
        features=given.features if node_features is None else None,
        labels=given.labels if node_labels is None else None,
    )
    graph = graph if given.node_ids is None else graph.renamed(given.node_ids)
    return add_node_tables(graph, node_features, node_labels)


def _refuse_for_memory(**options: object) -> None:
    """Refuse options of text files for edges in memory."""
    named = [name for name, value in options.items() if value is not None]
    if named:
        raise InputError(f"{' and '.join(named)} say how a text file is read, and these edges are not in a file.")


class TextOptions(NamedTuple):
    """How a text file is read."""

    header: bool | None
    delimiter: str | None
    ids: IdKind


def _read_file(
    path: Path, columns: tuple[int | str, ...] | None, text: TextOptions, *, bad_rows: BadRows
) -> Graph | Columns:
    if path.is_dir():
        return Graph.open(path)
    if path.suffix == ".npy":
        return array_columns(path, open_array(path))
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix in (".parquet", ".pq"):
        return _read_parquet(path, columns, bad_rows)
    return _read_text(path, columns, text, bad_rows=bad_rows)


def _read_text(
    path: Path, columns: tuple[int | str, ...] | None, options: TextOptions, *, bad_rows: BadRows
) -> Columns:
    """Read ends and weights; rows that do not fit are an error with their lines, or left out."""
    table = TextTable.open(path, options.delimiter, comments=COMMENTS, blanks=True)
    stated = (
        any(isinstance(column, str) for column in columns or ()) or None if options.header is None else options.header
    )
    named = table.has_header(SOURCES, TARGETS) if stated is None else stated
    if named and len(table.rows) == 1:
        raise FormatError(f"{path} holds a header and no edges: {','.join(table.rows[0])[:80]!r}. {_NO_HEADER}")
    names = table.rows[0] if named else None
    places = choose_edge_columns(
        path,
        columns,
        names,
        table.width,
        holds_numbers=lambda place: table.holds_numbers(place, header=named),
        examples=lambda place: [row[place] for row in table.rows[1:3] if place < len(row)],
    )
    broken: dict[str, list[int]] = {}
    source, target, *weights = table.read(places, header=named, broken=broken)
    lost = {line for lines in broken.values() for line in lines}

    def lines(rows: list[int]) -> list[int]:
        return table.lines_of(rows, header=named, broken=lost)

    values, problems = parse_weights(weights[0]) if weights else (None, [])
    problems = find_bad_ids([source, target], options.ids) + problems
    bad = leave_out(path, len(source), problems, bad_rows, broken=broken, lines=lines)
    rows = np.delete(np.arange(len(source)), bad) if len(bad) else None
    if rows is not None:
        source, target, values = source.take(rows), target.take(rows), None if values is None else values[rows]
    ends = parse_ids(
        [source, target],
        options.ids,
        lambda row: f"{path}, line {lines([row if rows is None else int(rows[row])])[0]}",
    )
    if stated is None and not named and _begins_with_names(ends):
        _tell_of_header(path, str(ends[0][0]), str(ends[1][0]), "its words occur nowhere else")
        ends, values = [column[1:] for column in ends], None if values is None else values[1:]
    elif (
        stated is None
        and names is not None
        and not any(name.lower() in known for name in names for known in (WEIGHTS, *ENDS))
    ):
        _tell_of_header(path, names[places[0]], names[places[1]], "it has words, and numbers below them")
    return Columns(ends[0], ends[1], values)


def _tell_of_header(path: Path, source: str, target: str, reason: str) -> None:
    message = "%s: the first row, %r and %r, was taken as a header, because %s. %s"
    logger.warning(message, path, source[:40], target[:40], reason, _NO_HEADER)


def _begins_with_names(ends: list[AnyArray]) -> bool:
    """Return whether the first row names the columns: its words occur nowhere else, and no other row is like that."""
    if ends[0].dtype.kind != "U" or len(ends[0]) < _LEAST_ROWS:
        return False
    cells = np.stack(ends)
    if any((cells[:, 1:] == word).any() for word in cells[:, 0]):
        return False
    _, places, counts = np.unique(cells, return_inverse=True, return_counts=True)
    alone = (counts[places].reshape(cells.shape) == 1).all(axis=0)
    return bool(alone[0]) and int(alone.sum()) == 1


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
        raise FormatError(f"{path} holds {', '.join(arrays)}; expected an array edge_index or edges.")
    for word, kinds in (("x", "biuf"), ("edge_weight", "biuf"), ("y", "biufSU"), ("node_id", "iuSU")):
        if word in arrays and (arrays[word].ndim == 0 or arrays[word].dtype.kind not in kinds):
            kind = f"{arrays[word].dtype} of shape {arrays[word].shape}"
            raise FormatError(f"{path}: {word} is {kind}; it must have one row per node or edge. Write it again.")
    labels, ids = arrays.get("y"), arrays.get("node_id")
    n_nodes = next((values.shape[0] for values in (features, labels, ids) if values is not None), None)
    edges = array_columns(path, arrays[name], arrays.get("edge_weight"))
    return replace(edges, n_nodes=n_nodes, features=features, labels=labels, node_ids=ids)


def _read_parquet(path: Path, columns: tuple[int | str, ...] | None, bad_rows: BadRows) -> Columns:
    try:
        return _arrow_columns(path, list(read_parquet(path, columns, 1 << 20)), bad_rows)
    except MemoryError as error:
        raise InputError(
            f"the edges in {path} do not fit in memory ({error}). Build the graph out of core: graphquilt ingest "
            "--memory, or build_csr in Python."
        ) from error


def _read_object(
    edges: Any,
    columns: tuple[int | str, ...] | None,
    *,
    directed: bool,
    bad_rows: BadRows,
    duplicates: Duplicates,
) -> Graph | Columns:
    """Return a graph as it is, and an edge list that has yet to be assembled as columns."""
    if isinstance(edges, Graph | sp.sparray | sp.spmatrix):
        return edges if isinstance(edges, Graph) else Graph(edges)
    if hasattr(edges, "edge_types") and hasattr(edges, "node_types"):
        raise InputError(
            "a HeteroData has several kinds of nodes and edges, a graph has one of each: give data.to_homogeneous()."
        )
    if hasattr(edges, "get_edgelist"):
        raise InputError("a graph of igraph is not read directly: give graph.to_networkx(), or graph.get_edgelist().")
    if hasattr(edges, "edge_index") and hasattr(edges, "num_nodes"):
        return from_pyg(edges, directed=directed, duplicates=duplicates)
    if all(hasattr(edges, name) for name in ("nodes", "edges", "is_directed")):
        weighted = any("weight" in attributes for *_, attributes in edges.edges(data=True))
        return from_networkx(edges, weight="weight" if weighted else None, duplicates=duplicates)
    if hasattr(edges, "__arrow_c_stream__") or (hasattr(edges, "columns") and hasattr(edges, "iloc")):
        return _table_columns(edges, columns, bad_rows)
    if isinstance(edges, list) and edges and all(isinstance(edge, tuple) for edge in edges):
        return list_columns(edges)
    if isinstance(edges, np.ndarray | list | tuple) or hasattr(edges, "detach"):
        refuse_masked(edges=edges)
        return array_columns(None, to_numpy(edges))
    raise InputError(f"edges are {_TAKEN}; this is {_article(type(edges).__name__)}.")


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _table_columns(frame: object, columns: tuple[int | str, ...] | None, bad_rows: BadRows) -> Columns:
    table = frame_table(frame)
    names = choose_edge_fields(_TABLE, columns, table.schema, lambda name: table[name][:2].to_pylist())
    first, parts = 0, []
    for rows in table.select(list(names)).to_batches():
        parts.append([plain_column(_TABLE, rows[name], first) for name in names])
        first += len(rows)
    return _arrow_columns(_TABLE, parts, bad_rows)


def _arrow_columns(where: Place, parts: list[list[pa.Array]], bad_rows: BadRows) -> Columns:
    """Return the columns of source, target and perhaps weight that Arrow has read in several parts."""
    import pyarrow as pa

    if not parts:
        raise FormatError(f"{where} is empty: it holds no edges.")
    columns = [pa.chunked_array(arrays) for arrays in zip(*parts, strict=True)]
    values, problems = parse_weights(columns[2]) if len(columns) > 2 else (None, [])
    bad = leave_out(where, len(columns[0]), [*find_missing(columns), *problems], bad_rows)
    if len(bad):
        rows = np.delete(np.arange(len(columns[0])), bad)
        columns, values = [column.take(rows) for column in columns], None if values is None else values[rows]
    ends = [
        signed(where, ids.to_numpy()) if pa.types.is_integer(ids.type) else text_ids(where, ids) for ids in columns[:2]
    ]
    if ends[0].dtype.kind != ends[1].dtype.kind and not all(np.issubdtype(ids.dtype, np.integer) for ids in ends):
        raise FormatError(
            f"{where}: one of the columns of source and target has numbers and the other has text. Write both in the "
            "same way."
        )
    return Columns(ends[0], ends[1], values)
