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
from graphquilt.graph.reading.columns import Place, chosen_columns

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_ROWS_PER_BYTE = 1000  # columns that count up or repeat take little room, but each edge takes some

__all__ = [
    "EdgeSource",
    "array_source",
    "check_room",
    "edge_columns",
    "edge_ends",
    "edge_source",
    "open_parquet",
    "plain_columns",
    "read_parquet",
    "signed",
    "text_ids",
]

Batch = tuple[AnyArray, AnyArray, Float64Array | None]  # source, target, weights


@dataclass(frozen=True, eq=False)
class EdgeSource:
    """Edges that a build reads in the same batches as often as it needs to."""

    n_edges: int
    fingerprint: dict[str, object]  # what tells this source from another when an interrupted build is continued
    batches: Callable[[], Iterator[Batch]]


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
        columns = edge_columns(files[0], None, open_parquet(files[0]).schema_arrow)

    def batches() -> Iterator[Batch]:
        for path in files:
            for ends_and_weights in read_parquet(path, columns, batch):
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


def check_room(where: str, *, longest: int, n_ids: int, total: int) -> None:
    """Refuse text ids of ``total`` letters, the ``longest`` of which is at ``where``, that do not fit in an array.

    NumPy gives every text the room of the longest, so that one long id among many short ones may need a thousand times
    the memory of the file.
    """
    room = 4 * longest * n_ids
    if room > max(1 << 28, 64 * total):
        raise FormatError(
            f"{where}: an id has {longest} letters, and {n_ids} ids with as much room for each take {room / 1e9:.1f} "
            "GB. Shorten the long ids, or number them."
        )


def text_ids(path: Place, column: pa.ChunkedArray) -> AnyArray:
    """Return a column of text as an array of text."""
    from pyarrow import compute

    lengths = compute.utf8_length(column).to_numpy()
    if len(lengths):
        row = int(lengths.argmax())
        longest, total = int(lengths[row]), int(lengths.sum(dtype=np.int64))
        check_room(f"{path}, row {row}", longest=longest, n_ids=2 * len(lengths), total=2 * total)
    nul = compute.index(compute.match_substring(column, "\0"), True).as_py()
    if nul >= 0:
        raise FormatError(f"{path}, row {nul}: the id {column[nul].as_py()[:80]!r} has a NUL in it. Remove it.")
    return np.asarray(column.to_numpy(), dtype=str)


def edge_columns(where: Place, columns: tuple[str | int, ...] | None, schema: pa.Schema) -> tuple[str, ...]:
    """Return the names of the columns that are source, target and perhaps weight, and check what they hold."""
    from pyarrow import types

    def is_number(place: int) -> bool:
        kind = schema.types[place]
        return bool(types.is_integer(kind) or types.is_floating(kind))

    known = schema.names
    names = tuple(known[place] for place in chosen_columns(where, columns, known, len(known), is_number))
    for place, name in enumerate(names):
        if known.count(name) > 1:
            raise FormatError(f"{where} has {known.count(name)} columns named {name!r}; give each a name of its own.")
        _check_kind(where, name, schema.field(name).type, weight=place > 1)
    return names


def read_parquet(path: Path, columns: tuple[str | int, ...] | None, batch: int) -> Iterator[list[pa.Array]]:
    """Yield the wanted columns in batches: integers or text for ids, numbers for weights.

    A missing value, and text that is not UTF-8, is an error that names the row.
    """
    import pyarrow as pa

    file = open_parquet(path)
    names = edge_columns(path, columns, file.schema_arrow)
    done = 0
    try:
        for piece in file.iter_batches(batch_size=batch, columns=list(names)):
            yield plain_columns(path, piece, names, done)
            done += len(piece)
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{path} breaks off after row {done}: {error}. Write it again.") from error
    finally:
        file.close()
    if done != file.metadata.num_rows:
        raise FormatError(f"{path} promises {file.metadata.num_rows} rows and has {done}. Write it again.")


def plain_columns(where: Place, rows: pa.RecordBatch, names: tuple[str, ...], first: int) -> list[pa.Array]:
    """Return these columns of some rows, the first of which is row ``first``; a missing value is an error."""
    for name in names:
        if rows[name].null_count:
            row = first + rows[name].is_null().to_numpy(zero_copy_only=False).argmax()
            raise FormatError(f"{where}, row {row}: column {name!r} has no value. Repair or remove the row.")
    return [_plain(where, rows[name], first) for name in names]


def _check_kind(path: Place, name: str, kind: pa.DataType, *, weight: bool) -> None:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    if weight and not (types.is_integer(kind) or types.is_floating(kind)):
        raise FormatError(f"{path}: weights must be numbers, and column {name!r} has {kind}.")
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    if not weight and not (types.is_integer(kind) or text):
        raise FormatError(f"{path}: ids must be integers or text, and column {name!r} has {kind}.")


def _plain(path: Place, column: pa.Array, first: int) -> pa.Array:
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
                value.as_py().decode()
            except UnicodeDecodeError as error:
                raise FormatError(
                    f"{path}, row {first + row}: the id {value.as_py()[:80]!r} is not text in UTF-8 ({error.reason}). "
                    "Write the file again with the ids as UTF-8."
                ) from None
        raise
    return column


def signed(path: Place | None, ids: AnyArray) -> AnyArray:
    """Return integer ids in a type that has a sign; ids beyond 63 bits are an error."""
    if ids.dtype != np.uint64:
        return ids
    large = ids > np.uint64(2**63 - 1)
    if large.any():
        where = "" if path is None else f"{path}: "
        raise FormatError(
            f"{where}the id {ids[large.argmax()]} of edge {large.argmax()} is beyond 63 bits. Number the nodes first."
        )
    return ids.astype(np.int64)
