"""Sequences whose items are made when they are asked for, and the node sets of patches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar, overload

import numpy as np

from graphquilt.arrays import Int64Array, IntArray, refuse_masked
from graphquilt.errors import CoverError, InputError

__all__ = ["LazySequence", "NodeSets"]

Item_co = TypeVar("Item_co", covariant=True)


class LazySequence(Sequence[Item_co]):
    """A sequence that computes or opens each item when it is asked for.

    A subclass has ``__len__`` and ``_item(k)``, which is called with 0 <= k < len(self) only.

    Examples
    --------
    >>> class Squares(LazySequence[int]):
    ...     def __len__(self):
    ...         return 5
    ...     def _item(self, k):
    ...         return k * k
    >>> Squares()[-1], Squares()[1:3], list(Squares())
    (16, [1, 4], [0, 1, 4, 9, 16])
    """

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


class NodeSets(LazySequence[IntArray]):
    """Sets of nodes end to end in one array, which is small even for ten thousand patches.

    Parameters
    ----------
    nodes : int array (total,)
        The nodes of each set in ascending order, one set after the other.
    starts : int array (p + 1,)
        Where each set begins.

    Examples
    --------
    >>> sets = NodeSets(np.array([0, 2, 1, 2]), np.array([0, 2, 4]))
    >>> len(sets), sets[1].tolist()
    (2, [1, 2])
    """

    def __init__(self, nodes: IntArray, starts: Int64Array) -> None:
        self.nodes = nodes
        self.starts = starts

    def __len__(self) -> int:
        return len(self.starts) - 1

    def _item(self, k: int) -> IntArray:
        return self.nodes[self.starts[k] : self.starts[k + 1]]

    @classmethod
    def gather(cls, patches: Iterable[object]) -> NodeSets:
        """Return the nodes of arrays of nodes, Patches or (nodes, coordinates) pairs, each set in ascending order."""
        if isinstance(patches, cls):
            return patches
        sets = [_unique(k, patch) for k, patch in enumerate(patches)]
        starts = np.concatenate([[0], np.cumsum([len(nodes) for nodes in sets])]).astype(np.int64)
        return cls(np.concatenate([*sets, np.empty(0, dtype=np.int64)]), starts)


def _unique(k: int, patch: object) -> Int64Array:
    given = getattr(patch, "nodes", patch[0] if isinstance(patch, tuple) else patch)
    refuse_masked(where=f"patch {k}: ", nodes=given)
    ids = np.asarray(given)
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise InputError(f"patch {k} must be a vector of integer node ids, not {ids.dtype} of shape {ids.shape}.")
    if len(ids) and int(ids.max()) >= 2**63:
        raise InputError(f"patch {k} holds the node id {int(ids.max())}; ids must be below 2**63.")
    nodes = np.unique(ids).astype(np.int64)
    if len(nodes) == 0:
        raise CoverError(f"patch {k} has no nodes; leave it out.")
    if len(nodes) < len(ids):
        raise InputError(f"patch {k} names {len(ids) - len(nodes)} nodes twice; name each once.")
    if nodes[0] < 0:
        raise InputError(f"patch {k} holds the negative node id {nodes[0]}.")
    return nodes
