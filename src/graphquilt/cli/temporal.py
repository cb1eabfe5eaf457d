"""The commands for temporal networks: anomaly (batch) and watch (stream)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphquilt.cli import app, options
from graphquilt.cli.display import watching

if TYPE_CHECKING:
    from graphquilt.temporal import Flows, Snapshots, Tracker, Window, WindowScores

_LAGS = "1,7,14,21,28,35,42,49"


@app.command(epilog="Example: `graphquilt anomaly netflow.csv --width 1d --dim 20 --lags 1,7,14,21 --out scores`")
def anomaly(
    files: Annotated[list[Path], typer.Argument(help="Flow files in order of time: CSV, .gz, .bz2 or Parquet.")],
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder for scores, alerts, figures and the page.")],
    width: options.Width = "1d",
    dim: options.Dim = 20,
    lags: options.Lags = _LAGS,
    min_observations: options.Least = 21,
    quantile: options.Quantile = 0.999,
    background: options.Background = 1.0,
    protocol: options.Protocol = None,
    source: options.Source = "srcdevice",
    destination: options.Destination = "dstdevice",
    time: options.Time = "time",
    columns: options.FlowColumns = None,
    strict: options.Strict = False,
    undirected: Annotated[bool, typer.Option("--undirected", help="One set of nodes, symmetric matrices.")] = False,
    mark: Annotated[str, typer.Option("--mark", help="Windows to shade in the figures: 49-88,90.")] = "",
    node: Annotated[list[str] | None, typer.Option("--node", help="Draw this source; may be repeated.")] = None,
    workers: Annotated[int, typer.Option("--workers", "-w", min=1, help="Processes that embed windows.")] = 1,
    figures: Annotated[bool, typer.Option(help="Draw the figures.")] = True,
    as_json: options.Json = False,
) -> None:
    """Score every node of a temporal network against its own other windows."""
    from graphquilt.cli.choices import hands
    from graphquilt.report.anomaly import ReportOptions, parse_marks, write_report
    from graphquilt.temporal import ScoringOptions, score_windows, snapshots

    marked = parse_marks(mark)
    scoring = ScoringOptions(dim, _lags(lags), min_observations, quantile, background)
    flows = _flows(files, (source, destination, time), columns, protocol=protocol, strict=strict)
    days = snapshots(flows, width, directed=not undirected)
    with hands(workers) as pool, watching() as progress:
        scores = score_windows(days.windows(), scoring, executor=pool, progress=progress)

    parameters = asdict(scoring) | {"width": width, "protocol": protocol, "directed": not undirected}
    drawn = tuple(("source", days.sources.id(name)) for name in node or [])
    pictures = ReportOptions(title=_title(files), marked=marked, nodes=drawn, figures=figures)
    facts = {**_counts(flows, days), "parameters": parameters}
    summary = write_report(out, scores, names=days.names, options=pictures, facts=facts)
    typer.echo(json.dumps(summary) if as_json else _said(summary, out))


@app.command(epilog="Example: `graphquilt watch flows --state memory --width 1d --dim 20`")
def watch(
    folder: Annotated[str, typer.Argument(help="A folder that fills with flow files, or - for standard input (CSV).")],
    *,
    state: Annotated[Path | None, typer.Option("--state", help="Folder that remembers; a restart goes on.")] = None,
    budget: Annotated[int, typer.Option("--budget", min=1, help="At most so many alerts a window.")] = 20,
    history: Annotated[int | None, typer.Option("--history", help="Windows remembered; the longest lag.")] = None,
    poll: Annotated[float, typer.Option("--poll", help="Seconds between looks at the folder.")] = 5.0,
    idle: Annotated[
        float | None,
        typer.Option("--idle", help="Stop after so many seconds without a new file; 0 reads what is there."),
    ] = None,
    width: options.Width = "1d",
    dim: options.Dim = 20,
    lags: options.Lags = _LAGS,
    min_observations: options.Least = 21,
    quantile: options.Quantile = 0.999,
    background: options.Background = 1.0,
    protocol: options.Protocol = None,
    source: options.Source = "srcdevice",
    destination: options.Destination = "dstdevice",
    time: options.Time = "time",
    columns: options.FlowColumns = None,
    strict: options.Strict = False,
) -> None:
    """Score windows as they arrive, from the past only; print one JSON line an alert."""
    from graphquilt.errors import InputError
    from graphquilt.temporal import ScoringOptions, Tracker, snapshots
    from graphquilt.temporal.watching import WatchState, arriving_files, watch_windows
    from graphquilt.temporal.windows import seconds

    if folder != "-" and not Path(folder).is_dir():
        raise InputError(f"{folder} is no folder; give one, or - for standard input.")
    scoring = ScoringOptions(dim, _lags(lags), min_observations, quantile, background)
    fresh = Tracker(scoring, history=history)
    remembered = WatchState(state, fresh, width=seconds(width), protocol=protocol)

    def read(item: Any) -> Flows:
        return _flows(item, (source, destination, time), columns, protocol=protocol, strict=strict)

    flows = (
        read(sys.stdin.buffer)
        if folder == "-"
        else arriving_files(folder, read, state=remembered, poll=poll, idle=idle)
    )
    days = snapshots(flows, width)
    for window, scores in watch_windows(days, remembered):
        for line in _alert_lines(remembered.tracker, days, window, scores, budget):
            typer.echo(json.dumps(line, ensure_ascii=False))
        what = f"left out: {scores.left_out}" if scores.left_out else f"{len(scores.alerts(budget))} alerts"
        typer.echo(f"window {window.number} ({window.rows} flows): {what}", err=True)


def _flows(
    inputs: Any, names: tuple[str, str, str], columns: str | None, *, protocol: str | None, strict: bool
) -> Flows:
    from graphquilt.temporal import FlowColumns, read_flows

    layout = FlowColumns(*names, names=None if columns is None else columns.split(","))
    return read_flows(inputs, layout, protocol=protocol, strict=strict)


def _counts(flows: Flows, days: Snapshots) -> dict[str, Any]:
    return {
        "rows": flows.counts.rows,
        "kept_rows": flows.counts.kept,
        "filtered_rows": flows.counts.filtered,
        "bad_rows": flows.counts.bad,
        "bad_examples": flows.counts.examples,
        "late_rows": days.late,
        "empty_windows": days.empty,
    }


def _alert_lines(
    tracker: Tracker, days: Snapshots, window: Window, scores: WindowScores, budget: int
) -> Iterator[dict[str, object]]:
    from graphquilt.temporal.alerts import describe_alert

    for alert in scores.alerts(budget):
        learnt = alert.number in tracker.numbers
        explanation = tracker.explain(alert.number, alert.side, alert.node) if learnt else None
        yield {"start": window.start, **describe_alert(alert, days.names, explanation)}


def _lags(text: str) -> tuple[int, ...]:
    from graphquilt.errors import InputError

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"lags are whole numbers with commas between them, not {text!r}.") from None


def _title(files: list[Path]) -> str:
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"Anomalies in {files[0].name}{more}"


def _said(summary: dict[str, Any], out: Path) -> str:
    lines = [
        f"{summary['rows']} rows, {summary['kept_rows']} kept, {summary['bad_rows']} bad",
        f"{summary['windows']} windows scored, {len(summary['left_out'])} left out, "
        f"{len(summary['empty_windows'])} empty",
        *(
            f"{side}s: {summary['nodes'][side]}, limit {summary['limits'][side]:.2f}, "
            f"{sum(summary['outliers'][side])} alerts"
            for side in summary["nodes"]
        ),
        f"written to {out}: open report.html",
    ]
    return "\n".join(lines)
