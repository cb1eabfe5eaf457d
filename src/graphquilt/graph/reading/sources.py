"""Edge lists in text, Parquet files, DataFrames and arrays, read in batches that are the same every time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError
from graphquilt.graph.reading import edge_columns
from graphquilt.graph.reading.edge_columns import EdgeRows, EdgeTable, RowTally
from graphquilt.graph.reading.tables import COMMENTS, Place, TextTable, is_number

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

Columns = tuple[int | str, ...] | None  # positions or names of source, target and perhaps weight
_NO_HEADER = "If this row is an edge: header=False in Python, or graphquilt ingest --no-header."
_EXAMPLES = 200  # values by which columns are compared
_ROWS_PER_BYTE = 1000  # columns that count up or repeat take little room, but each edge takes some

logger = logging.getLogger(__name__)


class TextOptions(NamedTuple):
    """How a text file is read."""

    header: bool | None = None
    delimiter: str | None = None
    ids: edge_columns.IdKind = "auto"


def open_text(path: Path, columns: Columns, options: TextOptions) -> EdgeTable:
    """Open a text file: find its header, and the columns of the edges."""
    table = TextTable.open(path, options.delimiter, comments=COMMENTS, blanks=True)
    _check_remarks(table)
    stated = options.header
    if stated is None and any(isinstance(column, str) for column in columns or ()):
        stated = True
    named = table.has_header(edge_columns.SOURCES, edge_columns.TARGETS) if stated is None else stated
    if named and len(table.rows) == 1:
        raise FormatError(f"{path} holds a header and no edges: {','.join(table.rows[0])[:80]!r}. {_NO_HEADER}")
    names = table.rows[0] if named else None
    places = edge_columns.choose_edge_columns(
        path,
        columns,
        names,
        table.width,
        holds_numbers=lambda place: table.holds_numbers(place, header=named),
        examples=lambda place: [row[place] for row in table.rows[1:] if place < len(row)],
    )
    known = {*edge_columns.WEIGHTS, *chain(*edge_columns.ENDS)}
    if names is not None and stated is None and not any(name.lower() in known for name in names):
        _tell_of_header(path, names[places[0]], names[places[1]], "it has words, and numbers below them")

    def batches(tally: RowTally) -> Iterator[EdgeRows]:
        for block in table.blocks(places, header=named):
            yield edge_columns.clean_rows(block.columns, tally, block.lines, block.broken)

    def below_header() -> EdgeTable:
        first = table.rows[0]
        _tell_of_header(path, first[places[0]], first[places[1]], "its words occur nowhere else")
        return open_text(path, columns, options._replace(header=True))

    return EdgeTable(path, "line", options.ids, batches, below_header if stated is None and not named else None)


def _tell_of_header(path: Place, source: str, target: str, reason: str) -> None:
    ends = f"{source[:40]!r} and {target[:40]!r}"
    logger.warning(f"{path}: the first row, {ends}, was taken as a header, because {reason}. {_NO_HEADER}")


def _check_remarks(table: TextTable) -> None:
    """Refuse a file that begins with a line which may be a comment or an edge; names of columns are a comment."""
    for number, cells in table.remarks:
        words = {cell.lower().lstrip("#%/") for cell in cells}
        names = any(word in known for word in words for known in edge_columns.ENDS)
        if not names and (any(map(is_number, cells)) or not any(map(is_number, table.rows[0]))):
            raise FormatError(
                f"{table.path}, line {number}: {','.join(cells)[:80]!r} may be a comment or an edge. Put a blank after "
                f"{cells[0][:1]!r} if it is a comment, and quotes around the id if it is an edge."
            )


@runtime_checkable
class ArrowFrame(Protocol):
    """What exports Arrow's C stream: a DataFrame of polars or pandas, a relation of DuckDB, an Arrow table."""

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


def is_frame(given: object) -> bool:
    """Return whether an object is a DataFrame or Arrow table."""
    return hasattr(given, "__arrow_c_stream__") or (hasattr(given, "columns") and hasattr(given, "iloc"))


def is_parquet(path: Path) -> bool:
    """Return whether the name of a file says that it is in Parquet."""
    return path.suffix in (".parquet", ".pq")


