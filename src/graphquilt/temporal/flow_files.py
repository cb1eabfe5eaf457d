"""Open flow files, find their columns, count their lines, and convert their columns to arrays."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphquilt.arrays import BoolArray, Float64Array
from graphquilt.errors import FormatError

Input = str | os.PathLike[str] | BinaryIO

PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17}
EPOCH, ISO, ZONED = "epoch seconds", "ISO times", "ISO times with a zone"
TIME_SHAPES = {
    EPOCH: r"^-?\d+(\.\d+)?$",
    ISO: r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?$",
    ZONED: r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)$",
}
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
class FlowColumns:
    """Which columns of a flow file contain what; the defaults are those of the LANL netflow records.

    Attributes
    ----------
    source, destination : str
        The columns of the two nodes.
    time : str
        Seconds (from any origin) or ISO times, which become seconds since 1970; not both in one run.
    weight : str, optional
        A column of numbers, not negative, to sum in weighted snapshots.
    names : sequence of str, optional
        The names of all columns of a file without header. Eleven columns without header are taken for LANL's.
    """

    source: str = "srcdevice"
    destination: str = "dstdevice"
    time: str = "time"
    weight: str | None = None
    names: Sequence[str] | None = None


@dataclass
class Lines:
    """The line numbers of the rows of the current batch; broken lines, which are in no batch, are counted too."""

    first: int  # of the batch, if no line was broken
    broken: list[tuple[int, str]] = field(default_factory=list)  # number and description

    def of(self, row: int) -> int:
        """Return the line of a row of the current batch."""
        line = self.first + row
        for number, _ in sorted(self.broken):
            line += number <= line
        return line


def name_of(item: Input) -> str:
    """Return the name of an input for messages."""
    return str(item) if isinstance(item, str | os.PathLike) else str(getattr(item, "name", "the input"))


class Available(io.RawIOBase):
    """A stream that returns the bytes that have arrived instead of waiting for a full block; a pipe may be slow."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes as soon as there are some; no bytes at the end."""
        return self._stream.read1(size)


def open_text(item: Input, where: str) -> tuple[pa.NativeFile | Available, str]:
    """Open an input for reading, and return it with its first line."""
    if not isinstance(item, str | os.PathLike):
        buffered = item if isinstance(item, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", item))
        stream, head = Available(buffered), buffered.peek(1 << 16)
    else:
        try:
            with pa.input_stream(str(item), compression="detect") as opened:
                head = opened.read(1 << 16)
            stream = pa.input_stream(str(item), compression="detect")
        except (OSError, pa.ArrowInvalid) as error:
            raise FormatError(f"{where} cannot be opened: {error}") from None
    return stream, head.split(b"\n", 1)[0].decode("utf-8", "replace")


def delimiter_of(line: str) -> str:
    """Return the character that separates the fields of a line."""
    return max(",\t; ", key=lambda mark: (line.count(mark), mark == ","))


def header_of(fields: list[str], columns: FlowColumns, required: list[str], where: str) -> tuple[bool, list[str]]:
    """Return whether the first line, split into ``fields``, is a header, and the names of all columns."""
    names = fields
    if columns.names is not None:
        names = list(columns.names)
        if len(names) != len(fields):
            raise FormatError(f"{where} has {len(fields)} columns and {len(names)} names were given for them.")
    elif not set(required) <= set(fields) and len(fields) == len(LANL_COLUMNS) and fields[0].isdigit():
        names = list(LANL_COLUMNS)
    check_columns(required, names, where)
    return fields == names, names


def check_columns(required: list[str], names: list[str], where: str) -> None:
    """Raise a FormatError if a required column is missing, and list the columns that exist."""
    missing = [name for name in required if name not in names]
    if missing:
        raise FormatError(
            f"{where} has no column {', '.join(map(repr, missing))}; its columns (or first line) are "
            f"{', '.join(names[:20])}. Name the columns of source, destination and time, and give all column names "
            "if the file has no header."
        )


def as_dictionary(column: pa.Array) -> pa.DictionaryArray:
    """Return the column as a dictionary of strings."""
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(pc.cast(column, pa.string()))
    elif not pa.types.is_string(column.type.value_type):
        column = pa.DictionaryArray.from_arrays(column.indices, pc.cast(column.dictionary, pa.string()))
    return column


def rows_where(accept: Callable[[str], bool], column: pa.Array) -> BoolArray:
    """Return which rows contain a word that ``accept`` accepts, (n,); null is no word."""
    words = as_dictionary(column)
    accepted = np.array([word is not None and accept(word) for word in words.dictionary.to_pylist()] + [False])
    return np.asarray(accepted[pc.fill_null(words.indices, -1).to_numpy(zero_copy_only=False)])


def is_text(column: pa.Array) -> bool:
    """Return whether a column contains strings."""
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def as_numbers(column: pa.Array) -> tuple[Float64Array, BoolArray]:
    """Return the numbers, and which rows contain a finite number, (n,) each."""
    good = ~column.is_null().to_numpy(zero_copy_only=False)
    if is_text(column):
        good &= matches(column, EPOCH)
        column = pc.if_else(pa.array(good), column, "0")
    numbers = pc.fill_null(pc.cast(column, pa.float64()), 0.0)
    values = np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)
    return values, good & np.isfinite(values)


def matches(column: pa.Array, kind: str) -> BoolArray:
    """Return which rows look like times of one kind, (n,)."""
    hits = pc.fill_null(pc.match_substring_regex(column, TIME_SHAPES[kind]), False)
    return np.array(hits.to_numpy(zero_copy_only=False), dtype=bool)


def parse_times(column: pa.Array, kind: str) -> Float64Array:
    """Convert times of one kind to seconds; raise an error if a row is not of that kind."""
    if column.null_count:
        raise ValueError("a time is missing")
    if kind != EPOCH:
        return since_1970(pc.cast(column, pa.timestamp("us", tz="UTC" if kind == ZONED else None)))
    values = np.asarray(pc.cast(column, pa.float64()).to_numpy(), dtype=np.float64)
    if not bool(np.isfinite(values).all()):
        raise ValueError("a time is not finite")
    return values


def since_1970(column: pa.Array) -> Float64Array:
    """Convert time stamps to seconds since 1970, (n,)."""
    micro = pc.cast(pc.cast(column, pa.timestamp("us", tz=column.type.tz)), pa.int64())
    return np.asarray(pc.fill_null(micro, 0).to_numpy(zero_copy_only=False), dtype=np.float64) / 1e6


def protocol_number(text: str) -> int:
    """Return the number of a protocol given by name or number; -1 if it is unknown."""
    return PROTOCOLS.get(text.lower(), int(text) if text.isdigit() else -1)
