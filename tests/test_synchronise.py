"""Procrustes and synchronisation against dense and SciPy oracles."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from graphquilt.alignment import rotations
from graphquilt.alignment.connection import Connection
from graphquilt.alignment.rotations import synchronise_rotations
from graphquilt.alignment.synchronisation import reweight, synchronise_scales, synchronise_translations
from graphquilt.linalg import laplacian as laplacian_module
from graphquilt.linalg.eigenpairs import filtered_eigenpairs, lowest_eigenpairs, orthonormalise
from graphquilt.linalg.laplacian import components, laplacian, solve_laplacian
from graphquilt.linalg.procrustes import centred, nearest_orthogonal
from graphquilt.testing import random_rotations
from graphquilt.testing.quilts import ring_with_chords
from studies.rotations import rotation_measurements


def rotation_error(S, truth):
    """Root mean square over patches of the distance of rotations, after the best global rotation, over sqrt(d)."""
    turn = nearest_orthogonal(np.einsum("pij,pik->jk", S, truth))
    return np.sqrt(np.sum((S @ turn - truth) ** 2) / (S.shape[0] * S.shape[1]))


seeds = st.integers(0, 10**6)


@settings(deadline=None)
@given(st.integers(1, 6), seeds)
def test_the_nearest_rotation_is_that_of_scipys_procrustes(d, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(3 * d, d)), rng.normal(size=(3 * d, d))
    expected, _ = scipy.linalg.orthogonal_procrustes(a - a.mean(axis=0), b - b.mean(axis=0))
    np.testing.assert_allclose(nearest_orthogonal(centred(a)[0].T @ centred(b)[0]), expected, atol=1e-8)


def test_relative_transforms_of_two_views_are_quotients():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(20, 4))
    Q = random_rotations(2, 4, rng)
    a, b = 2 * Z @ Q[0] + 1, 5 * Z @ Q[1] - 3
    alignment = gq.align([(np.arange(20), a), (np.arange(20), b)], scale=True)
    assert alignment.scales[1] / alignment.scales[0] == pytest.approx(2 / 5)
    # R_ij = S_i S_j^T where X_i S_i is aligned: the aligned patch is X S, without the transpose of the paper.
    S = Q.transpose(0, 2, 1)
    np.testing.assert_allclose(nearest_orthogonal(centred(a)[0].T @ centred(b)[0]), S[0] @ S[1].T, atol=1e-10)
    np.testing.assert_allclose((a - 1) / 2 @ S[0], (b + 3) / 5 @ S[1], atol=1e-10)


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(2, 5), seeds)
def test_scales_agree_with_the_perron_vector_without_noise(n, degree, seed):
    rng = np.random.default_rng(seed)
    edges = ring_with_chords(n, degree, rng)
    truth = np.exp(rng.normal(size=n))
    weights = rng.uniform(1, 9, len(edges))
    ratios = truth[edges[:, 0]] / truth[edges[:, 1]]
    found = synchronise_scales(edges, ratios, weights=weights, n=n)
    np.testing.assert_allclose(found, truth / truth.mean(), rtol=1e-9)
    M = np.zeros((n, n))
    M[edges[:, 0], edges[:, 1]] = weights * ratios
    M[edges[:, 1], edges[:, 0]] = weights / ratios
    M /= np.zeros((n, 1)) + np.bincount(edges.ravel(), np.repeat(weights, 2))[:, None]
    values, vectors = np.linalg.eig(M)
    perron = np.abs(vectors[:, values.real.argmax()].real)
    np.testing.assert_allclose(found, perron / perron.mean(), rtol=1e-7)


def test_log_least_squares_and_perron_differ_to_second_order_only():
    rng = np.random.default_rng(1)
    n = 12
    edges = ring_with_chords(n, 5, rng)
    noise = rng.normal(size=len(edges))
    distances = []
    for level in (0.02, 0.01):
        ratios = np.exp(level * noise)
        found = synchronise_scales(edges, ratios, weights=np.ones(len(edges)), n=n)
        M = np.zeros((n, n))
        M[edges[:, 0], edges[:, 1]] = ratios
        M[edges[:, 1], edges[:, 0]] = 1 / ratios
        M /= np.bincount(edges.ravel())[:, None]
        values, vectors = np.linalg.eig(M)
        perron = np.abs(vectors[:, values.real.argmax()].real)
        distances.append(np.linalg.norm(found - perron / perron.mean()))
    assert distances[1] < 0.3 * distances[0]


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(1, 4), seeds)
def test_translations_are_the_least_squares_solution(n, d, seed):
    rng = np.random.default_rng(seed)
    edges = ring_with_chords(n, 4, rng)
    offsets, weights = rng.normal(size=(len(edges), d)), rng.uniform(0.5, 2, len(edges))
    B = np.zeros((len(edges), n))
    B[np.arange(len(edges)), edges[:, 1]] = 1
    B[np.arange(len(edges)), edges[:, 0]] = -1
    root = np.sqrt(weights)[:, None]
    expected = np.linalg.lstsq(root * B, root * offsets, rcond=None)[0]
    np.testing.assert_allclose(synchronise_translations(edges, offsets, weights=weights, n=n), expected, atol=1e-9)


@pytest.mark.parametrize("shape", ["expander", "ring"])
def test_large_laplacians_are_solved_by_whatever_suits_them(shape, monkeypatch):
    monkeypatch.setattr(laplacian_module, "DENSE_LIMIT", 10)
    n = 1200
    rng = np.random.default_rng(2)
    edges = ring_with_chords(n, 10 if shape == "expander" else 2, rng)
    weights = rng.uniform(0.5, 2, len(edges))
    rhs = rng.normal(size=(n, 3))
    rhs -= rhs.mean(axis=0)
    x = solve_laplacian(edges, weights, rhs, n=n)
    np.testing.assert_allclose(laplacian(edges, weights, n) @ x, rhs, atol=1e-8)


def dense_answer(edges, measured, weights, n):
    d = measured.shape[1]
    A = np.zeros((n, d, n, d))
    degrees = np.bincount(edges.ravel(), np.repeat(weights, 2))
    for (i, j), R, w in zip(edges.tolist(), measured, weights, strict=True):
        A[i, :, j] = w * R / np.sqrt(degrees[i] * degrees[j])
        A[j, :, i] = A[i, :, j].T
    values, vectors = np.linalg.eigh(A.reshape(n * d, n * d))
    return values[::-1], nearest_orthogonal(vectors[:, ::-1][:, :d].reshape(n, d, d))


@pytest.mark.parametrize(("n", "d", "degree", "noise"), [(30, 8, 4, 0.3), (60, 8, 2, 0.1), (25, 16, 6, 0.6)])
def test_the_iteration_finds_what_dense_eigh_finds(n, d, degree, noise, monkeypatch):
    monkeypatch.setattr(rotations, "DENSE_SIZE", 0)
    edges, measured, _ = rotation_measurements(n, d, degree=degree, noise=noise, seed=3)
    weights = np.random.default_rng(4).uniform(1, 3, len(edges))
    values, expected = dense_answer(edges, measured, weights, n)
    found = synchronise_rotations(edges, measured, weights=weights, n=n, tol=1e-9)
    assert found.iterations > 0
    np.testing.assert_allclose(found.eigenvalues[:d], values[:d], atol=1e-9)
    assert rotation_error(found.rotations, expected) < 1e-6
    assert found.residual <= 1e-9
    # The next eigenvalue is as sure as it says, and no worse than a tenth of the gap.
    assert abs(found.eigenvalues[d] - values[d]) <= found.next_residual + 1e-6
    assert found.next_residual <= 0.11 * (values[d - 1] - values[d]) + 1e-4


def test_row_normalised_matrix_and_symmetric_form_give_the_same_rotations():
    edges, measured, _ = rotation_measurements(9, 3, degree=4, noise=0.3, seed=5)
    weights = np.random.default_rng(6).uniform(1, 3, len(edges))
    _, expected = dense_answer(edges, measured, weights, 9)
    M = np.zeros((9, 3, 9, 3))
    degrees = np.bincount(edges.ravel(), np.repeat(weights, 2))
    for (i, j), R, w in zip(edges.tolist(), measured, weights, strict=True):
        M[i, :, j], M[j, :, i] = w * R / degrees[i], w * R.T / degrees[j]
    values, vectors = np.linalg.eig(M.reshape(27, 27))
    leading = vectors[:, np.argsort(-values.real)[:3]].real
    # Orthonormal in the D inner product.
    gram = leading.T @ (np.repeat(degrees, 3)[:, None] * leading)
    blocks = (leading @ np.linalg.inv(np.linalg.cholesky(gram)).T).reshape(9, 3, 3)
    assert rotation_error(nearest_orthogonal(blocks), expected) < 1e-6


@pytest.mark.parametrize("size", [3.3e-308, 1e300])
def test_only_ratios_of_weights_matter_for_rotations(size):
    edges, measured, _ = rotation_measurements(9, 3, degree=4, noise=0.3, seed=5)
    one, other = (synchronise_rotations(edges, measured, weights=np.full(len(edges), w), n=9) for w in (1.0, size))
    np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, atol=1e-9)


def test_single_precision_blocks_are_used_as_they_are(monkeypatch):
    monkeypatch.setattr(rotations, "DENSE_SIZE", 0)
    edges, measured, truth = rotation_measurements(40, 16, degree=4, noise=0.1, seed=7)
    double = synchronise_rotations(edges, measured, weights=np.ones(len(edges)), n=40)
    single = synchronise_rotations(edges, measured.astype(np.float32), weights=np.ones(len(edges)), n=40)
    assert rotation_error(single.rotations, double.rotations) < 1e-4
    assert rotation_error(single.rotations, truth) == pytest.approx(rotation_error(double.rotations, truth), rel=1e-3)


def test_a_large_graph_is_preconditioned_without_a_factorisation(monkeypatch):
    monkeypatch.setattr(rotations, "DENSE_SIZE", 0)
    monkeypatch.setattr("graphquilt.alignment.connection.DENSE_LIMIT", 10)
    for degree, noise in ((10, 0.2), (2, 0.02)):
        edges, measured, _ = rotation_measurements(150, 4, degree=degree, noise=noise, seed=8)
        weights = np.ones(len(edges))
        values, expected = dense_answer(edges, measured, weights, 150)
        found = synchronise_rotations(edges, measured, weights=weights, n=150, tol=1e-8)
        assert found.iterations > 0
        assert rotation_error(found.rotations, expected) < 1e-4
        np.testing.assert_allclose(found.eigenvalues[:4], values[:4], atol=1e-8)


def test_what_does_not_converge_says_how_far_it_came(monkeypatch):
    monkeypatch.setattr(rotations, "DENSE_SIZE", 0)
    monkeypatch.setattr(rotations, "DENSE_RESCUE", 0)
    edges, measured, _ = rotation_measurements(60, 8, degree=4, noise=0.5, seed=9)
    with pytest.raises(
        gq.errors.ConvergenceError, match=r"60 vertices in 8 dimensions .* 1\.0e-12 is required"
    ) as caught:
        synchronise_rotations(edges, measured, weights=np.ones(len(edges)), n=60, tol=1e-12, max_iterations=2)
    assert 1e-12 < caught.value.residual < 1


def test_the_operator_equals_its_dense_matrix():
    edges, measured, _ = rotation_measurements(12, 3, degree=4, noise=0.5, seed=10)
    connection = Connection(edges, measured, np.random.default_rng(0).uniform(1, 2, len(edges)), 12)
    X, image = np.random.default_rng(1).normal(size=(36, 5)), np.empty((36, 5))
    connection(X, image)
    np.testing.assert_allclose(image, connection.sparse().toarray() @ X, atol=1e-12)


def test_lowest_eigenpairs_stay_away_from_what_is_deflated():
    diagonal = np.arange(1.0, 41.0)[:, None]

    def apply(X, out):
        out[:] = diagonal * X

    def invert(R, values):
        R /= diagonal

    start = np.random.default_rng(0).normal(size=(40, 2))
    pairs = lowest_eigenpairs(apply, start, preconditioner=invert, deflate=np.eye(40)[:, :3], tol=1e-9)
    np.testing.assert_allclose(pairs.values, [4, 5], atol=1e-9)


def test_an_iteration_without_progress_stops():
    """Without a preconditioner and with an operator that rounds its results, residuals cannot become small."""
    diagonal = np.linspace(1.0, 2.0, 200)[:, None]

    def apply(X, out):
        out[:] = np.round(diagonal * X, 4)

    start = np.random.default_rng(0).normal(size=(200, 3))
    options = {"preconditioner": lambda R, values: None, "tol": 1e-9, "max_iterations": 500}
    pairs = lowest_eigenpairs(apply, start, patience=8, **options)
    assert pairs.iterations < 200
    assert 1e-9 < pairs.residuals.max() < 1e-2
    np.testing.assert_allclose(pairs.values, diagonal[:3, 0], atol=1e-2)


def test_orthonormalise_drops_what_depends_on_the_rest():
    X = np.random.default_rng(0).normal(size=(30, 4))
    block = np.hstack([X, X[:, :2] @ np.ones((2, 1)), np.zeros((30, 1))])
    k = orthonormalise(block)
    assert k == 4
    np.testing.assert_allclose(block[:, :k].T @ block[:, :k], np.eye(4), atol=1e-12)
    np.testing.assert_allclose(block[:, :k] @ (block[:, :k].T @ X), X, atol=1e-12)


def test_reweighting_finds_the_edge_that_lies():
    edges = ring_with_chords(8, 6, np.random.default_rng(0))
    truth = np.random.default_rng(1).normal(size=(8, 2))
    offsets = truth[edges[:, 1]] - truth[edges[:, 0]]
    offsets[3] += 10

    def solve(weights, _):
        return synchronise_translations(edges, offsets, weights=weights, n=8)

    def misfits(t):
        return np.linalg.norm(t[edges[:, 1]] - t[edges[:, 0]] - offsets, axis=1)

    found, trust = reweight(solve, misfits, np.ones(len(edges)))
    assert trust.argmin() == 3
    np.testing.assert_allclose(found, truth - truth.mean(axis=0), atol=1e-2)


def test_components_are_numbered():
    assert components(np.empty((0, 2), dtype=int), 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("degree", [4, 12])
@pytest.mark.parametrize("noise", [0.0, 0.1, 0.4])
def test_a_filter_finds_what_a_dense_solver_finds(degree, noise):
    edges, measured, _ = rotation_measurements(60, 5, degree=degree, noise=noise)
    connection = Connection(edges, measured, np.ones(len(edges)), 60)
    values, vectors = np.linalg.eigh(connection.sparse().toarray())
    start = vectors[:, :5] + 0.02 * np.random.default_rng(0).normal(size=(300, 5))
    pairs = filtered_eigenpairs(connection, start, interval=(values[5], 2.0), tol=1e-8)
    if values[5] - values[4] < 0.15:  # it may stop where the gap is narrow, and says so by its residuals
        return
    assert pairs.residuals.max() <= 1e-8
    np.testing.assert_allclose(pairs.values, values[:5], atol=1e-12)
    wanted = vectors[:, :5]
    np.testing.assert_allclose(wanted @ (wanted.T @ pairs.vectors), pairs.vectors, atol=1e-6)


@pytest.mark.parametrize("top", [0.3, 0.5, 0.7, 0.95])
def test_a_filter_that_loses_directions_still_returns_a_basis(top):
    """Where the wanted eigenvalues lie far apart, single precision cannot hold what the filter leaves of the last."""
    diagonal = np.concatenate([np.linspace(0, top, 60), np.linspace(1, 2, 3000)])[:, None].astype(np.float32)

    def apply(X, out, factors=(1.0, 0.0, 0.0)):
        a, b, c = np.array(factors, dtype=np.float32)
        out[:] = a * diagonal * X + b * X + (c * out if c else 0)

    start = np.random.default_rng(0).normal(size=(3060, 60)).astype(np.float32)
    pairs = filtered_eigenpairs(apply, start, interval=(1.0, 2.0), tol=1e-4)
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(60), atol=1e-3)
    true = np.linalg.norm(diagonal * pairs.vectors - pairs.vectors * pairs.values, axis=0)
    np.testing.assert_allclose(pairs.residuals, true, atol=1e-3)


def test_a_connection_adds_what_its_factors_say():
    edges, measured, _ = rotation_measurements(12, 3, degree=6, noise=0.5)
    connection = Connection(edges, measured, np.random.default_rng(0).uniform(1, 2, len(edges)), 12)
    X, before = np.random.default_rng(1).normal(size=(2, 36, 4))
    out = before.copy()
    connection(X, out, (2.0, -3.0, 0.5))
    np.testing.assert_allclose(out, 2 * (connection.sparse() @ X) - 3 * X + 0.5 * before, atol=1e-12)
