"""Edges that do not fit in memory → a symmetric, sorted CSR on disk, within a bound on memory.

Three passes, all sequential: count the entries of each block of rows; append each edge, in both directions, to the
file of its bucket, a range of rows that fits in memory; sort each bucket and append it to the CSR. ``progress.json``
in the working folder says after each step how far it came, so an interrupted build goes on where it stopped, and
``graph.json`` is written last, so nothing unfinished is taken for a graph.
"""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt.arrays import Int64Array
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.graph._files import DESCRIPTION, describe, disk_errors, write_description
from graphquilt.ingest._sources import EdgeSource, edge_source
from graphquilt.progress import ProgressCallback, report

__all__ = ["build_csr"]

logger = logging.getLogger(__name__)
_BLOCKS = 1 << 16
_STATE = "progress.json"


def build_csr(
    edges: Any,
    folder: str | PathLike[str],
    *,
    n_nodes: int | None = None,
    directed: bool = False,
    memory: int = 1 << 30,
    columns: tuple[str | int, ...] = (0, 1),
    progress: ProgressCallback | None = None,
) -> Graph:
    """Build a graph on disk from edges that may be larger than memory.

    Parameters
    ----------
    edges : int array (2, m) or (m, 2), or a path
        A memory map, or a ``.npy`` file to map, or a Parquet file or a folder of them, read in batches. Ids are
        integers from 0; isolated nodes are kept.
    folder : path
        Where the graph goes; see :meth:`graphquilt.Graph.open`. Some 8 bytes an entry (both directions) are needed
        there for a while besides.
    n_nodes : int, optional
        By default one more than the largest id.
    directed : bool
        Keep edges one-way.
    memory : int
        Bytes of working memory to stay near, at least 16 MiB.
    columns : names or positions
        Of source, target and, if there are to be weights, weight in Parquet files.
    progress : callable, optional

    Returns
    -------
    Graph
        Memory-mapped; self loops and duplicates are removed, and the log says how many.

    Examples
    --------
    >>> import tempfile
    >>> build_csr(np.array([[0, 1, 1, 1], [1, 2, 0, 1]]), tempfile.mkdtemp()).indices.tolist()
    [1, 0, 2, 1]
    """
    if memory < 1 << 24:
        raise InputError(f"a bound of {memory} bytes is too little to work in; allow at least {1 << 24}.")
    source = edge_source(edges, columns, batch=memory // 256)
    target = Path(folder)
    with disk_errors(target, "the same build goes on where it stopped, and nothing there is taken for finished."):
        target.mkdir(parents=True, exist_ok=True)
        work = target / "building"
        work.mkdir(exist_ok=True)
        plan = _plan(source, work, n_nodes=n_nodes, directed=directed, memory=memory, progress=progress)
        (target / DESCRIPTION).unlink(missing_ok=True)
        _fill_buckets(source, work, plan, progress)
        _sort_buckets(work, plan, progress)
        _finish(target, work, plan)
    return Graph.open(target)


@dataclass(frozen=True)
class _Plan:
    """What was asked, and how the rows are cut into buckets; equal plans may be resumed."""

    source: dict[str, Any]
    n_nodes: int
    directed: bool
    weighted: bool
    memory: int
    shift: int
    first: list[int]  # first row of each bucket, and n
    loops: int
    entries: int

    @property
    def n_buckets(self) -> int:
        return len(self.first) - 1

    @property
    def column_type(self) -> np.dtype[Any]:
        return np.dtype(np.int32 if self.n_nodes <= np.iinfo(np.int32).max else np.int64)

    @property
    def arrays(self) -> dict[str, np.dtype[Any]]:
        parts = {"rows": np.dtype(np.uint32), "columns": self.column_type}
        return parts | ({"weights": np.dtype(np.float64)} if self.weighted else {})

    @property
    def results(self) -> dict[str, np.dtype[Any]]:
        parts = {"indptr": np.dtype(np.int64), "indices": self.column_type}
        return parts | ({"weights": np.dtype(np.float64)} if self.weighted else {})


def _load_state(work: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads((work / _STATE).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return state


def _save_state(work: Path, state: dict[str, Any]) -> None:
    partial = work / (_STATE + ".part")
    partial.write_text(json.dumps(state))
    partial.replace(work / _STATE)


def _plan(
    source: EdgeSource,
    work: Path,
    *,
    n_nodes: int | None,
    directed: bool,
    memory: int,
    progress: ProgressCallback | None,
) -> _Plan:
    """Count the entries of each block of rows, and cut the rows into buckets; or take up the plan that is there."""
    from graphquilt.ingest import _kernels
    from graphquilt.kernels import announce, frozen

    asked = {"source": source.fingerprint, "n_nodes": n_nodes, "directed": directed, "memory": memory}
    state = _load_state(work)
    if state.get("asked") == asked:
        logger.info("taking up the build in %s", work)
        return _Plan(**state["plan"])
    for old in work.iterdir():
        old.unlink()
    total = source.n_edges
    if total == 0 and n_nodes is None:
        raise InputError("there are no edges. Give n_nodes to make a graph of isolated nodes.")
    n = n_nodes if n_nodes is not None else source.largest_id() + 1
    shift = max(0, int(n - 1).bit_length() - 16)
    counts = np.zeros(_BLOCKS + 1, dtype=np.int64)
    loops = done = 0
    weighted = False
    announce(_kernels.histogram, "counting edges")
    for u, v, w in source.batches():
        more, bad = _kernels.histogram(frozen(u), frozen(v), n, shift, not directed, counts)
        if bad >= 0:
            raise InputError(
                f"edge {done + bad} joins {u[bad]} and {v[bad]}, but ids run from 0 to {n - 1}. "
                + ("State a larger n_nodes." if n_nodes is not None else "Ids must not be negative.")
            )
        if w is not None:
            weighted = True
            wrong = ~np.isfinite(w) | (w < 0)
            if wrong.any():
                k = int(wrong.argmax())
                raise InputError(f"the weight of edge {done + k} is {w[k]}; it must be finite and not negative.")
        loops += more
        done += len(u)
        report(progress, "counting edges", done, total)
    width = 20 if weighted else 12 if n <= np.iinfo(np.int32).max else 20
    first = _cut(counts, shift, n, max(1, memory // (3 * width)))
    plan = _Plan(source.fingerprint, n, directed, weighted, memory, shift, first, loops, int(counts.sum()))
    _save_state(work, {"asked": asked, "plan": vars(plan), "batches": 0, "lengths": [0] * plan.n_buckets})
    return plan


def _cut(counts: Int64Array, shift: int, n: int, most: int) -> list[int]:
    """Cut the rows at block borders so that each bucket has at most ``most`` entries, if one block does not."""
    first, filled = [0], 0
    for block in range(min(len(counts), -(-n // (1 << shift)))):
        rows = (block << shift) - first[-1]
        if filled and (filled + counts[block] > most or rows >= most):
            first.append(block << shift)
            filled = 0
        filled += int(counts[block])
    return [*first, n]


def _fill_buckets(source: EdgeSource, work: Path, plan: _Plan, progress: ProgressCallback | None) -> None:
    """Append every edge to its buckets; after each batch the state says how long the files should be."""
    from graphquilt.ingest import _kernels
    from graphquilt.kernels import announce, frozen

    state = _load_state(work)
    if state["batches"] < 0:
        return
    lengths = np.array(state["lengths"], dtype=np.int64)
    for b in range(plan.n_buckets):
        for name, kind in plan.arrays.items():
            with (work / f"{b}.{name}").open("ab") as file:
                file.truncate(int(lengths[b]) * kind.itemsize)
    first = np.array(plan.first[:-1], dtype=np.int64)
    bucket = np.searchsorted(first, np.arange(_BLOCKS + 1, dtype=np.int64) << plan.shift, side="right") - 1
    empty = np.empty(0)
    announce(_kernels.distribute, "distributing edges")
    done = 0
    for number, (u, v, w) in enumerate(source.batches()):
        done += len(u)
        if number < state["batches"]:
            continue
        rows, out, heavy, starts = _kernels.distribute(
            frozen(u),
            frozen(v),
            frozen(empty if w is None else w),
            not plan.directed,
            plan.shift,
            bucket,
            first,
            np.empty(0, dtype=plan.column_type),
        )
        parts = {"rows": rows, "columns": out, "weights": heavy}
        for b in range(plan.n_buckets):
            for name in plan.arrays:
                with (work / f"{b}.{name}").open("ab") as file:
                    file.write(memoryview(parts[name][starts[b] : starts[b + 1]]).cast("B"))
        lengths += np.diff(starts)
        _save_state(work, state | {"batches": number + 1, "lengths": lengths.tolist()})
        report(progress, "distributing edges", done, source.n_edges)
    _save_state(work, state | {"batches": -1, "lengths": lengths.tolist(), "sorted": 0, "written": 0})


def _sort_buckets(work: Path, plan: _Plan, progress: ProgressCallback | None) -> None:
    """Turn one bucket after the other into rows of the CSR; after each the state says what has been written."""
    from graphquilt.ingest import _kernels
    from graphquilt.kernels import announce, frozen

    state = _load_state(work)
    kinds = plan.results
    announce(_kernels.sort_weighted_rows if plan.weighted else _kernels.sort_rows, "sorting edges")
    for b in range(state["sorted"], plan.n_buckets):
        rows, columns, *heavy = (np.fromfile(work / f"{b}.{name}", dtype=kind) for name, kind in plan.arrays.items())
        n_rows = plan.first[b + 1] - plan.first[b]
        kernel: Any = _kernels.sort_weighted_rows if plan.weighted else _kernels.sort_rows
        ends, columns, *heavy = kernel(frozen(rows), frozen(columns), *(frozen(h) for h in heavy), n_rows)
        del rows
        written = state["written"]
        places = {"indptr": plan.first[b] + (b > 0), "indices": written, "weights": written}
        values: dict[str, Any] = {"indptr": ends[b > 0 :] + written, "indices": columns}
        if heavy:
            values["weights"] = heavy[0]
        for name, kind in kinds.items():
            with (work / f"{name}.npy").open("ab" if b else "wb") as file:
                _go_to(file, places[name], kind)
                file.write(memoryview(values[name]).cast("B"))
        state |= {"sorted": b + 1, "written": written + len(columns)}
        _save_state(work, state)
        report(progress, "sorting edges", b + 1, plan.n_buckets)


def _header(kind: np.dtype[Any], length: int) -> dict[str, Any]:
    return {"descr": kind.str, "fortran_order": False, "shape": (length,)}


def _go_to(file: Any, place: int, kind: np.dtype[Any]) -> None:
    """Cut the file after ``place`` entries. NumPy leaves room in a header for the length to grow."""
    if file.tell() == 0:
        np.lib.format.write_array_header_1_0(file, _header(kind, 0))
        file.flush()
        return
    with open(file.name, "rb") as head:
        np.lib.format.read_magic(head)
        np.lib.format.read_array_header_1_0(head)
        start = head.tell()
    file.truncate(start + place * kind.itemsize)
    file.seek(0, 2)


def _finish(target: Path, work: Path, plan: _Plan) -> None:
    state = _load_state(work)
    for name, kind in plan.results.items():
        path = work / f"{name}.npy"
        if path.exists():  # not yet moved by a build that was stopped right here
            with path.open("r+b") as file:
                length = plan.n_nodes + 1 if name == "indptr" else state["written"]
                np.lib.format.write_array_header_1_0(file, _header(kind, length))
            path.replace(target / path.name)
    logger.info(
        "%d edges read: %d self loops and %d duplicate entries removed; %d nodes, %d entries",
        plan.source["n_edges"],
        plan.loops,
        plan.entries - state["written"],
        plan.n_nodes,
        state["written"],
    )
    write_description(
        target,
        describe(n_nodes=plan.n_nodes, n_edges=state["written"], directed=plan.directed, arrays=sorted(plan.results)),
    )
    shutil.rmtree(work)
