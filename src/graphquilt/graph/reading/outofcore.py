"""Build a symmetric, sorted CSR on disk of edges that do not fit in memory, within a bound on memory.

Text, and ids that are text, are read and numbered first (spool.py). Then three passes, all sequential: count the
entries of each block of rows; append each edge, in both directions, to the file of its bucket, a range of rows that
fits in memory; sort each bucket and append it to the CSR. The next build removes the working folder of a killed one.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Int64Array, pieces, refuse_masked
from graphquilt.errors import FormatError, InputError
from graphquilt.files import array_writer, check_disk, translate_disk_errors
from graphquilt.graph.checks import index_type
from graphquilt.graph.files import DESCRIPTION, open_array, write_description
from graphquilt.graph.reading.assembly import MERGE_RULES, Duplicates, log_removed, merge_rows, place_edges
from graphquilt.graph.reading.edge_columns import BadRows, EdgeTable, RowTally
from graphquilt.graph.reading.ids import signed
from graphquilt.graph.reading.sources import TextOptions, edge_ends, is_parquet, open_text, parquet_table
from graphquilt.graph.reading.spool import Batch, EdgeSource, spool_edges
from graphquilt.graph.structure import Graph
from graphquilt.progress import ProgressCallback, report

_BLOCKS = 1 << 16  # of rows, by which edges are counted
_WORK = "building-"  # begins the name of the working folder
_LARGE_INDEX = 1 << 31  # bytes; up to this, ids are taken as they are, however few edges there are


@dataclass(frozen=True)
class _Plan:
    """How the rows are cut into buckets, and what the first pass counted."""

    n_nodes: int
    directed: bool
    weighted: bool
    shift: int  # a block has 2^shift rows
    first: list[int]  # first row of each bucket, and n
    loops: int
    entries: int

    @property
    def arrays(self) -> dict[str, np.dtype[Any]]:
        """The arrays of each bucket."""
        dtypes = {"rows": np.dtype(np.uint32), "columns": np.dtype(index_type(self.n_nodes))}
        return dtypes | ({"weights": np.dtype(np.float64)} if self.weighted else {})


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
        A memory map, a ``.npy`` file, a Parquet file or a folder of them, or a text file, read in batches. Ids in text
        files, and ids that are text, are numbered in ascending order, and ``node_ids`` lists them. Integers in ``.npy``
        and Parquet are taken as they are: every id from 0 to the largest is a node. Where their index would take more
        than 2 GiB, and a thousand times the edges, they are refused unless ``n_nodes`` is stated.
    folder : path
        Where the graph is written; see :meth:`graphquilt.Graph.open`. Building needs some 8 bytes per entry there (both
        directions count), 20 with weights, and for text about as much again as the file has, unpacked.
    n_nodes : int, optional
        By default one more than the largest id.
    directed : bool
        Keep edges one-way.
    memory : int
        Bytes of working memory to stay near, at least 16 MiB.
    columns, bad_rows, duplicates, text
        As for :func:`read_edges`; ``text`` has header, delimiter and ids.

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
            work, batch = Path(folder_name), min(memory // 256, 1 << 26)
            given = _open_edges(edges, columns, text, batch)
            if not isinstance(given, EdgeTable):
                source = array_source(given, batch)
            elif given.unit == "row" and given.ids == "integer":
                source = _integer_source(given, bad_rows)
            else:
                source = spool_edges(given, work, batch, n_nodes, bad_rows=bad_rows, memory=memory, progress=progress)
            if duplicates == "count":
                read = source.batches
                source = replace(source, batches=lambda: ((u, v, np.ones(len(u))) for u, v, _ in read()))
            plan = _plan(source, progress, n_nodes=n_nodes, directed=directed, memory=memory)
            room = plan.entries * sum(kind.itemsize for kind in plan.arrays.values()) + 8 * (plan.n_nodes + 1)
            check_disk(target, room, "building this graph")  # of buckets, which become columns, and of the index
            (target / DESCRIPTION).unlink(missing_ok=True)
            _fill_buckets(source, work, plan, progress)
            arrays, differing = _sort_buckets(work, plan, progress, MERGE_RULES[duplicates])
            n_entries = arrays["indices"]["shape"][0]
            facts = source.n_edges, plan.loops, plan.n_nodes, n_entries, differing
            log_removed(*facts, directed=directed, duplicates=duplicates)
            arrays |= {} if source.node_ids is None else {"node_ids": source.node_ids}
            for name in arrays:
                (work / f"{name}.npy").replace(target / f"{name}.npy")
        write_description(target, n_nodes=plan.n_nodes, n_edges=n_entries, directed=directed, arrays=arrays)
    return Graph.open(target)


def _open_edges(
    edges: npt.ArrayLike | str | PathLike[str], columns: tuple[str | int, ...] | None, text: TextOptions, batch: int
) -> AnyArray | EdgeTable:
    if not isinstance(edges, str | PathLike):
        refuse_masked(edges=edges)
        return np.asanyarray(edges)
    path = Path(edges)
    if path.suffix == ".npy":
        return open_array(path)
    files = sorted(path.glob("**/*.parquet")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise FormatError(f"{path} is neither a file of edges nor a folder that holds Parquet files.")
    if path.suffix == ".npz":
        raise InputError(f"{path}: .npz is not read out of core. Save the edges as .npy, or leave --memory out.")
    if path.is_dir() or is_parquet(path):
        return parquet_table(files, path, columns, batch)
    return open_text(path, columns, text)


def _integer_source(table: EdgeTable, bad_rows: BadRows) -> EdgeSource:
    """Return a source of integers that are taken as they are; they are read once, to count them."""
    n_edges, largest, tally = 0, -1, table.tally()

    def batches(tally: RowTally) -> Iterator[Batch]:
        for rows in table.batches(tally):
            u, v = (signed(table.where, np.asarray(ids)) for ids in (rows.source, rows.target))
            yield u, v, rows.weights

    for u, v, _ in batches(tally):
        n_edges, largest = n_edges + len(u), max(largest, int(u.max(initial=-1)), int(v.max(initial=-1)))
    tally.close(bad_rows)
    return EdgeSource(n_edges, lambda: batches(table.tally()), largest + 1 if n_edges else None)


def array_source(edges: AnyArray, batch: int) -> EdgeSource:
    """Return a source of the edges in an array, mapped or not, which copies ``batch`` of them at a time."""
    u, v = edge_ends(edges)

    def batches() -> Iterator[Batch]:
        for part in pieces(len(u), batch):
            yield signed(None, np.array(u[part])), signed(None, np.array(v[part])), None

    return EdgeSource(len(u), batches)


def _plan(
    source: EdgeSource, progress: ProgressCallback | None, *, n_nodes: int | None, directed: bool, memory: int
) -> _Plan:
    """Count the entries of each block of rows, and cut the rows into buckets."""
    total, n = source.n_edges, source.n_nodes if n_nodes is None else n_nodes
    if total == 0 and n_nodes is None:
        raise InputError("there are no edges. Give n_nodes to make a graph of isolated nodes.")
    n = 1 + max(int(max(u.max(), v.max())) for u, v, _ in source.batches()) if n is None else n
    _check_size(n, total, memory, stated=n_nodes is not None or source.node_ids is not None)
    shift = max(0, int(n - 1).bit_length() - 16)
    counts = np.zeros(_BLOCKS, dtype=np.int64)
    loops, done, weighted = 0, 0, False
    for u, v, w in source.batches():
        outside = (np.minimum(u, v) < 0) | (np.maximum(u, v) >= n)
        if outside.any():
            bad = int(outside.argmax())
            raise InputError(
                f"edge {done + bad} joins {u[bad]} and {v[bad]}, but ids run from 0 to {n - 1}. "
                + ("State a larger n_nodes." if n_nodes is not None else "Ids must not be negative.")
            )
        kept = u != v
        for rows in (u,) if directed else (u, v):
            counts += np.bincount(rows[kept] >> shift, minlength=_BLOCKS)
        weighted = w is not None
        loops += len(u) - int(kept.sum())
        done += len(u)
        report(progress, "counting edges", done, total)
    width = 12 if not weighted and index_type(n) is np.int32 else 20
    first = _cut(counts, shift, n, memory // (3 * width))
    return _Plan(n, directed, weighted, shift, first, loops, int(counts.sum()))


def _check_size(n: int, n_edges: int, memory: int, *, stated: bool) -> None:
    """Refuse a number of nodes whose rows cannot be sorted within the memory, or that one stray id seems to make."""
    index = f"an index of {8e-9 * n:.3g} GB"
    if n < 0 or n > _BLOCKS * (memory // 60):
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


def _fill_buckets(source: EdgeSource, work: Path, plan: _Plan, progress: ProgressCallback | None) -> None:
    """Append every entry to its bucket: its row, counted from the first of the bucket, its column and its weight."""
    first = np.array(plan.first, dtype=np.int64)
    bucket = np.searchsorted(first, np.arange(_BLOCKS, dtype=np.int64) << plan.shift, side="right") - 1
    bucket = bucket.astype(np.uint16)  # which NumPy sorts in linear time
    n_buckets, done = len(first) - 1, 0
    for b in range(n_buckets):
        for name in plan.arrays:
            (work / f"{b}.{name}").touch()
    for u, v, w in source.batches():
        if len(u) and not (min(u.min(), v.min()) >= 0 and max(u.max(), v.max()) < plan.n_nodes):
            raise InputError("the edges have changed since they were counted. Run the same command again.")
        kept = u != v
        # Both directions of an edge one after the other: a stable order makes sums the same in both, to the bit.
        ends = [(u, v)] if plan.directed else [(u, v), (v, u)]
        rows, columns = (np.stack([pair[side][kept] for pair in ends], axis=1).ravel() for side in (0, 1))
        of_entry = bucket[rows >> plan.shift]
        order = np.argsort(of_entry, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(of_entry, minlength=n_buckets))])
        parts: dict[str, AnyArray] = {"rows": rows - first[of_entry], "columns": columns}
        parts |= {} if w is None else {"weights": np.repeat(w[kept], len(ends))}
        parts = {name: parts[name].astype(kind, copy=False)[order] for name, kind in plan.arrays.items()}
        for b in np.flatnonzero(np.diff(starts)).tolist():
            for name, values in parts.items():
                with (work / f"{b}.{name}").open("ab") as file:
                    file.write(values[starts[b] : starts[b + 1]].data.cast("B"))
        done += len(u)
        report(progress, "distributing edges", done, source.n_edges)


def _sort_buckets(
    work: Path, plan: _Plan, progress: ProgressCallback | None, rule: int
) -> tuple[dict[str, dict[str, Any]], int]:
    """Turn the buckets into rows of the CSR; describe its arrays, and count entries that differ from a duplicate."""
    dtypes = {"indptr": np.dtype(np.int64), "indices": plan.arrays["columns"]}
    dtypes |= {"weights": np.dtype(np.float64)} if plan.weighted else {}
    differing = 0
    with ExitStack() as stack:
        files = {name: stack.enter_context(array_writer(work / f"{name}.npy", kind)) for name, kind in dtypes.items()}
        for b, (begin, end) in enumerate(pairwise(plan.first)):
            parts = {name: np.fromfile(work / f"{b}.{name}", dtype=kind) for name, kind in plan.arrays.items()}
            for name in parts:
                (work / f"{b}.{name}").unlink()
            rows = parts["rows"], parts["columns"], parts.get("weights", np.empty(0))
            rows = place_edges(*rows, False, end - begin, begin, parts["columns"][:0])[:3]
            del parts
            ends, indices, weights, more = merge_rows(*rows, rule)
            differing += more
            files["indptr"].append(ends[b > 0 :] + files["indices"].length)
            files["indices"].append(indices)
            if plan.weighted:
                files["weights"].append(weights)
            report(progress, "sorting edges", b + 1, len(plan.first) - 1)
    return {name: file.entry for name, file in files.items()}, differing
