"""VGAE and GAE from a shared start: a seed encoder, far clusters around patches, and the blend of encoders."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from extras import needs
from graphquilt.embedders.shared_encoder import (
    add_samples,
    add_weights,
    average,
    ego_nets,
    feature_counts,
    sample_graph,
    sample_of,
    weight_sums,
    with_far_clusters,
)
from graphquilt.embedders.shared_start import cut_patch
from graphquilt.errors import InputError
from graphquilt.patches import coarse_graph
from graphquilt.testing import check_embedder


def quick(kind=gq.VGAE, dim=4, **options):
    needs("torch")
    return kind(dim, max_epochs=15, **options)


# Samples and averages


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_ego_nets_are_nodes_with_their_neighbours_and_stay_small(seed):
    A = sp.random_array((60, 60), density=0.1, rng=seed).tocsr()
    graph = gq.Graph(A + A.T)
    nodes = ego_nets(graph, seed, n_nodes=10_000)
    assert (np.diff(nodes) > 0).all()
    assert 24 <= len(nodes) <= 24 + 4
    assert nodes.tolist() == ego_nets(graph, seed, n_nodes=10_000).tolist()
    assert len(ego_nets(graph, seed, n_nodes=60)) >= 30  # of one patch, half


@pytest.mark.parametrize("sparse", [True, False])
def test_samples_are_added_without_edges_between_them(blocks, sparse):
    features = np.asarray(blocks.features.todense() if sp.issparse(blocks.features) else blocks.features)
    X = sp.csr_array(features) if sparse else features
    samples = [sample_of(blocks, np.arange(k, k + 30), X) for k in (0, 10, 20)]
    whole = sample_graph(add_samples(*samples[:2]))
    assert whole.n_nodes == 60
    assert np.array_equal(whole.features.toarray(), np.concatenate([features[:30], features[10:40]]).astype(np.float32))
    assert whole.adjacency[:30][:, 30:].nnz == 0
    assert (whole.adjacency[:30][:, :30] != blocks.adjacency[:30][:, :30]).nnz == 0
    first, second = (
        add_samples(add_samples(*samples[:2]), samples[2]),
        add_samples(samples[0], add_samples(*samples[1:])),
    )
    assert all(np.array_equal(first[name], second[name]) for name in first)
    with pytest.raises(InputError, match="3 to 120 features"):
        add_samples(samples[0], sample_of(blocks, np.arange(30), np.ones((blocks.n_nodes, 3))))
    with pytest.raises(InputError, match="not a graph with features"):
        add_samples(samples[0], {"indptr": np.zeros(1, int)})


def encoders(seed, count):
    """Encoders of one layer, and how often each patch has each feature."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        counts = rng.integers(0, 4, 5).astype(float)
        yield {"weight0": rng.normal(size=(5, 3)), "bias0": rng.normal(size=3), "counts": counts}


@given(st.integers(0, 10**6), st.integers(1, 8))
@settings(max_examples=25, deadline=None)
def test_sums_of_weights_have_the_same_bits_in_any_order(seed, count):
    names = ["weight0", "bias0"]
    sums = [weight_sums(encoder, names) for encoder in encoders(seed, count)]
    total = functools.reduce(add_weights, sums)
    order = np.random.default_rng(seed).permutation(count)
    split = int(np.random.default_rng(seed + 1).integers(1, count + 1))
    halves = [[sums[k] for k in order[:split]], [sums[k] for k in order[split:]]]
    again = functools.reduce(add_weights, [functools.reduce(add_weights, half) for half in halves if half])
    for name, value in total.items():
        assert value.dtype == np.int64
        assert np.array_equal(again[name], value)
    mean = average(total, names, "float64")
    given_ = list(encoders(seed, count))
    counts = np.stack([one["counts"] for one in given_])
    weights = np.where(counts.sum(axis=0) > 0, counts, 1)
    expected = np.average([one["weight0"] for one in given_], axis=0, weights=np.repeat(weights[..., None], 3, axis=2))
    np.testing.assert_allclose(mean["weight0"], expected, atol=1e-6)
    np.testing.assert_allclose(mean["bias0"], np.mean([one["bias0"] for one in given_], axis=0), atol=1e-6)
    assert feature_counts(np.array([[1.0, 0.0], [2.0, 0.0]])).tolist() == [2.0, 0.0]


