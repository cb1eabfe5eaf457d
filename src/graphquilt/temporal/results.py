"""What scoring one window gives: a table per side, its alerts, its connections, and why a node stands out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import BoolArray, Float32Array, Float64Array, FloatArray, Int64Array, IntArray
from graphquilt.errors import InputError
from graphquilt.temporal.windows import SIDES

MEANINGS = {
    "contexts": "it talks to another mixture of groups of hosts than usual",
    "affinity": "its partners are unlikely for its group of hosts",
    "degree": "how many partners it has",
    "volume": "how many flows it has",
    "peak rate": "how many flows it has in its busiest moment",
    "new pairs": "partners that it never had before",
    "pair surprise": "how improbable its partners are together",
    "newcomers": "partners that nobody had seen before",
    "inside pairs": "hosts inside that it never talked to before",
    "callbacks": "it returns to a young address outside that nobody else talks to",
    "level": "how high its counts are among all hosts",
    "tokens": "what ran on it",
    "company": "its partners are unusual themselves",
}
COMPONENTS = tuple(MEANINGS)
MEASURED = (
    *COMPONENTS,
    "partners",
    "strangers",
    "novel",
    "flows",
)  # the last four only feed others: partners, those never seen before, new ones, and flows, as plain counts
_RARE, _USUAL = 0.1, 0.5  # shares of a node's other windows


def severity(pvalue: npt.ArrayLike, n_judged: int) -> Float64Array:
    """Return 40 if chance alone makes one of ``n_judged`` as unusual per window, and 20 more for each factor of ten.

    So 60 is expected by chance once in ten windows, and 100, the most, once in a thousand; 0 is the least.
    """
    expected = np.asarray(pvalue, dtype=np.float64) * n_judged
    points = np.clip(40.0 - 20.0 * np.log10(np.maximum(expected, 1e-300)), 0.0, 100.0)
    return np.asarray(np.round(points, 1) + 0.0, dtype=np.float64)


class Component(NamedTuple):
    """One component of the score of a host: the value in its own unit, its z-score and its p-value."""

    name: str
    value: float
    z: float
    pvalue: float


class Victims(NamedTuple):
    """The unusual connections of a window, (m,) each: the id of the end that each belongs to, and of the other end.

    ``by_source`` says on which side the owner is; ``ports`` are those of most flows, or -1.
    """

    by_source: BoolArray
    owner: IntArray
    partner: IntArray
    flows: IntArray
    ports: IntArray

    @classmethod
    def none(cls) -> Victims:
        """Return no connections."""
        return cls(np.zeros(0, dtype=bool), *(np.zeros(0, dtype=np.int64) for _ in range(4)))

    def of(self, side: str, node: int) -> Victims:
        """Return the connections of one owner, those with most flows first."""
        rows = np.flatnonzero((self.owner == node) & (self.by_source == (side == SIDES[0])))
        rows = rows[np.argsort(-self.flows[rows], kind="stable")]
        columns = (column[rows] for column in (self.owner, self.partner, self.flows, self.ports))
        return Victims(self.by_source[rows], *columns)


class Alert(NamedTuple):
    """One host that stands out in one window, with the components that were measured, the most unusual first.

    ``tokens`` are the ids of the most surprising tokens of its device log; None without events. ``victims`` are the
    unusual connections that it is the author of.
    """

    number: int
    side: str
    node: int
    pvalue: float
    severity: float
    components: tuple[Component, ...]
    tokens: tuple[int, ...] | None = None
    victims: Victims = Victims.none()


class PairAlert(NamedTuple):
    """One connection that stands out in one window.

    ``surprise`` is -log of its probability, the mean over both ends, and ``port`` that of most of its flows, if known.
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

    ``values``, ``z`` and ``pvalues`` (k, components) are in the order of ``COMPONENTS``, with NaN where not measured;
    ``pvalue`` (k,) combines all components; ``n_judged`` hosts were judged. ``tokens`` (k, most) are the most
    surprising tokens of each host, the most surprising first, and -1 after the last; None without events. ``author``
    (k,) is the id, on the other side, of the host whose doing explains this one, or -1.
    """

    nodes: IntArray
    values: Float32Array
    z: Float32Array
    pvalues: Float32Array
    pvalue: Float64Array
    n_judged: int
    tokens: IntArray | None = None
    author: IntArray | None = None

    @property
    def severity(self) -> Float64Array:
        """From 0 to 100, (k,)."""
        return severity(self.pvalue, self.n_judged)

    def column(self, component: str) -> Float32Array:
        """Return the z-scores of one component, (k,)."""
        if component not in COMPONENTS:
            raise InputError(f"there is no component {component!r}; there are {', '.join(COMPONENTS)}.")
        return self.z[:, COMPONENTS.index(component)]

    def lowest(self, size: int) -> HostTable:
        """Return the table of the ``size`` hosts with the smallest p-values, in the order of their ids."""
        if len(self.nodes) <= size:
            return self
        return _take_rows(self, np.sort(np.argsort(self.pvalue, kind="stable")[:size]))

    def tokens_of(self, row: int) -> tuple[int, ...] | None:
        """Return the most surprising tokens of one row, the most surprising first; None without events."""
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
    """The connections of one window, with one row per pair, (m,).

    ``n_judged`` pairs were judged, ``counts`` are numbers of flows, ``ports`` the destination port of most of them, or
    -1, and ``is_new`` says whether no remembered window had the pair.
    """

    source: IntArray
    destination: IntArray
    surprise: FloatArray
    pvalue: Float64Array
    counts: IntArray
    is_new: BoolArray
    n_judged: int
    ports: IntArray | None = None

    def lowest(self, size: int) -> PairTable:
        """Return the table of the ``size`` pairs with the smallest p-values, the smallest first."""
        return _take_rows(self, np.lexsort((-self.surprise, self.pvalue))[:size])


_Table = TypeVar("_Table", HostTable, PairTable)


def _take_rows(table: _Table, rows: Int64Array) -> _Table:
    columns = {item.name: getattr(table, item.name) for item in fields(table)}
    chosen: dict[str, Any] = {name: c[rows] for name, c in columns.items() if isinstance(c, np.ndarray)}
    return replace(table, **chosen)


@dataclass(frozen=True, eq=False)
class WindowScores:
    """The scores of one window, from the windows before it.

    ``left_out`` says why the window could not be embedded or placed; later windows then learn no positions from it.
    ``fit`` is the error of placing it among the earlier windows, relative to the spread of the positions, or NaN.
    ``n_learnt`` windows had been learnt before; in the first two, nothing is judged.
    """

    number: int
    start: float
    end: float
    rows: int
    sides: Mapping[str, HostTable]
    connections: PairTable
    left_out: str | None
    fit: float
    victims: Victims = field(default_factory=Victims.none)
    n_learnt: int = 0

    def alerts(self, budget: int = 20) -> list[Alert]:
        """Return the ``budget`` hosts with the smallest p-values, the smallest first.

        Each side has half of the budget, and what it leaves goes to the other side. Victims are listed with their
        author and take no place. Among equal p-values, the host whose two most unusual components are less probable
        comes first. A host with p = 1 is never an alert; in the first two windows that is every host.
        """
        _check_budget(budget)
        ranked = {side: self._ranked(side, budget) for side in SIDES}
        n_first = min(len(ranked[SIDES[0]]), max((budget + 1) // 2, budget - len(ranked[SIDES[1]])))
        chosen = [*ranked[SIDES[0]][:n_first], *ranked[SIDES[1]][: budget - n_first]]
        alerts = []
        for (p, _), side, row in sorted(chosen, key=lambda candidate: candidate[0]):
            table = self.sides[side]
            node = int(table.nodes[row])
            why = table.components(row), table.tokens_of(row), self.victims.of(side, node)
            alerts.append(Alert(self.number, side, node, p, float(severity(p, table.n_judged)), *why))
        return alerts

    def _ranked(self, side: str, size: int) -> list[tuple[tuple[float, float], str, int]]:
        """Return the p-values and rows of the first ``size`` hosts of a side that are no victims."""
        table = self.sides[side]
        wanted = table.pvalue < 1
        rows = np.flatnonzero(wanted if table.author is None else wanted & (table.author < 0))
        if len(rows) > size:
            rows = rows[table.pvalue[rows] <= np.partition(table.pvalue[rows], size - 1)[size - 1]]
        top_two = np.partition(np.log(np.fmin(table.pvalues[rows], 1.0)), 1, axis=1)[:, :2].mean(axis=1)
        ranks = zip(table.pvalue[rows].tolist(), top_two.tolist(), strict=True)
        return sorted((rank, side, int(row)) for rank, row in zip(ranks, rows, strict=True))[:size]

    def pairs(self, budget: int = 20) -> list[PairAlert]:
        """Return the ``budget`` most surprising connections."""
        _check_budget(budget)
        table = self.connections.lowest(budget)
        ports = np.full(len(table.source), -1) if table.ports is None else table.ports
        scores = table.pvalue, severity(table.pvalue, table.n_judged), table.surprise
        columns = (table.source, table.destination, *scores, table.counts, table.is_new)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        known_ports = [None if port < 0 else port for port in ports.tolist()]
        return [PairAlert._make((self.number, *row, port)) for row, port in zip(rows, known_ports, strict=True)]

    def lowest(self, size: int) -> WindowScores:
        """Return the same with the ``size`` hosts of each side, and pairs, that have the smallest p-values."""
        sides = {side: table.lowest(size) for side, table in self.sides.items()}
        return replace(self, sides=sides, connections=self.connections.lowest(size))


def _check_budget(budget: int) -> None:
    if budget < 1:
        raise InputError(f"a budget is at least 1 alert per window, not {budget}.")


class Pattern(NamedTuple):
    """The pairs of nodes that were joined in one window, as CSR arrays without values."""

    indptr: IntArray
    indices: IntArray
    shape: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Explanation:
    """Compare one node in one window with the same node in its other windows.

    ``new`` are neighbours that are rare in the other windows, and ``gone`` usual ones that are missing from this one,
    the clearest first. ``usual_degree`` is the mean number of neighbours in the other windows, or NaN.
    """

    node: int
    window: int
    new: Int64Array
    gone: Int64Array
    degree: int
    usual_degree: float


def explain(matrices: Sequence[Pattern | sp.csr_array], node: int, window: int, *, side: str = "source") -> Explanation:
    """Compare the neighbours of a node in one window with its neighbours in the other windows.

    Only the other windows in which the node has neighbours count. A neighbour is new if it occurs in less than a tenth
    of them, and gone if it occurs in at least half of them but not in this window. ``matrices`` are those of the
    windows, whose shapes may grow, and ``window`` is a position among them.
    """
    here = _neighbours(matrices[window], node, side)
    others = [_neighbours(matrix, node, side) for k, matrix in enumerate(matrices) if k != window]
    others = [ids for ids in others if len(ids)]
    known, times = np.unique(np.concatenate([here[:0], *others]), return_counts=True)
    usual = sum(map(len, others)) / len(others) if others else float("nan")
    return compare_neighbours(node, window, here, (known, times), n_windows=len(others), usual_degree=usual)


def compare_neighbours(
    node: int,
    window: int,
    here: Int64Array,
    others: tuple[Int64Array, npt.ArrayLike],
    *,
    n_windows: float,
    usual_degree: float,
) -> Explanation:
    """Explain a window of a node; ``others`` are the neighbours in its other windows, and how many windows had each."""
    if n_windows == 0:
        return Explanation(node, window, here, here[:0], len(here), float("nan"))
    known = np.union1d(others[0], here)
    share = np.zeros(len(known))
    share[np.searchsorted(known, others[0])] = np.asarray(others[1]) / n_windows
    is_here = np.isin(known, here)
    order = np.argsort(share, kind="stable")
    new = known[order][(is_here & (share < _RARE))[order]]
    order = np.argsort(-share, kind="stable")
    gone = known[order][(~is_here & (share >= _USUAL))[order]]
    return Explanation(node, window, new, gone, len(here), usual_degree)


def _neighbours(matrix: Pattern | sp.csr_array, node: int, side: str) -> Int64Array:
    """Return the ids that a node is joined to in one window; none if the node is outside the matrix."""
    if side == "source":
        if node >= matrix.shape[0]:
            return np.zeros(0, dtype=np.int64)
        return np.asarray(matrix.indices[matrix.indptr[node] : matrix.indptr[node + 1]], dtype=np.int64)
    entries = np.flatnonzero(matrix.indices == node)
    return np.asarray(np.searchsorted(matrix.indptr, entries, side="right") - 1, dtype=np.int64)
