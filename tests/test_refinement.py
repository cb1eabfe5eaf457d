"""Refinement: sweeps never make the fit worse, leave what fits alone, and help where overlaps are noisy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from graphquilt.testing import quilt


def spread(patches, alignment, weights=None):
    X = gq.centroid(patches, alignment, weights=weights)
    parts = [((alignment.apply(k, Z) - X[nodes]) ** 2).sum(axis=1) for k, (nodes, Z) in enumerate(patches)]
    return sum(float(part.sum() if weights is None else part @ weights[k]) for k, part in enumerate(parts))


@given(seed=st.integers(0, 10**6), weighted=st.booleans(), translate=st.booleans())
@settings(max_examples=15, deadline=None)
def test_no_sweep_makes_the_spread_larger(seed, weighted, translate):
    made = quilt(8, 3, noise=0.4, seed=seed)
    rng = np.random.default_rng(seed)
    weights = [rng.uniform(0.1, 1, len(nodes)) for nodes, _ in made.patches] if weighted else None
    alignment = gq.align(made.patches, made.edges, weights=weights, translate=translate)
    before = spread(made.patches, alignment, weights)
    for _ in range(3):
        alignment = gq.refine(made.patches, alignment, sweeps=1, weights=weights, translate=translate)
        after = spread(made.patches, alignment, weights)
        assert after <= before * (1 + 1e-9)
        before = after
    assert np.allclose(alignment.rotations[0], np.eye(3))
    assert np.allclose(alignment.translations.mean(axis=0), 0)


def test_without_noise_nothing_moves():
    made = quilt(12, 4, seed=3)
    alignment = gq.align(made.patches, made.edges)
    refined = gq.refine(made.patches, alignment)
    assert np.allclose(refined.rotations, alignment.rotations, atol=1e-6)
    assert refined.edge_errors.max() < 1e-6


def test_noisy_patches_come_nearer_to_the_truth():
    """A ring with chords, coordinates of falling extent, and noise that drowns the last of them."""
    rng = np.random.default_rng(0)
    p, d = 12, 16
    Z = rng.normal(size=(100 * p, d)) / np.arange(1, d + 1)
    noise = 0.3 * np.linalg.norm(Z, axis=1).mean() / np.sqrt(d)
    patches = []
    for k in range(p):
        near, far = (100 * (k + 1) + np.arange(40)) % len(Z), (100 * (k + 4) + np.arange(40)) % len(Z)
        nodes = np.unique(np.r_[np.arange(100 * k, 100 * k + 100), near, far])
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
        patches.append((nodes, (Z[nodes] + noise * rng.normal(size=(len(nodes), d))) @ turn))
    alignment = gq.align(patches)
    before, after = (
        gq.evaluate.procrustes_error(gq.centroid(patches, each), Z)
        for each in (alignment, gq.refine(patches, alignment, sweeps=10))
    )
    assert after < before


def test_motions_that_are_not_free_are_not_made():
    made = quilt(8, 3, noise=0.2, seed=1)
    alignment = gq.align(made.patches, made.edges, rotate=False)
    assert np.array_equal(gq.refine(made.patches, alignment, rotate=False).rotations, alignment.rotations)
    still = gq.align(made.patches, made.edges, translate=False)
    assert (gq.refine(made.patches, still, translate=False).translations == 0).all()


@pytest.mark.parametrize("sweeps", [-1, 1.5, True])
def test_sweeps_are_counted(sweeps):
    made = quilt(4, 2, seed=0)
    with pytest.raises(gq.errors.InputError, match="sweeps"):
        gq.refine(made.patches, gq.align(made.patches, made.edges), sweeps=sweeps)


def test_other_patches_are_refused():
    made = quilt(4, 2, seed=0)
    with pytest.raises(gq.errors.InputError, match="3 patches and the alignment has 4"):
        gq.refine(made.patches[:3], gq.align(made.patches, made.edges))


def test_one_patch_and_no_sweep_change_nothing():
    made = quilt(4, 2, noise=0.1, seed=0)
    alignment = gq.align(made.patches, made.edges)
    assert gq.refine(made.patches, alignment, sweeps=0) is alignment
    assert gq.refine(made.patches[:1], gq.Alignment.identity(1, 2)).n_patches == 1


def test_what_may_not_be_shifted_stays_where_it_is():
    made = quilt(6, 3, noise=0.1, seed=5)
    alignment = gq.align(made.patches, made.edges)
    turned = gq.refine(made.patches, alignment, translate=False)
    lengths = np.linalg.norm(alignment.translations, axis=1)
    assert np.allclose(np.linalg.norm(turned.translations, axis=1), lengths)
    assert turned.edge_errors.mean() < 1.5 * alignment.edge_errors.mean()
