"""Find logs, open them by their content, packed or not, and read them in blocks of whole lines."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias, cast

import numpy as np
import pyarrow as pa

from graphquilt.errors import FormatError, InputError
from graphquilt.temporal.logs.formats import Layout, sample_records
from graphquilt.temporal.logs.rows import Block, Rows, json_schema, parse_json, parse_text

Input: TypeAlias = str | os.PathLike[str] | BinaryIO
_Parser: TypeAlias = Callable[[Block], Rows]

# What damaged files raise while they are read.
_DAMAGE = (OSError, ValueError, LookupError, MemoryError, EOFError, RuntimeError)
UNREADABLE = (*_DAMAGE, pa.ArrowException, zlib.error, zipfile.BadZipFile)

_HEAD = 1 << 18  # bytes in which the kind of a log is recognised
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
ZIP, PARQUET = b"PK\x03\x04", b"PAR1"
_UNFINISHED = (".part", ".tmp")


class ArchiveError(FormatError):
    """A zip archive that does not contain exactly one file, such as the ``.npz`` files of NumPy: not a log."""


class Log(NamedTuple):
    """An open log: its name for messages, the bytes after its head (None if it is Parquet), and its head."""

    where: str
    stream: BinaryIO | None
    head: bytes


class _Arriving(io.RawIOBase):
    """A stream that returns the bytes that have arrived instead of waiting for a full block; a pipe may be slow."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes as soon as some have arrived; no bytes at the end."""
        return self._stream.read1(size)


def list_inputs(inputs: Input | Sequence[Input], kind: str) -> list[Input]:
    """Return the inputs as a list; raise an InputError if there are none, or if a file does not exist."""
    items: list[Input] = list(inputs) if isinstance(inputs, Sequence) and not isinstance(inputs, str) else [inputs]
    if not items:
        raise InputError(f"no {kind} files were given.")
    for item in items:
        if isinstance(item, str | os.PathLike) and not (Path(item).is_file() or Path(item).is_dir()):
            raise InputError(f"there is no file {item}.")
    return items


def name_of(item: Input) -> str:
    """Return the name of an input for messages."""
    return str(item) if isinstance(item, str | os.PathLike) else str(getattr(item, "name", "the input"))


def list_files(folder: Path) -> list[Path]:
    """Return the files below a folder in order of their names, except hidden and unfinished ones."""
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


def packing_of(magic: bytes) -> str | None:
    """Return how a file that begins with these bytes is packed; None if it is not."""
    return next((kind for mark, kind in _PACKED.items() if magic.startswith(mark)), None)


def open_log(item: Input) -> Log:
    """Open a log and unpack it."""
    where = name_of(item)
    if not isinstance(item, str | os.PathLike):
        buffered = item if isinstance(item, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", item))
        stream = cast("BinaryIO", _Arriving(buffered))
        return Log(where, stream, _read_head(stream, where, whole=False))
    try:
        with open(item, "rb") as file:
            magic = file.read(4)
        if magic == PARQUET:
            return Log(where, None, PARQUET)
        if magic == ZIP:
            stream = _open_member(item, where)
        else:
            stream = cast("BinaryIO", pa.input_stream(str(item), compression=packing_of(magic)))
    except FormatError:
        raise
    except UNREADABLE as error:
        raise FormatError(f"{where} cannot be opened: {error}") from None
    return Log(where, stream, _read_head(stream, where, whole=True))


def _open_member(item: str | os.PathLike[str], where: str) -> BinaryIO:
    """Open the only file in a zip archive."""
    archive = zipfile.ZipFile(item)
    members = [info for info in archive.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX")]
    if len(members) != 1:
        raise ArchiveError(f"{where} is a zip archive of {len(members)} files; unpack it, and give the folder.")
    return cast("BinaryIO", archive.open(members[0]))


def _read_head(stream: BinaryIO, where: str, *, whole: bool) -> bytes:
    """Read the first bytes; all of them if ``whole``, otherwise up to the first line that is not a comment."""
    head = b""
    try:
        while len(head) < _HEAD and (piece := stream.read(_HEAD - len(head))):
            head += piece
            if not whole and any(line.strip() and b"#" not in line[:2] for line in head.split(b"\n")[:-1]):
                break
    except UNREADABLE as error:
        raise FormatError(f"{where} cannot be read: {error}. It may be damaged; copy it again.") from None
    return head


def read_rows(
    log: Log, layout: Layout, types: Mapping[str, pa.DataType], *, block_bytes: int, threaded: bool = False
) -> Iterator[Rows]:
    """Parse a log block by block into the columns ``types``; JSON fields have the types of the first records."""
    parse: _Parser
    if not layout.delimiter:
        names, schema = list(types), json_schema(sample_records(log.head), list(types), number=layout.time)

        def parse(block: Block) -> Rows:
            return parse_json(block, names, schema)
    else:

        def parse(block: Block) -> Rows:
            try:
                return parse_text(block, layout, types)
            except FormatError as error:
                raise FormatError(f"{log.where}: {error}") from None

    blocks = _cut_blocks(log, block_bytes, layout.skipped)
    return _parse_ahead(blocks, parse) if threaded else map(parse, blocks)


def _parse_ahead(blocks: Iterator[Block], parse: _Parser) -> Iterator[Rows]:
    """Parse blocks in a few threads, and give the results in order."""
    n_threads = min(4, os.cpu_count() or 1)
    waiting: deque[Future[Rows]] = deque()
    with ThreadPoolExecutor(n_threads) as pool:
        for block in blocks:
            waiting.append(pool.submit(parse, block))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _cut_blocks(log: Log, block_bytes: int, skipped: int) -> Iterator[Block]:
    """Cut what follows the first ``skipped`` lines into blocks of about ``block_bytes``, without cutting a line."""
    start = 0
    for _ in range(skipped):
        end = log.head.find(b"\n", start)
        start = len(log.head) if end < 0 else end + 1
    piece, rest, number = log.head[start:], b"", skipped + 1
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
                f"{log.where} line {number} is longer than {len(rest) >> 20} MB. This is not a log of text lines."
            )
        try:
            piece = b"" if log.stream is None else log.stream.read(block_bytes)
        except UNREADABLE as error:
            raise FormatError(
                f"{log.where} cannot be read after line {number - 1}: {error}. It may be damaged; copy it again."
            ) from None
        if not piece:
            break
    if rest.strip():
        yield Block(rest, number, 1)
