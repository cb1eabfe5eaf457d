"""Stores keep the records of a job. A plain dict is one; a folder on disk is another."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError
from graphquilt.jobs.description import fingerprint

Parameters = Mapping[str, object]


@dataclass(frozen=True, eq=False)
class Record:
    """Arrays, and the parameters that made them."""

    arrays: Mapping[str, AnyArray]  # numbers, booleans or fixed-width text; never Python objects
    parameters: Parameters = field(default_factory=dict)  # anything that JSON can hold, compared by value
    checksum: str | None = None  # that of the arrays, if the store knows it

    @functools.cached_property
    def digest(self) -> str:
        """What records made from this one name: equal exactly for equal arrays."""
        if self.checksum is not None:
            return self.checksum[:16]
        return fingerprint(*(np.atleast_1d(array) for _, array in sorted(self.arrays.items())))


class Store(Protocol):
    """Where records are kept: anything with these three methods, a plain dict included.

    A store may also have ``folder``, the path that holds its records; workers in other processes then open a pickled
    copy of the store and read and write it themselves. And it may have ``lock(shard=None)``, a context manager that
    keeps other runs away; and ``claims()``, by which shards divide work.
    """

    def __contains__(self, key: object, /) -> bool:
        """Return whether a finished record is there."""
        ...

    def __getitem__(self, key: str, /) -> Record:
        """Return a record; raise KeyError if it is missing, FormatError if it is damaged."""
        ...

    def __setitem__(self, key: str, record: Record, /) -> None:
        """Store a record, replacing an older one."""
        ...


def stored_record(store: Store, key: str, made_from: Parameters | None = None) -> Record | None:
    """Return a record if it is whole and was made from these things, as its parameters say; None otherwise."""
    try:
        record = store[key]
    except (KeyError, FormatError):
        return None
    wanted = {} if made_from is None else made_from
    return record if all(record.parameters.get(name) == value for name, value in wanted.items()) else None


def store_folder(store: Store) -> Path | None:
    """Return the folder of a store, or None if its records are in memory."""
    return getattr(store, "folder", None)


def store_name(store: Store) -> str:
    """Return what errors call a store: the path of a folder, but never the whole content of a dict."""
    return "this store" if isinstance(store, dict) else str(store)


def short_path(path: str) -> str:
    """Return a path as one would type it here: relative to the current folder where it lies inside."""
    short = os.path.relpath(path)
    return path if short.startswith("..") else short


def locked(store: Store, shard: str | None = None) -> contextlib.AbstractContextManager[None]:
    """Lock a store for this run, or one shard of it; stores without a lock are left as they are."""
    lock = getattr(store, "lock", None)
    return contextlib.nullcontext() if lock is None else lock(shard=shard)


def record_digest(store: Store, key: str) -> str:
    """Return the digest of a record; a store in a folder knows it without reading the arrays."""
    known = getattr(store, "digest", None)
    return store[key].digest if known is None else known(key)


def combined_digest(store: Store, keys: Iterable[str]) -> str:
    """Return the digest of several records together."""
    return hashlib.sha256("".join(record_digest(store, key) for key in keys).encode()).hexdigest()[:16]
