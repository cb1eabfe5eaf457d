"""Colourings of a map: one class or one number for each node, from the graph or from a file of labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.errors import FormatError, InputError, counted
from graphquilt.jobs.nearest import nearest_spellings
from graphquilt.jobs.source import read_array

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Colouring", "by_class", "by_number", "coloured", "read_labels"]

_FEW = 30  # more different numbers than this are a scale and not classes
_MOST = 65_534  # classes that a page can tell apart


@dataclass(frozen=True, eq=False)
class Colouring:
    """One class or one number for each node that is drawn.

    Attributes
    ----------
    name : str
    classes : int array (k,) or None
        A position in ``names``, -1 for nodes without a class.
    names : tuple of str
    numbers : float array (k,) or None
        NaN for nodes without a number.
    absent : str
        What it means that a node has neither.
    """

    name: str
    classes: Int64Array | None = None
    names: tuple[str, ...] = ()
    numbers: Float64Array | None = None
    absent: str = ""

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the scale: the largest hundredth of the numbers does not stretch it."""
        assert self.numbers is not None
        finite = self.numbers[np.isfinite(self.numbers)]
        if len(finite) == 0:
            return 0.0, 1.0
        low, high = float(finite.min()), float(np.quantile(finite, 0.99))
        return low, max(high, low + 1e-12 + 1e-9 * abs(low))

    def for_page(self) -> dict[str, object]:
        """Return the colouring as the page takes it: whole numbers, of which the largest stands for none."""
        result: dict[str, object] = {"name": self.name}
        if self.classes is not None:
            kind = np.uint8 if len(self.names) < 255 else np.uint16
            none = int(np.iinfo(kind).max)
            values = np.where(self.classes < 0, none, self.classes).astype(kind)
            absent = self.absent if bool((self.classes < 0).any()) else ""
            return result | {"kind": "class", "names": self.names, "values": values, "none": none, "absent": absent}
        assert self.numbers is not None
        low, high = self.limits
        known = np.isfinite(self.numbers)
        scaled = np.clip((np.where(known, self.numbers, low) - low) / (high - low), 0, 1)
        values = np.where(known, np.round(scaled * 65_534), 65_535).astype(np.uint16)
        scale = {"low": low, "high": high, "clipped": bool((self.numbers[known] > high).any())}
        absent = "" if known.all() else self.absent
        return result | {"kind": "number", "values": values, "none": 65_535, "absent": absent} | scale


def by_class(name: str, labels: AnyArray, *, absent: str) -> Colouring:
    """Return a colouring by classes; the most frequent come first, unless few whole numbers are ordered by themselves.

    ``labels (k,)`` are text, where "" is no class, or integers, where negative numbers are no class.

    Examples
    --------
    >>> by_class("class", np.array(["b", "a", "b", ""]), absent="none").names
    ('b', 'a')
    """
    values, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    numeric = values.dtype.kind in "iu"
    known = np.flatnonzero(values >= 0 if numeric else values != "")
    few_numbers = len(known) <= _FEW and (numeric or all(_is_number(str(values[k])) for k in known))
    if few_numbers:
        order = known[np.argsort([float(values[k]) for k in known], kind="stable")]
    else:
        order = known[np.argsort(-counts[known], kind="stable")][:_MOST]
    position = np.full(len(values), -1, dtype=np.int64)
    position[order] = np.arange(len(order))
    return Colouring(name, position[places.ravel()], tuple(str(values[k]) for k in order), absent=absent)


def by_number(name: str, numbers: Float64Array, *, absent: str) -> Colouring:
    """Return a colouring by numbers (k,), NaN for none."""
    return Colouring(name, numbers=numbers, absent=absent)


