"""The commands for temporal networks: anomaly (batch) and watch (stream)."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, TextIO

from cyclopts import Parameter, Token

from graphquilt.cli import Output, Workers, watching
from graphquilt.datasets import dataset_files, dataset_names
from graphquilt.errors import InputError
from graphquilt.temporal.batch import detect
from graphquilt.temporal.judging import LEARNT
from graphquilt.temporal.logs.blocks import Input
from graphquilt.temporal.logs.events import read_events
from graphquilt.temporal.logs.flows import Flows, read_flows
from graphquilt.temporal.logs.formats import FlowColumns
from graphquilt.temporal.records import AlertOptions, Record
from graphquilt.temporal.report import csv_line, json_line, parse_formats, write_report
from graphquilt.temporal.rescoring import SCORES, rescore
from graphquilt.temporal.tracker import LAGS, ScoringOptions, Tracker
from graphquilt.temporal.watching import WatchState
from graphquilt.temporal.watching import watch as watch_logs
from graphquilt.temporal.windows import WindowOptions
from graphquilt.times import read_moment

_ALERTS = 3  # the exit code that says that there are alerts


def _parse_lags(_kind: type, tokens: Sequence[Token]) -> tuple[int, ...]:
    last = tokens[-1:] if tokens[-1].source == "cli" else tokens  # the last flag wins; a file may have a list
    words = ",".join(token.value for token in last)
    try:
        return tuple(int(part) for part in words.split(","))
    except ValueError:
        raise InputError(f"lags are whole numbers separated by commas, not {words!r}.") from None


@dataclass(frozen=True)
class ScoringFlags(ScoringOptions):
    """How windows are embedded, aligned and scored."""

    dim: Annotated[int, Parameter(name=["--dim", "-d"])] = 20
    """Dimensions of the embedding."""
    lags: Annotated[tuple[int, ...], Parameter(converter=_parse_lags, negative="")] = LAGS
    """Align windows that are this many apart, as 1,7,14."""


@dataclass(frozen=True)
class AlertFlags(AlertOptions):
    """Which alerts are reported, and how."""

    allow: Path | None = None
    """File of hosts that never alert: names, patterns with *, addresses or networks, one per line."""
    ignore: Path | None = None
    """File of hosts whose flows are neither scored nor learnt."""
    format: str = "json"
    """json or csv; anomaly also writes both, as json,csv."""
    ecs: bool = False
    """Write JSON with the field names of the Elastic Common Schema."""
    exit_code: bool = False
    """Exit with 3 instead of 0 if there are alerts."""

    def finish(self, n_alerts: int) -> None:
        """Exit with 3 if there were alerts and the user wants to know."""
        if self.exit_code and n_alerts:
            sys.stdout.flush()
            sys.exit(_ALERTS)


@dataclass(frozen=True)
class FlowFlags:
    """How flow files are read."""

    protocol: str | None = None
    """Keep only tcp, udp, icmp or a number."""
    source: str | None = None
    """Column of the source. [default: recognised]"""
    destination: str | None = None
    """Column of the destination. [default: recognised]"""
    time: str | None = None
    """Column of the time. [default: recognised]"""
    time_format: str | None = None
    """iso, epoch-s, epoch-ms, epoch-us, or a pattern such as %m/%d/%Y-%H:%M. [default: recognised]"""
    addresses: Path | None = None
    """Names of hosts by address: a JSON object, or CSV."""
    user: str | None = None
    """Column of accounts: each flow is then also one from user:NAME to the destination."""
    clock: str | None = None
    """Date at which the clock of logs that begin in 1970 stood at 0. [default: leave them out of a folder]"""
    columns: str | None = None
    """Names of all columns, separated by commas, if the files have no header."""
    strict: bool = False
    """Stop at the first bad row with its line number."""

    def read(self, inputs: Input | Sequence[Input], *, skip_others: bool = False) -> Flows:
        """Read flow records; ``skip_others`` leaves out other files."""
        names = None if self.columns is None else self.columns.split(",")
        clock = None if self.clock is None else read_moment(self.clock, 0.0)
        return read_flows(
            inputs,
            FlowColumns(self.source, self.destination, self.time, names=names, user=self.user, clock=clock),
            protocol=self.protocol,
            time_format=self.time_format,
            addresses=self.addresses,
            strict=self.strict,
            skip_others=skip_others,
        )


_Events = Annotated[
    tuple[Path, ...],
    Parameter(negative="", help="Log of what ran on the hosts of the flows, or a folder; may be repeated."),
]
_Scoring = Annotated[ScoringFlags, Parameter(name="*", group="Scoring")]
_Cutting = Annotated[WindowOptions, Parameter(name="*", group="Windows")]
_Reading = Annotated[FlowFlags, Parameter(name="*", group="Reading logs")]
_Alerting = Annotated[AlertFlags, Parameter(name="*", group="Alerts")]


def anomaly(
    files: Annotated[
        list[Path],
        Parameter(
            help="Logs of flows in order of time, folders of them, the name of a data set, or one folder that --out "
            "wrote, whose alerts are chosen again."
        ),
    ],
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"], help="Folder for scores, alerts and the page.")],
    scoring: _Scoring = ScoringFlags(),
    cutting: _Cutting = WindowOptions(),
    reading: _Reading = FlowFlags(),
    alerting: _Alerting = AlertFlags(),
    events: _Events = (),
    workers: Workers = Workers(workers=1),
    output: Output = Output(),
) -> None:
    """Score every host in every window from the windows before it. With --exit-code, alerts give exit code 3."""
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    title, formats = f"Anomalies in {files[0].name}{more}", parse_formats(alerting.format)
    with workers.executor(1) as pool, watching() as progress:
        if len(files) == 1 and (files[0] / SCORES).exists():
            _refuse_flags(files[0], scoring, cutting, reading)
            detection = rescore(files[0], alerting)
        else:
            detection = detect(
                reading.read(_find_logs(files)),
                scoring,
                windows=cutting,
                alerts=alerting,
                events=read_events(events, strict=reading.strict) if events else None,
                executor=pool,
                progress=progress,
            )
    summary = write_report(out, detection, title=title, formats=formats, ecs=alerting.ecs)
    print(json.dumps(summary) if output.json else _in_words(summary, out))
    alerting.finish(len(detection.alerts))


def watch(
    folder: Annotated[
        str,
        Parameter(
            help="A log, a folder of logs (both may grow and rotate), or - for standard input.",
            allow_leading_hyphen=True,
        ),
    ],
    *,
    state: Annotated[Path | None, Parameter(help="Folder that keeps what was learnt, for a restart.")] = None,
    history: Annotated[int | None, Parameter(help="Windows to remember. [default: the longest lag]")] = None,
    forget: Annotated[
        str | None,
        Parameter(help="Forget hosts not seen for 90d, and after a sixth of it if seen once. [default: never]"),
    ] = None,
    poll: Annotated[float, Parameter(help="Seconds between looks at the folder.")] = 5.0,
    idle: Annotated[
        float | None,
        Parameter(help="Stop after this many seconds without new lines; 0 reads what is there. [default: never]"),
    ] = None,
    scoring: _Scoring = ScoringFlags(),
    cutting: _Cutting = WindowOptions(),
    reading: _Reading = FlowFlags(),
    alerting: _Alerting = AlertFlags(),
    events: _Events = (),
    output: Output = Output(),  # noqa: ARG001  (every line is JSON)
) -> None:
    """Score windows as they arrive and print one line per alert. With --exit-code, alerts give exit code 3."""
    if folder != "-" and not Path(folder).exists():
        raise InputError(f"there is no {folder}; give a log, a folder of logs, or - for standard input.")
    if parse_formats(alerting.format) not in (("json",), ("csv",)):
        raise InputError("watch prints its alerts as --format json or csv; only anomaly writes both.")
    scoring.check_events(events)
    is_csv, n_alerts = alerting.format == "csv", 0
    tracker = Tracker(scoring, history=history)
    with WatchState(state, tracker, cutting, protocol=reading.protocol, user=reading.user, forget=forget) as memory:
        source = sys.stdin.buffer if folder == "-" else Path(folder)
        read = partial(reading.read, skip_others=folder != "-")
        windows = watch_logs(
            source, memory, read, alerts=alerting, events=events, strict=reading.strict, poll=poll, idle=idle
        )
        _end_cut_line()
        if is_csv and not (_is_regular(sys.stdout) and os.fstat(sys.stdout.fileno()).st_size > 0):
            print(csv_line(None))
        for scores, records in windows:
            for record in records:
                print(csv_line(record) if is_csv else json_line(record, ecs=alerting.ecs))
            sys.stdout.flush()  # no line waits in this process, nor in the machine: the state will say it was printed
            if _is_regular(sys.stdout):
                os.fsync(sys.stdout.fileno())
            n_alerts += len(records)
            text = f"{len(records)} alerts" if scores.n_learnt >= LEARNT else "learnt from, not judged"
            text += f"; not embedded: {scores.left_out}" if scores.left_out else ""
            print(f"window {scores.number} ({scores.rows} flows): {text}", file=sys.stderr)
    alerting.finish(n_alerts)


def _refuse_flags(folder: Path, *groups: ScoringFlags | WindowOptions | FlowFlags) -> None:
    """Raise an InputError for flags that cannot change what was scored."""
    given = [(item.name, getattr(group, item.name), item.default) for group in groups for item in fields(group)]
    names = [f"--{name.replace('_', '-')}" for name, value, default in given if value != default]
    if names:
        raise InputError(
            f"{folder} has scores, which {', '.join(names)} cannot change any more: name the logs instead, or leave "
            f"{'it' if len(names) == 1 else 'these'} out and choose other alerts (--allow, --budget, --min-severity …)."
        )


def _find_logs(files: list[Path]) -> list[Path]:
    """Return files and folders; the name of a data set stands for its files."""
    names = dataset_names()[1:]
    known = [dataset_files(str(path))[1] if str(path) in names and not path.exists() else [path] for path in files]
    return [path for paths in known for path in paths]


def _end_cut_line() -> None:
    """Start a new line if the output is a file whose last line a killed run has cut short."""
    if _is_regular(sys.stdout):
        with contextlib.suppress(OSError), open(f"/proc/self/fd/{sys.stdout.fileno()}", "rb") as file:
            file.seek(-1, os.SEEK_END)  # an error if the file is empty
            if file.read() != b"\n":
                print()


def _is_regular(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # a stream in memory has no number
        return False


def _in_words(summary: Record, out: Path) -> str:
    lines = [f"{summary['rows']} rows, {summary['kept_rows']} kept, {summary['bad_rows']} bad"]
    if "events" in summary:
        # Hosts that have other names in events and flows must not go unnoticed.
        n_scored, n_sources = summary["sources_scored_by_tokens"], summary["node_windows_scored"]["source"]
        text = (
            f"{summary['events']} events, {summary['bad_events']} bad, {summary['kinds_of_tokens']} kinds of tokens; "
        )
        text += f"{n_scored} of {n_sources} sources in windows are scored by them"
        if n_scored == 0:
            text += ": hosts need the same names in events and flows (--addresses gives them), and the same clock"
        lines.append(text)
        if summary["late_tokens"]:
            late = f"{summary['late_tokens']} tokens came after their window and were left out"
            lines.append(f"{late}: give the logs of events in order of time")
    highest = f", the highest severity is {summary['highest_severity']:g}" if summary["alerts"] else ""
    lines += [
        f"{summary['windows']} windows scored, {len(summary['left_out'])} not embedded, "
        f"{summary['empty_windows']} empty",
        *summary["judged"],
        f"{summary['incidents']} incidents, {summary['alerts']} alerts{highest}",
        f"written to {out}: open report.html",
    ]
    return "\n".join(lines)
