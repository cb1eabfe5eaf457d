"""Number the ids of an edge list that does not fit in memory.

The table is read once, in runs that do: each keeps its rows as places in a list of its own ids. The lists are sorted
and merged, range by range of ids, and each run learns the number of each of its ids. No list of all ids is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.files import array_writer, map_array, temporary_array
from graphquilt.graph.reading.edge_columns import BadRows, EdgeTable
from graphquilt.graph.reading.ids import (
    Census,
    begins_with_names,
    check_room,
    collect_runs,
    place_of,
    settle_kind,
    sort_names,
)
from graphquilt.progress import ProgressCallback, report

_LEAST_IDS = 1024  # that are merged at one time
_PIECE = 1 << 16
Kind = Literal["integer", "text", "mixed"]


@dataclass(frozen=True)
class Spool:
    """An edge list in a folder, with ids numbered in ascending order, or taken as they are."""

    folder: Path
    lengths: list[int]  # rows of each run
    n_edges: int
    n_nodes: int
    weighted: bool
    node_ids: dict[str, Any] | None  # what the description of a graph says of them

    def batches(self, batch: int) -> Iterator[tuple[Int64Array, Int64Array, Float64Array | None]]:
        """Yield source, target and weights of at most ``batch`` edges."""
        for k in range(len(self.lengths)):
            numbers = _numbers(self.folder, k)
            ends, weights = _load(self.folder, k, "ends"), _load(self.folder, k, "weights") if self.weighted else None
            for start in range(0, ends.shape[1], batch):
                part = slice(start, start + batch)
                u, v = numbers[ends[0, part]], numbers[ends[1, part]]
                usable = (u >= 0) & (v >= 0) if len(numbers) and numbers.min() < 0 else None
                w = None if weights is None else np.array(weights[part])
                if usable is not None:
                    u, v, w = u[usable], v[usable], None if w is None else w[usable]
                yield u, v, w


def spool_edges(
    table: EdgeTable,
    folder: Path,
    *,
    n_nodes: int | None,
    bad_rows: BadRows,
    memory: int,
    progress: ProgressCallback | None = None,
) -> Spool | None:
    """Read and number an edge list.

    None if the first row names the columns: its ids occur nowhere else, and no other row is like that.
    """
    import pyarrow as pa

    lengths, kind, weighted = _read_runs(table, folder, bad_rows, memory, progress)
    if n_nodes is not None and kind != "text":
        for k in range(len(lengths)):
            ids, ranks = sort_names(_load_names(folder, k), kind)
            np.save(folder / f"{k}.ranks.npy", ranks)
            ids.tofile(folder / f"{k}.numbers")
        count, entry = n_nodes, None
    else:
        longest = _sort_runs(table, folder, len(lengths), kind)
        sizes = [len(_load(folder, k, "ids")) for k in range(len(lengths))]
        count, entry = _merge(folder, sizes, longest, memory // 4, progress)
        if n_nodes is not None and count != n_nodes:
            raise InputError(f"{table.where} has {count} text ids, and {n_nodes} nodes are stated. Leave n_nodes out.")
        if kind == "text" and table.below_header is not None and _begins_with_names(folder, lengths, count):
            return None
    pa.default_memory_pool().release_unused()
    spool = Spool(folder, lengths, sum(lengths), count, weighted, entry)
    if kind == "mixed":  # rows with an id that is not an integer are left out
        spool = replace(spool, n_edges=sum(len(u) for u, _, _ in spool.batches(1 << 20)))
    return spool


def _read_runs(
    table: EdgeTable, folder: Path, bad_rows: BadRows, memory: int, progress: ProgressCallback | None
) -> tuple[list[int], Kind, bool]:
    """Write the rows in runs, and decide what ids are."""
    import pyarrow as pa

    tally, census, lengths, weighted = table.tally(), Census(table.ids), [], False
    for k, run in enumerate(collect_runs(table.batches(tally), memory / 16)):
        census.count(run)
        with pa.OSFile(str(folder / f"{k}.names"), "wb") as file, pa.ipc.new_file(file, _schema()) as writer:
            writer.write_batch(pa.record_batch([run.names], schema=_schema()))
        np.save(folder / f"{k}.ends.npy", run.ends)
        if run.weights is not None:
            weighted = True
            np.save(folder / f"{k}.weights.npy", run.weights)
        lengths.append(run.ends.shape[1])
        report(progress, "reading edges", sum(lengths), sum(lengths))
    return lengths, settle_kind(table, tally, census, bad_rows), weighted


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([("name", pa.large_string())])


def _load_names(folder: Path, k: int) -> Any:
    import pyarrow as pa

    with pa.OSFile(str(folder / f"{k}.names"), "rb") as file:
        return pa.ipc.open_file(file).get_batch(0).column(0)


def _load(folder: Path, k: int, name: str) -> AnyArray:
    return map_array(folder / f"{k}.{name}.npy")


def _numbers(folder: Path, k: int) -> Int64Array:
    """Return the number of each id in the list of a run, -1 for those that are left out."""
    numbers = np.fromfile(folder / f"{k}.numbers", dtype=np.int64)
    values: Int64Array = np.append(numbers, -1)[_load(folder, k, "ranks")]
    return values


def _sort_runs(table: EdgeTable, folder: Path, n_runs: int, kind: Kind) -> int:
    """Write the ids of each run in ascending order, integers or UTF-8; return the number of letters of the longest."""
    import pyarrow.compute as pc

    longest = total = n_ids = 0
    for k in range(n_runs):
        ids, ranks = sort_names(_load_names(folder, k), kind)
        np.save(folder / f"{k}.ranks.npy", ranks)
        if kind != "text":
            np.save(folder / f"{k}.ids.npy", ids)
            continue
        if (nul := pc.index(pc.match_substring(ids, "\0"), True).as_py()) >= 0:
            name = ids[nul].as_py()
            raise FormatError(f"{place_of(table)(name)}: the id {name[:80]!r} has a NUL in it. Remove it.")
        letters = pc.utf8_length(ids).to_numpy()
        total, n_ids = total + int(letters.sum()), n_ids + len(ids)
        longest = max(longest, int(letters.max(initial=1)))
        check_room(str(table.where), longest=longest, n_ids=n_ids, total=total)
        width = max(1, pc.max(pc.binary_length(ids)).as_py() or 1)
        texts = np.lib.format.open_memmap(folder / f"{k}.ids.npy", "w+", f"S{width}", (len(ids),))
        for start in range(0, len(ids), _PIECE):
            texts[start : start + _PIECE] = _padded(ids.slice(start, _PIECE), width)
        texts.flush()
    return longest


def _padded(ids: Any, width: int) -> AnyArray:
    """Return text in an Arrow array as UTF-8 in an array of NumPy, each with as many bytes."""
    _, offsets, data = ids.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[ids.offset : ids.offset + len(ids) + 1]
    padded = np.zeros((len(ids), width), dtype=np.uint8)
    padded[np.arange(width) < np.diff(ends)[:, None]] = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]
    return padded.view(f"S{width}").ravel()


def _decoded(ids: AnyArray, kind: np.dtype[Any]) -> AnyArray:
    try:
        return ids.astype(kind)
    except UnicodeDecodeError:  # not ASCII
        return np.char.decode(ids, "utf-8").astype(kind)


def _merge(
    folder: Path, sizes: list[int], longest: int, room: int, progress: ProgressCallback | None
) -> tuple[int, dict[str, Any] | None]:
    """Merge the sorted ids of all runs: number them, and write the list of all ids; return how many there are.

    The ids are cut into ranges at regular samples of the runs, so that each has at most twice as many as fit.
    """
    runs = [_load(folder, k, "ids") for k in range(len(sizes))]
    most = max(_LEAST_IDS, room // (48 + max(run.dtype.itemsize for run in runs) + 4 * longest))
    step = max(1, most // max(1, len(runs)))
    samples = np.sort(np.concatenate([run[::step] for run in runs]))
    borders = np.unique(samples[:: max(1, most // step)])[1:]
    cuts = [np.concatenate([[0], np.searchsorted(run, borders), [len(run)]]) for run in runs]
    files = [folder / f"{k}.numbers" for k in range(len(runs))]
    for file in files:
        file.write_bytes(b"")
    kind, plain = np.dtype(f"U{longest}" if longest else np.int64), not longest
    with array_writer(folder / "node_ids.npy", kind) as out:
        for r in range(len(borders) + 1):
            parts = [np.asarray(run[cut[r] : cut[r + 1]]) for run, cut in zip(runs, cuts, strict=True)]
            # With the index, NumPy's sort is stable: it merges lists that are sorted already.
            ids, _, numbers = np.unique(np.concatenate(parts), return_index=True, return_inverse=True)
            n, done = out.length, 0
            for file, part in zip(files, parts, strict=True):
                with file.open("ab") as end:
                    end.write((numbers[done : done + len(part)] + n).tobytes())
                done += len(part)
            plain = plain and (not len(ids) or bool(ids[0] == n and ids[-1] == n + len(ids) - 1))
            out.append(_decoded(ids, kind) if longest else ids)
            report(progress, "numbering ids", r + 1, len(borders) + 1)
    return out.length, None if plain else out.entry


def _begins_with_names(folder: Path, lengths: list[int], n_nodes: int) -> bool:
    counts = temporary_array((n_nodes,), np.uint8)
    spool = Spool(folder, lengths, 0, n_nodes, False, None)
    for u, v, _ in spool.batches(1 << 20):
        for ids in (u, v):
            numbers, more = np.unique(ids, return_counts=True)
            counts[numbers] = np.minimum(2, counts[numbers] + np.minimum(more, 2))
    return begins_with_names(sum(lengths), counts, (np.stack([u, v]) for u, v, _ in spool.batches(1 << 20)))
