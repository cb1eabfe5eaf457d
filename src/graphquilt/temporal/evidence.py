"""The flows behind incidents, found in a second look at the logs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphquilt.arrays import BoolArray
from graphquilt.temporal.records import LISTED, Record, date_of
from graphquilt.temporal.windows import SIDES, Snapshots

FOUND = ("first_flow", "last_flow", "bytes", "flow_list")  # what is added to an incident


def add_flows(incidents: Sequence[Record], flows: Iterable[pa.RecordBatch], windows: Snapshots) -> None:
    """Add to each incident when its first and last flow began, its bytes if logs have them, and its first 20 flows.

    These are the flows of its windows from the author, on its side, to the victims if all of these are listed, and to
    everybody otherwise.
    """
    ends = {side: {incident.get(side) for incident in incidents} for side in SIDES}
    for incident in incidents:
        ends[incident.get("side", SIDES[0])].add(incident.get("node"))
    words = {side: pa.array(sorted(filter(None, names)), pa.string()) for side, names in ends.items()}
    for batch in flows:
        part = batch.filter(pc.or_(*(pc.is_in(batch.column(side), words[side]) for side in SIDES)))
        latest = np.floor((part.column("time").to_numpy() - windows.origin) / windows.step).astype(np.int64)
        for incident in incidents:
            in_window = [np.isin(latest - back, incident["windows"]) for back in range(windows.overlap)]
            rows = np.flatnonzero(np.any(in_window, axis=0))
            rows = rows[_belongs(incident, part.take(pa.array(rows)))]
            if len(rows):
                _add(incident, part.take(pa.array(rows)))


def _belongs(incident: Record, flows: pa.RecordBatch) -> BoolArray:
    """Return which flows are those of an incident, if they are in its windows, (m,)."""
    names = {side: [incident[side]] for side in SIDES if side in incident}
    if not names:
        names = {incident["side"]: [incident["node"]]}
        if len(incident["victims"]) == incident["n_victims"] > 0:
            names[SIDES[1 - SIDES.index(incident["side"])]] = incident["victims"]
    found = [pc.is_in(flows.column(side), pa.array(words)) for side, words in names.items()]
    return np.asarray(np.all([mask.to_numpy(zero_copy_only=False) for mask in found], axis=0))


def _add(incident: Record, flows: pa.RecordBatch) -> None:
    times = flows.column("time").to_numpy()
    for name, time in (("first_flow", times.min()), ("last_flow", times.max())):
        known = [incident[name]] if name in incident else []
        incident[name] = (min if name == "first_flow" else max)([date_of(time) or float(time), *known])
    if "bytes" in flows.schema.names:
        incident["bytes"] = incident.get("bytes", 0) + int(pc.sum(flows.column("bytes")).as_py())
    listed = incident.setdefault("flow_list", [])
    rows = flows.slice(0, LISTED - len(listed)).to_pylist()
    listed += [row | {"time": date_of(row["time"]) or row["time"]} for row in rows]
