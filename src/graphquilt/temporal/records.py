"""Alerts as records for other programs: the same for a batch and a stream, with ids that never change."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from graphquilt.errors import counted
from graphquilt.temporal.alerts import Explanation
from graphquilt.temporal.incidents import Incidents
from graphquilt.temporal.logs.host_list import HostList
from graphquilt.temporal.names import Names
from graphquilt.temporal.results import Alert, PairAlert, WindowScores
from graphquilt.temporal.windows import SIDES

__all__ = ["AlertOptions", "Record", "add_explanation", "alert_id", "date_of", "window_records"]

Record: TypeAlias = dict[str, Any]

_LISTED = 20  # neighbours that are named in a record
_FIRST_DATE, _LAST_DATE = 1e8, 253_402_300_799.0  # from 1973 to the year 9999; other times are not since 1970
_NAMED = 2  # components in the reason of an alert

Explain: TypeAlias = Callable[[int, str, int], Explanation]


@dataclass(frozen=True)
class AlertOptions:
    """Which alerts are given.

    Attributes
    ----------
    budget, pairs : int
        The largest number of hosts, and of connections, of each window.
    min_severity : float
        From 0 to 100; alerts below it are left out.
    allowed : HostList
        Hosts that never alert; the other hosts fill the budget.
    since : float
        Only windows that end after this time, in seconds, give alerts; the others are only learnt.
    """

    budget: int = 20
    pairs: int = 5
    min_severity: float = 0.0
    allowed: HostList = field(default_factory=HostList)
    since: float = -math.inf


def window_records(
    scores: WindowScores,
    names: Mapping[str, Names],
    options: AlertOptions,
    *,
    settings: Mapping[str, object],
    incidents: Incidents,
    explain: Explain | None = None,
) -> list[Record]:
    """Return the alerts of one window as records, hosts before connections, the smallest p-value first.

    Parameters
    ----------
    scores : WindowScores
    names : mapping of "source" and "destination" to Names
        Also of "token", if there are events.
    settings : mapping
        What the windows and scores were made with; the ids depend on them.
    incidents : Incidents
        The incidents so far; it learns these alerts.
    explain : callable (number, side, node) -> Explanation, optional
        Adds the new and gone neighbours of each host.
    """
    if scores.end <= options.since:
        return []
    times = {"window": scores.number, "start": scores.start, "end": scores.end, "date": date_of(scores.start)}
    records = []
    for alert in _hosts(scores, names, options):
        record = _host_record(alert, names) | times
        if explain is not None:
            add_explanation(record, explain(alert.number, alert.side, alert.node), names)
        records.append(record)
    records += [_pair_record(pair, names) | times for pair in _connections(scores, names, options)]
    return [
        {"id": alert_id(record, settings), "incident": incident, "repeat": repeat, **record}
        for record in records
        for incident, repeat in [incidents.add(record, scores.number, scores.start)]
    ]


def alert_id(record: Mapping[str, Any], settings: Mapping[str, object]) -> str:
    """Return 16 hexadecimal digits that depend on the window, the names of the nodes and the settings only.

    A stream that is stopped at any moment and started again may give the alerts of one window twice; both have the
    same id, so that a reader can drop the second. A batch with the same settings gives the same ids.

    Examples
    --------
    >>> alert_id({"window": 4, "side": "source", "node": "desk"}, {"dim": 20})
    'd1bb1f046292fd9e'
    """
    if record.get("kind") == "pair":
        parts = [record["window"], "pair", record["source"], record["destination"], settings]
    else:
        parts = [record["window"], record["side"], record["node"], settings]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def date_of(seconds: float) -> str | None:
    """Return a time since 1970 as ISO text in UTC; None if it can hardly be one.

    Examples
    --------
    >>> date_of(1_700_000_000.0), date_of(86400.0)
    ('2023-11-14T22:13:20Z', None)
    """
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
        "new": [other[int(node)] for node in explanation.new[:_LISTED]],
        "gone": [other[int(node)] for node in explanation.gone[:_LISTED]],
    }


def _host_record(alert: Alert, names: Mapping[str, Names]) -> Record:
    tokens = None if alert.tokens is None else [names["token"][token] for token in alert.tokens]
    components = [
        {"name": name, "value": _short(value, 4), "z": _short(z, 4), "pvalue": _short(pvalue, 3)}
        for name, value, z, pvalue in alert.components
    ]
    reasons = [
        f"{name} ({f'z {z:.1f}, ' if math.isfinite(z) else ''}p {pvalue:.2g}{_named_tokens(name, tokens)})"
        for name, _, z, pvalue in alert.components[:_NAMED]
    ]
    return {
        "kind": "host",
        "side": alert.side,
        "node": names[alert.side][alert.node],
        "pvalue": _short(alert.pvalue, 3),
        "severity": round(alert.severity, 1),
        "reason": "unusual " + " and ".join(reasons) if reasons else "",
        "components": components,
    } | ({} if tokens is None else {"tokens": tokens})


def _named_tokens(component: str, tokens: list[str] | None) -> str:
    return f": {', '.join(tokens)}" if component == "tokens" and tokens else ""


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


def _hosts(scores: WindowScores, names: Mapping[str, Names], options: AlertOptions) -> Iterator[Alert]:
    """Give the alerts of hosts that are not allowed, as many as the budget."""

    def is_wanted(alert: Alert) -> bool:
        return names[alert.side][alert.node] not in options.allowed

    yield from _first(scores.alerts, is_wanted, options.budget, options.min_severity)


def _connections(scores: WindowScores, names: Mapping[str, Names], options: AlertOptions) -> Iterator[PairAlert]:
    def is_wanted(pair: PairAlert) -> bool:
        return not (
            names["source"][pair.source] in options.allowed or names["destination"][pair.destination] in options.allowed
        )

    yield from _first(scores.pairs, is_wanted, options.pairs, options.min_severity)


def _first(
    ranked: Callable[[int], Sequence[Any]], is_wanted: Callable[[Any], bool], size: int, least: float
) -> list[Any]:
    """Return the first ``size`` alerts that are wanted and severe enough; ask for more while some are unwanted."""
    asked = size
    while asked:
        alerts = ranked(asked)
        wanted = [alert for alert in alerts if alert.severity >= least and alert.pvalue < 1 and is_wanted(alert)]
        if len(wanted) >= size or len(alerts) < asked or alerts[-1].severity < least:
            return wanted[:size]
        asked *= 2
    return []
