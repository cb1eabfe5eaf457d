"""Score windows as their files arrive, with a Tracker whose state survives a restart."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphquilt.errors import FormatError, InputError
from graphquilt.files import folder_lock, sync_folder
from graphquilt.temporal.incidents import Incidents
from graphquilt.temporal.logs.blocks import listed_files
from graphquilt.temporal.logs.events import read_events
from graphquilt.temporal.names import Names
from graphquilt.temporal.results import WindowScores
from graphquilt.temporal.tokens import TokenWindows
from graphquilt.temporal.tracker import Tracker
from graphquilt.temporal.windows import Snapshots, Window

if TYPE_CHECKING:
    import pyarrow as pa

    from graphquilt.temporal.logs.flows import Flows

__all__ = ["WatchState", "arriving_files", "flow_settings", "open_state", "watch_windows", "watched_tokens"]

_FILE = "state.npz"
_EARLIER_FILE = "tracker.npz"  # of earlier versions, which kept the names of the nodes in another file


@contextlib.contextmanager
def open_state(
    folder: str | os.PathLike[str] | None,
    fresh: Tracker,
    *,
    width: float,
    protocol: str | None = None,
    overlap: int = 1,
) -> Iterator[WatchState]:
    """Lock the folder of a state and give the :class:`WatchState` in it; the folder is created if it does not exist.

    Raises
    ------
    JobError
        Another run has locked the folder, or it cannot be written to.
    FormatError
        The state in the folder is damaged, or an earlier version wrote it.
    InputError
        It was made with other settings.
    """
    if folder is None:
        yield WatchState(None, fresh, width=width, protocol=protocol, overlap=overlap)
        return
    with folder_lock(folder):
        sync_folder(Path(folder).absolute().parent)
        yield WatchState(folder, fresh, width=width, protocol=protocol, overlap=overlap)


def flow_settings(width: float, protocol: str | None, overlap: int = 1) -> dict[str, object]:
    """Return how windows are cut, as the ids of alerts have it; windows that do not overlap need no word about it."""
    settings: dict[str, object] = {"width_in_seconds": width, "protocol": protocol}
    return settings | {"overlap": overlap} if overlap > 1 else settings


class WatchState:
    """A folder with one file: a tracker, its progress, and the names of its nodes; :func:`open_state` locks it too.

    One rename puts a new file in place of the old one. A run that is killed at any moment therefore continues from the
    last window that was saved.

    Parameters
    ----------
    folder : path, optional
        None saves nothing.
    fresh : Tracker
        The tracker to begin with. A tracker that is already in the folder must have the same settings.
    width : float
        Length of a window in seconds.
    protocol : str, optional
        The protocol of the flows that are kept.
    overlap : int
        In how many windows each flow lies.

    Attributes
    ----------
    tracker : Tracker
    sources, destinations, tokens : Names
        The names of hosts by side, and of the tokens of events.
    last : int or None
        The latest window that was scored, learnt or not.
    end : float
        The end of that window, in seconds.
    files : dict of str to float
        The latest time in each file that was read to its end.
    incidents : Incidents
        The incidents that may still go on.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        fresh: Tracker,
        *,
        width: float,
        protocol: str | None = None,
        overlap: int = 1,
    ) -> None:
        self._folder = None if folder is None else Path(folder)
        self._flows = flow_settings(width, protocol) | {"overlap": overlap}
        self._width, self._protocol, self._overlap = width, protocol, overlap
        self.tracker = fresh
        self.sources, self.destinations, self.tokens = Names(), Names(), Names()
        self.last: int | None = None
        self.end = -np.inf
        self.files: dict[str, float] = {}
        self.incidents = Incidents()
        if self._folder is not None and (self._folder / _FILE).exists():
            self._open(self._folder)
        elif self._folder is not None and (self._folder / _EARLIER_FILE).exists():
            raise FormatError(
                f"{self._folder} holds a state that an earlier version wrote, without a checksum. Give a new folder: "
                "the tracker will learn from the flows again."
            )

    @property
    def settings(self) -> dict[str, object]:
        """All settings of the tracker, and how windows are cut, by name; the ids of alerts depend on them."""
        return self.tracker.settings | flow_settings(self._width, self._protocol, self._overlap)

    @property
    def names(self) -> dict[str, Names]:
        """The names of hosts by side, and of tokens."""
        return {"source": self.sources, "destination": self.destinations, "token": self.tokens}

    @property
    def needed_from(self) -> float:
        """The start of the next window, in seconds: flows before it are not needed again."""
        return self.end - self._width * (1 - 1 / self._overlap)

    def _open(self, folder: Path) -> None:
        tracker = Tracker.load(folder / _FILE)
        flows = tracker.notes.get("flows")
        if not isinstance(flows, dict) or not self._flows.keys() <= flows.keys():
            raise FormatError(f"{folder / _FILE} does not say how its windows were cut. Give a new folder.")
        saved = tracker.settings | flows
        differences = [
            f"{name.replace('_', ' ')} {_text(saved[name])} (now {_text(value)})"
            for name, value in (self.tracker.settings | self._flows).items()
            if saved[name] != value
        ]
        if differences:
            raise InputError(
                f"{folder} was made with {', '.join(differences)}: windows scored in two ways cannot be compared. "
                "Give the same settings, or a new folder."
            )
        last, end, files = (tracker.notes.get(name) for name in ("last", "end", "files"))
        names: list[Any] = [tracker.notes.get(name) for name in ("sources", "destinations", "tokens")]
        if (
            type(last) is not int
            or not (isinstance(end, float) and math.isfinite(end))
            or not (isinstance(files, dict) and all(isinstance(latest, float) for latest in files.values()))
            or not all(_are_names(words, least) for words, least in zip(names, (*tracker.shape, 0), strict=True))
        ):
            raise FormatError(f"{folder / _FILE} does not hold the progress of a watch. Give a new folder.")
        self.tracker, self.last, self.end, self.files = tracker, last, end, files
        self.sources, self.destinations, self.tokens = (Names(words) for words in names)
        open_ones = tracker.notes.get("incidents", {})
        self.incidents = Incidents(open_ones=open_ones if isinstance(open_ones, dict) else {"": None})

    def save(self, window: Window) -> None:
        """Record that a window is finished."""
        self.last, self.end = window.number, window.end
        if self._folder is None:
            return
        self.tracker.notes = {
            "flows": self._flows,
            "last": self.last,
            "end": self.end,
            "files": self.files,
            "sources": list(self.sources),
            "destinations": list(self.destinations),
            "tokens": list(self.tokens),
            "incidents": self.incidents.state(window.number),
        }
        self.tracker.save(self._folder / _FILE)


