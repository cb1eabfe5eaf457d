"""Edges in batches, from an array or from Parquet files, the same batches every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float64Array, refuse_masked
from graphquilt.errors import FormatError, InputError
from graphquilt.graph.files import open_array

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = ["EdgeSource", "array_source", "column_place", "edge_ends", "edge_source", "read_parquet"]

Batch = tuple[AnyArray, AnyArray, Float64Array | None]  # source, target, weights


@dataclass(frozen=True, eq=False)
class EdgeSource:
    """Edges that a build reads in the same batches as often as it needs to."""

    n_edges: int
    fingerprint: dict[str, object]  # what tells this source from another when an interrupted build is continued
    batches: Callable[[], Iterator[Batch]]


def edge_source(
    edges: npt.ArrayLike | str | PathLike[str], columns: tuple[str | int, ...], *, batch: int
) -> EdgeSource:
    """Return what reads ``edges``: an array (2, m) or (m, 2), a ``.npy`` file, a Parquet file or a folder of them."""
    if not isinstance(edges, str | PathLike):
        refuse_masked(edges=edges)
        return array_source(np.asanyarray(edges), batch)
    path = Path(edges)
    if path.suffix == ".npy":
        return array_source(open_array(path), batch)
    files = sorted(path.glob("**/*.parquet")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise FormatError(f"{path} is neither a Parquet file nor a folder that holds any.")
    return _parquet_source(files, columns, batch)


def edge_ends(edges: AnyArray, path: Path | None = None) -> tuple[AnyArray, AnyArray]:
    """Return both ends of the edges in an array (2, m) or (m, 2) of integers, which was read from ``path``."""
    if edges.ndim != 2 or 2 not in edges.shape or not np.issubdtype(edges.dtype, np.integer):
        message = f"edges are integers of shape (2, m) or (m, 2), not {edges.dtype} of shape {edges.shape}."
        raise InputError(message) if path is None else FormatError(f"{path}: {message}")
    return (edges[0], edges[1]) if edges.shape[0] == 2 else (edges[:, 0], edges[:, 1])


def array_source(edges: AnyArray, batch: int) -> EdgeSource:
    """Return a source of the edges in an array, mapped or not, which copies ``batch`` of them at a time."""
    u, v = edge_ends(edges)

    def batches() -> Iterator[Batch]:
        for start in range(0, len(u), batch):
            yield np.array(u[start : start + batch]), np.array(v[start : start + batch]), None

    probe = np.linspace(0, len(u) - 1, 64 if len(u) else 0).astype(np.int64)
    fingerprint = {
        "shape": list(edges.shape),
        "dtype": edges.dtype.str,
        "batch": batch,
        "probe": [int(x) for x in np.concatenate([u[probe], v[probe]])],
    }
    return EdgeSource(len(u), fingerprint, batches)


def _parquet_source(files: list[Path], columns: tuple[str | int, ...], batch: int) -> EdgeSource:
    def batches() -> Iterator[Batch]:
        for path in files:
            for u, v, *weights in read_parquet(path, columns, batch):
                if not (np.issubdtype(u.dtype, np.integer) and np.issubdtype(v.dtype, np.integer)):
                    raise InputError(
                        f"{path}: ids out of core must be integers, not {u.dtype} and {v.dtype}. Number them first, or "
                        "read the file in memory with read_edges."
                    )
                yield u, v, weights[0].astype(np.float64) if weights else None

    stats = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    n_edges = sum(_open_parquet(path).metadata.num_rows for path in files)
    return EdgeSource(n_edges, {"files": stats, "columns": list(columns), "batch": batch}, batches)


def _open_parquet(path: Path) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except FileNotFoundError as error:
        raise FormatError(f"{path} does not exist.") from error
    except (pa.ArrowInvalid, OSError) as error:
        problem = f"({path.stat().st_size} bytes) is not a complete Parquet file: {error}"
        raise FormatError(f"{path} {problem} It may have been cut short; write it again.") from error


def column_place(path: Path, column: int | str, names: list[str] | None, width: int) -> int:
    """Return the position of a column, which is given by position or by name, in a file of ``width`` columns."""
    if isinstance(column, str):
        if names is None or column not in names:
            known = ", ".join(names) if names else f"{width} columns without names"
            raise InputError(f"{path} has no column {column!r}; it has {known}.")
        return names.index(column)
    if not 0 <= column < width:
        raise FormatError(f"{path} has {width} columns; column {column} (from 0) is not there.")
    return column


def read_parquet(path: Path, columns: tuple[str | int, ...], batch: int) -> Iterator[list[AnyArray]]:
    """Yield the wanted columns in batches; a missing value is an error that names the row."""
    import pyarrow as pa

    file = _open_parquet(path)
    known = file.schema_arrow.names
    names = [known[column_place(path, column, known, len(known))] for column in columns]
    done = 0
    try:
        for piece in file.iter_batches(batch_size=batch, columns=names):
            for name in names:
                if piece[name].null_count:
                    row = done + piece[name].is_null().to_numpy(zero_copy_only=False).argmax()
                    raise FormatError(f"{path}, row {row}: column {name!r} has no value. Repair or remove the row.")
            yield [piece[name].to_numpy(zero_copy_only=False) for name in names]
            done += len(piece)
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError(f"{path} breaks off after row {done}: {error}. Write it again.") from error
    finally:
        file.close()
