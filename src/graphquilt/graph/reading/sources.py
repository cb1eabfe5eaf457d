"""Ids and weights in Arrow columns, Parquet files and DataFrames; and edges in batches, the same every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float64Array, refuse_masked
from graphquilt.errors import FormatError, InputError
from graphquilt.graph.files import open_array
from graphquilt.graph.reading.tables import Place, choose_edge_columns

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = [
    "ArrowFrame",
    "EdgeSource",
    "IdKind",
    "array_source",
    "check_room",
    "choose_edge_fields",
    "edge_ends",
    "edge_source",
    "frame_table",
    "integer_ids",
    "open_parquet",
    "parse_ids",
    "parse_weights",
    "plain_columns",
    "read_parquet",
    "signed",
    "text_ids",
]

IdKind = Literal["auto", "integer", "text"]
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


def parse_ids(columns: list[pa.ChunkedArray], kind: IdKind, where: Callable[[int], str]) -> list[AnyArray]:
    """Return columns of text as ids, of one type that all rows decide.

    Ids are integers if every one is an integer of at most 64 bits without leading zeros or a plus sign; 007, and with
    it every other id, is text. A few words among integers are an error that names the first one's line.

    Examples
    --------
    >>> import pyarrow as pa
    >>> columns = [pa.chunked_array([["7", "8"]]), pa.chunked_array([["8", "007"]])]
    >>> [ids.tolist() for ids in parse_ids(columns, "auto", str)]
    [['7', '8'], ['8', '007']]
    """
    from pyarrow import compute as pc

    for column in columns:
        if (row := pc.index(column, "").as_py()) >= 0:
            raise FormatError(f"{where(row)}: an id is missing. Repair or remove the row.")
    if kind != "text":
        integers = integer_ids(columns, padded=kind == "integer")
        if integers is not None:
            return integers
        _refuse_stray_words(columns, kind, where)
    return [text_ids(where, column) for column in columns]


def integer_ids(columns: list[pa.ChunkedArray], *, padded: bool = False) -> list[AnyArray] | None:
    """Return columns of text as integers, or None if one is not an integer as it is usually written, or ``padded``."""
    import pyarrow as pa
    from pyarrow import compute as pc

    try:
        integers = [column.cast(pa.int64()) for column in columns]
    except pa.ArrowInvalid:
        return None
    pairs = zip(integers, columns, strict=True)
    if not padded and not all(pc.all(pc.equal(numbers.cast(pa.string()), text)).as_py() for numbers, text in pairs):
        return None
    return [column.to_numpy() for column in integers]


def _refuse_stray_words(columns: list[pa.ChunkedArray], kind: IdKind, where: Callable[[int], str]) -> None:
    """Raise for words where most ids are integers, and for integers beyond 64 bits; ids with zeros are text."""
    from pyarrow import compute as pc

    matches = [pc.match_substring_regex(column, r"^[+-]?[0-9]+$") for column in columns]
    n_integers = sum(pc.sum(match).as_py() or 0 for match in matches)
    padded = any(pc.any(pc.match_substring_regex(c, r"^([+][0-9]+|-?0[0-9]+|-0)$")).as_py() for c in columns)
    if kind == "auto" and (padded or 2 * n_integers <= sum(map(len, columns))):
        return
    remedy = 'Repair the row, or read all ids as text (ids="text" in Python, graphquilt ingest --ids text)'
    for column, match in zip(columns, matches, strict=True):
        if (row := pc.index(match, False).as_py()) >= 0:
            raise FormatError(
                f"{where(row)}: the id {column[row].as_py()[:80]!r} is not an integer, as others are. {remedy}."
            )
    for column in columns:
        for row, text in enumerate(column.to_pylist()):
            if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
                raise FormatError(f"{where(row)}: the id {text[:80]} is beyond 64 bits. {remedy}.")


def parse_weights(column: pa.ChunkedArray, where: Callable[[int], str]) -> Float64Array:
    """Return a column of text as weights; one that is not a number, or negative, is an error with its line."""
    import pyarrow as pa
    from pyarrow import compute as pc

    remedy = "Repair the row, or leave the weights out (--columns with two columns)"
    try:
        weights: Float64Array = column.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid as error:
        pattern = r"^(?i)[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?$"
        row = pc.index(pc.match_substring_regex(column, pattern), False).as_py()
        message = f"{where(row)}: the weight {column[row].as_py()[:80]!r} is not a number" if row >= 0 else str(error)
        raise FormatError(f"{message}. {remedy}.") from None
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        row = int(bad.argmax())
        value = column[row].as_py()[:80]
        raise FormatError(f"{where(row)}: the weight {value!r} must be finite and not negative. {remedy}.")
    return weights


def check_room(where: str, *, longest: int, n_ids: int, total: int) -> None:
    """Refuse text ids of ``total`` letters, the ``longest`` of which is at ``where``, that do not fit in an array.

    NumPy gives every text the room of the longest: one long id among many short ones may need a thousand times the
    memory of the file.
    """
    room = 4 * longest * n_ids
    if room > max(1 << 28, 64 * total):
        raise FormatError(
            f"{where}: an id has {longest} letters, and {n_ids} ids with as much room for each take {room / 1e9:.1f} "
            "GB. Shorten the long ids, or number them."
        )


def text_ids(where: Place | Callable[[int], str], column: pa.ChunkedArray) -> AnyArray:
    """Return a column of text as an array of text; ``where`` is the table, or tells where a row of it stands."""
    from pyarrow import compute as pc

    def place(row: int) -> str:
        return where(row) if callable(where) else f"{where}, row {row}"

    lengths = pc.utf8_length(column).to_numpy()
    if len(lengths):
        row = int(lengths.argmax())
        longest, total = int(lengths[row]), int(lengths.sum(dtype=np.int64))
        if 4 * longest * len(lengths) > 1 << 27:
            check_room(place(row), longest=longest, n_ids=2 * len(lengths), total=2 * total)
    nul = pc.index(pc.match_substring(column, "\0"), True).as_py()
    if nul >= 0:
        raise FormatError(f"{place(nul)}: the id {column[nul].as_py()[:80]!r} has a NUL in it. Remove it.")
    return np.asarray(column.to_numpy(), dtype=str)


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

    A missing value, and text that is not UTF-8, is an error that names the row.
    """
    import pyarrow as pa

    file = open_parquet(path)
    done = 0
    try:
        names = _parquet_fields(path, file, columns)
        for piece in file.iter_batches(batch_size=batch, columns=list(names)):
            yield plain_columns(path, piece, names, done)
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


def plain_columns(where: Place, rows: pa.RecordBatch, names: tuple[str, ...], first: int) -> list[pa.Array]:
    """Return these columns of some rows, the first of which is row ``first``; a missing value is an error."""
    for name in names:
        if rows[name].null_count:
            row = first + rows[name].is_null().to_numpy(zero_copy_only=False).argmax()
            raise FormatError(f"{where}, row {row}: column {name!r} has no value. Repair or remove the row.")
    return [_plain(where, rows[name], first) for name in names]


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
        columns = _parquet_fields(files[0], open_parquet(files[0]), None)

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
