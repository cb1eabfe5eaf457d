"""Algorithm 2: decide how far each patch grows into its neighbours, and grow it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from graphquilt.arrays import Int64Array, IntArray
from graphquilt.errors import InputError, OverlapError
from graphquilt.graph import Graph, group
from graphquilt.patches import kernels
from graphquilt.patches.node_sets import NodeSets
from graphquilt.progress import ProgressCallback, report

__all__ = ["Demand", "Limits", "expand", "share_out", "smallest_cluster"]


@dataclass(frozen=True)
class Limits:
    """How far a patch may grow, so that none takes in most of the graph.

    On heavy-tailed graphs the maximum spanning tree of Algorithm 1 is a star, and the patch at its centre takes
    nodes from every other cluster. These limits bound that; ``Limits.none()`` is the paper's plain rule.

    Parameters
    ----------
    growth : float
        A patch may hold this many times its cluster (or the mean cluster, if that is larger).
    degree : int, optional
        The largest number of patch edges at one patch; by default as many as ``growth`` allows when each takes half
        of the least overlap, and at least 2.

    Examples
    --------
    >>> Limits(growth=5).room(np.array([100, 300])).tolist()
    [800, 1200]
    """

    growth: float = 10.0
    degree: int | None = None

    def __post_init__(self) -> None:
        if not self.growth > 1:
            raise InputError(f"a patch must be allowed to grow; growth is {self.growth} and must be above 1.")
        if self.degree is not None and self.degree < 2:
            raise InputError(f"patches with at most {self.degree} patch edges cannot be connected; allow at least 2.")

    @classmethod
    def none(cls) -> Limits:
        """No limits: the paper's plain rule."""
        return cls(growth=float("inf"))

    def room(self, sizes: Int64Array) -> Int64Array:
        """Return how many nodes each patch may add to its cluster, (p,)."""
        room = np.minimum((self.growth - 1) * np.maximum(sizes, sizes.mean()), 2.0**62)
        return np.asarray(room, dtype=np.int64)

    def degrees(self, sizes: Int64Array, half: int) -> Int64Array:
        """Return the largest degree of each patch, (p,), where each edge adds at least ``half`` nodes."""
        allowed = np.maximum(self.room(sizes) // max(half, 1), 2)
        return allowed if self.degree is None else np.minimum(allowed, self.degree)


def smallest_cluster(overlap: tuple[int, int]) -> int:
    """Return how many nodes a cluster needs to give half of the overlap (l, u) of two patches: l / 2, rounded up.

    Examples
    --------
    >>> smallest_cluster((5, 20))
    3
    """
    return -(-overlap[0] // 2)


@dataclass(frozen=True, eq=False)
class Demand:
    """How many nodes the first and the second patch of each edge take from the other's cluster."""

    need: Int64Array  # (m, 2), at least
    cap: Int64Array  # (m, 2), at most
    capped: int  # edges that aim at less than u because of the growth limit
    shifted: int  # edges where one side has to take more than its half because the other may not


def share_out(edges: Int64Array, sizes: Int64Array, overlap: tuple[int, int], limits: Limits) -> Demand:
    """Share each edge's overlap between its two patches, within the growth that each is allowed.

    Each side takes half, unless the growth that its patch is allowed, shared evenly by its edges, is less: then the
    other side takes what is missing, if its own limit and the cluster allow it. What neither side may take is taken in
    halves all the same, and the patch appears among ``patches_beyond_growth``.
    """
    least, most = overlap
    half = np.array([smallest_cluster(overlap), least // 2])
    giving = sizes[edges[:, ::-1]]  # column 0: the cluster that the first patch takes from
    short = np.argwhere(giving < half)
    if len(short):
        k, side = short[0]
        i, j = edges[k][:: 1 if side == 0 else -1]
        raise OverlapError(
            f"patches {i} and {j} cannot share {least} nodes: patch {i} has to take {half[side]} nodes of cluster {j}, "
            f"which has {sizes[j]}. Merge small clusters first (merge_small with min_size={half[0]}), "
            f"ask for an overlap of at most {2 * int(sizes[j])}, or for fewer patches."
        )
    counts = np.maximum(np.bincount(edges.ravel(), minlength=len(sizes)), 1)
    share = (limits.room(sizes) // counts)[edges]
    need = np.minimum(half, share)
    missing = least - need.sum(axis=1)
    for side in (1, 0):  # the side that did not fall short is the one that may take more
        spare = np.maximum(np.minimum(share[:, side], giving[:, side]) - need[:, side], 0)
        extra = np.minimum(missing, spare)
        need[:, side] += extra
        missing = missing - extra
    need[missing > 0] = half
    wish = np.array([most - most // 2, most // 2])
    cap = np.minimum(np.maximum(np.minimum(wish, share), need), giving)
    capped, shifted = (share < np.minimum(wish, giving)).any(axis=1), (need > half).any(axis=1)
    return Demand(need, cap, int(capped.sum()), int(shifted.sum()))


def expand(
    graph: Graph,
    labels: IntArray,
    edges: Int64Array,
    demand: Demand,
    *,
    seeds: np.random.SeedSequence,
    progress: ProgressCallback | None = None,
) -> tuple[NodeSets, int]:
    """Grow every patch into the clusters it is joined to (Algorithm 2).

    Clusters are disjoint, so that growing patch i into cluster j depends on no other pair: each pair has a random
    stream of its own and the order does not matter. First, one scan of each cluster's edges finds where its patch
    touches the others; then every patch that still needs some nodes of a cluster grows inside it, ring by ring. Return
    the patches, and the number of pairs (i, j) where the frontier was exhausted and had to be seeded again.
    """
    clusters = labels, *group(labels)
    p = len(clusters[2]) - 1
    pairs = np.concatenate([edges, edges[:, ::-1]])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    pairs, need, cap = pairs[order], demand.need.T.ravel()[order], demand.cap.T.ravel()[order]
    seed = np.random.default_rng(seeds).integers(0, 2**64, size=len(order), dtype=np.uint64)[order]
    ends = np.searchsorted(pairs[:, 0], np.arange(p + 1))
    csr = graph.indptr, graph.indices
    mark = np.zeros(graph.n_nodes // 8 + 1, dtype=np.uint8)
    taken: list[IntArray] = []
    for i in range(p):
        own = slice(ends[i], ends[i + 1])
        nodes, stops = kernels.frontiers(csr, clusters, i, pairs[own, 1], (cap[own], seed[own]), mark)
        taken += [nodes[a:b] for a, b in pairwise(stops)]
        report(progress, "patch borders", i + 1, p)
    short = np.array([len(nodes) for nodes in taken], dtype=np.int64) < need
    by_target = np.flatnonzero(short)[np.argsort(pairs[short, 1], kind="stable")]
    stops_at = np.searchsorted(pairs[by_target, 1], np.arange(p + 1))
    reseeded = 0
    for j in range(p):
        waiting = by_target[stops_at[j] : stops_at[j + 1]]
        if len(waiting):
            given = [taken[k] for k in waiting]
            begins = np.cumsum([0, *map(len, given)])
            wishes = need[waiting], cap[waiting], seed[waiting]
            nodes, stops, again = kernels.grow(csr, clusters, j, (np.concatenate(given), begins), wishes)
            for k, a, b in zip(waiting, stops[:-1], stops[1:], strict=True):
                taken[k] = nodes[a:b].copy()
            reseeded += again
        report(progress, "patch expansion", j + 1, p)
    return _collect(clusters[1], clusters[2], taken, ends), reseeded


def _collect(members: IntArray, starts: Int64Array, taken: list[IntArray], ends: Int64Array) -> NodeSets:
    stops = np.diff(starts)
    stops = np.cumsum([0, *(stops[i] + sum(map(len, taken[a:b])) for i, (a, b) in enumerate(pairwise(ends)))])
    nodes = np.empty(stops[-1], dtype=members.dtype)
    for i, (a, b) in enumerate(pairwise(ends)):
        part = nodes[stops[i] : stops[i + 1]]
        np.concatenate([members[starts[i] : starts[i + 1]], *taken[a:b]], out=part)
        part.sort()
        taken[a:b] = [part[:0]] * (b - a)  # so that what is copied does not stay in memory
    return NodeSets(nodes, stops)
