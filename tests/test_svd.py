"""SVD and bipartite_svd against dense linear algebra."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from graphquilt.linalg import eigenpairs as subspace


def two_components():
    """A connected random block, a second one, a star and an isolated row and column."""
    rng = np.random.default_rng(5)
    blocks = [(rng.random((s, t)) < 0.35).astype(float) for s, t in ((30, 40), (12, 9))]
    for block in blocks:
        block[0, :] = 1.0
        block[:, 0] = 1.0
    return sp.csr_array(
        sp.block_diag(list(map(sp.csr_array, [*blocks, np.ones((1, 5)), np.zeros((1, 1))])), format="csr")
    )


def test_bipartite_svd_is_the_dense_svd_without_the_trivial_pairs():
    A = two_components()
    sources, destinations = gq.temporal.bipartite_svd(A, 6)
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
    sources, destinations = gq.temporal.bipartite_svd(A, 4)
    turned_sources, turned_destinations = gq.temporal.bipartite_svd(A.T, 4)
    signs = np.sign((sources.coordinates * turned_destinations.coordinates).sum(axis=0))
    np.testing.assert_allclose(sources.coordinates, turned_destinations.coordinates * signs, atol=1e-8)
    np.testing.assert_allclose(destinations.coordinates, turned_sources.coordinates * signs, atol=1e-8)


def test_bipartite_svd_names_what_it_allows():
    with pytest.raises(gq.errors.InputError, match="dim is 60 and this bipartite graph allows 37"):
        gq.temporal.bipartite_svd(two_components(), 60)
    with pytest.raises(gq.errors.InputError, match="every component is a star or complete"):
        gq.temporal.bipartite_svd(sp.csr_array(np.ones((3, 4))), 1)


def with_self_loops(dense):
    degree = dense.sum(axis=1) + 1
    return (dense + np.eye(len(dense))) / np.sqrt(np.outer(degree, degree)), degree


def random_dense(n, density, seed):
    dense = np.triu(np.random.default_rng(seed).random((n, n)) < density, 1).astype(float)
    return dense + dense.T


@pytest.mark.parametrize("steps", [1, 4])
def test_inner_products_are_those_of_walks(steps):
    dense = random_dense(60, 0.2, 0) * np.random.default_rng(1).uniform(0.5, 2, 60)
    dense = np.maximum(dense, dense.T)
    M, _ = with_self_loops(dense)
    walks = np.linalg.matrix_power(M, 2 * steps)
    graph = gq.Graph(sp.csr_array(dense))
    X = gq.SVD(60, steps=steps)(graph, 0)
    np.testing.assert_allclose(X @ X.T, walks, atol=1e-9)
    X = gq.SVD(5, steps=steps)(graph, 0)
    values, U = np.linalg.eigh(walks)
    np.testing.assert_allclose(X @ X.T, U[:, -5:] * values[-5:] @ U[:, -5:].T, atol=1e-9)


def test_one_column_is_for_all_components_and_an_isolated_node_lies_on_its_axis():
    parts = [random_dense(40, 0.2, 0), random_dense(15, 0.5, 1), np.zeros((3, 3))]
    dense = sp.block_diag(list(map(sp.csr_array, parts))).toarray()
    M, degree = with_self_loops(dense)
    X = gq.SVD(6)(gq.Graph(sp.csr_array(dense)), 0)
    np.testing.assert_allclose(X[:, 0], np.sqrt(degree / degree.sum()))
    assert np.array_equal(X[55:, 1:], np.zeros((3, 5)))
    values = np.sort(np.abs(np.linalg.eigvalsh(M)))[::-1]
    np.testing.assert_allclose(values[:5], 1)  # two components and three nodes without edges
    np.testing.assert_allclose(np.linalg.norm(X[:, 1:], axis=0), values[5:10] ** 4, atol=1e-9)


def test_columns_that_a_graph_does_not_have_are_zero():
    triangle = gq.Graph(sp.csr_array(np.ones((3, 3)) - np.eye(3)))
    X = gq.SVD(8)(triangle, 0)
    np.testing.assert_allclose(X @ X.T, np.full((3, 3), 1 / 3), atol=1e-12)
    assert np.array_equal(X[:, 3:], np.zeros((3, 5)))
    X = gq.SVD(3)(gq.Graph(sp.csr_array((4, 4))), 0)
    np.testing.assert_allclose(X, np.outer(np.full(4, 0.5), [1, 0, 0]))


@given(seed=st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_inner_products_are_local(seed):
    """With all dimensions, a patch gives node 0 the length that the whole graph gives it if it has its surroundings."""
    rng = np.random.default_rng(seed)
    n, steps = 40, 2
    dense = np.triu(rng.random((n, n)) < 0.08, 1).astype(float)
    dense = dense + dense.T + np.eye(n, k=1) + np.eye(n, k=-1)
    dense = np.minimum(dense, 1)
    far = np.linalg.matrix_power(dense + np.eye(n), steps + 1)[0] == 0
    inside = np.flatnonzero(~far)
    whole = gq.SVD(n, steps=steps)(gq.Graph(sp.csr_array(dense)), 0)
    patch = gq.SVD(n, steps=steps)(gq.Graph(sp.csr_array(dense[np.ix_(inside, inside)])), 0)
    np.testing.assert_allclose(patch[0] @ patch[0], whole[0] @ whole[0], atol=1e-8)


def normalized(A):
    root = 1 / np.sqrt(np.maximum(np.asarray(A.sum(axis=1)).ravel(), 1))
    return sp.csr_array(sp.diags_array(root) @ A @ sp.diags_array(root))


def random_adjacency(n, density, seed):
    A = sp.random_array((n, n), density=density, rng=np.random.default_rng(seed))
    return sp.csr_array(((A + A.T) > 0).astype(float))


@pytest.mark.parametrize("k", [1, 12])
def test_filtered_subspace_iteration_is_dense_eigh(k):
    S = normalized(random_adjacency(1200, 0.006, 0))
    S = sp.csr_array(S @ S)
    values, U = subspace.leading_eigenpairs(lambda x: S @ x, 1200, k, tol=1e-8)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(S.toarray())[::-1][:k], atol=1e-10)
    assert np.linalg.norm(S @ U - U * values, axis=0).max() < 2e-8
    np.testing.assert_allclose(U.T @ U, np.eye(k), atol=1e-10)


def test_repeated_eigenvalues_are_all_found():
    S = normalized(sp.csr_array(sp.block_diag([sp.csr_array(random_adjacency(25, 0.2, 1))] * 45)))
    S = sp.csr_array(S @ S)
    values, _ = subspace.leading_eigenpairs(lambda x: S @ x, 1125, 60, tol=1e-8)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(S.toarray())[::-1][:60], atol=1e-10)


def test_an_eigenvalue_that_repeats_more_often_than_asked_gives_any_of_its_vectors():
    S = sp.csr_array(sp.diags_array(np.repeat([1.0, 0.25], [600, 600])))
    values, U = subspace.leading_eigenpairs(lambda x: S @ x, 1200, 7, tol=1e-8)
    np.testing.assert_allclose(values, 1, atol=1e-12)
    np.testing.assert_allclose(U.T @ U, np.eye(7), atol=1e-10)


def test_a_matrix_of_low_rank_has_eigenvalues_of_zero():
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((1200, 3)))[0]
    values, U = subspace.leading_eigenpairs(lambda x: Q @ ([[0.9], [0.5], [0.01]] * (Q.T @ x)), 1200, 6, tol=1e-8)
    np.testing.assert_allclose(values, [0.9, 0.5, 0.01, 0, 0, 0], atol=1e-10)
    np.testing.assert_allclose(U.T @ U, np.eye(6), atol=1e-10)


def test_an_eigensolver_that_does_not_converge_says_how_far_it_came(monkeypatch, caplog):
    S = normalized(random_adjacency(1200, 0.006, 0))
    S = sp.csr_array(S @ S)
    monkeypatch.setattr(subspace, "MAX_PRODUCTS", 60)
    values, U = subspace.leading_eigenpairs(lambda x: S @ x, 1200, 12, tol=1e-15)
    assert "12 eigenvectors of a matrix of 1200 rows have a residual of" in caplog.text
    assert np.linalg.norm(S @ U - U * values, axis=0).max() <= 1e-3
    monkeypatch.setattr(subspace, "MAX_PRODUCTS", 2)
    with pytest.raises(gq.errors.ConvergenceError, match=r"reached a residual of .* 1e-03 is needed") as caught:
        subspace.leading_eigenpairs(lambda x: S @ x, 1200, 12, tol=1e-15)
    assert 1e-3 < caught.value.residual < 1


def path(n):
    return sp.csr_array(sp.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1]))


def ring(n):
    return sp.csr_array(path(n) + sp.csr_array(([1.0, 1.0], ([0, n - 1], [n - 1, 0])), shape=(n, n)))


def random_tree(n):
    parents = (np.random.default_rng(0).random(n - 1) * np.arange(1, n)).astype(int)
    A = sp.csr_array((np.ones(n - 1), (np.arange(1, n), parents)), shape=(n, n))
    return sp.csr_array(A + A.T)


@pytest.mark.parametrize("dim", [6, 16])
@pytest.mark.parametrize("A", [path(3000), ring(1200), random_tree(3000)], ids=["path", "ring", "tree"])
def test_svd_converges_where_eigenvalues_are_close(A, dim, caplog):
    """The block Lanczos method that was here before raised ConvergenceError for six dimensions of the ring."""
    X = gq.SVD(dim, steps=1)(gq.Graph(A), 0)
    assert not [line for line in caplog.messages if "compiling" not in line]
    S = normalized(sp.csr_array(A + sp.eye_array(A.shape[0])))
    values = np.linalg.norm(X, axis=0)
    U = X / values
    np.testing.assert_allclose(U.T @ U, np.eye(dim), atol=1e-4)
    assert np.linalg.norm(S @ (S @ U) - U * values**2, axis=0).max() < 1.1e-3
    # No eigenvalue that was left out is much larger than the last.
    assert values[-1] > 0.997


@pytest.mark.parametrize("tol", [1e-3, 1e-7])
def test_svd_of_a_large_graph_meets_its_tolerance_and_repeats_its_bits(tol):
    A = random_adjacency(1500, 0.01, 3)
    graph = gq.Graph(A)
    X = gq.SVD(9, steps=1, tol=tol)(graph, 0)
    assert np.array_equal(X, gq.SVD(9, steps=1, tol=tol)(graph, 77))
    S = normalized(sp.csr_array(A + sp.eye_array(1500)))
    values = np.linalg.norm(X, axis=0)
    U = X / values
    np.testing.assert_allclose(U.T @ U, np.eye(9), atol=1e-5)
    assert np.linalg.norm(S @ (S @ U) - U * values**2, axis=0).max() < 1.1 * tol
    exact = np.sort(np.abs(np.linalg.eigvalsh(S.toarray())))[::-1][:9]
    np.testing.assert_allclose(values, exact, atol=tol)


def test_an_edge_of_a_directed_graph_counts_both_ways():
    A = sp.csr_array(np.triu(random_dense(30, 0.2, 4)))
    directed = gq.SVD(4)(gq.Graph(A), 0)
    assert np.array_equal(directed, gq.SVD(4)(gq.Graph(sp.csr_array(A + A.T)), 0))


def test_svd_refuses_bad_settings():
    with pytest.raises(gq.errors.InputError, match="tol of SVD must be positive"):
        gq.SVD(1, tol=0)
    with pytest.raises(gq.errors.InputError, match="steps of SVD must be an integer of at least 1, not 0"):
        gq.SVD(1, steps=0)


def test_patches_of_svd_are_stitched_without_great_loss(dataset_folder):
    """Orthonormal columns in every patch, the definition before this one, reached .61 and .886 here."""
    dataset_folder("amazon-photo")
    photo = gq.datasets.load_dataset("amazon-photo")
    result = gq.embed(photo, 32, n_patches=10, embedder=gq.SVD(32))
    stitched = gq.evaluate.quality(result.embedding, photo, options=gq.evaluate.EvaluationOptions(splits=5))
    assert stitched.accuracy > 0.73
    assert stitched.auc > 0.95


@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_relabelling_sources_and_destinations_moves_rows_only(seed):
    rng = np.random.default_rng(seed)
    A = sp.csr_array((rng.random((14, 17)) < 0.4).astype(float))
    rows, columns = rng.permutation(14), rng.permutation(17)
    sources, destinations = gq.temporal.bipartite_svd(A, 2)
    moved_sources, moved_destinations = gq.temporal.bipartite_svd(A[rows][:, columns], 2)
    for old, new, order in ((sources, moved_sources, rows), (destinations, moved_destinations, columns)):
        places = {node: place for place, node in enumerate(old.nodes.tolist())}
        expected = old.coordinates[[places[order[node]] for node in new.nodes.tolist()]]
        np.testing.assert_allclose(np.abs(new.coordinates), np.abs(expected), atol=1e-7)


@pytest.mark.parametrize("n", [9, 31, 39, 54, 58])
@pytest.mark.parametrize("dim", [1, 3, 5])
def test_a_cut_into_a_repeated_singular_value_gives_all_columns(n, dim):
    """With a background all singular values of a perfect matching but the trivial one are equal."""
    for patch in gq.temporal.bipartite_svd(sp.eye_array(n).tocsr(), dim, background=1):
        assert patch.coordinates.shape == (n, dim)
        gram = patch.coordinates.T @ patch.coordinates
        np.testing.assert_allclose(gram, gram[0, 0] * np.eye(dim), atol=1e-9 * gram[0, 0])


@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_as_many_eigenvectors_as_were_asked_for(n, k, seed):
    """Eigenvalues that repeat many times, in a random order and in random directions."""
    k, rng = min(k, n), np.random.default_rng(seed)
    true = np.sort(rng.choice([-1.0, 0.0, 0.25, 0.5], n))[::-1]
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    values, U = subspace.leading_eigenpairs(lambda x: (Q * true) @ (Q.T @ x), n, k)
    assert U.shape == (n, k)
    np.testing.assert_allclose(values, true[:k], atol=1e-9)
    np.testing.assert_allclose((Q * true) @ (Q.T @ U), U * values, atol=1e-9)
    np.testing.assert_allclose(U.T @ U, np.eye(k), atol=1e-9)


def test_bipartite_svd_repeats_its_bits_and_refuses_bad_weights():
    A = two_components()
    for first, again in zip(gq.temporal.bipartite_svd(A, 5), gq.temporal.bipartite_svd(A.copy(), 5), strict=True):
        assert np.array_equal(first.coordinates, again.coordinates)
    with pytest.raises(gq.errors.InputError, match="finite and not negative"):
        gq.temporal.bipartite_svd(-A, 2)
    with pytest.raises(gq.errors.InputError, match="dim that is an integer of at least 1, not 0"):
        gq.temporal.bipartite_svd(A, 0)
    with pytest.raises(gq.errors.InputError, match="every component is a star"):
        gq.temporal.bipartite_svd(sp.csr_array((3, 3)), 1)
