"""The names of nodes, and the numbers that stand for them in matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
import pyarrow as pa

from graphquilt.arrays import Int64Array
from graphquilt.errors import InputError


class Names:
    """The name of each node; nodes are numbered in the order in which their names first appear.

    Examples
    --------
    >>> names = Names(["printer"])
    >>> names.add(["mail", "printer"]).tolist(), len(names), names[1], list(names)
    ([1, 0], 2, 'mail', ['printer', 'mail'])
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = list(names)
        self._ids = {name: number for number, name in enumerate(self._names)}

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, number: int) -> str:
        return self._names[number]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def add(self, names: Iterable[str]) -> Int64Array:
        """Return the ids of ``names``; names that are not known yet get new ids."""
        ids = []
        for name in names:
            number = self._ids.get(name)
            if number is None:
                number = self._ids[name] = len(self._names)
                self._names.append(name)
            ids.append(number)
        return np.array(ids, dtype=np.int64)

    def add_column(self, column: pa.StringArray | pa.DictionaryArray) -> Int64Array:
        """Return the ids of a column of names, (rows,); each distinct name is looked up once."""
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        codes = column.indices.to_numpy(zero_copy_only=False)
        # A filtered batch keeps the whole dictionary; names that no row has must not get an id.
        is_used = np.zeros(len(column.dictionary), dtype=bool)
        is_used[codes] = True
        ids = np.zeros(len(is_used), dtype=np.int64)
        ids[is_used] = self.add(column.dictionary.filter(pa.array(is_used)).to_pylist())
        return np.asarray(ids[codes])

    def id(self, name: str) -> int:
        """Return the number of ``name``; raise an InputError if the name is not known."""
        if name not in self._ids:
            raise InputError(f"there is no node {name!r} among the {len(self)} that occurred.")
        return self._ids[name]

    def find(self, name: str) -> int:
        """Return the number of ``name``, or -1 if the name is not known."""
        return self._ids.get(name, -1)


class SameNames:
    """Which destinations are sources too, by their names; both sets of names may grow.

    Examples
    --------
    >>> sources, destinations = Names(["laptop"]), Names(["printer", "laptop"])
    >>> same = SameNames(sources, destinations)
    >>> _ = same.as_source(), sources.add(["printer"]), destinations.add(["mail"])
    >>> same.as_source().tolist()
    [1, 0, -1]
    """

    def __init__(self, sources: Names, destinations: Names) -> None:
        self._sources, self._destinations = sources, destinations
        self._n_sources = 0
        self._as_source = np.zeros(0, dtype=np.int64)

    def as_source(self) -> Int64Array:
        """Return the number of each destination among the sources, or -1; only new names are looked up."""
        new = [self._sources.find(name) for name in islice(self._destinations, len(self._as_source), None)]
        as_source = np.concatenate([self._as_source, np.array(new, dtype=np.int64)])
        for number, name in enumerate(islice(self._sources, self._n_sources, None), self._n_sources):
            place = self._destinations.find(name)
            if place >= 0:
                as_source[place] = number
        self._as_source, self._n_sources = as_source, len(self._sources)
        return as_source
