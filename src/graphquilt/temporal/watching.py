"""Score windows as their files arrive, with a Tracker whose state survives a restart."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.errors import FormatError, InputError
from graphquilt.files import explained, load_arrays, save_arrays
from graphquilt.temporal.names import Names
from graphquilt.temporal.tracker import Tracker, WindowScores
from graphquilt.temporal.windows import Snapshots, Window

if TYPE_CHECKING:
    import pyarrow as pa

    from graphquilt.temporal.flows import Flows

__all__ = ["WatchState", "arriving_files", "watch_windows"]

_NAMES = ("sources", "destinations")


class WatchState:
    """A folder with a tracker, its progress, and the names of its nodes.

    The names are written first and only ever grow; everything else is one file, which one rename puts in place. A run
    that is killed at any moment therefore continues from the last window that was saved.

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
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None, fresh: Tracker, *, width: float, protocol: str | None = None
    ) -> None:
        self._folder = None if folder is None else Path(folder)
        self._flows: dict[str, object] = {"width_in_seconds": width, "protocol": protocol}
        self.tracker = fresh
        self.sources, self.destinations = Names(), Names()
        self.last: int | None = None
        self.end = -np.inf
        self.files: dict[str, float] = {}
        if self._folder is not None and (self._folder / "tracker.npz").exists():
            self._open(self._folder)

    def _open(self, folder: Path) -> None:
        tracker = Tracker.load(folder / "tracker.npz")
        if "flows" not in tracker.notes:
            raise FormatError(
                f"{folder} holds a tracker that does not say how its windows were cut; an earlier version wrote it. "
                "Give a new folder: the tracker will learn from the flows again."
            )
        saved = tracker.settings | tracker.notes["flows"]
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
        try:
            names = load_arrays(folder / "names.npz")
            self.sources, self.destinations = (Names(names[side].tolist()) for side in _NAMES)
        except (OSError, ValueError, KeyError) as error:
            raise FormatError(f"{folder} does not hold a whole state: {error}") from None
        self.tracker = tracker
        self.last, self.end, self.files = (tracker.notes[name] for name in ("last", "end", "files"))

    def save(self, window: Window) -> None:
        """Record that a window is finished: write the names, then everything else."""
        self.last, self.end = window.number, window.end
        if self._folder is None:
            return
        with explained(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            save_arrays(self._folder / "names.npz", {side: getattr(self, side).array() for side in _NAMES})
        self.tracker.notes = {"flows": self._flows, "last": self.last, "end": self.end, "files": self.files}
        self.tracker.save(self._folder / "tracker.npz")


def watch_windows(days: Snapshots, state: WatchState) -> Iterator[tuple[Window, WindowScores]]:
    """Score each window of ``days`` as soon as it is complete; windows up to ``state.last`` are skipped.

    A window is saved when the caller asks for the next one, which means that the caller has finished with it. A run
    that is killed before that gets the window again, so that none is missed. ``days`` goes on with the names of the
    state, so that ids mean the same as before.
    """
    if not days.directed:
        state.destinations = state.sources
    days.sources, days.destinations = state.sources, state.destinations
    for window in days.windows():
        if state.last is not None and window.number <= state.last:
            continue
        yield window, state.tracker.update(window.matrix, window.number)
        state.save(window)


def arriving_files(
    folder: str | os.PathLike[str],
    read: Callable[[Path], Flows],
    *,
    state: WatchState,
    poll: float = 5.0,
    idle: float | None = None,
) -> Iterator[pa.RecordBatch]:
    """Give the record batches of the files in a folder, and of files that arrive later, in order of their names.

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
    done: set[Path] = set()
    waited = 0.0
    while True:
        new = sorted(path for path in Path(folder).iterdir() if _is_complete(path) and path not in done)
        for path in new:
            done.add(path)
            if state.files.get(path.name, np.inf) < state.end:
                continue
            latest = -np.inf
            for batch in read(path):
                latest = max(latest, float(np.max(batch.column("time").to_numpy(), initial=-np.inf)))
                yield batch
            state.files[path.name] = latest
        waited = 0.0 if new else waited + poll
        if idle is not None and (idle == 0 or waited > idle):
            return
        time.sleep(poll)


def _is_complete(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and path.suffix not in {".part", ".tmp"}


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)
