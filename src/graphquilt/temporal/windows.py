"""Timed flows cut into windows: one sparse matrix a window, and which windows to align with which."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.errors import InputError

__all__ = ["Names", "Snapshots", "Window", "lag_edges", "seconds", "snapshots"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_COMPACT_AT = 1 << 22  # pairs gathered for one window before duplicates are taken out

_log = logging.getLogger(__name__)


class Names:
    """What the outside world calls each node; ids are given in order of first appearance.

    Examples
    --------
    >>> names = Names(["printer"])
    >>> names.add(["mail", "printer"]).tolist(), len(names), names[1]
    ([1, 0], 2, 'mail')
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._list = list(names)
        self._ids = {name: number for number, name in enumerate(self._list)}

    def add(self, names: Iterable[str]) -> Int64Array:
        """Ids of ``names``, new ones for those not met before."""
        ids, known = [], self._ids
        for name in names:
            number = known.get(name)
            if number is None:
                number = known[name] = len(self._list)
                self._list.append(name)
            ids.append(number)
        return np.array(ids, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._list)

    def __getitem__(self, number: int) -> str:
        return self._list[number]

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    def id(self, name: str) -> int:
        """Return the number of ``name``; an error where it never occurred."""
        if name not in self._ids:
            raise InputError(f"there is no node {name!r} among the {len(self)} that occurred.")
        return self._ids[name]

    def array(self) -> npt.NDArray[np.str_]:
        """All names in order of their ids, (n,)."""
        return np.array(self._list, dtype=np.str_)


@dataclass(frozen=True, eq=False)
class Window:
    """One window of a stream.

    Attributes
    ----------
    number : int
        Counted from the origin of time in steps of the width; gaps are windows without flows.
    start, end : float
        Seconds; the end is not part of the window.
    matrix : CSR array (sources so far, destinations so far)
        Entry (i, j) is 1 where i talked to j, or the sum of the weights.
    rows : int
        Flows that fell into the window.
    """

    number: int
    start: float
    end: float
    matrix: sp.csr_array
    rows: int


class _Open:
    """A window that still receives flows, as sorted runs of pair keys."""

    def __init__(self) -> None:
        self.keys: list[Int64Array] = []
        self.weights: list[Float64Array] = []
        self.rows = 0
        self._size = 0

    def take(self, keys: Int64Array, weights: Float64Array | None, rows: int) -> None:
        self.keys.append(keys)
        if weights is not None:
            self.weights.append(weights)
        self.rows += rows
        self._size += len(keys)
        if self._size > _COMPACT_AT:
            self.compact()

    def compact(self) -> None:
        keys, weights = _merge(np.concatenate(self.keys), np.concatenate(self.weights) if self.weights else None)
        self.keys, self.weights = [keys], [] if weights is None else [weights]
        self._size = len(keys)


