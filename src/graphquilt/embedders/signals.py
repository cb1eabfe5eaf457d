"""The signals that are spread over a graph, in blocks of columns: its features, or memberships in clusters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float32Array, Float64Array, Int64Array, IntArray
from graphquilt.embedders.propagation_kernels import mark_neighbours, membership_step, propagation_step
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.partition import Fennel, Metis

__all__ = [
    "Signal",
    "Survey",
    "cluster_signal",
    "clusters_of",
    "estimated",
    "feature_signal",
    "feature_width",
    "inverse_lengths",
]

WIDEST = 2000  # features with more columns than this are projected
PROJECTED = 1024  # to this many
PROBES = 64  # random directions that lengths of rows are estimated by
RANDOM_SEED = 20_261_116  # of projection and probes, the same for all graphs
WALK_RESTART = 0.15  # of the walk that starts at a node and ends in a cluster
WALK_STEPS = 5
SMALLEST = 4  # nodes per cluster, at least, on average
METIS_ENTRIES = 4_000_000  # larger graphs are clustered by Fennel, which reads them as a stream
ROWS = 8192  # of features that are read at once

Survey: TypeAlias = Mapping[str, AnyArray]


@dataclass(frozen=True, eq=False)
class Walk:
    """H ← restart · X + (1 - restart) · S H, one step for each entry of ``rows`` from H = X, with S = L (A + loops) R.

    After k steps H is Σ_{i<k} a(1-a)^i S^i X + (1-a)^k S^k X, where a is the restart probability.
    """

    csr: tuple[IntArray, IntArray, AnyArray]
    scale: tuple[Float32Array, Float32Array, Float32Array]  # the diagonals of L, R and the loops
    restart: float
    rows: Sequence[Int64Array]  # the rows that each step computes: the last those that are wanted

    def of_values(self, X: Float32Array) -> Float32Array:
        """Return H for the signal X (n, b); only the wanted rows are right."""
        H, spare = X, np.empty_like(X)
        for step, rows in enumerate(self.rows):
            propagation_step(self.csr, self.scale, self.restart, rows, X, H, spare)
            H, spare = spare, H if step else np.empty_like(X)
        return H

    def of_memberships(self, cluster: IntArray, first: int, last: int) -> Float32Array:
        """Return H for the signal that is 1 in the column of each node's cluster, the columns from first to last."""
        inside = np.flatnonzero((cluster >= first) & (cluster < last))
        columns = cluster[inside] - first
        H = np.zeros((len(cluster), last - first), dtype=np.float32)
        membership_step(self.csr, self.scale, self.restart, self.rows[0], cluster, first, H)
        H[inside, columns] += self.restart
        # Zeros, because the restart is also added to rows that a step does not compute.
        spare, nothing = np.zeros_like(H), np.empty((0, 0), dtype=np.float32)
        for rows in self.rows[1:]:
            propagation_step(self.csr, self.scale, self.restart, rows, nothing, H, spare)
            spare[inside, columns] += self.restart
            H, spare = spare, H
        return H


@dataclass(frozen=True, eq=False)
class Signal:
    """The ``n_rows`` wanted rows of a signal with ``width`` columns, computed in blocks of columns.

    ``block(first, last)`` has the columns ``columns[first:last]``; all other columns are zero. A signal H that is
    linear in what was spread also has ``spread``, which returns H V for directions V (width, b) and spreads only b
    columns.
    """

    n_rows: int
    width: int
    columns: IntArray
    block: Callable[[int, int], Float32Array]
    spread: Callable[[Float32Array], Float32Array] | None = None
    squares: Float32Array | None = None  # the squared lengths of the rows, once they are known
    probes: Float32Array | None = None  # (width, k) directions that they are estimated by


def estimated(signal: Signal, dim: int) -> Signal:
    """Return a signal whose rows are measured by random probes, where that spreads fewer columns along with ``dim``."""
    if signal.spread is None or signal.width <= dim + PROBES:
        return signal
    return replace(signal, probes=_gaussian(signal.width, PROBES))


def needed_rows(graph: Graph, rows: Int64Array, steps: int) -> list[Int64Array]:
    """Return the rows that each of so many steps must compute, so that the last one can compute ``rows``."""
    needed = [rows]
    while len(needed) < steps:
        rows = needed[0]
        if len(rows) < graph.n_nodes:
            marked = np.zeros(graph.n_nodes, dtype=bool)
            mark_neighbours(graph.indptr, graph.indices, rows, marked)
            rows = np.flatnonzero(marked)
        needed.insert(0, rows)
    return needed[:steps]


