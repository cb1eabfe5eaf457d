"""Follow logs that grow, rotate or are truncated: a log is known by its content, and read on from where it ended.

A log is the same log if it begins with the same bytes and has the same bytes before the place up to which it was read,
unpacked. Its name and inode may change: logrotate renames it, copytruncate copies it, and both may pack it afterwards.
"""

from __future__ import annotations

import hashlib
import io
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import numpy as np
import pyarrow as pa

from graphquilt.errors import FormatError, InputError
from graphquilt.temporal.logs.blocks import PARQUET, UNREADABLE, ZIP, list_files, packing_of
from graphquilt.temporal.logs.flows import Flows

Read: TypeAlias = "Callable[[Path | BinaryIO], Flows]"

_HEAD, _TAIL = 1 << 12, 1 << 10  # bytes by which a log is recognised
_CHUNK = 1 << 24  # bytes of whole lines that are read at a time
_log = logging.getLogger(__name__)


@dataclass
class FollowedLog:
    """How far one log was read: ``offset`` bytes, unpacked, with times up to ``latest``.

    ``head`` is the size and the digest of its first bytes, ``tail`` the digest of those before the offset, and
    ``stamp`` the inode, size and change time of the file when it was last looked at. ``steps`` are earlier offsets with
    the latest time before each. A log ``was_done`` if an earlier run had read all of it.
    """

    name: str
    head: tuple[int, str]
    header: bytes
    tail: str = ""
    offset: int = 0
    latest: float = -math.inf
    stamp: tuple[int, int, int] = (0, 0, 0)
    is_other: bool = False
    was_done: bool = False
    steps: list[tuple[int, float, str]] = field(default_factory=list)

    def record(self, next_start: float) -> list[Any]:
        """Return the progress for a state, from which all flows from ``next_start`` on are read again."""
        safe = [step for step in [*self.steps, (self.offset, self.latest, self.tail)] if step[1] < next_start]
        offset, latest, tail = safe[-1] if safe else (0, -math.inf, "")
        is_done = offset == self.offset
        self.steps = [step for step in self.steps if step[1] >= next_start] if safe else self.steps
        if safe:
            self.steps.insert(0, safe[-1])
        known = latest if math.isfinite(latest) else None
        return [self.name, *self.head, tail, offset, known, *(self.stamp if is_done else (0, 0, 0)), self.is_other]


