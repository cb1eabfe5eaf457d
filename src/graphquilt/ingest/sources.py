"""Edges in batches, from an array or from Parquet files, the same batches every time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.graph.files import open_array

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = ["ArraySource", "EdgeSource", "ParquetSource", "edge_ends", "edge_source", "read_parquet"]

Batch = tuple[AnyArray, AnyArray, Float64Array | None]


class EdgeSource(ABC):
    """The edges of a build, which it reads as often as it needs to."""

    @property
    @abstractmethod
    def n_edges(self) -> int:
        """Number of edges."""

    @property
    @abstractmethod
    def fingerprint(self) -> dict[str, object]:
        """What tells this source from another when an interrupted build is continued."""

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """Yield source, target and weights or None."""

    def largest_id(self) -> int:
        """Return the largest id."""
        return max(int(max(u.max(), v.max())) for u, v, _ in self.batches())


def edge_source(
    edges: npt.ArrayLike | str | PathLike[str], columns: tuple[str | int, ...], *, batch: int
) -> EdgeSource:
    """Return what reads ``edges``: an array (2, m) or (m, 2), a ``.npy`` file, Parquet."""
    if isinstance(edges, str | PathLike):
        path = Path(edges)
        if path.suffix == ".npy":
            return ArraySource(open_array(path), batch)
        return ParquetSource(_parquet_files(path), columns, batch)
    return ArraySource(np.asanyarray(edges), batch)


def _parquet_files(path: Path) -> tuple[Path, ...]:
    files = sorted(path.glob("**/*.parquet")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise FormatError(f"{path} is neither a Parquet file nor a folder that holds any.")
    return tuple(files)


def edge_ends(edges: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return both ends of the edges in an array (2, m) or (m, 2)."""
    return (edges[0], edges[1]) if edges.shape[0] == 2 else (edges[:, 0], edges[:, 1])


@dataclass(frozen=True, eq=False)
class ArraySource(EdgeSource):
    """A (2, m) or (m, 2) array of integers, mapped or not."""

    edges: AnyArray
    batch: int

    def __post_init__(self) -> None:
        if self.edges.ndim != 2 or 2 not in self.edges.shape:
            raise InputError(f"edges are an array (2, m) or (m, 2); this one is {self.edges.shape}.")
        if not np.issubdtype(self.edges.dtype, np.integer):
            raise InputError(f"edges must be integer ids, not {self.edges.dtype}.")

    @cached_property
    def _ends(self) -> tuple[AnyArray, AnyArray]:
        return edge_ends(self.edges)

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self._ends[0])

    @property
    def fingerprint(self) -> dict[str, object]:
        """Shape, type, and a few of the values."""
        u, v = self._ends
        probe = np.linspace(0, max(len(u) - 1, 0), 64).astype(np.int64) if len(u) else np.empty(0, dtype=np.int64)
        return {
            "shape": list(self.edges.shape),
            "dtype": self.edges.dtype.str,
            "batch": self.batch,
            "n_edges": len(u),
            "probe": [int(x) for x in np.concatenate([u[probe], v[probe]])],
        }

    def batches(self) -> Iterator[Batch]:
        """Yield copies of ``batch`` edges at a time."""
        u, v = self._ends
        for start in range(0, len(u), self.batch):
            yield np.array(u[start : start + self.batch]), np.array(v[start : start + self.batch]), None


@dataclass(frozen=True, eq=False)
class ParquetSource(EdgeSource):
    """Two or three columns of Parquet files."""

    files: tuple[Path, ...]
    columns: tuple[str | int, ...]
    batch: int

    @cached_property
    def _rows(self) -> list[int]:
        return [_open_parquet(path).metadata.num_rows for path in self.files]

    @property
    def n_edges(self) -> int:
        """Number of rows in all files."""
        return sum(self._rows)

    @property
    def fingerprint(self) -> dict[str, object]:
        """Names, sizes and times of change of the files."""
        stats = [(path, path.stat()) for path in self.files]
        return {
            "files": [[str(path), s.st_size, s.st_mtime_ns] for path, s in stats],
            "columns": list(self.columns),
            "batch": self.batch,
            "n_edges": self.n_edges,
        }

    def batches(self) -> Iterator[Batch]:
        """Yield record batches of at most ``batch`` rows."""
        for path in self.files:
            for values in read_parquet(path, self.columns, self.batch):
                u, v = values[:2]
                if not (np.issubdtype(u.dtype, np.integer) and np.issubdtype(v.dtype, np.integer)):
                    raise InputError(
                        f"{path}: ids out of core must be integers, not {u.dtype} and {v.dtype}. Number them first, or "
                        "read the file in memory with read_edges."
                    )
                yield u, v, values[2].astype(np.float64) if len(values) > 2 else None


def _open_parquet(path: Path) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except FileNotFoundError as error:
        raise FormatError(f"{path} does not exist.") from error
    except (pa.ArrowInvalid, OSError) as error:
        size = path.stat().st_size
        raise FormatError(
            f"{path} ({size} bytes) is not a complete Parquet file: {error} It may have been cut short; write it again."
        ) from error


def read_parquet(path: Path, columns: tuple[str | int, ...], batch: int) -> Iterator[list[AnyArray]]:
    """Yield the wanted columns in batches; a missing value is an error that names the row."""
    import pyarrow as pa

    file = _open_parquet(path)
    known = file.schema_arrow.names
    names = []
    for column in columns:
        if isinstance(column, str) and column not in known:
            raise InputError(f"{path} has no column {column!r}; it has {', '.join(known)}.")
        if isinstance(column, int) and not 0 <= column < len(known):
            raise FormatError(f"{path} has {len(known)} columns; column {column} (from 0) is not there.")
        names.append(column if isinstance(column, str) else known[column])
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
