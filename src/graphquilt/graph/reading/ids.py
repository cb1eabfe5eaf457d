"""Node ids: their type, which all rows decide, and text in which each id is replaced by its place in a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from graphquilt.arrays import AnyArray, BoolArray, Float64Array, Int64Array, pieces
from graphquilt.errors import FormatError
from graphquilt.graph.reading.edge_columns import BadRows, EdgeRows, EdgeTable, IdKind, Problem, RowTally
from graphquilt.graph.reading.tables import Place

if TYPE_CHECKING:
    import pyarrow as pa

_AS_TEXT = 'graphquilt ingest --ids text (ids="text" in Python) reads all as text'
_LEAST_ROWS = 10  # of a file whose first row can be seen to be a header by its words alone
_PIECE = 1 << 16  # ids that are Python objects at one time
_PROBE = 1000  # names by which two lists are compared


class Run(NamedTuple):
    """Rows of an edge list with the places of their ends in ``names``, which has each id once."""

    names: pa.Array
    ends: AnyArray  # int32 (2, m)
    weights: Float64Array | None


def begins_with_names(n_rows: int, counts: AnyArray, ends: Iterable[AnyArray]) -> bool:
    """Return whether the first row names the columns: of all rows, only its ids occur once, by the count of each id."""
    if n_rows < _LEAST_ROWS:
        return False
    alone = 0
    for k, part in enumerate(ends):
        both = (counts[part[0]] == 1) & (counts[part[1]] == 1)
        alone += int(both.sum())
        if (k == 0 and not both[:1].any()) or alone > 1:
            return False
    return alone == 1


def collect_runs(batches: Iterable[EdgeRows], most: float = float("inf")) -> Iterator[Run]:
    """Yield the rows in runs that take about ``most`` bytes, or in one."""
    import pyarrow as pa

    parts: list[tuple[pa.Array, AnyArray, Float64Array | None]] = []
    size = 0
    for source, target, weights, _ in batches:
        if not len(source):
            continue
        coded = pa.chunked_array([source.cast(pa.large_string()), target.cast(pa.large_string())]).dictionary_encode()
        names = coded.chunk(coded.num_chunks - 1).dictionary
        parts.append((names, np.stack([chunk.indices.to_numpy() for chunk in coded.chunks]), weights))
        size += names.nbytes + 8 * len(source) + (0 if weights is None else weights.nbytes)
        if size > most:
            yield _join(parts)
            parts, size = [], 0
    if parts:
        yield _join(parts)


def _join(parts: list[tuple[pa.Array, AnyArray, Float64Array | None]]) -> Run:
    """Return the parts as one run; they are given up one by one."""
    weights = None if parts[0][2] is None else np.concatenate([part[2] for part in parts if part[2] is not None])
    local_ends = [part[1] for part in parts]
    lists = [part[0] for part in parts]
    parts.clear()
    names, places = _unite(lists)
    ends = np.empty((2, sum(local.shape[1] for local in local_ends)), dtype=np.int32)
    done = 0
    local_ends.reverse()
    for place in places:
        local = local_ends.pop()
        ends[:, done : done + local.shape[1]] = place[local]
        done += local.shape[1]
    return Run(names, ends, weights)


def _unite(lists: list[pa.Array]) -> tuple[pa.Array, list[AnyArray]]:
    """Return all names, each once, and for each list the places of its names there; ``lists`` is emptied."""
    import pyarrow as pa
    from pyarrow import compute as pc

    sample = lists[-1].slice(0, _PROBE)
    again = pc.sum(pc.is_in(sample, value_set=lists[0])).as_py() if len(lists) > 1 else 0
    if len(lists) == 1 or 2 * again >= len(sample):
        coded = pa.chunked_array(lists).dictionary_encode()
        lists.clear()
        return coded.chunk(coded.num_chunks - 1).dictionary, [chunk.indices.to_numpy() for chunk in coded.chunks]
    # Where few names come again, a table of hashes takes several times the memory of the names, and they are sorted.
    borders = np.cumsum([len(names) for names in lists])[:-1]
    names = pa.concat_arrays(lists)
    lists.clear()
    order = pc.sort_indices(names)
    names = names.take(order)
    new = np.ones(len(names), dtype=bool)
    new[1:] = pc.not_equal(names.slice(1), names.slice(0, len(names) - 1)).to_numpy(zero_copy_only=False)
    places = np.empty(len(names), dtype=np.int32)
    places[order.to_numpy()] = np.cumsum(new, dtype=np.int32) - 1
    return names if new.all() else names.filter(pa.array(new)), np.split(places, borders)


class Census:
    """What the ids of a table look like, counted run by run; together they decide whether ids are integers or text."""

    def __init__(self, kind: IdKind) -> None:
        self.kind = kind
        self._cells = self._whole = 0
        self._padded = self._others = False

    def count(self, run: Run) -> None:
        """Add the ids of a run."""
        from pyarrow import compute as pc

        if self.kind == "text" or integer_ids(run.names) is not None:
            self._cells, self._whole = self._cells + run.ends.size, self._whole + run.ends.size
            return
        whole, beyond = _whole_numbers(run.names)
        counts = np.bincount(run.ends.ravel(), minlength=len(run.names))
        self._cells, self._whole = self._cells + run.ends.size, self._whole + int(counts[whole].sum())
        self._padded |= pc.any(pc.match_substring_regex(run.names, r"^([+][0-9]+|-?0[0-9]+|-0)$")).as_py() is True
        self._others |= bool((~whole | beyond).any())

    def type(self) -> Literal["integer", "text", "mixed"]:
        """Return what ids are; "mixed" if they are integers but for some that must be left out.

        They are integers if every one is an integer of at most 64 bits without leading zeros or a plus sign; 007, and
        with it every other id, is text. A word is bad where most ids are integers.
        """
        if self.kind == "text" or (self.kind == "auto" and self._padded):
            return "text"
        if not self._others:
            return "integer"
        return "text" if self.kind == "auto" and 2 * self._whole <= self._cells else "mixed"


def settle_kind(
    table: EdgeTable, tally: RowTally, census: Census, bad_rows: BadRows
) -> Literal["integer", "text", "mixed"]:
    """Return what the ids of a table are, once all rows are counted; raise if rows are bad, or none can be used."""
    kind = census.type()
    if kind == "mixed":
        _count_others(table, tally)
    tally.close(bad_rows)
    if tally.n_rows == 0:
        raise FormatError(f"{table.where} is empty: it holds no edges.")
    if tally.n_bad == tally.n_rows:
        raise FormatError(f"{table.where} holds no edges: none of its {tally.n_rows} rows can be used.")
    return kind


def _whole_numbers(names: pa.Array) -> tuple[BoolArray, BoolArray]:
    """Return which names are whole numbers, and which of these are beyond 64 bits."""
    from pyarrow import compute as pc

    whole = pc.match_substring_regex(names, r"^[+-]?[0-9]+$").to_numpy(zero_copy_only=False)
    beyond = np.zeros(len(names), dtype=bool)
    long = np.flatnonzero(pc.greater_equal(pc.binary_length(names), 19).to_numpy(zero_copy_only=False) & whole)
    texts = names.take(long).to_pylist()
    beyond[long] = [len(text) > 20 or not -(2**63) <= int(text) < 2**63 for text in texts]
    return whole, beyond


def _count_others(table: EdgeTable, tally: RowTally) -> None:
    """Read the table again, and count the rows with an id that is not an integer, or beyond 64 bits, as bad."""
    for rows in table.batches(table.tally()):
        problems = []
        (some, large), (others, larger) = (_whole_numbers(names) for names in (rows.source, rows.target))
        for first, second, words in (
            (~some, ~others, "not an integer, as others are"),
            (large, larger, "beyond 64 bits"),
        ):
            found = np.flatnonzero(first | second)
            for row in found[:1].tolist():
                name = (rows.source if first[row] else rows.target)[row].as_py()[:80]
                problems.append(Problem(words, f"the id {name!r} is {words}; {_AS_TEXT}", found))
        tally.count(0, problems, rows.places)


def sort_names(names: pa.Array, kind: Literal["integer", "text", "mixed"]) -> tuple[Any, Int64Array]:
    """Return the ids in ascending order, each once, and for each name its place there, -1 for those to be left out.

    Text stays in an Arrow array, integers are in one of NumPy.
    """
    import pyarrow as pa
    from pyarrow import compute as pc

    if kind == "text":
        order = pc.sort_indices(names)
        ranks = np.empty(len(names), dtype=np.int64)
        ranks[order.to_numpy()] = np.arange(len(names))
        return names.take(order), ranks
    usable = np.ones(len(names), dtype=bool)
    if kind == "mixed":
        whole, beyond = _whole_numbers(names)
        usable = whole & ~beyond
    values = integer_ids(names.filter(pa.array(usable)), padded=True)
    ids, places = np.unique(values if values is not None else np.zeros(0, dtype=np.int64), return_inverse=True)
    ranks = np.full(len(names), -1, dtype=np.int64)
    ranks[usable] = places
    return ids, ranks


def find_ids(ids: AnyArray, names: AnyArray) -> Int64Array:
    """Return the rows of names (k,) among unique ids, -1 for those that are not there; 7 and "7" are the same."""
    if ids.dtype.kind not in "iu" or names.dtype.kind not in "iu":
        ids, names = ids.astype(str), names.astype(str)
    if not len(ids):
        return np.full(names.shape, -1, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    rows = order[np.minimum(np.searchsorted(ids, names, sorter=order), len(ids) - 1)]
    return np.where(ids[rows] == names, rows, -1).astype(np.int64)


def integer_ids(column: pa.Array | pa.ChunkedArray, *, padded: bool = False) -> Int64Array | None:
    """Return a column of text as integers, or None if one is not an integer as it is usually written, or ``padded``."""
    import pyarrow as pa
    from pyarrow import compute as pc

    try:
        integers = (pc.replace_substring_regex(column, r"^\+", "") if padded else column).cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    if not padded and not pc.all(pc.equal(integers.cast(column.type), column)).as_py():
        return None
    numbers: Int64Array = np.asarray(integers)
    return numbers if len(column) else None


def check_text(
    where: Place, column: pa.Array | pa.ChunkedArray, seen: tuple[int, int, int] = (1, 0, 0)
) -> tuple[int, int, int]:
    """Refuse text ids with a NUL, or that do not fit in an array; return the longest, their number and all letters.

    NumPy gives every text the room of the longest: one long id among many short ones may need a thousand times the
    memory of the file. ``seen`` is what was returned for ids before these.
    """
    from pyarrow import compute as pc

    nul = pc.index(pc.match_substring(column, "\0"), True).as_py()
    if nul >= 0:
        raise FormatError(f"{where}: the id {column[nul].as_py()[:80]!r} has a NUL in it. Remove it.")
    lengths = np.asarray(pc.utf8_length(column))
    longest, n_ids = max(seen[0], int(lengths.max(initial=1))), seen[1] + len(lengths)
    total = seen[2] + int(lengths.sum(dtype=np.int64))
    room = 4 * longest * n_ids
    if room > max(1 << 28, 64 * total):
        name = column[int(lengths.argmax())].as_py()
        raise FormatError(
            f"{where}: an id has {longest} letters ({name[:20]!r}…), and {n_ids} ids with as much room for each take "
            f"{room / 1e9:.1f} GB. Shorten the long ids, or number them."
        )
    return longest, n_ids, total


def text_ids(where: Place, column: pa.ChunkedArray | pa.Array) -> AnyArray:
    """Return a column of text as an array of text."""
    ids = np.empty(len(column), dtype=f"U{check_text(where, column)[0]}")
    for here in pieces(len(column), _PIECE):
        ids[here] = column[here].to_pylist()
    return ids


def signed(path: Place | None, ids: AnyArray) -> AnyArray:
    """Return integer ids in a type that has a sign; ids beyond 63 bits are an error."""
    if ids.dtype != np.uint64:
        return ids
    large = ids > np.uint64(2**63 - 1)
    if large.any():
        row, where = int(large.argmax()), "" if path is None else f"{path}: "
        raise FormatError(f"{where}the id {ids[row]} of edge {row} is beyond 63 bits. Number the nodes first.")
    return ids.astype(np.int64)
