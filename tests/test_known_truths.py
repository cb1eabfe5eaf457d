"""Verdicts on problems whose answers are known: what is called good or fair is right."""

from collections import Counter

import numpy as np
import pytest

import graphquilt as gq
from graphquilt.alignment.verdict import grade
from graphquilt.testing import Quilt, random_rotations
from graphquilt.testing.quilts import ring_with_chords

LABELS = ("Firm:", "Soft:", "Weak:", "Thin:", "Unchecked:", "Undetermined:")


def hard_quilt(seed):
    """Return a problem whose answer may be out of reach, and its noise: chains, flat overlaps, few shared nodes.

    The patches of a chain, a ring, or a ring with chords are far larger than their overlaps, whose points may hardly
    extend in some directions.
    """
    rng = np.random.default_rng(seed)
    p, dim = int(rng.choice([2, 3, 4, 6, 12, 40])), int(rng.choice([1, 2, 3, 8, 16]))
    edges = ring_with_chords(p, int(rng.choice([2, 2, 4, 6])), rng)
    edges = edges[:-1] if p > 2 and len(edges) == p and rng.random() < 0.5 else edges
    if len(edges) < p:
        edges = np.stack([np.arange(p - 1), np.arange(1, p)], axis=1)
    share, noise = int((dim + 1) * rng.choice([1, 2, 5])), float(rng.choice([0.0, 0.001, 0.01, 0.1, 0.2]))
    extent = np.ones(dim)
    extent[: int(rng.integers(dim)) if rng.random() < 0.5 else 0] = rng.choice([0.0, 1e-4, 0.01, 0.1])
    start, inner = len(edges) * share, 5 * dim + 20
    points = rng.normal(size=(start + p * inner, dim))
    points[:start] *= extent
    rotations, translations = random_rotations(p, dim, rng), 3 * rng.normal(size=(p, dim))
    patches = []
    for k in range(p):
        shared = [np.arange(e * share, (e + 1) * share) for e in np.flatnonzero((edges == k).any(axis=1)).tolist()]
        nodes = np.concatenate([*shared, start + np.arange(k * inner, (k + 1) * inner)])
        measured = points[nodes] + noise * rng.normal(size=(len(nodes), dim))
        patches.append(gq.Patch(nodes, (measured - translations[k]) @ rotations[k].T))
    none = np.empty(0, dtype=np.int64)
    return Quilt(patches, edges, points, np.ones(p), rotations, translations, none), noise


def true_error(problem, alignment):
    """Return the distance of aligned rows from the truth, after the best similarity, as a share of its spread."""
    placed = np.concatenate([alignment.apply(k, X) for k, (_, X) in enumerate(problem.patches)])
    truth = np.concatenate([problem.points[nodes] for nodes, _ in problem.patches])
    placed, truth = placed - placed.mean(axis=0), truth - truth.mean(axis=0)
    U, s, Vt = np.linalg.svd(placed.T @ truth)
    fitted = s.sum() / np.sum(placed**2) * placed @ U @ Vt
    return float(np.linalg.norm(fitted - truth) / np.linalg.norm(truth))


def check_verdicts(seeds):
    """Grade problems; return how many are right and wrong by grade."""
    counts = Counter()
    for seed in seeds:
        problem, noise = hard_quilt(seed)
        alignment = gq.align(problem.patches, problem.edges)
        word, wrong = grade(alignment), true_error(problem, alignment) > max(3 * noise, 0.25)
        assert not (wrong and word in ("good", "fair")), seed
        summary = alignment.summary()
        assert summary.splitlines()[1].lower().startswith(f"{word}:")
        assert not any(label in summary for label in LABELS)
        assert alignment.edge_errors.max() <= 1
        counts[word, wrong] += 1
    return counts


@pytest.mark.filterwarnings("ignore")
def test_what_is_called_good_or_fair_is_right():
    counts = check_verdicts(range(150))
    right = sum(n for (_, wrong), n in counts.items() if not wrong)
    assert counts["bad", False] <= 0.02 * right
    assert counts["good", False] + counts["fair", False] >= 0.5 * right  # caution alone would be easy
    assert counts["doubtful", True] + counts["bad", True] >= 20


def test_few_nodes_that_fit_by_chance_are_doubted():
    check_verdicts([11231, 20032])  # three nodes in two dimensions: noise turned one over


@pytest.mark.slow
def test_what_is_called_good_or_fair_is_right_in_many_problems():
    counts = check_verdicts(range(1000, 3000))
    right = sum(n for (_, wrong), n in counts.items() if not wrong)
    assert counts["bad", False] <= 0.02 * right


