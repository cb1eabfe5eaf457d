"""Read vectors with the ids of what they belong to: word2vec text, CSV, Parquet, .npz and .npy files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.arrays import AnyArray, FloatArray
from graphquilt.errors import FormatError
from graphquilt.files import load_arrays, map_array
from graphquilt.graph.reading.sources import check_room, open_parquet, signed, text_ids
from graphquilt.graph.reading.text_files import text_lines

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Vectors", "check_vectors", "read_vectors"]

Vectors = tuple[AnyArray, FloatArray]  # ids (k,), whole numbers or text, and coordinates (k, d)
_IDS = ("node_id", "node_ids", "ids", "id", "nodes", "names", "name", "words", "word", "keys", "key")
_HEADERS = ("node_id", "id", "name", "word", "node", "key")


def read_vectors(path: Path) -> Vectors:
    r"""Read ids (k,) and coordinates (k, d); the ending of the name tells the kind of file.

    ``.parquet`` has a column of ids (the first of whole numbers or text) and the coordinates in the columns of floats,
    or in one column of lists. ``.npz`` has a row of ids and a matrix. ``.npy`` is a matrix, with the ids beside it in
    ``NAME.ids.npy``. Anything else is text, ``.gz`` or not, with an id and its coordinates on each line: word2vec text,
    with or without its first line, or columns between commas or tabs.

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
        if path.suffix in (".parquet", ".pq"):
            ids, X = _from_parquet(path)
        elif path.suffix == ".npz":
            ids, X = _from_npz(path)
        elif path.suffix == ".npy":
            ids, X = _from_npy(path)
        else:
            ids, X = _from_text(path)
    except FileNotFoundError as error:
        raise FormatError(f"{path} does not exist.") from error
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error}.") from error
    check_vectors(str(path), ids, X)
    return ids, X


def check_vectors(where: str, ids: AnyArray, X: AnyArray) -> None:
    """Refuse ids that occur twice or do not belong to the coordinates, and coordinates that are not finite."""
    if ids.ndim != 1 or ids.dtype.kind not in "iuU" or X.ndim != 2 or X.dtype.kind not in "fiu" or 0 in X.shape:
        raise FormatError(
            f"{where} holds ids of {ids.dtype} {ids.shape} and coordinates of {X.dtype} {X.shape}; wanted are one "
            "whole number or text and one row of numbers for each node."
        )
    if len(ids) != len(X):
        raise FormatError(f"{where} has {len(ids)} ids and {len(X)} rows of coordinates; each id needs one row.")
    names, counts = np.unique(ids, return_counts=True)
    if len(names) < len(ids):
        twice = names[counts > 1]
        raise FormatError(
            f"{where}: {len(twice)} ids occur more than once, the first is {twice[0]!s:.80}; keep one row."
        )
    bad = ~np.isfinite(X).all(axis=1)
    if bad.any():
        raise FormatError(
            f"{where}: {int(bad.sum())} of {len(X)} rows of coordinates are not finite, the first is that of "
            f"{ids[bad.argmax()]!s:.80}. Repair or remove those rows."
        )


def _from_npy(path: Path) -> Vectors:
    X, beside = map_array(path), path.with_suffix(".ids.npy")
    if not beside.exists():
        raise FormatError(
            f"{path} has {len(X) if X.ndim else 0} rows and no ids: {beside} does not exist. Save them there, in the "
            f'order of the rows: np.save("{beside.name}", ids).'
        )
    return map_array(beside), X


def _from_npz(path: Path) -> Vectors:
    arrays = load_arrays(path)
    rows = {name: array for name, array in arrays.items() if array.ndim == 1 and array.dtype.kind in "iuUS"}
    matrices = {name: array for name, array in arrays.items() if array.ndim == 2 and array.dtype.kind == "f"}
    names = [name for name in rows if name.lower() in _IDS] or list(rows)
    if len(names) != 1 or len(matrices) != 1:
        content = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items()) or "nothing"
        raise FormatError(f"{path} holds {content[:300]}; wanted are one row of ids and one matrix of coordinates.")
    ids = rows[names[0]]
    try:
        ids = np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: an id is not text in UTF-8 ({error.reason}). Write the ids as text.") from None
    return signed(path, ids), next(iter(matrices.values()))


