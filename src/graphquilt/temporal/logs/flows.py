"""Read flow records from logs of any size, one batch at a time.

A flow is "source talked to destination at time t". The kind of each log is recognised by its content. Only the columns
that are needed are converted, and only a few blocks are in memory at once.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from graphquilt.arrays import BoolArray, Int64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.temporal.logs import flow_files
from graphquilt.temporal.logs.blocks import (
    UNREADABLE,
    ArchiveError,
    Block,
    Input,
    blocks_of,
    listed_files,
    name_of,
    open_log,
)
from graphquilt.temporal.logs.ecar import Twins, ecar_flows
from graphquilt.temporal.logs.flow_files import FlowCounts
from graphquilt.temporal.logs.formats import ECAR, FlowColumns, Layout, named_layout, recognise, sample_records
from graphquilt.temporal.logs.rows import Rows, json_schema, parse_json, parse_text
from graphquilt.temporal.logs.times import Clock, as_numbers, clock_of, read_times

__all__ = ["Flows", "read_flows"]

_LEFT = ("<-", "<?", "<-?")  # the arrows of Argus for flows that the second address began
_WORDS = pa.dictionary(pa.int32(), pa.string())

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FlowOptions:
    """How logs are read; the fields are the options of :func:`read_flows`."""

    columns: FlowColumns
    protocol: int | None
    clock: Clock
    addresses: Mapping[str, str]
    labels: Mapping[str, str] | None
    strict: bool
    skip_others: bool
    block_bytes: int


class _Pass:
    """What one pass over the logs has learnt so far."""

    def __init__(self, clock: Clock) -> None:
        self.counts = FlowCounts()
        self.clock = clock
        self.twins = Twins()

    def leave_out(self, where: str, error: FormatError, *, skip: bool) -> None:
        """Count a file that is no log of flows and say why, or raise its error."""
        if not skip:
            raise error
        self.counts.skipped_files.append(where)
        _log.warning("%s is left out: %s", where, error)


@dataclass(eq=False)
class Flows:
    """An iterable of record batches; iterate again to read the logs again.

    Each batch is a ``pyarrow.RecordBatch`` with ``time`` (float64, seconds), ``source`` and ``destination`` (text, or
    dictionaries of text from Parquet). Where the log has ports there is ``port`` (int32, that of the
    destination; -1 is none); if a column of weights was named ``weight`` (float64); and if labels were asked for
    ``label`` (a dictionary of text).

    Attributes
    ----------
    inputs : sequence of paths and binary files
    options : FlowOptions
    counts : FlowCounts
        The counts of the latest pass.
    """

    inputs: Sequence[Input]
    options: FlowOptions
    counts: FlowCounts = field(init=False, default_factory=FlowCounts)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        state = _Pass(self.options.clock)
        self.counts = state.counts
        previous: tuple[str, float] | None = None
        for item, is_listed in self._ordered(state.counts):
            where = name_of(item)
            is_first = True
            for flows in self._read(item, where, state, skip=is_listed or self.options.skip_others):
                if is_first and len(flows):
                    is_first = False
                    # A connection is logged when it ends, so that a few rows may lie far before the others.
                    start = float(np.median(flows.column(0).to_numpy()))
                    if previous is not None and start < previous[1]:
                        raise InputError(
                            f"the files are not in order of time: {where} starts at {start:.0f} s, "
                            f"{previous[1] - start:.0f} s before the start of {previous[0]}. Sort the files by time."
                        )
                    previous = (where, start)
                yield flows
        state.counts.check()
        if state.counts.bad:
            message = "%d of %d rows could not be read and were left out: %s"
            _log.warning(message, state.counts.bad, state.counts.rows, state.counts.in_words())

    def _ordered(self, counts: FlowCounts) -> Iterator[tuple[Input, bool]]:
        """Give the inputs, each with whether it was listed in a folder; the logs of a folder in order of time."""
        for item in self.inputs:
            if not (isinstance(item, str | os.PathLike) and Path(item).is_dir()):
                yield item, False
                continue
            starts = {path: self._start(path, counts) for path in listed_files(Path(item))}
            logs = sorted((start, path) for path, start in starts.items() if start is not None)
            if not logs:
                raise InputError(f"none of the {len(starts)} files in {item} is a log of flows that can be read.")
            yield from ((path, True) for _, path in logs)

    def _start(self, path: Path, counts: FlowCounts) -> float | None:
        """Return the time of the first rows of a log; None if it is none."""
        probe = _Pass(self.options.clock)
        try:
            rows = self._read(path, str(path), probe, skip=False, block_bytes=1 << 16)
            first = next((flows for flows in rows if len(flows)), None)
        except FormatError as error:
            counts.skipped_files.append(str(path))
            _log.info("%s is left out: %s", path, error)
            return None
        return -np.inf if first is None else float(np.median(first.column(0).to_numpy()))

    def _read(
        self, item: Input, where: str, state: _Pass, *, skip: bool, block_bytes: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Give the flows of one log; ``skip`` leaves out what is no log of flows."""
        try:
            stream, head = open_log(item, where)
        except ArchiveError as error:
            state.leave_out(where, error, skip=skip)
            return
        if head.startswith(b"PAR1") and isinstance(item, str | os.PathLike):
            yield from self._parquet(item, where, state)
            return
        if not head.strip():
            return
        try:
            layout = recognise(head, self.options.columns, where=where)
        except FormatError as error:
            state.leave_out(where, error, skip=skip)
            return
        parse = self._parser(layout, head, where)
        if state.clock == Clock() and layout.time_format is not None:
            state.clock = clock_of(layout.time_format)
        blocks = blocks_of(stream, head, block_bytes or self.options.block_bytes, where=where, skipped=layout.skipped)
        is_file = isinstance(item, str | os.PathLike) and block_bytes is None
        for rows in _ahead(blocks, parse) if is_file else map(parse, blocks):
            yield self._clean(rows, layout, where, state, "line")

    def _parser(self, layout: Layout, head: bytes, where: str) -> Callable[[Block], Rows]:
        """Return the function that parses a block of a log."""
        names = self._needed(layout, where)
        if layout.is_json:
            schema = json_schema(sample_records(head.decode("utf-8", "replace").split("\n")), names, number=layout.time)
            return lambda block: parse_json(block, names, schema)
        texts = {layout.time, layout.weight, layout.source, layout.destination}
        types = {name: pa.string() if name in texts else _WORDS for name in names}
        if layout.time_format is None and self.options.clock.pattern is None:
            types[layout.time] = pa.float64()  # read as text where it is no number

        def parse(block: Block) -> Rows:
            try:
                return parse_text(block, layout, types)
            except FormatError as error:
                raise FormatError(f"{where}: {error}") from None

        return parse

    def _needed(self, layout: Layout, where: str) -> list[str]:
        """Return the columns of a log that are read."""
        names = [layout.time, layout.source, layout.destination, layout.port, layout.weight, layout.direction]
        if self.options.protocol is not None:
            if layout.protocol is None:
                raise FormatError(
                    f"{where} has no column 'protocol' (or proto, pr), so that no protocol can be chosen; its columns "
                    f"are {', '.join(layout.names)[:400]}."
                )
            names.append(layout.protocol)
        elif layout.kind == ECAR:
            names.append(layout.protocol)
        if self.options.labels is not None:
            names.append(layout.label)
        names += [*layout.extras, *(name for name, _ in layout.wanted)]
        return [name for name in dict.fromkeys(names) if name is not None]

    def _parquet(self, item: str | os.PathLike[str], where: str, state: _Pass) -> Iterator[pa.RecordBatch]:
        first = 1
        try:
            schema = pq.read_schema(item)
            layout = named_layout(schema.names, self.options.columns, where=where, kind="Parquet")
            names = self._needed(layout, where)
            for name in names:
                if pa.types.is_nested(kind := schema.field(name).type):
                    raise FormatError(f"{where}: the column {name!r} is of type {kind}, not one value per row.")
            words = [layout.source, layout.destination]
            with pq.ParquetFile(item, read_dictionary=words, page_checksum_verification=True) as file:
                for batch in file.iter_batches(batch_size=max(1, self.options.block_bytes // 64), columns=names):
                    batch.validate(full=True)
                    lines = np.arange(first, first + len(batch))
                    yield self._clean(Rows(batch, lines, []), layout, where, state, "row")
                    first += len(batch)
        except InputError:
            raise
        except UNREADABLE as error:
            after = f" after row {first - 1}" if first > 1 else ""
            raise FormatError(
                f"{where} cannot be read as Parquet{after}: {error}. It may be damaged; write or copy it again."
            ) from None

    def _clean(self, rows: Rows, layout: Layout, where: str, state: _Pass, unit: str) -> pa.RecordBatch:
        """Keep the rows of the protocol that have both names and a time; count the others."""
        batch, lines = self._flows_only(rows, layout, state)
        column = flow_files.plain(batch.column(layout.time))
        if "timestamp" in layout.extras:  # Suricata: a flow without a start has the time of its event
            column = pc.coalesce(column, batch.column("timestamp"))
        time, good, state.clock = read_times(
            column,
            state.clock,
            label=f"{where}: the column {layout.time!r}",
            place=lambda row: f"{where} {unit} {lines[row]}",
        )
        causes = {"no readable time": ~good}
        output = {"time": pa.array(time)}
        ends = [
            flow_files.as_names(batch.column(name), f"{where}: the column {name!r}")
            for name in (layout.source, layout.destination)
        ]
        if layout.direction is not None:
            ends = _in_order(ends, batch.column(layout.direction))
        for side, words in zip(("source", "destination"), ends, strict=True):
            causes[f"no {side}"] = flow_files.rows_without_name(words)
            output[side] = flow_files.renamed(words, self.options.addresses) if self.options.addresses else words
        if layout.port is not None:
            output["port"] = pa.array(flow_files.ports_of(batch.column(layout.port), f"{where}: {layout.port!r}"))
        if layout.weight is not None:
            weights = flow_files.plain(batch.column(layout.weight))
            weight, finite = as_numbers(weights, f"{where}: the column {layout.weight!r}")
            causes["no weight of 0 or more"] = ~(finite & (weight >= 0))
            output["weight"] = pa.array(weight)
        if self.options.labels is not None:
            label = "label" if layout.kind == ECAR else layout.label
            words = pa.nulls(len(batch), pa.string()) if label is None else batch.column(label)
            output["label"] = flow_files.as_dictionary(words, f"{where}: the column {label!r}")
        good = self._count_bad(Rows(batch, lines, rows.broken), causes, layout, f"{where} {unit}", state.counts)
        keep = good
        if self.options.protocol is not None and layout.protocol is not None:
            words = flow_files.as_dictionary(batch.column(layout.protocol), f"{where}: the column {layout.protocol!r}")
            keep = good & flow_files.rows_where(self._is_wanted, words)
        flows = pa.RecordBatch.from_pydict(output)
        if not keep.all():
            flows, lines = flows.filter(pa.array(keep)), lines[keep]
        state.counts.filtered += int(good.sum()) - len(flows)
        state.counts.kept += len(flows)
        return flow_files.with_places(flows, where, unit, lines)

    def _flows_only(self, rows: Rows, layout: Layout, state: _Pass) -> tuple[pa.RecordBatch, Int64Array]:
        """Return the rows that are flows, each once, with their lines; the others are counted."""
        batch, lines, _ = rows
        state.counts.rows += len(batch) + len(rows.broken)
        n_all = len(batch)
        for name, values in layout.wanted:
            is_flow = pc.fill_null(pc.is_in(flow_files.plain(batch.column(name)), pa.array(sorted(values))), False)
            batch, lines = batch.filter(is_flow), lines[is_flow.to_numpy(zero_copy_only=False)]
        if layout.kind == ECAR:
            batch, first = ecar_flows(batch, state.twins, self.options.addresses, self.options.labels or {})
            batch, lines = batch.filter(pa.array(first)), lines[first]
        state.counts.other += n_all - len(batch)
        return batch, lines

    def _is_wanted(self, protocol: str) -> bool:
        return flow_files.protocol_number(protocol.strip()) == self.options.protocol

    def _count_bad(
        self, rows: Rows, causes: Mapping[str, BoolArray], layout: Layout, where: str, counts: FlowCounts
    ) -> BoolArray:
        """Count the rows that are not good, and return the others; raise an error at the first one if strict."""
        names = [name for name in (layout.time, layout.source, layout.destination, layout.weight) if name is not None]
        bad = flow_files.count_bad(rows, causes, names, where, counts)
        if self.options.strict and bad:
            raise FormatError(flow_files.first_bad(bad, where))
        return np.asarray(~np.any(list(causes.values()), axis=0))


def _ahead(blocks: Iterator[Block], parse: Callable[[Block], Rows]) -> Iterator[Rows]:
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


def _in_order(ends: list[pa.Array], direction: pa.Array) -> list[pa.Array]:
    """Return the ends of each flow; an arrow to the left says that the second address began it."""
    arrows = flow_files.as_dictionary(direction, "the direction")
    is_reversed = pa.array(flow_files.rows_where(lambda arrow: arrow.strip() in _LEFT, arrows))
    a, b = map(flow_files.plain, ends)
    return [pc.if_else(is_reversed, *pair) for pair in ((b, a), (a, b))]


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
    columns : FlowColumns, optional
        Which columns contain the source, the destination, the time and the weight, where that is not recognised.
    protocol : int or {"tcp", "udp", "icmp"}, optional
        Keep only the rows of this protocol.
    time_format : str, optional
        ``"iso"``, ``"epoch-s"``, ``"epoch-ms"``, ``"epoch-us"``, ``"epoch-ns"`` or a pattern of ``strptime``; by
        default the first time decides. Times without a zone are in UTC.
    addresses : mapping or path, optional
        The names of hosts by address: a JSON object, or a CSV file of address and host.
    labels : bool, mapping or path
        True gives the labels in the log. For OpTC: labels by the ids of events, such as a CSV file with
        ``id`` and ``label``.
    strict : bool
        Stop at the first bad row with its line number instead of counting it.
    skip_others : bool
        Leave out files that are no logs of flows, as in folders, instead of raising an error.
    block_bytes : int
        How much of a log is parsed at a time.

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
        if isinstance(item, str | os.PathLike) and not (Path(item).is_file() or Path(item).is_dir()):
            raise InputError(f"there is no file {item}.")
    number = flow_files.protocol_number(protocol) if isinstance(protocol, str) else protocol
    if number == -1:
        raise InputError(f"unknown protocol {protocol!r}: give tcp, udp, icmp or a number.")
    names = {} if addresses is None else flow_files.read_words(addresses, key="address", value="host")
    marks = (
        None if labels is False else {} if labels is True else flow_files.read_words(labels, key="id", value="label")
    )
    options = FlowOptions(
        columns or FlowColumns(), number, clock_of(time_format), names, marks, strict, skip_others, block_bytes
    )
    return Flows(items, options)
