"""Turn what was measured into p-values: compare hosts with their past, and with what earlier windows had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import betainc, ndtri

from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.temporal.components import COUNTED, RARE_COUNTS, Connections, to_comparable
from graphquilt.temporal.memory import Pool, SideMemory
from graphquilt.temporal.results import COMPONENTS, MEASURED, HostTable, PairTable, severity, top_two
from graphquilt.temporal.windows import SIDES

_M, _C = len(MEASURED), len(COMPONENTS)
_COUNTED = [MEASURED.index(name) for name in COUNTED]
_LEVEL, _COMPANY = COMPONENTS.index("level"), COMPONENTS.index("company")
POOLED = _M + _C + 1  # columns of the pool of a side: what was measured, the z-scores, and the components together
_RARE = 5  # a host that was in fewer windows is judged by its partners too
_SIZE = [COMPONENTS.index(name) for name in ("degree", "volume", "peak rate", "newcomers", "level")]
_OTHER = [c for c in range(_C) if c not in _SIZE]
_USUAL_TAIL = 0.999  # the tail probability of a count of zero, which keeps its z-score finite


class Comparison(NamedTuple):
    """The hosts (k,) of one side of a window, and how they compare with their past.

    ``values`` (k, measured) were measured, ``x`` is the same in the form that is compared, and ``z``, ``centre``,
    ``spread`` are its z-scores and what was expected. ``pool`` has the columns of the pool.
    """

    nodes: Int64Array
    values: Float64Array
    x: Float64Array
    z: Float64Array
    centre: Float64Array
    spread: Float64Array
    pool: list[AnyArray]


def compare_hosts(nodes: Int64Array, values: Float64Array, memory: SideMemory, pool: Pool, prior: float) -> Comparison:
    """Compare what was measured of hosts with their earlier values, and with the population of earlier windows.

    Only the level has no past: it is how far the most extreme count of a host lies above the population, in standard
    deviations. A host that is always extreme is unusual at every moment.
    """
    x = to_comparable(values)
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
    return Comparison(nodes, values, x, z, centre, spread, columns)


def shrunk_zscores(
    values: AnyArray, own: tuple[AnyArray, AnyArray, AnyArray], population: tuple[AnyArray, AnyArray], prior: float
) -> tuple[Float64Array, Float64Array]:
    """Compare values (k, c) with the earlier values of their hosts, and with the population as far as these are few.

    A host with n earlier values has weight n / (n + prior) in the mean and the variance that a value is compared with,
    and the population the rest. ``own`` are number, mean and variance by host, (k, c) each, and ``population`` mean and
    variance, (c,) each. Returns z-scores, and the standard deviations that the values were divided by.

    Examples
    --------
    >>> own = np.array([[0.0], [6.0]]), np.array([[0.0], [4.0]]), np.array([[0.0], [1.0]])
    >>> z, _ = shrunk_zscores(np.array([[3.0], [3.0]]), own, (np.array([1.0]), np.array([1.0])), prior=2.0)
    >>> z.tolist()
    [[2.0], [-0.25]]
    """
    number, mean, variance = own
    share = number / (number + prior)
    centre = share * mean + (1 - share) * population[0]
    spread = np.sqrt(np.maximum(share * variance + (1 - share) * population[1], 1e-12))
    return (values - centre) / spread, spread


def count_zscores(counts: AnyArray, rate: AnyArray, weight: AnyArray) -> Float64Array:
    """Return how improbable so high a rare count is, as the z-score of the same probability, (k,).

    ``rate`` (k,) is the mean of ``weight`` (k,) windows, and the next count has a negative binomial distribution
    (Poisson, with a gamma distribution of the rate). A z-score by mean and variance would grow with rarity: one event
    after fifty windows without any would count more than five where one in ten windows has one. NaN is kept.

    Examples
    --------
    >>> rate = np.array([0.1, 0.02, 0.1])
    >>> count_zscores(np.array([0.0, 1.0, 3.0]), rate, np.full(3, 50.0)).round(2).tolist()
    [-3.09, 2.06, 3.48]
    """
    z = np.where(np.isnan(counts), np.nan, -ndtri(_USUAL_TAIL))
    some = np.flatnonzero(counts > 0)
    total = np.maximum(rate[some], 0.0) * weight[some] + 1e-6
    tail = betainc(counts[some], total, 1.0 / (1.0 + weight[some]))
    z[some] = -ndtri(np.clip(tail, 1e-300, _USUAL_TAIL))
    return np.asarray(z, dtype=np.float64)


def empirical_pvalues(values: AnyArray, earlier: AnyArray) -> Float64Array:
    """Return the share of the N sorted earlier values that are at least as high, counting the value itself, (k,).

    Values above all earlier ones have p = 1 / (N + 1) / (1 + e), where e is the excess over the highest earlier value
    in standard deviations, or in units if these are larger. NaN has p = 1; without earlier values, so has everything.

    Examples
    --------
    >>> empirical_pvalues(np.array([0.0, 2.5, 3.0]), np.array([1.0, 2.0, 3.0])).tolist()
    [1.0, 0.5, 0.5]
    """
    N = len(earlier)
    p = np.ones(len(values))
    if N == 0:
        return p
    known = ~np.isnan(values)
    x = values[known]
    at_least = N - np.searchsorted(earlier, x, side="left")
    excess = np.maximum(x - earlier[-1], 0.0) / max(float(np.std(earlier)), 1.0)
    p[known] = np.minimum((1.0 + at_least) / (1.0 + N), 1.0) / (1.0 + excess)
    return p


def judge_hosts(compared: Comparison, memory: SideMemory, pool: Pool, seed: tuple[int, int]) -> HostTable:
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


def score_by_partners(
    tables: Mapping[str, HostTable], connections: Connections, memories: Mapping[str, SideMemory]
) -> dict[str, HostTable]:
    """Judge rarely seen hosts by their partners too (the component "company").

    A host that was in fewer than five windows hardly has a past. Its p-value becomes that of its most unusual partner
    in this window, times one more than the number of its partners (Bonferroni) and times two for the choice between
    both, if that is smaller. Forged sources that flood a host, and the victims of a scan, are thus found with their
    counterpart.
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
        is_rare = np.isfinite(lowest)
        n_partners = np.bincount(host, minlength=len(table.nodes))[is_rare]
        p = np.minimum(2 * (1 + n_partners) * lowest[is_rare], 1.0)
        table.pvalues[is_rare, _COMPANY] = p
        table.values[is_rare, _COMPANY] = severity(lowest[is_rare])
        pvalue = table.pvalue.copy()
        pvalue[is_rare] = np.minimum(pvalue[is_rare], p)
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
