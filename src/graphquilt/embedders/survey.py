"""The survey of a whole graph for Propagation: memberships, roles, the walk between far clusters, wide features."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, BoolArray, Float32Array, Float64Array, Int64Array
from graphquilt.embedders.directions import Basis, grid_product, leading, orthonormal
from graphquilt.embedders.shared_start import Arrays, Survey, check_clusters
from graphquilt.embedders.signals import (
    FEATURE_PARTS,
    NODES,
    ROWS,
    check_features,
    feature_width,
    inverse_lengths,
    role_rows,
    row_scale,
    times,
    transposed_times,
)
from graphquilt.embedders.walks import WALK_RESTART, WALK_STEPS, Walk, degrees_with_loops, walk_in
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.graph.structure import Features
from graphquilt.patches import (
    CoarseGraph,
    coarse_graph,
    default_partitioner,
    fine_clusters,
    is_large,
    join_neighbours,
    merge_clusters,
)

if TYPE_CHECKING:
    from graphquilt.embedders.propagation import Propagation

FEWEST, USUAL = 256, 1000  # columns of memberships, unless the embedder sets their number
CLUSTER = 50  # nodes per column in larger graphs, which have more than usual,
ENTRIES = 2 * 10**8  # as long as the memberships have no more entries than this
SMALLEST = 4  # nodes per column, at least, on average
DIRECTIONS = 128  # whose share of the features tells how much these say
BASIS_ROWS = 8192  # nodes that decide the main directions of wide features in larger graphs
PROBES = 64  # random directions that lengths of rows are estimated by
RANDOM_SEED = 20_261_116  # of probes and first blocks, the same for all graphs
KEPT = 1 << 31  # bytes: rows of a graph with a far field up to this size are kept between sum and embedding
ROUNDS, GROWTH = 3, 0.01  # rounds that look for a basis, which end when one adds less than this share


def survey_graph(
    embedder: Propagation,
    graph: Graph,
    clusters: CoarseGraph | None,
    *,
    cut: bool,
    members: tuple[Graph, CoarseGraph | None] | None = None,
) -> Survey:
    """Return what patches need to know of an undirected graph; see :meth:`Propagation.survey`.

    ``members`` is the graph of n nodes, with its far clusters, whose double cover this one is: memberships are in its
    clusters.
    """
    width = feature_width(graph)
    weights = embedder.signal.weights(features=width > 0, share=0.0)  # of all parts that may be needed
    has_features = any(part in weights for part in FEATURE_PARTS)
    if graph.n_nodes > 1 and not width and not len(graph.indices):
        raise InputError(f"the {graph.n_nodes} nodes have neither edges nor features, so nothing tells them apart.")
    if has_features:
        check_features(graph)
    if clusters is not None:
        check_clusters(clusters, graph)
    degree, loop = degrees_with_loops(graph)
    nodes: dict[str, AnyArray] = {"degree": degree, "loop": loop, "sampled": in_sample(graph.n_nodes, embedder.sample)}
    shared: dict[str, AnyArray] = {}
    far = clusters
    if far is None and ((has_features and width > DIRECTIONS) or is_large(graph)):
        far = coarse_graph(graph, fine_clusters(graph))
    if clusters is not None and (cut or is_large(graph)):  # which also give the order in which nodes are walked
        nodes["cluster"] = clusters.clusters
    tables = None if far is None else FarTables(far, degree, loop)
    if "role" in weights and len(graph.indices):
        nodes["role"], shared["role"] = role_rows(graph)
    if "clusters" in weights:
        column, share = _columns(embedder, *((graph, far) if members is None else members))
        nodes["column"], shared["gain"] = column, (1 / share).astype(np.float32)
        if cut and tables is not None:
            both = column if members is None else np.concatenate([column, column])
            M, block = tables.memberships(both, len(share)), embedder.block
            shared["column_tables"] = tables.tables(M, np.float16, restart=WALK_RESTART, steps=WALK_STEPS, block=block)
    if has_features and tables is not None:
        shared |= _feature_arrays(embedder, graph, tables, cut=cut)
    tabled = {"column_tables": 1, "feature_tables": len(FEATURE_PARTS)}  # and the parts that each is for
    columns = sum(parts * shared[name].shape[-1] for name, parts in tabled.items() if name in shared)
    if cut and 2 * graph.n_nodes * columns > KEPT:  # patches would be walked twice
        shared["sample"] = np.flatnonzero(nodes["sampled"])
    return Survey(nodes, shared)


def follow_graph(
    embedder: Propagation, graph: Graph, before: Survey, clusters: CoarseGraph | None, *, renew: BoolArray
) -> Survey:
    """Return the survey of a graph that has changed since ``before``; see :meth:`Propagation.follow`."""
    degree, loop = degrees_with_loops(graph)
    nodes: dict[str, AnyArray] = {"degree": degree, "loop": loop, "sampled": in_sample(graph.n_nodes, embedder.sample)}
    shared = dict(before.shared)
    if "column" in before.nodes:
        nodes["column"] = join_neighbours(graph, before.nodes["column"])
    if "role" in before.nodes:
        nodes["role"], _ = role_rows(graph)
    if clusters is None or "cluster" not in before.nodes:
        return Survey(nodes, shared)
    nodes["cluster"] = clusters.clusters
    if renew.any():
        far = FarTables(clusters, degree, loop)
        if "column_tables" in shared:
            M = far.memberships(nodes["column"], len(shared["gain"]))
            shared["column_tables"] = far.renewed(shared["column_tables"], M, renew, restart=WALK_RESTART)
        if "feature_tables" in shared:
            assert graph.features is not None
            M = _reduced(far.averages(graph.features, row_scale(graph)), shared.get("basis"))
            shared["feature_tables"] = far.renewed(shared["feature_tables"], M, renew, restart=float(embedder.restart))
    return Survey(nodes, shared)


def _feature_arrays(embedder: Propagation, graph: Graph, far: FarTables, *, cut: bool) -> dict[str, AnyArray]:
    """Return the reduction of wide features, how much they say, and their tables if the graph is cut."""
    assert graph.features is not None
    width, scale = feature_width(graph), row_scale(graph)
    averages = far.averages(graph.features, scale)
    shared: dict[str, AnyArray] = {}
    restart, steps = float(embedder.restart), embedder.steps
    if width > DIRECTIONS:
        rows = np.flatnonzero(in_sample(graph.n_nodes, BASIS_ROWS))
        signal = NearlySpread(graph, rows, scale, far, averages, restart=restart, steps=max(steps, 1))
        V, share, growth = feature_basis(signal, embedder.basis_width, embedder.n_directions)
        shared["feature_share"], shared["feature_growth"] = np.array(share), np.array(growth)
        if width > embedder.basis_width:
            shared["basis"] = V
    if cut:
        M = _reduced(averages, shared.get("basis"))
        shared["feature_tables"] = far.tables(M, np.float32, restart=restart, steps=steps, block=embedder.block)
    return shared


def _reduced(averages: Features, basis: AnyArray | None) -> Float32Array:
    """Return the averages of the features, or of their reduction by ``basis``."""
    M = averages if basis is None else times(averages, np.asarray(basis, dtype=np.float32))
    return np.asarray(M.toarray() if isinstance(M, sp.csr_array) else M, dtype=np.float32)


def _columns(embedder: Propagation, graph: Graph, far: CoarseGraph | None) -> tuple[AnyArray, Float32Array]:
    """Return the column of each node, int32 (n,), and the share of the nodes in each column, (c,)."""
    linked = np.flatnonzero(graph.degrees > 0)
    column = np.full(graph.n_nodes, -1, dtype=np.int32)
    if not len(linked):
        return column, np.ones(1, dtype=np.float32)
    n, count = graph.n_nodes, embedder.clusters
    if count is None:
        count = max(FEWEST, min(max(USUAL, n // CLUSTER), ENTRIES // n))
    count = max(min(count, len(linked) // SMALLEST), 1)
    if is_large(graph) and far is not None:
        columns = merge_clusters(far, min(count, far.k)).astype(np.int32)[far.clusters]
        labels: AnyArray = columns if len(linked) == n else columns[linked]
    else:
        labels = default_partitioner(count)(graph if len(linked) == n else graph.subgraph(linked))
    count_of = np.bincount(labels)
    column[linked] = (np.cumsum(count_of > 0) - 1).astype(np.int32)[labels]
    return column, (count_of[count_of > 0] / len(linked)).astype(np.float32)


def in_sample(n: int, count: int) -> BoolArray:
    """Return which of n nodes are in a sample of about ``count``: those whose hashed number is small enough."""
    if n <= count:
        return np.ones(n, dtype=bool)
    chosen = np.empty(n, dtype=bool)
    for a in range(0, n, NODES):  # splitmix64 (Steele et al. 2014)
        bits = np.arange(a + 1, min(a + NODES, n) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        chosen[a : a + NODES] = (bits ^ (bits >> np.uint64(31))) < np.uint64(count / n * 2.0**64)
    return chosen


class FarTables:
    """The walk between the far clusters of an undirected graph.

    The average over a cluster weighs each node by its degree, because an edge leads to a node in proportion to its
    degree. Such averages follow the random walk on the graph between clusters.
    """

    def __init__(self, coarse: CoarseGraph, degree: Float32Array, loop: Float32Array) -> None:
        self.clusters, self.k = np.asarray(coarse.clusters), coarse.k
        self.degree = degree
        self.linked = degree > loop  # no edge leads to other nodes, so they are in no average
        loops = self._sum(lambda a, b: (loop[a:b] * self.linked[a:b], self.clusters[a:b]), self.k)
        between = sp.csr_array(coarse.between + sp.diags_array(loops))
        volume = np.asarray(between.sum(axis=1), dtype=np.float64).ravel()
        self.between, self.volume = between, np.where(volume > 0, volume, 1.0)
        inside = (between.indptr.astype(np.int64), between.indices, between.data.astype(np.float32))
        none = (np.zeros(self.k + 1, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32))
        scale = ((1 / self.volume).astype(np.float32), np.zeros(self.k, dtype=np.float32))
        self.walk = Walk(inside, none, scale, np.empty(0, dtype=np.int32))

    def memberships(self, column: AnyArray, count: int) -> Float32Array:
        """Return the averages of memberships in ``count`` columns, (k, count)."""

        def members(first: int, last: int) -> tuple[AnyArray, AnyArray]:  # nodes in no column weigh nothing
            own = column[first:last]
            return self.degree[first:last] * (own >= 0), self.clusters[first:last].astype(np.int64) * count + own

        M = self._sum(members, self.k * count).reshape(self.k, count) / self.volume[:, None]
        return M.astype(np.float32)

    def renewed(self, tables: AnyArray, M: Float32Array, rows: BoolArray, *, restart: float) -> AnyArray:
        """Return tables in which some clusters begin with the averages M and walk on through those of the others."""
        tables = np.array(tables)
        step = sp.diags_array((1 - restart) / self.volume[rows]) @ sp.csr_array(self.between[rows])
        step, start = sp.csr_array(step, dtype=np.float32), np.float32(restart) * M[rows]
        tables[0, rows] = M[rows]
        for i in range(1, len(tables)):
            tables[i, rows] = step @ tables[i - 1].astype(np.float32) + start
        return tables

    def _sum(self, part: Callable[[int, int], tuple[AnyArray, AnyArray]], count: int) -> Float64Array:
        """Return the sums (count,) of values by place, which ``part`` gives for the nodes first..last-1."""
        total = np.zeros(count)
        for a in range(0, len(self.clusters), NODES):
            values, places = part(a, min(a + NODES, len(self.clusters)))
            np.add.at(total, np.maximum(places, 0), values.astype(np.float64))
        return total

    def tables(self, M: Float32Array, kind: type, *, restart: float, steps: int, block: int) -> AnyArray:
        """Return the averages before each step of a walk that begins with the averages M (k, w), (steps + 1, k, w)."""
        tables = np.empty((steps + 1, *M.shape), dtype=kind)
        tables[0] = M
        for a in range(0, M.shape[1], block):
            part = np.ascontiguousarray(M[:, a : a + block])
            for i, H in enumerate(self.walk.of_values(part, None, restart=restart, steps=steps), 1):
                tables[i, :, a : a + block] = H
        return tables

    def averages(self, X: Features, scale: Float32Array) -> Features:
        """Return the averages of D^-1/2 X over far clusters, weighted by degree, (k, w), dense or sparse as X is."""
        n = X.shape[0]

        def members(first: int, last: int) -> sp.csr_array:  # the weights of some nodes in their clusters
            own = self.clusters[first:last]
            weight = np.sqrt(self.degree[first:last].astype(np.float64)) / self.volume[own]
            weight = (weight * scale[first:last] * self.linked[first:last]).astype(np.float32)
            entries = (weight, (own, np.arange(last - first)))
            return sp.csr_array(entries, shape=(self.k, last - first))

        if isinstance(X, sp.csr_array):
            return sp.csr_array(members(0, n) @ X).astype(np.float32)
        total = np.zeros((self.k, X.shape[1]), dtype=np.float32)
        for a in range(0, n, ROWS):
            rows = X[a : a + ROWS].astype(np.float32)
            total += members(a, a + len(rows)) @ rows
        return total


@functools.lru_cache(maxsize=2)
def probes(width: int, count: int) -> Float32Array:
    """Return directions R (width, k), the same for all graphs, with |R'h|² = |h|²: all, or random ones on average."""
    if width <= count:
        return np.eye(width, dtype=np.float32)
    rng = np.random.default_rng(RANDOM_SEED)
    return rng.standard_normal((width, count), dtype=np.float32) / np.float32(np.sqrt(count))


