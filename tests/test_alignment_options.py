"""Robust and hierarchical alignment, one more patch, the summary, the centroid's options."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import graphquilt as gq
from graphquilt.testing import patchwork, quilt
from test_alignment import fitted
from test_synchronise import rotation_error


def turned(alignment, made):
    """Error of the rotations against the truth."""
    return rotation_error(alignment.rotations, made.rotations)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_robust_alignment_withstands_wrong_overlaps(seed):
    options = {"degree": 8, "noise": 0.3, "seed": seed}
    clean, spoilt = quilt(40, 32, **options), quilt(40, 32, wrong=0.3, **options)
    reference = turned(gq.align(clean.patches, clean.edges), clean)
    plain = turned(gq.align(spoilt.patches, spoilt.edges), spoilt)
    alignment = gq.align(spoilt.patches, spoilt.edges, robust=True)
    assert turned(alignment, spoilt) <= 0.5 * plain
    assert turned(alignment, spoilt) <= 2 * reference
    assert turned(gq.align(clean.patches, clean.edges, robust=True), clean) <= 1.02 * reference
    wrong = {tuple(edge) for edge in spoilt.edges[spoilt.wrong].tolist()}
    named = {tuple(edge) for edge in alignment.distrusted.tolist()}
    assert len(named & wrong) >= 0.95 * len(wrong)
    assert len(named - wrong) <= 0.05 * len(wrong)
    assert "distrusts" in alignment.summary()


def test_robust_alignment_costs_nothing_without_noise():
    made = quilt(12, 4, scaled=True, seed=3)
    alignment = gq.align(made.patches, made.edges, scale=True, robust=True)
    assert fitted(made.points, gq.centroid(made.patches, alignment))[1] < 1e-8
    assert len(alignment.distrusted) == 0


@pytest.mark.parametrize("branching", [2, 5, 12, 100])
def test_hierarchical_equals_flat_without_noise(branching):
    made = quilt(40, 3, scaled=True, seed=4)
    alignment = gq.align(made.patches, made.edges, branching=branching, scale=True)
    assert fitted(made.points, gq.centroid(made.patches, alignment))[1] < 1e-8
    assert np.all(alignment.edge_errors < 1e-6)
    assert alignment.edges.tolist() == made.edges.tolist()
    flat = gq.align(made.patches, made.edges, scale=True)
    for name in ("scales", "rotations", "translations", "edge_weights"):
        np.testing.assert_allclose(getattr(alignment, name), getattr(flat, name), atol=1e-7)


def test_hierarchical_with_noise_is_nearly_as_good():
    made = quilt(60, 4, degree=6, noise=0.1, seed=5)
    flat = gq.centroid(made.patches, gq.align(made.patches, made.edges))
    steps = gq.align(made.patches, made.edges, branching=10)
    assert fitted(made.points, gq.centroid(made.patches, steps))[1] < 1.1 * fitted(made.points, flat)[1]
    assert 0 < steps.spectral_gap < 2
    assert steps.residual < 1e-4


def test_robust_reaches_every_level():
    made = quilt(60, 4, degree=12, noise=0.1, wrong=0.2, seed=7)
    plain = gq.align(made.patches, made.edges, branching=20)
    robust = gq.align(made.patches, made.edges, branching=20, robust=True)
    assert turned(robust, made) < 0.7 * turned(plain, made)
    wrong = {tuple(edge) for edge in made.edges[made.wrong].tolist()}
    assert len(wrong & {tuple(edge) for edge in robust.distrusted.tolist()}) > 10


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_clusters_are_aligned_by_any_executor(pool):
    made = quilt(20, 3, noise=0.1, seed=8)
    options = {"branching": 5, "weights": some_weights(made.patches)}
    alone = gq.align(made.patches, made.edges, **options)
    with pool(2) as executor:
        shared = gq.align(made.patches, made.edges, executor=executor, **options)
    np.testing.assert_allclose(alone.rotations, shared.rotations, atol=1e-9)


def some_weights(patches, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.uniform(0.1, 2.0, len(nodes)) for nodes, _ in patches]


def hierarchical(made, weights, **options):
    return gq.align(made.patches, made.edges, branching=4, weights=weights, **options)


def components(made, weights, **options):
    alignment, _ = gq.align_components(made.patches, made.edges, weights=weights, **options)
    return alignment


def flat(made, weights, **options):
    return gq.align(made.patches, made.edges, weights=weights, **options)


@pytest.mark.parametrize("align", [flat, hierarchical, components])
class TestEveryAlign:
    """``align``, flat and level by level, and ``align_components`` keep the same laws and take the same options."""

    def test_without_noise_weights_change_nothing(self, align):
        made = patchwork(4, 6, noise=0.0, seed=1)
        alignment = align(made, some_weights(made.patches))
        plain = align(made, None)
        np.testing.assert_allclose(alignment.rotations, plain.rotations, atol=1e-7)
        np.testing.assert_allclose(alignment.translations, plain.translations, atol=1e-7)
        assert alignment.edge_errors.max() < 1e-6

    def test_weights_of_one_are_no_weights(self, align):
        made = patchwork(4, 6, noise=0.2, seed=2)
        ones = align(made, [np.ones(len(nodes)) for nodes, _ in made.patches])
        plain = align(made, None)
        np.testing.assert_allclose(ones.rotations, plain.rotations, atol=1e-9)
        np.testing.assert_allclose(ones.translations, plain.translations, atol=1e-9)
        np.testing.assert_allclose(ones.edge_weights, plain.edge_weights)

    def test_weights_in_another_unit_change_nothing(self, align):
        made = patchwork(4, 6, noise=0.2, seed=3)
        weights = some_weights(made.patches)
        alignment, larger = align(made, weights), align(made, [8.0 * w for w in weights])
        np.testing.assert_allclose(alignment.rotations, larger.rotations, atol=1e-7)
        np.testing.assert_allclose(64 * alignment.edge_weights, larger.edge_weights)

    def test_rows_that_hardly_count_may_be_wrong(self, align):
        made = patchwork(4, 6, noise=0.01, seed=4)
        rng = np.random.default_rng(0)
        patches, weights = [], []
        for nodes, Y in made.patches:
            wrong = rng.random(len(nodes)) < 0.2
            patches.append((nodes, Y + wrong[:, None] * rng.normal(size=Y.shape)))
            weights.append(np.where(wrong, 1e-4, 1.0))
        spoilt = replace(made, patches=patches)
        weighted, plain = (
            rotation_error(align(spoilt, values).rotations, made.rotations) for values in (weights, None)
        )
        assert weighted < 0.2 * plain

    def test_wrong_weights_are_refused(self, align):
        made = patchwork(4, 6, seed=5)
        weights = some_weights(made.patches)
        with pytest.raises(gq.errors.InputError, match="24 patches and 23 weights"):
            align(made, weights[1:])
        weights[0][2] = 0.0
        with pytest.raises(gq.errors.InputError, match="1 weights of patch 0 are 0"):
            align(made, weights)

    def test_progress_is_reported(self, align):
        events = []
        align(patchwork(4, 6, seed=6), None, progress=events.append)
        stages = [event.stage for event in events]
        assert "overlaps" in stages
        assert stages[-1] == "synchronised"
        assert events[-1].done == events[-1].total
        assert ("clusters of level 1" in stages) == (align is hierarchical)


def test_edge_weights_are_those_of_the_first_level():
    made = patchwork(4, 6, noise=0.1, seed=7)
    weights = some_weights(made.patches)
    np.testing.assert_allclose(hierarchical(made, weights).edge_weights, flat(made, weights).edge_weights)


def test_one_more_patch_lands_where_it_belongs():
    made = quilt(12, 3, scaled=True, seed=9)
    known = made.edges[(made.edges < 11).all(axis=1)]
    alignment = gq.align(made.patches[:11], known, scale=True)
    longer = alignment.extend(made.patches[:11], made.patches[11])
    assert longer.n_patches == 12
    assert fitted(made.points, gq.centroid(made.patches, longer))[1] < 1e-8
    assert longer.drift < 1e-8
    assert np.all(longer.edge_errors < 1e-6)


def test_one_more_patch_is_moved_as_the_others_were():
    made = quilt(6, 3, seed=9)
    known = made.edges[(made.edges < 5).all(axis=1)]
    for motions in (gq.Motions(rotate=False), gq.Motions(translate=False)):
        options = {name: getattr(motions, name) for name in ("scale", "rotate", "translate")}
        longer = gq.align(made.patches[:5], known, **options).extend(made.patches[:5], made.patches[5])
        assert motions.rotate or np.array_equal(longer.rotations[5], np.eye(3))
        assert motions.translate or not longer.translations[5].any()
        assert longer.scales[5] == 1
    nodes, X = made.patches[5]
    for patches, edges in ((made.patches[:5], known), (made.patches[:5], None)):
        for alignment in (gq.align(patches, edges, scale=True), gq.align(patches, edges, scale=True, branching=2)):
            again = gq.Alignment.from_arrays(alignment.to_arrays())
            assert again.motions == gq.Motions(scale=True)
            assert abs(again.extend(patches, (nodes, 5 * X)).scales[5] - 0.2) < 1e-6
    still = gq.align(made.patches[:5], known, scale=False, rotate=False, translate=False)
    assert still.extend(made.patches[:5], (nodes, 5 * X)).moves_nothing


def test_the_distance_of_an_extended_alignment_to_a_full_solve():
    made = quilt(15, 3, degree=6, noise=0.1, seed=10)
    alignment = gq.align(made.patches[:14], made.edges[(made.edges < 14).all(axis=1)])
    longer = alignment.extend(made.patches[:14], made.patches[14])
    full = gq.align(made.patches, longer.edges)
    distance = rotation_error(longer.rotations, full.rotations)
    assert 0 < distance <= longer.drift
    assert "without a full solve" in longer.summary()


def test_a_new_patch_that_shares_too_little_is_refused():
    made = quilt(5, 3, seed=11)
    alignment = gq.align(made.patches, made.edges)
    with pytest.raises(gq.errors.OverlapError, match=r"at most 2 nodes .* needs 4"):
        alignment.extend(made.patches, (np.array([0, 1, 900, 901]), np.eye(4, 3)))
    with pytest.raises(gq.errors.InputError, match="has 5 patches, but 4 were given"):
        alignment.extend(made.patches[:4], made.patches[0])


def test_the_summary_speaks_plainly():
    good = gq.align(patchwork().patches)
    assert "Good: the overlaps agree" in good.summary()
    noisy = quilt(12, 3, noise=3.0, seed=12)
    assert "Bad" in gq.align(noisy.patches, noisy.edges).summary()
    assert "The rotations stand out from noise" in good.summary()
    chain = quilt(60, 2, degree=2, noise=0.1, seed=13)
    assert "because they form a long chain" in gq.align(chain.patches, chain.edges).summary()
    loose = quilt(20, 24, degree=3, noise=1.0, seed=13)
    assert "hardly stand out from noise" in gq.align(loose.patches, loose.edges).summary()
    assert "nothing is known" in gq.Alignment.identity(2, 2).summary()


def test_no_trans_is_the_identity():
    made = quilt(5, 3, noise=0.1, seed=14)
    X = gq.centroid(made.patches, gq.Alignment.identity(5, 3))
    sums, counts = np.zeros_like(X), np.zeros(len(X))
    for nodes, Y in made.patches:
        sums[nodes] += Y
        counts[nodes] += 1
    np.testing.assert_allclose(X, sums / counts[:, None])


def test_weights_of_patches_and_of_nodes():
    patches = [([0, 1], [[0.0], [2.0]]), ([1, 2], [[5.0], [6.0]])]
    still = gq.Alignment.identity(2, 1)
    assert gq.centroid(patches, still, weights=[1, 2]).ravel().tolist() == [0, 4, 6]
    assert gq.centroid(patches, still, weights=[[1, 3], [1, 1]])[1, 0] == pytest.approx(2.75)


def test_missing_nodes_and_out(tmp_path):
    patches = [([0, 1], [[0.0], [2.0]]), ([1, 3], [[4.0], [6.0]])]
    still = gq.Alignment.identity(2, 1)
    with pytest.raises(gq.errors.CoverError, match=r"1 of 4 nodes are in no patch .* \[2\]"):
        gq.centroid(patches, still)
    X = gq.centroid(patches, still, missing="nan", n_nodes=6)
    assert np.isnan(X[[2, 4, 5]]).all()
    out = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float32, shape=(4, 1))
    assert gq.centroid(patches, still, missing="nan", out=out) is out
    assert np.load(tmp_path / "X.npy")[1, 0] == 3
