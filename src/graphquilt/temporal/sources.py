"""Flow files: opening them, finding their columns, keeping count of their lines."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import Any, BinaryIO

from graphquilt.errors import FormatError

Input = str | os.PathLike[str] | BinaryIO

LANL_COLUMNS = (
    "time",
    "duration",
    "srcdevice",
    "dstdevice",
    "protocol",
    "srcport",
    "dstport",
    "srcpackets",
    "dstpackets",
    "srcbytes",
    "dstbytes",
)


@dataclass(frozen=True)
class Columns:
    """Which columns hold what."""

    source: str
    destination: str
    time: str
    weight: str | None
    protocol: str | None

    @property
    def wanted(self) -> list[str]:
        """Every column that must be read, once."""
        names = (self.time, self.source, self.destination, self.weight, self.protocol)
        return list(dict.fromkeys(name for name in names if name is not None))


class Lines:
    """Where in the file the rows of the current batch are; broken lines are counted in between."""

    def __init__(self, first: int) -> None:
        self._first = first
        self.broken: list[tuple[int, str]] = []

    def advance(self, rows: int) -> None:
        """Go on to the next batch."""
        self._first += rows

    def of(self, row: int) -> int:
        """Return the line of a row of the current batch."""
        line = self._first + row
        for number, _ in sorted(self.broken):
            line += number <= line
        return line

    def first_broken_before(self, row: int) -> str | None:
        """Return what is wrong with the first broken line before that row, if there is one."""
        line = self.of(row)
        return next((what for number, what in sorted(self.broken) if number < line), None)


def name_of(item: Input) -> str:
    """Return what to call an input in a message."""
    return str(getattr(item, "name", "the input")) if hasattr(item, "read") else str(item)


class Available(io.RawIOBase):
    """A stream that hands on what is there instead of waiting for a full block: a pipe may be slow."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        """Say yes."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes as soon as there are some; nothing at the end."""
        return bytes(self._stream.read1(size))


def open_text(item: Input, where: str) -> tuple[Any, str]:
    """Open for reading, and peek at the first line."""
    import pyarrow as pa

    if hasattr(item, "read"):
        stream: Any = item if isinstance(item, io.BufferedReader) else io.BufferedReader(item)
        head = stream.peek(1 << 16)
        return Available(stream), head.split(b"\n", 1)[0].decode("utf-8", "replace")
    try:
        with pa.input_stream(str(item), compression="detect") as peek:
            head = peek.read(1 << 16)
        return pa.input_stream(str(item), compression="detect"), head.split(b"\n", 1)[0].decode("utf-8", "replace")
    except (OSError, pa.ArrowInvalid) as problem:
        raise FormatError(f"{where} cannot be opened: {problem}") from None


def delimiter_of(line: str) -> str:
    """Return the mark that separates the fields of a line."""
    return max(",\t; ", key=lambda mark: (line.count(mark), mark == ","))


def header_of(fields: list[str], columns: Columns, names: tuple[str, ...] | None, where: str) -> tuple[bool, list[str]]:
    """Whether the first line is a header, and the names of all columns."""
    if names is not None:
        if len(names) != len(fields):
            raise FormatError(f"{where} has {len(fields)} columns and {len(names)} names were given for them.")
        check_columns(columns.wanted, list(names), where)
        return fields == list(names), list(names)
    needed = set(columns.wanted)
    if needed <= set(fields):
        return True, fields
    if len(fields) == len(LANL_COLUMNS) and fields[0].isdigit():
        check_columns(columns.wanted, list(LANL_COLUMNS), where)
        return False, list(LANL_COLUMNS)
    check_columns(columns.wanted, fields, where)
    raise AssertionError("unreachable: a missing column was found above")


def check_columns(needed: list[str], found: list[str], where: str) -> None:
    """Raise where a needed column is missing, and say which there are."""
    missing = [name for name in needed if name not in found]
    if missing:
        raise FormatError(
            f"{where} has no column {', '.join(map(repr, missing))}; its columns (or first line) are "
            f"{', '.join(found[:20])}. Name the columns of source, destination and time, and give all column names "
            "if the file has no header."
        )
