"""Arrays of a graph folder that stay in a file elsewhere: known by size, time and samples, and not read whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError
from graphquilt.files import map_array
from graphquilt.files.checksums import is_size

__all__ = ["check_reference", "is_reference", "large_file", "open_reference", "reference"]

LARGE = 1 << 26  # bytes of an array that is better left in its file than copied
_SAMPLES, _SAMPLE = 64, 1 << 16  # how many pieces of a file are read to know it, and the bytes of each


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
        "stamp": _stamp(place),
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
        same = not verify and _stamp(path) == entry["stamp"]
        if not same and _sampled_checksum(path) != entry["sha256"]:
            raise FormatError(
                f"{path} is not the file that it was when the graph in {folder} was made: its content has changed. "
                "Bring it back, or make the graph again."
            )
    except (OSError, UnicodeEncodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "its name is no text"
        raise FormatError(
            f"the graph in {folder} has its features in {entry['path']!r}, which cannot be read ({problem}). "
            "Bring the file back, or make the graph again."
        ) from error
    return array


def _stamp(path: Path) -> list[int]:
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


def _sampled_checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(str(size).encode())
        for place in np.unique(np.linspace(0, max(size - _SAMPLE, 0), _SAMPLES).astype(np.int64)).tolist():
            file.seek(place)
            digest.update(file.read(_SAMPLE))
    return digest.hexdigest()
