"""Ranking edges against non-edges: exact against brute force, and every wrong input named."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import graphquilt as gq
from extras import needs
from graphquilt.evaluate import links, pairs

scores = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=30)


def random_graph(n, density, seed, *, directed=False, loops=False):
    rng = np.random.default_rng(seed)
    A = rng.random((n, n)) < density
    if not directed:
        A = np.triu(A)
        A = A | A.T
    np.fill_diagonal(A, loops)
    return gq.Graph(sp.csr_array(A.astype(float)))


def brute_force(positive, negative):
    wins = [(a > b) + 0.5 * (a == b) for a, b in itertools.product(positive, negative)]
    return sum(wins) / len(wins)


@settings(deadline=None)
@given(scores, scores)
def test_auc_is_the_share_of_won_comparisons(positive, negative):
    assert gq.evaluate.roc_auc(positive, negative) == pytest.approx(brute_force(positive, negative), abs=1e-12)


@settings(deadline=None)
@given(scores, scores)
def test_average_precision_is_that_of_scikit_learn(positive, negative):
    average_precision_score = needs("sklearn.metrics").average_precision_score
    truth = [1] * len(positive) + [0] * len(negative)
    expected = average_precision_score(truth, positive + negative)
    assert gq.evaluate.average_precision(positive, negative) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(4, 25), st.floats(0.5, 0.95), st.integers(0, 99), st.booleans())
def test_reconstruction_is_exact_where_every_non_edge_is_used(n, density, seed, directed):
    graph = random_graph(n, density, seed, directed=directed, loops=True)
    joined = graph.adjacency.toarray() != 0
    others = ~np.eye(n, dtype=bool)
    if (
        not (others & ~joined).any()
        or not (others & joined).any()
        or (others & ~joined).sum() > (others & joined).sum()
    ):
        return
    X = np.random.default_rng(seed).normal(size=(n, 3))
    G = X @ X.T
    half = others if graph.directed else np.triu(others)
    expected = brute_force(G[half & joined], G[half & ~joined])
    assert gq.evaluate.reconstruction_auc(X, graph, seed=0) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(5, 40), st.floats(0.02, 0.9), st.integers(0, 99), st.booleans(), st.integers(1, 300))
def test_non_edges_are_distinct_and_true(n, density, seed, directed, count):
    graph = random_graph(n, density, seed, directed=directed)
    A = graph.adjacency.toarray()
    pairs = n * (n - 1) // (1 if graph.directed else 2)
    left = pairs - int((A != 0).sum()) // (1 if graph.directed else 2)
    assume(left > 0)
    found = gq.evaluate.sample_non_edges(graph, count, seed=seed)
    assert len(found) == min(count, left) == len(np.unique(found, axis=0))
    assert not A[found[:, 0], found[:, 1]].any()
    assert (found[:, 0] != found[:, 1]).all()
    assert graph.directed or (found[:, 0] < found[:, 1]).all()


def test_non_edges_are_drawn_evenly():
    graph = random_graph(60, 0.3, 1)
    free = np.argwhere(np.triu(graph.adjacency.toarray() == 0, 1))
    counts = np.zeros((60, 60))
    for seed in range(400):
        rows = gq.evaluate.sample_non_edges(graph, 120, seed=seed)
        counts[rows[:, 0], rows[:, 1]] += 1
    share = counts[free[:, 0], free[:, 1]]
    assert share.sum() == 400 * 120
    # a binomial count: the variance over pairs is that of fair drawing, and neither end of the ids is preferred
    p = 120 / len(free)
    assert share.var() == pytest.approx(400 * p * (1 - p), rel=0.2)
    assert np.corrcoef(np.arange(len(free)), share)[0, 1] == pytest.approx(0, abs=0.1)


def test_a_sample_of_edges_agrees_with_all_of_them():
    graph = random_graph(300, 0.05, 3)
    X = np.linalg.svd(graph.adjacency.toarray())[0][:, :8]
    every = gq.evaluate.reconstruction_auc(X, graph, seed=0)
    for wanted in (400, 1500):  # drawn, and all but some
        assert gq.evaluate.reconstruction_auc(X, graph, seed=1, max_edges=wanted) == pytest.approx(every, abs=0.08)
    assert gq.evaluate.reconstruction_auc(X, graph, seed=0, max_edges=10**9) == every


def test_sampled_edges_are_distinct_edges():
    graph = random_graph(80, 0.2, 4)
    found = pairs.sample_edges(graph, 200, np.random.default_rng(0))
    assert len(np.unique(found, axis=0)) == 200
    assert (graph.adjacency.toarray()[found[:, 0], found[:, 1]] == 1).all()


def test_a_sample_of_too_many_edges_agrees_with_all(monkeypatch):
    graph = random_graph(200, 0.1, 5)
    X = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    exact = gq.evaluate.reconstruction_auc(X, graph, seed=0)
    monkeypatch.setattr(links, "_MOST", 500)
    assert gq.evaluate.reconstruction_auc(X, graph, seed=0) == pytest.approx(exact, abs=0.03)
    assert gq.evaluate.reconstruction_auc(X, graph, seed=0) == gq.evaluate.reconstruction_auc(
        X, graph, seed=0, max_edges=500
    )


def test_rotation_leaves_both_scores_and_translation_leaves_the_distance():
    graph = random_graph(60, 0.2, 6)
    X = np.random.default_rng(1).normal(size=(60, 4))
    Q = np.linalg.qr(np.random.default_rng(2).normal(size=(4, 4)))[0]
    for score in (gq.evaluate.inner_product, gq.evaluate.negative_distance):
        kept = gq.evaluate.reconstruction_auc(X, graph, seed=0, score=score)
        assert gq.evaluate.reconstruction_auc(X @ Q, graph, seed=0, score=score) == pytest.approx(kept, abs=1e-12)
    kept = gq.evaluate.reconstruction_auc(X, graph, seed=0, score=gq.evaluate.negative_distance)
    assert gq.evaluate.reconstruction_auc(X + 3, graph, seed=0, score=gq.evaluate.negative_distance) == pytest.approx(
        kept, abs=1e-12
    )


def test_a_memory_map_of_halves_is_read_as_it_is(tmp_path):
    graph = random_graph(100, 0.1, 7)
    X = np.random.default_rng(1).normal(size=(100, 5)).astype(np.float16)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = gq.evaluate.reconstruction_auc(X.astype(np.float32), graph, seed=0)
    assert gq.evaluate.reconstruction_auc(mapped, graph, seed=0) == expected


@settings(max_examples=20, deadline=None)
@given(st.integers(10, 40), st.integers(0, 99))
def test_held_out_edges_leave_the_components_as_they_were(n, seed):
    from scipy.sparse.csgraph import connected_components

    graph = random_graph(n, 0.3, seed)
    free = graph.n_edges - n + connected_components(graph.adjacency)[0]
    assume(free >= max(1, round(graph.n_edges / 10)))
    rest, held = gq.evaluate.hold_out_edges(graph, fraction=0.1, seed=seed)
    A, B = graph.adjacency, rest.adjacency
    assert connected_components(A)[0] == connected_components(B)[0]
    assert rest.n_edges + len(held) == graph.n_edges
    assert (A.toarray()[held[:, 0], held[:, 1]] == 1).all()
    assert (B.toarray()[held[:, 0], held[:, 1]] == 0).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(6, 40), st.integers(0, 99))
def test_held_out_edges_isolate_no_node(n, seed):
    tree = np.random.default_rng(seed)
    A = np.zeros((n, n))
    for child in range(1, n):
        parent = tree.integers(max(0, child - 3), child)
        A[child, parent] = A[parent, child] = 1
    graph = gq.Graph(sp.csr_array(A))
    with pytest.raises(gq.errors.InputError, match=r"only 0 can be removed.*or pass connected=False"):
        gq.evaluate.hold_out_edges(graph, fraction=1e-6, seed=seed)
    try:
        rest, held = gq.evaluate.hold_out_edges(graph, fraction=1e-6, seed=seed, connected=False)
    except gq.errors.InputError as error:
        assert "isolating a node" in str(error)  # noqa: PT017
        return
    assert len(held) == 1
    assert rest.degrees.min() >= 1
    assert rest.n_edges == graph.n_edges - 1


@settings(max_examples=20, deadline=None)
@given(st.integers(12, 40), st.integers(0, 99))
def test_link_quality_is_that_of_its_two_scores_and_does_not_depend_on_the_axes(n, seed):
    graph = random_graph(n, 0.4, seed)
    rest, held = gq.evaluate.hold_out_edges(graph, fraction=0.1, seed=seed)
    rng = np.random.default_rng(seed)
    X = rest.adjacency @ rng.normal(size=(n, 4))
    X[0] = 0  # a node without a direction
    score = gq.evaluate.inner_product
    product = gq.evaluate.link_quality(X, held, graph, seed=seed, score=score)
    assert product.auc == gq.evaluate.link_prediction_auc(X, held, graph, seed=seed)
    both = gq.evaluate.link_quality(X, held, graph, seed=seed)
    unit = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)
    assert both.auc == pytest.approx(gq.evaluate.link_prediction_auc(unit, held, graph, seed=seed), abs=1e-9)
    R = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    moved = gq.evaluate.link_quality(3 * X @ R, held, graph, seed=seed)
    assert moved.auc == pytest.approx(both.auc, abs=1e-9)
    moved = gq.evaluate.link_quality(3 * X @ R, held, graph, seed=seed, score=score)
    assert moved.auc == pytest.approx(product.auc, abs=1e-9)


def test_link_quality_needs_no_memory_for_the_other_edges():
    import tracemalloc

    n = 40_000
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, n, size=(1_000_000, 2))
    A = sp.coo_array((np.ones(len(pairs), dtype=np.float32), pairs.T), shape=(n, n)).tocsr()
    graph = gq.Graph(A + A.T)
    X = rng.normal(size=(n, 2)).astype(np.float32)
    held = np.stack([np.arange(100), graph.indices[graph.indptr[:100]]], axis=1)
    tracemalloc.start()
    gq.evaluate.link_quality(X, held, graph, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < graph.indices.nbytes


def test_link_prediction_needs_the_edges_it_is_tested_on_to_exist():
    graph = random_graph(30, 0.3, 8)
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(gq.errors.InputError, match="shape"):
        gq.evaluate.link_prediction_auc(X, np.zeros((0, 2)), graph, seed=0)
    with pytest.raises(gq.errors.InputError, match="0 to 99, of 0 to 29"):
        gq.evaluate.link_prediction_auc(X, [[0, 99]], graph, seed=0)
    with pytest.raises(gq.errors.InputError, match="between 0 and 1"):
        gq.evaluate.hold_out_edges(graph, fraction=1.5, seed=0)
    with pytest.raises(gq.errors.InputError, match="only 0 can be removed"):
        gq.evaluate.hold_out_edges(gq.Graph(sp.csr_array([[0, 1], [1, 0]])), fraction=0.5, seed=0)
    with pytest.raises(gq.errors.InputError, match="undirected"):
        gq.evaluate.hold_out_edges(random_graph(9, 0.3, 0, directed=True), seed=0)


def test_what_cannot_be_ranked_is_said_with_numbers():
    complete = gq.Graph(sp.csr_array(1.0 - np.eye(5)))
    with pytest.raises(gq.errors.InputError, match=r"all 10 pairs of the graph's 5 nodes"):
        gq.evaluate.reconstruction_auc(np.ones((5, 2)), complete, seed=0)
    with pytest.raises(gq.errors.InputError, match="no edge"):
        gq.evaluate.reconstruction_auc(np.ones((5, 2)), gq.Graph(sp.csr_array((5, 5))), seed=0)
    graph = random_graph(30, 0.3, 8)
    X = np.ones((30, 2))
    X[[3, 7]] = np.nan
    with pytest.raises(gq.errors.InputError, match=r"2 of 30 rows of the embedding are not finite.*nodes 3, 7"):
        gq.evaluate.reconstruction_auc(X, graph, seed=0)
    with pytest.raises(gq.errors.InputError, match="30 nodes and the embedding has 29 rows"):
        gq.evaluate.reconstruction_auc(np.ones((29, 2)), graph, seed=0)
    with pytest.raises(gq.errors.InputError, match="shape"):
        gq.evaluate.reconstruction_auc(np.ones(30), graph, seed=0)
    with pytest.raises(gq.errors.InputError, match="real numbers"):
        gq.evaluate.reconstruction_auc(np.ones((30, 2), dtype=complex), graph, seed=0)
    with pytest.raises(gq.errors.InputError, match="max_edges must be at least 1, not 0"):
        gq.evaluate.reconstruction_auc(np.ones((30, 2)), graph, seed=0, max_edges=0)
    with pytest.raises(gq.errors.InputError, match="0 positives"):
        gq.evaluate.roc_auc([], [1.0])
    with pytest.raises(gq.errors.InputError, match="at least one positive"):
        gq.evaluate.average_precision([], [1.0])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.floats(0.2, 5))
def test_procrustes_error_does_not_see_a_motion(seed, factor):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 3))
    Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    assert gq.evaluate.procrustes_error(X @ Q + rng.normal(size=3), X) < 1e-10
    assert gq.evaluate.procrustes_error(factor * X @ Q, X, scale=True) < 1e-10
    assert gq.evaluate.procrustes_error(rng.normal(size=(20, 3)), X, scale=True) < 1 + 1e-10


def test_procrustes_error_agrees_with_scipy():
    from scipy.spatial import procrustes

    X, Y = (np.random.default_rng(s).normal(size=(30, 4)) for s in (0, 1))
    assert gq.evaluate.procrustes_error(X, Y, scale=True) == pytest.approx(np.sqrt(procrustes(Y, X)[2]), abs=1e-10)


def test_procrustes_error_says_what_does_not_fit():
    with pytest.raises(gq.errors.InputError, match="3 × 2, the reference 4 × 2"):
        gq.evaluate.procrustes_error(np.ones((3, 2)), np.ones((4, 2)))
    with pytest.raises(gq.errors.InputError, match="coincide"):
        gq.evaluate.procrustes_error(np.ones((3, 2)), np.ones((3, 2)))


def test_a_graph_without_edges_has_non_edges_all_the_same():
    empty = gq.Graph(sp.csr_array((100, 100)))
    assert len(gq.evaluate.sample_non_edges(empty, 20, seed=0)) == 20
