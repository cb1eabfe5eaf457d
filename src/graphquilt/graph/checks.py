"""Checks of the arrays of a graph, and of sparse matrices from files before compiled code trusts them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, FloatArray, Int64Array, IntArray, pieces, refuse_masked
from graphquilt.errors import FormatError, InputError
from graphquilt.files import is_size
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
    """Raise unless columns, given piece by piece, are in range, sorted and unique in each row.

    ``indptr`` must have passed :func:`check_rows`.
    """

    def __init__(self, indptr: IntArray, n_columns: int) -> None:
        self.indptr, self.n_columns = indptr, n_columns
        self.place, self.last = 0, -1

    def __call__(self, part: IntArray) -> None:
        """Check the next piece."""
        if len(part) == 0:
            return
        if part.min() < 0 or part.max() >= self.n_columns:
            raise InputError(f"columns must lie in 0..{self.n_columns - 1}; found {part.min()}..{part.max()}.")
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
        self.place, self.last = end, int(part[-1])


def check_csr(indptr: IntArray, indices: IntArray) -> None:
    """Raise unless rows are in order, and columns in range, sorted and unique in each row."""
    check_rows(indptr, len(indices))
    check = ColumnCheck(indptr, len(indptr) - 1)
    for here in pieces(len(indices), _PIECE):
        check(np.asarray(indices[here]))


def check_labels(labels: npt.ArrayLike, n_nodes: int) -> Int64Array:
    """Return ``labels`` as 64-bit integers after checking that they are one cluster per node, 0..p-1 without gaps."""
    return _cluster_labels(labels, n_nodes)[0].astype(np.int64)


def short_labels(labels: npt.ArrayLike, n_nodes: int) -> IntArray:
    """Check ``labels`` as :func:`check_labels` does, and return them in the shortest type: loops are faster then."""
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
    return sparse_of("csr", {"data": data, "indices": indices, "indptr": indptr, "shape": shape})


def sparse_of(form: str, parts: Mapping[str, object]) -> sp.csr_array:
    """Return the matrix that SciPy keeps as these ``parts`` in one of the forms ``csr``, ``csc`` and ``coo``."""
    if form == "coo" and isinstance(coords := parts.get("coords"), tuple) and len(coords) == 2:
        parts = {**parts, "row": coords[0], "col": coords[1]}
    if form not in ("csr", "csc", "coo"):
        raise FormatError(f"sparse matrices of the form '{form[:20]}' are not read; save it as CSR, with .tocsr().")
    needed = ("data", *(("row", "col") if form == "coo" else ("indices", "indptr")), "shape")
    if missing := [name for name in needed if name not in parts]:
        raise FormatError(f"a sparse matrix lacks {', '.join(missing)}.")
    values, first, second = (_row(parts[name], name, "biuf" if name == "data" else "iu") for name in needed[:3])
    n_rows, n_columns = _shape(parts["shape"])
    if form != "csr":  # whose indptr has an entry for each row
        check_size(n_rows, len(values))
    try:
        if form == "coo":
            return sp.csr_array(sp.coo_array((values, (first, second)), shape=(n_rows, n_columns)))
        if len(second) == 0 or np.any(second[1:] < second[:-1]):
            raise ValueError("indptr does not ascend")
        kind = sp.csr_array if form == "csr" else sp.csc_array
        matrix = kind((values, first, second), shape=(n_rows, n_columns))
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise FormatError(f"the arrays of a sparse matrix contradict each other: {error}.") from error
    return sp.csr_array(matrix)


def saved_sparse(arrays: Mapping[str, AnyArray]) -> sp.csr_array:
    """Return the matrix that ``scipy.sparse.save_npz`` wrote as these arrays."""
    form = arrays.get("format")
    if form is None or form.shape != () or form.dtype.kind not in "SU":
        raise FormatError(f"it holds {', '.join(arrays)}; a sparse matrix also has its format. Write it with save_npz.")
    text = form.item()
    return sparse_of(text if isinstance(text, str) else text.decode("latin1"), arrays)


def _shape(shape: object) -> tuple[int, int]:
    values = shape.tolist() if isinstance(shape, np.ndarray) and shape.ndim == 1 else shape
    pair = [n.item() if isinstance(n, np.integer) else n for n in values] if isinstance(values, tuple | list) else []
    if len(pair) != 2 or not all(map(is_size, pair)):
        raise FormatError(f"the shape of a sparse matrix must be two whole numbers of at least 0, not {values!r:.80}.")
    return pair[0], pair[1]


def _row(values: object, name: str, kinds: str) -> AnyArray:
    """Return a row of numbers in a type that SciPy can work with; integers in one of 32 or 64 bits with a sign."""
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in kinds:
        kind = f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
        raise FormatError(f"the {name} of a sparse matrix must be a row of numbers, not {kind}.")
    if kinds == "iu":  # beyond 63 bits they become negative, which is refused
        return values if values.dtype in (np.int32, np.int64) else values.astype(np.int64)
    return values.astype(np.float32 if values.dtype.str[1:] == "f2" else values.dtype.newbyteorder("="), copy=False)
