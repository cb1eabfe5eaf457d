"""Check, repair and merge clusters, and measure the weight of the edges between them."""

from __future__ import annotations

import heapq
import logging
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.errors import InputError, counted
from graphquilt.graph import Graph, check_labels
from graphquilt.patches import partition_kernels as kernels

__all__ = ["Partitioner", "check_n_patches", "edge_cut", "fill_empty", "merge_small", "whole_weights"]

logger = logging.getLogger(__name__)


class Partitioner(Protocol):
    """Anything that turns a graph into labels 0..p-1, one for each node.

    One with the attribute ``reports = True`` also takes a callback ``progress``, by keyword, and calls it as it works.
    """

    def __call__(self, graph: Graph) -> Int64Array:
        """Return the cluster of each node, (n,)."""
        ...


def check_n_patches(n_patches: int, n_nodes: int) -> None:
    """Raise unless 1 <= n_patches <= n_nodes."""
    if n_nodes == 0:
        raise InputError("the graph has no nodes, so that there is nothing to cut. Give one with edges.")
    if n_patches < 1:
        raise InputError(f"a graph is cut into at least one cluster, not {n_patches}.")
    if n_patches > n_nodes:
        raise InputError(f"{n_patches} clusters of a graph with {counted(n_nodes, 'node')}: ask for at most {n_nodes}.")


def whole_weights(weights: AnyArray) -> Int64Array:
    """Return weights as positive integers: as they are where they are whole, else with a mean of about 1000."""
    values = np.asarray(weights, dtype=np.float64)
    if len(values) and (np.any(values != np.rint(values)) or values.max() > 2**20):
        values = values * (1000 / values.mean())
    return np.clip(np.rint(values), 1, 2**20).astype(np.int64)


def fill_empty(graph: Graph, labels: Int64Array, n_patches: int) -> Int64Array:
    """Give every empty cluster one node, that of the largest cluster with the fewest neighbours inside it."""
    sizes = np.bincount(labels, minlength=n_patches)
    for empty in np.flatnonzero(sizes == 0):
        nodes = np.flatnonzero(labels == sizes.argmax())
        node = nodes[graph.subgraph(nodes).degrees.argmin()]
        sizes[labels[node]] -= 1
        sizes[empty] = 1
        labels[node] = empty
    return labels


def edge_cut(graph: Graph, labels: npt.ArrayLike) -> float:
    """Return the total weight of the edges between clusters, each undirected edge once.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> edge_cut(Graph(sp.csr_array(np.eye(4, k=1) + np.eye(4, k=-1))), [0, 0, 1, 1])
    1.0
    """
    total = kernels.cut(graph.csr, check_labels(labels, graph.n_nodes))
    return total if graph.directed else total / 2


def merge_small(graph: Graph, labels: npt.ArrayLike, min_size: int) -> Int64Array:
    """Merge every cluster of fewer than ``min_size`` nodes into the neighbour it has the strongest ties to.

    The smallest is merged first, into the cluster j with the largest cut(i, j) / |C_j|, so that a very large cluster
    does not take in all that touch it; a cluster without neighbours is merged into the smallest other cluster. The
    clusters are then numbered anew in their old order. A graph of fewer than ``min_size`` nodes becomes one cluster.
    To cut patches with a given overlap, ``min_size`` is :func:`graphquilt.patches.smallest_cluster` of it.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.csr_array(np.eye(5, k=1) + np.eye(5, k=-1)))
    >>> merge_small(path, [0, 0, 1, 2, 2], min_size=2).tolist()
    [0, 0, 0, 1, 1]
    """
    clusters = check_labels(labels, graph.n_nodes)
    sizes = np.bincount(clusters)
    if sizes.min() >= min_size or len(sizes) == 1:
        return clusters
    indptr, indices, weights = graph.undirected().quotient(clusters).csr
    ties: list[dict[int, float]] = [
        dict(zip(indices[a:b].tolist(), weights[a:b].tolist(), strict=True)) for a, b in pairwise(indptr.tolist())
    ]
    size = sizes.tolist()
    into = list(range(len(size)))
    alive = set(into)
    heap = [(s, i) for i, s in enumerate(size) if s < min_size]
    heapq.heapify(heap)
    while heap and len(alive) > 1:
        s, i = heapq.heappop(heap)
        if i not in alive or s != size[i]:
            continue
        scores = [(w / size[c], -c) for c, w in ties[i].items()]
        j = -max(scores)[1] if scores else min((size[c], c) for c in alive if c != i)[1]
        for c, w in ties[i].items():
            del ties[c][i]
            if c != j:
                ties[j][c] = ties[j].get(c, 0.0) + w
                ties[c][j] = ties[c].get(j, 0.0) + w
        size[j] += s
        into[i] = j
        alive.remove(i)
        if size[j] < min_size:
            heapq.heappush(heap, (size[j], j))
    root = np.array(into)
    while np.any(root != root[root]):
        root = root[root]
    merged = len(size) - len(alive)
    logger.info("merged %d clusters below %d nodes into their neighbours; %d are left", merged, min_size, len(alive))
    return np.unique(root[clusters], return_inverse=True)[1].astype(np.int64)
