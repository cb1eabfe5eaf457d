"""Features, labels and vectors of nodes: tables with an id column, matched by id, and arrays in the order of the nodes.

The same files are read everywhere: CSV, TSV and other text, Parquet, ``.npz``, ``.npy``; and DataFrames in Python.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, FloatArray, Int64Array, refuse_masked
from graphquilt.errors import FormatError, InputError, counted
from graphquilt.files import load_arrays, map_array
from graphquilt.graph.checks import saved_sparse
from graphquilt.graph.reading import vectors
from graphquilt.graph.reading.sources import ArrowFrame, frame_table, is_frame, is_parquet, read_parquet
from graphquilt.graph.reading.tables import Place, TextTable, is_number
from graphquilt.graph.structure import Features, Graph, SparseMatrix, to_csr

if TYPE_CHECKING:
    import pyarrow as pa

NodeRows: TypeAlias = npt.ArrayLike | SparseMatrix | ArrowFrame | str | PathLike[str]  # features or labels, as given
_TABLES = (
    "Give a table with an id column (CSV, TSV, Parquet; in Python also a DataFrame), or an array (.npy) with one row "
    "per node, in their order"
)
_COMPARED = 20_000  # ids whose spelling is compared with one that is not there

_log = logging.getLogger(__name__)


class NodeVectors(NamedTuple):
    """Features with the ids of the nodes that they belong to."""

    where: Place
    ids: AnyArray
    X: FloatArray


class Labels(NamedTuple):
    """One label for each node."""

    name: str  # the name of their column, or "label"
    values: AnyArray  # (n,) text, "" for nodes without a label, or numbers


@contextmanager
def _reading(where: str, content: str) -> Iterator[None]:
    """Say of what raises inside that it cannot be read as features or labels."""
    import pyarrow as pa

    try:
        yield
    except (FormatError, OSError, UnicodeError, pa.ArrowException) as error:
        missing = isinstance(error, FileNotFoundError)
        problem = "it does not exist" if missing else str(error)[:400].removesuffix(".")
        raise FormatError(f"{where} cannot be read as {content}: {problem}. {_TABLES}.") from error


def open_features(given: NodeRows | None) -> Features | NodeVectors | None:
    """Open features: an array or sparse matrix in the order of the nodes, or anything that ``read_vectors`` reads."""
    if given is None or isinstance(given, sp.sparray | sp.spmatrix):
        return None if given is None else to_csr(given)
    if is_frame(given):
        where = "the table of features"
        return NodeVectors(where, *vectors.table_vectors(where, frame_table(given, index=True)))
    if not isinstance(given, str | PathLike):
        refuse_masked(features=given)
        return np.asanyarray(given)
    path = Path(given)
    with _reading(str(path), "features"):
        path.stat()
        if path.suffix == ".npy" and not path.with_suffix(".ids.npy").exists():
            return map_array(path)
        if path.suffix == ".npz":
            arrays = load_arrays(path)
            return saved_sparse(arrays) if "format" in arrays else NodeVectors(path, *vectors.npz_vectors(path, arrays))
        return NodeVectors(path, *vectors.read_vectors(path))


def open_labels(given: NodeRows | None) -> AnyArray | str | PathLike[str] | ArrowFrame | None:
    """Open labels that are an array; a table with ids is returned as it is, because its header depends on the ids."""
    if given is None or is_frame(given):
        return given  # type: ignore[return-value]
    if not isinstance(given, str | PathLike):
        refuse_masked(labels=given)
        return np.asarray(given)
    path = Path(given)
    with _reading(str(path), "labels"):
        path.stat()
        if path.suffix not in (".npy", ".npz"):
            return path
        labels = map_array(path)
    if labels.ndim != 1 or labels.dtype.kind not in "iufUb":
        raise InputError(f"{path} has {labels.dtype} of shape {labels.shape}; labels are one number or word each.")
    return labels


def add_node_tables(graph: Graph, features: NodeRows | NodeVectors | None, labels: NodeRows | None) -> Graph:
    """Return the graph with features and labels, each in any form that :func:`graphquilt.read_edges` takes."""
    if features is None and labels is None:
        return graph
    rows = features if isinstance(features, NodeVectors) else open_features(features)
    if isinstance(rows, NodeVectors):
        rows = _matched_features(rows, graph.ids)
    elif rows is not None:
        _warn_of_order(graph.node_ids, "features")
    classes = open_labels(labels)
    if isinstance(classes, np.ndarray):
        _warn_of_order(graph.node_ids, "labels")
    elif classes is not None:
        classes = read_classes(classes, graph.ids)
    return graph.with_attributes(features=rows, labels=classes)


def _warn_of_order(ids: AnyArray | None, what: str) -> None:
    """Warn where rows without ids may be in another order than ids that are sorted as text: n10 comes before n9."""
    if ids is None or ids.dtype.kind != "U" or bool((ids[1:] < ids[:-1]).any()):
        return
    if all(_natural(a) <= _natural(b) for a, b in pairwise(ids.tolist())):
        return
    natural = sorted(ids[:_COMPARED].tolist(), key=_natural)
    _log.warning(
        f"the {what} have no ids: row k is taken for the k-th id in text order ({', '.join(ids[:4].tolist())}, …), not "
        f"in natural order ({', '.join(natural[:4])}, …). If the rows are in another order, every node gets the row of "
        "another one. Give a table with an id column instead (CSV, TSV, Parquet or a DataFrame)."
    )


def _natural(text: str) -> list[int | str]:
    return [int(part) if k % 2 else part for k, part in enumerate(re.split(r"([0-9]+)", text))]


def _places(where: Place, named: pa.Array, ids: AnyArray, what: str) -> tuple[Int64Array, Int64Array]:
    """Return the rows of a table that belong to nodes, and which nodes; say how many rows do not."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.array(ids).cast(pa.string())
    matches = pc.index_in(named, value_set=known).fill_null(-1)
    nodes: Int64Array = matches.to_numpy(zero_copy_only=False).astype(np.int64)
    rows = np.flatnonzero(nodes >= 0)
    counts = np.bincount(nodes[rows], minlength=len(ids))
    if counts.max(initial=0) > 1:
        raise InputError(f"{where} has {counts.max()} {what} for the id {str(ids[counts.argmax()])[:80]!r}; give one.")
    if len(rows) == len(nodes):
        return rows, nodes
    name = named[int((nodes < 0).argmax())].as_py()
    without = [str(node) for node in ids[counts == 0][:_COMPARED].tolist()]  # a node with its row was not misspelt
    alike = difflib.get_close_matches(name, without, 1)
    if len(rows) == 0:
        nearest = f"Did you mean {alike[0]!r}?" if alike else f"The first ids are {', '.join(map(repr, without[:3]))}."
        raise InputError(
            f"none of the {len(nodes)} ids in {where} is one of the {len(ids)} ids of the graph, the first is "
            f"{name[:80]!r}; is the id in the first column? {nearest}"
        )
    nearest = f"; the nearest id without is {alike[0]!r}" if alike else ""
    unknown = f"{counted(len(nodes) - len(rows), 'id')} that the graph does not have, such as {name[:80]!r}"
    _log.warning(f"{where} has {what} for {unknown}, and they are not used{nearest}.")
    return rows, nodes[rows]


