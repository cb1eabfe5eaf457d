"""Make a Graph of columns of ids: number them, add both directions, remove duplicates and self loops.

The compiled loops serve builds out of core too.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float64Array, Int64Array, IntArray, refuse_masked
from graphquilt.errors import FormatError, InputError
from graphquilt.graph.checks import check_weights, index_type
from graphquilt.graph.structure import Features, Graph, Rows, is_symmetric
from graphquilt.kernels import jit, kernel

Duplicates = Literal["max", "sum", "last", "count"]
MERGE_RULES = {"max": 0, "sum": 1, "last": 2, "count": 1}  # of merge_rows
_KEPT = {"max": "the largest weight kept", "sum": "weights summed", "last": "the last weight kept", "count": "counted"}

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
    coded: bool = False  # text ids that have been numbered


def number_nodes(
    source: AnyArray, target: AnyArray, n_nodes: int | None
) -> tuple[IntArray, IntArray, int, AnyArray | None]:
    """Number the ids 0..n-1 in ascending order; with ``n_nodes`` given, integer ids are the numbers already."""
    if n_nodes is not None:
        if source.dtype.kind not in "iu":
            raise InputError("n_nodes states the range of integer ids; these ids are text. Leave n_nodes out.")
        for ids in (source, target):
            if len(ids) and (ids.min() < 0 or ids.max() >= n_nodes):
                row = int(((ids < 0) | (ids >= n_nodes)).argmax())
                raise InputError(
                    f"edge {row} names node {ids[row]}, but with n_nodes={n_nodes} ids run from 0 to {n_nodes - 1}. "
                    "State a larger n_nodes, or none, to have the ids numbered anew."
                )
        return source, target, n_nodes, None
    integers = source.dtype.kind in "iu" and target.dtype.kind in "iu"
    low = min(int(source.min()), int(target.min())) if integers else 0
    span = max(int(source.max()), int(target.max())) - low + 1 if integers else 0
    if 0 < span <= 4 * len(source):  # a table of all possible ids takes less memory than sorting those that occur
        seen = np.zeros(span, dtype=bool)
        for ids in (source, target):
            seen[np.subtract(ids, low, dtype=np.int64)] = True
        names = np.flatnonzero(seen) + low
        table = np.cumsum(seen, dtype=index_type(len(names))) - 1
        numbers: list[AnyArray] = [table[np.subtract(ids, low, dtype=np.int64)] for ids in (source, target)]
    else:
        names = np.unique(np.concatenate([np.unique(ids) for ids in (source, target)]))
        numbers = [np.searchsorted(names, ids).astype(index_type(len(names))) for ids in (source, target)]
    plain = names.dtype.kind in "iu" and bool(names[0] == 0) and bool(names[-1] == len(names) - 1)
    return numbers[0], numbers[1], len(names), None if plain else names


def log_removed(
    n_edges: int, loops: int, n_nodes: int, entries: int, differing: int, *, directed: bool, duplicates: Duplicates
) -> None:
    """Log how many edges were read, removed and left; warn of loops, and of ``differing`` weights of duplicates."""
    left = entries if directed else entries // 2
    message = "%d edges read: %d self loops removed, %d duplicates merged%s; %d nodes, %d edges"
    unasked = differing and duplicates == "max"
    remedy = "; for another: --duplicates sum, last or count" if unasked else ""
    rule = f" ({_KEPT[duplicates]}{remedy})" if unasked or duplicates != "max" else ""
    level = logging.WARNING if loops or unasked else logging.INFO
    logger.log(level, message, n_edges, loops, n_edges - loops - left, rule, n_nodes, left)


def assemble(
    columns: Columns,
    *,
    directed: bool = False,
    n_nodes: int | None = None,
    duplicates: Duplicates = "max",
    features: Rows = None,
    labels: npt.ArrayLike | None = None,
) -> Graph:
    """Make a Graph of an edge list; unless ``directed``, each edge makes two entries before duplicates are merged."""
    if len(columns.source) == 0 and n_nodes is None:
        raise FormatError("there are no edges. Give n_nodes to make a graph of isolated nodes.")
    weights = columns.weights
    refuse_masked(sources_of_edges=columns.source, targets_of_edges=columns.target, weights=weights)
    if weights is not None:
        check_weights(weights, unit="edge")
    if duplicates not in MERGE_RULES:
        raise InputError(f"duplicates is one of {', '.join(MERGE_RULES)}, not {duplicates!r}.")
    if duplicates == "count":
        weights = np.ones(len(columns.source))
    source, target, n, names = number_nodes(columns.source, columns.target, n_nodes)
    too_large = InputError(
        f"a graph of {n} nodes does not fit in memory: its index alone takes {8e-9 * n:.3g} GB. State a smaller "
        "n_nodes, or none, to have the ids numbered anew; or build it out of core with build_csr."
    )
    if n > _MOST_NODES:
        raise too_large
    values = np.empty(0) if weights is None else weights
    try:
        kind = np.empty(0, dtype=index_type(n))
        indptr, indices, values, loops = place_edges(source, target, values, not directed, n, 0, kind)
        indptr, indices, values, differing = merge_rows(indptr, indices, values, MERGE_RULES[duplicates])
    except MemoryError as error:
        raise too_large from error
    log_removed(len(source), loops, n, len(indices), differing, directed=directed, duplicates=duplicates)
    weights = None if weights is None else values
    csr = indptr, indices, weights
    directed = directed and not is_symmetric(Graph.from_arrays(*csr).adjacency)
    return Graph.from_arrays(*csr, features=features, labels=labels, node_ids=names, directed=directed)


@jit
def _merge(before: float, weight: float, rule: int) -> float:
    return max(before, weight) if rule == 0 else before + weight if rule == 1 else weight


@kernel("placing edges")
def place_edges(  # noqa: PLR0917
    source: IntArray, target: IntArray, weights: Float64Array, both: bool, n: int, first: int, columns: IntArray
) -> tuple[Int64Array, IntArray, Float64Array, int]:
    """Return n CSR rows that are not sorted, sources counted from ``first``, and how many self loops were left out.

    ``columns`` is an empty array of the type that columns are to have.
    """
    weighted = len(weights) > 0
    starts = np.zeros(n + 1, np.int64)
    loops = 0
    for k in range(len(source)):
        u, v = np.int64(source[k]), np.int64(target[k])
        if u + first == v:
            loops += 1
            continue
        starts[u + 1] += 1
        if both:
            starts[v + 1] += 1
    for r in range(n):
        starts[r + 1] += starts[r]
    entries = np.empty(starts[n], columns.dtype)
    values = np.empty(starts[n] if weighted else 0, np.float64)
    place = starts[:-1].copy()
    for k in range(len(source)):
        u, v = np.int64(source[k]), np.int64(target[k])
        if u + first == v:
            continue
        for _ in range(2 if both else 1):
            at = place[u]
            entries[at] = v
            if weighted:
                values[at] = weights[k]
            place[u] = at + 1
            u, v = v, u
    return starts, entries, values, loops


@kernel("sorting edges", writes=("starts", "entries", "values"))
def merge_rows(
    starts: Int64Array, entries: IntArray, values: Float64Array, rule: int
) -> tuple[Int64Array, IntArray, Float64Array, int]:
    """Sort rows in place, and merge what is given more than once; return row ends, columns and weights.

    The heaviest stays (rule 0), the sum (1) or the last one (2). The last result counts entries whose weight differed.
    """
    weighted = len(values) > 0
    filled, differing, last = 0, 0, 0.0
    a = 0
    for r in range(len(starts) - 1):
        b = starts[r + 1]
        if weighted or b - a > 24:  # a stable order makes sums the same in both directions, to the bit
            order = np.argsort(entries[a:b], kind="mergesort")  # not sort: see graph/kernels.py
            entries[a:b] = entries[a:b][order]
            if weighted:
                values[a:b] = values[a:b][order]
        else:
            for k in range(a + 1, b):
                value = entries[k]
                t = k - 1
                while t >= a and entries[t] > value:
                    entries[t + 1] = entries[t]
                    t -= 1
                entries[t + 1] = value
        for k in range(a, b):
            new = k == a or entries[k] != entries[filled - 1]
            filled += new
            entries[filled - 1] = entries[k]
            if weighted:
                differing += not new and values[k] != last
                last = values[k]
                values[filled - 1] = last if new else _merge(values[filled - 1], last, rule)
        starts[r + 1] = filled
        a = b
    return starts, entries[:filled], values[:filled], differing
