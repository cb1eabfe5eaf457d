"""Convert columns of flow tables to arrays: names, numbers, protocols and times, and which rows are readable."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphquilt.arrays import BoolArray, Float64Array

PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17}
EPOCH, ISO, ZONED = "epoch seconds", "ISO times", "ISO times with a zone"
TIME_SHAPES = {
    EPOCH: r"^-?\d+(\.\d+)?$",
    ISO: r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?$",
    ZONED: r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)$",
}


def as_dictionary(column: pa.Array) -> pa.DictionaryArray:
    """Return the column as a dictionary of strings."""
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(pc.cast(column, pa.string()))
    elif not pa.types.is_string(column.type.value_type):
        column = pa.DictionaryArray.from_arrays(column.indices, pc.cast(column.dictionary, pa.string()))
    return column


def rows_where(accept: Callable[[str], bool], column: pa.Array) -> BoolArray:
    """Return which rows contain a word that ``accept`` accepts, (n,); null is no word."""
    words = as_dictionary(column)
    accepted = np.array([word is not None and accept(word) for word in words.dictionary.to_pylist()] + [False])
    return np.asarray(accepted[pc.fill_null(words.indices, -1).to_numpy(zero_copy_only=False)])


def is_text(column: pa.Array) -> bool:
    """Return whether a column contains strings."""
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def as_numbers(column: pa.Array) -> tuple[Float64Array, BoolArray]:
    """Return the numbers, and which rows contain a finite number, (n,) each."""
    good = ~column.is_null().to_numpy(zero_copy_only=False)
    if is_text(column):
        good &= matches(column, EPOCH)
        column = pc.if_else(pa.array(good), column, "0")
    numbers = pc.fill_null(pc.cast(column, pa.float64()), 0.0)
    values = np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)
    return values, good & np.isfinite(values)


def matches(column: pa.Array, kind: str) -> BoolArray:
    """Return which rows look like times of one kind, (n,)."""
    hits = pc.fill_null(pc.match_substring_regex(column, TIME_SHAPES[kind]), False)
    return np.array(hits.to_numpy(zero_copy_only=False), dtype=bool)


def parse_times(column: pa.Array, kind: str) -> Float64Array:
    """Convert times of one kind to seconds; raise an error if a row is not of that kind."""
    if column.null_count:
        raise ValueError("a time is missing")
    if kind != EPOCH:
        return since_1970(pc.cast(column, pa.timestamp("us", tz="UTC" if kind == ZONED else None)))
    try:
        return np.asarray(pc.cast(column, pa.int64()).to_numpy(), dtype=np.float64)
    except pa.ArrowInvalid:
        values = np.asarray(pc.cast(column, pa.float64()).to_numpy(), dtype=np.float64)
    if not bool(np.isfinite(values).all()):
        raise ValueError("a time is not finite")
    return values


def since_1970(column: pa.Array) -> Float64Array:
    """Convert time stamps to seconds since 1970, (n,)."""
    micro = pc.cast(pc.cast(column, pa.timestamp("us", tz=column.type.tz)), pa.int64())
    return np.asarray(pc.fill_null(micro, 0).to_numpy(zero_copy_only=False), dtype=np.float64) / 1e6


def protocol_number(text: str) -> int:
    """Return the number of a protocol given by name or number; -1 if it is unknown."""
    return PROTOCOLS.get(text.lower(), int(text) if text.isdigit() else -1)
