"""Read vectors with the ids of what they belong to: word2vec text, CSV, Parquet, .npz and .npy files."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.arrays import AnyArray, FloatArray
from graphquilt.errors import FormatError
from graphquilt.files import load_arrays, map_array
from graphquilt.graph.reading.ids import integer_ids, signed, text_ids
from graphquilt.graph.reading.sources import is_parquet, read_parquet
from graphquilt.graph.reading.tables import Place, TextTable, is_number, text_lines

if TYPE_CHECKING:
    import pyarrow as pa

Vectors = tuple[AnyArray, FloatArray]  # ids (k,), whole numbers or text, and coordinates (k, d)
ID_NAMES = ("node_id", "node_ids", "ids", "id", "nodes", "node", "names", "name", "words", "word", "keys", "key")
_INDEX = ("", "unnamed: 0", "__index_level_0__")  # what the index of pandas is called in a file

_log = logging.getLogger(__name__)


def read_vectors(path: Path) -> Vectors:
    r"""Read ids (k,) and coordinates (k, d); the ending of the name tells the kind of file.

    ``.parquet`` has a column of ids (named id, node_id, name, word or key, or the first of whole numbers or text) and
    the coordinates in the other columns of numbers, or in one column of lists. ``.npz`` has a row of ids and a matrix.
    ``.npy`` is a matrix, with the ids beside it in ``NAME.ids.npy``. Anything else is text, ``.gz`` or not, with an id
    and its coordinates on each line: word2vec text, with or without its first line, or columns between commas, tabs,
    semicolons or bars, with or without a header. Ids are integers if all of them are, without leading zeros.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "a.vec"
    >>> _ = file.write_text("2 3\nann 1 2 3\nbob 4 5 6\n")
    >>> ids, X = read_vectors(file)
    >>> ids.tolist(), X.shape
    (['ann', 'bob'], (2, 3))
    """
    try:
        if is_parquet(path):
            return table_vectors(path, read_parquet(path))
        if path.suffix == ".npz":
            return npz_vectors(path, load_arrays(path))
        return _npy_vectors(path) if path.suffix == ".npy" else _text_vectors(path)
    except FileNotFoundError as error:
        raise FormatError(f"{path} does not exist.") from error
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error}.") from error


def check_vectors(where: Place, ids: AnyArray, X: AnyArray) -> Vectors:
    """Return ids and coordinates; refuse ids that occur twice or do not fit them, and what is not finite."""
    if ids.ndim != 1 or ids.dtype.kind not in "iuU" or X.ndim != 2 or X.dtype.kind not in "fiu" or 0 in X.shape:
        raise FormatError(
            f"{where} holds ids of {ids.dtype} {ids.shape} and coordinates of {X.dtype} {X.shape}; expected one "
            "whole number or text and one row of numbers for each node."
        )
    if len(ids) != len(X):
        raise FormatError(f"{where} has {len(ids)} ids and {len(X)} rows of coordinates; each id needs one row.")
    names, counts = np.unique(ids, return_counts=True)
    if len(names) < len(ids):
        twice = names[counts > 1]
        raise FormatError(f"{where}: {len(twice)} ids occur more than once, the first is {twice[0]!s:.80}; keep one.")
    bad = ~np.isfinite(X).all(axis=1)
    if bad.any():
        raise FormatError(
            f"{where}: {int(bad.sum())} of {len(X)} rows of coordinates are not finite, the first is that of "
            f"{ids[bad.argmax()]!s:.80}. Repair or remove those rows."
        )
    return ids, X


def id_position(names: Sequence[str], among: Sequence[int]) -> int | None:
    """Return which of some columns has the ids: one that is named so, or the index of pandas, or else the first."""
    words = [name.strip().lower() for name in names]
    for known in (ID_NAMES, _INDEX):
        if place := [k for k in among if words[k] in known]:
            return place[0]
    return among[0] if among else None


def _npy_vectors(path: Path) -> Vectors:
    X, beside = map_array(path), path.with_suffix(".ids.npy")
    if not beside.exists():
        raise FormatError(
            f"{path} has {len(X) if X.ndim else 0} rows and no ids: {beside} does not exist. Save them there, in the "
            f'order of the rows: np.save("{beside.name}", ids).'
        )
    return check_vectors(path, map_array(beside), X)


def npz_vectors(path: Path, arrays: Mapping[str, AnyArray]) -> Vectors:
    """Return the row of ids and the matrix of an ``.npz`` file."""
    rows = {name: array for name, array in arrays.items() if array.ndim == 1 and array.dtype.kind in "iuUS"}
    matrices = {name: array for name, array in arrays.items() if array.ndim == 2 and array.dtype.kind == "f"}
    names = [name for name in rows if name.lower() in ID_NAMES] or list(rows)
    if len(names) != 1 or len(matrices) != 1:
        content = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items()) or "nothing"
        raise FormatError(f"{path} holds {content[:300]}; expected one row of ids and one matrix of coordinates.")
    ids = rows[names[0]]
    try:
        ids = np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: an id is not text in UTF-8 ({error.reason}). Write the ids as text.") from None
    return check_vectors(path, signed(path, ids), next(iter(matrices.values())))


def table_vectors(where: Place, table: pa.Table) -> Vectors:
    """Return the ids and the numbers in the columns of an Arrow table; other columns are announced and not used."""
    from pyarrow import types

    schema = table.schema
    plain = [kind.value_type if types.is_dictionary(kind) else kind for kind in schema.types]
    texts = [types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) for kind in plain]
    possible = [k for k, kind in enumerate(plain) if types.is_integer(kind) or texts[k]]
    place = id_position(schema.names, possible)
    lists = [k for k, kind in enumerate(schema.types) if _is_vector(kind)]
    numbers = [k for k, t in enumerate(schema.types) if k != place and (types.is_floating(t) or types.is_integer(t))]
    chosen = lists[:1] or numbers
    if place is None or not chosen:
        content = ", ".join(f"{name} {kind}" for name, kind in zip(schema.names, schema.types, strict=True))
        raise FormatError(f"{where} has the columns {content[:300]}; expected one of ids and some of numbers.")
    unused = [repr(schema.names[k]) for k in range(len(schema.names)) if k != place and k not in chosen]
    if unused:
        _log.warning("%s: not used are the columns %s.", where, ", ".join(unused)[:300])
    column, values = table.column(place), [table.column(k) for k in chosen]
    if any(each.null_count for each in (column, *values)):
        raise FormatError(f"{where}: some values are missing. Repair or remove those rows.")
    column.validate(full=True)
    column = column.cast(plain[place])
    X = _lists(where, values[0]) if lists else np.stack([each.to_numpy() for each in values], axis=1)
    return check_vectors(where, text_ids(where, column) if texts[place] else signed(where, column.to_numpy()), X)


def _is_vector(kind: pa.DataType) -> bool:
    from pyarrow import types

    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(listed and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)))


def _lists(where: Place, column: pa.ChunkedArray) -> FloatArray:
    from pyarrow import compute

    lengths = np.unique(compute.list_value_length(column).to_numpy())
    if len(lengths) == 0:
        raise FormatError(f"{where} is empty: it holds no vectors.")
    if len(lengths) > 1:
        raise FormatError(f"{where}: vectors have {lengths.min()} to {lengths.max()} numbers; all must have as many.")
    values = compute.list_flatten(column).to_numpy().astype(np.float64)
    return np.asarray(values.reshape(len(column), int(lengths[0])))


def _text_vectors(path: Path) -> Vectors:
    table = TextTable.open(path, blanks=True)
    if table.delimiter is None:
        return _word2vec(path)
    first = table.rows[0]
    # A vector may be called "word": a header has words where numbers would be, or counts the columns.
    place = id_position(first, range(len(first))) or 0
    rest = [cell for k, cell in enumerate(first) if k != place]
    named = first[place].lower() in (*ID_NAMES, *_INDEX)
    header = (named and rest == [str(k) for k in range(len(rest))]) or not any(map(is_number, rest))
    place = place if header else 0
    others = [k for k in range(table.width) if k != place]
    if not others or (header and len(table.rows) == 1):
        raise FormatError(f"{path} holds {'a header and ' if header else ''}no vectors: {','.join(first)[:80]!r}.")
    names, *columns = table.read([place, *others], header=header, numbers=others)
    return check_vectors(path, _ids(path, names), np.stack([column.to_numpy() for column in columns], axis=1))


def _ids(path: Path, names: pa.ChunkedArray) -> AnyArray:
    integers = integer_ids(names)
    return text_ids(path, names) if integers is None else integers


def _word2vec(path: Path) -> Vectors:
    """Read an id, which may have blanks in it, and numbers on each line, after a line with their counts or a header."""
    import pyarrow as pa

    lines = text_lines(path, comments=())
    first = next(lines)
    cells = first[1].split()
    counted = len(cells) == 2 and all(cell.isascii() and cell.isdigit() for cell in cells)
    if counted and len(cells[1]) > 6:
        raise FormatError(f"{path}, line {first[0]}: {cells[1][:20]} dimensions are more than a line can hold.")
    width = int(cells[1]) if counted else len(cells) - 1
    header = counted or (width > 0 and cells[0].lower() in ID_NAMES and not any(map(is_number, cells[1:])))
    names: list[str] = []
    rows: list[FloatArray] = []
    for number, text in lines if header else chain([first], lines):
        name, *values = text.rstrip().rsplit(" ", width)
        try:
            row = np.array(values, dtype=np.float32)
            if len(values) != width or width == 0 or not np.isfinite(row).all():
                raise ValueError
        except ValueError:
            raise FormatError(
                f"{path}, line {number}: expected an id and {width} numbers: {text[:80]!r}. Repair or remove the line."
            ) from None
        names.append(name.strip().strip('"'))
        rows.append(row)
    if not rows:
        raise FormatError(f"{path} holds a first line and no vectors.")
    return check_vectors(path, _ids(path, pa.chunked_array([names])), np.stack(rows))
