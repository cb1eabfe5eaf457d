"""Reconstruction and prediction of edges: rank edges against true non-edges by the positions of their nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from graphquilt.arrays import FloatArray, Int64Array, refuse_masked
from graphquilt.errors import InputError
from graphquilt.evaluate.pairs import are_joined, count_pairs, edge_blocks, sample_edges, sample_non_edges
from graphquilt.evaluate.positions import checked_embedding
from graphquilt.graph import Graph
from graphquilt.linalg.ranking import average_precision, hits_at, mean_reciprocal_rank, roc_auc

Score = Callable[[FloatArray, FloatArray], FloatArray]
PairScore = Callable[[Int64Array], FloatArray]

_PAIRS = 1 << 10  # pairs scored at a time: both blocks of rows fit into the cache at d = 128
_NON_EDGES = 100_000  # of Hits@50, as in the Open Graph Benchmark
_RANKED, _OTHERS = 2000, 100  # edges of the mean reciprocal rank, and other partners of their first node
_SAMPLE = 10_000  # edges whose reconstruction is ranked
_MOST = 1 << 24  # edges that are ranked at once; of more, a sample


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


def source_target(A: FloatArray, B: FloatArray) -> FloatArray:
    """Score directed pairs of rows, (k,): the first half of the source's columns times the second of the target's.

    This is the score of links of ``Propagation(directed=True)``.

    Examples
    --------
    >>> one, other = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    >>> source_target(one, other).tolist(), source_target(other, one).tolist()
    ([1.0], [0.0])
    """
    half = A.shape[1] // 2
    return inner_product(A[:, :half], B[:, half:])


def reconstruction_auc(
    X: ArrayLike, graph: Graph, *, seed: int, max_edges: int | None = None, score: Score = inner_product
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
        Use a random sample of at most this many edges. None uses all, or a sample of 2²⁴ if there are more.
    score : callable
        Computes scores (k,) from two arrays (k, d): :func:`inner_product`, :func:`cosine`, :func:`negative_distance`.

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
    count = min(_MOST if max_edges is None else max_edges, total)
    if count > total // 2:  # most of them: list all and leave some out
        edges = np.concatenate(list(edge_blocks(graph)))
        edges = edges if count == total else edges[np.sort(rng.choice(total, count, replace=False))]
    else:
        edges = sample_edges(graph, count, rng)
    return roc_auc(_scores(X, edges, score), _scores(X, sample_non_edges(graph, count, seed=rng), score))


def link_prediction_auc(
    X: ArrayLike, held_out: ArrayLike, graph: Graph, *, seed: int, score: Score = inner_product
) -> float:
    """Return the ROC AUC of edges that were held out of the embedding against the same number of non-edges.

    ``X`` (n, d) embeds the graph without the edges ``held_out`` (k, 2), see :func:`hold_out_edges`; ``graph`` has them,
    and none of its edges is used as a non-edge. See :func:`reconstruction_auc` for the seed and the score.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> link_prediction_auc(np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]), [[0, 1]], path, seed=0)
    1.0
    """
    X, edges = checked_embedding(X, graph.n_nodes), _checked_pairs(held_out, graph)
    return roc_auc(_scores(X, edges, score), _scores(X, sample_non_edges(graph, len(edges), seed=seed), score))


@dataclass(frozen=True)
class LinkRanking:
    """How a score ranks edges against non-edges.

    Attributes
    ----------
    auc, precision : float
        ROC AUC and average precision against as many non-edges.
    hits : float
        Hits@50: the share of edges above the 50th best of 100 000 non-edges.
    mrr : float
        Mean reciprocal rank of an edge among 100 random partners of its first node, of at most 2000 edges.
    """

    auc: float
    precision: float
    hits: float
    mrr: float


def rank_links(score: PairScore, held_out: ArrayLike, graph: Graph, *, seed: int) -> LinkRanking:
    """Return how a score of pairs, (k, 2) to (k,), ranks edges; the seed decides the non-edges, equal for every score.

    See :func:`link_prediction_auc` for the other parameters. Hits@K is that of fewer non-edges if there are not enough,
    and K then the same share of them.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> rank_links(lambda pairs: -np.abs(pairs[:, 0] - pairs[:, 1]), [[0, 1]], path, seed=0)
    LinkRanking(auc=1.0, precision=1.0, hits=1.0, mrr=1.0)
    """
    edges = _checked_pairs(held_out, graph)
    positive, negative = score(edges), score(sample_non_edges(graph, len(edges), seed=seed))
    hits, mrr = _hits_and_mrr(score, edges, graph, seed)
    return LinkRanking(roc_auc(positive, negative), average_precision(positive, negative), hits, mrr)


def _hits_and_mrr(score: PairScore, edges: Int64Array, graph: Graph, seed: int) -> tuple[float, float]:
    non_edges = sample_non_edges(graph, _NON_EDGES, seed=seed)
    hits = hits_at(score(edges), score(non_edges), max(1, round(50 * len(non_edges) / _NON_EDGES)))
    rng = np.random.default_rng(seed)
    ranked = edges[rng.permutation(len(edges))[:_RANKED]]
    ranked = np.where(rng.random(len(ranked))[:, None] < 0.5, ranked, ranked[:, ::-1])
    partners = np.random.default_rng(seed).integers(0, graph.n_nodes, size=len(ranked) * _OTHERS)
    others = np.column_stack([np.repeat(ranked[:, 0], _OTHERS), partners])
    usable = ~are_joined(graph, others) & (others[:, 0] != others[:, 1])
    scores = np.where(usable, score(others), -np.inf).reshape(len(ranked), -1)
    return hits, mean_reciprocal_rank(score(ranked), scores)


def reconstruction_ranks(X: ArrayLike, graph: Graph, *, seed: int, score: Score) -> tuple[float, float]:
    """Return Hits@50 and the mean reciprocal rank of at most 10 000 edges of the graph; see :class:`LinkRanking`."""
    X = checked_embedding(X, graph.n_nodes)
    rng = np.random.default_rng(seed)
    few = count_pairs(graph, exact=False) <= 2 * _SAMPLE
    edges = np.concatenate(list(edge_blocks(graph))) if few else sample_edges(graph, _SAMPLE, rng)
    return _hits_and_mrr(lambda pairs: _scores(X, pairs, score), rng.permutation(edges)[:_SAMPLE], graph, seed)


def link_quality(X: ArrayLike, held_out: ArrayLike, graph: Graph, *, seed: int, score: Score = cosine) -> LinkRanking:
    """Return how well an embedding predicts held-out edges, by default by the cosine, which ignores lengths.

    See :func:`link_prediction_auc` for the parameters. The memory needed grows with the number of held-out edges only.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> link_quality(np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]), [[0, 1]], path, seed=0)
    LinkRanking(auc=1.0, precision=1.0, hits=1.0, mrr=1.0)
    """
    X = checked_embedding(X, graph.n_nodes)
    return rank_links(lambda pairs: _scores(X, pairs, score), held_out, graph, seed=seed)


def _checked_pairs(held_out: ArrayLike, graph: Graph) -> Int64Array:
    """Return held-out edges as an int array (k, 2), or raise."""
    refuse_masked(held_out_edges=held_out)
    edges = np.asarray(held_out, dtype=np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2 or len(edges) == 0:
        raise InputError(f"held-out edges must be pairs of nodes, (k, 2); their shape is {edges.shape}.")
    if edges.min() < 0 or edges.max() >= graph.n_nodes:
        raise InputError(f"held-out edges name nodes {edges.min()} to {edges.max()}, of 0 to {graph.n_nodes - 1}.")
    return edges


def _scores(X: FloatArray, pairs: Int64Array, score: Score) -> FloatArray:
    dtype = np.promote_types(X.dtype, np.float32)  # half precision is for storage, not for sums
    blocks = np.split(pairs, range(_PAIRS, len(pairs), _PAIRS))
    return np.concatenate([score(*(X[ends].astype(dtype, copy=False) for ends in block.T)) for block in blocks])
