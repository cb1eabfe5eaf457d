"""Write the largest component of a graph that may be larger than memory to a folder."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Int64Array, IntArray
from graphquilt.errors import InputError
from graphquilt.files import check_disk, translate_disk_errors
from graphquilt.files.stamps import remember
from graphquilt.graph.checks import index_type
from graphquilt.graph.files import DESCRIPTION, attach, open_graph, write_blocks, write_description
from graphquilt.graph.structure import Graph
from graphquilt.progress import ProgressCallback, report

_ENTRIES = 1 << 22  # edges, or values of other arrays, that are read at once


def save_largest_component(
    graph: Graph, folder: str | PathLike[str], *, progress: ProgressCallback | None = None
) -> Graph:
    """Write the largest component of ``graph`` to ``folder``, and open it, memory-mapped.

    Its ``node_ids`` are those of the nodes in ``graph``. Some 4 bytes of memory are needed per node, below 2^31 nodes;
    :meth:`Graph.largest_component` gives the same graph in memory.
    """
    target = Path(folder)
    if graph.n_nodes == 0:
        raise InputError("the graph has no nodes, and no largest component.")
    report(progress, "components", 0, 1)
    ranks = graph.largest_component_ranks()
    report(progress, "components", 1, 1)
    n = int(ranks.max()) + 1
    n_edges = sum(int(degrees.sum()) for degrees in _degrees(graph, ranks))
    arrays: dict[str, tuple[tuple[int, ...], np.dtype[Any], Iterator[AnyArray]]] = {
        "indptr": ((n + 1,), np.dtype(np.int64), _row_ends(graph, ranks)),
        "indices": ((n_edges,), np.dtype(index_type(n)), _columns(graph, ranks, progress)),
    }
    if graph.weights is not None:
        arrays["weights"] = (n_edges,), graph.weights.dtype, _entries(graph, graph.weights, ranks)
    dense = None if sp.issparse(graph.features) else graph.features
    for name, values in (("features", dense), ("labels", graph.labels), ("node_ids", graph.node_ids)):
        if values is not None:
            arrays[name] = (n, *values.shape[1:]), values.dtype, _rows(values, ranks)
    if graph.node_ids is None:
        arrays["node_ids"] = (n,), np.dtype(np.int64), _members(ranks)
    needed = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype, _ in arrays.values())
    check_disk(target, needed, "the largest component")
    with translate_disk_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        (target / DESCRIPTION).unlink(missing_ok=True)
        entries = {name: write_blocks(target / f"{name}.npy", *array) for name, array in arrays.items()}
        write_description(target, n_nodes=n, n_edges=n_edges, directed=graph.directed, arrays=entries)
        remember(target, {name: str(entry["sha256"]) for name, entry in entries.items()})
    if sp.issparse(graph.features):
        attach(target, features=sp.csr_array(graph.features)[np.flatnonzero(ranks >= 0)])
    return open_graph(target)


def _spans(graph: Graph) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that have about as many entries as are read at once, and not many more rows."""
    n = graph.n_nodes
    for first in range(0, n, _ENTRIES):
        last = min(first + _ENTRIES, n)
        ends = np.asarray(graph.indptr[first : last + 1])
        cuts = np.searchsorted(ends, np.arange(int(ends[0]), int(ends[-1]), _ENTRIES)[1:])
        yield from pairwise(np.unique([first, *(first + cuts), last]).tolist())


def _degrees(graph: Graph, ranks: IntArray) -> Iterator[Int64Array]:
    for first, last in _spans(graph):
        yield np.diff(graph.indptr[first : last + 1])[ranks[first:last] >= 0].astype(np.int64)


def _row_ends(graph: Graph, ranks: IntArray) -> Iterator[Int64Array]:
    before = np.zeros(1, dtype=np.int64)
    yield before
    for degrees in _degrees(graph, ranks):
        ends = before[-1] + np.cumsum(degrees)
        before = ends if len(ends) else before
        yield ends


def _entries(graph: Graph, values: AnyArray, ranks: IntArray) -> Iterator[AnyArray]:
    """Yield the values of the entries of nodes that have a rank: all of these lead to such nodes, too."""
    for first, last in _spans(graph):
        ends = np.asarray(graph.indptr[first : last + 1])
        chosen = np.repeat(ranks[first:last] >= 0, np.diff(ends))
        yield np.asarray(values[ends[0] : ends[-1]])[chosen]


def _columns(graph: Graph, ranks: IntArray, progress: ProgressCallback | None) -> Iterator[IntArray]:
    done, kind = 0, index_type(int(ranks.max()) + 1)
    for columns in _entries(graph, graph.indices, ranks):
        yield ranks[columns].astype(kind, copy=False)
        done += len(columns)
        report(progress, "largest component", done, graph.n_entries)


def _rows(values: AnyArray, ranks: IntArray) -> Iterator[AnyArray]:
    step = max(1, _ENTRIES // max(1, int(np.prod(values.shape[1:]))))
    for first in range(0, len(ranks), step):
        yield np.ascontiguousarray(values[first : first + step][ranks[first : first + step] >= 0])


def _members(ranks: IntArray) -> Iterator[Int64Array]:
    for first in range(0, len(ranks), _ENTRIES):
        yield first + np.flatnonzero(ranks[first : first + _ENTRIES] >= 0)
