"""Days of real traffic turn against each other with much noise and hardly a spectral gap: the solver must hold."""

import numpy as np
import pytest

from graphquilt.alignment import groups
from graphquilt.linalg.procrustes import nearest_orthogonal
from graphquilt.temporal import lag_edges


@pytest.mark.parametrize("noise", [0.5, 0.8, 1.2])
def test_hardly_any_gap_is_solved_like_the_dense_problem(noise, monkeypatch):
    rng = np.random.default_rng(1)
    edges = lag_edges(89, (1, 7, 14, 21, 28, 35, 42, 49))
    truth = nearest_orthogonal(rng.normal(size=(89, 8, 8)))
    spoilt = np.einsum("eij,ekj->eik", truth[edges[:, 0]], truth[edges[:, 1]])
    spoilt = nearest_orthogonal(spoilt + noise * rng.normal(size=spoilt.shape))
    weights = rng.uniform(0.5, 2.0, len(edges))
    ours = groups.synchronize_rotations(edges, spoilt, weights=weights, n=89)
    monkeypatch.setattr(groups, "DENSE_SIZE", 10_000)
    dense = groups.synchronize_rotations(edges, spoilt, weights=weights, n=89)
    np.testing.assert_allclose(ours.eigenvalues[:8], dense.eigenvalues[:8], atol=1e-6)
