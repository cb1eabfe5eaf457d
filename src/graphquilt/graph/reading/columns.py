"""Which columns of a table of edges are source, target and weight."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from os import PathLike

from graphquilt.errors import FormatError, InputError, counted

__all__ = ["SOURCES", "TARGETS", "Place", "chosen_columns", "column_places"]

Place = str | PathLike[str]  # of a table: a file, or words for one in memory

# Names of columns, in small letters.
SOURCES = ("source", "src", "from", "node1", "node_1", "head", "source_id", "from_id", "id1", "subject", "start_id")
TARGETS = ("target", "dst", "to", "node2", "node_2", "tail", "target_id", "to_id", "id2", "object", "end_id")
WEIGHTS = ("weight", "weights", "edge_weight")

logger = logging.getLogger(__name__)


def chosen_columns(
    where: Place,
    columns: tuple[int | str, ...] | None,
    names: Sequence[str] | None,
    width: int,
    is_number: Callable[[int], bool],
) -> tuple[int, ...]:
    """Return the positions of source, target and perhaps weight in a table of ``width`` columns.

    Where ``columns`` does not say, the ends are the columns whose names say so, or the first two; and the weights are
    a column of numbers whose name says so. The log warns of such a column with other
    values than numbers, and of numbers in a third column that are not used.

    Examples
    --------
    >>> chosen_columns("a table", None, ["id", "from", "to", "Weight"], 4, lambda k: k in (0, 3))
    (1, 2, 3)
    """
    if columns is not None:
        return column_places(where, columns, names, width)
    words = [name.strip().lower() for name in names or ()]
    ends = [[k for k, word in enumerate(words) if word in known] for known in (SOURCES, TARGETS)]
    places = (
        (ends[0][0], ends[1][0]) if len(ends[0]) == len(ends[1]) == 1 else column_places(where, (0, 1), None, width)
    )
    named = [k for k, word in enumerate(words) if word in WEIGHTS and k not in places]
    weights = [k for k in named if is_number(k)]
    if weights:
        return (*places, weights[0])
    if named and names:
        logger.warning(
            "%s: the column %r was ignored, because some of its values are not numbers. Repair them to use it as edge "
            "weights.",
            where,
            names[named[0]],
        )
    rest = [k for k in range(width) if k not in places]
    if rest and is_number(rest[0]):
        third = (*places, rest[0])
        shown = [str(k) if names is None or "," in names[k] or names[k].strip().isdigit() else names[k] for k in third]
        what = f"column {rest[0]} (from 0)" if names is None else f"the column {names[rest[0]]!r}"
        logger.warning(
            "%s: %s has numbers, which were ignored. To use them as edge weights: --columns '%s' (in Python "
            "gq.read_edges(..., columns=%s)).",
            where,
            what,
            ",".join(shown),
            third,
        )
    return places


def column_places(
    where: Place, columns: tuple[int | str, ...], names: Sequence[str] | None, width: int
) -> tuple[int, ...]:
    """Return the positions of source, target and perhaps weight, which are given by position or by name."""
    places = tuple(_place(where, column, names, width) for column in columns)
    if len(set(places)) < len(places):
        raise InputError(
            f"{where}: source, target and weight are different columns; {columns} names one of them twice."
        )
    return places


def _place(where: Place, column: int | str, names: Sequence[str] | None, width: int) -> int:
    if isinstance(column, str):
        if names is None or column not in names:
            known = ", ".join(names) if names else f"{counted(width, 'column')} without names"
            raise InputError(f"{where} has no column {column!r}; it has {known}.")
        return list(names).index(column)
    if not 0 <= column < width:
        remedy = " Put a comma, a tab or a blank between source and target." if width == 1 else ""
        raise FormatError(f"{where} has {counted(width, 'column')}; column {column} (from 0) is not there.{remedy}")
    return column
