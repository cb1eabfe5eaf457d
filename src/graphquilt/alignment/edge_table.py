"""EdgeTable: what is known of each patch edge, one row per edge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.errors import InputError

__all__ = ["EdgeTable"]


@dataclass(frozen=True, eq=False)
class EdgeTable:
    """The m edges of a patch graph and what the alignment knows of each of them."""

    pairs: Int64Array  # (m, 2) patches (i, j), i < j, that were compared
    errors: Float64Array  # (m,) what is left on each overlap after alignment: 0 is a perfect fit, 1 is unrelated
    weights: Float64Array  # (m,) in the rotation step: the size of the overlap, times its trust
    trust: Float64Array  # (m,) 1, or nearly 0 where robust alignment doubts the edge
    undetermined: Int64Array  # (m,) in how many of the d directions the points of the overlap do not extend

    def __post_init__(self) -> None:
        m = np.size(self.errors)
        shapes = {field.name: np.shape(getattr(self, field.name)) for field in fields(self)}
        if any(shape != ((m, 2) if name == "pairs" else (m,)) for name, shape in shapes.items()):
            raise InputError(f"an edge table has one pair and one value of each kind per edge, not {shapes}.")

    def __len__(self) -> int:
        return len(self.pairs)

    @classmethod
    def empty(cls) -> EdgeTable:
        """Return a table without edges."""
        pairs, none = np.empty((0, 2), dtype=np.int64), np.empty(0)
        return cls(pairs, none, none, none, pairs[:, 0])

    @classmethod
    def concatenate(cls, tables: Iterable[EdgeTable]) -> EdgeTable:
        """Return the rows of all ``tables``, one table after the other."""
        parts = [cls.empty(), *tables]
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def take(self, rows: npt.ArrayLike) -> EdgeTable:
        """Return the ``rows`` that are named (by number or by a mask (m,)), in that order."""
        return EdgeTable(*(getattr(self, field.name)[np.asarray(rows)] for field in fields(self)))
