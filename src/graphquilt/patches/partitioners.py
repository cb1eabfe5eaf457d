"""Partitioner, the protocol; Fennel, with its compiled pass, and the partitioners of other packages."""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY, dataclass
from importlib.util import find_spec
from typing import ClassVar, Literal, Protocol

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array, Int64Array, IntArray, pieces
from graphquilt.errors import InputError, MissingExtraError, counted
from graphquilt.graph import Graph
from graphquilt.graph.kernels import breadth_first
from graphquilt.kernels import jit, kernel
from graphquilt.progress import ProgressCallback, report

logger = logging.getLogger(__name__)
_VISITS = 1 << 19  # nodes after which progress is reported: a second or so
_AHEAD = 32  # nodes whose neighbours' labels are read together

# METIS's k-way method can crash, and leaves clusters empty, for many clusters of a dense graph (1000 of a graph with 88
# edges per node). Recursive bisection cuts such graphs faster and better. Of many clusters:
_MANY = 512
_DENSE = 5  # neighbours of a node per node of a cluster


class Partitioner(Protocol):
    """Anything that turns a graph into labels 0..p-1, one per node.

    With ``reports = True`` it also takes the keyword ``progress``, a callback that it calls as it works.
    """

    def __call__(self, graph: Graph) -> Int64Array:
        """Return the cluster of each node, (n,)."""
        ...


def check_n_patches(n_patches: int, n_nodes: int) -> None:
    """Raise unless 1 <= n_patches <= n_nodes."""
    if n_nodes == 0:
        raise InputError("the graph has no nodes, so there is nothing to cut. Give one with edges.")
    if n_patches < 1:
        raise InputError(f"a graph is cut into at least one cluster, not {n_patches}.")
    if n_patches > n_nodes:
        raise InputError(f"{n_patches} clusters of a graph with {counted(n_nodes, 'node')}: ask for at most {n_nodes}.")


def _whole_weights(weights: AnyArray) -> Int64Array:
    """Return weights as positive integers: unchanged if they are whole, else scaled to a mean of about 1000."""
    values = np.asarray(weights, dtype=np.float64)
    if len(values) and (np.any(values != np.rint(values)) or values.max() > 2**20):
        values = values * (1000 / values.mean())
    return np.clip(np.rint(values), 1, 2**20).astype(np.int64)


def fill_empty(graph: Graph, labels: Int64Array, n_patches: int) -> Int64Array:
    """Move into every empty cluster the node of the largest one that has the fewest neighbours there."""
    sizes = np.bincount(labels, minlength=n_patches)
    for empty in np.flatnonzero(sizes == 0):
        nodes = np.flatnonzero(labels == sizes.argmax())
        node = nodes[graph.subgraph(nodes).degrees.argmin()]
        sizes[labels[node]] -= 1
        sizes[empty] = 1
        labels[node] = empty
    return labels


@dataclass(frozen=True)
class Metis:
    """Partition with METIS: small cuts, balanced; in memory, up to some tens of millions of edges.

    Examples
    --------
    >>> path = Graph(sp.csr_array(np.eye(6, k=1) + np.eye(6, k=-1)))
    >>> np.bincount(Metis(n_patches=2)(path)).tolist()
    [3, 3]
    """

    n_patches: int
    seed: int = 0

    def __call__(self, graph: Graph) -> Int64Array:
        """Return the cluster of each node, (n,)."""
        if not has_metis():
            raise InputError("METIS is not installed, and its package has no wheel for every system. Use Fennel.")
        check_n_patches(self.n_patches, graph.n_nodes)
        graph = graph.undirected()
        csr = graph.indptr, graph.indices, graph.weights
        return fill_empty(graph, metis_labels(csr, self.n_patches, seed=self.seed), self.n_patches)


def has_metis() -> bool:
    """Return whether METIS can be used: its package, pymetis, has no wheels for Windows."""
    return find_spec("pymetis") is not None


def metis_labels(
    csr: tuple[AnyArray, AnyArray, AnyArray | None], count: int, *, seed: int, sizes: AnyArray | None = None
) -> Int64Array:
    """Return METIS's cluster of each vertex, (n,): about equal in ``sizes`` (n,), by default in vertices."""
    import pymetis

    indptr, indices, weights = csr
    n = len(indptr) - 1
    if count == 1:
        return np.zeros(n, dtype=np.int64)
    dense = count >= _MANY and len(indices) / n > _DENSE * n / count
    _, labels = pymetis.part_graph(
        count,
        pymetis.CSRAdjacency(np.asarray(indptr, dtype=np.int64), np.asarray(indices, dtype=np.int64)),
        vweights=None if sizes is None else np.asarray(sizes, dtype=np.int64),
        eweights=None if weights is None else _whole_weights(weights),
        options=pymetis.Options(seed=seed),
        recursive=True if dense else None,  # None leaves the choice to pymetis
    )
    return np.asarray(labels, dtype=np.int64)


@dataclass(frozen=True)
class Louvain:
    """Find communities with Louvain (scikit-network, extra ``partition``); their number is not chosen beforehand.

    Sizes vary widely: follow it with :func:`graphquilt.merge_small`. A larger ``resolution`` gives smaller communities.

    Examples
    --------
    >>> two = Graph(sp.csr_array(np.kron(np.eye(2), np.ones((4, 4)) - np.eye(4))))
    >>> np.bincount(Louvain()(two)).tolist()
    [4, 4]
    """

    resolution: float = 1.0
    seed: int = 0

    def __call__(self, graph: Graph) -> Int64Array:
        """Return the community of each node, (n,)."""
        name = type(self).__name__
        try:
            from sknetwork import clustering
        except ImportError as error:
            raise MissingExtraError(name, "partition") from error
        graph = graph.undirected()
        if graph.n_entries == 0:  # the package divides by the total weight
            return np.arange(graph.n_nodes)
        method = getattr(clustering, name)(resolution=self.resolution, random_state=self.seed)
        labels = method.fit_predict(sp.csr_matrix(graph.adjacency))
        return np.unique(labels, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True)
