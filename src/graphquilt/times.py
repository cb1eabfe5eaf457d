"""Read times as seconds: numbers since any origin, ISO times, or any format that the user describes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphquilt.arrays import BoolArray, Float64Array
from graphquilt.errors import FormatError, InputError

__all__ = ["Clock", "as_numbers", "clock_of", "parse_duration", "read_moment", "read_times"]

EPOCH, ISO, ZONED, SLASHED = "epoch times", "ISO times", "ISO times with a zone", "times with slashes"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_SHAPES = {
    EPOCH: _NUMBER,
    ISO: r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?$",
    ZONED: r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)$",
    SLASHED: r"^\d{4}/\d\d/\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?$",
}
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_BEYOND = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))  # numbers beyond 1e11 s lie after the year 5000: they are ms, µs, ns


@dataclass(frozen=True)
class Clock:
    """How the times of a log are written, as far as that is known.

    Of several ``kinds`` the first time decides. ``per_second`` is how many units of an epoch time make a second, and
    ``pattern`` a format of ``datetime.strptime``, which replaces the kinds.
    """

    kinds: tuple[str, ...] = tuple(_SHAPES)
    per_second: float | None = None
    pattern: str | None = None


def clock_of(time_format: str | None) -> Clock:
    """Return what a user says about the times: None, ``epoch-s`` (``-ms``, ``-us``, ``-ns``), ``iso`` or a pattern."""
    if time_format is None:
        return Clock()
    if time_format == "iso":
        return Clock((ISO, ZONED, SLASHED))
    if time_format.startswith("epoch-") and time_format[6:] in _PER_SECOND:
        return Clock((EPOCH,), _PER_SECOND[time_format[6:]])
    if "%" in time_format:
        try:
            datetime.strptime(datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC).strftime(time_format), time_format)
        except (ValueError, re.error, UnicodeError) as error:
            raise InputError(f"{time_format!r} is not a time format: {error}.") from None
        return Clock((), None, time_format)
    raise InputError(
        f"{time_format!r} is not a time format: give iso, epoch-s, epoch-ms, epoch-us, epoch-ns, or a pattern such as "
        "%m/%d/%Y-%H:%M."
    )


def parse_duration(duration: str | float) -> float:
    """Convert ``"1d"``, ``"90m"``, ``"1.5h"`` or plain seconds to seconds."""
    if not isinstance(duration, str):
        return float(duration)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw]?)\s*", duration)
    if match is None:
        raise InputError(f"{duration!r} is not a valid duration: give a number and s, m, h, d or w, such as 1d or 30m.")
    return float(match[1]) * _UNITS.get(match[2], 1.0)


def read_moment(text: str, now: float) -> float:
    """Return a date such as 1970-01-02, a time in seconds, or a duration such as 7d before ``now``, in seconds."""
    if text[-1:] in _UNITS and text[:-1].replace(".", "", 1).isdigit():
        return now - parse_duration(text)
    time, good, _ = read_times(pa.array([text]), Clock(), label="--since", place=lambda _row: "--since")
    if not good[0]:
        raise InputError(f"--since takes a date such as 2024-05-01, or a duration such as 7d, not {text!r}.")
    return float(time[0])


def read_times(
    column: pa.Array, clock: Clock, *, label: str, place: Callable[[int], str]
) -> tuple[Float64Array, BoolArray, Clock]:
    """Return times in seconds, which of them could be read, (n,) each, and the clock with what was learnt about it."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return _since_1970(column), ~column.is_null().to_numpy(zero_copy_only=False), clock
    if not pa.types.is_string(column.type):
        values, good = as_numbers(column, label)
        return _to_seconds(values, good, clock)
    if clock.pattern is not None:
        return *_parse_by_pattern(column, clock.pattern), clock
    if len(clock.kinds) != 1:
        kind = next((kind for kind in clock.kinds if _matches(column, kind).any()), None)
        if kind is None:
            return np.zeros(len(column)), np.zeros(len(column), dtype=bool), clock
        clock = replace(clock, kinds=(kind,))
    kind = clock.kinds[0]
    try:
        values, good = _parse_all(column, kind), np.ones(len(column), dtype=bool)
    except (pa.ArrowInvalid, ValueError):  # some rows are not times of this kind
        values, good = _parse_rows(column, kind, place)
    return _to_seconds(values, good, clock) if kind == EPOCH else (values, good, clock)


def as_numbers(column: pa.Array, label: str) -> tuple[Float64Array, BoolArray]:
    """Return the numbers of a column, and which rows contain a finite number, (n,) each."""
    good = ~column.is_null().to_numpy(zero_copy_only=False)
    kind = column.type
    if pa.types.is_string(kind):
        good &= _matches(column, EPOCH)
        column = pc.if_else(pa.array(good), column, "0")
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        if pa.types.is_null(kind):
            return np.zeros(len(column)), good
        raise FormatError(f"{label} is of type {kind}. Convert it to numbers, or times to time stamps.")
    numbers = pc.fill_null(pc.cast(column, pa.float64(), safe=False), 0.0)
    values = np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)
    return values, good & np.isfinite(values)


