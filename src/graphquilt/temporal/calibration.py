"""From a measured value to a p-value: z-scores shrunk toward the population, and pools of what earlier windows had."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, ndtri

from graphquilt.arrays import AnyArray, BoolArray, Float32Array, Float64Array

__all__ = ["Pool", "count_zscores", "empirical_pvalues", "severity", "shrunk_zscores", "top_two"]

_FEWEST = 4  # rows of each kind that every window may give to a pool
_USUAL_TAIL = 0.999  # the tail probability of a count of zero, so that its z-score is finite


def shrunk_zscores(
    values: AnyArray, own: tuple[AnyArray, AnyArray, AnyArray], population: tuple[AnyArray, AnyArray], prior: float
) -> tuple[Float64Array, Float64Array]:
    """Compare values with what their hosts had before, as far as the hosts are known, and else with the population.

    A host with n earlier values counts with weight n / (n + prior), and the population with the rest, in the mean and
    in the variance that a value is compared with. A host never seen before is compared with the population alone.

    Parameters
    ----------
    values : float array (k, c)
        One row per host and one column per component; NaN where a component was not measured.
    own : arrays (k, c), (k, c), (k, c)
        Number, mean and variance of the earlier values of each host.
    population : arrays (c,), (c,)
        Mean and variance over all hosts of earlier windows.
    prior : float
        How many earlier values make a host count as much as the population.

    Returns
    -------
    z, spread : float arrays (k, c)
        Scores, and the standard deviations that the values were divided by.

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
    """Return how improbable it is that a rare count is so high, as the z-score of the same probability.

    The rate is known as from ``weight`` windows, so that the next count has a negative binomial distribution (Poisson,
    with a gamma distribution of the rate). A z-score by mean and variance would be the larger, the rarer the count is:
    one event after fifty windows without any would count more than five where one in ten windows has one.

    Parameters
    ----------
    counts, rate, weight : float arrays (k,)
        What was counted, the mean that is expected, and the number of windows that it is the mean of. NaN is kept.

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
    """Return the share of earlier values that are at least as high, with the value itself counted among them.

    Values above all N earlier ones have p below 1 / (N + 1), in the order of their size: p = 1 / (N + 1) / (1 + e),
    where e is the excess over the highest earlier value in standard deviations, or in units if these are larger. NaN
    has p = 1, and so has everything where there are no earlier values.

    Parameters
    ----------
    values : float array (k,)
    earlier : float array (N,)
        Without NaN, sorted.

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


def top_two(pvalues: AnyArray) -> Float64Array:
    """Combine the p-values of components (k, c): the mean of the two largest -log p, (k,).

    Examples
    --------
    >>> top_two(np.exp([[-1.0, -4.0, -2.0]])).tolist()
    [3.0]
    """
    surprise = -np.log(np.fmin(pvalues, 1.0))
    return np.asarray(np.partition(surprise, -2, axis=1)[:, -2:].mean(axis=1), dtype=np.float64)


def severity(pvalue: npt.ArrayLike) -> Float64Array:
    """Return 20 points for each factor of ten by which p lies below 1, and at most 100.

    Examples
    --------
    >>> severity([1.0, 0.01, 1e-9]).tolist()
    [0.0, 40.0, 100.0]
    """
    return np.clip(-20.0 * np.log10(np.asarray(pvalue, dtype=np.float64)), 0.0, 100.0) + 0.0


class Pool:
    """Values of earlier windows, at most so many from each, so that one flood does not fill the pool.

    Parameters
    ----------
    cap : int
        The largest number of rows from one window.
    history : int
        The sizes of so many windows are remembered, and the rows of the later two thirds of them: earlier windows had
        less to be compared with, and what was unusual in them says little of what is unusual now.
    width : int
        Number of columns.

    Attributes
    ----------
    samples : deque of float arrays (rows, width)
    sizes : deque of pairs of int
        How many rows of hosts seen before, and of strangers, each window had. A window gives no more rows of each
        kind than twice the median of the windows before it.
    """

    def __init__(self, cap: int, history: int, width: int) -> None:
        self.cap, self.width = cap, width
        self.samples: deque[Float32Array] = deque(maxlen=history)
        self.sizes: deque[tuple[int, int]] = deque(maxlen=history)

    def add(self, rows: AnyArray, are_strangers: BoolArray, seed: Iterable[int]) -> None:
        """Remember rows of one window; which ones depends on the seed and on the numbers of rows only."""
        groups = np.flatnonzero(~are_strangers), np.flatnonzero(are_strangers)
        rng = np.random.default_rng(list(seed))
        usual = np.median(np.array(self.sizes), axis=0) if self.sizes else np.full(2, np.inf)
        chosen = []
        for group, count in zip(groups, usual, strict=True):
            share = self.cap * len(group) / max(len(rows), 1)
            limit = int(min(np.ceil(share), max(2 * count, _FEWEST)))
            chosen.append(group if len(group) <= limit else rng.choice(group, limit, replace=False))
        self.sizes.append((len(groups[0]), len(groups[1])))
        self.samples.append(np.asarray(rows[np.sort(np.concatenate(chosen))], dtype=np.float32))
        while len(self.samples) > self.most(len(self.sizes)):
            self.samples.popleft()

    @staticmethod
    def most(n_windows: int) -> int:
        """Return of how many windows rows are kept, if the sizes of ``n_windows`` are known."""
        return max(2, (2 * n_windows + 1) // 3)

    def columns(self, first: int = 0) -> list[Float32Array]:
        """Return the values of each column from ``first`` on, sorted and without NaN; none if there is no window."""
        if not self.samples:
            return []
        stacked = np.concatenate([sample[:, first:] for sample in self.samples])
        return [np.sort(column[~np.isnan(column)]) for column in stacked.T]

    def moments(self, size: int) -> tuple[Float64Array, Float64Array]:
        """Return mean and variance of the first ``size`` columns, (size,), without NaN; 0 and 1 for empty columns."""
        stacked = np.concatenate([sample[:, :size] for sample in self.samples]).astype(np.float64)
        known = ~np.isnan(stacked)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, stacked, 0.0).sum(axis=0) / count
        variance = np.where(known, (stacked - mean) ** 2, 0.0).sum(axis=0) / count
        return mean, np.where(known.any(axis=0), variance, 1.0)