class Follower:
    """The logs below a folder, or one log with the files it is rotated to, and how far each was read.

    ``records`` are those of a state whose windows up to the time ``finished`` are scored.
    """

    def __init__(self, source: Path, read: Read, records: Iterable[Any] = (), *, finished: float = -math.inf) -> None:
        self._source, self._read, self._finished = source, read, finished
        self._logs: list[FollowedLog] = []
        for name, size, digest, tail, offset, latest, inode, length, changed, is_other in records:
            log = FollowedLog(name, (size, digest), b"", tail, offset, -math.inf if latest is None else latest)
            log.stamp, log.is_other, log.was_done = (inode, length, changed), is_other, inode != 0
            self._logs.append(log)

    def records(self, next_start: float) -> list[list[Any]]:
        """Return the progress of all logs for a state."""
        return [log.record(next_start) for log in self._logs]

    def read_new(self) -> Iterator[pa.RecordBatch]:
        """Give the flows that were added since the last look, in the order of their first times."""
        pending = []
        for path in self._paths():
            stamp = _stamp(path)
            if stamp is None or any(log.stamp == stamp for log in self._logs):
                continue
            log = self._identify(path)
            if log is not None and not log.is_other:
                pending.append((path, log, stamp))
        if len(pending) > 1:
            starts = [self._start(path, log) for path, log, _ in pending]
            pending = [pending[k] for k in np.argsort(starts, kind="stable")]
        for path, log, stamp in pending:
            log.stamp = (0, 0, 0)  # it is not done while it is read, and a state may be saved meanwhile
            yield from self._read_on(path, log)
            log.stamp = stamp

    def _paths(self) -> list[Path]:
        """Return the files to look at; of one log, also those that it may have been rotated to, the oldest first."""
        if self._source.is_dir():
            return list_files(self._source)
        rotated = [path for path in sorted(self._source.parent.glob(f"{self._source.name}?*")) if path.is_file()]
        return [*rotated, self._source] if self._source.exists() else rotated

    def _identify(self, path: Path) -> FollowedLog | None:
        """Return the log that a file contains, which is a new one if no known log begins and goes on like it."""
        try:
            with _open(path) as stream:
                head = stream.read(_HEAD)
        except UNREADABLE as error:
            raise FormatError(f"{path} cannot be read: {error}. It may be damaged; copy it again.") from None
        if not head:
            return None
        for log in self._logs:
            if _digest(head[: log.head[0]]) == log.head[1] and self._continues(path, log):
                log.name = str(path)
                if len(head) > log.head[0]:
                    log.head = len(head), _digest(head)
                return log
        if self._source.is_file() and path != self._source:
            return None  # an older file beside the log
        is_known = any(log.name == str(path) for log in self._logs)
        if is_known and head[:4] in (PARQUET, ZIP):
            raise InputError(f"{path} has changed after it was read, and cannot be followed: give it a new name.")
        whole = head[: head.rfind(b"\n") + 1] or head
        log = FollowedLog(str(path), (len(whole), _digest(whole)), b"", was_done=is_known)
        self._logs.append(log)
        return log

    @staticmethod
    def _continues(path: Path, log: FollowedLog) -> bool:
        """Return whether a file has the bytes that were last read of a log where they were."""
        if log.offset <= 0:
            return True
        size = min(_TAIL, log.offset)
        with _open(path) as stream:
            _skip(stream, log.offset - size)
            return _digest(stream.read(size)) == log.tail

    def _start(self, path: Path, log: FollowedLog) -> float:
        """Return the first time of what is new in a file; the end of time if it has no flow."""
        try:
            piece = next(_pieces(path, log.offset, _HEAD), None)
            if piece is None:
                return math.inf
            flows = self._read(path) if piece is _WHOLE else self._read(self._part(path, log, piece))
            first = next((batch for batch in flows if len(batch)), None)
        except FormatError:
            return math.inf
        return math.inf if first is None else float(first.column("time")[0].as_py())

    def _part(self, path: Path, log: FollowedLog, data: bytes) -> BinaryIO:
        """Return a part of a log as a file, after the lines that say what its columns are."""
        if log.offset and not log.header:
            with _open(path) as stream:
                log.header = _header(stream.read(_HEAD))
        file = io.BytesIO(log.header + data if log.offset else data)
        file.name = str(path) if log.offset == 0 else f"{path} from byte {log.offset}"
        return file

    def _read_on(self, path: Path, log: FollowedLog) -> Iterator[pa.RecordBatch]:
        for piece in _pieces(path, log.offset, _CHUNK):
            flows = self._read(path) if piece is _WHOLE else self._read(self._part(path, log, piece))
            latest = log.latest
            for batch in flows:
                times = batch.column("time").to_numpy()
                latest = max(latest, float(np.max(times, initial=-np.inf)))
                if log.was_done and (n_late := int((times < self._finished).sum())):
                    _log.warning("%s: %d flows came after their window was finished and are left out", path, n_late)
                yield batch
            log.is_other = bool(flows.counts.skipped_files)
            log.steps.append((log.offset, log.latest, log.tail))
            log.latest = latest
            if piece is _WHOLE:
                log.offset = -1  # such a file cannot grow
                return
            with _open(path) as stream:
                start = max(0, log.offset + len(piece) - _TAIL)
                _skip(stream, start)
                log.tail = _digest(stream.read(log.offset + len(piece) - start))
            log.offset += len(piece)
            if log.is_other:
                return


_WHOLE = b"the whole file"


def _pieces(path: Path, offset: int, size: int) -> Iterator[bytes]:
    """Give whole lines after an offset, about ``size`` bytes at a time; a Parquet or zip file is one piece.

    A line without its end waits, unless the file is packed and thus complete.
    """
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic in (PARQUET, ZIP):
        if offset == 0:
            yield _WHOLE
        return
    with _open(path) as stream:
        _skip(stream, offset)
        rest = b""
        while data := stream.read(size):
            rest += data
            cut = rest.rfind(b"\n") + 1
            if cut:
                yield rest[:cut]
                rest = rest[cut:]
    if rest and packing_of(magic) is not None:
        yield rest
    elif rest.strip():
        _log.warning("%s: the last line has no end yet, and waits for it: %.60s", path, rest.decode("utf-8", "replace"))


def _header(head: bytes) -> bytes:
    """Return the lines of a log before its first row: comments, and names of columns if the first line has no digit."""
    lines = head.splitlines(keepends=True)
    n_comments = next((k for k, line in enumerate(lines) if not line.startswith(b"#")), len(lines))
    has_names = n_comments < len(lines) and not any(48 <= byte <= 57 for byte in lines[n_comments])
    is_json = n_comments < len(lines) and lines[n_comments].lstrip().startswith(b"{")
    return b"".join(lines[: n_comments + (has_names and not is_json)])


def _open(path: Path) -> BinaryIO:
    with open(path, "rb") as file:
        magic = file.read(4)
    packing = packing_of(magic)
    if packing is None:
        return open(path, "rb")
    return cast("BinaryIO", pa.input_stream(str(path), compression=packing))


def _skip(stream: BinaryIO, size: int) -> None:
    while size > 0 and (block := stream.read(min(size, _CHUNK))):
        size -= len(block)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None  # it was rotated away between two looks
    return found.st_ino, found.st_size, found.st_mtime_ns


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
