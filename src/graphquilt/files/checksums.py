"""Checksums of arrays, files and small JSON files; and large files that are not read again at each opening.

Every checksum is a SHA-256 in hexadecimal digits. It finds damage, not forgery. ``checked.json`` beside the files of a
large graph has the size, times and inode that they had when they were checked last, and their checksums. A graph folder
may also refer to features in a file elsewhere, which is known by its size, its time and 64 samples.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError
from graphquilt.files.array_files import map_array
from graphquilt.files.writing import write_text

_BLOCK = 1 << 24  # bytes that are read at once
_CHECKSUM = re.compile(r"[0-9a-f]{64}")
_DTYPE = re.compile(r"[<>|=]?[biufcSUmM]\d{1,9}(\[\w+\])?")  # as NumPy writes them; no objects, no records
_MOST_AXES = 32
MEMORY = "checked.json"
LARGE = 1 << 26  # bytes of a graph that is not read at each opening, and of an array that is not copied
_LONGEST_TICK = 3.0  # seconds after which a file that was just written counts as settled on every file system
_SAMPLES, _SAMPLE = 64, 1 << 16  # how many pieces of a file are read to know it, and the bytes of each
# Two changes of a file within one tick of the clock of its file system leave one and the same time.
_TICK, _COARSE_TICK = 100_000_000, 2_000_000_000  # nanoseconds; the second is for file systems that count seconds


def blocks(array: AnyArray) -> Iterator[AnyArray]:
    """Yield the values of an array in C order, as contiguous pieces of some 16 MB."""
    if array.ndim == 0 or array.size == 0:
        yield np.ascontiguousarray(array)
        return
    rows = max(1, _BLOCK // max(1, array.nbytes // len(array)))
    for start in range(0, len(array), rows):
        yield np.ascontiguousarray(array[start : start + rows])


def array_checksum(
    array: AnyArray, *, dtype: np.dtype[Any] | None = None, look: Callable[[AnyArray], None] | None = None
) -> str:
    """Return the checksum of the values of an array in C order, in the type ``dtype``; ``look`` sees every piece."""
    digest = hashlib.sha256()
    for block in blocks(array):
        values = block if dtype is None else block.astype(dtype, copy=False)
        digest.update(values.reshape(-1).view(np.uint8).data if block.nbytes else b"")
        if look is not None:
            look(block)
    return digest.hexdigest()


def file_checksum(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_checksum(value: object) -> bool:
    """Return whether a value is 64 hexadecimal digits."""
    return isinstance(value, str) and _CHECKSUM.fullmatch(value) is not None


def is_size(value: object) -> TypeGuard[int]:
    """Return whether a value from a JSON file can be the size of something: a whole number that is not negative."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def is_array_entry(entry: object) -> bool:
    """Return whether a value from a JSON file says ``shape`` and ``dtype`` of an array of plain values."""
    shape, dtype = (entry.get("shape"), entry.get("dtype")) if isinstance(entry, dict) else (None, None)
    if not isinstance(shape, list) or len(shape) > _MOST_AXES or not all(map(is_size, shape)):
        return False
    return isinstance(dtype, str) and _DTYPE.fullmatch(dtype) is not None


def seal(content: Mapping[str, object]) -> dict[str, object]:
    """Return the content of a JSON file with a ``checksum`` of everything else in it."""
    text = json.dumps({name: value for name, value in content.items() if name != "checksum"}, sort_keys=True)
    return {**content, "checksum": hashlib.sha256(text.encode()).hexdigest()}


def sealed_text(content: Mapping[str, object]) -> str:
    """Return the text of a JSON file, with its checksum."""
    as_read = json.loads(json.dumps(content))  # keys that are numbers are sorted as the text that they become
    return json.dumps(seal(as_read), indent=1)


def read_sealed(path: Path) -> tuple[dict[str, object], bool]:
    """Read a JSON object, and return its content and whether its checksum is right."""
    return sealed_content(path.read_bytes(), str(path))


def sealed_content(text: bytes, name: str) -> tuple[dict[str, object], bool]:
    """Do what :func:`read_sealed` does for a JSON text that errors refer to by ``name``."""
    try:
        content = json.loads(text.decode("utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it is not an object")
        return content, content.get("checksum") == seal(content)["checksum"]
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:80]
        raise FormatError(f"{name} is not JSON, or was cut short ({reason}).") from error


def stamp(path: Path) -> list[int]:
    """Return what changes when a file is changed or replaced: its size, its times and its inode."""
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def is_settled(mark: list[int], now: int) -> bool:
    """Return whether a file was last changed so long before ``now`` that the next change gives it another stamp."""
    last = max(mark[1], mark[2])
    return now - last > (_TICK if last % 1_000_000_000 else _COARSE_TICK)


def remember(folder: Path, checksums: Mapping[str, str]) -> None:
    """Note that the files of a large graph are whole, right after they were written, unless the clock was set back."""
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

    ``sha256`` is that of its size and 64 samples: enough to tell one file from another, not to find a changed value.
    """
    place = path.absolute()
    try:
        array = map_array(place)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not array.flags.c_contiguous or array.ndim != 2:
        raise InputError(f"{path} has shape {array.shape}; features are rows one after the other, one per node.")
    entry = {"shape": list(array.shape), "dtype": array.dtype.str, "sha256": _sampled_checksum(place)}
    return {**entry, "path": str(place), "stamp": stamp(place)[:2]}


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
