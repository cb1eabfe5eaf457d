"""The columns of an edge list: which they are, the type of ids, which all rows decide, and rows that cannot be used."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, Int64Array
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
        logger.warning("%s: the column %r was ignored, because its values are not numbers.", where, names[weights[0]])
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


def _ask_for_columns(
    where: Place, names: Sequence[str], words: list[str], examples: Callable[[int], Sequence[str]]
) -> FormatError:
    """Return an error that lists the columns, with the best guess of those that are the ends of an edge."""
    guess = (0, 1)
    for source, target in ENDS:
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


class Problem(NamedTuple):
    """Why some rows cannot be used, in words about the first of them."""

    text: str
    rows: Int64Array


def leave_out(
    where: Place,
    n_rows: int,
    problems: list[Problem],
    action: BadRows,
    *,
    broken: Mapping[str, list[int]] | None = None,
    lines: Callable[[list[int]], list[int]] | None = None,
) -> Int64Array:
    """Return the rows to leave out; unless ``action`` is "skip", that there are any is an error.

    The message counts the bad rows and gives the first three, and each cause with its first row: a line of a text file
    if ``lines`` tells in which line a row stands. ``broken`` are lines by problem that could not be cut into rows.
    """
    broken, problems = broken or {}, [problem for problem in problems if len(problem.rows)]
    bad = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(problem.rows for problem in problems)]))
    n_broken, unit = sum(map(len, broken.values())), "row" if lines is None else "line"
    if not len(bad) and not n_broken:
        return bad
    rows = [*(int(problem.rows[0]) for problem in problems), *bad[:3].tolist()]
    places = rows if lines is None or not rows else lines(rows)
    causes = [(place, problem.text, len(problem.rows)) for place, problem in zip(places, problems, strict=False)]
    causes = sorted([*causes, *((found[0], text, len(found)) for text, found in broken.items())])
    first = sorted({*places[len(problems) :], *(line for found in broken.values() for line in found[:3])})[:3]
    shown = [f"{unit} {place}: {text}" + f" ({n} rows)" * (n > 1) for place, text, n in causes[:6]]
    message = f"{where}, {'; '.join(shown)}{'; and other causes' * (len(causes) > 6)}. "
    n_bad = len(bad) + n_broken
    if n_bad > 1:
        message += f"{n_bad} of {n_rows + n_broken} rows are bad, the first in {unit}s {', '.join(map(str, first))}. "
    if action == "stop":
        remedy = "the row, or leave it out" if n_bad == 1 else "the rows, or leave them out"
        raise FormatError(f'{message}Repair {remedy} with --bad-rows skip (bad_rows="skip" in Python).')
    if action != "skip":
        raise InputError(f"bad_rows is stop or skip, not {action!r}.")
    logger.warning("%s%s left out.", message, "It was" if n_bad == 1 else "They were")
    return bad


def find_missing(columns: Sequence[pa.ChunkedArray | pa.Array], *, first: int = 0) -> list[Problem]:
    """Return the rows that have no value in one of these columns; the first row is row ``first`` of the file."""
    missing = np.logical_or.reduce([column.is_null().to_numpy(zero_copy_only=False) for column in columns])
    return [Problem("an id or weight is missing", first + np.flatnonzero(missing))]


def find_bad_ids(columns: list[pa.ChunkedArray], kind: IdKind) -> list[Problem]:
    """Return the rows without an id, and those with a word, or an integer beyond 64 bits, where most ids are integers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> find_bad_ids([pa.chunked_array([["7", "n/a", "9"]])], "auto")[1].rows.tolist()
    [1]
    """
    from pyarrow import compute as pc

    if integer_ids(columns, padded=kind == "integer") is not None:
        return []
    missing = [pc.equal(column, "").to_numpy() for column in columns]
    problems = [Problem("an id is missing", np.flatnonzero(np.logical_or.reduce(missing)))]
    if kind == "text":
        return problems
    whole = [pc.match_substring_regex(column, r"^[+-]?[0-9]+$").to_numpy() for column in columns]
    padded = any(pc.any(pc.match_substring_regex(c, r"^([+][0-9]+|-?0[0-9]+|-0)$")).as_py() for c in columns)
    if kind == "auto" and (padded or 2 * np.sum(whole) <= np.sum(~np.array(missing))):
        return problems
    words = [np.flatnonzero(~match & ~empty) for match, empty in zip(whole, missing, strict=True)]
    large = []
    for column, match in zip(columns, whole, strict=True):
        long = np.flatnonzero(pc.greater_equal(pc.binary_length(column), 19).to_numpy() & match)
        texts = column.take(long).to_pylist()
        beyond = [len(text) > 20 or not -(2**63) <= int(text) < 2**63 for text in texts]
        large.append(long[np.array(beyond, dtype=bool)])
    text = 'is not an integer, as others are; graphquilt ingest --ids text (ids="text" in Python) reads all as text'
    for rows, words_of in ((words, text), (large, text.replace("not an integer, as others are", "beyond 64 bits"))):
        column, first = min(
            ((k, each[0]) for k, each in enumerate(rows) if len(each)), key=lambda x: x[1], default=(0, -1)
        )
        if first >= 0:
            name = columns[column][int(first)].as_py()[:80]
            problems.append(Problem(f"the id {name!r} {words_of}", np.unique(np.concatenate(rows))))
    return problems


def parse_ids(columns: list[pa.ChunkedArray], kind: IdKind, where: Callable[[int], str]) -> list[AnyArray]:
    """Return columns of text as ids, of one type that all rows decide.

    Ids are integers if every one is an integer of at most 64 bits without leading zeros or a plus sign; 007, and with
    it every other id, is text.

    Examples
    --------
    >>> import pyarrow as pa
    >>> columns = [pa.chunked_array([["7", "8"]]), pa.chunked_array([["8", "007"]])]
    >>> [ids.tolist() for ids in parse_ids(columns, "auto", str)]
    [['7', '8'], ['8', '007']]
    """
    integers = None if kind == "text" else integer_ids(columns, padded=kind == "integer")
    return [text_ids(where, column) for column in columns] if integers is None else integers


def integer_ids(columns: list[pa.ChunkedArray], *, padded: bool = False) -> list[AnyArray] | None:
    """Return columns of text as integers, or None if one is not an integer as it is usually written, or ``padded``."""
    import pyarrow as pa
    from pyarrow import compute as pc

    try:
        if padded:
            columns = [pc.replace_substring_regex(column, r"^\+", "") for column in columns]
        integers = [column.cast(pa.int64()) for column in columns]
    except pa.ArrowInvalid:
        return None
    pairs = zip(integers, columns, strict=True)
    if not padded and not all(pc.all(pc.equal(numbers.cast(pa.string()), text)).as_py() for numbers, text in pairs):
        return None
    return [column.to_numpy() for column in integers]


def parse_weights(column: pa.ChunkedArray) -> tuple[Float64Array, list[Problem]]:
    """Return a column of text or numbers as weights, and the rows whose weight is not a number, or negative."""
    import pyarrow as pa

    unreadable = np.zeros(len(column), dtype=bool)
    try:
        weights: Float64Array = column.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        cells = column.to_pylist()
        unreadable = np.array([not is_number(cell) for cell in cells])
        weights = np.array([np.nan if bad else float(cell) for cell, bad in zip(cells, unreadable, strict=True)])
    present = ~unreadable & ~column.is_null().to_numpy()
    problems = []
    for bad, words in (
        (unreadable, "is not a number"),
        (present & ~(np.isfinite(weights) & (weights >= 0)), "must be finite and not negative"),
    ):
        if bad.any():
            rows = np.flatnonzero(bad)
            value = str(column[int(rows[0])].as_py())[:80]
            problems.append(Problem(f"the weight {value!r} {words} (two --columns leave weights out)", rows))
    return weights, problems


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