class Leiden(Louvain):
    """Find communities with Leiden (scikit-network, extra ``partition``): unlike those of Louvain, connected ones."""


@dataclass(frozen=True)
class Fennel:
    """Partition with FENNEL (Tsourakakis et al. 2014): streaming, O(m) per pass, fit for memory-mapped graphs.

    Node v goes to the cluster C below the cap that maximises ``|N(v) ∩ C| - alpha gamma |C|^(gamma - 1)`` with
    gamma = 1.5 and alpha = m p^(gamma - 1) / n^gamma, m the number (or total weight) of undirected edges. The cap
    is max(floor(balance n / p), ceil(n / p)); no cluster exceeds it. A later pass first takes each node out of its
    cluster.

    Parameters
    ----------
    passes : int
        How often all nodes are visited: more passes give a smaller cut. A pass that moves no node is the last.
    balance : float
        Largest allowed cluster as a multiple of the mean.
    order : {"natural", "random", "breadth-first"}
        The order of the visits.
    penalty : float
        Strength of the preference for small clusters; 1 is the paper's. For tiny clusters it would outweigh the edges.
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
            for here in pieces(n, _VISITS):
                state[:2] = here.start, here.stop
                fennel_pass(csr, visits, penalty, labels, sizes, order, place, first, state)
                report(progress, "Fennel", number * n + int(state[1]), self.passes * n)
            logger.info("Fennel pass %d: %d of %d nodes changed cluster", number + 1, state[3], n)
            if state[3] == 0:
                break
        return fill_empty(graph, labels.astype(np.int64), p)


@jit
def _shrink(c: int, sizes: Int64Array, order: Int64Array, place: Int64Array, first: Int64Array) -> None:
    """Take one node out of cluster c."""
    s = sizes[c]
    there, here = first[s], place[c]
    other = order[there]
    order[there], order[here] = c, other
    place[c], place[other] = there, here
    first[s] += 1
    sizes[c] = s - 1


@jit
def _swell(c: int, sizes: Int64Array, order: Int64Array, place: Int64Array, first: Int64Array) -> None:
    """Put one node into cluster c."""
    s = sizes[c]
    there, here = first[s + 1] - 1, place[c]
    other = order[there]
    order[there], order[here] = c, other
    place[c], place[other] = there, here
    first[s + 1] = there
    sizes[c] = s + 1


@jit
def _best(touched: Int64Array, gain: Float64Array, sizes: Int64Array, penalty: Float64Array, start: int) -> int:
    """Return the cluster with the best score of ``touched`` and ``start``; of equals the first."""
    cap = len(penalty) - 1
    best = start
    best_score = gain[best] - penalty[sizes[best]]
    for c in touched:
        if sizes[c] < cap:
            score = gain[c] - penalty[sizes[c]]
            if score > best_score or (score == best_score and c < best):
                best, best_score = c, score
    return best


@jit
def _look_ahead(indptr: IntArray, indices: IntArray, labels: IntArray, begin: int, end: int) -> int:
    """Read the labels of all neighbours of some nodes, which brings them into the cache at once; return their sum."""
    total = 0
    for e in range(indptr[begin], indptr[end]):
        total += labels[indices[e]]
    return total


@kernel("Fennel", writes=("labels", "sizes", "order", "place", "first", "state"))
def fennel_pass(  # noqa: PLR0917
    csr: tuple[IntArray, IntArray, Float64Array],
    visits: Int64Array,
    penalty: Float64Array,
    labels: IntArray,
    sizes: Int64Array,
    order: Int64Array,
    place: Int64Array,
    first: Int64Array,
    state: Int64Array,
) -> None:
    """Put nodes, in the order of ``visits``, where Fennel's rule wants them.

    Only the clusters of a node's neighbours and the least loaded one can win, so a node costs O(degree). Clusters are
    in ``order`` by size, at their ``place``, and ``first[s]`` is where size s begins. ``state`` is which visits to
    make, from and to, whether this is a first pass, how many nodes have changed cluster, where to look for the least
    loaded one (two numbers), and a sum that keeps the compiler from dropping reads.
    """
    indptr, indices, weights = csr
    p = len(sizes)
    weighted = len(weights) > 0
    gain = np.zeros(p)
    touched = np.empty(p, np.int64)
    natural = len(visits) == 0  # saves 8 bytes per node
    begin, end, fresh, moved, cursor, level, total = state
    for k in range(begin, end):
        if natural and (k - begin) % _AHEAD == 0:
            total += _look_ahead(indptr, indices, labels, k, min(k + _AHEAD, end))
        v = k if natural else visits[k]
        old = labels[v]
        n_touched = 0
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            c = labels[u]
            if c >= 0 and u != v:
                w = weights[e] if weighted else 1.0
                if gain[c] == 0 and w > 0:
                    touched[n_touched] = c
                    n_touched += 1
                gain[c] += w
        if old >= 0:
            _shrink(old, sizes, order, place, first)
        # Sizes only grow in a first pass, so the first of the least loaded is found by going round: O(n) in all.
        while fresh and sizes[cursor] > level:
            cursor += 1
            if cursor == p:
                cursor = 0
                level += 1
        best = _best(touched[:n_touched], gain, sizes, penalty, cursor if fresh else order[0])
        for t in range(n_touched):
            gain[touched[t]] = 0.0
        moved += best != old
        labels[v] = best
        _swell(best, sizes, order, place, first)
    state[3:] = moved, cursor, level, total
