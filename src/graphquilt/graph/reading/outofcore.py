"""Build a symmetric, sorted CSR on disk of edges that do not fit in memory, within a bound on memory.

Three passes, all sequential: count the entries of each block of rows; append each edge, in both directions, to the
file of its bucket, a range of rows that fits in memory; sort each bucket and append it to the CSR. ``progress.json``
in the working folder says after each step how far the build has come: an interrupted build resumes there.
``graph.json`` is written last, and nothing unfinished is taken for a graph.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.files import check_disk, check_inside, translate_disk_errors, write_text
from graphquilt.files.stamps import remember
from graphquilt.graph.checks import check_weights, index_type
from graphquilt.graph.files import DESCRIPTION, VERSION, write_description
from graphquilt.graph.reading.assembly import MERGE_RULES, Duplicates, distribute, histogram, log_removed, sort_rows
from graphquilt.graph.reading.sources import EdgeSource, edge_source
from graphquilt.graph.structure import Graph
from graphquilt.progress import ProgressCallback, report

logger = logging.getLogger(__name__)
_BLOCKS = 1 << 16
_PIECE = 1 << 24  # bytes that are read at once
_STATE = "progress.json"
_LARGE_INDEX = 1 << 31  # bytes; up to this, ids are taken as they are, however few edges there are


def build_csr(
    edges: npt.ArrayLike | str | PathLike[str],
    folder: str | PathLike[str],
    *,
    n_nodes: int | None = None,
    directed: bool = False,
    memory: int = 1 << 30,
    columns: tuple[str | int, ...] | None = None,
    duplicates: Duplicates = "max",
    progress: ProgressCallback | None = None,
) -> Graph:
    """Build a graph on disk from edges that may be larger than memory, and open it, memory-mapped.

    Self loops and duplicates are removed, and the log says how many.

    Parameters
    ----------
    edges : int array (2, m) or (m, 2), or a path
        A memory map, or a ``.npy`` file to map, or a Parquet file or a folder of them, read in batches. Ids are
        integers from 0, and every id up to the largest is a node. Ids that are so sparse that their index would take
        more than 2 GiB, and a thousand times the edges, are refused unless ``n_nodes`` is stated.
    folder : path
        Where the graph is written; see :meth:`graphquilt.Graph.open`. While it is built, some 8 bytes per entry (both
        directions count) are needed there, 20 with weights; what has been sorted is removed.
    n_nodes : int, optional
        By default one more than the largest id.
    directed : bool
        Keep edges one-way.
    memory : int
        Bytes of working memory to stay near, at least 16 MiB.
    columns : names or positions, optional
        The columns of Parquet files that hold the source, the target and, if there are to be weights, the weight; by
        default as for :func:`read_edges`.
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
    source = edge_source(edges, columns, batch=min(memory // 256, 1 << 26))
    source = source.with_ones() if duplicates == "count" else source
    target = Path(folder)
    with translate_disk_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        work = target / "building"
        check_inside(work, target)
        work.mkdir(exist_ok=True)
        for path in work.iterdir():  # of a build that was stopped
            check_inside(path, work)
        source.fingerprint["duplicates"] = duplicates
        plan = _plan(source, work, progress, n_nodes=n_nodes, directed=directed, memory=memory)
        check_disk(target, _bytes_left(work, plan), "building this graph")
        (target / DESCRIPTION).unlink(missing_ok=True)
        _fill_buckets(source, work, plan, progress)
        n_entries, differing, arrays = _sort_buckets(work, plan, progress, MERGE_RULES[duplicates])
        for path in work.glob("*.npy"):  # those that a build which was stopped right here has not moved yet
            path.replace(target / path.name)
        sizes = (source.n_edges, plan.loops, plan.n_nodes, n_entries, differing)
        log_removed(*sizes, directed=directed, duplicates=duplicates)
        write_description(target, n_nodes=plan.n_nodes, n_edges=n_entries, directed=directed, arrays=arrays)
        remember(target, {name: entry["sha256"] for name, entry in arrays.items()})
        shutil.rmtree(work)
    return Graph.open(target)


@dataclass(frozen=True)
class _Plan:
    """How the rows are cut into buckets, and what the first pass counted."""

    n_nodes: int
    directed: bool
    weighted: bool
    shift: int
    first: list[int]  # first row of each bucket, and n
    loops: int
    entries: int

    @property
    def n_buckets(self) -> int:
        return len(self.first) - 1

    @property
    def arrays(self) -> dict[str, np.dtype[Any]]:
        """The arrays of each bucket."""
        dtypes = {"rows": np.dtype(np.uint32), "columns": np.dtype(index_type(self.n_nodes))}
        return dtypes | ({"weights": np.dtype(np.float64)} if self.weighted else {})


def _load_state(work: Path) -> dict[str, Any]:
    try:
        state = json.loads((work / _STATE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def _save_state(work: Path, state: dict[str, Any]) -> None:
    write_text(work / _STATE, json.dumps(state), durable=False)


def _plan(
    source: EdgeSource,
    work: Path,
    progress: ProgressCallback | None,
    *,
    n_nodes: int | None,
    directed: bool,
    memory: int,
) -> _Plan:
    """Count the entries of each block of rows, and cut the rows into buckets; or read the plan that is there."""
    fingerprint = source.fingerprint | {"n_edges": source.n_edges}
    settings = {"source": fingerprint, "n_nodes": n_nodes, "directed": directed, "memory": memory, "format": VERSION}
    state = _load_state(work)
    if state.get("settings") == settings and (plan := _stored_plan(state)) is not None:
        logger.info("continuing the build in %s", work)
        return plan
    for old in work.iterdir():
        old.unlink()
    total = source.n_edges
    if total == 0 and n_nodes is None:
        raise InputError("there are no edges. Give n_nodes to make a graph of isolated nodes.")
    n = n_nodes if n_nodes is not None else 1 + max(int(max(u.max(), v.max())) for u, v, _ in source.batches())
    _check_size(n, total, memory, stated=n_nodes is not None)
    shift = _shift(n)
    counts = np.zeros(_BLOCKS + 1, dtype=np.int64)
    loops, done, weighted = 0, 0, False
    for u, v, w in source.batches():
        more, bad = histogram(u, v, n, shift, not directed, counts)
        if bad >= 0:
            raise InputError(
                f"edge {done + bad} joins {u[bad]} and {v[bad]}, but ids run from 0 to {n - 1}. "
                + ("State a larger n_nodes." if n_nodes is not None else "Ids must not be negative.")
            )
        if w is not None:
            weighted = True
            check_weights(w, unit="edge", first=done)
        loops += more
        done += len(u)
        report(progress, "counting edges", done, total)
    width = 12 if not weighted and index_type(n) is np.int32 else 20
    first = _cut(counts, shift, n, memory // (3 * width))
    plan = _Plan(n, directed, weighted, shift, first, loops, int(counts.sum()))
    empty = {"lengths": [0] * plan.n_buckets, "sums": {name: [0] * plan.n_buckets for name in plan.arrays}}
    _save_state(work, {"settings": settings, "plan": vars(plan), "batches": 0, **empty})
    return plan


def _stored_plan(state: dict[str, Any]) -> _Plan | None:
    """Return the plan in a state, or None if the state is damaged: the build then starts again."""
    try:
        plan = _Plan(**state["plan"])
        numbers = [*plan.first, plan.n_nodes, plan.shift, plan.loops, plan.entries, *state["lengths"], state["batches"]]
        places = [0, 0] if state["batches"] >= 0 else [state["sorted"], state["written"]]
        sums = [state["sums"][name] for name in plan.arrays]
        numbers += [number for each in sums for number in each]
    except (KeyError, TypeError):
        return None
    if not all(type(number) is int for number in [*numbers, *places]):
        return None
    if not all(isinstance(each, list) for each in (plan.first, state["lengths"], *sums)):
        return None
    if not (type(plan.directed) is bool and type(plan.weighted) is bool and plan.n_nodes < 2**60):
        return None
    if plan.shift != _shift(plan.n_nodes) or plan.first[:1] != [0] or plan.first[-1] != plan.n_nodes:
        return None
    ascending = all(a < b and a % (1 << plan.shift) == 0 for a, b in pairwise(plan.first))
    complete = all(len(each) == plan.n_buckets for each in (state["lengths"], *sums))
    lengths = min(state["lengths"], default=0) >= 0
    return plan if ascending and complete and lengths and 0 <= places[0] <= plan.n_buckets else None


def _shift(n: int) -> int:
    """Return the power of two that is the number of rows in a block."""
    return max(0, int(n - 1).bit_length() - 16)


def _bytes_left(work: Path, plan: _Plan) -> int:
    """Return how many bytes a build still needs: those of all buckets, and of the index; buckets become columns."""
    width = sum(kind.itemsize for kind in plan.arrays.values())
    present = sum(path.stat().st_size for path in work.iterdir())
    largest = max(_load_state(work)["lengths"], default=0)
    return plan.entries * width + 8 * (plan.n_nodes + 1) + largest * width - present


def _damaged(work: Path, problem: str) -> FormatError:
    return FormatError(f"the unfinished build in {work} is damaged ({problem}). Remove that folder and run again.")


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
    """Append every edge to its buckets; after each batch the state says how long the files are, and their checksums."""
    state = _load_state(work)
    if state["batches"] < 0:
        return
    lengths, sums = np.array(state["lengths"], dtype=np.int64), state["sums"]
    for b in range(plan.n_buckets):
        for name, kind in plan.arrays.items():
            with (work / f"{b}.{name}").open("ab") as file:
                size, present = int(lengths[b]) * kind.itemsize, file.tell()
                if present < size:  # after a power cut: nothing here waits for the disk
                    raise _damaged(work, f"{name} of bucket {b} have {present} bytes and not {size}")
                file.truncate(size)
    first = np.array(plan.first[:-1], dtype=np.int64)
    bucket = np.searchsorted(first, np.arange(_BLOCKS + 1, dtype=np.int64) << plan.shift, side="right") - 1
    columns_like = np.empty(0, dtype=plan.arrays["columns"])
    done = 0
    for number, (u, v, w) in enumerate(source.batches()):
        done += len(u)
        if number < state["batches"]:
            continue
        if len(u) and not (min(u.min(), v.min()) >= 0 and max(u.max(), v.max()) < plan.n_nodes):
            raise _damaged(work, f"it counted {plan.n_nodes} nodes, and ids are outside")
        if (w is not None) != plan.weighted:
            raise _damaged(work, "edges have weights or not, unlike before")
        values = np.empty(0) if w is None else w
        rows, columns, values, starts = distribute(
            u, v, values, not plan.directed, plan.shift, bucket, first, columns_like
        )
        parts: dict[str, AnyArray] = {"rows": rows, "columns": columns, "weights": values}
        for b in range(plan.n_buckets):
            for name in plan.arrays if starts[b] < starts[b + 1] else ():
                content = parts[name][starts[b] : starts[b + 1]].data.cast("B")
                with (work / f"{b}.{name}").open("ab") as file:
                    file.write(content)
                sums[name][b] = zlib.crc32(content, sums[name][b])
        lengths += np.diff(starts)
        _save_state(work, state | {"batches": number + 1, "lengths": lengths.tolist()})
        report(progress, "distributing edges", done, source.n_edges)
    _save_state(work, state | {"batches": -1, "lengths": lengths.tolist(), "sorted": 0, "written": 0})


def _check_bucket(
    work: Path, b: int, parts: dict[str, AnyArray], state: Mapping[str, Any], bounds: tuple[int, int]
) -> None:
    """Raise unless the files of a bucket are what was written."""
    sizes, length = {len(values) for values in parts.values()}, state["lengths"][b]
    if sizes != {length}:
        raise _damaged(work, f"bucket {b} has {sorted(sizes)} entries and not {length}")
    for name, values in parts.items():
        if zlib.crc32(values.data.cast("B")) != state["sums"][name][b]:
            raise _damaged(work, f"{name} of bucket {b} have another checksum")
    for name, bound in zip(("rows", "columns"), bounds, strict=True):
        if length and not 0 <= int(parts[name].min()) <= int(parts[name].max()) < bound:
            raise _damaged(work, f"{name} of bucket {b} are outside 0..{bound - 1}")
    if "weights" in parts and not (np.isfinite(parts["weights"]) & (parts["weights"] >= 0)).all():
        raise _damaged(work, f"weights of bucket {b} are not finite")


def _sort_buckets(
    work: Path, plan: _Plan, progress: ProgressCallback | None, rule: int
) -> tuple[int, int, dict[str, dict[str, Any]]]:
    """Turn one bucket after the other into rows of the CSR.

    Return how many entries it has, how many of them differ from a duplicate, and shape, type and checksum of its
    arrays. After each bucket the state says what has been written; a header is true only at the end, because a build
    may be stopped in the middle of any write. NumPy leaves room in a header for the length to grow: all headers of a
    file have the same length. Only a build that was stopped reads again what it has written.
    """
    state, differing = _load_state(work), 0
    dtypes = {"indptr": np.dtype(np.int64), "indices": plan.arrays["columns"]}
    dtypes |= {"weights": np.dtype(np.float64)} if plan.weighted else {}
    digests = {name: hashlib.sha256() for name in dtypes}
    if 0 < state["sorted"] < plan.n_buckets:
        lengths = dict.fromkeys(dtypes, state["written"]) | {"indptr": plan.first[state["sorted"]] + 1}
        digests = {name: _read_again(work, (name, lengths[name]), kind, state) for name, kind in dtypes.items()}
    for b in range(state["sorted"], plan.n_buckets):
        try:
            parts = {name: np.fromfile(work / f"{b}.{name}", dtype=kind) for name, kind in plan.arrays.items()}
        except FileNotFoundError as error:  # after a power cut: the state is older than what was removed
            raise _damaged(work, f"bucket {b} is gone") from error
        n_rows = plan.first[b + 1] - plan.first[b]
        _check_bucket(work, b, parts, state, (n_rows, plan.n_nodes))
        weights = parts.get("weights", np.empty(0))
        ends, indices, weights, more = sort_rows(parts["rows"], parts["columns"], weights, n_rows, rule)
        differing += more
        del parts
        written = state["written"]
        results: list[tuple[str, int, AnyArray]] = [
            ("indptr", plan.first[b] + (b > 0), ends[b > 0 :] + written),
            ("indices", written, indices),
        ]
        if plan.weighted:
            results.append(("weights", written, weights))
        arrays = {}
        for name, place, values in results:
            header = {"descr": values.dtype.str, "fortran_order": False, "shape": (place + len(values),)}
            with (work / f"{name}.npy").open("r+b" if b else "wb") as file:
                np.lib.format.write_array_header_1_0(file, header)
                file.seek(place * values.itemsize, os.SEEK_CUR)
                file.write(values.data.cast("B"))
                if b + 1 == plan.n_buckets:
                    file.flush()
                    os.fsync(file.fileno())
            digests[name].update(values.data.cast("B"))
            shape, dtype = [place + len(values)], values.dtype.str
            arrays[name] = {"shape": shape, "dtype": dtype, "sha256": digests[name].hexdigest()}
        state |= {"sorted": b + 1, "written": written + len(indices), "arrays": arrays}
        _save_state(work, state)
        for name in plan.arrays:
            (work / f"{b}.{name}").unlink(missing_ok=True)
        report(progress, "sorting edges", b + 1, plan.n_buckets)
    return int(state["written"]), differing, state["arrays"]


def _read_again(work: Path, place: tuple[str, int], dtype: np.dtype[Any], state: Mapping[str, Any]) -> hashlib._Hash:
    """Return the checksum of the entries that a build which was stopped has written; raise if they are not there."""
    (name, length), digest, header = place, hashlib.sha256(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype.str, "fortran_order": False, "shape": (length,)})
    try:
        expected = state["arrays"][name]["sha256"]
        with (work / f"{name}.npy").open("rb") as file:
            file.seek(header.tell())
            left = length * dtype.itemsize
            while left > 0 and (block := file.read(min(left, _PIECE))):
                digest.update(block)
                left -= len(block)
    except (OSError, KeyError, TypeError) as error:
        raise _damaged(work, f"{name} cannot be read: {error}") from error
    if digest.hexdigest() != expected:
        raise _damaged(work, f"{name} has another checksum")
    return digest
