"""Edges with times: weights that halve with age, and the edges of a period; also plain pairs of ids."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.graph.reading.edge_columns import SOURCES, TARGETS, WEIGHTS, choose_edge_columns
from graphquilt.graph.reading.edges import read_edges
from graphquilt.graph.reading.ids import integer_ids
from graphquilt.graph.reading.node_tables import NodeRows
from graphquilt.graph.reading.sources import is_parquet, open_parquet, read_parquet
from graphquilt.graph.reading.tables import COMMENTS, TextTable, is_number
from graphquilt.graph.structure import Graph

if TYPE_CHECKING:
    import pyarrow as pa

Columns = tuple[int | str, ...] | None
_TIMES = ("time", "timestamp", "date", "datetime", "ts", "when", "t", "unixtime")
_EPOCH = 1e8  # numbers below, before 1973 in seconds, are not taken for times since 1970
_OLDEST = 40.0  # half-lives; older edges weigh as much as these


class Period(NamedTuple):
    """The rows of an edge list to use: from ``since``, and ``before`` a date or number; None has no bound."""

    since: str | None = None
    before: str | None = None


def read_pairs(path: str | PathLike[str], columns: Columns = None) -> tuple[AnyArray, AnyArray]:
    """Return the two columns of ids of a table, in its order; ids are integers if all of them are."""
    source, target = _integers_or_text(_read_columns(Path(path), columns, timed=False)[:2])
    return source, target


def read_recent_edges(
    path: str | PathLike[str],
    *,
    half_life: str,
    columns: Columns = None,
    period: Period = Period(),
    directed: bool = False,
    features: NodeRows | None = None,
    labels: NodeRows | None = None,
) -> Graph:
    r"""Read edges with times as a graph whose weights halve with age; an edge that occurs often has their sum.

    Parameters
    ----------
    path : path
        A table as text or Parquet, one row per event.
    half_life : str
        A number with s, m, h, d or w, such as ``"30d"``; without a unit if the times are plain numbers.
    columns : triple, optional
        Source, target and time, by position or name; by default they are found by name.
    period : Period
        Rows outside are left out. Ages are counted from the last row that is used.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "events.csv"
    >>> _ = file.write_text("from,to,date\na,b,2024-01-01\nb,c,2024-01-31\na,b,2024-01-31\n")
    >>> read_recent_edges(file, half_life="30d").adjacency.toarray()[0].tolist()
    [0.0, 1.5, 0.0]
    """
    import pyarrow as pa

    from graphquilt.times import parse_duration

    source, target, time = _read_columns(Path(path), columns, timed=True)
    plain = re.fullmatch(r"\s*\d+(\.\d+)?\s*", str(half_life)) is not None
    length = float(half_life) if plain else parse_duration(str(half_life))
    if length <= 0:
        raise InputError(f"a half-life must be positive, not {half_life!r}.")
    moments = _parse_times(str(path), time, plain, half_life)
    since, before = _moment(period.since, -np.inf, plain), _moment(period.before, np.inf, plain)
    rows = np.flatnonzero((moments >= since) & (moments < before))
    if len(rows) == 0:
        first, last = (_words(moment, plain) for moment in (moments.min(), moments.max()))
        raise InputError(f"{path} has no edge in that time: its edges are from {first} to {last}. Choose another date.")
    ages = (moments[rows].max() - moments[rows]) / length
    weights = np.exp2(-np.minimum(ages, _OLDEST))
    ends = _integers_or_text([column.take(pa.array(rows)) for column in (source, target)])
    table = pa.table({"source": ends[0], "target": ends[1], "weight": weights})
    return read_edges(table, directed=directed, duplicates="sum", features=features, labels=labels)


def _read_columns(path: Path, columns: Columns, *, timed: bool) -> list[pa.ChunkedArray]:
    """Return the columns of ids and, if they are wanted, of times: the third, or one with its name."""
    table = None if is_parquet(path) else TextTable.open(path, comments=COMMENTS, blanks=True)
    names: list[str] | None = None
    if table is None:
        names = open_parquet(path).schema_arrow.names
    elif any(isinstance(column, str) for column in columns or ()) or table.has_header(SOURCES, TARGETS):
        names = table.rows[0]
    width = len(names or ()) if table is None else table.width
    chosen = (0, 1, 2) if timed and columns is None and names is None and width == 3 else columns
    places = choose_edge_columns(path, chosen, names, width, third=_TIMES if timed else WEIGHTS)
    if timed and len(places) != 3:
        shown = f"{width} columns" if names is None else f"the columns {', '.join(map(repr, names[:20]))}"
        raise InputError(
            f"{path} has {shown}; a half-life takes three, source, target and time, for example --columns "
            f"'{','.join((names or list('012'))[:3])}'."
        )
    if table is None:
        return [read_parquet(path, [(names or [])[place]])[0] for place in places]
    return table.read(places[: 2 + timed], header=names is not None)


def _integers_or_text(columns: list[pa.ChunkedArray]) -> list[AnyArray]:
    """Return ids as integers if all of them are written as integers are, and else as text."""
    import pyarrow as pa

    texts = [column.cast(pa.string()) for column in columns]
    numbers = [values for values in map(integer_ids, texts) if values is not None]
    if len(numbers) == len(columns):
        return [*numbers]
    return [np.asarray(text.to_numpy(zero_copy_only=False), dtype=str) for text in texts]


def _parse_times(where: str, column: pa.ChunkedArray, plain: bool, half_life: str) -> Float64Array:
    """Return the times of all rows, in seconds since 1970, or as they are if the half-life has no unit."""
    import pyarrow as pa

    from graphquilt.times import Clock, read_times

    clock = Clock(per_second=1.0) if plain else Clock()
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    array = array.cast(pa.string()) if pa.types.is_large_string(array.type) else array
    moments, good, clock = read_times(array, clock, label=where, place=lambda row: f"row {row} of {where}")
    if not good.all():
        row = int(np.argmin(good))
        raise FormatError(
            f"{where}, row {row} (from 0): {str(array[row].as_py())[:40]!r} is not a time; {int((~good).sum())} of "
            f"{len(good)} are not. Write dates such as 2024-05-01, or numbers, in all rows."
        )
    texts = pa.types.is_string(array.type)
    dates = pa.types.is_temporal(array.type) or (texts and not is_number(array[0].as_py().strip()))
    if plain and dates:
        raise InputError(f"the times of {where} are dates, and half-life {half_life!r} has no unit: say {half_life}d.")
    if not plain and not dates and len(moments) and float(np.median(moments)) < _EPOCH:
        raise InputError(
            f"the times of {where} are numbers without a unit, from {moments.min():g} to {moments.max():g}. Give the "
            "half-life in the same unit, without a letter, as --half-life 2; or write dates."
        )
    return moments


def _moment(text: str | None, default: float, plain: bool) -> float:
    import pyarrow as pa

    from graphquilt.times import Clock, read_times

    if text is None:
        return default
    if plain != is_number(str(text).strip()):
        raise InputError(
            f"{text!r} is {'a date' if plain else 'a number'}, and the times are {'numbers' if plain else 'dates'}; "
            f"give {'a number' if plain else 'a date such as 2024-05-01'}."
        )
    if plain:
        return float(text)
    moments, good, _ = read_times(pa.array([str(text)]), Clock(), label="date", place=lambda _row: "the date")
    if not good[0]:
        raise InputError(f"{text!r} is not a date; write it as 2024-05-01 or 2024-05-01 12:30.")
    return float(moments[0])


def _words(moment: float, plain: bool) -> str:
    return f"{moment:g}" if plain else str(np.datetime64(int(moment), "s"))
