"""Convert graphs from and to NetworkX and PyG, and from the files of OGB-LSC."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError, MissingExtraError
from graphquilt.graph import Graph
from graphquilt.graph.files import DESCRIPTION, open_array
from graphquilt.ingest.assembly import Columns, assemble
from graphquilt.ingest.outofcore import build_csr
from graphquilt.progress import ProgressCallback

_EDGES = "paper___cites___paper/edge_index.npy"
__all__ = ["from_networkx", "from_pyg", "read_mag240m", "to_networkx", "to_numpy", "to_pyg"]

_LARGEST_LABEL = 2.0**31  # more classes than any data set has


def from_networkx(network: Any, *, weight: str | None = None) -> Graph:
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
    values = np.array([edge[2] for edge in pairs], dtype=np.float64) if weight else None
    graph = assemble(Columns(ends[:, 0], ends[:, 1], values), directed=network.is_directed(), n_nodes=len(names))
    integers = all(isinstance(name, int | np.integer) for name in names)
    ids = np.array(names if integers else [str(name) for name in names])
    plain = integers and np.array_equal(ids, np.arange(len(names)))
    return graph.renamed(None if plain else ids)


def to_networkx(graph: Graph) -> Any:
    """Return a NetworkX graph with ``weight`` on its edges where there are weights; nodes bear their ids.

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


def from_pyg(data: Any, *, directed: bool = False) -> Graph:
    """Take a PyG ``Data``: ``edge_index``, and ``x``, ``y`` and ``edge_weight`` where it has them.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> data = SimpleNamespace(edge_index=np.array([[0, 1], [1, 2]]), num_nodes=4)
    >>> from_pyg(data).n_nodes
    4
    """
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
    """Return a PyG ``Data`` with ``edge_index``, and ``edge_weight``, ``x`` and ``y`` where there are any.

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


def read_mag240m(
    folder: str | PathLike[str],
    out: str | PathLike[str],
    *,
    memory: int = 1 << 30,
    progress: ProgressCallback | None = None,
) -> Graph:
    """Build the citation graph of the OGB-LSC MAG240M folder, made undirected, without the ``ogb`` package.

    Parameters
    ----------
    folder : path
        The folder that holds ``processed/paper___cites___paper/edge_index.npy`` (2, m), and
        ``processed/paper/node_feat.npy`` and ``node_label.npy``; or its parent. Features and labels of the graph are
        memory maps of these files; papers without a class have the label NaN there and -1 here.
    out : path
        Where the CSR goes (some 11 GB, and 21 GB more while it is built). A graph that is there is opened.
    memory, progress
        As for :func:`graphquilt.ingest.build_csr`.
    """
    root = Path(folder)
    if not (root / "processed").is_dir():
        root = next((child for child in sorted(root.glob("*")) if (child / "processed").is_dir()), root)
    processed = root / "processed"
    for name in (_EDGES, "paper/node_feat.npy"):
        if not (processed / name).is_file():
            raise FormatError(f"{folder} is not a folder of OGB-LSC MAG240M: processed/{name} is missing.")
    edges, features = open_array(processed / _EDGES), open_array(processed / "paper" / "node_feat.npy")
    if edges.ndim != 2 or edges.shape[0] != 2 or features.ndim != 2:
        raise FormatError(f"{processed}: edge_index has shape {edges.shape} and node_feat {features.shape}.")
    labels = _paper_labels(processed / "paper" / "node_label.npy", len(features))
    target = Path(out)
    if (target / DESCRIPTION).is_file():
        graph = Graph.open(target)
    else:
        graph = build_csr(edges, target, n_nodes=len(features), memory=memory, progress=progress)
    return graph.with_attributes(features=features, labels=labels)


def _paper_labels(path: Path, n_papers: int) -> AnyArray | None:
    """Return the class of each paper, -1 where it has none; None where there is no file of classes."""
    if not path.is_file():
        return None
    labels = np.asarray(open_array(path))
    if labels.dtype.kind == "f":
        labels = np.where(np.isnan(labels), -1, labels)
        if np.abs(labels).max(initial=0) > _LARGEST_LABEL:
            raise FormatError(f"{path} holds labels up to {np.abs(labels).max()}, which are no classes. Get it again.")
        labels = labels.astype(np.int64)
    if labels.shape != (n_papers,) or labels.dtype.kind not in "iu":
        raise FormatError(
            f"{path} holds {labels.dtype} of shape {labels.shape}, not one class for each of {n_papers} papers. Get it "
            "again."
        )
    return labels
