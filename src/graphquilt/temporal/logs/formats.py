"""Recognise the kind of a flow log from its first lines, and which of its columns contain what."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphquilt.errors import FormatError

__all__ = ["ECAR", "LANL_COLUMNS", "FlowColumns", "Layout", "field_of", "named_layout", "recognise", "sample_records"]

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
ECAR = "OpTC eCAR events"

_NFDUMP_SUMMARY = r"^(Summary|flows,bytes,packets|Time window:|Total flows|Sys:|No matched flows|(\d+,){5}\d+\s*$)"

# The names that tools give to columns, in small letters without signs; the first that a log has is taken.
_USUAL = {
    "time": (
        "time timestamp ts starttime stime start flowstart firstseen first datetime date eventtime timestart begin when"
    ),
    "source": (
        "srcdevice source src sourceip srcip srcaddr sourceaddress sourcecomputer sourcehost srchost idorigh origh "
        "saddr sa ipsrc client clientip from sender"
    ),
    "destination": (
        "dstdevice destination dst dest destinationip dstip destip dstaddr destinationaddress destaddr "
        "destinationcomputer destinationhost dsthost desthost idresph resph daddr da ipdst server serverip to receiver"
    ),
    "port": "dstport destport destinationport dport dp idrespp respp",
    "protocol": "protocol proto pr l4protocol",
    "label": "label evil attack class",
}


@dataclass(frozen=True)
class FlowColumns:
    """Which columns of a flow log contain what; those that are not named are recognised.

    Attributes
    ----------
    source, destination : str, optional
        The columns of the two nodes.
    time : str, optional
        The column of the time.
    weight : str, optional
        A column of numbers, not negative, to sum in weighted snapshots.
    names : sequence of str, optional
        The names of all columns of a file without header.
    """

    source: str | None = None
    destination: str | None = None
    time: str | None = None
    weight: str | None = None
    names: Sequence[str] | None = None


@dataclass(frozen=True)
class Layout:
    """What a log is, and which of its columns (or JSON fields, with dots) contain what.

    Attributes
    ----------
    kind : str
        The kind of the log in words.
    time, source, destination : str
    port, protocol, weight, label, direction : str or None
        ``port`` is that of the destination; ``direction`` has arrows, as in Argus.
    delimiter : str
        Between the fields of a line; empty for JSON.
    names : tuple of str
        All columns of a text, in order.
    skipped : int
        Lines before the first row.
    quoted : bool
        Whether a field may be in quotation marks.
    time_format : str or None
        How this kind of log writes times, if that cannot be seen from one.
    no_rows : str
        A regular expression of lines that are no rows.
    wanted : tuple of (str, frozenset of str)
        Fields, and the values that they have in the rows that are flows.
    extras : tuple of str
        Further fields that this kind needs.
    """

    kind: str
    time: str
    source: str
    destination: str
    port: str | None = None
    protocol: str | None = None
    weight: str | None = None
    label: str | None = None
    direction: str | None = None
    delimiter: str = ","
    names: tuple[str, ...] = ()
    skipped: int = 0
    quoted: bool = True
    time_format: str | None = None
    no_rows: str = r"^\s*#"
    wanted: tuple[tuple[str, frozenset[str]], ...] = ()
    extras: tuple[str, ...] = ()

    @property
    def is_json(self) -> bool:
        """Whether each line is a JSON object."""
        return not self.delimiter


# Kinds without header: the first line, and what its columns are.
_HEADLESS = (
    (
        r"\d+,\d+,[^,]+,[^,]+,\d+(,[^,]*){6}",
        Layout("LANL 2017 netflow", "time", "srcdevice", "dstdevice", "dstport", "protocol", names=LANL_COLUMNS),
    ),
    (
        r"\d+,[^,]*@[^,]*,[^,]*@[^,]*(,[^,]*){6}",
        Layout(
            "LANL 2015 authentications",
            "time",
            "source computer",
            "destination computer",
            names=(
                "time",
                "source user",
                "destination user",
                "source computer",
                "destination computer",
                "authentication",
                "logon",
                "orientation",
                "outcome",
            ),
        ),
    ),
    (
        r"\d+,\d+,[^,]+,[^,]*,[^,]+,[^,]*,\d+,\d+,\d+",
        Layout(
            "LANL 2015 flows",
            "time",
            "source computer",
            "destination computer",
            "destination port",
            "protocol",
            names=(
                "time",
                "duration",
                "source computer",
                "source port",
                "destination computer",
                "destination port",
                "protocol",
                "packets",
                "bytes",
            ),
        ),
    ),
    (
        r"\d+,[^,]*@[^,]*,[^,@]+,[^,@]+",
        Layout(
            "LANL 2015 red team",
            "time",
            "source computer",
            "destination computer",
            names=("time", "user", "source computer", "destination computer"),
        ),
    ),
    (
        r"\d+,C\d+,C\d+",
        Layout("LANL 2015 DNS", "time", "source", "destination", names=("time", "source", "destination")),
    ),
    (
        r"[\d.]+,[\d.]+,\d\d/\d\d/\d{4}-\d\d:\d\d,[^,]*",
        Layout(
            "DARPA 1998 connections",
            "time",
            "source",
            "destination",
            label="label",
            names=("source", "destination", "time", "label"),
            time_format="%m/%d/%Y-%H:%M",
        ),
    ),
)


def recognise(head: bytes, columns: FlowColumns, *, where: str) -> Layout:
    r"""Return the layout of a log that begins with ``head``; raise a FormatError if it is no log of flows.

    Examples
    --------
    >>> recognise(b"ts,te,td,sa,da,sp,dp,pr,flg\n", FlowColumns(), where="a.csv").kind
    'nfdump CSV'
    >>> recognise(b"StartTime,Dur,Proto,SrcAddr,Sport,Dir,DstAddr,Dport\n", FlowColumns(), where="b").direction
    'Dir'
    """
    lines = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").split("\n")
    if len(head) >= 1 << 18 and len(lines) > 1:
        lines.pop()  # cut off
    for number, line in enumerate(lines):
        text = line.strip(" \r\n")
        if text.lstrip().startswith("#fields") or "#separator" in text[:20]:
            return _zeek(lines, columns, where)
        if text.startswith("{"):
            return _json(sample_records(lines), columns, where)
        if text and not text.lstrip().startswith("#"):
            return _text(text, number, columns, where)
    raise FormatError(f"{where} has no line that is not a comment.")


def named_layout(names: Sequence[str], columns: FlowColumns, *, where: str, kind: str = "") -> Layout:
    """Return the layout of a log whose columns have ``names``; unnamed columns are recognised by their usual names."""
    chosen: dict[str, str | None] = {"weight": columns.weight}
    for part in ("time", "source", "destination"):
        chosen[part] = getattr(columns, part) or _usual(part, names)
    _check_columns([name for name in dict.fromkeys((*chosen.values(),)) if name is not None], names, where)
    missing = [part for part in ("source", "destination", "time") if chosen[part] is None]
    if missing:
        raise FormatError(
            f"{where} has no column for the {' and the '.join(missing)} that graphquilt recognises; its columns (or "
            f"first line) are {', '.join(names)[:400]}. Name the columns of source, destination and time, and give all "
            "column names if the file has no header."
        )
    others = {part: _usual(part, names) for part in ("port", "protocol", "label")}
    return Layout(kind or "a table", names=tuple(names), **others, **chosen)  # type: ignore[arg-type]


def field_of(record: Mapping[str, Any], name: str) -> Any:
    """Return a field of a JSON object by its name, or by its path with dots; None if there is none."""
    if name in record:
        return record[name]
    value: Any = record
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def sample_records(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Return the JSON objects among the first lines."""
    records = []
    for line in lines[:200]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def _check_columns(required: Sequence[str], names: Sequence[str], where: str) -> None:
    """Raise a FormatError if a required column is missing or not unique, and list the columns that exist."""
    repeated = [name for name in required if list(names).count(name) > 1]
    if repeated:
        raise FormatError(f"{where} has more than one column {repeated[0]!r}; rename or remove the others.")
    missing = [name for name in required if name not in names]
    if missing:
        raise FormatError(
            f"{where} has no column {', '.join(map(repr, missing))}; its columns (or first line) are "
            f"{', '.join(names)[:400]}. Name the columns of source, destination and time, and give all column names "
            "if the file has no header."
        )


