"""The plan: numbers for each stage, and advice where it does not fit."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from graphquilt.cli import main
from graphquilt.embedders import SVD, Propagation
from graphquilt.errors import InputError, JobError
from graphquilt.jobs import (
    DirectoryStore,
    Job,
    JobSettings,
    Recipe,
    Sizes,
    embed,
    plan,
    plan_job,
    plan_sizes,
)
from graphquilt.jobs.records import patch_key
from toy_embedders import Toy, job_of_patches, ring_of_patches


@pytest.fixture
def job(tmp_path):
    graph, patch_graph = ring_of_patches(20)
    return job_of_patches(DirectoryStore(tmp_path / "job"), graph, patch_graph, embedder=SVD(3))


def with_recipe(job, **changes):
    return Job(job.store, replace(job.settings, recipe=Recipe(**changes)), job.graph)


def test_time_memory_and_disk_follow_from_the_sizes(job):
    estimate = plan_job(job, workers=2)
    embedding, _, centroid = estimate.stages
    rows = int(job.patch_graph.sizes.sum())
    assert 0 < embedding.cpu_seconds < np.inf
    assert embedding.disk == rows * 3 * 4
    assert centroid.disk == 240 * 3 * 4
    assert estimate.advice == ()


def test_more_workers_share_the_time_and_take_as_much_memory_as_all_of_them_together(job):
    alone, together = (plan_job(job, workers=workers).stages[0] for workers in (1, 4))
    assert (together.cpu_seconds, together.processes) == (pytest.approx(alone.cpu_seconds), 4)
    assert 4 * alone.memory < together.memory <= 5 * alone.memory  # and the process that drives them


def test_advice_where_memory_or_disk_is_short(job, monkeypatch):
    monkeypatch.setattr(plan, "available_memory", lambda: 3e8)
    advice = plan_job(job, workers=8).advice
    assert len(advice) == 1
    assert "use at most 1 worker." in advice[0]
    # Four processes would fit, but there are two cores.
    each = plan_job(job, workers=1).stages[0].memory
    monkeypatch.setattr(plan, "available_memory", lambda: 1.25 * 4.5 * each)
    monkeypatch.setattr(plan.os, "sched_getaffinity", lambda _: range(64), raising=False)
    assert "use at most 4 workers" in plan_job(job, workers=8).advice[0]
    monkeypatch.setattr(plan.os, "sched_getaffinity", lambda _: range(2), raising=False)
    assert "use at most 2 workers" in plan_job(job, workers=8).advice[0]
    monkeypatch.setattr(plan, "available_memory", lambda: 1e6)
    words = " ".join(plan_job(job, workers=8).advice)
    assert "make more and smaller patches" in words
    assert "--branching 100" in words


def test_overlaps_smaller_than_the_dimension_are_planned_where_nothing_has_to_move(blocks, tmp_path):
    store = DirectoryStore(tmp_path / "job")
    embed(blocks, dim=64, n_patches=4, store=store)
    job = Job.open(store)
    assert job.patch_graph.overlaps.min() <= 64
    assert [stage.stage for stage in plan_job(job).stages] == ["embedding", "alignment", "centroid"]


def test_a_job_without_patches_is_refused(tmp_path):
    with pytest.raises(JobError, match="has no patches yet"):
        plan_job(Job(DirectoryStore(tmp_path), JobSettings(embedder=Toy(3)), None))


def test_the_command_prints_a_table_or_json(tmp_path):
    graph, patch_graph = ring_of_patches(20)
    job = job_of_patches(DirectoryStore(tmp_path / "job"), graph, patch_graph, embedder=SVD(3))
    command = [sys.executable, "-c", "from graphquilt.cli import main; main()", "plan", job.name, "--dim", "2"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "It fits." in table
    assert "centroid" in table
    estimate = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert [stage["stage"] for stage in estimate["stages"]] == ["embedding", "alignment", "centroid"]
    assert np.isfinite([stage["cpu_seconds"] for stage in estimate["stages"]]).all()


PAPER = Sizes(n_nodes=121_751_666, n_edges=1_297_748_926, n_features=768, n_patches=10_000, dim=128)


def test_the_sizes_of_the_paper_give_what_was_measured_at_that_size():
    """Seconds, bytes: docs/results/scale.md; within a factor that leaves room for other processors."""
    stages = {stage.stage: stage for stage in plan_sizes(PAPER, Propagation(128), recipe=Recipe.paper()).stages}
    for name, seconds, gib in (("ingest", 263, 2.9), ("fennel", 164, 1.4), ("patches", 506, 2.6)):
        assert 0.66 < stages[name].cpu_seconds / seconds < 1.5
        assert 0.35 < stages[name].memory / 2**30 / gib < 1.6
    assert 8e9 < stages["alignment"].memory < 15e9
    levels = plan_sizes(PAPER, Propagation(128), recipe=Recipe.paper().replace(branching=100)).stages
    assert {stage.stage: stage.memory for stage in levels}["alignment"] < 4e9


def test_a_larger_problem_costs_more_in_proportion():
    twice = replace(PAPER, **{name: 2 * getattr(PAPER, name) for name in ("n_nodes", "n_edges", "n_patches")})
    half = replace(twice, n_rows=None, n_patch_edges=None, overlap=None)
    for one, two in zip(plan_sizes(PAPER, SVD(128)).stages, plan_sizes(half, SVD(128)).stages, strict=True):
        assert two.cpu_seconds == pytest.approx(2 * one.cpu_seconds, rel=0.1), one.stage
        assert two.memory >= one.memory
        assert two.disk >= one.disk


def test_what_cannot_be_planned_is_said():
    with pytest.raises(InputError, match="5 nodes cannot be cut into 6 patches"):
        Sizes(n_nodes=5, n_edges=3, n_patches=6, dim=2)
    with pytest.raises(InputError, match="dim of a plan is at least 1, not 0"):
        Sizes(n_nodes=5, n_edges=3, n_patches=2, dim=0)
    with pytest.raises(InputError, match="the cost of Toy is not known"):
        plan_sizes(PAPER, Toy(128))


def test_the_command_plans_before_there_is_anything(capsys, monkeypatch):
    words = [
        "plan",
        "--nodes",
        "1200000",
        "--edges",
        "12800000",
        "--features",
        "768",
        "--patches",
        "100",
        "--dim",
        "128",
    ]
    monkeypatch.setattr(sys, "argv", ["graphquilt", *words, "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    stages = json.loads(capsys.readouterr().out)["stages"]
    assert (ended.value.code or 0, len(stages), stages[-1]["stage"]) == (0, 7, "centroid")
    monkeypatch.setattr(sys, "argv", ["graphquilt", "plan"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, "either the folder of a job" in capsys.readouterr().err) == (2, True)


def test_runs_cost_as_often(job):
    once = plan_job(job)
    often = plan_job(with_recipe(job, runs=3))
    assert often.stages[0].disk == 3 * once.stages[0].disk
    assert often.stages[0].cpu_seconds == pytest.approx(3 * once.stages[0].cpu_seconds)
    assert often.stages[1].memory > once.stages[1].memory


def test_what_a_recipe_holds_in_memory_is_counted(job):
    plain = plan_job(job)
    larger = plan_job(with_recipe(job, refine=3, coverage=2.0))
    assert larger.stages[1].memory > plain.stages[1].memory


def test_what_is_embedded_already_takes_no_time(job):
    before = plan_job(job).stages[0].cpu_seconds
    job.embed(only=range(10))
    assert plan_job(job).stages[0].cpu_seconds == pytest.approx(before / 2)


def test_the_cost_of_another_embedder_is_that_of_its_patches_so_far(tmp_path):
    graph, patch_graph = ring_of_patches(20)
    job = job_of_patches(DirectoryStore(tmp_path / "job"), graph, patch_graph, embedder=Toy(3))
    with pytest.raises(InputError, match="the cost of Toy is not known: embed some patches"):
        plan_job(job)
    job.embed(only=range(5))
    costs = [job.store[patch_key(k, "embedding")].parameters["cpu_seconds"] for k in range(5)]
    rows = job.patch_graph.sizes
    left = sum(costs) / rows[:5].sum() * rows.sum() * 15 / 20
    assert plan_job(job).stages[0].cpu_seconds == pytest.approx(left)


def test_a_stage_without_room_is_refused_before_it_begins_with_the_flag_that_needs_less(tmp_path, monkeypatch):
    graph, patch_graph = ring_of_patches(20)
    job = job_of_patches(DirectoryStore(tmp_path / "job"), graph, patch_graph, embedder=SVD(3))
    monkeypatch.setattr(plan, "disk_free", lambda _: 5.0)
    match = r"the stage 'embedding' needs 0\.\d MB of disk, and 0\.0 MB are free; --precision float16 halves it"
    with pytest.raises(JobError, match=match):
        job.embed()
    assert not list(tmp_path.glob("job/patches/*/embedding.*"))
    monkeypatch.undo()
    job.embed()
    monkeypatch.setattr(plan, "available_memory", lambda: 1e6)
    with pytest.raises(JobError, match=r"'alignment' needs .* of memory, and 1\.0 MB are free; align level by level"):
        job.stitch()


@pytest.mark.parametrize(("rows", "patches"), [(1_217_517, 100), (12_175_166, 1000)])
def test_the_plan_of_a_shared_start_follows_what_was_measured(rows, patches):
    """CPU seconds of docs/results/scale.md, within a factor of 1.5."""
    sizes = Sizes(n_nodes=rows, n_edges=patches * 129_775, n_features=32, n_patches=patches, dim=128)
    stages = plan_sizes(sizes, Propagation(128), recipe=Recipe.shared()).stages
    cpu = {stage.stage: stage.cpu_seconds for stage in stages}
    measured = {1000: (39.5, 175.5), 100: (4.0, 13.1, 48.2, 7.6)}[patches]
    estimates = (
        cpu["ingest"],
        cpu["clusters"] + cpu["patches"],
        cpu["survey"] + cpu["embedding"],
        cpu["alignment"] + cpu["centroid"],
    )
    for estimate, seconds in zip(estimates, measured, strict=False):
        assert 1 / 1.5 < estimate / seconds < 1.5


def test_the_survey_of_a_small_graph_costs_more_than_its_patches():
    """METIS and the tables of 8192 clusters took 4.6 of 11 CPU seconds at 60 000 nodes."""
    sizes = Sizes(n_nodes=60_000, n_edges=480_000, n_patches=10, dim=64)
    cpu = {stage.stage: stage.cpu_seconds for stage in plan_sizes(sizes, Propagation(64)).stages}
    assert cpu["embedding"] < cpu["survey"] == pytest.approx(4.6, rel=0.35)
