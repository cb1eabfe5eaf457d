"""The rows of a log: how many are good, where each comes from, their columns as arrays, and lists of hosts."""

from __future__ import annotations

import csv
import ipaddress
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import translate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphquilt.arrays import BoolArray, Int64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.temporal.logs.rows import Broken, Rows

PROTOCOLS = {"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "gre": 47, "esp": 50, "ipv6-icmp": 58, "icmp6": 58, "sctp": 132}
_LARGEST_PORT = 65_535
_SHOWN = 80  # letters of each field of a bad row
_UNSET = pa.array(["", "-", "(empty)"])  # names that mean no name
_LONGEST_UNSET = 7  # letters
_log = logging.getLogger(__name__)

_REMEDIES = {
    "no readable time": "Say how the times are written with time_format (--time-format), such as %m/%d/%Y-%H:%M.",
    "the wrong number of fields": "Give the names of all columns (--columns), or repair the file.",
}


@dataclass(frozen=True)
class BadRows:
    """How many rows could not be read for one cause, and the first of them with its place."""

    count: int
    first: str


@dataclass
class RowCounts:
    """How many rows one pass over the logs has read so far.

    ``kept`` rows were passed on, ``filtered`` ones have another protocol, ``other`` ones are not flows (other kinds of
    events, and second reports of one flow), and the rest could not be read, by cause. ``skipped_files`` are files of a
    folder that are not logs of this kind.
    """

    rows: int = 0
    kept: int = 0
    filtered: int = 0
    other: int = 0
    causes: dict[str, BadRows] = field(default_factory=dict)
    skipped_files: list[str] = field(default_factory=list)
    is_quiet: bool = False

    @property
    def bad(self) -> int:
        """How many rows could not be read."""
        return sum(cause.count for cause in self.causes.values())

    def add_bad(self, cause: str, example: str, count: int = 1) -> None:
        """Count bad rows of one cause; ``example`` is the first of them with its place."""
        known = self.causes.get(cause, BadRows(0, example))
        self.causes[cause] = BadRows(known.count + count, known.first)

    def facts(self) -> dict[str, object]:
        """Return all counts by name, as a summary has them."""
        return {
            "rows": self.rows,
            "kept_rows": self.kept,
            "filtered_rows": self.filtered,
            "bad_rows": self.bad,
            "bad_causes": {cause: asdict(bad) for cause, bad in self.causes.items()},
            "skipped_files": self.skipped_files,
        }

    def finish(self, unit: str) -> None:
        """Log the bad rows of a pass with their causes; raise a FormatError if no row was good."""
        if not self.bad or self.is_quiet:
            return
        ordered = sorted(self.causes.items(), key=lambda item: -item[1].count)
        words = "; ".join(f"{bad.count} with {cause} (the first is {bad.first})" for cause, bad in ordered)
        if not self.kept and not self.filtered:
            remedy = _REMEDIES.get(ordered[0][0], "Check that this is the right file, and name its columns.")
            raise FormatError(f"none of the {self.bad} rows could be read: {words}. {remedy}")
        _log.warning("%d of %d %s could not be read and were left out: %s", self.bad, self.rows, unit, words)

    def skip_file(self, where: str, error: FormatError, *, level: int) -> None:
        """Count a file that is not a log of this kind, and log why."""
        self.skipped_files.append(where)
        _log.log(logging.DEBUG if self.is_quiet else level, "%s is left out: %s", where, error)


def count_bad(
    rows: Rows,
    causes: Mapping[str, BoolArray],
    shown_columns: Sequence[str],
    *,
    where: str,
    counts: RowCounts,
    strict: bool,
) -> BoolArray:
    """Count the bad rows of a block, each for its first cause, and return which rows are good, (n,)."""
    bad = list(rows.broken)
    for line, cause, text in rows.broken:
        counts.add_bad(cause, f"{where} {line}: {text}")
    is_counted = np.zeros(len(rows.batch), dtype=bool)
    for cause, is_bad in causes.items():
        places = np.flatnonzero(is_bad & ~is_counted)
        if len(places):
            first = int(places[0])
            text = ",".join(_to_text(rows.batch.column(name)[first])[:_SHOWN] for name in shown_columns)
            bad.append(Broken(int(rows.lines[first]), cause, text))
            counts.add_bad(cause, f"{where} {rows.lines[first]}: {text}", len(places))
            is_counted |= is_bad
    if strict and bad:
        line, cause, text = min(bad)
        raise FormatError(f"{where} {line}: {text} ({cause})")
    return ~is_counted


def with_places(flows: pa.RecordBatch, where: str, unit: str, lines: Int64Array) -> pa.RecordBatch:
    """Note in the metadata of ``flows`` from which lines of which file its rows come."""
    metadata = {b"file": os.fsencode(where), b"unit": unit.encode()}
    if len(lines):
        metadata[b"first"] = b"%d" % int(lines[0])
        if int(lines[-1]) - int(lines[0]) + 1 != len(lines):
            metadata[b"lines"] = (lines - lines[0]).astype(np.uint32).tobytes()
    return flows.replace_schema_metadata(metadata)


def place_of(flows: pa.RecordBatch, row: int) -> str | None:
    """Return where a row of flows comes from, such as ``a.csv line 5``; None if unknown."""
    places = _places_of(flows)
    return None if places is None else f"{places[0]} {places[1]} {places[2][row]}"


def _places_of(flows: pa.RecordBatch) -> tuple[str, str, Int64Array] | None:
    """Return the file, the unit and the lines (n,) that :func:`with_places` has noted."""
    metadata = flows.schema.metadata or {}
    if not {b"file", b"unit", b"first"} <= metadata.keys():
        return None
    steps = np.frombuffer(metadata[b"lines"], dtype=np.uint32) if b"lines" in metadata else np.arange(len(flows))
    lines = int(metadata[b"first"]) + steps.astype(np.int64)
    return os.fsdecode(metadata[b"file"]), metadata[b"unit"].decode(), lines


def as_dictionary(column: pa.Array, label: str) -> pa.DictionaryArray:
    """Return a column as a dictionary of strings; an error begins with ``label``."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    try:
        if not pa.types.is_dictionary(column.type):
            return pc.dictionary_encode(pc.cast(column, pa.string()))
        if pa.types.is_string(kind) and column.type.index_type == pa.int32():
            return column
        indices = pc.cast(column.indices, pa.int64())
        return pa.DictionaryArray.from_arrays(indices, pc.cast(column.dictionary, pa.string()))
    except pa.ArrowException as error:
        raise FormatError(
            f"{label} is of type {kind}, which cannot be read as names: {error}. Write it as text or whole numbers."
        ) from None


def rows_where(accept: Callable[[str], bool], words: pa.DictionaryArray) -> BoolArray:
    """Return which rows contain a word that ``accept`` accepts, (n,); null is not a word."""
    accepted = np.array([word is not None and accept(word) for word in words.dictionary.to_pylist()] + [False])
    return np.asarray(accepted[pc.fill_null(words.indices, -1).to_numpy(zero_copy_only=False)])


def rows_without_name(names: pa.Array) -> BoolArray:
    """Return which rows of text have no name, or one that means no name, (n,)."""
    if pa.types.is_dictionary(names.type):
        known = np.append(rows_without_name(names.dictionary), True)
        return np.asarray(known[pc.fill_null(names.indices, len(known) - 1).to_numpy(zero_copy_only=False)])
    # Only short names and those that begin with a space can be empty; looking at all of them would take long.
    is_doubtful = pc.or_(pc.less_equal(pc.binary_length(names), _LONGEST_UNSET), pc.starts_with(names, " "))
    is_missing = np.zeros(len(names), dtype=bool)
    rows = np.flatnonzero(pc.fill_null(is_doubtful, True).to_numpy(zero_copy_only=False))
    if len(rows):
        words = pc.fill_null(pc.utf8_trim_whitespace(names.take(pa.array(rows))), "")
        is_missing[rows] = pc.is_in(words, _UNSET).to_numpy(zero_copy_only=False)
    return is_missing


def ports_of(column: pa.Array, label: str) -> npt.NDArray[np.int32]:
    """Return ports as numbers, (n,); -1 for a name or none."""
    words = as_dictionary(column, label)
    is_number = pc.fill_null(pc.match_substring_regex(words.dictionary, r"^[0-9]{1,5}(\.0)?$"), False)
    numbers = pc.cast(pc.cast(pc.if_else(is_number, words.dictionary, "-1"), pa.float64()), pa.int32())
    known = np.append(numbers.to_numpy(zero_copy_only=False), np.int32(-1))
    known[known > _LARGEST_PORT] = -1
    return np.asarray(known[pc.fill_null(words.indices, len(known) - 1).to_numpy(zero_copy_only=False)])


def to_plain(column: pa.Array) -> pa.Array:
    """Return a column without a dictionary, and text as ordinary strings."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_other_text = pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type)
    return pc.cast(column, pa.string()) if is_other_text else column


def _to_text(value: pa.Scalar) -> str:
    """Return the value of a cell as text; the number behind a time that no calendar has."""
    try:
        return str(value)
    except (ValueError, OverflowError, LookupError):  # LookupError: of a time zone that nobody knows
        return str(getattr(value, "value", "?"))


def protocol_number(text: str) -> int:
    """Return the number of a protocol given by name or number; -1 if it is unknown."""
    digits = text.removesuffix(".0")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= 9
    return PROTOCOLS.get(text.lower(), int(digits) if is_number else -1)


def read_words(given: str | os.PathLike[str] | Mapping[str, str], *, key: str, value: str) -> dict[str, str]:
    """Read a mapping, a JSON object, or a CSV file of ``key`` and ``value``, by its header or first and last column."""
    if isinstance(given, Mapping):
        return dict(given)
    path, text = given, _read_text(given)
    try:
        if text.lstrip().startswith("{"):
            words = json.loads(text)
            if not all(isinstance(word, str) for word in words.values()):
                raise ValueError("its values are not all text")
            return dict(words)
        rows = [row for row in csv.reader(text.splitlines()) if row]
    except (ValueError, RecursionError, csv.Error) as error:
        raise FormatError(f"{path} is neither a JSON object nor a CSV file of {key} and {value}: {error}.") from None
    if any(len(row) < 2 for row in rows):
        raise FormatError(f"{path} is neither a JSON object nor a CSV file of {key} and {value}.")
    first = rows[0] if rows else []
    if key in first and value in first:
        k, v = first.index(key), first.index(value)
        return {row[k]: row[v] for row in rows[1:] if len(row) > max(k, v)}
    return {row[0]: row[-1] for row in rows}


class HostList:
    """Hosts by name, by pattern such as ``scanner-*``, by address or by network such as ``10.1.0.0/16``."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        patterns = []
        for entry in entries:
            if "*" in entry:
                patterns.append(translate(entry))
            elif "/" in entry:
                try:
                    self._networks.append(ipaddress.ip_network(entry, strict=False))
                except ValueError:
                    raise InputError(f"{entry!r} is neither a host nor a network such as 10.1.0.0/16.") from None
            else:
                self._names.add(entry)
        self._pattern = re.compile("|".join(patterns)) if patterns else None

    def __bool__(self) -> bool:
        return bool(self._names or self._networks or self._pattern)

    def __contains__(self, host: object) -> bool:
        if not isinstance(host, str):
            return False
        if host in self._names or (self._pattern is not None and self._pattern.match(host) is not None):
            return True
        try:
            return any(ipaddress.ip_address(host) in network for network in self._networks)
        except ValueError:
            return False


def read_host_list(path: str | os.PathLike[str] | HostList | None) -> HostList:
    """Read one host, pattern, address or network per line; ``#`` begins a comment. None is an empty list."""
    if path is None or isinstance(path, HostList):
        return path or HostList()
    entries = [line.split("#", 1)[0].strip() for line in _read_text(path).splitlines()]
    return HostList(filter(None, entries))


def _read_text(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None


def without_hosts(flows: Iterable[pa.RecordBatch], hosts: HostList) -> Iterator[pa.RecordBatch]:
    """Leave out the flows from and to some hosts, which are then neither scored nor learnt."""
    for batch in flows:
        keep = np.ones(len(batch), dtype=bool)
        for side in ("source", "destination") if hosts else ():
            column = batch.column(side)
            words = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            keep &= ~rows_where(hosts.__contains__, words)
        if keep.all():
            yield batch
            continue
        others, places = batch.filter(pa.array(keep)), _places_of(batch)
        yield others if places is None else with_places(others, *places[:2], places[2][keep])