def _usual(part: str, names: Sequence[str]) -> str | None:
    """Return the column that a part of a flow usually is in, by its name."""
    plain = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in reversed(names)}
    return next((plain[word] for word in _USUAL[part].split() if word in plain), None)


def _text(line: str, number: int, columns: FlowColumns, where: str) -> Layout:
    """Return the layout of a text whose line of this number is the first that is no comment."""
    delimiter = max(",\t; |", key=lambda mark: (line.count(mark), mark == ","))
    fields = [part.strip().strip('"') for part in line.split(delimiter)]
    if {"hostName", "processName", "eventName"} <= set(fields):
        raise FormatError(f"{where} has BETH's process events, which are no flows: read it with read_events.")
    if columns.names is not None:
        names = list(columns.names)
        if len(names) != len(fields):
            raise FormatError(f"{where} has {len(fields)} columns and {len(names)} names were given for them.")
        layout = named_layout(names, columns, where=where)
    else:
        headless = next((layout for shape, layout in _HEADLESS if re.fullmatch(shape, line)), None)
        names = list(headless.names) if headless else fields
        if headless is not None and (columns.source or columns.destination or columns.time or columns.weight):
            headless = replace(
                named_layout(names, columns, where=where, kind=headless.kind), time_format=headless.time_format
            )
        layout = headless or _with_header(named_layout(fields, columns, where=where))
    return replace(layout, delimiter=delimiter, skipped=number + (fields == names))


