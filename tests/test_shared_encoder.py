"""VGAE and GAE from a shared start: a seed encoder, patches tied to what surrounds them, and the blend of encoders."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from extras import needs
from graphquilt.embedders import Surroundings
from graphquilt.embedders.seeding import averaged, ego_nets, feature_counts, joined, sample_of
from graphquilt.errors import InputError
from graphquilt.testing import check_embedder


def quick(kind=gq.VGAE, dim=4, **options):
    needs("torch")
    return kind(dim, max_epochs=15, **options)


# Samples and averages


@given(st.integers(0, 10**6), st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_ego_nets_begin_inside_the_patch_and_stay_small(seed, n_inner):
    A = sp.random_array((60, 60), density=0.1, rng=seed).tocsr()
    graph = gq.Graph(A + A.T)
    nodes = ego_nets(graph, seed, n_inner=n_inner, n_nodes=10_000)
    assert (np.diff(nodes) > 0).all()
    assert len(nodes) <= 24 + 4
    inner = nodes[nodes < n_inner]
    beyond = nodes[nodes >= n_inner]
    reached = set(np.concatenate([graph.indices[graph.indptr[u] : graph.indptr[u + 1]] for u in inner]).tolist())
    assert set(beyond.tolist()) <= reached
    assert nodes.tolist() == ego_nets(graph, seed, n_inner=n_inner, n_nodes=10_000).tolist()


@pytest.mark.parametrize("sparse", [True, False])
def test_samples_are_joined_without_edges_between_them(blocks, sparse):
    features = np.asarray(blocks.features.todense() if sp.issparse(blocks.features) else blocks.features)
    X = sp.csr_array(features) if sparse else features
    offers = [sample_of(blocks, np.arange(k, k + 30), X) for k in (0, 10)]
    whole = joined(offers)
    assert whole.n_nodes == 60
    assert np.array_equal(whole.features.toarray(), np.concatenate([features[:30], features[10:40]]).astype(np.float32))
    assert whole.adjacency[:30][:, 30:].nnz == 0
    assert (whole.adjacency[:30][:, :30] != blocks.adjacency[:30][:, :30]).nnz == 0
    with pytest.raises(InputError, match="3 to 120 features"):
        joined([offers[0], sample_of(blocks, np.arange(30), np.ones((blocks.n_nodes, 3)))])


def test_the_average_of_equal_encoders_is_that_encoder():
    rng = np.random.default_rng(0)
    weights = {"weight0": rng.normal(size=(5, 3)), "bias0": rng.normal(size=3)}
    offers = [{**weights, "counts": rng.integers(0, 4, 5).astype(float)} for _ in range(4)]
    mean = averaged(offers, list(weights))
    for name, value in weights.items():
        assert np.allclose(mean[name], value)
    assert feature_counts(np.array([[1.0, 0.0], [2.0, 0.0]])).tolist() == [2.0, 0.0]


# Training from the start


@pytest.fixture(scope="module")
def started(blocks, blocks_quilt):
    """The embedder after its first step, and the data of the patches."""
    from graphquilt.pipeline.patch_data import PatchData, surveyed

    embedder = quick(blend=1.0)
    survey = surveyed({}, blocks, embedder, 0, blocks_quilt.node_sets)
    data = PatchData.of(blocks, blocks_quilt.node_sets, embedder, start=True, survey=survey)
    parts = [data.cut(k)[1:] for k in range(blocks_quilt.n_patches)]
    offers = [embedder.offer(graph, k, around) for k, (graph, around) in enumerate(parts)]
    return embedder.started(offers, 0), parts


def test_every_patch_begins_with_the_seed_encoder(started):
    embedder, parts = started
    still = replace(embedder, lr=1e-12)
    graph, around = parts[0]
    fit = still.fit(graph, 3, surroundings=around)
    first = still._encoder(graph, still._of_start("seed"))
    assert fit.embedding.shape == (around.n_inner, 4)
    assert np.allclose(fit.embedding, first(graph, around.survey["degree"])[: around.n_inner], atol=1e-5)


def test_the_blend_lies_between_the_average_and_a_patch_s_own_encoder(started):
    embedder, parts = started
    half = replace(embedder, blend=0.5)
    assert half.unfinished
    assert not embedder.unfinished
    offers = [half.offer(graph, k, around) for k, (graph, around) in enumerate(parts)]
    half = half.started(offers, 0)
    assert not half.unfinished
    graph, around = parts[1]
    around = replace(around, offered=offers[1])
    own, mean = (replace(half, blend=b).fit(graph, 1, surroundings=around) for b in (1.0, 0.0))
    between = half.fit(graph, 1, surroundings=around)
    for name, weights in between.encoder.weights.items():
        assert np.allclose(weights, (own.encoder.weights[name] + mean.encoder.weights[name]) / 2, atol=1e-6)
    assert np.array_equal(mean.losses, offers[1]["losses"])  # of the training before the average
    assert half.motions_started == gq.Motions(translate=False)
    assert not replace(half, blend=0.0).motions_started.free


def test_edges_that_leave_a_patch_pull_its_nodes_towards_their_far_ends(started):
    """With all its neighbours frozen far out on one axis, a node is drawn along that axis."""
    embedder, parts = started
    graph, around = parts[0]
    far = replace(embedder, lr=0.05, start={**embedder.start, "sample": np.zeros((2, 4), dtype=np.float32)})
    with_edges, _ = far._go_on(graph, 0, around)
    alone, _ = far._go_on(graph.subgraph(np.arange(around.n_inner)), 0, replace(around, survey={}))
    assert any(not np.allclose(with_edges[name], alone[name]) for name in with_edges)


def test_one_encoder_for_all_needs_no_alignment(blocks, blocks_quilt):
    patches = gq.embed_patches(blocks, blocks_quilt, quick())
    alignment, X = gq.stitch(blocks_quilt, patches, motions=gq.Motions(rotate=False, translate=False))
    assert alignment.edge_errors.max() < 0.1
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
        embedder.offer(bare, 0, Surroundings(bare.n_nodes, bare.n_nodes, {}))


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
    offers = [sample_of(gq.Graph(ring), np.arange(40), rows)]
    started = quick(blend=blend).started(offers, 0)
    assert float(started.start["decay"]) == pytest.approx(2e-3 * share)
    assert float(quick(weight_decay=0.5).started(offers, 0).start["decay"]) == 0.5
