"""The one reader of tables in text files: it finds the delimiter, the header and the columns.

It reads blocks of whole lines: by Arrow's parser, or line by line where a block has comments, runs of blanks, quoted
blanks or bad rows. Cells are trimmed of blanks unless they are quoted.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from graphquilt.errors import FormatError, InputError, counted

if TYPE_CHECKING:
    import pyarrow as pa

Place = str | PathLike[str]  # a file, or what messages call a table in memory
COMMENTS = ("#", "%", "//")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d]|[^\d]+[^\W\d_]")  # a letter or underscore, perhaps after other marks, but not after digits
_SAMPLE = 200  # rows that delimiter and header are found from
_LINE = 1 << 20  # letters in a line; a longer one is a sign of another kind of file, and would have to fit in memory
_UNCLOSED = "a quote is not closed"
_REMARK = "it begins as comments do and has the cells of a row: put the id in quotes, or a blank after the mark"
_BLOCK = 1 << 21  # bytes that are read at once


def is_number(cell: str) -> bool:
    """Return whether a cell is a number as people write them in ASCII; hexadecimal and 1_000 are not."""
    return _NUMBER.fullmatch(cell) is not None


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def text_blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield a file in blocks of whole lines that end in a line feed, each with the number of its first line."""
    number, rest, start = 1, b"", True
    try:
        with _open(path) as file:
            while piece := file.read(_BLOCK):
                text = (rest + piece).removeprefix(b"\xef\xbb\xbf") if start else rest + piece
                start, held = False, text[-1:] if text.endswith(b"\r") else b""  # a line feed may follow
                if b"\r" in text:
                    text = text.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
                end = text.rfind(b"\n") + 1
                rest = text[end:] + held
                if end:
                    yield number, text[:end]
                    number += text.count(b"\n", 0, end)
                if len(rest) >= _LINE and len(rest.decode("utf-8", "replace")) >= _LINE:
                    raise _long_line(path, number)
            if rest:
                yield number, rest.removesuffix(b"\r") + b"\n"
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FormatError(f"{path} is cut short or not gzip, after line {number}: {error}. Fetch it again.") from error
    except FileNotFoundError as error:
        raise FormatError(f"{path} does not exist.") from error
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}. Give a readable file.") from error


def _long_line(path: Path, number: int) -> FormatError:
    return FormatError(
        f"{path}, line {number}: the line has {_LINE} letters or more; a table has one row per line. Give a text file, "
        "or a .npy or Parquet file with the ending of its kind."
    )


def text_lines(path: Path, comments: tuple[str, ...] = COMMENTS) -> Iterator[tuple[int, str]]:
    """Yield number and text of every line that is neither blank nor a comment."""
    for first, block in text_blocks(path):
        for number, text in _lines(path, first, block):
            if not text.lstrip().startswith(comments):
                yield number, text


def _lines(path: Path, first: int, block: bytes) -> Iterator[tuple[int, str]]:
    """Yield number and text of every line of a block that is not blank."""
    for number, content in enumerate(io.BytesIO(block), start=first):
        line = content[:-1].decode("utf-8", "surrogateescape")
        if len(line) >= _LINE:
            raise _long_line(path, number)
        try:
            line.encode()
        except UnicodeEncodeError as error:
            byte = ord(line[error.start]) & 0xFF
            raise FormatError(
                f"{path}, line {number}: the byte {byte:#04x} after {line[: error.start][-40:]!r} is not text in "
                "UTF-8. Convert the file, for example with iconv -f latin1 -t utf-8, or unpack it if it is compressed "
                "(only .gz is read directly)."
            ) from None
        if line.strip():
            yield number, line


class Block(NamedTuple):
    """Some rows of a table: their cells by column, the lines they stand in, and lines by problem that are not rows."""

    columns: list[pa.Array]
    lines: Callable[[], list[int]]
    broken: dict[str, list[int]]


