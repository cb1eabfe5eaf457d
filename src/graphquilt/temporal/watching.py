"""Score windows as their files arrive, with a Tracker whose state survives a restart."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphquilt.errors import FormatError, InputError
from graphquilt.files import sync_folder
from graphquilt.locks import folder_lock
from graphquilt.temporal.incidents import Incidents
from graphquilt.temporal.log_blocks import listed_files
from graphquilt.temporal.names import Names
from graphquilt.temporal.results import WindowScores
from graphquilt.temporal.tracker import Tracker
from graphquilt.temporal.windows import Snapshots, Window

if TYPE_CHECKING:
    import pyarrow as pa

    from graphquilt.temporal.flows import Flows

__all__ = ["WatchState", "arriving_files", "flow_settings", "open_state", "watch_windows"]

_FILE = "state.npz"
_EARLIER_FILE = "tracker.npz"  # of earlier versions, which kept the names of the nodes in another file


@contextlib.contextmanager
def open_state(
    folder: str | os.PathLike[str] | None, fresh: Tracker, *, width: float, protocol: str | None = None
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
        yield WatchState(None, fresh, width=width, protocol=protocol)
        return
    with folder_lock(folder):
        sync_folder(Path(folder).absolute().parent)
        yield WatchState(folder, fresh, width=width, protocol=protocol)


def flow_settings(width: float, protocol: str | None) -> dict[str, object]:
    """Return how windows are cut, as a state and the ids of alerts have it."""
    return {"width_in_seconds": width, "protocol": protocol}


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

    Attributes
    ----------
    tracker : Tracker
    sources, destinations : Names
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
        self, folder: str | os.PathLike[str] | None, fresh: Tracker, *, width: float, protocol: str | None = None
    ) -> None:
        self._folder = None if folder is None else Path(folder)
        self._flows = flow_settings(width, protocol)
        self.tracker = fresh
        self.sources, self.destinations = Names(), Names()
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
        """All settings of the tracker, the width of a window in seconds and the protocol, by name."""
        return self.tracker.settings | self._flows

    def _open(self, folder: Path) -> None:
        tracker = Tracker.load(folder / _FILE)
        flows = tracker.notes.get("flows")
        if not isinstance(flows, dict) or not self._flows.keys() <= flows.keys():
            raise FormatError(f"{folder / _FILE} does not say how its windows were cut. Give a new folder.")
        saved = tracker.settings | flows
        differences = [
            f"{name.replace('_', ' ')} {_text(saved[name])} (now {_text(value)})"
            for name, value in self.settings.items()
            if saved[name] != value
        ]
        if differences:
            raise InputError(
                f"{folder} was made with {', '.join(differences)}: windows scored in two ways cannot be compared. "
                "Give the same settings, or a new folder."
            )
        last, end, files = (tracker.notes.get(name) for name in ("last", "end", "files"))
        names: list[Any] = [tracker.notes.get(name) for name in ("sources", "destinations")]
        if (
            type(last) is not int
            or not (isinstance(end, float) and math.isfinite(end))
            or not (isinstance(files, dict) and all(isinstance(latest, float) for latest in files.values()))
            or not all(_are_names(words, tracker, k) for k, words in enumerate(names))
        ):
            raise FormatError(f"{folder / _FILE} does not hold the progress of a watch. Give a new folder.")
        self.tracker, self.last, self.end, self.files = tracker, last, end, files
        self.sources, self.destinations = (Names(words) for words in names)
        open_ones = tracker.notes.get("incidents", {})
        self.incidents = Incidents(open_ones=open_ones if isinstance(open_ones, dict) else {"": None})

    def save(self, window: Window) -> None:
        """Record that a window is finished."""
        self.last, self.end = window.number, window.end
        if self._folder is None:
            return
        names = {"sources": list(self.sources), "destinations": list(self.destinations)}
        names["incidents"] = self.incidents.state(window.number)  # type: ignore[assignment]
        self.tracker.notes = {"flows": self._flows, "last": self.last, "end": self.end, "files": self.files, **names}
        self.tracker.save(self._folder / _FILE)


def watch_windows(days: Snapshots, state: WatchState) -> Iterator[tuple[Window, WindowScores]]:
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
        yield window, state.tracker.update(window)
        state.save(window)


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
            if state.files.get(name, np.inf) < state.end:
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


def _are_names(words: object, tracker: Tracker, axis: int) -> bool:
    """Return whether ``words`` are distinct names, enough for the sources (axis 0) or destinations of a tracker."""
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return False
    return len(set(words)) == len(words) >= tracker.shape[axis]


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)
