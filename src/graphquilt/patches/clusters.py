"""Work on clusters: merge small ones, measure the cut, and divide large graphs into fine clusters first."""

from __future__ import annotations

import functools
import heapq
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array, Int64Array, IntArray
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import Graph, check_labels, group, kernels, short_labels
from graphquilt.graph.checks import ColumnCheck, check_rows
from graphquilt.patches.partitioners import Fennel, Metis, Partitioner, check_n_patches, has_metis, metis_labels
from graphquilt.progress import ProgressCallback

logger = logging.getLogger(__name__)
SMALLEST = 2  # nodes per fine cluster on average; at most twice as many
MOST = 8192  # fine clusters of a small graph: tables of 2048 columns then take 256 MiB
LARGE = 4_000_000  # entries above which a graph is large and has fewer fine clusters:
FEWEST, LARGEST = 2048, 1000  # at least this many, and one per this many nodes
PASSES = 10  # of Fennel: two passes hardly find small communities
PAIRS = 1 << 20  # of clusters that are found at once
MOST_PAIRS = 96_000_000  # of a coarse graph: beyond that the weakest count as edges inside a cluster
SAMPLE = 64  # clusters that show how weak these are
PENALTY = 0.1  # of Fennel in small graphs: with 1, clusters of dense graphs hardly follow edges; .05 costs Flickr


def edge_cut(graph: Graph, labels: npt.ArrayLike) -> float:
    """Return the total weight of the edges between clusters, each undirected edge once."""
    clusters = check_labels(labels, graph.n_nodes)
    between = np.repeat(clusters, graph.degrees) != clusters[graph.indices]
    total = float(between.sum() if graph.weights is None else graph.weights[between].sum())
    return total if graph.directed else total / 2


