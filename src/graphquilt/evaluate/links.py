"""Reconstruction and prediction of edges: edges are ranked against true non-edges by the positions of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import BoolArray, FloatArray, Int64Array, refuse_masked
from graphquilt.errors import InputError
from graphquilt.evaluate.checks import checked_embedding
from graphquilt.graph import Graph
from graphquilt.linalg.ranking import roc_auc

__all__ = [
    "LinkQuality",
    "Score",
    "cosine",
    "hold_out_edges",
    "inner_product",
    "link_prediction_auc",
    "link_quality",
    "negative_distance",
    "reconstruction_auc",
    "sample_non_edges",
]

Score = Callable[[FloatArray, FloatArray], FloatArray]

_PAIRS = 1 << 10  # pairs scored at a time: both blocks of rows fit into the cache at d = 128
_EXACT = 1 << 25  # up to this many scores the ranks are exact; above, scores are counted in bins
_COUNTED = 1 << 22  # up to this many entries, loops are always counted
_LISTED = 1 << 23  # up to this many pairs of nodes, all non-edges are listed instead of sampled


def inner_product(A: FloatArray, B: FloatArray) -> FloatArray:
    """Score pairs of rows by their inner product, (k,): the decoder of VGAE and the score of the paper."""
    return np.asarray(np.einsum("ij,ij->i", A, B))


def cosine(A: FloatArray, B: FloatArray) -> FloatArray:
    """Score pairs of rows by the cosine of their angle at the origin, (k,); 0 where a row is zero."""
    lengths = np.sqrt(np.einsum("ij,ij->i", A, A) * np.einsum("ij,ij->i", B, B))
    return np.asarray(np.divide(inner_product(A, B), lengths, out=np.zeros_like(lengths), where=lengths > 0))


def negative_distance(A: FloatArray, B: FloatArray) -> FloatArray:
    """Score pairs of rows by minus their squared distance, (k,); unlike the inner product it ignores the origin."""
    D = A - B
    return np.asarray(-np.einsum("ij,ij->i", D, D))


def reconstruction_auc(
    X: npt.ArrayLike, graph: Graph, *, seed: int, max_edges: int | None = None, score: Score = inner_product
) -> float:
    """Return the ROC AUC of the graph's edges against as many of its non-edges.

    This is the reconstruction of the paper, of edges seen in training; for others see :func:`link_prediction_auc`.

    Parameters
    ----------
    X : array (n, d)
        A memory map is read in blocks.
    graph : Graph
        An undirected edge counts once; loops are left out.
    seed : int
        Seed of the non-edges, and of the sample of edges where there is one.
    max_edges : int, optional
        Use a random sample of this many edges at most. None means all edges.
    score : callable
        Computes scores (k,) from two arrays (k, d): :func:`inner_product` or :func:`negative_distance`.

    Notes
    -----
    Up to 33 million scores the ranks are exact. Above that, scores are counted in the 2²⁴ bins of their first 24
    bits as float32, in constant memory; two scores in one bin count as a tie.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> reconstruction_auc(np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]), path, seed=0)
    1.0
    """
    X = checked_embedding(X, graph.n_nodes)
    rng = np.random.default_rng(seed)
    total = _count_pairs(graph, exact=max_edges is None or max_edges > graph.n_edges // 8)
    if total == 0:
        raise InputError(f"the graph has {graph.n_nodes} nodes and no edge, so there is nothing to reconstruct.")
    if max_edges is not None and max_edges < 1:
        raise InputError(f"max_edges is {max_edges}; at least one edge is needed.")
    count = total if max_edges is None else min(max_edges, total)
    if count > _EXACT // 2 and count == total:
        return _auc(X, _edge_blocks(graph), _non_edge_blocks(graph, total, rng), total, score)
    if count > total // 2:  # most of them: list all and leave some out
        edges = np.concatenate(list(_edge_blocks(graph)))
        edges = edges if count == total else edges[np.sort(rng.choice(total, count, replace=False))]
    else:
        edges = _sample_edges(graph, count, rng)
    return _auc(X, [edges], [sample_non_edges(graph, count, seed=rng)], count, score)


def link_prediction_auc(
    X: npt.ArrayLike, held_out: npt.ArrayLike, graph: Graph, *, seed: int, score: Score = inner_product
) -> float:
    """Return the ROC AUC of edges that were held out of the embedding against as many non-edges.

    Parameters
    ----------
    X : array (n, d)
        An embedding of the graph without the held-out edges.
    held_out : int array (k, 2)
        See :func:`hold_out_edges`.
    graph : Graph
        The whole graph with the held-out edges: none of its edges is used as a non-edge.
    seed, score
        See :func:`reconstruction_auc`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> link_prediction_auc(np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]), [[0, 1]], path, seed=0)
    1.0
    """
    X = checked_embedding(X, graph.n_nodes)
    edges = _checked_pairs(held_out, graph)
    return _auc(X, [edges], [sample_non_edges(graph, len(edges), seed=seed)], len(edges), score)


@dataclass(frozen=True)
class LinkQuality:
    """How well an embedding predicts edges that it was not trained on: the ROC AUC by two scores.

    Attributes
    ----------
    cosine : float
        By the angle of two nodes. Lengths, which often grow with the degree, do not count.
    inner_product : float
        By the score of the paper.
    """

    cosine: float
    inner_product: float


def link_quality(X: npt.ArrayLike, held_out: npt.ArrayLike, graph: Graph, *, seed: int) -> LinkQuality:
    """Return the ROC AUC of held-out edges by cosine and by inner product, against the same non-edges.

    Both are invariant under rotation. Neither is under translation, because the origin has a meaning for both.

    Parameters
    ----------
    X, held_out, graph, seed
        See :func:`link_prediction_auc`. The memory depends on the number of held-out edges, not on that of all edges.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> link_quality(np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]), [[0, 1]], path, seed=0)
    LinkQuality(cosine=1.0, inner_product=1.0)
    """
    X = checked_embedding(X, graph.n_nodes)
    edges = _checked_pairs(held_out, graph)
    others = sample_non_edges(graph, len(edges), seed=seed)
    return LinkQuality(*(_auc(X, [edges], [others], len(edges), score) for score in (cosine, inner_product)))


def _checked_pairs(held_out: npt.ArrayLike, graph: Graph) -> Int64Array:
    """Return held-out edges as an int array (k, 2), or refuse them."""
    refuse_masked(held_out_edges=held_out)
    edges = np.asarray(held_out, dtype=np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2 or len(edges) == 0:
        raise InputError(f"held-out edges are pairs of nodes, one row each; this has shape {edges.shape}.")
    if edges.min() < 0 or edges.max() >= graph.n_nodes:
        raise InputError(
            f"held-out edges name nodes {edges.min()} to {edges.max()}; the graph has 0 to {graph.n_nodes - 1}."
        )
    return edges


def hold_out_edges(
    graph: Graph, *, fraction: float = 0.1, seed: int, connected: bool = True
) -> tuple[Graph, Int64Array]:
    """Remove some edges for testing without disconnecting the graph, or at least without isolating a node.

    Parameters
    ----------
    graph : Graph
        Undirected.
    fraction : float
        Share of the edges to hold out.
    seed : int
    connected : bool
        Keep a random spanning forest, so that the components stay as they are; the held-out edges are a sample of the
        others. False keeps one random edge of every node instead, which is possible where a graph is almost a tree.

    Returns
    -------
    Graph
        The graph without them, with the same nodes, features and labels.
    int array (k, 2)
        The held-out edges, i < j.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> cycle = Graph(sp.csr_array(np.roll(np.eye(5), 1, axis=0) + np.roll(np.eye(5), -1, axis=0)))
    >>> rest, held = hold_out_edges(cycle, fraction=0.2, seed=0)
    >>> rest.n_edges, len(held)
    (8, 1)
    """
    if graph.directed:
        raise InputError("edges are held out of an undirected graph; make this one undirected first.")
    if not 0 < fraction < 1:
        raise InputError(f"the fraction of edges to hold out lies between 0 and 1; it is {fraction}.")
    edges = np.concatenate(list(_edge_blocks(graph)))
    rng = np.random.default_rng(seed)
    n = graph.n_nodes
    free = np.setdiff1d(np.arange(len(edges)), (_forest if connected else _one_edge_each)(edges, n, rng))
    count = max(1, round(fraction * len(edges)))
    if count > len(free):
        raise InputError(
            f"{count} of {len(edges)} edges are to be held out, but only {len(free)} can be removed without "
            f"{'disconnecting the graph' if connected else 'isolating a node'}; ask for a fraction of at most "
            f"{len(free) / max(len(edges), 1):.3f}{', or pass connected=False' if connected else ''}."
        )
    held = edges[np.sort(rng.choice(free, count, replace=False))]
    removed = sp.csr_array((np.ones(2 * count), (held.ravel(), held[:, ::-1].ravel())), shape=(n, n))
    A = graph.adjacency
    return Graph(A - A.multiply(removed), graph.features, labels=graph.labels, node_ids=graph.node_ids), held


def _forest(edges: Int64Array, n_nodes: int, rng: np.random.Generator) -> Int64Array:
    """Return the rows of the edges of a random spanning forest."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    order = rng.permutation(len(edges)) + 1.0  # distinct random weights: a random forest
    tree = minimum_spanning_tree(sp.csr_array((order, (edges[:, 0], edges[:, 1])), shape=(n_nodes, n_nodes)))
    return np.asarray(np.argsort(order)[np.rint(tree.data).astype(np.int64) - 1])


