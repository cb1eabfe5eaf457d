"""Partitioners: callables from a graph to one cluster label per node.

Each is a frozen value with the parameters of its method; any other callable with the signature
``graph -> labels`` serves as well, and so does an array of labels computed elsewhere.
"""

from graphquilt.partition.clusters import Partitioner, edge_cut, merge_small
from graphquilt.partition.fennel import Fennel
from graphquilt.partition.packages import KaMinPar, Leiden, Louvain, Metis

__all__ = ["Fennel", "KaMinPar", "Leiden", "Louvain", "Metis", "Partitioner", "edge_cut", "merge_small"]
