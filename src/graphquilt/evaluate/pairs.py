"""Pairs of nodes to measure an embedding with: all edges, samples of edges and non-edges, and held-out edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import BoolArray, Int64Array
from graphquilt.errors import InputError
from graphquilt.graph import Graph

Sampler = Callable[[int], Int64Array]  # takes about how many pairs are missing
_COUNTED = 1 << 22  # count loops in graphs with at most this many entries
_LISTED = 1 << 23  # list all non-edges, instead of sampling, among at most this many pairs of nodes


def hold_out_edges(
    graph: Graph, *, fraction: float = 0.1, seed: int, connected: bool = True
) -> tuple[Graph, Int64Array]:
    """Hold out a fraction of the edges of an undirected graph without disconnecting it, or isolating a node.

    Returns the graph without them, with the same nodes, features and labels, and the held-out edges (k, 2), i < j.

    Parameters
    ----------
    connected : bool
        Keep a random spanning forest, which preserves the components. False keeps only one random edge of every node,
        for graphs that are almost trees.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> cycle = Graph(sp.csr_array(np.roll(np.eye(5), 1, axis=0) + np.roll(np.eye(5), -1, axis=0)))
    >>> rest, held = hold_out_edges(cycle, fraction=0.2, seed=0)
    >>> rest.n_edges, len(held)
    (4, 1)
    """
    if graph.directed:
        raise InputError("edges can be held out of undirected graphs only; make this graph undirected first.")
    if not 0 < fraction < 1:
        raise InputError(f"the fraction of edges to hold out must be between 0 and 1, not {fraction}.")
    edges = np.concatenate(list(edge_blocks(graph)))
    rng = np.random.default_rng(seed)
    needed = (_spanning_forest if connected else _one_edge_each)(edges, graph.n_nodes, rng)
    free = np.setdiff1d(np.arange(len(edges)), needed, assume_unique=True)
    count = max(1, round(fraction * len(edges)))
    if count > len(free):
        raise InputError(
            f"{count} of {len(edges)} edges are to be held out, but only {len(free)} can be removed without "
            f"{'disconnecting the graph' if connected else 'isolating a node'}; ask for a fraction of at most "
            f"{len(free) / max(len(edges), 1):.3f}{', or pass connected=False' if connected else ''}."
        )
    held = edges[np.sort(rng.choice(free, count, replace=False))]
    return _without(graph, held), held


def _without(graph: Graph, held: Int64Array) -> Graph:
    """Return the graph without some of its edges, i < j; entries are in ascending order, which is used to find them."""
    n = graph.n_nodes
    keys = np.repeat(np.arange(n, dtype=np.int64) * n, graph.degrees)
    keys += graph.indices
    kept = np.ones(graph.n_entries, dtype=np.bool_)
    kept[np.searchsorted(keys, np.concatenate([held @ [n, 1], held @ [1, n]]))] = False
    del keys
    indptr = graph.indptr.astype(np.int64)
    indptr -= np.bincount(np.searchsorted(graph.indptr, np.flatnonzero(~kept), side="right"), minlength=n + 1).cumsum()
    weights = None if graph.weights is None else graph.weights[kept]
    rest = Graph.from_arrays(indptr, graph.indices[kept], weights)
    return rest.with_attributes(features=graph.features, labels=graph.labels, node_ids=graph.node_ids)


def _spanning_forest(edges: Int64Array, n_nodes: int, rng: np.random.Generator) -> Int64Array:
    """Return the rows of the edges of a random spanning forest."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    order = rng.permutation(len(edges)) + 1.0  # distinct random weights: a random forest
    tree = minimum_spanning_tree(sp.csr_array((order, tuple(edges.T.astype(np.int32))), shape=(n_nodes, n_nodes)))
    return np.asarray(np.argsort(order)[np.rint(tree.data).astype(np.int64) - 1])


def _one_edge_each(edges: Int64Array, n_nodes: int, rng: np.random.Generator) -> Int64Array:
    """Return rows of edges that contain a random edge of every node: the first of each in a random order."""
    rank = rng.permutation(len(edges))
    first = np.full(n_nodes, len(edges))
    for ends in edges.T:
        np.minimum.at(first, ends, rank)
    return np.asarray(np.argsort(rank)[np.unique(first[first < len(edges)])])


