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
from graphquilt.embedders import BasisEncoder, FarField, Signal, agree
from graphquilt.embedders.shared_start import cut_patch
from graphquilt.errors import FormatError, InputError
from graphquilt.patches import clusters, coarse_graph
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


FEATURES, EDGES = Signal.features(), Signal.edges()


@pytest.mark.parametrize("weighted", [False, True])
def test_features_are_embedded_by_the_formula(weighted):
    A, X = adjacency(0, weighted=weighted), features(0)
    H = unit(dense_propagation(A, unit(X), steps=4, restart=0.2, symmetric=True))
    U, values, Vt = np.linalg.svd(H, full_matrices=False)
    fit = gq.Propagation(5, steps=4, restart=0.2, signal=FEATURES).fit(gq.Graph(A, X), 0)
    np.testing.assert_allclose(gram(fit.embedding), gram(U[:, :5] * values[:5]), atol=1e-3)
    V = fit.encoder.embedder.start["directions"]
    np.testing.assert_allclose(np.abs((V * Vt[:5].T).sum(axis=0)), 1, atol=1e-2)
    assert np.all(V[np.abs(V).argmax(axis=0), np.arange(5)] > 0)


@pytest.mark.parametrize("weighted", [False, True])
def test_memberships_are_embedded_by_the_formula(weighted):
    A = adjacency(1, weighted=weighted, isolated=3)
    embedder, graph = gq.Propagation(30, clusters=20, signal=EDGES), gq.Graph(A)
    survey = embedder.survey(graph, 0)
    column, linked = survey.nodes["column"], graph.degrees > 0
    assert np.array_equal(column >= 0, linked)
    sizes = np.bincount(column[linked], minlength=20)
    np.testing.assert_allclose(survey.shared["gain"], linked.sum() / sizes, rtol=1e-6)
    M = (column[:, None] == np.arange(20)).astype(float)
    P = dense_propagation(A, M, steps=8, restart=0.15, symmetric=False)
    H = unit(np.log1p(P * linked.sum() / sizes))
    Z = embedder(graph, 0)
    np.testing.assert_allclose(gram(Z), gram(H), atol=1e-3)  # 30 columns hold all 20, and the other ten are zero
    assert np.all(Z[:, 20:] == 0)
    assert np.all(Z[~linked] == 0)


def test_roles_are_degrees_near_and_far():
    A = adjacency(1)
    own = np.log1p((A > 0).sum(axis=1))
    S = (A + sp.eye_array(N)).toarray()
    S /= S.sum(axis=1, keepdims=True)
    roles = np.stack([own, S @ own, S @ S @ own], axis=1)
    standard = (roles - roles.mean(axis=0)) / roles.std(axis=0) / np.sqrt(3)
    alone = Signal(spread=0, raw=0, near=0, clusters=0, doubt=0, role=1, power=1)
    Z = gq.Propagation(3, signal=alone)(gq.Graph(A, np.ones((N, 2)) * features(1, 1)), 0)
    np.testing.assert_allclose(gram(Z), gram(np.clip(standard, -4 / np.sqrt(3), 4 / np.sqrt(3))), atol=5e-3)


def test_parts_stand_side_by_side_with_their_weights():
    A, X = adjacency(2), features(2)
    graph = gq.Graph(A, X)

    def alone(signal):
        return gram(gq.Propagation(40, clusters=20, signal=signal)(graph, 0))

    S = dense_propagation(A, unit(X), steps=1, restart=0.0, symmetric=True)
    nothing = {"spread": 0, "raw": 0, "near": 0, "clusters": 0, "doubt": 0, "role": 0, "power": 1}
    np.testing.assert_allclose(alone(Signal.own_features()), gram(unit(X)), atol=1e-3)
    np.testing.assert_allclose(alone(Signal(**{**nothing, "near": 1})), gram(unit(S)), atol=1e-3)
    both = alone(Signal(**{**nothing, "spread": 1, "near": 0.5, "clusters": 0.5}))
    parts = 0.5 * alone(FEATURES) + 0.25 * gram(unit(S)) + 0.25 * alone(EDGES)
    np.testing.assert_allclose(both, parts, atol=2e-3)


