"""Direction: a directed graph as an undirected one, in which every node is there as a source and as a target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray
from graphquilt.embedders.shared_start import FarField, Survey
from graphquilt.errors import InputError
from graphquilt.graph import Graph

COUPLING = 0.1  # mean edges: the weight of the edge between a node as a source and the same node as a target


def double_cover(graph: Graph, coupling: float | None = None) -> Graph:
    """Return the undirected graph of 2n nodes in which u → v joins u with n + v, and ``coupling`` joins u with n + u.

    Nodes 0..n-1 are the sources and n..2n-1 the targets. Without a coupling it is a share of the mean weight; without
    any, a walk would alternate between sources and targets and never follow a path.

    Examples
    --------
    >>> arrow = Graph(sp.csr_array([[0, 1.0], [0, 0]]))
    >>> double_cover(arrow, 0.5).adjacency.toarray().tolist()
    [[0.0, 0.0, 0.5, 1.0], [0.0, 0.0, 0.0, 0.5], [0.5, 0.0, 0.0, 0.0], [1.0, 0.5, 0.0, 0.0]]
    """
    if not graph.directed:
        raise InputError(
            "Propagation(directed=True) keeps the direction of edges, and the edges of this graph have none: read them "
            "with directed=True (--directed), or leave directed out."
        )
    n, X = graph.n_nodes, graph.features
    if X is not None:
        X = sp.csr_array(sp.vstack([X, X])) if isinstance(X, sp.csr_array) else np.concatenate([X, X])
    weight = mean_coupling(graph) if coupling is None else coupling
    A = sp.coo_array(graph.adjacency.astype(np.float64) + sp.diags_array(np.full(n, weight)))
    rows, columns = np.concatenate([A.row, A.col + n]), np.concatenate([A.col + n, A.row])
    return Graph(sp.csr_array((np.concatenate([A.data, A.data]), (rows, columns)), shape=(2 * n, 2 * n)), X)


def mean_coupling(graph: Graph) -> float:
    """Return the weight of the edge between a node as a source and itself as a target."""
    return COUPLING * (1.0 if graph.weights is None or not len(graph.weights) else float(np.mean(graph.weights)))


def folded(survey: Survey, column: AnyArray | None, k: int, coupling: float) -> Survey:
    """Return the survey of a cover with one row per node: arrays (n, 2, …); ``k`` is the first cluster of targets."""
    nodes = {name: np.stack(np.split(np.asarray(values), 2), axis=1) for name, values in survey.nodes.items()}
    if "cluster" in nodes:
        nodes["cluster"] = np.ascontiguousarray(nodes["cluster"][:, 0])
    nodes |= {} if column is None else {"column": column}
    return Survey(nodes, {**survey.shared, "coupling": np.array(coupling), "targets": np.array(k)})


def cover_of_patch(graph: Graph, far: FarField | None) -> tuple[Graph, FarField | None]:
    """Return the cover of a patch, and what it knows of the rest, with one row for each source and each target."""
    if far is None:
        return double_cover(graph), None
    rows: dict[str, AnyArray] = {}
    for name, values in far.nodes.items():
        sources, targets = (values, values) if values.ndim == 1 else (values[:, 0], values[:, 1])
        if name == "cluster":
            targets = targets + int(far.shared["targets"])
        rows[name] = np.concatenate([sources, targets])
    none = np.zeros(2 * graph.n_nodes + 1, dtype=np.int64)
    indptr = far.indptr if len(far.indptr) == len(none) else none  # of the whole graph, which no edge leaves
    cover = double_cover(graph, float(far.shared["coupling"]))
    return cover, replace(far, n_nodes=2 * far.n_nodes, nodes=rows, indptr=indptr)


def reversed_graph(graph: Graph) -> Graph:
    """Return the graph with every edge turned round, without features."""
    A = sp.csr_array(graph.adjacency.T)
    A.sort_indices()
    weights = None if graph.weights is None else A.data
    return Graph.from_arrays(A.indptr.astype(np.int64), A.indices, weights, directed=True)
