"""Score windows as their files arrive, with a Tracker whose state survives a restart."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from graphquilt.arrays import Int64Array
from graphquilt.errors import FormatError, InputError, counted
from graphquilt.files import folder_lock, sync_folder
from graphquilt.temporal.following import Follower
from graphquilt.temporal.logs.blocks import Input, list_files
from graphquilt.temporal.logs.columns import without_hosts
from graphquilt.temporal.logs.events import read_events
from graphquilt.temporal.logs.flows import Flows
from graphquilt.temporal.names import Names
from graphquilt.temporal.open_window import LOW_BITS
from graphquilt.temporal.records import AlertOptions, Incidents, Record, window_records
from graphquilt.temporal.results import WindowScores
from graphquilt.temporal.tokens import TokenWindows
from graphquilt.temporal.tracker import ONCE, Tracker
from graphquilt.temporal.windows import SIDES, Snapshots, WindowOptions, snapshots
from graphquilt.times import parse_duration

_FILE = "state.npz"


class WatchState:
    """A folder with one file: a tracker, its progress, and the names of its nodes; a ``with`` block locks and reads it.

    One rename replaces the old file, and a run that is killed at any moment resumes after the last window saved.
    Without a folder nothing is saved. The folder is created if necessary; another run in it is a JobError, a damaged
    state a FormatError, and a state with other settings than those of ``fresh`` an InputError. ``last`` is the latest
    window that was scored, which ended at ``end``; ``files`` says how far each log was read, as ``follower`` had it.
    Hosts that were not seen for the time ``forget`` are forgotten with their names, and those that were in one window
    only after a sixth of it; they then come back as newcomers.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        fresh: Tracker,
        windows: WindowOptions | None = None,
        *,
        protocol: str | None = None,
        user: str | None = None,
        forget: str | float | None = None,
    ) -> None:
        self._folder = None if folder is None else Path(folder)
        self.windows = windows or WindowOptions()
        self._cutting = self.windows.settings(protocol, user)
        step = parse_duration(self.windows.width) / self.windows.overlap
        self.remembered = None if forget is None else math.ceil(parse_duration(forget) / step)
        if self.remembered is not None and self.remembered < ONCE:
            raise InputError(f"--forget is at least {ONCE} windows; {forget} are {self.remembered}.")
        self.tracker = fresh
        self.names = {"source": Names(), "destination": Names(), "token": Names()}
        self.last: int | None = None
        self.end = -np.inf
        self.files: list[list[Any]] = []
        self.follower: Follower | None = None
        self.incidents = Incidents()
        self._lock = contextlib.ExitStack()

    def __enter__(self) -> WatchState:
        if self._folder is not None:
            with contextlib.ExitStack() as lock:
                lock.enter_context(folder_lock(self._folder))
                sync_folder(self._folder.absolute().parent)
                if (self._folder / _FILE).exists():
                    self._open(self._folder)
                self._lock = lock.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._lock.close()

    @property
    def settings(self) -> dict[str, object]:
        """All settings of the tracker, and how windows are cut, by name; the ids of alerts depend on them."""
        return self.tracker.settings | self._cutting

    def _open(self, folder: Path) -> None:
        tracker = Tracker.load(folder / _FILE)
        expected = self._cutting | {"overlap": self.windows.overlap}
        cutting = tracker.notes.get("flows")
        if not isinstance(cutting, dict) or not expected.keys() - {"user"} <= cutting.keys():
            raise FormatError(f"{folder / _FILE} does not say how its windows were cut. Give a new folder.")
        saved, now = {"user": None} | tracker.settings | cutting, {"user": None} | self.tracker.settings | expected
        differences = [
            f"{name.replace('_', ' ')} {_to_text(saved[name])} (now {_to_text(value)})"
            for name, value in now.items()
            if saved[name] != value
        ]
        if differences:
            raise InputError(
                f"{folder} was made with {', '.join(differences)}: windows scored in two ways cannot be compared. "
                "Give the same settings, or a new folder."
            )
        last, end, files = (tracker.notes.get(name) for name in ("last", "end", "files"))
        names = [tracker.notes.get(f"{kind}s") for kind in self.names]
        if (
            type(last) is not int
            or not (isinstance(end, float) and math.isfinite(end))
            or not (isinstance(files, list) and all(isinstance(file, list) and len(file) == 10 for file in files))
            or not all(_are_names(words, tracker.known[kind]) for kind, words in zip(self.names, names, strict=True))
        ):
            raise FormatError(f"{folder / _FILE} does not hold the progress of a watch. Give a new folder.")
        self.tracker, self.last, self.end, self.files = tracker, last, end, files
        self.names = {kind: Names(words or ()) for kind, words in zip(self.names, names, strict=True)}
        open_ones = tracker.notes.get("incidents", {})
        self.incidents = Incidents(open_ones=open_ones if isinstance(open_ones, dict) else {"": None})

    def forget(self, windows: Snapshots, tokens: TokenWindows | None) -> None:
        """Forget what was not seen for long, and the names that are then in no memory and no open window."""
        if self.remembered is None:
            return
        self.tracker.forget(self.remembered)
        used = self.tracker.known
        if tokens is not None:
            waiting = tokens.waiting()
            used["source"] = np.union1d(used["source"], waiting >> 32)
            used["token"] = np.union1d(used["token"], waiting & LOW_BITS)
        for side in SIDES:
            self.names[side].keep(np.union1d(used[side], windows.waiting_nodes(side)))
        self.names["token"].keep(used["token"])

    def save(self, scores: WindowScores) -> None:
        """Record that a window is finished."""
        self.last, self.end = scores.number, scores.end
        if self.follower is not None:
            next_start = self.end - parse_duration(self.windows.width) * (1 - 1 / self.windows.overlap)
            self.files = self.follower.records(next_start)
        if self._folder is None:
            return
        self.tracker.notes = {
            "flows": self._cutting | {"overlap": self.windows.overlap},
            "last": self.last,
            "end": self.end,
            "files": self.files,
            **{f"{kind}s": list(names) for kind, names in self.names.items()},
            "incidents": self.incidents.state(scores.number),
        }
        self.tracker.save(self._folder / _FILE)