class NearlySpread:
    """The features X of some nodes, and the spread ones H by their products; H is one step from far averages."""

    def __init__(
        self,
        graph: Graph,
        rows: Int64Array,
        scale: Float32Array,
        far: FarTables,
        averages: Features,
        *,
        restart: float,
        steps: int,
    ) -> None:
        assert graph.features is not None
        self.far, self.averages, self.restart, self.steps = far, averages, restart, steps
        chosen = graph.features[rows].astype(np.float32)
        self.X = (
            sp.csr_array(sp.diags_array(scale[rows]) @ chosen) if sp.issparse(chosen) else chosen * scale[rows, None]
        )
        counts, starts = np.diff(graph.indptr)[rows], graph.indptr[rows]
        entries = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        strengths = np.ones(len(entries)) if graph.weights is None else graph.weights[entries]
        ends = np.concatenate([[0], np.cumsum(counts)])
        out = sp.csr_array((strengths, far.clusters[graph.indices[entries]], ends), shape=(len(rows), far.k))
        degree = far.degree[rows].astype(np.float64)
        loops = degree - np.asarray(out.sum(axis=1)).ravel()
        own = sp.csr_array((loops, (np.arange(len(rows)), far.clusters[rows])), shape=out.shape)
        root = 1 / np.sqrt(degree)
        self.out = sp.csr_array(sp.diags_array(root) @ sp.csr_array(out + own)).astype(np.float32)

    def times(self, V: Float32Array) -> Float32Array:
        """Return H V."""
        a = self.restart
        M = self.far.walk.last_of_values(times(self.averages, V), restart=a, steps=self.steps - 1)
        return np.asarray(a * times(self.X, V) + (1 - a) * (self.out @ M), dtype=np.float32)

    def transposed_times(self, Y: Float32Array) -> Float32Array:
        """Return H' Y."""
        a = self.restart
        N = (1 - a) * (self.out.T @ Y)
        # With the walk Q = C^-1 W, where W is symmetric, Q' N = W C^-1 N = C Q (C^-1 N).
        volume = self.far.volume[:, None].astype(np.float32)
        M = self.far.walk.last_of_values(np.asarray(N / volume, dtype=np.float32), restart=a, steps=self.steps - 1)
        return np.asarray(a * transposed_times(self.X, Y) + transposed_times(self.averages, M * volume))


