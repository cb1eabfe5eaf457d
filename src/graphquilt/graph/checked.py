"""Remember that large files were checked, so that they are not read again at each opening.

``checked.json`` beside the files of a graph, or in the folder of a job, has the size, the times and the inode that they
had when they were checked last, and their checksums.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

from graphquilt.errors import FormatError
from graphquilt.files import write_text
from graphquilt.files.checksums import is_checksum, is_settled, read_sealed, sealed_text, stamp

__all__ = ["remember", "remember_checked", "remembered"]

MEMORY = "checked.json"
_LARGE = 1 << 26  # bytes of a graph that is not read again at each opening; a smaller one is read in a moment
_LONGEST_TICK = 3.0  # seconds after which a file that was just written counts as settled on every file system


def remember(folder: Path, checksums: Mapping[str, str]) -> None:
    """Note that the files of a large graph are whole, right after they were written.

    Files with times in the future, because the clock was set back, are not noted.
    """
    marks = {name: stamp(folder / f"{name}.npy") for name in checksums}
    end = time.monotonic() + _LONGEST_TICK
    while _is_large(marks) and not all(is_settled(mark, time.time_ns()) for mark in marks.values()):
        if time.monotonic() > end:
            return
        time.sleep(0.05)
    remember_checked(folder, marks, checksums, time.time_ns())


def _is_large(marks: Mapping[str, list[int]]) -> bool:
    return sum(mark[0] for mark in marks.values()) >= _LARGE


def remember_checked(folder: Path, marks: Mapping[str, list[int]], checksums: Mapping[str, str], now: int) -> None:
    """Note in which state the files of a large graph were checked, at ``now`` or later, if the folder is writable."""
    note: dict[str, object] = {"files": dict(marks), "sha256": dict(checksums)}
    if _is_large(marks) and all(is_settled(mark, now) for mark in marks.values()) and _note(folder) != note:
        with contextlib.suppress(OSError):
            write_text(folder / MEMORY, sealed_text(note), durable=False)


def remembered(folder: Path, marks: Mapping[str, list[int]]) -> dict[str, str]:
    """Return the checksums that the files had when they were last checked; none if any of them has changed since."""
    note = _note(folder) if _is_large(marks) else {}
    checksums = note.get("sha256")
    if note.get("files") != marks or not isinstance(checksums, dict) or set(checksums) != set(marks):
        return {}
    return checksums if all(map(is_checksum, checksums.values())) else {}


def _note(folder: Path) -> dict[str, object]:
    try:
        content, whole = read_sealed(folder / MEMORY)
    except (OSError, FormatError):
        return {}
    return {name: value for name, value in content.items() if name != "checksum"} if whole else {}
