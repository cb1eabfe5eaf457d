"""Number the ids of an edge list that does not fit in memory.

The table is read once, in runs that do: each keeps its rows as places in a list of its own ids. The lists are sorted
and merged, range by range of ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, pieces
from graphquilt.errors import InputError
from graphquilt.files.array_files import array_writer, map_array, temporary_array
from graphquilt.graph.reading import ids as naming
from graphquilt.graph.reading.edge_columns import BadRows, EdgeTable
from graphquilt.graph.reading.ids import collect_runs
from graphquilt.progress import ProgressCallback, report

_LEAST_IDS = 1024  # that are merged at one time
_PIECE = 1 << 16
Kind = Literal["integer", "text", "mixed"]
Batch = tuple[AnyArray, AnyArray, Float64Array | None]  # source, target, weights


@dataclass(frozen=True, eq=False)
class EdgeSource:
    """Edges that a build reads in the same batches as often as it needs to."""

    n_edges: int
    batches: Callable[[], Iterator[Batch]]
    n_nodes: int | None = None  # if it is known without reading
    node_ids: dict[str, Any] | None = None  # what the description of a graph says of node_ids.npy


def _batches(folder: Path, n_runs: int, batch: int) -> Iterator[Batch]:
    """Yield source, target and weights of at most ``batch`` edges of the runs in a folder."""
    for k in range(n_runs):
        numbers = np.append(np.fromfile(folder / f"{k}.numbers", dtype=np.int64), -1)[_load(folder, k, "ranks")]
        ends = _load(folder, k, "ends")
        weights = _load(folder, k, "weights") if (folder / f"{k}.weights.npy").exists() else None
        for part in pieces(ends.shape[1], batch):
            u, v = numbers[ends[0, part]], numbers[ends[1, part]]
            w = None if weights is None else np.array(weights[part])
            if len(numbers) and numbers.min() < 0:  # ids that are left out
                usable = (u >= 0) & (v >= 0)
                u, v, w = u[usable], v[usable], None if w is None else w[usable]
            yield u, v, w


def spool_edges(
    table: EdgeTable,
    folder: Path,
    batch: int,
    n_nodes: int | None,
    *,
    bad_rows: BadRows,
    memory: int,
    progress: ProgressCallback | None = None,
) -> EdgeSource:
    """Read and number an edge list, in a folder; ids are numbered in ascending order, or taken as they are."""
    import pyarrow as pa

    lengths, kind = _read_runs(table, folder, bad_rows, memory, progress)
    read = partial(_batches, folder, len(lengths), batch)
    if n_nodes is not None and kind != "text":
        for k in range(len(lengths)):
            ids, ranks = naming.sort_names(_load_names(folder, k), kind)
            np.save(folder / f"{k}.ranks.npy", ranks)
            ids.tofile(folder / f"{k}.numbers")
        count, entry = n_nodes, None
    else:
        longest = _sort_runs(table, folder, len(lengths), kind)
        sizes = [len(_load(folder, k, "ids")) for k in range(len(lengths))]
        count, entry = _merge(folder, sizes, longest, memory // 4, progress)
        if n_nodes is not None and count != n_nodes:
            raise InputError(f"{table.where} has {count} text ids, and {n_nodes} nodes are stated. Leave n_nodes out.")
        if kind == "text" and table.below_header is not None and _begins_with_names(read, sum(lengths), count):
            below = table.below_header()
            return spool_edges(below, folder, batch, n_nodes, bad_rows=bad_rows, memory=memory, progress=progress)
    pa.default_memory_pool().release_unused()
    # Rows with an id that is not an integer are left out.
    n_edges = sum(len(u) for u, _, _ in read()) if kind == "mixed" else sum(lengths)
    return EdgeSource(n_edges, read, count, entry)


def _read_runs(
    table: EdgeTable, folder: Path, bad_rows: BadRows, memory: int, progress: ProgressCallback | None
) -> tuple[list[int], Kind]:
    """Write the rows in runs, and decide what ids are."""
    import pyarrow as pa

    tally, census, lengths = table.tally(), naming.Census(table.ids), []
    for k, run in enumerate(collect_runs(table.batches(tally), memory / 16)):
        census.count(run)
        batch = pa.record_batch([run.names], ["name"])
        with pa.OSFile(str(folder / f"{k}.names"), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        np.save(folder / f"{k}.ends.npy", run.ends)
        if run.weights is not None:
            np.save(folder / f"{k}.weights.npy", run.weights)
        lengths.append(run.ends.shape[1])
        report(progress, "reading edges", sum(lengths), sum(lengths))
    return lengths, naming.settle_kind(table, tally, census, bad_rows)


def _load_names(folder: Path, k: int) -> Any:
    import pyarrow as pa

    with pa.OSFile(str(folder / f"{k}.names"), "rb") as file:
        return pa.ipc.open_file(file).get_batch(0).column(0)


def _load(folder: Path, k: int, name: str) -> AnyArray:
    return map_array(folder / f"{k}.{name}.npy")


def _sort_runs(table: EdgeTable, folder: Path, n_runs: int, kind: Kind) -> int:
    """Write the ids of each run in ascending order, integers or UTF-8; return the number of letters of the longest."""
    import pyarrow.compute as pc

    seen = (1, 0, 0)
    for k in range(n_runs):
        ids, ranks = naming.sort_names(_load_names(folder, k), kind)
        np.save(folder / f"{k}.ranks.npy", ranks)
        if kind != "text":
            np.save(folder / f"{k}.ids.npy", ids)
            continue
        seen = naming.check_text(table.where, ids, seen)
        width = max(1, pc.max(pc.binary_length(ids)).as_py() or 1)
        texts = np.lib.format.open_memmap(folder / f"{k}.ids.npy", "w+", f"S{width}", (len(ids),))
        for here in pieces(len(ids), _PIECE):
            texts[here] = [text.encode() for text in ids[here].to_pylist()]
        texts.flush()
    return seen[0] if kind == "text" else 0


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
            out.append(np.char.decode(ids, "utf-8").astype(kind) if longest else ids)
            report(progress, "numbering ids", r + 1, len(borders) + 1)
    return out.length, None if plain else out.entry


def _begins_with_names(read: Callable[[], Iterator[Batch]], n_edges: int, n_nodes: int) -> bool:
    counts = temporary_array((n_nodes,), np.uint8)
    for u, v, _ in read():
        for ids in (u, v):
            numbers, more = np.unique(ids, return_counts=True)
            counts[numbers] = np.minimum(2, counts[numbers] + np.minimum(more, 2))
    return naming.begins_with_names(n_edges, counts, (np.stack([u, v]) for u, v, _ in read()))
