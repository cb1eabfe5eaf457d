"""Reads a data set as a Graph: pickles of planetoid, .npz files, the cache of PyG, OGB-LSC, or a generated graph."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray
from graphquilt.datasets.catalogue import dataset_files
from graphquilt.datasets.pickles import Placeholder, load_npz, load_pickle, load_torch
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import Graph
from graphquilt.ingest import read_mag240m

__all__ = ["block_graph", "load_dataset"]


def load_dataset(name: str, *, data: str | os.PathLike[str] | None = None, largest_component: bool = True) -> Graph:
    """Return a data set by name: undirected, without loops, with features and labels.

    Nothing is downloaded. ``"blocks"`` is generated; the others are read from a folder.

    Parameters
    ----------
    name : str
        One of :func:`dataset_names`.
    data : path, optional
        The folder with data sets; None means that of the variable ``GRAPHQUILT_DATA``.
    largest_component : bool
        Return only the largest connected component with its features, labels and ids, as the paper does. MAG240M is
        always whole, as in the paper, and its arrays stay on disk.

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


def _undirected(edge_index: npt.ArrayLike | tuple[AnyArray, AnyArray], n: int) -> sp.csr_array:
    """Return the 0/1 adjacency of pairs (2, m): both directions, no loops, no duplicates."""
    rows, columns = np.asarray(edge_index, dtype=np.int64)
    keep = rows != columns
    rows, columns = rows[keep], columns[keep]
    A = sp.coo_array((np.ones(2 * len(rows)), (np.r_[rows, columns], np.r_[columns, rows])), shape=(n, n)).tocsr()
    A.data[:] = 1
    return A


def _planetoid(files: list[Path]) -> Graph:
    parts = {path.name.split(".", 2)[2]: path for path in files}
    allx, tx = (sp.csr_array(load_pickle(parts[part]), dtype=np.float32) for part in ("allx", "tx"))
    ally, ty = (np.asarray(load_pickle(parts[part])) for part in ("ally", "ty"))
    neighbours: dict[int, list[int]] = load_pickle(parts["graph"])
    test = np.loadtxt(parts["test.index"], dtype=np.int64, ndmin=1)
    if len(test) != tx.shape[0] or len(ally) != allx.shape[0] or len(ty) != len(test):
        raise FormatError(
            f"{parts['test.index']} lists {len(test)} nodes, tx has {tx.shape[0]} rows, ty {len(ty)}, allx "
            f"{allx.shape[0]} and ally {len(ally)}; the first three must agree, and the last two."
        )
    n = len(neighbours)
    # Row r of tx is node test[r]; nodes that are in neither file have no features and no label.
    place = np.concatenate([np.arange(len(ally)), test])
    if len(np.unique(place)) != len(place) or place.max() >= n:
        raise FormatError(
            f"{parts['test.index']} names a node twice, or a node that the graph of {n} nodes does not have."
        )
    stacked = sp.vstack([allx, tx]).tocoo()
    X = sp.csr_array((stacked.data, (place[stacked.row], stacked.col)), shape=(n, stacked.shape[1]))
    y = np.full(n, -1, dtype=np.int64)
    one_hot = np.concatenate([ally, ty])
    y[place] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    rows = np.repeat(np.fromiter(neighbours, dtype=np.int64), [len(nodes) for nodes in neighbours.values()])
    columns = np.concatenate([np.asarray(nodes, dtype=np.int64) for nodes in neighbours.values()])
    return Graph(_undirected((rows, columns), n), X, labels=y)


def _npz(files: list[Path]) -> Graph:
    arrays = load_npz(files[0])
    names = set(arrays)
    if {"edge_index", "x_data", "y"} <= names:
        X = _csr(arrays, "x")
        return Graph(_undirected(arrays["edge_index"], X.shape[0]), X, labels=arrays["y"])
    if {"adj_data", "labels"} <= names:
        A, labels = _csr(arrays, "adj").tocoo(), arrays["labels"]
        X = _csr(arrays, "attr") if "attr_data" in names else sp.csr_array(arrays["attr_matrix"], dtype=np.float32)
    elif {"adj_matrix", "node_attr", "node_label"} <= names:
        A, labels = sp.coo_array(arrays["adj_matrix"]), arrays["node_label"]
        X = sp.csr_array(arrays["node_attr"], dtype=np.float32)
    else:
        raise FormatError(
            f"{files[0]} contains {', '.join(sorted(arrays))}; expected edge_index, x_data, x_indices, x_indptr, "
            "x_shape and y, or adj_data …, attr_data …, labels, or adj_matrix, node_attr and node_label."
        )
    return Graph(_undirected((A.row, A.col), A.shape[0]), X, labels=np.asarray(labels, dtype=np.int64))


def _csr(arrays: dict[str, AnyArray], prefix: str) -> sp.csr_array:
    data, indices, indptr, shape = (arrays[f"{prefix}_{part}"] for part in ("data", "indices", "indptr", "shape"))
    return sp.csr_array((data.astype(np.float32), indices, indptr), shape=tuple(shape))


def _pyg(files: list[Path]) -> Graph:
    arrays = _find_mapping(load_torch(files[0]))
    if arrays is None:
        raise FormatError(f"{files[0]} contains no edge_index; it is not a graph of PyG.")
    X = arrays.get("x")
    n = len(X) if X is not None else int(arrays["edge_index"].max()) + 1
    features = None if X is None else sp.csr_array(X, dtype=np.float32)
    return Graph(_undirected(arrays["edge_index"], n), features, labels=arrays.get("y"))


def _find_mapping(value: object) -> dict[str, AnyArray] | None:
    """Return the mapping with ``edge_index`` inside tuples, dictionaries and placeholders of PyG objects."""
    parts: Iterable[object] = ()
    if isinstance(value, dict):
        if isinstance(value.get("edge_index"), np.ndarray):
            return value
        parts = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    elif isinstance(value, Placeholder):
        parts = (value.state, *value.arguments)
    return next((mapping for mapping in map(_find_mapping, parts) if mapping is not None), None)


def block_graph(n_nodes: int = 1200, n_classes: int = 6, *, seed: int = 0) -> Graph:
    """Generate a connected graph with classes: most edges join nodes of one class, and each class prefers some words.

    Each node gets edges to three nodes of its own class and to two of any class, and 24 words, of which six are among
    the 20 that its class prefers: classes can be separated, but not without error.

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
    """Open the citation graph beside the files of OGB-LSC, or build it (11 GB, some hours)."""
    folder = files[0].parents[2]
    return read_mag240m(folder, folder / "graphquilt")
