"""What a tracker remembers of hosts, pairs and earlier windows, and the checked file that stores it."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from graphquilt.arrays import AnyArray, BoolArray, Float32Array, Float64Array, Int64Array, IntArray
from graphquilt.errors import FormatError
from graphquilt.files import load_arrays, sync_folder, temporary_sibling, translate_disk_errors, write_arrays
from graphquilt.temporal.contexts import CONTEXTS, move_centres
from graphquilt.temporal.open_window import LOW_BITS
from graphquilt.temporal.results import MEASURED
from graphquilt.temporal.windows import SIDES

_FARTHEST = 3.0  # a value is learnt as at most this many standard deviations from what was expected
_FEWEST = 4  # rows of each kind that every window may give to a pool
_NOTHING = np.zeros(0, dtype=np.float32)
_DIGEST = hashlib.sha256().digest_size
_BLOCK = 1 << 20


@dataclass(frozen=True, eq=False)
class PairMemory:
    """Pairs of earlier windows: sorted keys (m,) of source and destination, how many windows had each, and the last.

    A pair absent from the last ``history`` windows is forgotten, no count exceeds ``history``, and of more than
    ``limit`` pairs the least recent are forgotten.
    """

    history: int
    limit: int
    keys: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    counts: Float32Array = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    last: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def _places(self, keys: Int64Array) -> tuple[Int64Array, BoolArray]:
        """Return where sorted keys stand or would stand, and which of them are known."""
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

    def learn(self, keys: Int64Array, number: int) -> PairMemory:
        """Return the memory with the sorted, distinct keys of window ``number``, without what exceeds the bounds."""
        place, known = self._places(keys)
        old, last = place[known], self.last.copy()
        last[old] = np.maximum(last[old], number)
        oldest = int(last.max(initial=number)) - self.history
        stays, new = last > oldest, keys[~known & (number > oldest)]
        where = np.searchsorted(self.keys[stays], new)
        last = np.insert(last[stays], where, number)  # one array after the other: they are large
        counts = self.counts.copy()
        counts[old] = np.minimum(counts[old] + 1, self.history)
        counts = np.insert(counts[stays], where, 1)
        all_keys = np.insert(self.keys[stays], where, new)
        if len(last) > self.limit:
            latest = np.sort(np.argpartition(last, -self.limit)[-self.limit :])
            all_keys, counts, last = all_keys[latest], counts[latest], last[latest]
        return replace(self, keys=all_keys, counts=counts, last=last)

    def forget(self, *unknown: BoolArray) -> PairMemory:
        """Return the memory without the pairs of unknown sources, (sources,), and destinations, (destinations,)."""
        keep = ~(unknown[0][self.keys >> 32] | unknown[1][self.keys & LOW_BITS])
        return replace(self, keys=self.keys[keep], counts=self.counts[keep], last=self.last[keep])

    def totals(self, n_sources: int, n_destinations: int) -> tuple[Float64Array, Float64Array]:
        """Return the sum of the counts by source and by destination."""
        counts = self.counts.astype(np.float64)
        source = np.bincount(self.keys >> 32, weights=counts, minlength=n_sources)
        destination = np.bincount(self.keys & LOW_BITS, weights=counts, minlength=n_destinations)
        return source.astype(np.float64), destination.astype(np.float64)

    def partners(self, node: int, side: str) -> tuple[Int64Array, Float64Array]:
        """Return the partners of a node of one side, and in how many windows each pair was."""
        if side == "source":
            rows = slice(*np.searchsorted(self.keys, [node << 32, (node + 1) << 32]))
            return self.keys[rows] & LOW_BITS, self.counts[rows].astype(np.float64)
        at = np.flatnonzero((self.keys & LOW_BITS) == node)
        return self.keys[at] >> 32, self.counts[at].astype(np.float64)


@dataclass(frozen=True, eq=False)
class SideMemory:
    """One row per host of a side; :meth:`learn` and :meth:`learn_positions` change the arrays in place.

    ``first`` and ``last`` (n,) are windows, or -1. ``number``, ``mean`` and ``variance`` (n, measured) describe the
    values of each component; beyond ``history`` values, older ones fade. ``profiles`` (n, dim) are means of ``places``
    (n,) positions times the roots of the singular values, in one frame for both sides. ``mixtures`` (n, contexts) are
    mean shares of the partners in each context, of ``mixed`` (n,) windows. ``centres`` (contexts, dim) are those of
    this side.
    """

    first: IntArray
    last: IntArray
    number: Float32Array
    mean: Float32Array
    variance: Float32Array
    places: Float32Array
    profiles: Float32Array
    mixed: Float32Array
    mixtures: Float32Array
    centres: Float32Array

    @classmethod
    def empty(cls, dim: int) -> SideMemory:
        """Return a memory without hosts."""
        table, position = np.zeros((0, len(MEASURED)), np.float32), np.zeros((0, dim), np.float32)
        never, count = np.zeros(0, np.int64), np.zeros(0, np.float32)
        mixture, centres = np.zeros((0, CONTEXTS), np.float32), np.zeros((CONTEXTS, dim), np.float32)
        return cls(never, never, table, table, table, count, position, count, mixture, centres)

    def __len__(self) -> int:
        return len(self.last)

    def grow(self, size: int) -> SideMemory:
        """Return the memory with rows for at least ``size`` hosts."""
        if size <= len(self):
            return self
        capacity = max(size, len(self) * 5 // 4)  # a few new hosts in each window must not copy everything each time
        arrays = {}
        for item in fields(self):
            old: AnyArray = getattr(self, item.name)
            if item.name == "centres":
                continue
            arrays[item.name] = np.zeros((capacity, *old.shape[1:]), dtype=old.dtype)
            arrays[item.name][: len(old)] = old
            if item.name in ("first", "last"):
                arrays[item.name][len(old) :] = -1
        return replace(self, **arrays)

    def forget(self, before: int, before_once: int) -> BoolArray:
        """Forget hosts last seen before a window, or before another one if only once; return who is unknown, (n,)."""
        is_old = self.last < np.where(self.first == self.last, before_once, before)
        rows = np.flatnonzero(is_old & (self.last >= 0))
        for item in fields(self):
            if item.name != "centres":
                getattr(self, item.name)[rows] = -1 if item.name in ("first", "last") else 0
        return np.asarray(self.last < 0)

    def learn(self, nodes: IntArray, values: AnyArray, expected: tuple[AnyArray, AnyArray], history: int) -> None:
        """Learn the values (k, measured) of hosts, except NaN; ``expected`` is the centre and spread of each."""
        centre, spread = expected
        # An attack must not become usual in one window.
        values = np.clip(values, centre - _FARTHEST * spread, centre + _FARTHEST * spread)
        known = ~np.isnan(values)
        number, mean, variance = self.number[nodes], self.mean[nodes], self.variance[nodes]
        number = np.minimum(number + known, history)
        rate = known / np.maximum(number, 1)
        step = np.where(known, values - mean, 0.0)
        self.number[nodes] = number
        self.mean[nodes] = mean + rate * step
        self.variance[nodes] = (1 - rate) * (variance + rate * step**2)

    def learn_profiles(self, nodes: IntArray, profiles: AnyArray, history: int) -> None:
        """Add the profiles of hosts, (k, dim), to their means."""
        number = np.minimum(self.places[nodes] + 1, history)
        self.places[nodes] = number
        self.profiles[nodes] += (profiles - self.profiles[nodes]) / number[:, None]

    def learn_mixtures(self, nodes: IntArray, counts: AnyArray, history: int) -> None:
        """Add the shares of partners in contexts, given as counts (k, contexts), to their means."""
        some = np.flatnonzero(counts.sum(axis=1))
        nodes, counts = nodes[some], counts[some]
        number = np.minimum(self.mixed[nodes] + 1, history)
        self.mixed[nodes] = number
        shares = counts / counts.sum(axis=1, keepdims=True)
        self.mixtures[nodes] += (shares - self.mixtures[nodes]) / number[:, None]

    def move_centres(self, seed: tuple[int, ...]) -> None:
        """Move the contexts on to where the hosts lie now."""
        self.centres[:] = move_centres(self.centres, self.profiles[self.places > 0], seed)


class Pool:
    """Values of earlier windows, to compare a window with.

    A window gives at most ``cap`` rows, and of known hosts and of strangers at most twice the median of the windows
    before: one flood does not fill the pool. A window is compared with the pool and itself, by the same rule: after a
    short history mostly with itself. Rows are kept of the later half of ``history`` windows, because
    earlier ones had less to be compared with. ``sizes`` are the numbers of known hosts and strangers of each window.
    """

    def __init__(self, cap: int, history: int, width: int) -> None:
        self.cap, self.width = cap, width
        self.samples: deque[Float32Array] = deque(maxlen=history)
        self.sizes: deque[tuple[int, int]] = deque(maxlen=history)

    def choose(self, are_strangers: BoolArray, seed: Iterable[int]) -> Int64Array:
        """Return which rows of a window are remembered; this depends only on the seed and the numbers of rows."""
        groups = np.flatnonzero(~are_strangers), np.flatnonzero(are_strangers)
        rng = np.random.default_rng(list(seed))
        usual = np.median(np.array(self.sizes), axis=0) if self.sizes else np.full(2, np.inf)
        chosen = []
        for group, count in zip(groups, usual, strict=True):
            share = self.cap * len(group) / max(len(are_strangers), 1)
            limit = int(min(np.ceil(share), max(2 * count, _FEWEST)))
            chosen.append(group if len(group) <= limit else rng.choice(group, limit, replace=False))
        return np.sort(np.concatenate(chosen))

    def add(self, rows: AnyArray, are_strangers: BoolArray) -> None:
        """Remember the chosen rows of one window, whose hosts were strangers or not."""
        n_strangers = int(are_strangers.sum())
        self.sizes.append((len(are_strangers) - n_strangers, n_strangers))
        self.samples.append(np.asarray(rows, dtype=np.float32))
        while len(self.samples) > self.capacity(len(self.sizes)):
            self.samples.popleft()

    @staticmethod
    def capacity(n_windows: int) -> int:
        """Return of how many windows rows are kept, if the sizes of ``n_windows`` are known."""
        return max(2, (n_windows + 1) // 2)

    def column(self, number: int, current: AnyArray = _NOTHING, *, plus: tuple[float, int] = (0.0, 0)) -> Float32Array:
        """Return the values of one column of earlier windows, and those of the current one, sorted and without NaN.

        ``plus`` is a factor and a column to add that many times.
        """
        factor, other = plus
        parts = [
            sample[:, number] + factor * sample[:, other] if factor else sample[:, number] for sample in self.samples
        ]
        column = np.concatenate([*parts, np.asarray(current, dtype=np.float32)])
        return np.sort(column[~np.isnan(column)])

    def moments(self, current: AnyArray) -> tuple[Float64Array, Float64Array]:
        """Return mean and variance of the first columns, with rows of the current window; 0 and 1 without values."""
        size = current.shape[1]
        stacked = np.concatenate([*(sample[:, :size] for sample in self.samples), current]).astype(np.float64)
        known = ~np.isnan(stacked)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, stacked, 0.0).sum(axis=0) / count
        variance = np.where(known, (stacked - mean) ** 2, 0.0).sum(axis=0) / count
        return mean, np.where(known.any(axis=0), variance, 1.0)


@dataclass
class Memory:
    """The state of a tracker: windows learnt, hosts of each side, pairs, tokens by host, and pools by name."""

    numbers: list[int]
    sides: dict[str, SideMemory]
    pairs: PairMemory
    tokens: PairMemory
    pools: dict[str, Pool]

    def arrays(self) -> dict[str, AnyArray]:
        """Return all arrays by the names that :meth:`fill` expects."""
        arrays: dict[str, AnyArray] = {}
        for side, part in self.sides.items():
            arrays |= {f"{side}.{item.name}": getattr(part, item.name) for item in fields(part)}
        for name, pairs in (("pairs", self.pairs), ("tokens", self.tokens)):
            arrays |= {f"{name}.{item}": getattr(pairs, item) for item in ("keys", "counts", "last")}
        for name, pool in self.pools.items():
            arrays |= {f"pool.{name}.{k:05d}": sample for k, sample in enumerate(pool.samples)}
            arrays[f"pool.{name}.sizes"] = np.array(list(pool.sizes), dtype=np.int64).reshape(-1, 2)
        return arrays

    def fill(self, numbers: list[int], arrays: Mapping[str, AnyArray]) -> None:
        """Take over the arrays of a file; raise a ValueError or LookupError if they do not fit each other."""
        if not isinstance(numbers, list) or sorted(set(numbers)) != numbers or any(type(n) is not int for n in numbers):
            raise ValueError("its window numbers are not integers in ascending order")
        self.numbers = numbers
        for side in SIDES:
            self.sides[side] = _check_side(arrays, side, self.sides[side])
        self.pairs = _check_pairs(self.pairs, arrays, "pairs", [len(self.sides[side]) for side in SIDES])
        self.tokens = _check_pairs(self.tokens, arrays, "tokens", (2**31, 2**31))
        for name, pool in self.pools.items():
            _fill_pool(pool, arrays, name)


def _check_side(arrays: Mapping[str, AnyArray], side: str, empty: SideMemory) -> SideMemory:
    n = len(arrays[f"{side}.last"])
    columns = {}
    for item in fields(empty):
        array, expected = arrays[f"{side}.{item.name}"], getattr(empty, item.name)
        shape = expected.shape if item.name == "centres" else (n, *expected.shape[1:])
        if array.dtype != expected.dtype or array.shape != shape:
            raise ValueError(
                f"the array {side}.{item.name} is {array.dtype} {array.shape}, which does not fit {n} hosts"
            )
        if not bool(np.isfinite(array).all()):
            raise ValueError(f"the array {side}.{item.name} has values that are not finite")
        columns[item.name] = np.array(array)
    if any(bool((columns[name] < 0).any()) for name in ("number", "variance", "places", "mixed", "mixtures")):
        raise ValueError(f"a count or a variance of a {side} is negative")
    return SideMemory(**columns)


def _check_pairs(empty: PairMemory, arrays: Mapping[str, AnyArray], prefix: str, shape: Sequence[int]) -> PairMemory:
    keys, counts, last = (np.array(arrays[f"{prefix}.{name}"]) for name in ("keys", "counts", "last"))
    if keys.dtype != np.int64 or counts.dtype != np.float32 or last.dtype != np.int64 or keys.ndim != 1:
        raise ValueError(f"the {prefix} are not integer arrays")
    if not keys.shape == counts.shape == last.shape or bool(np.any(np.diff(keys) <= 0)):
        raise ValueError(f"the {prefix} are out of order, or their lengths differ")
    inside = len(keys) == 0 or (
        int(keys[0]) >= 0 and int(keys[-1] >> 32) < shape[0] and int((keys & LOW_BITS).max()) < shape[1]
    )
    if not inside or not bool(np.all((counts >= 1) & (counts <= empty.history))):
        raise ValueError(f"an entry of the {prefix} has an unknown host or an impossible count")
    return replace(empty, keys=keys, counts=counts, last=last)


def _fill_pool(pool: Pool, arrays: Mapping[str, AnyArray], name: str) -> None:
    sizes = arrays[f"pool.{name}.sizes"]
    if sizes.dtype != np.int64 or sizes.ndim != 2 or sizes.shape[1] != 2 or bool((sizes < 0).any()):
        raise ValueError("the sizes of its windows are not pairs of integers")
    if pool.sizes.maxlen is None or len(sizes) > pool.sizes.maxlen:
        raise ValueError("it has more windows than its history allows")
    pool.sizes.extend((row[0], row[1]) for row in sizes.tolist())
    for k in range(min(len(sizes), pool.capacity(len(sizes)))):
        sample = arrays[f"pool.{name}.{k:05d}"]
        fits = sample.dtype == np.float32 and sample.ndim == 2 and sample.shape[1] == pool.width
        if not fits or bool(np.isinf(sample).any()):
            raise ValueError(f"the {name} pool does not have {pool.width} numbers in each row")
        pool.samples.append(np.array(sample))


def write_state(path: Path, arrays: Mapping[str, AnyArray]) -> None:
    """Write two or more arrays as .npz; when this returns, the file and its name are on the disk."""
    with translate_disk_errors(path.parent):
        with temporary_sibling(path) as part:
            with open(part, "w+b") as file:
                write_arrays(file, arrays)
                with zipfile.ZipFile(file, "a") as archive:
                    archive.comment = bytes(_DIGEST)
                size = file.seek(0, os.SEEK_END) - _DIGEST
                digest = _digest(file, size)
                file.seek(size)
                file.write(digest)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        sync_folder(path.parent)


def read_state(path: Path) -> dict[str, AnyArray]:
    """Read all arrays that :func:`write_state` wrote; raise a FormatError if a single byte differs."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            is_whole = size > _DIGEST and _digest(file, size - _DIGEST) == file.read()
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}.") from None
    if not is_whole:
        raise FormatError(
            f"{path} ({size} bytes) does not hold a whole state: its checksum does not match. It was truncated or "
            "changed, or another program wrote it. Restore the file from a copy, or begin with a new one."
        )
    return load_arrays(path)


def _digest(file: BinaryIO, size: int) -> bytes:
    """Return the SHA-256 of the first ``size`` bytes of a file, and leave the file there."""
    file.seek(0)
    digest = hashlib.sha256()
    while size > 0 and (block := file.read(min(_BLOCK, size))):
        digest.update(block)
        size -= len(block)
    return digest.digest()
