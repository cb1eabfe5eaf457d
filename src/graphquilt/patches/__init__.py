"""Patches, and the graph of patches that overlap."""

from graphquilt.patches.construction import patch_graph
from graphquilt.patches.expansion import Limits, smallest_cluster
from graphquilt.patches.graph import PatchGraph
from graphquilt.patches.inside import coverage, coverage_weights
from graphquilt.patches.node_sets import LazySequence, NodeSets
from graphquilt.patches.patch import Patch
from graphquilt.patches.sparsify import Conductance, EdgeWeight, Resistance

__all__ = [
    "Conductance",
    "EdgeWeight",
    "LazySequence",
    "Limits",
    "NodeSets",
    "Patch",
    "PatchGraph",
    "Resistance",
    "coverage",
    "coverage_weights",
    "patch_graph",
    "smallest_cluster",
]
