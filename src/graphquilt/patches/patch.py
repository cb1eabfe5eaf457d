"""Patch: some nodes and their coordinates; NodeSets: the nodes of many patches, without coordinates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import numpy as np

from graphquilt.arrays import AnyArray, FloatArray, Int64Array, IntArray, refuse_masked
from graphquilt.errors import CoverError, InputError

Item_co = TypeVar("Item_co", covariant=True)


@dataclass(frozen=True, eq=False)
class Patch:
    """Some nodes and their coordinates.

    A plain ``(nodes, coordinates)`` pair is accepted wherever a Patch is, and a Patch unpacks like one.

    Attributes
    ----------
    nodes : int array (k,)
        Unique, not negative, below 2**63, in any order.
    coordinates : float array (k, d)
        Finite; row r belongs to ``nodes[r]``. Floats of up to 64 bits are not copied; others become float64.

    Examples
    --------
    >>> nodes, X = Patch([4, 2], [[0.0, 1.0], [2.0, 3.0]])
    >>> nodes.tolist(), X.shape
    ([4, 2], (2, 2))
    """

    nodes: IntArray
    coordinates: FloatArray

    def __post_init__(self) -> None:
        refuse_masked(nodes=self.nodes, coordinates=self.coordinates)
        nodes, X = np.asanyarray(self.nodes), np.asanyarray(self.coordinates)
        if nodes.ndim != 1 or X.ndim != 2:
            axes = f"{nodes.ndim} and {X.ndim}"
            raise InputError(f"a patch is a vector of ids and a matrix of coordinates; these have {axes} axes.")
        if len(nodes) != len(X):
            raise InputError(f"{len(nodes)} node ids and {len(X)} rows of coordinates; each id needs one row.")
        if 0 in X.shape:
            raise InputError("a patch needs at least one node and one dimension; this one is {} × {}.".format(*X.shape))
        if X.dtype.kind not in "iuf":
            raise InputError(f"coordinates must be real numbers, not {X.dtype}.")
        if X.dtype.kind != "f" or X.dtype.itemsize > 8:
            with np.errstate(over="ignore"):  # what a double cannot hold becomes infinite, and is refused below
                X = X.astype(np.float64)
        nodes = _checked_ids(nodes)
        if not np.isfinite(X).all():
            bad = ~np.isfinite(X).all(axis=1)
            raise InputError(
                f"{int(bad.sum())} of {len(X)} rows of coordinates are not finite, the first is that of node "
                f"{int(nodes[bad.argmax()])}; leave those nodes out of the patch or embed it again."
            )
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "coordinates", X)

    def __iter__(self) -> Iterator[AnyArray]:
        yield self.nodes
        yield self.coordinates

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return int(self.coordinates.shape[1])


class LazySequence(Sequence[Item_co]):
    """A sequence that computes or opens each item on demand; subclasses have ``__len__`` and ``_item(k)``, k >= 0."""

    @abstractmethod
    def _item(self, k: int) -> Item_co:
        """Return item k."""

    @overload
    def __getitem__(self, index: int) -> Item_co: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item_co]: ...
    def __getitem__(self, index: int | slice) -> Item_co | list[Item_co]:
        if isinstance(index, slice):
            return [self._item(k) for k in range(*index.indices(len(self)))]
        return self._item(range(len(self))[index])

    def __iter__(self) -> Iterator[Item_co]:
        return map(self._item, range(len(self)))


class OnDemand(LazySequence[Item_co]):
    """The items that a function returns for 0..n-1, computed whenever they are asked for."""

    def __init__(self, n: int, item: Callable[[int], Item_co]) -> None:
        self._n, self._make = n, item

    def __len__(self) -> int:
        return self._n

    def _item(self, k: int) -> Item_co:
        return self._make(k)


class NodeSets(LazySequence[IntArray]):
    """Sets of nodes end to end in one array: set k is ``nodes[starts[k]:starts[k + 1]]``, in ascending order."""

    def __init__(self, nodes: IntArray, starts: Int64Array) -> None:
        self.nodes = nodes
        self.starts = starts

    def __len__(self) -> int:
        return len(self.starts) - 1

    def _item(self, k: int) -> IntArray:
        return self.nodes[self.starts[k] : self.starts[k + 1]]

    @classmethod
    def gather(cls, patches: Iterable[object]) -> NodeSets:
        """Return the sorted nodes of arrays, Patches or (nodes, coordinates) pairs."""
        if isinstance(patches, cls):
            return patches
        sets = [_unique(k, patch) for k, patch in enumerate(patches)]
        starts = np.concatenate([[0], np.cumsum([len(nodes) for nodes in sets])]).astype(np.int64)
        return cls(np.concatenate([*sets, np.empty(0, dtype=np.int64)]), starts)


def _unique(k: int, patch: object) -> Int64Array:
    given = getattr(patch, "nodes", patch[0] if isinstance(patch, tuple) else patch)
    refuse_masked(where=f"patch {k}: ", nodes=given)
    ids = np.asarray(given)
    if ids.ndim != 1:
        raise InputError(f"patch {k} must be a vector of integer node ids, not {ids.dtype} of shape {ids.shape}.")
    if len(ids) == 0:
        raise CoverError(f"patch {k} has no nodes; leave it out.")
    return np.sort(_checked_ids(ids, f"patch {k}: ")).astype(np.int64)


def _checked_ids(nodes: AnyArray, where: str = "") -> IntArray:
    """Return node ids, 64-bit ones signed, after checking that they are unique and from 0 to 2**63 - 1."""
    if nodes.dtype.kind not in "iu":
        raise InputError(f"{where}node ids must be integers, not {nodes.dtype}; map other ids to 0..n-1 first.")
    ascending = bool((nodes[1:] > nodes[:-1]).all())  # then the ids are unique, and the largest is the last
    low, high = (int(nodes[0]), int(nodes[-1])) if ascending else (int(nodes.min()), int(nodes.max()))
    if low < 0 or high >= 2**63:
        wrong = f"must not be negative; found {low}" if low < 0 else f"must be below 2**63; found {high}"
        raise InputError(f"{where}node ids {wrong}. Number the nodes 0..n-1.")
    if nodes.dtype.itemsize == 8:
        nodes = nodes.astype(np.int64, copy=False)  # unsigned and signed ids together would become floats
    ids, counts = (nodes[:0],) * 2 if ascending else np.unique(nodes, return_counts=True)
    if (counts > 1).any():
        twice = f"{int((counts > 1).sum())} node ids occur more than once, the first is {ids[counts > 1][0]}"
        raise InputError(f"{where}{twice}; keep one row per node.")
    return nodes
