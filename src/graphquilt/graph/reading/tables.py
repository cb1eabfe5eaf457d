"""The one reader of tables in text files: it finds the delimiter, the header and the columns.

Cells are trimmed of blanks unless they are quoted. A first row is a header if it names the columns with known words, or
if all its cells are words and one of them stands above numbers; of more than two columns, also if none of its words
comes again in its column where others do.
"""

from __future__ import annotations

import gzip
import io
import logging
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from graphquilt.errors import FormatError, InputError, counted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SOURCES", "TARGETS", "Place", "TextTable", "choose_edge_columns", "is_number", "text_lines"]

Place = str | PathLike[str]  # a file, or what messages call a table in memory
Column = int | str  # position from 0, or name

# Words for the two ends of an edge, in pairs; a column is known if its whole name is one, and guessed if part of it is.
_ENDS = (
    *(("source", "target"), ("src", "dst"), ("from", "to"), ("head", "tail"), ("subject", "object"), ("start", "end")),
    *(("node1", "node2"), ("node_1", "node_2"), ("id1", "id2"), ("source_id", "target_id"), ("from_id", "to_id")),
    *(("start_id", "end_id"), ("sender", "receiver"), ("payer", "payee"), ("caller", "callee"), ("citing", "cited")),
    *(("follower", "followee"), ("buyer", "seller"), ("user", "item"), ("parent", "child"), ("u", "v"), ("i", "j")),
)
_KNOWN = 12  # pairs whose meaning is certain
SOURCES, TARGETS = (tuple(pair[end] for pair in _ENDS[:_KNOWN]) for end in (0, 1))
WEIGHTS = ("weight", "weights", "edge_weight")

COMMENTS = ("#", "%", "//")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d]|[^\d]+[^\W\d_]")  # a letter or underscore, perhaps after other marks, but not after digits
_SAMPLE = 200  # rows that delimiter and header are found from
_LINE = 1 << 20  # letters in a line; a longer one is a sign of another kind of file, and would have to fit in memory
_BLOCK = 1 << 16  # rows that are kept as Python text before they become an array

logger = logging.getLogger(__name__)


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
        table.rows.extend(table._split(number, text) for number, text in sample)
        return table

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.rows[0])

    def holds_numbers(self, place: int, *, header: bool) -> bool:
        """Return whether the first rows have a number in this column."""
        return all(place < len(row) and is_number(row[place]) for row in self.rows[header:])

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

    def line(self, row: int, *, header: bool) -> str:
        """Return where a row stands, for messages."""
        number, _ = next(islice(text_lines(self.path, self.comments), row + header, None))
        return f"{self.path}, line {number}"

    def read(self, places: Sequence[int], *, header: bool, numbers: Collection[int] = ()) -> list[pa.ChunkedArray]:
        """Return these columns as text, or as floats if they are among ``numbers`` and all their cells are numbers."""
        return self._read_quickly(places, header, numbers) or self._read_carefully(places, header)

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

    def _read_carefully(self, places: Sequence[int], header: bool) -> list[pa.ChunkedArray]:
        """Read line by line; a row with more or fewer cells than the first is an error with its line."""
        import pyarrow as pa

        chunks: list[list[pa.Array]] = [[] for _ in places]
        cells: list[list[str]] = [[] for _ in places]

        def finish_block() -> None:
            for chunk, values in zip(chunks, cells, strict=True):
                chunk.append(pa.array(values, pa.string()))
                values.clear()

        for number, text in islice(text_lines(self.path, self.comments), int(header), None):
            row = self._split(number, text)
            if len(row) != self.width:
                raise FormatError(
                    f"{self.path}, line {number}: {counted(len(row), 'column')} where the first row has {self.width}: "
                    f"{text[:80]!r}. Repair or remove the row; put a cell with the delimiter in it in quotes."
                )
            for values, place in zip(cells, places, strict=True):
                values.append(row[place])
            if len(cells[0]) == _BLOCK:
                finish_block()
        finish_block()
        return [pa.chunked_array(chunk) for chunk in chunks]

    def _split(self, number: int, text: str) -> list[str]:
        """Return the cells of a line; blanks around them go, those in quotes stay."""
        if '"' not in text:
            return text.split() if self.delimiter is None else [c.strip(" \t") for c in text.split(self.delimiter)]
        mark = r"[ \t]+" if self.delimiter is None else re.escape(self.delimiter)
        other = r"[^ \t]" if self.delimiter is None else f"[^{mark}]"
        pattern = re.compile(rf'[ ]*(?:"((?:[^"]|"")*)"[ ]*|({other}*))({mark}|$)')
        cells, place, text = [], 0, text.strip(" ") if self.delimiter is None else text
        while True:
            cell = pattern.match(text, place)
            if cell is None or (cell[1] is None and cell[2].startswith('"')):
                raise FormatError(
                    f"{self.path}, line {number}: a quote is not closed: {text[:80]!r}. Repair or remove the row."
                )
            cells.append(cell[2].strip(" \t") if cell[1] is None else cell[1].replace('""', '"'))
            place = cell.end()
            if not cell[3]:
                return cells


