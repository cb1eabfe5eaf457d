"""From columns of ids to a Graph: numbering, both directions, duplicates, self loops."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import Graph

__all__ = ["Columns", "assemble"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Columns:
    """An edge list as read: ids (integers or text) of both ends, and weights where there are any."""

    source: AnyArray
    target: AnyArray
    weights: Float64Array | None = None


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


def assemble(
    columns: Columns,
    *,
    directed: bool = False,
    n_nodes: int | None = None,
    features: Any = None,
    labels: npt.ArrayLike | None = None,
) -> Graph:
    """Make a Graph of an edge list; of an edge given more than once the largest weight stays.

    Self loops and duplicates are removed, and the log says how many; unless ``directed``, each edge makes an entry
    in both directions before duplicates are counted.
    """
    if len(columns.source) == 0 and n_nodes is None:
        raise FormatError("there are no edges. Give n_nodes to make a graph of isolated nodes.")
    weights = columns.weights
    if weights is not None:
        bad = ~np.isfinite(weights) | (weights < 0)
        if bad.any():
            row = int(bad.argmax())
            raise InputError(
                f"edge weights must be finite and not negative; {int(bad.sum())} of {len(weights)} are not, the first "
                f"is {weights[row]} (edge {row}). Drop or repair those rows."
            )
    source, target, n, names = number_nodes(columns.source, columns.target, n_nodes)
    from graphquilt.ingest import _kernels
    from graphquilt.kernels import announce, frozen

    announce(_kernels.distribute, "sorting edges")
    kind = np.int32 if n <= np.iinfo(np.int32).max else np.int64
    one = np.zeros(1, dtype=np.int64)  # one bucket with all rows
    rows, entries, heavy, _ = _kernels.distribute(
        frozen(source),
        frozen(target),
        frozen(np.empty(0) if weights is None else weights),
        not directed,
        62,
        one,
        one,
        np.empty(0, dtype=kind),
    )
    if weights is None:
        indptr, indices = _kernels.sort_rows(frozen(rows), frozen(entries), n)
    else:
        indptr, indices, weights = _kernels.sort_weighted_rows(frozen(rows), frozen(entries), frozen(heavy), n)
    loops = len(source) - len(rows) // (1 if directed else 2)
    logger.info(
        "%d edges read: %d self loops and %d duplicate entries removed; %d nodes, %d entries",
        len(source),
        loops,
        len(rows) - len(indices),
        n,
        len(indices),
    )
    graph = Graph.from_arrays(
        indptr, indices, weights, features=features, labels=labels, node_ids=names, directed=directed
    )
    if not directed or not _is_symmetric(graph):
        return graph
    return Graph.from_arrays(indptr, indices, weights, features=features, labels=labels, node_ids=names)


def _is_symmetric(graph: Graph) -> bool:
    A = graph.adjacency
    return bool((A != A.T).nnz == 0)
