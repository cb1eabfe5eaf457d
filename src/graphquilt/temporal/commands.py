"""The commands for temporal networks: anomaly (batch) and watch (stream)."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from cyclopts import Parameter

from graphquilt.cli import Output, Workers, watching
from graphquilt.errors import InputError
from graphquilt.temporal.flags import AlertFlags, EventFlags, FlowFlags, PictureFlags, ScoringFlags, WatchFlags

if TYPE_CHECKING:
    from graphquilt.temporal import AnomalyScores, Flows, Snapshots, TokenWindows
    from graphquilt.temporal.logs.events import Events


def anomaly(
    files: Annotated[
        list[Path], Parameter(help="Logs of flows in order of time, or folders of them, or the name of a data set.")
    ],
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"], help="Folder for scores, alerts, figures and the page.")],
    pictures: PictureFlags = PictureFlags(),
    scoring: ScoringFlags = ScoringFlags(),
    reading: FlowFlags = FlowFlags(),
    alerting: AlertFlags = AlertFlags(),
    device: EventFlags = EventFlags(),
    workers: Workers = Workers(workers=1),
    output: Output = Output(),
) -> None:
    """Score every host in every window from the windows before it. With --exit-code, alerts give exit code 3."""
    from graphquilt.temporal import TokenWindows, Tracker, read_events, score_windows, snapshots
    from graphquilt.temporal.alert_files import parse_formats
    from graphquilt.temporal.page.anomaly_report import ReportOptions, parse_marks, write_report
    from graphquilt.temporal.watching import flow_settings

    marked, formats = parse_marks(pictures.mark), parse_formats(alerting.format)
    options, directed = scoring.options(), not pictures.undirected
    alerting.options(0.0)
    flows, logs = reading.read(_logs(files)), device.checked(scoring.token_weight)
    events = read_events(logs, strict=reading.strict) if logs else None
    days = snapshots(
        alerting.kept(flows),
        scoring.width,
        directed=directed,
        grace=reading.grace,
        max_gap=reading.max_gap,
        overlap=scoring.overlap,
    )
    tokens = None if events is None else TokenWindows(events, days)
    with workers.executor(1) as pool, watching() as progress:
        scores = score_windows(days.windows(), options, tokens=tokens, executor=pool, progress=progress)
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    report = ReportOptions(
        title=f"Anomalies in {files[0].name}{more}",
        marked=marked,
        nodes=tuple(("source", days.sources.id(name)) for name in pictures.node),
        figures=pictures.figures,
        alerts=alerting.options(scores.windows[-1].end if scores.windows else 0.0),
        merge=alerting.merge,
        formats=formats,
        ecs=alerting.ecs,
    )
    parameters = {"width": scoring.width, "overlap": scoring.overlap, "protocol": reading.protocol}
    facts = {
        **_counts(flows, days),
        **_event_counts(events, tokens, scores),
        "parameters": asdict(options) | parameters | {"directed": directed},
    }
    settings = Tracker(options).settings | flow_settings(days.width, reading.protocol, scoring.overlap)
    names = days.names if tokens is None else days.names | {"token": tokens.names}
    summary = write_report(out, scores, names=names, settings=settings, options=report, facts=facts)
    print(json.dumps(summary) if output.json else _in_words(summary, out))
    alerting.finish(int(str(summary["alerts"])))


def watch(
    folder: Annotated[
        str,
        Parameter(
            help="A folder that fills with flow files, or - for standard input (CSV).", allow_leading_hyphen=True
        ),
    ],
    *,
    following: WatchFlags = WatchFlags(),
    scoring: ScoringFlags = ScoringFlags(),
    reading: FlowFlags = FlowFlags(),
    alerting: AlertFlags = AlertFlags(),
    device: EventFlags = EventFlags(),
    output: Output = Output(),  # noqa: ARG001  (every line is JSON; --config and --save-config work as everywhere)
) -> None:
    """Score windows as they arrive and print one line per alert. With --exit-code, alerts give exit code 3."""
    from graphquilt.temporal import Tracker, snapshots
    from graphquilt.temporal.alert_files import csv_line, json_line, parse_formats
    from graphquilt.temporal.records import window_records
    from graphquilt.temporal.watching import arriving_files, open_state, watch_windows, watched_tokens
    from graphquilt.temporal.windows import seconds

    if folder != "-" and not Path(folder).is_dir():
        raise InputError(f"{folder} is no folder; give one, or - for standard input.")
    if parse_formats(alerting.format) not in (("json",), ("csv",)):
        raise InputError("watch prints its alerts as --format json or csv; anomaly also writes parquet.")
    options, n_alerts = alerting.options(time.time()), 0
    is_csv = alerting.format == "csv"
    tracker = Tracker(scoring.options(), history=following.history)
    logs = device.checked(scoring.token_weight)
    width, overlap, protocol = seconds(scoring.width), scoring.overlap, reading.protocol
    with open_state(following.state, tracker, width=width, protocol=protocol, overlap=overlap) as memory:
        read, poll, idle = partial(reading.read, skip_others=True), following.poll, following.idle
        flows = (
            reading.read(sys.stdin.buffer)
            if folder == "-"
            else arriving_files(folder, read, state=memory, poll=poll, idle=idle)
        )
        days = snapshots(alerting.kept(flows), width, grace=reading.grace, max_gap=reading.max_gap, overlap=overlap)
        tokens = watched_tokens(logs, days, memory, strict=reading.strict) if logs else None
        memory.incidents.gap = alerting.merge
        _end_cut_line()
        if is_csv and not _has_text(sys.stdout):
            print(csv_line(None))
        for window, scores in watch_windows(days, memory, tokens):
            explain, settings = memory.tracker.explain, memory.settings
            records = window_records(
                scores, memory.names, options, settings=settings, incidents=memory.incidents, explain=explain
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
