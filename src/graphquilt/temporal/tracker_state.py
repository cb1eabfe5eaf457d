"""What a tracker remembers, and the file that holds it: arrays that are checked before anything is done with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError
from graphquilt.temporal.calibration import Pool
from graphquilt.temporal.pair_memory import PairMemory
from graphquilt.temporal.side_memory import SideMemory
from graphquilt.temporal.state_file import read_state, write_state
from graphquilt.temporal.windows import SIDES

__all__ = ["Memory", "read_memory", "write_memory"]

_FORMAT = 4


@dataclass
class Memory:
    """The windows that were learnt, what is known of the hosts of each side, the pairs, and the pools by name."""

    numbers: list[int]
    sides: dict[str, SideMemory]
    pairs: PairMemory
    tokens: PairMemory
    pools: dict[str, Pool]


def write_memory(path: Path, memory: Memory, header: Mapping[str, object]) -> None:
    """Write a memory, and a header of entries as JSON allows them, to one file."""
    text = json.dumps({"format": _FORMAT, "numbers": memory.numbers, **header})
    arrays: dict[str, AnyArray] = {"header": np.frombuffer(text.encode(), dtype=np.uint8)}
    for side, part in memory.sides.items():
        arrays |= {f"{side}.{item.name}": getattr(part, item.name) for item in fields(part)}
    for name, pairs in (("pairs", memory.pairs), ("tokens", memory.tokens)):
        arrays |= {f"{name}.{item}": getattr(pairs, item) for item in ("keys", "counts", "last")}
    for name, pool in memory.pools.items():
        arrays |= {f"pool.{name}.{k:05d}": sample for k, sample in enumerate(pool.samples)}
        arrays[f"pool.{name}.sizes"] = np.array(list(pool.sizes), dtype=np.int64).reshape(-1, 2)
    write_state(path, arrays)


def read_memory(path: Path, fresh: Callable[[dict[str, Any]], Memory]) -> None:
    """Fill the memory that ``fresh`` makes from the header with the arrays of a file, or raise a FormatError."""
    arrays = read_state(path)
    try:
        header = json.loads(arrays["header"].tobytes())
        if header.pop("format") != _FORMAT:
            raise ValueError(f"it was written in another format than {_FORMAT}")
        numbers = header.pop("numbers")
        if not isinstance(numbers, list) or sorted(set(numbers)) != numbers or any(type(n) is not int for n in numbers):
            raise ValueError("the numbers of its windows are not whole numbers in order")
        memory = fresh(header)
        memory.numbers[:] = numbers
        for side in SIDES:
            memory.sides[side] = _checked_side(arrays, side, memory.sides[side])
        _fill_pairs(memory.pairs, arrays, "pairs", tuple(len(memory.sides[side]) for side in SIDES))
        _fill_pairs(memory.tokens, arrays, "tokens", (2**31, 2**31))
        for name, pool in memory.pools.items():
            _fill_pool(pool, arrays, name)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError, InputError) as error:
        raise FormatError(
            f"{path} does not hold the state of a Tracker: {error}. Restore it from a copy, or begin anew."
        ) from None


def _checked_side(arrays: Mapping[str, AnyArray], side: str, empty: SideMemory) -> SideMemory:
    """Return the memory of a side that was saved; its columns are those of an ``empty`` one."""
    n = len(arrays[f"{side}.last"])
    columns = {}
    for item in fields(empty):
        array, expected = arrays[f"{side}.{item.name}"], getattr(empty, item.name)
        if array.dtype != expected.dtype or array.shape != (n, *expected.shape[1:]):
            raise ValueError(f"the array {side}.{item.name} is {array.dtype} {array.shape}, not of {n} hosts")
        if not bool(np.isfinite(array).all()):
            raise ValueError(f"the array {side}.{item.name} has values that are not finite")
        columns[item.name] = np.array(array)
    if any(bool((columns[name] < 0).any()) for name in ("number", "variance", "places")):
        raise ValueError(f"a number of windows or a variance of a {side} is negative")
    return SideMemory(**columns)


def _fill_pairs(pairs: PairMemory, arrays: Mapping[str, AnyArray], prefix: str, shape: tuple[int, ...]) -> None:
    keys, counts, last = (np.array(arrays[f"{prefix}.{name}"]) for name in ("keys", "counts", "last"))
    if keys.dtype != np.int64 or counts.dtype != np.float32 or last.dtype != np.int64 or keys.ndim != 1:
        raise ValueError("the pairs are not arrays of whole numbers")
    if not keys.shape == counts.shape == last.shape or bool(np.any(np.diff(keys) <= 0)):
        raise ValueError("the pairs are not in order, or not of one length")
    inside = len(keys) == 0 or (
        int(keys[0]) >= 0 and int(keys[-1] >> 32) < shape[0] and int((keys & 0xFFFFFFFF).max()) < shape[1]
    )
    if not inside or not bool(np.all((counts >= 1) & (counts <= pairs.history))):
        raise ValueError("a pair is not among the hosts, or was in no window")
    pairs.keys, pairs.counts, pairs.last = keys, counts, last


def _fill_pool(pool: Pool, arrays: Mapping[str, AnyArray], name: str) -> None:
    sizes = arrays[f"pool.{name}.sizes"]
    if sizes.dtype != np.int64 or sizes.ndim != 2 or sizes.shape[1] != 2 or bool((sizes < 0).any()):
        raise ValueError("the sizes of its windows are not pairs of whole numbers")
    if pool.sizes.maxlen is None or len(sizes) > pool.sizes.maxlen:
        raise ValueError("it has more windows than it may remember")
    for row in sizes.tolist():
        pool.sizes.append((row[0], row[1]))
    for k in range(min(len(sizes), pool.most(len(sizes)))):
        sample = arrays[f"pool.{name}.{k:05d}"]
        fits = sample.dtype == np.float32 and sample.ndim == 2 and sample.shape[1] == pool.width
        if not fits or bool(np.isinf(sample).any()):
            raise ValueError(f"the pool of the {name}s does not hold {pool.width} numbers for each row")
        pool.samples.append(np.array(sample))