def _from_parquet(path: Path) -> Vectors:
    import pyarrow as pa
    from pyarrow import types

    file = open_parquet(path)
    schema = file.schema_arrow

    def is_id(kind: pa.DataType) -> bool:
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return bool(types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind))

    named = [k for k, name in enumerate(schema.names) if name.lower() in _IDS and is_id(schema.types[k])]
    place = next(iter(named or [k for k, kind in enumerate(schema.types) if is_id(kind)]), None)
    lists = [k for k, kind in enumerate(schema.types) if _is_vector(kind)]
    floats = [k for k, kind in enumerate(schema.types) if types.is_floating(kind)]
    if place is None or not (lists or floats):
        content = ", ".join(f"{name} {kind}" for name, kind in zip(schema.names, schema.types, strict=True))
        raise FormatError(f"{path} has the columns {content[:300]}; wanted are one of ids and some of floats.")
    try:
        table = file.read()
        column = table.column(place)
        column = column.combine_chunks().dictionary_decode() if types.is_dictionary(column.type) else column
        chosen = [table.column(k) for k in (lists[:1] or floats)]
        if any(each.null_count for each in (column, *chosen)):
            raise FormatError(f"{path}: some values are missing. Repair or remove those rows.")
        column.validate(full=True)
        X = _lists(path, chosen[0]) if lists else np.stack([each.to_numpy() for each in chosen], axis=1)
        ids = signed(path, column.to_numpy()) if types.is_integer(column.type) else text_ids(path, _chunked(column))
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{path} cannot be read: {error}. Write it again.") from error
    finally:
        file.close()
    return ids, X


def _is_vector(kind: pa.DataType) -> bool:
    from pyarrow import types

    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(listed and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)))


def _chunked(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    import pyarrow as pa

    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _lists(path: Path, column: pa.ChunkedArray) -> FloatArray:
    from pyarrow import compute

    lengths = np.unique(compute.list_value_length(column).to_numpy())
    if len(lengths) == 0:
        raise FormatError(f"{path} is empty: it holds no vectors.")
    if len(lengths) > 1:
        raise FormatError(f"{path}: vectors have {lengths.min()} to {lengths.max()} numbers; all must have as many.")
    values = compute.list_flatten(column).to_numpy().astype(np.float64)
    return np.asarray(values.reshape(len(column), int(lengths[0])))


def _from_text(path: Path) -> Vectors:
    lines = text_lines(path, comments=())
    first = next(lines, None)
    if first is None:
        raise FormatError(f"{path} is empty: it holds no vectors.")
    number, text = first
    mark = next((mark for mark in ("\t", ",") if mark in text), " ")
    cells = _cells(text, mark)
    counted = len(cells) == 2 and all(cell.isascii() and cell.isdigit() for cell in cells)
    if counted and len(cells[1]) > 6:
        raise FormatError(f"{path}, line {number}: {cells[1][:20]} dimensions are more than a line can hold.")
    if counted or cells[0].lower() in _HEADERS:
        width = int(cells[1]) if counted else len(cells) - 1
        first = next(lines, None)
        if first is None:
            raise FormatError(f"{path} holds a first line and no vectors.")
    else:
        width = len(cells) - 1
    names: list[str] = []
    rows: list[FloatArray] = []
    while first is not None:
        number, text = first
        name, *values = _cells(text, mark, width)
        try:
            if len(values) != width or width == 0:
                raise ValueError
            row = np.array(values, dtype=np.float64)
            if not np.isfinite(row).all():
                raise ValueError
        except ValueError:
            raise FormatError(
                f"{path}, line {number}: wanted are an id and {width} numbers: {text[:80]!r}. Repair or remove "
                "the line."
            ) from None
        names.append(name)
        rows.append(row.astype(np.float32) if mark == " " else row)
        first = next(lines, None)
    longest = max(map(len, names))
    check_room(str(path), longest=longest, n_ids=len(names), total=sum(map(len, names)))
    if any("\0" in name for name in names):
        raise FormatError(f"{path}: an id has a NUL in it. Remove it.")
    return np.array(names, dtype=str), np.stack(rows)


def _cells(text: str, mark: str, width: int | None = None) -> list[str]:
    """Return the cells of a line; an id may have the separator in it, if it is known how many numbers follow."""
    text = text.rstrip() if mark == " " else text
    cells = text.split(mark) if width is None else text.rsplit(mark, width)
    return [cell.strip().strip('"') for cell in cells]