def _one_edge_each(edges: Int64Array, n_nodes: int, rng: np.random.Generator) -> Int64Array:
    """Return rows of edges that contain a random edge of every node: the first of each in a random order."""
    rank = rng.permutation(len(edges))
    first = np.full(n_nodes, len(edges))
    for ends in edges.T:
        np.minimum.at(first, ends, rank)
    return np.asarray(np.argsort(rank)[np.unique(first[first < len(edges)])])


def sample_non_edges(graph: Graph, count: int, *, seed: int | np.random.Generator) -> Int64Array:
    """Sample distinct pairs of nodes that are not joined, (k, 2): ``count`` of them, or all if there are fewer.

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
    left = pairs - _count_pairs(graph, exact=graph.n_edges > pairs // 8)
    if left <= 0:
        raise InputError(
            f"the graph has {n} nodes and all {pairs} pairs of them are joined: no non-edge is left to compare with."
        )
    if pairs <= _LISTED and min(count, left) > left // 4:
        joined = graph.adjacency.astype(bool).toarray()
        np.fill_diagonal(joined, True)
        free = np.argwhere(~joined if graph.directed else np.triu(~joined))
        return free[rng.permutation(len(free))[:count]]

    def sample(missing: int) -> Int64Array:
        return _sample_with_replacement(graph, min(int(missing * pairs / left * 1.05) + 64, 1 << 22), rng)

    return _sample_distinct(sample, min(count, left), n, rng)


def _sample_distinct(
    sample: Callable[[int], Int64Array], count: int, n_nodes: int, rng: np.random.Generator
) -> Int64Array:
    """Return ``count`` distinct pairs, ascending; ``sample`` returns some more when told how many are missing."""
    keys = np.empty(0, dtype=np.int64)
    while len(keys) < count:
        keys = np.sort(np.concatenate([keys, sample(count - len(keys)) @ [n_nodes, 1]]))
        keys = keys[np.diff(keys, prepend=-1) != 0]  # several times faster than numpy.unique, which hashes
    extra = rng.choice(len(keys), len(keys) - count, replace=False)
    return np.column_stack(np.divmod(np.delete(keys, extra), n_nodes))


def _sample_with_replacement(graph: Graph, count: int, rng: np.random.Generator) -> Int64Array:
    """Sample pairs and return those that are neither loops nor edges, ascending, (at most count, 2)."""
    i, j = rng.integers(0, graph.n_nodes, size=(2, count))
    if not graph.directed:
        i, j = np.minimum(i, j), np.maximum(i, j)
    keys = np.sort((i * graph.n_nodes + j)[i != j])  # in order, so that memory is read in order
    pairs = np.column_stack(np.divmod(keys, graph.n_nodes))
    return np.asarray(pairs[~_joined(graph, pairs)])


def _non_edge_blocks(graph: Graph, count: int, rng: np.random.Generator) -> Iterator[Int64Array]:
    """Yield non-edges sampled with replacement, for counts that do not fit into memory to find repetitions."""
    while count > 0:
        block = _sample_with_replacement(graph, 1 << 20, rng)
        if len(block) > count:
            block = block[rng.choice(len(block), count, replace=False)]
        count -= len(block)
        yield block


def _joined(graph: Graph, pairs: Int64Array) -> BoolArray:
    """Return which pairs are edges, (k,), by one binary search in all rows at once that reads few entries."""
    if graph.n_edges == 0:
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


def _entries(graph: Graph) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Yield rows and columns of all entries, half a million at a time."""
    step = 1 << 19
    for start in range(0, graph.n_edges, step):
        stop = min(start + step, graph.n_edges)
        first = int(np.searchsorted(graph.indptr, start, side="right")) - 1
        last = int(np.searchsorted(graph.indptr, stop, side="left"))
        ends = np.clip(np.asarray(graph.indptr[first : last + 1], dtype=np.int64), start, stop)
        yield np.repeat(np.arange(first, last), np.diff(ends)), np.asarray(graph.indices[start:stop], dtype=np.int64)


