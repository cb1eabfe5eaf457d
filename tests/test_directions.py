"""Directions from sums of whole numbers: the same bits whoever adds them, and the share of a dense decomposition."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from graphquilt.embedders import FarField, Signal, agree
from graphquilt.embedders.directions import MOST, Basis, grid_product, leading, orthonormal


def moment(rows):
    return grid_product(rows, rows)


def divided(n, seed):
    """Return the numbers 0..n-1 in some order, in some parts, of which some may be empty."""
    rng = np.random.default_rng(seed)
    return np.split(rng.permutation(n), np.sort(rng.integers(0, n + 1, rng.integers(0, 7))))


def with_spectrum(values, n, seed=0):
    """Return a matrix (n, w) with these singular values."""
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((size, len(values))))[0] for size in (n, len(values)))
    return U * values @ V.T


@given(st.integers(0, 10**6), st.integers(0, 60), st.integers(1, 5))
@settings(max_examples=40)
def test_a_sum_has_the_same_bits_however_rows_are_divided_and_ordered(seed, n, width):
    rows = np.random.default_rng(seed).uniform(-1, 1, (n, width)).astype(np.float32)
    whole = moment(rows)
    total = sum((moment(rows[part]) for part in divided(n, seed)), np.zeros((width, width), dtype=np.int64))
    assert whole.dtype == np.int64
    assert np.array_equal(total, whole)
    np.testing.assert_allclose(whole / 2.0**36, rows.astype(float).T @ rows, atol=1e-5 * max(n, 1))
    first, second = leading(whole / 2.0**36, width), leading(total / 2.0**36, width)
    assert all(map(np.array_equal, first, second))


def test_long_sums_are_whole_too():
    rows = np.random.default_rng(0).choice([-1.0, 1.0], (2 * MOST + 5, 2))
    rows[:, 0] = 1  # the largest sum that there can be
    whole = moment(rows)
    assert whole[0, 0] == len(rows) << 36
    assert np.array_equal(moment(rows[: MOST + 3]) + moment(rows[MOST + 3 :]), whole)
    assert np.array_equal(grid_product(sp.csr_array(rows), rows), whole)


def communities(n=300, k=6, width=20, seed=0):
    """A graph of communities with features that tell something about them."""
    rng = np.random.default_rng(seed)
    home = rng.permutation(np.arange(n) % k)
    A = np.triu(rng.random((n, n)) < np.where(home[:, None] == home, 0.3, 0.01), 1).astype(float)
    X = rng.random((k, width))[home] ** 3 + 0.3 * rng.random((n, width)) if width else None
    return gq.Graph(sp.csr_array(A + A.T), None if X is None else X.astype(np.float32))


def scaled_rows(kept):
    """Return the rows that a patch has kept, with their lengths."""
    part = np.repeat(np.arange(len(kept["widths"])), kept["widths"])
    return kept["rows"].astype(np.float64) * kept["lengths"][:, part]


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=10)
def test_directions_do_not_depend_on_who_has_the_rows(seed, with_features):
    graph, embedder = communities(60, 3, 5 if with_features else 0), gq.Propagation(4, clusters=9)
    kept = embedder.prepare(graph, 0, far=FarField.whole(embedder.survey(graph, 0), 60))
    whole = embedder.combine(embedder.add(None, embedder.contribute(kept)), 0)
    total = None
    for part in divided(60, seed):
        mine = {name: values if name in ("widths", "facts") else values[part] for name, values in kept.items()}
        total = embedder.add(total, embedder.contribute(mine))
    again = embedder.combine(total, 0)
    assert whole.start.keys() == again.start.keys()
    assert all(np.array_equal(whole.start[name], again.start[name]) for name in whole.start)


def test_a_node_of_several_patches_counts_once():
    graph, embedder = communities(60, 3), gq.Propagation(4, clusters=9)
    survey = embedder.survey(graph, 0)
    once = agree(embedder, [(graph, FarField.whole(survey, 60))], 0)
    counted = replace(survey, nodes={**survey.nodes, "patches": np.full(60, 3, dtype=np.uint16)})
    thrice = agree(embedder, [(graph, FarField.whole(counted, 60))] * 3, 0)
    assert float(thrice.start["share"]) == pytest.approx(float(once.start["share"]), abs=1e-5)
    V, W = (each.start["directions"].astype(float) for each in (once, thrice))
    np.testing.assert_allclose(V @ V.T, W @ W.T, atol=1e-3)


@pytest.mark.parametrize("width", [0, 20, 300])
def test_directions_keep_the_share_of_a_dense_decomposition(width):
    graph, embedder = communities(width=width), gq.Propagation(8, clusters=40)
    far = FarField.whole(embedder.survey(graph, 0), graph.n_nodes)
    H = scaled_rows(embedder.prepare(graph, 0, far=far))
    squares = np.linalg.svd(H, compute_uv=False) ** 2
    start = agree(embedder, [(graph, far)], 0).start
    assert float(start["share"]) == pytest.approx(squares[:8].sum() / squares.sum(), abs=1e-3)
    V = start["directions"]
    np.testing.assert_allclose(V.T @ V, np.eye(8), atol=1e-5)
    assert np.square(H @ V).sum() / squares.sum() == pytest.approx(float(start["share"]), abs=1e-3)


@pytest.mark.parametrize("n_patches", [3, 6])
@pytest.mark.parametrize("width", [0, 20, 300])
def test_patches_keep_the_share_of_the_whole_graph_that_one_patch_keeps(width, n_patches):
    graph, embedder = communities(width=width), gq.Propagation(8, clusters=40)
    store = {}
    gq.embed(graph, dim=8, embedder=embedder, n_patches=n_patches, store=store)
    of_patches = store["starts/0/0"].arrays
    one = {}
    gq.embed(graph, dim=8, embedder=embedder, n_patches=1, store=one)
    assert float(of_patches["share"]) == pytest.approx(float(one["starts/0/0"].arrays["share"]), abs=0.005)
    if width <= 256:  # a reduction that far clusters have helped to find has other columns
        H = scaled_rows(one["patches/00000/kept0"].arrays)
        kept = np.square(H @ of_patches["directions"]).sum() / np.square(H).sum()
        assert kept == pytest.approx(float(one["starts/0/0"].arrays["share"]), abs=0.005)


# Rounds for wide signals


@pytest.mark.parametrize("falling", [0.0, 0.2, 0.5])
def test_few_rounds_keep_the_share_of_a_dense_decomposition_of_a_flat_spectrum(falling):
    H = with_spectrum(np.arange(1, 301) ** -falling, 400)
    rng, count = np.random.default_rng(1), 32

    def product(V):
        return H.T @ (H @ V)

    first = orthonormal(product(rng.standard_normal((300, count))))
    basis = Basis.solve(product, first, count, growth=0.01, rounds=5)
    V = basis.directions(count).astype(float)
    best = (np.linalg.svd(H, compute_uv=False)[:count] ** 2).sum()
    assert len(basis.kept) <= 5
    assert np.square(H @ V).sum() == pytest.approx(best, rel=0.02)
    assert basis.kept[-1] == pytest.approx(np.square(H @ V).sum(), rel=1e-3)
    np.testing.assert_allclose(V.T @ V, np.eye(count), atol=1e-4)


def test_rounds_end_when_nothing_is_left():
    H = with_spectrum(np.ones(6), 20)
    basis = Basis.solve(lambda V: H.T @ (H @ V), orthonormal(np.eye(6)[:, :3]), 3, growth=-1.0, rounds=50)
    assert basis.is_settled(-1.0)
    assert basis.blocks.shape[1] <= 6


def test_orthonormal_columns_leave_out_what_is_there_already():
    rng = np.random.default_rng(0)
    against = np.linalg.qr(rng.standard_normal((9, 3)))[0].astype(np.float32)
    Y = np.hstack([against[:, :1], rng.standard_normal((9, 2)), np.zeros((9, 1))])
    Q = orthonormal(Y, against)
    np.testing.assert_allclose(Q.T @ Q, np.eye(Q.shape[1]), atol=1e-5)
    np.testing.assert_allclose(against.T @ Q, 0, atol=1e-5)
    new = Y[:, 1:3] - against @ (against.T @ Y[:, 1:3])
    np.testing.assert_allclose(Q @ (Q.T @ new), new, atol=1e-5)
    assert orthonormal(Y, np.eye(9, dtype=np.float32)[:, :7]).shape[1] == 2  # as much as there is room for


def test_parts_that_know_only_themselves_find_the_directions_of_one():
    """Wide features and no survey: rounds of sums reduce them, for one part as for several."""
    graph, embedder = communities(width=400), gq.Propagation(8, signal=Signal.features())
    labels = gq.Metis(4)(graph)
    lone = gq.Graph(sp.csr_array(graph.adjacency.multiply(labels[:, None] == labels)), graph.features)
    parts = [(lone.subgraph(np.flatnonzero(labels == k)), None) for k in range(4)]
    one, several = agree(embedder, [(lone, None)], 0), agree(embedder, parts, 0)
    assert several.start["basis"].shape == (400, 256)
    assert float(several.start["share"]) == pytest.approx(float(one.start["share"]), abs=0.005)
    whole = agree(embedder, [(graph, None)], 0)
    assert float(several.start["share"]) == pytest.approx(float(whole.start["share"]), abs=0.02)  # edges are missing
    sparse = [(gq.Graph(part.adjacency, sp.csr_array(part.features)), None) for part, _ in parts]
    assert float(agree(embedder, sparse, 0).start["share"]) == pytest.approx(float(several.start["share"]), abs=1e-3)
    shuffled = agree(embedder, parts[::-1], 0)
    assert all(np.array_equal(several.start[name], shuffled.start[name]) for name in several.start)
