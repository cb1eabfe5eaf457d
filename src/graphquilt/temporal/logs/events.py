"""Read what happened on hosts (processes, files, ports) as tokens: batches of (time, host, token).

A token is a short word such as ``proc:cmd.exe``, ``event:FILE/WRITE`` or ``port:445``. One event gives several tokens.
"""

from __future__ import annotations

import ast
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from graphquilt.arrays import BoolArray
from graphquilt.errors import FormatError, InputError
from graphquilt.temporal.logs import columns as col
from graphquilt.temporal.logs.blocks import Input, Log, list_files, list_inputs, open_log, read_rows
from graphquilt.temporal.logs.columns import RowCounts
from graphquilt.temporal.logs.formats import ECAR, Layout, sample_records
from graphquilt.temporal.logs.rows import Rows
from graphquilt.times import Clock, clock_of, read_times

_LONGEST_LITERAL = 1 << 16  # letters
_DEEPEST = 20  # brackets inside each other
_LONGEST_TOKEN = 100  # letters
_FOLDERS = 2  # levels of a path that a token names


class _Kind(NamedTuple):
    """A kind of event log: its layout (``source`` is the host), the columns it needs, and the tokens of its rows."""

    layout: Layout
    columns: tuple[str, ...]
    tokens: Callable[..., Iterator[str]]


@dataclass(eq=False)
class Events:
    """An iterable of record batches with ``time`` (float64, seconds), ``host`` and ``token`` (dictionaries of text).

    ``counts`` are those of the latest pass; ``kept`` counts events, each of which gives several rows.
    """

    inputs: Sequence[Input]
    clock: Clock
    strict: bool
    block_bytes: int
    counts: RowCounts = field(init=False, default_factory=RowCounts)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self.counts = RowCounts()
        for item in self.inputs:
            if not (isinstance(item, str | os.PathLike) and Path(item).is_dir()):
                yield from self._read(item, skip=False)
                continue
            n_skipped, files = len(self.counts.skipped_files), list_files(Path(item))
            for file in files:
                yield from self._read(file, skip=True)
            if len(self.counts.skipped_files) - n_skipped == len(files):
                raise InputError(f"none of the {len(files)} files in {item} is a log of events that can be read.")
        self.counts.finish("events")

    def _read(self, item: Input, *, skip: bool) -> Iterator[pa.RecordBatch]:
        log = open_log(item)
        if log.stream is not None and not log.head.strip():
            return
        try:
            kind = _recognise(log)
        except FormatError as error:
            if not skip:
                raise
            self.counts.skip_file(log.where, error, level=logging.INFO)
            return
        types = dict.fromkeys((kind.layout.time, *kind.columns), pa.string()) | {kind.layout.time: pa.float64()}
        clock = self.clock
        for rows in read_rows(log, kind.layout, types, block_bytes=self.block_bytes):
            batch, clock = self._tokens(rows, kind, log.where, clock)
            yield batch

    def _tokens(self, rows: Rows, kind: _Kind, where: str, clock: Clock) -> tuple[pa.RecordBatch, Clock]:
        """Return one row per token; events without a time, a host or readable arguments are bad."""
        batch, lines, broken = rows
        time, is_time, clock = read_times(
            col.to_plain(batch.column(kind.layout.time)),
            clock,
            label=f"{where}: the column {kind.layout.time!r}",
            place=lambda row: f"{where} line {lines[row]}",
        )
        cells = {name: col.to_plain(batch.column(name)).to_pylist() for name in kind.columns}
        hosts = cells[kind.layout.source]
        causes: dict[str, BoolArray] = {
            "no readable time": ~is_time,
            "no host": np.array([not (host and str(host).strip()) for host in hosts], dtype=bool),
            "arguments that are not a literal": np.zeros(len(batch), dtype=bool),
        }
        places: list[int] = []
        tokens: list[str] = []
        for k in np.flatnonzero(is_time & ~causes["no host"]).tolist():
            try:
                words = [word[:_LONGEST_TOKEN] for word in kind.tokens(*(cells[name][k] for name in kind.columns))]
            except FormatError:
                causes["arguments that are not a literal"][k] = True
                continue
            tokens += words
            places += [k] * len(words)
        shown = [kind.layout.time, kind.layout.source]
        good = col.count_bad(rows, causes, shown, where=f"{where} line", counts=self.counts, strict=self.strict)
        self.counts.rows += len(batch) + len(broken)
        self.counts.kept += int(good.sum())
        rows_of = np.array(places, dtype=np.int64)
        names = pa.array([str(host) if host is not None else "" for host in hosts], pa.string()).dictionary_encode()
        output = {
            "time": pa.array(time[rows_of]),
            "host": names.take(pa.array(rows_of)),
            "token": pa.array(tokens, pa.string()).dictionary_encode(),
        }
        return col.with_places(pa.RecordBatch.from_pydict(output), where, "line", lines[rows_of]), clock


def read_events(
    inputs: Input | Sequence[Input], *, time_format: str | None = None, strict: bool = False, block_bytes: int = 1 << 22
) -> Events:
    r"""Read host events as tokens, lazily and in batches of (time, host, token).

    Recognised by content: BETH process events (CSV with 16 or 13 columns), OpTC eCAR events (JSON lines), and LANL 2015
    process events (five columns without header). Inputs, ``time_format`` and ``strict`` are as in :func:`read_flows`;
    BETH's times are seconds since the host was started.

    The tokens are ``event:`` and what happened, ``proc:`` and the program, ``exec:`` and a program that was started,
    ``path:`` and the upper folders of a file, and ``port:`` and the port of a connection.

    Examples
    --------
    >>> import io
    >>> row = b'7,U1@DOM1,C1,P9,Start\n'
    >>> [batch.to_pylist()[-1] for batch in read_events(io.BytesIO(row))]
    [{'time': 7.0, 'host': 'C1', 'token': 'proc:P9'}]
    """
    return Events(list_inputs(inputs, "event"), clock_of(time_format), strict, block_bytes)


