"""Build a symmetric, sorted CSR on disk of edges that do not fit in memory, within a bound on memory.

Text, and ids that are text, are read and numbered first (spool.py). Then three passes, all sequential: count the
entries of each block of rows; append each edge, in both directions, to the file of its bucket, a range of rows that
fits in memory; sort each bucket and append it to the CSR. All this is in a working folder, which the next build removes
if this one is killed. ``graph.json`` is written last, and nothing unfinished is taken for a graph.
"""

from __future__ import annotations

import shutil
import tempfile
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import Int64Array
from graphquilt.errors import InputError
from graphquilt.files import check_disk, translate_disk_errors
from graphquilt.files.stamps import remember
from graphquilt.graph.checks import index_type
from graphquilt.graph.files import DESCRIPTION, write_description
from graphquilt.graph.reading.assembly import MERGE_RULES, Duplicates, histogram, log_removed
from graphquilt.graph.reading.buckets import BLOCKS, Plan, fill_buckets, sort_buckets
from graphquilt.graph.reading.edge_columns import BadRows
from graphquilt.graph.reading.edge_source import EdgeSource, edge_source
from graphquilt.graph.reading.sources import TextOptions
from graphquilt.graph.structure import Graph
from graphquilt.progress import ProgressCallback, report

_WORK = "building-"  # begins the name of the working folder
_LARGE_INDEX = 1 << 31  # bytes; up to this, ids are taken as they are, however few edges there are


def build_csr(
    edges: npt.ArrayLike | str | PathLike[str],
    folder: str | PathLike[str],
    *,
    n_nodes: int | None = None,
    directed: bool = False,
    memory: int = 1 << 30,
    columns: tuple[str | int, ...] | None = None,
    text: TextOptions = TextOptions(),
    bad_rows: BadRows = "stop",
    duplicates: Duplicates = "max",
    progress: ProgressCallback | None = None,
) -> Graph:
    """Build a graph on disk from edges that may be larger than memory, and open it, memory-mapped.

    Self loops and duplicates are removed, and the log says how many.

    Parameters
    ----------
    edges : int array (2, m) or (m, 2), or a path
        A memory map, or a ``.npy`` file to map, or a Parquet file or a folder of them, or a text file as for
        :func:`read_edges`, ``.gz`` or not, read in batches. Ids in text files, and ids that are text, are numbered in
        ascending order, and ``node_ids`` lists them, as in memory. Integers in ``.npy`` and Parquet are taken as they
        are: every id from 0 to the largest is a node. Ids that are so sparse that their index would take more than
        2 GiB, and a thousand times the edges, are refused unless ``n_nodes`` is stated.
    folder : path
        Where the graph is written; see :meth:`graphquilt.Graph.open`. While it is built, some 8 bytes per entry (both
        directions count) are needed there, 20 with weights; what has been sorted is removed. Text needs about as much
        again as the file has, unpacked.
    n_nodes : int, optional
        By default one more than the largest id.
    directed : bool
        Keep edges one-way.
    memory : int
        Bytes of working memory to stay near, at least 16 MiB.
    columns : names or positions, optional
        The columns that hold the source, the target and, if there are to be weights, the weight; by default as for
        :func:`read_edges`.
    text : TextOptions
        Header, delimiter and ids of a text file, as for :func:`read_edges`; by default they are guessed.
    bad_rows : {"stop", "skip"}
        What happens to rows that cannot be used, as for :func:`read_edges`.
    duplicates : {"max", "sum", "last", "count"}
        Which weight an edge has that is there more than once, as for :func:`read_edges`.
    progress : callable, optional

    Examples
    --------
    >>> import tempfile
    >>> build_csr(np.array([[0, 1, 1, 1], [1, 2, 0, 1]]), tempfile.mkdtemp()).indices.tolist()
    [1, 0, 2, 1]
    """
    if memory < 1 << 24:
        raise InputError(f"a bound of {memory} bytes is too little to work in; allow at least {1 << 24}.")
    target = Path(folder)
    with translate_disk_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        for old in target.glob(f"{_WORK}*"):  # of a build that was killed
            shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
        with tempfile.TemporaryDirectory(prefix=_WORK, dir=target) as folder_name:
            work = Path(folder_name)
            source = edge_source(
                edges,
                work,
                columns=columns,
                text=text,
                bad_rows=bad_rows,
                n_nodes=n_nodes,
                memory=memory,
                progress=progress,
            )
            source = source.with_ones() if duplicates == "count" else source
            plan = _plan(source, progress, n_nodes=n_nodes, directed=directed, memory=memory)
            check_disk(target, plan.n_bytes, "building this graph")
            (target / DESCRIPTION).unlink(missing_ok=True)
            fill_buckets(source, work, plan, progress)
            arrays, differing = sort_buckets(work, plan, progress, MERGE_RULES[duplicates])
            n_entries = arrays["indices"]["shape"][0]
            log_removed(
                source.n_edges, plan.loops, plan.n_nodes, n_entries, differing, directed=directed, duplicates=duplicates
            )
            arrays |= {} if source.node_ids is None else {"node_ids": source.node_ids}
            for name in arrays:
                (work / f"{name}.npy").replace(target / f"{name}.npy")
        write_description(target, n_nodes=plan.n_nodes, n_edges=n_entries, directed=directed, arrays=arrays)
        remember(target, {name: entry["sha256"] for name, entry in arrays.items()})
    return Graph.open(target)


