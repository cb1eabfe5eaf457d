"""SVD and bipartite_svd against dense linear algebra."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from graphquilt.linalg import lanczos


def two_components():
    """A connected random block, a second one, a star and an isolated row and column."""
    rng = np.random.default_rng(5)
    blocks = [(rng.random((s, t)) < 0.35).astype(float) for s, t in ((30, 40), (12, 9))]
    for block in blocks:
        block[0, :] = 1.0
        block[:, 0] = 1.0
    return sp.csr_array(sp.block_diag([*blocks, np.ones((1, 5)), np.zeros((1, 1))], format="csr"))


def test_bipartite_svd_is_the_dense_svd_without_the_trivial_pairs():
    A = two_components()
    sources, destinations = gq.embedders.bipartite_svd(A, 6)
    assert sources.nodes.tolist() == list(range(42))
    assert destinations.nodes.tolist() == list(range(49))
    dense = A.toarray()[:42, :49]
    ds, dd = dense.sum(axis=1), dense.sum(axis=0)
    U, values, Vt = np.linalg.svd(dense / np.sqrt(np.outer(ds, dd)))
    assert np.allclose(values[:2], 1)
    assert values[2] < 0.999
    left, right = sources.coordinates * np.sqrt(ds)[:, None], destinations.coordinates * np.sqrt(dd)[:, None]
    for k in range(6):
        sign = np.sign(left[:, k] @ U[:, k + 2])
        np.testing.assert_allclose(left[:, k], sign * U[:, k + 2], atol=1e-7)
        np.testing.assert_allclose(right[:, k], sign * Vt[k + 2], atol=1e-7)


def test_bipartite_svd_turned_is_the_other_way_round():
    A = two_components()
    sources, destinations = gq.embedders.bipartite_svd(A, 4)
    turned_sources, turned_destinations = gq.embedders.bipartite_svd(A.T, 4)
    signs = np.sign((sources.coordinates * turned_destinations.coordinates).sum(axis=0))
    np.testing.assert_allclose(sources.coordinates, turned_destinations.coordinates * signs, atol=1e-8)
    np.testing.assert_allclose(destinations.coordinates, turned_sources.coordinates * signs, atol=1e-8)


def test_bipartite_svd_names_what_it_allows():
    with pytest.raises(gq.errors.InputError, match="dim is 60 and this bipartite graph allows 37"):
        gq.embedders.bipartite_svd(two_components(), 60)
    with pytest.raises(gq.errors.InputError, match="every component is a star or complete"):
        gq.embedders.bipartite_svd(sp.csr_array(np.ones((3, 4))), 1)


def test_svd_is_the_dense_spectrum():
    rng = np.random.default_rng(0)
    dense = np.triu(rng.random((60, 60)) < 0.2, 1).astype(float)
    dense[:, 50:] = 0
    dense = dense + dense.T
    X = gq.SVD(5)(gq.Graph(sp.csr_array(dense)), 0)
    assert np.array_equal(X[50:], np.zeros((10, 5)))
    degree = dense[:50].sum(axis=1)
    _, U = np.linalg.eigh(dense[:50, :50] / np.sqrt(np.outer(degree, degree)))
    for k in range(5):
        column = X[:50, k] * np.sqrt(degree / degree.sum())
        assert abs(abs(column @ U[:, -2 - k]) - 1) < 1e-9
    with pytest.raises(gq.errors.InputError, match="asked for 50 dimensions and the graph allows 49"):
        gq.SVD(50)(gq.Graph(sp.csr_array(dense)), 0)


def normalized(A):
    root = 1 / np.sqrt(np.maximum(np.asarray(A.sum(axis=1)).ravel(), 1))
    return sp.csr_array(sp.diags_array(root) @ A @ sp.diags_array(root))


def random_adjacency(n, density, seed):
    A = sp.random_array((n, n), density=density, rng=np.random.default_rng(seed))
    return sp.csr_array(((A + A.T) > 0).astype(float))


@pytest.mark.parametrize("k", [1, 12])
def test_block_lanczos_is_dense_eigh(k):
    S = normalized(random_adjacency(1200, 0.006, 0))
    values, U = lanczos.leading_eigenpairs(lambda x: S @ x, 1200, k, tol=1e-8)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(S.toarray())[::-1][:k], atol=1e-10)
    assert np.linalg.norm(S @ U - U * values, axis=0).max() < 1e-8
    np.testing.assert_allclose(U.T @ U, np.eye(k), atol=1e-10)


def test_repeated_eigenvalues_are_all_found():
    S = normalized(sp.csr_array(sp.block_diag([random_adjacency(25, 0.2, 1)] * 45)))
    values, _ = lanczos.leading_eigenpairs(lambda x: S @ x, 1125, 60, tol=1e-8)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(S.toarray())[::-1][:60], atol=1e-10)


def test_an_eigensolver_that_does_not_converge_says_how_far_it_came(monkeypatch):
    monkeypatch.setattr(lanczos, "MAX_RESTARTS", 1)
    S = normalized(random_adjacency(1200, 0.006, 0))
    with pytest.raises(gq.errors.ConvergenceError, match=r"reached a residual of .* 1e-15 is needed") as caught:
        lanczos.leading_eigenpairs(lambda x: S @ x, 1200, 12, tol=1e-15)
    assert 0 < caught.value.residual < 1


def test_svd_of_a_large_graph_meets_its_tolerance_and_repeats_its_bits():
    A = random_adjacency(1500, 0.01, 3)
    graph = gq.Graph(A)
    X = gq.SVD(9)(graph, 0)
    assert np.array_equal(X, gq.SVD(9)(graph, 77))
    degree = np.asarray(A.sum(axis=1)).ravel()
    U = X * np.sqrt(degree / degree.sum())[:, None]
    S = normalized(A)
    assert np.linalg.norm(S @ U - U * np.einsum("ij,ij->j", U, S @ U), axis=0).max() < 2e-6
    np.testing.assert_allclose(np.sqrt(degree / degree.sum()) @ U, 0, atol=1e-6)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_relabelling_sources_and_destinations_moves_rows_only(seed):
    rng = np.random.default_rng(seed)
    A = sp.csr_array((rng.random((14, 17)) < 0.4).astype(float))
    rows, columns = rng.permutation(14), rng.permutation(17)
    sources, destinations = gq.embedders.bipartite_svd(A, 2)
    moved_sources, moved_destinations = gq.embedders.bipartite_svd(A[rows][:, columns], 2)
    for old, new, order in ((sources, moved_sources, rows), (destinations, moved_destinations, columns)):
        places = {node: place for place, node in enumerate(old.nodes.tolist())}
        expected = old.coordinates[[places[order[node]] for node in new.nodes.tolist()]]
        np.testing.assert_allclose(np.abs(new.coordinates), np.abs(expected), atol=1e-7)


@pytest.mark.parametrize("n", [9, 31, 39, 54, 58])
@pytest.mark.parametrize("dim", [1, 3, 5])
def test_a_cut_into_a_repeated_singular_value_gives_all_columns(n, dim):
    """With a background all singular values of a perfect matching but the trivial one are equal."""
    for patch in gq.embedders.bipartite_svd(sp.eye_array(n).tocsr(), dim, background=1):
        assert patch.coordinates.shape == (n, dim)
        gram = patch.coordinates.T @ patch.coordinates
        np.testing.assert_allclose(gram, gram[0, 0] * np.eye(dim), atol=1e-9 * gram[0, 0])


@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_as_many_eigenvectors_as_were_asked_for(n, k, seed):
    """Eigenvalues that repeat many times, in a random order and in random directions."""
    k, rng = min(k, n), np.random.default_rng(seed)
    true = np.sort(rng.choice([-1.0, 0.0, 0.25, 0.5], n))[::-1]
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    values, U = lanczos.leading_eigenpairs(lambda x: (Q * true) @ (Q.T @ x), n, k)
    assert U.shape == (n, k)
    np.testing.assert_allclose(values, true[:k], atol=1e-9)
    np.testing.assert_allclose((Q * true) @ (Q.T @ U), U * values, atol=1e-9)
    np.testing.assert_allclose(U.T @ U, np.eye(k), atol=1e-9)


def test_bipartite_svd_repeats_its_bits_and_refuses_bad_weights():
    A = two_components()
    for first, again in zip(gq.embedders.bipartite_svd(A, 5), gq.embedders.bipartite_svd(A.copy(), 5), strict=True):
        assert np.array_equal(first.coordinates, again.coordinates)
    with pytest.raises(gq.errors.InputError, match="finite and not negative"):
        gq.embedders.bipartite_svd(-A, 2)
    with pytest.raises(gq.errors.InputError, match="dim that is an integer of at least 1, not 0"):
        gq.embedders.bipartite_svd(A, 0)
    with pytest.raises(gq.errors.InputError, match="every component is a star"):
        gq.embedders.bipartite_svd(sp.csr_array((3, 3)), 1)


def test_svd_names_what_a_graph_without_edges_allows():
    with pytest.raises(
        gq.errors.InputError, match="SVD was asked for 1 dimensions and the graph allows 0: 0 of 4 nodes"
    ):
        gq.SVD(1)(gq.Graph(sp.csr_array((4, 4))), 0)
    with pytest.raises(gq.errors.InputError, match="tol of SVD must be positive"):
        gq.SVD(1, tol=0)
