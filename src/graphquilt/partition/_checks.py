"""What every partitioner checks and repairs."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.errors import InputError
from graphquilt.graph import Graph

__all__ = ["check_n_patches", "fill_empty", "whole_weights"]


def check_n_patches(n_patches: int, n_nodes: int) -> None:
    """Raise unless 1 <= n_patches <= n_nodes."""
    if n_patches < 1:
        raise InputError(f"a graph is cut into at least one cluster, not {n_patches}.")
    if n_patches > n_nodes:
        raise InputError(f"{n_patches} clusters of a graph with {n_nodes} nodes: ask for at most {n_nodes}.")


def whole_weights(weights: AnyArray) -> Int64Array:
    """Return weights as positive integers: as they are where they are whole, else with a mean of about 1000."""
    values = np.asarray(weights, dtype=np.float64)
    if len(values) and (np.any(values != np.rint(values)) or values.max() > 2**20):
        values = values * (1000 / values.mean())
    return np.clip(np.rint(values), 1, 2**20).astype(np.int64)


def fill_empty(graph: Graph, labels: Int64Array, n_patches: int) -> Int64Array:
    """Give every empty cluster one node, that of the largest cluster with the fewest neighbours inside it."""
    sizes = np.bincount(labels, minlength=n_patches)
    for empty in np.flatnonzero(sizes == 0):
        nodes = np.flatnonzero(labels == sizes.argmax())
        node = nodes[graph.subgraph(nodes).degrees.argmin()]
        sizes[labels[node]] -= 1
        sizes[empty] = 1
        labels[node] = empty
    return labels