def test_a_power_stresses_directions_or_evens_them_out():
    values = np.array([4.0, 1.0, 0.25, 0.0])
    assert np.array_equal(FEATURES.scale(values), [1, 1, 1, 0])
    np.testing.assert_allclose(Signal(power=2).scale(values), [1, 1, 0.5, 0])  # the first no more than the second
    np.testing.assert_allclose(Signal(power=0).scale(values), [1, 2, 4, 0])
    for power in (0.5, 1, 2):  # a single direction is neither
        np.testing.assert_allclose(Signal(power=power).scale(np.array([4.0, 0.0])), [1, 0])
        np.testing.assert_allclose(Signal(power=power).scale(np.array([4.0])), [1])
    graph = gq.Graph(adjacency(2), features(2))
    Z = [gq.Propagation(6, signal=replace(FEATURES, power=power))(graph, 0) for power in (1, 2)]
    lengths = [np.linalg.norm(each, axis=0) for each in Z]
    np.testing.assert_allclose(unit(Z[1].T), unit(Z[0].T), atol=1e-5)
    np.testing.assert_allclose(lengths[1][1:], lengths[0][1:] ** 2 / lengths[0][1], rtol=1e-3)


@given(st.integers(0, 10**6))
@settings(max_examples=10, deadline=None)
def test_relabelling_the_nodes_permutes_the_rows(seed):
    A, X = adjacency(seed, weighted=seed % 2 == 1, isolated=seed % 3), features(seed)
    order = np.random.default_rng(seed).permutation(N)
    embedder = gq.Propagation(WIDTH, signal=FEATURES)
    Z, again = embedder(gq.Graph(A, X), 0), embedder(gq.Graph(A[order][:, order], X[order]), 0)
    np.testing.assert_allclose(gram(again), gram(Z[order]), atol=1e-3)
    embedder = gq.Propagation(20, clusters=20)
    survey = embedder.survey(gq.Graph(A), 0)
    moved = replace(survey, nodes={name: rows[order] for name, rows in survey.nodes.items()})
    started = agree(embedder, [(gq.Graph(A), FarField.whole(survey, N))], 0)
    Z = started.fit(gq.Graph(A), 0, far=FarField.whole(survey, N)).embedding
    again = started.fit(gq.Graph(A[order][:, order]), 0, far=FarField.whole(moved, N)).embedding
    np.testing.assert_allclose(again, Z[order], atol=1e-4)


def test_the_unit_of_the_weights_does_not_matter():
    A, X = adjacency(3, weighted=True), features(3)
    Z = gq.Propagation(WIDTH)(gq.Graph(A, X), 0)
    np.testing.assert_allclose(gram(gq.Propagation(WIDTH)(gq.Graph(1000 * A, X), 0)), gram(Z), atol=1e-3)


def test_neither_blocks_nor_the_seed_change_the_result():
    graph = gq.Graph(adjacency(4), features(4))
    embedder = gq.Propagation(30, clusters=20)
    Z = embedder(graph, 0)
    assert np.array_equal(embedder(graph, 5), Z)
    for block in (1, 7, 1000):
        np.testing.assert_allclose(gram(replace(embedder, block=block)(graph, 0)), gram(Z), atol=1e-3)
    whole = gq.PatchGraph([np.arange(N)], np.empty((0, 2), dtype=int), N)
    (kept,) = gq.embed_patches(graph, whole, embedder)
    np.testing.assert_allclose(gram(kept.coordinates), gram(Z), atol=5e-3)


@pytest.mark.parametrize("width", [WIDTH, 140, 300])
def test_features_of_every_kind_give_the_same_embedding(tmp_path, width):
    A, X = adjacency(5), features(5, width).astype(np.float16)
    X[X < 0.5] = 0
    np.save(tmp_path / "x.npy", X)
    embedder = gq.Propagation(6, signal=FEATURES)
    Z = embedder(gq.Graph(A, X.astype(np.float32)), 0)
    kinds = (X.astype(np.float64), np.load(tmp_path / "x.npy", mmap_mode="r"), sp.csr_array(X.astype(np.float32)))
    for kind in kinds:
        np.testing.assert_allclose(gram(embedder(gq.Graph(A, kind), 0)), gram(Z), atol=3e-3)
    columns = min(width, 256)  # wider features are reduced first
    assert embedder.fit(gq.Graph(A, X), 0).encoder.embedder.start["directions"].shape == (columns, 6)