def merge_small(graph: Graph, labels: npt.ArrayLike, min_size: int) -> Int64Array:
    """Merge every cluster of fewer than ``min_size`` nodes into the neighbour it has the strongest ties to.

    The smallest is merged first, into the cluster j with the largest cut(i, j) / |C_j|: the division keeps a very large
    cluster from absorbing all that touch it. A cluster without neighbours joins the smallest other cluster. Clusters
    keep their order and are renumbered. A graph of fewer than ``min_size`` nodes becomes one cluster. For patches with
    a given overlap, ``min_size`` is :func:`graphquilt.patches.smallest_cluster` of it.

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
    return _renumber(root[clusters])


def fine_clusters(graph: Graph, *, progress: ProgressCallback | None = None) -> IntArray:
    """Return many small clusters of the graph, one label per node, int32 (n,).

    There is one cluster per two nodes, up to 8192. Graphs above four million entries have one per 1000 nodes, and at
    least 2048.
    """
    n = graph.n_nodes
    if is_large(graph):
        fennel = Fennel(max(FEWEST, n // LARGEST), passes=PASSES)
    else:
        fennel = Fennel(max(min(n // SMALLEST, MOST), 1), passes=PASSES, balance=2.0, penalty=PENALTY)
    return _renumber(fennel(graph, progress=progress)).astype(np.int32)


def _renumber(labels: AnyArray) -> Int64Array:
    """Return labels, none of which is negative, without gaps, in their order."""
    return (np.cumsum(np.bincount(labels) > 0) - 1)[labels]


def join_neighbours(graph: Graph, labels: AnyArray) -> IntArray:
    """Return labels (n,) in which every node without one, -1, has that of most of its neighbours, by weight.

    Nodes whose neighbours have none either wait for these; what is joined to no labelled node keeps -1.

    Examples
    --------
    >>> path = Graph(sp.csr_array(np.eye(4, k=1) + np.eye(4, k=-1)))
    >>> join_neighbours(path, np.array([3, -1, -1, 5])).tolist()
    [3, 3, 5, 5]
    """
    labels = np.array(labels)
    count = int(labels.max(initial=-1)) + 1
    while len(waiting := np.flatnonzero((labels < 0) & (graph.degrees > 0))):
        sizes, starts = graph.degrees[waiting], graph.indptr[waiting]
        entries = np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
        joined, own = labels[graph.indices[entries]].astype(np.int64), np.repeat(np.arange(len(waiting)), sizes)
        weights = np.ones(len(entries)) if graph.weights is None else np.asarray(graph.weights)[entries]
        known = joined >= 0
        keys, inverse = np.unique(own[known] * count + joined[known], return_inverse=True)
        if not len(keys):
            break
        order = np.lexsort((-np.bincount(inverse, weights[known]), keys // count))
        first = order[np.unique(keys[order] // count, return_index=True)[1]]
        labels[waiting[keys[first] // count]] = keys[first] % count
    return labels


def default_partitioner(n_patches: int, *, seed: int = 0) -> Partitioner:
    """Return METIS or, where it is not installed, Fennel in several passes."""
    if has_metis():
        return Metis(n_patches, seed=seed)
    logger.info("METIS is not installed: Fennel cuts the graph, in %d passes", PASSES)
    return Fennel(n_patches, passes=PASSES, order="breadth-first", seed=seed)


def is_large(graph: Graph) -> bool:
    """Return whether clusters of a graph are merged from fine ones because METIS would take too long."""
    return len(graph.indices) > LARGE


@dataclass(frozen=True, eq=False)
class CoarseGraph:
    """The graph between k clusters."""

    clusters: IntArray  # (n,) the cluster of each node
    # (k, k): the weight of the edges between two clusters, and on the diagonal that of both directions inside one.
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
        """Check and return what :meth:`to_arrays` made for a graph with ``n_nodes`` nodes."""
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
            raise FormatError(f"the record of far clusters is damaged ({error}); make it again.") from error
        return cls(cluster, sp.csr_array((weights, indices, indptr), shape=(k, k)))


def coarse_graph(graph: Graph, clusters: AnyArray) -> CoarseGraph:
    """Return the graph between clusters of an undirected graph; ``clusters`` (n,) are 0..k-1 without gaps.

    It has at most about 96 million entries. In very large graphs many clusters are joined by an edge or two that follow
    no pattern; what such pairs weigh is added to the diagonal, so that no weight is lost.
    """
    labels = short_labels(clusters, graph.n_nodes)
    members, starts = group(labels)
    k = len(starts) - 1
    off = _pairs(graph.csr, (labels, members, starts), k)
    volume: Float64Array = kernels.volumes(graph.csr, labels, k)
    own = volume - np.asarray(off.sum(axis=1)).ravel()
    between = sp.csr_array(off + sp.diags_array(np.where(own > 1e-9 * volume, own, 0.0)))
    between.sort_indices()
    return CoarseGraph(np.asarray(clusters), between)


def _pairs(
    csr: tuple[IntArray, IntArray, Float64Array], clusters: tuple[IntArray, IntArray, Int64Array], k: int
) -> sp.csr_array:
    """Return the weight between every two clusters (k, k) without the weakest, and with an empty diagonal."""
    chosen = np.unique(np.linspace(0, k - 1, min(k, SAMPLE)).astype(np.int64))
    sample = np.concatenate([kernels.cluster_pairs(csr, clusters, c, c + 1, False)[2] for c in chosen.tolist()])
    most = MOST_PAIRS * len(chosen) // k
    least = 0.0
    if len(sample) > most:
        least = float(np.float32(np.sort(sample)[::-1][most]))
        logger.info("pairs of clusters joined by a weight of at most %g count as joined by nothing", least)
    step = max(1, PAIRS * len(chosen) // max(len(sample), 1))
    counts, columns, weights = [np.zeros(1, dtype=np.int64)], [], []
    for first in range(0, k, step):
        last = min(first + step, k)
        degrees, found, values = kernels.cluster_pairs(csr, clusters, first, last, False)
        keep = values.astype(np.float32) > least
        rows = np.repeat(np.arange(last - first), degrees)[keep]
        counts.append(np.bincount(rows, minlength=last - first))
        columns.append(found[keep])
        weights.append(values[keep])
    ends = np.cumsum(np.concatenate(counts))
    off = sp.csr_array((np.concatenate(weights), np.concatenate(columns), ends), shape=(k, k))
    # Sums of weights in another order may differ in the last bit, so that only one of two entries is kept.
    return off if least == 0 or not len(csr[2]) else sp.csr_array(off.minimum(off.T))


def merge_clusters(coarse: CoarseGraph, count: int, *, seed: int = 0) -> Int64Array:
    """Merge clusters into ``count`` larger ones, int (k,): about equal in nodes or, without METIS, in clusters."""
    k = coarse.k
    check_n_patches(count, k)
    off = sp.csr_array(coarse.between - sp.diags_array(coarse.between.diagonal()))
    off.eliminate_zeros()
    if has_metis():
        labels = metis_labels((off.indptr, off.indices, off.data), count, seed=seed, sizes=coarse.sizes)
    else:
        labels = default_partitioner(count, seed=seed)(Graph(off))
    merged = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    if merged.max() + 1 < min(count, k) // 2:
        raise InputError(f"{k} clusters were merged into {merged.max() + 1} instead of {count}; ask for fewer.")
    return merged


@dataclass(frozen=True)
class Multilevel:
    """Partition in two steps, for graphs too large for METIS: Fennel makes many small clusters, and METIS merges them.

    Where METIS is not installed, Fennel's rule merges them too.

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
