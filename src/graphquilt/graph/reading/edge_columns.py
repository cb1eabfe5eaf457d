"""The columns of an edge list: which they are, and the rows that cannot be used, batch by batch."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.errors import FormatError, InputError, counted
from graphquilt.graph.reading.tables import Place, is_number

if TYPE_CHECKING:
    import pyarrow as pa

Column = int | str  # position from 0, or name

# Words for the two ends of an edge, in pairs; a column is known if its whole name is one, and guessed if part of it is.
ENDS = (
    *(("source", "target"), ("src", "dst"), ("from", "to"), ("head", "tail"), ("subject", "object"), ("start", "end")),
    *(("node1", "node2"), ("node_1", "node_2"), ("id1", "id2"), ("source_id", "target_id"), ("from_id", "to_id")),
    *(("start_id", "end_id"), ("sender", "receiver"), ("payer", "payee"), ("caller", "callee"), ("citing", "cited")),
    *(("follower", "followee"), ("buyer", "seller"), ("user", "item"), ("parent", "child"), ("u", "v"), ("i", "j")),
)
_KNOWN = 12  # pairs whose meaning is certain
SOURCES, TARGETS = (tuple(pair[end] for pair in ENDS[:_KNOWN]) for end in (0, 1))
WEIGHTS = ("weight", "weights", "edge_weight")

IdKind = Literal["auto", "integer", "text"]
BadRows = Literal["stop", "skip"]
logger = logging.getLogger(__name__)


def choose_edge_columns(
    where: Place,
    columns: tuple[Column, ...] | None,
    names: Sequence[str] | None,
    width: int,
    *,
    holds_numbers: Callable[[int], bool] = lambda _: False,
    examples: Callable[[int], Sequence[str]] = lambda _: (),
    third: Collection[str] = WEIGHTS,
) -> tuple[int, ...]:
    """Return the positions of source, target and perhaps weight in a table of ``width`` columns.

    By default the ends are the columns with known names, or the first two of a table without names, or the only two
    that are left beside a weight, a column with one of the names ``third``. ``examples`` gives some values of a column.
    """
    if columns is not None:
        return _positions(where, columns, names, width)
    words = [name.strip().lower() for name in names or ()]
    sources, targets = ([k for k, word in enumerate(words) if word in known] for known in (SOURCES, TARGETS))
    weights = [k for k, word in enumerate(words) if word in third]
    others = [k for k, word in enumerate(words) if word and k not in weights]
    if len(sources) == len(targets) == 1:
        ends = (sources[0], targets[0])
    elif names is None or width <= 2:
        ends = cast(tuple[int, int], _positions(where, (0, 1), None, width))
    elif len(others) == 2:
        ends = (others[0], others[1])
    else:
        raise _ask_for_columns(where, names, words, weights[:1], examples)
    if named := [k for k in weights if k not in ends]:
        return (*ends, named[0])  # a weight that is not a number is a bad row
    numbers = [k for k in range(width) if k not in ends and holds_numbers(k)]
    if numbers:
        what = [f"column {k} (from 0)" if names is None else f"the column {names[k]!r}" for k in numbers]
        flag = ",".join(_flag(names, k) for k in (*ends, numbers[-1]))
        logger.warning(
            f"{where}: {' and '.join(what[-3:])} has numbers, which were not used. To use them as edge weights: "
            f"--columns '{flag}' (in Python gq.read_edges(..., columns={(*ends, numbers[-1])}))."
        )
    elif width > 2 and names is None:
        logger.warning(
            f"{where} has {width} columns without names; the first two were taken as the ends of edges. For others: "
            "--columns 0,2 (in Python columns=(0, 2))."
        )
    return ends


def _ask_for_columns(
    where: Place, names: Sequence[str], words: list[str], third: list[int], examples: Callable[[int], Sequence[str]]
) -> FormatError:
    """Return an error that lists the columns, and guesses the ends by their names, or else by values in common."""
    values = [set(map(str, examples(k))) for k in range(len(names))]
    pairs = itertools.combinations([k for k in range(len(names[:20])) if k not in third], 2)
    guess = max(pairs, key=lambda pair: len(values[pair[0]] & values[pair[1]]))
    for source, target in ENDS:
        hits = [[k for k, word in enumerate(words) if end in re.split(r"[\W_]+", word)] for end in (source, target)]
        if all(hits):
            guess = hits[0][0], hits[1][0]
            break
    shown = [f"{name!r:.40} ({', '.join(str(e)[:20] for e in examples(k)[:2])})" for k, name in enumerate(names[:20])]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    chosen = (*guess, *third)
    flag = ",".join(_flag(names, k) for k in chosen)
    error = FormatError(
        f"{where} has {len(names)} columns, and their names do not tell which two are the ends of an edge: "
        f"{', '.join(shown)}{more}. Name them, and a third for the weights if there are any, for example --columns "
        f"'{flag}' (in Python columns={tuple(names[k] for k in chosen)}). If these are not names but an edge in a text "
        "file: header=False, or graphquilt ingest --no-header."
    )
    error.flags = ("--columns", flag)
    return error


def _flag(names: Sequence[str] | None, place: int) -> str:
    """Return how a column is given on the command line."""
    if names is None or names[place].strip().isdigit() or not names[place].strip():
        return str(place)
    return f'"{names[place]}"' if "," in names[place] else names[place]


def _positions(where: Place, columns: tuple[Column, ...], names: Sequence[str] | None, width: int) -> tuple[int, ...]:
    for column in columns:
        if isinstance(column, str) and column not in (names or ()):
            known = ", ".join(map(repr, names)) if names else f"{counted(width, 'column')} without names"
            raise InputError(f"{where} has no column {column!r}; it has {known[:500]}.")
        if not isinstance(column, str) and not 0 <= column < width:
            remedy = " Put a comma, a tab or a blank between source and target." if width == 1 else ""
            raise FormatError(f"{where} has {counted(width, 'column')}; column {column} (from 0) is not there.{remedy}")
    places = tuple(list(names or ()).index(column) if isinstance(column, str) else column for column in columns)
    if len(set(places)) < len(places):
        raise InputError(f"{where}: source, target and weight must differ; {columns} names one column twice.")
    return places


class Problem(NamedTuple):
    """Why some rows cannot be used: the cause, in words about the first of them."""

    cause: str
    text: str
    rows: Int64Array


class RowTally:
    """What is wrong with the rows of a table, counted while batches of it are read."""

    def __init__(self, where: Place, unit: Literal["line", "row"]) -> None:  # places are lines of text, or rows
        self.where, self.unit = where, unit
        self.n_rows = self.n_bad = 0
        self._first: list[int] = []
        self._causes: dict[str, tuple[int, str, int]] = {}  # first place, words about it, and number of rows

    def count(self, n_rows: int, problems: list[Problem], places: Callable[[], Sequence[int]]) -> Int64Array:
        """Count the rows of a batch, and return those that are bad; ``places`` says where the rows stand."""
        problems = [problem for problem in problems if len(problem.rows)]
        self.n_rows += n_rows
        if not problems:
            return np.zeros(0, dtype=np.int64)
        bad, where = np.unique(np.concatenate([problem.rows for problem in problems])), places()
        for cause, text, rows in problems:
            self.add(cause, text, [where[row] for row in rows[:3].tolist()], len(rows))
        self.n_bad += len(bad)
        return bad

    def add(self, cause: str, text: str, places: Sequence[int], n_rows: int) -> None:
        """Count bad rows of one cause, which begin at these places."""
        place, words, before = self._causes.get(cause, (places[0], text, 0))
        self._causes[cause] = place, words, before + n_rows
        self._first = sorted({*self._first, *places})[:3]

    def close(self, action: BadRows) -> None:
        """Raise if there are bad rows; or, if ``action`` is "skip", say in the log that they were left out."""
        if action not in ("stop", "skip"):
            raise InputError(f"bad_rows is stop or skip, not {action!r}.")
        if not self._causes:
            return
        causes = sorted(self._causes.values())
        shown = [f"{self.unit} {place}: {text}" + f" ({n} rows)" * (n > 1) for place, text, n in causes[:6]]
        message = f"{self.where}, {'; '.join(shown)}{'; and other causes' * (len(causes) > 6)}. "
        if self.n_bad > 1:
            first = f"the first in {self.unit}s {', '.join(map(str, self._first))}"
            message += f"{self.n_bad} of {self.n_rows} rows are bad, {first}. "
        if action == "stop":
            remedy = "the row, or leave it out" if self.n_bad == 1 else "the rows, or leave them out"
            raise FormatError(f'{message}Repair {remedy} with --bad-rows skip (bad_rows="skip" in Python).')
        logger.warning("%s%s left out.", message, "It was" if self.n_bad == 1 else "They were")


class EdgeRows(NamedTuple):
    """Some rows of an edge list: both ends, integers or text, their weights, and where they stand."""

    source: pa.Array
    target: pa.Array
    weights: Float64Array | None
    places: Callable[[], Sequence[int]]


class EdgeTable(NamedTuple):
    """An edge list that is read in batches, the same every time, which count what is wrong with its rows."""

    where: Place
    unit: Literal["line", "row"]
    ids: IdKind
    batches: Callable[[RowTally], Iterator[EdgeRows]]
    below_header: Callable[[], EdgeTable] | None = None  # the table without its first row, should that be a header

    def tally(self) -> RowTally:
        """Return the tally of a pass over this table."""
        return RowTally(self.where, self.unit)


def clean_rows(
    columns: list[pa.Array],
    tally: RowTally,
    places: Callable[[], Sequence[int]],
    broken: Mapping[str, list[int]] | None = None,
) -> EdgeRows:
    """Return the rows of a batch that can be used; ``broken`` are lines by problem that could not be cut into cells."""
    from pyarrow import compute as pc

    for problem, lines in (broken or {}).items():
        tally.add(problem, problem, lines[:3], len(lines))
        tally.n_rows, tally.n_bad = tally.n_rows + len(lines), tally.n_bad + len(lines)
    if tally.unit == "line":
        masks, text = [pc.equal(column, "") for column in columns[:2]], "an id is missing"
    else:
        masks, text = [column.is_null() for column in columns], "an id or weight is missing"
    missing = np.flatnonzero(np.logical_or.reduce([mask.to_numpy(zero_copy_only=False) for mask in masks]))
    weights, problems = parse_weights(columns[2]) if len(columns) > 2 else (None, [])
    bad = tally.count(len(columns[0]), [Problem(text, text, missing), *problems], places)
    if not len(bad):
        return EdgeRows(columns[0], columns[1], weights, places)
    rows = np.delete(np.arange(len(columns[0])), bad)
    return EdgeRows(
        columns[0].take(rows),
        columns[1].take(rows),
        None if weights is None else weights[rows],
        lambda: [places()[row] for row in rows.tolist()],
    )


def parse_weights(column: pa.Array) -> tuple[Float64Array, list[Problem]]:
    """Return a column of text or numbers as weights, and the rows whose weight is not a number, or negative."""
    import pyarrow as pa

    unreadable = digits = np.zeros(len(column), dtype=bool)
    try:
        text = pa.types.is_string(column.type)
        weights: Float64Array = column.cast(pa.float64(), safe=text).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        cells = column.to_pylist()
        unreadable = np.array([not is_number(cell) for cell in cells])
        digits = np.array([any(map(str.isdigit, str(cell))) for cell in cells])
        weights = np.array([np.nan if bad else float(cell) for cell, bad in zip(cells, unreadable, strict=True)])
    present = ~unreadable & ~column.is_null().to_numpy(zero_copy_only=False)
    problems = []
    for bad, words in (
        (unreadable & ~digits, "is not a number"),
        (unreadable & digits, "is not a number like 1234.5"),
        (present & ~(np.isfinite(weights) & (weights >= 0)), "must be finite and not negative"),
    ):
        if bad.any():
            rows = np.flatnonzero(bad)
            value = str(column[int(rows[0])].as_py())[:80]
            problems.append(Problem(words, f"the weight {value!r} {words} (two --columns leave weights out)", rows))
    return weights, problems
