"""What a batch has scored, as one checked file, and other alerts from it: the logs are not read again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError
from graphquilt.temporal.batch import AnomalyScores, Detection
from graphquilt.temporal.evidence import FOUND
from graphquilt.temporal.memory import read_state, write_state
from graphquilt.temporal.names import Names
from graphquilt.temporal.records import AlertOptions, merge_incidents, report_alerts
from graphquilt.temporal.results import HostTable, PairTable, Pattern, Victims, WindowScores

SCORES = "scores.npz"
_TYPES: dict[str, Any] = {
    kind.__name__: kind for kind in (AnomalyScores, WindowScores, HostTable, PairTable, Victims, Pattern)
}


def save_scores(path: Path, detection: Detection) -> None:
    """Write everything but the paper's drift to one file."""
    arrays: dict[str, AnyArray] = {}
    tree = {
        "scores": _pack(replace(detection.scores, drift=None), arrays),
        "names": {kind: list(names) for kind, names in detection.names.items()},
        "facts": detection.facts,
        "settings": detection.settings,
        "flows": {i["id"]: {part: i[part] for part in FOUND if part in i} for i in detection.incidents},
    }
    write_state(path, {"header": np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8), **arrays})


def rescore(folder: Path, alerts: AlertOptions) -> Detection:
    """Return the alerts of a folder that ``write_report`` wrote, with other options, such as another allow list."""
    if alerts.ignored:
        raise InputError("--ignore leaves flows out of the scores: read the logs again, or use --allow.")
    arrays = read_state(folder / SCORES)
    try:
        tree = json.loads(arrays.pop("header").tobytes())
        scores = _unpack(tree["scores"], arrays)
        names = {kind: Names(words) for kind, words in tree["names"].items()}
        facts, settings, flows = tree["facts"], tree["settings"], tree["flows"]
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"{folder / SCORES} does not hold scores: {error!r}. Read the logs again.") from None
    records = report_alerts(scores, names, alerts, settings=settings)
    incidents = [incident | flows.get(incident["id"], {}) for incident in merge_incidents(records)]
    return Detection(scores, names, records, incidents, facts, settings)


def _pack(value: object, arrays: dict[str, AnyArray]) -> object:
    """Return a value as JSON, with the names of its arrays, which go to ``arrays``."""
    if isinstance(value, np.ndarray):
        name = f"{len(arrays):06d}"
        arrays[name] = value
        return {"array": name}
    if type(value).__name__ in _TYPES:
        names = [item.name for item in fields(value)] if is_dataclass(value) else value._fields  # type: ignore[attr-defined]
        return {"type": type(value).__name__} | {name: _pack(getattr(value, name), arrays) for name in names}
    if isinstance(value, Mapping):
        return {key: _pack(part, arrays) for key, part in value.items()}
    return [_pack(part, arrays) for part in value] if isinstance(value, list | tuple) else value


def _unpack(value: Any, arrays: Mapping[str, AnyArray]) -> Any:
    if isinstance(value, list):
        return tuple(_unpack(part, arrays) for part in value)
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    parts = {key: _unpack(part, arrays) for key, part in value.items() if key != "type"}
    return _TYPES[value["type"]](**parts) if "type" in value else parts
