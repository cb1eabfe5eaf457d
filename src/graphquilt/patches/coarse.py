"""Fine clusters of a graph, the graph between them, and coarser clusters made of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array, Int64Array, IntArray
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import Graph, group, kernels, short_labels
from graphquilt.graph.checks import ColumnCheck, check_rows
from graphquilt.patches.clusters import check_n_patches, whole_weights
from graphquilt.patches.fennel import Fennel
from graphquilt.progress import ProgressCallback

__all__ = ["CoarseGraph", "Multilevel", "coarse_graph", "fine_clusters", "is_large", "merge_clusters"]

SMALLEST = 2  # nodes per fine cluster, on average, and twice as many at most,
MOST = 8192  # but no more fine clusters than this: tables of 2048 columns then take 256 MiB
LARGE = 4_000_000  # entries: larger graphs have few clusters, so that the graph between them is much smaller,
FEWEST, LARGEST = 2048, 1000  # but no fewer than this, and no more nodes in each than this
PASSES = 10  # of Fennel: where communities are small, two passes hardly find them
PENALTY = 0.05  # of Fennel in small graphs: with 1 the clusters of dense graphs hardly follow the edges


def fine_clusters(graph: Graph, *, progress: ProgressCallback | None = None) -> IntArray:
    """Return many small clusters of the graph, one label per node, int32 (n,).

    There is one cluster per two nodes, and no more than 8192 of them. Graphs above four million entries have 2048, and
    one per 1000 nodes where that is more.

    Examples
    --------
    >>> path = Graph(sp.csr_array(np.eye(12, k=1) + np.eye(12, k=-1)))
    >>> np.bincount(fine_clusters(path)).max() <= 4
    np.True_
    """
    n = graph.n_nodes
    if is_large(graph):
        labels = Fennel(max(FEWEST, n // LARGEST), passes=PASSES)(graph, progress=progress)
    else:
        count = max(min(n // SMALLEST, MOST), 1)
        labels = Fennel(count, passes=PASSES, balance=2.0, penalty=PENALTY)(graph, progress=progress)
    return np.unique(labels, return_inverse=True)[1].astype(np.int32)


def is_large(graph: Graph) -> bool:
    """Return whether clusters of a graph are merged from fine ones, because METIS would take too long."""
    return len(graph.indices) > LARGE


@dataclass(frozen=True, eq=False)
class CoarseGraph:
    """The graph between k clusters.

    Attributes
    ----------
    clusters : int array (n,)
        The cluster of each node.
    between : CSR matrix (k, k)
        The weight of the edges between two clusters, and on the diagonal that of both directions inside one.
    """

    clusters: IntArray
    between: sp.csr_array

    @property
    def k(self) -> int:
        """The number of clusters."""
        return int(self.between.shape[0])

    @functools.cached_property
    def sizes(self) -> Int64Array:
        """Nodes of each cluster, (k,)."""
        return np.bincount(self.clusters, minlength=self.k)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return plain arrays, for a file."""
        return {
            "cluster": np.asarray(self.clusters),
            "indptr": self.between.indptr.astype(np.int64),
            "indices": self.between.indices.astype(np.int32),
            "weights": self.between.data.astype(np.float64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray], n_nodes: int) -> CoarseGraph:
        """Return the graph of arrays that :meth:`to_arrays` made for a graph with ``n_nodes`` nodes.

        Raises
        ------
        FormatError
            They cannot be that.
        """
        try:
            cluster, indptr = np.asarray(arrays["cluster"]), np.asarray(arrays["indptr"])
            indices, weights = np.asarray(arrays["indices"]), np.asarray(arrays["weights"])
            k = len(indptr) - 1
            check_rows(indptr, len(indices))
            ColumnCheck(indptr, k)(indices)
            if cluster.shape != (n_nodes,) or cluster.dtype.kind != "i" or weights.shape != indices.shape:
                raise FormatError(f"there are {cluster.shape} clusters of {n_nodes} nodes, {len(indices)} pairs")
            if n_nodes and not 0 <= int(cluster.min()) <= int(cluster.max()) < k:
                raise FormatError(f"clusters lie in {cluster.min()}..{cluster.max()}, and there are {k}")
            if weights.dtype.kind != "f" or not bool((np.isfinite(weights) & (weights > 0)).all()):
                raise FormatError("weights between clusters are not all positive numbers")
        except (KeyError, InputError, TypeError, ValueError) as error:
            raise FormatError(f"the record of far clusters is damaged ({error}); it has to be made again.") from error
        return cls(cluster, sp.csr_array((weights, indices, indptr), shape=(k, k)))

    @property
    def inside(self) -> float:
        """The share of the weight that lies inside clusters."""
        total = float(self.between.sum())
        return float(self.between.diagonal().sum()) / total if total else 0.0