def _degrees(graph: Graph) -> tuple[Float32Array, Float32Array]:
    """Return the weighted degree of each node with its loop, and the loop alone, (n,) each.

    A loop weighs as much as the node's mean edge, so that the unit of the weights does not matter: 1 without weights.
    """
    counts = graph.degrees
    if graph.weights is None:
        return (counts + 1).astype(np.float32), np.ones(graph.n_nodes, dtype=np.float32)
    rows = np.repeat(np.arange(graph.n_nodes), counts)
    total = np.bincount(rows, weights=graph.weights, minlength=graph.n_nodes)
    loop = np.where(counts > 0, total / np.maximum(counts, 1), 1.0)
    return (total + loop).astype(np.float32), loop.astype(np.float32)


def _walk(graph: Graph, rows: Int64Array, *, symmetric: bool, restart: float, steps: int) -> Walk:
    """Return the walk by D^-1/2 (A + I) D^-1/2, or by D^-1 (A + I), that ends in ``rows``."""
    degree, loop = _degrees(graph)
    weights = np.empty(0, np.float32) if graph.weights is None else np.asarray(graph.weights, dtype=np.float32)
    right = (degree ** (-0.5 if symmetric else 0.0)).astype(np.float32)
    left = (1 / (degree * right)).astype(np.float32)
    csr = (graph.indptr, graph.indices, weights)
    return Walk(csr, (left, right, loop), restart, needed_rows(graph, rows, steps))


def feature_width(graph: Graph) -> int:
    """Return the number of columns of the signal that the features give; 0 where there are none."""
    width = 0 if graph.features is None else graph.features.shape[1]
    return PROJECTED if width > WIDEST else width


def feature_signal(graph: Graph, rows: Int64Array, *, restart: float, steps: int) -> Signal:
    """Return these rows of the propagated features, whose rows are given unit length first.

    Wide features go through a random projection with a fixed seed, the same for all graphs.
    """
    assert graph.features is not None
    X = graph.features
    scale = inverse_lengths(_squares(X))
    walk = _walk(graph, rows, symmetric=True, restart=restart, steps=steps)
    projection = _gaussian(X.shape[1], PROJECTED) if X.shape[1] > WIDEST else None
    columns = _column_blocks(X)

    def walked(H: Float32Array) -> Float32Array:
        H *= scale[:, None]
        return _only(walk.of_values(H), rows)

    def block(first: int, last: int) -> Float32Array:
        if projection is None:
            return walked(columns(first, last))
        return walked(_times(X, projection[:, first:last]))

    def spread(V: Float32Array) -> Float32Array:
        return walked(_times(X, V if projection is None else projection @ V))

    width = feature_width(graph)
    return Signal(len(rows), width, np.arange(width), block, spread)


def _column_blocks(X: AnyArray | sp.csr_array) -> Callable[[int, int], Float32Array]:
    """Return a function that gives the dense columns of X from ``first`` to ``last``, float32."""
    if not isinstance(X, sp.csr_array):
        return lambda first, last: np.array(X[:, first:last], dtype=np.float32)
    by_column: list[sp.csc_array] = []

    def columns(first: int, last: int) -> Float32Array:
        if not by_column:  # sorted by columns once, when the first of them are wanted
            by_column.append(sp.csc_array(X, dtype=np.float32))
        return np.ascontiguousarray(by_column[0][:, first:last].toarray())

    return columns


def _times(X: AnyArray | sp.csr_array, V: Float32Array) -> Float32Array:
    """Return X V, float32; a dense X, which may be a file, is read a few rows at a time."""
    if isinstance(X, sp.csr_array):
        return np.asarray(X.astype(np.float32, copy=False) @ V)
    H = np.empty((X.shape[0], V.shape[1]), dtype=np.float32)
    for a in range(0, X.shape[0], ROWS):
        H[a : a + ROWS] = X[a : a + ROWS].astype(np.float32, copy=False) @ V
    return H


def _only(H: Float32Array, rows: Int64Array) -> Float32Array:
    """Return these rows of H, without a copy where they are the first ones."""
    return H[: len(rows)] if len(rows) == 0 or rows[-1] == len(rows) - 1 else H[rows]


