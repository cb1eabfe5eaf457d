"""Edges that are in memory already: graphs of other packages, arrays and tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, refuse_masked
from graphquilt.errors import FormatError, InputError
from graphquilt.graph.reading.assembly import Columns
from graphquilt.graph.reading.columns import Place
from graphquilt.graph.reading.conversion import from_networkx, from_pyg, to_numpy
from graphquilt.graph.reading.sources import edge_columns, edge_ends, plain_columns, signed, text_ids
from graphquilt.graph.structure import Graph

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["GraphLike", "array_columns", "arrow_columns", "given_edges"]

GraphLike: TypeAlias = Any  # what given_edges takes, and the paths of files
TAKEN = (
    "a Graph, a PyG Data, a NetworkX graph, a SciPy sparse matrix, an array or list of edges (2, m) or (m, 2), a "
    "DataFrame (pandas, polars or Arrow), or the path of a file or graph folder"
)
_WHERE = "the table"


def given_edges(edges: GraphLike, columns: tuple[int | str, ...] | None, *, directed: bool) -> Graph | Columns:
    """Return a graph as it is, and an edge list that has yet to be assembled as columns."""
    if isinstance(edges, Graph | sp.sparray | sp.spmatrix):
        return edges if isinstance(edges, Graph) else Graph(edges)
    if hasattr(edges, "edge_index") and hasattr(edges, "num_nodes"):
        return from_pyg(edges, directed=directed)
    if all(hasattr(edges, name) for name in ("nodes", "edges", "is_directed")):
        weighted = any("weight" in attributes for *_, attributes in edges.edges(data=True))
        return from_networkx(edges, weight="weight" if weighted else None)
    if hasattr(edges, "__arrow_c_stream__") or (hasattr(edges, "columns") and hasattr(edges, "iloc")):
        return _table_columns(edges, columns)
    if isinstance(edges, list) and edges and all(isinstance(edge, tuple) for edge in edges):
        return _columns_of_rows(edges)
    if isinstance(edges, np.ndarray | list | tuple) or hasattr(edges, "detach"):
        refuse_masked(edges=edges)
        return array_columns(None, to_numpy(edges))
    raise InputError(f"edges are {TAKEN}; this is {_article(type(edges).__name__)}.")


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def array_columns(path: Path | None, edges: AnyArray, weights: AnyArray | None = None) -> Columns:
    """Return the edges in an array (2, m) or (m, 2); a third column (m, 3) is their weight."""
    m, *others = edges.shape or (0,)
    if path is None and others == [3] and m != 2:
        if m == 3:
            raise InputError(
                "an array of 3 × 3 may be three edges with weights or a matrix: give the edges as a list of tuples, or "
                "the matrix as scipy.sparse.csr_array."
            )
        edges, weights = edges[:, :2], edges[:, 2]
    if path is None and others == [m] and m > 2:
        raise InputError(
            f"an array of {m} × {m} looks like an adjacency matrix; give it as scipy.sparse.csr_array(matrix)."
        )
    if path is None and edges.dtype.kind in "fOUS":
        edges = _ids(edges)
    if edges.dtype.kind == "U" and edges.ndim == 2 and 2 in edges.shape:
        u, v = (edges[0], edges[1]) if m == 2 else (edges[:, 0], edges[:, 1])
    else:
        u, v = (signed(path, np.asarray(ids)) for ids in edge_ends(edges, path))
    values = None if weights is None else _weights(weights)
    if values is not None and len(values) != len(u):
        raise FormatError(f"{path}: {len(u)} edges and {len(values)} weights.")
    return Columns(u, v, values)


def _weights(weights: object) -> AnyArray:
    try:
        return np.asarray(weights, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InputError(f"the third column of edges is their weight, a number: {error}.") from None


def _ids(edges: AnyArray) -> AnyArray:
    """Return ids as whole numbers or as text, whatever an array holds them in."""
    if edges.dtype.kind == "f":
        whole = np.isfinite(edges) & (edges == np.rint(edges)) & (np.abs(edges) < 2.0**53)
        if not whole.all():
            value = edges[~whole][0]
            raise InputError(f"node ids are whole numbers or text; {value} is neither.")
        return edges.astype(np.int64)
    if edges.dtype.kind == "O":
        values = edges.ravel().tolist()
        if all(isinstance(value, int | np.integer) and not isinstance(value, bool) for value in values):
            return edges.astype(np.int64)
        wrong = next((value for value in values if not isinstance(value, str | int | np.integer)), None)
        if wrong is not None or None in values:
            raise InputError(f"node ids are whole numbers or text; {wrong!r} is neither.")
    return edges.astype(str)


def _columns_of_rows(edges: list[tuple[object, ...]]) -> Columns:
    """Return the columns of a list of (source, target) or (source, target, weight)."""
    widths = {len(edge) for edge in edges}
    if widths not in ({2}, {3}):
        raise InputError(
            f"the tuples of a list of edges are (source, target) or (source, target, weight), all alike; these have "
            f"{' and '.join(map(str, sorted(widths)))} entries."
        )
    ends = np.empty((len(edges), 2), dtype=object)
    ends[:] = [edge[:2] for edge in edges]
    weights = _weights([edge[2] for edge in edges]) if widths == {3} else None
    ids = _ids(ends)
    return Columns(ids[:, 0], ids[:, 1], weights)


def _table_columns(frame: Any, columns: tuple[int | str, ...] | None) -> Columns:
    import pyarrow as pa

    try:
        stream = hasattr(frame, "__arrow_c_stream__")
        table = pa.table(frame) if stream else pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"{_article(type(frame).__name__)} cannot be read as a table of edges: {error}. Edges are {TAKEN}."
        ) from error
    names = edge_columns(_WHERE, columns, table.schema)
    first, parts = 0, []
    for rows in table.select(list(names)).to_batches():
        parts.append(plain_columns(_WHERE, rows, names, first))
        first += len(rows)
    return arrow_columns(_WHERE, parts)


def arrow_columns(where: Place, parts: list[list[pa.Array]]) -> Columns:
    """Return the columns of source, target and perhaps weight that Arrow has read in several parts."""
    import pyarrow as pa

    if not parts:
        raise FormatError(f"{where} is empty: it holds no edges.")
    source, target, *weights = (pa.chunked_array(arrays) for arrays in zip(*parts, strict=True))
    ends = [
        signed(where, ids.to_numpy()) if pa.types.is_integer(ids.type) else text_ids(where, ids)
        for ids in (source, target)
    ]
    if ends[0].dtype.kind != ends[1].dtype.kind and not all(np.issubdtype(ids.dtype, np.integer) for ids in ends):
        raise FormatError(
            f"{where}: one of the columns of source and target has numbers and the other has text. Write both in the "
            "same way."
        )
    return Columns(ends[0], ends[1], weights[0].to_numpy().astype(np.float64) if weights else None)
