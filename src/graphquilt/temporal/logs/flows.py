"""Read flow records from logs of any size, one batch at a time.

A flow is "source talked to destination at time t". The kind of each log is recognised by its content. Only the columns
that are needed are converted, and only a few blocks are in memory at once.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from graphquilt.arrays import BoolArray, Int64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.temporal.logs import blocks
from graphquilt.temporal.logs import columns as col
from graphquilt.temporal.logs.blocks import Input
from graphquilt.temporal.logs.columns import RowCounts
from graphquilt.temporal.logs.formats import ECAR, FlowColumns, Layout, named_layout, recognise
from graphquilt.temporal.logs.rows import Rows
from graphquilt.times import Clock, as_numbers, clock_of, read_times

_LEFT = ("<-", "<?", "<-?")  # the arrows of Argus for flows that the second address began
_WORDS = pa.dictionary(pa.int32(), pa.string())
_PROBED = 1 << 16  # bytes of a log that are read to find when it starts
_FIRST_DATE = 1e8  # seconds since 1970, in 1973
_REMEMBERED = 1 << 18  # flows of OpTC whose second report may still come


class _FlowReports:
    """The latest flows that a host of OpTC has reported; the host at the other end reports each of them again."""

    def __init__(self) -> None:
        self._reports: OrderedDict[tuple[str | None, ...], tuple[str, str | None]] = OrderedDict()

    def is_second(self, ends: tuple[str | None, ...], direction: str, label: str | None) -> bool:
        """Return whether the other end has reported this flow before; a report with another label is not dropped."""
        known = self._reports.pop(ends, None)
        if known is not None and known[0] != direction and label in (None, known[1]):
            return True
        self._reports[ends] = direction, label
        if len(self._reports) > _REMEMBERED:
            self._reports.popitem(last=False)
        return False


@dataclass
class _Pass:
    """What one pass over the logs has learnt so far."""

    clock: Clock
    counts: RowCounts = field(default_factory=RowCounts)
    reports: _FlowReports = field(default_factory=_FlowReports)


@dataclass(eq=False)
class Flows:
    """An iterable of record batches; iterate again to read the logs again. ``counts`` are those of the latest pass.

    Each batch is a ``pyarrow.RecordBatch`` with ``time`` (float64, seconds), ``source`` and ``destination`` (text, or
    dictionaries of text from Parquet). It has ``port`` (int32, that of the destination; -1 if unknown) if the log has
    ports, and ``label`` (a dictionary of text) on request. The other attributes are the options of :func:`read_flows`.
    A second look ``with_bytes`` adds ``bytes`` (float64), and does not report again what cannot be read.
    """

    inputs: Sequence[Input]
    columns: FlowColumns
    protocol: int | str | None
    clock: Clock
    addresses: Mapping[str, str]
    labels: Mapping[str, str] | None
    strict: bool
    skip_others: bool
    block_bytes: int
    counts: RowCounts = field(init=False, default_factory=RowCounts)
    with_bytes: bool = False

    @property
    def is_repeatable(self) -> bool:
        """Whether the logs are files, which can be read again."""
        return all(isinstance(item, str | os.PathLike) for item in self.inputs)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        state = _Pass(self.clock, RowCounts(is_quiet=self.with_bytes))
        self.counts = state.counts
        previous: tuple[str, float] | None = None
        for item, is_listed in self._order_inputs(state.counts):
            where, is_first, shift = blocks.name_of(item), True, 0.0
            for flows in self._read(item, state, skip=is_listed or self.skip_others):
                if is_first and len(flows):
                    is_first = False
                    shift = self._shift(_middle_time(flows))
                    start = _middle_time(flows) + shift
                    if previous is not None and start < previous[1]:
                        raise InputError(
                            f"the files are not in order of time: {where} starts at {start:.0f} s, "
                            f"{previous[1] - start:.0f} s before the start of {previous[0]}. Sort the files by time."
                        )
                    previous = (where, start)
                if shift:
                    time = pc.add(flows.column("time"), shift)
                    flows = flows.set_column(0, "time", time)  # noqa: PLW2901
                yield flows
        state.counts.finish("rows")

    def _shift(self, start: float) -> float:
        """Return what is added to the times of a log that starts at this time; only a clock of 1970 is moved."""
        return self.columns.clock if self.columns.clock is not None and start < _FIRST_DATE else 0.0

    def _order_inputs(self, counts: RowCounts) -> Iterator[tuple[Input, bool]]:
        """Give the inputs, each with whether it was listed in a folder; the logs of a folder in order of time."""
        for item in self.inputs:
            if not (isinstance(item, str | os.PathLike) and Path(item).is_dir()):
                yield item, False
                continue
            starts = {path: self._start(path, counts) for path in blocks.list_files(Path(item))}
            logs = sorted((start, path) for path, start in starts.items() if start is not None)
            if logs and logs[0][0] < _FIRST_DATE < logs[-1][0]:  # the clock of a device began in 1970
                for _, path in [log for log in logs if log[0] < _FIRST_DATE]:
                    text = "its times begin in 1970, unlike those of other files: give --clock, or read it by itself."
                    counts.skip_file(str(path), FormatError(text), level=logging.WARNING)
                logs = [log for log in logs if log[0] >= _FIRST_DATE]
            if not logs:
                raise InputError(f"none of the {len(starts)} files in {item} is a log of flows that can be read.")
            yield from ((path, True) for _, path in logs)

    def _start(self, path: Path, counts: RowCounts) -> float | None:
        """Return the time of the first rows of a file; None if it is not a log of flows."""
        try:
            rows = self._read(path, _Pass(self.clock), skip=False, block_bytes=_PROBED, listed=True)
            first = next((flows for flows in rows if len(flows)), None)
        except FormatError as error:
            counts.skip_file(str(path), error, level=logging.INFO)
            return None
        return -np.inf if first is None else _middle_time(first) + self._shift(_middle_time(first))

    def _read(
        self, item: Input, state: _Pass, *, skip: bool, block_bytes: int | None = None, listed: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Give the flows of one log; ``skip`` leaves out what is not a log of flows, and ``listed`` lists of labels."""
        try:
            log = blocks.open_log(item)
        except blocks.ArchiveError as error:
            if not skip:
                raise
            state.counts.skip_file(blocks.name_of(item), error, level=logging.WARNING)
            return
        if log.stream is None:
            yield from self._read_parquet(log.where, state)
            return
        if not log.head.strip():
            return
        try:
            layout = recognise(log.head, self.columns, where=log.where, listed=listed)
        except FormatError as error:
            if not skip:
                raise
            state.counts.skip_file(log.where, error, level=logging.WARNING)
            return
        if state.clock == Clock() and layout.time_format is not None:
            state.clock = clock_of(layout.time_format)
        is_file = isinstance(item, str | os.PathLike) and block_bytes is None
        size = block_bytes or self.block_bytes
        for rows in blocks.read_rows(log, layout, self._types(layout, log.where), block_bytes=size, threaded=is_file):
            yield self._clean(rows, layout, log.where, state, "line")

    def _types(self, layout: Layout, where: str) -> dict[str, pa.DataType]:
        """Return the columns of a log that are read, with their types."""
        names = [layout.time, layout.source, layout.destination, layout.port, layout.direction]
        names += layout.sizes if self.with_bytes else ()
        if self.protocol is not None:
            if layout.protocol is None:
                columns = ", ".join(layout.names)[:400]
                raise FormatError(f"{where} has no column 'protocol' (or proto, pr) to select by; it has {columns}.")
            names.append(layout.protocol)
        elif layout.kind == ECAR:
            names.append(layout.protocol)
        if self.labels is not None:
            names.append(layout.label)
        if self.columns.user is not None:
            if layout.names and self.columns.user not in layout.names:
                columns = ", ".join(layout.names)[:400]
                raise FormatError(f"{where} has no column {self.columns.user!r} of users; its columns are {columns}.")
            names.append(self.columns.user)
        names += [*layout.extras, *(name for name, _ in (*layout.wanted, *layout.unwanted))]
        texts = {layout.time, layout.source, layout.destination}
        types = {name: pa.string() if name in texts else _WORDS for name in names if name is not None}
        if layout.time_format is None and self.clock.pattern is None:
            types[layout.time] = pa.float64()  # read as text where it is not a number
        return types

    def _read_parquet(self, where: str, state: _Pass) -> Iterator[pa.RecordBatch]:
        first = 1
        try:
            schema = pq.read_schema(where)
            layout = named_layout(schema.names, self.columns, where=where, kind="Parquet")
            names = list(self._types(layout, where))
            for name in names:
                if pa.types.is_nested(kind := schema.field(name).type):
                    raise FormatError(f"{where}: the column {name!r} is of type {kind}, not one value per row.")
            words = [layout.source, layout.destination]
            with pq.ParquetFile(where, read_dictionary=words, page_checksum_verification=True) as file:
                for batch in file.iter_batches(batch_size=max(1, self.block_bytes // 64), columns=names):
                    batch.validate(full=True)
                    lines = np.arange(first, first + len(batch))
                    yield self._clean(Rows(batch, lines, []), layout, where, state, "row")
                    first += len(batch)
        except InputError:
            raise
        except blocks.UNREADABLE as error:
            after = f" after row {first - 1}" if first > 1 else ""
            raise FormatError(
                f"{where} cannot be read as Parquet{after}: {error}. It may be damaged; write or copy it again."
            ) from None

    def _clean(self, rows: Rows, layout: Layout, where: str, state: _Pass, unit: str) -> pa.RecordBatch:
        """Keep the rows of the protocol that have both names and a time; count the others."""
        counts = state.counts
        batch, lines = self._flows_only(rows, layout, state)
        column = col.to_plain(batch.column(layout.time))
        if "timestamp" in layout.extras:  # Suricata: a flow without a start has the time of its event
            column = pc.coalesce(column, batch.column("timestamp"))
        time, is_time, state.clock = read_times(
            column,
            state.clock,
            label=f"{where}: the column {layout.time!r}",
            place=lambda row: f"{where} {unit} {lines[row]}",
        )
        causes = {"no readable time": ~is_time}
        output = {"time": pa.array(time)}
        ends = [batch.column(name) for name in (layout.source, layout.destination)]
        for k, name in enumerate((layout.source, layout.destination)):
            if not pa.types.is_string(ends[k].type):
                ends[k] = col.as_dictionary(ends[k], f"{where}: the column {name!r}")
        if layout.direction is not None:
            arrows = col.as_dictionary(batch.column(layout.direction), "the direction")
            is_reversed = pa.array(col.rows_where(lambda arrow: arrow.strip() in _LEFT, arrows))
            a, b = map(col.to_plain, ends)
            ends = [pc.if_else(is_reversed, *pair) for pair in ((b, a), (a, b))]  # the second address began such a flow
        for side, words in zip(("source", "destination"), ends, strict=True):
            causes[f"no {side}"] = col.rows_without_name(words)
            output[side] = words
            if self.addresses:
                coded = col.as_dictionary(words, "a column")
                names = [self.addresses.get(text, text) for text in coded.dictionary.to_pylist()]
                output[side] = pa.array(names, pa.string()).take(coded.indices)
        if layout.port is not None:
            output["port"] = pa.array(col.ports_of(batch.column(layout.port), f"{where}: {layout.port!r}"))
        if self.with_bytes and layout.sizes:
            sizes = [as_numbers(col.to_plain(batch.column(name)), where) for name in layout.sizes]
            output["bytes"] = pa.array(sum(np.where(known, size, 0.0) for size, known in sizes))
        if self.labels is not None:
            label = "label" if layout.kind == ECAR else layout.label
            words = pa.nulls(len(batch), pa.string()) if label is None else batch.column(label)
            output["label"] = col.as_dictionary(words, f"{where}: the column {label!r}")
        shown = [name for name in (layout.time, layout.source, layout.destination) if name is not None]
        flow_rows = Rows(batch, lines, rows.broken)
        good = col.count_bad(flow_rows, causes, shown, where=f"{where} {unit}", counts=counts, strict=self.strict)
        keep = good
        if self.protocol is not None and layout.protocol is not None:
            words = col.as_dictionary(batch.column(layout.protocol), f"{where}: the column {layout.protocol!r}")
            number = col.protocol_number(str(self.protocol))
            keep = good & col.rows_where(lambda word: col.protocol_number(word.strip()) == number, words)
        flows = pa.RecordBatch.from_pydict(output)
        users = None if self.columns.user is None else batch.column(self.columns.user)
        if not keep.all():
            flows, lines = flows.filter(pa.array(keep)), lines[keep]
        counts.filtered += int(good.sum()) - len(flows)
        counts.kept += len(flows)
        if users is not None:
            flows, lines = _add_users(flows, lines, users.filter(pa.array(keep)))
        return col.with_places(flows, where, unit, lines)

    def _flows_only(self, rows: Rows, layout: Layout, state: _Pass) -> tuple[pa.RecordBatch, Int64Array]:
        """Return the rows that are flows, each once, with their lines; the others are counted."""
        batch, lines, _ = rows
        state.counts.rows += len(batch) + len(rows.broken)
        n_all = len(batch)
        for name, values in (*layout.wanted, *layout.unwanted):
            is_flow = pc.fill_null(pc.is_in(col.to_plain(batch.column(name)), pa.array(sorted(values))), False)
            is_flow = pc.invert(is_flow) if (name, values) in layout.unwanted else is_flow
            batch, lines = batch.filter(is_flow), lines[is_flow.to_numpy(zero_copy_only=False)]
        if layout.kind == ECAR:
            batch, first = _ecar_flows(batch, state.reports, self.addresses, self.labels or {})
            batch, lines = batch.filter(pa.array(first)), lines[first]
        state.counts.other += n_all - len(batch)
        return batch, lines


def _add_users(flows: pa.RecordBatch, lines: Int64Array, users: pa.Array) -> tuple[pa.RecordBatch, Int64Array]:
    """Add a flow from the account to the destination for each flow that has an account, after the others."""
    names = col.to_plain(col.as_dictionary(users, "the column of users"))
    rows = np.flatnonzero(~col.rows_without_name(names))
    words = pa.array([f"user:{name}" for name in names.take(pa.array(rows)).to_pylist()], pa.string())
    again = flows.take(pa.array(rows)).set_column(flows.schema.get_field_index("source"), "source", words)
    both = {
        name: pa.concat_arrays([col.to_plain(part.column(name)) for part in (flows, again)])
        for name in flows.schema.names
    }
    return pa.RecordBatch.from_pydict(both), np.concatenate([lines, lines[rows]])


def _middle_time(flows: pa.RecordBatch) -> float:
    """Return the median time: a connection is logged when it ends, and a few rows may lie far before the others."""
    return float(np.median(flows.column(0).to_numpy()))


def _ecar_flows(
    batch: pa.RecordBatch, reports: _FlowReports, addresses: Mapping[str, str], labels: Mapping[str, str]
) -> tuple[pa.RecordBatch, BoolArray]:
    """Return OpTC's FLOW events with the names of their hosts, and which of them are not second reports.

    The reporting host is the source of an outbound flow and the destination of an inbound one. The other end has the
    name that ``addresses`` gives to its address, or the address itself. ``labels`` maps ids of events to labels.
    """
    cells = {name.removeprefix("properties."): batch.column(name).to_pylist() for name in batch.schema.names}
    source, destination, label = list(cells["src_ip"]), list(cells["dest_ip"]), [labels.get(i) for i in cells["id"]]
    ports = zip(cells["src_port"], cells["dest_port"], cells["l4protocol"], strict=True)
    others = [[None if value is None else str(value) for value in row] for row in ports]
    first = np.ones(len(batch), dtype=bool)
    rows = zip(list(source), list(destination), cells["hostname"], cells["direction"], strict=True)
    for k, (a, b, host, direction) in enumerate(rows):
        ends = (a, others[k][0], b, others[k][1], others[k][2])
        if None not in (a, b) and direction in ("inbound", "outbound"):
            first[k] = not reports.is_second(ends, direction, label[k])
        # An address that the map does not know is the reporting host's own at its end of the flow.
        source[k] = addresses.get(a or "", (host if direction == "outbound" else None) or a)
        destination[k] = addresses.get(b or "", (host if direction == "inbound" else None) or b)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns |= {
        "properties.src_ip": pa.array(source, pa.string()),
        "properties.dest_ip": pa.array(destination, pa.string()),
        "label": pa.array(label, pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns), first


def read_flows(
    inputs: Input | Sequence[Input],
    columns: FlowColumns | None = None,
    *,
    protocol: int | str | None = None,
    time_format: str | None = None,
    addresses: str | os.PathLike[str] | Mapping[str, str] | None = None,
    labels: bool | str | os.PathLike[str] | Mapping[str, str] = False,
    strict: bool = False,
    skip_others: bool = False,
    block_bytes: int = 1 << 24,
) -> Flows:
    r"""Read flows from logs, lazily and in batches; ``.counts`` of the result counts the rows.

    The kind of a log is recognised by its content: Zeek conn.log (text or JSON), Argus binetflow, Suricata eve.json,
    nfdump CSV, LANL 2015 and 2017, DARPA 1998, OpTC eCAR, BETH DNS, Parquet, and CSV or JSON lines whose columns have
    usual names or are named. Logs may be packed with gzip, bzip2, zstd, lz4 or zip.

    Parameters
    ----------
    inputs : path, folder, binary file object, or a sequence of them
        Files in order of time. The logs of flows in a folder and below are found, and read in order of time.
    protocol : int or {"tcp", "udp", "icmp"}, optional
        Keep only the rows of this protocol.
    time_format : str, optional
        ``"iso"``, ``"epoch-s"``, ``"epoch-ms"``, ``"epoch-us"``, ``"epoch-ns"`` or a pattern of ``strptime``; by
        default the first time decides. Times without a zone are in UTC.
    addresses : mapping or path, optional
        The names of hosts by address: a JSON object, or a CSV file of address and host.
    labels : bool, mapping or path
        True gives the labels in the log. For OpTC: labels by the ids of events, such as a CSV file of ``id``,
        ``label``.
    strict : bool
        Stop at the first bad row with its line number instead of counting it.
    skip_others : bool
        Leave out files that are not logs of flows, as in folders, instead of raising an error.

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO(b"time,a,b\n0,x,y\n5,x,z\n7,y\n")
    >>> flows = read_flows(file, FlowColumns(source="a", destination="b"))
    >>> [batch.column("time").to_pylist() for batch in flows], flows.counts.bad
    ([[0.0, 5.0]], 1)
    """
    items = blocks.list_inputs(inputs, "flow")
    if protocol is not None and col.protocol_number(str(protocol)) == -1:
        raise InputError(f"unknown protocol {protocol!r}: give tcp, udp, icmp or a number.")
    names = {} if addresses is None else col.read_words(addresses, key="address", value="host")
    marks = None
    if labels is not False:
        marks = {} if labels is True else col.read_words(labels, key="id", value="label")
    clock = clock_of(time_format)
    return Flows(items, columns or FlowColumns(), protocol, clock, names, marks, strict, skip_others, block_bytes)