@dataclass(frozen=True)
class TextTable:
    """A text file with one row of cells per line."""

    path: Path
    delimiter: str | None  # None for any run of blanks
    # A line that begins with one of them is not a row. If it has the cells of a row, and no blank after the mark, it
    # may be one: it is in ``broken``, or, before the first row, in ``remarks``.
    comments: tuple[str, ...]
    rows: list[list[str]]  # the first 200 rows
    lines: list[int]  # their line numbers
    remarks: list[tuple[int, list[str]]] = field(default_factory=list)  # numbers of lines, and their cells

    @classmethod
    def open(
        cls, path: Path, delimiter: str | None = None, *, comments: tuple[str, ...] = (), blanks: bool = False
    ) -> TextTable:
        """Read the first rows; with ``blanks``, a file without another delimiter has blanks between columns."""
        first = list(islice(text_lines(path, ()), _SAMPLE + 1000 * bool(comments)))
        sample = [row for row in first if not row[1].lstrip().startswith(comments)][:_SAMPLE]
        sample = sample or list(islice(text_lines(path, comments), _SAMPLE))
        if not sample:
            raise FormatError(f"{path} is empty.")
        if delimiter is None:
            mark = _delimiter([text for _, text in sample]) or (None if blanks else ",")
        elif delimiter == " ":
            mark = None
        elif len(delimiter) != 1 or delimiter in '"\r\n\0' or not delimiter.isascii():
            raise InputError(f"a delimiter is one ASCII character, such as a comma, not {delimiter!r}.")
        else:
            mark = delimiter
        table = cls(path, mark, comments, [], [number for number, _ in sample])
        table.rows.extend(table._split(text) for _, text in sample)
        if not table.rows[0]:
            raise FormatError(f"{path}, line {sample[0][0]}: {_UNCLOSED}: {sample[0][1][:80]!r}. Repair the row.")
        above = [row for row in first if row[0] < sample[0][0]]
        table.remarks.extend((number, table._split(text)) for number, text in above if table._may_be_row(text))
        return table

    def _may_be_row(self, text: str) -> bool:
        """Return whether a line that begins as comments do has the cells of a row, and no blank after the mark."""
        mark = max((mark for mark in self.comments if text.lstrip().startswith(mark)), key=len)
        after = text.lstrip()[len(mark) :]
        return after[:1].strip() not in ("", *self.comments) and len(self._split(text)) == self.width

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.rows[0])

    def holds_numbers(self, place: int, *, header: bool) -> bool:
        """Return whether most of the first rows have a number in this column."""
        rows = self.rows[header:]
        return 2 * sum(place < len(row) and is_number(row[place]) for row in rows) > len(rows)

    def has_header(self, *known: Collection[str]) -> bool:
        """Return whether the first row names the columns.

        It does if it has a word of each of ``known``; or if it has only words, and one stands above numbers, or, in a
        table of more than two columns, none comes again where other cells do.

        >>> TextTable(Path("edges"), ",", (), [["alice", "1"], ["2", "3"]], [1, 2]).has_header()
        False
        """
        first, below = self.rows[0], self.rows[1:20]
        if known and all({cell.lower() for cell in first} & {*words} for words in known):
            return True
        if not below or not all(cell == "" or _WORD.match(cell) for cell in first) or any(map(is_number, first)):
            return False
        columns = [[row[c] for row in self.rows[1:] if c < len(row)] for c in range(len(first))]
        if any(first) and any(2 * sum(map(is_number, column[:19])) > len(below) for column in columns):
            return True
        alone = not any(cell in column for cell, column in zip(first, columns, strict=True))
        return len(first) > 2 and alone and any(len(set(column)) < len(column) for column in columns)

    def blocks(self, places: Sequence[int], *, header: bool, numbers: Collection[int] = ()) -> Iterator[Block]:
        """Yield these columns as text, or as floats if they are among ``numbers``, some thousand rows at a time."""
        begin = self.lines[0] + int(header)
        for first, block in text_blocks(self.path):
            text, skip = block, max(0, min(begin - first, block.count(b"\n")))
            for _ in range(skip):
                text = text[text.index(b"\n") + 1 :]
            if text:
                columns = self._parse_quickly(text, places, numbers)
                if columns is None:
                    yield self._parse_carefully(first + skip, text, places, numbers)
                else:
                    yield Block(columns, partial(_filled_lines, first + skip, text), {})

    def read(self, places: Sequence[int], *, header: bool, numbers: Collection[int] = ()) -> list[pa.ChunkedArray]:
        """Return these columns whole; a row that cannot be read is an error with its line."""
        import pyarrow as pa

        kinds = [pa.float64() if place in numbers else pa.string() for place in places]
        parts = []
        for block in self.blocks(places, header=header, numbers=numbers):
            if block.broken:
                line, problem = min((lines[0], problem) for problem, lines in block.broken.items())
                raise FormatError(f"{self.path}, line {line}: {problem}. Repair or remove the line.")
            parts.append(block.columns)
        return [pa.chunked_array([part[k] for part in parts], kind) for k, kind in enumerate(kinds)]

    def _parse_quickly(self, text: bytes, places: Sequence[int], numbers: Collection[int]) -> list[pa.Array] | None:
        """Read with Arrow's parser; None where it cannot (comments, runs of blanks, bad rows, quoted blanks)."""
        import pyarrow as pa
        from pyarrow import compute, csv

        if self.delimiter is None and (text[:1] == b" " or any(m in text for m in (b"  ", b"\t", b" \n", b"\n "))):
            return None
        names = [f"c{k}" for k in range(self.width)]
        first = [0] if self.comments and 0 not in places else []
        kinds = {names[k]: pa.float64() if k in numbers else pa.string() for k in (*places, *first)}
        try:
            table = csv.read_csv(
                pa.BufferReader(text),
                read_options=csv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1),
                parse_options=csv.ParseOptions(delimiter=self.delimiter or " "),
                convert_options=csv.ConvertOptions(
                    column_types=kinds, include_columns=list(kinds), null_values=[], strings_can_be_null=False
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowKeyError, OSError):
            return None
        columns = {name: table[name].combine_chunks() for name in kinds}
        for name, column in columns.items():
            if column.type != pa.string():
                continue
            trimmed = compute.ascii_trim(column, " \t")
            blanks = compute.sum(compute.binary_length(column)) != compute.sum(compute.binary_length(trimmed))
            marks = self.comments if name == names[0] else ()
            if any(compute.any(compute.starts_with(trimmed, mark)).as_py() for mark in marks):
                return None
            if compute.any(compute.match_substring(column, "\n")).as_py() or (blanks and b'"' in text):
                return None
            columns[name] = trimmed
        return [columns[names[k]] for k in places]

    def _parse_carefully(self, first: int, text: bytes, places: Sequence[int], numbers: Collection[int]) -> Block:
        """Read line by line."""
        import pyarrow as pa

        cells: list[list[str]] = [[] for _ in places]
        lines: list[int] = []
        broken: dict[str, list[int]] = {}
        for number, line in _lines(self.path, first, text):
            problem, row = None, self._split(line)
            if line.lstrip().startswith(self.comments):
                if not self._may_be_row(line):
                    continue
                problem = _REMARK
            elif len(row) != self.width:
                problem = f"{counted(len(row), 'column')} where the first row has {self.width}" if row else _UNCLOSED
            elif not all(is_number(row[k]) for k in numbers):
                problem = f"expected an id and {len(numbers)} numbers"
            if problem is not None:
                broken.setdefault(problem, []).append(number)
                continue
            lines.append(number)
            for values, place in zip(cells, places, strict=True):
                values.append(row[place])
        columns = [pa.array(values, pa.string()) for values in cells]
        columns = [c.cast(pa.float64()) if k in numbers else c for c, k in zip(columns, places, strict=True)]
        return Block(columns, lambda: lines, broken)

    def _split(self, text: str) -> list[str]:
        """Return the cells of a line, none if a quote is not closed; blanks around them go, those in quotes stay."""
        if '"' not in text:
            return text.split() if self.delimiter is None else [c.strip(" \t") for c in text.split(self.delimiter)]
        mark = r"[ \t]+" if self.delimiter is None else re.escape(self.delimiter)
        other = r"[^ \t]" if self.delimiter is None else f"[^{mark}]"
        pattern = re.compile(rf'[ ]*(?:"((?:[^"]|"")*)"[ ]*|({other}*))({mark}|$)')
        cells, place, text = [], 0, text.strip(" ") if self.delimiter is None else text
        while True:
            cell = pattern.match(text, place)
            if cell is None or (cell[1] is None and cell[2].startswith('"')):
                return []
            cells.append(cell[2].strip(" \t") if cell[1] is None else cell[1].replace('""', '"'))
            place = cell.end()
            if not cell[3]:
                return cells


def _filled_lines(first: int, text: bytes) -> list[int]:
    return [number for number, line in enumerate(text.split(b"\n"), start=first) if line]


def _delimiter(lines: list[str]) -> str | None:
    """Return the mark that cuts all lines into equally many cells, or else the first one in the first line."""
    present = [mark for mark in ("\t", ",", ";", "|") if mark in lines[0]]
    even = [mark for mark in present if '"' not in lines[0] and len({line.count(mark) for line in lines}) == 1]
    return next(iter(even or present), None)
