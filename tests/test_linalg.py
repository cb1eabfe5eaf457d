"""Laplacian systems against the pseudo-inverse."""

import numpy as np
import pytest

from graphquilt.linalg.laplacian import adjacency, components, conjugate_gradients, laplacian, solve_grounded
from graphquilt.testing.quilts import ring_with_chords


@pytest.fixture
def system():
    """A Laplacian of two components and a vertex without edges, and right-hand sides in its range."""
    rng = np.random.default_rng(0)
    edges = np.vstack([ring_with_chords(12, 4, rng), 12 + ring_with_chords(9, 3, rng)])
    weights = rng.uniform(0.2, 5.0, len(edges))
    L = laplacian(edges, weights, 22)
    rhs = L @ rng.normal(size=(22, 3))
    rhs[:, 1] = 0.0
    return L, rhs, components(edges, 22)


def test_adjacency_is_symmetric_and_the_laplacian_sums_to_zero(system):
    edges, weights = np.array([[0, 2], [1, 2]]), np.array([3.0, 4.0])
    assert adjacency(edges, weights, 4).toarray().tolist() == [[0, 0, 3, 0], [0, 0, 4, 0], [3, 4, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(system[0].sum(axis=0), 0, atol=1e-12)


def test_both_solvers_agree_with_the_pseudo_inverse(system):
    L, rhs, component = system
    expected = np.linalg.pinv(L.toarray()) @ rhs
    iterated, residual = conjugate_gradients(L, rhs, tol=1e-12, max_iterations=200)
    assert residual <= 1e-12
    for x in (iterated, solve_grounded(L, rhs, component)):
        for c in range(3):
            part = x[component == c] - x[component == c].mean(axis=0)
            np.testing.assert_allclose(part, expected[component == c], atol=1e-9)


def test_an_iteration_that_stops_early_reports_its_residual(system):
    L, rhs, _ = system
    x, residual = conjugate_gradients(L, rhs, tol=1e-12, max_iterations=2)
    norms = np.linalg.norm(rhs, axis=0)
    true = np.linalg.norm(L @ x - rhs, axis=0)[norms > 0] / norms[norms > 0]
    assert residual == pytest.approx(true.max(), rel=1e-6)
    assert residual > 1e-12