def _matched_features(features: NodeVectors, ids: AnyArray) -> FloatArray:
    import pyarrow as pa

    where, named, X = features
    rows, nodes = _places(where, pa.array(named).cast(pa.string()), ids, "features")
    if len(rows) < len(ids):
        missing = np.ones(len(ids), dtype=bool)
        missing[nodes] = False
        raise InputError(
            f"{where} has no features for {counted(int(missing.sum()), 'node')} of {len(ids)}, the first is "
            f"{str(ids[missing.argmax()])[:80]!r}. Add their rows, or remove these nodes from the edges."
        )
    order = np.empty(len(ids), dtype=np.int64)
    order[nodes] = rows
    return X[order]


def read_classes(given: NodeRows, ids: AnyArray) -> AnyArray:
    """Return the class of each node as a number, -1 for nodes without one; see :func:`read_labels`.

    Words are numbered in ascending order; an array, and whole numbers in a table, stay as they are.
    """
    labels = read_labels(given, ids).values
    if labels.dtype.kind != "U" or not (isinstance(given, str | PathLike) or is_frame(given)):
        return labels
    names, classes = np.unique(labels, return_inverse=True)
    words = [name for name in names.tolist() if name]
    if all(re.fullmatch(r"-?[0-9]{1,18}", word) for word in words):
        return np.array([int(name or -1) for name in names.tolist()], dtype=np.int64)[classes]
    return np.asarray(np.where(labels == "", -1, classes - (names[0] == "")))


