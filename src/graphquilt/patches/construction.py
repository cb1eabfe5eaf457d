"""Turn a partition into overlapping patches: the graph of clusters, Algorithm 1, Algorithm 2."""

from __future__ import annotations

import logging
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphquilt.errors import InputError
from graphquilt.graph import Graph, short_labels
from graphquilt.graph.kernels import join_ends
from graphquilt.patches.expansion import Limits, expand, share_out, smallest_cluster
from graphquilt.patches.graph import PatchGraph, disconnected
from graphquilt.patches.inside import entries_inside
from graphquilt.patches.sparsify import EdgeWeight, Resistance, conductance, sparsify
from graphquilt.progress import ProgressCallback, report

__all__ = ["patch_graph"]

logger = logging.getLogger(__name__)


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
        Bounds on growth and degree, so that no patch takes in most of the graph.
    components : {"error", "each"}
        What to do when the clusters form several components: raise, or accept them, to be aligned each alone.
    seed : int
        Seed of the sampled patch edges and of the sampled nodes. The same seed gives the same patches.
    progress : callable, optional

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
        raise disconnected(component, sizes)
    weights = edge_weight(pairs, conductances, len(sizes))
    del conductances
    for_edges, for_nodes = np.random.SeedSequence(seed).spawn(2)
    bounds = limits.degrees(sizes, smallest_cluster(overlap))
    sparse = sparsify(pairs, weights, len(sizes), degree=degree, limit=bounds, seed=np.random.default_rng(for_edges))
    del pairs, weights
    report(progress, "patch edges", 1, 1)
    demand = share_out(sparse.edges, sizes, overlap, limits)
    sets, reseeded = expand(graph, clusters, sparse.edges, demand, seeds=for_nodes, progress=progress)
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
        "edges_dropped_by_limit": sparse.wanted - len(sparse.edges),
        "patches_at_degree_limit": len(sparse.at_limit),
        "patches_beyond_degree_limit": sparse.beyond_limit.tolist(),
        "edges_capped_by_growth": demand.capped,
        "edges_shifted_by_growth": demand.shifted,
        "patches_beyond_growth": overgrown.tolist(),
        "edges_reseeded": reseeded,
    }
    if len(overgrown):
        largest = patch_sizes.max()
        message = (
            "%d patches grew beyond %g times their cluster, the largest to %d nodes: the clusters leave no other way"
        )
        logger.warning(message, len(overgrown), limits.growth, largest)
    return PatchGraph(sets, sparse.edges, graph.n_nodes, components, history)
