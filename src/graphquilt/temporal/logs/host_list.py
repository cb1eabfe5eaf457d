"""Lists of hosts that do not alert, or that are not read at all: names, patterns, addresses and networks."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import translate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphquilt.errors import InputError
from graphquilt.temporal.logs.flow_files import keep_rows

__all__ = ["HostList", "read_host_list", "without_hosts"]

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class HostList:
    """Hosts by name, by pattern with ``*``, by address or by network.

    Examples
    --------
    >>> hosts = HostList(["scanner-*", "10.1.0.0/16", "mail"])
    >>> [host in hosts for host in ("scanner-7", "10.1.2.3", "mail", "mail2")]
    [True, True, True, False]
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._networks: list[_Network] = []
        patterns = []
        for entry in entries:
            if "*" in entry:
                patterns.append(translate(entry))
            elif "/" in entry:
                try:
                    self._networks.append(ipaddress.ip_network(entry, strict=False))
                except ValueError:
                    raise InputError(f"{entry!r} is neither a host nor a network such as 10.1.0.0/16.") from None
            else:
                self._names.add(entry)
        self._pattern = re.compile("|".join(patterns)) if patterns else None

    def __bool__(self) -> bool:
        return bool(self._names or self._networks or self._pattern)

    def __contains__(self, host: object) -> bool:
        if not isinstance(host, str):
            return False
        if host in self._names or (self._pattern is not None and self._pattern.match(host) is not None):
            return True
        if not self._networks:
            return False
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def read_host_list(path: str | os.PathLike[str] | None) -> HostList:
    """Read one host, pattern, address or network per line; ``#`` begins a comment. None is an empty list."""
    if path is None:
        return HostList()
    try:
        text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    entries = [line.split("#", 1)[0].strip() for line in text.splitlines()]
    return HostList(filter(None, entries))


def without_hosts(flows: Iterable[pa.RecordBatch], hosts: HostList) -> Iterator[pa.RecordBatch]:
    """Leave out the flows from and to some hosts, so that they are neither scored nor learnt."""
    for batch in flows:
        keep = np.ones(len(batch), dtype=bool)
        for side in ("source", "destination"):
            column = batch.column(side)
            words = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            is_listed = np.array([word in hosts for word in words.dictionary.to_pylist()], dtype=bool)
            if is_listed.any():
                keep &= ~is_listed[pc.fill_null(words.indices, 0).to_numpy(zero_copy_only=False)]
        yield batch if keep.all() else keep_rows(batch, keep)
