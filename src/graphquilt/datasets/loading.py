"""Reads a data set as a Graph: pickles of planetoid, .npz files, the cache of PyG, or a generated graph."""

from __future__ import annotations

import os
from collections import deque
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.datasets.catalogue import RECORDS, dataset_files
from graphquilt.errors import FormatError, InputError, QuiltError
from graphquilt.files import read_bytes
from graphquilt.graph import Graph
from graphquilt.graph.reading.pickles import Placeholder, load_npz, load_pickle, load_torch
from graphquilt.graph.sparse import check_size, csr_of

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
        Return only the largest connected component with its features, labels and ids, as the paper does.

    Examples
    --------
    >>> graph = load_dataset("blocks")
    >>> graph.n_nodes, graph.n_edges, len(set(graph.labels.tolist()))
    (1200, 5933, 6)
    """
    if name == "blocks":
        return block_graph()
    form, files = dataset_files(name, data)
    if form in RECORDS:
        raise InputError(
            f"'{name}' is a record of {form} and not one graph; read its {len(files)} files with "
            f"{' or '.join(f'read_{word}' for word in form.split(' and '))} and cut them into windows."
        )
    try:
        graph = {"planetoid": _planetoid, "npz": _npz, "pyg": _pyg}[form](files)
        return graph.largest_component()[0] if largest_component else graph
    except (QuiltError, OSError):
        raise
    except Exception as error:  # numbers that are damaged, but of the right kind, can raise anything further on
        reason = str(error) or type(error).__name__
        raise FormatError(f"{files[0]} does not hold the data set '{name}': {reason}. Get it again.") from error


def _undirected(edge_index: AnyArray | tuple[AnyArray, AnyArray], n: int) -> sp.csr_array:
    """Return the 0/1 adjacency of pairs (2, m): both directions, no loops, no duplicates."""
    rows, columns = (np.asarray(nodes, dtype=np.int64) for nodes in edge_index)
    if len(rows) and (min(rows.min(), columns.min()) < 0 or max(rows.max(), columns.max()) >= n):
        raise FormatError(f"an edge of the data set leads to a node that is not among its {n} nodes. Get it again.")
    keep = rows != columns
    rows, columns = rows[keep], columns[keep]
    A = sp.coo_array((np.ones(2 * len(rows)), (np.r_[rows, columns], np.r_[columns, rows])), shape=(n, n)).tocsr()
    A.data[:] = 1
    return A


def _planetoid(files: list[Path]) -> Graph:
    parts = {path.name.split(".", 2)[2]: path for path in files}
    allx, tx = (_features(load_pickle(parts[part]), parts[part]) for part in ("allx", "tx"))
    ally, ty = (_array(load_pickle(parts[part]), "biuf", 2, parts[part]) for part in ("ally", "ty"))
    n, edges = _neighbours(parts["graph"])
    test = np.array([int(word) for word in read_bytes(parts["test.index"]).split()], dtype=np.int64)
    if len(test) != tx.shape[0] or len(ally) != allx.shape[0] or len(ty) != len(test):
        raise FormatError(
            f"{parts['test.index']} lists {len(test)} nodes, tx has {tx.shape[0]} rows, ty {len(ty)}, allx "
            f"{allx.shape[0]} and ally {len(ally)}; the first three must agree, and the last two."
        )
    # Row r of tx is node test[r]; nodes that are in neither file have no features and no label.
    place = np.concatenate([np.arange(len(ally)), test])
    if len(np.unique(place)) != len(place) or place.min() < 0 or place.max() >= n:
        raise FormatError(
            f"{parts['test.index']} names a node twice, or a node that the graph of {n} nodes does not have."
        )
    stacked = sp.vstack([allx, tx]).tocoo()
    X = sp.csr_array((stacked.data, (place[stacked.row], stacked.col)), shape=(n, stacked.shape[1]))
    y = np.full(n, -1, dtype=np.int64)
    one_hot = np.concatenate([ally, ty])
    y[place] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    return Graph(_undirected(edges, n), X, labels=y)


def _neighbours(path: Path) -> tuple[int, tuple[Int64Array, Int64Array]]:
    """Return the number of nodes, and both ends of the edges, of a pickled dictionary of lists of neighbours."""
    neighbours = load_pickle(path)
    if not isinstance(neighbours, dict) or not all(isinstance(nodes, list) for nodes in neighbours.values()):
        raise FormatError(f"{path} does not hold a dictionary of lists of neighbours. Get it again.")
    lengths = [len(nodes) for nodes in neighbours.values()]
    if sum(lengths) > path.stat().st_size:  # a list that is used again and again
        raise FormatError(f"{path} has {path.stat().st_size} bytes and lists {sum(lengths)} neighbours. Get it again.")
    ends = list(chain.from_iterable(neighbours.values()))
    if not {type(node) for node in (*neighbours, *ends)} <= {int}:
        raise FormatError(f"{path} lists neighbours that are not whole numbers. Get it again.")
    return len(neighbours), (np.repeat(np.array(list(neighbours), dtype=np.int64), lengths), np.array(ends, np.int64))


def _array(value: object, kinds: str, ndim: int, path: Path) -> AnyArray:
    """Return ``value`` if it is an array of numbers of these kinds."""
    if not isinstance(value, np.ndarray) or value.ndim != ndim or value.dtype.kind not in kinds:
        description = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise FormatError(f"{path} holds {description} where numbers in {ndim} dimensions belong. Get it again.")
    return value


def _features(value: object, path: Path) -> sp.csr_array:
    """Return features, which may be a sparse matrix or an array, as a sparse matrix of single precision."""
    X: Any = value if isinstance(value, sp.csr_array) else _array(value, "biuf", 2, path)
    features: sp.csr_array = sp.csr_array(X, dtype=np.float32, copy=True)
    check_size(features.shape[1], features.nnz, "features")
    return features


def _labels(value: object, path: Path) -> Int64Array:
    return _array(value, "iu", 1, path).astype(np.int64)


def _npz(files: list[Path]) -> Graph:
    path = files[0]
    arrays = load_npz(path)
    names = set(arrays)
    if {"edge_index", "x_data", "y"} <= names:
        X = _features(_csr(arrays, "x"), path)
        edges = _array(arrays["edge_index"], "iu", 2, path)
        return Graph(_undirected(edges, X.shape[0]), X, labels=_labels(arrays["y"], path))
    if {"adj_data", "labels"} <= names:
        A, labels = _csr(arrays, "adj"), arrays["labels"]
        X = _features(_csr(arrays, "attr") if "attr_data" in names else arrays.get("attr_matrix"), path)
    elif {"adj_matrix", "node_attr", "node_label"} <= names:
        A, labels = arrays["adj_matrix"], arrays["node_label"]
        X = _features(arrays["node_attr"], path)
    else:
        raise FormatError(
            f"{path} contains {', '.join(sorted(arrays))}; expected edge_index, x_data, x_indices, x_indptr, "
            "x_shape and y, or adj_data …, attr_data …, labels, or adj_matrix, node_attr and node_label."
        )
    rows, columns = (A if isinstance(A, sp.csr_array) else _array(A, "biuf", 2, path)).nonzero()
    return Graph(_undirected((rows, columns), A.shape[0]), X, labels=_labels(labels, path))


def _csr(arrays: dict[str, Any], prefix: str) -> sp.csr_array:
    return csr_of(*(arrays.get(f"{prefix}_{part}") for part in ("data", "indices", "indptr", "shape")))


def _pyg(files: list[Path]) -> Graph:
    path = files[0]
    arrays = _find_mapping(load_torch(path))
    if arrays is None:
        raise FormatError(f"{path} contains no edge_index; it is not a graph of PyG.")
    edges, y = _array(arrays["edge_index"], "iu", 2, path), arrays.get("y")
    features = None if arrays.get("x") is None else _features(arrays["x"], path)
    n = int(edges.max()) + 1 if features is None else features.shape[0]
    check_size(n, edges.size if features is None else n, "nodes")
    return Graph(_undirected(edges, n), features, labels=None if y is None else _labels(y, path))


def _find_mapping(value: object) -> dict[str, Any] | None:
    """Return the mapping with ``edge_index`` inside tuples, dictionaries and placeholders of PyG objects."""
    waiting, seen = deque([value]), set[int]()  # objects of PyG may contain each other
    while waiting:
        part = waiting.popleft()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, dict):
            if isinstance(part.get("edge_index"), np.ndarray):
                return part
            waiting.extend(part.values())
        elif isinstance(part, list | tuple):
            waiting.extend(part)
        elif isinstance(part, Placeholder):
            waiting.extend((part.state, *part.arguments))
    return None


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
