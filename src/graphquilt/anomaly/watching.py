"""Windows as they arrive: a folder that fills, or a pipe, scored by a Tracker whose state survives a restart."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphquilt.anomaly.tracker import Tracker, WindowScores
from graphquilt.errors import FormatError
from graphquilt.windows import Names, Snapshots, Window

if TYPE_CHECKING:
    from graphquilt.flows import Flows

__all__ = ["WatchState", "arriving_files", "watch_windows"]


class WatchState:
    """A folder that holds a tracker and the names of its nodes; names first, so that a killed run leaves no gap.

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
    """

    def __init__(self, folder: str | os.PathLike[str] | None, fresh: Callable[[], Tracker]) -> None:
        self._folder = None if folder is None else Path(folder)
        self.sources: list[str] = []
        self.destinations: list[str] = []
        self.last: int | None = None
        self.end = -np.inf
        self.files: dict[str, float] = {}
        if self._folder is not None and (self._folder / "tracker.npz").exists():
            self.tracker = Tracker.load(self._folder / "tracker.npz")
            try:
                with np.load(self._folder / "names.npz", allow_pickle=False) as names:
                    self.sources, self.destinations = names["sources"].tolist(), names["destinations"].tolist()
                header = json.loads((self._folder / "watch.json").read_text(encoding="utf-8"))
                self.last, self.end, self.files = header["last"], header["end"], header["files"]
            except (OSError, ValueError, KeyError) as problem:
                raise FormatError(f"{self._folder} does not hold a whole state: {problem}") from None
        else:
            self.tracker = fresh()

    def save(self, days: Snapshots, window: Window) -> None:
        """Write names, tracker and where to go on, in that order."""
        self.last, self.end = window.number, window.end
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / "names.npz.part"
        with open(part, "wb") as file:
            np.savez(file, sources=days.sources.array(), destinations=days.destinations.array())
        os.replace(part, self._folder / "names.npz")
        self.tracker.save(self._folder / "tracker.npz")
        part = self._folder / "watch.json.part"
        header = {"last": self.last, "end": self.end, "files": self.files}
        part.write_text(json.dumps(header), encoding="utf-8")
        os.replace(part, self._folder / "watch.json")


def watch_windows(days: Snapshots, state: WatchState) -> Iterator[tuple[Window, WindowScores]]:
    """Score each window of ``days`` as soon as it is complete, and save after each.

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
        scores = state.tracker.update(window.matrix, window.number)
        state.save(days, window)
        yield window, scores


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