# Far clusters as nodes


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=15, deadline=None)
def test_a_patch_among_far_clusters_of_one_node_is_convolved_as_the_whole_graph(seed, weighted):
    rng = np.random.default_rng(seed)
    A = np.triu(rng.random((20, 20)) < 0.2, 1) * (rng.uniform(0.5, 2, (20, 20)) if weighted else 1.0)
    X = rng.random((20, 4), dtype=np.float32)
    graph = gq.Graph(sp.csr_array(A + A.T), X)
    needs("torch")
    from graphquilt.embedders.gcn import normalized_adjacency

    survey = gq.GAE(2).survey(graph, 0, clusters=coarse_graph(graph, np.arange(20)))
    nodes = rng.permutation(20)[:8]
    part, far = cut_patch(graph, nodes, survey)
    S, both = with_far_clusters(part, far, part.features)
    whole = normalized_adjacency(graph)
    np.testing.assert_allclose((S @ (S @ both))[:8], (whole @ (whole @ X))[nodes], atol=1e-5)


def test_a_far_cluster_has_the_mean_features_of_its_nodes():
    path = gq.Graph(sp.csr_array(np.eye(4, k=1) + np.eye(4, k=-1)), np.diag([1.0, 2.0, 3.0, 4.0]))
    needs("torch")
    survey = gq.GAE(2).survey(path, 0, clusters=coarse_graph(path, np.array([0, 0, 1, 1])))
    root = np.sqrt([2, 3])
    parts = tuple(survey.shared[f"features_{part}"] for part in ("data", "indices", "indptr"))
    means = sp.csr_array(parts, shape=(2, 4))
    np.testing.assert_allclose(means.toarray()[0], [root[0] / root.sum(), 2 * root[1] / root.sum(), 0, 0], rtol=1e-6)
    np.testing.assert_allclose(survey.shared["degree"], (5 / root.sum()) ** 2, rtol=1e-6)


# Training from the start


def encoded(embedder, parts):
    """Return what the parts prepare in this round, and the embedder after it."""
    kept = [embedder.prepare(graph, k, far=far) for k, (graph, far) in enumerate(parts)]
    return kept, embedder.combine(functools.reduce(embedder.add, map(embedder.contribute, kept), None), 0)


@pytest.fixture(scope="module")
def started(blocks, blocks_quilt):
    """The embedder after its first round, and the data of the patches."""
    from graphquilt.jobs.records import survey_graph
    from graphquilt.jobs.tasks import PatchInputs

    embedder = quick(blend=1.0)
    data = PatchInputs(blocks, blocks_quilt.node_sets, survey_graph({}, blocks, embedder, 0, blocks_quilt))
    parts = [data.extract(k)[1:] for k in range(blocks_quilt.n_patches)]
    return encoded(embedder, parts)[1], parts


def test_every_patch_begins_with_the_seed_encoder(started):
    embedder, parts = started
    still = replace(embedder, lr=1e-12)
    graph, far = parts[0]
    fit = still.fit(graph, 3, far=far)
    assert fit.embedding.shape == (graph.n_nodes, 4)
    first = still._encode(graph, still._of_start("seed"), far)
    assert len(first) > graph.n_nodes  # far clusters stand after the nodes
    assert np.allclose(fit.embedding, first[: graph.n_nodes], atol=1e-5)


