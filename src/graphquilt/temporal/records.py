"""Alerts as records for other programs, the same for a batch and a stream, and the incidents they belong to."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from graphquilt.errors import FormatError, InputError, counted
from graphquilt.temporal.logs.columns import HostList, read_host_list
from graphquilt.temporal.names import Names
from graphquilt.temporal.results import Alert, Explanation, PairAlert, Victims, WindowScores
from graphquilt.temporal.windows import SIDES
from graphquilt.times import read_moment

if TYPE_CHECKING:
    from graphquilt.temporal.batch import AnomalyScores

Record: TypeAlias = dict[str, Any]
Explain: TypeAlias = Callable[[int, str, int], Explanation]
_Ranked = TypeVar("_Ranked", Alert, PairAlert)

LISTED = 20  # neighbours that are named in a record
_FIRST_DATE, _LAST_DATE = 1e8, 253_402_300_799.0  # from 1973 to the year 9999; other times are not since 1970
_NAMED = 2  # components in the reason of an alert
_PORTS = 5  # in a record
_EXPLAINED = 200  # alerts, from the top, that name their new and gone neighbours


@dataclass(frozen=True)
class AlertOptions:
    """Which alerts are reported; ``allow`` and ``ignore`` are files, or a :class:`HostList`."""

    budget: int = 20
    """At most this many hosts per window."""
    pairs: int = 5
    """At most this many connections per window."""
    incident: float = 60.0
    """Severity from which an alert opens an incident; weaker alerts of its host then belong to it."""
    min_severity: float = 0.0
    """Leave out alerts below this severity: 40 is expected by chance once per window, 60 in ten, 100 in a thousand."""
    since: str | None = None
    """Report alerts from this date, or from the last 7d; earlier windows only train the baseline."""
    allow: str | os.PathLike[str] | HostList | None = None
    """File of hosts that never alert: names, patterns with *, addresses or networks, one per line."""
    ignore: str | os.PathLike[str] | HostList | None = None
    """File of hosts whose flows are neither scored nor learnt."""
    merge: int = 7
    """Alerts of a host at most this many windows apart are one incident."""

    def __post_init__(self) -> None:
        if self.budget < 1 or self.pairs < 0 or self.merge < 1:
            raise InputError(
                f"--budget and --merge are at least 1 and --pairs is at least 0, not {self.budget}, {self.merge} and "
                f"{self.pairs}."
            )
        if self.since is not None:
            read_moment(self.since, 0.0)

    @cached_property
    def allowed(self) -> HostList:
        """The hosts that never alert; other hosts fill the budget."""
        return read_host_list(self.allow)

    @cached_property
    def ignored(self) -> HostList:
        """The hosts whose flows are left out."""
        return read_host_list(self.ignore)

    def begin(self, now: float) -> float:
        """Return the time from which alerts are reported, in seconds; ``now`` is what ``7d`` is counted back from."""
        return -math.inf if self.since is None else read_moment(self.since, now)


def report_alerts(
    scores: AnomalyScores,
    names: Mapping[str, Names],
    options: AlertOptions | None = None,
    *,
    settings: Mapping[str, object],
) -> list[Record]:
    """Return the alerts of all windows, the most severe first; the first 200 hosts with their neighbours."""
    options = options or AlertOptions()
    incidents, since = (
        Incidents(options.merge, options.incident),
        options.begin(scores.windows[-1].end if scores.windows else 0.0),
    )
    records = [
        record
        for window in scores.windows
        for record in window_records(window, names, options, settings=settings, incidents=incidents, since=since)
    ]
    records.sort(key=lambda record: (-record["severity"], record["pvalue"], record["window"]))
    hosts = [record for record in records if record["kind"] == "host"]
    for record in hosts[:_EXPLAINED]:
        node = names[record["side"]].find(record["node"])
        add_explanation(record, scores.explain(record["window"], record["side"], node), names)
    return records


def window_records(
    scores: WindowScores,
    names: Mapping[str, Names],
    options: AlertOptions,
    *,
    settings: Mapping[str, object],
    incidents: Incidents,
    since: float = -math.inf,
    explain: Explain | None = None,
) -> list[Record]:
    """Return the alerts of one window as records, hosts before connections, the smallest p-value first."""
    if scores.end <= since:
        return []

    def is_reported(*nodes: tuple[str, int]) -> bool:
        return not any(names[side][node] in options.allowed for side, node in nodes)

    def is_under(pair: PairAlert) -> bool:
        return any((side, getattr(pair, side)) in authors for side in SIDES)

    hosts = _first_reported(
        scores.alerts, lambda a: is_reported((a.side, a.node)), options.budget, options.min_severity
    )
    authors = {(alert.side, alert.node) for alert in hosts}
    pairs = _first_reported(
        scores.pairs,
        lambda p: is_reported(("source", p.source), ("destination", p.destination)) and not is_under(p),
        options.pairs,
        options.min_severity,
    )
    times = {"window": scores.number, "start": scores.start, "end": scores.end, "date": date_of(scores.start)}
    records = []
    for alert in hosts:
        record = _host_record(alert, names) | times
        if explain is not None:
            add_explanation(record, explain(alert.number, alert.side, alert.node), names)
        records.append(record)
    records += [_pair_record(pair, names) | times for pair in pairs]
    return [
        {"id": alert_id(record, settings), "incident": incident, "repeat": repeat, **record}
        for record in records
        for incident, repeat in [incidents.add(record, scores.number, scores.start)]
    ]


def _first_reported(
    ranked: Callable[[int], list[_Ranked]], is_reported: Callable[[_Ranked], bool], size: int, least: float
) -> list[_Ranked]:
    """Return the first ``size`` alerts that are reported and severe enough; ask for more while some are not."""
    asked = size
    while asked:
        alerts = ranked(asked)
        chosen = [alert for alert in alerts if alert.severity >= least and alert.pvalue < 1 and is_reported(alert)]
        if len(chosen) >= size or len(alerts) < asked or alerts[-1].severity < least:
            return chosen[:size]
        asked *= 2
    return []


def alert_id(record: Record, settings: Mapping[str, object]) -> str:
    """Return 16 hexadecimal digits that depend on the window, the names of the nodes and the settings only.

    A restarted stream may report a window twice, with the same ids; a batch with the same settings gives them too.
    """
    if record.get("kind") == "pair":
        parts = [record["window"], "pair", record["source"], record["destination"], settings]
    else:
        parts = [record["window"], record["side"], record["node"], settings]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def date_of(seconds: float) -> str | None:
    """Return a time since 1970 as ISO text in UTC; None if it can hardly be one."""
    if not _FIRST_DATE <= seconds <= _LAST_DATE:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def add_explanation(record: Record, explanation: Explanation, names: Mapping[str, Names]) -> None:
    """Add the number of neighbours of a host, and the names of up to 20 that are new and gone, to its record."""
    other = names[SIDES[1 - SIDES.index(record["side"])]]
    usual = explanation.usual_degree
    record |= {
        "degree": explanation.degree,
        "usual_degree": round(usual, 2) if math.isfinite(usual) else None,
        "n_new": len(explanation.new),
        "n_gone": len(explanation.gone),
        "new": [other[int(node)] for node in explanation.new[:LISTED]],
        "gone": [other[int(node)] for node in explanation.gone[:LISTED]],
    }


def _host_record(alert: Alert, names: Mapping[str, Names]) -> Record:
    other = names[SIDES[1 - SIDES.index(alert.side)]]
    tokens = None if alert.tokens is None else [names["token"][token] for token in alert.tokens]
    components = [
        {"name": name, "value": _short(value, 4), "z": _short(z, 4), "pvalue": _short(pvalue, 3)}
        for name, value, z, pvalue in alert.components
    ]
    reasons = []
    for name, _, z, pvalue in alert.components[:_NAMED]:
        score = f"z {z:.1f}, " if math.isfinite(z) else ""
        words = f": {', '.join(tokens)}" if name == "tokens" and tokens else ""
        reasons.append(f"{name} ({score}p {pvalue:.2g}{words})")
    return {
        "kind": "host",
        "side": alert.side,
        "node": names[alert.side][alert.node],
        "pvalue": _short(alert.pvalue, 3),
        "severity": round(alert.severity, 1),
        "reason": "; ".join(filter(None, [_deed(alert), "unusual " + " and ".join(reasons) if reasons else ""])),
        "components": components,
        "n_victims": len(alert.victims.partner),
        "victims": [other[node] for node in alert.victims.partner[:LISTED].tolist()],
        "flows": int(alert.victims.flows.sum()),
        "ports": _ports(alert.victims),
    } | ({} if tokens is None else {"tokens": tokens})


def _deed(alert: Alert) -> str:
    """Say what an author did, in one clause; nothing without victims."""
    n, flows = len(alert.victims.partner), int(alert.victims.flows.sum())
    if not n:
        return ""
    if alert.side == SIDES[0]:
        return f"{counted(flows, 'flow')} to {counted(n, 'destination')} that it never or hardly used"
    return f"{counted(flows, 'flow')} from {counted(n, 'source')} that never or hardly used it"


def _ports(victims: Victims) -> list[int]:
    """Return up to five destination ports of most connections, the commonest first."""
    ports, count = np.unique(victims.ports[victims.ports >= 0], return_counts=True)
    return [int(port) for port in ports[np.argsort(-count, kind="stable")][:_PORTS]]


def _pair_record(pair: PairAlert, names: Mapping[str, Names]) -> Record:
    novelty = "a connection never seen before" if pair.is_new else "an unusual connection"
    port = "" if pair.port is None else f" to port {pair.port}"
    return {
        "kind": "pair",
        "source": names["source"][pair.source],
        "destination": names["destination"][pair.destination],
        "port": pair.port,
        "pvalue": _short(pair.pvalue, 3),
        "severity": round(pair.severity, 1),
        "reason": f"{novelty}{port} (p {pair.pvalue:.2g}, {counted(pair.flows, 'flow')})",
        "surprise": _short(pair.surprise, 4),
        "flows": pair.flows,
        "is_new": pair.is_new,
    }


def _short(value: float, digits: int) -> float | None:
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


class Incidents:
    """The open incidents; one begins with an alert of severity ``least``, and ends ``gap`` windows after its last."""

    def __init__(self, gap: int = 7, least: float = 60.0, open_ones: Mapping[str, Any] | None = None) -> None:
        self.gap, self.least = gap, least
        self._open: dict[str, tuple[float, int, int]] = {}  # first start, last window, windows so far
        for key, value in (open_ones or {}).items():
            is_one = isinstance(value, list) and len(value) == 3
            if not is_one or type(value[0]) not in (int, float) or any(type(part) is not int for part in value[1:]):
                raise FormatError("the incidents of a state are damaged. Give a new folder.")
            self._open[key] = (float(value[0]), value[1], value[2])

    def add(self, record: Record, number: int, start: float) -> tuple[str | None, int]:
        """Return the id of the incident that an alert belongs to, or None, and in how many windows it has occurred."""
        is_pair = record["kind"] == "pair"
        who = ["pair", record["source"], record["destination"]] if is_pair else ["host", record["node"]]
        key = json.dumps(who)
        first, last, repeat = self._open.get(key, (start, number, 0))
        if number - last > self.gap:
            first, last, repeat = start, number, 0
        if repeat == 0 and record["severity"] < self.least:
            return None, 0
        repeat += repeat == 0 or number != last
        self._open[key] = (first, number, repeat)
        return hashlib.sha256(json.dumps([key, first]).encode()).hexdigest()[:16], repeat

    def state(self, number: int) -> dict[str, list[float]]:
        """Forget the incidents that ended before window ``number``, and return the others for a file."""
        self._open = {key: value for key, value in self._open.items() if number - value[1] <= self.gap}
        return {key: list(value) for key, value in self._open.items()}


def merge_incidents(records: Sequence[Record]) -> list[Record]:
    """Return one record per incident, the most severe first: the author, what it did to whom, when, and which alerts.

    The author is a source where one of the alerts names it as such. Victims and ports are those of all alerts of that
    side.
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record["incident"] is not None:
            groups.setdefault(record["incident"], []).append(record)
    incidents = []
    for identity, alerts in groups.items():
        worst = max(alerts, key=lambda alert: alert["severity"])
        names = [component["name"] for alert in alerts for component in alert.get("components", ())[:2]]
        who = {part: worst[part] for part in ("source", "destination", "port")} if worst["kind"] == "pair" else {}
        if not who:
            side = min((alert["side"] for alert in alerts), key=SIDES.index)
            own = [alert for alert in alerts if alert["side"] == side]
            victims = list(dict.fromkeys(name for alert in own for name in alert["victims"]))
            who = {"node": worst["node"], "side": side, "n_victims": max(alert["n_victims"] for alert in own)}
            who |= {"victims": victims[:LISTED], "flows": sum(alert["flows"] for alert in own)}
            who["ports"] = list(dict.fromkeys(port for alert in own for port in alert["ports"]))[:_PORTS]
        else:
            who["flows"] = sum(alert["flows"] for alert in alerts)
        incidents.append(
            {
                "id": identity,
                "kind": worst["kind"],
                **who,
                "start": min(alert["start"] for alert in alerts),
                "end": max(alert["end"] for alert in alerts),
                "date": min(alerts, key=lambda alert: alert["start"])["date"],
                "windows": sorted({alert["window"] for alert in alerts}),
                "severity": worst["severity"],
                "pvalue": worst["pvalue"],
                "reason": worst["reason"],
                "components": sorted(set(names), key=lambda name: (-names.count(name), name)),
                "alerts": [alert["id"] for alert in alerts],
            }
        )
    return sorted(incidents, key=lambda incident: (-incident["severity"], incident["pvalue"], incident["start"]))
