"""The common signal of a round: what a party spreads in its own network, and which column each of its nodes fills."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from graphquilt.arrays import AnyArray, BoolArray, Int64Array
from graphquilt.embedders import FarField, Propagation, Signal
from graphquilt.errors import InputError
from graphquilt.federated.messages import canonical_ids, id_form, unique_ids
from graphquilt.graph import Graph

WIDEST = 4096  # columns of a signal whose whole moment goes into one message
# To buckets: longer than to clusters, because border nodes are far from what lies deep inside a network.
WALK_RESTART, WALK_STEPS = 0.05, 16
WALK_SECONDS, PRODUCT_SECONDS, MASK_SECONDS = 6e-10, 5e-11, 3e-9  # of one number in the walk, in products, in masks
UNIT_BITS = 36  # behind the binary point of the sums that Propagation makes
SENSITIVITY = 1.01 * 2**0.5  # of the sum to one node: see noise_multiplier


def noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the least standard deviation of Gaussian noise, per unit of sensitivity, for differential privacy.

    Theorem 8 of Balle and Wang (2018). Without a walk each node adds h h' to the sum, of Frobenius norm 1, or counts as
    empty; another node in its place moves sum and count by at most sqrt(2), and 1 % is for rows that were rounded.
    """

    def excess(scale: float) -> float:
        near, far = (sign / (2 * scale) - epsilon * scale for sign in (1, -1))
        return float(ndtr(near) - np.exp(epsilon + log_ndtr(far)) - delta)

    return float(brentq(excess, 1e-3, 1e6))


@dataclass(frozen=True, eq=False)
class Network:
    """What a party brings: an undirected graph of the edges that touch its ``own`` nodes, bool (n,), and of no others.

    ``border`` (k,) are the nodes where the network touches others, ``names`` those of the features, where checked.
    """

    graph: Graph
    own: BoolArray
    border: Int64Array
    names: Sequence[str] | None = None

    @classmethod
    def of(cls, graph: Graph, own: Int64Array | None = None, *, names: Sequence[str] | None = None) -> Network:
        """Return the network of a party with these ``own`` nodes (rows); without them it owns all nodes."""
        both_ways = graph.undirected()
        n = both_ways.n_nodes
        if own is None:
            return cls(both_ways, np.ones(n, dtype=bool), np.arange(n), names)
        mine = np.zeros(n, dtype=bool)
        mine[own] = True
        A = both_ways.adjacency.tocoo()
        touches = mine[A.row] | mine[A.col]
        entries = (A.data[touches], (A.row[touches], A.col[touches]))
        part = Graph(sp.csr_array(entries, shape=A.shape), both_ways.features, node_ids=both_ways.node_ids)
        border = ~mine  # nodes of others, and own nodes with an edge to one of them
        border[A.row[~mine[A.col]]] = True
        return cls(part, mine, np.flatnonzero(border), names)

    @property
    def ids(self) -> AnyArray:
        """The ids of all nodes, (n,)."""
        ids = self.graph.node_ids
        return np.arange(self.graph.n_nodes) if ids is None else np.asarray(ids)

    @property
    def n_own(self) -> int:
        """Number of own nodes."""
        return int(self.own.sum())

    @property
    def n_border(self) -> int:
        """Number of own nodes at the border: every node at the border of two parties is owned by one of them."""
        return int(self.own[self.border].sum())

    @property
    def border_form(self) -> str:
        """How the ids at the border are written: nothing else of them is compared."""
        return id_form(canonical_ids(self.ids[self.border]))

    def counts(self, buckets: int) -> tuple[int, int]:
        """Return what a card tells: numbers of own nodes, and of those at the border where there are ``buckets``."""
        return self.n_own, self.n_border if buckets else 0

    def cost(self, features: int, buckets: int, n_parties: int) -> float:
        """Return about how many seconds of one processor a contribution to a signal of so many columns takes."""
        hit = buckets * (1 - np.exp(-len(self.border) / max(buckets, 1)))  # by a hash of each node; the others are zero
        filled = features + float(hit)
        walked = self.graph.n_entries * filled * WALK_STEPS * WALK_SECONDS
        masked = (features + buckets) ** 2 * n_parties * MASK_SECONDS
        return walked + filled**2 * self.n_own * PRODUCT_SECONDS + masked


