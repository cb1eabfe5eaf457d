"""The flags of the commands for temporal networks: how flows are read, windows are scored, and alerts are given."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from graphquilt.errors import InputError

if TYPE_CHECKING:
    from graphquilt.temporal import Flows, ScoringOptions
    from graphquilt.temporal.records import AlertOptions

__all__ = ["AlertFlags", "EventFlags", "FlowFlags", "PictureFlags", "ScoringFlags", "WatchFlags"]

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
    overlap: int = 1
    """Every flow lies in this many windows; 4 starts one each quarter."""
    token_weight: float = 0.0
    """Weight of the tokens of events as further columns of the matrix that is embedded; 0 leaves them out of it."""

    def options(self) -> ScoringOptions:
        """Return the options of scoring."""
        from graphquilt.temporal import ScoringOptions

        try:
            lags = tuple(int(part) for part in self.lags.split(","))
        except ValueError:
            raise InputError(f"lags are whole numbers with commas between them, not {self.lags!r}.") from None
        options = ScoringOptions(self.dim, lags, self.min_observations, self.quantile, self.background)
        return replace(options, token_weight=self.token_weight)


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
        from graphquilt.temporal.logs.host_list import read_host_list
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
        from graphquilt.temporal.logs.host_list import read_host_list, without_hosts

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
    """Log of what ran on the hosts of the flows, or a folder; may be repeated."""

    def checked(self, token_weight: float) -> tuple[Path, ...]:
        """Return the logs of events; tokens cannot have a weight without them."""
        if not self.events and token_weight:
            raise InputError("--token-weight weighs the tokens of events; name their logs with --events.")
        return self.events


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PictureFlags:
    """What is drawn of a batch, and of which kind of network."""

    undirected: bool = False
    """One set of nodes, symmetric matrices."""
    mark: str = ""
    """Windows to shade in the figures: 49-88,90."""
    node: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """Draw this source; may be repeated."""
    figures: bool = True
    """Draw the figures."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WatchFlags:
    """How long files are waited for, and what is kept."""

    state: Path | None = None
    """Folder that keeps what was learnt; a restart goes on."""
    history: int | None = None
    """Windows to remember. [default: the longest lag]"""
    poll: float = 5.0
    """Seconds between looks at the folder."""
    idle: float | None = None
    """Stop after this many seconds without a new file; 0 reads what is there. [default: never]"""


def _moment(text: str, now: float) -> float:
    """Return a date, a time in seconds, or a time before ``now``, in seconds."""
    import pyarrow as pa

    from graphquilt.temporal.logs.times import Clock, read_times
    from graphquilt.temporal.windows import seconds

    if text[-1:] in "smhdw" and text[:-1].replace(".", "", 1).isdigit():
        return now - seconds(text)
    time, good, _ = read_times(pa.array([text]), Clock(), label="--since", place=lambda _row: "--since")
    if not good[0]:
        raise InputError(f"--since is a date such as 2024-05-01, or a length of time such as 7d, not {text!r}.")
    return float(time[0])
