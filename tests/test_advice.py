"""When a fit is bad, or a graph falls apart: what to do, as a command to copy, and an exit code for scripts."""

import json
import logging
import shlex
import threading

import numpy as np
import pytest

import graphquilt as gq
from graphquilt.alignment.verdict import grade
from graphquilt.cli import display, results
from graphquilt.errors import DisconnectedError
from graphquilt.jobs import Job, JobProgress, follow_job, job_status
from graphquilt.progress import Progress
from toy_embedders import Toy, job_of_patches, ring_of_patches


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def friends(tmp_path):
    """A random graph with names and weights, whose patches share little but chance."""
    rng = np.random.default_rng(0)
    rows = [f"user {u},user {v},{rng.random():.3f}" for u in range(500) for v in rng.integers(0, 500, 4)]
    (tmp_path / "my friends.csv").write_text("\n".join(["person,friend,weight", *rows]))
    return "my friends.csv"


def test_a_bad_fit_says_what_to_do_and_strict_leaves_with_3(friends, command):
    words = ["embed", friends, "--dim", 24, "--patches", 6, "-e", "svd", "--workers", 1]
    code, out, err = command(*words, "--out", "job", "--json", "--strict")
    result = json.loads(out)
    assert result["weighted"] is True
    assert result["verdict"] in ("bad", "doubtful")
    assert (code, f"the fit is {result['verdict']}, which --strict does not accept" in err) == (3, True)
    assert command(*words, "--out", "job")[0] == 0
    code, out, _ = command("stitch", "job", "--workers", 1, "--strict")
    assert code == 3
    assert f"{result['verdict'].capitalize()}: " in out
    code, out, _ = command(*words, "--embedder", "propagation", "--out", "other", "--strict", "--json")
    assert code == 0
    assert json.loads(out)["verdict"] in ("good", "fair")


def test_the_grade_is_the_first_word_of_the_verdict():
    for noise in (0.0, 0.4, 5.0):
        rng = np.random.default_rng(1)
        X = rng.standard_normal((40, 2))
        patches = [(np.arange(40), X + noise * rng.standard_normal((40, 2))) for _ in range(4)]
        fit = gq.align(patches)
        assert fit.summary().splitlines()[1].lower().startswith(grade(fit))
        if grade(fit) == "bad":
            assert "agrees least with its neighbours" in fit.summary()
    assert grade(fit) == "bad"
    assert gq.align(patches[:1]).summary() == "One patch in 2 dimensions: there is nothing to align."


@pytest.fixture
def rings(tmp_path):
    lines = [f"{name}{k},{name}{(k + 1) % 60}" for name in "ab" for k in range(60)]
    (tmp_path / "rings.csv").write_text("\n".join(lines))
    return tmp_path / "rings.csv"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "all are embedded in one frame. To keep only the largest: --largest-component"),
        ({"embedder": gq.SVD(2), "cutting": gq.Cutting(1)}, "all are embedded in one frame"),
        ({"embedder": gq.SVD(2), "cutting": gq.Cutting(4, components="each")}, "each is aligned alone"),
    ],
)
def test_several_components_are_announced_with_the_choice(rings, options, said, caplog):
    with caplog.at_level(logging.WARNING):
        result = gq.embed(rings, 2, **options)
    assert np.isfinite(result.embedding).all()
    first = caplog.records[0].getMessage()
    assert first.startswith("the graph has 2 components, and the largest has 60 of 120 nodes: ")
    assert said in first


def test_components_that_cannot_be_aligned_name_the_flags(rings, command, caplog):
    with pytest.raises(DisconnectedError, match=r"--largest-component\); or .*--each-component"):
        gq.embed(rings, 2, embedder=gq.SVD(2), n_patches=4)
    assert "align each alone (--each-component), or embed all in one frame" in caplog.text
    words = ["embed", rings, "--dim", 2, "--patches", 4, "-e", "svd", "--workers", 1]
    assert command(*words, "--out", "whole")[0] == 2
    out = " ".join(command("inspect", "whole")[1].split())
    assert "the graph is not cut into patches" in out
    assert "nodes 120 patches not cut yet" in out
    again = job_status(Job.open("whole")).next
    assert again in out
    assert command(*shlex.split(again)[1:], "--largest-component")[0] == 0
    assert Job.open("whole").embedding.shape == (60, 2)
    for k, flag in enumerate(("--each-component", "--largest-component")):
        assert command(*words, flag, "--out", f"job{k}")[0] == 0
    assert Job.open("job0").embedding.shape == (120, 2)
    assert Job.open("job1").embedding.shape == (60, 2)


