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
    EPOCH: r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$",
    ISO: r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?$",
    ZONED: r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)$",
}
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
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
    """Where the rows of the current batch are in their file.

    Attributes
    ----------
    unit : {"line", "row"}
        What is counted.
    first : int
        The number of the first row of the batch, if no line was broken.
    skipped : int
        Broken lines so far, which are in no batch. A reader with several threads meets them before their batch, so that
        numbers are not exact after the first.
    broken : list of (int, str)
        Number and description of each broken line, if the reading stops at the first.
    """

    unit: str
    first: int
    skipped: int = 0
    broken: list[tuple[int, str]] = field(default_factory=list)

    def of(self, row: int) -> int:
        """Return the number of a row of the current batch."""
        number = self.first + row + self.skipped
        for broken, _ in sorted(self.broken):
            number += broken <= number
        return number

    def place(self, where: str, row: int) -> str:
        """Return the place of a row of the current batch in words."""
        return f"{where} {'near ' if self.skipped else ''}{self.unit} {self.of(row)}"


def with_places(flows: pa.RecordBatch, where: str, lines: Lines, keep: BoolArray) -> pa.RecordBatch:
    """Note in the metadata of ``flows``, the kept rows of the current batch, where they come from."""
    metadata = {b"file": os.fsencode(where), b"unit": lines.unit.encode(), b"first": b"%d" % lines.of(0)}
    metadata |= {b"near": b"near " if lines.skipped else b""}
    if not keep.all():
        metadata[b"kept"] = np.packbits(keep).tobytes()
    return flows.replace_schema_metadata(metadata)


def place_of(flows: pa.RecordBatch, row: int) -> str | None:
    """Return where a row of flows comes from, in words; None if that is not known.

    Examples
    --------
    >>> flows = with_places(pa.record_batch({"time": [7.0]}), "a.csv", Lines("line", 2), np.array([False, True]))
    >>> place_of(flows, 0)
    'a.csv line 3'
    """
    metadata = flows.schema.metadata or {}
    if not {b"file", b"unit", b"first", b"near"} <= metadata.keys():
        return None
    if b"kept" in metadata:
        row = int(np.flatnonzero(np.unpackbits(np.frombuffer(metadata[b"kept"], dtype=np.uint8)))[row])
    where, unit, near = os.fsdecode(metadata[b"file"]), metadata[b"unit"].decode(), metadata[b"near"].decode()
    return f"{where} {near}{unit} {int(metadata[b'first']) + row}"


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
    repeated = [name for name in required if names.count(name) > 1]
    if repeated:
        raise FormatError(f"{where} has more than one column {repeated[0]!r}; rename or remove the others.")
    missing = [name for name in required if name not in names]
    if missing:
        raise FormatError(
            f"{where} has no column {', '.join(map(repr, missing))}; its columns (or first line) are "
            f"{', '.join(names[:20])}. Name the columns of source, destination and time, and give all column names "
            "if the file has no header."
        )


def as_dictionary(column: pa.Array, label: str) -> pa.DictionaryArray:
    """Return a column as a dictionary of strings; an error begins with ``label``."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    try:
        if not pa.types.is_dictionary(column.type):
            return pc.dictionary_encode(pc.cast(column, pa.string()))
        indices = pc.cast(column.indices, pa.int64())
        return pa.DictionaryArray.from_arrays(indices, pc.cast(column.dictionary, pa.string()))
    except pa.ArrowException as error:
        raise FormatError(
            f"{label} is of type {kind}, which cannot be read as names: {error}. Write it as text or whole numbers."
        ) from None


def rows_where(accept: Callable[[str], bool], words: pa.DictionaryArray) -> BoolArray:
    """Return which rows contain a word that ``accept`` accepts, (n,); null is no word."""
    accepted = np.array([word is not None and accept(word) for word in words.dictionary.to_pylist()] + [False])
    return np.asarray(accepted[pc.fill_null(words.indices, -1).to_numpy(zero_copy_only=False)])


def plain(column: pa.Array) -> pa.Array:
    """Return a column without a dictionary, and text as ordinary strings."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_other_text = pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type)
    return pc.cast(column, pa.string()) if is_other_text else column


def as_numbers(column: pa.Array, label: str) -> tuple[Float64Array, BoolArray]:
    """Return the numbers of a column, and which rows contain a finite number, (n,) each."""
    good = ~column.is_null().to_numpy(zero_copy_only=False)
    kind = column.type
    if pa.types.is_string(kind):
        good &= matches(column, EPOCH)
        column = pc.if_else(pa.array(good), column, "0")
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        if pa.types.is_null(kind):
            return np.zeros(len(column)), good
        raise FormatError(f"{label} is of type {kind}. Convert it to numbers, or times to time stamps.")
    numbers = pc.fill_null(pc.cast(column, pa.float64(), safe=False), 0.0)
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
    """Convert time stamps or dates to seconds since 1970, (n,); 0 where there is none."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        per_second, whole = _PER_SECOND[kind.unit], pa.int64()
    else:
        per_second, whole = (1 / 86400, pa.int32()) if pa.types.is_date32(kind) else (1e3, pa.int64())
    counts = pc.fill_null(pc.cast(column, whole), 0)
    return np.asarray(counts.to_numpy(zero_copy_only=False), dtype=np.float64) / per_second


def shown(value: pa.Scalar) -> str:
    """Return the value of a cell as text; the number behind a time that no calendar has.

    Examples
    --------
    >>> shown(pa.scalar("a")), shown(pa.scalar(10**18, pa.timestamp("us")))
    ('a', '1000000000000000000')
    """
    try:
        return str(value)
    except (ValueError, OverflowError, LookupError):  # LookupError: of a time zone that nobody knows
        return str(getattr(value, "value", "?"))


def protocol_number(text: str) -> int:
    """Return the number of a protocol given by name or number; -1 if it is unknown.

    Examples
    --------
    >>> protocol_number("TCP"), protocol_number("17.0"), protocol_number("smoke")
    (6, 17, -1)
    """
    digits = text.removesuffix(".0")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= 9
    return PROTOCOLS.get(text.lower(), int(digits) if is_number else -1)
