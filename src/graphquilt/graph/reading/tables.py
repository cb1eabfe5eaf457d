"""The one reader of tables in text files: it finds the delimiter, the header and the columns.

Cells are trimmed of blanks unless they are quoted. A first row is a header if it names the columns with known words, or
if all its cells are words and one of them stands above numbers; of more than two columns, also if none of its words
comes again in its column where others do.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

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
_BLOCK = 1 << 16  # rows that are kept as Python text before they become an array


def is_number(cell: str) -> bool:
    """Return whether a cell is a number as people write them in ASCII; hexadecimal and 1_000 are not."""
    return _NUMBER.fullmatch(cell) is not None


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def text_lines(path: Path, comments: tuple[str, ...] = COMMENTS) -> Iterator[tuple[int, str]]:
    """Yield number and text of every line that is neither blank nor a comment."""
    number = 0
    try:
        with io.TextIOWrapper(_open(path), encoding="utf-8-sig", errors="surrogateescape") as file:
            while line := file.readline(_LINE):
                number += 1
                if len(line) == _LINE:
                    raise FormatError(
                        f"{path}, line {number}: the line has {_LINE} letters or more; a table has one row per line. "
                        "Give a text file, or a .npy or Parquet file with the ending of its kind."
                    )
                text = line.strip("\r\n")
                if text.strip() and not text.lstrip().startswith(comments):
                    yield number, _decoded(path, number, text)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FormatError(f"{path} is cut short or not gzip, after line {number}: {error}. Fetch it again.") from error
    except FileNotFoundError as error:
        raise FormatError(f"{path} does not exist.") from error
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}. Give a readable file.") from error


def _decoded(path: Path, number: int, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) & 0xFF
        raise FormatError(
            f"{path}, line {number}: the byte {byte:#04x} after {text[: error.start][-40:]!r} is not text in UTF-8. "
            "Convert the file, for example with iconv -f latin1 -t utf-8, or unpack it if it is compressed (only .gz "
            "is read directly)."
        ) from None
    return text


@dataclass(frozen=True)
class TextTable:
    """A text file with one row of cells per line.

    Attributes
    ----------
    path : Path
    delimiter : str or None
        None for any run of blanks.
    comments : tuple of str
        A line that begins with one of them is not a row.
    rows : list of lists of str
        The first 200 rows.
    lines : list of int
        Their line numbers.
    """

    path: Path
    delimiter: str | None
    comments: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]

    @classmethod
    def open(
        cls, path: Path, delimiter: str | None = None, *, comments: tuple[str, ...] = (), blanks: bool = False
    ) -> TextTable:
        """Read the first rows; with ``blanks``, a file without another delimiter has blanks between columns."""
        sample = list(islice(text_lines(path, comments), _SAMPLE))
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
        return table

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

    def lines_of(self, rows: Sequence[int], *, header: bool, broken: Collection[int] = ()) -> list[int]:
        """Return in which lines of the file these rows stand, if the lines ``broken`` are not rows."""
        numbers = (number for number, _ in text_lines(self.path, self.comments) if number not in broken)
        lines = dict(enumerate(islice(numbers, max(rows) + header + 1), start=-int(header)))
        return [lines[row] for row in rows]

    def read(
        self,
        places: Sequence[int],
        *,
        header: bool,
        numbers: Collection[int] = (),
        broken: dict[str, list[int]] | None = None,
    ) -> list[pa.ChunkedArray]:
        """Return these columns as text, or as floats if they are among ``numbers`` and all their cells are numbers.

        A row with more or fewer cells than the first, or a quote that is not closed, is an error with its line; or, if
        ``broken`` is given, that line is left out and put there under its problem.
        """
        return self._read_quickly(places, header, numbers) or self._read_carefully(places, header, broken)

    def _read_quickly(self, places: Sequence[int], header: bool, numbers: Collection[int]) -> list[pa.ChunkedArray]:
        """Read with Arrow's parser; nothing where it cannot (comments, runs of blanks, bad rows, quoted blanks)."""
        import pyarrow as pa
        from pyarrow import compute, csv

        skip = self.lines[int(header)] - 1 if len(self.lines) > header else self.lines[-1]
        if self.delimiter is None and not self._has_single_blanks(skip):
            return []
        names = [f"c{k}" for k in range(self.width)]
        first = [0] if self.comments and 0 not in places else []
        kinds = {names[k]: pa.float64() if k in numbers else pa.string() for k in (*places, *first)}
        try:
            table = csv.read_csv(
                self.path,
                read_options=csv.ReadOptions(column_names=names, skip_rows=skip, use_threads=False),
                parse_options=csv.ParseOptions(delimiter=self.delimiter or " "),
                convert_options=csv.ConvertOptions(
                    column_types=kinds, include_columns=list(kinds), null_values=[], strings_can_be_null=False
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowKeyError, OSError):
            return []
        for name in kinds:
            column = table[name]
            if column.type != pa.string():
                continue
            trimmed = compute.ascii_trim(column, " \t")
            blanks = compute.sum(compute.binary_length(column)) != compute.sum(compute.binary_length(trimmed))
            marks = self.comments if name == names[0] else ()
            if any(compute.any(compute.starts_with(trimmed, mark)).as_py() for mark in marks):
                return []
            if compute.any(compute.match_substring(column, "\n")).as_py() or (blanks and self._has_quotes()):
                return []
            table = table.set_column(table.schema.get_field_index(name), name, trimmed)
        return [table[names[k]] for k in places]

    def _has_single_blanks(self, skip: int) -> bool:
        """Return whether one blank stands between columns, as far as the first rows tell."""
        try:
            with _open(self.path) as file:
                for _ in range(skip):
                    file.readline()
                sample = file.read(1 << 16)
        except (EOFError, OSError, zlib.error):
            return False
        return not (b"  " in sample or b"\t" in sample or b" \n" in sample or sample.startswith(b" "))

    def _has_quotes(self) -> bool:
        with _open(self.path) as file:
            return any(b'"' in piece for piece in iter(lambda: file.read(1 << 20), b""))

    def _read_carefully(
        self, places: Sequence[int], header: bool, broken: dict[str, list[int]] | None
    ) -> list[pa.ChunkedArray]:
        """Read line by line."""
        import pyarrow as pa

        chunks: list[list[pa.Array]] = [[] for _ in places]
        cells: list[list[str]] = [[] for _ in places]

        def finish_block() -> None:
            for chunk, values in zip(chunks, cells, strict=True):
                chunk.append(pa.array(values, pa.string()))
                values.clear()

        for number, text in islice(text_lines(self.path, self.comments), int(header), None):
            row = self._split(text)
            if len(row) != self.width:
                problem = f"{counted(len(row), 'column')} where the first row has {self.width}" if row else _UNCLOSED
                if broken is None:
                    raise FormatError(f"{self.path}, line {number}: {problem}: {text[:80]!r}. Repair or remove it.")
                broken.setdefault(problem, []).append(number)
                continue
            for values, place in zip(cells, places, strict=True):
                values.append(row[place])
            if len(cells[0]) == _BLOCK:
                finish_block()
        finish_block()
        return [pa.chunked_array(chunk) for chunk in chunks]

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


def _delimiter(lines: list[str]) -> str | None:
    """Return the mark that cuts all lines into equally many cells, or else the first one in the first line."""
    present = [mark for mark in ("\t", ",", ";", "|") if mark in lines[0]]
    even = [mark for mark in present if '"' not in lines[0] and len({line.count(mark) for line in lines}) == 1]
    return next(iter(even or present), None)
