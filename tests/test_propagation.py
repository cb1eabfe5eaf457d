"""Propagation: the formula, its laws, the shared start, and new nodes."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from graphquilt.embedders import BasisEncoder, Surroundings, reduction, signals
from graphquilt.errors import FormatError, InputError
from graphquilt.testing import check_embedder

N, WIDTH = 90, 12


def adjacency(seed, *, weighted=False, isolated=0):
    """A random graph of two blocks, the last ``isolated`` nodes without edges."""
    rng = np.random.default_rng(seed)
    block = np.arange(N) % 2
    A = np.triu(rng.random((N, N)) < np.where(block[:, None] == block, 0.12, 0.01), 1).astype(float)
    A[N - isolated :] = A[:, N - isolated :] = 0
    A *= rng.uniform(0.5, 3, (N, N)) if weighted else 1
    return sp.csr_array(A + A.T)


def features(seed, width=WIDTH):
    return np.random.default_rng(seed + 100).random((N, width), dtype=np.float32)


def unit(X):
    length = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(length > 0, length, 1)


def gram(Z):
    """The inner products, which do not depend on the axes."""
    Z = np.asarray(Z, dtype=np.float64)
    return Z @ Z.T


def dense_propagation(A, X, *, steps, restart, symmetric):
    """H = Σ a(1-a)^i S^i X + (1-a)^k S^k X by dense powers; a loop weighs as much as the node's mean edge."""
    A = A.toarray()
    count = (A > 0).sum(axis=1)
    loop = np.where(count > 0, A.sum(axis=1) / np.maximum(count, 1), 1)
    A = A + np.diag(loop)
    D = A.sum(axis=1)
    S = A / np.sqrt(np.outer(D, D)) if symmetric else A / D[:, None]
    power = np.linalg.matrix_power
    H = sum(restart * (1 - restart) ** i * power(S, i) @ X for i in range(steps))
    return H + (1 - restart) ** steps * power(S, steps) @ X


@pytest.mark.parametrize("weighted", [False, True])
def test_features_are_embedded_by_the_formula(weighted):
    A, X = adjacency(0, weighted=weighted), features(0)
    H = unit(dense_propagation(A, unit(X), steps=4, restart=0.2, symmetric=True))
    U, values, Vt = np.linalg.svd(H, full_matrices=False)
    fit = gq.Propagation(5, steps=4, restart=0.2).fit(gq.Graph(A, X), 0)
    np.testing.assert_allclose(gram(fit.embedding), gram(U[:, :5] * values[:5]), atol=1e-4)
    V = fit.encoder.embedder.start["directions"]
    np.testing.assert_allclose(np.abs((V * Vt[:5].T).sum(axis=0)), 1, atol=1e-3)
    assert np.all(V[np.abs(V).argmax(axis=0), np.arange(5)] > 0)


@pytest.mark.parametrize("weighted", [False, True])
def test_memberships_are_embedded_by_the_formula(weighted):
    A = adjacency(1, weighted=weighted, isolated=3)
    embedder, graph = gq.Propagation(30, clusters=20), gq.Graph(A)
    survey = embedder.survey(graph, 0)
    cluster, linked = survey["cluster"], graph.degrees > 0
    assert np.array_equal(cluster >= 0, linked)
    sizes = np.bincount(cluster[linked], minlength=20)
    np.testing.assert_allclose(survey["share"][linked], sizes[cluster[linked]] / linked.sum(), rtol=1e-6)
    M = (cluster[:, None] == np.arange(20)).astype(float)
    P = dense_propagation(A, M, steps=8, restart=0.15, symmetric=False)
    H = unit(np.log1p(P * linked.sum() / sizes))
    Z = embedder(graph, 0)
    np.testing.assert_allclose(gram(Z), gram(H), atol=1e-4)  # 30 columns hold all 20, and the other ten are zero
    assert np.all(Z[:, 20:] == 0)
    assert np.all(Z[~linked] == 0)


def test_both_signals_stand_side_by_side():
    A, X = adjacency(2), features(2)
    both = gq.Propagation(40, clusters=20, structure=0.5)(gq.Graph(A, X), 0)
    parts = gq.Propagation(40)(gq.Graph(A, X), 0), 0.5 * gq.Propagation(40, clusters=20)(gq.Graph(A), 0)
    np.testing.assert_allclose(gram(both), gram(parts[0]) + gram(parts[1]), atol=1e-4)


