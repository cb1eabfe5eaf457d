"""Buckets of edges on disk: fill them, and sort one after the other into the rows of a CSR."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import InputError
from graphquilt.files import array_writer
from graphquilt.graph.checks import index_type
from graphquilt.graph.reading.assembly import distribute, merge_rows, place_edges
from graphquilt.graph.reading.edge_source import EdgeSource
from graphquilt.progress import ProgressCallback, report

BLOCKS = 1 << 16  # of rows, by which edges are counted


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

    @property
    def n_bytes(self) -> int:
        """The room that a build needs on the disk: that of all buckets, which become columns, and of the index."""
        return self.entries * sum(kind.itemsize for kind in self.arrays.values()) + 8 * (self.n_nodes + 1)


def fill_buckets(source: EdgeSource, work: Path, plan: Plan, progress: ProgressCallback | None) -> None:
    """Append every edge to its buckets."""
    first = np.array(plan.first[:-1], dtype=np.int64)
    bucket = np.searchsorted(first, np.arange(BLOCKS + 1, dtype=np.int64) << plan.shift, side="right") - 1
    columns_like = np.empty(0, dtype=plan.arrays["columns"])
    for b in range(plan.n_buckets):
        for name in plan.arrays:
            (work / f"{b}.{name}").touch()
    done = 0
    for u, v, w in source.batches():
        if len(u) and not (min(u.min(), v.min()) >= 0 and max(u.max(), v.max()) < plan.n_nodes):
            raise InputError("the edges have changed since they were counted. Run the same command again.")
        values = np.empty(0) if w is None else w
        rows, columns, values, starts = distribute(
            u, v, values, not plan.directed, plan.shift, bucket, first, columns_like
        )
        parts: dict[str, AnyArray] = {"rows": rows, "columns": columns, "weights": values}
        for b in range(plan.n_buckets):
            for name in plan.arrays if starts[b] < starts[b + 1] else ():
                with (work / f"{b}.{name}").open("ab") as file:
                    file.write(parts[name][starts[b] : starts[b + 1]].data.cast("B"))
        done += len(u)
        report(progress, "distributing edges", done, source.n_edges)


def sort_buckets(
    work: Path, plan: Plan, progress: ProgressCallback | None, rule: int
) -> tuple[dict[str, dict[str, Any]], int]:
    """Turn one bucket after the other into rows of the CSR.

    Return shape, type and checksum of its arrays, and how many entries differ from a duplicate.
    """
    dtypes = {"indptr": np.dtype(np.int64), "indices": plan.arrays["columns"]}
    dtypes |= {"weights": np.dtype(np.float64)} if plan.weighted else {}
    differing = 0
    with ExitStack() as stack:
        files = {name: stack.enter_context(array_writer(work / f"{name}.npy", kind)) for name, kind in dtypes.items()}
        for b in range(plan.n_buckets):
            parts = {name: np.fromfile(work / f"{b}.{name}", dtype=kind) for name, kind in plan.arrays.items()}
            for name in parts:
                (work / f"{b}.{name}").unlink()
            rows = parts["rows"], parts["columns"], parts.get("weights", np.empty(0))
            rows = place_edges(*rows, False, plan.first[b + 1] - plan.first[b], plan.first[b], parts["columns"][:0])[:3]
            del parts
            ends, indices, weights, more = merge_rows(*rows, rule)
            differing += more
            files["indptr"].append(ends[b > 0 :] + files["indices"].length)
            files["indices"].append(indices)
            if plan.weighted:
                files["weights"].append(weights)
            report(progress, "sorting edges", b + 1, plan.n_buckets)
    return {name: file.entry for name, file in files.items()}, differing
