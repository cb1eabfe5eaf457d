"""Which pairs occurred in earlier windows, how often, and when last: in bounded memory, as sorted arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from graphquilt.arrays import BoolArray, Float32Array, Float64Array, Int64Array

__all__ = ["PairMemory"]


@dataclass
class PairMemory:
    """Pairs of earlier windows, each with the number of windows that had it and the last of them.

    Parameters
    ----------
    history : int
        A pair that was in none of the last ``history`` windows is forgotten, and no pair counts more often than that.
    limit : int
        The largest number of pairs; those that were seen longest ago are forgotten first.

    Attributes
    ----------
    keys : int array (m,)
        Source and destination in one number of 64 bits, sorted.
    counts, last : float and int arrays (m,)

    Examples
    --------
    >>> memory = PairMemory(history=2, limit=100)
    >>> memory.learn(np.array([3, 5]), 0)
    >>> memory.learn(np.array([5]), 1)
    >>> memory.times(np.array([3, 4, 5])).tolist()
    [1.0, 0.0, 2.0]
    >>> memory.learn(np.array([5]), 2)
    >>> memory.keys.tolist()
    [5]
    """

    history: int
    limit: int
    keys: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    counts: Float32Array = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    last: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def _places(self, keys: Int64Array) -> tuple[Int64Array, BoolArray]:
        """Return where sorted keys stand or would stand, and which of them are there."""
        place = np.searchsorted(self.keys, keys)
        inside = place < len(self.keys)
        known = np.zeros(len(keys), dtype=bool)
        known[inside] = self.keys[place[inside]] == keys[inside]
        return place, known

    def times(self, keys: Int64Array) -> Float64Array:
        """Return in how many earlier windows each of the sorted keys was, (k,)."""
        place, known = self._places(keys)
        count = np.zeros(len(keys))
        count[known] = self.counts[place[known]]
        return count

    def learn(self, keys: Int64Array, number: int) -> None:
        """Add the sorted, distinct keys of window ``number``, then forget what is too old or too much."""
        place, known = self._places(keys)
        old = place[known]
        self.counts[old] = np.minimum(self.counts[old] + 1, self.history)
        self.last[old] = np.maximum(self.last[old], number)
        new, where = keys[~known], place[~known]
        self.keys = np.insert(self.keys, where, new)
        self.counts = np.insert(self.counts, where, 1)
        self.last = np.insert(self.last, where, number)
        keep = np.flatnonzero(self.last > int(self.last.max(initial=number)) - self.history)
        if len(keep) > self.limit:
            keep = np.sort(keep[np.argpartition(self.last[keep], -self.limit)[-self.limit :]])
        if len(keep) < len(self.keys):
            self.keys, self.counts, self.last = self.keys[keep], self.counts[keep], self.last[keep]

    def totals(self, n_sources: int, n_destinations: int) -> tuple[Float64Array, Float64Array]:
        """Return the sum of the counts by source and by destination."""
        counts = self.counts.astype(np.float64)
        source = np.bincount(self.keys >> 32, weights=counts, minlength=n_sources)
        destination = np.bincount(self.keys & 0xFFFFFFFF, weights=counts, minlength=n_destinations)
        return source.astype(np.float64), destination.astype(np.float64)

    def partners(self, node: int, side: str) -> tuple[Int64Array, Float64Array]:
        """Return the partners of a node of one side, and in how many windows each pair was."""
        if side == "source":
            rows = slice(*np.searchsorted(self.keys, [node << 32, (node + 1) << 32]))
            return self.keys[rows] & 0xFFFFFFFF, self.counts[rows].astype(np.float64)
        at = np.flatnonzero((self.keys & 0xFFFFFFFF) == node)
        return self.keys[at] >> 32, self.counts[at].astype(np.float64)
