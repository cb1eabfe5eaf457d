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
from extras import needs
from graphquilt.cli import main
from graphquilt.report.anomaly import parse_marks, render_page
from graphquilt.report.anomaly_figures import draw_outliers, draw_reference, draw_scores
from graphquilt.synthetic.netflow import netflow
from graphquilt.temporal import ScoringOptions, Tracker

SMALL = ("--dim", "3", "--lags", "1,7", "--min-observations", "5", "--protocol", "tcp")


def run(*words, text=None):
    command = [sys.executable, "-c", "from graphquilt.cli import main; main()", *map(str, words)]
    source = str(Path(graphquilt.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, input=text, capture_output=True, text=True, env=environment, check=False)


class Killed(BaseException):
    """What no program can catch, as far as a test can have it."""


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command in this process; return exit code, standard output and standard error."""

    def run_here(*words):
        monkeypatch.setattr("sys.argv", ["graphquilt", *map(str, words)])
        try:
            main()
        except Killed:
            code = "killed"
        except SystemExit as end:
            code = end.code or 0
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return run_here


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
        (("--quantile", "1"), "a quantile lies between 0 and 1, not at 1.0"),
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


WATCHED = ("--idle", "0", "--budget", "5", "--quantile", "0.95", *SMALL)


@pytest.fixture(scope="module")
def inbox(days, tmp_path_factory):
    folder = tmp_path_factory.mktemp("inbox")
    for path in days:
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.fixture(scope="module")
def all_alerts(inbox):
    done = run("watch", inbox, *WATCHED)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def watch_killed_and_restarted(call, inbox, state, kill):
    """Return what two runs printed: one that is killed, and one that ends; lines printed twice count once."""
    with pytest.MonkeyPatch.context() as patch:
        kill(patch)
        code, first, _ = call("watch", inbox, "--state", state, *WATCHED)
    assert code == "killed"
    code, second, said = call("watch", inbox, "--state", state, *WATCHED)
    assert code == 0, said
    return list(dict.fromkeys((first + second).splitlines()))


@pytest.mark.parametrize("moment", [0, 1, 17, 18, 19])
def test_a_watch_killed_between_any_two_files_loses_nothing(call, inbox, all_alerts, tmp_path, moment):
    state, replace, seen = tmp_path / "state", os.replace, []

    def replace_or_die(source, target):
        if Path(target).parent == state:
            seen.append(target)
            if len(seen) == moment + 1:
                raise Killed
        replace(source, target)

    printed = watch_killed_and_restarted(call, inbox, state, lambda patch: patch.setattr(os, "replace", replace_or_die))
    assert printed == all_alerts


@pytest.mark.parametrize("moment", [1, 7])
def test_a_watch_killed_while_it_prints_loses_no_alert(call, inbox, all_alerts, tmp_path, moment):
    from graphquilt.cli import temporal

    lines = []

    def print_or_die(line, **options):
        if options.get("file") is None:
            lines.append(line)
            if len(lines) == moment + 1:
                raise Killed
        print(line, **options)  # noqa: T201

    kill = lambda patch: patch.setattr(temporal, "print", print_or_die, raising=False)  # noqa: E731
    assert watch_killed_and_restarted(call, inbox, tmp_path / "state", kill) == all_alerts


def test_watch_refuses_other_settings_than_those_of_its_state(call, days, tmp_path):
    inbox, state = tmp_path / "inbox", tmp_path / "state"
    inbox.mkdir()
    for path in days[:4]:
        (inbox / path.name).write_bytes(path.read_bytes())
    same = ("watch", inbox, "--state", state, *WATCHED)
    assert call(*same)[0] == 0
    kept = (state / "tracker.npz").read_bytes()
    for change, old, new in (
        (("--dim", "7"), "dim 3", "7"),
        (("--lags", "1,2,8"), "lags 1, 7", "1, 2, 8"),
        (("--width", "12h"), "width in seconds 86400", "43200"),
        (("--quantile", "0.5"), "quantile 0.95", "0.5"),
        (("--protocol", "udp"), "protocol tcp", "udp"),
        (("--background", "0"), "background 1", "0"),
        (("--history", "9"), "history 7", "9"),
        (("--min-observations", "6"), "min observations 5", "6"),
    ):
        code, _, said = call(*same, *change)
        assert (code, f"{old} (now {new})" in said) == (2, True), said
        assert "the same settings, or a new folder" in said
    code, _, said = call(*same, "--dim", "7", "--width", "12h")
    assert "dim 3 (now 7), width in seconds 86400 (now 43200)" in said
    assert (state / "tracker.npz").read_bytes() == kept
    assert call(*same, "--width", "24h", "--budget", "9")[0] == 0


def test_watch_refuses_a_state_that_does_not_say_what_it_was_made_with(call, inbox, tmp_path):
    Tracker(ScoringOptions(3, (1, 7), 5)).save(tmp_path / "tracker.npz")
    (tmp_path / "watch.json").write_text('{"last": 1, "end": 2.0, "files": {}}')
    code, _, said = call("watch", inbox, "--state", tmp_path, *WATCHED)
    assert (code, "does not say" in said, "new folder" in said) == (2, True, True)


def test_workers_are_those_of_the_project_and_change_nothing(call, days, scored, tmp_path, monkeypatch):
    from graphquilt import jobs

    opened = []

    class Recorded(jobs.Processes):
        def __init__(self, n_workers):
            opened.append(n_workers)
            super().__init__(n_workers)

    monkeypatch.setattr(jobs, "Processes", Recorded)
    words = ("--no-figures", "--json", "--mark", "9-15", "--workers", 2, *SMALL)
    code, out, said = call("anomaly", *days, "--out", tmp_path, *words)
    assert code == 0, said
    assert opened == [2]
    assert json.loads(out) == scored[1]
    assert pq.read_table(tmp_path / "scores.parquet").equals(pq.read_table(scored[0] / "scores.parquet"))


def test_watch_standard_input(days):
    text = "".join(path.read_text() for path in days[:9])
    done = run("watch", "-", "--quantile", "0.9", *SMALL, text=text)
    assert done.returncode == 0, done.stderr
    assert "window 8" in done.stderr
    assert all(json.loads(line)["window"] >= 5 for line in done.stdout.splitlines())


def test_watch_refuses_what_it_cannot_watch(tmp_path):
    wrong = (("absent",), (tmp_path, "--budget", "0"), (tmp_path, "--lags", "1,2"), (tmp_path, "--quantile", "1"))
    for words in wrong:
        assert run("watch", *words, "--idle", "0").returncode == 2
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "tracker.npz").write_text("no")
    done = run("watch", tmp_path, "--idle", "0", "--state", tmp_path / "state")
    assert (done.returncode, "does not hold the state" in done.stderr) == (2, True)


def test_figures_are_drawn(tmp_path):
    needs("matplotlib")
    labels = [str(t) for t in range(30)]
    z = np.random.default_rng(0).normal(size=30)
    marked = np.arange(30) > 20
    counts = {"source": np.arange(30), "destination": np.arange(30)[::-1]}
    first = draw_outliers(tmp_path / "a.png", labels, counts, marked=marked)
    second = draw_scores(tmp_path / "b.png", labels, {"x": z, "y": z[::-1]}, limit=1.0)
    assert first.read_bytes()[:4] == second.read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(graphquilt.errors.InputError, match="30 windows and 3 marks"):
        draw_outliers(tmp_path / "c.png", labels, counts, marked=[True] * 3)
    with pytest.raises(graphquilt.errors.InputError, match="no nodes were chosen"):
        draw_scores(tmp_path / "c.png", labels, {}, limit=1.0)


@pytest.mark.slow
def test_the_reference_map_is_drawn(tmp_path):
    needs("umap")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    X[3] = np.nan
    assert draw_reference(tmp_path / "map.png", X, rng.random(60), limit=50).stat().st_size > 5000
    with pytest.raises(graphquilt.errors.InputError, match="at least 10"):
        draw_reference(tmp_path / "map.png", X[:5], rng.random(5))


def test_marks():
    assert parse_marks("") == frozenset()
    with pytest.raises(graphquilt.errors.InputError, match="write 49-88"):
        parse_marks("4-x")
