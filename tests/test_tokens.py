"""Tokens of device logs: which window they fall into, how surprising they are, and who is named."""

import contextlib
import csv
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from graphquilt.cli import main
from graphquilt.errors import InputError
from graphquilt.temporal import (
    COMPONENTS,
    ScoringOptions,
    TokenWindows,
    Tracker,
    Window,
    WindowTokens,
    score_windows,
    snapshots,
)
from graphquilt.temporal.embedding import embed_or_explain
from graphquilt.temporal.tokens import with_token_columns

DAY = 86400.0
TOKENS = COMPONENTS.index("tokens")


def network(days=14, seed=0):
    """Forty hosts that talk to thirty, and run five of ten programs each; on the last day host 7 runs a new one."""
    rng = np.random.default_rng(seed)
    matrices = [sp.csr_array((rng.random((40, 30)) < 0.3).astype(float)) for _ in range(days)]
    programs = rng.integers(0, 10, (40, 5))
    tokens = [WindowTokens.of(np.repeat(np.arange(40), 5), programs.ravel()) for _ in range(days)]
    tokens[-1] = WindowTokens(np.union1d(tokens[-1].keys, [(7 << 32) | 99]))
    windows = [Window(n, n * DAY, (n + 1) * DAY, A, A.nnz) for n, A in enumerate(matrices)]
    return windows, tokens


def test_a_new_token_is_found_and_named(tmp_path):
    windows, tokens = network()
    tracker = Tracker(ScoringOptions(dim=2, lags=(1, 2)))
    for window, found in zip(windows[:-1], tokens, strict=False):
        tracker.update(window, found)
    tracker.save(tmp_path / "state.npz")
    for each in (tracker, Tracker.load(tmp_path / "state.npz")):
        scores = each.update(windows[-1], tokens[-1])
        table = scores.sides["source"]
        assert table.nodes[np.argmax(table.z[:, TOKENS])] == 7
        row = int(np.searchsorted(table.nodes, 7))
        assert table.pvalues[row, TOKENS] < 0.02
        assert table.components(row)[0].name == "tokens"
        named = {(alert.side, alert.node): alert.tokens for alert in scores.lowest(20).alerts(budget=20)}
        assert named["source", 7] == (99,), "what it always runs is not named"
        assert all(tokens is None for (side, _), tokens in named.items() if side == "destination")


def test_without_tokens_the_component_is_not_measured():
    windows, _ = network(4)
    tracker = Tracker(ScoringOptions(dim=2, lags=(1, 2)))
    tables = [tracker.update(window).sides["source"] for window in windows]
    assert all(np.isnan(table.z[:, TOKENS]).all() and table.tokens_of(0) is None for table in tables)


def test_hosts_that_only_occur_in_events_are_not_scored():
    windows, tokens = network(6)
    rows = ~np.isin(np.arange(40), [5, 39])
    matrix = sp.csr_array(sp.diags_array(rows.astype(float)) @ windows[0].matrix)
    quiet = [replace(w, matrix=matrix) for w in windows]
    for weight in (0.0, 0.5):
        tracker = Tracker(ScoringOptions(dim=2, lags=(1, 2), token_weight=weight))
        tables = [tracker.update(w, found).sides["source"] for w, found in zip(quiet, tokens, strict=True)]
        assert all(table.nodes.tolist() == np.flatnonzero(rows).tolist() for table in tables)
    unseen = np.where(np.arange(30) == 3, 90, -1)  # destination 3 has a name that only events have had, as id 90
    scores = tracker.update(replace(quiet[0], number=6, as_source=unseen))
    assert not np.nan_to_num(scores.sides["source"].values[:, COMPONENTS.index("inside pairs")]).any()