def ring(close, flat):
    """Four patches in a ring or chain whose overlaps do not extend in the last directions, in which patches do."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(4 * 40 + 4 * 100, 8))
    points[:160, 8 - flat :] = 0
    patches = []
    for k in range(4):
        shared = [np.arange(40 * e, 40 * e + 40) for e in {k, (k - 1) % 4} if close or e < 3]
        nodes = np.concatenate([*shared, 160 + np.arange(100 * k, 100 * k + 100)])
        turn = np.linalg.qr(rng.normal(size=(8, 8)))[0]
        patches.append((nodes, points[nodes] @ turn))
    return patches


@pytest.mark.parametrize(("close", "flat"), [(True, 1), (True, 4), (False, 1), (False, 4)])
def test_directions_that_no_overlap_determines_are_doubted(close, flat):
    alignment = gq.align(ring(close, flat))
    assert alignment.edge_errors.max() < 1e-6
    assert (grade(alignment), alignment.uncertainty > 0.2) == ("doubtful", True)
    # Where the patches do not extend there either, nothing is lost.
    inside = [(nodes[nodes < 160], X[nodes < 160]) for nodes, X in ring(close, flat)]
    assert grade(gq.align(inside)) in ("good", "fair")


def honest_and_others(n_false, false, seed=6):
    """Ten patches of 120 of 400 points; the first ``n_false`` have the rows that ``false`` gives for their nodes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 8))
    nodes = [np.sort(rng.choice(400, 120, replace=False)) for _ in range(10)]
    other = false(X, rng)
    return [(ids, other(ids) if k < n_false else X[ids]) for k, ids in enumerate(nodes)]


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("n_false", [4, 5, 6])
def test_patches_that_spoil_most_overlaps_do_not_make_the_rest_bad(n_false, robust):
    patches = honest_and_others(n_false, lambda X, rng: lambda ids: X[rng.permutation(ids)])
    alignment = gq.align(patches, robust=robust)
    assert np.mean(alignment.edge_errors > 0.7) > 0.5
    assert grade(alignment) == "doubtful"


def test_patches_of_which_none_agree_are_bad():
    assert grade(gq.align(honest_and_others(10, lambda X, rng: lambda ids: X[rng.permutation(ids)]))) == "bad"


def test_two_halves_that_contradict_each_other_in_one_direction_are_doubted():
    """The two differ in the order of one of eight columns and a reflection; no overlap is bad."""

    def torn(X, rng):
        other = X.copy()
        other[:, 1] = rng.permutation(X[:, 1])
        other[:, 0] *= -1
        return lambda ids: other[ids]

    alignment = gq.align(honest_and_others(5, torn, seed=2))
    assert alignment.edge_errors.max() < 0.7
    assert grade(alignment) == "doubtful"


def quilt_with_a_stranger(inside):
    """Ten patches that overlap in a row and one of noise, whose nodes all others have (``inside``) or only some."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 4))
    nodes = [np.arange(k * 60, k * 60 + 180) % 600 for k in range(10)]
    nodes.append(np.arange(120) if inside else np.r_[np.arange(120), np.arange(600, 650)])
    patches = {f"party {k}": (ids, X[ids]) for k, ids in enumerate(nodes[:10])}
    return X, patches | {"the stranger": (nodes[10], rng.normal(size=(len(nodes[10]), 4)))}


@pytest.mark.parametrize("inside", [True, False])
def test_robust_leaves_out_what_it_distrusts(inside):
    X, patches = quilt_with_a_stranger(inside)
    recipe = gq.Recipe("align", start=False, robust=True)
    result = gq.align_files(patches, recipe=recipe)
    alignment, ids = result.alignment, np.asarray(result.node_ids)
    assert alignment.left_out.tolist() == [10]
    assert (alignment.n_stranded, int(result.stranded.sum())) == ((0, 0) if inside else (50, 50))
    assert np.array_equal(np.flatnonzero(ids >= 600), np.flatnonzero(result.stranded))
    assert np.isfinite(result.embedding).all()
    rows = ids < 600
    lengths, truth = (np.linalg.norm(np.diff(Z, axis=0), axis=1) for Z in (result.embedding[rows], X[ids[rows]]))
    np.testing.assert_allclose(lengths / lengths.mean(), truth / truth.mean(), atol=1e-3)
    assert grade(alignment) == ("good" if inside else "doubtful")
    summary = alignment.summary(list(patches))
    assert "Patch 10 (the stranger) does not fit" in summary
    assert ("50 nodes are in no other patch" in summary) is not inside
    assert gq.Alignment.from_arrays(alignment.to_arrays()).n_stranded == alignment.n_stranded
