"""Write files atomically, explain errors of the disk, and write and map arrays.

Arrays are .npy and uncompressed .npz files; nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import secrets
import socket
import struct
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, JobError

__all__ = ["beside", "explained", "map_arrays", "save_arrays", "sync_folder", "write_arrays", "write_text"]

_ALIGN = 64  # bytes, to which numpy aligns the data of a .npy file
_LOCAL_HEADER = 30  # bytes before the name in a zip member's local header
_ZIP64_EXTRA = 20  # bytes that zipfile adds to it for sizes over 4 GB
_PART = re.compile(r"\.(?P<host>[^/]+)\.(?P<pid>\d+)\.[0-9a-f]{16}\.part")  # what follows the name of the file itself
_OLD = 86_400.0  # seconds; a part file that nobody has written to for so long is left over
_PADDING_ID = 0xD935  # the zip extra field that is known to mean "padding"


def write_arrays(file: BinaryIO, arrays: Mapping[str, AnyArray]) -> None:
    """Write one array as .npy, several as an uncompressed .npz whose members start at multiples of 64 bytes."""
    if len(arrays) == 1:
        np.lib.format.write_array(file, np.asanyarray(next(iter(arrays.values()))), allow_pickle=False)
        return
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy")
            start = file.tell() + _LOCAL_HEADER + len(info.filename.encode()) + _ZIP64_EXTRA
            padding = (-(start + 4)) % _ALIGN
            info.extra = struct.pack("<HH", _PADDING_ID, padding) + bytes(padding)
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def save_arrays(path: Path, arrays: Mapping[str, AnyArray]) -> None:
    """Write arrays as :func:`write_arrays` does to a file that is complete, and on the disk, once it is there."""
    with beside(path) as part:
        with open(part, "wb") as file:
            write_arrays(file, arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)


def map_arrays(path: Path, names: tuple[str, ...]) -> dict[str, AnyArray]:
    """Open the named arrays of a .npy or .npz file, memory-mapped where the file allows it."""
    try:
        with open(path, "rb") as file:
            if path.suffix == ".npy":
                if len(names) != 1:
                    raise ValueError(f"it is one array, and its marker lists {len(names)}")
                return {names[0]: _map_at(path, file, 0)}
            with zipfile.ZipFile(file) as archive:
                return {name: _map_member(path, file, archive, name) for name in names}
    except (ValueError, KeyError, EOFError, struct.error, zipfile.BadZipFile) as error:
        size = path.stat().st_size
        raise FormatError(
            f"{path} ({size} bytes) cannot be read as arrays: {error}. It may have been cut short; write it again."
        ) from error


def _map_member(path: Path, file: BinaryIO, archive: zipfile.ZipFile, name: str) -> AnyArray:
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED:
        with archive.open(info) as member:
            return np.asarray(np.lib.format.read_array(member, allow_pickle=False))
    file.seek(info.header_offset + _LOCAL_HEADER - 4)
    name_length, extra_length = struct.unpack("<HH", file.read(4))
    return _map_at(path, file, info.header_offset + _LOCAL_HEADER + name_length + extra_length)


def _map_at(path: Path, file: BinaryIO, offset: int) -> AnyArray:
    file.seek(offset)
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"it uses version {version} of the .npy format; save its arrays with numpy's default")
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which graphquilt never writes")
    if 0 in shape:
        return np.empty(shape, dtype)
    start = file.tell()
    mapped: AnyArray = np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")
    return mapped.copy(order="K") if start % dtype.alignment else mapped


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Lend a name beside ``path`` that no other writer has, and leave nothing under it.

    Rename the file to ``path`` when it is complete. Files that killed writers of ``path`` have left are
    removed first: those whose process no longer runs on this host, or that nobody has written to for a day. Those of
    live writers stay.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "ids.txt"
    >>> with beside(path) as part:
    ...     _ = part.write_text("7", encoding="utf-8")
    ...     _ = part.replace(path)
    >>> [entry.name for entry in path.parent.iterdir()]
    ['ids.txt']
    """
    for other in path.parent.glob(f"{glob.escape(path.stem)}.*.part"):
        with contextlib.suppress(FileNotFoundError):  # another writer has removed it
            if _left_over(other, path.stem):
                other.unlink()
    part = path.with_name(f"{path.stem}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(8)}.part")
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def _left_over(part: Path, stem: str) -> bool:
    name = _PART.fullmatch(part.name.removeprefix(stem))
    if name is None:
        return False
    old = time.time() - part.stat().st_mtime > _OLD
    return old or (name["host"] == socket.gethostname() and not _runs(int(name["pid"])))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs, but belongs to another user
    return True


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a text file that is complete once it is there; ``durable`` waits for the disk."""
    with beside(path) as part:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(part, path)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an error of the disk into one sentence that says what to do."""
    try:
        yield
    except OSError as error:
        # NumPy reports a write that ran out of space in these words, without a number.
        short = error.errno is None and "requested and" in str(error)
        if short or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            reason = "the disk is full (or the quota is used up). Free some space and run the same command again"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            reason = "it cannot be written to. Allow writing, or choose another folder"
        else:
            reason = f"{error.strerror or error}. Repair that and run the same command again"
        raise JobError(f"cannot write in {path}: {reason}; everything finished so far is intact.") from error
