"""The pairs of one window beside the pairs of earlier windows: which are new, and how probable each was."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from graphquilt.arrays import AnyArray, BoolArray, Float64Array, Int64Array
from graphquilt.temporal.pair_memory import PairMemory
from graphquilt.temporal.side_memory import MEASURED, SideMemory
from graphquilt.temporal.windows import Window

__all__ = ["Connections", "WindowPairs", "compare_pairs"]

_LEAST_RATIO = 0.02  # of a probability to what degrees alone would give
_CHUNK = 1 << 16  # pairs whose inner products are computed at a time
_PARTNERS, _STRANGERS = MEASURED.index("partners"), MEASURED.index("strangers")


class WindowPairs(NamedTuple):
    """The pairs of one window in the order of their keys, which is that of the rows of the matrix.

    ``source``, ``destination`` (m,) are ids; ``counts`` (m,) numbers of flows and ``ports`` (m,) the
    ports of most flows, each None if they are not known.
    """

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
        return cls(keys, keys >> 32, keys & 0xFFFFFFFF, counts, ports)


@dataclass(frozen=True, eq=False)
class Connections:
    """How the pairs of a window compare with the past; all arrays have one entry per pair, (m,).

    Attributes
    ----------
    pairs : WindowPairs
    times : float array
        In how many earlier windows the pair was.
    stranger_source, stranger_destination : bool arrays
        Whether the host was in no earlier window.
    ratio : float array
        1 + x · y of the usual positions of both ends; NaN where one has none.
    from_source, from_destination : float arrays
        -log of the probability of this destination for the source, and of this source for the destination.
    is_inside : bool array or None
        Whether the destination was a source in an earlier window; None if it is not known which names are the same.
    is_callback : bool array or None
        Whether the source came back to a destination outside that is its own: no other source was ever seen there, and
        it first appeared a short time ago. None like ``is_inside``.
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

    A source meets a host never seen before with probability s_i, and otherwise destination j with the probability of a
    Dirichlet-multinomial model, :math:`(1 - s_i) (n_{ij} + a b_j r_{ij}) / (n_i + a)`: n counts earlier windows, a is
    the concentration, b_j is the share of j in all pairs, and r_ij = 1 + x_i · y_j is what the embedding adds to that:
    who talks to whom within a group. The same holds for a destination and its sources.

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
        meets_stranger = _stranger_share(sides[own])[mine]
        grand = max(float(totals[other].sum()), 1.0)
        share = np.maximum(totals[other][theirs], 0.5) / grand
        base = concentration * share * np.where(np.isnan(ratio), 1.0, np.maximum(ratio, _LEAST_RATIO))
        p = (1 - meets_stranger) * (times + base) / (totals[own][mine] + concentration)
        surprise.append(-np.log(np.where(strangers[other], meets_stranger, np.clip(p, 1e-12, 1.0))))
    found = Connections(pairs, times, strangers[0], strangers[1], ratio, surprise[0], surprise[1])
    if as_source is None:
        return found
    same, there = as_source[pairs.destination], pairs.destination
    is_inside = (same >= 0) & (source_memory.last[same] >= 0)
    is_own = (totals[1][there] == times) & (group_sums(there, len(destination_memory))[there] == 1)
    is_callback = is_own & (times > 0) & ~is_inside & (destination_memory.first[there] >= young_since)
    return replace(found, is_inside=is_inside, is_callback=is_callback)


def _stranger_share(memory: SideMemory) -> Float64Array:
    """Return how likely each host is to meet a host never seen before, shrunk toward all hosts of its side, (n,)."""
    partners = memory.number[:, _PARTNERS].astype(np.float64) * memory.mean[:, _PARTNERS]
    met = memory.number[:, _STRANGERS].astype(np.float64) * memory.mean[:, _STRANGERS]
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


def group_sums(groups: Int64Array, size: int, values: AnyArray | None = None) -> Float64Array:
    """Add up values, or count entries, by group, (size,)."""
    return np.bincount(groups, weights=values, minlength=size).astype(np.float64)
