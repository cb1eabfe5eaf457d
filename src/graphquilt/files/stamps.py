"""Large files that are not read again at each opening: what was noted of them, and references to them.

``checked.json`` beside the files of a graph has the size, the times and the inode that they
had when they were checked last, and their checksums. A graph folder may also refer to features in a file elsewhere,
which is known by its size, its time and 64 samples.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError
from graphquilt.files.array_files import map_array
from graphquilt.files.checksums import is_checksum, is_size, read_sealed, sealed_text
from graphquilt.files.writing import write_text

MEMORY = "checked.json"
LARGE = 1 << 26  # bytes of a graph that is not read at each opening, and of an array that is not copied
_LONGEST_TICK = 3.0  # seconds after which a file that was just written counts as settled on every file system
_SAMPLES, _SAMPLE = 64, 1 << 16  # how many pieces of a file are read to know it, and the bytes of each
# Two changes of a file within one tick of the clock of its file system leave one and the same time.
_TICK, _COARSE_TICK = 100_000_000, 2_000_000_000  # nanoseconds; the second is for file systems that count seconds


def stamp(path: Path) -> list[int]:
    """Return what changes when a file is changed or replaced: its size, its times and its inode."""
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def is_settled(mark: list[int], now: int) -> bool:
    """Return whether a file was last changed so long before ``now`` that the next change gives it another stamp."""
    last = max(mark[1], mark[2])
    return now - last > (_TICK if last % 1_000_000_000 else _COARSE_TICK)


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
    return sum(mark[0] for mark in marks.values()) >= LARGE


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


def reference(path: Path) -> dict[str, object]:
    """Return how a graph folder names an array in a ``.npy`` file elsewhere.

    ``sha256`` is that of the size of the file and of 64 pieces of it, evenly spaced, of 64 kB each: enough to tell one
    file from another, but not to find one changed value.
    """
    place = path.absolute()
    try:
        array = map_array(place)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not array.flags.c_contiguous or array.ndim != 2:
        raise InputError(f"{path} has shape {array.shape}; features are rows one after the other, one per node.")
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.str,
        "sha256": _sampled_checksum(place),
        "path": str(place),
        "stamp": stamp(place)[:2],
    }


def large_file(array: object) -> Path | None:
    """Return the ``.npy`` file of which an array is a map, if that is large and the array is all that it holds."""
    if not isinstance(array, np.memmap) or array.nbytes < LARGE or not array.flags.c_contiguous or array.ndim != 2:
        return None
    path = Path(str(array.filename))
    whole = path.suffix == ".npy" and path.is_file() and path.stat().st_size == array.offset + array.nbytes
    return path if whole else None


def is_reference(entry: object) -> bool:
    """Return whether the entry of an array in the description of a graph says that it lies elsewhere."""
    return isinstance(entry, dict) and "path" in entry


def check_reference(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry that names a file elsewhere is whole."""
    mark = entry.get("stamp")
    is_stamp = isinstance(mark, list) and len(mark) == 2 and all(map(is_size, mark))
    path = entry["path"]
    return isinstance(path, str) and "\0" not in path and Path(path).is_absolute() and is_stamp


def open_reference(folder: Path, entry: Mapping[str, Any], *, verify: bool = False) -> AnyArray:
    """Map the array that an entry names; a file with another size or time is compared by its samples."""
    path = Path(entry["path"])
    try:
        array = map_array(path)
        same = not verify and stamp(path)[:2] == entry["stamp"]
        if not same and _sampled_checksum(path) != entry["sha256"]:
            raise FormatError(
                f"{path} is not the file that it was when the graph in {folder} was made: its content has changed. "
                "Bring it back, or make the graph again."
            )
    except (OSError, UnicodeEncodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "its name is not text"
        raise FormatError(
            f"the graph in {folder} has its features in {entry['path']!r}, which cannot be read ({problem}). "
            "Bring the file back, or make the graph again."
        ) from error
    return array


def _sampled_checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(str(size).encode())
        for place in np.unique(np.linspace(0, max(size - _SAMPLE, 0), _SAMPLES).astype(np.int64)).tolist():
            file.seek(place)
            digest.update(file.read(_SAMPLE))
    return digest.hexdigest()