@given(st.integers(0, 10**6))
@settings(max_examples=10, deadline=None)
def test_relabelling_the_nodes_permutes_the_rows(seed):
    A, X = adjacency(seed, weighted=seed % 2 == 1, isolated=seed % 3), features(seed)
    order = np.random.default_rng(seed).permutation(N)
    embedder = gq.Propagation(WIDTH)
    Z, again = embedder(gq.Graph(A, X), 0), embedder(gq.Graph(A[order][:, order], X[order]), 0)
    np.testing.assert_allclose(gram(again), gram(Z[order]), atol=1e-4)
    structure = gq.Propagation(20, clusters=20)
    survey = structure.survey(gq.Graph(A), 0)
    Z = structure.fit(gq.Graph(A), 0, surroundings=Surroundings(N, N, survey)).embedding
    moved = Surroundings(N, N, {name: values[order] for name, values in survey.items()})
    again = structure.fit(gq.Graph(A[order][:, order]), 0, surroundings=moved).embedding
    np.testing.assert_allclose(gram(again), gram(Z[order]), atol=1e-4)


def test_the_unit_of_the_weights_does_not_matter():
    A, X = adjacency(3, weighted=True), features(3)
    Z = gq.Propagation(WIDTH)(gq.Graph(A, X), 0)
    np.testing.assert_allclose(gram(gq.Propagation(WIDTH)(gq.Graph(1000 * A, X), 0)), gram(Z), atol=1e-4)


def test_neither_blocks_nor_storage_nor_the_seed_change_the_result(monkeypatch):
    graph = gq.Graph(adjacency(4), features(4))
    embedder = gq.Propagation(30, clusters=20, structure=0.7)
    Z = embedder(graph, 0)
    assert np.array_equal(embedder(graph, 5), Z)
    for block in (1, 7, 1000):
        np.testing.assert_allclose(gram(replace(embedder, block=block)(graph, 0)), gram(Z), atol=1e-4)
    monkeypatch.setattr(reduction, "WHOLE", 0)
    np.testing.assert_allclose(gram(embedder(graph, 0)), gram(Z), atol=5e-3)  # stored in half precision
    monkeypatch.setattr(reduction, "HALVED", 0)
    np.testing.assert_allclose(gram(embedder(graph, 0)), gram(Z), atol=1e-4)  # computed twice


@pytest.mark.parametrize("width", [WIDTH, 140])
def test_features_of_every_kind_give_the_same_embedding(tmp_path, width):
    A, X = adjacency(5), features(5, width).astype(np.float16)
    X[X < 0.5] = 0
    np.save(tmp_path / "x.npy", X)
    embedder = gq.Propagation(6)
    Z = embedder(gq.Graph(A, X.astype(np.float32)), 0)
    kinds = (X.astype(np.float64), np.load(tmp_path / "x.npy", mmap_mode="r"), sp.csr_array(X.astype(np.float32)))
    for kind in kinds:
        np.testing.assert_allclose(gram(embedder(gq.Graph(A, kind), 0)), gram(Z), atol=1e-3)
    assert embedder.fit(gq.Graph(A, X), 0).encoder.embedder.start["directions"].shape == (width, 6)


def test_wide_features_are_embedded_nearly_by_the_formula():
    """Features with six strong directions and noise: a sketch finds them without spreading all 300 columns."""
    rng = np.random.default_rng(21)
    X = np.abs(rng.random((N, 6)) ** 4 @ rng.standard_normal((6, 300)) + 0.05 * rng.standard_normal((N, 300)))
    A = adjacency(21)
    H = unit(dense_propagation(A, unit(X), steps=10, restart=0.1, symmetric=True))
    U, values, _ = np.linalg.svd(H, full_matrices=False)
    Z = gq.Propagation(5)(gq.Graph(A, X), 0)
    np.testing.assert_allclose(np.linalg.norm(Z), np.linalg.norm(values[:5]), rtol=0.02)
    np.testing.assert_allclose(gram(Z), gram(U[:, :5] * values[:5]), atol=0.1)


def halves(graph, embedder, n_inner, seed=0):
    """Two overlapping patches of ``n_inner`` nodes, each with all other nodes around it."""
    survey = embedder.survey(graph, seed)
    for order in (np.arange(graph.n_nodes), np.arange(graph.n_nodes)[::-1]):
        yield (
            order,
            graph.subgraph(order),
            Surroundings(n_inner, N, {name: rows[order] for name, rows in survey.items()}),
        )