def test_wide_features_are_embedded_nearly_by_the_formula():
    """Features with six strong directions and noise."""
    rng = np.random.default_rng(21)
    X = np.abs(rng.random((N, 6)) ** 4 @ rng.standard_normal((6, 300)) + 0.05 * rng.standard_normal((N, 300)))
    A = adjacency(21)
    H = unit(dense_propagation(A, unit(X), steps=10, restart=0.1, symmetric=True))
    U, values, _ = np.linalg.svd(H, full_matrices=False)
    Z = gq.Propagation(5, signal=FEATURES)(gq.Graph(A, X), 0)
    np.testing.assert_allclose(np.linalg.norm(Z), np.linalg.norm(values[:5]), rtol=1e-3)
    np.testing.assert_allclose(gram(Z), gram(U[:, :5] * values[:5]), atol=0.01)


@pytest.mark.parametrize("with_features", [True, False])
def test_patches_from_a_shared_start_agree_with_the_whole_graph(with_features):
    """Far clusters of one node each leave nothing to approximate."""
    graph = gq.Graph(adjacency(6, isolated=2), features(6) if with_features else None)
    embedder = gq.Propagation(6, clusters=20)
    survey = embedder.survey(graph, 0, clusters=coarse_graph(graph, np.arange(N)))
    halves = [np.arange(60), np.arange(N)[:29:-1]]
    counts = np.where((np.arange(N) >= 30) & (np.arange(N) < 60), 2, 1)
    survey = replace(survey, nodes={**survey.nodes, "patches": counts})
    parts = [cut_patch(graph, nodes, survey) for nodes in halves]
    started = pickle.loads(pickle.dumps(agree(embedder, parts, 0)))
    assert started == embedder  # the start is a result, and no setting
    assert embedder.motions == gq.Motions()
    assert started.motions == gq.Motions(rotate=False, translate=False)
    full = embedder.fit(graph, 0).embedding
    first, second = (started.fit(part, 0, far=far) for part, far in parts)
    for nodes, fit in zip(halves, (first, second), strict=True):
        np.testing.assert_allclose(gram(fit.embedding), gram(full[nodes]), atol=5e-3)
        assert 0 < fit.facts["share"] <= 1
        assert 0 < fit.facts["leaving"] < 1
    np.testing.assert_allclose(first.embedding[30:], second.embedding[::-1][:30], atol=1e-3)


def test_patches_on_their_own_have_their_features_in_common():
    graph, embedder = gq.Graph(adjacency(8), features(8)), gq.Propagation(4, signal=FEATURES)
    started = agree(embedder, [(graph, None), (graph.subgraph(np.arange(60)), None)], 0)
    assert started(graph, 0).shape == (N, 4)
    with pytest.raises(InputError, match="the 90 nodes have no features, and no survey tells which clusters"):
        embedder.prepare(gq.Graph(adjacency(8)), 0)
    with pytest.raises(InputError, match=r"12 columns, and this graph has one of 7"):
        started(gq.Graph(adjacency(8), features(8, 7)), 0)
    with pytest.raises(InputError, match="all patches need the same features"):
        agree(embedder, [(graph, None), (gq.Graph(adjacency(8), features(8, 7)), None)], 0)