def test_events_fall_into_the_windows_of_flows_as_both_are_read():
    read = []

    def events():
        for day in range(4):
            read.append(day)
            rows = pa.array(["a", "b"]).dictionary_encode(), pa.array(["x", "y" if day == 2 else "x"])
            time = pa.array([day * DAY + 5, day * DAY + 9.0])
            yield pa.RecordBatch.from_arrays([time, rows[0], rows[1].dictionary_encode()], ["time", "host", "token"])

    flows = [(np.array([day * DAY]), np.array([0]), np.array([1])) for day in range(4)]
    days = snapshots(flows)
    tokens = TokenWindows(events(), days)
    found = {window.number: tokens.of(window.number) for window in days.windows()}
    assert list(tokens.names) == ["x", "y"]
    assert list(days.sources) == ["a", "b"]
    assert [len(part.keys) for part in found.values()] == [2, 2, 2, 2]
    assert (found[2].keys & 0xFFFFFFFF).tolist() == [0, 1]
    first = TokenWindows(events(), snapshots(flows))
    read.clear()
    first.of(0)
    assert read == [0, 1, 2][: len(read)], "no more is read than the window needs"
    with pytest.raises(InputError, match=r"\(time, host, token\)"):
        TokenWindows([(np.zeros(1), np.zeros(1))], days).of(0)


def test_tokens_as_columns_place_hosts_that_run_the_same_together():
    windows, tokens = network(3)
    wide = with_token_columns(windows[0].matrix, tokens[0], 0.5)
    assert wide.shape == (40, 40)
    assert set(wide.data) == {0.5, 1.0}
    options = ScoringOptions(dim=3, lags=(1, 2), token_weight=0.5)
    source, destination, _ = embed_or_explain(windows[0].matrix, options, tokens[0])
    assert (len(source.nodes), int(destination.nodes.max()) < 30) == (40, True)
    plain, *_ = embed_or_explain(windows[0].matrix, options)
    assert not np.allclose(plain.coordinates, source.coordinates)
    with pytest.raises(InputError, match="weight of tokens"):
        ScoringOptions(token_weight=-1)


def test_a_batch_takes_tokens_too():
    windows, tokens = network(8)

    class Given:
        def of(self, number):
            return tokens[number]

    options = ScoringOptions(dim=2, lags=(1, 2), token_weight=0.3)
    batch = score_windows(windows, options, tokens=Given())
    stream = Tracker(options)
    for window, scores in zip(windows, batch.windows, strict=True):
        table = stream.update(window, tokens[window.number]).sides["source"]
        np.testing.assert_allclose(table.z, scores.sides["source"].z, rtol=1e-4, atol=1e-4)


