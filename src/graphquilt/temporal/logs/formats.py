"""Recognise the kind of a flow log from its first lines, and which of its columns contain what."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphquilt.errors import FormatError

_LANL = "time duration srcdevice dstdevice protocol srcport dstport srcpackets dstpackets srcbytes dstbytes"
LANL_COLUMNS = tuple(_LANL.split())
ECAR = "OpTC eCAR events"

_MARK = b"\xef\xbb\xbf"  # of UTF-8, at the beginning of a file
_LANL_SIZES = ("protocol", "packets", "bytes")
_COMPUTERS = ("source computer", "destination computer")
_AUTHENTICATION = (
    "time",
    "source user",
    "destination user",
    *_COMPUTERS,
    "authentication",
    "logon",
    "orientation",
    "outcome",
)
_LANL_2015 = ("time", "duration", _COMPUTERS[0], "source port", _COMPUTERS[1], "destination port", *_LANL_SIZES)
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
    "bytes": "bytes totbytes ibyt inbyte srcbytes origbytes sbytes bytestoserver",
    "bytes back": "obyt outbyte dstbytes respbytes dbytes bytestoclient",
    "label": "label evil attack class",
}


@dataclass(frozen=True)
class FlowColumns:
    """Which columns of a flow log contain what; those that are not named are recognised.

    ``user`` has accounts: each of its flows is also
    one from ``user:NAME`` to the destination. ``names`` are all columns of a file without header. ``clock`` is the
    moment, in seconds, at which the clock of logs that begin in 1970 stood at 0; by default such logs are left out of a
    folder whose other logs have dates.
    """

    source: str | None = None
    destination: str | None = None
    time: str | None = None
    names: Sequence[str] | None = None
    user: str | None = None
    clock: float | None = None


@dataclass(frozen=True)
class Layout:
    """What a log is, and which of its columns (or JSON fields, with dots) contain what.

    ``port`` is that of the destination, ``sizes`` have the bytes of each direction, and ``direction`` has arrows, as in
    Argus. The ``delimiter`` is empty for JSON; ``names`` are all columns of a text, which begins after ``skipped``
    lines and has lines that are ``not_rows`` (a regular expression). ``time_format`` is given if one time does not
    tell. Rows that are flows have one of these values in the fields in ``wanted``, and none of these in ``unwanted``.
    ``extras`` are further fields that this kind needs.
    """

    kind: str
    time: str
    source: str
    destination: str
    port: str | None = None
    protocol: str | None = None
    sizes: tuple[str, ...] = ()
    label: str | None = None
    direction: str | None = None
    delimiter: str = ","
    names: tuple[str, ...] = ()
    skipped: int = 0
    quoted: bool = True
    time_format: str | None = None
    not_rows: str = r"^\s*#"
    wanted: tuple[tuple[str, frozenset[str]], ...] = ()
    unwanted: tuple[tuple[str, frozenset[str]], ...] = ()
    extras: tuple[str, ...] = ()


_RED_TEAM = r"\d+,[^,]*@[^,]*,[^,@]+,[^,@]+"
_DARPA = Layout(
    *("DARPA 1998 connections", "time", "source", "destination"),
    label="label",
    names=("source", "destination", "time", "label"),
    time_format="%m/%d/%Y-%H:%M",
)
# Kinds without header: the shape of the first line, and what its columns are.
_HEADLESS = (
    (
        r"\d+,\d+,[^,]+,[^,]+,\d+(,[^,]*){6}",
        Layout(
            *("LANL 2017 netflow", "time", "srcdevice", "dstdevice", "dstport", "protocol"),
            sizes=LANL_COLUMNS[-2:],
            names=LANL_COLUMNS,
        ),
    ),
    (
        r"\d+,[^,]*@[^,]*,[^,]*@[^,]*(,[^,]*){6}",
        Layout("LANL 2015 authentications", "time", *_COMPUTERS, names=_AUTHENTICATION),
    ),
    (
        r"\d+,\d+,[^,]+,[^,]*,[^,]+,[^,]*,\d+,\d+,\d+",
        Layout("LANL 2015 flows", "time", *_COMPUTERS, "destination port", "protocol", ("bytes",), names=_LANL_2015),
    ),
    (_RED_TEAM, Layout("LANL 2015 red team", "time", *_COMPUTERS, names=("time", "user", *_COMPUTERS))),
    (
        r"\d+,C\d+,C\d+",
        Layout("LANL 2015 DNS", "time", "source", "destination", names=("time", "source", "destination")),
    ),
    (r"[\d.]+,[\d.]+,\d\d/\d\d/\d{4}-\d\d:\d\d,[^,]*", _DARPA),
)
# Kinds with header: the columns that only they have, and what else is special.
_HEADERS: tuple[tuple[str, set[str], dict[str, str]], ...] = (
    ("Argus binetflow", {"StartTime", "SrcAddr", "DstAddr"}, {"direction": "Dir"}),
    ("nfdump CSV", {"ts", "sa", "da"}, {"not_rows": _NFDUMP_SUMMARY}),
    ("nfdump CSV", {"firstSeen", "srcAddr", "dstAddr"}, {"not_rows": _NFDUMP_SUMMARY}),
    ("BETH DNS", {"DnsQuery", "SourceIP", "DestinationIP"}, {}),
)


def recognise(head: bytes, columns: FlowColumns, *, where: str, listed: bool = False) -> Layout:
    """Return the layout of a log that begins with ``head``; raise a FormatError if it is not a log of flows.

    A list of labels that was ``listed`` in a folder, beside its logs, is not one.
    """
    lines = head.removeprefix(_MARK).decode("utf-8", "replace").split("\n")
    if len(head) >= 1 << 18 and len(lines) > 1:
        lines.pop()  # cut off
    for number, line in enumerate(lines):
        text = line.strip(" \r\n")
        if text.lstrip().startswith("#fields") or "#separator" in text[:20]:
            return _zeek(lines, columns, where)
        if text.startswith("{"):
            return _json(sample_records(head.removeprefix(_MARK)), columns, where)
        if text and not text.lstrip().startswith("#"):
            if listed and re.fullmatch(_RED_TEAM, text):
                raise FormatError(f"{where} is a list of attacks (LANL's red team), not a log; name it to read it.")
            return _text(text, number, columns, where)
    raise FormatError(f"{where} has no line that is not a comment.")


def named_layout(names: Sequence[str], columns: FlowColumns, *, where: str, kind: str = "") -> Layout:
    """Return the layout of a log whose columns have ``names``; unnamed columns are recognised by their usual names."""
    chosen: dict[str, str | None] = {}
    for part in ("time", "source", "destination"):
        chosen[part] = getattr(columns, part) or _usual(part, names)
    required = [name for name in dict.fromkeys(chosen.values()) if name is not None]
    repeated = [name for name in required if list(names).count(name) > 1]
    if repeated:
        raise FormatError(f"{where} has more than one column {repeated[0]!r}; rename or remove the others.")
    absent = [name for name in required if name not in names]
    unknown = [part for part in ("source", "destination", "time") if chosen[part] is None]
    if absent or unknown:
        missing = ", ".join(map(repr, absent)) or f"for the {' and the '.join(unknown)} that graphquilt recognises"
        raise FormatError(
            f"{where} has no column {missing}; its columns (or first line) are {', '.join(names)[:400]}. Name the "
            "columns of source, destination and time, and give all column names if the file has no header."
        )
    others = {part: _usual(part, names) for part in ("port", "protocol", "label")}
    sizes = (_usual("bytes", names), _usual("bytes back", names))
    return Layout(kind or "a table", names=tuple(names), sizes=tuple(filter(None, sizes)), **others, **chosen)  # type: ignore[arg-type]


def field_of(record: Mapping[str, Any], name: str) -> Any:
    """Return a field of a JSON object by its name, or by its path with dots; None if it has none."""
    if name in record:
        return record[name]
    value: Any = record
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def sample_records(head: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects among the first lines of a log."""
    records = []
    for line in head.decode("utf-8", "replace").split("\n")[:200]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def _usual(part: str, names: Sequence[str]) -> str | None:
    """Return the column that a part of a flow usually is in, by its name."""
    plain = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in reversed(names)}
    return next((plain[word] for word in _USUAL[part].split() if word in plain), None)