def sample_non_edges(graph: Graph, count: int, *, seed: int | np.random.Generator) -> Int64Array:
    """Sample ``count`` distinct pairs of nodes that no edge joins, (k, 2), or return all if there are fewer.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> sample_non_edges(path, 5, seed=0).tolist()
    [[0, 2]]
    """
    rng = np.random.default_rng(seed)
    n = graph.n_nodes
    pairs = n * (n - 1) // (1 if graph.directed else 2)
    left = pairs - count_pairs(graph, exact=graph.n_entries > pairs // 8)
    if left <= 0:
        raise InputError(f"all {pairs} pairs of the graph's {n} nodes are joined; it has no non-edges to compare with.")
    if pairs <= _LISTED and min(count, left) > left // 4:
        joined = graph.adjacency.astype(bool).toarray()
        np.fill_diagonal(joined, True)
        free = np.argwhere(~joined if graph.directed else np.triu(~joined))
        return free[rng.permutation(len(free))[:count]]

    def sample(missing: int) -> Int64Array:
        i, j = rng.integers(0, n, size=(2, min(int(missing * pairs / left * 1.05) + 64, 1 << 22)))
        if not graph.directed:
            i, j = np.minimum(i, j), np.maximum(i, j)
        keys = np.sort((i * n + j)[i != j])  # in order: memory is then read in order
        found = np.column_stack(np.divmod(keys, n))
        return np.asarray(found[~are_joined(graph, found)])

    return _sample_distinct(sample, min(count, left), n, rng)


def _sample_distinct(sample: Sampler, count: int, n_nodes: int, rng: np.random.Generator) -> Int64Array:
    """Return ``count`` distinct pairs, ascending."""
    keys = np.empty(0, dtype=np.int64)
    while len(keys) < count:
        keys = np.sort(np.concatenate([keys, sample(count - len(keys)) @ [n_nodes, 1]]))
        keys = keys[np.diff(keys, prepend=-1) != 0]  # several times faster than numpy.unique, which hashes
    extra = rng.choice(len(keys), len(keys) - count, replace=False)
    return np.column_stack(np.divmod(np.delete(keys, extra), n_nodes))


def are_joined(graph: Graph, pairs: Int64Array) -> BoolArray:
    """Return which pairs are edges, (k,), by one binary search in all rows at once."""
    if graph.n_entries == 0:
        return np.zeros(len(pairs), dtype=np.bool_)
    low = graph.indptr[pairs[:, 0]].astype(np.int64)
    end = graph.indptr[pairs[:, 0] + 1].astype(np.int64)
    high = end.copy()
    target = pairs[:, 1]
    for _ in range(int(np.max(high - low, initial=0)).bit_length()):
        middle = (low + high) >> 1
        right = (low < high) & (graph.indices[np.minimum(middle, end - 1)] < target)
        low, high = np.where(right, middle + 1, low), np.where(right | (low >= high), high, middle)
    inside = low < end
    return np.asarray(inside & (graph.indices[np.where(inside, low, 0)] == target))


def _entries(graph: Graph, step: int = 1 << 19) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Yield rows and columns of all entries, half a million at a time."""
    for start in range(0, graph.n_entries, step):
        stop = min(start + step, graph.n_entries)
        first = int(np.searchsorted(graph.indptr, start, side="right")) - 1
        last = int(np.searchsorted(graph.indptr, stop, side="left"))
        ends = np.clip(np.asarray(graph.indptr[first : last + 1], dtype=np.int64), start, stop)
        yield np.repeat(np.arange(first, last), np.diff(ends)), np.asarray(graph.indices[start:stop], dtype=np.int64)


def edge_blocks(graph: Graph) -> Iterator[Int64Array]:
    """Yield the edges without loops, (k, 2); each undirected edge once, i < j."""
    for rows, columns in _entries(graph):
        keep = rows != columns if graph.directed else rows < columns
        yield np.column_stack([rows[keep], columns[keep]])
    if graph.n_entries == 0:
        yield np.empty((0, 2), dtype=np.int64)


def count_pairs(graph: Graph, *, exact: bool) -> int:
    """Count the edges without loops, an undirected edge once.

    Finding loops means reading all edges. Unless ``exact``, loops of a large graph are not subtracted.
    """
    loops = 0
    if exact or graph.n_entries <= _COUNTED:
        loops = sum(int(np.count_nonzero(rows == columns)) for rows, columns in _entries(graph))
    return graph.n_entries - loops if graph.directed else (graph.n_entries - loops) // 2


def sample_edges(graph: Graph, count: int, rng: np.random.Generator) -> Int64Array:
    """Sample ``count`` distinct edges, (count, 2), from a graph that has more."""

    def sample(missing: int) -> Int64Array:
        entries = np.sort(rng.integers(0, graph.n_entries, size=int(missing * 1.2) + 64))
        i = np.searchsorted(graph.indptr, entries, side="right") - 1
        j = np.asarray(graph.indices[entries], dtype=np.int64)
        low, high = (i, j) if graph.directed else (np.minimum(i, j), np.maximum(i, j))
        return np.column_stack([low[i != j], high[i != j]])

    return _sample_distinct(sample, count, graph.n_nodes, rng)
