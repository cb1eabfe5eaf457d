"""Graph: the adjacency structure as plain CSR arrays, with what belongs to each node beside it, and how it is read."""

from graphquilt.graph.checks import check_labels, group, short_labels
from graphquilt.graph.files import attach
from graphquilt.graph.reading.assembly import Duplicates
from graphquilt.graph.reading.conversion import from_igraph, from_networkx, from_pyg
from graphquilt.graph.reading.edge_columns import BadRows
from graphquilt.graph.reading.edges import GraphLike, read_edges
from graphquilt.graph.reading.outofcore import build_csr
from graphquilt.graph.reading.recency import read_recent_edges
from graphquilt.graph.reading.vectors import read_vectors
from graphquilt.graph.structure import Graph

__all__ = [
    "BadRows",
    "Duplicates",
    "Graph",
    "GraphLike",
    "attach",
    "build_csr",
    "check_labels",
    "from_igraph",
    "from_networkx",
    "from_pyg",
    "group",
    "read_edges",
    "read_recent_edges",
    "read_vectors",
    "short_labels",
]