def device_logs(folder, days=14):
    """Write flows and processes of thirty hosts; on the last day host 7 runs a program that nobody ever ran."""
    rng = np.random.default_rng(3)
    usual, programs = rng.random((30, 20)) < 0.3, rng.integers(0, 8, (30, 4))
    flows, processes = ["time,source,destination"], []
    for day in range(days):
        for host in range(30):
            partners = np.flatnonzero(usual[host] & (rng.random(20) < 0.9))
            flows += [f"{day * 86400 + 60 * host},C{host},S{partner}" for partner in partners]
            ran = [f"tool{k}.exe" for k in programs[host]] + ["mimikatz.exe"] * (host == 7 and day == days - 1)
            processes += [f"{day * 86400 + 60 * host},U{host}@DOM1,C{host},{name},Start" for name in ran]
    for name, lines in (("flows.csv", flows), ("processes.txt", processes)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "flows.csv", folder / "processes.txt"


def test_the_command_finds_and_names_a_program_that_nobody_ever_ran(tmp_path, monkeypatch, capsys):
    flows, processes = device_logs(tmp_path)
    words = ("anomaly", flows, "--dim", 2, "--lags", "1,7", "--out")

    def call(*more):
        monkeypatch.setattr("sys.argv", ["graphquilt", *map(str, (*words, *more))])
        with contextlib.suppress(SystemExit):
            main()
        return capsys.readouterr()

    said = call(tmp_path / "out", "--events", processes, "--token-weight", 0.3, "--format", "json,csv")
    assert "1681 events, 0 bad, 10 kinds of tokens; 390 of 420 sources in windows are scored by them" in said.out, said
    records = [json.loads(line) for line in (tmp_path / "out" / "alerts.jsonl").read_text().splitlines()]
    last = [record for record in records if record["kind"] == "host" and record["window"] == 13]
    assert (last[0]["node"], last[0]["components"][0]["name"]) == ("C7", "tokens")
    assert last[0]["tokens"] == ["proc:mimikatz.exe"]
    assert "proc:mimikatz.exe" in last[0]["reason"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "proc:mimikatz.exe" in page
    table = csv.DictReader((tmp_path / "out" / "alerts.csv").read_text().splitlines())
    assert [row["tokens"] for row in table if row["id"] == last[0]["id"]] == ["proc:mimikatz.exe"]

    call(tmp_path / "overlapping", "--events", processes, "--overlap", 2)
    summary = json.loads((tmp_path / "overlapping" / "summary.json").read_text())
    assert (summary["windows"], summary["parameters"]["overlap"], summary["late_tokens"]) == (27, 2, 0)

    others = tmp_path / "others.txt"
    others.write_text(processes.read_text().replace(",C", ",D"), encoding="utf-8")
    assert (
        "0 of 420 sources in windows are scored by them: hosts need the same names"
        in call(tmp_path / "o", "--events", others).out
    )
    assert "name their logs with --events" in call(tmp_path / "o", "--token-weight", 1).err


@pytest.mark.parametrize("overlap", [1, 2])
def test_watch_takes_events_and_overlapping_windows_and_goes_on_after_a_restart(
    tmp_path, monkeypatch, capsys, caplog, overlap
):
    flows, processes = device_logs(tmp_path, days=9)
    settings = ("--dim", 2, "--lags", "1,7", "--overlap", overlap, "--events")

    def call(*words):
        monkeypatch.setattr("sys.argv", ["graphquilt", *map(str, words)])
        with contextlib.suppress(SystemExit):
            main()
        return capsys.readouterr()

    call("anomaly", flows, "--out", tmp_path / "out", *settings, processes)
    batch = [json.loads(line) for line in (tmp_path / "out" / "alerts.jsonl").read_text().splitlines()]

    logs, events = tmp_path / "logs", tmp_path / "events"
    logs.mkdir()
    events.mkdir()
    np.savez(logs / "arrays.npz", a=np.zeros(2), b=np.zeros(2))  # a zip archive of two files is no log
    header, *lines = flows.read_text().splitlines()
    programs = processes.read_text().splitlines()
    words = ("watch", logs, "--idle", 0, "--grace", 0, "--state", tmp_path / "state", *settings, events)
    stream, said = {}, ""
    for day in range(9):
        for folder, rows, first in ((logs, lines, [header]), (events, programs, [])):
            of_day = [row for row in rows if int(row.split(",")[0]) // 86400 == day]
            (folder / f"{day}.csv").write_text("\n".join([*first, *of_day]) + "\n", encoding="utf-8")
        if day in (4, 8):
            heard = call(*words)
            stream |= {record["id"]: record for record in map(json.loads, heard.out.splitlines())}
            said += heard.err
    assert "is a zip archive of 2 files" in caplog.text
    if overlap == 1:  # the window that is open at a restart is taken to be complete, which changes overlapping ones
        assert stream.keys() == {record["id"] for record in batch}
    of_host = [r for r in stream.values() if r.get("node") == "C7" and r["window"] == 8 * overlap]
    assert of_host[0]["tokens"] == ["proc:mimikatz.exe"], said
    assert "was made with overlap" in call(*words, "--overlap", 3).err


def test_events_that_come_after_their_window_are_counted():
    flows = [(np.array([day * DAY]), np.array([0]), np.array([1])) for day in range(4)]
    days = snapshots(flows)
    zero = np.zeros(1, dtype=np.int64)
    tokens = TokenWindows([(np.array([day * DAY]), zero, zero) for day in (0, 2, 3, 1)], days)
    assert [len(tokens.of(window.number).keys) for window in days.windows()] == [1, 0, 1, 1]
    assert tokens.late == 1
