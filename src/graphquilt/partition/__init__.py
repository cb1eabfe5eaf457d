"""Partitioners: callables from a graph to one cluster label a node.

Each is a frozen value with the parameters of its method; any other callable with the signature
``graph -> labels`` serves as well, and so does an array of labels computed elsewhere.
"""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY, dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import Int64Array
from graphquilt.errors import InputError
from graphquilt.graph import Graph, check_labels
from graphquilt.partition._checks import check_n_patches, fill_empty, whole_weights
from graphquilt.partition._packages import KaMinPar, Leiden, Louvain

__all__ = ["Fennel", "KaMinPar", "Leiden", "Louvain", "Metis", "Partitioner", "edge_cut", "merge_small"]

logger = logging.getLogger(__name__)


class Partitioner(Protocol):
    """Whatever turns a graph into labels 0..p-1, one for each node."""

    def __call__(self, graph: Graph) -> Int64Array:
        """Return the cluster of each node, (n,)."""
        ...


@dataclass(frozen=True)
class Metis:
    """Partition with METIS: small cuts, balanced; in memory, up to some tens of millions of edges.

    Parameters
    ----------
    n_patches : int
        Number of clusters.
    seed : int
        Of METIS's own random numbers.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.csr_array(np.eye(6, k=1) + np.eye(6, k=-1)))
    >>> np.bincount(Metis(n_patches=2)(path)).tolist()
    [3, 3]
    """

    n_patches: int
    seed: int = 0

    def __call__(self, graph: Graph) -> Int64Array:
        """Return the cluster of each node, (n,)."""
        import pymetis

        check_n_patches(self.n_patches, graph.n_nodes)
        if self.n_patches == 1:
            return np.zeros(graph.n_nodes, dtype=np.int64)
        graph = graph.undirected()
        _, found = pymetis.part_graph(
            self.n_patches,
            pymetis.CSRAdjacency(np.asarray(graph.indptr, dtype=np.int64), np.asarray(graph.indices, dtype=np.int64)),
            eweights=None if graph.weights is None else whole_weights(graph.weights),
            options=pymetis.Options(seed=self.seed),
        )
        return fill_empty(graph, np.asarray(found, dtype=np.int64), self.n_patches)


