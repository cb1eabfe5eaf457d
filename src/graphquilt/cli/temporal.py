"""The commands for temporal networks: anomaly (batch) and watch (stream)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphquilt.cli import app

if TYPE_CHECKING:
    from graphquilt.anomaly import WindowScores
    from graphquilt.flows import Flows
    from graphquilt.progress import Progress
    from graphquilt.windows import Snapshots, Window

Width = Annotated[str, typer.Option("--width", help="Length of a window: 1d, 12h, 30m …")]
Dim = Annotated[int, typer.Option("--dim", help="Dimensions of each window's embedding.")]
Lags = Annotated[str, typer.Option("--lags", help="Align windows that are so many apart, comma-separated.")]
Least = Annotated[int, typer.Option("--min-observations", help="Windows a node must be in to be standardised.")]
Quantile = Annotated[float, typer.Option("--quantile", help="Flag scores above this quantile.")]
Background = Annotated[
    float, typer.Option("--background", help="Weight of the faint uniform background; 0 is the paper's embedding.")
]
Protocol = Annotated[str | None, typer.Option("--protocol", help="Keep only tcp, udp, icmp or a number.")]
Source = Annotated[str, typer.Option("--source", help="Column of the source.")]
Destination = Annotated[str, typer.Option("--destination", help="Column of the destination.")]
Time = Annotated[str, typer.Option("--time", help="Column of the time: seconds or ISO times.")]
Columns = Annotated[str | None, typer.Option("--columns", help="Names of all columns, if the files have no header.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first bad row with its line number.")]
_LAGS = "1,7,14,21,28,35,42,49"


@app.command(epilog="Example: `graphquilt anomaly netflow.csv --width 1d --dim 20 --lags 1,7,14,21 --out scores`")
def anomaly(
    files: Annotated[list[Path], typer.Argument(help="Flow files in order of time: CSV, .gz, .bz2 or Parquet.")],
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder for scores, alerts, figures and the page.")],
    width: Width = "1d",
    dim: Dim = 20,
    lags: Lags = _LAGS,
    min_observations: Least = 21,
    quantile: Quantile = 0.999,
    background: Background = 1.0,
    protocol: Protocol = None,
    source: Source = "srcdevice",
    destination: Destination = "dstdevice",
    time: Time = "time",
    columns: Columns = None,
    strict: Strict = False,
    undirected: Annotated[bool, typer.Option("--undirected", help="One set of nodes, symmetric matrices.")] = False,
    mark: Annotated[str, typer.Option("--mark", help="Windows to shade in the figures: 49-88,90.")] = "",
    node: Annotated[list[str] | None, typer.Option("--node", help="Draw this source; may be repeated.")] = None,
    workers: Annotated[int, typer.Option("--workers", help="Processes that embed windows side by side.")] = 1,
    figures: Annotated[bool, typer.Option(help="Draw the figures.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Score every node of a temporal network against its own other windows."""
    from graphquilt.anomaly import score_windows
    from graphquilt.report.anomaly import ReportOptions, parse_marks, write_report
    from graphquilt.windows import snapshots

    marked, steps = parse_marks(mark), _lags(lags)
    flows = _flows(files, (source, destination, time), columns, protocol=protocol, strict=strict)
    days = snapshots(flows, width, directed=not undirected)
    options: dict[str, Any] = {"dim": dim, "lags": steps, "min_observations": min_observations, "quantile": quantile}
    with _pool(workers) as pool, _drawn_progress() as progress:
        scores = score_windows(days.windows(), **options, background=background, executor=pool, progress=progress)

    def name_of(side: str, number: int) -> str:
        return (days.sources if side == "source" else days.destinations)[number]

    parameters = {**options, "width": width, "background": background, "protocol": protocol, "directed": not undirected}
    drawn = tuple(("source", days.sources.id(name)) for name in node or [])
    pictures = ReportOptions(title=_title(files), marked=marked, nodes=drawn, figures=figures)
    facts = {**_counts(flows, days), "parameters": parameters}
    summary = write_report(out, scores, name_of=name_of, options=pictures, facts=facts)
    typer.echo(json.dumps(summary) if as_json else _said(summary, out))


