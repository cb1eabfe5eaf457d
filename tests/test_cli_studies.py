"""The commands about data sets, and those of the studies, called as a user calls them."""

import json

import pytest

from extras import needs
from graphquilt.cli.display import LogLines
from graphquilt.progress import Progress


def test_datasets_are_listed_and_shown(command, monkeypatch, tmp_path):
    monkeypatch.delenv("GRAPHQUILT_DATA", raising=False)
    code, out, _ = command("datasets", "list", "--json", "--data", tmp_path)
    assert code == 0
    names = ["amazon-photo", "beth", "citeseer", "coauthor-cs", "cora", "darpa-1998", "lanl", "lanl-2015"]
    names += ["optc", "pubmed", "wordnet"]
    assert json.loads(out) == {"blocks": "generated"} | dict.fromkeys(names)
    code, out, _ = command("datasets", "list")
    assert code == 0
    assert "cora          none" in out
    code, out, _ = command("datasets", "show", "blocks")
    assert (code, out.split()) == (0, ["nodes", "1200", "edges", "5933", "features", "120", "classes", "6"])


def test_wrong_words_end_with_one_sentence_and_leave_nothing(command, study, tmp_path):
    out = tmp_path / "out"
    for call, words, sentence in (
        (command, ("datasets", "show", "cora", "--data", tmp_path), "python -m studies convert' in a clone"),
        (command, ("datasets", "fetch", "lanl", "--data", tmp_path), "graphquilt does not download"),
        (command, ("datasets", "show", "core"), "no data set named 'core'"),
        (study, ("small", "--datasets", "core", "--out", out), "no data set 'core'"),
        (study, ("small", "--dims", "2,x", "--out", out), "--dims takes numbers separated by commas"),
        (study, ("ablation", "--datasets", "core", "--out", out), "no data set named 'core'"),
    ):
        code, printed, err = call(*words)
        assert (code, printed) == (2, "")
        assert sentence in err
        assert len(err.splitlines()) == 1
    assert not out.exists()


def test_the_small_study_runs_from_the_command_line_and_goes_on(study, tmp_path):
    needs("torch")
    words = ("small", "--datasets", "blocks", "--models", "dgi", "--dims", "2", "--splits", 2, "--no-maps")
    code, out, err = study(*words, "--runs", 1, "--out", tmp_path)
    assert code == 0
    assert "| l2g, accuracy |" in out
    assert "cells: 0 of 1" in err
    code, out, err = study(*words, "--runs", 1, "--out", tmp_path, "--json")
    assert "cells: 1 of 1" in err  # nothing is computed again
    assert {row["route"] for row in json.loads(out)} == {"full", "l2g", "no-trans", "rotation-only"}


@pytest.mark.slow
def test_the_ablation_leaves_a_table_and_a_figure(study, monkeypatch, tmp_path):
    needs("torch")
    needs("sknetwork")
    from studies import ablation

    few = {"alignment": ablation.SERIES["alignment"], "partitioner": ablation.SERIES["partitioner"][2:]}
    monkeypatch.setattr(ablation, "SERIES", few)
    words = ("--datasets", "blocks", "--dim", 2, "--runs", 1, "--splits", 2, "--out", tmp_path)
    code, out, _ = study("ablation", *words)
    assert code == 0
    assert out.count("| blocks |") == 3
    assert "in two levels" in out
    assert (tmp_path / "ablation.png").stat().st_size > 5_000
    assert len(json.loads((tmp_path / "results.json").read_text())["cells"]) == 3


def test_a_log_says_how_much_time_is_left(monkeypatch, capsys):
    clock = iter([0.0, 0.0, 5.0, 20.0, 40.0, 41.0, 60.0])
    monkeypatch.setattr("graphquilt.cli.display.time.monotonic", lambda: next(clock))
    log = LogLines()
    for stage, done in (
        ("patches", 0),
        ("patches", 1),
        ("patches", 5),
        ("patches", 10),
        ("patches", 0),
        ("patches", 2),
    ):
        log(Progress(stage, done, 10))
    lines = [line.partition(" patches: ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["5 of 10, 20.0 s left", "10 of 10", "2 of 10, 1.3 min left"]