@dataclass(frozen=True)
class Fennel:
    """Partition with FENNEL (Tsourakakis et al. 2014): streaming, O(m) a pass, at home on memory-mapped graphs.

    Node v goes to the cluster C below the cap that maximises ``|N(v) ∩ C| - alpha gamma |C|^(gamma - 1)`` with
    gamma = 1.5 and alpha = m p^(gamma - 1) / n^gamma, m the number (or total weight) of undirected edges. The cap
    is max(floor(balance n / p), ceil(n / p)) and binds. A later pass takes each node out of its cluster first.

    Parameters
    ----------
    n_patches : int
        Number of clusters.
    passes : int
        How often all nodes are visited; more passes, smaller cut. It ends early when a pass moves nothing.
    balance : float
        Largest allowed cluster as a multiple of the mean.
    order : {"natural", "random", "breadth-first"}
        In which order nodes are visited.
    seed : int
        Of the random order, and of where a breadth-first order starts.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.csr_array(np.eye(6, k=1) + np.eye(6, k=-1)))
    >>> np.bincount(Fennel(n_patches=2, balance=1.0)(path)).tolist()
    [3, 3]
    """

    n_patches: int
    _: KW_ONLY
    passes: int = 2
    balance: float = 1.1
    order: Literal["natural", "random", "breadth-first"] = "natural"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise InputError(f"Fennel needs at least one pass, not {self.passes}.")
        if not self.balance >= 1:
            raise InputError(f"the largest cluster cannot be {self.balance} of the mean; balance must be at least 1.")
        if self.order not in ("natural", "random", "breadth-first"):
            raise InputError(f"order is natural, random or breadth-first, not {self.order!r}.")

    def __call__(self, graph: Graph) -> Int64Array:
        """Return the cluster of each node, (n,)."""
        from graphquilt.kernels import announce, frozen
        from graphquilt.partition import _kernels

        n, p = graph.n_nodes, self.n_patches
        check_n_patches(p, n)
        graph = graph.undirected()
        cap = max(int(self.balance * n / p), -(-n // p))
        weights = frozen(np.empty(0) if graph.weights is None else np.asarray(graph.weights, dtype=np.float64))
        m = (float(weights.sum()) if graph.weights is not None else graph.n_edges) / 2
        penalty = 1.5 * (m * p**0.5 / n**1.5) * np.sqrt(np.arange(cap + 1))
        labels = np.full(n, -1, dtype=np.int32)
        sizes = np.zeros(p, dtype=np.int64)
        by_size = _kernels.sizes_in_order(sizes, cap)
        visits = frozen(self._visits(graph))
        announce(_kernels.fennel_pass, "Fennel")
        csr = frozen(graph.indptr), frozen(graph.indices), weights
        for number in range(self.passes):
            moved = _kernels.fennel_pass(csr, visits, penalty, labels, sizes, *by_size)
            logger.info("Fennel pass %d: %d of %d nodes changed cluster", number + 1, moved, n)
            if moved == 0:
                break
        return fill_empty(graph, labels.astype(np.int64), p)

    def _visits(self, graph: Graph) -> Int64Array:
        if self.order == "natural":
            return np.empty(0, dtype=np.int64)
        shuffled = np.random.default_rng(self.seed).permutation(graph.n_nodes)
        if self.order == "random":
            return shuffled
        from graphquilt.graph._kernels import breadth_first
        from graphquilt.kernels import announce, frozen

        announce(breadth_first, "breadth-first order")
        order: Int64Array = breadth_first(frozen(graph.indptr), frozen(graph.indices), frozen(shuffled))
        return order


def edge_cut(graph: Graph, labels: npt.ArrayLike) -> float:
    """Return the total weight of the edges between clusters, each undirected edge once.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> edge_cut(Graph(sp.csr_array(np.eye(4, k=1) + np.eye(4, k=-1))), [0, 0, 1, 1])
    1.0
    """
    from graphquilt.kernels import announce, frozen
    from graphquilt.partition._kernels import cut

    announce(cut, "edge cut")
    weights = frozen(np.empty(0) if graph.weights is None else np.asarray(graph.weights, dtype=np.float64))
    found = check_labels(labels, graph.n_nodes)
    total = float(cut(frozen(graph.indptr), frozen(graph.indices), weights, frozen(found)))
    return total if graph.directed else total / 2


def merge_small(graph: Graph, labels: npt.ArrayLike, min_size: int) -> Int64Array:
    """Merge every cluster below ``min_size`` nodes into the neighbour it is most tied to.

    The smallest goes first, into the cluster j with the largest cut(i, j) / |C_j| (so a giant does not swallow all
    that touch it); one without any neighbour goes into the smallest other cluster. Clusters are then numbered anew
    in their old order. A graph with fewer than ``min_size`` nodes ends as one cluster.

    Parameters
    ----------
    graph : Graph
    labels : int array (n,)
        0..p-1 without gaps.
    min_size : int
        At least l / 2 of the overlap (l, u) that :func:`graphquilt.patch_graph` will be asked for.

    Returns
    -------
    int array (n,)

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.csr_array(np.eye(5, k=1) + np.eye(5, k=-1)))
    >>> merge_small(path, [0, 0, 1, 2, 2], min_size=2).tolist()
    [0, 0, 0, 1, 1]
    """
    import heapq

    found = check_labels(labels, graph.n_nodes)
    sizes = np.bincount(found)
    if sizes.min() >= min_size or len(sizes) == 1:
        return found
    Q = graph.undirected().quotient(found)
    ties: list[dict[int, float]] = [
        dict(
            zip(
                Q.indices[a:b].tolist(),
                (np.ones(b - a) if Q.weights is None else Q.weights[a:b]).tolist(),
                strict=True,
            )
        )
        for a, b in zip(Q.indptr[:-1].tolist(), Q.indptr[1:].tolist(), strict=True)
    ]
    size = sizes.tolist()
    into = list(range(len(size)))
    alive = set(into)
    heap = [(s, i) for i, s in enumerate(size) if s < min_size]
    heapq.heapify(heap)
    merged = 0
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
        merged += 1
        if size[j] < min_size:
            heapq.heappush(heap, (size[j], j))
    root = np.array(into)
    while np.any(root != root[root]):
        root = root[root]
    logger.info("merged %d clusters below %d nodes into their neighbours; %d are left", merged, min_size, len(alive))
    return np.unique(root[found], return_inverse=True)[1].astype(np.int64)
