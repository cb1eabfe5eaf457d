"""Read flow records from files of any size, one batch at a time.

A flow is "source talked to destination at time t". Files are CSV (plain, gzip or bzip2) or Parquet. Only the required
columns are converted, and only a few blocks are in memory at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from graphquilt.arrays import BoolArray, Float64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.temporal import flow_files
from graphquilt.temporal.flow_files import FlowColumns, Input, Lines

__all__ = ["FlowCounts", "Flows", "read_flows"]

_PROTOCOL = "protocol"  # the column of the protocol
_EXAMPLES = 5
_SHOWN = 80  # characters of a bad row
_UNREADABLE = (pa.ArrowException, OSError, ValueError, LookupError, MemoryError)  # raised where a file is damaged

_log = logging.getLogger(__name__)


@dataclass
class FlowCounts:
    """How many rows one pass over the flows has read so far.

    Attributes
    ----------
    rows, kept, filtered, bad : int
        All rows; rows that were passed on; rows of another protocol; unreadable rows (too few or too many fields, no
        name, no time).
    examples : list of str
        The first few bad rows, each with its file.
    """

    rows: int = 0
    kept: int = 0
    filtered: int = 0
    bad: int = 0
    examples: list[str] = field(default_factory=list)

    def add_bad(self, example: str, count: int = 1) -> None:
        """Count bad rows, and keep ``example`` while there are few examples."""
        self.bad += count
        if len(self.examples) < _EXAMPLES:
            self.examples.append(example)


@dataclass(eq=False)
class Flows:
    """An iterable of record batches; iterate again to read the files again.

    Each batch is a ``pyarrow.RecordBatch`` with ``time`` (float64, seconds), ``source`` and ``destination``
    (dictionaries of strings) and, if a column of weights was named, ``weight`` (float64).

    Attributes
    ----------
    inputs, columns, protocol, strict, block_bytes
        As in :func:`read_flows`.
    counts : FlowCounts
        The counts of the latest pass.
    """

    inputs: Sequence[Input]
    columns: FlowColumns
    protocol: int | None
    strict: bool
    block_bytes: int
    counts: FlowCounts = field(init=False, default_factory=FlowCounts)
    _time_kind: str | None = field(init=False, default=None)

    @property
    def _required(self) -> list[str]:
        columns = self.columns
        protocol = None if self.protocol is None else _PROTOCOL
        names = dict.fromkeys((columns.time, columns.source, columns.destination, columns.weight, protocol))
        return [name for name in names if name is not None]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self.counts = FlowCounts()
        self._time_kind = None
        previous: tuple[str, float] | None = None
        for item in self.inputs:
            where = flow_files.name_of(item)
            is_parquet = isinstance(item, str | os.PathLike) and Path(item).suffix in {".parquet", ".pq"}
            is_first = True
            for batch, lines in self._parquet(item, where) if is_parquet else self._csv(item, where):
                flows = self._clean(batch, where, lines)
                if is_first and len(flows):
                    is_first = False
                    start = float(np.min(flows.column(0).to_numpy()))
                    if previous is not None and start < previous[1]:
                        raise InputError(
                            f"the files are not in order of time: {where} starts at {start:.0f} s, "
                            f"{previous[1] - start:.0f} s before the start of {previous[0]}. Sort the files by time."
                        )
                    previous = (where, start)
                yield flows
        counts = self.counts
        if counts.bad:
            message = "%d of %d rows could not be read and were left out, the first is %s"
            _log.warning(message, counts.bad, counts.rows, counts.examples[0])

    def _parquet(self, item: Input, where: str) -> Iterator[tuple[pa.RecordBatch, Lines]]:
        lines = Lines("row", 1)
        try:
            schema = pq.read_schema(item)
            flow_files.check_columns(self._required, schema.names, where)
            for name in self._required:
                if pa.types.is_nested(kind := schema.field(name).type):
                    raise FormatError(f"{where}: the column {name!r} is of type {kind}, not one value per row.")
            names = [self.columns.source, self.columns.destination]
            file = pq.ParquetFile(item, read_dictionary=names, page_checksum_verification=True)
            with file:
                for batch in file.iter_batches(batch_size=max(1, self.block_bytes // 64), columns=self._required):
                    batch.validate(full=True)
                    yield batch, lines
                    lines.first += len(batch)
        except FormatError:
            raise
        except _UNREADABLE as error:
            after = f" after row {lines.first - 1}" if lines.first > 1 else ""
            raise FormatError(
                f"{where} cannot be read as Parquet{after}: {error}. It may be damaged; write or copy it again."
            ) from None

    def _csv(self, item: Input, where: str) -> Iterator[tuple[pa.RecordBatch, Lines]]:
        stream, first_line = flow_files.open_text(item, where)
        if not first_line.strip():
            return
        delimiter = flow_files.delimiter_of(first_line)
        fields = [part.strip().strip('"') for part in first_line.strip("\r\n").split(delimiter)]
        header, names = flow_files.header_of(fields, self.columns, self._required, where)
        lines = Lines("line", 2 if header else 1)

        def skip(row: csv.InvalidRow) -> str:
            self.counts.rows += 1
            line = "" if row.number is None else f" line {row.number}"
            problem = f"{where}{line}: {row.actual_columns} fields instead of {row.expected_columns}: {row.text[:80]}"
            self.counts.add_bad(problem)
            if self.strict:
                lines.broken.append((row.number or 0, problem))
            else:
                lines.skipped += 1
            return "skip"

        types = dict.fromkeys(self._required, pa.string())
        labels = (self.columns.source, self.columns.destination, *([] if self.protocol is None else [_PROTOCOL]))
        types |= dict.fromkeys(labels, pa.dictionary(pa.int32(), pa.string()))
        try:
            reader = csv.open_csv(
                stream,
                # Line numbers are known only without threads, and only needed where a bad row stops the reading.
                read_options=csv.ReadOptions(
                    use_threads=not self.strict, block_size=self.block_bytes, skip_rows=int(header), column_names=names
                ),
                parse_options=csv.ParseOptions(delimiter=delimiter, invalid_row_handler=skip),
                convert_options=csv.ConvertOptions(include_columns=self._required, column_types=types),
            )
            for batch in reader:
                yield batch, lines
                lines.first += len(batch)
            if self.strict and lines.broken:
                raise FormatError(lines.broken[0][1])
        except FormatError:
            raise
        except _UNREADABLE as error:
            raise FormatError(f"{where} cannot be read as CSV: {error}") from None

    def _clean(self, batch: pa.RecordBatch, where: str, lines: Lines) -> pa.RecordBatch:
        """Keep the rows of the protocol that have both names and a time; count the others."""
        self.counts.rows += len(batch)
        time, good = self._seconds(flow_files.plain(batch.column(self.columns.time)), where, lines)
        output = {"time": pa.array(time)}
        for side, name in (("source", self.columns.source), ("destination", self.columns.destination)):
            output[side] = flow_files.as_dictionary(batch.column(name), f"{where}: the column {name!r}")
            good &= flow_files.rows_where(lambda word: bool(word.strip()), output[side])
        if self.columns.weight is not None:
            weights = flow_files.plain(batch.column(self.columns.weight))
            weight, finite = flow_files.as_numbers(weights, f"{where}: the column {self.columns.weight!r}")
            good &= finite & (weight >= 0)
            output["weight"] = pa.array(weight)
        self._count_bad(batch, good, where, lines)
        flows = pa.RecordBatch.from_pydict(output)
        keep = good
        if self.protocol is not None:
            protocols = flow_files.as_dictionary(batch.column(_PROTOCOL), f"{where}: the column {_PROTOCOL!r}")
            keep = good & flow_files.rows_where(self._is_wanted, protocols)
        if not keep.all():
            flows = flows.filter(pa.array(keep))
        self.counts.filtered += int(good.sum()) - len(flows)
        self.counts.kept += len(flows)
        return flow_files.with_places(flows, where, lines, keep)

    def _is_wanted(self, protocol: str) -> bool:
        return flow_files.protocol_number(protocol.strip()) == self.protocol

    def _count_bad(self, batch: pa.RecordBatch, good: BoolArray, where: str, lines: Lines) -> None:
        """Count the rows that are not good; raise an error at the first one if the reading is strict."""
        if not good.all():
            bad = np.flatnonzero(~good)
            first = int(bad[0])
            row = ",".join(flow_files.shown(batch.column(name)[first])[:_SHOWN] for name in self._required)
            problem = f"{lines.place(where, first)}: {row}"
            self.counts.add_bad(problem, len(bad))
            if self.strict:
                raise FormatError(min([(lines.of(first), problem), *lines.broken])[1])
        elif self.strict and lines.broken:
            raise FormatError(lines.broken[0][1])

    def _seconds(self, column: pa.Array, where: str, lines: Lines) -> tuple[Float64Array, BoolArray]:
        """Return times in seconds, and which of them could be read; the first time decides the format."""
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            return flow_files.since_1970(column), ~column.is_null().to_numpy(zero_copy_only=False)
        if not pa.types.is_string(column.type):
            return flow_files.as_numbers(column, f"{where}: the column {self.columns.time!r}")
        kinds = flow_files.TIME_SHAPES
        if self._time_kind is None:
            self._time_kind = next((kind for kind in kinds if flow_files.matches(column, kind).any()), None)
        time, good = np.zeros(len(column)), np.zeros(len(column), dtype=bool)
        if self._time_kind is None:
            return time, good
        try:
            return flow_files.parse_times(column, self._time_kind), ~good
        except (pa.ArrowInvalid, ValueError):
            pass  # some rows are not times of this kind; they are sorted out one by one below
        for other in kinds:
            mixed = np.flatnonzero(flow_files.matches(column, other))
            if other != self._time_kind and len(mixed):
                raise FormatError(
                    f"mixed time formats: the times are {self._time_kind}, but near {lines.unit} "
                    f"{lines.of(int(mixed[0]))} of {where} there is {column[int(mixed[0])].as_py()!r}, one of {other}. "
                    "Convert one to the other."
                )
        for row in np.flatnonzero(flow_files.matches(column, self._time_kind)).tolist():
            with contextlib.suppress(pa.ArrowInvalid, ValueError):  # the 31st of February has the right shape
                time[row] = flow_files.parse_times(column.slice(row, 1), self._time_kind)[0]
                good[row] = True
        return time, good


def read_flows(
    inputs: Input | Sequence[Input],
    columns: FlowColumns | None = None,
    *,
    protocol: int | str | None = None,
    strict: bool = False,
    block_bytes: int = 1 << 24,
) -> Flows:
    r"""Read flows from CSV or Parquet files, lazily and in batches; ``.counts`` of the result counts the rows.

    Parameters
    ----------
    inputs : path, binary file object, or a sequence of them
        In order of time. ``.gz`` and ``.bz2`` are decompressed while they are read; ``.parquet`` and ``.pq`` are
        Parquet.
    columns : FlowColumns, optional
        Which columns contain the source, the destination, the time and the weight; by default those of the LANL
        netflow records, whose files have no header.
    protocol : int or {"tcp", "udp", "icmp"}, optional
        Keep only the rows with this value in the column ``protocol``.
    strict : bool
        Stop at the first bad row with its line number instead of counting it.
    block_bytes : int
        How much of a CSV file is parsed at a time.

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO(b"time,a,b\n0,x,y\n5,x,z\n7,y\n")
    >>> flows = read_flows(file, FlowColumns(source="a", destination="b"))
    >>> [batch.column("time").to_pylist() for batch in flows], flows.counts.bad
    ([[0.0, 5.0]], 1)
    """
    items = list(inputs) if isinstance(inputs, Sequence) and not isinstance(inputs, str) else [inputs]
    if not items:
        raise InputError("no flow files were given.")
    for item in items:
        if isinstance(item, str | os.PathLike) and not Path(item).is_file():
            raise InputError(f"there is no file {item}.")
    number = flow_files.protocol_number(protocol) if isinstance(protocol, str) else protocol
    if number == -1:
        raise InputError(f"unknown protocol {protocol!r}: give tcp, udp, icmp or a number.")
    return Flows(items, columns or FlowColumns(), number, strict, block_bytes)
