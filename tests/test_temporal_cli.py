"""The commands an analyst types: what they write, what they say, and how they end."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import graphquilt
from graphquilt.cli import main
from graphquilt.errors import InputError
from graphquilt.report import render_page
from graphquilt.temporal import (
    AnomalyScores,
    Names,
    ScoringOptions,
    TokenWindows,
    Tracker,
    Window,
    WindowScores,
    detect,
    read_flows,
    snapshots,
)
from graphquilt.temporal.page import window_labels
from graphquilt.temporal.traffic import netflow
from graphquilt.temporal.watching import WatchState, watch_windows

PAGE = Path(graphquilt.__file__).parent / "temporal" / "anomaly_page"
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
    done = run("anomaly", *days, "--out", out, "--json", *SMALL)
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout)


def test_anomaly_writes_scores_alerts_page_and_summary(scored):
    out, summary = scored
    assert summary == json.loads((out / "summary.json").read_text())
    table = pq.read_table(out / "scores.parquet")
    assert table.column_names[:6] == ["node", "side", "window", "pvalue", "severity", "contexts"]
    assert table.num_rows > 16 * 100
    alerts = [json.loads(line) for line in (out / "alerts.jsonl").read_text().splitlines()]
    assert len(alerts) == summary["alerts"]
    hosts = [a for a in alerts if a["kind"] == "host"]
    assert len(hosts) == 14 * 20, "the first two windows have nothing to be compared with"
    assert [a["severity"] for a in alerts] == sorted((a["severity"] for a in alerts), reverse=True)
    assert summary["learning"] == [0, 1]
    assert "14 of 16 windows were judged" in summary["judged"][0]
    assert {"node", "side", "window", "severity", "components", "new", "gone", "degree"} <= set(hosts[0])
    incidents = [json.loads(line) for line in (out / "incidents.jsonl").read_text().splitlines()]
    severe = [a for a in alerts if a["incident"] is not None]
    assert len(incidents) == summary["incidents"] == len({a["incident"] for a in severe}) < len(alerts)
    assert sorted(i for incident in incidents for i in incident["alerts"]) == sorted(a["id"] for a in severe)
    assert all(incident["severity"] >= 60 for incident in incidents)
    assert (summary["windows"], summary["bad_rows"], summary["empty_windows"]) == (16, 0, 0)
    for side, count in summary["node_windows_scored"].items():
        assert count == table.filter(pc.equal(table["side"], side)).num_rows


def test_detect_finds_what_the_command_finds(days, scored):
    out, summary = scored
    flows = read_flows(days, protocol="tcp")
    detection = detect(flows, ScoringOptions(dim=3, lags=(1, 7), min_observations=5))
    assert [json.dumps(alert) for alert in detection.alerts] == (out / "alerts.jsonl").read_text().splitlines()
    assert detection.facts == {name: summary[name] for name in detection.facts if name != "parameters"} | {
        "parameters": summary["parameters"] | {"lags": (1, 7)}
    }


def test_the_page_needs_nothing_from_outside(scored):
    out, _ = scored
    page = (out / "report.html").read_text()
    assert len(page) < 900_000
    for word in ("https://", "src=", "@import", "url("):
        assert word not in page


def test_a_hostile_name_stays_text():
    name = "</script><script>alert(1)</script>"
    page = render_page(PAGE, title=name, data={"title": name, "windows": [], "alerts": [{"node": name}]})
    assert name not in page
    assert page.count("<script>") == 1


def test_anomaly_in_words(days, tmp_path):
    done = run("anomaly", *days, "--out", tmp_path, *SMALL)
    assert done.returncode == 0, done.stderr
    assert "16 windows scored, 0 not embedded, 0 empty" in done.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--lags", "one"), "lags are whole numbers"),
        (("--source", "from"), "has no column 'from'"),
        (("--width", "soon"), "is not a valid duration"),
        (("--quantile", "1"), "a quantile lies between 0 and 1, not at 1.0"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_2(call, days, tmp_path, change, message):
    code, _, said = call("anomaly", *days[:8], "--out", tmp_path / "out", *SMALL, *change)
    assert code == 2
    assert message in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists(), "nothing half-written"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--dim", "500"), "0 windows could be embedded in 500 dimensions"),
        (("--lags", "30"), "give shorter lags"),
        (("--min-observations", "30"), "Lower min_observations"),
    ],
)
def test_windows_that_cannot_be_aligned_are_scored_and_said_so(call, days, tmp_path, change, message):
    code, out, _ = call("anomaly", *days[:8], "--out", tmp_path, "--json", *SMALL, *change)
    assert code == 0
    summary = json.loads(out)
    assert message in summary["drift_missing"]
    assert summary["windows"] == 8
    assert summary["alerts"] == 6 * 20 + 6 * 5


@pytest.mark.parametrize("content", ["empty file", "folder without logs", "another protocol"])
def test_logs_without_flows_are_one_sentence_with_the_numbers(call, days, tmp_path, content):
    log = days[0]
    if content == "empty file":
        (log := tmp_path / "empty.csv").touch()
    elif content == "folder without logs":
        (log := tmp_path / "logs").mkdir()
        (log / "notes.txt").write_text("nothing here is a flow\n")
        (log / "empty.csv").touch()
    code, out, said = call("anomaly", log, "--out", tmp_path / "out", *SMALL, "--protocol", "77")
    assert (code, out) == (2, "")
    assert said.splitlines()[-1].startswith("graphquilt: there are no flows to score: ")
    assert not (tmp_path / "out").exists(), "nothing half-written"


def test_what_a_terminal_would_obey_is_shown_and_not_sent(call, tmp_path):
    (tmp_path / "log.csv").write_text("\x1b[2Jone,two,three\n1,2,3\n")
    code, _, said = call("anomaly", tmp_path / "log.csv", "--out", tmp_path / "out")
    assert code == 2
    assert "\\x1b[2Jone, two" in said
    assert "\x1b" not in said


def test_strict_names_the_line(days, tmp_path):
    broken = tmp_path / "broken.csv"
    broken.write_text(days[0].read_text() + "oops\n")
    done = run("anomaly", broken, "--out", tmp_path / "out", "--strict", *SMALL)
    assert (done.returncode, "broken.csv line" in done.stderr) == (2, True)


def test_watch_a_folder_and_go_on_after_a_restart(call, days, all_alerts, tmp_path):
    inbox, state = tmp_path / "inbox", tmp_path / "state"
    inbox.mkdir()
    for path in days[:12]:
        (inbox / path.name).write_bytes(path.read_bytes())
    (inbox / "later.csv.part").write_text("half a fi")
    first = call("watch", inbox, "--state", state, *WATCHED)
    assert first[0] == 0, first
    for path in days[12:]:
        (inbox / path.name).write_bytes(path.read_bytes())
    second = call("watch", inbox, "--state", state, *WATCHED)
    assert (first[1] + second[1]).splitlines() == all_alerts
    alerts = [json.loads(line) for line in all_alerts]
    assert alerts
    hosts = [a for a in alerts if a["kind"] == "host"]
    assert np.bincount([a["window"] for a in hosts]).max() <= 5
    assert {"id", "node", "side", "pvalue", "severity", "components", "new", "gone"} <= set(hosts[-1])
    assert len({a["id"] for a in alerts}) == len(alerts)
    assert "window 15" in second[2]
    assert "window 11" not in second[2]
    assert sorted(path.name for path in state.iterdir()) == ["lock", "state.npz"]


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


@pytest.mark.parametrize("moment", [0, 1, 9, 15])
def test_a_watch_killed_before_its_state_is_in_place_loses_nothing(call, inbox, all_alerts, tmp_path, moment):
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
    from graphquilt.temporal import commands as temporal

    lines = []

    def print_or_die(line, **options):
        if options.get("file") is None:
            lines.append(line)
            if len(lines) == moment + 1:
                raise Killed
        print(line, **options)  # noqa: T201

    kill = lambda patch: patch.setattr(temporal, "print", print_or_die, raising=False)  # noqa: E731
    assert watch_killed_and_restarted(call, inbox, tmp_path / "state", kill) == all_alerts


def start_watch(inbox, state, alerts, *more):
    """Start a watch in a process of its own, which adds its alerts to a file."""
    words = ("watch", inbox, "--state", state, *WATCHED, *more)
    command = [sys.executable, "-c", "from graphquilt.cli import main; main()", *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(Path(graphquilt.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    with alerts.open("a") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE, env=environment, text=True)


def test_kills_at_random_moments_lose_no_alert_and_repeat_only_ids(call, inbox, all_alerts, tmp_path):
    state, alerts = tmp_path / "state", tmp_path / "alerts.jsonl"
    rng = np.random.default_rng(11)
    for n_windows in (1, 5, 4):
        with start_watch(inbox, state, alerts, "--poll", "1", "--idle", "9") as watcher:
            for _ in range(n_windows):
                watcher.stderr.readline()
            time.sleep(float(rng.uniform(0, 0.03)))
            watcher.send_signal(signal.SIGSTOP)
            if watcher.poll() is None:  # unless it was so fast that it has seen everything
                code, _, said = call("watch", inbox, "--state", state, *WATCHED)
                assert (code, f"being worked on by process {watcher.pid} on" in said) == (2, True), said
            watcher.kill()
    alerts.write_text(alerts.read_text() + '{"id": "cut sho')  # as a kill in the middle of a line would leave it
    with start_watch(inbox, state, alerts) as watcher:
        _, said = watcher.communicate(timeout=300)
    assert watcher.returncode == 0, said
    lines = alerts.read_text().splitlines()
    assert lines.count('{"id": "cut sho') == 1
    printed = [json.loads(line) for line in lines if line != '{"id": "cut sho']
    expected = [json.loads(line) for line in all_alerts]
    assert {alert["id"] for alert in printed} == {alert["id"] for alert in expected}
    for alert in printed:
        assert alert in expected, "an alert that is printed again is the same alert"


def test_ids_depend_on_window_node_and_settings_only(call, inbox, all_alerts):
    code, out, _ = call("watch", inbox, *WATCHED, "--budget", "3")
    assert code == 0
    fewer = [json.loads(line)["id"] for line in out.splitlines()]
    hosts = {a["id"] for a in map(json.loads, out.splitlines()) if a["kind"] == "host"}
    assert hosts < {json.loads(line)["id"] for line in all_alerts}  # connections of further authors take their places
    code, out, _ = call("watch", inbox, *WATCHED, "--background", "0.5")
    assert not {json.loads(line)["id"] for line in out.splitlines()} & set(fewer)


@contextlib.contextmanager
def small_files(size):
    """Let no file of this process grow beyond ``size`` bytes: the system refuses to write, as on a full disk."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_a_full_disk_is_one_sentence_and_the_state_before_it_stays(call, inbox, all_alerts, days, tmp_path):
    state = tmp_path / "state"
    with small_files(500_000):
        code, first, said = call("watch", inbox, "--state", state, *WATCHED)
    assert (code, "the disk is full" in said, "Traceback" in said) == (2, True, False)
    assert sorted(path.name for path in state.iterdir()) == ["lock", "state.npz"]
    code, second, said = call("watch", inbox, "--state", state, *WATCHED)
    assert code == 0, said
    assert list(dict.fromkeys((first + second).splitlines())) == all_alerts
    with small_files(2_000):
        code, _, said = call("anomaly", *days, "--out", tmp_path / "out", *SMALL)
    assert (code, "the disk is full" in said, "Traceback" in said) == (2, True, False)
    assert not (tmp_path / "out" / "summary.json").exists()