@functools.lru_cache(maxsize=2)
def _gaussian(width: int, count: int) -> Float32Array:
    """Return random directions R (width, count), the same for all graphs, with E |R'h|² = |h|²."""
    rng = np.random.default_rng(RANDOM_SEED)
    return rng.standard_normal((width, count), dtype=np.float32) / np.float32(np.sqrt(count))


def inverse_lengths(squares: AnyArray) -> Float32Array:
    """Return 1 / sqrt of each entry, and 0 where that is 0: rows of zeros stay zero."""
    positive = squares > 0
    return np.where(positive, 1 / np.sqrt(np.where(positive, squares, 1)), 0).astype(np.float32)


def _squares(X: AnyArray | sp.csr_array) -> Float64Array:
    """Return the squared length of each row; refuse values that are not finite."""
    squares = np.empty(X.shape[0])
    for a in range(0, X.shape[0], ROWS):
        part = X[a : a + ROWS].astype(np.float64)
        if isinstance(part, sp.csr_array):
            squares[a : a + ROWS] = np.asarray(part.multiply(part).sum(axis=1)).ravel()
        else:
            squares[a : a + ROWS] = np.einsum("ij,ij->i", part, part)
    bad = np.flatnonzero(~np.isfinite(squares))
    if len(bad):
        raise InputError(
            f"the features of {len(bad)} of {len(squares)} nodes are not finite, the first is node {bad[0]}; "
            "replace those values, for example by the mean of their column."
        )
    return squares


def clusters_of(graph: Graph, n_clusters: int) -> tuple[AnyArray, Float32Array]:
    """Return the cluster of each node, int32 (n,), and the share of the nodes that are in it, float32 (n,).

    Nodes without edges are in no cluster, which is -1, and do not count.
    """
    linked = np.flatnonzero(graph.degrees > 0)
    cluster = np.full(graph.n_nodes, -1, dtype=np.int32)
    share = np.ones(graph.n_nodes, dtype=np.float32)
    if len(linked):
        count = max(min(n_clusters, len(linked) // SMALLEST), 1)
        if graph.n_edges > METIS_ENTRIES:  # perhaps on disk: no part of it is copied
            labels = Fennel(count)(graph)[linked]
        else:
            labels = Metis(count)(graph if len(linked) == graph.n_nodes else graph.subgraph(linked))
        cluster[linked] = labels
        share[linked] = (np.bincount(labels) / len(linked))[labels]
    return cluster, share


def cluster_signal(graph: Graph, rows: Int64Array, survey: Survey, n_clusters: int) -> Signal:
    """Return log(1 + P / share), where P is how often a walk from one of ``rows`` ends in each cluster of the survey.

    Only clusters that some node of this graph is in have columns.
    """
    cluster, share = (np.asarray(survey.get(name, ())) for name in ("cluster", "share"))
    shape = (graph.n_nodes,)
    if (cluster.shape, share.shape, cluster.dtype.kind, share.dtype.kind) != (shape, shape, "i", "f"):
        raise InputError(
            f"the survey has clusters {cluster.dtype} {cluster.shape} and shares {share.dtype} {share.shape}; for "
            f"{graph.n_nodes} nodes both have that many entries, whole numbers and floats."
        )
    known = np.flatnonzero(cluster >= 0)
    if len(known) and cluster.max() >= n_clusters:
        raise InputError(
            f"the survey has cluster {cluster.max()}, and the embedder has {n_clusters} clusters; use the survey of "
            "an embedder with the same number."
        )
    if not bool(((share[known] > 0) & (share[known] <= 1)).all()):
        raise InputError("the survey has shares of clusters that do not lie between 0 and 1; make the survey again.")
    walk = _walk(graph, rows, symmetric=False, restart=WALK_RESTART, steps=WALK_STEPS)
    gain = np.zeros(n_clusters, dtype=np.float32)
    gain[cluster[known]] = 1 / share.astype(np.float32)[known]
    present = np.unique(cluster[known])
    number = np.full(n_clusters + 1, -1, dtype=np.int32)  # the last entry is that of nodes in no cluster
    number[present] = np.arange(len(present), dtype=np.int32)
    column = number[cluster]

    def block(first: int, last: int) -> Float32Array:
        H = _only(walk.of_memberships(column, first, last), rows)
        H *= gain[present[first:last]]
        return np.log1p(H, out=H)

    return Signal(len(rows), n_clusters, present, block)
