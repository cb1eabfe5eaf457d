"""The large-scale study on a small citation graph: what it measures, and that it goes on after kill -9."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from extras import needs
from graphquilt.embedders import Propagation
from graphquilt.errors import FormatError, JobError
from graphquilt.jobs import Cutting, Job, JobSettings, Recipe
from graphquilt.patches import Conductance, Fennel
from studies import large_report
from studies.citations import citation_graph
from studies.large import LargeStudy, reproduce_large
from studies.perceptrons import Grid

STAGES = ["1-graph", "2-patches", "3-embedding", "4-alignment", "5-no-trans", "6-auc", "7-perceptrons"]
GRID = Grid(hidden=(32,), layers=(2,), dropout=(0.0,), learning_rate=(0.01,), batch_size=500, max_epochs=5)
FLAGS = "--patches 4 --dim 8 --overlap 64:256 --degree 2 -e propagation --hidden 32 --layers 2 --dropout 0 " + (
    "--learning-rate 0.01 --batch-size 500 --max-epochs 5 --map-nodes 0"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mag240m")
    citation_graph(folder, 4000, 30_000, n_features=16, n_classes=6, labelled=0.5)
    return folder


def study_of(source, out, **changes):
    cutting = Cutting(4, partitioner=Fennel(4), degree=2, overlap=(64, 256), edge_weight=Conductance())
    recipe = Recipe.paper().replace(precision="float32")
    settings = JobSettings(embedder=Propagation(8), cutting=cutting, recipe=recipe)
    return replace(LargeStudy(source=source, out=out, settings=settings, grid=GRID, map_nodes=0), **changes)


@pytest.fixture(scope="module")
def finished(source, tmp_path_factory):
    needs("torch")
    out = tmp_path_factory.mktemp("study") / "out"
    return out, reproduce_large(study_of(source, out))


def figures(rows):
    by_name = {row["name"]: row for row in rows}
    accuracies = {route: by_name["7-perceptrons"][route] for route in ("l2g", "no-trans")}
    return {route: by_name["6-auc"][route] for route in accuracies} | {"mlp": accuracies}


def test_alignment_is_better_than_patches_as_they_are(finished, source):
    out, rows = finished
    assert [row["name"] for row in rows] == STAGES
    auc = {row["name"]: row for row in rows}["6-auc"]
    assert auc["l2g"] > auc["no-trans"] > 0.4
    job = Job.open(out / "job")
    assert job.embedding.dtype == np.float32
    assert not (out / "graph" / "features.npy").exists()
    assert job.graph.features.shape == (4000, 16)
    assert json.loads((out / "results.json").read_text()) == rows
    page = (out / "large.md").read_text()
    assert f"| reconstruction AUC | {auc['l2g']:.4f} | {auc['no-trans']:.4f} |" in page
    split = rows[6]["split"]
    years = np.load(next(source.glob("**/node_year.npy")))
    labels = np.load(next(source.glob("**/node_label.npy")))
    valid = int(((years == 2019) & ~np.isnan(labels)).sum())
    assert split["validation"] + split["test"] == valid


def test_a_finished_study_computes_nothing_again(finished, source):
    out, rows = finished
    before = {path: path.stat().st_mtime_ns for path in out.glob("cells/*")}
    events = []
    assert reproduce_large(study_of(source, out), progress=events.append) == rows
    assert {path: path.stat().st_mtime_ns for path in out.glob("cells/*")} == before
    assert {event.stage for event in events} == {"cells"}
    other = study_of(source, out)
    with pytest.raises(JobError, match="computed with other values of seed"):
        reproduce_large(replace(other, settings=replace(other.settings, seed=1)))


# A process that kills itself when a stage has come so far: no handler runs, and nothing is flushed.
KILLED = """
import os, signal, sys
from pathlib import Path
from test_large_study import reproduce_large, study_of
def stop(event):
    if event.stage == sys.argv[3] and event.done >= int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
