"""Read edges in text files: columns between commas, tabs, semicolons or blanks, with comments, a header, gzip."""

from __future__ import annotations

import csv
import gzip
import io
import logging
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError, counted
from graphquilt.graph.reading.assembly import Columns
from graphquilt.graph.reading.columns import SOURCES, TARGETS, chosen_columns
from graphquilt.graph.reading.sources import check_room, text_ids

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_text", "text_lines"]

logger = logging.getLogger(__name__)

Column = int | str
IdKind = Literal["auto", "integer", "text"]
_COMMENTS = ("#", "%", "//")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_PADDED = re.compile(r"[+-]?0[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
_SAMPLE = 200  # rows from which delimiter, header and kind of ids are guessed
_LEAST_ROWS = 10  # of a file whose first row can be seen to be a header by its words alone
_LINE = 1 << 20  # letters in a line; a longer one is a sign of another kind of file, and would have to fit in memory
_BLOCK = 1 << 16  # rows that are kept as Python numbers before they become an array


@dataclass(frozen=True)
class _Layout:
    """How a file is written."""

    delimiter: str | None  # None: any run of blanks
    width: int  # columns
    integer: bool  # whether ids are integers
    header: bool
    skip: int  # lines before the first row of data
    columns: tuple[int, ...]  # positions of source, target and, if wanted, weight


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def text_lines(path: Path, comments: tuple[str, ...] = _COMMENTS) -> Iterator[tuple[int, str]]:
    """Yield number and text of every line that is neither blank nor a comment."""
    number = 0
    try:
        with io.TextIOWrapper(_open(path), encoding="utf-8-sig", errors="surrogateescape") as file:
            while line := file.readline(_LINE):
                number += 1
                if len(line) == _LINE:
                    raise FormatError(
                        f"{path}, line {number}: the line has {_LINE} letters or more, so that this is not a file with "
                        "one row per line. Give a text file, or a .npy or Parquet file with its own ending."
                    )
                text = line.strip("\r\n")
                if text.strip() and not text.lstrip().startswith(comments):
                    yield number, _decoded(path, number, text)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FormatError(f"{path} is cut short or not gzip, after line {number}: {error}. Fetch it again.") from error
    except FileNotFoundError as error:
        raise FormatError(f"{path} does not exist.") from error
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}. Give a file that can be.") from error


