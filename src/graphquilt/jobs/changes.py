"""What has changed in a graph: its new state in the rows of a job, with new nodes after the old ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, BoolArray, Float64Array, Int64Array
from graphquilt.errors import InputError, counted
from graphquilt.graph import Graph
from graphquilt.graph.reading.ids import find_ids
from graphquilt.graph.reading.node_tables import NodeVectors
from graphquilt.graph.structure import Features
from graphquilt.jobs.export import node_row

COMMON = 0.5  # of the ids of the smaller graph: with fewer in common it is a question whether it is the same graph


@dataclass(frozen=True, eq=False)
class Change:
    """The new state of a graph, and what is new in it.

    Row u of ``graph`` is the node that it was before; new nodes come after the old ones. ``new`` are their rows, among
    them those that were gone and came back; ``gone`` (n,) says which nodes are not in the graph any more. ``weight``
    (n,) is that of each node's edges that came, went or changed; for nodes with other features that of all.
    """

    graph: Graph
    new: Int64Array
    gone: BoolArray
    weight: Float64Array
    edges_added: int = 0
    edges_removed: int = 0
    reweighted: int = 0
    missing: int = 0


@dataclass(frozen=True, eq=False)
class Known:
    """The graph of a job, the ids of its rows, and which of them are gone."""

    graph: Graph
    ids: AnyArray
    gone: BoolArray

    def rows_of(self, names: AnyArray) -> tuple[AnyArray, Int64Array]:
        """Return the ids with new names after them, and the row of each name."""
        ids = self.ids
        if ids.dtype.kind not in "iu" or names.dtype.kind not in "iu":
            ids, names = ids.astype(str), names.astype(str)
        rows = find_ids(ids, names)
        unknown = rows < 0
        fresh, numbers = np.unique(names[unknown], return_inverse=True)
        rows[unknown] = len(ids) + numbers
        return np.concatenate([ids, fresh]), rows


def whole_change(known: Known, given: Graph, *, anyway: bool, features: NodeVectors | None = None) -> Change:
    """Return the change to a new state of the whole graph; ``anyway`` accepts one with few common ids or edges."""
    if given.directed and not known.graph.directed:
        raise InputError("the graph of this job is undirected, and the new one is directed; make it undirected first.")
    names = given.ids
    ids, rows = known.rows_of(names)
    common, least = int((rows < len(known.ids)).sum()), min(int((~known.gone).sum()), len(names))
    if common < COMMON * least and not anyway:
        raise InputError(
            f"only {common} of the {len(names)} ids are among the {len(known.ids)} ids of this job, such as "
            f"{str(known.ids[0])!r} there and {str(names[0])!r} here. Is this the same network? If so, update with "
            "--anyway (anyway=True); if not, check the columns of the file, or embed it in another folder."
        )
    if given.n_edges < COMMON * known.graph.n_edges and not anyway:
        raise InputError(
            f"the new graph has {given.n_edges} edges, and the graph of this job {known.graph.n_edges}. If these are "
            "only the edges that came, give them with --add (add=); if the graph did shrink, update with --anyway "
            "(anyway=True)."
        )
    A, present = _placed(given, rows, len(ids)), np.zeros(len(ids), dtype=bool)
    present[rows] = True
    own = None if given.features is None else (rows, given.features)
    return _compare(known, A, ids, present, features=_given_rows(ids, own, features), labels=(rows, given.labels))


def edge_change(
    known: Known, add: Graph | None, remove: Graph | None, *, total: bool, features: NodeVectors | None = None
) -> Change:
    """Return the change by edges to add and to remove; with ``total``, weights of an edge that is there are added."""
    if remove is not None:
        rows = known.rows_of(remove.ids)[1]
        for name in remove.ids[rows >= len(known.ids)].tolist():
            node_row(known.ids if known.ids.dtype.kind in "iu" else known.ids.astype(str), name)  # names like this one
    names = np.empty(0, known.ids.dtype) if add is None else add.ids
    ids, rows = known.rows_of(names)
    n, missing = len(ids), 0
    A = _padded(known.graph, n)
    linked = np.diff(A.indptr) > 0
    if add is not None:
        more = _placed(add, rows, n)
        A = sp.csr_array(A + more if total else A.maximum(more))
    if remove is not None:
        R = _placed(remove, known.rows_of(remove.ids)[1], n)
        R.data[:] = 1
        there = A.multiply(R)
        missing = _pairs(R, known.graph.directed) - _pairs(sp.csr_array(there), known.graph.directed)
        A = sp.csr_array(A - there)
        A.eliminate_zeros()
    degrees = np.diff(A.indptr) + np.bincount(A.indices, minlength=n)
    present = (degrees > 0) | ~linked & ~np.r_[known.gone, np.zeros(n - len(known.gone), dtype=bool)]
    return _compare(known, A, ids, present, features=_given_rows(ids, None, features), missing=missing)


def _placed(graph: Graph, rows: Int64Array, n: int) -> sp.csr_array:
    """Return the adjacency of a graph whose nodes are the given rows of n."""
    A = graph.adjacency.tocoo()
    placed = sp.csr_array((A.data, (rows[A.row], rows[A.col])), shape=(n, n))
    placed.sort_indices()
    return placed


def _padded(graph: Graph, n: int) -> sp.csr_array:
    A = graph.adjacency
    indptr = np.concatenate([A.indptr, np.full(n - graph.n_nodes, A.indptr[-1], dtype=A.indptr.dtype)])
    return sp.csr_array((A.data, A.indices, indptr), shape=(n, n))


def _pairs(A: sp.csr_array, directed: bool) -> int:
    return int(A.nnz if directed else (A.nnz + np.count_nonzero(A.diagonal())) // 2)


def _given_rows(ids: AnyArray, own: tuple[Int64Array, Features] | None, table: NodeVectors | None) -> Given:
    """Return the features that come with a change, and the rows that they belong to."""
    if table is None:
        return own
    names = np.asarray(table.ids)
    rows = find_ids(ids, names)
    if (rows < 0).any():
        first = names[int((rows < 0).argmax())]
        raise InputError(
            f"{table.where} has features for {counted(int((rows < 0).sum()), 'id')} that neither the job nor the new "
            f"edges have, the first is {str(first)[:80]!r}; remove these rows, or add the edges of these nodes."
        )
    return rows, table.X


Given = tuple[Int64Array, Features] | None


def _compare(
    known: Known,
    A: sp.csr_array,
    ids: AnyArray,
    present: BoolArray,
    *,
    features: Given,
    labels: tuple[Int64Array, AnyArray | None] | None = None,
    missing: int = 0,
) -> Change:
    """Return the change from the known graph to the adjacency A (n, n) of all rows."""
    before, n = known.graph, len(ids)
    old = _padded(before, n)
    D = abs(sp.csr_array(A - old))
    D.eliminate_zeros()
    weight = np.asarray(D.sum(axis=1), dtype=np.float64).ravel()
    strength = np.asarray(abs(A).sum(axis=1) + old.sum(axis=1), dtype=np.float64).ravel()
    if before.directed:
        weight += np.asarray(D.sum(axis=0)).ravel()
    was_here = np.r_[~known.gone, np.zeros(n - len(known.gone), dtype=bool)]
    new = np.flatnonzero(present & ~was_here)
    X, other = _features(before, n, features)
    weight[other] = np.maximum(strength[other], 1)
    classes = before.labels
    if classes is not None:
        classes = np.r_[classes, np.full(n - before.n_nodes, -1, dtype=classes.dtype)]
        if labels is not None and labels[1] is not None:
            classes[labels[0]] = labels[1]
    named = None if before.node_ids is None and np.array_equal(ids, np.arange(n)) else ids
    weights = None if before.weights is None and bool(np.all(A.data == 1)) else A.data
    indices = A.indptr.astype(np.int64), A.indices, weights
    graph = Graph.from_arrays(*indices, features=X, labels=classes, node_ids=named, directed=before.directed)
    both = sp.csr_array(A.multiply(old))
    total, common, pairs = _pairs(D, before.directed), _pairs(both, before.directed), _pairs(A, before.directed)
    added, removed = pairs - common, _pairs(old, before.directed) - common
    return Change(graph, new, ~present, weight, added, removed, total - added - removed, missing)


def _features(before: Graph, n: int, given: Given) -> tuple[Features | None, Int64Array]:
    """Return the features of n nodes, zeros for new ones without, and the old nodes that have others than before."""
    X, none = before.features, np.empty(0, dtype=np.int64)
    if given is None and (X is None or n == before.n_nodes):
        return X, none
    if given is not None and (X is None or X.shape[1] != given[1].shape[1]):
        width = "no features" if X is None else f"features of {X.shape[1]} columns"
        raise InputError(
            f"the graph of this job has {width}, and the new ones have {given[1].shape[1]} columns. Give the same "
            "features as before, or embed the graph in another folder."
        )
    assert X is not None
    rows, values = (none, X[:0]) if given is None else given
    source = np.full(n, before.n_nodes, dtype=np.int64)  # the row of each node: its own, one of zeros, or a new one
    source[: before.n_nodes] = np.arange(before.n_nodes)
    old = rows < before.n_nodes
    a, b = X[rows[old]], values[np.flatnonzero(old)]
    if sp.issparse(a) or sp.issparse(b):
        other = np.asarray(abs(sp.csr_array(a) - sp.csr_array(b)).sum(axis=1)).ravel() > 0
    else:
        other = (np.asarray(a) != np.asarray(b).astype(a.dtype)).any(axis=1)
    differ = rows[old][other]
    source[rows] = before.n_nodes + 1 + np.arange(len(rows))
    blank = np.zeros((1, X.shape[1]), dtype=X.dtype)
    if isinstance(X, sp.csr_array):
        stack = sp.vstack([X, sp.csr_array(blank), sp.csr_array(values)], format="csr")
        return sp.csr_array(stack[source]), differ
    dense = values.toarray() if isinstance(values, sp.csr_array) else np.asarray(values)
    return np.concatenate([np.asarray(X), blank, dense.astype(X.dtype)])[source], differ
