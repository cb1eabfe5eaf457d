"""The comparison of detectors: each sees the same windows, and a perfect detector differs from a blind one."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from graphquilt.errors import InputError
from graphquilt.temporal import ScoringOptions
from graphquilt.temporal.traffic import netflow

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import labelled_windows
from detectors import DETECTORS, Settings, detect

SETTINGS = Settings(ScoringOptions(3, (1, 7), 5), history=14, refit=5)
judge = partial(labelled_windows.judge, min_observations=5, budgets=(5, 1000))


@pytest.fixture(scope="module")
def data():
    return labelled_windows.netflow_windows(netflow(120, 700, 26, campaigns=2, seed=3))


@pytest.mark.parametrize("name", DETECTORS)
def test_every_detector_scores_and_is_judged(data, name):
    scores, seconds = detect(name, data, SETTINGS)
    assert scores["source"].shape == (120, 26)
    assert scores["destination"].shape == (700, 26)
    quality = judge(scores, data)
    assert {"all", "scanning"} <= set(quality)
    assert 0 <= quality["all"]["source"]["roc_auc"] <= 1
    assert quality["all"]["pair"]["attacks"] == sum(A.nnz for A in data.attacks["all"])
    assert seconds > 0


@pytest.mark.parametrize("name", [name for name in DETECTORS if "stream" in name])
def test_streams_do_not_see_the_future(data, name):
    from dataclasses import replace

    whole, _ = detect(name, data, SETTINGS)
    begun, _ = detect(name, replace(data, windows=data.windows[:18]), SETTINGS)
    for side in ("source", "destination"):
        Z = begun[side]
        np.testing.assert_allclose(Z, whole[side][:, :18], rtol=1e-6, atol=1e-8)


def test_the_truth_itself_is_perfect_and_nothing_is_chance(data):
    truth = {
        side: np.stack([np.asarray(A.sum(axis=axis)).ravel() for A in data.attacks["all"]], axis=1).astype(float)
        for side, axis in (("source", 1), ("destination", 0))
    }
    perfect = judge(truth, data)["all"]
    assert perfect["source"]["roc_auc"] == perfect["destination"]["roc_auc"] == 1
    assert perfect["source"]["recall@1000"] == 1
    blind = judge({side: np.full(S.shape, np.nan) for side, S in truth.items()}, data)["all"]
    assert blind["source"]["roc_auc"] == 0.5
    assert blind["source"]["recall@1000"] == blind["source"]["scored_attacks"] == 0


def test_darpa_labels_become_pairs(tmp_path):
    path = tmp_path / "darpa.npz"
    day = 1440
    np.savez(
        path,
        src=np.array([0, 1, 2, 0], np.int32),
        dst=np.array([1, 2, 0, 1], np.int32),
        t_min=np.array([day, 5, 7, day + 3], np.int32),
        label=np.array([0, 1, 0, 1], np.int16),
        host_names=np.array(["a", "b", "c"]),
        label_names=np.array(["-", "smurf"]),
    )
    data = labelled_windows.darpa_windows(path, "1d")
    assert [w.matrix.nnz for w in data.windows] == [2, 1]
    assert [A.toarray().nonzero() for A in data.attacks["all"]] == [(1, 2), (0, 1)]
    assert data.shape == (3, 3)


def test_unknown_detectors_are_named(data):
    with pytest.raises(InputError, match="there is no detector 'oracle'"):
        detect("oracle", data, SETTINGS)
