"""The names of nodes, and the numbers that stand for them in matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from graphquilt.arrays import Int64Array
from graphquilt.errors import InputError

__all__ = ["Names"]


class Names:
    """The name of each node; nodes are numbered in the order in which their names first appear.

    Iterating gives the names in the order of their ids.

    Examples
    --------
    >>> names = Names(["printer"])
    >>> names.add(["mail", "printer"]).tolist(), len(names), names[1]
    ([1, 0], 2, 'mail')
    >>> list(names)
    ['printer', 'mail']
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

    def __contains__(self, name: object) -> bool:
        return name in self._ids

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