class Snapshots:
    """An iterable of one CSR matrix a window that has flows, in order of time, made while the flows are read.

    Iterating gives the matrices; :meth:`windows` gives them with their numbers and times.

    Attributes
    ----------
    sources, destinations : Names
        Filled while reading; the same object where the snapshots are undirected. Empty where the flows come with
        integer ids, which are then used as they are.
    numbers : list of int
        Of the windows given out in the latest pass, as :func:`lag_edges` wants them.
    times : list of float
        Where those windows start, in seconds.
    empty : list of int
        Windows between the first and the last that had no flows.
    late : int
        Flows that came after their window was given out, and were left out.
    """

    def __init__(
        self, flows: Iterable[Any], width: float, *, directed: bool, weighted: bool, grace: float, origin: float
    ) -> None:
        self._flows = flows
        self.width = width
        self.directed = directed
        self.weighted = weighted
        self._grace = grace
        self._origin = origin
        self.sources = Names()
        self.destinations = Names() if directed else self.sources
        self.numbers: list[int] = []
        self.times: list[float] = []
        self.empty: list[int] = []
        self.late = 0

    def __iter__(self) -> Iterator[sp.csr_array]:
        return (window.matrix for window in self.windows())

    def windows(self) -> Iterator[Window]:
        """Give each window with its number and time; windows without flows are named in ``empty`` and left out."""
        self.numbers, self.times, self.empty, self.late = [], [], [], 0
        waiting: dict[int, _Open] = {}
        shape = [0, 0]
        now = -np.inf
        for batch in self._flows:
            time, source, destination, weight = self._columns(batch)
            if len(time) == 0:
                continue
            shape = [max(a, int(b.max()) + 1) for a, b in zip(shape, (source, destination), strict=True)]
            number = np.floor((time - self._origin) / self.width).astype(np.int64)
            if self.numbers and int(number.min()) <= self.numbers[-1]:
                late = number <= self.numbers[-1]
                self.late += int(late.sum())
                fresh = ~late
                number, source, destination = number[fresh], source[fresh], destination[fresh]
                weight = None if weight is None else weight[fresh]
            self._sort_in(waiting, number, (source, destination), weight)
            now = max(now, float(time.max()))
            for ready in sorted(w for w in waiting if self._start(w + 1) + self._grace <= now):
                yield self._close(ready, waiting.pop(ready), shape)
        for ready in sorted(waiting):
            yield self._close(ready, waiting.pop(ready), shape)
        if self.late:
            _log.warning(
                "%d flows came more than %g s after their window had ended and were left out; "
                "sort the flows by time or allow more grace",
                self.late,
                self._grace,
            )
        if self.empty:
            _log.warning("%d windows have no flows and are left out: %s", len(self.empty), _some(self.empty))

    def _start(self, number: int) -> float:
        return self._origin + number * self.width

    def _columns(self, batch: Any) -> tuple[AnyArray, AnyArray, AnyArray, Any]:
        """Time, source id, destination id and weight (or None) of a record batch or a tuple of arrays."""
        if not hasattr(batch, "column"):
            time, source, destination, *rest = (np.asarray(part) for part in batch)
            if not all(np.issubdtype(part.dtype, np.integer) for part in (source, destination)):
                raise InputError("flows given as plain arrays have integer ids; map names with Names.add first.")
            return time, source.astype(np.int64), destination.astype(np.int64), rest[0] if rest else self._ones(time)
        ids = []
        for name, table in (("source", self.sources), ("destination", self.destinations)):
            column = batch.column(name)
            ids.append(_looked_up(column, table))
        weight = batch.column("weight").to_numpy() if "weight" in batch.schema.names else None
        time = batch.column("time").to_numpy()
        return time, ids[0], ids[1], self._ones(time) if weight is None else weight

    def _ones(self, time: AnyArray) -> Float64Array | None:
        return np.ones(len(time)) if self.weighted else None

    def _sort_in(
        self,
        waiting: dict[int, _Open],
        number: Int64Array,
        ends: tuple[Int64Array, Int64Array],
        weight: Float64Array | None,
    ) -> None:
        """Put each flow into its window as one 64-bit key."""
        source, destination = ends
        if len(number) == 0:
            return
        low, high = int(number.min()), int(number.max())
        for w in [low] if low == high else np.unique(number).tolist():
            mine = slice(None) if low == high else number == w
            keys = (source[mine] << 32) | destination[mine]
            part = None if weight is None or not self.weighted else weight[mine]
            rows = len(keys)
            if not self.directed:
                turned = (destination[mine] << 32) | source[mine]
                loop = turned == keys
                keys = np.concatenate([keys, turned[~loop]])
                part = None if part is None else np.concatenate([part, part[~loop]])
            waiting.setdefault(w, _Open()).take(*_merge(keys, part), rows)

    def _close(self, number: int, window: _Open, shape: Sequence[int]) -> Window:
        window.compact()
        keys = window.keys[0]
        n_rows, n_columns = shape if self.directed else [max(shape)] * 2
        indptr = np.zeros(n_rows + 1, dtype=np.int64)
        np.cumsum(np.bincount(keys >> 32, minlength=n_rows), out=indptr[1:])
        data = window.weights[0] if window.weights else np.ones(len(keys))
        indices = (keys & 0xFFFFFFFF).astype(np.int32)
        small = indptr.astype(np.int32) if len(keys) < 2**31 else indptr
        matrix = sp.csr_array((data, indices, small), shape=(n_rows, n_columns))
        if self.numbers:
            self.empty += range(self.numbers[-1] + 1, number)
        self.numbers.append(number)
        self.times.append(self._start(number))
        return Window(number, self._start(number), self._start(number + 1), matrix, window.rows)


def snapshots(
    flows: Iterable[Any],
    width: str | float = "1d",
    *,
    directed: bool = True,
    weighted: bool = False,
    grace: str | float | None = None,
    origin: float = 0.0,
) -> Snapshots:
    """Cut flows into windows and give one sparse matrix for each, lazily.

    Only the windows that may still receive flows are in memory, each as its distinct pairs.

    Parameters
    ----------
    flows : iterable
        What :func:`graphquilt.temporal.read_flows` returns, or tuples ``(time, source, destination[, weight])`` of
        arrays with integer ids. Nearly in order of time.
    width : str or float
        ``"1d"``, ``"12h"``, ``"30m"`` … or seconds.
    directed : bool
        True: rows are sources and columns destinations, each with ids of its own. False: one set of ids and a
        symmetric matrix.
    weighted : bool
        Sum the weights (1 a flow where there are none) instead of noting that a pair occurred.
    grace : str or float, optional
        How long after its end a window waits for stragglers before it is given out; a twenty-fourth of the width.
    origin : float
        Where window 0 starts, in seconds.

    Examples
    --------
    >>> import numpy as np
    >>> day = 86400
    >>> flows = [(np.array([5, 7, day + 1, 3 * day]), np.array([0, 0, 1, 1]), np.array([2, 2, 0, 1]))]
    >>> days = snapshots(flows, width="1d")
    >>> [(A.shape, A.nnz) for A in days], days.numbers, days.empty
    ([((2, 3), 1), ((2, 3), 1), ((2, 3), 1)], [0, 1, 3], [2])
    """
    span = seconds(width)
    if not span > 0:
        raise InputError(f"the width of a window must be positive, not {width!r}.")
    wait = span / 24 if grace is None else seconds(grace)
    return Snapshots(flows, span, directed=directed, weighted=weighted, grace=wait, origin=origin)