def coloured(name: str, labels: AnyArray, *, absent: str) -> Colouring:
    """Return the colouring that suits ``labels (k,)``: a scale for many different numbers, classes for all else.

    Examples
    --------
    >>> coloured("height", np.array(["1.5", "2.5", ""]), absent="none").numbers
    array([1.5, 2.5, nan])
    """
    if labels.dtype.kind == "f":
        return by_number(name, labels.astype(np.float64), absent=absent)
    distinct = np.unique(labels)
    texts = [str(value) for value in distinct if str(value) != ""]
    if texts and all(map(_is_number, texts)):
        fractions = any(not float(text).is_integer() for text in texts)
        if fractions or len(texts) > _FEW:
            return by_number(name, np.array([float(t) if str(t) else np.nan for t in labels]), absent=absent)
    return by_class(name, labels, absent=absent)


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def read_labels(path: Path, ids: AnyArray) -> AnyArray:
    """Read one label for each node: text, where "" is none, or numbers.

    Parameters
    ----------
    path : path
        A text file (CSV, TSV) or Parquet file with an id and a label in each row, in any order and with or without a
        heading; or with one label per node in the order of the rows; or an array (.npy) of these.
    ids : array (n,)
        The ids of the nodes.

    Raises
    ------
    InputError
        There are more or fewer labels than nodes, or a label is for an id that is not there.
    FormatError
        The file cannot be read.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist; --color takes a file with an id and a label in each row.")
    if path.suffix == ".npy":
        labels = read_array(path, "labels")
        assert labels is not None
        if labels.ndim != 1 or labels.dtype.kind not in "iufUb":
            raise InputError(f"{path} has {labels.dtype} of shape {labels.shape}; labels are one number or word each.")
        _check_length(path, len(labels), len(ids))
        return labels.astype(np.int64) if labels.dtype.kind in "ub" else np.asarray(labels)
    columns = _columns(path)
    if len(columns) == 1:
        labels = np.asarray(columns[0].to_numpy(zero_copy_only=False), dtype=str)
        if path.suffix != ".parquet" and len(labels) == len(ids) + 1:
            labels = labels[1:]  # a heading
        _check_length(path, len(labels), len(ids))
        return labels
    return _matched(path, columns[0], columns[1], ids)


def _check_length(path: Path, n_labels: int, n_nodes: int) -> None:
    if n_labels != n_nodes:
        raise InputError(
            f"{path} has {n_labels} labels and the job has {n_nodes} nodes; give one label per node in the order of "
            "the rows, or two columns with an id and a label."
        )


def _columns(path: Path) -> list[pa.Array]:
    """Return the columns of a file as text."""
    import pyarrow as pa

    try:
        table = _parquet(path) if path.suffix == ".parquet" else _text(path)
        columns = [column.combine_chunks().cast(pa.string()) for column in table.columns[:2]]
        for column in columns:
            column.validate(full=True)  # text of a damaged file may not be UTF-8
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise FormatError(f"{path} cannot be read as labels: {str(error)[:300]}") from error
    if not columns or len(columns[0]) == 0:
        raise FormatError(f"{path} has no labels; it needs an id and a label in each row.")
    return [column.fill_null("") for column in columns]


def _parquet(path: Path) -> Any:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return file.read(columns=file.schema_arrow.names[:2])


def _text(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    with open(path, encoding="utf-8", errors="replace") as file:
        line = file.readline(1 << 20)
    delimiter = next((mark for mark in ("\t", ",", ";", "|") if mark in line), ",")
    types = {f"f{k}": pa.string() for k in range(line.count(delimiter) + 1)}
    return csv.read_csv(
        path,
        read_options=csv.ReadOptions(autogenerate_column_names=True, use_threads=False),
        parse_options=csv.ParseOptions(delimiter=delimiter),
        convert_options=csv.ConvertOptions(column_types=types),
    )


def _matched(path: Path, named: pa.Array, labels: pa.Array, ids: AnyArray) -> AnyArray:
    """Return the label of each id."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.array(ids).cast(pa.string())
    places: AnyArray = pc.index_in(named, value_set=known).fill_null(-1).to_numpy(zero_copy_only=False)
    first = 1 if places[0] < 0 and len(places) > 1 and (places[1:] >= 0).any() else 0  # a heading
    places, values = places[first:], labels.to_numpy(zero_copy_only=False)[first:]
    unknown = np.flatnonzero(places < 0)
    if len(unknown):
        name = named[int(unknown[0]) + first].as_py()
        raise InputError(
            f"{path} has labels for {counted(len(unknown), 'id')} that the job does not have, "
            f"the first is {name[:80]!r} in row "
            f"{unknown[0] + first + 1}; {nearest_spellings(name, np.asarray(ids).astype(str))}"
        )
    counts = np.bincount(places, minlength=len(ids))
    if counts.max(initial=0) > 1:
        raise InputError(f"{path} has {counts.max()} labels for the id {str(ids[counts.argmax()])[:80]!r}; give one.")
    result = np.full(len(ids), "", dtype=object)
    result[places] = values
    return np.asarray(result, dtype=str)
