"""Robust alignment doubts what is wrong and nothing else, and the summary names the patch that is to blame."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import graphquilt as gq
from graphquilt.alignment.verdict import culprits, grade, is_tied
from graphquilt.patches import Patch
from graphquilt.testing import quilt
from test_synchronise import rotation_error

ROBUST = {"robust": True}
SHAPES = [(5, 2, 20), (10, 8, 16), (12, 3, 8)]  # patches, dimensions, nodes of an overlap
NOISES = (0.0, 0.02, 0.1, 0.3)


def doubted(alignment):
    return {tuple(edge) for edge in alignment.distrusted.tolist()}


def with_noise_for(made, bad, seed):
    """Replace patch ``bad`` by coordinates that have nothing to do with any other."""
    patches = list(made.patches)
    nodes, X = patches[bad]
    patches[bad] = Patch(nodes, np.random.default_rng(seed).normal(size=X.shape))
    return replace(made, patches=patches)


@pytest.mark.parametrize(("p", "d", "overlap"), SHAPES)
@pytest.mark.parametrize("scaled", [False, True])
def test_clean_overlaps_are_trusted(p, d, overlap, scaled):
    options = {"scale": scaled, "robust": True}
    for noise, seed in itertools.product(NOISES, range(3)):
        made = quilt(p, d, overlap=overlap, noise=noise, scaled=scaled, seed=seed)
        alignment = gq.align(made.patches, made.edges, **options)
        assert doubted(alignment) == set(), (noise, seed)
        assert "distrusts" not in alignment.summary()
        assert "robust" not in alignment.summary()


@pytest.mark.parametrize(("p", "d", "overlap"), SHAPES)
def test_a_patch_of_noise_is_found_named_and_put_aside(p, d, overlap):
    for noise, seed in itertools.product(NOISES, range(3)):
        made = quilt(p, d, overlap=overlap, noise=noise, seed=seed)
        bad = p // 2
        spoilt = with_noise_for(made, bad, seed)
        alignment = gq.align(spoilt.patches, spoilt.edges, **ROBUST)
        its_edges = {tuple(edge) for edge in made.edges.tolist() if bad in edge}
        assert doubted(alignment) == its_edges, (noise, seed)
        summary = alignment.summary()
        count = len(its_edges)
        assert f"Patch {bad} does not fit: robust alignment distrusts {count} of its {count} overlaps" in summary
        assert summary.count("does not fit") == 1
        assert "robust=True" not in summary
        others = np.delete(np.arange(p), bad)
        rest = made.edges[~(made.edges == bad).any(axis=1)]
        alone = gq.align([made.patches[k] for k in others], np.searchsorted(others, rest), **ROBUST)
        reached, possible = (
            rotation_error(rotations, made.rotations[others])
            for rotations in (alignment.rotations[others], alone.rotations)
        )
        assert reached <= 1.5 * possible + 1e-3  # few patches: other weights of good edges make some difference


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_wrong_correspondences_are_found(noise):
    """In two overlaps the nodes are mixed up in one of the two patches."""
    for seed in range(3):
        made = quilt(12, 3, degree=6, overlap=12, noise=noise, seed=seed)
        rng, patches = np.random.default_rng(seed), list(made.patches)
        wrong = set()
        for e in (5, 20):
            k = made.edges[e, 1]
            nodes, X = patches[k]
            rows = np.flatnonzero((nodes >= 12 * e) & (nodes < 12 * (e + 1)))
            mixed = np.array(X)
            mixed[rows] = X[rng.permutation(rows)]
            patches[k] = Patch(nodes, mixed)
            wrong.add(tuple(made.edges[e].tolist()))
        alignment = gq.align(patches, made.edges, **ROBUST)
        assert doubted(alignment) == wrong
        assert "Robust alignment distrusts 2 overlaps" in alignment.summary()
        assert rotation_error(alignment.rotations, made.rotations) < 2 * rotation_error(
            gq.align(made.patches, made.edges).rotations, made.rotations
        )


def test_the_summary_never_advises_what_is_on_already_nor_longer_training():
    made = with_noise_for(quilt(8, 2, overlap=20, noise=0.1, seed=0), 3, 0)
    plain, robust = (gq.align(made.patches, made.edges, robust=on) for on in (False, True))
    assert "Patch 3 does not fit: the alignment leaves a large error on" in plain.summary()
    assert "robust=True" not in plain.summary() + robust.summary()  # only a trial on a job can tell
    assert "Doubtful: the overlaps that are trusted agree, but some nodes are only in patches that" in robust.summary()
    rng = np.random.default_rng(0)
    unrelated = [(nodes, rng.normal(size=X.shape)) for nodes, X in made.patches]
    for on in (False, True):
        summary = gq.align(unrelated, made.edges, robust=on).summary()
        assert "Bad:" in summary
        assert "train" not in summary
        assert "robust" not in summary


def test_whether_it_was_robust_is_kept(tmp_path):
    made = quilt(6, 2, noise=0.1, seed=0)
    for align in (gq.align, partial(gq.align, branching=100)):
        for robust in (False, True):
            alignment = align(made.patches, made.edges, robust=robust)
            alignment.save(tmp_path / "alignment.npz")
            assert gq.Alignment.load(tmp_path / "alignment.npz").robust is robust
    arrays = alignment.to_arrays()
    del arrays["robust"]  # as a file of an earlier version
    assert gq.Alignment.from_arrays(arrays).robust is False


def test_several_patches_may_be_to_blame():
    edges = np.array(list(itertools.combinations(range(6), 2)))
    patches, rest = culprits(edges, np.isin(edges, [1, 4]).any(axis=1))
    assert patches == [(1, 5), (4, 5)]
    assert not rest.any()
    patches, rest = culprits(edges, np.arange(len(edges)) == 3)
    assert (patches, rest.sum()) == ([], 1)


def contradicting_triangle(dim, shared):
    """Three patches whose overlaps agree but for one direction, in which the third is reflected on one of its two."""
    base = np.random.default_rng(dim).normal(size=(12, dim))
    mirror = np.diag(np.r_[-1.0, np.ones(dim - 1)])
    nodes, X, more = np.arange(12), base, slice(0, shared)
    return [
        (np.r_[nodes, nodes + 12, nodes[more] + 36], np.r_[X, X, X[more]]),
        (np.r_[nodes, nodes + 24, nodes[more] + 36], np.r_[X, X, X[more]]),
        (np.r_[nodes + 12, nodes + 24], np.r_[X @ mirror, X]),
    ]


@pytest.mark.parametrize("dim", [1, 2, 6])
@pytest.mark.parametrize("turned", [False, True])
def test_an_exact_tie_is_said(dim, turned, caplog):
    patches = contradicting_triangle(dim, 0)
    if turned:  # rounding errors do not hide it
        turns = np.linalg.qr(np.random.default_rng(1).normal(size=(3, dim, dim)))[0]
        patches = [(nodes, X @ turn + 5) for (nodes, X), turn in zip(patches, turns, strict=True)]
    alignment = gq.align(patches)
    assert alignment.spectral_gap < 1e-12
    assert grade(alignment) in ("doubtful", "bad")
    assert "Overlaps contradict each other" in alignment.summary()
    assert "Overlaps contradict each other" in caplog.text


def test_what_decides_a_tie_ends_it(caplog):
    alignment = gq.align(contradicting_triangle(2, 6))  # one of the overlaps has more nodes
    assert "contradict" not in alignment.summary() + caplog.text


def test_a_long_chain_is_no_tie():
    nodes, X = np.arange(6), np.random.default_rng(0).normal(size=(6, 2))
    chain = [(np.r_[nodes + 6 * k, nodes + 6 * k + 6], np.r_[X, X]) for k in range(3000)]
    pairs = np.stack([np.arange(2999), np.arange(1, 3000)], axis=1)
    alignment = gq.align(chain, pairs)
    assert alignment.spectral_gap < 1e-5
    assert not is_tied(alignment)