def lag_edges(times: int | npt.ArrayLike, lags: int | Sequence[int]) -> Int64Array:
    """Pairs of windows whose numbers differ by one of ``lags`` (the patch graph of the paper's section on anomalies).

    Parameters
    ----------
    times : int or increasing ints (p,)
        Window numbers; an int n means 0..n-1.
    lags : int or sequence of int
        Positive differences; those longer than the data join nothing, which is said in the log.

    Returns
    -------
    int array (m, 2)
        Positions (i, j) in ``times``, i < j, sorted.

    Examples
    --------
    >>> lag_edges(4, (1, 3)).tolist()
    [[0, 1], [0, 3], [1, 2], [2, 3]]
    >>> lag_edges([10, 11, 14], (1, 3, 4)).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    numbers = np.arange(times) if isinstance(times, int | np.integer) else np.asarray(times)
    steps = np.unique(np.atleast_1d(np.asarray(lags)))
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError("windows are numbered by integers: pass the numbers, not times in seconds.")
    if len(numbers) > 1 and bool(np.any(np.diff(numbers) <= 0)):
        raise InputError("the window numbers must increase; sort the windows and keep each once.")
    if len(steps) == 0 or not np.issubdtype(steps.dtype, np.integer) or int(steps[0]) < 1:
        raise InputError(f"lags are positive whole numbers of windows, not {lags!r}.")
    span = int(numbers[-1] - numbers[0]) if len(numbers) else 0
    pairs = []
    for step in steps:
        later = np.searchsorted(numbers, numbers + step)
        hit = np.flatnonzero((later < len(numbers)) & (numbers[np.minimum(later, len(numbers) - 1)] == numbers + step))
        pairs.append(np.column_stack([hit, later[hit]]))
    edges = np.concatenate(pairs).astype(np.int64)
    too_long = steps[steps > span].tolist()
    if len(edges) == 0 and len(numbers) > 1:
        raise InputError(
            f"no two of the {len(numbers)} windows (numbers {numbers[0]} to {numbers[-1]}) are {_some(steps.tolist())} "
            "apart: give shorter lags."
        )
    if too_long and len(numbers) > 1:
        _log.warning("the windows span %d, so the lags %s join nothing", span, _some(too_long))
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))]


def seconds(duration: str | float) -> float:
    """Read ``"1d"``, ``"90m"``, ``"1.5h"`` or plain seconds.

    Examples
    --------
    >>> seconds("1.5h"), seconds(30)
    (5400.0, 30.0)
    """
    if not isinstance(duration, str):
        return float(duration)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw]?)\s*", duration)
    if match is None:
        raise InputError(f"{duration!r} is no duration: give a number and s, m, h, d or w, such as 1d or 30m.")
    return float(match[1]) * _UNITS.get(match[2], 1.0)


def _looked_up(column: Any, table: Names) -> Int64Array:
    """Ids of a dictionary column; each distinct name is looked up once."""
    codes = np.asarray(column.indices.to_numpy(zero_copy_only=False)).astype(np.int64)
    words = column.dictionary
    if len(words) > len(codes):
        used, codes = np.unique(codes, return_inverse=True)
        words = words.take(used)
    elif len(codes):
        # A filtered batch keeps the whole dictionary: names that no row bears must get no id.
        used_mask = np.zeros(len(words), dtype=bool)
        used_mask[codes] = True
        if not used_mask.all():
            position = np.cumsum(used_mask) - 1
            codes = position[codes]
            words = words.take(np.flatnonzero(used_mask))
    ids = table.add(words.to_pylist())
    return ids[codes] if len(codes) else np.zeros(0, dtype=np.int64)


def _merge(keys: Int64Array, weights: Float64Array | None) -> tuple[Int64Array, Float64Array | None]:
    """Sort keys, keep each once, and sum the weights of equal ones."""
    if weights is None:
        keys = np.sort(keys)  # and not np.unique, whose hash table is ten times slower than this on many distinct keys
        first = np.ones(len(keys), dtype=bool)
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        return keys[first], None
    unique, inverse = np.unique(keys, return_inverse=True)
    return unique, np.bincount(inverse, weights=weights, minlength=len(unique)).astype(np.float64)


def _some(values: Sequence[int], limit: int = 8) -> str:
    return ", ".join(map(str, values[:limit])) + (" …" if len(values) > limit else "")
