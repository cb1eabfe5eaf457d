"""Partitioners of other packages: METIS, KaMinPar, and Louvain and Leiden of scikit-network."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import Int64Array
from graphquilt.errors import InputError, MissingExtraError
from graphquilt.graph import Graph
from graphquilt.patches.clusters import check_n_patches, fill_empty, whole_weights

__all__ = ["KaMinPar", "Leiden", "Louvain", "Metis"]


@dataclass(frozen=True)
class Metis:
    """Partition with METIS: small cuts, balanced; in memory, up to some tens of millions of edges.

    Parameters
    ----------
    n_patches : int
        Number of clusters.
    seed : int
        Seed of METIS's random numbers.

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
        import pymetis

        check_n_patches(self.n_patches, graph.n_nodes)
        if self.n_patches == 1:
            return np.zeros(graph.n_nodes, dtype=np.int64)
        graph = graph.undirected()
        adjacency = pymetis.CSRAdjacency(*(np.asarray(part, dtype=np.int64) for part in (graph.indptr, graph.indices)))
        weights = None if graph.weights is None else whole_weights(graph.weights)
        options = pymetis.Options(seed=self.seed)
        _, labels = pymetis.part_graph(self.n_patches, adjacency, eweights=weights, options=options)
        return fill_empty(graph, np.asarray(labels, dtype=np.int64), self.n_patches)


@dataclass(frozen=True)
class KaMinPar:
    """Partition with KaMinPar: like METIS, far faster for thousands of clusters (extra ``partition``).

    Parameters
    ----------
    n_patches : int
        Number of clusters.
    balance : float
        Largest allowed cluster as a multiple of the mean.
    seed : int
    threads : int
        With one thread the same seed gives the same labels.

    Examples
    --------
    >>> path = Graph(sp.csr_array(np.eye(6, k=1) + np.eye(6, k=-1)))
    >>> np.bincount(KaMinPar(n_patches=2)(path)).tolist()
    [3, 3]
    """

    n_patches: int
    balance: float = 1.03
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        if not self.balance > 1:
            raise InputError(f"the balance of KaMinPar must be above 1, not {self.balance}.")

    def __call__(self, graph: Graph) -> Int64Array:
        """Return the cluster of each node, (n,)."""
        try:
            import kaminpar
        except ImportError as error:
            raise MissingExtraError("KaMinPar", "partition") from error
        check_n_patches(self.n_patches, graph.n_nodes)
        if self.n_patches == 1:
            return np.zeros(graph.n_nodes, dtype=np.int64)
        graph = graph.undirected()
        # The package reads graphs from files only.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.parhip"
            _write_parhip(path, graph)
            loaded = kaminpar.load_graph(str(path), kaminpar.GraphFileFormat.PARHIP)
        kaminpar.reseed(self.seed)
        context = kaminpar.largek_context() if self.n_patches > 1024 else kaminpar.default_context()
        labels = kaminpar.KaMinPar(self.threads, context).compute_partition(loaded, self.n_patches, self.balance - 1)
        return fill_empty(graph, np.asarray(labels, dtype=np.int64), self.n_patches)


def _write_parhip(path: Path, graph: Graph) -> None:
    """Write the binary format of ParHIP: version bits, n, m, byte offsets of the rows, neighbours, edge weights."""
    n = graph.n_nodes
    with path.open("wb") as file:
        np.array([3 if graph.weights is None else 2, n, graph.n_entries], dtype=np.uint64).tofile(file)
        (24 + 8 * (n + 1) + 8 * np.asarray(graph.indptr, dtype=np.uint64)).tofile(file)
        np.asarray(graph.indices, dtype=np.uint64).tofile(file)
        if graph.weights is not None:
            whole_weights(graph.weights).tofile(file)


@dataclass(frozen=True)
class Louvain:
    """Find communities with Louvain (scikit-network, extra ``partition``); their number is not chosen beforehand.

    Sizes vary widely: follow it with :func:`graphquilt.merge_small`.

    Parameters
    ----------
    resolution : float
        Larger values give more and smaller communities.
    seed : int

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
    """Find communities with Leiden (scikit-network, extra ``partition``): they are connected, unlike those of Louvain.

    Takes the parameters of :class:`Louvain`.

    Examples
    --------
    >>> two = Graph(sp.csr_array(np.kron(np.eye(2), np.ones((4, 4)) - np.eye(4))))
    >>> np.bincount(Leiden()(two)).tolist()
    [4, 4]
    """
