"""Coverage: the share of each node's edges that lie inside a patch, and the number of edges inside all patches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array, IntArray
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.patches import kernels
from graphquilt.patches.graph import PatchGraph
from graphquilt.patches.patch import LazySequence
from graphquilt.progress import ProgressCallback, report

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


class _CoverageWeights(LazySequence[Float64Array]):
    """The weights of the rows of all patches, computed on demand; a row takes two bytes."""

    def __init__(self, shares: Iterable[Float64Array], power: float) -> None:
        self._shares = [np.rint(share * _UNIT).astype(np.uint16) for share in shares]
        self._power = power

    def __len__(self) -> int:
        return len(self._shares)

    def _item(self, k: int) -> Float64Array:
        return np.maximum(self._shares[k] / _UNIT, LEAST) ** self._power


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
    return _CoverageWeights(_shares(graph, patch_graph), power)
