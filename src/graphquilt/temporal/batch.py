"""A whole recording at once: score every window, and go from logs to alerts with :func:`detect`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.errors import InputError, QuiltError
from graphquilt.progress import ProgressCallback, report
from graphquilt.temporal.drift import DriftScores, WindowEmbedding, align_windows, embed_windows
from graphquilt.temporal.evidence import add_flows
from graphquilt.temporal.judging import LEARNT
from graphquilt.temporal.logs.blocks import Input
from graphquilt.temporal.logs.columns import RowCounts, without_hosts
from graphquilt.temporal.logs.events import Events, read_events
from graphquilt.temporal.logs.flows import Flows, read_flows
from graphquilt.temporal.names import Names
from graphquilt.temporal.records import AlertOptions, Record, merge_incidents, report_alerts
from graphquilt.temporal.results import Alert, Explanation, Pattern, WindowScores, explain
from graphquilt.temporal.tokens import TokenWindows
from graphquilt.temporal.tracker import ScoringOptions, Tracker
from graphquilt.temporal.windows import Window, WindowOptions, snapshots
from graphquilt.times import parse_duration

_WIDTHS = ("6h", "1h", "10m", "1m", "10s")  # of windows of a log shorter than three days; it has at least eight
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class AnomalyScores:
    """The result of :func:`score_windows`.

    ``windows`` has what :meth:`graphquilt.temporal.Tracker.update` gives, in order. ``drift`` has the paper's scores,
    which compare a window with all others; it is None if the windows cannot be aligned, and ``drift_missing`` says why.
    ``patterns`` has the pairs of each window, for explanations.
    """

    windows: tuple[WindowScores, ...]
    drift: DriftScores | None
    drift_missing: str | None
    patterns: tuple[Pattern, ...]

    @property
    def numbers(self) -> Int64Array:
        """The number of each window, (windows,)."""
        return np.array([window.number for window in self.windows], dtype=np.int64)

    @property
    def times(self) -> Float64Array:
        """The start of each window in seconds, (windows,)."""
        return np.array([window.start for window in self.windows], dtype=np.float64)

    @property
    def left_out(self) -> dict[int, str]:
        """The windows without positions, each with the reason."""
        return {window.number: window.left_out for window in self.windows if window.left_out is not None}

    def alerts(self, budget: int = 20) -> list[Alert]:
        """Return up to ``budget`` alerts of each window, those with the smallest p-values first."""
        alerts = [alert for window in self.windows for alert in window.alerts(budget)]
        return sorted(alerts, key=lambda alert: alert.pvalue)

    def explain(self, number: int, side: str, node: int) -> Explanation:
        """Return which neighbours of a node are new or gone in window ``number``, compared with all other windows."""
        return explain(self.patterns, node, int(np.searchsorted(self.numbers, number)), side=side)


def score_windows(
    windows: Iterable[Window],
    options: ScoringOptions | None = None,
    *,
    history: int | None = None,
    tokens: TokenWindows | None = None,
    keep: int | None = 10_000,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> AnomalyScores:
    """Score every host in every window from the windows before it, and by the paper's drift from all other windows.

    ``windows`` are read once, in order, and ``tokens`` are what device logs say about their sources. ``history`` is as
    in :class:`graphquilt.temporal.Tracker`. Of each window the ``keep`` hosts of each side and pairs with the smallest
    p-values are kept; None keeps all. An executor embeds several windows at the same time.
    """
    options = options or ScoringOptions()
    tracker = Tracker(options, history=history)
    scored: list[WindowScores] = []
    patterns: list[Pattern] = []
    embedded: list[WindowEmbedding] = []
    for window, own_tokens, result in embed_windows(windows, options, executor, tokens):
        scores, A = tracker.update(window, own_tokens, embedded=result), window.matrix
        scored.append(scores if keep is None else scores.lowest(keep))
        patterns.append(Pattern(A.indptr, A.indices.astype(np.int32, copy=False), A.shape))
        embedded.append(WindowEmbedding(window.number, window.start, result))
        report(progress, "windows scored", len(scored))
    del tracker  # its memory is as large as what alignment needs
    drift, missing = None, None
    try:
        drift = align_windows(embedded, options, progress)
    except QuiltError as error:
        missing = str(error)
    return AnomalyScores(tuple(scored), drift, missing, tuple(patterns))


@dataclass(frozen=True, eq=False)
class Detection:
    """The result of :func:`detect`.

    ``alerts`` and ``incidents`` are the records of ``alerts.jsonl`` and ``incidents.jsonl``, the most severe first;
    ``names`` are those of sources, destinations and tokens; ``facts`` has counts of rows, and the options. The ids of
    alerts depend on the ``settings``.
    """

    scores: AnomalyScores
    names: Mapping[str, Names]
    alerts: list[Record]
    incidents: list[Record]
    facts: Mapping[str, object]
    settings: Mapping[str, object] = field(default_factory=dict)


def detect(
    logs: Flows | Input | Sequence[Input],
    options: ScoringOptions | None = None,
    *,
    windows: WindowOptions | None = None,
    alerts: AlertOptions | None = None,
    events: Events | Input | Sequence[Input] | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> Detection:
    r"""Read flows, cut them into windows, score every window from those before it, and report the alerts.

    ``logs`` and ``events`` (what ran on the hosts) are the results of :func:`read_flows` and :func:`read_events`, or
    what these take. Logs in files are read again for the flows of incidents, and those too short for windows of
    the default width get narrower ones. An executor embeds several windows at the same time. Logs
    without flows are an InputError.

    Examples
    --------
    >>> import io
    >>> rows = [f"{3600 * hour},a{hour % 3},b{hour % 5}" for hour in range(240)]
    >>> log = io.BytesIO("\n".join(["time,source,destination", *rows]).encode())
    >>> detection = detect(log, ScoringOptions(dim=1, lags=(1,), min_observations=3), alerts=AlertOptions(budget=2))
    >>> len(detection.scores.windows), len(detection.alerts) > 0
    (10, True)
    """
    options, windows, alerts = options or ScoringOptions(), windows or WindowOptions(), alerts or AlertOptions()
    options.check_events(events)
    flows = logs if isinstance(logs, Flows) else read_flows(logs)
    log = events if events is None or isinstance(events, Events) else read_events(events)
    cut = snapshots(without_hosts(flows, alerts.ignored), **asdict(windows))
    tokens = None if log is None else TokenWindows(log, cut)
    scores = score_windows(cut.windows(), options, tokens=tokens, executor=executor, progress=progress)
    if not scores.windows:
        raise _nothing_to_score(flows.counts)
    width = next((width for width in _WIDTHS if cut.span[1] - cut.span[0] >= 8 * parse_duration(width)), None)
    is_short = windows == WindowOptions() and len(scores.windows) <= LEARNT and flows.is_repeatable
    if is_short and width is not None:
        _log.warning("the log is too short for windows of %s: they are %s long instead", windows.width, width)
        return detect(
            flows,
            options,
            windows=replace(windows, width=width),
            alerts=alerts,
            events=events,
            executor=executor,
            progress=progress,
        )
    names = cut.names if tokens is None else cut.names | {"token": tokens.names}
    settings = Tracker(options).settings | windows.settings(flows.protocol, flows.columns.user)
    records = report_alerts(scores, names, alerts, settings=settings)
    facts = flows.counts.facts() | {"late_rows": cut.late, "empty_windows": cut.empty}
    if log is not None and tokens is not None:
        tables = [window.sides["source"].tokens for window in scores.windows]
        facts |= {
            "events": log.counts.rows,
            "bad_events": log.counts.bad,
            "late_tokens": tokens.late,
            "kinds_of_tokens": len(tokens.names),
            "sources_scored_by_tokens": sum(int((table[:, 0] >= 0).sum()) for table in tables if table is not None),
        }
    parameters = {"width": windows.width, "overlap": windows.overlap, "protocol": flows.protocol}
    facts["parameters"] = asdict(options) | parameters
    drift = None if scores.drift is None else scores.drift.sides.items()
    facts["median_edge_error"] = drift and {side: float(np.median(part.alignment.edge_errors)) for side, part in drift}
    incidents = merge_incidents(records)
    if flows.is_repeatable and incidents:
        add_flows(incidents, without_hosts(replace(flows, with_bytes=True), alerts.ignored), cut)
    return Detection(scores, names, records, incidents, facts, settings)


def _nothing_to_score(counts: RowCounts) -> InputError:
    """Return the error for logs without flows, with the numbers that say where the rows went."""
    files = f", and {len(counts.skipped_files)} files are not logs of flows" if counts.skipped_files else ""
    return InputError(
        f"there are no flows to score: {counts.rows} rows were read, {counts.filtered} have another protocol, "
        f"{counts.bad} could not be read{files}. Name a log that has flows, and check --protocol and --ignore, which "
        "leave flows out."
    )
