"""Checks of the arrays of a graph, and of sparse matrices from files before compiled code trusts them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, FloatArray, Int64Array, IntArray, refuse_masked
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import kernels

_PIECE = 1 << 22  # entries that are checked at once
_ALWAYS = 1 << 20  # rows that a matrix may have however few entries it has
_PER_ENTRY = 1024  # rows beyond that for each entry


def index_type(n_nodes: int) -> type[np.int32] | type[np.int64]:
    """Return the smaller of the types of integers that node ids below ``n_nodes`` fit in."""
    return np.int32 if n_nodes <= np.iinfo(np.int32).max else np.int64


def check_weights(weights: FloatArray, *, unit: str = "entry", first: int = 0) -> None:
    """Raise unless all weights are finite and not negative; ``unit`` and ``first`` say how to count them."""
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        k = int(bad.argmax())
        raise InputError(
            f"edge weights must be finite and not negative; {int(bad.sum())} of {len(weights)} are not, the first is "
            f"{weights[k]} ({unit} {first + k}). Drop or repair those edges."
        )


def check_rows(indptr: IntArray, n_entries: int) -> None:
    """Raise unless ``indptr`` goes from 0 to the number of entries and never decreases; it is read in pieces."""
    n = len(indptr) - 1
    if n < 0 or indptr[0] != 0 or indptr[-1] != n_entries:
        ends = f" and ends at {indptr[-1]}" if n >= 0 else ""
        raise InputError(
            f"indptr must start at 0 and end at the number of indices, {n_entries}; it has {len(indptr)} entries{ends}."
        )
    for start in range(0, n, _PIECE):
        part = np.asarray(indptr[start : start + _PIECE + 1])
        falls = part[1:] < part[:-1]
        if falls.any():
            k = int(falls.argmax())
            raise InputError(f"indptr must not decrease; it does after row {start + k}: {part[k]}, {part[k + 1]}.")


class ColumnCheck:
    """Raise unless columns are in range and, if ``ascending``, sorted and unique in each row.

    It is called with one piece of the columns after the other and needs little memory. ``indptr`` must have
    passed :func:`check_rows`.
    """

    def __init__(self, indptr: IntArray, n_columns: int, *, ascending: bool = True) -> None:
        self.indptr, self.n_columns, self.ascending = indptr, n_columns, ascending
        self.place, self.last = 0, -1

    def __call__(self, part: IntArray) -> None:
        """Check the next piece."""
        if len(part) == 0:
            return
        if part.min() < 0 or part.max() >= self.n_columns:
            raise InputError(f"columns must lie in 0..{self.n_columns - 1}; found {part.min()}..{part.max()}.")
        if self.ascending:
            self._check_order(part)
        self.place += len(part)
        self.last = int(part[-1])

    def _check_order(self, part: IntArray) -> None:
        begin, end = self.place, self.place + len(part)
        rises = np.empty(len(part), dtype=bool)
        rises[0] = int(part[0]) > self.last
        np.greater(part[1:], part[:-1], out=rises[1:])
        first, after = (int(row) for row in np.searchsorted(self.indptr, [begin, end]))
        for row in range(first, after, _PIECE):  # a row may begin with any column
            rises[np.asarray(self.indptr[row : min(row + _PIECE, after)]) - begin] = True
        if not rises.all():
            k = int(rises.argmin())
            row = int(np.searchsorted(self.indptr, begin + k, side="right")) - 1
            raise InputError(
                f"the columns of each row must ascend; row {row} has {part[k - 1] if k else self.last}, {part[k]}. "
                "Graph(A) sorts a SciPy matrix."
            )


def check_csr(indptr: IntArray, indices: IntArray) -> None:
    """Raise unless rows are in order, and columns in range, sorted and unique in each row."""
    check_rows(indptr, len(indices))
    check = ColumnCheck(indptr, len(indptr) - 1)
    for start in range(0, len(indices), _PIECE):
        check(np.asarray(indices[start : start + _PIECE]))


def check_labels(labels: npt.ArrayLike, n_nodes: int) -> Int64Array:
    """Return ``labels`` as 64-bit integers after checking that they are one cluster per node, 0..p-1 without gaps."""
    return _cluster_labels(labels, n_nodes)[0].astype(np.int64)


def short_labels(labels: npt.ArrayLike, n_nodes: int) -> IntArray:
    """Check ``labels`` as :func:`check_labels` does, and return them in the shortest type that loops are compiled for.

    Loops over all edges look up the label of every neighbour, and are faster if labels take little memory.
    """
    values, p = _cluster_labels(labels, n_nodes)
    return values.astype(np.uint16 if p <= 1 << 16 else index_type(p))


def _cluster_labels(labels: npt.ArrayLike, n_nodes: int) -> tuple[IntArray, int]:
    """Return labels as an array, and how many clusters there are, after checking them."""
    refuse_masked(cluster_labels=labels)
    values = np.asarray(labels)
    if values.shape != (n_nodes,):
        raise InputError(f"the graph has {n_nodes} nodes and the cluster labels have shape {values.shape}.")
    if values.dtype.kind not in "iu":
        raise InputError(f"cluster labels must be integers, not {values.dtype}.")
    if n_nodes == 0:
        raise InputError("the graph has no nodes; there is nothing to partition.")
    if values.min() < 0:
        raise InputError(f"cluster labels must not be negative; node {int(values.argmin())} has {int(values.min())}.")
    p = int(values.max()) + 1
    remedy = "Number the clusters without gaps: np.unique(labels, return_inverse=True)[1]."
    if p > n_nodes:
        raise InputError(f"some of the clusters 0..{p - 1} are empty, as there are only {n_nodes} nodes. {remedy}")
    empty = np.flatnonzero(np.bincount(values, minlength=p) == 0)
    if len(empty):
        raise InputError(f"{len(empty)} of the clusters 0..{p - 1} have no nodes, the first is {empty[0]}. {remedy}")
    return values, p


def group(labels: IntArray) -> tuple[IntArray, Int64Array]:
    """Return the nodes in the order of their clusters, and where each cluster starts: (n,) and (p + 1,)."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(labels))]).astype(np.int64)
    members = np.empty(len(labels), dtype=index_type(len(labels)))
    kernels.group(labels, starts[:-1].copy(), members)
    return members, starts


