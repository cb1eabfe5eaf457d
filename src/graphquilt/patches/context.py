"""The nodes around a patch that travel with it, so that it sees what lies beyond its border."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import Int64Array
from graphquilt.graph import Graph

__all__ = ["surrounding_nodes"]


def surrounding_nodes(
    graph: Graph, nodes: npt.ArrayLike, *, hops: int, neighbours: int, growth: float = math.inf
) -> Int64Array:
    """Return the nodes within ``hops`` steps of ``nodes`` that are not among them, in ascending order.

    At most ``neighbours`` neighbours of a node are followed, evenly spaced in its list of neighbours, so that hubs do
    not bring in the whole graph and the result depends on nothing but the graph. At most ``growth`` times as many nodes
    are returned as there are in ``nodes``: of a hop that brings more, those that were reached most often.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.csr_array(np.eye(6, k=1) + np.eye(6, k=-1)))
    >>> surrounding_nodes(path, [0, 1], hops=2, neighbours=8).tolist()
    [2, 3]
    """
    inner = np.sort(np.asarray(nodes, dtype=np.int64))
    seen = frontier = inner
    room = growth * len(inner)
    for _ in range(hops):
        starts = np.asarray(graph.indptr[frontier], dtype=np.int64)
        degrees = np.asarray(graph.indptr[frontier + 1], dtype=np.int64) - starts
        counts = np.minimum(degrees, neighbours)
        place = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        # The product stays below 2^63 for every list that fits into memory.
        entries = np.repeat(starts, counts) + place * np.repeat(degrees, counts) // np.repeat(counts, counts)
        reached, links = np.unique(np.asarray(graph.indices[entries], dtype=np.int64), return_counts=True)
        new = np.flatnonzero(~np.isin(reached, seen, assume_unique=True))
        if len(new) > room:
            new = np.sort(new[np.argsort(-links[new], kind="stable")[: int(room)]])
        frontier, room = reached[new], room - len(new)
        seen = np.union1d(seen, frontier)
    return np.setdiff1d(seen, inner, assume_unique=True)
