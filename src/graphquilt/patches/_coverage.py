"""Coverage: how much of a node's neighbourhood a patch can see."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import Float64Array
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.kernels import announce, frozen
from graphquilt.patches import _kernels
from graphquilt.patches._quilt import PatchGraph

__all__ = ["coverage", "coverage_weights"]

LEAST = 0.01  # the coverage that a node without an edge inside a patch is taken to have, so that it still counts


def coverage(graph: Graph, patch_graph: PatchGraph) -> list[Float64Array]:
    """Return for each patch the share of each of its nodes' edges that lie inside the patch, (k,); 1 without edges.

    Edges count in both directions, and not by their weights.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.diags_array([np.ones(3), np.ones(3)], offsets=[-1, 1]))
    >>> quilt = PatchGraph.from_patches([[0, 1, 2], [2, 3]])
    >>> [each.tolist() for each in coverage(path, quilt)]
    [[1.0, 1.0, 0.5], [0.5, 1.0]]
    """
    if graph.n_nodes != patch_graph.n_nodes:
        raise InputError(f"the graph has {graph.n_nodes} nodes, the patches are of {patch_graph.n_nodes}.")
    if graph.directed:
        graph = graph.undirected()
    announce(_kernels.degrees_inside, "coverage")
    csr = frozen(graph.indptr), frozen(graph.indices)
    mark = np.zeros(graph.n_nodes, dtype=np.uint8)
    degrees = np.asarray(graph.degrees)
    shares = []
    for nodes in patch_graph.node_sets:
        inside = _kernels.degrees_inside(csr, frozen(nodes), mark)
        shares.append(np.where(degrees[nodes] > 0, inside / np.maximum(degrees[nodes], 1), 1.0))
    return shares


def coverage_weights(graph: Graph, patch_graph: PatchGraph, *, power: float) -> list[Float64Array]:
    """Return what each row of each patch weighs: its coverage, but at least 0.01, to the given power.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.diags_array([np.ones(3), np.ones(3)], offsets=[-1, 1]))
    >>> coverage_weights(path, PatchGraph.from_patches([[0, 1, 2], [2, 3]]), power=2)[1].tolist()
    [0.25, 1.0]
    """
    return [np.maximum(share, LEAST) ** power for share in coverage(graph, patch_graph)]