def _edge_blocks(graph: Graph) -> Iterator[Int64Array]:
    """Yield the edges without loops, (k, 2); each undirected edge once, i < j."""
    for rows, columns in _entries(graph):
        keep = rows != columns if graph.directed else rows < columns
        yield np.column_stack([rows[keep], columns[keep]])
    if graph.n_edges == 0:
        yield np.empty((0, 2), dtype=np.int64)


def _count_pairs(graph: Graph, *, exact: bool) -> int:
    """Count the edges without loops; an undirected edge once.

    Loops can be found only by reading all edges. Where the count need not be ``exact``, because samples are small
    beside it, those of a large graph are not looked for.
    """
    loops = 0
    if exact or graph.n_edges <= _COUNTED:
        loops = sum(int(np.count_nonzero(rows == columns)) for rows, columns in _entries(graph))
    return graph.n_edges - loops if graph.directed else (graph.n_edges - loops) // 2


def _sample_edges(graph: Graph, count: int, rng: np.random.Generator) -> Int64Array:
    """Sample ``count`` distinct edges, (count, 2), from a graph that has more."""

    def sample(missing: int) -> Int64Array:
        entries = np.sort(rng.integers(0, graph.n_edges, size=int(missing * 1.2) + 64))
        i = np.searchsorted(graph.indptr, entries, side="right") - 1
        j = np.asarray(graph.indices[entries], dtype=np.int64)
        low, high = (i, j) if graph.directed else (np.minimum(i, j), np.maximum(i, j))
        return np.column_stack([low[i != j], high[i != j]])

    return _sample_distinct(sample, count, graph.n_nodes, rng)


