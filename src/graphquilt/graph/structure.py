"""Graph: the adjacency structure as plain CSR arrays, with what belongs to each node beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from os import PathLike
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, Int64Array, IntArray, pieces, refuse_masked
from graphquilt.errors import InputError
from graphquilt.graph import kernels
from graphquilt.graph.checks import check_csr, check_labels, check_weights, group, index_type

SparseMatrix: TypeAlias = sp.sparray | sp.spmatrix
Features: TypeAlias = AnyArray | sp.csr_array
Rows: TypeAlias = npt.ArrayLike | SparseMatrix | None  # one per node

_Csr: TypeAlias = tuple[IntArray, IntArray, FloatArray | None]
_PIECE = 1 << 22  # weights or nodes that are read at once


def to_csr(matrix: SparseMatrix, *, copy: bool = False) -> sp.csr_array:
    """Return a sparse matrix of any format as a CSR array."""
    return sp.csr_array(cast(sp.csr_array, matrix), copy=copy)  # it takes every format, which its types do not say


def is_symmetric(A: sp.csr_array) -> bool:
    """Return whether A equals its transpose."""
    return bool((abs(A - A.T) > 0).nnz == 0)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Graph:
    """A graph as CSR arrays: the neighbours of node ``u`` are ``indices[indptr[u]:indptr[u + 1]]``.

    Parameters
    ----------
    adjacency : SciPy sparse matrix or array (n, n)
        Entry (u, v) is the weight of the edge from u to v. A matrix whose entries are all 1 carries no weight array.
    features : array or sparse matrix (n, f), optional
        One row per node; a memory map stays one, a sparse matrix becomes a CSR array.
    labels : array (n,), optional
        The class of each node, -1 for none.
    node_ids : array (n,), optional
        The name of each node outside graphquilt; None means 0..n-1.

    Attributes
    ----------
    indptr : int array (n + 1,)
    indices : int array (m,)
        Sorted and unique in each row; m counts both directions of an undirected edge.
    weights : float array (m,) or None
        None means that every edge weighs 1.
    directed : bool
        False where the adjacency is symmetric.
    checksums : mapping of str to str
        SHA-256 of those arrays that come from a graph folder, by the names that they have there.
    folder : str or None
        The graph folder that the graph was opened from; other processes open it there.

    Examples
    --------
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> path.n_nodes, path.n_edges, path.degrees.tolist()
    (3, 2, [1, 2, 1])
    """

    indptr: IntArray
    indices: IntArray
    weights: FloatArray | None
    features: Features | None
    labels: AnyArray | None
    node_ids: AnyArray | None
    directed: bool
    checksums: Mapping[str, str]
    folder: str | None

    def __init__(
        self,
        adjacency: SparseMatrix,
        features: Rows = None,
        *,
        labels: npt.ArrayLike | None = None,
        node_ids: npt.ArrayLike | None = None,
    ) -> None:
        if not isinstance(adjacency, sp.sparray | sp.spmatrix):
            raise InputError(
                f"a Graph is made from a SciPy sparse matrix, not from {type(adjacency).__name__}. "
                "Wrap a dense array in scipy.sparse.csr_array, or use Graph.from_arrays for CSR arrays."
            )
        A = to_csr(adjacency, copy=True)
        if A.shape[0] != A.shape[1]:
            raise InputError(f"an adjacency matrix is square; this one is {A.shape[0]} × {A.shape[1]}.")
        A.sum_duplicates()
        A.eliminate_zeros()
        A.sort_indices()
        weights = np.asarray(A.data, dtype=np.float64)
        csr = A.indptr.astype(np.int64), A.indices, None if bool(np.all(weights == 1)) else weights
        self._set(csr, features, labels, node_ids, directed=not is_symmetric(A))

    @classmethod
    def from_arrays(
        cls,
        indptr: IntArray,
        indices: IntArray,
        weights: FloatArray | None = None,
        *,
        features: Rows = None,
        labels: npt.ArrayLike | None = None,
        node_ids: npt.ArrayLike | None = None,
        directed: bool = False,
    ) -> Graph:
        """Take CSR arrays without copying, memory maps included.

        Rows must be sorted and unique, which is checked, and unless ``directed`` symmetric, which is not.
        """
        return cls.__new__(cls)._set((indptr, indices, weights), features, labels, node_ids, directed=directed)

    def _set(
        self,
        csr: _Csr,
        features: Rows,
        labels: Rows,
        node_ids: Rows,
        *,
        directed: bool,
        checksums: Mapping[str, str] | None = None,
        folder: str | None = None,
    ) -> Graph:
        """Check all arrays and make them the fields of this graph; edges with checksums have been checked already."""
        indptr, indices, weights = csr
        refuse_masked(weights=weights, features=features, labels=labels, node_ids=node_ids)
        n = len(indptr) - 1
        if weights is not None and len(weights) != len(indices):
            raise InputError(f"there are {len(indices)} edges and {len(weights)} weights.")
        if checksums is None:
            check_csr(indptr, indices)
            for here in pieces(0 if weights is None else len(weights), _PIECE):
                check_weights(np.asarray(weights)[here], first=here.start)
        if isinstance(features, sp.sparray | sp.spmatrix):
            features = features if isinstance(features, sp.csr_array) else to_csr(features)
        elif features is not None:
            features = np.asanyarray(features)
        if features is not None and features.dtype.kind not in "biuf":
            raise InputError(f"features are real numbers, not {features.dtype}. Convert them, as with astype(float).")
        if features is not None and (features.ndim != 2 or features.shape[0] != n):
            raise InputError(f"features must have {n} rows, one per node, not the shape {features.shape}.")
        arrays = [None if values is None else np.asarray(values) for values in (labels, node_ids)]
        for name, values in zip(("labels", "node_ids"), arrays, strict=True):
            if values is not None and values.shape != (n,):
                raise InputError(f"{name} must have shape ({n},), one per node, not {values.shape}.")
        contents = (*csr, features, *arrays, directed, checksums or {}, folder)
        for field, value in zip(fields(Graph), contents, strict=True):
            object.__setattr__(self, field.name, value)
        return self

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.indptr) - 1

    @property
    def ids(self) -> AnyArray:
        """The name of each node, (n,): ``node_ids``, or 0..n-1."""
        return np.arange(self.n_nodes) if self.node_ids is None else np.asarray(self.node_ids)

    @property
    def n_entries(self) -> int:
        """Number of stored entries, the length of ``indices``: an undirected edge has two, a self loop one."""
        return len(self.indices)

    @cached_property
    def n_edges(self) -> int:
        """Number of edges: an undirected edge counts once. To find self loops, the columns are read once."""
        if self.directed:
            return self.n_entries
        return (self.n_entries + kernels.count_loops(self.indptr, self.indices)) // 2

    @property
    def degrees(self) -> Int64Array:
        """Number of neighbours of each node, (n,)."""
        return np.diff(self.indptr).astype(np.int64)

    @property
    def csr(self) -> tuple[IntArray, IntArray, Float64Array]:
        """``indptr``, ``indices`` and the weights in double precision, or no weights where every edge weighs 1."""
        weights = np.empty(0) if self.weights is None else np.asarray(self.weights, dtype=np.float64)
        return self.indptr, self.indices, weights

    @property
    def adjacency(self) -> sp.csr_array:
        """The adjacency as a SciPy CSR array (n, n); made anew at each call."""
        indptr, indices, weights = self.csr
        data = np.ones(self.n_entries) if self.weights is None else weights
        return sp.csr_array((data, indices, indptr), shape=(self.n_nodes, self.n_nodes))

    def subgraph(self, nodes: npt.ArrayLike) -> Graph:
        """Return the subgraph induced by ``nodes``, in their order, with their features, labels and ids.

        ``nodes`` are unique node numbers (k,), or a mask of n booleans. The work is proportional to their degrees.

        Examples
        --------
        >>> ring = Graph(sp.csr_array(np.roll(np.eye(5), 1, 0) + np.roll(np.eye(5), -1, 0)))
        >>> part = ring.subgraph([0, 1, 4])
        >>> part.n_edges, part.node_ids.tolist()
        (2, [0, 1, 4])
        """
        return self.split(nodes, np.empty(0, dtype=np.int32))[0]

    def split(self, nodes: npt.ArrayLike, cluster: IntArray) -> tuple[Graph, tuple[Int64Array, IntArray, FloatArray]]:
        """Return the subgraph induced by ``nodes``, and the edges that leave it, by the clusters that they lead to.

        ``cluster`` (n,) is the cluster of each node, or empty. The edges that leave are CSR arrays: row ends, clusters,
        and weights, which are empty if the graph has none.
        """
        rows = self._rows(nodes)
        most = int((self.indptr[rows + 1] - self.indptr[rows]).sum())
        weights = np.empty(0) if self.weights is None else self.weights
        n_values = 0 if self.weights is None else most

        def room(kind: npt.DTypeLike, filled: bool) -> tuple[Int64Array, IntArray, FloatArray]:
            ends = np.zeros(len(rows) + 1, dtype=np.int64)
            return ends, np.empty(most * filled, dtype=kind), np.empty(n_values * filled, dtype=weights.dtype)

        parts = room(index_type(len(rows)), True), room(np.int32, len(cluster) > 0)
        ascending = bool(np.all(rows[1:] > rows[:-1]))
        kernels.induced((self.indptr, self.indices, weights), rows, ascending, np.asarray(cluster), *parts)
        inside, outside = ((ends, a[: ends[-1]].copy(), b[: ends[-1]].copy()) for ends, a, b in parts)
        ends, columns, values = inside
        features, labels = (None if values is None else values[rows] for values in (self.features, self.labels))
        node_ids = rows if self.node_ids is None else self.node_ids[rows]
        arrays = (ends, columns, None if self.weights is None else values)
        part = Graph.__new__(Graph)._set(arrays, features, labels, node_ids, directed=self.directed)
        return part, outside

    def _rows(self, nodes: npt.ArrayLike) -> Int64Array:
        selection = np.asarray(nodes)
        if selection.dtype == bool:
            if selection.shape != (self.n_nodes,):
                raise InputError(f"a mask needs one entry for each of {self.n_nodes} nodes; it has {selection.shape}.")
            return np.flatnonzero(selection)
        rows = selection.astype(np.int64)
        if len(rows) and (rows.min() < 0 or rows.max() >= self.n_nodes):
            raise InputError(f"nodes must lie in 0..{self.n_nodes - 1}; found {rows.min()}..{rows.max()}.")
        ordered = np.sort(rows)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(twice):
            raise InputError(f"a subgraph takes each node once; node {twice[0]} is named more than once.")
        return rows

    def components(self) -> Int64Array:
        """Return the number of each node's component, (n,), weakly connected; component 0 holds node 0.

        Examples
        --------
        >>> Graph(sp.csr_array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])).components().tolist()
        [0, 0, 1]
        """
        component = np.empty(self.n_nodes, dtype=np.int64)
        kernels.components(self.indptr, self.indices, component)
        return component

    def largest_component(self) -> tuple[Graph, Int64Array]:
        """Return the largest component, and the nodes of this graph that it holds, in ascending order.

        Of several components of one size, the one with the smallest node id is returned.

        Examples
        --------
        >>> part, nodes = Graph(sp.csr_array([[0, 0, 0], [0, 0, 1], [0, 1, 0]])).largest_component()
        >>> part.n_nodes, nodes.tolist()
        (2, [1, 2])
        """
        nodes = np.flatnonzero(self.largest_component_ranks() >= 0)
        return self if len(nodes) == self.n_nodes else self.subgraph(nodes), nodes

    def largest_component_ranks(self) -> IntArray:
        """Return the place of each node in the largest component, (n,), and -1 for nodes outside it."""
        if self.n_nodes == 0:
            raise InputError("the graph has no nodes, and no largest component.")
        ranks = np.empty(self.n_nodes, dtype=index_type(self.n_nodes))
        sizes = np.zeros(kernels.components(self.indptr, self.indices, ranks), dtype=np.int64)
        for here in pieces(self.n_nodes, _PIECE):
            numbers, counts = np.unique(ranks[here], return_counts=True)
            sizes[numbers] += counts
        members = ranks == sizes.argmax()
        ranks[:] = -1
        ranks[members] = np.arange(sizes.max(), dtype=ranks.dtype)
        return ranks

    def quotient(self, labels: npt.ArrayLike) -> Graph:
        """Return the graph of clusters: i and j are joined by the sum of the weights of the edges between them.

        ``labels`` (n,) are 0..p-1 without gaps. The result has p nodes, weights and no self loops.

        Examples
        --------
        >>> path = Graph(sp.csr_array(np.eye(4, k=1) + np.eye(4, k=-1)))
        >>> path.quotient([0, 0, 1, 1]).adjacency.toarray().tolist()
        [[0.0, 1.0], [1.0, 0.0]]
        """
        labels = check_labels(labels, self.n_nodes)
        indptr, indices, weights = kernels.quotient(self.csr, (labels, *group(labels)))
        return Graph.from_arrays(indptr, indices, weights, directed=self.directed)

    def undirected(self) -> Graph:
        """Return the graph with every edge in both directions, in memory; of two weights the larger one is used.

        Examples
        --------
        >>> Graph(sp.csr_array([[0, 2], [1, 0]])).undirected().weights.tolist()
        [2.0, 2.0]
        """
        if not self.directed:
            return self
        A = sp.csr_array(self.adjacency.maximum(self.adjacency.T))
        A.sort_indices()
        csr = A.indptr.astype(np.int64), A.indices, None if self.weights is None else A.data
        return Graph.__new__(Graph)._set(csr, self.features, self.labels, self.node_ids, directed=False)

    def with_attributes(
        self, *, features: Rows = None, labels: npt.ArrayLike | None = None, node_ids: npt.ArrayLike | None = None
    ) -> Graph:
        """Return the same graph with these features, labels and ids, if given; the edges are not checked again."""
        given = {"features": features, "labels": labels, "node_ids": node_ids}
        changed = tuple(name for name, values in given.items() if values is not None)
        if not changed:
            return self
        left = {name: value for name, value in self.checksums.items() if not name.startswith(changed)}
        attributes = [getattr(self, name) if values is None else values for name, values in given.items()]
        csr = self.indptr, self.indices, self.weights
        return Graph.__new__(Graph)._set(csr, *attributes, directed=self.directed, checksums=left)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the graph to ``folder`` as ``.npy`` files and a description, which is written last."""
        from graphquilt.graph.files import save

        save(self, folder)

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> Graph:
        """Open a graph written by :meth:`save`, memory-mapped.

        The folder is read and compared with its checksums; from 64 MB on only the first time and when a file changes.

        Raises
        ------
        FormatError
            The folder has no graph, or a damaged one.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> Graph(sp.csr_array([[0, 1], [1, 0]])).save(folder)
        >>> Graph.open(folder).n_edges
        1
        """
        from graphquilt.graph.files import open_graph

        return open_graph(folder)

    def __repr__(self) -> str:
        width = None if self.features is None else self.features.shape[1]
        kind = "directed" if self.directed else "undirected"
        return f"Graph({self.n_nodes} nodes, {self.n_entries} entries, {kind}, features={width})"
