"""Logs that grow, rotate and are truncated, with real files: a log that comes in pieces gives what the whole gives."""

import gzip
import os
import re
import shutil
import threading
import time
from functools import partial

import numpy as np
import pytest

from graphquilt.cli import main
from graphquilt.temporal import Tracker
from graphquilt.temporal.following import Follower
from graphquilt.temporal.logs.flows import read_flows

DAY = 86_400
OPTIONS = ("--idle", "0", "--dim", "2", "--lags", "1")
HEADERS = {
    "csv": "time,source,destination\n",
    "zeek": "#separator \\x09\n#path\tconn\n#fields\tts\tid.orig_h\tid.resp_h\n",
}


def lines(first, last, kind="csv"):
    """Return the flows of some days."""
    rng = np.random.default_rng(first)
    times = np.sort(rng.integers(first * DAY, last * DAY, 200 * (last - first)))
    mark = "\t" if kind == "zeek" else ","
    ends = zip(rng.integers(0, 20, len(times)), rng.integers(0, 30, len(times)), strict=True)
    return "".join(f"{t}{mark}h{a}{mark}d{b}\n" for t, (a, b) in zip(times, ends, strict=True))


PIECES = [(0, 3), (3, 5), (5, 8)]


def rename(log, step):
    """Rotate as logrotate does."""
    for k in range(step, 0, -1):
        older = log.with_name(f"{log.name}.{k}")
        if older.exists():
            older.rename(log.with_name(f"{log.name}.{k + 1}"))
    log.rename(log.with_name(f"{log.name}.1"))


def rename_and_pack(log, step):
    packed = log.with_name(f"{log.name}.{9 - step}.gz")
    packed.write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()


def copy_and_truncate(log, step):
    shutil.copy(log, log.with_name(f"{log.name}.{step + 1}"))
    os.truncate(log, 0)