def _text(line: str, number: int, columns: FlowColumns, where: str) -> Layout:
    """Return the layout of a text whose line of this number is the first that is not a comment."""
    delimiter = max(",\t; |", key=lambda mark: (line.count(mark), mark == ","))
    fields = [part.strip().strip('"') for part in line.split(delimiter)]
    if {"hostName", "processName", "eventName"} <= set(fields):
        raise FormatError(f"{where} has BETH's process events, which are not flows: read it with read_events.")
    if columns.names is not None:
        names = list(columns.names)
        if len(names) != len(fields):
            raise FormatError(f"{where} has {len(fields)} columns and {len(names)} names were given for them.")
        layout = named_layout(names, columns, where=where)
    else:
        headless = next((layout for shape, layout in _HEADLESS if re.fullmatch(shape, line)), None)
        names = fields if headless is None else list(headless.names)
        if headless is None:
            layout = _with_header(named_layout(fields, columns, where=where))
        elif columns.source or columns.destination or columns.time:
            layout = named_layout(names, columns, where=where, kind=headless.kind)
            layout = replace(layout, time_format=headless.time_format)
        else:
            layout = headless
    return replace(layout, delimiter=delimiter, skipped=number + (fields == names))


def _with_header(layout: Layout) -> Layout:
    """Add what is special about the kinds of logs that are recognised by their header."""
    names = set(layout.names)
    for kind, header, changes in _HEADERS:
        if header <= names:
            is_absent = changes.get("direction", "Dir") not in names and "direction" in changes
            if kind.startswith("Argus") and "Proto" in names:  # its own records about itself
                layout = replace(layout, unwanted=(("Proto", frozenset({"man"})),))
            return replace(layout, kind=kind, **({} if is_absent else changes))  # type: ignore[arg-type]
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
    label = next((name for name in names if "label" in name.split()), None)  # IoT-23: "tunnel_parents   label   …"
    return replace(layout, delimiter=separator, skipped=skipped, quoted=False, label=label)