def read_parquet(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read some columns of a Parquet file, or all."""
    import pyarrow as pa

    with open_parquet(path) as file:
        try:
            return file.read(columns=columns)
        except (pa.ArrowException, OSError) as error:
            raise FormatError(f"{path} cannot be read: {error}. Write it again.") from error


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
        problem = f"says that it has {rows} rows in {size} bytes, more than different edges can have"
        raise FormatError(f"{path} {problem}. Write it again.")
    return file


def choose_edge_fields(
    where: Place, columns: Columns, schema: pa.Schema, examples: Callable[[str], list[object]]
) -> tuple[list[str], bool]:
    """Return the names of the columns of source, target and perhaps weight, and whether ids are text."""
    from pyarrow import types

    def holds_numbers(place: int) -> bool:
        return bool(types.is_integer(schema.types[place]) or types.is_floating(schema.types[place]))

    known = schema.names
    numbered = all(name.isdigit() for name in known)  # as pandas numbers columns that have no names
    places = edge_columns.choose_edge_columns(
        where,
        columns,
        None if numbered and columns is None else known,
        len(known),
        holds_numbers=holds_numbers,
        examples=lambda place: list(map(str, examples(known[place]))),
    )
    names, texts = [known[place] for place in places], []
    for place, name in enumerate(names):
        if known.count(name) > 1:
            raise FormatError(f"{where} has {known.count(name)} columns named {name!r}; give each another name.")
        kind = schema.field(name).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        if not (types.is_integer(kind) or (types.is_floating(kind) if place > 1 else text)):
            what = "weights must be numbers" if place > 1 else "ids must be integers or text"
            raise FormatError(f"{where}: {what}, and column {name!r} has {kind}.")
        texts.append(text)
    if texts[0] != texts[1]:
        raise FormatError(f"{where}: of source and target, one has numbers and the other has text. Write both alike.")
    return names, texts[0]


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
    except pa.ArrowInvalid as error:
        values = enumerate(column.cast(pa.large_binary(), safe=False).to_pylist(), start=first)
        row, value = next((k, v) for k, v in values if v is not None and v.decode(errors="ignore").encode() != v)
        raise FormatError(
            f"{path}, row {row}: the id {value[:80]!r} is not text in UTF-8. Write the ids as UTF-8."
        ) from error
    return column


def parquet_table(files: list[Path], where: Path, columns: Columns, batch: int) -> EdgeTable:
    """Return the edges in Parquet files, all with the columns of the first."""

    def choose(path: Path, file: pq.ParquetFile, columns: Columns) -> tuple[list[str], bool]:
        def examples(name: str) -> list[object]:
            batches = file.iter_batches(batch_size=_EXAMPLES, columns=[name])
            return [value for rows in islice(batches, 1) for value in rows.column(0).to_pylist()]

        return choose_edge_fields(path, columns, file.schema_arrow, examples)

    with open_parquet(files[0]) as file:
        names, text = choose(files[0], file, columns)

    def batches(tally: RowTally) -> Iterator[EdgeRows]:
        import pyarrow as pa

        before = 0
        for path in files:
            done = 0
            with open_parquet(path) as file:
                try:
                    if choose(path, file, tuple(names))[1] != text:
                        raise FormatError(f"{path}: ids are text in some files and numbers in others. Write all alike.")
                    for rows in file.iter_batches(batch_size=batch, columns=names):
                        yield _arrow_rows(path, [rows[name] for name in names], tally, done, before)
                        done += len(rows)
                except (pa.ArrowException, OSError) as error:
                    raise FormatError(f"{path} breaks off after row {done}: {error}. Write it again.") from error
                if done != file.metadata.num_rows:
                    raise FormatError(f"{path} promises {file.metadata.num_rows} rows and has {done}. Write it again.")
            before += done

    return EdgeTable(where, "row", "text" if text else "integer", batches)


def frame_edges(where: str, frame: object, columns: Columns) -> EdgeTable:
    """Return the edges in a DataFrame or Arrow table."""
    table = frame_table(frame)
    names, text = choose_edge_fields(where, columns, table.schema, lambda name: table[name][:_EXAMPLES].to_pylist())

    def batches(tally: RowTally) -> Iterator[EdgeRows]:
        done = 0
        for rows in table.select(names).to_batches():
            yield _arrow_rows(where, [rows[name] for name in names], tally, done)
            done += len(rows)

    return EdgeTable(where, "row", "text" if text else "integer", batches)


def _arrow_rows(where: Place, columns: list[pa.Array], tally: RowTally, first: int, before: int = 0) -> EdgeRows:
    """Return the usable rows of a batch that begins at row ``first``, after those of other files ``before``."""
    plain = [plain_column(where, column, first) for column in columns]
    return edge_columns.clean_rows(plain, tally, partial(range, before + first, before + first + len(columns[0])))


def edge_ends(edges: AnyArray, path: Path | None = None) -> tuple[AnyArray, AnyArray]:
    """Return both ends of the edges in an array (2, m) or (m, 2) of integers, which was read from ``path``."""
    if edges.ndim != 2 or 2 not in edges.shape or edges.dtype.kind not in "iu":
        message = f"edges are integers of shape (2, m) or (m, 2), not {edges.dtype} of shape {edges.shape}."
        raise InputError(message) if path is None else FormatError(f"{path}: {message}")
    return (edges[0], edges[1]) if edges.shape[0] == 2 else (edges[:, 0], edges[:, 1])