reproduce_large(study_of(Path(sys.argv[1]), Path(sys.argv[2])), progress=stop)
"""


def kill_at(source, out, stage, done):
    tests = os.path.dirname(__file__)
    paths = os.pathsep.join([tests, os.path.dirname(tests), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, source, out, stage, str(done)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def test_a_study_that_is_killed_while_it_embeds_goes_on(finished, source, tmp_path):
    kill_at(source, tmp_path / "out", "patches", 2)
    job = Job.open(tmp_path / "out" / "job")
    embedded = job.count_embedded()
    assert 0 < embedded < 4
    rows = reproduce_large(study_of(source, tmp_path / "out"))
    assert rows[2]["embedded_before"] == embedded
    assert figures(rows) == figures(finished[1])


@pytest.mark.slow
def test_a_study_that_is_killed_in_every_stage_goes_on(finished, source, tmp_path):
    for stage, done in (
        ("distributing edges", 1),
        ("partition", 1),
        ("patches", 3),
        ("centroid", 1),
        ("perceptrons", 1),
    ):
        kill_at(source, tmp_path / "out", stage, done)
    assert figures(reproduce_large(study_of(source, tmp_path / "out"))) == figures(finished[1])


def test_the_command_takes_the_flags_of_run(study, finished, source, tmp_path):
    words = ("large", "--mag240m", source, "--out", tmp_path / "out", *FLAGS.split())
    code, out, _ = study(*words, "--json")
    assert code == 0
    assert figures(json.loads(out)) == figures(finished[1])
    code, out, _ = study(*words)
    assert (code, "| classification accuracy |" in out, "large.md" in out) == (0, True, True)


def test_what_is_wrong_is_said_before_the_long_work(study, source, tmp_path):
    out = tmp_path / "out"
    code, printed, err = study("large", "--mag240m", tmp_path, "--out", out)
    assert (code, printed, len(err.splitlines())) == (2, "", 1)
    assert "is not a folder of OGB-LSC MAG240M" in err
    bare = tmp_path / "bare"
    shutil.copytree(source, bare)
    next(bare.glob("**/split_dict.pt")).unlink()
    next(bare.glob("**/node_year.npy")).unlink()
    with pytest.raises(FormatError, match=r"has neither split_dict\.pt nor .*node_year\.npy"):
        reproduce_large(study_of(bare, out))
    unlabelled = tmp_path / "unlabelled"
    shutil.copytree(source, unlabelled)
    next(unlabelled.glob("**/node_label.npy")).unlink()
    with pytest.raises(FormatError, match=r"has no processed/paper/node_label\.npy"):
        reproduce_large(study_of(unlabelled, out))
    assert not out.exists()


def test_too_little_disk_is_said_before_the_next_stage(source, tmp_path, monkeypatch):
    study = study_of(source, tmp_path / "out")

    def fill(event):
        """The disk is full from the end of the second stage on."""
        if event.stage == "cells (2-patches)":
            monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 1000))

    with pytest.raises(JobError, match=r"the stage 'embedding' needs 0\.2 MB of disk, and 0\.0 MB are free"):
        reproduce_large(study, progress=fill)
    assert sorted(path.stem for path in (tmp_path / "out" / "cells").glob("?-*.json")) == STAGES[:2]
    assert Job.open(tmp_path / "out" / "job").count_embedded() == 0


def test_a_map_is_drawn_with_and_without_umap(tmp_path, monkeypatch):
    needs("matplotlib")
    X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    monkeypatch.setattr(large_report, "find_spec", lambda name: None if name == "umap" else object())
    facts = large_report.draw_map(X, np.arange(60) % 3, tmp_path / "map.png")
    assert facts["plane"].startswith("two principal components, because umap is not installed")
    assert (tmp_path / "map.png").stat().st_size > 5_000
    monkeypatch.setattr(large_report, "find_spec", lambda _: None)
    assert "matplotlib is not installed" in large_report.draw_map(X, np.arange(60) % 3, tmp_path / "other.png")["map"]
