"""The commands an analyst types: what they write, what they say, and how they end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import graphquilt
from graphquilt.report.anomaly import parse_marks
from graphquilt.report.anomaly_figures import draw_outliers, draw_reference, draw_scores
from graphquilt.report.anomaly_page import render_page
from graphquilt.synthetic.netflow import netflow

SMALL = ("--dim", "3", "--lags", "1,7", "--min-observations", "5", "--protocol", "tcp")


def run(*words, text=None):
    command = [sys.executable, "-c", "from graphquilt.cli import main; main()", *map(str, words)]
    source = str(Path(graphquilt.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, input=text, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flows")
    return netflow(120, 800, 16, campaigns=1, seed=6).write(folder)


@pytest.fixture(scope="module")
def scored(days, tmp_path_factory):
    out = tmp_path_factory.mktemp("scores")
    done = run("anomaly", *days, "--out", out, "--no-figures", "--json", "--mark", "9-15", *SMALL)
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout)


def test_anomaly_writes_scores_alerts_page_and_summary(scored):
    out, summary = scored
    assert summary == json.loads((out / "summary.json").read_text())
    table = pq.read_table(out / "scores.parquet")
    assert table.column_names == ["node", "side", "window", "raw", "standardised", "flagged"]
    assert table.num_rows > 16 * 100
    assert sum(table["flagged"].to_pylist()) == summary["alerts"] > 0
    alerts = [json.loads(line) for line in (out / "alerts.jsonl").read_text().splitlines()]
    assert len(alerts) == summary["alerts"]
    assert [a["standardised"] for a in alerts] == sorted((a["standardised"] for a in alerts), reverse=True)
    assert {"node", "side", "window", "new", "gone", "degree"} <= set(alerts[0])
    assert (summary["windows"], summary["bad_rows"]) == (16, 0)


def test_the_page_needs_nothing_from_outside(scored):
    out, _ = scored
    page = (out / "report.html").read_text()
    assert len(page) < 300_000
    for word in ("http://", "https://", "src=", "@import", "url("):
        assert word not in page
    assert '"marked":true' in page


def test_a_hostile_name_stays_text():
    name = "</script><script>alert(1)</script>"
    page = render_page({"title": name, "windows": [], "limits": {}, "alerts": [], "nodes": {}, "notes": [name]})
    assert name not in page
    assert page.count("<script>") == 1


def test_anomaly_in_words_and_undirected(days, tmp_path):
    done = run("anomaly", *days, "--out", tmp_path, "--no-figures", "--undirected", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "16 windows scored, 0 left out, 0 empty" in done.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--dim", "500"), "0 windows could be embedded in 500 dimensions"),
        (("--lags", "30"), "give shorter lags"),
        (("--lags", "one"), "lags are whole numbers"),
        (("--source", "from"), "has no column 'from'"),
        (("--width", "soon"), "is no duration"),
        (("--min-observations", "30"), "Lower min_observations"),
        (("--mark", "x"), "is no window or range"),
        (("--node", "Nobody"), "there is no node 'Nobody'"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_2(days, tmp_path, change, message):
    done = run("anomaly", *days[:8], "--out", tmp_path / "out", "--no-figures", *SMALL, *change)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists(), "nothing half-written"


def test_strict_names_the_line(days, tmp_path):
    broken = tmp_path / "broken.csv"
    broken.write_text(days[0].read_text() + "oops\n")
    done = run("anomaly", broken, "--out", tmp_path / "out", "--strict", *SMALL)
    assert (done.returncode, "broken.csv line" in done.stderr) == (2, True)


def test_watch_a_folder_and_go_on_after_a_restart(days, tmp_path):
    inbox, whole, parts = tmp_path / "inbox", tmp_path / "whole", tmp_path / "parts"
    inbox.mkdir()
    for path in days[:12]:
        (inbox / path.name).write_bytes(path.read_bytes())
    (inbox / "later.csv.part").write_text("half a fi")
    options = ("--idle", "0", "--budget", "5", "--quantile", "0.95", *SMALL)
    first = run("watch", inbox, "--state", parts, *options)
    assert first.returncode == 0, first.stderr
    for path in days[12:]:
        (inbox / path.name).write_bytes(path.read_bytes())
    second = run("watch", inbox, "--state", parts, *options)
    at_once = run("watch", inbox, "--state", whole, *options)
    assert (first.stdout + second.stdout).splitlines() == at_once.stdout.splitlines()
    alerts = [json.loads(line) for line in at_once.stdout.splitlines()]
    assert alerts
    assert np.bincount([a["window"] for a in alerts]).max() <= 5
    assert {"node", "side", "standardised", "new", "gone"} <= set(alerts[-1])
    assert "window 15" in second.stderr
    assert "window 11" not in second.stderr


def test_watch_standard_input(days):
    text = "".join(path.read_text() for path in days[:9])
    done = run("watch", "-", "--quantile", "0.9", *SMALL, text=text)
    assert done.returncode == 0, done.stderr
    assert "window 8" in done.stderr
    assert all(json.loads(line)["window"] >= 5 for line in done.stdout.splitlines())


def test_watch_refuses_what_it_cannot_watch(tmp_path):
    for words in (("absent",), (tmp_path, "--budget", "0"), (tmp_path, "--lags", "1,2")):
        assert run("watch", *words, "--idle", "0").returncode == 2
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "tracker.npz").write_text("no")
    done = run("watch", tmp_path, "--idle", "0", "--state", tmp_path / "state")
    assert (done.returncode, "does not hold the state" in done.stderr) == (2, True)


def test_figures_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    labels = [str(t) for t in range(30)]
    z = np.random.default_rng(0).normal(size=30)
    marked = np.arange(30) > 20
    counts = {"source": np.arange(30), "destination": np.arange(30)[::-1]}
    first = draw_outliers(tmp_path / "a.png", labels, counts, marked=marked)
    second = draw_scores(tmp_path / "b.png", labels, {"x": z, "y": z[::-1]}, limit=1.0)
    assert first.read_bytes()[:4] == second.read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(graphquilt.InputError, match="30 windows and 3 marks"):
        draw_outliers(tmp_path / "c.png", labels, counts, marked=[True] * 3)
    with pytest.raises(graphquilt.InputError, match="no nodes were chosen"):
        draw_scores(tmp_path / "c.png", labels, {}, limit=1.0)


@pytest.mark.slow
def test_the_reference_map_is_drawn(tmp_path):
    pytest.importorskip("umap")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    X[3] = np.nan
    assert draw_reference(tmp_path / "map.png", X, rng.random(60), limit=50).stat().st_size > 5000
    with pytest.raises(graphquilt.InputError, match="at least 10"):
        draw_reference(tmp_path / "map.png", X[:5], rng.random(5))


def test_marks():
    assert parse_marks("") == frozenset()
    with pytest.raises(graphquilt.InputError, match="write 49-88"):
        parse_marks("4-x")
