"""Open a log by its content, packed or not, and cut it into blocks of whole lines."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
import pyarrow as pa

from graphquilt.errors import FormatError, InputError

__all__ = ["UNREADABLE", "ArchiveError", "Block", "Input", "blocks_of", "listed_files", "name_of", "open_log"]

Input = str | os.PathLike[str] | BinaryIO

# What damaged files raise while they are read.
UNREADABLE = (
    pa.ArrowException,
    OSError,
    ValueError,
    LookupError,
    MemoryError,
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
    RuntimeError,
)

_HEAD = 1 << 18  # bytes in which the kind of a log is recognised
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
_ZIP, _PARQUET = b"PK\x03\x04", b"PAR1"
_UNFINISHED = (".part", ".tmp")


class ArchiveError(FormatError):
    """A zip archive of several files, or of none, such as the ``.npz`` files of NumPy: it is no log."""


class Block(NamedTuple):
    """Whole lines of a log, the number of the first, and how many there are."""

    data: bytes
    first: int
    size: int


class _Arriving(io.RawIOBase):
    """A stream that returns the bytes that have arrived instead of waiting for a full block; a pipe may be slow."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes as soon as there are some; no bytes at the end."""
        return self._stream.read1(size)


def name_of(item: Input) -> str:
    """Return the name of an input for messages."""
    return str(item) if isinstance(item, str | os.PathLike) else str(getattr(item, "name", "the input"))


def listed_files(folder: Path) -> list[Path]:
    """Return the files below a folder in order of their names; not those that are hidden or still being written."""
    try:
        os.listdir(folder)  # an error here would only be an empty list below
        paths = sorted(folder.rglob("*"))
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}.") from None
    return [
        path
        for path in paths
        if path.is_file()
        and path.suffix not in _UNFINISHED
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


def open_log(item: Input, where: str) -> tuple[BinaryIO, bytes]:
    """Open a log, unpack it, and return it with its first bytes; they are those of ``PAR1`` if it is Parquet.

    gzip, bzip2, zstd, lz4 and zip (with one file in it) are recognised by their first bytes. The head contains at least
    one whole line that is no comment, if the log has one in its first 256 KB.
    """
    if not isinstance(item, str | os.PathLike):
        buffered = item if isinstance(item, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", item))
        stream = cast("BinaryIO", _Arriving(buffered))
        return stream, _head(stream, where, whole=False)
    try:
        with open(item, "rb") as file:
            magic = file.read(4)
        if magic == _PARQUET:
            return cast("BinaryIO", io.BytesIO()), _PARQUET
        if magic == _ZIP:
            stream = _member(item, where)
        else:
            packing = next((kind for mark, kind in _PACKED.items() if magic.startswith(mark)), None)
            stream = cast("BinaryIO", pa.input_stream(str(item), compression=packing))
    except FormatError:
        raise
    except (*UNREADABLE, NotImplementedError) as error:
        raise FormatError(f"{where} cannot be opened: {error}") from None
    return stream, _head(stream, where, whole=True)


def _member(item: str | os.PathLike[str], where: str) -> BinaryIO:
    """Open the only file in a zip archive."""
    archive = zipfile.ZipFile(item)
    members = [info for info in archive.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX")]
    if len(members) != 1:
        raise ArchiveError(f"{where} is a zip archive of {len(members)} files; unpack it, and give the folder.")
    return cast("BinaryIO", archive.open(members[0]))


def _head(stream: BinaryIO, where: str, *, whole: bool) -> bytes:
    """Read the first bytes; ``whole`` reads all of them, otherwise the first line that is no comment is enough."""
    head = b""
    try:
        while len(head) < _HEAD and (piece := stream.read(_HEAD - len(head))):
            head += piece
            if not whole and any(line.strip() and b"#" not in line[:2] for line in head.split(b"\n")[:-1]):
                break
    except UNREADABLE as error:
        raise FormatError(f"{where} cannot be read: {error}. It may be damaged; copy it again.") from None
    return head


def blocks_of(stream: BinaryIO, head: bytes, block_bytes: int, *, where: str, skipped: int = 0) -> Iterator[Block]:
    """Cut what follows the first ``skipped`` lines of a log into blocks of about ``block_bytes``.

    ``head`` is what was read of the stream before. A line is never cut; one longer than four blocks is an error.
    """
    start = 0
    for _ in range(skipped):
        end = head.find(b"\n", start)
        start = len(head) if end < 0 else end + 1
    piece, rest, number = head[start:], b"", skipped + 1
    while True:
        cut = piece.rfind(b"\n") + 1
        if cut:
            data = b"".join([rest, memoryview(piece)[:cut]])
            size = int(np.count_nonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n")))
            yield Block(data, number, size)
            number += size
            rest = piece[cut:]
        else:
            rest += piece
        if len(rest) > 4 * max(block_bytes, _HEAD):
            raise FormatError(
                f"{where} line {number} is longer than {len(rest) >> 20} MB. This is no log of text lines."
            )
        try:
            piece = stream.read(block_bytes)
        except UNREADABLE as error:
            raise FormatError(
                f"{where} cannot be read after line {number - 1}: {error}. It may be damaged; copy it again."
            ) from None
        if not piece:
            break
    if rest.strip():
        yield Block(rest, number, 1)
