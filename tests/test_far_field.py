"""The far field: exact inside of a patch, averages outside, and the same bits with any number of threads."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from extras import needs
from graphquilt.embedders import FarField, Signal
from graphquilt.embedders.shared_start import cut_patch
from graphquilt.errors import InputError
from graphquilt.jobs import tasks
from graphquilt.jobs.records import far_clusters
from graphquilt.jobs.store import Record
from graphquilt.kernels import use_loop_threads
from graphquilt.patches import clusters as kept_clusters
from graphquilt.patches import coarse_graph, fine_clusters
from test_directions import communities, scaled_rows


def weighted(graph, seed=0):
    """Return the graph with random weights."""
    A = sp.triu(graph.adjacency, format="csr")
    A.data = np.random.default_rng(seed).uniform(0.5, 3, len(A.data))
    return gq.Graph(sp.csr_array(A + A.T), graph.features)


@pytest.mark.parametrize("with_weights", [False, True])
@pytest.mark.parametrize("width", [0, 20, 300])
def test_among_far_clusters_of_one_node_the_walk_is_exact(width, with_weights):
    graph, embedder = communities(width=width), gq.Propagation(8, clusters=40)
    graph = weighted(graph) if with_weights else graph
    n = graph.n_nodes
    survey = embedder.survey(graph, 0, clusters=coarse_graph(graph, np.arange(n)))
    whole = scaled_rows(embedder.prepare(graph, 0, far=FarField.whole(survey, n)))
    nodes = np.random.default_rng(1).permutation(n)[:80]
    part, far = cut_patch(graph, nodes, survey)
    assert part.n_nodes == 80
    assert np.array_equal(far.nodes["degree"], survey.nodes["degree"][nodes])
    np.testing.assert_allclose(scaled_rows(embedder.prepare(part, 0, far=far)), whole[nodes], atol=1e-3)


@given(st.integers(0, 10**6), st.booleans(), st.integers(0, 5))
@settings(max_examples=15)
def test_a_walk_ends_somewhere_also_by_way_of_far_clusters(seed, with_weights, isolated):
    """Before the logarithm, the memberships of a node in all clusters sum to 1."""
    rng = np.random.default_rng(seed)
    graph, embedder = communities(60, 3, 0, seed), gq.Propagation(4, clusters=9, signal=Signal.edges())
    graph = weighted(graph, seed) if with_weights else graph
    A = sp.csr_array(sp.block_diag([graph.adjacency, sp.csr_array((isolated, isolated))]))
    graph = gq.Graph(A)
    survey = embedder.survey(graph, 0, clusters=coarse_graph(graph, fine_clusters(graph)))
    nodes = rng.permutation(60)[:25]
    part, far = cut_patch(graph, nodes[graph.degrees[nodes] > 0], survey)
    P = np.expm1(embedder.prepare(part, 0, far=far)["rows"].astype(np.float64)) / survey.shared["gain"]
    np.testing.assert_allclose(P.sum(axis=1), 1, atol=0.01)


@pytest.mark.parametrize("width", [0, 20, 300])
def test_stitched_patches_are_nearly_the_whole_graph(width):
    graph, embedder = communities(width=width), gq.Propagation(8, clusters=40)
    one, several = (gq.embed(graph, dim=8, embedder=embedder, n_patches=k).embedding for k in (1, 4))
    G, H = (np.asarray(X, dtype=float) @ X.T for X in (one, several))
    assert np.linalg.norm(G - H) < 0.1 * np.linalg.norm(G)


@pytest.mark.parametrize("n_patches", [1, 4])
@pytest.mark.parametrize("width", [0, 300])
def test_one_thread_and_two_give_the_same_bits(width, n_patches):
    graph, embedder = communities(width=width), gq.Propagation(8, clusters=40, block=16)
    results = []
    for threads in (1, 2):
        with use_loop_threads(threads):
            results.append(gq.embed(graph, dim=8, embedder=embedder, n_patches=n_patches).embedding)
    assert np.array_equal(*results)


@pytest.mark.parametrize("n_patches", [1, 4])
def test_a_folder_gives_the_bits_of_a_dict(tmp_path, n_patches):
    graph, embedder = communities(width=300), gq.Propagation(8, clusters=40)
    stores = {}, gq.DirectoryStore(tmp_path / "job")
    results = [gq.embed(graph, dim=8, embedder=embedder, n_patches=n_patches, store=store) for store in stores]
    assert np.array_equal(results[0].embedding, results[1].embedding)
    with gq.Processes(2) as pool:
        again = gq.embed(graph, dim=8, embedder=embedder, n_patches=n_patches, executor=pool)
    assert np.array_equal(again.embedding, results[0].embedding)


# What does not belong


def embedders():
    needs("torch")
    return gq.Propagation(2, clusters=4), gq.GAE(2)


def test_clusters_of_another_graph_are_refused_in_a_sentence():
    graph, other = communities(60, 3, 5), communities(50, 3, 5)
    heavier = gq.Graph(graph.adjacency * 2.0, graph.features)
    for embedder in embedders():
        for coarse in (coarse_graph(other, fine_clusters(other)), coarse_graph(heavier, fine_clusters(heavier))):
            with pytest.raises(InputError, match=r"far clusters .* another graph"):
                embedder.survey(graph, 0, clusters=coarse)


def test_edges_to_clusters_that_no_table_has_are_refused_in_a_sentence():
    graph = communities(60, 3, 5)
    for embedder in embedders():
        survey = embedder.survey(graph, 0, clusters=coarse_graph(graph, fine_clusters(graph)))
        part, far = cut_patch(graph, np.arange(20), survey)
        for clusters in (far.clusters + 1000, far.clusters - 1000):
            with pytest.raises(InputError, match="cluster"):
                embedder.fit(part, 0, far=replace(far, clusters=clusters), kept=None) if embedder.complete else (
                    _agreed(embedder, part, replace(far, clusters=clusters))
                )


def _agreed(embedder, part, far):
    """Go through all rounds with one part."""
    while not embedder.complete:
        embedder = embedder.combine(embedder.add(None, embedder.contribute(embedder.prepare(part, 0, far=far))), 0)
    embedder.fit(part, 0, far=far)


def test_stored_clusters_that_do_not_fit_are_made_again():
    graph, other, store = communities(60, 3, 0), communities(50, 3, 0), {}
    expected = far_clusters(store, graph)
    record = store["clusters"]
    for arrays in (
        far_clusters({}, other).to_arrays(),
        {**record.arrays, "cluster": record.arrays["cluster"] + 99},
        {**record.arrays, "weights": -record.arrays["weights"]},
        {"cluster": record.arrays["cluster"]},
    ):
        store["clusters"] = Record(arrays, record.parameters)
        assert np.array_equal(far_clusters(store, graph).clusters, expected.clusters)
        assert np.array_equal(store["clusters"].arrays["cluster"], expected.clusters)
    again = far_clusters(store, other)  # as where a job goes on with another graph
    assert again.clusters.shape == (50,)


@pytest.mark.parametrize("with_weights", [False, True])
def test_the_weakest_pairs_of_many_clusters_count_as_inside(with_weights, monkeypatch):
    graph = communities(width=0)
    graph = weighted(graph) if with_weights else graph
    clusters = np.arange(graph.n_nodes) // 8
    whole = coarse_graph(graph, clusters).between
    monkeypatch.setattr(kept_clusters, "PAIRS", 100)
    assert (coarse_graph(graph, clusters).between != whole).nnz == 0  # a few clusters at a time
    monkeypatch.setattr(kept_clusters, "MOST_PAIRS", whole.nnz // 3)
    thin = coarse_graph(graph, clusters).between
    assert thin.nnz < whole.nnz / 2
    assert (thin != thin.T).nnz == 0
    assert np.allclose(thin.sum(axis=1), whole.sum(axis=1))
    strengths = sp.csr_array(thin - sp.diags_array(thin.diagonal()))
    strengths.eliminate_zeros()
    left = sp.csr_array(whole - sp.diags_array(whole.diagonal()) - strengths)
    left.eliminate_zeros()
    assert left.data.max() <= strengths.data.min() * (1 + 1e-6)


def test_patches_of_a_large_graph_are_read_in_groups(tmp_path, monkeypatch):
    graph = weighted(communities(width=20))
    graph.save(tmp_path / "graph")
    monkeypatch.setattr(tasks, "GROUPED", np.inf)
    expected = gq.embed(tmp_path / "graph", dim=8, n_patches=6, store=tmp_path / "one by one").embedding
    monkeypatch.setattr(tasks, "GROUPED", 1)
    monkeypatch.setattr(tasks, "HELD", (graph.indices.nbytes + graph.features.nbytes) // 2)
    result = gq.embed(tmp_path / "graph", dim=8, n_patches=6, store=tmp_path / "in groups")
    assert np.array_equal(result.embedding, expected)
