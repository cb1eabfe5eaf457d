"""Windows as they arrive: a folder that fills, or a pipe, scored by a Tracker whose state survives a restart."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphquilt.errors import FormatError, InputError
from graphquilt.temporal.tracker import Tracker, WindowScores
from graphquilt.temporal.windows import Names, Snapshots, Window

if TYPE_CHECKING:
    from graphquilt.temporal.reader import Flows

__all__ = ["WatchState", "arriving_files", "watch_windows"]


class WatchState:
    """A folder that holds a tracker, with how far it has come, and the names of its nodes.

    Names are written first and only ever grow; all else is one file, put in place by one rename. A run that is killed
    at any moment therefore goes on from the last window that was saved.

    Parameters
    ----------
    folder : path, optional
        None keeps nothing.
    fresh : Tracker
        What to begin with; where the folder holds a tracker already, that one must have the same settings.
    width : float
        Length of a window in seconds.
    protocol : str, optional
        Of the flows that are kept.

    Attributes
    ----------
    tracker : Tracker
    sources, destinations : list of str
    last : int or None
        The latest window that was scored, learnt or not.
    end : float
        Where that window ends, in seconds.
    files : dict of str to float
        The latest time in each file that was read to its end.

    Raises
    ------
    InputError
        If the folder was made with other settings; the message names both.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None, fresh: Tracker, *, width: float, protocol: str | None = None
    ) -> None:
        self._folder = None if folder is None else Path(folder)
        self._flows = {"width_in_seconds": width, "protocol": protocol}
        self.tracker = fresh
        self.sources: list[str] = []
        self.destinations: list[str] = []
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
                "Give a new folder: what it should remember is learnt from the flows again."
            )
        made_with = tracker.settings | tracker.notes["flows"]
        asked_for = self.tracker.settings | self._flows
        others = [
            f"{name.replace('_', ' ')} {_said(made_with[name])} (now {_said(value)})"
            for name, value in asked_for.items()
            if made_with[name] != value
        ]
        if others:
            raise InputError(
                f"{folder} was made with {', '.join(others)}: windows scored in two ways cannot be compared. "
                "Give the same settings, or a new folder."
            )
        try:
            with np.load(folder / "names.npz", allow_pickle=False) as names:
                self.sources, self.destinations = names["sources"].tolist(), names["destinations"].tolist()
        except (OSError, ValueError, KeyError) as problem:
            raise FormatError(f"{folder} does not hold a whole state: {problem}") from None
        self.tracker = tracker
        self.last, self.end, self.files = (tracker.notes[name] for name in ("last", "end", "files"))

    def save(self, days: Snapshots, window: Window) -> None:
        """Note that a window was dealt with: write the names, then everything else."""
        self.last, self.end = window.number, window.end
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / "names.npz.part"
        with open(part, "wb") as file:
            np.savez(file, sources=days.sources.array(), destinations=days.destinations.array())
        os.replace(part, self._folder / "names.npz")
        self.tracker.notes = {"flows": self._flows, "last": self.last, "end": self.end, "files": self.files}
        self.tracker.save(self._folder / "tracker.npz")


def watch_windows(days: Snapshots, state: WatchState) -> Iterator[tuple[Window, WindowScores]]:
    """Score each window of ``days`` as soon as it is complete.

    A window is saved when the next one is asked for, that is, after the caller has dealt with it: whoever is killed in
    between is given it again, and misses none.

    Parameters
    ----------
    days : Snapshots
        Its names are replaced by those of the state, so that ids mean the same as before.
    state : WatchState
        Windows up to ``state.last`` were scored before and are passed over.
    """
    days.sources = Names(state.sources)
    days.destinations = Names(state.destinations) if days.directed else days.sources
    for window in days.windows():
        if state.last is not None and window.number <= state.last:
            continue
        yield window, state.tracker.update(window.matrix, window.number)
        state.save(days, window)


def arriving_files(
    folder: str | os.PathLike[str],
    read: Callable[[Path], Flows],
    *,
    state: WatchState,
    poll: float = 5.0,
    idle: float | None = None,
) -> Iterator[Any]:
    """Give the record batches of the files in a folder, and of those that come later, in order of their names.

    Parameters
    ----------
    folder : path
        Files that start with a dot or end in ``.part`` or ``.tmp`` are being written and are not looked at.
    read : callable (path) -> Flows
    state : WatchState
        Files that end before the last window scored are not read again; files read to their end are noted in it.
    poll : float
        Seconds between looks.
    idle : float, optional
        Stop after so many seconds without a new file; 0 reads what is there. None waits for ever.
    """
    done: set[Path] = set()
    waited = 0.0
    while True:
        found = [p for p in Path(folder).iterdir() if p.is_file() and _finished(p)]
        new = sorted(set(found) - done)
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


def _finished(path: Path) -> bool:
    return not path.name.startswith(".") and path.suffix not in {".part", ".tmp"}


def _said(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)
