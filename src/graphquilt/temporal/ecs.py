"""Alerts in the field names of the Elastic Common Schema (ECS 8.11)."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

__all__ = ["ecs_record"]

_VERSION = "8.11.0"
_FIRST, _LAST = -62_135_596_800.0, 253_402_300_799.0  # the years 1 to 9999


def ecs_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of an alert with the names of ECS; what ECS has no name for is below ``graphquilt``.

    Examples
    --------
    >>> pair = {"id": "a1", "kind": "pair", "source": "10.0.0.1", "destination": "mail", "port": 25, "severity": 61.5}
    >>> ecs = ecs_record(pair | {"start": 0.0, "end": 60.0, "window": 0, "reason": "why"})
    >>> ecs["source"], ecs["destination"], ecs["event"]["severity"], ecs["@timestamp"]
    ({'address': '10.0.0.1', 'ip': '10.0.0.1'}, {'address': 'mail', 'port': 25}, 62, '1970-01-01T00:00:00.000Z')
    """
    start, end = _stamp(record["start"]), _stamp(record["end"])
    is_pair = record["kind"] == "pair"
    own = {
        key: value for key, value in record.items() if key not in ("id", "start", "end", "severity", "reason", "date")
    }
    ecs: dict[str, Any] = {
        "@timestamp": start,
        "ecs": {"version": _VERSION},
        "event": {
            "kind": "alert",
            "category": ["network", "intrusion_detection"],
            "type": ["connection", "info"] if is_pair else ["info"],
            "module": "graphquilt",
            "dataset": "graphquilt.anomaly",
            "id": record["id"],
            "start": start,
            "end": end,
            "severity": round(record["severity"]),
            "risk_score": float(record["severity"]),
            "risk_score_norm": float(record["severity"]),
            "reason": record["reason"],
        },
        "rule": {"name": "unusual connection" if is_pair else "unusual host"},
        "graphquilt": own,
    }
    names = [record["source"], record["destination"]] if is_pair else [record["node"]]
    if is_pair:
        ecs["source"], ecs["destination"] = _end(record["source"]), _end(record["destination"])
        if record.get("port") is not None:
            ecs["destination"]["port"] = record["port"]
    else:
        ecs[record["side"]] = _end(record["node"])
        ecs["host"] = {"name": record["node"]} | ({"ip": [record["node"]]} if _is_address(record["node"]) else {})
    addresses = [name for name in names if _is_address(name)]
    ecs["related"] = {"hosts": names} | ({"ip": addresses} if addresses else {})
    ecs["message"] = f"{' → '.join(names)}: {record['reason']}"
    return ecs


def _stamp(seconds: float) -> str:
    stamp = datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), UTC)
    return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _end(name: str) -> dict[str, Any]:
    return {"address": name} | ({"ip": name} if _is_address(name) else {})


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
