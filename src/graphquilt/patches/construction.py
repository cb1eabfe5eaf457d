"""From clusters to overlapping patches: Algorithm 1 chooses patch edges, Algorithm 2 grows the patches; and coverage,
the share of each node's edges that lie inside a patch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import Float64Array, Int64Array, IntArray
from graphquilt.errors import InputError, OverlapError
from graphquilt.graph import Graph, group, short_labels
from graphquilt.graph.kernels import join_ends
from graphquilt.patches import kernels
from graphquilt.patches.graph import PatchGraph, disconnected_error
from graphquilt.patches.patch import NodeSets, OnDemand
from graphquilt.patches.sparsify import EdgeWeight, Resistance, conductance, sparsify
from graphquilt.progress import ProgressCallback, report

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """How far a patch may grow: on heavy-tailed graphs one, the centre of a star, would absorb most of the graph.

    ``Limits.none()`` is the paper's plain rule.

    Parameters
    ----------
    growth : float
        A patch may have this many times the nodes of its cluster, or of the mean cluster if that is larger.
    degree : int, optional
        The largest number of patch edges at one patch; by default what ``growth`` allows if each edge takes half of
        the least overlap, and at least 2.

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
    """Return how many nodes a cluster needs to give half of the overlap (l, u) of two patches: l / 2, rounded up."""
    return -(-overlap[0] // 2)


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
    """Turn a partition into overlapping patches (Algorithms 1 and 2), and report where a limit applied.

    Parameters
    ----------
    graph : Graph
        A directed graph counts as the undirected one with the same edges.
    labels : int array (n,)
        The cluster of each node, 0..p-1 without gaps, from any partitioner.
    degree : float
        Mean degree of the patch graph.
    overlap : (l, u)
        Two joined patches share at least l nodes, which must be at least d + 1 to align in d dimensions, and
        together they take at most u nodes from each other's clusters. Every cluster needs l / 2 nodes: see
        :func:`graphquilt.merge_small`.
    edge_weight : EdgeWeight
        By default :class:`graphquilt.Resistance`; :class:`graphquilt.Conductance` at scale.
    limits : Limits
        Bounds on growth and degree.
    components : {"error", "each"}
        What to do when the clusters form several components: raise, or accept them, to be aligned each alone.
    seed : int
        Seed of the sampled patch edges and of the sampled nodes. The same seed gives the same patches.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> ring = Graph(sp.csr_array(np.roll(np.eye(60), 1, 0) + np.roll(np.eye(60), -1, 0)))
    >>> patches = patch_graph(ring, np.arange(60) // 15, degree=2, overlap=(6, 12))
    >>> patches.edges.tolist(), patches.overlaps.tolist()
    ([[0, 1], [0, 3], [1, 2], [2, 3]], [6, 6, 6, 6])
    """
    overlap = int(overlap[0]), int(overlap[1])
    if not 1 <= overlap[0] <= overlap[1]:
        raise InputError(f"the overlap (l, u) needs 1 <= l <= u; it is {overlap}.")
    limits, edge_weight = limits or Limits(), edge_weight or Resistance()
    graph = graph.undirected()
    clusters = short_labels(labels, graph.n_nodes)
    sizes = np.bincount(clusters)
    pairs, conductances = conductance(graph, clusters, progress=progress)
    component = np.empty(len(sizes), dtype=np.int64)
    if join_ends(pairs, component) > 1 and components == "error":
        raise disconnected_error(component, sizes)
    weights = edge_weight(pairs, conductances, len(sizes))
    del conductances
    for_edges, for_nodes = np.random.SeedSequence(seed).spawn(2)
    bounds = limits.degrees(sizes, smallest_cluster(overlap))
    sparse = sparsify(pairs, weights, len(sizes), degree=degree, limit=bounds, seed=np.random.default_rng(for_edges))
    del pairs, weights
    report(progress, "patch edges", 1, 1)
    targets = allocate_overlap(sparse.edges, sizes, overlap, limits)
    sets, reseeded = expand(graph, clusters, sparse.edges, targets, seeds=for_nodes, progress=progress)
    patch_sizes = np.diff(sets.starts)
    overgrown = np.flatnonzero(patch_sizes - sizes > limits.room(sizes))
    history = {
        "cluster_size": {"min": int(sizes.min()), "mean": float(sizes.mean()), "max": int(sizes.max())},
        "overlap_asked": [*overlap],
        "degree_asked": float(degree),
        "seed": int(seed),
        "edge_weight": repr(edge_weight),
        "edge_oversampling": entries_inside(graph, sets, progress) / max(graph.n_entries, 1),
        "growth_limit": None if limits.growth == float("inf") else limits.growth,
        "largest_growth": round(float((patch_sizes / sizes).max()), 3),
        "edges_dropped_by_limit": sparse.target - len(sparse.edges),
        "patches_at_degree_limit": len(sparse.at_limit),
        "patches_beyond_degree_limit": sparse.beyond_limit.tolist(),
        "edges_capped_by_growth": targets.capped,
        "edges_shifted_by_growth": targets.shifted,
        "patches_beyond_growth": overgrown.tolist(),
        "edges_reseeded": reseeded,
    }
    if len(overgrown):
        grew = f"{len(overgrown)} patches grew beyond {limits.growth:g} times their cluster, the largest to"
        logger.warning(f"{grew} {patch_sizes.max()} nodes: the clusters leave no other way")
    return PatchGraph(sets, sparse.edges, graph.n_nodes, components, history)


class OverlapTargets(NamedTuple):
    """How many nodes the first and the second patch of each edge take from the other's cluster."""

    need: Int64Array  # (m, 2), at least
    cap: Int64Array  # (m, 2), at most
    capped: int  # edges that aim at less than u because of the growth limit
    shifted: int  # edges where one side has to take more than its half because the other may not


def allocate_overlap(edges: Int64Array, sizes: Int64Array, overlap: tuple[int, int], limits: Limits) -> OverlapTargets:
    """Divide each edge's overlap between its two patches, within the growth that each is allowed.

    Each side takes half, unless its share of the growth of its patch is less: then the other side takes the rest, if
    its own limit and the cluster allow it. If neither may, both take their half, and ``patches_beyond_growth`` says so.
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
    return OverlapTargets(need, cap, int(capped.sum()), int(shifted.sum()))


def expand(
    graph: Graph,
    labels: IntArray,
    edges: Int64Array,
    targets: OverlapTargets,
    *,
    seeds: np.random.SeedSequence,
    progress: ProgressCallback | None = None,
) -> tuple[NodeSets, int]:
    """Grow every patch into the clusters it is joined to (Algorithm 2); count exhausted frontiers, seeded again.

    First, one scan of each cluster's edges finds where its patch touches the others; then every patch that needs more
    nodes of a cluster grows inside it, ring by ring. Each pair (i, j) has its own random stream.
    """
    clusters = labels, *group(labels)
    p = len(clusters[2]) - 1
    pairs = np.concatenate([edges, edges[:, ::-1]])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    pairs, need, cap = pairs[order], targets.need.T.ravel()[order], targets.cap.T.ravel()[order]
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
        taken[a:b] = [part[:0]] * (b - a)  # frees what was copied
    return NodeSets(nodes, stops)


_UNIT = 1 << 15  # of coverages as they are kept
LEAST = 0.01  # coverage of a node without edges inside a patch: its row still counts


def _degrees_inside(graph: Graph, node_sets: Sequence[IntArray]) -> Iterator[Int64Array]:
    """Yield for each patch the number of neighbours of each of its nodes that lie inside the patch, (k,)."""
    mark = np.zeros(graph.n_nodes // 8 + 1, dtype=np.uint8)
    for nodes in node_sets:
        yield kernels.degrees_inside((graph.indptr, graph.indices), nodes, mark)


def entries_inside(graph: Graph, node_sets: Sequence[IntArray], progress: ProgressCallback | None = None) -> int:
    """Count the entries of the induced subgraphs of all patches together."""
    total = 0
    for k, degrees in enumerate(_degrees_inside(graph, node_sets)):
        total += int(degrees.sum())
        report(progress, "edges inside patches", k + 1, len(node_sets))
    return total


def coverage(graph: Graph, patch_graph: PatchGraph) -> list[Float64Array]:
    """Return for each patch the share of each of its nodes' edges that lie inside the patch, (k,); 1 without edges.

    Edges count in both directions, and not by their weights.
    """
    return list(_shares(graph, patch_graph))


def _shares(graph: Graph, patch_graph: PatchGraph) -> Iterator[Float64Array]:
    if graph.n_nodes != patch_graph.n_nodes:
        raise InputError(f"the graph has {graph.n_nodes} nodes, the patches are of {patch_graph.n_nodes}.")
    graph = graph.undirected()
    indptr = graph.indptr
    for nodes, inside in zip(patch_graph.node_sets, _degrees_inside(graph, patch_graph.node_sets), strict=True):
        rows = np.asarray(nodes, dtype=np.int64)
        totals = np.asarray(indptr[rows + 1] - indptr[rows])
        yield np.where(totals > 0, inside / np.maximum(totals, 1), 1.0)


def coverage_weights(graph: Graph, patch_graph: PatchGraph, *, power: float) -> Sequence[Float64Array]:
    """Return the weight of each row of each patch: its coverage, but at least 0.01, to the given power.

    Coverages are rounded to multiples of 2^-15, which takes two bytes per row.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.diags_array([np.ones(3), np.ones(3)], offsets=[-1, 1]))
    >>> coverage_weights(path, PatchGraph.from_patches([[0, 1, 2], [2, 3]]), power=2)[1].tolist()
    [0.25, 1.0]
    """
    shares = [np.rint(share * _UNIT).astype(np.uint16) for share in _shares(graph, patch_graph)]
    return OnDemand(len(shares), lambda k: np.maximum(shares[k] / _UNIT, LEAST) ** power)
