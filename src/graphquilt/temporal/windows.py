"""Cut timed flows into windows: one sparse matrix per window, and the pairs of windows to align."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array, Int64Array, refuse_masked
from graphquilt.errors import InputError
from graphquilt.temporal.logs.columns import place_of
from graphquilt.temporal.names import Names
from graphquilt.temporal.open_window import BINS, LOW_BITS, FlowArrays, OpenWindow
from graphquilt.times import parse_duration

SIDES = ("source", "destination")  # the rows and the columns of a window's matrix

_MAX_GAP = 10_000  # windows without flows in a row; a longer gap is taken for a wrong time

FlowBatch: TypeAlias = pa.RecordBatch | Sequence[AnyArray]

_LARGEST_NUMBER = 2.0**53  # of a window; beyond it neighbouring windows have the same number in double precision
_LARGEST_ID = 2**31 - 1  # two ids make one key of 64 bits

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WindowOptions:
    """How flows are cut into windows; :func:`snapshots` has the same options."""

    width: str = "1d"
    """Length of a window: 1d, 12h, 30m …"""
    overlap: int = 1
    """Overlapping windows: start a new window every width/N."""
    grace: str | None = None
    """How long a window waits for late flows: 2h, 1d … [default: a 24th of the width]"""
    max_gap: int = _MAX_GAP
    """The largest number of consecutive windows without flows; a flow beyond a longer gap is an error."""

    def settings(self, protocol: int | str | None, user: str | None = None) -> dict[str, object]:
        """Return how windows are cut, as the ids of alerts depend on it; an overlap of 1 and no user are not named."""
        settings: dict[str, object] = {"width_in_seconds": parse_duration(self.width), "protocol": protocol}
        settings |= {} if user is None else {"user": user}
        return settings | {"overlap": self.overlap} if self.overlap > 1 else settings


@dataclass(frozen=True, eq=False)
class Window:
    """One window of a stream, from ``start`` up to ``end``, in seconds.

    Windows are numbered from the origin of time in steps of the width, including those without flows. Entry (i, j) of
    the matrix (sources so far, destinations so far) is 1 if i talked to j. ``rows`` is the number of flows; ``counts``
    and ``ports`` have the number of flows of each entry, in the order of ``matrix.data``, and the destination port of
    most of them, or -1. ``peaks`` have the number of flows of each node of a side in the busiest of the 1440 parts of
    the window: minutes, if it is a day. ``as_source`` is the id of each destination of the window as a source, or -1.
    """

    number: int
    start: float
    end: float
    matrix: sp.csr_array
    rows: int
    counts: Float64Array | None = None
    peaks: Mapping[str, Int64Array] | None = None
    ports: Int64Array | None = None
    as_source: Int64Array | None = None


@dataclass(eq=False)
class Snapshots:
    """An iterable of one CSR matrix per window that has flows, in order of time, made while the flows are read.

    Iterating gives the matrices; :meth:`windows` gives them with their numbers and times. The options are those of
    :func:`snapshots`, with times in seconds. ``sources`` and ``destinations`` are the names met so far. Of the latest
    pass, ``numbers`` and ``times`` are the numbers and starts of its windows, ``empty`` counts the gaps between them,
    and ``late`` the flows that came after their window was complete and were left out. ``span`` has the first and last
    time. Flows of windows up to ``after`` are skipped, because an earlier run has finished them.
    """

    flows: Iterable[FlowBatch]
    width: float
    grace: float
    origin: float
    max_gap: int
    overlap: int = 1
    sources: Names = field(init=False, default_factory=Names)
    destinations: Names = field(init=False, default_factory=Names)
    numbers: list[int] = field(init=False, default_factory=list)
    times: list[float] = field(init=False, default_factory=list)
    empty: int = field(init=False, default=0)
    late: int = field(init=False, default=0)
    after: int | None = field(init=False, default=None)
    span: tuple[float, float] = field(init=False, default=(math.inf, -math.inf))
    _waiting: dict[int, OpenWindow] = field(init=False, default_factory=dict)

    @property
    def names(self) -> dict[str, Names]:
        """The names of the nodes by side."""
        return dict(zip(SIDES, (self.sources, self.destinations), strict=True))

    def __iter__(self) -> Iterator[sp.csr_array]:
        return (window.matrix for window in self.windows())

    def windows(self) -> Iterator[Window]:
        """Give each window with its number and time; windows without flows are counted in ``empty`` instead."""
        self.numbers, self.times, self.empty, self.late = [], [], 0, 0
        waiting: dict[int, OpenWindow] = {}
        self._waiting = waiting
        shape = [0, 0]
        now, begun = -np.inf, None
        n_read = 0
        for batch in self.flows:
            flows = self._arrays(batch)
            time, ends = flows.time, (flows.pairs >> 32, flows.pairs & LOW_BITS)
            if len(time) == 0:
                continue
            self.span = min(self.span[0], float(time.min())), max(self.span[1], float(time.max()))
            place = _places(batch, n_read)
            n_read += len(time)
            number = self._numbers(time, place)
            shape = [max(size, int(ids.max()) + 1) for size, ids in zip(shape, ends, strict=True)]
            complete = self.numbers[-1:] or ([] if self.after is None else [self.after])
            if complete and int(number.min()) - self.overlap < complete[0]:
                on_time = np.flatnonzero(number > complete[0])
                if self.numbers:
                    self._count_late(time, number, place)
                place = _places(batch, n_read - len(time), on_time)
                flows, number = flows.take(on_time), number[on_time]
                if len(number) == 0:
                    continue
            self._check_gap(flows.time, number, [*waiting, *complete], place)
            now = max(now, float(flows.time.max()))
            begun = int(number.min()) if begun is None else begun
            earliest = complete[0] + 1 if complete else begun
            for back in range(self.overlap):
                rows = np.flatnonzero(number - back >= earliest) if back else slice(None)
                self._collect(waiting, flows.take(rows), number[rows] - back, now)
            for ready in sorted(w for w in waiting if self._end(w) + self.grace <= now):
                yield self._close(ready, waiting.pop(ready), shape)
        for ready in sorted(waiting):
            yield self._close(ready, waiting.pop(ready), shape)
        if self.late:
            message = "%d flows came more than %g s after their window had ended and were left out; "
            _log.warning(message + "sort the flows by time or allow more grace", self.late, self.grace)
        if self.empty:
            _log.warning("%d windows have no flows and are left out", self.empty)

    def waiting_nodes(self, side: str) -> Int64Array:
        """Return the nodes of one side in windows that may still receive flows."""
        pairs = [window.pairs() for window in self._waiting.values()]
        keys = np.concatenate([np.zeros(0, dtype=np.int64), *pairs])
        return np.unique(keys >> 32 if side == SIDES[0] else keys & LOW_BITS)

    @property
    def step(self) -> float:
        """Seconds between the starts of two windows."""
        return self.width / self.overlap

    def _start(self, number: int) -> float:
        return self.origin + number * self.step

    def _end(self, number: int) -> float:
        return self._start(number + self.overlap)

    def _numbers(self, time: AnyArray, place: Callable[[int], str]) -> Int64Array:
        """Return the latest window of each time."""
        with np.errstate(over="ignore", invalid="ignore"):
            position = np.floor((time - self.origin) / self.step)
        impossible = ~(np.abs(position) < _LARGEST_NUMBER)
        if impossible.any():
            row = int(np.argmax(impossible))
            raise InputError(
                f"{place(row)}: the time {time[row]:.15g} has no window of {self.width:g} s: it is not finite, or too "
                "large. Correct or remove this row, check that times are in seconds, or use wider windows."
            )
        return np.asarray(position, dtype=np.int64)

    def _count_late(self, time: AnyArray, number: Int64Array, place: Callable[[int], str]) -> None:
        """Count flows whose window is complete; the first of them is reported at once, because a stream may not end."""
        is_late = (number <= self.numbers[-1]) & (self.after is None or number > self.after)
        if not self.late and is_late.any():
            row = int(np.argmax(is_late))
            message = "%s: the time %.15g lies in window %d, and window %d is already complete; such flows are left out"
            _log.warning(message, place(row), time[row], number[row], self.numbers[-1])
        self.late += int(is_late.sum())

    def _check_gap(self, time: AnyArray, number: Int64Array, known: list[int], place: Callable[[int], str]) -> None:
        """Raise an error if more than ``max_gap`` windows lie between a flow and the others and ``known`` windows."""
        if max([int(number.max()), *known]) - min([int(number.min()), *known]) <= self.max_gap:
            return
        present = np.unique(np.concatenate([number, np.array(known, dtype=np.int64)]))
        ends = present[:-1][np.diff(present) > self.max_gap + 1]  # each is the last window before a gap
        home = int(np.searchsorted(ends, max(known, default=int(number[0]))))
        group = np.searchsorted(ends, number)
        if np.all(group == home):
            return
        row = int(np.argmax(group != home))
        others = present[np.searchsorted(ends, present) == home]
        is_after = bool(number[row] > others[-1])
        nearest = int(others[-1] if is_after else others[0])
        raise InputError(
            f"{place(row)}: the time {time[row]:.15g} is {abs(int(number[row]) - nearest)} windows of {self.width:g} s "
            f"{'after' if is_after else 'before'} the nearest other flow, whose window starts at "
            f"{self._start(nearest):.15g} s. More than {self.max_gap} windows without flows indicate a wrong time: "
            "correct or remove this row, check that times are in seconds, use wider windows, or raise max_gap "
            "(--max-gap)."
        )

    def _arrays(self, batch: FlowBatch) -> FlowArrays:
        """Return the flows of a batch."""
        port: Int64Array | None = None
        if isinstance(batch, Sequence):
            time, source, destination = _check_arrays(batch)
        else:
            time = batch.column("time").to_numpy()
            source, destination = (names.add_column(batch.column(side)) for side, names in self.names.items())
            port = batch.column("port").to_numpy().astype(np.int64) if "port" in batch.schema.names else None
        return FlowArrays(time, (source << 32) | destination, port)

    def _collect(self, waiting: dict[int, OpenWindow], flows: FlowArrays, number: Int64Array, now: float) -> None:
        """Add flows to the windows of these numbers."""
        if len(number) == 0:
            return
        if np.all(number == number[0]):
            groups: Iterable[tuple[int, Int64Array | slice]] = [(int(number[0]), slice(None))]
        else:
            order = np.argsort(number, kind="stable")
            present, starts = np.unique(number[order], return_index=True)
            groups = zip(present.tolist(), np.split(order, starts[1:]), strict=True)
        for w, selection in groups:
            part, start, length = flows.take(selection), self._start(w), self.width / BINS
            bins = np.clip((part.time - start) / length, 0, BINS - 1).astype(np.int64)
            closed_before = max(0, int(min(now - self.grace - start, self.width) / length))
            waiting.setdefault(w, OpenWindow()).add(part, bins, closed_before=closed_before)

    def _close(self, number: int, window: OpenWindow, shape: Sequence[int]) -> Window:
        matrix, counts, peaks, ports = window.close((shape[0], shape[1]))
        if self.numbers:
            self.empty += number - self.numbers[-1] - 1
        self.numbers.append(number)
        self.times.append(self._start(number))
        by_side = dict(zip(SIDES, peaks, strict=True))
        as_source = None
        if len(self.destinations):
            present = np.unique(matrix.indices)
            as_source = np.full(shape[1], -1)
            as_source[present] = [self.sources.find(self.destinations[node]) for node in present.tolist()]
        return Window(
            number, self._start(number), self._end(number), matrix, window.rows, counts, by_side, ports, as_source
        )


def snapshots(
    flows: Iterable[FlowBatch],
    width: str | float = "1d",
    *,
    grace: str | float | None = None,
    origin: float = 0.0,
    max_gap: int = _MAX_GAP,
    overlap: int = 1,
) -> Snapshots:
    """Cut flows into windows and give one sparse matrix for each, lazily.

    Only the windows that may still receive flows are in memory, each as its distinct pairs.

    Parameters
    ----------
    flows : iterable
        The result of :func:`graphquilt.temporal.read_flows`, or tuples ``(time, source, destination)`` of arrays
        with integer ids. Nearly in order of time.
    width : str or float
        ``"1d"``, ``"12h"``, ``"30m"`` … or seconds.
    grace : str or float, optional
        How long after its end a window waits for late flows; by default a twenty-fourth of the width.
    origin : float
        The start of window 0, in seconds.
    max_gap : int
        The largest number of consecutive windows without flows. A flow beyond a longer gap is an error that names its
        row: one wrong time in a stream would make every flow after it late.
    overlap : int
        Every flow lies in this many windows: a new one starts every ``width / overlap``, from the first flow on.

    Examples
    --------
    >>> day = 86400
    >>> flows = [(np.array([5, 7, day + 1, 3 * day]), np.array([0, 0, 1, 1]), np.array([2, 2, 0, 1]))]
    >>> windows = snapshots(flows, width="1d")
    >>> [(A.shape, A.nnz) for A in windows], windows.numbers, windows.empty
    ([((2, 3), 1), ((2, 3), 1), ((2, 3), 1)], [0, 1, 3], 1)
    """
    span = parse_duration(width)
    if not 0 < span < math.inf:
        raise InputError(f"the width of a window must be positive and finite, not {width!r}.")
    wait = span / 24 if grace is None else parse_duration(grace)
    if not wait >= 0:
        raise InputError(f"a window cannot wait for {grace!r}: grace is 0 or more.")
    if not math.isfinite(origin):
        raise InputError(f"the origin of time must be finite, not {origin!r}.")
    if max_gap < 0:
        raise InputError(f"max_gap is a number of windows, 0 or more, not {max_gap!r}.")
    if overlap < 1:
        raise InputError(f"every flow lies in at least one window: overlap is 1 or more, not {overlap!r}.")
    return Snapshots(flows, span, wait, origin, max_gap, overlap)


def _places(batch: FlowBatch, first: int, rows: Int64Array | None = None) -> Callable[[int], str]:
    """Return a function that names a row of a batch, after ``first`` earlier rows; ``rows`` are those kept."""

    def place(row: int) -> str:
        original = row if rows is None else int(rows[row])
        known = None if isinstance(batch, Sequence) else place_of(batch, original)
        return f"flow {first + original + 1}" if known is None else known

    return place


def _check_arrays(batch: Sequence[AnyArray]) -> tuple[AnyArray, Int64Array, Int64Array]:
    """Return the arrays of a batch as time, source and destination, or raise an InputError."""
    for column in batch:
        refuse_masked(columns_of_flows=column)
    columns = [np.asarray(column) for column in batch]
    if len(columns) != 3 or any(column.shape != (columns[0].size,) for column in columns):
        raise InputError(
            "flows given as plain arrays are (time, source, destination), all of one length; their shapes are "
            f"{', '.join(str(column.shape) for column in columns)}."
        )
    time, source, destination = columns
    if len(time) == 0:
        return time, source.astype(np.int64), destination.astype(np.int64)
    if not all(column.dtype.kind in "iu" for column in (source, destination)):
        raise InputError("flows given as plain arrays have integer ids; map names with Names.add first.")
    for ids in (source, destination):
        if int(ids.min()) < 0 or int(ids.max()) > _LARGEST_ID:
            raise InputError(f"ids lie between 0 and {_LARGEST_ID}; these go from {ids.min()} to {ids.max()}.")
    if time.dtype.kind not in "iuf":
        raise InputError(f"times are seconds, as numbers; these are of type {time.dtype}.")
    return time, source.astype(np.int64), destination.astype(np.int64)