@app.command(epilog="Example: `graphquilt watch flows --state memory --width 1d --dim 20`")
def watch(
    folder: Annotated[str, typer.Argument(help="A folder that fills with flow files, or - for standard input (CSV).")],
    *,
    state: Annotated[Path | None, typer.Option("--state", help="Folder that remembers; a restart goes on.")] = None,
    budget: Annotated[int, typer.Option("--budget", help="At most so many alerts a window.")] = 20,
    history: Annotated[int | None, typer.Option("--history", help="Windows remembered; the longest lag.")] = None,
    poll: Annotated[float, typer.Option("--poll", help="Seconds between looks at the folder.")] = 5.0,
    idle: Annotated[
        float | None,
        typer.Option("--idle", help="Stop after so many seconds without a new file; 0 reads what is there."),
    ] = None,
    width: Width = "1d",
    dim: Dim = 20,
    lags: Lags = _LAGS,
    min_observations: Least = 21,
    quantile: Quantile = 0.999,
    background: Background = 1.0,
    protocol: Protocol = None,
    source: Source = "srcdevice",
    destination: Destination = "dstdevice",
    time: Time = "time",
    columns: Columns = None,
    strict: Strict = False,
) -> None:
    """Score windows as they arrive, from the past only; print one JSON line an alert."""
    from graphquilt.anomaly import Tracker
    from graphquilt.anomaly.watching import WatchState, arriving_files, watch_windows
    from graphquilt.errors import InputError
    from graphquilt.windows import snapshots

    steps = _lags(lags)
    if budget < 1:
        raise InputError(f"a budget is at least one alert a window, not {budget}.")
    if folder != "-" and not Path(folder).is_dir():
        raise InputError(f"{folder} is no folder; give one, or - for standard input.")
    options: dict[str, Any] = {
        "lags": steps,
        "min_observations": min_observations,
        "history": history,
        "quantile": quantile,
    }
    remembered = WatchState(state, lambda: Tracker(dim, **options, background=background))

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
    from graphquilt.flows import read_flows

    source, destination, time = names
    return read_flows(
        inputs,
        source=source,
        destination=destination,
        time=time,
        protocol=protocol,
        columns=None if columns is None else columns.split(","),
        strict=strict,
    )


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
    tracker: Any, days: Snapshots, window: Window, scores: WindowScores, budget: int
) -> Iterator[dict[str, Any]]:
    names = {"source": days.sources, "destination": days.destinations}
    for alert in scores.alerts(budget):
        line = {
            "window": alert.number,
            "start": window.start,
            "side": alert.side,
            "node": names[alert.side][alert.node],
            "raw": round(alert.raw, 6),
            "standardised": round(alert.standardised, 3),
        }
        if alert.number in tracker.numbers:
            why = tracker.explain(alert.number, alert.side, alert.node)
            other = names["destination" if alert.side == "source" else "source"]
            line |= {"n_new": len(why.new), "n_gone": len(why.gone)}
            line |= {"new": [other[int(k)] for k in why.new[:20]], "gone": [other[int(k)] for k in why.gone[:20]]}
        yield line


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


@contextmanager
def _pool(workers: int) -> Iterator[Any]:
    if workers <= 1:
        yield None
        return
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(workers) as pool:
        yield pool


@contextmanager
def _drawn_progress() -> Iterator[Any]:
    """A line on standard error that is drawn over itself, on terminals only."""
    if not sys.stderr.isatty():
        yield None
        return

    def draw(event: Progress) -> None:
        typer.echo(f"\r{event.stage}: {event.done}\033[K", err=True, nl=False)

    yield draw
    typer.echo("\r\033[K", err=True, nl=False)
