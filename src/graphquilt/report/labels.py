"""Labels of nodes from a file: a table of ids and labels, or one label per node."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError, counted
from graphquilt.jobs.nearest import nearest_spellings, spelled_alike
from graphquilt.jobs.source import read_array
from graphquilt.report.colouring import is_number

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Labels", "read_classes", "read_labels"]

_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")  # what Arrow says of a row

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Labels:
    """One label for each node.

    Attributes
    ----------
    name : str
        What the labels are called: the heading of their column, or "label".
    values : array (n,)
        Text, where "" is none, or numbers.
    """

    name: str
    values: AnyArray


def read_classes(path: Path, ids: AnyArray) -> AnyArray:
    """Read the class of each node as a number, -1 for nodes without one; see :func:`read_labels`."""
    labels = read_labels(path, ids).values
    if labels.dtype.kind != "U":
        return labels
    names, classes = np.unique(labels, return_inverse=True)
    return np.asarray(np.where(labels == "", -1, classes - (names[0] == "")))


def read_labels(path: Path, ids: AnyArray) -> Labels:
    """Read one label for each node.

    Parameters
    ----------
    path : path
        A text file (CSV, TSV) or Parquet file with an id and a label in each row, in any order and with or without a
        heading; or with one label per node in the order of the rows; or an array (.npy) of these. Of more than two
        columns the one named ``label`` or ``class`` is taken, or else the second.
    ids : array (n,)
        The ids of the nodes.

    Raises
    ------
    InputError
        There are more or fewer labels than nodes, an id has two, or no label is for an id that is there.
    FormatError
        The file cannot be read.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist; give a file with an id and a label in each row.")
    if path.suffix == ".npy":
        labels = read_array(path, "labels")
        assert labels is not None
        if labels.ndim != 1 or labels.dtype.kind not in "iufUb":
            raise InputError(f"{path} has {labels.dtype} of shape {labels.shape}; labels are one number or word each.")
        _check_length(path, len(labels), len(ids))
        return Labels("label", labels.astype(np.int64) if labels.dtype.kind in "ub" else np.asarray(labels))
    name, columns = _columns(path, ids)
    if len(columns) == 1:
        labels = np.asarray(columns[0].to_numpy(zero_copy_only=False), dtype=str)
        _check_length(path, len(labels), len(ids))
        return Labels(name, labels)
    return Labels(name, _matched(path, columns[0], columns[1], ids))


def _check_length(path: Path, n_labels: int, n_nodes: int) -> None:
    if n_labels != n_nodes:
        raise InputError(
            f"{path} has {n_labels} labels and the job has {n_nodes} nodes; give one label per node in the order of "
            "the rows, or two columns with an id and a label."
        )


def _columns(path: Path, ids: AnyArray) -> tuple[str, list[pa.Array]]:
    """Return the name of the labels, and the ids and labels, or the labels alone, as text."""
    import pyarrow as pa

    try:
        name, table = _parquet(path) if path.suffix == ".parquet" else _text(path, ids)
        columns = [column.combine_chunks().cast(pa.string()) for column in table.columns]
        for column in columns:
            column.validate(full=True)  # text of a damaged file may not be UTF-8
    except (pa.ArrowException, OSError, UnicodeError) as error:
        ragged = _RAGGED.search(str(error))
        if ragged is None:
            raise FormatError(f"{path} cannot be read as labels: {str(error)[:300]}") from error
        row, expected, got = ragged.groups()
        raise FormatError(
            f"{path} has {got} columns in row {row} and {expected} in the first; every row needs as many, an id and a "
            "label. Put text that has the separator in it in quotes."
        ) from error
    if not columns or len(columns[0]) == 0:
        raise FormatError(f"{path} has no labels; it needs an id and a label in each row.")
    return name, [column.fill_null("") for column in columns]


