"""Turn what was measured into p-values: compare hosts with their past, and with what earlier windows had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import betainc, gammaincc, ndtri

from graphquilt.arrays import AnyArray, BoolArray, Float64Array, Int64Array
from graphquilt.temporal.components import COUNTED, IS_COUNTED, RARE_COUNTS, Connections, to_comparable
from graphquilt.temporal.memory import Pool, SideMemory
from graphquilt.temporal.results import COMPONENTS, MEASURED, HostTable, PairTable, severity
from graphquilt.temporal.windows import SIDES

_M, _C = len(MEASURED), len(COMPONENTS)
_COUNTED = [MEASURED.index(name) for name in COUNTED]
_LEVEL, _COMPANY = COMPONENTS.index("level"), COMPONENTS.index("company")
# Columns of each pool: what was measured, the z-scores, and two sums of components; the surprise of either end.
POOLED = dict.fromkeys(SIDES, _M + _C + 2) | {"pair": 2}
_RARE = 5  # a host that was in fewer windows is judged by its partners too
_SIZE = [COMPONENTS.index(name) for name in ("degree", "volume", "peak rate", "newcomers", "level")]
_SLOW = [COMPONENTS.index(name) for name in ("contexts", "affinity", "pair surprise", "callbacks")]  # need a history
_FAST = [c for c in range(_C) if c not in (*_SIZE, *_SLOW)]
_TAIL = 0.01  # the share of earlier values above which a tail is fitted
_LEAST_SCALE = 0.2  # of the tail, in standard deviations or in units of -log p
_LEAST_VARIANCE = 1e-4  # of what is not a count
_SHAPES = 0.25, 0.1  # of the tails of z-scores, and of what combines them
_COUNTS = 0.05  # a partner makes a host no more unusual than that, or does not count
_MOSTLY = 0.5  # of the connections of such a partner are with hosts like this one
_LEAST_SHARE = 1e-3  # of such connections that is expected
LEARNT = 2  # windows that are only learnt from
_LEARNING = 8  # windows after which these count half
_EXCESSES = tuple((COMPONENTS.index(a), MEASURED.index(b)) for a, b in (("new pairs", "novel"), ("volume", "flows")))
_MAGNITUDES = [MEASURED.index(name) for name in ("partners", "flows", "strangers")]
_FAR = 4.0  # times the highest count so far, beyond which a count alone is severe
_EXPECTED_FROM = 4  # windows of a host that count as much as the population
_USUAL_TAIL = 0.999  # the tail probability of a count of zero, which keeps its z-score finite


class Comparison(NamedTuple):
    """The hosts (k,) of one side of a window, and how they compare with their past.

    ``values`` (k, measured) were measured, ``x`` is the same in the form that is compared, and ``z``, ``centre``,
    ``spread`` are its z-scores and what was expected. The rows ``chosen`` go to the pool.
    """

    nodes: Int64Array
    values: Float64Array
    x: Float64Array
    z: Float64Array
    centre: Float64Array
    spread: Float64Array
    chosen: Int64Array


def compare_hosts(
    nodes: Int64Array, values: Float64Array, memory: SideMemory, pool: Pool, *, prior: float, seed: tuple[int, int]
) -> Comparison:
    """Compare what was measured of hosts with their earlier values, and with the population up to this window.

    Only the level has no past: it is how far the most extreme count of a host lies above the population, in standard
    deviations. A host that is always extreme is unusual at every moment.
    """
    x = to_comparable(values)
    chosen = pool.choose(memory.last[nodes] < 0, seed)
    population = pool.moments(x[chosen])
    own = memory.number[nodes], memory.mean[nodes], memory.variance[nodes]
    z, spread = shrunk_zscores(x, own, population, prior, counted=IS_COUNTED)
    centre = x - z * spread
    for c in (MEASURED.index(name) for name in RARE_COUNTS):
        z[:, c] = count_zscores(values[:, c], np.expm1(centre[:, c]), own[0][:, c] + prior)
    for name, count in _EXCESSES:
        z[:, name] = excess_zscores(values[:, count], own[0][:, count], own[1][:, count], population[0][count])
    usual, spread_of_all = population[0][_COUNTED], np.sqrt(population[1][_COUNTED])
    above = (x[:, _COUNTED] - usual) / np.maximum(spread_of_all, np.exp(-usual / 2))
    z[:, _LEVEL] = np.max(np.where(np.isnan(above), -np.inf, above), axis=1, initial=-np.inf)
    values[:, _LEVEL] = z[:, _LEVEL]
    return Comparison(nodes, values, x, z, centre, spread, chosen)


def shrunk_zscores(
    values: AnyArray,
    own: tuple[AnyArray, AnyArray, AnyArray],
    population: tuple[AnyArray, AnyArray],
    prior: float,
    *,
    counted: BoolArray,
) -> tuple[Float64Array, Float64Array]:
    """Compare values (k, c) with the earlier values of their hosts, and with the population as far as these are few.

    ``own`` are number, mean and variance by host, (k, c) each, and ``population`` mean and variance, (c,) each. The
    columns ``counted`` (c,) are log(1 + x) of counts x, whose variance is at least that of Poisson counts, 1 / (1 + x).
    Returns z-scores, and the standard deviations that the values were divided by.
    """
    number, mean, variance = own
    share = number / (number + prior)
    centre = share * mean + (1 - share) * population[0]
    least = np.where(counted, np.exp(-np.maximum(centre, 0.0)), _LEAST_VARIANCE)
    spread = np.sqrt(np.maximum(share * variance + (1 - share) * population[1], least))
    return (values - centre) / spread, spread


def count_zscores(counts: AnyArray, rate: AnyArray, weight: AnyArray) -> Float64Array:
    """Return how improbable so high a rare count is, as the z-score of the same probability, (k,).

    ``rate`` (k,) is the mean of ``weight`` (k,) windows, and the next count has a negative binomial distribution
    (Poisson, with a gamma distribution of the rate). A z-score by mean and variance would grow with rarity: one event
    after fifty windows without any would count more than five where one in ten windows has one. NaN is kept.
    """
    z = np.where(np.isnan(counts), np.nan, -ndtri(_USUAL_TAIL))
    some = np.flatnonzero(counts > 0)
    total = np.maximum(rate[some], 0.0) * weight[some] + 1e-6
    tail = betainc(counts[some], total, 1.0 / (1.0 + weight[some]))
    z[some] = -ndtri(np.clip(tail, 1e-300, _USUAL_TAIL))
    return np.asarray(z, dtype=np.float64)


def excess_zscores(counts: AnyArray, number: AnyArray, mean: AnyArray, usual: float) -> Float64Array:
    """Return by how much counts (k,) exceed the mean of their host, in Poisson deviations, as sign · log(1 + |z|).

    Two new partners of a host that never has any are less than twenty of a host that has five, unlike in a ratio.
    """
    expected = (number * mean + _EXPECTED_FROM * usual) / (number + _EXPECTED_FROM)
    z = (counts - expected) / np.sqrt(np.maximum(expected, 0.0) + 1)
    return np.asarray(np.sign(z) * np.log1p(np.abs(z)), dtype=np.float64)


def tail_pvalues(values: AnyArray, earlier: AnyArray, *, shape: float) -> Float64Array:
    """Return the share of the N sorted earlier values that are at least as high, counting the value itself, (k,).

    The highest hundredth (four values at least) is replaced by a generalised Pareto tail of this shape, whose scale is
    that of the next nine hundredths: a value far above all others is as improbable as it is far, and a past attack
    among the earlier values does not hide the next one. NaN has p = 1; without earlier values, so has everything.
    """
    N = len(earlier)
    p = np.ones(len(values))
    if N == 0:
        return p
    known = ~np.isnan(values)
    x = values[known]
    at_least = N - np.searchsorted(earlier, x, side="left")
    body = np.minimum((1.0 + at_least) / (1.0 + N), 1.0)
    share, wide = max(_TAIL, 4 / (N + 1)), max(10 * _TAIL, 20 / (N + 1))
    if wide < 1:
        start, before = (float(earlier[max(0, int(np.floor((1 - part) * N)) - 1)]) for part in (share, wide))
        scale = max((start - before) / np.log(wide / share), _LEAST_SCALE)
        excess = np.maximum(x - start, 0.0) / scale
        body = np.where(x > start, share * (1.0 + shape * excess) ** (-1.0 / shape), body)
    p[known] = body
    return p


def magnitude_pvalues(counts: AnyArray, earlier: Sequence[AnyArray]) -> Float64Array:
    """Return how improbable counts (k, c) far above all N earlier ones are: c / (N + 1) times (highest / count)², (k,).

    Two hundred thousand flows are severe where the most so far were six thousand, after any history: the tail of the
    counts is taken for one of Pareto's with a finite variance. Counts up to four times the highest have p = 1; if the
    median has grown, as on the first Monday after a weekend, so has the highest.
    """
    p = np.ones(len(counts))
    for values, reference in zip(np.nan_to_num(counts).T, earlier, strict=True):
        if len(reference):
            half = np.quantile(values, 0.5, method="lower") if len(values) else 0.0
            highest = max(float(reference[-1]), 1.0) * max(half / max(float(np.median(reference)), 1.0), 1.0)
            tail = len(earlier) / (len(reference) + 1) * (highest / np.maximum(values, highest)) ** 2
            p = np.where(values > _FAR * highest, np.minimum(p, tail), p)
    return p


def judge_hosts(compared: Comparison, memory: SideMemory, pool: Pool, *, n_learnt: int) -> HostTable:
    """Return p-values from the pool of earlier windows and this one, then add this window to the pool.

    After ``n_learnt`` windows, components that need a history count n / (n + 8). In the first two windows every p is 1.
    """
    nodes, values, x, z, chosen = *compared[:4], compared.chosen
    p = np.full((len(nodes), _C), np.nan)
    for c in range(_C):
        p[z[:, c] <= 0, c] = 1.0  # no more than expected is not unusual, even if the others had still less
        high = np.flatnonzero(z[:, c] > 0)
        p[high, c] = tail_pvalues(z[high, c], pool.column(_M + c, z[chosen, c]), shape=_SHAPES[0])
    # Five components measure size, and one burst moves them all: together they count once. In a sum of squares, one
    # strong component is not lost among many that are as usual, and several that agree still count more than one.
    fast = np.column_stack([np.fmin.reduce(p[:, _SIZE], axis=1), p[:, _FAST]])
    sums = [(np.log(np.fmin(kinds, 1.0)) ** 2).sum(axis=1) for kinds in (fast, p[:, _SLOW])]
    weight = n_learnt / (n_learnt + _LEARNING)
    statistic = sums[0] + weight * sums[1]
    earlier = pool.column(_M + _C, statistic[chosen], plus=(weight, _M + _C + 1))
    pvalue = tail_pvalues(np.sqrt(statistic), np.sqrt(earlier), shape=_SHAPES[1])  # with a tail like that of -log p
    pvalue = np.minimum(pvalue, magnitude_pvalues(x[:, _MAGNITUDES], [pool.column(c) for c in _MAGNITUDES]))
    if n_learnt < LEARNT:
        pvalue[:] = 1.0
    pool.add(np.column_stack([x, z[:, :_C], *sums])[chosen], memory.last[nodes] < 0)
    single = np.float32
    tables = values[:, :_C].astype(single), z[:, :_C].astype(single), p.astype(single)
    return HostTable(nodes, *tables, pvalue, len(nodes))


def score_by_partners(
    tables: Mapping[str, HostTable], connections: Connections, memories: Mapping[str, SideMemory], *, n_learnt: int
) -> dict[str, HostTable]:
    """Judge rarely seen hosts by their partners too (the component "company").

    A host that was in fewer than five windows, and in fewer than half of the ``n_learnt``, hardly has a past. Its
    p-value becomes that of its most unusual partner in this window, times one more than the number of its partners
    (Bonferroni) and times two for the choice between both, if that is smaller and below 0.05. Such hosts must be at
    least half of the partner's connections, and more than chance gives, if each of its connections is with one of them
    as often as for the mean host of its side: that probability counts if it is higher than the partner's p-value. So a
    busy server is not unusual because of a newcomer, nor a Monday because all who come are new. Forged sources
    that flood a host, and the victims of a scan, are thus found with their counterpart.
    """
    pairs, judged = connections.pairs, {}
    ends = {"source": pairs.source, "destination": pairs.destination}
    row_of = {side: np.zeros(len(memories[side]), dtype=np.int64) for side in SIDES}
    for side in SIDES:
        row_of[side][tables[side].nodes] = np.arange(len(tables[side].nodes))
    for side, other in zip(SIDES, reversed(SIDES), strict=True):
        table, partners = tables[side], tables[other]
        windows_before = memories[side].number[:, MEASURED.index("partners")]
        rows = np.flatnonzero(windows_before[ends[side]] < min(_RARE, n_learnt / 2))
        host, partner = row_of[side][ends[side][rows]], row_of[other][ends[other]]
        n_rare, n_all = np.bincount(partner[rows], minlength=len(partners.nodes)), np.bincount(partner)
        share = n_rare / n_all
        chance = betainc(np.maximum(n_rare, 1), n_all - n_rare + 1, np.clip(share.mean(), _LEAST_SHARE, 1.0))
        lowest = np.full(len(table.nodes), np.inf)
        both = np.where(share >= _MOSTLY, np.maximum(partners.pvalue, chance), 1.0)
        np.minimum.at(lowest, host, both[partner[rows]])
        is_rare = np.isfinite(lowest)
        n_partners = np.bincount(host, minlength=len(table.nodes))[is_rare]
        p = np.minimum(2 * (1 + n_partners) * lowest[is_rare], 1.0)
        p[p > _COUNTS] = 1.0
        table.pvalues[is_rare, _COMPANY] = p
        table.values[is_rare, _COMPANY] = severity(lowest[is_rare], partners.n_judged)
        pvalue = table.pvalue.copy()
        pvalue[is_rare] = np.minimum(pvalue[is_rare], p)
        judged[side] = replace(table, pvalue=pvalue)
    return judged


def judge_pairs(
    connections: Connections, tables: Mapping[str, HostTable], pool: Pool, seed: tuple[int, int], *, n_learnt: int
) -> PairTable:
    """Return the p-value of each connection, then add this window to the pool.

    It combines four p-values, by the sum of their -log: how improbable each end is for the other, compared with other
    connections, and how unusual each end is itself. Those of one end depend on each other, and count as one: half of
    the sum has a gamma distribution of shape 2.
    """
    pairs = connections.pairs
    are_strangers = connections.stranger_source | connections.stranger_destination
    chosen = pool.choose(are_strangers, seed)
    surprises, ends = (connections.from_source, connections.from_destination), (pairs.source, pairs.destination)
    statistic = np.zeros(len(pairs.keys))
    for column, (side, nodes, surprise) in enumerate(zip(SIDES, ends, surprises, strict=True)):
        own = tail_pvalues(surprise, pool.column(column, surprise[chosen]), shape=_SHAPES[1])
        table = tables[side]
        statistic -= np.log(own) + np.log(table.pvalue[np.searchsorted(table.nodes, nodes)])
    pvalue = np.ones(len(statistic))
    if n_learnt >= LEARNT:
        pvalue[:] = gammaincc(2.0, statistic / 2)
    pool.add(np.column_stack(surprises)[chosen], are_strangers)
    counts = np.ones(len(statistic)) if pairs.counts is None else pairs.counts
    is_new = connections.times == 0
    return PairTable(*ends, connections.surprise, pvalue, counts.astype(np.int64), is_new, len(pairs.keys), pairs.ports)
