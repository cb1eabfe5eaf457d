"""Make a Graph of columns of ids: number them, add both directions, remove duplicates and self loops."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float64Array, Int64Array, refuse_masked
from graphquilt.errors import FormatError, InputError
from graphquilt.graph.checks import check_weights, index_type
from graphquilt.graph.reading import kernels
from graphquilt.graph.structure import Features, Graph, Rows, is_symmetric

__all__ = ["Columns", "assemble", "log_removed"]

logger = logging.getLogger(__name__)
_MOST_NODES = 1 << 48  # an index of 2 PB; beyond it sizes in bytes no longer fit in 64 bits


@dataclass(frozen=True, eq=False)
class Columns:
    """An edge list as read: ids (integers or text) of both ends, and what else the file says of edges and nodes."""

    source: AnyArray
    target: AnyArray
    weights: Float64Array | None = None
    n_nodes: int | None = None
    features: Features | None = None
    labels: AnyArray | None = None
    node_ids: AnyArray | None = None


def number_nodes(
    source: AnyArray, target: AnyArray, n_nodes: int | None
) -> tuple[Int64Array, Int64Array, int, AnyArray | None]:
    """Number the ids 0..n-1 in ascending order; with ``n_nodes`` given, integer ids are the numbers already."""
    if n_nodes is not None:
        if not np.issubdtype(source.dtype, np.integer):
            raise InputError("n_nodes states the range of integer ids; these ids are text. Leave n_nodes out.")
        for ids in (source, target):
            if len(ids) and (ids.min() < 0 or ids.max() >= n_nodes):
                row = int(((ids < 0) | (ids >= n_nodes)).argmax())
                raise InputError(
                    f"edge {row} names node {ids[row]}, but with n_nodes={n_nodes} ids run from 0 to {n_nodes - 1}. "
                    "State a larger n_nodes, or none, to have the ids numbered anew."
                )
        return source.astype(np.int64), target.astype(np.int64), n_nodes, None
    names, number = np.unique(np.concatenate([source, target]), return_inverse=True)
    m = len(source)
    plain = np.issubdtype(names.dtype, np.integer) and bool(names[0] == 0) and bool(names[-1] == len(names) - 1)
    return number[:m].astype(np.int64), number[m:].astype(np.int64), len(names), None if plain else names


def log_removed(n_edges: int, loops: int, n_nodes: int, entries: int, *, directed: bool) -> None:
    """Log how many edges were read, what was removed, and what is left."""
    left = entries if directed else entries // 2
    message = "%d edges read: %d self loops and %d duplicates removed; %d nodes, %d edges"
    logger.info(message, n_edges, loops, n_edges - loops - left, n_nodes, left)


def assemble(
    columns: Columns,
    *,
    directed: bool = False,
    n_nodes: int | None = None,
    features: Rows = None,
    labels: npt.ArrayLike | None = None,
) -> Graph:
    """Make a Graph of an edge list; of an edge given more than once the largest weight stays.

    Self loops and duplicates are removed, and the log says how many; unless ``directed``, each edge makes an entry
    in both directions before duplicates are counted.
    """
    if len(columns.source) == 0 and n_nodes is None:
        raise FormatError("there are no edges. Give n_nodes to make a graph of isolated nodes.")
    weights = columns.weights
    refuse_masked(sources_of_edges=columns.source, targets_of_edges=columns.target, weights=weights)
    if weights is not None:
        check_weights(weights, unit="edge")
    source, target, n, names = number_nodes(columns.source, columns.target, n_nodes)
    too_large = InputError(
        f"a graph of {n} nodes does not fit in memory: its index alone takes {8e-9 * n:.3g} GB. State a smaller "
        "n_nodes, or none, to have the ids numbered anew; or build it out of core with build_csr."
    )
    if n > _MOST_NODES:
        raise too_large
    values = np.empty(0) if weights is None else weights
    bucket = np.zeros(1, dtype=np.int64)  # a single bucket with all rows
    columns_like = np.empty(0, dtype=index_type(n))
    rows, entries, values, _ = kernels.distribute(
        source, target, values, not directed, 62, bucket, bucket, columns_like
    )
    try:
        indptr, indices, values = kernels.sort_rows(rows, entries, values, n)
    except MemoryError as error:
        raise too_large from error
    loops = len(source) - len(rows) // (1 if directed else 2)
    log_removed(len(source), loops, n, len(indices), directed=directed)
    weights = None if weights is None else values
    if directed:
        directed = not is_symmetric(Graph.from_arrays(indptr, indices, weights).adjacency)
    return Graph.from_arrays(
        indptr, indices, weights, features=features, labels=labels, node_ids=names, directed=directed
    )
