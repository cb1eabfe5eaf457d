"""Checksums of arrays, files and small JSON files.

Every checksum is a SHA-256 in hexadecimal digits. It finds damage, not forgery.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError

_BLOCK = 1 << 24  # bytes that are read at once
_CHECKSUM = re.compile(r"[0-9a-f]{64}")
_DTYPE = re.compile(r"[<>|=]?[biufcSUmM]\d{1,9}(\[\w+\])?")  # as NumPy writes them; no objects, no records
_MOST_AXES = 32


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
    """Return the checksum of the values of an array in C order; its type and shape are not part of it.

    ``look`` is called with every piece: an array on a disk is read only once. With ``dtype``, the checksum is
    that of the same values in this type.
    """
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
    if not isinstance(entry, dict) or not isinstance(entry.get("shape"), list) or len(entry["shape"]) > _MOST_AXES:
        return False
    return (
        all(map(is_size, entry["shape"]))
        and isinstance(entry.get("dtype"), str)
        and bool(_DTYPE.fullmatch(entry["dtype"]))
    )


def seal(content: Mapping[str, object]) -> dict[str, object]:
    """Return the content of a JSON file with a ``checksum`` of everything else in it."""
    text = json.dumps({name: value for name, value in content.items() if name != "checksum"}, sort_keys=True)
    return {**content, "checksum": hashlib.sha256(text.encode()).hexdigest()}


def sealed_text(content: Mapping[str, object]) -> str:
    """Return the text of a JSON file, with its checksum."""
    as_read = json.loads(json.dumps(content))  # keys that are numbers are sorted as the text that they become
    return json.dumps(seal(as_read), indent=1)


def read_sealed(path: Path) -> tuple[dict[str, object], bool]:
    """Read a JSON file, and return its content and whether its checksum is right.

    Raises
    ------
    FormatError
        It is not a JSON object, or nothing that graphquilt can have written: nested too deeply, or with numbers that
        are too long.
    """
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
