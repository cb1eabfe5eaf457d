"""Measure the hosts of one window: one value per component, in its own unit, from this window and the memory."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.temporal.connections import Connections, group_sums
from graphquilt.temporal.side_memory import MEASURED
from graphquilt.temporal.windows import SIDES, Window

__all__ = ["COUNTED", "RARE_COUNTS", "comparable", "measure_counts"]

_SMALLEST_RATIO = 0.02
COUNTED = ("degree", "volume", "peak rate", "new pairs", "newcomers")  # compared as log(1 + x), and part of the level
RARE_COUNTS = ("newcomers", "inside pairs", "callbacks")  # compared as log(1 + x) too, but mostly 0
_IS_COUNTED = np.array([name in (*COUNTED, *RARE_COUNTS) for name in MEASURED])
_NEW_PARTNERS = [MEASURED.index(name) for name in ("new pairs", "inside pairs")]


def comparable(values: AnyArray) -> Float64Array:
    """Return values (k, measured) in the form in which they are compared: log(1 + x) of numbers that are counted."""
    return np.where(_IS_COUNTED, np.log1p(np.maximum(values, 0.0)), values)


def measure_counts(window: Window, connections: Connections, side: str, size: int) -> tuple[Int64Array, Float64Array]:
    """Return the hosts of one side (k,), and what was measured of them (k, measured) except drift; NaN if nothing.

    ``size`` is the number of ids of the side. All partners of a host that was in no earlier window are new, which says
    nothing of it: its new partners are not measured.
    """
    pairs = connections.pairs
    strange = connections.stranger_source, connections.stranger_destination
    groups, (is_stranger, others_are_strangers), surprise = (
        (pairs.source, strange, connections.from_source)
        if side == SIDES[0]
        else (pairs.destination, strange[::-1], connections.from_destination)
    )
    degree = group_sums(groups, size)
    nodes = np.flatnonzero(degree > 0)
    strangers = group_sums(groups, size, others_are_strangers)
    columns = {
        "degree": degree,
        "partners": degree,
        "new pairs": group_sums(groups, size, connections.times == 0),
        "newcomers": strangers,
        "strangers": strangers,
        "pair surprise": group_sums(groups, size, surprise) / np.maximum(degree, 1),
    }
    if side == SIDES[0] and connections.is_inside is not None and connections.is_callback is not None:
        columns["inside pairs"] = group_sums(groups, size, connections.is_inside & (connections.times == 0))
        columns["callbacks"] = group_sums(groups, size, connections.is_callback)
    if pairs.counts is not None:
        columns["volume"] = group_sums(groups, size, pairs.counts)
    if window.peaks is not None:
        peaks = window.peaks[side]
        columns["peak rate"] = np.pad(peaks, (0, size - len(peaks)))
    rated = np.flatnonzero(~np.isnan(connections.ratio))
    if len(rated):
        strangeness = -np.log(np.maximum(connections.ratio[rated], _SMALLEST_RATIO))
        n_rated = group_sums(groups[rated], size)
        with np.errstate(invalid="ignore"):
            columns["affinity"] = group_sums(groups[rated], size, strangeness) / np.where(n_rated > 0, n_rated, np.nan)
    values = np.full((len(nodes), len(MEASURED)), np.nan)
    for name, column in columns.items():
        values[:, MEASURED.index(name)] = column[nodes]
    are_strangers = np.flatnonzero(group_sums(groups, size, is_stranger)[nodes])
    values[are_strangers[:, None], _NEW_PARTNERS] = np.nan
    return nodes, values
