"""EdgeTable: what is known of each patch edge, one row per edge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.errors import InputError

__all__ = ["EdgeTable"]


@dataclass(frozen=True, eq=False)
class EdgeTable:
    """The edges of a patch graph and what the alignment knows of each of them.

    Attributes
    ----------
    pairs : int array (m, 2)
        Pairs (i, j), i < j, of patches that were compared.
    errors : float array (m,)
        What is left on each overlap after alignment: 0 is a perfect fit, 1 is no better than unrelated.
    weights : float array (m,)
        The weight of each edge in the rotation step: the size of its overlap, times ``trust``.
    trust : float array (m,)
        1, or less where robust alignment doubted the edge.
    undetermined : int array (m,)
        How many of the d directions each overlap says nothing about, because its points do not extend in them.
    """

    pairs: Int64Array
    errors: Float64Array
    weights: Float64Array
    trust: Float64Array
    undetermined: Int64Array

    def __post_init__(self) -> None:
        m = np.size(self.errors)
        shapes = {field.name: np.shape(getattr(self, field.name)) for field in fields(self)}
        if any(shape != ((m, 2) if name == "pairs" else (m,)) for name, shape in shapes.items()):
            raise InputError(f"an edge table has one pair and one value of each kind per edge, not {shapes}.")

    def __len__(self) -> int:
        return len(self.pairs)

    @classmethod
    def empty(cls) -> EdgeTable:
        """Return a table without edges.

        Examples
        --------
        >>> len(EdgeTable.empty())
        0
        """
        none = np.empty(0)
        return cls(np.empty((0, 2), dtype=np.int64), none, none, none, np.empty(0, dtype=np.int64))

    @classmethod
    def concatenate(cls, tables: Iterable[EdgeTable]) -> EdgeTable:
        """Return the rows of all ``tables``, one table after the other."""
        parts = [cls.empty(), *tables]
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def take(self, rows: npt.ArrayLike) -> EdgeTable:
        """Return the ``rows`` that are named (by number or by a mask (m,)), in that order."""
        chosen: AnyArray = np.asarray(rows)
        return EdgeTable(*(getattr(self, field.name)[chosen] for field in fields(self)))