@pytest.mark.parametrize("with_features", [True, False])
def test_started_patches_agree_where_their_context_covers_the_graph(with_features):
    graph = gq.Graph(adjacency(6, isolated=2), features(6) if with_features else None)
    embedder = gq.Propagation(6, clusters=20)
    patches = list(halves(graph, embedder, 60))
    offers = [embedder.offer(part, k, surroundings) for k, (_, part, surroundings) in enumerate(patches)]
    started = pickle.loads(pickle.dumps(embedder.started(offers, 0)))
    assert started == embedder  # the start is a result, and no setting
    assert embedder.motions == gq.Motions()
    assert started.motions == gq.Motions(rotate=False, translate=False)
    full = embedder.fit(graph, 0).embedding
    for order, part, surroundings in patches:
        Z = started.fit(part, 0, surroundings=surroundings).embedding
        assert Z.shape == (60, 6)
        # All nodes are in the sample, so that the directions are those of the whole graph, up to half precision.
        np.testing.assert_allclose(gram(Z), gram(full[order[:60]]), atol=0.02)
    first, second = (
        dict(zip(order, started.fit(part, 0, surroundings=s).embedding, strict=False)) for order, part, s in patches
    )
    shared = sorted(first.keys() & second.keys())
    assert len(shared) == 30
    np.testing.assert_allclose([first[u] for u in shared], [second[u] for u in shared], atol=1e-4)


@pytest.mark.parametrize("width", [12, 500])
@pytest.mark.parametrize("sparse", [False, True])
def test_lengths_of_rows_are_estimated_where_there_are_many_columns(width, sparse):
    rng = np.random.default_rng(3)
    A, X = adjacency(20), rng.random((N, width), dtype=np.float32) * (rng.random((N, width)) < 0.5)
    graph = gq.Graph(A, sp.csr_array(X) if sparse else X)
    around = Surroundings(40, N, {})
    embedder = gq.Propagation(4, block=3)
    started = embedder.started([embedder.offer(graph, 0, around)], 0)
    patch = started.fit(graph, 0, surroundings=around).embedding
    H = unit(dense_propagation(A, unit(X), steps=10, restart=0.1, symmetric=True))
    exact = (H @ started.start["directions"])[:40]
    assert patch.shape == (40, 4)
    np.testing.assert_allclose(unit(patch), unit(exact), atol=2e-5)
    lengths = np.linalg.norm(patch, axis=1) / np.linalg.norm(exact, axis=1)
    np.testing.assert_allclose(lengths, 1, atol=2e-5 if width == 12 else 0.1)
    np.testing.assert_allclose(started.fit(graph, 0).embedding[:40], patch, atol=2e-5)


def test_only_the_rows_that_later_steps_need_are_computed():
    path = gq.Graph(sp.diags_array([np.ones(7), np.ones(7)], offsets=[-1, 1]))
    needed = signals.needed_rows(path, np.array([0]), 3)
    assert [rows.tolist() for rows in needed] == [[0, 1, 2], [0, 1], [0]]
    assert signals.needed_rows(path, np.array([0]), 0) == []


def test_offered_memberships_are_those_of_the_whole_graph_where_the_context_covers_it():
    graph, embedder = gq.Graph(adjacency(6)), gq.Propagation(6, clusters=20)
    (_, part, around), _ = halves(graph, embedder, 60)
    offer = embedder.offer(part, 0, around)
    whole = embedder.offer(part, 0, replace(around, n_inner=N))
    of_patch = np.isin(whole["sample"], offer["sample"])
    assert offer["rows"].shape == (60, whole["rows"].shape[1])
    np.testing.assert_allclose(offer["rows"], whole["rows"][of_patch], atol=2e-3)


def test_a_node_that_several_patches_offer_counts_once():
    graph, embedder = gq.Graph(adjacency(7)), gq.Propagation(4, clusters=20, sample=40)
    offers = [embedder.offer(part, 0, surroundings) for _, part, surroundings in halves(graph, embedder, 60)]
    rows = [len(offer["rows"]) for offer in offers]
    assert sum(rows) > 40
    assert len(np.unique(np.concatenate([offer["sample"] for offer in offers]))) == 40
    once = embedder.started(offers, 0).start["directions"]
    again = embedder.started([*offers, offers[0]], 0).start["directions"]
    assert np.array_equal(once, again)


