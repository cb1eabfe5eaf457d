"""Buckets of edges on disk: fill them, and sort one after the other into the rows of a CSR."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError
from graphquilt.files import write_text
from graphquilt.graph.checks import index_type
from graphquilt.graph.reading.assembly import distribute, merge_rows, place_edges
from graphquilt.graph.reading.edge_source import EdgeSource
from graphquilt.progress import ProgressCallback, report

BLOCKS = 1 << 16  # of rows, by which edges are counted
_PIECE = 1 << 24  # bytes that are read at once
_STATE = "progress.json"


@dataclass(frozen=True)
class Plan:
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
        """Number of buckets."""
        return len(self.first) - 1

    @property
    def arrays(self) -> dict[str, np.dtype[Any]]:
        """The arrays of each bucket."""
        dtypes = {"rows": np.dtype(np.uint32), "columns": np.dtype(index_type(self.n_nodes))}
        return dtypes | ({"weights": np.dtype(np.float64)} if self.weighted else {})


def load_state(work: Path) -> dict[str, Any]:
    """Return what the working folder says of the build; nothing if it does not."""
    try:
        state = json.loads((work / _STATE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def save_state(work: Path, state: dict[str, Any]) -> None:
    """Say how far the build has come."""
    write_text(work / _STATE, json.dumps(state), durable=False)


def damaged(work: Path, problem: str) -> FormatError:
    """Return the error for a working folder that is not as it was left."""
    return FormatError(f"the unfinished build in {work} is damaged ({problem}). Remove that folder and run again.")


def fill_buckets(source: EdgeSource, work: Path, plan: Plan, progress: ProgressCallback | None) -> None:
    """Append every edge to its buckets; after each batch the state says how long the files are, and their checksums."""
    state = load_state(work)
    if state["batches"] < 0:
        return
    lengths, sums = np.array(state["lengths"], dtype=np.int64), state["sums"]
    for b in range(plan.n_buckets):
        for name, kind in plan.arrays.items():
            with (work / f"{b}.{name}").open("ab") as file:
                size, present = int(lengths[b]) * kind.itemsize, file.tell()
                if present < size:  # after a power cut: nothing here waits for the disk
                    raise damaged(work, f"{name} of bucket {b} have {present} bytes and not {size}")
                file.truncate(size)
    first = np.array(plan.first[:-1], dtype=np.int64)
    bucket = np.searchsorted(first, np.arange(BLOCKS + 1, dtype=np.int64) << plan.shift, side="right") - 1
    columns_like = np.empty(0, dtype=plan.arrays["columns"])
    done = 0
    for number, (u, v, w) in enumerate(source.batches()):
        done += len(u)
        if number < state["batches"]:
            continue
        if len(u) and not (min(u.min(), v.min()) >= 0 and max(u.max(), v.max()) < plan.n_nodes):
            raise damaged(work, f"it counted {plan.n_nodes} nodes, and ids are outside")
        if (w is not None) != plan.weighted:
            raise damaged(work, "edges have weights or not, unlike before")
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
        save_state(work, state | {"batches": number + 1, "lengths": lengths.tolist()})
        report(progress, "distributing edges", done, source.n_edges)
    save_state(work, state | {"batches": -1, "lengths": lengths.tolist(), "sorted": 0, "written": 0})


def _check_bucket(
    work: Path, b: int, parts: dict[str, AnyArray], state: Mapping[str, Any], bounds: tuple[int, int]
) -> None:
    """Raise unless the files of a bucket are what was written."""
    sizes, length = {len(values) for values in parts.values()}, state["lengths"][b]
    if sizes != {length}:
        raise damaged(work, f"bucket {b} has {sorted(sizes)} entries and not {length}")
    for name, values in parts.items():
        if zlib.crc32(values.data.cast("B")) != state["sums"][name][b]:
            raise damaged(work, f"{name} of bucket {b} have another checksum")
    for name, bound in zip(("rows", "columns"), bounds, strict=True):
        if length and not 0 <= int(parts[name].min()) <= int(parts[name].max()) < bound:
            raise damaged(work, f"{name} of bucket {b} are outside 0..{bound - 1}")
    if "weights" in parts and not (np.isfinite(parts["weights"]) & (parts["weights"] >= 0)).all():
        raise damaged(work, f"weights of bucket {b} are not finite")


def sort_buckets(
    work: Path, plan: Plan, progress: ProgressCallback | None, rule: int
) -> tuple[int, int, dict[str, dict[str, Any]]]:
    """Turn one bucket after the other into rows of the CSR.

    Return how many entries it has, how many of them differ from a duplicate, and shape, type and checksum of its
    arrays. After each bucket the state says what has been written; a header is true only at the end, because a build
    may be stopped in the middle of any write. NumPy leaves room in a header for the length to grow: all headers of a
    file have the same length. Only a build that was stopped reads again what it has written.
    """
    state, differing = load_state(work), 0
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
            raise damaged(work, f"bucket {b} is gone") from error
        n_rows = plan.first[b + 1] - plan.first[b]
        _check_bucket(work, b, parts, state, (n_rows, plan.n_nodes))
        rows = parts["rows"], parts["columns"], parts.get("weights", np.empty(0))
        rows = place_edges(*rows, False, n_rows, plan.first[b], parts["columns"][:0])[:3]
        del parts
        ends, indices, weights, more = merge_rows(*rows, rule)
        differing += more
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
        save_state(work, state)
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
        raise damaged(work, f"{name} cannot be read: {error}") from error
    if digest.hexdigest() != expected:
        raise damaged(work, f"{name} has another checksum")
    return digest
