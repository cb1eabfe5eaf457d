"""What scoring one window gives, in a stream and in a batch: a table per side, its alerts, and its connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from graphquilt.arrays import BoolArray, Float32Array, Float64Array, FloatArray, IntArray
from graphquilt.errors import InputError
from graphquilt.temporal.calibration import severity, top_two

__all__ = ["COMPONENTS", "Alert", "Component", "HostTable", "PairAlert", "PairTable", "WindowScores"]

COMPONENTS = (
    "drift",
    "affinity",
    "degree",
    "volume",
    "peak rate",
    "new pairs",
    "pair surprise",
    "newcomers",
    "inside pairs",
    "callbacks",
    "level",
    "tokens",
    "company",
)


class Component(NamedTuple):
    """One component of the score of a host: the value in its own unit, its z-score and its p-value."""

    name: str
    value: float
    z: float
    pvalue: float


class Alert(NamedTuple):
    """One host that stands out in one window; its components are those that were measured, most unusual first.

    ``tokens`` are the ids of the most surprising tokens of its device log; None if there are no events of it.
    """

    number: int
    side: str
    node: int
    pvalue: float
    severity: float
    components: tuple[Component, ...]
    tokens: tuple[int, ...] | None = None


class PairAlert(NamedTuple):
    """One connection that stands out in one window.

    ``surprise`` is -log of its probability, the mean of what its source and its destination would make it; ``flows``
    is their number; ``port`` is the destination port of most of them, or None where ports are not known.
    """

    number: int
    source: int
    destination: int
    pvalue: float
    severity: float
    surprise: float
    flows: int
    is_new: bool
    port: int | None


@dataclass(frozen=True, eq=False)
class HostTable:
    """The scores of one side of one window, with one row per host.

    Attributes
    ----------
    nodes : int array (k,)
    values, z, pvalues : float arrays (k, components)
        In the order of ``COMPONENTS``: values in their own units, z-scores and p-values; NaN where not measured.
    pvalue : float array (k,)
        The p-value of all components together.
    tokens : int array (k, most), optional
        The most surprising tokens of each host, the most surprising first, and -1 after the last; None without events.
    """

    nodes: IntArray
    values: Float32Array
    z: Float32Array
    pvalues: Float32Array
    pvalue: Float64Array
    tokens: IntArray | None = None

    @property
    def severity(self) -> Float64Array:
        """From 0 to 100, (k,)."""
        return severity(self.pvalue)

    def column(self, component: str) -> Float32Array:
        """Return the z-scores of one component, (k,)."""
        return self.z[:, _position(component)]

    def lowest(self, size: int) -> HostTable:
        """Return the table of the ``size`` hosts with the smallest p-values, in the order of their ids."""
        if len(self.nodes) <= size:
            return self
        rows = np.sort(np.argsort(self.pvalue, kind="stable")[:size])
        columns = (self.nodes, self.values, self.z, self.pvalues, self.pvalue, self.tokens)
        return HostTable(*(None if column is None else column[rows] for column in columns))  # type: ignore[arg-type]

    def tokens_of(self, row: int) -> tuple[int, ...] | None:
        """Return the most surprising tokens of one row, the most surprising first; None if there are no events."""
        if self.tokens is None or self.tokens[row, 0] < 0:
            return None
        return tuple(int(token) for token in self.tokens[row] if token >= 0)

    def components(self, row: int) -> tuple[Component, ...]:
        """Return the components of one row that were measured, the most unusual first."""
        measured = np.flatnonzero(~np.isnan(self.pvalues[row]))
        order = measured[np.lexsort((-self.z[row, measured], self.pvalues[row, measured]))]
        return tuple(
            Component(COMPONENTS[c], float(self.values[row, c]), float(self.z[row, c]), float(self.pvalues[row, c]))
            for c in order
        )


@dataclass(frozen=True, eq=False)
class PairTable:
    """The connections of one window, with one row per pair.

    Attributes
    ----------
    source, destination : int arrays (m,)
    surprise : float array (m,)
    pvalue : float array (m,)
    counts : int array (m,)
        Number of flows.
    is_new : bool array (m,)
        Whether the pair is in none of the remembered windows.
    ports : int array (m,), optional
        The destination port of most flows; -1 if it is not known.
    """

    source: IntArray
    destination: IntArray
    surprise: FloatArray
    pvalue: Float64Array
    counts: IntArray
    is_new: BoolArray
    ports: IntArray | None = None

    def lowest(self, size: int) -> PairTable:
        """Return the table of the ``size`` pairs with the smallest p-values, the smallest first."""
        rows = np.lexsort((-self.surprise, self.pvalue))[:size]
        ports = None if self.ports is None else self.ports[rows]
        return PairTable(
            self.source[rows],
            self.destination[rows],
            self.surprise[rows],
            self.pvalue[rows],
            self.counts[rows],
            self.is_new[rows],
            ports,
        )


@dataclass(frozen=True, eq=False)
class WindowScores:
    """The scores of one window, from the windows before it.

    Attributes
    ----------
    number, start, end, rows
        Of the window.
    sides : mapping of "source" and "destination" to HostTable
    connections : PairTable
    left_out : str or None
        Why the window could not be embedded or placed; its hosts then have no drift and no affinity.
    fits : mapping of side to float
        The error of placing each side among the earlier windows, relative to the spread of the positions; NaN if there
        is none. A side with an error above 0.9 has no drift.
    """

    number: int
    start: float
    end: float
    rows: int
    sides: Mapping[str, HostTable]
    connections: PairTable
    left_out: str | None
    fits: Mapping[str, float]

    def alerts(self, budget: int = 20, *, max_pvalue: float = 1.0) -> list[Alert]:
        """Return the ``budget`` hosts of both sides with the smallest p-values up to ``max_pvalue``, smallest first.

        Among equal p-values, the host whose two most unusual components are less probable comes first. A host with
        p = 1 is as usual as can be, and no alert; in the first two windows all are.
        """
        _check_budget(budget)
        candidates = []
        for side, table in self.sides.items():
            rows = np.flatnonzero((table.pvalue <= max_pvalue) & (table.pvalue < 1))
            if len(rows) > budget:
                rows = rows[table.pvalue[rows] <= np.partition(table.pvalue[rows], budget - 1)[budget - 1]]
            ranks = zip(table.pvalue[rows].tolist(), (-top_two(table.pvalues[rows])).tolist(), strict=True)
            candidates += [(rank, side, int(row)) for rank, row in zip(ranks, rows, strict=True)]
        alerts = []
        for (p, _), side, row in sorted(candidates, key=lambda candidate: candidate[0])[:budget]:
            table = self.sides[side]
            node = int(table.nodes[row])
            why = table.components(row), table.tokens_of(row)
            alerts.append(Alert(self.number, side, node, p, float(severity(p)), *why))
        return alerts

    def pairs(self, budget: int = 20) -> list[PairAlert]:
        """Return the ``budget`` most surprising connections."""
        _check_budget(budget)
        table = self.connections.lowest(budget)
        return [
            PairAlert(
                self.number,
                int(table.source[k]),
                int(table.destination[k]),
                float(table.pvalue[k]),
                float(severity(table.pvalue[k])),
                float(table.surprise[k]),
                int(table.counts[k]),
                bool(table.is_new[k]),
                None if table.ports is None or table.ports[k] < 0 else int(table.ports[k]),
            )
            for k in range(len(table.source))
        ]

    def lowest(self, size: int) -> WindowScores:
        """Return the same with the ``size`` hosts of each side, and pairs, that have the smallest p-values."""
        sides = {side: table.lowest(size) for side, table in self.sides.items()}
        return replace(self, sides=sides, connections=self.connections.lowest(size))


def _position(component: str) -> int:
    if component not in COMPONENTS:
        raise InputError(f"there is no component {component!r}; there are {', '.join(COMPONENTS)}.")
    return COMPONENTS.index(component)


def _check_budget(budget: int) -> None:
    if budget < 1:
        raise InputError(f"a budget is at least 1 alert per window, not {budget}.")