def _delimiter(lines: list[str]) -> str | None:
    """Return the mark that cuts all lines into equally many cells, or else the first one in the first line."""
    present = [mark for mark in ("\t", ",", ";", "|") if mark in lines[0]]
    even = [mark for mark in present if '"' not in lines[0] and len({line.count(mark) for line in lines}) == 1]
    return next(iter(even or present), None)


def choose_edge_columns(
    where: Place,
    columns: tuple[Column, ...] | None,
    names: Sequence[str] | None,
    width: int,
    *,
    holds_numbers: Callable[[int], bool],
    examples: Callable[[int], Sequence[str]],
) -> tuple[int, ...]:
    """Return the positions of source, target and perhaps weight in a table of ``width`` columns.

    By default the ends are the columns with known names, or the first two of a table without names, or the only two
    that are left beside a weight. Where names do not tell, that is an error which lists the columns. A column named
    weight has the weights.

    Examples
    --------
    >>> names = ["id", "from", "to", "Weight"]
    >>> choose_edge_columns("t", None, names, 4, holds_numbers=lambda k: True, examples=lambda k: [])
    (1, 2, 3)
    """
    if columns is not None:
        return _positions(where, columns, names, width)
    words = [name.strip().lower() for name in names or ()]
    sources, targets = ([k for k, word in enumerate(words) if word in known] for known in (SOURCES, TARGETS))
    weights = [k for k, word in enumerate(words) if word in WEIGHTS]
    others = [k for k, word in enumerate(words) if word and k not in weights]
    if len(sources) == len(targets) == 1:
        ends = (sources[0], targets[0])
    elif names is None or width <= 2:
        ends = cast(tuple[int, int], _positions(where, (0, 1), None, width))
    elif len(others) == 2:
        ends = (others[0], others[1])
    else:
        raise _ask_for_columns(where, names, words, examples)
    weights = [k for k in weights if k not in ends]
    if weights and holds_numbers(weights[0]):
        return (*ends, weights[0])
    if weights and names is not None:
        warn_of_weights(where, names[weights[0]])
    third = next((k for k in range(width) if k not in ends), None)
    if third is not None and holds_numbers(third):
        what = f"column {third} (from 0)" if names is None else f"the column {names[third]!r}"
        logger.warning(
            "%s: %s has numbers, which were ignored. To use them as edge weights: --columns '%s' (in Python "
            "gq.read_edges(..., columns=%s)).",
            where,
            what,
            ",".join(_flag(names, k) for k in (*ends, third)),
            (*ends, third),
        )
    elif third is not None and names is None:
        logger.warning(
            "%s has %d columns without names; the first two were taken as the ends of edges. For others: --columns 0,2 "
            "(in Python columns=(0, 2)).",
            where,
            width,
        )
    return ends


def warn_of_weights(where: Place, name: str) -> None:
    """Log that a column whose name says weight was not used."""
    logger.warning(
        "%s: the column %r was ignored, because some of its values are not numbers. Repair them to use it as edge "
        "weights.",
        where,
        name,
    )


def _ask_for_columns(
    where: Place, names: Sequence[str], words: list[str], examples: Callable[[int], Sequence[str]]
) -> FormatError:
    """Return an error that lists the columns, with the best guess of those that are the ends of an edge."""
    guess = (0, 1)
    for source, target in _ENDS:
        hits = [[k for k, word in enumerate(words) if end in re.split(r"[\W_]+", word)] for end in (source, target)]
        if all(hits):
            guess = hits[0][0], hits[1][0]
            break
    shown = [f"{name!r:.40} ({', '.join(str(e)[:20] for e in examples(k)[:2])})" for k, name in enumerate(names[:20])]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return FormatError(
        f"{where} has {len(names)} columns, and their names do not tell which two are the ends of an edge: "
        f"{', '.join(shown)}{more}. Name them, and a third for the weights if there are any, for example --columns "
        f"'{','.join(_flag(names, k) for k in guess)}' (in Python columns={tuple(names[k] for k in guess)}). If these "
        "are not names but an edge in a text file: header=False, or graphquilt ingest --no-header."
    )


def _flag(names: Sequence[str] | None, place: int) -> str:
    """Return how a column is given on the command line."""
    if names is None or names[place].strip().isdigit() or not names[place].strip():
        return str(place)
    return f'"{names[place]}"' if "," in names[place] else names[place]


def _positions(where: Place, columns: tuple[Column, ...], names: Sequence[str] | None, width: int) -> tuple[int, ...]:
    places = tuple(_position(where, column, names, width) for column in columns)
    if len(set(places)) < len(places):
        raise InputError(f"{where}: source, target and weight must differ; {columns} names one column twice.")
    return places


def _position(where: Place, column: Column, names: Sequence[str] | None, width: int) -> int:
    if isinstance(column, str):
        if names is None or column not in names:
            known = ", ".join(map(repr, names)) if names else f"{counted(width, 'column')} without names"
            raise InputError(f"{where} has no column {column!r}; it has {known[:500]}.")
        return list(names).index(column)
    if not 0 <= column < width:
        remedy = " Put a comma, a tab or a blank between source and target." if width == 1 else ""
        raise FormatError(f"{where} has {counted(width, 'column')}; column {column} (from 0) is not there.{remedy}")
    return column
