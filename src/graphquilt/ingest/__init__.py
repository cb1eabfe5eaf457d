"""Graphs from files and from the objects of other packages, in memory or out of core."""

from graphquilt.ingest.conversion import from_networkx, from_pyg, to_networkx, to_pyg
from graphquilt.ingest.edge_files import read_edges
from graphquilt.ingest.outofcore import build_csr
from graphquilt.ingest.vector_files import read_vectors

__all__ = [
    "build_csr",
    "from_networkx",
    "from_pyg",
    "read_edges",
    "read_vectors",
    "to_networkx",
    "to_pyg",
]
