"""Convert graphs of NetworkX, igraph and PyG, and edges in arrays and lists to columns."""

from __future__ import annotations

import logging
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError
from graphquilt.graph.reading.assembly import Columns, Duplicates, assemble
from graphquilt.graph.reading.ids import signed
from graphquilt.graph.reading.sources import edge_ends
from graphquilt.graph.structure import Graph

logger = logging.getLogger(__name__)


def from_networkx(network: Any, *, weight: str | None = None, duplicates: Duplicates = "max") -> Graph:
    """Take a NetworkX graph; nodes keep their order, and their names become ``node_ids``.

    Parameters
    ----------
    network : networkx.Graph or DiGraph
        Of a multigraph, parallel edges become one; ``duplicates`` says with which weight, as in :func:`read_edges`.
    weight : str, optional
        The edge attribute that holds the weight; an edge without it weighs 1.

    Examples
    --------
    >>> import networkx as nx
    >>> from_networkx(nx.karate_club_graph())
    Graph(34 nodes, 156 entries, undirected, features=None)
    """
    if weight is None and (others := _number_attributes(network)):
        logger.warning(
            f"the edges of this NetworkX graph have no weight, but {', '.join(map(repr, others[:5]))}, which is not "
            f"used. To use it: graphquilt.graph.from_networkx(graph, weight={others[0]!r})."
        )
    names = list(network.nodes())
    number = {name: k for k, name in enumerate(names)}
    pairs = list(network.edges(data=weight, default=1.0) if weight else network.edges())
    ends = np.array([(number[edge[0]], number[edge[1]]) for edge in pairs], dtype=np.int64).reshape(-1, 2)
    values = np.array([_weight(*edge) for edge in pairs], dtype=np.float64) if weight else None
    columns = Columns(ends[:, 0], ends[:, 1], values)
    graph = assemble(columns, directed=network.is_directed(), n_nodes=len(names), duplicates=duplicates)
    return graph.with_attributes(node_ids=_node_ids(names))


def _node_ids(names: list[object]) -> AnyArray | None:
    """Return names as ids, whole numbers or text; None if they are 0..n-1."""
    integers = all(isinstance(name, int | np.integer) for name in names)
    ids = np.array(names if integers else [str(name) for name in names])
    return None if integers and np.array_equal(ids, np.arange(len(names))) else ids


def _number_attributes(network: Any) -> list[str]:
    """Return the names of attributes of the first edges that are numbers."""
    first = islice((attributes for *_, attributes in network.edges(data=True)), 100)
    return list({name: None for each in first for name, value in each.items() if isinstance(value, int | float)})


