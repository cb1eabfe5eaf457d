"""Measure one window against the memory: how probable each pair was, and one value per host and component."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from graphquilt.arrays import AnyArray, BoolArray, Float64Array, Int64Array
from graphquilt.temporal.memory import PairMemory, SideMemory
from graphquilt.temporal.open_window import LOW_BITS
from graphquilt.temporal.results import MEASURED
from graphquilt.temporal.windows import SIDES, Window

COUNTED = ("degree", "volume", "peak rate", "new pairs", "newcomers")  # compared as log(1 + x), and part of the level
RARE_COUNTS = ("newcomers", "inside pairs", "callbacks")  # compared as log(1 + x) too, but mostly 0
_LEAST_RATIO = 0.02  # of a probability to what degrees alone would give
_CHUNK = 1 << 16  # pairs whose inner products are computed at a time
_PARTNERS, _STRANGERS, _NOVEL = (MEASURED.index(name) for name in ("partners", "strangers", "novel"))
IS_COUNTED = np.array([name in (*COUNTED, *RARE_COUNTS) for name in MEASURED])
_NEW = [MEASURED.index(name) for name in ("new pairs", "newcomers", "inside pairs", "novel", "strangers")]
_NEW_PARTNERS = [MEASURED.index(name) for name in ("new pairs", "inside pairs")]


class WindowPairs(NamedTuple):
    """The pairs of one window, (m,) each, in the order of their keys, which is that of the rows of the matrix."""

    keys: Int64Array
    source: Int64Array
    destination: Int64Array
    counts: Float64Array | None
    ports: Int64Array | None = None

    @classmethod
    def of(cls, window: Window) -> WindowPairs:
        """Return the pairs of a window whose matrix may be unsorted or contain zeros."""
        matrix = window.matrix
        source = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
        keys = (source << 32) | matrix.indices
        order = np.flatnonzero(matrix.data != 0)
        if len(keys) and bool(np.any(np.diff(keys) < 0)):
            order = order[np.argsort(keys[order], kind="stable")]
        keys = keys[order]
        counts = None if window.counts is None else window.counts[order]
        ports = None if window.ports is None else window.ports[order]
        return cls(keys, keys >> 32, keys & LOW_BITS, counts, ports)


@dataclass(frozen=True, eq=False)
class Connections:
    """How the pairs of a window compare with the past; all arrays have one entry per pair, (m,).

    ``times`` counts the earlier windows of the pair, and strangers were in none. ``ratio`` is 1 + x · y of the usual
    positions of both ends, or NaN. ``from_source`` is -log of the probability of this destination for the source, and
    ``from_destination`` the reverse. A destination inside was a source in an earlier window. A callback returns to a
    recent destination outside that no other source ever used. Both are None if it is unknown which names are the same.
    In the first window everything is new, and nothing is measured by novelty.
    """

    pairs: WindowPairs
    times: Float64Array
    stranger_source: BoolArray
    stranger_destination: BoolArray
    ratio: Float64Array
    from_source: Float64Array
    from_destination: Float64Array
    is_inside: BoolArray | None = None
    is_callback: BoolArray | None = None
    is_first: bool = False

    @property
    def surprise(self) -> Float64Array:
        """The mean of the surprise of both ends."""
        return (self.from_source + self.from_destination) / 2


def compare_pairs(
    pairs: WindowPairs,
    memory: PairMemory,
    sides: tuple[SideMemory, SideMemory],
    *,
    concentration: float,
    as_source: Int64Array | None = None,
    young_since: int = 0,
) -> Connections:
    r"""Compute how surprising each pair of a window is after the windows before it.

    A source meets a host never seen before with probability s_i, and otherwise destination j with probability
    :math:`(1 - s_i) ((1 - v_i) n_{ij} / (n_i + a) + v_i b_j r_{ij})`: n counts earlier windows, v_i is how likely this
    source is to meet a host that is new to it only, a is the concentration, b_j is the share of j in all pairs, and
    r_ij = 1 + x_i · y_j is what the embedding knows about who talks to whom within a group. The same holds for a
    destination and its sources.

    ``as_source`` (destinations,) is the id that each destination has as a source, or -1. A destination is young if it
    first appeared in window ``young_since`` or later.
    """
    source_memory, destination_memory = sides
    times = memory.times(pairs.keys)
    totals = memory.totals(len(source_memory), len(destination_memory))
    ratio = _ratios(pairs, source_memory, destination_memory)
    strangers = source_memory.last[pairs.source] < 0, destination_memory.last[pairs.destination] < 0
    ends = ((pairs.source, pairs.destination), (pairs.destination, pairs.source))
    surprise = []
    for own, other in ((0, 1), (1, 0)):
        mine, theirs = ends[own]
        meets_stranger, meets_new = (_share_of_new(sides[own], column)[mine] for column in (_STRANGERS, _NOVEL))
        grand = max(float(totals[other].sum()), 1.0)
        share = np.maximum(totals[other][theirs], 0.5) / grand
        base = share * np.where(np.isnan(ratio), 1.0, np.maximum(ratio, _LEAST_RATIO))
        total = totals[own][mine] + concentration
        p = (1 - meets_stranger) * ((1 - meets_new) * times / total + meets_new * base)
        surprise.append(-np.log(np.where(strangers[other], meets_stranger, np.clip(p, 1e-12, 1.0))))
    connections = Connections(pairs, times, *strangers, ratio, surprise[0], surprise[1])
    connections = replace(connections, is_first=len(memory.keys) == 0)
    if as_source is None:
        return connections
    same, there = as_source[pairs.destination], pairs.destination
    is_inside = (same >= 0) & (same < len(source_memory))  # names of device logs may have ids beyond the matrix
    is_inside[is_inside] = source_memory.last[same[is_inside]] >= 0
    is_own = (totals[1][there] == times) & (_sum_by_group(there, len(destination_memory))[there] == 1)
    is_callback = is_own & (times > 0) & ~is_inside & (destination_memory.first[there] >= young_since)
    return replace(connections, is_inside=is_inside, is_callback=is_callback)


def _share_of_new(memory: SideMemory, column: int) -> Float64Array:
    """Return how likely a partner of each host is to be new in one sense, shrunk towards all of its side, (n,)."""
    partners = memory.number[:, _PARTNERS].astype(np.float64) * memory.mean[:, _PARTNERS]
    met = memory.number[:, column].astype(np.float64) * memory.mean[:, column]
    usual = (met.sum() + 1.0) / (partners.sum() + 2.0)
    return np.asarray((met + 5 * usual) / (partners + 5), dtype=np.float64)


def _ratios(pairs: WindowPairs, source: SideMemory, destination: SideMemory) -> Float64Array:
    ratio = np.full(len(pairs.keys), np.nan)
    known = np.flatnonzero((source.places[pairs.source] > 0) & (destination.places[pairs.destination] > 0))
    for start in range(0, len(known), _CHUNK):
        rows = known[start : start + _CHUNK]
        x, y = source.profiles[pairs.source[rows]], destination.profiles[pairs.destination[rows]]
        ratio[rows] = 1 + np.einsum("kd,kd->k", x, y)
    return ratio


def _sum_by_group(groups: Int64Array, size: int, values: AnyArray | None = None) -> Float64Array:
    """Add up values, or count entries, by group, (size,)."""
    return np.bincount(groups, weights=values, minlength=size).astype(np.float64)


def to_comparable(values: AnyArray) -> Float64Array:
    """Return values (k, measured) in the form in which they are compared: counts as log(1 + x)."""
    return np.where(IS_COUNTED, np.log1p(np.maximum(values, 0.0)), values)


def measure_counts(window: Window, connections: Connections, side: str, size: int) -> tuple[Int64Array, Float64Array]:
    """Return the hosts of one side (k,), and their values (k, measured) except drift; NaN where nothing is measured.

    ``size`` is the number of ids of the side. All partners of a host without an earlier window are new, which says
    nothing about it, so its new partners are not measured.
    """
    pairs = connections.pairs
    strange = connections.stranger_source, connections.stranger_destination
    groups, (is_stranger, others_are_strangers), surprise = (
        (pairs.source, strange, connections.from_source)
        if side == SIDES[0]
        else (pairs.destination, strange[::-1], connections.from_destination)
    )
    degree = _sum_by_group(groups, size)
    nodes = np.flatnonzero(degree > 0)
    strangers = _sum_by_group(groups, size, others_are_strangers)
    columns = {
        "degree": degree,
        "partners": degree,
        "new pairs": _sum_by_group(groups, size, connections.times == 0),
        "newcomers": strangers,
        "strangers": strangers,
        "novel": _sum_by_group(groups, size, connections.times == 0),
        "pair surprise": _sum_by_group(groups, size, surprise) / np.maximum(degree, 1),
    }
    if side == SIDES[0] and connections.is_inside is not None and connections.is_callback is not None:
        columns["inside pairs"] = _sum_by_group(groups, size, connections.is_inside & (connections.times == 0))
        columns["callbacks"] = _sum_by_group(groups, size, connections.is_callback)
    if pairs.counts is not None:
        columns["volume"] = columns["flows"] = _sum_by_group(groups, size, pairs.counts)
    if window.peaks is not None:
        peaks = window.peaks[side]
        columns["peak rate"] = np.pad(peaks, (0, size - len(peaks)))
    rated = np.flatnonzero(~np.isnan(connections.ratio))
    if len(rated):
        strangeness = -np.log(np.maximum(connections.ratio[rated], _LEAST_RATIO))
        n_rated = _sum_by_group(groups[rated], size)
        with np.errstate(invalid="ignore"):
            columns["affinity"] = _sum_by_group(groups[rated], size, strangeness) / np.where(
                n_rated > 0, n_rated, np.nan
            )
    values = np.full((len(nodes), len(MEASURED)), np.nan)
    for name, column in columns.items():
        values[:, MEASURED.index(name)] = column[nodes]
    are_strangers = np.flatnonzero(_sum_by_group(groups, size, is_stranger)[nodes])
    values[are_strangers[:, None], _NEW_PARTNERS] = np.nan
    if connections.is_first:
        values[:, _NEW] = np.nan
    return nodes, values
