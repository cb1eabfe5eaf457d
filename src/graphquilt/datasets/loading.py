"""From files to a Graph: planetoid pickles, .npz in its dialects, the cache of PyG, OGB-LSC, and one made here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray
from graphquilt.datasets.catalogue import dataset_files
from graphquilt.datasets.pickles import load_arrays, load_npz, load_torch
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import Graph
from graphquilt.ingest import read_mag240m

__all__ = ["block_graph", "load_dataset"]


def load_dataset(name: str, *, data: str | os.PathLike[str] | None = None, largest_component: bool = True) -> Graph:
    """Return a data set by name: undirected, without loops, with features and labels.

    Nothing is downloaded. ``"blocks"`` is made on the spot; the others are read from a folder.

    Parameters
    ----------
    name : str
        One of :func:`dataset_names`.
    data : path, optional
        The folder with data sets; None means that of the variable ``GRAPHQUILT_DATA``.
    largest_component : bool
        Keep only the largest connected component, as the paper does; features, labels and ids are cut with it.
        MAG240M is left whole: the paper takes it as it is, and its arrays stay on disk.

    Examples
    --------
    >>> graph = load_dataset("blocks")
    >>> graph.n_nodes, graph.n_edges, len(set(graph.labels.tolist()))
    (1200, 11866, 6)
    """
    if name == "blocks":
        return block_graph()
    form, files = dataset_files(name, data)
    if form == "netflow":
        raise InputError(
            f"'{name}' is a record of flows and not one graph; read its {len(files)} files with read_flows and cut "
            "them into windows."
        )
    graph = {"planetoid": _planetoid, "npz": _npz, "pyg": _pyg, "ogb-lsc": _mag240m}[form](files)
    return graph.largest_component()[0] if largest_component and form != "ogb-lsc" else graph


def _undirected(edge_index: Any, n: int) -> sp.csr_array:
    """Return 0/1 adjacency from any list of pairs (2, m): both directions, no loops, no duplicates."""
    rows, columns = np.asarray(edge_index, dtype=np.int64)
    keep = rows != columns
    rows, columns = rows[keep], columns[keep]
    A = sp.coo_array((np.ones(2 * len(rows)), (np.r_[rows, columns], np.r_[columns, rows])), shape=(n, n)).tocsr()
    A.data[:] = 1
    return A


def _planetoid(files: list[Path]) -> Graph:
    parts = {path.name.split(".", 2)[2]: path for path in files}
    allx, tx = (sp.csr_array(load_arrays(parts[part]), dtype=np.float32) for part in ("allx", "tx"))
    ally, ty = (np.asarray(load_arrays(parts[part])) for part in ("ally", "ty"))
    neighbours: dict[int, list[int]] = load_arrays(parts["graph"])
    test = np.loadtxt(parts["test.index"], dtype=np.int64, ndmin=1)
    if len(test) != tx.shape[0] or len(ally) != allx.shape[0] or len(ty) != len(test):
        raise FormatError(
            f"{parts['test.index']} lists {len(test)} nodes, tx has {tx.shape[0]} rows, ty {len(ty)}, allx "
            f"{allx.shape[0]} and ally {len(ally)}; the first three must agree, and the last two."
        )
    n = len(neighbours)
    # Row r of tx belongs to test[r]; ids that are in neither file have no features and no label.
    place = np.concatenate([np.arange(len(ally)), test])
    if len(np.unique(place)) != len(place) or place.max() >= n:
        raise FormatError(f"{parts['test.index']} names a node twice, or one beyond the {n} nodes of the graph.")
    stacked = sp.vstack([allx, tx]).tocoo()
    X = sp.csr_array((stacked.data, (place[stacked.row], stacked.col)), shape=(n, stacked.shape[1]))
    y = np.full(n, -1, dtype=np.int64)
    one_hot = np.concatenate([ally, ty])
    y[place] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    rows = np.repeat(np.fromiter(neighbours, dtype=np.int64), [len(each) for each in neighbours.values()])
    columns = np.concatenate([np.asarray(each, dtype=np.int64) for each in neighbours.values()])
    return Graph(_undirected((rows, columns), n), X, labels=y)


def _npz(files: list[Path]) -> Graph:
    path = files[0]
    arrays = load_npz(path)
    for dialect in (_npz_edges, _npz_shchur, _npz_matrices):
        graph = dialect(arrays)
        if graph is not None:
            return graph
    raise FormatError(
        f"{path} holds {', '.join(sorted(arrays))}; expected edge_index, x_data, x_indices, x_indptr, x_shape and y, "
        "or adj_data …, attr_data …, labels, or adj_matrix, node_attr and node_label."
    )


def _csr(arrays: dict[str, Any], prefix: str) -> sp.csr_array:
    data, indices, indptr, shape = (arrays[f"{prefix}_{part}"] for part in ("data", "indices", "indptr", "shape"))
    return sp.csr_array((data.astype(np.float32), indices, indptr), shape=tuple(shape))


def _npz_edges(arrays: dict[str, Any]) -> Graph | None:
    if not {"edge_index", "x_data", "y"} <= set(arrays):
        return None
    X = _csr(arrays, "x")
    return Graph(_undirected(arrays["edge_index"], X.shape[0]), X, labels=arrays["y"])


def _npz_shchur(arrays: dict[str, Any]) -> Graph | None:
    if not {"adj_data", "labels"} <= set(arrays):
        return None
    A = _csr(arrays, "adj").tocoo()
    X = _csr(arrays, "attr") if "attr_data" in arrays else sp.csr_array(arrays["attr_matrix"], dtype=np.float32)
    return Graph(_undirected((A.row, A.col), A.shape[0]), X, labels=arrays["labels"].astype(np.int64))


def _npz_matrices(arrays: dict[str, Any]) -> Graph | None:
    if not {"adj_matrix", "node_attr", "node_label"} <= set(arrays):
        return None
    A = sp.coo_array(arrays["adj_matrix"])
    X = sp.csr_array(arrays["node_attr"], dtype=np.float32)
    return Graph(_undirected((A.row, A.col), A.shape[0]), X, labels=np.asarray(arrays["node_label"], dtype=np.int64))


def _pyg(files: list[Path]) -> Graph:
    held = _find_mapping(load_torch(files[0]))
    if held is None:
        raise FormatError(f"{files[0]} holds no edge_index; it is not a graph of PyG.")
    X = held.get("x")
    n = len(X) if X is not None else int(held["edge_index"].max()) + 1
    features = None if X is None else sp.csr_array(X, dtype=np.float32)
    return Graph(_undirected(held["edge_index"], n), features, labels=held.get("y"))


def _find_mapping(held: Any) -> dict[str, AnyArray] | None:
    """Look for the mapping with ``edge_index`` inside tuples, dictionaries and inert objects of PyG."""
    if isinstance(held, dict):
        if isinstance(held.get("edge_index"), np.ndarray):
            return held
        inside: Any = held.values()
    elif isinstance(held, list | tuple):
        inside = held
    elif hasattr(held, "state"):
        inside = (held.state, *held.arguments)
    else:
        return None
    return next((found for found in map(_find_mapping, inside) if found is not None), None)


def block_graph(n_nodes: int = 1200, n_classes: int = 6, *, seed: int = 0) -> Graph:
    """Make a connected graph with classes: most edges inside a class, and words that the class prefers.

    Each node picks three nodes of its own class and two of any, and 24 words of which six come from the 20 that its
    class prefers: classes can be told apart, but not without error.

    Examples
    --------
    >>> block_graph(60, 3).features.shape
    (60, 60)
    """
    rng = np.random.default_rng(seed)
    y = np.arange(n_nodes) % n_classes
    own = (rng.integers(0, n_nodes // n_classes, size=(n_nodes, 2)) * n_classes + y[:, None]).ravel()
    ring = (np.arange(n_nodes) + n_classes) % n_nodes
    other = rng.integers(0, n_nodes, size=2 * n_nodes)
    nodes = np.arange(n_nodes)
    A = _undirected((np.r_[np.repeat(nodes, 2), nodes, nodes, nodes], np.r_[own, ring, other]), n_nodes)
    words = 20 * n_classes
    own_words = rng.integers(0, 20, size=(n_nodes, 6)) + 20 * y[:, None]
    columns = np.hstack([own_words, rng.integers(0, words, size=(n_nodes, 18))]).ravel()
    X = sp.csr_array((np.ones(24 * n_nodes, dtype=np.float32), (np.repeat(nodes, 24), columns)), (n_nodes, words))
    X.data[:] = 1
    return Graph(A, X, labels=y).largest_component()[0]


def _mag240m(files: list[Path]) -> Graph:
    """Open the citation graph that was built beside the files of OGB-LSC, or build it (11 GB, some hours)."""
    folder = files[0].parents[2]
    return read_mag240m(folder, folder / "graphquilt")