def test_the_encoder_embeds_its_graph_again_and_new_nodes_too(tmp_path):
    graph = gq.Graph(adjacency(9), features(9))
    fit = gq.Propagation(4, signal=FEATURES).fit(graph, 0)
    fit.encoder.save(tmp_path / "basis.npz")
    encoder = BasisEncoder.load(tmp_path / "basis.npz")
    np.testing.assert_allclose(encoder(graph), fit.embedding, atol=1e-5)
    assert (encoder.dim, repr(encoder)) == (4, "BasisEncoder(Propagation, dim=4, 12 columns)")
    pair = sp.csr_array([[0.0, 1.0], [1.0, 0.0]])
    grown = gq.Graph(
        sp.csr_array(sp.block_diag([graph.adjacency, sp.csr_array(pair)])), np.vstack([features(9), features(9)[:2]])
    )
    np.testing.assert_allclose(encoder(grown)[:N], fit.embedding, atol=1e-5)  # other components do not matter
    np.testing.assert_allclose(encoder(grown)[N:], encoder(gq.Graph(pair, features(9)[:2])), atol=1e-5)
    np.savez(tmp_path / "other.npz", description=np.zeros(3, np.uint8), directions=np.ones((2, 2)))
    with pytest.raises(FormatError, match=r"other.npz was not written by BasisEncoder.save"):
        BasisEncoder.load(tmp_path / "other.npz")


@pytest.mark.parametrize("width", [WIDTH, 300])
def test_an_encoder_of_all_parts_embeds_its_graph_again(tmp_path, width):
    graph, embedder = gq.Graph(adjacency(9), features(9, width)), gq.Propagation(4, clusters=20)
    fit = embedder.fit(graph, 0)
    fit.encoder.save(tmp_path / "basis.npz")
    encoder = BasisEncoder.load(tmp_path / "basis.npz")
    np.testing.assert_allclose(encoder(graph), fit.embedding, atol=1e-4)
    assert np.isfinite(encoder(graph.with_attributes(node_ids=np.arange(N) + 1000))).all()  # features tell enough


def basis_file(path, settings, **arrays):
    names = [f"start_{name}" for name in arrays]
    text = {"format": "graphquilt-basis", "version": 3, "settings": settings, "signal": {}, "arrays": names}
    description = np.frombuffer(json.dumps(text).encode(), np.uint8)
    np.savez(path, description=description, **{f"start_{name}": array for name, array in arrays.items()})
    return path


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
    path = basis_file(tmp_path / "basis.npz", settings, directions=directions, scale=np.ones(2))
    with pytest.raises(FormatError, match="does not hold the settings of a basis"):
        BasisEncoder.load(path)


@pytest.mark.parametrize("scale", [None, np.ones(3), np.full(2, np.nan), np.ones(2, dtype=int)])
def test_a_start_without_the_scale_of_its_directions_is_refused(tmp_path, scale):
    arrays = {"directions": np.ones((3, 2))} | ({} if scale is None else {"scale": scale})
    with pytest.raises(InputError, match="a shared start of Propagation has"):
        gq.Propagation(2, start=arrays)
    with pytest.raises(FormatError, match="does not hold the settings of a basis"):
        BasisEncoder.load(basis_file(tmp_path / "basis.npz", {"dim": 2}, **arrays))


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_a_basis_that_gives_no_finite_rows_is_refused(tmp_path):
    arrays = {"directions": np.full((3 * WIDTH, 1), 3e38, np.float32), "scale": np.ones(1, np.float32)}
    path = basis_file(tmp_path / "basis.npz", {"dim": 1}, **arrays)
    with pytest.raises(InputError, match="values that are not finite"):
        BasisEncoder.load(path)(gq.Graph(adjacency(9), features(9)))


def test_surveys_of_other_shapes_are_refused():
    embedder, graph = gq.Propagation(1, clusters=4), gq.Graph(adjacency(1))
    nodes, shared = {"column": np.arange(N, dtype=np.int32) % 4}, {"gain": np.full(4, 4.0)}
    for name, array, message in (
        ("column", np.ones(N), "the survey has columns float64"),
        ("column", np.zeros(3, dtype=np.int32), "It belongs to another graph"),
        ("column", np.full(N, 9, dtype=np.int32), "has column 9, and gains for 4"),
        ("gain", np.zeros(4), "numbers of at least 1"),
        ("gain", np.full(4, np.nan), "numbers of at least 1"),
    ):
        far = FarField.whole(gq.embedders.Survey(nodes | ({name: array} if name == "column" else {}), shared), N)
        far = replace(far, shared=shared | ({name: array} if name == "gain" else {}))
        with pytest.raises(InputError, match=message):
            embedder.prepare(graph, 0, far=far)