def parse_literal(text: str) -> object:
    """Return the value of a Python literal of bounded size and depth; nothing is evaluated."""
    if len(text) > _LONGEST_LITERAL:
        raise FormatError(f"a literal of {len(text)} letters is longer than {_LONGEST_LITERAL}.")
    depth = 0
    for bracket in re.findall(r"[\[\](){}]", text):  # those inside of strings count too: the bound is only stricter
        depth += 1 if bracket in "[({" else -1
        if depth > _DEEPEST:
            raise FormatError(f"a literal has more than {_DEEPEST} brackets inside each other.")
    if re.search(r"[-+~]{20}|\d{500}", text):
        raise FormatError("a literal has too many signs or digits in a row.")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise FormatError(f"this is not a Python literal: {error}") from None


def _recognise(log: Log) -> _Kind:
    """Return the kind of an event log."""
    text = log.head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    line = text.lstrip().split("\n", 1)[0].strip()
    if line.startswith("{"):
        keys = {key for record in sample_records(log.head) for key in record}
        if {"object", "action", "hostname", "timestamp"} <= keys:
            columns = ("hostname", "object", "action", "properties.image_path", "properties.dest_port")
            layout = Layout(ECAR, "timestamp", "hostname", "", delimiter="")
            return _Kind(layout, (*columns, "properties.file_path"), _ecar_tokens)
    names = tuple(part.strip().strip('"') for part in line.split(","))
    if {"timestamp", "hostName", "processName", "eventName", "args"} <= set(names):
        layout = Layout("BETH process events", "timestamp", "hostName", "", names=names, skipped=1)
        return _Kind(layout, ("hostName", "processName", "eventName", "args"), _beth_tokens)
    if re.fullmatch(r"\d+,[^,]*@[^,]*,[^,]+,[^,]+,(Start|End)", line):
        names = ("time", "user", "host", "process", "action")
        layout = Layout("LANL 2015 process events", "time", "host", "", names=names)
        return _Kind(layout, ("host", "process", "action"), _lanl_tokens)
    raise FormatError(
        f"{log.where} is not a log of events that graphquilt recognises (BETH process events, OpTC eCAR, LANL 2015 "
        f"processes); it begins with {line[:100]!r}."
    )


def _ecar_tokens(
    _host: str, kind: str | None, action: str | None, image: str | None, port: object, path: str | None
) -> Iterator[str]:
    yield f"event:{kind}/{action}"
    if image:
        yield f"proc:{_program_name(image)}"
    if kind == "PROCESS" and action == "CREATE" and image:
        yield f"exec:{_program_name(image)}"
    if kind == "FLOW" and port not in (None, ""):
        yield f"port:{port}"
    if path:
        yield f"path:{_upper_folders(path)}"


def _beth_tokens(_host: str, process: str | None, event: str | None, arguments: str | None) -> Iterator[str]:
    yield f"event:{event}"
    if process:
        yield f"proc:{process}"
    yield from _argument_tokens(event or "", arguments or "")


def _lanl_tokens(_host: str, process: str, action: str) -> Iterator[str]:
    yield f"event:PROCESS/{action.upper()}"
    yield f"proc:{process}"


@lru_cache(maxsize=1 << 14)
def _argument_tokens(event: str, text: str) -> tuple[str, ...]:
    """Return the tokens of the arguments of one of BETH's events: paths, started programs and ports."""
    if not text.strip():
        return ()
    tokens = []
    arguments = parse_literal(text)
    for argument in arguments if isinstance(arguments, list) else ():
        if not isinstance(argument, Mapping):
            continue
        name, value = argument.get("name"), argument.get("value")
        if name == "pathname" and isinstance(value, str) and value:
            is_start = event in ("execve", "execveat", "security_bprm_check")
            tokens.append(f"exec:{_program_name(value)}" if is_start else f"path:{_upper_folders(value)}")
        if isinstance(value, str) and value.startswith("{") and "sin" in value:
            value = parse_literal(value)
        port = value.get("sin_port", value.get("sin6_port")) if isinstance(value, Mapping) else None
        if isinstance(port, int | str) and str(port).strip():
            tokens.append(f"port:{port}")
    return tuple(tokens)


def _program_name(path: str) -> str:
    """Return the name of a program without its folder, in lower case, as Windows compares them."""
    return re.split(r"[\\/]", path.rstrip("\\/"))[-1].lower()


def _upper_folders(path: str) -> str:
    """Return the upper folders of a path, without the volume of Windows, and with # for numbers."""
    parts = [part for part in re.split(r"[\\/]", path.lower()) if part]
    if parts[:1] == ["device"]:
        parts = parts[2:]
    if parts and re.fullmatch(r"[a-z]:", parts[0]):
        parts = parts[1:]
    folders = [re.sub(r"\d+", "#", part) if part.isdigit() else part for part in parts[:-1]]
    return "/" + "/".join(folders[:_FOLDERS])