def watch_windows(
    days: Snapshots, state: WatchState, tokens: TokenWindows | None = None
) -> Iterator[tuple[Window, WindowScores]]:
    """Score each window of ``days`` as soon as it is complete; windows up to ``state.last`` are skipped.

    A window is saved when the caller asks for the next one, which means that the caller has finished with it. A run
    that is killed before that gets the window again, so that none is missed. ``days`` goes on with the names of the
    state, so that ids mean the same as before.
    """
    if not days.directed:
        state.destinations = state.sources
    days.sources, days.destinations = state.sources, state.destinations
    days.after = state.last
    for window in days.windows():
        yield window, state.tracker.update(window, None if tokens is None else tokens.of(window.number))
        state.save(window)


def watched_tokens(logs: Sequence[Path], days: Snapshots, state: WatchState, *, strict: bool = False) -> TokenWindows:
    """Cut the events of logs, and of files that arrive in folders of them, into windows with the names of the state.

    Files are read by their names, and again after a restart; events of windows that were scored are left out.
    """
    missing = [str(path) for path in logs if not path.exists()]
    if missing:
        raise InputError(f"there is no file {missing[0]}.")
    tokens = TokenWindows(_ArrivingEvents(logs, partial(read_events, strict=strict)), days)
    tokens.names, tokens.after = state.tokens, state.last
    return tokens


class _ArrivingEvents:
    """An iterator over the events of files; where no file is left it ends, and goes on when a new one has arrived."""

    def __init__(self, logs: Sequence[Path], read: Callable[[Path], Iterable[pa.RecordBatch]]) -> None:
        self._logs, self._read = logs, read
        self._done: set[Path] = set()
        self._batches: Iterator[pa.RecordBatch] = iter(())

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        while (batch := next(self._batches, None)) is None:
            files = [path for log in self._logs for path in (listed_files(log) if log.is_dir() else [log])]
            new = next((path for path in files if path not in self._done), None)
            if new is None:
                raise StopIteration
            self._done.add(new)
            self._batches = iter(self._read(new))
        return batch


def arriving_files(
    folder: str | os.PathLike[str],
    read: Callable[[Path], Flows],
    *,
    state: WatchState,
    poll: float = 5.0,
    idle: float | None = None,
) -> Iterator[pa.RecordBatch]:
    """Give the record batches of the files in and below a folder, and of those that arrive later, by their names.

    Parameters
    ----------
    folder : path
        Files that start with a dot or end in ``.part`` or ``.tmp`` are still being written and are not read.
    read : callable (path) -> Flows
    state : WatchState
        Files that end before the last window scored are not read again; files read to their end are recorded in it.
    poll : float
        Seconds between two looks at the folder.
    idle : float, optional
        Stop after so many seconds without a new file; 0 reads the files that are there. None waits for ever.
    """
    if not (0 <= poll < math.inf and (idle is None or idle >= 0)):
        raise InputError(f"poll and idle are numbers of seconds, 0 or more, not {poll} and {idle}.")
    done: set[Path] = set()
    waited = 0.0
    while True:
        new = [path for path in listed_files(Path(folder)) if path not in done]
        for path in new:
            done.add(path)
            name = str(path.relative_to(folder))
            if state.files.get(name, np.inf) < state.needed_from:
                continue
            latest = -np.inf
            for batch in read(path):
                latest = max(latest, float(np.max(batch.column("time").to_numpy(), initial=-np.inf)))
                yield batch
            state.files[name] = latest
        waited = 0.0 if new else waited + poll
        if idle is not None and (idle == 0 or waited > idle):
            return
        time.sleep(poll)


def _are_names(words: object, least: int) -> bool:
    """Return whether ``words`` are distinct names, at least ``least`` of them."""
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return False
    return len(set(words)) == len(words) >= least


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)
