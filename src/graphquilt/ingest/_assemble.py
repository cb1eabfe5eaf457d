"""From columns of ids to a Graph: numbering, both directions, duplicates, self loops."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.errors import FormatError, InputError
from graphquilt.graph import Graph

__all__ = ["Columns", "assemble", "number_nodes"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Columns:
    """An edge list as read: ids (integers or text) of both ends, and weights where there are any."""

    source: npt.NDArray[Any]
    target: npt.NDArray[Any]
    weights: npt.NDArray[np.float64] | None = None


def number_nodes(
    source: npt.NDArray[Any], target: npt.NDArray[Any], n_nodes: int | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int, npt.NDArray[Any] | None]:
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

    Self loops and duplicates are removed, and the log says how many. Unless ``directed``, each edge counts in both
    directions, and its reverse is not called a duplicate.
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
    loops = source == target
    if loops.any():
        source, target = source[~loops], target[~loops]
        weights = None if weights is None else weights[~loops]
    given = len(source)
    source, target, weights = _unique(source, target, weights, n)
    duplicates = given - len(source)
    if not directed:
        ends = np.concatenate([source, target]), np.concatenate([target, source])
        source, target, weights = _unique(*ends, None if weights is None else np.tile(weights, 2), n)
    logger.info(
        "%d edges read: %d self loops and %d duplicates removed; %d nodes, %d entries",
        len(columns.source),
        int(loops.sum()),
        duplicates,
        n,
        len(source),
    )
    indptr = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=n))]).astype(np.int64)
    return Graph.from_arrays(
        indptr,
        target.astype(np.int32 if n <= np.iinfo(np.int32).max else np.int64),
        weights,
        features=features,
        labels=labels,
        node_ids=names,
        directed=directed and not _symmetric(source, target, weights),
    )


def _unique(
    source: npt.NDArray[np.int64], target: npt.NDArray[np.int64], weights: npt.NDArray[np.float64] | None, n: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64] | None]:
    """Sort by source, then target, and keep one entry each, the heaviest."""
    if n < 2**31:  # one key a pair: a single sort instead of two
        key = source * np.int64(n) + target
        order = np.argsort(key, kind="stable") if weights is None else np.lexsort((-weights, key))
        key = key[order]
        first = np.concatenate([[True], key[1:] != key[:-1]]) if len(key) else np.zeros(0, dtype=bool)
    else:
        order = np.lexsort((target, source) if weights is None else (-weights, target, source))
        s, t = source[order], target[order]
        first = np.concatenate([[True], (s[1:] != s[:-1]) | (t[1:] != t[:-1])])
    kept = order[first]
    return source[kept], target[kept], None if weights is None else weights[kept]


def _symmetric(
    source: npt.NDArray[np.int64], target: npt.NDArray[np.int64], weights: npt.NDArray[np.float64] | None
) -> bool:
    order = np.lexsort((source, target))
    same = np.array_equal(source, target[order]) and np.array_equal(target, source[order])
    return same and (weights is None or np.array_equal(weights, weights[order]))