def _plan(
    source: EdgeSource, progress: ProgressCallback | None, *, n_nodes: int | None, directed: bool, memory: int
) -> Plan:
    """Count the entries of each block of rows, and cut the rows into buckets."""
    total = source.n_edges
    if total == 0 and n_nodes is None:
        raise InputError("there are no edges. Give n_nodes to make a graph of isolated nodes.")
    n = n_nodes if source.n_nodes is None else source.n_nodes
    n = 1 + max(int(max(u.max(), v.max())) for u, v, _ in source.batches()) if n is None else n
    _check_size(n, total, memory, stated=n_nodes is not None or source.node_ids is not None)
    shift = max(0, int(n - 1).bit_length() - 16)
    counts = np.zeros(BLOCKS + 1, dtype=np.int64)
    loops, done, weighted = 0, 0, False
    for u, v, w in source.batches():
        more, bad = histogram(u, v, n, shift, not directed, counts)
        if bad >= 0:
            raise InputError(
                f"edge {done + bad} joins {u[bad]} and {v[bad]}, but ids run from 0 to {n - 1}. "
                + ("State a larger n_nodes." if n_nodes is not None else "Ids must not be negative.")
            )
        weighted = w is not None
        loops += more
        done += len(u)
        report(progress, "counting edges", done, total)
    width = 12 if not weighted and index_type(n) is np.int32 else 20
    first = _cut(counts, shift, n, memory // (3 * width))
    return Plan(n, directed, weighted, shift, first, loops, int(counts.sum()))


def _check_size(n: int, n_edges: int, memory: int, *, stated: bool) -> None:
    """Refuse a number of nodes whose rows cannot be sorted within the memory, or that one stray id seems to make."""
    index = f"an index of {8e-9 * n:.3g} GB"
    if n < 0 or n > BLOCKS * (memory // 60):
        raise InputError(
            f"{n} nodes need {index}, more than can be built within {memory} bytes of memory. Number the nodes "
            "from 0 without gaps, or allow more memory."
        )
    if not stated and 8 * n > max(_LARGE_INDEX, 1000 * 16 * n_edges):
        raise InputError(
            f"the largest id is {n - 1}: a graph of only {n_edges} edges would have {index}. Number the "
            "nodes from 0 without gaps (read_edges does), or state n_nodes if there are so many."
        )


def _cut(counts: Int64Array, shift: int, n: int, most: int) -> list[int]:
    """Cut the rows at block borders: each bucket has at most ``most`` entries, if one block does not."""
    first, filled = [0], 0
    for block in range(min(len(counts), -(-n // (1 << shift)))):
        rows = (block << shift) - first[-1]
        if (filled and filled + counts[block] > most) or rows >= most:  # rows without entries take room, too
            first.append(block << shift)
            filled = 0
        filled += int(counts[block])
    return [*first, n]
