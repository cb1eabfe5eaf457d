"""From what was measured in a window to p-values: compare hosts with their past, and with what earlier windows had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.temporal.calibration import (
    Pool,
    count_zscores,
    empirical_pvalues,
    severity,
    shrunk_zscores,
    top_two,
)
from graphquilt.temporal.connections import Connections
from graphquilt.temporal.measures import COUNTED, RARE_COUNTS, comparable
from graphquilt.temporal.results import COMPONENTS, HostTable, PairTable
from graphquilt.temporal.side_memory import MEASURED, SideMemory
from graphquilt.temporal.windows import SIDES

__all__ = ["POOLED", "Compared", "add_company", "compare_hosts", "judge_hosts", "judge_pairs"]

_M, _C = len(MEASURED), len(COMPONENTS)
_COUNTED = [MEASURED.index(name) for name in COUNTED]
_LEVEL, _COMPANY = COMPONENTS.index("level"), COMPONENTS.index("company")
POOLED = _M + _C + 1  # columns of the pool of a side: what was measured, the z-scores, and the components together
_RARE = 5  # a host that was in fewer windows is judged by its partners too
_SIZE = [COMPONENTS.index(name) for name in ("degree", "volume", "peak rate", "newcomers", "level")]
_OTHER = [c for c in range(_C) if c not in _SIZE]


class Compared(NamedTuple):
    """The hosts of one side of a window, and how they compare with their past.

    ``nodes`` (k,) are ids, ``values`` (k, measured) what was measured, ``x`` the same in the form that is compared, and
    ``z``, ``centre``, ``spread`` its z-scores, and what was expected. ``pool`` has the columns of the pool.
    """

    nodes: Int64Array
    values: Float64Array
    x: Float64Array
    z: Float64Array
    centre: Float64Array
    spread: Float64Array
    pool: list[AnyArray]


def compare_hosts(nodes: Int64Array, values: Float64Array, memory: SideMemory, pool: Pool, prior: float) -> Compared:
    """Compare what was measured of hosts with what they had before, and with the population of earlier windows.

    The level is the one component without a past: it is how far the most extreme of the counts of a host lies above
    the population, in standard deviations. A host that is always extreme is unusual at each moment.
    """
    x = comparable(values)
    columns = pool.columns(first=_M)
    population = pool.moments(_M) if columns else (np.nan_to_num(x).mean(axis=0), np.nan_to_num(x).var(axis=0) + 1e-6)
    own = memory.number[nodes], memory.mean[nodes], memory.variance[nodes]
    z, spread = shrunk_zscores(x, own, population, prior)
    centre = x - z * spread
    for c in (MEASURED.index(name) for name in RARE_COUNTS):
        z[:, c] = count_zscores(values[:, c], np.expm1(centre[:, c]), own[0][:, c] + prior)
    above = (x[:, _COUNTED] - population[0][_COUNTED]) / np.sqrt(np.maximum(population[1][_COUNTED], 1e-12))
    z[:, _LEVEL] = np.max(np.where(np.isnan(above), -np.inf, above), axis=1, initial=-np.inf)
    values[:, _LEVEL] = z[:, _LEVEL]
    return Compared(nodes, values, x, z, centre, spread, columns)


def judge_hosts(compared: Compared, memory: SideMemory, pool: Pool, seed: tuple[int, int]) -> HostTable:
    """Return p-values from the pool of earlier windows, then add this window to the pool."""
    nodes, values, x, z, *_ = compared
    columns = compared.pool or [np.zeros(0, np.float32)] * (_C + 1)
    p = np.full((len(nodes), _C), np.nan)
    for c in range(_C):
        p[z[:, c] <= 0, c] = 1.0  # no more than expected is not unusual, even if the others had still less
        high = np.flatnonzero(z[:, c] > 0)
        p[high, c] = empirical_pvalues(z[high, c], columns[c])
    # Five components measure size, and one burst moves them all: together they give at most one of the two.
    statistic = top_two(np.column_stack([np.fmin.reduce(p[:, _SIZE], axis=1), p[:, _OTHER]]))
    pvalue = empirical_pvalues(statistic, columns[_C])
    if not compared.pool:
        statistic[:] = np.nan  # nothing was compared yet, and later windows must not be compared with that
    pool.add(np.column_stack([x, z[:, :_C], statistic]), memory.last[nodes] < 0, seed)
    single = np.float32
    return HostTable(nodes, values[:, :_C].astype(single), z[:, :_C].astype(single), p.astype(single), pvalue)


def add_company(
    tables: Mapping[str, HostTable], connections: Connections, memories: Mapping[str, SideMemory]
) -> dict[str, HostTable]:
    """Judge hosts that were seen rarely by the company they keep.

    A host that was in fewer than five windows has hardly a past to be compared with. Its p-value is that of its most
    unusual partner in this window, times one more than the number of its partners (the bound of Bonferroni) and times
    two for the choice between both, if that is smaller than its own: forged sources that flood a host, and addresses
    that a scan reaches, are then found with the host that is flooded or scans.
    """
    pairs, judged = connections.pairs, {}
    ends = {"source": pairs.source, "destination": pairs.destination}
    row_of = {side: np.zeros(len(memories[side]), dtype=np.int64) for side in SIDES}
    for side in SIDES:
        row_of[side][tables[side].nodes] = np.arange(len(tables[side].nodes))
    for side, other in zip(SIDES, reversed(SIDES), strict=True):
        table, partners = tables[side], tables[other]
        windows_before = memories[side].number[:, MEASURED.index("partners")]
        rows = np.flatnonzero(windows_before[ends[side]] < _RARE)
        host = row_of[side][ends[side][rows]]
        lowest = np.full(len(table.nodes), np.inf)
        np.minimum.at(lowest, host, partners.pvalue[row_of[other][ends[other][rows]]])
        has_company = np.isfinite(lowest)
        n_partners = np.bincount(host, minlength=len(table.nodes))[has_company]
        p = np.minimum(2 * (1 + n_partners) * lowest[has_company], 1.0)
        table.pvalues[has_company, _COMPANY] = p
        table.values[has_company, _COMPANY] = severity(lowest[has_company])
        pvalue = table.pvalue.copy()
        pvalue[has_company] = np.minimum(pvalue[has_company], p)
        judged[side] = replace(table, pvalue=pvalue)
    return judged


def judge_pairs(connections: Connections, pool: Pool, seed: tuple[int, int]) -> PairTable:
    """Return the p-value of each connection from the surprise of earlier ones, then add these to the pool."""
    surprise, pairs = connections.surprise, connections.pairs
    columns = pool.columns()
    pvalue = empirical_pvalues(surprise, columns[0] if columns else np.zeros(0))
    pool.add(surprise[:, None], connections.stranger_source | connections.stranger_destination, seed)
    counts = np.ones(len(surprise)) if pairs.counts is None else pairs.counts
    is_new = connections.times == 0
    return PairTable(pairs.source, pairs.destination, surprise, pvalue, counts.astype(np.int64), is_new, pairs.ports)