def _decoded(path: Path, number: int, text: str) -> str:
    """Return the text of a line, which must not have bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) & 0xFF
        raise FormatError(
            f"{path}, line {number}: the byte {byte:#04x} after {text[: error.start][-40:]!r} is not text in UTF-8. "
            "Convert the file, for example with iconv -f latin1 -t utf-8, or unpack it if it is compressed (only .gz "
            "is read as it is)."
        ) from None
    return text


def _split(text: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return text.split()
    if '"' in text:
        return next(csv.reader([text], delimiter=delimiter, skipinitialspace=True))
    return [cell.strip() for cell in text.split(delimiter)]


def _cells(path: Path, number: int, text: str, delimiter: str | None) -> list[str]:
    """Return the cells of a line; one that cannot be split is an error with its number."""
    try:
        return _split(text, delimiter)
    except csv.Error as error:
        raise FormatError(f"{path}, line {number}: {error}: {text[:80]!r}. Repair or remove the row.") from error


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def _layout(
    path: Path, columns: tuple[Column, ...] | None, header: bool | None, delimiter: str | None, ids: IdKind
) -> _Layout:
    sample = list(islice(text_lines(path), _SAMPLE))
    if not sample:
        raise FormatError(f"{path} is empty: it holds no edges.")
    if delimiter is None:
        delimiter = next((mark for mark in ("\t", ",", ";", "|") if mark in sample[0][1]), None)
    elif delimiter == " ":
        delimiter = None
    elif len(delimiter) != 1 or delimiter in '"\r\n\0' or not delimiter.isascii():
        raise InputError(f"what stands between columns is one ASCII character, as a comma, not {delimiter!r}.")
    rows = [_cells(path, number, text, delimiter) for number, text in sample]
    if header is None:
        header = any(isinstance(column, str) for column in columns or ()) or _looks_like_header(rows)
    names, body = (rows[0], rows[1:]) if header else (None, rows)
    if not body:
        raise FormatError(
            f"{path} holds a header and no edges: {sample[0][1][:80]!r}. If this row is an edge: header=False in "
            "Python, or graphquilt ingest --no-header."
        )

    def is_number(place: int) -> bool:
        return all(place < len(row) and _is_number(row[place]) for row in body)

    places = chosen_columns(path, columns, names, len(rows[0]), is_number)
    ends = [row[c] for row in body for c in places[:2] if c < len(row)]
    mostly = sum(bool(_INTEGER.fullmatch(e)) for e in ends) > len(ends) / 2
    # 007 and 7 are two names: ids with leading zeros are text.
    integer = ids == "integer" or (ids == "auto" and mostly and not any(_PADDED.fullmatch(e) for e in ends))
    skip = sample[1 if header else 0][0] - 1
    return _Layout(delimiter, len(rows[0]), integer, header, skip, places)


def _looks_like_header(rows: list[list[str]]) -> bool:
    """Guess: the first row is a header where it has words above numbers, or the words for source and target."""
    below = rows[1:20]
    for c, cell in enumerate(rows[0]):
        numbers = sum(c < len(row) and _is_number(row[c]) for row in below)
        if not _is_number(cell) and numbers > len(below) / 2:
            return True
    words = {cell.lower() for cell in rows[0]}
    return bool(words & {*SOURCES}) and bool(words & {*TARGETS})


def read_text(
    path: Path, *, columns: tuple[Column, ...] | None, header: bool | None, delimiter: str | None, ids: IdKind
) -> Columns:
    """Read ends and weights; a row that does not fit is an error with its line number."""
    layout = _layout(path, columns, header, delimiter, ids)
    given = _read_quickly(path, layout) or _read_carefully(path, layout)
    if header is None and not layout.header and not layout.integer and _begins_with_names(given):
        logger.warning(
            "%s: the first row, %r and %r, was taken as a header, because its words occur nowhere else. If it is an "
            "edge: header=False in Python, or graphquilt ingest --no-header.",
            path,
            str(given.source[0])[:40],
            str(given.target[0])[:40],
        )
        weights = None if given.weights is None else given.weights[1:]
        given = Columns(given.source[1:], given.target[1:], weights)
    return given


def _begins_with_names(given: Columns) -> bool:
    """Return whether the first row names the columns: its words occur nowhere else, and no other row is like that."""
    ends = np.stack([given.source, given.target])
    if len(given.source) < _LEAST_ROWS or any((ends[:, 1:] == word).any() for word in ends[:, 0]):
        return False
    _, places, counts = np.unique(ends, return_inverse=True, return_counts=True)
    alone = (counts[places].reshape(ends.shape) == 1).all(axis=0)
    return bool(alone[0]) and int(alone.sum()) == 1


def _has_single_blanks(path: Path, skip: int) -> bool:
    """Return whether one blank stands between columns, as far as the first rows tell."""
    try:
        with _open(path) as file:
            for _ in range(skip):
                file.readline()
            sample = file.read(1 << 16)
    except (EOFError, OSError, zlib.error):
        return False
    return not (b"  " in sample or b"\t" in sample or b" \n" in sample or sample.startswith(b" "))


def _read_quickly(path: Path, layout: _Layout) -> Columns | None:
    """Read with Arrow's parser; None where it cannot (comments further down, runs of blanks, a bad row)."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    delimiter = layout.delimiter or " "
    if layout.delimiter is None and not _has_single_blanks(path, layout.skip):
        return None
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
    return _checked_columns(path, [table[name] for name in kinds], integer=layout.integer)