@dataclass(frozen=True, kw_only=True)
class CommonSignal:
    """What all parties of a round spread: columns of ``features``, of ``buckets`` of border nodes, or both.

    ``edges`` is the weight of the buckets beside features, which weigh 1. A party sets columns to zero that fewer than
    ``least`` of its nodes fill. With ``noise``, the standard deviation of what each party adds to each number, sums are
    those of features before the walk.
    """

    features: int = 0
    buckets: int = 0
    edges: float = 1.0
    least: int = 1
    noise: float = 0.0

    @property
    def is_wide(self) -> bool:
        """Whether the features are reduced in rounds of their own, before the moment."""
        return self.features + self.buckets > WIDEST

    def embedder(self, dim: int) -> Propagation:
        """Return the embedder whose sums are added, before anything is agreed: features are not reduced if possible."""
        parts = {"spread": 1.0 if self.features else 0.0, "clusters": self.edges if self.buckets else 0.0}
        signal = Signal(raw=0, near=0, doubt=0, role=0, power=1, **parts)
        made = Propagation(dim, signal=signal, far_field=False)
        if self.features <= made.basis_width or self.is_wide:
            return made
        return replace(made, start={"basis": np.eye(self.features, dtype=np.float32)})

    def place(self, network: Network, key: bytes) -> tuple[Graph, FarField]:
        """Return the graph that is spread, and the column of each node under a ``key`` that only parties have."""
        n = network.graph.n_nodes
        nodes: dict[str, AnyArray] = {"sampled": network.own}
        shared: dict[str, AnyArray] = {}
        if self.buckets:
            nodes["column"] = self._columns(network, key)
            # Nobody knows how many nodes of all parties a bucket has: each is taken to have its share, 1 / buckets.
            shared["gain"] = np.full(self.buckets, self.buckets, dtype=np.float32)
            shared["walk"] = np.array([WALK_RESTART, WALK_STEPS])
        graph = network.graph.with_attributes(features=self._features(network.graph))
        return graph, FarField(n, nodes, shared, np.zeros(n + 1, dtype=np.int64))

    def _columns(self, network: Network, key: bytes) -> AnyArray:
        """Return the column of each node, -1 for those inside and those in thin columns, int32 (n,)."""
        column = np.full(network.graph.n_nodes, -1, dtype=np.int32)
        texts = unique_ids(network.ids)
        digests = [hmac.digest(key, texts[row].encode(), "sha256") for row in network.border.tolist()]
        column[network.border] = [int.from_bytes(digest[:8], "little") % self.buckets for digest in digests]
        counts = np.bincount(column[network.border], minlength=self.buckets)
        thin = (column >= 0) & (counts[column] < self.least)
        column[thin] = -1
        return column

    def _features(self, graph: Graph) -> AnyArray | sp.csr_array | None:
        """Return the features of a graph without columns that too few nodes fill."""
        X = graph.features
        if not self.features:
            return None
        width = 0 if X is None else int(X.shape[1])
        if X is None or width != self.features:
            raise InputError(
                f"the round spreads {self.features} features, and this network has {width}. All parties need the same "
                "features, in the same order."
            )
        if self.least <= 1:
            return X
        if isinstance(X, sp.csr_array):
            thin = np.bincount(X.indices[X.data != 0], minlength=width) < self.least
            return sp.csr_array(X @ sp.diags_array((~thin).astype(X.dtype)))
        thin = np.count_nonzero(np.asarray(X), axis=0) < self.least
        return np.where(thin, 0, np.asarray(X))

    def empty_share(self, kept: dict[str, AnyArray], own: BoolArray) -> float:
        """Return how many own rows are empty, each part of a row counted by its share."""
        lengths = kept["lengths"]
        rows = lengths[own] if len(lengths) == len(own) else lengths
        weights = np.array([1.0, self.edges] if self.features and self.buckets else [1.0])
        return float(((rows == 0) @ weights).sum() / weights.sum())
