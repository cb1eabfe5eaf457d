"""From a graph to overlapping patches: partitioners, Algorithms 1 and 2, and the graph of patches that overlap."""

from graphquilt.patches.clusters import (
    CoarseGraph,
    Multilevel,
    coarse_graph,
    default_partitioner,
    edge_cut,
    fine_clusters,
    is_large,
    join_neighbours,
    merge_clusters,
    merge_small,
)
from graphquilt.patches.construction import Limits, coverage, coverage_weights, patch_graph, smallest_cluster
from graphquilt.patches.graph import PatchGraph
from graphquilt.patches.partitioners import Fennel, Leiden, Louvain, Metis, Partitioner
from graphquilt.patches.patch import LazySequence, NodeSets, Patch
from graphquilt.patches.sparsify import Conductance, EdgeWeight, Resistance

__all__ = [
    "CoarseGraph",
    "Conductance",
    "EdgeWeight",
    "Fennel",
    "LazySequence",
    "Leiden",
    "Limits",
    "Louvain",
    "Metis",
    "Multilevel",
    "NodeSets",
    "Partitioner",
    "Patch",
    "PatchGraph",
    "Resistance",
    "coarse_graph",
    "coverage",
    "coverage_weights",
    "default_partitioner",
    "edge_cut",
    "fine_clusters",
    "is_large",
    "join_neighbours",
    "merge_clusters",
    "merge_small",
    "patch_graph",
    "smallest_cluster",
]
