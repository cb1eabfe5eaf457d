"""Random walks with restart in a patch: exact inside, and on average outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from graphquilt.arrays import AnyArray, Float32Array
from graphquilt.embedders.shared_start import FarField
from graphquilt.graph import Graph

__all__ = ["Walk", "degrees_with_loops", "walk_in"]

Table: TypeAlias = Callable[[int], Float32Array]
_NOTHING = np.empty((0, 0), dtype=np.float32)
_NO_COLUMNS = np.empty(0, dtype=np.int32)


def degrees_with_loops(graph: Graph) -> tuple[Float32Array, Float32Array]:
    """Return the weighted degree of each node with its loop, and the loop alone, (n,) each.

    A loop weighs as much as the node's mean edge, so that the unit of the weights does not matter: 1 without weights.
    """
    counts = graph.degrees
    if graph.weights is None:
        return (counts + 1).astype(np.float32), np.ones(graph.n_nodes, dtype=np.float32)
    ends = np.concatenate([[0.0], np.cumsum(graph.weights, dtype=np.float64)])
    total = ends[graph.indptr[1:]] - ends[graph.indptr[:-1]]
    loop = np.where(counts > 0, total / np.maximum(counts, 1), 1.0)
    return (total + loop).astype(np.float32), loop.astype(np.float32)


@dataclass(frozen=True, eq=False)
class Walk:
    """H ← a X + (1 - a) D^-1 ((A + loops) H + B T): a walk from the nodes of a patch, which B leads out of it.

    ``needed`` numbers the far clusters that the patch has edges to, and B refers to these.
    """

    inside: tuple[AnyArray, AnyArray, AnyArray]
    outside: tuple[AnyArray, AnyArray, AnyArray]
    scale: tuple[Float32Array, Float32Array]  # 1 / D, loops
    needed: AnyArray

    @property
    def n_nodes(self) -> int:
        """The number of nodes of the patch."""
        return len(self.scale[0])

    @property
    def leaving(self) -> Float32Array:
        """The share of each step that leaves the patch, (n,), known by the degrees in the whole graph."""
        indptr, _, weights = self.inside
        inside = np.diff(indptr).astype(np.float64)
        if len(weights):
            ends = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)])
            inside = ends[indptr[1:]] - ends[indptr[:-1]]
        inverse, loops = self.scale
        return np.clip(1 - (inside + loops) * inverse, 0, 1).astype(np.float32)

    def of_values(self, X: Float32Array, table: Table | None, *, restart: float, steps: int) -> Iterator[Float32Array]:
        """Yield H after each step of a walk that begins with H = X; the arrays are written over later.

        ``table(i)`` (k, b) is the average over each needed cluster before step i; None where nothing is known outside.
        """
        yield from self._steps(np.array(X), table, (restart, X, _NO_COLUMNS, 0), steps)

    def of_columns(
        self, columns: AnyArray, begin: int, end: int, table: Table | None, *, restart: float, steps: int
    ) -> Float32Array:
        """Return H for the signal that has a 1 in one column of each row, the columns from begin to end."""
        H = np.zeros((self.n_nodes, end - begin), dtype=np.float32)
        inside = np.flatnonzero((columns >= begin) & (columns < end))
        H[inside, columns[inside] - begin] = 1
        for H in self._steps(H, table, (restart, _NOTHING, columns, begin), steps):  # noqa: B007, B020
            pass
        return H

    def _steps(
        self, H: Float32Array, table: Table | None, restart: tuple[float, AnyArray, AnyArray, int], steps: int
    ) -> Iterator[Float32Array]:
        from graphquilt.embedders.walk_kernels import walk_step

        out = np.empty_like(H)
        nothing = np.empty((0, H.shape[1]), dtype=np.float32)
        for i in range(steps):
            averages = nothing if table is None else table(i)
            walk_step(self.inside, self.outside, self.scale, restart, averages, H, out)
            H, out = out, H
            yield H


def walk_in(graph: Graph, far: FarField | None, *, tables: bool) -> Walk:
    """Return the walk in an undirected patch; without tables it ends where it would leave."""
    if far is not None and "degree" in far.nodes:
        degree, loop = (np.asarray(far.nodes[name], dtype=np.float32) for name in ("degree", "loop"))
    else:
        degree, loop = degrees_with_loops(graph)
    weights = np.empty(0, np.float32) if graph.weights is None else np.asarray(graph.weights, dtype=np.float32)
    indptr = np.zeros(graph.n_nodes + 1, dtype=np.int64)
    needed: AnyArray = np.empty(0, dtype=np.int64)
    outside = (indptr, np.empty(0, dtype=np.int32), np.empty(0, np.float32))
    if far is not None and tables:
        present = np.bincount(far.clusters) > 0
        needed = np.flatnonzero(present)
        places = (np.cumsum(present) - 1)[far.clusters]
        strengths = np.empty(0, np.float32) if far.weights is None else np.asarray(far.weights, dtype=np.float32)
        outside = (np.asarray(far.indptr), places.astype(np.int32), strengths)
    csr = (np.asarray(graph.indptr), np.asarray(graph.indices), weights)
    return Walk(csr, outside, ((1 / degree).astype(np.float32), loop), needed)
