"""From files and other people's objects to a Graph."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from graphquilt.graph import Graph
from graphquilt.ingest._assemble import assemble
from graphquilt.ingest._text import read_text

__all__ = ["read_edges"]


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
    r"""Read a file of edges.

    Parameters
    ----------
    path : path
        Text with comma, tab, semicolon or blanks between columns, ``.gz`` or not; lines that begin with ``#``, ``%``
        or ``//`` are comments.
    columns : pair or triple of int or str
        Position (from 0) or name of the source, the target and, if there are to be weights, the weight.
    directed : bool
        Keep edges one-way. By default each edge counts in both directions.
    n_nodes : int, optional
        Take integer ids as 0..n_nodes-1, isolated nodes included. By default the ids that occur are numbered anew in
        ascending order and kept as ``node_ids``.
    header : bool, optional
        Whether the first row names the columns; by default guessed.
    delimiter : str, optional
        By default guessed.
    ids : {"auto", "integer", "text"}
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
    found = read_text(Path(path), columns=columns, header=header, delimiter=delimiter, ids=ids)
    return assemble(found, directed=directed, n_nodes=n_nodes, features=features, labels=labels)
