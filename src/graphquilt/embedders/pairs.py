"""Edges, sampled non-edges, and the AUC of inner products on them (torch)."""

from __future__ import annotations

import numpy as np
import torch

from graphquilt.arrays import FloatArray, Int64Array
from graphquilt.graph import Graph
from graphquilt.linalg.ranking import roc_auc

__all__ = ["NonEdges", "area_under_curve", "undirected_edges"]

SPREAD = -7046029254386353131  # multiplying by this odd 64-bit number spreads the keys of pairs over a hash table


def undirected_edges(graph: Graph) -> Int64Array:
    """Return each edge once, (2, m) with first row < second row, without loops."""
    rows = np.repeat(np.arange(graph.n_nodes), graph.degrees)
    columns = np.asarray(graph.indices, dtype=np.int64)
    if not graph.directed:
        upper = rows < columns
        return np.stack([rows[upper], columns[upper]])
    other = rows != columns
    low, high = np.minimum(rows, columns)[other], np.maximum(rows, columns)[other]
    keys = np.unique(low * graph.n_nodes + high)
    return np.stack(np.divmod(keys, max(graph.n_nodes, 1)))


class NonEdges:
    """Uniform samples of pairs that no edge joins.

    Random pairs that turn out to be edges are replaced by new ones. A hash table with one byte per slot shows for
    nearly every pair that it is no edge; only the others are searched for among the edges. In a dense graph, where
    this would take too long, all non-edges are listed instead.
    """

    def __init__(self, edges: Int64Array, n_nodes: int) -> None:
        self.n_nodes = n_nodes
        pairs = n_nodes * (n_nodes - 1) // 2
        self.n_pairs = pairs - edges.shape[1]
        keys = np.sort(edges[0] * n_nodes + edges[1])
        self.keys = torch.as_tensor(keys)
        self.listed: torch.Tensor | None = None
        if pairs <= 4 * edges.shape[1]:
            candidates = np.stack(np.triu_indices(n_nodes, 1)).astype(np.int64)
            free = ~np.isin(candidates[0] * n_nodes + candidates[1], keys, assume_unique=True)
            self.listed = torch.as_tensor(candidates[:, free])
            return
        bits = max(10, int(np.ceil(np.log2(max(edges.shape[1], 1)))) + 4)
        self.shift, self.mask = 64 - bits, 2**bits - 1
        self.table = torch.zeros(2**bits, dtype=torch.bool)
        self.table[self._slots(self.keys)] = True

    def _slots(self, keys: torch.Tensor) -> torch.Tensor:
        slots: torch.Tensor = ((keys * SPREAD) >> self.shift) & self.mask
        return slots

    def sample(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """Sample ``count`` pairs with replacement, (2, count); none if every pair is an edge."""
        if self.n_pairs == 0 or count == 0:
            return torch.zeros(2, 0, dtype=torch.int64)
        if self.listed is not None:
            return self.listed[:, torch.randint(self.listed.shape[1], (count,), generator=generator)]
        pairs = torch.randint(self.n_nodes, (2, count), generator=generator)
        again = self._joined(pairs)
        while len(again):
            fresh = torch.randint(self.n_nodes, (2, len(again)), generator=generator)
            pairs[:, again] = fresh
            again = again[self._joined(fresh)]
        return pairs

    def _joined(self, pairs: torch.Tensor) -> torch.Tensor:
        """Return the positions of the pairs that are edges or loops."""
        low, high = torch.minimum(pairs[0], pairs[1]), torch.maximum(pairs[0], pairs[1])
        keys = low * self.n_nodes + high
        doubtful = torch.nonzero(self.table[self._slots(keys)] | (low == high)).ravel()
        unsure = keys[doubtful]
        place = torch.searchsorted(self.keys, unsure).clamp_(max=max(len(self.keys) - 1, 0))
        is_edge = self.keys[place] == unsure if len(self.keys) else torch.zeros_like(unsure, dtype=torch.bool)
        return doubtful[is_edge | (low[doubtful] == high[doubtful])]


def area_under_curve(X: FloatArray, edges: Int64Array, others: Int64Array) -> float:
    """Return the share of (edge, non-edge) pairs that inner products rank correctly; 0.5 where there are none."""
    if edges.shape[1] == 0 or others.shape[1] == 0:
        return 0.5
    return roc_auc(*(np.einsum("ij,ij->i", X[pairs[0]], X[pairs[1]]) for pairs in (edges, others)))