def test_an_encoder_of_memberships_knows_nodes_by_their_ids():
    graph, embedder = gq.Graph(adjacency(10)), gq.Propagation(4, clusters=20, signal=EDGES)
    fit = embedder.fit(graph, 0)
    np.testing.assert_allclose(fit.encoder(graph), fit.embedding, atol=1e-5)
    order = np.random.default_rng(0).permutation(N)
    np.testing.assert_allclose(fit.encoder(graph.subgraph(order)), fit.embedding[order], atol=1e-5)
    with pytest.raises(InputError, match="none of the 90 nodes has an id of the graph that this encoder was made on"):
        fit.encoder(graph.with_attributes(node_ids=np.arange(N) + 1000))
    grown = sp.csr_array(sp.block_diag([graph.adjacency, sp.csr_array((1, 1))])).tolil()
    grown[N, 0] = grown[0, N] = 1
    Z = fit.encoder(gq.Graph(sp.csr_array(grown)))
    similar = unit(Z[:N]) @ unit(Z[N:])[0]
    assert similar[0] > np.quantile(similar, 0.9)  # the new node lies beside its only neighbour


def test_large_graphs_are_sampled_and_their_clusters_merged(monkeypatch):
    graph, embedder = gq.Graph(adjacency(11)), gq.Propagation(20, clusters=20)
    survey = embedder.survey(graph, 0)
    monkeypatch.setattr(clusters, "LARGE", 10)
    monkeypatch.setattr(clusters, "FEWEST", 40)
    merged = embedder.survey(graph, 0)
    assert not np.array_equal(merged.nodes["column"], survey.nodes["column"])
    assert np.array_equal(np.unique(merged.nodes["column"]), np.arange(len(merged.shared["gain"])))
    assert len(merged.shared["gain"]) >= 15
    lone = gq.Graph(adjacency(11, isolated=4))
    assert np.array_equal(embedder.survey(lone, 0).nodes["column"] >= 0, lone.degrees > 0)
    graph = gq.Graph(adjacency(11), features(11))
    Z = gq.Propagation(WIDTH, signal=FEATURES)(graph, 0)
    few = gq.Propagation(WIDTH, signal=FEATURES, sample=40)(graph, 0)  # 40 rows span all 12 directions
    np.testing.assert_allclose(gram(few), gram(Z), atol=1e-3)


