"""From a partition to overlapping patches: quotient, Algorithm 1, Algorithm 2."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphquilt.errors import InputError, OverlapError
from graphquilt.graph import Graph, check_labels, group
from graphquilt.patches._quilt import NodeSets, PatchGraph, disconnected
from graphquilt.progress import ProgressCallback, report
from graphquilt.sparsify import EdgeWeight, Resistance, conductance, sparsify

__all__ = ["Limits", "patch_graph"]

logger = logging.getLogger(__name__)
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Limits:
    """How far a patch may grow, so that none swallows the graph.

    On heavy-tailed graphs the maximum spanning tree of Algorithm 1 is a star, and the patch at its centre takes
    nodes from every other cluster. These limits bound that; ``Limits.none()`` is the paper's plain rule.

    Parameters
    ----------
    growth : float
        A patch may hold this many times its cluster (or the mean cluster, if that is larger).
    degree : int, optional
        The largest number of patch edges at one patch; by default as many as ``growth`` has room for at half of the
        least overlap each, and at least 2.

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

    def room(self, sizes: Ints) -> Ints:
        """Return how many nodes each patch may add to its cluster, (p,)."""
        room = np.minimum((self.growth - 1) * np.maximum(sizes, sizes.mean()), 2.0**62)
        return np.asarray(room, dtype=np.int64)

    def degrees(self, sizes: Ints, half: int) -> Ints:
        """Return the largest degree of each patch, (p,), where each edge adds at least ``half`` nodes."""
        allowed = np.maximum(self.room(sizes) // max(half, 1), 2)
        return allowed if self.degree is None else np.minimum(allowed, self.degree)


@dataclass(frozen=True, eq=False)
class _Demand:
    """How many nodes the first and the second patch of each edge take from the other's cluster: at least, at most."""

    need: Ints  # (m, 2)
    cap: Ints  # (m, 2)
    capped: int  # edges that aim at less than u because of the growth limit
    shifted: int  # edges where one side has to take more than its half because the other may not


def patch_graph(
    graph: Graph,
    labels: npt.ArrayLike,
    *,
    degree: float,
    overlap: tuple[int, int],
    edge_weight: EdgeWeight | None = None,
    limits: Limits | None = None,
    components: Literal["error", "each"] = "error",
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> PatchGraph:
    """Turn a partition into overlapping patches (Algorithms 1 and 2).

    Parameters
    ----------
    graph : Graph
        A directed graph counts as the undirected one with the same edges.
    labels : int array (n,)
        The cluster of each node, 0..p-1 without gaps, from any partitioner.
    degree : float
        Mean degree of the patch graph.
    overlap : (l, u)
        Each two joined patches share at least l nodes, which must be at least d + 1 to align in d dimensions, and
        the growth of both for the sake of one edge adds at most u. Every cluster needs l / 2 nodes: see
        :func:`graphquilt.merge_small`.
    edge_weight : EdgeWeight
        By default :class:`graphquilt.Resistance`; :class:`graphquilt.Conductance` at scale.
    limits : Limits
        Bounds on growth and degree, so that no patch swallows the graph.
    components : {"error", "each"}
        What to do when the clusters fall into several components: raise, or keep each, to be aligned alone.
    seed : int
        Of the sampled patch edges and of the sampled nodes. The same seed gives the same patches.
    progress : callable, optional

    Returns
    -------
    PatchGraph
        Its ``report`` says where a limit acted, its ``summary()`` gives sizes, overlaps and oversampling.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> ring = Graph(sp.csr_array(np.roll(np.eye(60), 1, 0) + np.roll(np.eye(60), -1, 0)))
    >>> quilt = patch_graph(ring, np.arange(60) // 15, degree=2, overlap=(6, 12))
    >>> quilt.edges.tolist(), quilt.overlaps.tolist()
    ([[0, 1], [0, 3], [1, 2], [2, 3]], [6, 6, 6, 6])
    """
    least, most = _check_overlap(overlap)
    limits = limits or Limits()
    graph = graph.undirected()
    found = check_labels(labels, graph.n_nodes)
    sizes = np.bincount(found)
    report(progress, "patch graph", 0, 3)
    pairs, conductances = conductance(graph, found)
    if components == "error":
        _check_connected(pairs, sizes)
    report(progress, "patch graph", 1, 3)
    weights = (edge_weight or Resistance())(pairs, conductances, len(sizes))
    report(progress, "patch graph", 2, 3)
    for_edges, for_nodes = np.random.SeedSequence(seed).spawn(2)
    bounds = limits.degrees(sizes, -(-least // 2))
    kept = sparsify(pairs, weights, len(sizes), degree=degree, limit=bounds, seed=np.random.default_rng(for_edges))
    report(progress, "patch graph", 3, 3)
    demand = _demand(kept.edges, sizes, (least, most), limits)
    sets, inside, reseeded = _expand(graph, found, kept.edges, demand, seeds=for_nodes, progress=progress)
    patch_sizes = np.diff(sets.starts)
    overgrown = np.flatnonzero(patch_sizes - sizes > limits.room(sizes))
    made = {
        "cluster_size": {"min": int(sizes.min()), "mean": float(sizes.mean()), "max": int(sizes.max())},
        "overlap_asked": [least, most],
        "degree_asked": float(degree),
        "seed": int(seed),
        "edge_weight": repr(edge_weight or Resistance()),
        "edge_oversampling": float(inside / max(graph.n_edges, 1)),
        "growth_limit": None if limits.growth == float("inf") else limits.growth,
        "largest_growth": round(float((patch_sizes / sizes).max()), 3),
        "edges_dropped_by_limit": kept.wanted - len(kept.edges),
        "patches_at_degree_limit": len(kept.at_limit),
        "patches_beyond_degree_limit": kept.beyond_limit.tolist(),
        "edges_capped_by_growth": demand.capped,
        "edges_shifted_by_growth": demand.shifted,
        "patches_beyond_growth": overgrown.tolist(),
        "edges_reseeded": reseeded,
    }
    if len(overgrown):
        logger.warning(
            "%d patches grew beyond %g times their cluster, the largest to %d nodes: the clusters leave no other way",
            len(overgrown),
            limits.growth,
            patch_sizes.max(),
        )
    return PatchGraph(sets, kept.edges, graph.n_nodes, components, made)


def _check_overlap(overlap: tuple[int, int]) -> tuple[int, int]:
    least, most = (int(value) for value in overlap)
    if least < 1 or most < least:
        raise InputError(f"the overlap (l, u) needs 1 <= l <= u; it is ({least}, {most}).")
    return least, most


def _check_connected(pairs: Ints, sizes: Ints) -> None:
    import scipy.sparse as sp
    from scipy.sparse.csgraph import connected_components

    p = len(sizes)
    A = sp.coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(p, p))
    count, component = connected_components(A, directed=False)
    if count > 1:
        raise disconnected(component.astype(np.int64), sizes)


def _demand(edges: Ints, sizes: Ints, overlap: tuple[int, int], limits: Limits) -> _Demand:
    """Share each edge's overlap between its two patches, within what the growth limit leaves to each.

    Each side takes half, unless the room of its patch, shared evenly by its edges, is less: then the other side,
    if it has the room and the cluster has the nodes, takes what is missing. What nobody has room for is taken in
    halves all the same, and the patch appears among ``patches_beyond_growth``.
    """
    least, most = overlap
    half = np.array([-(-least // 2), least // 2])
    giving = sizes[edges[:, ::-1]]  # column 0: the cluster that the first patch takes from
    short = np.argwhere(giving < half)
    if len(short):
        k, side = short[0]
        i, j = edges[k][:: 1 if side == 0 else -1]
        raise OverlapError(
            f"patches {i} and {j} cannot share {least} nodes: patch {i} has to take {half[side]} nodes of cluster {j}, "
            f"which has {sizes[j]}. Merge small clusters first (merge_small with min_size={-(-least // 2)}), ask for "
            f"an overlap of at most {2 * int(sizes[j])}, or for fewer patches."
        )
    counts = np.maximum(np.bincount(edges.ravel(), minlength=len(sizes)), 1)
    share = (limits.room(sizes) // counts)[edges]
    need = np.minimum(half, share)
    missing = least - need.sum(axis=1)
    for side in (1, 0):  # the side that did not fall short is the one with room
        spare = np.maximum(np.minimum(share[:, side], giving[:, side]) - need[:, side], 0)
        extra = np.minimum(missing, spare)
        need[:, side] += extra
        missing = missing - extra
    need[missing > 0] = half
    wish = np.array([-(-most // 2), most // 2])
    cap = np.minimum(np.maximum(np.minimum(wish, share), need), giving)
    return _Demand(
        need, cap, int((share < np.minimum(wish, giving)).any(axis=1).sum()), int((need > half).any(axis=1).sum())
    )


def _expand(
    graph: Graph,
    labels: Ints,
    edges: Ints,
    demand: _Demand,
    *,
    seeds: np.random.SeedSequence,
    progress: ProgressCallback | None,
) -> tuple[NodeSets, int, int]:
    """Run Algorithm 2; return the patches, the entries inside all of them, and the edges that were seeded again."""
    from graphquilt.graph._kernels import announce, frozen
    from graphquilt.patches import _kernels

    members, starts = group(labels)
    p = len(starts) - 1
    both = np.concatenate([edges, edges[:, ::-1]])
    need, cap = demand.need.T.ravel(), demand.cap.T.ravel()
    state = np.random.default_rng(seeds).integers(0, 2**64, size=len(both), dtype=np.uint64)
    order = np.lexsort((both[:, 1], both[:, 0]))
    ends = np.searchsorted(both[order, 0], np.arange(p + 1))
    announce(_kernels.expand_patch, "patch expansion")
    csr = frozen(graph.indptr), frozen(graph.indices)
    clusters = frozen(labels), frozen(members), frozen(starts)
    mark = np.zeros(graph.n_nodes, dtype=np.int32)
    patches, inside, reseeded = [], 0, 0
    for i in range(p):
        mine = order[ends[i] : ends[i + 1]]
        wanted = need[mine], cap[mine], state[mine]
        nodes, _, again = _kernels.expand_patch(csr, clusters, i, both[mine, 1], wanted, mark)
        inside += _kernels.edges_inside(*csr, nodes, mark, -(i + 1))
        reseeded += int((again > 0).sum())
        patches.append(nodes)
        report(progress, "patch expansion", i + 1, p)
    lengths = np.concatenate([[0], np.cumsum([len(nodes) for nodes in patches])]).astype(np.int64)
    return NodeSets(np.concatenate(patches), lengths), inside, reseeded
