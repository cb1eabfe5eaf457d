"""Flows among OpTC's eCAR events: which host is at which end, and which event reports a flow for the second time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from graphquilt.arrays import BoolArray

__all__ = ["Twins", "ecar_flows"]

_REMEMBERED = 1 << 18  # flows whose twin may still come
_INBOUND, _OUTBOUND = "inbound", "outbound"


class _Report(NamedTuple):
    """The direction in which a flow was reported first, and its label."""

    direction: str
    label: str | None


class Twins:
    """The flows that were reported lately; the host at the other end reports each of them again."""

    def __init__(self) -> None:
        self._reports: OrderedDict[tuple[str | None, ...], _Report] = OrderedDict()

    def is_second(self, ends: tuple[str | None, ...], direction: str, label: str | None) -> bool:
        """Return whether the other end has reported this flow before, with the same label or none is lost."""
        known = self._reports.pop(ends, None)
        if known is not None and known.direction != direction and label in (None, known.label):
            return True
        self._reports[ends] = _Report(direction, label)
        if len(self._reports) > _REMEMBERED:
            self._reports.popitem(last=False)
        return False


def ecar_flows(
    batch: pa.RecordBatch, twins: Twins, addresses: Mapping[str, str], labels: Mapping[str, str]
) -> tuple[pa.RecordBatch, BoolArray]:
    """Return the flows of a batch of FLOW events with the names of their hosts, and which are not second reports.

    The host that reports is the source of an outbound flow and the destination of an inbound one. The other end has the
    name that ``addresses`` gives to its address, or the address itself. ``labels`` maps the ids of events to labels.
    """
    cells = {name.removeprefix("properties."): batch.column(name).to_pylist() for name in batch.schema.names}
    source, destination, label = list(cells["src_ip"]), list(cells["dest_ip"]), [labels.get(i) for i in cells["id"]]
    first = np.ones(len(batch), dtype=bool)
    for k, (a, b, host, direction) in enumerate(
        zip(source, destination, cells["hostname"], cells["direction"], strict=True)
    ):
        ends = (a, _text(cells["src_port"][k]), b, _text(cells["dest_port"][k]), _text(cells["l4protocol"][k]))
        if None not in (a, b) and direction in (_INBOUND, _OUTBOUND):
            first[k] = not twins.is_second(ends, direction, label[k])
        # An address that the map does not know is the reporting host's own at its end of the flow.
        source[k] = addresses.get(a or "", (host if direction == _OUTBOUND else None) or a)
        destination[k] = addresses.get(b or "", (host if direction == _INBOUND else None) or b)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns |= {
        "properties.src_ip": pa.array(source, pa.string()),
        "properties.dest_ip": pa.array(destination, pa.string()),
        "label": pa.array(label, pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns), first


def _text(value: object) -> str | None:
    return None if value is None else str(value)