def feature_basis(signal: NearlySpread, count: int, dim: int) -> tuple[Float32Array, float, float]:
    """Return the ``count`` main directions of raw and spread features, from rounds that settle ``dim`` of them.

    With them come the share of the spread features, with unit rows, that their 128 main directions keep, and the share
    that the last round added. The rounds need products with the features of these nodes and of the clusters only.
    """
    width = int(signal.X.shape[1])
    V, growth = probes(width, count), 0.0
    spread = signal.times(V)
    length = inverse_lengths(np.square(spread).sum(axis=1))[:, None]

    def product(V: Float32Array) -> Float32Array:
        rows = signal.times(V) * np.square(length)
        return signal.transposed_times(rows) + transposed_times(signal.X, times(signal.X, V))

    if width > count:
        basis = Basis.solve(product, orthonormal(product(V)), dim, growth=GROWTH, rounds=ROUNDS)
        V, growth = basis.directions(count), basis.growth
        spread = signal.times(V)
    spread *= length
    values, _ = leading((spread.T @ spread).astype(np.float64), DIRECTIONS)
    return V, float(min(values.sum() / max(np.count_nonzero(length), 1), 1.0)), growth


def round_product(
    graph: Graph, start: Arrays | None, count: int, *, weights: AnyArray, walk: tuple[float, int]
) -> AnyArray:
    """Return H' W H V + X' W X V (w, b) as whole numbers, for raw features X, spread ones H, and the current block V.

    Such rounds of sums over patches reduce wide features without a survey. W has ``weights`` (n,); ``walk`` is restart
    and steps. The lengths of the rows of H are estimated by the same probes in every round and everywhere.
    """
    X, width = graph.features, feature_width(graph)
    assert X is not None
    check_features(graph)
    scale = row_scale(graph)[:, None]
    within, (restart, steps) = walk_in(graph), walk
    root = (1 / np.sqrt(within.scale[0])).astype(np.float32)[:, None]

    def spread(Y: Float32Array) -> Float32Array:  # its own transpose
        return np.asarray(within.last_of_values(Y / root, restart=restart, steps=steps) * root)

    V = probes(width, count) if start is None else _basis(start).block
    length = inverse_lengths(np.square(spread(scale * times(X, probes(width, PROBES)))).sum(axis=1))[:, None]
    raw = scale * times(X, V)
    both = weights[:, None] * raw + spread(weights[:, None] * np.square(length) * spread(raw))
    unit = sp.csr_array(sp.diags_array(scale.ravel()) @ X) if isinstance(X, sp.csr_array) else scale * X
    return grid_product(unit, both)


def after_round(start: Arrays | None, product: AnyArray, count: int) -> dict[str, AnyArray]:
    """Return the start after a round whose sum is ``product`` (w, b): the basis, or what the next round needs."""
    if start is None:  # the first round only finds where to begin
        basis = Basis(orthonormal(product))
    else:
        basis = _basis(start)
        basis.take(product, count)
    if basis.is_settled(GROWTH) or len(basis.kept) >= ROUNDS:
        return {"basis": basis.directions(count)}
    return {"blocks": basis.blocks, "products": basis.products, "kept": np.array(basis.kept)}


def _basis(start: Arrays) -> Basis:
    return Basis(*(np.asarray(start[name]) for name in ("blocks", "products", "kept")))
