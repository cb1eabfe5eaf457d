"""The signals that are spread over a graph, in blocks of columns: its features, or memberships in clusters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float32Array, Float64Array, Int64Array, IntArray
from graphquilt.embedders.propagation_kernels import mark_neighbours, membership_step, propagation_step
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.patches import Fennel, Metis

__all__ = [
    "Signal",
    "Survey",
    "cluster_signal",
    "clusters_of",
    "feature_signal",
    "feature_width",
    "inverse_lengths",
]

WALK_RESTART = 0.15  # of the walk that starts at a node and ends in a cluster
WALK_STEPS = 8
SMALLEST = 4  # nodes per cluster, at least, on average
METIS_ENTRIES = 4_000_000  # larger graphs are clustered by Fennel, which reads them as a stream,
PASSES = 10  # at most so often: where communities are small, two passes hardly find them
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
        spare, nothing = np.zeros(H.shape, dtype=np.float32), np.empty((0, 0), dtype=np.float32)
        for rows in self.rows[1:]:
            propagation_step(self.csr, self.scale, self.restart, rows, nothing, H, spare)
            spare[inside, columns] += self.restart
            H, spare = spare, H
        return H


@dataclass(frozen=True, eq=False)
class Signal:
    """The ``n_rows`` wanted rows of a signal with ``width`` columns, computed in blocks of columns.

    ``block(first, last)`` has the columns ``columns[first:last]``; all other columns are zero. A signal H that is
    linear in what was spread also has ``spread``, which returns H V for directions V (width, b), and ``gather``, which
    returns H' Y (width, b) for Y (n_rows, b); both spread only b columns.
    """

    n_rows: int
    width: int
    columns: IntArray
    block: Callable[[int, int], Float32Array]
    spread: Callable[[Float32Array], Float32Array] | None = None
    gather: Callable[[Float32Array], Float32Array] | None = None


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
    """Return the number of features; 0 where there are none."""
    return 0 if graph.features is None else int(graph.features.shape[1])


def feature_signal(graph: Graph, rows: Int64Array, *, restart: float, steps: int) -> Signal:
    """Return these rows of the propagated features, whose rows are given unit length first."""
    assert graph.features is not None
    X, width = graph.features, feature_width(graph)
    scale = inverse_lengths(_squares(X))[:, None]
    walk = functools.partial(_walk, graph, symmetric=True, restart=restart, steps=steps)
    to_rows = walk(rows)

    def spread(V: Float32Array) -> Float32Array:
        H = _times(X, V)
        H *= scale
        return _only(to_rows.of_values(H), rows)

    def gather(Y: Float32Array) -> Float32Array:
        F = np.zeros((graph.n_nodes, Y.shape[1]), dtype=np.float32)
        F[rows] = Y
        F = walk(np.arange(graph.n_nodes)).of_values(F)  # the walk is its own transpose
        F *= scale
        return _transposed_times(X, F)

    def block(first: int, last: int) -> Float32Array:
        return spread(np.eye(width, last - first, -first, dtype=np.float32))

    return Signal(len(rows), width, np.arange(width), block, spread, gather)


def _times(X: AnyArray | sp.csr_array, V: Float32Array) -> Float32Array:
    """Return X V, float32; a dense X, which may be a file, is read a few rows at a time."""
    if isinstance(X, sp.csr_array):
        return np.asarray(X.astype(np.float32, copy=False) @ V)
    H = np.empty((X.shape[0], V.shape[1]), dtype=np.float32)
    for a in range(0, X.shape[0], ROWS):
        H[a : a + ROWS] = X[a : a + ROWS].astype(np.float32, copy=False) @ V
    return H


def _transposed_times(X: AnyArray | sp.csr_array, F: Float32Array) -> Float32Array:
    """Return X' F, float32, in the same way."""
    if isinstance(X, sp.csr_array):
        return np.asarray(X.astype(np.float32, copy=False).T @ F)
    product = np.zeros((X.shape[1], F.shape[1]), dtype=np.float32)
    for a in range(0, X.shape[0], ROWS):
        product += X[a : a + ROWS].astype(np.float32, copy=False).T @ F[a : a + ROWS]
    return product


def _only(H: Float32Array, rows: Int64Array) -> Float32Array:
    """Return these rows of H, without a copy where they are the first ones."""
    return H[: len(rows)] if len(rows) == 0 or rows[-1] == len(rows) - 1 else H[rows]


def inverse_lengths(squares: AnyArray) -> Float32Array:
    """Return 1 / sqrt of each entry, and 0 where that is 0: rows of zeros stay zero."""
    positive = squares > 0
    return np.where(positive, 1 / np.sqrt(np.where(positive, squares, 1)), 0).astype(np.float32)


def _squares(X: AnyArray | sp.csr_array) -> Float64Array:
    """Return the squared length of each row; refuse values that are not finite."""
    squares = np.zeros(X.shape[0])
    if isinstance(X, sp.csr_array):
        filled = np.flatnonzero(np.diff(X.indptr))
        if len(filled):
            squares[filled] = np.add.reduceat(np.square(X.data, dtype=np.float64), X.indptr[filled])
    else:
        for a in range(0, X.shape[0], ROWS):
            part = X[a : a + ROWS].astype(np.float64)
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
            labels = Fennel(count, passes=PASSES)(graph)[linked]
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
