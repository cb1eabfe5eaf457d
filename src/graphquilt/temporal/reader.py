"""Flow records from files of any size, a batch at a time.

A flow is "source talked to destination at time t". Files are CSV (plain, gzip or bzip2) or Parquet; nothing but the
columns that are needed is converted, and no more than a few blocks are in memory at once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphquilt.arrays import BoolArray, Float64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.temporal.columns import (
    PROTOCOLS,
    TIME_SHAPES,
    as_dictionary,
    as_numbers,
    codes_of,
    is_impossible,
    is_named,
    is_protocol,
    matches,
    parse_times,
    since_1970,
)
from graphquilt.temporal.sources import (
    Columns,
    Input,
    Lines,
    check_columns,
    delimiter_of,
    header_of,
    name_of,
    open_text,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FlowCounts", "Flows", "read_flows"]

_EXAMPLES = 5

_log = logging.getLogger(__name__)


@dataclass
class FlowCounts:
    """What one pass over the flows has met so far.

    Attributes
    ----------
    rows, kept, filtered, bad : int
        Rows seen; handed on; of another protocol; unreadable (too few or too many fields, no name, no time).
    examples : list of str
        The first few bad rows, each with its file.
    """

    rows: int = 0
    kept: int = 0
    filtered: int = 0
    bad: int = 0
    examples: list[str] = field(default_factory=list)

    def note(self, what: str, count: int = 1) -> None:
        """Count bad rows and keep ``what`` as an example while there are few."""
        self.bad += count
        if len(self.examples) < _EXAMPLES:
            self.examples.append(what)


class Flows:
    """An iterable of record batches; iterate again to read the files again.

    Each batch is a ``pyarrow.RecordBatch`` with ``time`` (float64, seconds), ``source`` and ``destination``
    (dictionaries of strings) and, where asked for, ``weight`` (float64).

    Attributes
    ----------
    counts : FlowCounts
        Of the latest pass.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        columns: Columns,
        *,
        names: tuple[str, ...] | None,
        protocol: int | None,
        strict: bool,
        block_bytes: int,
    ) -> None:
        self._inputs = tuple(inputs)
        self._columns = columns
        self._names = names
        self._protocol = protocol
        self._strict = strict
        self._block_bytes = block_bytes
        self._kind: str | None = None
        self.counts = FlowCounts()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self.counts = FlowCounts()
        self._kind = None
        before: tuple[str, float] | None = None
        for item in self._inputs:
            where = name_of(item)
            first = True
            for batch in self._batches(item, where):
                if first and len(batch):
                    first = False
                    start = float(np.min(batch.column(0).to_numpy()))
                    if before is not None and start < before[1]:
                        raise InputError(
                            f"the files are not in order of time: {where} starts at {start:.0f} s, "
                            f"{before[1] - start:.0f} s before the start of {before[0]}. Give them in order of time."
                        )
                    before = (where, start)
                yield batch
        if self.counts.bad:
            _log.warning(
                "%d of %d rows could not be read and were left out, the first is %s",
                self.counts.bad,
                self.counts.rows,
                self.counts.examples[0],
            )

    def _batches(self, item: Input, where: str) -> Iterator[pa.RecordBatch]:
        parquet = not hasattr(item, "read") and Path(item).suffix in {".parquet", ".pq"}
        for batch, lines in self._parquet(item, where) if parquet else self._csv(item, where):
            yield self._clean(batch, where, lines)

    def _parquet(self, item: Any, where: str) -> Iterator[tuple[pa.RecordBatch, Lines]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        named = [self._columns.source, self._columns.destination]
        try:
            source = pq.ParquetFile(item, read_dictionary=named)
        except (pa.ArrowInvalid, OSError) as problem:
            raise FormatError(f"{where} cannot be read as Parquet: {problem}") from None
        check_columns(self._columns.wanted, source.schema_arrow.names, where)
        lines = Lines(first=1)
        for batch in source.iter_batches(batch_size=max(1, self._block_bytes // 64), columns=self._columns.wanted):
            yield batch, lines
            lines.advance(len(batch))

    def _csv(self, item: Input, where: str) -> Iterator[tuple[pa.RecordBatch, Lines]]:
        import pyarrow as pa
        from pyarrow import csv

        stream, first_line = open_text(item, where)
        if not first_line.strip():
            return
        delimiter = delimiter_of(first_line)
        fields = [part.strip().strip('"') for part in first_line.strip("\r\n").split(delimiter)]
        header, names = header_of(fields, self._columns, self._names, where)
        lines = Lines(first=2 if header else 1)

        def refuse(row: csv.InvalidRow) -> str:
            self.counts.rows += 1
            at = "" if row.number is None else f" line {row.number}"
            what = f"{where}{at}: {row.actual_columns} fields instead of {row.expected_columns}: {row.text[:80]}"
            self.counts.note(what)
            lines.broken.append((row.number or 0, what))
            return "skip"

        text, label = pa.string(), pa.dictionary(pa.int32(), pa.string())
        types = dict.fromkeys(self._columns.wanted, text)
        types |= {self._columns.source: label, self._columns.destination: label}
        if self._columns.protocol is not None:
            types[self._columns.protocol] = label
        try:
            reader = csv.open_csv(
                stream,
                # Line numbers are known only without threads; only where a bad row stops are they worth the wait.
                read_options=csv.ReadOptions(
                    column_names=names,
                    skip_rows=int(header),
                    block_size=self._block_bytes,
                    use_threads=not self._strict,
                ),
                parse_options=csv.ParseOptions(delimiter=delimiter, invalid_row_handler=refuse),
                convert_options=csv.ConvertOptions(include_columns=self._columns.wanted, column_types=types),
            )
            for batch in reader:
                yield batch, lines
                lines.advance(len(batch))
            if self._strict and lines.broken:
                raise FormatError(lines.broken[0][1])
        except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as problem:
            raise FormatError(f"{where} cannot be read as CSV: {problem}") from None

    def _clean(self, batch: pa.RecordBatch, where: str, lines: Lines) -> pa.RecordBatch:
        """Keep the rows of the protocol that have both names and a time; count the others."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self.counts.rows += len(batch)
        c = self._columns
        time, good = self._seconds(batch.column(c.time), where, lines)
        for name in (c.source, c.destination):
            good &= is_named(batch.column(name))
        weight = None
        if c.weight is not None:
            weight, fine = as_numbers(batch.column(c.weight))
            good &= fine & (weight >= 0)
        if not good.all():
            bad = np.flatnonzero(~good)
            row = ",".join(str(batch.column(name)[int(bad[0])]) for name in c.wanted)
            what = f"{where} line {lines.of(int(bad[0]))}: {row}" if self._strict else f"{where}: {row}"
            self.counts.note(what, len(bad))
            if self._strict:
                raise FormatError(lines.first_broken_before(int(bad[0])) or what)
        elif self._strict and lines.broken:
            raise FormatError(lines.broken[0][1])
        keep = good
        if self._protocol is not None and c.protocol is not None:
            spoken = pc.cast(as_dictionary(batch.column(c.protocol)).dictionary, pa.string()).to_pylist()
            match = np.array([is_protocol(value, self._protocol) for value in [*spoken, None]])
            codes = codes_of(batch.column(c.protocol))
            keep = good & match[codes]
            self.counts.filtered += int(good.sum() - keep.sum())
        columns = [pa.array(time), as_dictionary(batch.column(c.source)), as_dictionary(batch.column(c.destination))]
        names = ["time", "source", "destination"]
        if weight is not None:
            columns.append(pa.array(weight))
            names.append("weight")
        out = pa.RecordBatch.from_arrays(columns, names=names)
        if not keep.all():
            out = out.filter(pa.array(keep))
        self.counts.kept += len(out)
        return out

    def _seconds(self, column: pa.Array, where: str, lines: Lines) -> tuple[Float64Array, BoolArray]:
        """Times in seconds and which of them could be read; the first time met fixes the format."""
        import pyarrow as pa

        if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
            if pa.types.is_timestamp(column.type):
                return since_1970(column), ~column.is_null().to_numpy(zero_copy_only=False)
            return as_numbers(column)
        if len(column) == 0:
            return np.zeros(0), np.zeros(0, dtype=bool)
        if self._kind is None:
            self._kind = next((kind for kind in TIME_SHAPES if bool(matches(column, kind).any())), None)
        if self._kind is None:
            return np.zeros(len(column)), np.zeros(len(column), dtype=bool)
        try:
            return parse_times(column, self._kind), np.ones(len(column), dtype=bool)
        except (pa.ArrowInvalid, ValueError):
            pass
        good = matches(column, self._kind)
        for other in TIME_SHAPES:
            mixed = np.flatnonzero(matches(column, other))
            if other != self._kind and len(mixed):
                raise FormatError(
                    f"mixed time formats: the times are {self._kind}, but near line {lines.of(int(mixed[0]))} of "
                    f"{where} there is {column[int(mixed[0])].as_py()!r}, one of {other}. Convert one to the other."
                )
        for row in np.flatnonzero(good):
            if is_impossible(column[int(row)].as_py(), self._kind):
                good[row] = False
        time = np.zeros(len(column))
        time[good] = parse_times(column.filter(pa.array(good)), self._kind)
        return time, good


def read_flows(
    inputs: Input | Sequence[Input],
    *,
    source: str = "srcdevice",
    destination: str = "dstdevice",
    time: str = "time",
    weight: str | None = None,
    columns: Sequence[str] | None = None,
    protocol: int | str | None = None,
    strict: bool = False,
    block_bytes: int = 1 << 24,
) -> Flows:
    r"""Read flows from CSV or Parquet files, lazily and in batches.

    Parameters
    ----------
    inputs : path, binary file object, or a sequence of them
        In order of time. ``.gz`` and ``.bz2`` are decompressed on the way; ``.parquet`` and ``.pq`` are Parquet.
    source, destination, time : str
        Columns; the defaults are those of the LANL netflow records, whose files have no header.
        Times are seconds (any origin) or ISO times, which become seconds since 1970; not both.
    weight : str, optional
        A column of numbers, not negative, to sum in weighted snapshots.
    columns : sequence of str, optional
        The column names of a file without header. Eleven columns without header are taken for LANL's.
    protocol : int or {"tcp", "udp", "icmp"}, optional
        Keep only these rows of the column ``protocol``.
    strict : bool
        Stop at the first bad row with its line number instead of counting it.
    block_bytes : int
        How much of a CSV file is parsed at a time.

    Returns
    -------
    Flows
        Iterable of record batches; ``.counts`` says how many rows were read, kept, filtered and bad.

    Examples
    --------
    >>> import io
    >>> flows = read_flows(io.BytesIO(b"time,a,b\n0,x,y\n5,x,z\n7,y\n"), source="a", destination="b")
    >>> [batch.column("time").to_pylist() for batch in flows], flows.counts.bad
    ([[0.0, 5.0]], 1)
    """
    one = isinstance(inputs, str | os.PathLike) or hasattr(inputs, "read")
    items: list[Any] = [inputs] if one else list(inputs)  # type: ignore[arg-type]
    if not items:
        raise InputError("no flow files were given.")
    for item in items:
        if not hasattr(item, "read") and not Path(item).is_file():
            raise InputError(f"there is no file {item}.")
    if isinstance(protocol, str):
        if protocol.lower() not in PROTOCOLS and not protocol.isdigit():
            raise InputError(f"unknown protocol {protocol!r}: give tcp, udp, icmp or a number.")
        protocol = PROTOCOLS.get(protocol.lower()) or int(protocol)
    return Flows(
        items,
        Columns(source, destination, time, weight, None if protocol is None else "protocol"),
        names=None if columns is None else tuple(columns),
        protocol=protocol,
        strict=strict,
        block_bytes=block_bytes,
    )