def move_to_dated_folder(log, step):
    folder = log.parent.parent / f"2026-11-1{step}"
    folder.mkdir()
    (folder / "conn.00:00:00-24:00:00.log.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()


WAYS = {
    "appended": (None, False),
    "renamed": (rename, False),
    "renamed and packed": (rename_and_pack, False),
    "copied and truncated": (copy_and_truncate, False),
    "Zeek's current": (move_to_dated_folder, False),
    "one log, appended": (None, True),
    "one log, renamed": (rename, True),
    "one log, copied and truncated": (copy_and_truncate, True),
}


@pytest.fixture
def watch(monkeypatch, capsys):
    """Run ``watch`` in this process; return the exit code and the numbers and sizes of the windows scored."""

    def run(*words):
        monkeypatch.setattr("sys.argv", ["graphquilt", "watch", *map(str, words), *OPTIONS])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        except _Killed:
            code = "killed"
        return code, re.findall(r"^window (\d+) \((\d+) flows\)", capsys.readouterr().err, re.MULTILINE)

    return run


class _Killed(BaseException):
    pass


def write_in_pieces(way, folder, kind="csv"):
    """Give the path to watch after each piece of a log was written and, before the next, rotated in some way."""
    rotate, is_single = WAYS[way]
    log = folder / ("current" if "current" in way else ".") / "conn.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    for step, (first, last) in enumerate(PIECES):
        if step and rotate is not None:
            rotate(log, step)
        is_new = not log.exists() or log.stat().st_size == 0
        with log.open("a") as file:
            file.write((HEADERS[kind] if is_new else "") + lines(first, last, kind))
        yield log if is_single else folder


@pytest.fixture(scope="module")
def sizes():
    """How many flows each window has."""
    times = [int(line.split(",")[0]) for piece in PIECES for line in lines(*piece).splitlines()]
    return [(str(k), str(n)) for k, n in enumerate(np.bincount(np.array(times) // DAY))]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", HEADERS)
def test_no_flow_is_lost_or_read_twice_after_restarts(watch, tmp_path, sizes, way, kind):
    scored = []
    for path in write_in_pieces(way, tmp_path / "logs", kind):
        code, windows = watch(path, "--state", tmp_path / "state")
        assert code == 0
        scored += windows
    assert scored == sizes


@pytest.mark.parametrize("way", WAYS)
def test_a_kill_between_rotations_loses_nothing(watch, tmp_path, sizes, way, monkeypatch):
    scored = {}
    for step, path in enumerate(write_in_pieces(way, tmp_path / "logs")):
        with monkeypatch.context() as patch:
            if step == 1:
                saved, save = [], Tracker.save

                def save_one(tracker, path, saved=saved, save=save):
                    if saved:
                        raise _Killed
                    saved.append(path)
                    save(tracker, path)

                patch.setattr(Tracker, "save", save_one)
            code, windows = watch(path, "--state", tmp_path / "state")
        assert code == ("killed" if step == 1 else 0)
        scored |= dict(windows)
    assert sorted(scored.items(), key=lambda item: int(item[0])) == sizes


def test_a_log_that_grows_and_rotates_under_a_running_watch(tmp_path, sizes):
    follower, seen = Follower(tmp_path, lambda item: read_flows(item, skip_others=True)), []
    log = tmp_path / "conn.log"

    def write():
        for step, (first, last) in enumerate(PIECES):
            if step == 1:
                copy_and_truncate(log, 0)
            if step == 2:
                rename(log, 5)
            text = (HEADERS["csv"] if step != 0 or not log.exists() else "") + lines(first, last)
            for k in range(0, len(text), 1111):  # lines are cut anywhere
                with log.open("a") as file:
                    file.write(text[k : k + 1111])
            time.sleep(0.2)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        seen += [t for batch in follower.read_new() for t in batch.column("time").to_pylist()]
    writer.join()
    seen += [t for batch in follower.read_new() for t in batch.column("time").to_pylist()]
    count = np.bincount(np.array(seen, dtype=int) // DAY)
    assert [(str(k), str(n)) for k, n in enumerate(count)] == sizes


def test_rows_that_are_read_again_are_not_called_late(tmp_path, caplog):
    """A state is saved while a log is read on; the next run reads these rows again."""
    log = tmp_path / "conn.log"
    log.write_text(HEADERS["csv"] + lines(0, 3))
    read = partial(read_flows, skip_others=True)
    first = Follower(log, read)
    assert sum(len(batch) for batch in first.read_new()) == 600
    with log.open("a") as file:
        file.write(lines(3, 6) + "432000,h1")
    for _ in first.read_new():
        records = first.records(4 * DAY)
    second = Follower(log, read, records, finished=4 * DAY)
    times = np.concatenate([batch.column("time").to_numpy() for batch in second.read_new()])
    assert (times.min() >= 3 * DAY, len(times)) == (True, 600)
    assert "left out" not in caplog.text


def test_flows_of_a_finished_window_are_counted(watch, tmp_path, caplog):
    log = tmp_path / "conn.csv"
    log.write_text(HEADERS["csv"] + lines(0, 2))
    assert watch(log, "--state", tmp_path / "state")[0] == 0
    with log.open("a") as file:
        file.write(f"{2 * DAY - 1},h0,d0\n")
    code, windows = watch(log, "--state", tmp_path / "state")
    assert (code, windows) == (0, [])
    assert "1 flows" in caplog.text
    assert "finished" in caplog.text


def test_a_parquet_file_that_changes_cannot_be_followed(watch, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "logs"
    folder.mkdir()
    for n in (300, 400):
        table = {"time": np.linspace(0, 3 * DAY, n), "source": ["a", "b"] * (n // 2), "destination": ["c"] * n}
        pq.write_table(pa.table(table), folder / "flows.parquet")
        code, _ = watch(folder, "--state", tmp_path / "state")
        assert code == (0 if n == 300 else 2)
