"""From a graph to overlapping patches: partitioners, Algorithms 1 and 2, and the graph of patches that overlap.

A partitioner is a frozen value with the parameters of its method; any other callable with the signature
``graph -> labels`` serves as well, and so does an array of labels computed elsewhere.
"""

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
