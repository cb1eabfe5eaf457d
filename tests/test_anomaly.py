"""Scores: the closed form, the laws of the reference, what is left out, and what an analyst reads."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from extras import needs
from graphquilt import Alignment, align, centroid
from graphquilt.errors import CoverError, DisconnectedError, InputError
from graphquilt.patches import Patch
from graphquilt.temporal import (
    ScoringOptions,
    Window,
    bipartite_svd,
    deviations,
    drift_scores,
    embed_window,
    lag_edges,
    leave_one_out_zscore,
    score_windows,
)
from graphquilt.temporal.contexts import CONTEXTS, compare_mixtures
from graphquilt.temporal.drift import usable_edges
from graphquilt.temporal.embedding import embed_or_explain
from graphquilt.temporal.judging import count_zscores, magnitude_pvalues, shrunk_zscores, tail_pvalues
from graphquilt.temporal.memory import PairMemory
from graphquilt.temporal.records import alert_id
from graphquilt.temporal.results import explain, severity
from graphquilt.temporal.tokens import TokenSurprise, most_surprising
from graphquilt.temporal.traffic import netflow

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from labelled_windows import alert_quality


def windows(matrices, numbers=None):
    for number, A in zip(numbers or range(len(matrices)), matrices, strict=False):
        yield Window(number, 86400.0 * number, 86400.0 * (number + 1), sp.csr_array(A), int(A.sum()))


def brute_force(D, least):
    Z = np.full(D.shape, np.nan)
    for i, row in enumerate(D):
        days = np.flatnonzero(~np.isnan(row))
        if len(days) >= least:
            for t in days:
                others = row[days[days != t]]
                if others.std() > 0:
                    Z[i, t] = (row[t] - others.mean()) / others.std()
    return Z


@settings(max_examples=100, deadline=None)
@given(
    D=hnp.arrays(np.float64, (3, 9), elements=st.integers(0, 50).map(float)),
    holes=hnp.arrays(np.bool_, (3, 9)),
    least=st.integers(3, 6),
)
def test_leave_one_out_zscore_is_the_brute_force_one(D, holes, least):
    D[holes] = np.nan
    np.testing.assert_allclose(leave_one_out_zscore(D, min_observations=least), brute_force(D, least), atol=1e-9)


@pytest.mark.parametrize("value", [0.1, 1e-9, 1e12, 0.0])
def test_equal_values_have_no_score_and_hide_none(value):
    D = np.full((1, 30), value)
    assert np.isnan(leave_one_out_zscore(D)).all()
    D[0, 7] = 3.0 + 2 * value
    Z = leave_one_out_zscore(D)
    assert np.isnan(Z[0, 7]), "the other days do not vary, so there is nothing to divide by"
    np.testing.assert_allclose(Z[0, 8], -1 / np.sqrt(28), rtol=1e-6)


def test_zscore_keeps_single_precision_and_the_least_number_of_days():
    D = np.random.default_rng(0).random((4, 25)).astype(np.float32)
    D[0, 4:] = np.nan
    Z = leave_one_out_zscore(D)
    assert Z.dtype == np.float32
    assert np.isnan(Z[0]).all()
    assert not np.isnan(Z[1:]).any()
    for bad in (np.zeros(3), np.zeros((2, 2, 2))):
        with pytest.raises(InputError, match="axes"):
            leave_one_out_zscore(bad)
    with pytest.raises(InputError, match="at least 3"):
        leave_one_out_zscore(D, min_observations=2)


def random_patches(rng, p=6, n=40, d=3):
    Y = rng.normal(size=(n, d))
    patches = []
    for _ in range(p):
        nodes = np.sort(rng.choice(n, 30, replace=False))
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
        patches.append(Patch(nodes, (Y[nodes] + 0.1 * rng.normal(size=(30, d))) @ turn + rng.normal(size=d)))
    return patches


def test_deviations_are_distances_to_the_centroid():
    patches = random_patches(np.random.default_rng(0))
    alignment = align(patches, lag_edges(6, (1, 2)))
    D = deviations(patches, alignment, n_nodes=50)
    X = centroid(patches, alignment, n_nodes=50, missing="nan")
    assert D.shape == (50, 6)
    for t, (nodes, coordinates) in enumerate(patches):
        expected = np.linalg.norm(alignment.apply(t, coordinates) - X[nodes], axis=1)
        np.testing.assert_allclose(D[nodes, t], expected, atol=1e-12)
        assert np.isnan(np.delete(D[:, t], nodes)).all()


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_moving_one_window_rigidly_changes_no_score(seed):
    rng = np.random.default_rng(seed)
    patches = random_patches(rng)
    edges = lag_edges(6, (1, 2, 3))
    before = deviations(patches, align(patches, edges, tol=1e-9))
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    moved = [*patches[:2], Patch(patches[2].nodes, patches[2].coordinates @ turn + 5), *patches[3:]]
    np.testing.assert_allclose(deviations(moved, align(moved, edges, tol=1e-9)), before, atol=1e-6)


def test_deviations_refuse_what_they_cannot_measure():
    with pytest.raises(InputError, match="no windows"):
        deviations([], Alignment.identity(1, 2))
    with pytest.raises(CoverError, match="node 3, but n_nodes is 3"):
        deviations([([3], [[0.0]])], Alignment.identity(1, 1), n_nodes=3)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_explanations_agree_on_both_sides(seed):
    rng = np.random.default_rng(seed)
    days = [sp.csr_array((rng.random((6, 8)) < 0.4).astype(float)) for _ in range(7)]
    node, window = int(rng.integers(6)), int(rng.integers(7))
    explanation = explain(days, node, window)
    other = explain([sp.csr_array(A.T) for A in days], node, window, side="destination")
    assert sorted(explanation.new.tolist()) == sorted(other.new.tolist())
    assert sorted(explanation.gone.tolist()) == sorted(other.gone.tolist())
    row = np.array([A.toarray()[node] for A in days])
    usual = np.delete(row, window, axis=0)
    usual = usual[usual.any(axis=1)]
    assume(len(usual))
    assert set(explanation.new.tolist()) == set(np.flatnonzero((row[window] > 0) & (usual.mean(axis=0) < 0.1)).tolist())
    assert set(explanation.gone.tolist()) == set(
        np.flatnonzero((row[window] == 0) & (usual.mean(axis=0) >= 0.5)).tolist()
    )


def test_explanations_of_a_first_day_and_of_a_node_outside():
    days = [sp.csr_array((1, 2)), sp.csr_array(np.ones((2, 2)))]
    explanation = explain(days, 1, 1)
    assert (explanation.new.tolist(), explanation.gone.tolist(), np.isnan(explanation.usual_degree)) == (
        [0, 1],
        [],
        True,
    )


@pytest.fixture(scope="module")
def traffic():
    network = netflow(300, 2500, 35, campaigns=2, seed=4)
    return network, [network.matrix(day) for day in range(35)]


def test_drift_scores_are_the_unrolled_route(traffic):
    _, matrices = traffic
    scores = drift_scores(windows(matrices), ScoringOptions(dim=4, lags=(1, 7), background=0.5))
    patches = [embed_window(A, 4, 0.5)[1] for A in matrices]
    alignment = align(patches, lag_edges(35, (1, 7)))
    Z = leave_one_out_zscore(deviations(patches, alignment), min_observations=21)
    np.testing.assert_allclose(scores.sides["destination"].standardised, Z, rtol=1e-4, atol=1e-4)
    assert scores.sides["destination"].limit == pytest.approx(np.nanquantile(Z, 0.999), rel=1e-4)
    assert scores.numbers.tolist() == list(range(35))
    assert sum((part.standardised > part.limit).sum() for part in scores.sides.values()) > 0
    whole = score_windows(windows(matrices), ScoringOptions(dim=4, lags=(1, 7), background=0.5))
    np.testing.assert_allclose(whole.drift.sides["destination"].standardised, Z, rtol=1e-4, atol=1e-4)
    alerts = whole.alerts(budget=5)
    assert len(alerts) == 5 * 33
    assert [a.pvalue for a in alerts] == sorted(a.pvalue for a in alerts)


def test_the_lines_of_the_documentation_are_true(tmp_path, monkeypatch, capsys):
    """The first two snippets of docs/anomaly.md, run as they stand: both give the same scores."""
    network = netflow(300, 2500, 30, campaigns=1, seed=2)
    flows = [path.read_text() for path in network.write(tmp_path / "days")]
    (tmp_path / "netflow.csv").write_text("".join(flows))
    page = (Path(__file__).parents[1] / "docs" / "anomaly.md").read_text()
    short, unrolled, *_ = re.findall(r"```python\n(.*?)```", page, re.S)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(short, names)
    assert len(capsys.readouterr().out.splitlines()) == 10
    exec(unrolled, names)
    assert not names["scores"].left_out
    np.testing.assert_allclose(names["Z"], names["scores"].drift.sides["source"].standardised, rtol=1e-4, atol=1e-4)
    assert np.isfinite(names["Z"]).any()


def test_without_background_it_is_the_papers_embedding_up_to_scale(traffic):
    _, matrices = traffic
    for ours, theirs in zip(embed_window(matrices[0], 3, 0.0), bipartite_svd(matrices[0], 3), strict=True):
        np.testing.assert_array_equal(ours.nodes, theirs.nodes)
        np.testing.assert_allclose(ours.coordinates, theirs.coordinates * np.sqrt(matrices[0].sum()), rtol=1e-5)


def test_background_equals_the_dense_sum():
    rng = np.random.default_rng(3)
    for shape in ((12, 20), (20, 12)):
        A = (rng.random(shape) < 0.3).astype(float)
        A[:, 0] = A[0] = 1
        faint = A + 0.7 * A.sum() / A.size
        for sparse, dense in zip(
            bipartite_svd(sp.csr_array(A), 3, background=0.7), bipartite_svd(sp.csr_array(faint), 3), strict=True
        ):
            np.testing.assert_allclose(sparse.coordinates, dense.coordinates, atol=1e-7)


def test_background_places_stars_and_refuses_what_has_no_rank():
    stars = sp.csr_array(np.kron(np.eye(5), np.ones((1, 3))))
    source, destination = bipartite_svd(stars, 2, background=1.0)
    assert (len(source.nodes), len(destination.nodes)) == (5, 15)
    with pytest.raises(InputError, match="allows none"):
        bipartite_svd(sp.csr_array([[1.0]]), 1, background=1.0)
    with pytest.raises(InputError, match="allows 4: 5 sources"):
        bipartite_svd(stars, 7, background=1.0)
    with pytest.raises(InputError, match="allows 1"):
        bipartite_svd(sp.csr_array(np.kron(np.eye(2), np.ones((4, 4)))), 3, background=1.0)
    with pytest.raises(InputError, match="background must be finite"):
        bipartite_svd(stars, 1, background=-1.0)


def test_a_flood_from_spoofed_addresses_is_embedded():
    """A thousand sources that all do the same leave a matrix of low rank."""
    rng = np.random.default_rng(0)
    usual = (rng.random((40, 60)) < 0.2).astype(float)
    flood = np.zeros((1200, 60))
    flood[:, 7] = 1
    day = sp.csr_array(np.vstack([usual, flood]))
    for background in (0.0, 1.0):
        source, _ = embed_window(day, 5, background)
        spoofed = source.coordinates[source.nodes >= 40]
        assert np.ptp(spoofed, axis=0).max() < 1e-4, "equals lie together"


def test_a_window_too_small_is_named_and_left_out(traffic, caplog):
    _, matrices = traffic
    few = list(matrices[:25])
    few[5] = sp.csr_array((np.ones(1), ([0], [0])), shape=few[5].shape)
    few[6] = sp.csr_array((np.ones(3), ([0, 1, 2], [0, 1, 1])), shape=few[6].shape)
    scores = score_windows(windows(few), ScoringOptions(dim=4, lags=(1, 2, 3), min_observations=5))
    assert sorted(scores.left_out) == sorted(scores.drift.left_out) == [5, 6]
    assert scores.numbers.tolist() == list(range(25))
    assert scores.drift.numbers.tolist() == [t for t in range(25) if t not in (5, 6)]
    assert scores.drift.sides["source"].raw.shape[1] == 23
    assert len(scores.windows[5].sides["source"].nodes) == 1
    assert "window 5 is left out of the embedding, and its nodes are scored by counts" in caplog.text


def test_a_disconnected_day_is_scored(traffic):
    _, matrices = traffic
    split = [sp.block_diag([A[:150, :1200], A[150:, 1200:]]).tocsr() for A in matrices[:10]]
    for background in (0.0, 1.0):
        scores = drift_scores(
            windows(split), ScoringOptions(dim=3, lags=(1, 2), min_observations=5, background=background)
        )
        assert not scores.left_out
        assert np.isfinite(scores.sides["source"].standardised).any()


def test_gaps_that_the_lags_do_not_bridge(traffic):
    _, matrices = traffic
    numbers = [0, 1, 2, 3, 10, 11, 12]
    apart = score_windows(windows(matrices, numbers), ScoringOptions(dim=3, lags=(1, 2), min_observations=3))
    assert apart.drift is None
    assert "2 groups of windows" in apart.drift_missing
    assert len(apart.windows) == 7
    with pytest.raises(DisconnectedError, match=r"2 groups of windows.*10, 11, 12.*Add lags"):
        drift_scores(windows(matrices, numbers), ScoringOptions(dim=3, lags=(1, 2), min_observations=3))
    scores = drift_scores(windows(matrices, numbers), ScoringOptions(dim=3, lags=(1, 7), min_observations=3))
    assert scores.numbers.tolist() == numbers


def test_too_few_common_nodes_name_the_pair_and_the_remedy(caplog):
    rng = np.random.default_rng(0)

    def patch(nodes):
        return Patch(np.array(nodes), rng.normal(size=(len(nodes), 2)))

    chain = [patch([0, 1, 2, 3]), patch([1, 2, 3, 4]), patch([2, 3, 4, 5])]
    numbers = np.array([4, 5, 6])
    assert usable_edges(chain, lag_edges(3, (1, 2)), numbers, "source").tolist() == [[0, 1], [1, 2]]
    assert "windows 4 and 6 share 2" in caplog.text
    with pytest.raises(DisconnectedError, match=r"fewer than the 3 sources.*windows 4 and 5 share 1.*fewer dimensions"):
        usable_edges([chain[0], patch([3, 8, 9])], lag_edges(2, 1), numbers[:2], "source")


def test_too_few_windows_to_align(traffic):
    _, matrices = traffic
    with pytest.raises(InputError, match="2 windows could be embedded"):
        drift_scores(windows(matrices[:2]), ScoringOptions(dim=3, lags=(1,)))
    with pytest.raises(InputError, match="0 windows could be embedded in 30 dimensions, 3 could not"):
        drift_scores(windows([sp.csr_array(np.eye(4))] * 3), ScoringOptions(dim=30, lags=(1,)))
    scores = score_windows(windows([sp.csr_array(np.eye(4))] * 3), ScoringOptions(dim=30, lags=(1,)))
    assert "0 windows could be embedded" in scores.drift_missing
    assert len(scores.windows) == 3


def test_an_executor_changes_nothing(traffic):
    from concurrent.futures import ThreadPoolExecutor

    _, matrices = traffic
    alone = score_windows(windows(matrices[:8]), ScoringOptions(dim=3, lags=(1, 2), min_observations=4))
    with ThreadPoolExecutor(2) as pool:
        shared = score_windows(
            windows(matrices[:8]), ScoringOptions(dim=3, lags=(1, 2), min_observations=4), executor=pool
        )
    for side in ("source", "destination"):
        a, b = (scores.drift.sides[side].raw for scores in (alone, shared))
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        for ours, theirs in zip(alone.windows, shared.windows, strict=True):
            np.testing.assert_allclose(ours.sides[side].z, theirs.sides[side].z, rtol=1e-4, atol=1e-4)


def test_a_planted_scanner_is_found(traffic):
    network, matrices = traffic
    scores = score_windows(windows(matrices), ScoringOptions(dim=4, lags=(1, 7, 14)))
    Z = scores.drift.sides["source"].standardised
    scans = network.truth.nodes("source", len(Z), 35, "scanning")
    present = np.array([np.diff(A.indptr)[: len(Z)] > 0 for A in matrices]).T
    assert alert_quality(Z, scans, present=present)["roc_auc"] > 0.9
    S = np.full(Z.shape, np.nan)
    for t, window in enumerate(scores.windows):
        S[window.sides["source"].nodes, t] = window.sides["source"].severity
    assert alert_quality(S, scans, present=present)["roc_auc"] > 0.9


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000))
def test_alert_quality_against_sklearn(seed):
    metrics = needs("sklearn.metrics")
    rng = np.random.default_rng(seed)
    S, truth = rng.integers(0, 6, (12, 5)).astype(float), rng.random((12, 5)) < 0.2
    truth[0, 0], truth[1, 0] = True, False
    S[rng.random(S.shape) < 0.1] = np.nan
    quality = alert_quality(S, truth, present=np.ones_like(truth), budgets=(3, 60))
    filled = np.nan_to_num(S, nan=-1.0)
    assert quality["roc_auc"] == pytest.approx(metrics.roc_auc_score(truth.ravel(), filled.ravel()))
    expected = metrics.average_precision_score(truth.ravel(), filled.ravel())
    assert quality["average_precision"] == pytest.approx(expected)
    assert quality["recall@60"] == pytest.approx(quality["scored_attacks"])
    assert quality["recall@3"] <= quality["recall@60"]


def test_alert_quality_needs_both_kinds():
    with pytest.raises(InputError, match="some of both kinds"):
        alert_quality([[1.0]], [[True]])
    with pytest.raises(InputError, match="nodes, windows"):
        alert_quality([[1.0]], [True])


def test_what_a_window_is_compared_with():
    own = np.array([[0.0], [6.0]]), np.array([[0.0], [4.0]]), np.array([[0.0], [1.0]])
    population = np.array([1.0]), np.array([1.0])
    z, _ = shrunk_zscores(np.array([[3.0], [3.0]]), own, population, prior=2.0, counted=np.array([False]))
    assert z.tolist() == [[2.0], [-0.25]]
    z = count_zscores(np.array([0.0, 1.0, 3.0]), np.array([0.1, 0.02, 0.1]), np.full(3, 50.0))
    assert z.round(2).tolist() == [-3.09, 2.06, 3.48]
    assert tail_pvalues(np.array([0.0, 2.5, 3.0]), np.array([1.0, 2.0, 3.0]), shape=0.25).tolist() == [1.0, 0.5, 0.5]
    p = tail_pvalues(np.array([500.0, 990.0, 9900.0]), np.arange(1000.0), shape=0.25)
    assert p == pytest.approx([0.5, 0.01, 9e-10], rel=0.1)
    p = magnitude_pvalues(np.array([[50.0], [1000.0]]), [np.arange(1.0, 100.0)])
    assert p == pytest.approx([1.0, 9.8e-5], rel=0.01)
    assert (severity([0.5, 0.01, 1e-5], 100).tolist(), severity(1e-5, 10_000)) == ([6.0, 40.0, 100.0], 60.0)
    counts, usual = np.zeros((2, CONTEXTS)), np.zeros((2, CONTEXTS))
    counts[0, 0] = counts[1, 1] = 8
    usual[:, 0] = 1
    assert compare_mixtures(counts, usual, np.full(2, 20.0)).round(1).tolist() == [1.2, 7.6]


def test_pairs_are_remembered_for_a_while():
    memory = PairMemory(history=2, limit=100).learn(np.array([3, 5]), 0).learn(np.array([5]), 1)
    assert memory.times(np.array([3, 4, 5])).tolist() == [1.0, 0.0, 2.0]
    assert memory.learn(np.array([5]), 2).keys.tolist() == [5]


def test_positions_times_roots_say_how_probable_a_pair_is():
    A = sp.csr_array([[2.0, 1], [1, 1]])
    source, destination, roots = embed_or_explain(A, ScoringOptions(dim=1, background=0))
    x, y = source.coordinates * roots, destination.coordinates * roots
    expected = A.sum(axis=1)[:, None] * A.sum(axis=0) / A.sum()
    assert np.allclose(expected * (1 + x @ y.T), A.toarray(), atol=1e-5)


def test_ids_of_alerts_are_those_of_every_release():
    assert alert_id({"window": 4, "side": "source", "node": "desk"}, {"dim": 20}) == "d1bb1f046292fd9e"


def test_the_most_surprising_tokens_and_those_half_as_surprising_are_named():
    surprise = TokenSurprise(np.array([3, 3, 3, 8]), np.array([0, 1, 2, 0]), np.array([1.0, 9.0, 6.0, 1.0]))
    assert most_surprising(surprise, np.array([2, 3])).tolist() == [[-1] * 5, [1, 2, -1, -1, -1]]
