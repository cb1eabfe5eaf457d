"""Sharing: which nodes a party may share, at most how many with each partner, and with how much noise."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from graphquilt.alignment import Alignment, align
from graphquilt.arrays import BoolArray, FloatArray, Int64Array
from graphquilt.errors import InputError
from graphquilt.federated.intersection import canonical_ids
from graphquilt.graph import Graph
from graphquilt.linalg import Motions


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """What a party may share.

    Attributes
    ----------
    nodes : int array (k,), optional
        The rows of the nodes that may be shared, as :func:`boundary` or :func:`rows_of` gives them; None means all.
    cap : int, optional
        The most nodes whose coordinates one partner gets; of more shared nodes, those with the lowest pseudonyms,
        a pseudo-random choice, are used. Of two caps, the smaller applies.
    noise : float
        The standard deviation of the Gaussian noise that is added to every coordinate that leaves, as a share of the
        spread (root mean square over coordinates) of the nodes that may be shared.
    """

    nodes: Int64Array | None = None
    cap: int | None = None
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.cap is not None and self.cap < 1:
            raise InputError(f"cap must be at least 1, not {self.cap}.")
        if not 0 <= self.noise < math.inf:
            raise InputError(f"noise must be finite and at least 0, not {self.noise}.")


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


def noisy(coordinates: FloatArray, noise: float, rng: np.random.Generator) -> FloatArray:
    """Return coordinates (k, d), of the same type, with Gaussian noise; see :class:`Sharing` for its size."""
    if noise == 0:
        return coordinates
    offsets = coordinates - coordinates.mean(axis=0)
    spread = math.sqrt(float(np.mean(np.square(offsets, dtype=np.float64))))
    return (coordinates + noise * spread * rng.normal(size=coordinates.shape)).astype(coordinates.dtype)


class NoiseCost(NamedTuple):
    """What noise costs, measured by aligning the coordinates with noise to those without."""

    edge_error: float  # that the noise of this party alone adds, where both would agree without it
    displacement: float  # of the nodes by the error in the motion, as a share of their spread (root mean square)


def noise_cost(coordinates: FloatArray, with_noise: FloatArray, motions: Motions, n_used: int) -> NoiseCost:
    """Measure what the noise costs on the first ``n_used`` of the shared nodes, in one pair.

    The edge error is |a - b| / sqrt(|a - mean|² + |b - mean|²), as an alignment reports it. The displacement says how
    far all nodes would move because the motion is estimated from noise.
    """
    few = slice(0, n_used)
    nodes = np.arange(len(coordinates[few]))
    pair = [(nodes, coordinates[few]), (nodes, with_noise[few])]
    fit: Alignment = align(pair, [[0, 1]], **vars(motions))
    back = fit.undo(0, fit.apply(1, coordinates))
    offsets = coordinates - coordinates.mean(axis=0)
    displacement = float(np.linalg.norm(back - coordinates) / max(np.linalg.norm(offsets), np.finfo(np.float64).tiny))
    return NoiseCost(float(fit.edge_errors[0]), displacement)
