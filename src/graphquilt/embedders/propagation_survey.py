"""The survey of a whole graph for Propagation: memberships, degrees, roles, and the walk between far clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphquilt.arrays import AnyArray, BoolArray, Float32Array
from graphquilt.embedders.far_tables import FarTables, NearlySpread, feature_basis
from graphquilt.embedders.shared_start import Survey, check_clusters
from graphquilt.embedders.signals import FEATURE_PARTS, check_features, feature_width, role_rows, row_scale
from graphquilt.embedders.walks import degrees_with_loops, walk_in
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.patches import CoarseGraph, Metis, coarse_graph, fine_clusters, is_large, merge_clusters

if TYPE_CHECKING:
    from graphquilt.embedders.propagation import Propagation

__all__ = ["survey_graph"]

FEWEST, USUAL = 256, 1000  # columns of memberships, where the embedder does not say how many
CLUSTER = 50  # nodes of a column, of which larger graphs have more than usual,
ENTRIES = 2 * 10**8  # as long as the memberships have no more entries than this
SMALLEST = 4  # nodes per column, at least, on average
DIRECTIONS = 128  # whose share of the features tells how much these say
ROWS = 8192  # nodes that decide the main directions of wide features, where the graph has more


def survey_graph(embedder: Propagation, graph: Graph, clusters: CoarseGraph | None, *, cut: bool) -> Survey:
    """Return what patches need to know of an undirected graph; see :meth:`Propagation.survey`.

    Tables are made where the graph is ``cut``; the main directions of wide features need far clusters all the same.
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
    nodes: dict[str, AnyArray] = {"degree": degree, "loop": loop, "sampled": sampled(graph.n_nodes, embedder.sample)}
    shared: dict[str, AnyArray] = {}
    far = clusters
    if far is None and ((has_features and width > DIRECTIONS) or is_large(graph)):
        far = coarse_graph(graph, fine_clusters(graph))
    if clusters is not None and (cut or is_large(graph)):  # which also give the order in which nodes are walked
        nodes["cluster"] = clusters.clusters
    tables = None if far is None else FarTables(far, degree, loop)
    if "role" in weights and len(graph.indices):
        nodes["role"], shared["role"] = role_rows(graph, walk_in(graph, None, tables=False))
    if "clusters" in weights:
        column, share = _columns(graph, _column_count(embedder, graph), far)
        nodes["column"], shared["gain"] = column, (1 / share).astype(np.float32)
        if cut and tables is not None:
            shared["column_tables"] = tables.of_columns(column, len(share), embedder.block)
    if has_features and tables is not None:
        shared |= _feature_arrays(embedder, graph, tables, cut=cut)
    return Survey(nodes, shared)


def _feature_arrays(embedder: Propagation, graph: Graph, far: FarTables, *, cut: bool) -> dict[str, AnyArray]:
    """Return the reduction of wide features, how much they say, and their tables where the graph is cut."""
    assert graph.features is not None
    width, scale = feature_width(graph), row_scale(graph)
    averages = far.averages(graph.features, scale)
    shared: dict[str, AnyArray] = {}
    restart, steps = float(embedder.restart), embedder.steps
    if width > DIRECTIONS:
        rows = np.flatnonzero(sampled(graph.n_nodes, ROWS))
        signal = NearlySpread(graph, rows, scale, far, averages)
        basis = feature_basis(
            signal, embedder.basis_width, embedder.dim, measured=DIRECTIONS, restart=restart, steps=steps
        )
        shared["feature_share"], shared["feature_growth"] = np.array(basis.share), np.array(basis.growth)
        if width > embedder.basis_width:
            shared["basis"] = basis.directions
    if cut:
        reduction = shared.get("basis")
        shared["feature_tables"] = far.of_features(
            averages, reduction, restart=restart, steps=steps, block=embedder.block
        )
    return shared


def _column_count(embedder: Propagation, graph: Graph) -> int:
    if embedder.clusters is not None:
        return embedder.clusters
    n = max(graph.n_nodes, 1)
    return max(FEWEST, min(max(USUAL, n // CLUSTER), ENTRIES // n))


def _columns(graph: Graph, count: int, far: CoarseGraph | None) -> tuple[AnyArray, Float32Array]:
    """Return the column of each node, int32 (n,), and the share of the nodes in each column, (c,).

    Nodes without edges are in none, which is -1, and do not count.
    """
    linked = np.flatnonzero(graph.degrees > 0)
    column = np.full(graph.n_nodes, -1, dtype=np.int32)
    if not len(linked):
        return column, np.ones(1, dtype=np.float32)
    count = max(min(count, len(linked) // SMALLEST), 1)
    if is_large(graph) and far is not None:
        labels = merge_clusters(far, min(count, far.k))[far.clusters][linked]
    else:
        labels = Metis(count)(graph if len(linked) == graph.n_nodes else graph.subgraph(linked))
    labels = np.unique(labels, return_inverse=True)[1]
    column[linked] = labels
    return column, (np.bincount(labels) / len(linked)).astype(np.float32)


def sampled(n: int, count: int) -> BoolArray:
    """Return which of n nodes are in a sample of about ``count``: those whose hashed number is small enough.

    Examples
    --------
    >>> int(sampled(1000, 2000).sum()), 80 < sampled(1000, 100).sum() < 120
    (1000, np.True_)
    """
    if n <= count:
        return np.ones(n, dtype=bool)
    bits = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # splitmix64 (Steele et al. 2014)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (bits ^ (bits >> np.uint64(31))) < np.uint64(count / n * 2.0**64)