def read_labels(given: NodeRows, ids: AnyArray) -> Labels:
    """Return one label for each of the nodes with these ``ids`` (n,).

    A table has an id and a label in each row, with or without a header; a column or an array has one label per node. Of
    more than two columns those named ``id`` and ``label`` or ``class`` are used, or else the first two.
    """
    import pyarrow as pa

    labels = open_labels(given)
    if isinstance(labels, np.ndarray):
        _check_length("the array of labels" if not isinstance(given, str | PathLike) else str(given), labels, ids)
        return Labels("label", labels.astype(np.int64) if labels.dtype.kind in "ub" else labels)
    where = str(labels) if isinstance(labels, str | PathLike) else "the table of labels"
    with _reading(where, "labels"):
        if is_frame(labels) or is_parquet(Path(where)):
            table = frame_table(labels, index=True) if is_frame(labels) else read_parquet(Path(where))
            used = _label_columns(where, table.schema.names)
            names, columns = [table.schema.names[k] for k in used], [table.column(k) for k in used]
        else:
            names, columns = _text_labels(Path(where), ids)
        columns = [column.combine_chunks().cast(pa.string()).fill_null("") for column in columns]
        for column in columns:
            column.validate(full=True)  # text of a damaged file may not be UTF-8
    if len(columns[0]) == 0:
        raise FormatError(f"{where} has no labels; it needs an id and a label in each row.")
    texts = np.asarray(columns[-1].to_numpy(zero_copy_only=False), dtype=object)
    if len(columns) == 1:
        _check_length(where, texts, ids)
        return Labels(names[-1], np.asarray(texts, dtype=str))
    rows, nodes = _places(where, columns[0], ids, "labels")
    values = np.full(len(ids), "", dtype=object)
    values[nodes] = texts[rows]
    return Labels(names[-1], np.asarray(values, dtype=str))


def _check_length(where: str, labels: AnyArray, ids: AnyArray) -> None:
    if len(labels) != len(ids):
        raise InputError(
            f"{where} has {len(labels)} labels and there are {len(ids)} nodes; give one label per node in the order of "
            "the nodes, or a table with an id and a label in each row."
        )
    _warn_of_order(ids, "labels")


def _text_labels(path: Path, ids: AnyArray) -> tuple[list[str], list[pa.ChunkedArray]]:
    import pyarrow.compute as pc

    table = TextTable.open(path)
    first = table.rows[0]
    if table.width == 1:
        (column,) = table.read([0], header=False)
        header = len(column) == len(ids) + 1
        return [first[0] if header else "label"], [column.slice(int(header))]
    place = vectors.id_position(first, range(table.width)) or 0
    header = (
        first[place].strip().lower() in vectors.ID_NAMES or any(w.lower() in ("label", "class") for w in first)
    ) and not (np.asarray(ids).astype(str) == first[place]).any()
    if not header and len(table.rows) > 1 and not any(map(is_number, first)):
        # Not a row of data: it has no id of the graph, and nothing that comes again.
        again = [pc.sum(pc.equal(c, first[k])).as_py() for k, c in enumerate(table.read([0, 1], header=False))]
        header = again == [1, 1] and not (np.asarray(ids).astype(str) == first[0]).any()
    names = first if header else [f"column {k + 1}" for k in range(table.width)]
    used = _label_columns(str(path), names)
    return [names[k] if header else "label" for k in used], table.read(used, header=header)


def _label_columns(where: str, names: list[str]) -> list[int]:
    """Return the columns of ids and of labels, or of labels alone; where others are not used, say so."""
    if len(names) == 0:
        raise FormatError(f"{where} has no columns; labels need an id and a label in each row.")
    if len(names) == 1:
        return [0]
    words, place = [name.strip().casefold() for name in names], vectors.id_position(names, range(len(names))) or 0
    others = [k for k in range(len(names)) if k != place]
    label = next((k for word in ("label", "class") for k in others if words[k] == word), others[0])
    unused = [repr(names[k][:80]) for k in others if k != label]
    if unused:
        more = (f" and {len(unused) - 5} more" if len(unused) > 5 else "") + (" is" if len(unused) == 1 else " are")
        _log.warning(
            f"{where}: labels are taken from {names[label][:80]!r}, and {', '.join(unused[:5])}{more} not used; name "
            "the column that you want 'label' to take another."
        )
    return [place, label]
