"""The graph before a moment, and the links since then, in the rows of a job whose edges have times."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.graph.reading.ids import find_ids
from graphquilt.graph.reading.recency import Period, read_recent_edges
from graphquilt.jobs import Source


def graphs_before_and_after(source: Source, after: str, graph: Graph, ids: AnyArray) -> tuple[Graph, Int64Array]:
    """Return the graph before a moment, with all nodes of the job, and the links since then, (k, 2).

    The edge list of the job is read again. Ages are counted from the last edge before the moment.
    """
    if source.path is None or source.half_life is None:
        raise InputError(
            "--after needs the times of the edges, and this job was made without them. Make it from an edge list with "
            "times: graphquilt embed edges.csv --half-life 30d --out job."
        )
    parts = []
    for period in (Period(before=after), Period(since=after)):
        part = read_recent_edges(source.path, half_life=source.half_life, columns=source.columns, period=period)
        parts.append(_with_rows_of(part, graph, ids))
    before, later = parts
    links = sp.triu(later.adjacency, 1).tocoo()
    return before, np.column_stack([links.row, links.col]).astype(np.int64)


def _with_rows_of(part: Graph, graph: Graph, ids: AnyArray) -> Graph:
    """Return the edges of ``part`` between nodes of ``graph``, with its rows and features."""
    place = find_ids(ids, np.arange(part.n_nodes) if part.node_ids is None else part.node_ids)
    entries = part.adjacency.tocoo()
    used = (place[entries.row] >= 0) & (place[entries.col] >= 0)
    ends = place[entries.row[used]], place[entries.col[used]]
    A = sp.csr_array((entries.data[used], ends), shape=(graph.n_nodes, graph.n_nodes))
    return Graph(A, graph.features, labels=graph.labels)
