"""Graph: the adjacency structure as plain CSR arrays, with what belongs to each node beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.errors import InputError

__all__ = ["Graph"]

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.floating[Any]]


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
    labels: npt.NDArray[Any] | None
    node_ids: npt.NDArray[Any] | None
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

        The rows must be sorted and unique and, unless ``directed``, symmetric; neither is checked here, because at
        billions of edges the check costs as much as the work.
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
        if n < 0 or indptr[0] != 0 or indptr[-1] != len(indices):
            raise InputError(
                f"indptr must start at 0 and end at the number of indices, {len(indices)}; "
                f"it has {len(indptr)} entries" + (f" and ends at {indptr[-1]}." if n >= 0 else ".")
            )
        if weights is not None:
            if len(weights) != len(indices):
                raise InputError(f"there are {len(indices)} edges and {len(weights)} weights.")
            if not bool(np.all(np.isfinite(weights))) or bool(np.any(np.asarray(weights) < 0)):
                raise InputError("edge weights must be finite and not negative; drop or repair those edges.")
        if features is not None and features.shape[0] != n:
            raise InputError(f"the graph has {n} nodes and the features have {features.shape[0]} rows.")
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
    def degrees(self) -> npt.NDArray[np.int64]:
        """Number of neighbours of each node, (n,)."""
        return np.diff(self.indptr).astype(np.int64)

    @property
    def adjacency(self) -> sp.csr_array:
        """The adjacency as a SciPy CSR array (n, n); made anew at each call."""
        data = np.ones(self.n_edges) if self.weights is None else np.asarray(self.weights, dtype=np.float64)
        return sp.csr_array((data, self.indices, self.indptr), shape=(self.n_nodes, self.n_nodes))

    def subgraph(self, nodes: npt.ArrayLike) -> Graph:
        """Return the subgraph induced by ``nodes``, in their order, with their features, labels and ids."""
        rows = np.asarray(nodes, dtype=np.int64)
        A = self.adjacency[rows][:, rows].tocsr()
        A.sort_indices()
        return Graph.from_arrays(
            A.indptr.astype(np.int64),
            A.indices,
            None if self.weights is None else A.data,
            features=None if self.features is None else self.features[rows],
            labels=None if self.labels is None else self.labels[rows],
            node_ids=rows if self.node_ids is None else self.node_ids[rows],
            directed=self.directed,
        )

    def __repr__(self) -> str:
        width = None if self.features is None else self.features.shape[1]
        kind = "directed" if self.directed else "undirected"
        return f"Graph({self.n_nodes} nodes, {self.n_edges} entries, {kind}, features={width})"