def coarse_graph(graph: Graph, clusters: AnyArray) -> CoarseGraph:
    """Return the graph between clusters of an undirected graph; ``clusters`` (n,) are 0..k-1 without gaps.

    Examples
    --------
    >>> path = Graph(sp.csr_array(np.eye(4, k=1) + np.eye(4, k=-1)))
    >>> coarse_graph(path, [0, 0, 1, 1]).between.toarray().tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """
    labels = short_labels(clusters, graph.n_nodes)
    members, starts = group(labels)
    indptr, indices, values = kernels.quotient(graph.csr, (labels, members, starts))
    k = len(starts) - 1
    off = sp.csr_array((values, indices, indptr), shape=(k, k))
    volume: Float64Array = kernels.volumes(graph.csr, labels, k)
    own = volume - np.asarray(off.sum(axis=1)).ravel()
    between = sp.csr_array(off + sp.diags_array(np.where(own > 1e-9 * volume, own, 0.0)))
    between.sort_indices()
    return CoarseGraph(np.asarray(clusters), between)


def merge_clusters(coarse: CoarseGraph, count: int, *, seed: int = 0) -> Int64Array:
    """Merge clusters into ``count`` larger ones of about equal numbers of nodes with METIS, int (k,).

    Examples
    --------
    >>> chain = CoarseGraph(np.arange(20) // 5, sp.csr_array(np.eye(4, k=1) + np.eye(4, k=-1)))
    >>> np.bincount(merge_clusters(chain, 2)).tolist()
    [2, 2]
    """
    import pymetis

    k = coarse.k
    check_n_patches(count, k)
    if count == 1:
        return np.zeros(k, dtype=np.int64)
    off = sp.csr_array(coarse.between - sp.diags_array(coarse.between.diagonal()))
    off.eliminate_zeros()
    adjacency = pymetis.CSRAdjacency(np.asarray(off.indptr, dtype=np.int64), np.asarray(off.indices, dtype=np.int64))
    _, labels = pymetis.part_graph(
        count,
        adjacency,
        vweights=np.asarray(coarse.sizes, dtype=np.int64),
        eweights=whole_weights(off.data),
        options=pymetis.Options(seed=seed),
    )
    merged = np.unique(np.asarray(labels), return_inverse=True)[1].astype(np.int64)
    if merged.max() + 1 < min(count, k) // 2:
        raise InputError(f"METIS merged {k} clusters into {merged.max() + 1} instead of {count}; ask for fewer.")
    return merged


@dataclass(frozen=True)
class Multilevel:
    """Partition in two steps: many small clusters by Fennel, which METIS merges; for graphs that METIS takes long for.

    Parameters
    ----------
    n_patches : int
        Number of clusters.
    seed : int
        Seed of METIS's random numbers.

    Examples
    --------
    >>> path = Graph(sp.csr_array(np.eye(12, k=1) + np.eye(12, k=-1)))
    >>> np.bincount(Multilevel(n_patches=2)(path)).tolist()
    [5, 7]
    """

    n_patches: int
    seed: int = 0

    def __call__(self, graph: Graph) -> Int64Array:
        """Return the cluster of each node, (n,)."""
        return self.merge(coarse_graph(graph.undirected(), fine_clusters(graph.undirected())))

    def merge(self, coarse: CoarseGraph) -> Int64Array:
        """Return the cluster of each node, merged from fine clusters that were made before."""
        check_n_patches(self.n_patches, len(coarse.clusters))
        return merge_clusters(coarse, min(self.n_patches, coarse.k), seed=self.seed)[coarse.clusters]