def _scores(X: FloatArray, pairs: Int64Array, score: Score) -> FloatArray:
    dtype = np.promote_types(X.dtype, np.float32)  # half precision is for storage, not for sums
    blocks = np.split(pairs, range(_PAIRS, len(pairs), _PAIRS))
    return np.concatenate([score(*(X[ends].astype(dtype, copy=False) for ends in block.T)) for block in blocks])


def _auc(
    X: FloatArray, positive: Iterable[Int64Array], negative: Iterable[Int64Array], count: int, score: Score
) -> float:
    if 2 * count <= _EXACT:
        return roc_auc(*(np.concatenate([_scores(X, block, score) for block in side]) for side in (positive, negative)))
    a, b = (_histogram(_scores(X, block, score) for block in side) for side in (positive, negative))
    below = np.cumsum(b) - b
    return float(np.sum(a * (below + 0.5 * b), dtype=np.float64) / (float(a.sum()) * float(b.sum())))


def _histogram(blocks: Iterable[FloatArray]) -> Int64Array:
    """Count float32 scores by their first 24 bits, in the order of the numbers, (2²⁴,)."""
    counts = np.zeros(1 << 24, dtype=np.int64)
    for block in blocks:
        bits = (np.asarray(block, dtype=np.float32) + np.float32(0)).view(np.uint32)  # adding 0 turns -0 into 0
        # Read as integers, negative floats run backwards: flip all their bits, and set the sign bit of the others.
        ordered = np.where(bits >> 31 == 1, ~bits, bits | np.uint32(1 << 31)) >> np.uint32(8)
        counts += np.bincount(ordered, minlength=1 << 24)
    return counts
