"""A window that still receives flows: its pairs with their flows and weights, and how many flows hosts have per bin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import Float64Array, Int64Array

__all__ = ["BINS", "OpenWindow", "Run", "sum_by_key"]

BINS = 1440  # bins of a window in which peaks are counted: minutes of a day
_COMPACT_AT = 1 << 22  # entries that one window collects before equal ones are added up
_LOW = 0xFFFFFFFF  # the second of two numbers in one key

Run = tuple[Int64Array, tuple[Float64Array, ...]]


def sum_by_key(keys: Int64Array, columns: Sequence[Float64Array] | None = None) -> Run:
    """Sort keys and keep each once; add up each column over equal keys. Without columns, count the equal keys.

    Examples
    --------
    >>> keys, (count,) = sum_by_key(np.array([7, 3, 7]))
    >>> keys.tolist(), count.tolist()
    ([3, 7], [1.0, 2.0])
    """
    if columns is None:
        keys = np.sort(keys)  # np.unique uses a hash table, which is ten times slower on many distinct keys
    else:
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
    is_first = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    if columns is None:
        return keys[starts], (np.diff(starts, append=len(keys)).astype(np.float64),)
    sums = (np.add.reduceat(column[order], starts) if len(starts) else column[:0] for column in columns)
    return keys[starts], tuple(sums)


class _Runs:
    """Sorted runs of keys with columns; equal keys are added up when there are many entries."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.size = 0

    def add(self, run: Run) -> None:
        self.runs.append(run)
        self.size += len(run[0])

    def compact(self) -> Run:
        """Make one run of all runs, and return it."""
        if len(self.runs) != 1:
            columns = zip(*(columns for _, columns in self.runs), strict=True)
            run = sum_by_key(np.concatenate([keys for keys, _ in self.runs]), [np.concatenate(c) for c in columns])
            self.runs = [run]
        self.size = len(self.runs[0][0])
        return self.runs[0]


class _Peaks:
    """The busiest bin of each node of one side; bins that receive no more flows are kept as their maximum only."""

    def __init__(self) -> None:
        self._bins = _Runs()
        self._folded: list[Run] = []

    def add(self, bins: Int64Array, nodes: Int64Array, closed_before: int) -> None:
        self._bins.add(sum_by_key((bins << 32) | nodes))
        if self._bins.size > _COMPACT_AT:
            keys, (count,) = self._bins.compact()
            split = int(np.searchsorted(keys, closed_before << 32))
            self._bins.runs = [(keys[split:], (count[split:],))]
            self._bins.size = len(keys) - split
            self._fold(keys[:split] & _LOW, count[:split])

    def _fold(self, nodes: Int64Array, count: Float64Array) -> None:
        self._folded.append((nodes, (count,)))
        nodes, count = (
            np.concatenate([run[0] for run in self._folded]),
            np.concatenate([c for _, (c,) in self._folded]),
        )
        order = np.argsort(nodes, kind="stable")
        nodes, count = nodes[order], count[order]
        starts = np.flatnonzero(np.diff(nodes, prepend=-1))
        self._folded = [(nodes[starts], (np.maximum.reduceat(count, starts) if len(starts) else count,))]

    def close(self, size: int) -> Int64Array:
        """Return the number of flows in the busiest bin of each node, (size,); 0 for absent nodes."""
        keys, (count,) = self._bins.compact()
        self._fold(keys & _LOW, count)
        nodes, (highest,) = self._folded[0]
        peaks = np.zeros(size, dtype=np.int64)
        peaks[nodes] = highest.astype(np.int64)
        return peaks


class OpenWindow:
    """A window that still receives flows.

    Parameters
    ----------
    directed : bool
        False: every flow is counted at both of its nodes, which share one set of ids.
    """

    def __init__(self, *, directed: bool) -> None:
        self.rows = 0
        self._directed = directed
        self._pairs = _Runs()
        self._peaks = (_Peaks(), _Peaks()) if directed else (_Peaks(),)

    def add(self, pairs: Int64Array, weights: Float64Array | None, bins: Int64Array, *, closed_before: int = 0) -> None:
        """Add flows: their pairs as 64-bit keys, their weights, and the bin of the window that each lies in.

        Bins below ``closed_before`` receive no more flows.
        """
        self.rows += len(pairs)
        ends = pairs >> 32, pairs & _LOW
        if not self._directed:
            is_loop = ends[0] == ends[1]
            bins = np.concatenate([bins, bins[~is_loop]])
            pairs = np.concatenate([pairs, ((ends[1] << 32) | ends[0])[~is_loop]])
            weights = None if weights is None else np.concatenate([weights, weights[~is_loop]])
            ends = (pairs >> 32,) * 2
        columns = None if weights is None else [np.ones(len(pairs)), weights]
        self._pairs.add(sum_by_key(pairs, columns))
        if self._pairs.size > _COMPACT_AT:
            self._pairs.compact()
        for peaks, nodes in zip(self._peaks, ends, strict=False):
            peaks.add(bins, nodes, closed_before)

    def close(self, shape: tuple[int, int]) -> tuple[sp.csr_array, Float64Array, tuple[Int64Array, Int64Array]]:
        """Return the matrix of the window, the number of flows of each of its entries, and the peaks of both sides."""
        keys, columns = self._pairs.compact()
        data = columns[1] if len(columns) > 1 else np.ones(len(keys))
        matrix = sp.csr_array((data, (keys >> 32, keys & _LOW)), shape=shape)
        peaks = [peaks.close(size) for peaks, size in zip(self._peaks, shape, strict=False)]
        return matrix, columns[0], (peaks[0], peaks[-1])
