"""Partitioner, the protocol, and the partitioners of other packages: METIS, Louvain and Leiden.

A new partitioner belongs here, or beside ``fennel.py`` if it has compiled loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.errors import InputError, MissingExtraError, counted
from graphquilt.graph import Graph

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
