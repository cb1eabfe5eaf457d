"""Parse a block of lines into a record batch, with the number of each line and a list of the broken ones."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyarrow import json as arrow_json

from graphquilt.arrays import Int64Array
from graphquilt.errors import FormatError
from graphquilt.temporal.logs.formats import Layout, field_of


class Broken(NamedTuple):
    """A line that cannot be read: its number, why, and how it begins."""

    line: int
    cause: str
    text: str


class Rows(NamedTuple):
    """The rows of a block, the line of each (k,), and the broken lines."""

    batch: pa.RecordBatch
    lines: Int64Array
    broken: list[Broken]


class Block(NamedTuple):
    """Whole lines of a log, the number of the first, and how many there are."""

    data: bytes
    first: int
    size: int


def parse_text(block: Block, layout: Layout, types: Mapping[str, pa.DataType]) -> Rows:
    """Parse delimited lines into the columns ``types``; numbers are read as text if one field is not a number."""
    as_text = {name: pa.string() if pa.types.is_floating(kind) else kind for name, kind in types.items()}
    data = _replace_invalid(block.data)
    error: Exception | None = None
    for columns, quoted in ((types, layout.quoted), (as_text, layout.quoted), (as_text, False)):
        try:
            batch, invalid = _read_table(data, layout, columns, quoted=quoted)
            numbers = np.arange(block.first, block.first + len(batch) + len(invalid))
            if len(numbers) != block.size:  # empty lines are not numbered: take them out
                texts = data.split(b"\n")
                filled = [k for k, text in enumerate(texts) if text.strip()]
                batch, invalid = _read_table(b"\n".join([texts[k] for k in filled]), layout, columns, quoted=quoted)
                count = len(batch) + len(invalid)  # another than before where a quoted field contains line breaks
                places = np.array(filled, dtype=np.int64) if len(filled) == count else np.arange(count)
                numbers = block.first + places
            return _number_rows(batch, invalid, numbers, layout)
        except pa.ArrowInvalid as problem:
            error = problem
    raise FormatError(f"lines {block.first} and after cannot be read as a table: {error}")


def _replace_invalid(data: bytes) -> bytes:
    """Replace every byte that is not valid UTF-8; Arrow refuses such bytes."""
    return data if data.isascii() else data.decode("utf-8", "replace").encode()


def _read_table(
    data: bytes, layout: Layout, types: Mapping[str, pa.DataType], *, quoted: bool
) -> tuple[pa.RecordBatch, list[csv.InvalidRow]]:
    invalid: list[csv.InvalidRow] = []

    def skip(row: csv.InvalidRow) -> str:
        invalid.append(row)
        return "skip"

    table = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(
            use_threads=False, block_size=max(len(data) + 1, 1 << 10), column_names=list(layout.names)
        ),
        parse_options=csv.ParseOptions(
            delimiter=layout.delimiter, quote_char='"' if quoted else False, invalid_row_handler=skip
        ),
        convert_options=csv.ConvertOptions(include_columns=list(types), column_types=dict(types), null_values=[]),
    )
    return _to_batch(table), invalid


def _number_rows(batch: pa.RecordBatch, invalid: list[csv.InvalidRow], numbers: Int64Array, layout: Layout) -> Rows:
    """Give each row the number of its line, and describe the lines with another number of fields."""
    if not invalid:
        return Rows(batch, numbers, [])
    places = np.array([row.number - 1 for row in invalid])
    not_a_row = re.compile(layout.not_rows)
    broken = [
        Broken(
            int(numbers[place]),
            "the wrong number of fields",
            f"{row.actual_columns} fields instead of {row.expected_columns}: {row.text[:80]}",
        )
        for place, row in zip(places.tolist(), invalid, strict=True)
        if not not_a_row.match(row.text)
    ]
    return Rows(batch, np.delete(numbers, places), broken)


def json_schema(records: Sequence[Mapping[str, Any]], names: Sequence[str], *, number: str) -> pa.Schema:
    """Return the types of JSON fields in the first records; the field ``number`` may be a fraction."""
    tree: dict[str, Any] = {}
    for name in names:
        values = [value for record in records if (value := field_of(record, name)) is not None]
        kind = pa.string()
        if values and isinstance(values[0], int | float) and not isinstance(values[0], bool):
            kind = pa.float64() if name == number else pa.int64()
        is_flat = "." not in name or any(name in record for record in records)
        *above, leaf = [name] if is_flat else name.split(".")
        branch = tree
        for part in above:
            branch = branch.setdefault(part, {})
        branch[leaf] = kind
    return pa.schema(_to_fields(tree))


def _to_fields(tree: Mapping[str, Any]) -> list[pa.Field]:
    return [
        pa.field(name, pa.struct(_to_fields(kind)) if isinstance(kind, dict) else kind) for name, kind in tree.items()
    ]


def parse_json(block: Block, names: Sequence[str], schema: pa.Schema) -> Rows:
    """Parse JSON lines into the fields ``names``; ``schema`` says how they are nested and typed."""
    size, data = block.size, _replace_invalid(block.data)
    try:
        table = arrow_json.read_json(
            pa.BufferReader(data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
        if len(table) == size:
            batch = _to_batch(table)
            batch.validate(full=True)
            columns = {name: _nested_column(batch, name) for name in names}
            return Rows(pa.RecordBatch.from_pydict(columns), np.arange(block.first, block.first + size), [])
    except pa.ArrowException:
        pass  # a line is broken, or a field has another type: read line by line
    return _parse_line_by_line(block, names)


def _parse_line_by_line(block: Block, names: Sequence[str]) -> Rows:
    values: list[list[str | float | None]] = []
    lines: list[int] = []
    broken: list[Broken] = []
    for k, text in enumerate(block.data.split(b"\n")):
        if not text.strip():
            continue
        try:
            record = json.loads(text.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            values.append([_plain_value(field_of(record, name)) for name in names])
            lines.append(block.first + k)
        else:
            broken.append(Broken(block.first + k, "no JSON object", text[:80].decode("utf-8", "replace")))
    columns = {name: _to_column([row[k] for row in values]) for k, name in enumerate(names)}
    return Rows(pa.RecordBatch.from_pydict(columns), np.array(lines, dtype=np.int64), broken)


def _plain_value(value: object) -> str | float | None:
    """Return text or a number; None for anything else."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _to_column(values: Sequence[str | float | None]) -> pa.Array:
    """Return a column of numbers if all values are numbers, and of text otherwise."""
    known = [value for value in values if value is not None]
    if known and not any(isinstance(value, str) for value in known):
        return pa.array([None if value is None else _to_float(value) for value in values], pa.float64())
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _to_float(value: str | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _nested_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a field by its name, or by its path with dots."""
    first, *rest = [name] if name in batch.schema.names else name.split(".")
    return pc.struct_field(batch.column(first), rest) if rest else batch.column(first)


def _to_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if len(batches) == 1 else pa.RecordBatch.from_pylist([], schema=table.schema)
