"""Patch: some nodes, and the coordinates that an embedding gives them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graphquilt.arrays import AnyArray, FloatArray, IntArray, refuse_masked
from graphquilt.errors import InputError

__all__ = ["Patch"]


@dataclass(frozen=True, eq=False)
class Patch:
    """Some nodes and their coordinates.

    A plain ``(nodes, coordinates)`` pair is accepted wherever a Patch is, and a Patch unpacks like one.

    Attributes
    ----------
    nodes : int array (k,)
        Unique, not negative, below 2**63, in any order.
    coordinates : float array (k, d)
        Finite; row r belongs to ``nodes[r]``. Arrays and memory maps of a float type of up to 64 bits stay as
        they are, and others become float64.

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
        if not np.issubdtype(nodes.dtype, np.integer):
            raise InputError(f"node ids must be integers, not {nodes.dtype}; map other ids to 0..n-1 first.")
        if not np.issubdtype(X.dtype, np.floating):
            if not np.issubdtype(X.dtype, np.integer):
                raise InputError(f"coordinates must be real numbers, not {X.dtype}.")
            X = X.astype(np.float64)
        if X.dtype.itemsize > 8:
            with np.errstate(over="ignore"):  # what a double cannot hold becomes infinite, and is refused below
                X = X.astype(np.float64)
        ascending = bool((nodes[1:] > nodes[:-1]).all())  # then the ids are unique, and the largest is the last
        if int(nodes[-1] if ascending else nodes.max()) >= 2**63:
            raise InputError(f"node ids must be below 2**63; found {int(nodes.max())}. Number the nodes 0..n-1.")
        if nodes.dtype.itemsize == 8:
            nodes = nodes.astype(np.int64, copy=False)  # unsigned and signed ids together would become floats
        if int(nodes[0] if ascending else nodes.min()) < 0:
            raise InputError(f"node ids must not be negative; found {int(nodes.min())}.")
        if not ascending:
            _refuse_repeated(nodes)
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


def _refuse_repeated(nodes: IntArray) -> None:
    ids, counts = np.unique(nodes, return_counts=True)
    if len(ids) < len(nodes):
        twice = ids[counts > 1]
        raise InputError(
            f"{len(twice)} node ids occur more than once, the first is {int(twice[0])}; keep one row per node."
        )
