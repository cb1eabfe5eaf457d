"""Read edges in text files: columns between commas, tabs, semicolons or blanks, with comments, a header, gzip."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, cast

import numpy as np

from graphquilt.errors import FormatError
from graphquilt.ingest.assembly import Columns
from graphquilt.ingest.sources import column_place

__all__ = ["read_text"]

Column = int | str
IdKind = Literal["auto", "integer", "text"]
_COMMENTS = ("#", "%", "//")
_INTEGER = re.compile(r"[+-]?\d+$")
_PADDED = re.compile(r"[+-]?0\d+$")
_SAMPLE = 200  # rows from which delimiter, header and kind of ids are guessed


@dataclass(frozen=True)
class _Layout:
    """How a file is written."""

    delimiter: str | None  # None: any run of blanks
    width: int  # columns
    integer: bool  # whether ids are integers
    skip: int  # lines before the first row of data
    columns: tuple[int, ...]  # positions of source, target and, if wanted, weight


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of every line that is neither blank nor a comment."""
    number = 0
    try:
        with io.TextIOWrapper(_open(path), encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                text = line.strip("\r\n")
                if text.strip() and not text.lstrip().startswith(_COMMENTS):
                    yield number, text
    except (EOFError, gzip.BadGzipFile) as error:
        raise FormatError(f"{path} is cut short or not gzip, after line {number}: {error}. Fetch it again.") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is not text in UTF-8, after line {number}: {error}.") from error
    except FileNotFoundError as error:
        raise FormatError(f"{path} does not exist.") from error


def _split(text: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return text.split()
    if '"' in text:
        return next(csv.reader([text], delimiter=delimiter, skipinitialspace=True))
    return [cell.strip() for cell in text.split(delimiter)]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _layout(
    path: Path, columns: tuple[Column, ...], header: bool | None, delimiter: str | None, ids: IdKind
) -> _Layout:
    sample = list(islice(_lines(path), _SAMPLE))
    if not sample:
        raise FormatError(f"{path} is empty: it holds no edges.")
    if delimiter is None:
        delimiter = next((mark for mark in ("\t", ",", ";", "|") if mark in sample[0][1]), None)
    elif delimiter == " ":
        delimiter = None
    rows = [_split(text, delimiter) for _, text in sample]
    if header is None:
        header = any(isinstance(column, str) for column in columns) or _looks_like_header(rows, len(columns))
    names, body = (rows[0], rows[1:]) if header else (None, rows)
    places = tuple(column_place(path, column, names, len(rows[0])) for column in columns)
    if not body:
        raise FormatError(f"{path} holds a header and no edges.")
    ends = [row[c] for row in body for c in places[:2] if c < len(row)]
    mostly = sum(bool(_INTEGER.match(e)) for e in ends) > len(ends) / 2
    # 007 and 7 are two names: ids with leading zeros are text.
    integer = ids == "integer" or (ids == "auto" and mostly and not any(_PADDED.match(e) for e in ends))
    skip = sample[1 if header else 0][0] - 1
    return _Layout(delimiter, len(rows[0]), integer, skip, places)


def _looks_like_header(rows: list[list[str]], wanted: int) -> bool:
    """Guess: the first row is a header where it has words and the rows below have numbers."""
    below = rows[1:20]
    if not below:
        return False
    for c, cell in enumerate(rows[0]):
        numbers = sum(c < len(row) and _is_number(row[c]) for row in below)
        if not _is_number(cell) and numbers > len(below) / 2:
            return True
    common = {"source", "target", "src", "dst", "from", "to", "node1", "node2", "head", "tail"}
    return sum(cell.lower() in common for cell in rows[0][: max(wanted, 2)]) >= 2


def read_text(
    path: Path, *, columns: tuple[Column, ...], header: bool | None, delimiter: str | None, ids: IdKind
) -> Columns:
    """Read ends and weights; a row that does not fit is an error with its line number."""
    layout = _layout(path, columns, header, delimiter, ids)
    return _read_quickly(path, layout) or _read_carefully(path, layout)


def _read_quickly(path: Path, layout: _Layout) -> Columns | None:
    """Read with Arrow's parser; None where it cannot (comments further down, runs of blanks, a bad row)."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    delimiter = layout.delimiter
    if delimiter is None:
        with _open(path) as file:
            for _ in range(layout.skip):
                file.readline()
            sample = file.read(1 << 16)
        if b"  " in sample or b"\t" in sample or b" \n" in sample or sample.startswith(b" "):
            return None
        delimiter = " "
    names = [f"c{k}" for k in range(layout.width)]
    end = pa.int64() if layout.integer else pa.string()
    kinds = dict.fromkeys((names[c] for c in layout.columns[:2]), end)
    if len(layout.columns) > 2:
        kinds[names[layout.columns[2]]] = pa.float64()
    try:
        table = arrow.read_csv(
            path,
            read_options=arrow.ReadOptions(column_names=names, skip_rows=layout.skip, use_threads=False),
            parse_options=arrow.ParseOptions(delimiter=delimiter),
            convert_options=arrow.ConvertOptions(
                column_types=kinds, include_columns=list(kinds), null_values=[], strings_can_be_null=False
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError):
        return None
    values = [table[name].to_numpy() for name in kinds]
    if len(values) > 2 and not (np.isfinite(values[2]).all() and (values[2] >= 0).all()):
        return None  # the careful reader names the line
    if not layout.integer:
        if any(str(v).lstrip().startswith(_COMMENTS) for v in values[0]):
            return None
        values[:2] = [np.char.strip(np.asarray(v, dtype=str)) for v in values[:2]]
    return Columns(values[0], values[1], values[2] if len(values) > 2 else None)


def _read_carefully(path: Path, layout: _Layout) -> Columns:
    ends: tuple[list[int | str], list[int | str]] = [], []
    weights: list[float] = []
    for number, text in _lines(path):
        if number <= layout.skip:
            continue
        row = _split(text, layout.delimiter)
        if len(row) != layout.width:
            raise FormatError(
                f"{path}, line {number}: {len(row)} columns where the first row has {layout.width}: {text[:80]!r}. "
                "Repair or remove the row."
            )
        for ids, column in zip(ends, layout.columns, strict=False):
            cell = row[column]
            if layout.integer and not _INTEGER.match(cell):
                raise FormatError(
                    f"{path}, line {number}: the id {cell!r} is not an integer, as others are. Repair the row, or "
                    'read all ids as text with ids="text".'
                )
            ids.append(int(cell) if layout.integer else cell)
        if len(layout.columns) > 2:
            cell = row[layout.columns[2]]
            if not _is_number(cell):
                raise FormatError(f"{path}, line {number}: the weight {cell!r} is not a number.")
            if not 0 <= float(cell) < np.inf:
                raise FormatError(f"{path}, line {number}: the weight {cell!r} must be finite and not negative.")
            weights.append(float(cell))
    try:
        source, target = (np.array(ids, dtype=np.int64 if layout.integer else str) for ids in ends)
    except OverflowError as error:
        raise FormatError(f'{path} holds ids beyond 64 bits; read them as text with ids="text".') from error
    return Columns(source, target, np.array(weights) if len(layout.columns) > 2 else None)
