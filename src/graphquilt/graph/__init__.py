"""Graph: the adjacency structure as plain CSR arrays, with what belongs to each node beside it."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, FloatArray, Int64Array, IntArray
from graphquilt.errors import InputError
from graphquilt.graph._checks import Position, check_csr, check_labels, check_weights, group

__all__ = ["Graph", "check_labels", "group"]


_CHUNK = 1 << 22  # entries gathered at once by subgraph: some 100 MB of working memory
_INT32 = np.iinfo(np.int32).max
_NO_WEIGHTS = np.empty(0)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Graph:
    """A graph as CSR arrays: the neighbours of node ``u`` are ``indices[indptr[u]:indptr[u + 1]]``.

    Parameters
    ----------
    adjacency : SciPy sparse matrix or array (n, n)
        Entry (u, v) is the weight of the edge from u to v. A matrix whose entries are all 1 carries no weight array.
    features : array or sparse matrix (n, f), optional
        One row a node; a memory map stays one.
    labels : array (n,), optional
        One class a node, -1 where there is none.
    node_ids : array (n,), optional
        What the outside world calls each node; None means 0..n-1.

    Attributes
    ----------
    indptr : int array (n + 1,)
    indices : int array (m,)
        Sorted and unique in each row; m counts both directions of an undirected edge.
    weights : float array (m,) or None
        None means that every edge weighs 1.
    directed : bool
        False where the adjacency is symmetric.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> path.n_nodes, path.n_edges, path.degrees.tolist()
    (3, 4, [1, 2, 1])
    """

    indptr: IntArray
    indices: IntArray
    weights: FloatArray | None
    features: Any
    labels: AnyArray | None
    node_ids: AnyArray | None
    directed: bool

    def __init__(
        self,
        adjacency: Any,
        features: Any = None,
        *,
        labels: npt.ArrayLike | None = None,
        node_ids: npt.ArrayLike | None = None,
    ) -> None:
        if not sp.issparse(adjacency):
            raise InputError(
                f"a Graph is made from a SciPy sparse matrix, not from {type(adjacency).__name__}. "
                "Wrap a dense array in scipy.sparse.csr_array, or use Graph.from_arrays for CSR arrays."
            )
        if adjacency.shape[0] != adjacency.shape[1]:
            raise InputError(f"an adjacency matrix is square; this one is {adjacency.shape[0]} × {adjacency.shape[1]}.")
        A = sp.csr_array(adjacency, copy=True)
        A.sum_duplicates()
        A.eliminate_zeros()
        A.sort_indices()
        weights = np.asarray(A.data, dtype=np.float64)
        symmetric = (abs(A - A.T) > 0).nnz == 0
        self._set(
            indptr=A.indptr.astype(np.int64),
            indices=A.indices,
            weights=None if bool(np.all(weights == 1)) else weights,
            features=features,
            labels=labels,
            node_ids=node_ids,
            directed=not symmetric,
        )

    @classmethod
    def from_arrays(
        cls,
        indptr: IntArray,
        indices: IntArray,
        weights: FloatArray | None = None,
        *,
        features: Any = None,
        labels: npt.ArrayLike | None = None,
        node_ids: npt.ArrayLike | None = None,
        directed: bool = False,
    ) -> Graph:
        """Take CSR arrays as they are, memory maps included, without copying.

        The rows must be sorted and unique, which is checked unless they are a memory map; and, unless ``directed``,
        symmetric, which is not checked.
        """
        graph = cls.__new__(cls)
        graph._set(
            indptr=indptr,
            indices=indices,
            weights=weights,
            features=features,
            labels=labels,
            node_ids=node_ids,
            directed=directed,
        )
        return graph

    def _set(
        self,
        *,
        indptr: IntArray,
        indices: IntArray,
        weights: FloatArray | None,
        features: Any,
        labels: npt.ArrayLike | None,
        node_ids: npt.ArrayLike | None,
        directed: bool,
    ) -> None:
        n = len(indptr) - 1
        check_csr(indptr, indices)
        if weights is not None:
            if len(weights) != len(indices):
                raise InputError(f"there are {len(indices)} edges and {len(weights)} weights.")
            # A memory map was checked when it was written; reading it all here would defeat it.
            if not isinstance(weights, np.memmap):
                check_weights(weights)
        if features is not None:
            features = features if sp.issparse(features) else np.asanyarray(features)
            if features.ndim != 2 or features.shape[0] != n:
                raise InputError(
                    f"the graph has {n} nodes and the features are of shape {features.shape}; give one row a node."
                )
        for name, values in (("labels", labels), ("node_ids", node_ids)):
            if values is not None and len(np.asarray(values)) != n:
                raise InputError(f"the graph has {n} nodes and there are {len(np.asarray(values))} {name}.")
        object.__setattr__(self, "indptr", indptr)
        object.__setattr__(self, "indices", indices)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "labels", None if labels is None else np.asarray(labels))
        object.__setattr__(self, "node_ids", None if node_ids is None else np.asarray(node_ids))
        object.__setattr__(self, "directed", directed)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.indptr) - 1

    @property
    def n_edges(self) -> int:
        """Number of stored entries: an undirected edge counts twice."""
        return len(self.indices)

    @property
    def degrees(self) -> Int64Array:
        """Number of neighbours of each node, (n,)."""
        return np.diff(self.indptr).astype(np.int64)

    @property
    def adjacency(self) -> sp.csr_array:
        """The adjacency as a SciPy CSR array (n, n); made anew at each call."""
        data = np.ones(self.n_edges) if self.weights is None else np.asarray(self.weights, dtype=np.float64)
        return sp.csr_array((data, self.indices, self.indptr), shape=(self.n_nodes, self.n_nodes))

    def subgraph(self, nodes: npt.ArrayLike) -> Graph:
        """Return the subgraph induced by ``nodes``, in their order, with their features, labels and ids.

        Costs the degrees of ``nodes``, whatever the size of the graph, and works on memory maps.

        Parameters
        ----------
        nodes : int array (k,)
            Unique node ids, or a mask of n booleans.

        Returns
        -------
        Graph
            Its node r is ``nodes[r]`` here; ``node_ids`` says what it is called outside.

        Examples
        --------
        >>> import scipy.sparse as sp
        >>> ring = Graph(sp.csr_array(np.roll(np.eye(5), 1, 0) + np.roll(np.eye(5), -1, 0)))
        >>> part = ring.subgraph([0, 1, 4])
        >>> part.n_edges, part.node_ids.tolist()
        (4, [0, 1, 4])
        """
        rows = self._rows(nodes)
        position = Position(rows, self.n_nodes)
        degrees = self._row_lengths(rows)
        counts = np.empty(len(rows), dtype=np.int64)
        columns: list[IntArray] = []
        data: list[FloatArray] = []
        ends = np.cumsum(degrees)
        first = 0
        while first < len(rows):
            before = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + _CHUNK, side="right")))
            length = degrees[first:last]
            within = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
            entries = np.repeat(np.asarray(self.indptr[rows[first:last]], dtype=np.int64), length) + within
            row = np.repeat(np.arange(last - first), length)
            column = position(np.asarray(self.indices[entries]))
            kept = np.flatnonzero(column >= 0)
            row, column = row[kept], column[kept]
            if not position.ascending:
                order = np.lexsort((column, row))
                row, column, kept = row[order], column[order], kept[order]
            counts[first:last] = np.bincount(row, minlength=last - first)
            columns.append(column.astype(np.int32 if len(rows) <= _INT32 else np.int64))
            if self.weights is not None:
                data.append(np.asarray(self.weights[entries[kept]]))
            first = last
        return Graph.from_arrays(
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            np.concatenate(columns) if columns else np.empty(0, dtype=np.int32),
            None if self.weights is None else np.concatenate([*data, np.empty(0)]),
            features=None if self.features is None else self.features[rows],
            labels=None if self.labels is None else self.labels[rows],
            node_ids=rows if self.node_ids is None else self.node_ids[rows],
            directed=self.directed,
        )

    def _row_lengths(self, rows: Int64Array) -> Int64Array:
        return np.asarray(self.indptr[rows + 1] - self.indptr[rows], dtype=np.int64)

    def _rows(self, nodes: npt.ArrayLike) -> Int64Array:
        given = np.asarray(nodes)
        if given.dtype == bool:
            if given.shape != (self.n_nodes,):
                raise InputError(f"a mask needs one entry for each of {self.n_nodes} nodes; it has {given.shape}.")
            return np.flatnonzero(given)
        rows = given.astype(np.int64)
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
        >>> import scipy.sparse as sp
        >>> Graph(sp.csr_array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])).components().tolist()
        [0, 0, 1]
        """
        from graphquilt.graph import _kernels
        from graphquilt.kernels import announce, frozen

        announce(_kernels.components, "components")
        found: Int64Array = _kernels.components(frozen(self.indptr), frozen(self.indices))
        return found

    def largest_component(self) -> tuple[Graph, Int64Array]:
        """Return the largest component, and which of this graph's nodes it holds, ascending.

        Of several components of one size the one with the least node is taken.

        Examples
        --------
        >>> import scipy.sparse as sp
        >>> part, nodes = Graph(sp.csr_array([[0, 0, 0], [0, 0, 1], [0, 1, 0]])).largest_component()
        >>> part.n_nodes, nodes.tolist()
        (2, [1, 2])
        """
        if self.n_nodes == 0:
            raise InputError("the graph has no nodes, so it has no largest component.")
        component = self.components()
        nodes = np.flatnonzero(component == np.bincount(component).argmax())
        if len(nodes) == self.n_nodes:
            return self, nodes
        return self.subgraph(nodes), nodes

    def quotient(self, labels: npt.ArrayLike) -> Graph:
        """Return the graph of clusters: i and j are joined by the sum of the weights of the edges between them.

        Parameters
        ----------
        labels : int array (n,)
            The cluster of each node, 0..p-1 without gaps.

        Returns
        -------
        Graph
            p nodes, weighted, without self loops; sparse throughout, no p × p table is made.

        Examples
        --------
        >>> import scipy.sparse as sp
        >>> path = Graph(sp.csr_array(np.eye(4, k=1) + np.eye(4, k=-1)))
        >>> path.quotient([0, 0, 1, 1]).adjacency.toarray().tolist()
        [[0.0, 1.0], [1.0, 0.0]]
        """
        from graphquilt.graph import _kernels
        from graphquilt.kernels import announce, frozen

        labels = check_labels(labels, self.n_nodes)
        members, starts = group(labels)
        announce(_kernels.quotient, "quotient")
        indptr, indices, weights = _kernels.quotient(
            frozen(self.indptr),
            frozen(self.indices),
            frozen(_NO_WEIGHTS if self.weights is None else np.asarray(self.weights, dtype=np.float64)),
            frozen(labels),
            frozen(members),
            frozen(starts),
        )
        return Graph.from_arrays(indptr, indices, weights, directed=self.directed)

    def undirected(self) -> Graph:
        """Return the graph with every edge in both directions; of two weights the larger stays.

        A graph that is undirected already is returned as it is. In memory; for graphs that do not fit, see
        :func:`graphquilt.build_csr`.

        Examples
        --------
        >>> import scipy.sparse as sp
        >>> Graph(sp.csr_array([[0, 2], [1, 0]])).undirected().weights.tolist()
        [2.0, 2.0]
        """
        if not self.directed:
            return self
        A = self.adjacency
        A = A.maximum(A.T).tocsr()
        A.sort_indices()
        return Graph.from_arrays(
            A.indptr.astype(np.int64),
            A.indices,
            None if self.weights is None else A.data,
            features=self.features,
            labels=self.labels,
            node_ids=self.node_ids,
        )

    def renamed(self, node_ids: npt.ArrayLike | None) -> Graph:
        """Return the same graph with other ``node_ids``."""
        return Graph.from_arrays(
            self.indptr,
            self.indices,
            self.weights,
            features=self.features,
            labels=self.labels,
            node_ids=node_ids,
            directed=self.directed,
        )

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the graph to ``folder`` as ``.npy`` files and a description, which is written last.

        See :meth:`open`. Sparse features are kept as the three arrays of their CSR form.
        """
        from graphquilt.graph._files import save

        save(self, folder)

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> Graph:
        """Open a graph written by :meth:`save`, memory-mapped: nothing is read before it is used.

        Examples
        --------
        >>> import scipy.sparse as sp, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> Graph(sp.csr_array([[0, 1], [1, 0]])).save(folder)
        >>> Graph.open(folder).n_edges
        2
        """
        from graphquilt.graph._files import open_graph

        return open_graph(folder)

    def __repr__(self) -> str:
        width = None if self.features is None else self.features.shape[1]
        kind = "directed" if self.directed else "undirected"
        return f"Graph({self.n_nodes} nodes, {self.n_edges} entries, {kind}, features={width})"
