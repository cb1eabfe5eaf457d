"""The names of nodes, and the numbers that stand for them in matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from graphquilt.arrays import Int64Array


class Names:
    """The name of each node; nodes are numbered in the order in which their names first appear.

    New names get the numbers of forgotten ones first; until then these have None.

    Examples
    --------
    >>> names = Names(["printer"])
    >>> names.add(["mail", "printer"]).tolist(), len(names), names[1], list(names)
    ([1, 0], 2, 'mail', ['printer', 'mail'])
    """

    def __init__(self, names: Iterable[str | None] = ()) -> None:
        self._names = list(names)
        self._ids = {name: number for number, name in enumerate(self._names) if name is not None}
        self._free = [number for number, name in enumerate(self._names) if name is None][::-1]

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, number: int) -> str:
        name = self._names[number]
        if name is None:
            raise IndexError(f"the name of node {number} was forgotten")
        return name

    def __iter__(self) -> Iterator[str | None]:
        return iter(self._names)

    def add(self, names: Iterable[str]) -> Int64Array:
        """Return the ids of ``names``; names that are not known yet get new ids."""
        ids = []
        for name in names:
            number = self._ids.get(name)
            if number is None:
                if not self._free:
                    self._free.append(len(self._names))
                    self._names.append(None)
                number = self._ids[name] = self._free.pop()
                self._names[number] = name
            ids.append(number)
        return np.array(ids, dtype=np.int64)

    def keep(self, numbers: Int64Array) -> None:
        """Forget the names of all other nodes."""
        is_unused = np.ones(len(self), dtype=bool)
        is_unused[numbers] = False
        self._free = np.flatnonzero(is_unused)[::-1].tolist()
        for number in self._free:
            name, self._names[number] = self._names[number], None
            if name is not None:
                del self._ids[name]

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

    def find(self, name: str) -> int:
        """Return the number of ``name``, or -1 if the name is not known."""
        return self._ids.get(name, -1)