def test_the_blend_lies_between_the_average_and_a_patch_s_own_encoder(started):
    embedder, parts = started
    half = replace(embedder, blend=0.5)
    assert not half.complete
    assert embedder.complete
    kept, half = encoded(half, parts)
    assert half.complete
    graph, far = parts[1]
    own, mean = (replace(half, blend=b).fit(graph, 1, far=far, kept=kept[1]) for b in (1.0, 0.0))
    between = half.fit(graph, 1, far=far, kept=kept[1])
    for name, weights in between.encoder.weights.items():
        assert np.allclose(weights, (own.encoder.weights[name] + mean.encoder.weights[name]) / 2, atol=1e-6)
    assert np.array_equal(mean.losses, kept[1]["losses"])  # of the training before the average
    assert half.motions_started == gq.Motions(translate=False)
    assert not replace(half, blend=0.0).motions_started.free


def test_edges_that_leave_a_patch_pull_its_nodes_towards_their_far_ends(started):
    embedder, parts = started
    graph, far = parts[0]
    eager = replace(embedder, lr=0.05, start={**embedder.start, "sample": np.zeros((2, 4), dtype=np.float32)})
    with_edges, _ = eager._resume(graph, 0, far)
    alone, _ = eager._resume(graph, 0, None)
    assert any(not np.allclose(with_edges[name], alone[name]) for name in with_edges)


def test_one_encoder_for_all_needs_no_alignment(blocks, blocks_quilt):
    patches = gq.embed_patches(blocks, blocks_quilt, quick())
    alignment, X = gq.stitch(blocks_quilt, patches, motions=gq.Motions(rotate=False, translate=False))
    assert alignment.edge_errors.max() < 0.2  # far clusters stand for what lies outside
    apart = gq.embed_patches(blocks, blocks_quilt, quick(), recipe=gq.Recipe(start=False))
    plain, _ = gq.stitch(blocks_quilt, apart, motions=gq.Motions(rotate=False, translate=False))
    assert plain.edge_errors.min() > 0.5
    assert np.isfinite(X).all()


@pytest.mark.parametrize("kind", [gq.GAE, gq.VGAE])
def test_a_graph_without_features_is_embedded_as_before(blocks, kind):
    bare = gq.Graph(blocks.adjacency)
    embedder = quick(kind)
    assert not embedder.starts_on(bare)
    assert replace(embedder, featureless="degree").starts_on(bare)
    result = gq.embed(bare, dim=4, n_patches=3, embedder=embedder)
    assert result.alignment.eigenvalues.size
    store = {}
    gq.embed(bare, dim=4, n_patches=3, embedder=replace(embedder, featureless="degree"), store=store)
    assert "starts/0/1" in store
    with pytest.raises(InputError, match=r"trains a vector per node.*Recipe\(start=False\)"):
        embedder.prepare(bare, 0)


def test_a_blend_is_a_share():
    with pytest.raises(InputError, match="blend of VGAE is a number from 0 to 1, not 2"):
        gq.VGAE(4, blend=2)


def test_the_contract_of_a_start_in_two_steps():
    report = check_embedder(quick(dim=3))
    assert report.started is not None
    assert report.started < report.aligned
    assert "shared start" in str(report)


@pytest.mark.parametrize(("scale", "blend", "share"), [(100.0, 0.0, 1.0), (0.1, 0.0, 0.01), (0.1, 0.5, 0.0)])
def test_the_penalty_follows_the_squared_length_of_the_features(scale, blend, share):
    rows = sp.csr_array(np.full((40, 20), scale))
    ring = sp.csr_array(np.roll(np.eye(40), 1, 0) + np.roll(np.eye(40), -1, 0))
    sample = sample_of(gq.Graph(ring), np.arange(40), rows)
    started = quick(blend=blend).combine(sample, 0)
    assert float(started.start["decay"]) == pytest.approx(2e-3 * share)
    assert float(quick(weight_decay=0.5).combine(sample, 0).start["decay"]) == 0.5
