"""Read a file of edges, of any kind, into memory."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphquilt.graph import Graph
from graphquilt.graph.structure import SparseMatrix
from graphquilt.ingest.array_files import EdgeFile, read_npy, read_npz, read_parquet_columns
from graphquilt.ingest.assembly import assemble
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
    features: npt.ArrayLike | SparseMatrix | None = None,
    labels: npt.ArrayLike | None = None,
) -> Graph:
    r"""Read a file of edges into memory; the ending of its name tells the kind of file.

    Parameters
    ----------
    path : path
        ``.parquet``; ``.npy``, an integer array (2, m) or (m, 2); ``.npz``, with ``edge_index`` or ``edges`` and, if
        there are any, ``edge_weight``, ``x`` (or ``x_data``, ``x_indices``, ``x_indptr``, ``x_shape``), ``y`` and
        ``node_id``, or what ``scipy.sparse.save_npz`` writes; anything else is text, ``.gz`` or not, with comma, tab,
        semicolon, bar or blanks between columns, where lines that begin with ``#``, ``%`` or ``//`` are comments.
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

    Returns
    -------
    Graph
        Without self loops and duplicates; the log says how many were removed. Of an edge given more than once the
        largest weight stays.

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
        file = read_npy(source)
    elif source.suffix == ".npz":
        file = read_npz(source)
    elif source.suffix in (".parquet", ".pq"):
        file = read_parquet_columns(source, columns)
    else:
        file = EdgeFile(read_text(source, columns=columns, header=header, delimiter=delimiter, ids=ids))
    features = file.features if features is None else features
    labels = file.labels if labels is None else labels
    if n_nodes is None and np.issubdtype(file.columns.source.dtype, np.integer):
        n_nodes = file.n_nodes
        for values in (labels, features):
            if values is not None:
                n_nodes = (values if hasattr(values, "shape") else np.asarray(values)).shape[0]
    graph = assemble(file.columns, directed=directed, n_nodes=n_nodes, features=features, labels=labels)
    return graph if file.node_ids is None else graph.renamed(file.node_ids)
