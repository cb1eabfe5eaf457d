"""What is remembered of each host of one side: usual positions, and mean and variance of what was measured."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from graphquilt.arrays import AnyArray, Float32Array, Float64Array, IntArray
from graphquilt.linalg import centred, nearest_orthogonal, relative_rotation
from graphquilt.temporal.results import COMPONENTS

__all__ = ["HIDDEN", "MEASURED", "SideMemory", "placed"]

HIDDEN = ("partners", "strangers")  # measured beside the components: number of partners, and of those never seen before
MEASURED = (*COMPONENTS, *HIDDEN)
_FARTHEST = 3.0  # a value is learnt as no more than so many standard deviations from what was expected


@dataclass(frozen=True, eq=False)
class SideMemory:
    """One row per host; the arrays are changed in place by :meth:`learn` and :meth:`learn_positions`.

    Attributes
    ----------
    first, last : int arrays (n,)
        The first and the latest window that had the host; -1 if there is none.
    number, mean, variance : float arrays (n, measured)
        How many values there were of each component, at most ``history``, and their mean and variance. Beyond
        ``history`` values, older ones fade.
    positions, places : float arrays (n, dim), (n,)
        The mean position, and how many positions it is the mean of. Drift is measured from it.
    profiles : float array (n, dim)
        The mean of the positions times the roots of the singular values, in a frame that both sides share.
    """

    first: IntArray
    last: IntArray
    number: Float32Array
    mean: Float32Array
    variance: Float32Array
    positions: Float32Array
    places: Float32Array
    profiles: Float32Array

    @classmethod
    def empty(cls, dim: int) -> SideMemory:
        """Return the memory of no host."""
        table, position = np.zeros((0, len(MEASURED)), np.float32), np.zeros((0, dim), np.float32)
        never, count = np.zeros(0, np.int64), np.zeros(0, np.float32)
        return cls(never, never, table, table, table, position, count, position)

    def __len__(self) -> int:
        return len(self.last)

    def grown(self, size: int) -> SideMemory:
        """Return the memory with rows for at least ``size`` hosts."""
        if size <= len(self):
            return self
        room = max(size, len(self) * 5 // 4)  # so that a few new hosts in each window do not copy everything each time
        arrays = {}
        for item in fields(self):
            old: AnyArray = getattr(self, item.name)
            unknown = -1 if item.name in ("first", "last") else 0
            arrays[item.name] = np.full((room, *old.shape[1:]), unknown, dtype=old.dtype)
            arrays[item.name][: len(old)] = old
        return replace(self, **arrays)

    def learn(self, nodes: IntArray, values: AnyArray, expected: tuple[AnyArray, AnyArray], history: int) -> None:
        """Learn the values (k, measured) of hosts; NaN is not learnt.

        ``expected`` are the centre and the spread that the values were compared with. A value far from them is learnt
        as a value at three standard deviations, so that an attack does not become usual in one window.
        """
        centre, spread = expected
        values = np.clip(values, centre - _FARTHEST * spread, centre + _FARTHEST * spread)
        known = ~np.isnan(values)
        number, mean, variance = self.number[nodes], self.mean[nodes], self.variance[nodes]
        number = np.minimum(number + known, history)
        rate = known / np.maximum(number, 1)
        step = np.where(known, values - mean, 0.0)
        self.number[nodes] = number
        self.mean[nodes] = mean + rate * step
        self.variance[nodes] = (1 - rate) * (variance + rate * step**2)

    def learn_positions(self, nodes: IntArray, positions: AnyArray, profiles: AnyArray, history: int) -> None:
        """Add the positions and profiles of hosts, (k, dim), to their means."""
        number = np.minimum(self.places[nodes] + 1, history)
        rate = (1 / number)[:, None]
        self.places[nodes] = number
        self.positions[nodes] += rate * (positions - self.positions[nodes])
        self.profiles[nodes] += rate * (profiles - self.profiles[nodes])


def placed(here: AnyArray, there: AnyArray, known: AnyArray, *, shift: bool) -> tuple[Float64Array, float]:
    """Rotate (and shift) points ``here`` (k, dim) so that the known ones lie near ``there``; return them and the error.

    The error is the root of the mean square distance of the known points, relative to the spread of ``there``.
    """
    a, b = np.asarray(here[known], dtype=np.float64), np.asarray(there[known], dtype=np.float64)
    if shift:
        R = nearest_orthogonal(relative_rotation(a, b))
        translation = centred(b)[1] - centred(a)[1] @ R
    else:
        R, translation = nearest_orthogonal(a.T @ b), np.zeros(a.shape[1])
    moved = np.asarray(here, dtype=np.float64) @ R + translation
    spread = np.linalg.norm(centred(b)[0]) if shift else np.linalg.norm(b)
    return moved, float(np.linalg.norm(moved[known] - b) / max(float(spread), 1e-300))
