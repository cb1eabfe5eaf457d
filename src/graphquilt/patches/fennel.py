"""Fennel: partition a graph in a stream of its nodes."""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np

from graphquilt.arrays import Int64Array
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.graph.kernels import breadth_first
from graphquilt.patches import partition_kernels as kernels
from graphquilt.patches.clusters import check_n_patches, fill_empty
from graphquilt.progress import ProgressCallback, report

__all__ = ["Fennel"]

logger = logging.getLogger(__name__)
_VISITS = 1 << 19  # nodes after which progress is reported: a second or so


@dataclass(frozen=True)
class Fennel:
    """Partition with FENNEL (Tsourakakis et al. 2014): streaming, O(m) per pass, fit for memory-mapped graphs.

    Node v goes to the cluster C below the cap that maximises ``|N(v) ∩ C| - alpha gamma |C|^(gamma - 1)`` with
    gamma = 1.5 and alpha = m p^(gamma - 1) / n^gamma, m the number (or total weight) of undirected edges. The cap
    is max(floor(balance n / p), ceil(n / p)); no cluster exceeds it. A later pass first takes each node out of its
    cluster.

    Parameters
    ----------
    n_patches : int
        Number of clusters.
    passes : int
        How often all nodes are visited: more passes give a smaller cut. A pass that moves no node is the last.
    balance : float
        Largest allowed cluster as a multiple of the mean.
    order : {"natural", "random", "breadth-first"}
        The order in which nodes are visited.
    penalty : float
        Strength of the preference for small clusters; 1 is the paper's. Tiny clusters need less: there it would
        outweigh the edges of a node.
    seed : int
        Seed of the random order, and of the starting points of a breadth-first order.

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
    penalty: float = 1.0
    seed: int = 0
    reports: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise InputError(f"Fennel needs at least one pass, not {self.passes}.")
        if not 0 <= self.penalty < np.inf:
            raise InputError(f"the penalty of Fennel is a number of at least 0, not {self.penalty}.")
        if not self.balance >= 1:
            raise InputError(f"the largest cluster cannot be {self.balance} of the mean; balance must be at least 1.")
        if self.order not in ("natural", "random", "breadth-first"):
            raise InputError(f"order is natural, random or breadth-first, not {self.order!r}.")

    def __call__(self, graph: Graph, *, progress: ProgressCallback | None = None) -> Int64Array:
        """Return the cluster of each node, (n,)."""
        n, p = graph.n_nodes, self.n_patches
        check_n_patches(p, n)
        graph = graph.undirected()
        cap = max(int(self.balance * n / p), -(-n // p))
        csr = graph.csr
        visits = np.empty(0, dtype=np.int64)  # the natural order
        if self.order != "natural":
            visits = np.random.default_rng(self.seed).permutation(n)
        if self.order == "breadth-first":
            visits = breadth_first(graph.indptr, graph.indices, visits)
        m = (graph.n_entries if graph.weights is None else float(csr[2].sum())) / 2
        penalty = 1.5 * self.penalty * (m * p**0.5 / n**1.5) * np.sqrt(np.arange(cap + 1))
        labels = np.full(n, -1, dtype=np.int32)
        sizes = np.zeros(p, dtype=np.int64)
        order, place = np.arange(p), np.arange(p)  # all clusters are empty, so any order is one by size
        first = np.where(np.arange(cap + 2) > 0, p, 0)
        for number in range(self.passes):
            state = np.array([0, 0, number == 0, 0, 0, 0, 0], dtype=np.int64)
            for begin in range(0, n, _VISITS):
                state[:2] = begin, min(begin + _VISITS, n)
                kernels.fennel_pass(csr, visits, penalty, labels, sizes, order, place, first, state)
                report(progress, "Fennel", number * n + int(state[1]), self.passes * n)
            logger.info("Fennel pass %d: %d of %d nodes changed cluster", number + 1, state[3], n)
            if state[3] == 0:
                break
        return fill_empty(graph, labels.astype(np.int64), p)