def _checked_columns(path: Path, columns: list[pa.ChunkedArray], *, integer: bool) -> Columns | None:
    """Return what Arrow has read, or None where something is wrong, whose line the careful reader will name."""
    from pyarrow import compute

    weights = columns[2].to_numpy() if len(columns) > 2 else None
    if weights is not None and not (np.isfinite(weights).all() and (weights >= 0).all()):
        return None
    if integer:
        return Columns(columns[0].to_numpy(), columns[1].to_numpy(), weights)
    ends = [compute.utf8_trim_whitespace(column) for column in columns[:2]]
    comments = any(compute.any(compute.starts_with(ends[0], pattern=mark)).as_py() for mark in _COMMENTS)
    missing = any(compute.any(compute.equal(end, "")).as_py() for end in ends)
    try:
        return None if comments or missing else Columns(text_ids(path, ends[0]), text_ids(path, ends[1]), weights)
    except FormatError:
        return None


def _read_carefully(path: Path, layout: _Layout) -> Columns:
    ends: tuple[list[int | str], list[int | str]] = [], []
    weights: list[float] = []
    blocks: list[list[AnyArray]] = []
    longest, where, total = 0, 0, 0
    for number, text in text_lines(path):
        if number <= layout.skip:
            continue
        row = _cells(path, number, text, layout.delimiter)
        if len(row) != layout.width:
            raise FormatError(
                f"{path}, line {number}: {counted(len(row), 'column')} where the first row has {layout.width}: "
                f"{text[:80]!r}. Repair or remove the row."
            )
        for ids, column in zip(ends, layout.columns, strict=False):
            cell = row[column]
            if not cell:
                raise FormatError(f"{path}, line {number}: an id is missing: {text[:80]!r}. Repair or remove the row.")
            ids.append(_integer(path, number, cell) if layout.integer else cell)
            total += len(cell)
            if len(cell) > longest:
                longest, where = len(cell), number
            if "\0" in cell:
                raise FormatError(f"{path}, line {number}: the id {cell[:80]!r} has a NUL in it. Remove it.")
        if len(layout.columns) > 2:
            weights.append(_weight(path, number, row[layout.columns[2]]))
        if layout.integer and len(ends[0]) == _BLOCK:
            blocks.append(_arrays(ends, weights, np.int64))
            ends, weights = ([], []), []
    if not layout.integer:
        check_room(f"{path}, line {where}", longest=longest, n_ids=2 * len(ends[0]), total=total)
    blocks.append(_arrays(ends, weights, np.int64 if layout.integer else str))
    source, target, values = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return Columns(source, target, values if len(layout.columns) > 2 else None)


def _arrays(
    ends: tuple[list[int | str], list[int | str]], weights: list[float], kind: type[np.int64] | type[str]
) -> list[AnyArray]:
    return [np.array(ends[0], dtype=kind), np.array(ends[1], dtype=kind), np.array(weights, dtype=np.float64)]


def _integer(path: Path, number: int, cell: str) -> int:
    if not _INTEGER.fullmatch(cell):
        raise FormatError(
            f"{path}, line {number}: the id {cell[:80]!r} is not an integer, as others are. Repair the row, or "
            'read all ids as text with ids="text".'
        )
    if len(cell) > 20 or not -(2**63) <= int(cell) < 2**63:
        raise FormatError(
            f'{path}, line {number}: the id {cell[:80]} is beyond 64 bits; read all ids as text with ids="text".'
        )
    return int(cell)


def _weight(path: Path, number: int, cell: str) -> float:
    if not _is_number(cell):
        raise FormatError(f"{path}, line {number}: the weight {cell[:80]!r} is not a number.")
    if not 0 <= float(cell) < np.inf:
        raise FormatError(
            f"{path}, line {number}: the weight {cell[:80]!r} must be finite and not negative. Repair the "
            "row, or leave the weights out (--columns 0,1)."
        )
    return float(cell)
