"""Reconstruction and prediction of edges: rank edges against true non-edges by the positions of their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import FloatArray, Int64Array, refuse_masked
from graphquilt.errors import InputError
from graphquilt.evaluate.pairs import count_pairs, edge_blocks, non_edge_blocks, sample_edges, sample_non_edges
from graphquilt.evaluate.positions import checked_embedding
from graphquilt.graph import Graph
from graphquilt.linalg import roc_auc

Score = Callable[[FloatArray, FloatArray], FloatArray]

_PAIRS = 1 << 10  # pairs scored at a time: both blocks of rows fit into the cache at d = 128
_EXACT = 1 << 25  # up to this many scores the ranks are exact; above, scores are counted in bins


def inner_product(A: FloatArray, B: FloatArray) -> FloatArray:
    """Score pairs of rows by their inner product, (k,): the decoder of VGAE and the score of the paper."""
    return np.asarray(np.einsum("ij,ij->i", A, B))


def cosine(A: FloatArray, B: FloatArray) -> FloatArray:
    """Score pairs of rows by the cosine of their angle at the origin, (k,); 0 if a row is zero."""
    lengths = np.sqrt(np.einsum("ij,ij->i", A, A) * np.einsum("ij,ij->i", B, B))
    return np.asarray(np.divide(inner_product(A, B), lengths, out=np.zeros_like(lengths), where=lengths > 0))


def negative_distance(A: FloatArray, B: FloatArray) -> FloatArray:
    """Score pairs of rows by minus their squared distance, (k,); unlike the inner product it ignores the origin."""
    D = A - B
    return np.asarray(-np.einsum("ij,ij->i", D, D))


def reconstruction_auc(
    X: npt.ArrayLike, graph: Graph, *, seed: int, max_edges: int | None = None, score: Score = inner_product
) -> float:
    """Return the ROC AUC of the graph's edges against the same number of non-edges.

    This is the paper's reconstruction of edges seen in training; for unseen edges see :func:`link_prediction_auc`.

    Parameters
    ----------
    X : array (n, d)
        A memory map is read in blocks.
    graph : Graph
        An undirected edge counts once; loops are left out.
    seed : int
        Seed of the non-edges and of the sample of edges.
    max_edges : int, optional
        Use a random sample of at most this many edges. None uses all.
    score : callable
        Computes scores (k,) from two arrays (k, d): :func:`inner_product`, :func:`cosine`, :func:`negative_distance`.

    Notes
    -----
    Up to 33 million scores are ranked exactly. More are counted in 2²⁴ bins by their first 24 bits as float32, in
    constant memory; two scores in one bin count as a tie.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> reconstruction_auc(np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]), path, seed=0)
    1.0
    """
    X = checked_embedding(X, graph.n_nodes)
    rng = np.random.default_rng(seed)
    total = count_pairs(graph, exact=max_edges is None or max_edges > graph.n_entries // 8)
    if total == 0:
        raise InputError(f"the graph has {graph.n_nodes} nodes and no edge to reconstruct.")
    if max_edges is not None and max_edges < 1:
        raise InputError(f"max_edges must be at least 1, not {max_edges}.")
    count = total if max_edges is None else min(max_edges, total)
    if count > _EXACT // 2 and count == total:
        return _auc(X, edge_blocks(graph), non_edge_blocks(graph, total, rng), total, score)
    if count > total // 2:  # most of them: list all and leave some out
        edges = np.concatenate(list(edge_blocks(graph)))
        edges = edges if count == total else edges[np.sort(rng.choice(total, count, replace=False))]
    else:
        edges = sample_edges(graph, count, rng)
    return _auc(X, [edges], [sample_non_edges(graph, count, seed=rng)], count, score)


def link_prediction_auc(
    X: npt.ArrayLike, held_out: npt.ArrayLike, graph: Graph, *, seed: int, score: Score = inner_product
) -> float:
    """Return the ROC AUC of edges that were held out of the embedding against the same number of non-edges.

    Parameters
    ----------
    X : array (n, d)
        An embedding of the graph without the held-out edges.
    held_out : int array (k, 2)
        See :func:`hold_out_edges`.
    graph : Graph
        The whole graph with the held-out edges; none of its edges is used as a non-edge.
    seed, score
        See :func:`reconstruction_auc`.

    Examples
    --------
    >>> import scipy.sparse as sp
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

    The inner product is the paper's score. The cosine ignores lengths, which often grow with the degree.
    """

    cosine: float
    inner_product: float


def link_quality(X: npt.ArrayLike, held_out: npt.ArrayLike, graph: Graph, *, seed: int) -> LinkQuality:
    """Return the ROC AUC of held-out edges by cosine and by inner product, against the same non-edges.

    See :func:`link_prediction_auc` for the parameters. Both scores are invariant under rotation and depend on the
    origin. The memory needed grows with the number of held-out edges, not of all edges.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> link_quality(np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]), [[0, 1]], path, seed=0)
    LinkQuality(cosine=1.0, inner_product=1.0)
    """
    X = checked_embedding(X, graph.n_nodes)
    edges = _checked_pairs(held_out, graph)
    others = sample_non_edges(graph, len(edges), seed=seed)
    return LinkQuality(*(_auc(X, [edges], [others], len(edges), score) for score in (cosine, inner_product)))


def _checked_pairs(held_out: npt.ArrayLike, graph: Graph) -> Int64Array:
    """Return held-out edges as an int array (k, 2), or raise."""
    refuse_masked(held_out_edges=held_out)
    edges = np.asarray(held_out, dtype=np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2 or len(edges) == 0:
        raise InputError(f"held-out edges must be pairs of nodes, (k, 2); their shape is {edges.shape}.")
    if edges.min() < 0 or edges.max() >= graph.n_nodes:
        raise InputError(
            f"held-out edges name nodes {edges.min()} to {edges.max()}; the graph has 0 to {graph.n_nodes - 1}."
        )
    return edges


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
