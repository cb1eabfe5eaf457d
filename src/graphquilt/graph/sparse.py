"""Sparse matrices from arrays of files: they are checked before compiled code gets them, because it trusts them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, IntArray
from graphquilt.errors import FormatError

__all__ = ["check_size", "coo_of", "csr_of", "saved_sparse", "sparse_of"]

_ALWAYS = 1 << 20  # rows that a matrix may have however few entries it has
_PER_ENTRY = 1024  # rows beyond that for each entry


def check_size(n_rows: int, n_entries: int, what: str = "rows") -> None:
    """Raise for a number of rows that no entries stand behind, so that a few bytes cannot ask for any amount of memory.

    Examples
    --------
    >>> check_size(10**12, 3)
    Traceback (most recent call last):
    ...
    graphquilt.errors.FormatError: 1000000000000 rows with 3 entries are not plausible; the file may be damaged.
    """
    if n_rows > max(_ALWAYS, _PER_ENTRY * n_entries):
        raise FormatError(f"{n_rows} {what} with {n_entries} entries are not plausible; the file may be damaged.")


def csr_of(data: object, indices: object, indptr: object, shape: object) -> sp.csr_array:
    """Return a CSR matrix after checking that its arrays are one.

    Examples
    --------
    >>> csr_of(np.ones(2), np.array([0, 1]), np.array([0, 1, 2]), (2, 2)).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> csr_of(np.ones(2), np.array([0, 9]), np.array([0, 1, 2]), (2, 2))
    Traceback (most recent call last):
    ...
    graphquilt.errors.FormatError: the columns of a sparse matrix must lie in 0..1; found 0..9.
    """
    n_rows, n_columns = _shape(shape)
    columns, ends, values = _integers(indices, "indices"), _integers(indptr, "indptr"), _numbers(data)
    if len(ends) != n_rows + 1 or ends[0] != 0 or np.any(ends[1:] < ends[:-1]) or ends[-1] > len(columns):
        raise FormatError(
            f"the indptr of a sparse matrix of {n_rows} rows must have {n_rows + 1} entries that ascend from 0 to at "
            f"most {len(columns)}; it has {len(ends)}, {_range(ends)}."
        )
    if len(values) != len(columns):
        raise FormatError(f"a sparse matrix has {len(values)} values and {len(columns)} columns; they must be as many.")
    columns, values = columns[: ends[-1]], values[: ends[-1]]
    _check_range(columns, n_columns, "columns")
    return sp.csr_array((values, columns, ends), shape=(n_rows, n_columns))


def coo_of(data: object, rows: object, columns: object, shape: object) -> sp.coo_array:
    """Return a matrix in coordinates after checking that its arrays are one."""
    n_rows, n_columns = _shape(shape)
    values, i, j = _numbers(data), _integers(rows, "rows"), _integers(columns, "columns")
    if not len(values) == len(i) == len(j):
        raise FormatError(f"a sparse matrix has {len(values)} values, {len(i)} rows and {len(j)} columns.")
    _check_range(i, n_rows, "rows")
    _check_range(j, n_columns, "columns")
    check_size(n_rows, len(values))
    return sp.coo_array((values, (i, j)), shape=(n_rows, n_columns))


def sparse_of(form: str, parts: Mapping[str, object]) -> sp.csr_array:
    """Return the matrix that SciPy keeps as these ``parts`` in one of the forms ``csr``, ``csc`` and ``coo``."""
    if form == "coo" and "coords" in parts:
        coords = parts["coords"]
        if not isinstance(coords, tuple) or len(coords) != 2:
            raise FormatError("a sparse matrix must have two coordinates.")
        parts = {**parts, "row": coords[0], "col": coords[1]}
    wanted = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}.get(form)
    if wanted is None:
        raise FormatError(f"sparse matrices of the form '{form[:20]}' are not read; save it as CSR, with .tocsr().")
    missing = [name for name in ("data", *wanted, "shape") if name not in parts]
    if missing:
        raise FormatError(f"a sparse matrix lacks {', '.join(missing)}.")
    data, first, second, shape = (parts[name] for name in ("data", *wanted, "shape"))
    if form == "csr":
        return csr_of(data, first, second, shape)
    if form == "coo":
        return sp.csr_array(coo_of(data, first, second, shape))
    n_rows, n_columns = _shape(shape)
    transposed = csr_of(data, first, second, (n_columns, n_rows))
    check_size(n_rows, transposed.nnz)
    return sp.csr_array(transposed.T)


def saved_sparse(arrays: Mapping[str, AnyArray]) -> sp.csr_array:
    """Return the matrix that ``scipy.sparse.save_npz`` wrote as these arrays."""
    form = arrays.get("format")
    if form is None or form.shape != () or form.dtype.kind not in "SU":
        raise FormatError(f"it holds {', '.join(arrays)}; a sparse matrix also has its format. Write it with save_npz.")
    text = form.item()
    return sparse_of(text if isinstance(text, str) else text.decode("latin1"), arrays)


def _shape(shape: object) -> tuple[int, int]:
    values = shape.tolist() if isinstance(shape, np.ndarray) and shape.ndim == 1 and shape.size == 2 else shape
    if not isinstance(values, tuple | list) or len(values) != 2:
        raise FormatError("the shape of a sparse matrix must be two numbers.")
    for n in values:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 0 <= n < 1 << 62:
            raise FormatError(f"the shape of a sparse matrix must be two whole numbers of at least 0, not {values}.")
    return int(values[0]), int(values[1])


def _integers(values: object, name: str) -> IntArray:
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in "iu":
        raise FormatError(f"the {name} of a sparse matrix must be a row of integers, not {_kind(values)}.")
    if values.dtype.kind == "u" and values.size and values.max() > np.iinfo(np.int64).max:
        raise FormatError(f"the {name} of a sparse matrix must be below 2^63; found {values.max()}.")
    return values if values.dtype in (np.int32, np.int64) else values.astype(np.int64)


def _numbers(values: object) -> AnyArray:
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in "biuf":
        raise FormatError(f"the values of a sparse matrix must be a row of numbers, not {_kind(values)}.")
    half = values.dtype.itemsize == 2 and values.dtype.kind == "f"  # which SciPy cannot multiply
    return values.astype(np.float32 if half else values.dtype.newbyteorder("="), copy=False)


def _kind(values: object) -> str:
    return f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__


def _check_range(values: IntArray, n: int, name: str) -> None:
    if values.size and (values.min() < 0 or values.max() >= n):
        raise FormatError(f"the {name} of a sparse matrix must lie in 0..{n - 1}; found {_range(values)}.")


def _range(values: IntArray) -> str:
    return f"{values.min()}..{values.max()}" if values.size else "none"
