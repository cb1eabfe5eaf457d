"""A file of arrays that ends with its own checksum: written whole or not at all, and refused if it was changed."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError
from graphquilt.files import load_arrays, sync_folder, temporary_sibling, translate_disk_errors, write_arrays

__all__ = ["read_state", "write_state"]

_DIGEST = hashlib.sha256().digest_size
_BLOCK = 1 << 20


def write_state(path: Path, arrays: Mapping[str, AnyArray]) -> None:
    """Write two or more arrays as .npz; when this returns, the file and its name are on the disk.

    The comment of the archive, which is the end of the file, is the SHA-256 of everything before it. A file that was
    there before stays until one rename puts the new one in its place.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> path = Path(tempfile.mkdtemp()) / "state.npz"
    >>> write_state(path, {"a": np.arange(3), "b": np.ones(2)})
    >>> read_state(path)["a"].tolist()
    [0, 1, 2]
    """
    with translate_disk_errors(path.parent):
        with temporary_sibling(path) as part:
            with open(part, "w+b") as file:
                write_arrays(file, arrays)
                with zipfile.ZipFile(file, "a") as archive:
                    archive.comment = bytes(_DIGEST)
                size = file.seek(0, os.SEEK_END) - _DIGEST
                digest = _digest(file, size)
                file.seek(size)
                file.write(digest)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        sync_folder(path.parent)


def read_state(path: Path) -> dict[str, AnyArray]:
    """Read all arrays that :func:`write_state` wrote; raise a FormatError if a single byte is another."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            is_whole = size > _DIGEST and _digest(file, size - _DIGEST) == file.read()
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}.") from None
    if not is_whole:
        raise FormatError(
            f"{path} ({size} bytes) does not hold a whole state: its checksum does not fit. It was cut short or "
            "changed, or something else wrote it. Restore the file from a copy, or begin with a new one."
        )
    return load_arrays(path)


def _digest(file: BinaryIO, size: int) -> bytes:
    """Return the SHA-256 of the first ``size`` bytes of a file, and leave the file there."""
    file.seek(0)
    digest = hashlib.sha256()
    while size > 0 and (block := file.read(min(_BLOCK, size))):
        digest.update(block)
        size -= len(block)
    return digest.digest()
