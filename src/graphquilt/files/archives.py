"""Open files that may be damaged or hostile, and read the members of zip files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from graphquilt.errors import FormatError, JobError

__all__ = ["LOCAL_HEADER", "Archive", "is_archive", "open_archive", "open_regular_file", "read_bytes"]

LOCAL_HEADER = 30  # bytes before the name in a zip member's local header
_ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")  # the first bytes of a zip file, and of an empty one
_DEFLATE = 1032  # the most bytes that one byte of a deflated stream can stand for


def read_bytes(path: Path) -> bytes:
    """Return the content of a regular file."""
    with open_regular_file(path) as (file, _):
        return file.read()


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open a zip file that may be damaged or hostile; every error inside the block becomes a FormatError."""
    with open_regular_file(path) as (file, size):
        if not is_archive(file):
            raise ValueError("it does not begin as a zip file does")
        yield Archive(file, size)


class Archive:
    """The members of a zip file, each read only after its sizes are found possible.

    Parameters
    ----------
    file : binary file
    size : int
        How many bytes the file has.

    Attributes
    ----------
    names : tuple of str
        The names of the members.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file = file
        self._zip = zipfile.ZipFile(file)
        infos = self._zip.infolist()
        self._infos = {info.filename: info for info in infos}
        self.names = tuple(self._infos)
        if len(self.names) != len(infos):
            raise ValueError(f"{len(infos)} members have only {len(self.names)} names")
        declared = sum(info.compress_size for info in infos)
        if declared > size:
            raise ValueError(f"its members declare {declared} bytes")
        for info in infos:
            _check_member(info, size)

    def read(self, name: str) -> bytes:
        """Return the content of a member, after comparing its checksum."""
        with self.open(name) as member:
            content = member.read(self.size(name))
        if len(content) != self.size(name):
            raise ValueError(f"'{name}' has {len(content)} bytes and declares {self.size(name)}")
        return content

    def open(self, name: str) -> IO[bytes]:
        """Open a member to read from it; its checksum is compared at its end."""
        return self._zip.open(self._info(name))

    def size(self, name: str) -> int:
        """Return how many bytes the content of a member has."""
        return self._info(name).file_size

    def start(self, name: str) -> int | None:
        """Return where in the file the content of a member begins; None where it is compressed."""
        info = self._info(name)
        if info.compress_type != zipfile.ZIP_STORED:
            return None
        with self._zip.open(info):  # which compares the two headers of the member
            pass
        self.file.seek(info.header_offset + LOCAL_HEADER - 4)
        name_length, extra_length = struct.unpack("<HH", self.file.read(4))
        return int(info.header_offset + LOCAL_HEADER + name_length + extra_length)

    def _info(self, name: str) -> zipfile.ZipInfo:
        if name not in self._infos:
            raise ValueError(f"it lacks '{name}'; it holds {', '.join(self.names[:10]) or 'nothing'}")
        return self._infos[name]


def _check_member(info: zipfile.ZipInfo, size: int) -> None:
    """Raise unless a member is stored or deflated, and can have the size that it declares."""
    name, packed, unpacked = info.filename[:100], info.compress_size, info.file_size
    if info.flag_bits & 1:
        raise ValueError(f"its member '{name}' is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"its member '{name}' is compressed in a way (number {info.compress_type}) that is not read")
    if info.header_offset + LOCAL_HEADER + packed > size:
        raise ValueError(f"its member '{name}' reaches beyond its end")
    most = packed if info.compress_type == zipfile.ZIP_STORED else _DEFLATE * packed
    if unpacked > most:
        raise ValueError(f"its member '{name}' declares {unpacked} bytes in {packed} bytes, which cannot be")


@contextlib.contextmanager
def open_regular_file(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file and give its size; turn whatever its content raises, which can be anything, into a FormatError."""
    with open(path, "rb", opener=_open_without_waiting) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is not a regular file")
            yield file, size
        except FormatError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                raise JobError(f"{path} cannot be opened: too many files are open. Allow more (ulimit -n).") from error
            raise FormatError(
                f"{path} ({size} bytes) cannot be read as arrays: {str(error) or type(error).__name__}. "
                "It may have been cut short or damaged; write it again, or get it again from its source."
            ) from error


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; a named pipe is opened without waiting for somebody to write to it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def is_archive(file: BinaryIO) -> bool:
    """Return whether a file begins as a zip file does."""
    start = file.read(4)
    file.seek(0)
    return start.startswith(_ZIP_STARTS)
