"""Nodes: their ids, as all parties write them, and where a network touches others."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import BoolArray, Int64Array
from graphquilt.errors import InputError
from graphquilt.graph import Graph


def canonical_ids(ids: npt.ArrayLike) -> list[str]:
    """Return node ids as text that is the same for all parties: integers in decimal, text in Unicode form NFC.

    So 17 from a Parquet file and "17" from a text file are one node, and "017" is another.

    Examples
    --------
    >>> canonical_ids([17, 4]), canonical_ids(["17", "017"])
    (['17', '4'], ['17', '017'])
    """
    array = np.asarray(ids)
    if array.dtype.kind in "iu":
        return [str(value) for value in array.tolist()]
    if array.dtype.kind not in "UO" or not all(isinstance(value, str | int) for value in array.tolist()):
        raise InputError(f"node ids must be integers or text, not {array.dtype}.")
    return [unicodedata.normalize("NFC", str(value)) for value in array.tolist()]


def unique_ids(ids: npt.ArrayLike) -> list[str]:
    """Return the canonical ids, and refuse two nodes of the same one."""
    texts, seen = canonical_ids(ids), set[str]()
    for text in texts:
        if text in seen:
            raise InputError(
                f"the node id '{text[:80]}' stands for two nodes; ids that other parties share are unique."
            )
        seen.add(text)
    return texts


def node_ids(graph: Graph) -> list[str]:
    """Return the ids of the nodes of a graph, as all parties write them."""
    return canonical_ids(np.arange(graph.n_nodes) if graph.node_ids is None else graph.node_ids)


def rows_of(graph: Graph, ids: Collection[str], content: str) -> Int64Array:
    """Return the rows of the nodes that ``ids`` name, and refuse a list that names none.

    Unknown ids are ignored: a list may serve several parties. ``content`` says in the error
    what the list is.
    """
    wanted = set(canonical_ids(np.array(sorted(ids), dtype=np.str_))) if ids else set()
    rows = np.flatnonzero([text in wanted for text in node_ids(graph)])
    if len(rows) == 0:
        raise InputError(
            f"none of the {len(ids)} ids in {content} is one of the {graph.n_nodes} nodes of this graph. Write one id "
            "per line, as in the edge list."
        )
    return rows


def boundary(graph: Graph, own: Int64Array) -> Int64Array:
    """Return the rows of the nodes where this network touches others, ascending.

    These are the nodes that are not its ``own`` (rows), and its own nodes with an edge to one of them. If every party
    knows its own nodes and their direct neighbours, the nodes that two parties share are on the boundary of both.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.diags_array([np.ones(4), np.ones(4)], offsets=[-1, 1]))
    >>> boundary(path, np.array([0, 1, 2])).tolist()
    [2, 3, 4]
    """
    foreign: BoolArray = np.ones(graph.n_nodes, dtype=bool)
    foreign[own] = False
    if not foreign.any():
        raise InputError(
            f"all {graph.n_nodes} nodes of the graph are own nodes, and it has no boundary. Read edges that "
            "lead to nodes of others too, or share all nodes or a list of them."
        )
    both_ways = graph.undirected()
    ends = np.repeat(foreign, both_ways.degrees)  # of each entry: whether the node of its row is foreign
    touching = np.zeros(graph.n_nodes, dtype=bool)
    touching[both_ways.indices[ends]] = True
    return np.flatnonzero(foreign | touching)
