"""The walk between far clusters: averages over each cluster before every step, and the main directions of features."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float32Array, Int64Array
from graphquilt.embedders.directions import Basis, leading, orthonormal
from graphquilt.embedders.signals import (
    ROWS,
    WALK_RESTART,
    WALK_STEPS,
    inverse_lengths,
    times,
    transposed_times,
)
from graphquilt.embedders.walks import Walk
from graphquilt.graph import Graph
from graphquilt.graph.structure import Features
from graphquilt.patches import CoarseGraph

__all__ = ["FarTables", "FeatureBasis", "NearlySpread", "feature_basis", "probes"]

PROBES = 64  # random directions that lengths of rows are estimated by
RANDOM_SEED = 20_261_116  # of probes and first blocks, the same for all graphs
ROUNDS, GROWTH = 3, 0.01  # rounds that look for a basis, which end when one adds less than this share


class FarTables:
    """The walk between the far clusters of an undirected graph.

    The average over a cluster weighs each node by its degree, because an edge leads to a node in proportion to its
    degree. Such averages follow the random walk on the graph between clusters.
    """

    def __init__(self, coarse: CoarseGraph, degree: Float32Array, loop: Float32Array) -> None:
        self.coarse, self.clusters, self.k = coarse, np.asarray(coarse.clusters), coarse.k
        self.degree = degree.astype(np.float64)
        self.linked = degree > loop  # no edge leads to other nodes, so they are in no average
        loops = np.bincount(self.clusters, weights=loop * self.linked, minlength=self.k)
        between = sp.csr_array(coarse.between + sp.diags_array(loops))
        volume = np.asarray(between.sum(axis=1), dtype=np.float64).ravel()
        self.volume = np.where(volume > 0, volume, 1.0)
        inside = (between.indptr.astype(np.int64), between.indices, between.data.astype(np.float32))
        none = (np.zeros(self.k + 1, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32))
        scale = ((1 / self.volume).astype(np.float32), np.zeros(self.k, dtype=np.float32))
        self.walk = Walk(inside, none, scale, np.empty(0, dtype=np.int32))

    def of_columns(self, column: AnyArray, count: int, block: int) -> AnyArray:
        """Return the tables of memberships in ``count`` columns before each step, float16 (steps + 1, k, count)."""
        known = np.flatnonzero(column >= 0)
        entries = (self.degree[known], (self.clusters[known], column[known]))
        M = sp.csr_array(entries, shape=(self.k, count)).toarray() / self.volume[:, None]
        return self._tables(M.astype(np.float32), WALK_RESTART, WALK_STEPS, block, np.float16)

    def of_features(self, M: Features, basis: AnyArray | None, *, restart: float, steps: int, block: int) -> AnyArray:
        """Return the tables of features with averages M, reduced by ``basis``, before each step, (steps + 1, k, r)."""
        M = _dense(M) if basis is None else times(M, np.asarray(basis, dtype=np.float32))
        return self._tables(M, restart, steps, block, np.float32)

    def averages(self, X: Features, scale: Float32Array) -> Features:
        """Return the averages of D^-1/2 X over far clusters, weighted by degree, (k, w), dense or sparse as X is.

        Each row of X is multiplied by its ``scale``.
        """
        n = X.shape[0]
        weight = (np.sqrt(self.degree) / self.volume[self.clusters] * scale * self.linked).astype(np.float32)
        if isinstance(X, sp.csr_array):
            return sp.csr_array(self._members(weight, 0, n) @ X).astype(np.float32)
        total = np.zeros((self.k, X.shape[1]), dtype=np.float32)
        for a in range(0, n, ROWS):
            rows = X[a : a + ROWS].astype(np.float32)
            total += self._members(weight, a, a + len(rows)) @ rows
        return total

    def _members(self, weight: Float32Array, first: int, last: int) -> sp.csr_array:
        """Return the weights of the nodes first..last-1 in their clusters, (k, last - first)."""
        entries = (weight[first:last], (self.clusters[first:last], np.arange(last - first)))
        return sp.csr_array(entries, shape=(self.k, last - first))

    def _tables(self, M: Float32Array, restart: float, steps: int, block: int, kind: type) -> AnyArray:
        tables = np.empty((steps + 1, *M.shape), dtype=kind)
        tables[0] = M
        for a in range(0, M.shape[1], block):
            part = np.ascontiguousarray(M[:, a : a + block])
            for i, H in enumerate(self.walk.of_values(part, None, restart=restart, steps=steps), 1):
                tables[i, :, a : a + block] = H
        return tables


def _dense(rows: Features) -> Float32Array:
    return np.asarray(rows.toarray() if isinstance(rows, sp.csr_array) else rows, dtype=np.float32)


@functools.lru_cache(maxsize=2)
def probes(width: int, count: int) -> Float32Array:
    """Return directions R (width, k), the same for all graphs, with |R'h|² = |h|²: all, or random ones on average."""
    if width <= count:
        return np.eye(width, dtype=np.float32)
    rng = np.random.default_rng(RANDOM_SEED)
    return rng.standard_normal((width, count), dtype=np.float32) / np.float32(np.sqrt(count))


