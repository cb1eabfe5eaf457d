"""The commands for temporal networks: anomaly (batch) and watch (stream)."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from cyclopts import Parameter

from graphquilt.cli import app
from graphquilt.cli.display import watching
from graphquilt.cli.values import Output
from graphquilt.cli.workers import Workers
from graphquilt.errors import InputError

if TYPE_CHECKING:
    from graphquilt.temporal import AnomalyScores, Flows, ScoringOptions, Snapshots, TokenWindows
    from graphquilt.temporal.events import Events
    from graphquilt.temporal.records import AlertOptions

_ALERTS = 3  # the exit code that says that there are alerts


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ScoringFlags:
    """How windows are embedded, aligned and scored."""

    width: str = "1d"
    """Length of a window: 1d, 12h, 30m …"""
    dim: Annotated[int, Parameter(name=["--dim", "-d"])] = 20
    """Dimensions of the embedding."""
    lags: str = "1,7,14,21,28,35,42,49"
    """Align windows that are this many apart, with commas."""
    min_observations: int = 21
    """Windows that a node must be in to be standardised."""
    quantile: float = 0.999
    """Flag scores above this quantile."""
    background: float = 1.0
    """Weight of the faint uniform background; 0 is the paper's embedding."""

    def options(self) -> ScoringOptions:
        """Return the options of scoring."""
        from graphquilt.temporal import ScoringOptions

        try:
            lags = tuple(int(part) for part in self.lags.split(","))
        except ValueError:
            raise InputError(f"lags are whole numbers with commas between them, not {self.lags!r}.") from None
        return ScoringOptions(self.dim, lags, self.min_observations, self.quantile, self.background)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
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
    columns: str | None = None
    """Names of all columns, with commas, if the files have no header."""
    grace: str | None = None
    """How long a window waits for late flows: 2h, 1d … [default: a 24th of the width]"""
    max_gap: int = 10_000
    """Windows without flows in a row; a flow beyond a longer gap is an error."""
    strict: bool = False
    """Stop at the first bad row with its line number."""

    def read(self, inputs: Any, *, skip_others: bool = False) -> Flows:  # whatever read_flows takes
        """Read flow records; ``skip_others`` leaves out files that are none."""
        from graphquilt.temporal import FlowColumns, read_flows

        names = None if self.columns is None else self.columns.split(",")
        layout = FlowColumns(self.source, self.destination, self.time, names=names)
        return read_flows(
            inputs,
            layout,
            protocol=self.protocol,
            time_format=self.time_format,
            addresses=self.addresses,
            strict=self.strict,
            skip_others=skip_others,
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AlertFlags:
    """Which alerts are given, and how."""

    budget: int = 20
    """At most this many hosts per window."""
    pairs: int = 5
    """At most this many connections per window."""
    min_severity: float = 0.0
    """Leave out alerts below this severity; 40 is p = 0.01, 60 is p = 0.001, 100 is the highest."""
    since: str | None = None
    """Only alerts since this date, or of this last time (7d); earlier windows are only learnt."""
    allow: Path | None = None
    """File of hosts that never alert: names, patterns with *, addresses or networks, one per line."""
    ignore: Path | None = None
    """File of hosts whose flows are left out, so that they are not learnt either."""
    merge: int = 7
    """Alerts of a host this many windows apart are one incident."""
    format: str = "json"
    """json, csv or parquet; anomaly takes several with commas, watch prints json or csv."""
    ecs: bool = False
    """Write JSON with the field names of the Elastic Common Schema."""
    exit_code: bool = False
    """Exit with 3 instead of 0 if there are alerts."""

    def options(self, now: float) -> AlertOptions:
        """Return which alerts are given; ``now`` is the time that --since 7d is counted from."""
        from graphquilt.temporal.host_list import read_host_list
        from graphquilt.temporal.records import AlertOptions

        if self.budget < 1 or self.pairs < 0 or self.merge < 1:
            raise InputError(
                f"--budget and --merge are at least 1 and --pairs is at least 0, not {self.budget}, {self.merge} and "
                f"{self.pairs}."
            )
        since = float("-inf") if self.since is None else _moment(self.since, now)
        return AlertOptions(self.budget, self.pairs, self.min_severity, read_host_list(self.allow), since)

    def kept(self, flows: Any) -> Any:  # an iterable of record batches
        """Return flows without those of the hosts to ignore."""
        from graphquilt.temporal.host_list import read_host_list, without_hosts

        hosts = read_host_list(self.ignore)
        return without_hosts(flows, hosts) if hosts else flows

    def finish(self, n_alerts: int) -> None:
        """Exit with 3 if there were alerts and the user wants to know."""
        if self.exit_code and n_alerts:
            sys.stdout.flush()
            sys.exit(_ALERTS)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EventFlags:
    """What device logs add to flows."""

    events: Annotated[tuple[Path, ...], Parameter(negative="")] = ()
    """Log of what ran on the hosts of the flows, or a folder; may be repeated. watch does not take events."""
    token_weight: float = 0.0
    """Weight of the tokens of events as further columns of the matrix that is embedded; 0 leaves them out of it."""

    def read(self, *, strict: bool) -> Events | None:
        """Read the events; None if there are none."""
        from graphquilt.temporal import read_events

        if not self.events and self.token_weight:
            raise InputError("--token-weight weighs the tokens of events; name their logs with --events.")
        return read_events(self.events, strict=strict) if self.events else None


def _moment(text: str, now: float) -> float:
    """Return a date, a time in seconds, or a time before ``now``, in seconds."""
    import pyarrow as pa

    from graphquilt.temporal.log_times import Clock, read_times
    from graphquilt.temporal.windows import seconds

    if text[-1:] in "smhdw" and text[:-1].replace(".", "", 1).isdigit():
        return now - seconds(text)
    time, good, _ = read_times(pa.array([text]), Clock(), label="--since", place=lambda _row: "--since")
    if not good[0]:
        raise InputError(f"--since is a date such as 2024-05-01, or a length of time such as 7d, not {text!r}.")
    return float(time[0])


@app.command(help_epilogue="Example: graphquilt anomaly netflow.csv --width 1d --dim 20 --lags 1,7,14,21 --out scores")
def anomaly(
    files: Annotated[
        list[Path], Parameter(help="Logs of flows in order of time, or folders of them, or the name of a data set.")
    ],
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"], help="Folder for scores, alerts, figures and the page.")],
    undirected: Annotated[bool, Parameter(help="One set of nodes, symmetric matrices.")] = False,
    overlap: Annotated[int, Parameter(help="Every flow lies in this many windows; 4 starts one each quarter.")] = 1,
    mark: Annotated[str, Parameter(help="Windows to shade in the figures: 49-88,90.")] = "",
    node: Annotated[tuple[str, ...], Parameter(help="Draw this source; may be repeated.", negative="")] = (),
    figures: Annotated[bool, Parameter(help="Draw the figures.")] = True,
    scoring: ScoringFlags = ScoringFlags(),
    reading: FlowFlags = FlowFlags(),
    alerting: AlertFlags = AlertFlags(),
    device: EventFlags = EventFlags(),
    workers: Workers = Workers(workers=1),
    output: Output = Output(),
) -> None:
    """Score every host in every window from the windows before it. With --exit-code, alerts give exit code 3."""
    from graphquilt.report.alert_files import parse_formats
    from graphquilt.report.anomaly import ReportOptions, parse_marks, write_report
    from graphquilt.temporal import TokenWindows, Tracker, score_windows, snapshots
    from graphquilt.temporal.watching import flow_settings

    marked, formats = parse_marks(mark), parse_formats(alerting.format)
    options = replace(scoring.options(), token_weight=device.token_weight)
    alerting.options(0.0)
    flows, events = reading.read(_logs(files)), device.read(strict=reading.strict)
    days = snapshots(
        alerting.kept(flows),
        scoring.width,
        directed=not undirected,
        grace=reading.grace,
        max_gap=reading.max_gap,
        overlap=overlap,
    )
    tokens = None if events is None else TokenWindows(events, days)
    with workers.executor(1) as pool, watching() as progress:
        scores = score_windows(days.windows(), options, tokens=tokens, executor=pool, progress=progress)
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    pictures = ReportOptions(
        title=f"Anomalies in {files[0].name}{more}",
        marked=marked,
        nodes=tuple(("source", days.sources.id(name)) for name in node),
        figures=figures,
        alerts=alerting.options(scores.windows[-1].end if scores.windows else 0.0),
        merge=alerting.merge,
        formats=formats,
        ecs=alerting.ecs,
    )
    parameters = {"width": scoring.width, "overlap": overlap, "protocol": reading.protocol, "directed": not undirected}
    facts = {
        **_counts(flows, days),
        **_event_counts(events, tokens, scores),
        "parameters": asdict(options) | parameters,
    }
    settings = Tracker(options).settings | flow_settings(days.width, reading.protocol)
    settings |= {"overlap": overlap} if overlap > 1 else {}  # the ids of watch, whose windows do not overlap, stay
    names = days.names if tokens is None else days.names | {"token": tokens.names}
    summary = write_report(out, scores, names=names, settings=settings, options=pictures, facts=facts)
    print(json.dumps(summary) if output.json else _in_words(summary, out))
    alerting.finish(int(str(summary["alerts"])))


@app.command(help_epilogue="Example: graphquilt watch flows --state memory --width 1d --dim 20")
def watch(
    folder: Annotated[
        str,
        Parameter(
            help="A folder that fills with flow files, or - for standard input (CSV).", allow_leading_hyphen=True
        ),
    ],
    *,
    state: Annotated[Path | None, Parameter(help="Folder that keeps what was learnt; a restart goes on.")] = None,
    history: Annotated[int | None, Parameter(help="Windows to remember. [default: the longest lag]")] = None,
    poll: Annotated[float, Parameter(help="Seconds between looks at the folder.")] = 5.0,
    idle: Annotated[
        float | None,
        Parameter(help="Stop after this many seconds without a new file; 0 reads what is there. [default: never]"),
    ] = None,
    scoring: ScoringFlags = ScoringFlags(),
    reading: FlowFlags = FlowFlags(),
    alerting: AlertFlags = AlertFlags(),
    output: Output = Output(),  # noqa: ARG001  (every line is JSON; --config and --save-config work as everywhere)
) -> None:
    """Score windows as they arrive and print one line per alert. With --exit-code, alerts give exit code 3."""
    from graphquilt.report.alert_files import csv_line, json_line, parse_formats
    from graphquilt.temporal import Tracker, snapshots
    from graphquilt.temporal.records import window_records
    from graphquilt.temporal.watching import arriving_files, open_state, watch_windows
    from graphquilt.temporal.windows import seconds

    if folder != "-" and not Path(folder).is_dir():
        raise InputError(f"{folder} is no folder; give one, or - for standard input.")
    if parse_formats(alerting.format) not in (("json",), ("csv",)):
        raise InputError("watch prints its alerts as --format json or csv; anomaly also writes parquet.")
    options, n_alerts = alerting.options(time.time()), 0
    is_csv = alerting.format == "csv"
    tracker = Tracker(scoring.options(), history=history)
    with open_state(state, tracker, width=seconds(scoring.width), protocol=reading.protocol) as memory:
        flows = (
            reading.read(sys.stdin.buffer)
            if folder == "-"
            else arriving_files(folder, partial(reading.read, skip_others=True), state=memory, poll=poll, idle=idle)
        )
        days = snapshots(alerting.kept(flows), scoring.width, grace=reading.grace, max_gap=reading.max_gap)
        memory.incidents.gap = alerting.merge
        _end_cut_line()
        if is_csv and not _has_text(sys.stdout):
            print(csv_line(None))
        for window, scores in watch_windows(days, memory):
            explain, settings = memory.tracker.explain, memory.settings
            records = window_records(
                scores, days.names, options, settings=settings, incidents=memory.incidents, explain=explain
            )
            for record in records:
                print(csv_line(record) if is_csv else json_line(record, ecs=alerting.ecs))
            _flush()
            n_alerts += len(records)
            text = f"{len(records)} alerts"
            text += f"; not embedded: {scores.left_out}" if scores.left_out else ""
            print(f"window {window.number} ({window.rows} flows): {text}", file=sys.stderr)
    alerting.finish(n_alerts)


def _logs(files: list[Path]) -> list[Path]:
    """Return files and folders; what is none of them, but the name of a data set, stands for its files."""
    from graphquilt.datasets import dataset_files, dataset_names

    names = dataset_names()[1:]
    known = [dataset_files(str(path))[1] if str(path) in names and not path.exists() else [path] for path in files]
    return [path for paths in known for path in paths]


def _flush() -> None:
    """Let no line wait in this process, nor in the memory of the machine: the state will say that it was printed."""
    sys.stdout.flush()
    if _is_regular(sys.stdout):
        os.fsync(sys.stdout.fileno())


def _end_cut_line() -> None:
    """Start a new line if the output is a file whose last line was cut short when a run before this one was killed."""
    if _is_regular(sys.stdout):
        with contextlib.suppress(OSError), open(f"/proc/self/fd/{sys.stdout.fileno()}", "rb") as file:
            file.seek(-1, os.SEEK_END)  # an error if the file is empty
            if file.read() != b"\n":
                print()


def _has_text(stream: TextIO) -> bool:
    """Return whether the output is a file that contains something already."""
    return _is_regular(stream) and os.fstat(stream.fileno()).st_size > 0


def _is_regular(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # a stream in memory has no number
        return False


def _counts(flows: Flows, days: Snapshots) -> dict[str, object]:
    return {
        "rows": flows.counts.rows,
        "kept_rows": flows.counts.kept,
        "filtered_rows": flows.counts.filtered,
        "bad_rows": flows.counts.bad,
        "bad_causes": {cause: asdict(bad) for cause, bad in flows.counts.causes.items()},
        "skipped_files": flows.counts.skipped_files,
        "late_rows": days.late,
        "empty_windows": days.empty,
    }


def _event_counts(events: Events | None, tokens: TokenWindows | None, scores: AnomalyScores) -> dict[str, object]:
    if events is None or tokens is None:
        return {}
    sources = [window.sides["source"] for window in scores.windows]
    return {
        "events": events.counts.rows,
        "bad_events": events.counts.bad,
        "late_tokens": tokens.late,
        "kinds_of_tokens": len(tokens.names),
        "sources_scored_by_tokens": sum(int((s.tokens[:, 0] >= 0).sum()) for s in sources if s.tokens is not None),
    }


def _in_words(summary: dict[str, Any], out: Path) -> str:
    n_sources = summary["node_windows_scored"]["source"]
    lines = [
        f"{summary['rows']} rows, {summary['kept_rows']} kept, {summary['bad_rows']} bad",
        *_events_in_words(summary, n_sources),
        f"{summary['windows']} windows scored, {len(summary['left_out'])} not embedded, "
        f"{summary['empty_windows']} empty",
        f"{summary['alerts']} alerts in {summary['incidents']} incidents"
        + (f", the highest severity is {summary['highest_severity']:g}" if summary["alerts"] else ""),
        f"written to {out}: open report.html",
    ]
    return "\n".join(lines)


def _events_in_words(summary: dict[str, Any], n_sources: int) -> list[str]:
    """Say what events gave; hosts that have other names in events and flows must not go unnoticed."""
    if "events" not in summary:
        return []
    n_found, n_late = summary["sources_scored_by_tokens"], summary["late_tokens"]
    text = f"{summary['events']} events, {summary['bad_events']} bad, {summary['kinds_of_tokens']} kinds of tokens; "
    text += f"{n_found} of {n_sources} sources in windows are scored by them"
    if n_found == 0:
        text += ": hosts need the same names in events and flows (--addresses gives them), and the same clock"
    late = f"{n_late} tokens came after their window and were left out: give the logs of events in order of time"
    return [text, late] if n_late else [text]
