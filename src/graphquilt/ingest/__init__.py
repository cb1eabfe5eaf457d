"""From files and other people's objects to a Graph, in memory or out of core."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from graphquilt.graph import Graph
from graphquilt.ingest._arrays import Found, read_npy, read_npz, read_parquet_columns
from graphquilt.ingest._assemble import assemble
from graphquilt.ingest._convert import from_networkx, from_pyg, read_mag240m, to_networkx, to_pyg
from graphquilt.ingest._outofcore import build_csr
from graphquilt.ingest._text import read_text

__all__ = ["build_csr", "from_networkx", "from_pyg", "read_edges", "read_mag240m", "to_networkx", "to_pyg"]


def read_edges(
    path: str | PathLike[str],
    *,
    columns: tuple[int | str, ...] = (0, 1),
    directed: bool = False,
    n_nodes: int | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    ids: Literal["auto", "integer", "text"] = "auto",
    features: Any = None,
    labels: npt.ArrayLike | None = None,
) -> Graph:
    r"""Read a file of edges into memory; what kind of file it is, its name's ending says.

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
        or labels where they are given; without them the ids that occur are numbered anew in ascending order and kept
        as ``node_ids``. Text ids are always numbered in ascending order.
    header : bool, optional
        Of text: whether the first row names the columns; by default guessed.
    delimiter : str, optional
        Of text; by default guessed.
    ids : {"auto", "integer", "text"}
        Of text: what ids are; by default what most of the first rows have, and text where one has a leading zero.
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
        found = read_npy(source)
    elif source.suffix == ".npz":
        found = read_npz(source)
    elif source.suffix in (".parquet", ".pq"):
        found = read_parquet_columns(source, columns)
    else:
        found = Found(read_text(source, columns=columns, header=header, delimiter=delimiter, ids=ids))
    features = found.features if features is None else features
    labels = found.labels if labels is None else labels
    if n_nodes is None and np.issubdtype(found.columns.source.dtype, np.integer):
        n_nodes = found.n_nodes
        for values in (labels, features):
            n_nodes = n_nodes if values is None else values.shape[0] if hasattr(values, "shape") else len(values)  # type: ignore[arg-type]
    graph = assemble(found.columns, directed=directed, n_nodes=n_nodes, features=features, labels=labels)
    return graph if found.node_ids is None else graph.renamed(found.node_ids)
