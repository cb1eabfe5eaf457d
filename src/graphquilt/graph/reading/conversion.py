"""Convert graphs from and to NetworkX and PyG."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import InputError, MissingExtraError
from graphquilt.graph.reading.assembly import Columns, assemble
from graphquilt.graph.structure import Graph

__all__ = ["NetworkXGraph", "PyGData", "from_networkx", "from_pyg", "to_networkx", "to_numpy", "to_pyg"]


class NetworkXGraph(Protocol):
    """What a graph of NetworkX has."""

    @property
    def nodes(self) -> Any:
        """The view of the nodes."""

    @property
    def edges(self) -> Any:
        """The view of the edges."""

    def is_directed(self) -> bool:
        """Return whether edges have a direction."""
        ...


class PyGData(Protocol):
    """What a ``Data`` of PyG has."""

    edge_index: Any
    num_nodes: int


def from_networkx(network: NetworkXGraph, *, weight: str | None = None) -> Graph:
    """Take a NetworkX graph; nodes keep their order, and their names become ``node_ids``.

    Parameters
    ----------
    network : networkx.Graph or DiGraph
        Of a multigraph, parallel edges become one.
    weight : str, optional
        The edge attribute that holds the weight; an edge without it weighs 1.

    Examples
    --------
    >>> import networkx as nx
    >>> from_networkx(nx.karate_club_graph())
    Graph(34 nodes, 156 entries, undirected, features=None)
    """
    names = list(network.nodes())
    number = {name: k for k, name in enumerate(names)}
    pairs = list(network.edges(data=weight, default=1.0) if weight else network.edges())
    ends = np.array([(number[edge[0]], number[edge[1]]) for edge in pairs], dtype=np.int64).reshape(-1, 2)
    values = np.array([_weight(*edge) for edge in pairs], dtype=np.float64) if weight else None
    graph = assemble(Columns(ends[:, 0], ends[:, 1], values), directed=network.is_directed(), n_nodes=len(names))
    integers = all(isinstance(name, int | np.integer) for name in names)
    ids = np.array(names if integers else [str(name) for name in names])
    plain = integers and np.array_equal(ids, np.arange(len(names)))
    return graph.renamed(None if plain else ids)


def _weight(u: object, v: object, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(
            f"the weight of the edge from {u!r:.40} to {v!r:.40} is {value!r:.40}, which is not a number. Repair or "
            "remove it; an edge without weight weighs 1."
        ) from None


def to_networkx(graph: Graph) -> Any:
    """Return a NetworkX graph with ``weight`` on its edges if the graph has weights; nodes bear their ids.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> to_networkx(Graph(sp.csr_array([[0, 1], [1, 0]]))).number_of_edges()
    1
    """
    try:
        import networkx as nx
    except ImportError as error:
        raise MissingExtraError("to_networkx", "all") from error
    network = nx.DiGraph() if graph.directed else nx.Graph()
    names = list(range(graph.n_nodes)) if graph.node_ids is None else graph.node_ids.tolist()
    network.add_nodes_from(names)
    rows = np.repeat(np.arange(graph.n_nodes), graph.degrees).tolist()
    ends = [(names[u], names[v]) for u, v in zip(rows, graph.indices.tolist(), strict=True)]
    if graph.weights is None:
        network.add_edges_from(ends)
    else:
        network.add_weighted_edges_from((u, v, w) for (u, v), w in zip(ends, graph.weights.tolist(), strict=True))
    return network


def from_pyg(data: PyGData, *, directed: bool = False) -> Graph:
    """Take a PyG ``Data``: ``edge_index``, and ``x``, ``y`` and ``edge_weight`` if it has them.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> data = SimpleNamespace(edge_index=np.array([[0, 1], [1, 2]]), num_nodes=4)
    >>> from_pyg(data).n_nodes
    4
    """
    if data.edge_index is None:
        raise InputError("this Data has no edges: its edge_index is None. Set edge_index, of shape (2, m).")
    ends = to_numpy(data.edge_index)
    if ends.ndim != 2 or ends.shape[0] != 2:
        raise InputError(f"edge_index must be (2, m); it is {ends.shape}.")
    weights = getattr(data, "edge_weight", None)
    features, labels = getattr(data, "x", None), getattr(data, "y", None)
    return assemble(
        Columns(ends[0], ends[1], None if weights is None else to_numpy(weights).astype(np.float64)),
        directed=directed,
        n_nodes=int(data.num_nodes),
        features=None if features is None else to_numpy(features),
        labels=None if labels is None else to_numpy(labels).reshape(-1),
    )


def to_numpy(values: Any) -> AnyArray:
    """Return an array, or a tensor of torch, as a NumPy array."""
    return np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)


def to_pyg(graph: Graph) -> Any:
    """Return a PyG ``Data`` with ``edge_index``, and ``edge_weight``, ``x`` and ``y`` if the graph has them.

    Sparse features become dense.
    """
    try:
        import torch
        from torch_geometric.data import Data
    except ImportError as error:
        raise MissingExtraError("to_pyg", "pyg") from error
    rows = np.repeat(np.arange(graph.n_nodes), graph.degrees)
    data = Data(edge_index=torch.from_numpy(np.stack([rows, np.asarray(graph.indices, dtype=np.int64)])))
    data.num_nodes = graph.n_nodes
    if graph.weights is not None:
        data.edge_weight = torch.from_numpy(np.array(graph.weights))
    if (X := graph.features) is not None:
        data.x = torch.from_numpy(np.array(X) if isinstance(X, np.ndarray) else X.toarray())
    if graph.labels is not None:
        data.y = torch.from_numpy(np.array(graph.labels))
    return data
