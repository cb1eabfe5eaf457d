"""Edges in Parquet files and DataFrames; and edges in batches, the same every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float64Array, refuse_masked
from graphquilt.errors import FormatError, InputError
from graphquilt.graph.files import open_array
from graphquilt.graph.reading.edge_columns import choose_edge_columns, find_missing, leave_out, signed
from graphquilt.graph.reading.tables import Place

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

Batch = tuple[AnyArray, AnyArray, Float64Array | None]  # source, target, weights
_ROWS_PER_BYTE = 1000  # columns that count up or repeat take little room, but each edge takes some


@runtime_checkable
class ArrowFrame(Protocol):
    """A DataFrame of polars or pandas, or an Arrow table."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the rows as Arrow's C stream."""


def frame_table(frame: object, *, index: bool = False) -> pa.Table:
    """Return a DataFrame as an Arrow table; with ``index``, the index of pandas becomes a column unless it counts."""
    import pyarrow as pa

    try:
        if hasattr(frame, "iloc"):
            return pa.Table.from_pandas(frame, preserve_index=None if index else False)
        return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"this {type(frame).__name__} cannot be read as a table: {error}.") from error


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file, and refuse what is not a complete one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        rows, size = file.metadata.num_rows, path.stat().st_size
        file.schema_arrow.names  # noqa: B018  (names that are not UTF-8 raise here)
    except FileNotFoundError as error:
        raise FormatError(f"{path} does not exist.") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = f"({path.stat().st_size} bytes) is not a complete Parquet file: {error}"
        raise FormatError(f"{path} {problem} It may have been cut short; write it again.") from error
    if rows < 0 or rows > _ROWS_PER_BYTE * size:
        raise FormatError(
            f"{path} says that it has {rows} rows in {size} bytes, more than different edges can have. Write it again."
        )
    return file


def choose_edge_fields(
    where: Place, columns: tuple[str | int, ...] | None, schema: pa.Schema, examples: Callable[[str], list[object]]
) -> tuple[str, ...]:
    """Return the names of the columns of source, target and perhaps weight, and check what they hold."""
    from pyarrow import types

    def holds_numbers(place: int) -> bool:
        return bool(types.is_integer(schema.types[place]) or types.is_floating(schema.types[place]))

    known = schema.names
    numbered = all(name.isdigit() for name in known)  # as pandas numbers columns that have no names
    places = choose_edge_columns(
        where,
        columns,
        None if numbered and columns is None else known,
        len(known),
        holds_numbers=holds_numbers,
        examples=lambda place: list(map(str, examples(known[place]))),
    )
    names = tuple(known[place] for place in places)
    for place, name in enumerate(names):
        if known.count(name) > 1:
            raise FormatError(f"{where} has {known.count(name)} columns named {name!r}; give each another name.")
        _check_kind(where, name, schema.field(name).type, weight=place > 1)
    return names


def _check_kind(path: Place, name: str, kind: pa.DataType, *, weight: bool) -> None:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    if weight and not (types.is_integer(kind) or types.is_floating(kind)):
        raise FormatError(f"{path}: weights must be numbers, and column {name!r} has {kind}.")
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    if not weight and not (types.is_integer(kind) or text):
        raise FormatError(f"{path}: ids must be integers or text, and column {name!r} has {kind}.")


def read_parquet(path: Path, columns: tuple[str | int, ...] | None, batch: int) -> Iterator[list[pa.Array]]:
    """Yield the columns of edges in batches: integers or text for ids, numbers for weights.

    Text that is not UTF-8 is an error that names the row.
    """
    import pyarrow as pa

    file = open_parquet(path)
    done = 0
    try:
        names = _parquet_fields(path, file, columns)
        for piece in file.iter_batches(batch_size=batch, columns=list(names)):
            yield [plain_column(path, piece[name], done) for name in names]
            done += len(piece)
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{path} breaks off after row {done}: {error}. Write it again.") from error
    finally:
        file.close()
    if done != file.metadata.num_rows:
        raise FormatError(f"{path} promises {file.metadata.num_rows} rows and has {done}. Write it again.")


def _parquet_fields(path: Path, file: pq.ParquetFile, columns: tuple[str | int, ...] | None) -> tuple[str, ...]:
    def examples(name: str) -> list[object]:
        batch = next(file.iter_batches(batch_size=2, columns=[name]), None)
        return [] if batch is None else batch.column(0).to_pylist()

    return choose_edge_fields(path, columns, file.schema_arrow, examples)


def plain_column(path: Place, column: pa.Array, first: int) -> pa.Array:
    """Return a column without a dictionary, whose text is UTF-8; row 0 of it is row ``first`` of the file."""
    import pyarrow as pa

    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        for row, value in enumerate(column.cast(pa.large_binary(), safe=False)):
            try:
                (value.as_py() or b"").decode()
            except UnicodeDecodeError as error:
                raise FormatError(
                    f"{path}, row {first + row}: the id {value.as_py()[:80]!r} is not text in UTF-8 ({error.reason}). "
                    "Write the file again with the ids as UTF-8."
                ) from None
        raise
    return column


@dataclass(frozen=True, eq=False)
class EdgeSource:
    """Edges that a build reads in the same batches as often as it needs to."""

    n_edges: int
    fingerprint: dict[str, object]  # what tells this source from another when an interrupted build is continued
    batches: Callable[[], Iterator[Batch]]

    def with_ones(self) -> EdgeSource:
        """Return the same edges, all with the weight 1."""
        batches = self.batches
        return replace(self, batches=lambda: ((u, v, np.ones(len(u))) for u, v, _ in batches()))


def edge_source(
    edges: npt.ArrayLike | str | PathLike[str], columns: tuple[str | int, ...] | None, *, batch: int
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
    if path.is_file() and path.suffix not in (".parquet", ".pq"):
        raise InputError(f"{path}: out of core only .npy and Parquet are read. Convert it, or leave --memory out.")
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
            part = slice(start, start + batch)
            yield signed(None, np.array(u[part])), signed(None, np.array(v[part])), None

    probe = np.linspace(0, len(u) - 1, 64 if len(u) else 0).astype(np.int64)
    fingerprint = {
        "shape": list(edges.shape),
        "dtype": edges.dtype.str,
        "batch": batch,
        "probe": [int(x) for x in np.concatenate([u[probe], v[probe]])],
    }
    return EdgeSource(len(u), fingerprint, batches)


def _parquet_source(files: list[Path], columns: tuple[str | int, ...] | None, batch: int) -> EdgeSource:
    if columns is None:
        columns = _parquet_fields(files[0], open_parquet(files[0]), None)

    def batches() -> Iterator[Batch]:
        for path in files:
            done = 0
            for ends_and_weights in read_parquet(path, columns, batch):
                leave_out(path, done, find_missing(ends_and_weights, first=done), "stop")
                done += len(ends_and_weights[0])
                u, v, *weights = (column.to_numpy(zero_copy_only=False) for column in ends_and_weights)
                if not (np.issubdtype(u.dtype, np.integer) and np.issubdtype(v.dtype, np.integer)):
                    raise InputError(
                        f"{path}: ids out of core must be integers, not text. Number them first, or read the file in "
                        "memory with read_edges."
                    )
                yield signed(path, u), signed(path, v), weights[0].astype(np.float64) if weights else None

    stats = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    n_edges = sum(open_parquet(path).metadata.num_rows for path in files)
    return EdgeSource(n_edges, {"files": stats, "columns": list(columns), "batch": batch}, batches)