def _with_header(layout: Layout) -> Layout:
    """Return what is special about the kinds of logs that are recognised by their header."""
    names = set(layout.names)
    if {"StartTime", "SrcAddr", "DstAddr"} <= names:
        return replace(layout, kind="Argus binetflow", direction="Dir" if "Dir" in names else None)
    if {"ts", "sa", "da"} <= names or {"firstSeen", "srcAddr", "dstAddr"} <= names:
        return replace(layout, kind="nfdump CSV", no_rows=_NFDUMP_SUMMARY)
    if {"DnsQuery", "SourceIP", "DestinationIP"} <= names:
        return replace(layout, kind="BETH DNS")
    return layout


def _zeek(lines: Sequence[str], columns: FlowColumns, where: str) -> Layout:
    """Return the layout of a Zeek log with its header of comments."""
    separator, path, names, skipped = "\t", None, None, len(lines)
    for number, line in enumerate(lines):
        text = line.strip(" \t\r")
        if text.startswith("#separator"):
            mark = text.removeprefix("#separator").strip()
            separator = chr(int(mark[2:], 16)) if re.fullmatch(r"\\x[0-9a-fA-F]{2}", mark) else mark or "\t"
        elif text.startswith("#path"):
            path = text.split(separator)[-1].strip()
        elif text.startswith("#fields"):
            names = [name.strip() for name in text.split(separator)[1:]]
        elif text and not text.startswith("#"):
            skipped = number
            break
    if names is None or len(separator) != 1:
        raise FormatError(f"{where} begins like a Zeek log, but has no line #fields.")
    if path not in (None, "conn") or (path is None and "conn_state" not in names):
        raise FormatError(f"{where} is a Zeek log of {path or 'another kind'}; flows are in conn.log.")
    layout = named_layout(names, columns, where=where, kind="Zeek conn.log")
    return replace(layout, delimiter=separator, skipped=skipped, quoted=False)


def _json(records: Sequence[Mapping[str, Any]], columns: FlowColumns, where: str) -> Layout:
    """Return the layout of a log with one JSON object per line."""
    if not records:
        raise FormatError(f"{where} begins like JSON, but none of its first lines is a JSON object.")
    keys = {key for record in records for key in record}
    if {"object", "action", "hostname", "properties"} <= keys:
        extras = ("hostname", "id", "properties.src_port", "properties.direction")
        parts = (
            "timestamp",
            "properties.src_ip",
            "properties.dest_ip",
            "properties.dest_port",
            "properties.l4protocol",
        )
        wanted = (("object", frozenset({"FLOW"})), ("action", frozenset({"START", "OPEN"})))
        return Layout(ECAR, *parts, delimiter="", extras=extras, wanted=wanted)
    if {"timestamp", "event_type"} <= keys:
        parts = ("flow.start", "src_ip", "dest_ip", "dest_port", "proto")
        is_flow = ("event_type", frozenset({"flow"}))
        return Layout("Suricata eve.json", *parts, delimiter="", extras=("timestamp",), wanted=(is_flow,))
    if any(field_of(record, "id.orig_h") is not None for record in records):
        if not ("conn_state" in keys or any(record.get("_path") == "conn" for record in records)):
            raise FormatError(f"{where} is a Zeek log of another kind; flows are in conn.log.")
        parts = ("ts", "id.orig_h", "id.resp_h", "id.resp_p", "proto")
        return Layout("Zeek conn.log in JSON", *parts, delimiter="")
    layout = named_layout(sorted(keys), columns, where=where, kind="JSON lines")
    return replace(layout, delimiter="", names=())