def test_merged_clusters_find_small_communities(monkeypatch):
    rng, n, size = np.random.default_rng(0), 8000, 40
    source = rng.integers(n, size=10 * n)
    inside = rng.random(len(source)) < 0.5
    target = np.where(
        inside, source // size * size + rng.integers(size, size=len(source)), rng.integers(n, size=len(source))
    )
    shuffled = rng.permutation(n)
    graph = gq.read_edges(np.stack([shuffled[source], shuffled[target]], axis=1), n_nodes=n)
    monkeypatch.setattr(clusters, "LARGE", 10)
    monkeypatch.setattr(clusters, "FEWEST", 400)
    column = gq.Propagation(8, clusters=n // size, signal=EDGES).survey(graph, 0).nodes["column"]
    kept = column[shuffled[source[inside]]] == column[shuffled[target[inside]]]
    assert kept.mean() > 0.85


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_small_graphs_are_finite_or_refused_in_a_sentence(n):
    for A in (sp.csr_array((n, n)), sp.csr_array(np.ones((n, n)) - np.eye(n))):
        for X in (None, np.zeros((n, 3)), np.ones((n, 3)), np.eye(n, 3) + 1):
            try:
                Z = gq.Propagation(4)(gq.Graph(A, X), 0)
            except InputError:
                assert X is None or len(np.unique(X, axis=0)) <= 1  # nothing tells the nodes apart
                continue
            assert Z.shape == (n, 4)
            assert np.isfinite(Z).all()


def test_what_tells_nothing_is_said_and_not_embedded():
    A, X = adjacency(12), features(12)
    for graph, message in (
        (gq.Graph(A, 0 * X), "the features of all 90 nodes are zero"),
        (gq.Graph(A, sp.csr_array(0 * X)), "the features of all 90 nodes are zero"),
        (gq.Graph(A, np.ones_like(X)), "the features of all 90 nodes are the same"),
        (gq.Graph(A, sp.csr_array(np.ones_like(X))), "the features of all 90 nodes are the same"),
        (gq.Graph(sp.csr_array((N, N))), "90 nodes have neither edges nor features"),
    ):
        with pytest.raises(InputError, match=message):
            gq.Propagation(4)(graph, 0)
        with pytest.raises(InputError, match=message):
            gq.embed(graph, dim=4, n_patches=1)
    assert np.isfinite(gq.Propagation(4)(gq.Graph(sp.csr_array((N, N)), X), 0)).all()  # features tell nodes apart


def test_a_directed_graph_is_made_undirected():
    A = sp.triu(adjacency(12, weighted=True), format="csr")
    X = features(12)
    Z = gq.Propagation(5)(gq.Graph(sp.csr_array(A + A.T), X), 0)
    np.testing.assert_allclose(gram(gq.Propagation(5)(gq.Graph(A, X), 0)), gram(Z), atol=1e-5)


def test_edges_tell_the_blocks_apart():
    Z = unit(gq.Propagation(4, signal=EDGES)(gq.Graph(adjacency(13)), 0).astype(np.float64))
    same = (np.arange(N)[:, None] - np.arange(N)) % 2 == 0
    assert (Z @ Z.T)[same].mean() > (Z @ Z.T)[~same].mean() + 0.1


def test_progress_counts_columns_and_embedders_conform():
    events = []
    edges = gq.Propagation(3, clusters=12, block=5, signal=EDGES)
    edges.fit(gq.Graph(adjacency(14)), 0, progress=events.append)
    assert [(e.stage, e.done, e.total) for e in events] == [("propagation", k, 12) for k in (5, 10, 12)]
    check_embedder(gq.Propagation(3, clusters=8))
    check_embedder(gq.Propagation(3, signal=FEATURES))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clusters": 0}, "clusters of Propagation must be at least 1, not 0"),
        ({"sample": 0}, "sample of Propagation must be at least 1, not 0"),
        ({"steps": -1}, "steps of Propagation must be at least 0, not -1"),
        ({"steps": True}, "steps of Propagation is a number, not 'True'"),
        ({"restart": 1.5}, "restart of Propagation is a probability from 0 to below 1, not 1.5"),
        ({"signal": "edges"}, "signal of Propagation is a Signal, such as"),
        ({"start": {}}, "a shared start of Propagation has finite directions and a scale"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(InputError, match=message):
        gq.Propagation(4, **options)


@pytest.mark.parametrize("value", [-1, np.nan, np.inf, True, "1", None])
def test_weights_of_a_signal_are_numbers_of_at_least_0(value):
    with pytest.raises(InputError, match="raw of a Signal is a number of at least 0"):
        Signal(raw=value)
    with pytest.raises(InputError, match="at least one part whose weight is above 0"):
        Signal(spread=0, raw=0, near=0, clusters=0, role=0)


def test_clusters_count_more_where_features_say_little():
    assert Signal().weights(features=True, share=1.0)["clusters"] == 0.1
    assert Signal().weights(features=True, share=0.5)["clusters"] == 1.1
    assert set(Signal.own_features().weights(features=True)) == {"raw"}
    assert Signal.own_features().weights(features=False) == {"clusters": 1.0}  # what else is there


def test_features_that_are_not_finite_are_refused():
    X = features(15)
    X[7, 3] = np.nan
    with pytest.raises(InputError, match="the features of 1 of 90 nodes are not finite, the first is node 7"):
        gq.Propagation(4)(gq.Graph(adjacency(15), X), 0)


def test_kept_rows_of_another_shape_are_refused(blocks):
    part, embedder = blocks.subgraph(np.arange(300)), gq.Propagation(4)
    far = FarField.whole(embedder.survey(part, 0), 300)
    kept = dict(embedder.prepare(part, 0, far=far))
    started = agree(embedder, [(part, far)], 0)
    assert started.finish(kept).embedding.shape == (300, 4)
    for name, array in (("facts", np.ones((2, 1))), ("facts", np.ones(3)), ("rows", kept["rows"][:, :-1])):
        with pytest.raises(FormatError, match="arrays of other shapes"):
            started.finish({**kept, name: array})
