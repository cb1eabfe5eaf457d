"""A window that still receives flows: its pairs with their flows, and how many flows hosts have per bin."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array, Int64Array

BINS = 1440  # bins of a window in which peaks are counted: minutes of a day
_COMPACT_AT = 1 << 22  # entries that one window collects before equal ones are added up
LOW_BITS = 0xFFFFFFFF  # the second of two numbers in one key

_Run = tuple[Int64Array, Float64Array]  # sorted keys, each once, and how often each occurred


class FlowArrays(NamedTuple):
    """Flows as arrays (m,): times, pairs as keys of 64 bits, and destination ports where there are any."""

    time: AnyArray
    pairs: Int64Array
    port: Int64Array | None

    def take(self, rows: Int64Array | slice) -> FlowArrays:
        """Return some of the flows."""
        return FlowArrays(self.time[rows], self.pairs[rows], None if self.port is None else self.port[rows])


def sum_by_key(keys: Int64Array, count: Float64Array | None = None) -> _Run:
    """Sort keys and keep each once; add up how often each occurred, which is once by default."""
    if count is None:
        keys = np.sort(keys)  # np.unique uses a hash table, which is ten times slower on many distinct keys
    else:
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
    is_first = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    if count is None:
        return keys[starts], np.diff(starts, append=len(keys)).astype(np.float64)
    return keys[starts], np.add.reduceat(count[order], starts) if len(starts) else count


class _Runs:
    """Sorted runs of keys with counts; equal keys are added up when there are many entries."""

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        self.size = 0

    def add(self, run: _Run) -> None:
        self.runs.append(run)
        self.size += len(run[0])

    def compact(self) -> _Run:
        """Make one run of all runs, and return it."""
        if len(self.runs) != 1:
            self.runs = [sum_by_key(*map(np.concatenate, zip(*self.runs, strict=True)))]
        self.size = len(self.runs[0][0])
        return self.runs[0]


class _Peaks:
    """The busiest bin of each node of one side; bins that receive no more flows are kept as their maximum only."""

    def __init__(self) -> None:
        self._bins = _Runs()
        self._folded: list[_Run] = []

    def add(self, bins: Int64Array, nodes: Int64Array, closed_before: int) -> None:
        self._bins.add(sum_by_key((bins << 32) | nodes))
        if self._bins.size > _COMPACT_AT:
            keys, count = self._bins.compact()
            split = int(np.searchsorted(keys, closed_before << 32))
            self._bins.runs = [(keys[split:], count[split:])]
            self._bins.size = len(keys) - split
            self._fold(keys[:split] & LOW_BITS, count[:split])

    def _fold(self, nodes: Int64Array, count: Float64Array) -> None:
        nodes, count = map(np.concatenate, zip(*self._folded, (nodes, count), strict=True))
        order = np.argsort(nodes, kind="stable")
        starts = np.flatnonzero(np.diff(nodes[order], prepend=-1))
        self._folded = [(nodes[order][starts], np.maximum.reduceat(count[order], starts) if len(starts) else count)]

    def close(self, size: int) -> Int64Array:
        """Return the number of flows in the busiest bin of each node, (size,); 0 for absent nodes."""
        keys, count = self._bins.compact()
        self._fold(keys & LOW_BITS, count)
        nodes, highest = self._folded[0]
        peaks = np.zeros(size, dtype=np.int64)
        peaks[nodes] = highest.astype(np.int64)
        return peaks


class _Ports:
    """How many flows each pair has on each port, until the port of most of them is asked for."""

    def __init__(self) -> None:
        self._parts: list[tuple[Int64Array, Int64Array, Float64Array]] = []
        self._size = 0

    def add(self, pairs: Int64Array, ports: Int64Array) -> None:
        self._parts.append(_sum_by_pair_and_port(pairs, ports, np.ones(len(pairs))))
        self._size += len(self._parts[-1][0])
        if self._size > _COMPACT_AT:
            self._parts = [_sum_by_pair_and_port(*(np.concatenate(c) for c in zip(*self._parts, strict=True)))]
            self._size = len(self._parts[0][0])

    def close(self) -> Int64Array:
        """Return the port of most flows of each pair, in the order of the keys of the pairs."""
        columns = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        pairs, ports, count = _sum_by_pair_and_port(*columns)
        order = np.lexsort((-ports, count, pairs))
        is_last = np.append(np.diff(pairs[order]) != 0, True)
        return np.asarray(ports[order][is_last], dtype=np.int64)


def _sum_by_pair_and_port(
    pairs: Int64Array, ports: Int64Array, count: Float64Array
) -> tuple[Int64Array, Int64Array, Float64Array]:
    order = np.lexsort((ports, pairs))
    pairs, ports = pairs[order], ports[order]
    starts = np.flatnonzero(np.append(True, (np.diff(pairs) != 0) | (np.diff(ports) != 0)))
    return pairs[starts], ports[starts], np.add.reduceat(count[order], starts)


class OpenWindow:
    """A window that still receives flows."""

    def __init__(self) -> None:
        self.rows = 0
        self._pairs = _Runs()
        self._peaks = _Peaks(), _Peaks()
        self._ports: _Ports | None = None

    def add(self, flows: FlowArrays, bins: Int64Array, *, closed_before: int = 0) -> None:
        """Add flows, and the bin of the window that each lies in; bins below ``closed_before`` receive no more."""
        _, pairs, ports = flows
        self.rows += len(pairs)
        if ports is not None and len(ports):
            self._ports = self._ports or _Ports()
            self._ports.add(pairs, ports)
        self._pairs.add(sum_by_key(pairs))
        if self._pairs.size > _COMPACT_AT:
            self._pairs.compact()
        for peaks, nodes in zip(self._peaks, (pairs >> 32, pairs & LOW_BITS), strict=True):
            peaks.add(bins, nodes, closed_before)

    def pairs(self) -> Int64Array:
        """Return the keys of its pairs so far."""
        return self._pairs.compact()[0]

    def close(self, shape: tuple[int, int]) -> tuple[sp.csr_array, Float64Array, list[Int64Array], Int64Array | None]:
        """Return the matrix, the number of flows of each of its entries, the peaks of both sides, and the ports."""
        keys, count = self._pairs.compact()
        matrix = sp.csr_array((np.ones(len(keys)), (keys >> 32, keys & LOW_BITS)), shape=shape)
        peaks = [peaks.close(size) for peaks, size in zip(self._peaks, shape, strict=True)]
        ports = None if self._ports is None else self._ports.close()
        return matrix, count, peaks, ports