def check_size(n_rows: int, n_entries: int, what: str = "rows") -> None:
    """Raise if there are far more rows than entries: a few bytes must not ask for any amount of memory."""
    if n_rows > max(_ALWAYS, _PER_ENTRY * n_entries):
        raise FormatError(f"{n_rows} {what} with {n_entries} entries are not plausible; the file may be damaged.")


def csr_of(data: object, indices: object, indptr: object, shape: object) -> sp.csr_array:
    """Return a CSR matrix after checking that its arrays are one."""
    (n_rows, n_columns), values = _shape(shape), _row(data, "values", "biuf")
    columns, ends = _row(indices, "columns", "iu"), _row(indptr, "indptr", "iu")
    if len(ends) != n_rows + 1 or ends[0] != 0 or np.any(ends[1:] < ends[:-1]) or ends[-1] > len(columns):
        raise FormatError(
            f"the indptr of a sparse matrix of {n_rows} rows must have {n_rows + 1} entries that ascend from 0 to at "
            f"most {len(columns)}; it has {len(ends)}, up to {ends.max(initial=0)}."
        )
    columns, values = columns[: ends[-1]], values[: ends[-1]]
    _check_entries(values, columns=(columns, n_columns))
    return sp.csr_array((values, columns, ends), shape=(n_rows, n_columns))


def sparse_of(form: str, parts: Mapping[str, object]) -> sp.csr_array:
    """Return the matrix that SciPy keeps as these ``parts`` in one of the forms ``csr``, ``csc`` and ``coo``."""
    if form == "coo" and isinstance(coords := parts.get("coords"), tuple) and len(coords) == 2:
        parts = {**parts, "row": coords[0], "col": coords[1]}
    needed = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}.get(form)
    if needed is None:
        raise FormatError(f"sparse matrices of the form '{form[:20]}' are not read; save it as CSR, with .tocsr().")
    missing = [name for name in ("data", *needed, "shape") if name not in parts]
    if missing:
        raise FormatError(f"a sparse matrix lacks {', '.join(missing)}.")
    data, first, second, shape = (parts[name] for name in ("data", *needed, "shape"))
    if form == "csr":
        return csr_of(data, first, second, shape)
    n_rows, n_columns = _shape(shape)
    if form == "csc":
        transposed = csr_of(data, first, second, (n_columns, n_rows))
        check_size(n_rows, transposed.nnz)
        return sp.csr_array(transposed.T)
    values, i, j = _row(data, "values", "biuf"), _row(first, "rows", "iu"), _row(second, "columns", "iu")
    _check_entries(values, rows=(i, n_rows), columns=(j, n_columns))
    check_size(n_rows, len(values))
    return sp.csr_array(sp.coo_array((values, (i, j)), shape=(n_rows, n_columns)))


def saved_sparse(arrays: Mapping[str, AnyArray]) -> sp.csr_array:
    """Return the matrix that ``scipy.sparse.save_npz`` wrote as these arrays."""
    form = arrays.get("format")
    if form is None or form.shape != () or form.dtype.kind not in "SU":
        raise FormatError(f"it holds {', '.join(arrays)}; a sparse matrix also has its format. Write it with save_npz.")
    text = form.item()
    return sparse_of(text if isinstance(text, str) else text.decode("latin1"), arrays)


def _shape(shape: object) -> tuple[int, int]:
    values = shape.tolist() if isinstance(shape, np.ndarray) and shape.ndim == 1 else shape
    if not isinstance(values, tuple | list) or len(values) != 2 or not all(map(_is_length, values)):
        raise FormatError(f"the shape of a sparse matrix must be two whole numbers of at least 0, not {values!r:.80}.")
    return int(values[0]), int(values[1])


def _is_length(n: object) -> bool:
    return isinstance(n, int | np.integer) and not isinstance(n, bool) and 0 <= int(n) < 1 << 62


def _row(values: object, name: str, kinds: str) -> AnyArray:
    """Return a row of numbers in a type that SciPy can work with; integers in one of 32 or 64 bits with a sign."""
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in kinds:
        kind = f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
        raise FormatError(f"the {name} of a sparse matrix must be a row of numbers, not {kind}.")
    if kinds == "iu":  # beyond 63 bits they become negative, which is refused
        return values if values.dtype in (np.int32, np.int64) else values.astype(np.int64)
    return values.astype(np.float32 if values.dtype.str[1:] == "f2" else values.dtype.newbyteorder("="), copy=False)


def _check_entries(values: AnyArray, **places: tuple[IntArray, int]) -> None:
    """Raise unless each value has a place within the shape along every axis."""
    for name, (indices, n) in places.items():
        if len(indices) != len(values):
            raise FormatError(f"a sparse matrix has {len(values)} values and {len(indices)} {name}.")
        if len(indices) and (indices.min() < 0 or indices.max() >= n):
            found = f"{indices.min()}..{indices.max()}"
            raise FormatError(f"the {name} of a sparse matrix must lie in 0..{n - 1}; found {found}.")