def _weight(u: object, v: object, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(
            f"the weight of the edge from {u!r:.40} to {v!r:.40} is {value!r:.40}, which is not a number. Repair or "
            "remove it; an edge without weight weighs 1."
        ) from None


def from_igraph(network: Any, *, weight: str | None = "weight", duplicates: Duplicates = "max") -> Graph:
    """Take a graph of igraph; vertices keep their order, and their attribute ``name``, if any, becomes ``node_ids``.

    ``weight`` names the edge attribute that holds the weight; without it every edge weighs 1.

    Examples
    --------
    >>> igraph = __import__("pytest").importorskip("igraph")
    >>> from_igraph(igraph.Graph.Ring(5))
    Graph(5 nodes, 10 entries, undirected, features=None)
    """
    edges = np.array(network.get_edgelist(), dtype=np.int64).reshape(-1, 2)
    known = weight in network.es.attributes()
    values = np.array(list(map(_weight, *edges.T.tolist(), network.es[weight]))) if known and len(edges) else None
    columns = Columns(edges[:, 0], edges[:, 1], values)
    graph = assemble(columns, directed=network.is_directed(), n_nodes=network.vcount(), duplicates=duplicates)
    return graph.with_attributes(node_ids=_node_ids(network.vs["name"]) if "name" in network.vs.attributes() else None)


def from_pyg(
    data: Any, *, edge_type: tuple[str, str, str] | None = None, directed: bool = False, duplicates: Duplicates = "max"
) -> Graph:
    """Take a PyG ``Data``, or one edge type of a ``HeteroData``, with ``x``, ``y`` and ``edge_weight`` if it has them.

    Parameters
    ----------
    data : Data or HeteroData
    edge_type : (source, relation, target), optional
        The edges of a HeteroData that are taken; by default its only edge type. If they join two kinds of nodes, the
        sources come first, the targets after them, and ``node_ids`` are such as ``user/3``. Features and labels are
        taken if both ends are of one kind.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> data = SimpleNamespace(edge_index=np.array([[0, 1], [1, 2]]), num_nodes=4)
    >>> from_pyg(data).n_nodes
    4
    """
    edges = nodes = data
    kind, names, shift = None, None, 0  # targets are numbered from ``shift``
    if hasattr(data, "edge_types"):
        kind = _edge_type(data, edge_type)
        edges, nodes = data[kind], data[kind[0]] if kind[0] == kind[2] else None
    elif edge_type is not None:
        raise InputError("edge_type chooses the edges of a HeteroData; this Data has only one kind. Leave it out.")
    if kind is not None and nodes is None:
        ends = {name: int(data[name].num_nodes) for name in (kind[0], kind[2])}
        names, shift = [f"{name}/{k}" for name, n in ends.items() for k in range(n)], ends[kind[0]]
    if getattr(edges, "edge_index", None) is None:
        raise InputError("this Data has no edges: its edge_index is None. Set edge_index, of shape (2, m).")
    pairs = to_numpy(edges.edge_index)
    if pairs.ndim != 2 or pairs.shape[0] != 2:
        raise InputError(f"edge_index must be (2, m); it is {pairs.shape}.")
    weights = getattr(edges, "edge_weight", None)
    features, labels = getattr(nodes, "x", None), getattr(nodes, "y", None)
    return assemble(
        Columns(pairs[0], pairs[1] + shift, None if weights is None else to_numpy(weights).astype(np.float64)),
        directed=directed,
        n_nodes=int(nodes.num_nodes) if names is None else len(names),
        duplicates=duplicates,
        features=None if features is None else to_numpy(features),
        labels=None if labels is None else to_numpy(labels).reshape(-1),
    ).with_attributes(node_ids=names)


def _edge_type(data: Any, given: tuple[str, str, str] | None) -> tuple[str, str, str]:
    """Return the edge type that is given, or the only one."""
    kinds = [tuple(kind) for kind in data.edge_types]
    chosen = kinds[0] if given is None and len(kinds) == 1 else given
    if chosen is None or tuple(chosen) not in kinds:
        what = "has several kinds of edges" if given is None else f"has no edges {given!r}"
        raise InputError(
            f"this HeteroData {what}; choose one of {', '.join(map(repr, kinds)) or 'none: it has no edges'}, for "
            f"example graphquilt.graph.from_pyg(data, edge_type={(kinds or [('a', 'to', 'b')])[0]!r}), or give "
            "data.to_homogeneous()."
        )
    return chosen


def array_columns(path: Path | None, edges: AnyArray, weights: AnyArray | None = None) -> Columns:
    """Return the edges in an array (2, m) or (m, 2); a third column (m, 3) is their weight."""
    m, *others = edges.shape or (0,)
    if path is None and others == [m] and m > 1 and weights is None:
        raise InputError(
            f"an array of {m} × {m} may be a matrix, which is given as scipy.sparse.csr_array(matrix), or edges in its "
            "rows or columns: give those as a list of tuples."
        )
    if path is None and others == [3] and m != 2:
        edges, weights = edges[:, :2], edges[:, 2]
    if path is None and edges.dtype.kind in "fOUS":
        edges = id_array(edges)
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


def id_array(ids: AnyArray) -> AnyArray:
    """Return ids as whole numbers or as text, whatever an array holds them in."""
    values, neither = ids.ravel().tolist() if ids.dtype.kind == "O" else [], []
    if ids.dtype.kind in "iu":
        return signed(None, ids)
    if ids.dtype.kind == "f":
        neither = ids[~(np.isfinite(ids) & (ids == np.rint(ids)) & (np.abs(ids) < 2.0**53))].tolist()
    elif values and all(isinstance(value, int | np.integer) and not isinstance(value, bool) for value in values):
        if large := next((value for value in values if not -(2**63) <= value < 2**63), None):
            raise InputError(f"the id {str(large)[:80]} is beyond 64 bits. Number the nodes, or give ids as text.")
        return ids.astype(np.int64)
    neither += [value for value in values if not isinstance(value, str | int | np.integer)]
    if neither:
        raise InputError(f"node ids are whole numbers or text; {neither[0]!r} is neither.")
    return ids.astype(np.int64 if ids.dtype.kind == "f" else str)


def list_columns(edges: list[tuple[object, ...]]) -> Columns:
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
    ids = id_array(ends)
    return Columns(ids[:, 0], ids[:, 1], weights)


def to_numpy(values: Any) -> AnyArray:
    """Return an array, or a tensor of torch, as a NumPy array."""
    return np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)
