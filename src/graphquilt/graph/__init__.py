"""Graph: the adjacency structure as plain CSR arrays, with what belongs to each node beside it."""

from graphquilt.graph.checks import check_labels, group, short_labels
from graphquilt.graph.files import attach
from graphquilt.graph.structure import Graph

__all__ = ["Graph", "attach", "check_labels", "group", "short_labels"]
