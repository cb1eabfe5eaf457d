"""Direction: two rows per node, as a source and as a target, in patches as on the whole graph."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from graphquilt.embedders.walks import double_cover
from graphquilt.evaluate import EvaluationOptions, source_target

BLOCKS, SIZE = 12, 50


def ring_of_blocks(seed=0):
    """A directed graph: nodes of block b point at nodes of block b + 1, never back, and are linked within."""
    rng = np.random.default_rng(seed)
    n = BLOCKS * SIZE
    source = np.repeat(np.arange(n), 5)
    target = (source // SIZE + 1) % BLOCKS * SIZE + rng.integers(0, SIZE, len(source))
    inside = source // SIZE * SIZE + rng.integers(0, SIZE, len(source))
    ends = np.column_stack([np.concatenate([source, source]), np.concatenate([target, inside])])
    return gq.read_edges(np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0), directed=True, n_nodes=n)


def forward_share(X, graph, seed=0):
    """How often an edge to the next block scores above the same pair turned round."""
    u, v = graph.adjacency.nonzero()
    across = u // SIZE != v // SIZE
    u, v = u[across], v[across]
    return float((source_target(X[u], X[v]) > source_target(X[v], X[u])).mean())


def test_links_score_by_direction_and_the_default_cannot():
    graph = ring_of_blocks()
    directed = gq.Propagation(32, directed=True)(graph, 0)
    assert directed.shape == (graph.n_nodes, 32)
    assert forward_share(directed, graph) > 0.95
    plain = gq.Propagation(32)(graph, 0)
    u, v = graph.adjacency.nonzero()
    assert np.allclose((plain[u] * plain[v]).sum(axis=1), (plain[v] * plain[u]).sum(axis=1))


def test_patches_know_directions_too():
    graph = ring_of_blocks()
    embedder = gq.Propagation(32, directed=True)
    result = gq.embed(graph, embedder=embedder, n_patches=4)
    assert result.embedding.shape == (graph.n_nodes, 32)
    assert forward_share(result.embedding, graph) > 0.95
    whole = embedder(graph, 0)
    products = [X[:, :16] @ X[:, 16:].T for X in (np.asarray(result.embedding), whole)]
    assert np.corrcoef(*(P.ravel() for P in products))[0, 1] > 0.95


def test_one_patch_is_the_whole_graph():
    graph = ring_of_blocks()
    embedder = gq.Propagation(16, directed=True)
    X = gq.embed(graph, embedder=embedder, n_patches=1).embedding
    Y = embedder(graph, 0)
    assert np.allclose(X[:, :8] @ X[:, 8:].T, Y[:, :8] @ Y[:, 8:].T, atol=1e-2)


def test_turning_every_edge_round_exchanges_sources_and_targets():
    graph = ring_of_blocks()
    back = gq.Graph(sp.csr_array(graph.adjacency.T))
    embedder = gq.Propagation(16, directed=True, clusters=1)
    X, Y = embedder(graph, 0), embedder(back, 0)
    assert np.allclose(X[:, :8] @ X[:, 8:].T, (Y[:, :8] @ Y[:, 8:].T).T, atol=1e-3)


def test_a_job_is_evaluated_by_source_and_target(tmp_path):
    graph = ring_of_blocks()
    gq.embed(graph, embedder=gq.Propagation(32, directed=True), n_patches=4, store=tmp_path / "job")
    job = gq.Job.open(tmp_path / "job")
    measured = gq.jobs.evaluate_job(job).quality
    options = EvaluationOptions(score=source_target)
    assert measured.auc == gq.evaluate.quality(job.embedding, graph, options=options).auc
    assert measured.auc > 0.9
    assert gq.compare(job)["l2g"].auc == measured.auc
    again = gq.embed(graph, embedder=gq.Propagation(32, directed=True), n_patches=4, store=tmp_path / "job")
    assert np.array_equal(again.embedding, job.embedding)


def test_features_and_weights_come_along():
    graph = ring_of_blocks()
    rng = np.random.default_rng(1)
    A = graph.adjacency.astype(float)
    A.data = rng.uniform(1, 2, A.nnz)
    graph = gq.Graph(A, rng.normal(size=(graph.n_nodes, 20)))
    X = gq.embed(graph, embedder=gq.Propagation(16, directed=True), n_patches=3).embedding
    assert np.isfinite(X).all()
    scaled = gq.Graph(7 * A, graph.features)
    Y = gq.embed(scaled, embedder=gq.Propagation(16, directed=True), n_patches=3).embedding
    assert np.allclose(X[:, :8] @ X[:, 8:].T, Y[:, :8] @ Y[:, 8:].T, atol=1e-3)


def test_bad_input_is_told():
    with pytest.raises(gq.errors.InputError, match="needs an even dim, half of it for targets, not 7"):
        gq.Propagation(7, directed=True)
    graph = ring_of_blocks()
    with pytest.raises(gq.errors.InputError, match=r"read them with directed=True \(--directed\)"):
        gq.embed(graph.undirected(), embedder=gq.Propagation(8, directed=True), n_patches=2)
    assert double_cover(graph).n_nodes == 2 * graph.n_nodes
    assert replace(gq.Propagation(8), directed=True).n_directions == 4
