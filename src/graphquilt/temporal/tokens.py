"""What device logs say about the hosts of a window: tokens such as ``proc:cmd.exe``, and how surprising each is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array, Int64Array, IntArray
from graphquilt.errors import InputError
from graphquilt.temporal.memory import PairMemory
from graphquilt.temporal.names import Names
from graphquilt.temporal.open_window import LOW_BITS
from graphquilt.temporal.windows import Snapshots

_EventBatch: TypeAlias = pa.RecordBatch | Sequence[AnyArray]
_NAMED = 5  # tokens that an alert names at most
_TELLING = 0.5  # a token with less than this share of the highest surprise of its host is not named


class WindowTokens(NamedTuple):
    """The tokens of one window: host and token in one number of 64 bits, (m,), sorted and each once."""

    keys: Int64Array

    @classmethod
    def of(cls, hosts: AnyArray, tokens: AnyArray) -> WindowTokens:
        """Return the tokens of hosts given as ids, (m,) each."""
        return cls(np.unique((np.asarray(hosts, dtype=np.int64) << 32) | np.asarray(tokens, dtype=np.int64)))


class TokenSurprise(NamedTuple):
    """The tokens of a window by host and token id, and -log of the probability of each, (m,)."""

    hosts: Int64Array
    tokens: Int64Array
    surprise: Float64Array


class TokenWindows:
    """Cut events into the windows of flows, while both are read; hosts have the ids of the sources.

    ``events`` are those of :func:`graphquilt.temporal.read_events`, or tuples ``(time, host, token)`` of arrays of ids,
    in order of time. ``names`` are those of the tokens. ``late`` counts tokens that came after their last window was
    asked for, which are left out, as are events of windows up to ``after``, which an earlier run has finished.

    Examples
    --------
    >>> from graphquilt.temporal import snapshots
    >>> flows = [(np.array([0, 90000]), np.array([0, 0]), np.array([1, 1]))]
    >>> windows = snapshots(flows)
    >>> tokens = TokenWindows([(np.array([5.0, 90001.0]), np.array([0, 0]), np.array([3, 4]))], windows)
    >>> [(tokens.of(window.number).keys & 0xFFFFFFFF).tolist() for window in windows.windows()]
    [[3], [4]]
    """

    def __init__(self, events: Iterable[_EventBatch], windows: Snapshots) -> None:
        self._events: Iterator[_EventBatch] = iter(events)
        self._windows = windows
        self._waiting: dict[int, list[Int64Array]] = {}
        self._now = -np.inf
        self._asked: int | None = None
        self.names = Names()
        self.late = 0
        self.after: int | None = None

    def of(self, number: int) -> WindowTokens:
        """Return the tokens of a window, and forget those of earlier ones; ask for windows in order."""
        windows = self._windows
        end = windows.origin + number * windows.step + windows.width + windows.grace
        while self._now < end and (batch := next(self._events, None)) is not None:
            self._collect(batch)
        self._asked = number
        keys = self._waiting.pop(number, [])
        for earlier in [n for n in self._waiting if n < number]:
            del self._waiting[earlier]
        return WindowTokens(np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *keys])))

    def waiting(self) -> Int64Array:
        """Return the hosts and tokens, in one number each, of windows that were not asked for yet."""
        keys = [part for parts in self._waiting.values() for part in parts]
        return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *keys]))

    def _collect(self, batch: _EventBatch) -> None:
        if isinstance(batch, Sequence):
            if len(batch) != 3:
                raise InputError(f"events given as plain arrays are (time, host, token), not {len(batch)} arrays.")
            time, host, token = (np.asarray(column) for column in batch)
        else:
            time = batch.column("time").to_numpy()
            host = self._windows.sources.add_column(batch.column("host"))
            token = self.names.add_column(batch.column("token"))
        if len(time) == 0:
            return
        self._now = max(self._now, float(np.median(time)))  # one wrong time must not end the reading
        number = np.floor((time - self._windows.origin) / self._windows.step).astype(np.int64)
        keys = (host.astype(np.int64) << 32) | token.astype(np.int64)
        if self.after is not None:
            keys, number = keys[number > self.after], number[number > self.after]
        if self._asked is not None:
            self.late += int((number <= self._asked).sum())
        for back in range(self._windows.overlap):
            for n in np.unique(number):
                self._waiting.setdefault(int(n) - back, []).append(np.unique(keys[number == n]))


def compare_tokens(tokens: WindowTokens, memory: PairMemory, concentration: float) -> TokenSurprise:
    """Compute how surprising each token is for its host, after the windows before it.

    The probability of a token is (n_ht + a b_t) / (n_h + a): n counts earlier windows of the host, a is the
    concentration, and b_t is the share of the token in all hosts; a token never seen has half a window. The first
    window with tokens has NaN.
    """
    keys = tokens.keys
    hosts, ids = keys >> 32, keys & LOW_BITS
    n_hosts, n_tokens = int(hosts.max(initial=-1)) + 1, int(ids.max(initial=-1)) + 1
    by_host, by_token = memory.totals(n_hosts, n_tokens)
    if len(memory.keys) == 0:
        return TokenSurprise(hosts, ids, np.full(len(keys), np.nan))
    share = np.maximum(by_token[ids], 0.5) / max(float(by_token.sum()), 1.0)
    p = (memory.times(keys) + concentration * share) / (by_host[hosts] + concentration)
    return TokenSurprise(hosts, ids, -np.log(np.clip(p, 1e-12, 1.0)))


def highest_by_host(surprise: TokenSurprise, nodes: IntArray) -> Float64Array:
    """Return the surprise of the most surprising token of each host, (k,); NaN for a host without tokens."""
    rows, place = _places(surprise, nodes)
    highest = np.full(len(nodes), np.nan)
    np.fmax.at(highest, place, surprise.surprise[rows])
    return highest


def most_surprising(surprise: TokenSurprise, nodes: IntArray) -> Int64Array:
    """Return up to five tokens of each host, (k, 5): the most surprising, and those at least half as surprising."""
    rows, place = _places(surprise, nodes)
    telling = surprise.surprise[rows] >= _TELLING * highest_by_host(surprise, nodes)[place]
    rows, place = rows[telling], place[telling]
    order = np.lexsort((-surprise.surprise[rows], place))
    rows, place = rows[order], place[order]
    rank = np.arange(len(place)) - np.searchsorted(place, place)
    named = np.full((len(nodes), _NAMED), -1, dtype=np.int64)
    first = rank < _NAMED
    named[place[first], rank[first]] = surprise.tokens[rows[first]]
    return named


def _places(surprise: TokenSurprise, nodes: IntArray) -> tuple[Int64Array, Int64Array]:
    """Return the rows of tokens whose host is among ``nodes``, which are sorted, and the place of that host."""
    place = np.searchsorted(nodes, surprise.hosts)
    inside = place < len(nodes)
    inside[inside] = nodes[place[inside]] == surprise.hosts[inside]
    rows = np.flatnonzero(inside)
    return rows, place[rows]


def with_token_columns(matrix: sp.csr_array, tokens: WindowTokens, weight: float) -> sp.csr_array:
    """Return the matrix of a window with the tokens of its sources as further columns, [A | c F]."""
    inside = (tokens.keys >> 32) < matrix.shape[0]
    hosts, ids = tokens.keys[inside] >> 32, tokens.keys[inside] & LOW_BITS
    n_tokens = int(ids.max(initial=-1)) + 1
    F = sp.csr_array((np.full(len(hosts), weight), (hosts, ids)), shape=(matrix.shape[0], n_tokens))
    return sp.csr_array(sp.hstack([matrix, F], format="csr"))
