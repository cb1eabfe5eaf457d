"""Stores: where the records of a job are kept. A plain dict is one; a folder on disk is another."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from graphquilt.arrays import AnyArray

__all__ = ["Parameters", "Record", "Store", "is_shared", "locked", "store_name"]

Parameters = Mapping[str, object]


@dataclass(frozen=True, eq=False)
class Record:
    """Arrays, and the parameters that made them.

    Attributes
    ----------
    arrays : mapping of str to array
        Numbers, booleans or fixed-width text; never Python objects.
    parameters : mapping
        Anything that JSON can hold. Parameters are compared by value when a job is resumed.

    Examples
    --------
    >>> import numpy as np
    >>> Record({"x": np.arange(3)}, {"seed": 0}).arrays["x"].sum()
    np.int64(3)
    """

    arrays: Mapping[str, AnyArray]
    parameters: Parameters = field(default_factory=dict)


class Store(Protocol):
    """Where records are kept: anything with these three methods, a plain dict included.

    A store may also have ``shared = True``, which says that a pickled copy of it in another process reaches the same
    records; workers then read and write it themselves. It may have ``lock(share=None, wait=False)``, a context
    manager that keeps other runs away; with ``wait`` it waits until they have gone. And it may have ``remember(key)``
    and ``remembers(key)``, so that a large record is checked once and not in every process.
    """

    def __contains__(self, key: object, /) -> bool:
        """Return whether a finished record is there."""
        ...

    def __getitem__(self, key: str, /) -> Record:
        """Return a record; raise KeyError where there is none, FormatError where it is damaged."""
        ...

    def __setitem__(self, key: str, record: Record, /) -> None:
        """Keep a record, in the place of an older one."""
        ...


def is_shared(store: Store) -> bool:
    """Return whether workers in other processes reach the same records.

    Examples
    --------
    >>> is_shared({})
    False
    """
    return bool(getattr(store, "shared", False))


def store_name(store: Store) -> str:
    """Return what errors call a store: the path of a folder, but never the whole content of a dict."""
    return "this store" if isinstance(store, dict) else str(store)


def locked(store: Store, share: str | None = None, *, wait: bool = False) -> contextlib.AbstractContextManager[None]:
    """Lock a store for this run, or one share of it; stores without a lock are left as they are."""
    lock = getattr(store, "lock", None)
    return contextlib.nullcontext() if lock is None else lock(share=share, wait=wait)
