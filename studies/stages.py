"""What a stage of a long run costs, all its processes together, also if it is killed and continued."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from types import TracebackType

from graphquilt.files import write_text

_INTERVAL = 1.0  # seconds between two samples
_NAMES = ("seconds", "cpu_seconds", "memory", "disk", "kills")


class StageCost:
    """Wall and CPU seconds of a block and of the processes that it starts, the most memory and the most disk.

    Memory is anonymous: mapped files do not count. Disk is what ``folder`` holds. All of it is sampled every second and
    kept in ``path``. A block that was killed there adds to what it had taken until then.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        self.totals = dict.fromkeys(_NAMES, 0.0)
        if path.is_file():
            self.totals |= json.loads(path.read_text(encoding="utf-8"))
            self.totals["kills"] += 1

    def __enter__(self) -> StageCost:
        self._before, self._begun = dict(self.totals), (time.perf_counter(), _cpu())
        self._ended = threading.Event()
        self._sample()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._ended.wait(_INTERVAL):
            self._sample()

    def _sample(self) -> None:
        totals, (wall, cpu) = self.totals, self._begun
        totals["seconds"] = round(self._before["seconds"] + time.perf_counter() - wall, 2)
        totals["cpu_seconds"] = round(self._before["cpu_seconds"] + _cpu() - cpu, 2)
        totals["memory"] = max(totals["memory"], sum(map(_anonymous, _processes())))
        totals["disk"] = max(totals["disk"], _disk(self.folder))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps(totals))


def _processes() -> list[int]:
    """Return this process and all that it has started, directly or not, as far as they run."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(entry.name))
        if fields:
            parents[int(entry.name)] = int(fields[1])
    found = [os.getpid()]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def _stat(process: int) -> list[str]:
    """Return what the system says of a process, from its state on; nothing if it has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []


def _cpu() -> float:
    """Return the CPU seconds of all processes, also of those that have ended."""
    ticks = 0
    for process in _processes():
        ticks += sum(int(field) for field in _stat(process)[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _anonymous(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon")), 0)


def _disk(folder: Path) -> int:
    """Return the bytes that a folder takes; holes in files take none."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue
    return total