def watch(
    source: Path | BinaryIO,
    state: WatchState,
    read: Callable[[Input], Flows],
    *,
    alerts: AlertOptions | None = None,
    events: Sequence[Path] = (),
    strict: bool = False,
    poll: float = 5.0,
    idle: float | None = None,
) -> Iterator[tuple[WindowScores, list[Record]]]:
    """Score windows as they arrive, and give the scores and alerts of each.

    A window is saved when the caller asks for the next one, and is then finished: a killed run gets the window again.

    The source is one stream, one log, or a folder of logs. Logs are read as they arrive and as they grow, also if they
    are rotated, packed or truncated in between (:mod:`graphquilt.temporal.following`); files that start with a dot or
    end in ``.part`` or ``.tmp`` are not read. ``events`` are logs of what ran on the hosts, or folders, which may fill
    too. ``poll`` is the number of seconds between two looks, and ``idle`` that without new lines before stopping; 0
    reads what is there, and None waits for ever.
    """
    alerts = alerts or AlertOptions()
    since = alerts.begin(time.time())
    flows: Iterable[pa.RecordBatch]
    if isinstance(source, Path):
        state.follower = Follower(source, read, state.files, finished=state.end)
        flows = _arriving_flows(state.follower, poll, idle)
    else:
        flows = read(source)
    windows = snapshots(without_hosts(flows, alerts.ignored), **asdict(state.windows))
    tokens = None
    if events:
        tokens = TokenWindows(_ArrivingEvents(events, strict=strict), windows)
        tokens.names, tokens.after = state.names["token"], state.last
    state.incidents.gap, state.incidents.least = alerts.merge, alerts.incident
    settings, incidents, explain = state.settings, state.incidents, state.tracker.explain
    for scores in watch_windows(windows, state, tokens):
        records = window_records(
            scores, state.names, alerts, settings=settings, incidents=incidents, since=since, explain=explain
        )
        if state.remembered is not None:
            newcomer = f"; not seen in the last {counted(state.remembered // ONCE, 'window')}"
            for record in records:
                record["reason"] += newcomer if record["kind"] == "host" and record["usual_degree"] is None else ""
        yield scores, records


def watch_windows(windows: Snapshots, state: WatchState, tokens: TokenWindows | None = None) -> Iterator[WindowScores]:
    """Score each window after ``state.last`` when it is complete, and save it when the next is asked for."""
    windows.sources, windows.destinations = state.names["source"], state.names["destination"]
    windows.after = state.last
    for window in windows.windows():
        scores = state.tracker.update(window, None if tokens is None else tokens.of(window.number))
        yield scores
        state.forget(windows, tokens)
        state.save(scores)


class _ArrivingEvents:
    """An iterator over the events of files; it ends after the last file, and resumes when a new one has arrived."""

    def __init__(self, logs: Sequence[Path], *, strict: bool) -> None:
        missing = [str(path) for path in logs if not path.exists()]
        if missing:
            raise InputError(f"there is no file {missing[0]}.")
        self._logs, self._strict = logs, strict
        self._done: set[Path] = set()
        self._batches: Iterator[pa.RecordBatch] = iter(())

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        while (batch := next(self._batches, None)) is None:
            files = [path for log in self._logs for path in (list_files(log) if log.is_dir() else [log])]
            new = next((path for path in files if path not in self._done), None)
            if new is None:
                raise StopIteration
            self._done.add(new)
            self._batches = iter(read_events(new, strict=self._strict))
        return batch


def _arriving_flows(follower: Follower, poll: float, idle: float | None) -> Iterable[pa.RecordBatch]:
    """Give the flows that are there, and those that arrive later."""
    if not (0 <= poll < math.inf and (idle is None or idle >= 0)):
        raise InputError(f"poll and idle are numbers of seconds, 0 or more, not {poll} and {idle}.")
    waited = 0.0
    while True:
        is_new = False
        for batch in follower.read_new():
            is_new = True
            yield batch
        waited = 0.0 if is_new else waited + poll
        if idle is not None and (idle == 0 or waited > idle):
            return
        time.sleep(poll)


def _are_names(words: object, known: Int64Array) -> bool:
    """Return whether ``words`` are distinct names, or None, with a name for each of the ``known`` ids."""
    if not isinstance(words, list) or len(words) <= int(known.max(initial=-1)):
        return False
    names = [word for word in words if word is not None]
    are_all = all(isinstance(name, str) for name in names) and all(words[node] is not None for node in known.tolist())
    return are_all and len(set(names)) == len(names)


def _to_text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)
