"""The plan: a small probe, numbers for each stage, and advice where it does not fit."""

import json
import subprocess
import sys

import numpy as np
import pytest
from graphquilt.records import keep_patch_graph
from graphquilt.stages import cut_patches

from graphquilt import planning
from graphquilt.errors import JobError
from graphquilt.jobs import DirectoryStore
from graphquilt.pipeline import Recipe
from graphquilt.pipeline.records import patch_key
from toy_embedders import Toy, ring_of_patches


@pytest.fixture
def job(tmp_path):
    graph, quilt = ring_of_patches(20)
    store = DirectoryStore(tmp_path / "job")
    keep_patch_graph(store, quilt, graph)
    cut_patches(store, graph, quilt)
    return store


@pytest.fixture
def probed(monkeypatch):
    """A probe whose readings are the same on every machine: 4 ms and 0.1 MB per node, 8 bytes per number."""

    def probe(store, quilt, embedder, picked, **_):
        return [(0.004 * quilt.sizes[k], 1e5 * quilt.sizes[k], 8) for k in picked]

    monkeypatch.setattr(planning, "_probe", probe)


def test_the_probe_measures_and_leaves_nothing_behind(job):
    plan = planning.plan_job(job, Toy(3), workers=2)
    assert all(0 < stage.seconds < np.inf and 0 < stage.memory < np.inf for stage in plan.stages)
    assert not list(job.path.glob("patches/*/embedding.*"))


def test_time_memory_and_disk_follow_from_the_probe(job, probed):
    plan = planning.plan_job(job, Toy(3), workers=2)
    embedding, _, centroid = plan.stages
    rows = sum(len(job[patch_key(k, "graph")].arrays["nodes"]) for k in range(20))
    assert embedding.seconds == pytest.approx(rows * 0.004 / 2)
    assert embedding.disk == rows * 3 * 8
    assert centroid.disk == 2 * 240 * 3 * 8
    assert plan.advice == ()


def test_more_workers_take_less_time_and_as_much_memory_as_all_of_them_together(job, probed):
    alone, together = (planning.plan_job(job, Toy(3), workers=workers).stages[0] for workers in (1, 4))
    assert together.seconds == pytest.approx(alone.seconds / 4)
    assert 3 * alone.memory < together.memory <= 4 * alone.memory


def test_advice_where_memory_or_disk_is_short(job, probed, monkeypatch):
    monkeypatch.setattr(planning, "_memory_available", lambda: 5e8)
    advice = planning.plan_job(job, Toy(3), workers=8).advice
    assert len(advice) == 1
    assert "use at most 1 workers" in advice[0]
    monkeypatch.setattr(planning, "_memory_available", lambda: 1e6)
    words = " ".join(planning.plan_job(job, Toy(3), workers=8).advice)
    assert "make more and smaller patches" in words
    assert "--branching 100" in words


def test_a_job_without_patches_is_refused(tmp_path):
    with pytest.raises(JobError, match="has no patches yet"):
        planning.plan_job(DirectoryStore(tmp_path), Toy(3))


def test_the_command_prints_a_table_or_json(job):
    command = [sys.executable, "-c", "from graphquilt.cli import main; main()", "plan", str(job.path), "--dim", "2"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "It fits." in table
    assert "centroid" in table
    found = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert [stage["stage"] for stage in found["stages"]] == ["embedding", "alignment", "centroid"]
    assert np.isfinite([stage["seconds"] for stage in found["stages"]]).all()


def test_runs_and_rounds_cost_as_often(job, probed):
    once = planning.plan_job(job, Toy(3))
    often = planning.plan_job(job, Toy(3), recipe=Recipe(runs=3, rounds=1))
    assert often.stages[0].disk == 6 * once.stages[0].disk
    assert often.stages[0].seconds == pytest.approx(6 * once.stages[0].seconds)
    assert often.stages[1].memory > once.stages[1].memory


def test_what_a_recipe_holds_in_memory_is_counted(job, probed):
    plain = planning.plan_job(job, Toy(3))
    asked = planning.plan_job(job, Toy(3), recipe=Recipe(refine=3, coverage=2.0))
    assert asked.stages[1].memory > plain.stages[1].memory