@given(st.integers(0, 10**6), st.integers(1, 40))
@settings(max_examples=10, deadline=None)
def test_sketches_of_components_have_the_directions_of_the_whole(seed, shared):
    """Without edges between patches, B' B of all offers together is H' H, where shared nodes count by their share."""
    rng = np.random.default_rng(seed)
    graph = gq.Graph(sp.csr_array((N, N)), features(seed))
    first, second = np.arange(N // 2 + shared), np.arange(N // 2, N)
    counts = np.bincount(np.concatenate([first, second]), minlength=N).astype(np.uint16)
    embedder = gq.Propagation(WIDTH)
    offers = []
    for nodes in (first, rng.permutation(second)):
        around = Surroundings(len(nodes), N, {"patches": counts[nodes]})
        offers.append(embedder.offer(graph.subgraph(nodes), 0, around)["rows"].astype(np.float64))
    B, H = np.vstack(offers), unit(features(seed).astype(np.float64))
    np.testing.assert_allclose(B.T @ B, H.T @ H, rtol=0.01)


def test_patches_on_their_own_offer_rows_of_features_only():
    graph, embedder = gq.Graph(adjacency(8), features(8)), gq.Propagation(4, context=None)
    offer = embedder.offer(graph, 0)
    assert offer["rows"].shape == (WIDTH, WIDTH)
    assert embedder.offer(gq.Graph(adjacency(8), features(8, 500)), 0)["rows"].shape == (4 + 32, 500)
    assert embedder.survey(graph, 0) == {}
    started = embedder.started([offer, embedder.offer(graph.subgraph(np.arange(60)), 1)], 0)
    assert started(graph, 0).shape == (N, 4)
    bare = gq.Graph(adjacency(8))
    assert embedder.offer(bare, 0) == {}
    assert embedder.started([{}, {}], 0).start is None
    with pytest.raises(InputError, match=r"12 columns, and this graph has one of 7"):
        started(gq.Graph(adjacency(8), features(8, 7)), 0)
    with pytest.raises(InputError, match=r"rows have \[7, 12\] columns"):
        embedder.started([offer, embedder.offer(gq.Graph(adjacency(8), features(8, 7)), 0)], 0)


def test_features_in_a_patch_alone_go_no_further_than_across_it(tmp_path):
    X = features(8)
    dense = gq.Graph(sp.csr_array(np.ones((N, N)) - np.eye(N)), X)  # one step, rounded up, is enough
    fit = gq.Propagation(4, context=None).fit(dense, 0)
    expected = gq.Propagation(4, steps=2)(dense, 0)
    np.testing.assert_allclose(fit.embedding, expected, atol=1e-6)
    fit.encoder.save(tmp_path / "basis.npz")
    np.testing.assert_allclose(BasisEncoder.load(tmp_path / "basis.npz")(dense), expected, atol=1e-5)
    path = gq.Graph(sp.diags_array([np.ones(N - 1)], offsets=[1], shape=(N, N)), X)
    np.testing.assert_array_equal(gq.Propagation(4, context=None)(path, 0), gq.Propagation(4)(path, 0))


def test_the_encoder_embeds_its_graph_again_and_new_nodes_too(tmp_path):
    graph = gq.Graph(adjacency(9), features(9))
    fit = gq.Propagation(4).fit(graph, 0)
    fit.encoder.save(tmp_path / "basis.npz")
    encoder = BasisEncoder.load(tmp_path / "basis.npz")
    np.testing.assert_allclose(encoder(graph), fit.embedding, atol=1e-5)
    assert (encoder.dim, repr(encoder)) == (4, "BasisEncoder(Propagation, dim=4, 12 columns)")
    pair = sp.csr_array([[0.0, 1.0], [1.0, 0.0]])
    grown = gq.Graph(sp.csr_array(sp.block_diag([graph.adjacency, pair])), np.vstack([features(9), features(9)[:2]]))
    np.testing.assert_allclose(encoder(grown)[:N], fit.embedding, atol=1e-5)  # other components do not matter
    np.testing.assert_allclose(encoder(grown)[N:], encoder(gq.Graph(pair, features(9)[:2])), atol=1e-5)
    np.savez(tmp_path / "other.npz", description=np.zeros(3, np.uint8), directions=np.ones((2, 2)))
    with pytest.raises(FormatError, match=r"other.npz was not written by BasisEncoder.save"):
        BasisEncoder.load(tmp_path / "other.npz")


@pytest.mark.parametrize(
    ("settings", "directions"),
    [
        ({"dim": 2}, np.ones(3)),
        ({"dim": 2}, np.ones((3, 1))),
        ({"dim": 2}, np.full((3, 2), np.nan)),
        ({"dim": 2}, np.full((3, 2), "x")),
        ({"dim": 2, "steps": 1.5}, np.ones((3, 2))),
        ({"dim": 2, "block": "x"}, np.ones((3, 2))),
        ([], np.ones((3, 2))),
    ],
)
def test_a_file_that_is_no_basis_is_refused(tmp_path, settings, directions):
    text = json.dumps({"format": "graphquilt-basis", "version": 1, "settings": settings})
    np.savez(tmp_path / "basis.npz", description=np.frombuffer(text.encode(), np.uint8), directions=directions)
    with pytest.raises(FormatError, match="does not hold the settings of a basis"):
        BasisEncoder.load(tmp_path / "basis.npz")


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_a_basis_that_gives_no_finite_rows_is_refused(tmp_path):
    text = json.dumps({"format": "graphquilt-basis", "version": 1, "settings": {"dim": 1}})
    directions = np.full((WIDTH, 1), 3e38, np.float32)
    np.savez(tmp_path / "basis.npz", description=np.frombuffer(text.encode(), np.uint8), directions=directions)
    with pytest.raises(InputError, match="values that are not finite"):
        BasisEncoder.load(tmp_path / "basis.npz")(gq.Graph(adjacency(9), features(9)))


def test_offers_and_surveys_of_other_shapes_are_refused():
    embedder, rows = gq.Propagation(1, clusters=4), np.ones((3, 2), np.float16)
    for offer in ({"rows": rows[0]}, {"rows": rows * np.nan}, {"rows": rows, "sample": np.arange(2)}):
        with pytest.raises(InputError, match="is not a matrix of finite rows"):
            embedder.started([offer], 0)
    graph = gq.Graph(adjacency(1))
    survey = {"sample": np.arange(N), "cluster": np.arange(N) % 4, "share": np.full(N, 0.25)}
    for name, array, message in (
        ("sample", np.ones(N), "one whole number per node"),
        ("cluster", np.ones(N), "the survey has clusters float64"),
        ("share", np.ones((N, 2)), "shares float64"),
        ("share", np.zeros(N), "between 0 and 1"),
    ):
        with pytest.raises(InputError, match=message):
            embedder.offer(graph, 0, Surroundings(N, N, {**survey, name: array}))


def test_an_encoder_of_memberships_takes_the_survey(tmp_path):
    graph, embedder = gq.Graph(adjacency(10)), gq.Propagation(4, clusters=20)
    fit, survey = embedder.fit(graph, 0), embedder.survey(graph, 0)
    np.testing.assert_allclose(fit.encoder(graph, survey), fit.embedding, atol=1e-5)
    with pytest.raises(InputError, match="the shared start refers to 20 clusters of another graph"):
        fit.encoder(graph)
    grown = sp.csr_array(sp.block_diag([graph.adjacency, np.zeros((1, 1))])).tolil()
    grown[N, 0] = grown[0, N] = 1
    more = {"cluster": np.append(survey["cluster"], -1), "share": np.append(survey["share"], 1.0)}
    Z = fit.encoder(gq.Graph(sp.csr_array(grown)), more)
    similar = unit(Z[:N]) @ unit(Z[N:])[0]
    assert similar[0] > np.quantile(similar, 0.9)  # the new node lies beside its only neighbour
    with pytest.raises(InputError, match="the survey has cluster 19, and the embedder has 10 clusters"):
        replace(embedder, clusters=10).fit(graph, 0, surroundings=Surroundings(N, N, survey))


def test_large_graphs_are_sampled_and_clustered_in_a_stream(monkeypatch):
    graph, embedder = gq.Graph(adjacency(11)), gq.Propagation(20, clusters=20)
    survey = embedder.survey(graph, 0)
    monkeypatch.setattr(signals, "METIS_ENTRIES", 10)
    streamed = embedder.survey(graph, 0)
    assert not np.array_equal(streamed["cluster"], survey["cluster"])
    assert np.array_equal(np.unique(streamed["cluster"]), np.arange(20))
    lone = gq.Graph(adjacency(11, isolated=4))
    assert np.array_equal(embedder.survey(lone, 0)["cluster"] >= 0, lone.degrees > 0)
    graph = gq.Graph(adjacency(11), features(11))
    Z = gq.Propagation(WIDTH)(graph, 0)
    few = gq.Propagation(WIDTH, sample=40)(graph, 0)  # 40 rows span all 12 directions
    np.testing.assert_allclose(gram(few), gram(Z), atol=1e-4)


def test_clusters_made_in_a_stream_find_small_communities(monkeypatch):
    rng, n, size = np.random.default_rng(0), 8000, 40
    source = rng.integers(n, size=10 * n)
    inside = rng.random(len(source)) < 0.5
    target = np.where(
        inside, source // size * size + rng.integers(size, size=len(source)), rng.integers(n, size=len(source))
    )
    shuffled = rng.permutation(n)
    graph = gq.read_edges(np.stack([shuffled[source], shuffled[target]], axis=1), n_nodes=n)
    monkeypatch.setattr(signals, "METIS_ENTRIES", 10)
    cluster = gq.Propagation(8, clusters=n // size).survey(graph, 0)["cluster"]
    kept = cluster[shuffled[source[inside]]] == cluster[shuffled[target[inside]]]
    assert kept.mean() > 0.85  # .71 after two passes


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_small_graphs_without_edges_or_features_are_finite(n):
    for A in (sp.csr_array((n, n)), sp.csr_array(np.ones((n, n)) - np.eye(n))):
        for X in (None, np.zeros((n, 3)), np.ones((n, 3))):
            Z = gq.Propagation(4, structure=1.0)(gq.Graph(A, X), 0)
            assert Z.shape == (n, 4)
            assert np.isfinite(Z).all()


def test_a_directed_graph_is_made_undirected():
    A = sp.triu(adjacency(12, weighted=True), format="csr")
    X = features(12)
    Z = gq.Propagation(5)(gq.Graph(sp.csr_array(A + A.T), X), 0)
    np.testing.assert_allclose(gq.Propagation(5)(gq.Graph(A, X), 0), Z, atol=1e-5)


def test_structure_tells_the_blocks_apart():
    Z = unit(gq.Propagation(4)(gq.Graph(adjacency(13)), 0).astype(np.float64))
    same = (np.arange(N)[:, None] - np.arange(N)) % 2 == 0
    assert (Z @ Z.T)[same].mean() > (Z @ Z.T)[~same].mean() + 0.1


def test_progress_counts_columns_and_embedders_conform():
    events = []
    gq.Propagation(3, clusters=12, block=5).fit(gq.Graph(adjacency(14)), 0, progress=events.append)
    assert [(e.stage, e.done, e.total) for e in events] == [("propagation", k, 12) for k in (5, 10, 12)]
    events.clear()
    gq.Propagation(3, block=50).fit(gq.Graph(adjacency(14), features(14, 500)), 0, progress=events.append)
    assert [(e.done, e.total) for e in events] == [(k, 169) for k in (50, 64, 99, 134, 169)]  # 64 probes, 35 rows
    check_embedder(gq.Propagation(3))
    check_embedder(gq.Propagation(3, structure=0.5, clusters=8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clusters": 0}, "clusters of Propagation must be at least 1, not 0"),
        ({"sample": 0}, "sample of Propagation must be at least 1, not 0"),
        ({"steps": -1}, "steps of Propagation must not be negative"),
        ({"restart": 1.5}, "restart of Propagation is a probability from 0 to 1, not 1.5"),
        ({"structure": -1.0}, "structure of Propagation is a weight of at least 0, not -1.0"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(InputError, match=message):
        gq.Propagation(4, **options)


def test_a_context_has_hops_and_neighbours():
    with pytest.raises(InputError, match="hops of a Context is a whole number of at least 1, not 0"):
        gq.Context(hops=0)


def test_features_that_are_not_finite_are_refused():
    X = features(15)
    X[7, 3] = np.nan
    with pytest.raises(InputError, match="the features of 1 of 90 nodes are not finite, the first is node 7"):
        gq.Propagation(4)(gq.Graph(adjacency(15), X), 0)
