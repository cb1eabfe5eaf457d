"""Merge alerts of one host, or of one connection, in windows near each other into one incident."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from graphquilt.errors import FormatError

__all__ = ["Incidents", "merge_incidents"]


class Incidents:
    """The incidents that may still go on; one ends when its host has no alert in ``gap`` windows after the last.

    Parameters
    ----------
    gap : int
        How many windows may lie between two alerts of one incident: 1 joins neighbouring windows only.
    open_ones : mapping, optional
        What :meth:`state` gave.

    Examples
    --------
    >>> incidents = Incidents(gap=2)
    >>> alert = {"kind": "host", "node": "desk"}
    >>> [incidents.add(alert, number, 60.0 * number)[1] for number in (0, 2, 5)]
    [1, 2, 1]
    """

    def __init__(self, gap: int = 7, open_ones: Mapping[str, Any] | None = None) -> None:
        self.gap = gap
        self._open: dict[str, tuple[float, int, int]] = {}  # first start, last window, windows so far
        for key, value in (open_ones or {}).items():
            is_one = isinstance(value, list) and len(value) == 3
            if not is_one or type(value[0]) not in (int, float) or any(type(part) is not int for part in value[1:]):
                raise FormatError("the incidents of a state are damaged. Give a new folder.")
            self._open[key] = (float(value[0]), value[1], value[2])

    def add(self, record: Mapping[str, Any], number: int, start: float) -> tuple[str, int]:
        """Return the id of the incident that an alert belongs to, and in how many windows it has occurred so far."""
        key = _key(record)
        first, last, repeat = self._open.get(key, (start, number, 0))
        if number - last > self.gap:
            first, last, repeat = start, number, 0
        repeat += repeat == 0 or number != last
        self._open[key] = (first, number, repeat)
        return hashlib.sha256(json.dumps([key, first]).encode()).hexdigest()[:16], repeat

    def state(self, number: int) -> dict[str, list[float]]:
        """Forget the incidents that have ended before window ``number``, and return the others for a file."""
        self._open = {key: value for key, value in self._open.items() if number - value[1] <= self.gap}
        return {key: list(value) for key, value in self._open.items()}


def merge_incidents(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one record per incident, the most severe first: who, from when to when, how severe, and which alerts."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault(record["incident"], []).append(record)
    incidents = []
    for identity, alerts in groups.items():
        worst = max(alerts, key=lambda alert: alert["severity"])
        names = [component["name"] for alert in alerts for component in alert.get("components", ())[:2]]
        who = ("source", "destination", "port") if worst["kind"] == "pair" else ("node",)
        incidents.append(
            {
                "id": identity,
                "kind": worst["kind"],
                **{part: worst[part] for part in who},
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
    return sorted(incidents, key=lambda incident: (-incident["severity"], incident["start"]))


def _key(record: Mapping[str, Any]) -> str:
    if record["kind"] == "pair":
        return json.dumps(["pair", record["source"], record["destination"]])
    return json.dumps(["host", record["node"]])