def test_folders_that_cannot_be_written_to_are_one_sentence(call, inbox, days, tmp_path):
    (tmp_path / "file").write_text("in the way")
    for words in (
        ("watch", inbox, "--state", tmp_path / "file", *WATCHED),
        ("anomaly", *days, "--out", tmp_path / "file", *SMALL),
    ):
        code, _, said = call(*words)
        assert (code, said.startswith("graphquilt: cannot write in"), said.count("\n")) == (2, True, 1), said


def test_output_on_a_full_disk_is_one_sentence_and_not_finished(call, inbox, all_alerts, tmp_path, monkeypatch):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    full = open("/dev/full", "w")  # noqa: SIM115
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        code, _, said = call("watch", inbox, "--state", tmp_path / "state", *WATCHED)
    with contextlib.suppress(OSError):
        full.close()
    assert (code, "cannot write the output: the disk is full" in said, "Traceback" in said) == (2, True, False)
    code, out, said = call("watch", inbox, "--state", tmp_path / "state", *WATCHED)
    assert (code, out.splitlines()) == (0, all_alerts), "alerts that could not be written are written now"


@pytest.mark.parametrize("command", ["watch", "anomaly"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_stray_time_stops_batch_and_stream_with_its_row(call, tmp_path, command, kind):
    path = tmp_path / "inbox" / f"flows.{kind}"
    path.parent.mkdir()
    table = pa.table({"time": [0, 5, 99999999999999, 6], "srcdevice": list("abcd"), "dstdevice": list("wxyz")})
    if kind == "csv":
        csv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    words = (path.parent, "--idle", "0") if command == "watch" else (path, "--out", tmp_path / "out")
    code, _, said = call(command, *words)
    place = "line 4" if kind == "csv" else "row 3"
    assert (code, f"flows.{kind} {place}: the time 99999999999999 is 1157407407 windows" in said) == (2, True), said
    code, _, said = call(command, *words, "--max-gap", "2000000000", "--dim", "1")
    assert "windows of 86400 s after" not in said


def test_a_stray_time_after_a_restart_is_refused_too(call, inbox, days, tmp_path):
    here, state = tmp_path / "inbox", tmp_path / "state"
    here.mkdir()
    (here / days[0].name).write_bytes(days[0].read_bytes())
    assert call("watch", here, "--state", state, *WATCHED)[0] == 0
    before = (state / "state.npz").read_bytes()
    row = days[0].read_text().splitlines()[0].split(",")
    (here / "z.csv").write_text(",".join(["99999999999", *row[1:]]) + "\n")
    code, _, said = call("watch", here, "--state", state, *WATCHED)
    assert (code, "z.csv line 1: the time 99999999999 is" in said) == (2, True), said
    assert (state / "state.npz").read_bytes() == before


def test_watch_refuses_other_settings_than_those_of_its_state(call, days, tmp_path):
    inbox, state = tmp_path / "inbox", tmp_path / "state"
    inbox.mkdir()
    for path in days[:4]:
        (inbox / path.name).write_bytes(path.read_bytes())
    same = ("watch", inbox, "--state", state, *WATCHED)
    assert call(*same)[0] == 0
    kept = (state / "state.npz").read_bytes()
    for change, old, new in (
        (("--dim", "7"), "dim 3", "7"),
        (("--lags", "1,2,8"), "lags 1, 7", "1, 2, 8"),
        (("--width", "12h"), "width in seconds 86400", "43200"),
        (("--quantile", "0.5"), "quantile 0.95", "0.5"),
        (("--protocol", "udp"), "protocol tcp", "udp"),
        (("--background", "0"), "background 1", "0"),
        (("--history", "9"), "history 28", "9"),
        (("--min-observations", "6"), "min observations 5", "6"),
    ):
        code, _, said = call(*same, *change)
        assert (code, f"{old} (now {new})" in said) == (2, True), said
        assert "the same settings, or a new folder" in said
    code, _, said = call(*same, "--dim", "7", "--width", "12h")
    assert "dim 3 (now 7), width in seconds 86400 (now 43200)" in said
    assert (state / "state.npz").read_bytes() == kept
    assert call(*same, "--width", "24h", "--budget", "9")[0] == 0


def test_watch_refuses_a_state_of_another_program(call, inbox, tmp_path):
    Tracker(ScoringOptions(3, (1, 7), 5, 0.95)).save(tmp_path / "state.npz")
    code, _, said = call("watch", inbox, "--state", tmp_path, *WATCHED)
    assert (code, "does not say how its windows were cut" in said) == (2, True)


def test_watch_refuses_a_state_without_its_progress(call, inbox, tmp_path):
    tracker = Tracker(ScoringOptions(3, (1, 7), 5, 0.95))
    network = netflow(120, 800, 7, seed=6)
    tracker.update(Window(0, 0.0, 86400.0, network.matrix(0), 0))
    good = {
        "flows": {"width_in_seconds": 86400.0, "protocol": "tcp", "overlap": 1},
        "last": 20,
        "end": 21 * 86400.0,
        "files": [["a.csv", 9, "ab", "cd", 100, 5.0, 1, 2, 3, False]],
        "sources": [f"s{k}" for k in range(2000)],
        "destinations": [f"d{k}" for k in range(2000)],
        "tokens": ["proc:sh"],
    }
    for change, code in (
        ({}, 0),
        ({"flows": 7}, 2),
        ({"flows": {}}, 2),
        ({"last": None}, 2),
        ({"last": 2.5}, 2),
        ({"end": "soon"}, 2),
        ({"end": float("nan")}, 2),
        ({"files": ["a.csv"]}, 2),
        ({"files": {"a.csv": 5.0}}, 2),
        ({"sources": ["s0"]}, 2),
        ({"sources": ["s0"] * 2000}, 2),
        ({"sources": list(range(2000))}, 2),
        ({"destinations": None}, 2),
        ({"tokens": ["proc:sh"] * 2}, 2),
    ):
        tracker.notes = good | change
        tracker.save(tmp_path / "state.npz")
        ended, _, said = call("watch", inbox, "--state", tmp_path, *WATCHED)
        assert (ended, code == 0 or "state.npz does not" in said) == (code, True), (change, said)


def test_workers_are_those_of_the_project_and_change_nothing(call, days, scored, tmp_path, monkeypatch):
    from graphquilt import jobs

    opened = []

    class Recorded(jobs.Processes):
        def __init__(self, n_workers):
            opened.append(n_workers)
            super().__init__(n_workers)

    monkeypatch.setattr("graphquilt.Processes", Recorded)
    words = ("--json", "--workers", 2, *SMALL)
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
    assert {json.loads(line)["window"] for line in done.stdout.splitlines()} == set(range(2, 9))


def test_watch_refuses_what_it_cannot_watch(call, tmp_path):
    options = ("--budget", "0"), ("--lags", "0,2"), ("--quantile", "1"), ("--poll", "-1"), ("--idle", "nan")
    for words in (("absent",), *((tmp_path, *option) for option in options)):
        assert call("watch", *words, *(() if "--idle" in words else ("--idle", "0")))[0] == 2
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "state.npz").write_text("no")
    code, _, said = call("watch", tmp_path, "--idle", "0", "--state", tmp_path / "state")
    assert (code, "does not hold a whole state" in said) == (2, True)


def test_windows_have_dates_as_labels_where_there_is_a_date():
    def labels(*times):
        windows = [WindowScores(n, time, time + 1, 0, {}, None, None, {}) for n, time in enumerate(times)]
        return window_labels(AnomalyScores(tuple(windows), None, None, ()))

    assert labels(1.7e9 // 86400 * 86400) == ["2023-11-14"]
    assert labels(0, 86400) == labels(-1e12, 5e11) == labels(2e8, 1.7e12) == ["0", "1"]


def test_a_state_made_with_accounts_is_refused_without_them(tmp_path):
    fresh = Tracker(ScoringOptions(dim=2))
    with WatchState(tmp_path / "state", fresh, user="account") as state:
        rows = [(np.arange(20.0), np.arange(20) % 5, np.arange(20) % 7)]
        windows = snapshots(rows)
        for names, size in ((state.names["source"], 5), (state.names["destination"], 7)):
            names.add([f"h{k}" for k in range(size)])
        list(watch_windows(windows, state))
    for user, text in ((None, r"user account \(now None\)"), ("login", r"user account \(now login\)")):
        with pytest.raises(InputError, match=text), WatchState(tmp_path / "state", fresh, user=user):
            pass
    with WatchState(tmp_path / "state", fresh, user="account") as state:
        assert state.last == 0


@pytest.fixture
def year_of_newcomers(tmp_path):
    """Write sixty days of 30 sources, one that comes every 20 days, and 40 new ones every day that never return."""
    rng = np.random.default_rng(0)
    paths = []
    for day in range(60):
        usual = [(f"s{i}", f"d{(i + k) % 40}") for i in range(30) for k in range(rng.integers(3, 8))]
        rows = usual + [(f"new{day}-{i}", f"d{i % 3}") for i in range(40)]
        rows += [("rare", f"d{k}") for k in range(10)] if day % 20 == 5 else []
        paths.append(tmp_path / f"day{day:02}.csv")
        lines = [f"{86400 * day + 60 * k},{s},{d}" for k, (s, d) in enumerate(rows)]
        paths[-1].write_text("\n".join(["time,source,destination", *lines, ""]))
    return paths


def test_what_was_not_seen_for_long_is_forgotten_with_its_name(call, year_of_newcomers, tmp_path):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    sizes, alerts = {}, []
    for day, path in enumerate(year_of_newcomers):
        path.rename(inbox / path.name)
        if day % 10 == 9:  # a restart after every ten days
            command = ("watch", inbox, "--state", tmp_path / "state", "--idle", "0", "--dim", "2", "--lags", "1,7")
            code, out, err = call(*command, "--forget", "15d", "--budget", "100")
            assert code == 0, err
            alerts += [json.loads(line) for line in out.splitlines()]
            tracker = Tracker.load(tmp_path / "state" / "state.npz")
            names = tracker.notes["sources"]
            known = tracker.known["source"].tolist()
            sizes[day] = len(names), len(tracker._memory.sides["source"])
            assert {names[node] for node in known} == set(filter(None, names))
            assert {f"s{i}" for i in range(30)} <= set(names)
            assert sum(name is not None and name.startswith("new") for name in names) == 40 * 3
            assert len(tracker._memory.pairs.keys) < 600
    assert sizes[59] == sizes[49] == sizes[19]
    back = [alert for alert in alerts if alert.get("node") == "rare" and alert["side"] == "source"]
    assert {alert["window"] for alert in back} == {5, 25, 45}
    assert all(alert["reason"].endswith("; not seen in the last 2 windows") for alert in back)
    usual = [alert for alert in alerts if alert.get("node") == "s1" and alert["window"] > 20]
    assert usual
    assert not any("not seen" in alert["reason"] for alert in usual)
    code, _, err = call("watch", inbox, "--state", tmp_path / "other", "--idle", "0", "--forget", "2d")
    assert code == 2
    assert "at least 6 windows" in err


def test_hosts_of_open_windows_and_of_device_logs_are_not_forgotten():
    names = Names(["a", "b", "c"])
    names.keep(np.array([1]))
    assert list(names) == [None, "b", None]
    assert names.add(["d", "b", "e", "f"]).tolist() == [0, 1, 2, 3]
    assert names.find("a") == -1
    days = [
        (np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 1])),
        (np.array([86400.0]), np.array([5]), np.array([2])),
    ]
    windows = snapshots(days, grace="2d")
    tokens = TokenWindows([(np.array([1.0, 90000.0]), np.array([0, 7]), np.array([3, 4]))], windows)
    first = next(windows.windows())
    assert windows.waiting_nodes("source").tolist() == [5]
    assert windows.waiting_nodes("destination").tolist() == [2]
    tokens.of(first.number)
    assert tokens.waiting().tolist() == [7 << 32 | 4]
