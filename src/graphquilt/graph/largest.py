"""Write the largest component of a graph that may be larger than memory to a folder."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import pairwise
from os import PathLike
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray
from graphquilt.errors import InputError
from graphquilt.files import array_writer, check_disk, translate_disk_errors
from graphquilt.files.stamps import remember
from graphquilt.graph.checks import index_type
from graphquilt.graph.files import DESCRIPTION, attach, open_graph, write_description
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
    # Ranges of rows with about as many entries as are read at once, and not many more rows.
    cuts = np.searchsorted(graph.indptr, np.arange(0, graph.n_entries, _ENTRIES))
    spans = list(pairwise(np.unique([*range(0, graph.n_nodes, _ENTRIES), *cuts, graph.n_nodes]).tolist()))
    n_edges = sum(int(np.diff(graph.indptr[a : b + 1])[ranks[a:b] >= 0].sum()) for a, b in spans)
    kinds = {"indptr": np.dtype(np.int64), "indices": np.dtype(index_type(n))}
    kinds |= {} if graph.weights is None else {"weights": graph.weights.dtype}
    dense = None if sp.issparse(graph.features) else graph.features
    given = {"features": dense, "labels": graph.labels, "node_ids": graph.node_ids}
    rows: dict[str, AnyArray] = {name: values for name, values in given.items() if values is not None}
    needed = 8 * (2 * n + 1) + n_edges * sum(kind.itemsize for name, kind in kinds.items() if name != "indptr")
    needed += sum(n * values.nbytes // max(1, len(values)) for values in rows.values())
    check_disk(target, needed, "the largest component")
    with translate_disk_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        (target / DESCRIPTION).unlink(missing_ok=True)
        with ExitStack() as stack:
            files = {
                name: stack.enter_context(array_writer(target / f"{name}.npy", kind)) for name, kind in kinds.items()
            }
            files["indptr"].append(np.zeros(1, dtype=np.int64))
            for first, last in spans:
                ends, members = np.asarray(graph.indptr[first : last + 1]), ranks[first:last] >= 0
                degrees = np.diff(ends).astype(np.int64)
                chosen = np.repeat(members, degrees)
                files["indptr"].append(files["indices"].length + np.cumsum(degrees[members]))
                columns = ranks[np.asarray(graph.indices[ends[0] : ends[-1]])[chosen]]
                files["indices"].append(columns.astype(kinds["indices"], copy=False))
                if graph.weights is not None:
                    files["weights"].append(np.asarray(graph.weights[ends[0] : ends[-1]])[chosen])
                report(progress, "largest component", files["indices"].length, graph.n_entries)
        for name, values in rows.items():
            with array_writer(target / f"{name}.npy", values.dtype, values.shape[1:]) as files[name]:
                step = max(1, _ENTRIES // max(1, int(np.prod(values.shape[1:]))))
                for a in range(0, graph.n_nodes, step):
                    files[name].append(np.ascontiguousarray(values[a : a + step][ranks[a : a + step] >= 0]))
        if graph.node_ids is None:
            with array_writer(target / "node_ids.npy", np.dtype(np.int64)) as files["node_ids"]:
                for a in range(0, graph.n_nodes, _ENTRIES):
                    files["node_ids"].append(a + np.flatnonzero(ranks[a : a + _ENTRIES] >= 0))
        entries = {name: file.entry for name, file in files.items()}
        write_description(target, n_nodes=n, n_edges=n_edges, directed=graph.directed, arrays=entries)
        remember(target, {name: entry["sha256"] for name, entry in entries.items()})
    if sp.issparse(graph.features):
        attach(target, features=sp.csr_array(graph.features)[np.flatnonzero(ranks >= 0)])
    return open_graph(target)
