"""Who caused what in a window: unusual connections belong to one of their ends, and the other end is a victim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from graphquilt.arrays import BoolArray, Float64Array, Int64Array
from graphquilt.temporal.components import Connections
from graphquilt.temporal.memory import SideMemory
from graphquilt.temporal.results import MEASURED, HostTable, Victims
from graphquilt.temporal.windows import SIDES

_FLOWS = MEASURED.index("flows")
_BURST = 10  # flows that a connection has at least if their number alone makes it unusual
_CLOSE, _LEAST = 10.0, 1e-4  # an author may be less unusual than its victim by this factor; smaller p-values are equal
_MANY = 3  # times as many unusual connections make the destination their owner
_LISTED = 0.05  # if it is unusual itself: then its victims are kept too


class _Ends(NamedTuple):
    """What is known of one side: the row of each connection's host, its flows, and how many flows are usual."""

    rows: Int64Array
    flows: Float64Array
    usual: Float64Array


def find_authors(
    tables: Mapping[str, HostTable], connections: Connections, memories: Mapping[str, SideMemory]
) -> tuple[dict[str, HostTable], Victims]:
    """Return the tables with the author of each host, and the connections that authors own.

    A connection is unusual if it is new, or has more than twice the flows that both of its ends usually have in all.
    It belongs to its source, unless the destination has more than three times as many unusual ones: a scan belongs to
    its source, and a flood from forged sources to its destination. A host whose unusual connections mostly belong to
    others is a victim of the most unusual of these, unless most of the flows that it has beyond the usual are its own.
    """
    pairs = connections.pairs
    counts = np.ones(len(pairs.keys)) if pairs.counts is None else pairs.counts
    ends = {}
    for side, nodes in zip(SIDES, (pairs.source, pairs.destination), strict=True):
        present = tables[side].nodes
        rows = np.searchsorted(present, nodes)
        flows = np.bincount(rows, weights=counts, minlength=len(present)).astype(np.float64)
        ends[side] = _Ends(rows, flows, memories[side].mean[present, _FLOWS].astype(np.float64))
    source, destination = (ends[side] for side in SIDES)
    usual = np.maximum(source.usual[source.rows], destination.usual[destination.rows])
    unusual = np.flatnonzero(((connections.times == 0) & (not connections.is_first)) | (counts > 2 * usual + _BURST))
    n_unusual = [np.bincount(end.rows[unusual], minlength=len(end.flows)) for end in (source, destination)]
    is_sources = _MANY * n_unusual[0][source.rows[unusual]] >= n_unusual[1][destination.rows[unusual]]
    judged = {}
    for k, side in enumerate(SIDES):
        other = SIDES[1 - k]
        is_theirs = ~is_sources if side == SIDES[0] else is_sources
        both = tables[side], tables[other]
        author = _authors(
            ends[side], ends[other], both, theirs=unusual[is_theirs], counts=counts, n_unusual=n_unusual[k]
        )
        judged[side] = replace(tables[side], author=author)
    return judged, _victims(tables, connections, ends, unusual=unusual, is_sources=is_sources, counts=counts)


def _authors(
    own: _Ends,
    others: _Ends,
    tables: tuple[HostTable, HostTable],
    *,
    theirs: Int64Array,
    counts: Float64Array,
    n_unusual: Int64Array,
) -> Int64Array:
    """Return the id of the author of each host of a side among the hosts of the other side, or -1."""
    table, their_table = tables
    host, partner = own.rows[theirs], others.rows[theirs]
    size = len(table.nodes)
    is_mostly_theirs = 2 * np.bincount(host, minlength=size) > n_unusual
    flows_of_theirs = np.bincount(host, weights=counts[theirs], minlength=size)
    is_explained = (own.flows <= 2 * own.usual) | (2 * flows_of_theirs >= own.flows - own.usual)
    author = np.full(size, -1, dtype=np.int64)
    order = np.lexsort((their_table.pvalue[partner], host))
    first = order[np.append(True, np.diff(host[order]) != 0)] if len(order) else order
    p = their_table.pvalue[partner[first]]
    rows = host[first]
    close = np.where(p <= _LISTED, _CLOSE * np.maximum(table.pvalue[rows], _LEAST), table.pvalue[rows])
    explains = (p < 1) & (p <= close)
    explains &= is_mostly_theirs[rows] & is_explained[rows]
    author[rows[explains]] = their_table.nodes[partner[first[explains]]]
    return author


def _victims(
    tables: Mapping[str, HostTable],
    connections: Connections,
    ends: Mapping[str, _Ends],
    *,
    unusual: Int64Array,
    is_sources: BoolArray,
    counts: Float64Array,
) -> Victims:
    pairs = connections.pairs
    p = [tables[side].pvalue[ends[side].rows[unusual]] for side in SIDES]
    kept = np.flatnonzero(np.where(is_sources, *p) <= _LISTED)
    rows, by_source = unusual[kept], is_sources[kept]
    ports = np.full(len(rows), -1) if pairs.ports is None else pairs.ports[rows]
    source, destination = pairs.source[rows], pairs.destination[rows]
    columns = np.where(by_source, source, destination), np.where(by_source, destination, source), counts[rows], ports
    return Victims(by_source, *(column.astype(np.int32) for column in columns))
