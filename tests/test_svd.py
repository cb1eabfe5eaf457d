"""SVD and bipartite_svd against dense linear algebra."""

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq


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
    sources, destinations = gq.bipartite_svd(A, 6)
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
    sources, destinations = gq.bipartite_svd(A, 4)
    turned_sources, turned_destinations = gq.bipartite_svd(A.T, 4)
    signs = np.sign((sources.coordinates * turned_destinations.coordinates).sum(axis=0))
    np.testing.assert_allclose(sources.coordinates, turned_destinations.coordinates * signs, atol=1e-8)
    np.testing.assert_allclose(destinations.coordinates, turned_sources.coordinates * signs, atol=1e-8)


def test_bipartite_svd_names_what_it_allows():
    with pytest.raises(gq.InputError, match="dim is 60 and this bipartite graph allows 37"):
        gq.bipartite_svd(two_components(), 60)
    with pytest.raises(gq.InputError, match="every component is a star or complete"):
        gq.bipartite_svd(sp.csr_array(np.ones((3, 4))), 1)


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
    with pytest.raises(gq.InputError, match="asked for 50 dimensions and the graph allows 49"):
        gq.SVD(50)(gq.Graph(sp.csr_array(dense)), 0)
