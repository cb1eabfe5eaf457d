"""Columns of flow tables as arrays: names, numbers, protocols and times, with which rows could be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphquilt.arrays import BoolArray, Float64Array, Int64Array

if TYPE_CHECKING:
    import pyarrow as pa

PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17}
EPOCH, _ISO, _ZONED = "epoch seconds", "ISO times", "ISO times with a zone"
TIME_SHAPES = {
    EPOCH: r"^-?\d+(\.\d+)?$",
    _ISO: r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?$",
    _ZONED: r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)$",
}


def as_dictionary(column: pa.Array) -> Any:
    """Return the column as a dictionary of strings."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(pc.cast(column, pa.string()))
    elif not pa.types.is_string(column.type.value_type):
        column = pa.DictionaryArray.from_arrays(column.indices, pc.cast(column.dictionary, pa.string()))
    return column


def codes_of(column: pa.Array) -> Int64Array:
    """Position in the dictionary, -1 for null."""
    import pyarrow.compute as pc

    codes = pc.fill_null(as_dictionary(column).indices, -1)
    return np.asarray(codes.to_numpy(zero_copy_only=False)).astype(np.int64)


def is_named(column: pa.Array) -> BoolArray:
    """Say which rows have a name, (n,)."""
    words = as_dictionary(column).dictionary.to_pylist()
    fine = np.array([bool(word and word.strip()) for word in words] + [False])
    return np.ones(len(column), dtype=bool) if fine[:-1].all() and column.null_count == 0 else fine[codes_of(column)]


def as_numbers(column: pa.Array) -> tuple[Float64Array, BoolArray]:
    """Return the numbers and which rows hold a finite one, (n,) each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    good = ~column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        good &= matches(column, EPOCH)
        column = pc.if_else(pa.array(good), column, "0")
    values = np.asarray(
        pc.fill_null(pc.cast(column, pa.float64()), 0.0).to_numpy(zero_copy_only=False), dtype=np.float64
    )
    return values, good & np.isfinite(values)


def matches(column: pa.Array, kind: str) -> BoolArray:
    """Say which rows look like times of a kind, (n,)."""
    import pyarrow.compute as pc

    hits = pc.fill_null(pc.match_substring_regex(column, TIME_SHAPES[kind]), False)
    return np.array(hits.to_numpy(zero_copy_only=False), dtype=bool)


def parse_times(column: pa.Array, kind: str) -> Float64Array:
    """All times of one kind, in seconds; raises where one is not of it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count:
        raise ValueError("missing time")
    if kind != EPOCH:
        return since_1970(pc.cast(column, pa.timestamp("us", tz="UTC" if kind == _ZONED else None)))
    try:
        return np.asarray(pc.cast(column, pa.int64()).to_numpy(), dtype=np.float64)
    except pa.ArrowInvalid:
        values = np.asarray(pc.cast(column, pa.float64()).to_numpy(), dtype=np.float64)
    if not bool(np.isfinite(values).all()):
        raise ValueError("a time that is not finite")
    return values


def since_1970(column: pa.Array) -> Float64Array:
    """Return time stamps as seconds since 1970, (n,)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    micro = pc.cast(pc.cast(column, pa.timestamp("us", tz=column.type.tz)), pa.int64())
    return np.asarray(pc.fill_null(micro, 0).to_numpy(zero_copy_only=False), dtype=np.float64) / 1e6


def is_impossible(text: str, kind: str) -> bool:
    """Whether a time of the right shape names no moment: the 31st of February, say."""
    import pyarrow as pa

    try:
        parse_times(pa.array([text]), kind)
    except (pa.ArrowInvalid, ValueError):
        return True
    return False


def is_protocol(spoken: str | None, wanted: int) -> bool:
    """Say whether a word or number names the protocol."""
    if spoken is None:
        return False
    word = spoken.strip().lower()
    return PROTOCOLS.get(word, int(word) if word.isdigit() else -1) == wanted