def _parquet(path: Path) -> tuple[str, Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        used = _used(path, names)
        return names[used[-1]] if used else "label", file.read(columns=[names[k] for k in used])


def _text(path: Path, ids: AnyArray) -> tuple[str, Any]:
    import pyarrow as pa
    from pyarrow import csv

    with open(path, encoding="utf-8", errors="replace") as file:
        line = file.readline(1 << 20)
    delimiter = next((mark for mark in ("\t", ",", ";", "|") if mark in line), ",")
    types = {f"f{k}": pa.string() for k in range(line.count(delimiter) + 1)}
    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(autogenerate_column_names=True, use_threads=False),
        parse_options=csv.ParseOptions(delimiter=delimiter),
        convert_options=csv.ConvertOptions(column_types=types),
    )
    first = [str(column[0].as_py()).strip() for column in table.columns]
    heading = len(table) == len(ids) + 1 if len(first) == 1 else _is_heading(first, table, ids)
    used = _used(path, first if heading else [f"column {k + 1}" for k in range(len(first))])
    return first[used[-1]] if heading else "label", table.select(used).slice(int(heading))


def _is_heading(first: list[str], table: Any, ids: AnyArray) -> bool:
    """Return whether the first row names columns: it has no id of the job, no number, and nothing that comes again."""
    import pyarrow.compute as pc

    if len(table) < 2 or any(map(is_number, first)) or bool((np.asarray(ids).astype(str) == first[0]).any()):
        return False
    below = table.slice(1)
    return not any(cell and pc.any(pc.equal(below[k], cell)).as_py() for k, cell in enumerate(first))


def _used(path: Path, names: list[str]) -> list[int]:
    """Return the columns of ids and of labels; where others are not used, say so."""
    if len(names) <= 2:
        return list(range(len(names)))
    plain = [name.strip().casefold() for name in names]
    label = next((plain.index(name, 1) for name in ("label", "class") if name in plain[1:]), 1)
    others = [repr(name[:80]) for k, name in enumerate(names) if k not in (0, label)]
    more = f" and {len(others) - 5} more" if len(others) > 5 else ""
    _log.warning(
        "%s: labels are taken from %r, and %s%s not used; name the column that you want 'label' to take another.",
        path,
        names[label][:80],
        ", ".join(others[:5]),
        more + (" is" if len(others) == 1 else " are"),
    )
    return [0, label]


def _matched(path: Path, named: pa.Array, labels: pa.Array, ids: AnyArray) -> AnyArray:
    """Return the label of each id; labels of other ids are announced and not used."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = np.asarray(ids).astype(str)
    known = pa.array(ids).cast(pa.string())
    places: AnyArray = pc.index_in(named, value_set=known).fill_null(-1).to_numpy(zero_copy_only=False)
    values = labels.to_numpy(zero_copy_only=False)
    unknown = np.flatnonzero(places < 0)
    if len(unknown) == len(places):
        name = named[0].as_py()
        spellings = nearest_spellings(name, texts)
        raise InputError(
            f"none of the {len(places)} ids in {path} is one of the {len(ids)} ids of the job, the first is "
            f"{name[:80]!r}; is the id in the first column? {spellings[0].upper()}{spellings[1:]}"
        )
    places, values = places[places >= 0], values[places >= 0]
    counts = np.bincount(places, minlength=len(ids))
    if counts.max(initial=0) > 1:
        raise InputError(f"{path} has {counts.max()} labels for the id {str(ids[counts.argmax()])[:80]!r}; give one.")
    if len(unknown):
        name = named[int(unknown[0])].as_py()
        alike = spelled_alike(name, texts[counts == 0])  # a node that has its label was not misspelt
        _log.warning(
            "%s has labels for %s that the job does not have, such as %r, and they are not used%s.",
            path,
            counted(len(unknown), "id"),
            name[:80],
            f"; the nearest id without a label is {alike[0]!r}" if alike else "",
        )
    result = np.full(len(ids), "", dtype=object)
    result[places] = values
    return np.asarray(result, dtype=str)
