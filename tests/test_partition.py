"""Partitioners: the contract for all, Fennel's rule against a transcription, merging of small clusters."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from extras import needs
from graphquilt import Fennel, Graph, Leiden, Louvain, Metis, merge_small
from graphquilt.errors import FormatError, InputError
from graphquilt.patches import CoarseGraph, Multilevel, coarse_graph, edge_cut, fine_clusters, merge_clusters
from graphquilt.testing.checks import check_partitioner, sample_graphs


def random_graph(n, m, seed, *, weighted=False):
    rng = np.random.default_rng(seed)
    A = sp.coo_array((rng.uniform(0.5, 2, m) if weighted else np.ones(m), rng.integers(0, n, (2, m))), shape=(n, n))
    A = sp.csr_array(A.maximum(A.T)) if weighted else sp.csr_array((A + A.T) > 0).astype(float)
    A.setdiag(0)
    return Graph(A)


@pytest.mark.parametrize(
    "partitioner",
    [
        Metis(3),
        Metis(24),
        Fennel(3),
        Fennel(24),
        Fennel(20),
        Fennel(3, passes=5, order="random", seed=1),
        Fennel(3, order="breadth-first"),
        Multilevel(3),
    ],
    ids=str,
)
def test_the_contract(partitioner):
    check_partitioner(partitioner, n_patches=partitioner.n_patches)


@pytest.mark.parametrize("partitioner", [Louvain(), Leiden(), Louvain(resolution=2.0, seed=3)], ids=str)
def test_the_contract_of_communities(partitioner):
    needs("sknetwork")
    check_partitioner(partitioner, graphs=[Graph(sp.csr_array((5, 5)))])


def test_a_breach_is_found():
    rng = np.random.default_rng(0)
    with pytest.raises(AssertionError, match="a second call gives other labels"):
        check_partitioner(lambda graph: np.unique(rng.integers(0, 5, graph.n_nodes), return_inverse=True)[1])
    with pytest.raises(InputError, match="no nodes"):
        check_partitioner(lambda graph: np.arange(graph.n_nodes) // 12 * 2)
    with pytest.raises(AssertionError, match="2 clusters instead of 3"):
        check_partitioner(lambda graph: np.arange(graph.n_nodes) // 12, n_patches=3)


def fennel_as_written(graph, p, passes, balance, visits):
    """Tsourakakis et al.'s rule, every cluster scored for every node: O(n p)."""
    n = graph.n_nodes
    A = graph.adjacency
    alpha = A.sum() / 2 * p**0.5 / n**1.5
    cap = max(int(balance * n / p), -(-n // p))
    labels, sizes = np.full(n, -1), np.zeros(p, int)
    for _ in range(passes):
        for v in visits:
            if labels[v] >= 0:
                sizes[labels[v]] -= 1
            gain = np.zeros(p)
            for u, w in zip(
                A.indices[A.indptr[v] : A.indptr[v + 1]], A.data[A.indptr[v] : A.indptr[v + 1]], strict=True
            ):
                if labels[u] >= 0 and u != v:
                    gain[labels[u]] += w
            score = np.where(sizes < cap, gain - 1.5 * alpha * np.sqrt(sizes), -np.inf)
            yield v, score, sizes, labels
            sizes[labels[v]] += 1


@given(st.integers(5, 60), st.integers(5, 200), st.integers(1, 6), st.integers(1, 3), st.booleans())
@settings(max_examples=30, deadline=None)
def test_fennel_takes_a_best_cluster_every_time(n, m, p, passes, weighted):
    graph = random_graph(n, m, n * m, weighted=weighted)
    p = min(p, n)
    # Follow the transcription along our own choices: each must be among its best.
    history = [Fennel(p, passes=k + 1)(graph) for k in range(passes)]
    steps = fennel_as_written(graph, p, passes, 1.1, range(n))
    if any(np.bincount(labels, minlength=p).min() == 1 for labels in history):
        return  # a cluster may have been filled afterwards
    for count, (v, score, _, labels) in enumerate(steps):
        choice = history[count // n][v]
        assert score[choice] >= score.max() - 1e-9
        labels[v] = choice


@given(st.integers(5, 80), st.integers(0, 300), st.integers(1, 12), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_first_pass_is_the_rule_as_written(n, m, p, weighted):
    graph = random_graph(n, m, n + m, weighted=weighted)
    p = min(p, n)
    expected = np.empty(n, int)
    for v, score, _, labels in fennel_as_written(graph, p, 1, 1.1, range(n)):
        labels[v] = expected[v] = score.argmax()
    # Without edges all clusters are alike; and an empty cluster is filled afterwards.
    if graph.n_edges and np.bincount(expected, minlength=p).min() > 0:
        assert np.array_equal(Fennel(p, passes=1)(graph), expected)


@given(st.integers(2, 80), st.integers(0, 300), st.integers(1, 80), st.floats(1, 2), st.sampled_from([1, 3]))
@settings(max_examples=60, deadline=None)
def test_the_cap_binds(n, m, p, balance, passes):
    p = min(p, n)
    graph = random_graph(n, m, n + m)
    labels = Fennel(p, passes=passes, balance=balance)(graph)
    sizes = np.bincount(labels, minlength=p)
    assert sizes.max() <= max(int(balance * n / p), -(-n // p))
    assert sizes.min() >= 1
    assert np.array_equal(labels, Fennel(p, passes=passes, balance=balance)(graph))


def test_more_passes_cut_less_and_memory_maps_do_as_well(tmp_path):
    blocks = np.kron(np.eye(8), np.ones((40, 40)))
    rng = np.random.default_rng(0)
    A = np.triu((rng.random((320, 320)) < 0.02 + 0.4 * blocks).astype(float), 1)
    order = rng.permutation(320)
    graph = Graph(sp.csr_array((A + A.T)[np.ix_(order, order)]))
    cuts = [edge_cut(graph, Fennel(8, passes=k, seed=0, order="random")(graph)) for k in (1, 2, 10)]
    assert cuts[0] > cuts[1] >= cuts[2]
    graph.save(tmp_path)
    mapped = Graph.open(tmp_path)
    for order in ("natural", "random", "breadth-first"):
        assert np.array_equal(Fennel(8, order=order)(mapped), Fennel(8, order=order)(graph))


def test_metis_uses_weights():
    # A complete graph: only the weights tell its two halves apart.
    A = np.full((8, 8), 0.01)
    A[:4, :4] = A[4:, 4:] = 5.0
    np.fill_diagonal(A, 0)
    order = np.random.default_rng(3).permutation(8)
    graph = Graph(sp.csr_array(A[np.ix_(order, order)]))
    labels = Metis(2)(graph)
    assert len(set(labels[order < 4])) == 1
    assert edge_cut(graph, labels) == pytest.approx(0.16)


@pytest.mark.parametrize("graph", ["dense", "sparse", "dense between clusters"])
def test_metis_bisects_where_many_clusters_of_a_dense_graph_would_crash_it(graph, monkeypatch):
    """Its k-way method once crashed with 1000 clusters of a graph with 88 edges per node, and left clusters empty."""
    import pymetis

    asked, part_graph = [], pymetis.part_graph
    monkeypatch.setattr(pymetis, "part_graph", lambda *a, **k: asked.append(k["recursive"]) or part_graph(*a, **k))
    n, p = 1200, 600
    A = np.triu(np.random.default_rng(0).random((n, n)) < (0.002 if graph == "sparse" else 0.1), 1).astype(float)
    A = sp.csr_array(A + A.T)
    if graph == "dense between clusters":
        labels = merge_clusters(CoarseGraph(np.arange(n), A), p)
    else:
        labels = Metis(p)(Graph(A))
        assert np.bincount(labels, minlength=p).min() >= 1
    assert asked == [None if graph == "sparse" else True]
    assert np.bincount(labels).max() <= 8


@pytest.mark.parametrize("method", [Metis, Fennel])
def test_too_many_clusters(method):
    graph = sample_graphs()["path"]
    with pytest.raises(InputError, match="25 clusters of a graph with 24 nodes"):
        method(25)(graph)
    with pytest.raises(InputError, match="at least one cluster, not 0"):
        method(0)(graph)
    assert method(1)(graph).tolist() == [0] * 24


def test_bad_parameters():
    with pytest.raises(InputError, match="one pass"):
        Fennel(2, passes=0)
    with pytest.raises(InputError, match="at least 1"):
        Fennel(2, balance=0.9)
    with pytest.raises(InputError, match="'backwards'"):
        Fennel(2, order="backwards")


@given(st.integers(1, 60), st.integers(0, 150), st.integers(1, 20), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_merge_small(n, m, p, least):
    graph = random_graph(n, m, n * m)
    labels = np.unique(np.random.default_rng(m).integers(0, p, n), return_inverse=True)[1]
    merged = merge_small(graph, labels, least)
    sizes = np.bincount(merged)
    assert sizes.min() >= min(least, n)
    for cluster in range(labels.max() + 1):  # clusters are merged, never cut
        assert len(set(merged[labels == cluster])) == 1
    if np.bincount(labels).min() >= least:
        assert np.array_equal(merged, labels)


# Fine clusters, and the graph between them


@given(st.integers(1, 40), st.integers(0, 120), st.integers(1, 6), st.booleans())
@settings(max_examples=40)
def test_the_graph_between_clusters_has_the_sums_of_the_edges(n, m, k, weighted):
    rng = np.random.default_rng(n * m + k)
    A = sp.coo_array((rng.uniform(0.5, 2, m) if weighted else np.ones(m), rng.integers(0, n, (2, m))), shape=(n, n))
    A = sp.csr_array(A + A.T)
    A.setdiag(0)
    A.eliminate_zeros()
    A.data = A.data if weighted else np.ones_like(A.data)
    clusters = np.unique(rng.integers(0, k, n), return_inverse=True)[1]
    coarse = coarse_graph(Graph(A), clusters)
    members = (clusters == np.arange(clusters.max() + 1)[:, None]).astype(float)
    np.testing.assert_allclose(coarse.between.toarray(), members @ A @ members.T, atol=1e-9)
    assert np.array_equal(coarse.sizes, members.sum(axis=1))
    again = CoarseGraph.from_arrays(coarse.to_arrays(), n)
    assert np.array_equal(again.clusters, coarse.clusters)
    assert (again.between != coarse.between).nnz == 0


@given(st.integers(1, 60), st.integers(0, 200))
@settings(max_examples=25)
def test_fine_clusters_are_numbered_without_gaps(n, m):
    graph = random_graph(n, m, n + m)
    labels = fine_clusters(graph)
    assert labels.shape == (n,)
    assert np.array_equal(np.unique(labels), np.arange(labels.max() + 1))
    assert np.bincount(labels).max() <= 4
    assert np.array_equal(fine_clusters(graph), labels)


def test_fine_clusters_follow_the_edges():
    """Dense communities in a row: hardly any cluster has nodes of two."""
    rng = np.random.default_rng(0)
    home = np.arange(240) // 30
    A = np.triu(rng.random((240, 240)) < np.where(home[:, None] == home, 0.4, 0.01), 1).astype(float)
    labels = fine_clusters(Graph(sp.csr_array(A + A.T)))
    pure = [len(np.unique(home[labels == cluster])) == 1 for cluster in range(labels.max() + 1)]
    assert np.mean(pure) > 0.8


@pytest.mark.parametrize("count", [1, 2, 5, 10])
def test_merged_clusters_are_balanced_and_whole(count):
    rng = np.random.default_rng(0)
    home = np.arange(600) // 60
    A = np.triu(rng.random((600, 600)) < np.where(home[:, None] == home, 0.2, 0.005), 1).astype(float)
    graph = Graph(sp.csr_array(A + A.T))
    coarse = coarse_graph(graph, fine_clusters(graph))
    merged = merge_clusters(coarse, count)
    assert np.array_equal(np.unique(merged), np.arange(count))
    sizes = np.bincount(merged, weights=coarse.sizes)
    assert sizes.max() <= 1.3 * 600 / count
    assert np.array_equal(Multilevel(count)(graph), merged[coarse.clusters])


def test_more_clusters_than_there_are_is_said():
    path = Graph(sp.csr_array(np.eye(12, k=1) + np.eye(12, k=-1)))
    coarse = coarse_graph(path, np.arange(12) // 4)
    with pytest.raises(InputError, match="4"):
        merge_clusters(coarse, 4)
    with pytest.raises(InputError):
        Multilevel(13)(path)


def test_clusters_of_a_record_are_checked():
    path = Graph(sp.csr_array(np.eye(6, k=1) + np.eye(6, k=-1)))
    arrays = coarse_graph(path, np.arange(6) // 2).to_arrays()
    for name, array in (
        ("cluster", np.zeros(5, dtype=int)),
        ("cluster", np.full(6, 3)),
        ("cluster", np.full(6, -1)),
        ("cluster", np.zeros(6)),
        ("indptr", np.array([0, 2, 1, 7])),
        ("indices", np.full_like(arrays["indices"], 9)),
        ("weights", np.full_like(arrays["weights"], np.nan)),
        ("weights", arrays["weights"][:-1]),
    ):
        with pytest.raises(FormatError, match="far clusters is damaged"):
            CoarseGraph.from_arrays({**arrays, name: array}, 6)
    with pytest.raises(FormatError, match="far clusters is damaged"):
        CoarseGraph.from_arrays({}, 6)
