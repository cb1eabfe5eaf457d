"""Edges that may be larger than memory, in batches that are the same every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float64Array, refuse_masked
from graphquilt.errors import FormatError, InputError
from graphquilt.graph.files import open_array
from graphquilt.graph.reading.edge_columns import BadRows, EdgeTable, RowTally
from graphquilt.graph.reading.ids import signed
from graphquilt.graph.reading.sources import TextOptions, edge_ends, open_text, parquet_table
from graphquilt.graph.reading.spool import spool_edges
from graphquilt.progress import ProgressCallback

Batch = tuple[AnyArray, AnyArray, Float64Array | None]  # source, target, weights


@dataclass(frozen=True, eq=False)
class EdgeSource:
    """Edges that a build reads in the same batches as often as it needs to."""

    n_edges: int
    batches: Callable[[], Iterator[Batch]]
    n_nodes: int | None = None  # if it is known without reading
    node_ids: dict[str, Any] | None = None  # what the description of a graph says of node_ids.npy

    def with_ones(self) -> EdgeSource:
        """Return the same edges, all with the weight 1."""
        batches = self.batches
        return replace(self, batches=lambda: ((u, v, np.ones(len(u))) for u, v, _ in batches()))


def edge_source(
    edges: npt.ArrayLike | str | PathLike[str],
    work: Path,
    *,
    columns: tuple[str | int, ...] | None,
    text: TextOptions,
    bad_rows: BadRows,
    n_nodes: int | None,
    memory: int,
    progress: ProgressCallback | None,
) -> EdgeSource:
    """Return what reads edges; text is read and numbered in the folder ``work``."""
    batch = min(memory // 256, 1 << 26)
    if not isinstance(edges, str | PathLike):
        refuse_masked(edges=edges)
        return array_source(np.asanyarray(edges), batch)
    path = Path(edges)
    if path.suffix == ".npy":
        return array_source(open_array(path), batch)
    files = sorted(path.glob("**/*.parquet")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise FormatError(f"{path} is neither a file of edges nor a folder that holds Parquet files.")
    if path.suffix == ".npz":
        raise InputError(f"{path}: .npz is not read out of core. Save the edges as .npy, or leave --memory out.")
    if path.is_dir() or path.suffix in (".parquet", ".pq"):
        table = parquet_table(files, path, columns, batch)
    else:
        table = open_text(path, columns, text)
    if table.unit == "row" and table.ids == "integer":
        return _integer_source(table, bad_rows)
    read = partial(spool_edges, folder=work, n_nodes=n_nodes, bad_rows=bad_rows, memory=memory, progress=progress)
    if (spool := read(table)) is None and table.below_header is not None:
        spool = read(table.below_header())
    assert spool is not None  # the first row is a header now
    return EdgeSource(spool.n_edges, partial(spool.batches, batch), spool.n_nodes, spool.node_ids)


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
        for start in range(0, len(u), batch):
            part = slice(start, start + batch)
            yield signed(None, np.array(u[part])), signed(None, np.array(v[part])), None

    return EdgeSource(len(u), batches)