def _since_1970(column: pa.Array) -> Float64Array:
    """Convert time stamps or dates to seconds since 1970, (n,); 0 for nulls."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        per_second, whole = _PER_SECOND[kind.unit], pa.int64()
    else:
        per_second, whole = (1 / 86400, pa.int32()) if pa.types.is_date32(kind) else (1e3, pa.int64())
    counts = pc.fill_null(pc.cast(column, whole), 0)
    return np.asarray(counts.to_numpy(zero_copy_only=False), dtype=np.float64) / per_second


def _to_seconds(values: Float64Array, good: BoolArray, clock: Clock) -> tuple[Float64Array, BoolArray, Clock]:
    """Convert numbers to seconds; the middle one of the first numbers decides the unit where none is given."""
    if clock.per_second is None and good.any():
        ordered = np.sort(values[good])
        middle = float(ordered[(len(ordered) - 1) // 2])
        clock = replace(clock, per_second=next((unit for limit, unit in _BEYOND if middle > limit), 1.0))
    return (values if clock.per_second in (None, 1.0) else values / clock.per_second), good, clock


def _matches(column: pa.Array, kind: str) -> BoolArray:
    """Return which rows look like times of one kind, (n,)."""
    hits = pc.fill_null(pc.match_substring_regex(column, _SHAPES[kind]), False)
    return np.array(hits.to_numpy(zero_copy_only=False), dtype=bool)


def _parse_all(column: pa.Array, kind: str) -> Float64Array:
    """Convert times of one kind to numbers; raise an error if a row is not of that kind."""
    if column.null_count:
        raise ValueError("a time is missing")
    if kind == SLASHED:
        column = pc.replace_substring(column, "/", "-")
    if kind != EPOCH:
        return _since_1970(pc.cast(column, pa.timestamp("us", tz="UTC" if kind == ZONED else None)))
    values = np.asarray(pc.cast(column, pa.float64()).to_numpy(), dtype=np.float64)
    if not bool(np.isfinite(values).all()):
        raise ValueError("a time is not finite")
    return values


def _parse_rows(column: pa.Array, kind: str, place: Callable[[int], str]) -> tuple[Float64Array, BoolArray]:
    """Convert the rows that are times of one kind; a time of another kind is an error."""
    for other in _SHAPES:
        is_mixed = _matches(column, other)
        if other != kind and is_mixed.any():
            row = int(np.argmax(is_mixed))
            raise FormatError(
                f"mixed time formats: the times are {kind}, but {place(row)} has {column[row].as_py()!r}, one of "
                f"{other}. Convert one to the other."
            )
    values, good = np.zeros(len(column)), np.zeros(len(column), dtype=bool)
    rows = np.flatnonzero(_matches(column, kind))
    # Arrow reads up to six digits of a second; the others are cut off.
    shaped = pc.replace_substring_regex(column.take(pa.array(rows)), r"(\.\d{6})\d+", r"\1")
    parts = [(0, len(rows))]
    while parts:  # the 31st of February has the right shape: halve until it is alone
        start, end = parts.pop()
        try:
            values[rows[start:end]] = _parse_all(shaped.slice(start, end - start), kind)
            good[rows[start:end]] = True
        except (pa.ArrowInvalid, ValueError):
            if end - start > 1:
                middle = (start + end) // 2
                parts += [(start, middle), (middle, end)]
    return values, good


def _parse_by_pattern(column: pa.Array, pattern: str) -> tuple[Float64Array, BoolArray]:
    """Read times by a pattern; each distinct text is read once. Times without a zone are in UTC."""
    words = pc.dictionary_encode(column)
    texts = words.dictionary
    seconds, good = np.zeros(len(texts) + 1), np.zeros(len(texts) + 1, dtype=bool)
    todo = np.arange(len(texts))
    if "%f" not in pattern and "%z" not in pattern.lower():  # Arrow knows neither fractions nor zones
        stamps = pc.strptime(texts, format=pattern, unit="s", error_is_null=True)
        # Arrow takes the 31st of February for the 3rd of March: what is written again must be the same.
        same = pc.fill_null(pc.equal(pc.strftime(stamps, format=pattern), texts), False)
        good[:-1] = same.to_numpy(zero_copy_only=False)
        seconds[:-1] = np.where(good[:-1], _since_1970(stamps), 0.0)
        todo = np.flatnonzero(~good[:-1])
    for row in todo.tolist():
        try:
            stamp = datetime.strptime(texts[row].as_py(), pattern)
            seconds[row] = (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
            good[row] = True
        except (ValueError, OverflowError):
            continue
    codes = pc.fill_null(words.indices, len(texts)).to_numpy(zero_copy_only=False)
    return np.asarray(seconds[codes]), np.asarray(good[codes])