def test_inspect_fits_on_a_screen_with_the_verdict_first(friends, command):
    assert command("embed", friends, "--dim", 24, "--patches", 6, "-e", "svd", "--workers", 1, "--out", "job")[0] == 0
    assert command("evaluate", "job", "--max-edges", 200)[0] == 0
    code, out, _ = command("inspect", "job", "--verify")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split(":")[0].lower() == grade(Job.open("job").alignment)
    assert len(lines) <= 24
    assert all(len(line) <= 80 or line.strip().startswith("graphquilt ") for line in lines)
    fit, shown = job_status(Job.open("job")).fit, " ".join(out.split())
    assert fit[1] in shown  # whole
    assert "next nothing" not in shown
    assert len(command("inspect", "job", "--all")[1].splitlines()) > 24


def test_inspect_shows_that_rotations_are_hardly_determined():
    fit = [
        "6 patches.",
        "Doubtful: they agree, but.",
        "The rotations hardly stand out from noise.",
        "Patch 3 does not fit.",
        "Patch 4 does not fit.",
    ]
    assert results._verdict(fit) == fit[1:4]
    assert results._verdict(["One patch: there is nothing to align."]) == ["One patch: there is nothing to align."]


def test_follow_shows_workers_pace_and_time_left(tmp_path, command):
    graph, patch_graph = ring_of_patches(8)
    job = job_of_patches(gq.DirectoryStore(tmp_path / "job"), graph, patch_graph, embedder=Toy(2, seconds=0.3))
    with gq.Processes(2) as pool:
        work = threading.Thread(target=job.embed, kwargs={"executor": pool})
        work.start()
        seen = list(follow_job(Job.open(tmp_path / "job"), interval=0.05))
        work.join()
    assert (seen[0].per_minute, seen[0].wanted) == (None, 8)
    embedding = [one for one in seen if one.stage == "patches"]
    assert 1 <= embedding[-1].workers <= 2
    assert any(one.per_minute and one.seconds_left for one in embedding)
    assert (seen[-1].stage, seen[-1].done) == ("stitch", 8)
    code, out, _ = command("inspect", tmp_path / "job", "--follow")
    assert (code, out.splitlines()[0]) == (0, "8 of 8 patches, 0 workers")


def test_follow_says_how_to_go_on_where_nobody_works(tmp_path, command, monkeypatch):
    graph, patch_graph = ring_of_patches(8)
    job_of_patches(gq.DirectoryStore(tmp_path / "job"), graph, patch_graph, embedder=Toy(2))
    waiting = JobProgress(stage="patches", done=0, wanted=8, workers=0, per_minute=None, seconds_left=None)
    monkeypatch.setattr("graphquilt.jobs.follow_job", lambda job, interval: iter([waiting] * 4))
    code, out, err = command("inspect", tmp_path / "job", "--follow")
    assert (code, out.count("0 of 8 patches, 0 workers")) == (0, 4)
    assert err.count("no patch was finished in 10 seconds") == 1
    assert "resume it: graphquilt embed-patches job." in err


def test_long_work_leaves_lines_where_there_is_no_terminal(capsys, monkeypatch):
    clock = iter([0.0, 3.0, 11.0, 11.0, 12.0])
    monkeypatch.setattr(display.time, "monotonic", lambda: next(clock))
    with display.watching() as progress:
        for done in (1, 2, 3):
            progress(Progress("patches", done, 9))
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition(" patches: ")[2] for line in lines] == ["2 of 9, 56.0 s left"]


def test_where_overlaps_disagree_everywhere_the_input_is_questioned_first(tmp_path):
    graph, patch_graph = ring_of_patches(6)
    job = job_of_patches(gq.DirectoryStore(tmp_path / "job"), graph, patch_graph, embedder=Toy(2))
    job.embed()
    job.stitch()
    assert grade(job.alignment) == "bad"
    assert "Check the input first: the ids, the columns that were read" in job.alignment.summary()


def test_a_collapsed_embedder_is_found_on_the_first_patch(tmp_path):
    graph, patch_graph = ring_of_patches(6)
    calls = []

    def collapsed(part, seed):
        calls.append(seed)
        return np.full((part.n_nodes, 2), 0.5) + 1e-9 * np.arange(part.n_nodes)[:, None]

    embedder = gq.embedders.as_embedder(collapsed, 2)
    job = job_of_patches({}, graph, patch_graph, embedder=embedder)
    with pytest.raises(gq.errors.QuiltError, match=r"collapsed gave all .* nodes of patch 0 the same position"):
        job.embed()
    assert len(calls) == 1