class NearlySpread:
    """The features of some nodes, raw and spread, by their products; spread ones are one step from far averages."""

    def __init__(self, graph: Graph, rows: Int64Array, scale: Float32Array, far: FarTables, averages: Features) -> None:
        assert graph.features is not None
        self.far, self.averages = far, averages
        chosen = graph.features[rows].astype(np.float32)
        self.X = (
            sp.csr_array(sp.diags_array(scale[rows]) @ chosen) if sp.issparse(chosen) else chosen * scale[rows, None]
        )
        counts, starts = np.diff(graph.indptr)[rows], graph.indptr[rows]
        entries = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        strengths = np.ones(len(entries)) if graph.weights is None else graph.weights[entries]
        ends = np.concatenate([[0], np.cumsum(counts)])
        out = sp.csr_array((strengths, far.clusters[graph.indices[entries]], ends), shape=(len(rows), far.k))
        loops = far.degree[rows] - np.asarray(out.sum(axis=1)).ravel()
        own = sp.csr_array((loops, (np.arange(len(rows)), far.clusters[rows])), shape=out.shape)
        root = 1 / np.sqrt(far.degree[rows])
        self.out = sp.csr_array(sp.diags_array(root) @ sp.csr_array(out + own)).astype(np.float32)

    def times(self, V: Float32Array, *, restart: float, steps: int) -> Float32Array:
        """Return H V."""
        M = self._walked(times(self.averages, V), restart, steps - 1)
        return np.asarray(restart * times(self.X, V) + (1 - restart) * (self.out @ M), dtype=np.float32)

    def transposed_times(self, Y: Float32Array, *, restart: float, steps: int) -> Float32Array:
        """Return H' Y."""
        N = (1 - restart) * (self.out.T @ Y)
        # With the walk Q = C^-1 W, where W is symmetric, Q' N = W C^-1 N = C Q (C^-1 N).
        volume = self.far.volume[:, None].astype(np.float32)
        M = self._walked(np.asarray(N / volume, dtype=np.float32), restart, steps - 1)
        return np.asarray(restart * transposed_times(self.X, Y) + transposed_times(self.averages, M * volume))

    def _walked(self, start: Float32Array, restart: float, steps: int) -> Float32Array:
        M = start
        for M in self.far.walk.of_values(start, None, restart=restart, steps=steps):  # noqa: B007
            pass
        return M


@dataclass(frozen=True, eq=False)
class FeatureBasis:
    """The main directions (w, r) of features; the share of the spread features that some of them keep; and how settled.

    ``growth`` is the share that the last round added to what the leading directions keep.
    """

    directions: Float32Array
    share: float
    growth: float


def feature_basis(
    signal: NearlySpread, count: int, dim: int, *, measured: int, restart: float, steps: int
) -> FeatureBasis:
    """Return the ``count`` main directions of raw and spread features, from rounds that settle ``dim`` of them.

    The share is that of the spread features, with unit rows, that their ``measured`` main directions keep. A spread row
    is approximated by one step from the averages over far clusters, so the rounds need products with the features of
    these nodes and of the clusters only.
    """
    steps, width = max(steps, 1), int(signal.X.shape[1])
    V, growth = probes(width, count), 0.0
    spread = signal.times(V, restart=restart, steps=steps)
    length = inverse_lengths(np.square(spread).sum(axis=1))[:, None]

    def product(V: Float32Array) -> Float32Array:
        rows = signal.times(V, restart=restart, steps=steps) * np.square(length)
        spread = signal.transposed_times(rows, restart=restart, steps=steps)
        return spread + transposed_times(signal.X, times(signal.X, V))

    if width > count:
        basis = Basis.solve(product, orthonormal(product(V)), dim, growth=GROWTH, rounds=ROUNDS)
        V, growth = basis.directions(count), basis.growth
        spread = signal.times(V, restart=restart, steps=steps)
    spread *= length
    values, _ = leading((spread.T @ spread).astype(np.float64), measured)
    return FeatureBasis(V, float(min(values.sum() / max(np.count_nonzero(length), 1), 1.0)), growth)