def _json(records: Sequence[Mapping[str, Any]], columns: FlowColumns, where: str) -> Layout:
    """Return the layout of a log with one JSON object per line."""
    if not records:
        raise FormatError(f"{where} begins like JSON, but none of its first lines is a JSON object.")
    keys = {key for record in records for key in record}
    if {"object", "action", "hostname", "properties"} <= keys:
        extras = ("hostname", "id", "properties.src_port", "properties.direction")
        own = "properties."
        parts = ("timestamp", own + "src_ip", own + "dest_ip", own + "dest_port", own + "l4protocol")
        wanted = (("object", frozenset({"FLOW"})), ("action", frozenset({"START", "OPEN"})))
        return Layout(ECAR, *parts, delimiter="", extras=extras, wanted=wanted)
    if {"timestamp", "event_type"} <= keys:
        parts = ("flow.start", "src_ip", "dest_ip", "dest_port", "proto")
        sizes = "flow.bytes_toserver", "flow.bytes_toclient"
        is_flow = ("event_type", frozenset({"flow"}))
        return Layout("Suricata eve.json", *parts, sizes, delimiter="", extras=("timestamp",), wanted=(is_flow,))
    if any(field_of(record, "id.orig_h") is not None for record in records):
        if not ("conn_state" in keys or any(record.get("_path") == "conn" for record in records)):
            raise FormatError(f"{where} is a Zeek log of another kind; flows are in conn.log.")
        parts = ("ts", "id.orig_h", "id.resp_h", "id.resp_p", "proto")
        return Layout("Zeek conn.log in JSON", *parts, ("orig_bytes", "resp_bytes"), delimiter="")
    layout = named_layout(sorted(keys), columns, where=where, kind="JSON lines")
    return replace(layout, delimiter="", names=())
