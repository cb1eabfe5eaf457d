"""OverlapStatistics, all that alignment needs of an overlap, as a few numbers for each pair of patches; measuring it.

A lazy sequence that opens a file when it is indexed is as good as a list: see patch_index.py.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.kernels import LARGEST, measure_pairs
from graphquilt.alignment.patch_index import OpenPatches, PatchIndex, PatchLike, coordinates, index_patches
from graphquilt.arrays import AnyArray, BoolArray, Float64Array, FloatArray, Int64Array, IntArray, pieces, refuse_masked
from graphquilt.errors import FormatError, InputError, OverlapError
from graphquilt.files import array_checksum, load_arrays, save_arrays
from graphquilt.files.array_files import temporary_array
from graphquilt.kernels import one_blas_thread, read_only, thread_count
from graphquilt.patches.graph import check_overlap
from graphquilt.progress import ProgressCallback, report

Value = TypeVar("Value")
OpenPatch: TypeAlias = tuple[IntArray, FloatArray, Float64Array, float]  # ids, coordinates, weights, magnitude
Measured: TypeAlias = tuple[Int64Array, Float64Array, Float64Array, Float64Array, FloatArray]

REPORT = 2**24  # entries of d × d matrices after which threads wait for each other and progress is reported
GROUP = 16  # the compiled pass gets this many patches at a time
RECENT = 16  # how many other patches stay as the compiled pass takes them, for the edges that follow
POINT = 1e-12  # points closer together than this share of their size are one point

FORMAT = 1
WHAT, REMEDY = "a set of overlap statistics", "Measure the overlaps again to make one."
SINGLE_ABOVE = 2**27  # products with more entries than this (1 GiB in double precision) are kept in a file
CHUNK = 2**22  # entries of products that are checked at a time
ARRAYS = ("counts", "sizes", "means", "spreads", "products")


@dataclass(frozen=True, eq=False)
class OverlapStatistics:
    """What alignment needs to know of the overlaps of m pairs of patches (a, b); no node ids and no coordinates.

    Let the rows of A and B be the offsets of the shared nodes from their mean in either patch, each times the square
    root of the weight of its node. Everything is checked when it is made: the numbers are finite, and they do not
    contradict each other. Those of several pairs are put together by :meth:`concatenate`.

    Attributes
    ----------
    counts : int array (m,)
        How many nodes the two patches share.
    sizes : float array (m,)
        The total weight of those nodes; their number where nodes have no weights.
    means : float array (m, 2, d)
        The weighted mean of the shared nodes in a and in b.
    spreads : float array (m, 2)
        The norms ``|A|`` and ``|B|``; 0 where all shared nodes lie at one point.
    products : float array (m, d, d)
        ``A.T @ B / (|A| |B|)``, and 0 where a spread is 0. The sum of its singular values is at most 1
        (Cauchy-Schwarz), and is 1 where b is a copy of a that was moved.

    Examples
    --------
    >>> statistics = OverlapStatistics([3], [3.0], [[[0.0], [1.0]]], [[2.0, 4.0]], [[[1.0]]])
    >>> len(statistics), statistics.dim
    (1, 1)
    """

    counts: Int64Array
    sizes: Float64Array
    means: Float64Array
    spreads: Float64Array
    products: FloatArray

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            refuse_masked(**{field.name: value})
            array, single = np.asanyarray(value), field.name == "products"
            object.__setattr__(self, field.name, as_numbers(field.name, array, field.name == "counts", single=single))
        m, d = len(self.counts) if self.counts.ndim else 0, (0, *self.means.shape)[-1]
        expected = {"counts": (m,), "sizes": (m,), "means": (m, 2, d), "spreads": (m, 2), "products": (m, d, d)}
        shapes = {name: getattr(self, name).shape for name in ARRAYS}
        if shapes != expected or d == 0:
            raise InputError(f"the statistics of {m} overlaps in {d} dimensions have shapes {expected}, not {shapes}.")
        self._check_values()
        self._check_products()

    def _check_values(self) -> None:
        for name in ("sizes", "means", "spreads"):
            values = getattr(self, name)
            bad = ~(np.abs(values) <= (LARGEST if name == "means" else np.finfo(np.float64).max))
            _refuse(bad, f"the {name} of an overlap must be finite, and means at most {LARGEST:.2g}")
        _refuse(self.counts < 1, "an overlap has at least one node; leave out pairs of patches that share none")
        _refuse(~(self.sizes > 0), "the size of an overlap, the total weight of its nodes, is positive")
        _refuse(self.spreads < 0, "the spread of an overlap is a norm and not negative")

    def _check_products(self) -> None:
        """Compare the products with the spreads: of three numbers that come from real points none is too large."""
        flat = (self.spreads == 0).any(axis=1)
        contradiction = (
            "the numbers of an overlap contradict each other: the norm of its product must be at most 1, and 0 if a "
            "spread is 0 (Cauchy-Schwarz)"
        )
        for here in pieces(len(self), CHUNK // self.dim**2):
            part = self.products[here].astype(np.float64, copy=False)
            norms = np.sqrt(np.einsum("eij,eij->e", part, part))
            _refuse(~np.isfinite(norms), "the product of an overlap must be finite", here.start)
            _refuse(norms > np.where(flat[here], 0.0, 1 + slack(self.products)), contradiction, here.start)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def dim(self) -> int:
        """Number of dimensions, d."""
        return int(self.means.shape[2])

    @classmethod
    def concatenate(cls, parts: Iterable[OverlapStatistics]) -> OverlapStatistics:
        """Return the overlaps of all ``parts``, one after the other."""
        pieces = list(parts)
        if not pieces:
            raise InputError("there are no overlaps to put together; give the statistics of at least one pair.")
        dims = sorted({piece.dim for piece in pieces})
        if len(dims) > 1:
            raise InputError(f"the statistics have {dims} dimensions; embed all patches in the same dimension.")
        products = empty_products(sum(map(len, pieces)), dims[0])
        np.concatenate([piece.products for piece in pieces], out=products, casting="same_kind")
        rest = {name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in ARRAYS[:-1]}
        return cls(**rest, products=products)

    def take(self, rows: npt.ArrayLike) -> OverlapStatistics:
        """Return the overlaps that are named (by number or by a mask (m,)), in that order."""
        return OverlapStatistics(*(getattr(self, name)[np.asarray(rows)] for name in ARRAYS))

    def flipped(self, rows: BoolArray) -> OverlapStatistics:
        """Return the same overlaps with a and b exchanged where the mask ``rows (m,)`` says so."""
        if not rows.any():
            return self
        means, spreads, products = self.means.copy(), self.spreads.copy(), self.products.copy()
        means[rows], spreads[rows] = means[rows, ::-1], spreads[rows, ::-1]
        products[rows] = products[rows].transpose(0, 2, 1)
        return OverlapStatistics(self.counts, self.sizes, means, spreads, products)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the statistics as arrays by name, as a file holds them, with a checksum of all of them."""
        arrays = {"format": np.asarray(FORMAT), **{name: getattr(self, name) for name in ARRAYS}}
        return {**arrays, "checksum": np.asarray(checksum(arrays))}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> OverlapStatistics:
        """Undo ``to_arrays``, or raise FormatError; other arrays are ignored."""
        check_layout(arrays, (*ARRAYS, "checksum"), version=FORMAT, what=WHAT, remedy=REMEDY)
        if np.asarray(arrays["checksum"]).ravel().tolist() != [checksum(arrays)]:
            raise FormatError(f"these overlap statistics were damaged: their checksum is wrong. {REMEDY}")
        try:
            return cls(*(arrays[name] for name in ARRAYS))
        except InputError as error:
            raise FormatError(f"these are not overlap statistics: {error} {REMEDY}") from error

    def save(self, path: str | PathLike[str]) -> None:
        """Write the statistics to ``path`` as a NumPy ``.npz`` archive, complete or not at all."""
        save_arrays(Path(path), self.to_arrays())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> OverlapStatistics:
        """Read what ``save`` wrote."""
        return load_value(path, cls.from_arrays, what=WHAT, remedy=REMEDY)

    def __repr__(self) -> str:
        return f"OverlapStatistics({len(self)} overlaps, dim={self.dim})"


def empty_products(m: int, dim: int) -> FloatArray:
    """Return an array ``(m, dim, dim)`` for products; very many lie in a temporary file, in single precision."""
    shape = (m, dim, dim)
    return np.empty(shape) if m * dim**2 <= SINGLE_ABOVE else temporary_array(shape, np.float32)


def slack(products: FloatArray) -> float:
    """Return by how much rounding errors may carry a norm of ``products`` above 1."""
    return 1e-3 if products.dtype == np.float32 else 1e-6


def as_numbers(name: str, array: AnyArray, whole: bool, *, single: bool = False) -> AnyArray:
    """Return an array in 64-bit numbers, ``whole`` or floats, or as it is in the ``single`` precision allowed."""
    if array.dtype.kind not in ("iu" if whole else "iuf"):
        raise InputError(f"the {name} of overlaps are {'whole ' if whole else ''}numbers, not {array.dtype}.")
    single = single and array.dtype == np.float32
    return array.astype(np.int64 if whole else np.float32 if single else np.float64, copy=False)


def _refuse(bad: BoolArray, message: str, start: int = 0) -> None:
    """Raise if any of the overlaps ``start, start + 1, ...`` is ``bad (k, ...)``."""
    rows = np.flatnonzero(bad.any(axis=tuple(range(1, bad.ndim))))
    if len(rows):
        raise InputError(f"{message}. This is not so for {len(rows)} overlaps, the first is number {start + rows[0]}.")


def checksum(arrays: Mapping[str, AnyArray]) -> str:
    """Return one checksum of type, shape and values of all arrays."""
    parts = [np.asarray(arrays[name]) for name in ("format", *ARRAYS)]
    text = "\n".join(f"{part.dtype.str} {part.shape} {array_checksum(part)}" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()


def load_value(
    path: str | PathLike[str], from_arrays: Callable[[Mapping[str, AnyArray]], Value], *, what: str, remedy: str
) -> Value:
    """Read a ``.npz`` archive and return ``from_arrays`` of its arrays; errors name the file and ``what`` it is not."""
    try:
        return from_arrays(load_arrays(Path(path)))
    except FileNotFoundError:
        raise
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
    except Exception as error:
        raise FormatError(f"{path} cannot be read as {what}: {error}. {remedy}") from error


def check_layout(arrays: Mapping[str, AnyArray], names: Iterable[str], *, version: int, what: str, remedy: str) -> None:
    """Refuse arrays that lack one of the ``names``, or that were written in another version of the layout."""
    missing = [name for name in ("format", *names) if name not in arrays]
    if missing:
        raise FormatError(f"this is not {what}: it lacks {', '.join(missing)}. {remedy}")
    given = np.asarray(arrays["format"])
    if given.shape or given != version:
        raise FormatError(f"this is {what} of format {given!s:.20}; this version reads {version}. Upgrade graphquilt.")


def overlap_statistics(
    patch_a: PatchLike, patch_b: PatchLike, weights: Sequence[npt.ArrayLike] | None = None
) -> OverlapStatistics:
    """Measure the overlap of two patches: all that alignment needs of it, without node ids and coordinates.

    Parameters
    ----------
    patch_a, patch_b : Patch or (nodes (k,), coordinates (k, d)) pairs
    weights : pair of arrays (k_a,) and (k_b,), optional
        How much each row of either patch is to be trusted; positive. A shared node counts with the product of its two.

    Returns
    -------
    OverlapStatistics
        Of one overlap. :func:`align_statistics` aligns patches from those of several, put together.

    Examples
    --------
    >>> nodes, X = np.arange(4), np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> statistics = overlap_statistics((nodes, X), (nodes + 1, 10 * X))
    >>> int(statistics.counts[0]), statistics.means.ravel().tolist(), statistics.products.ravel().round(9).tolist()
    (3, [2.0, 10.0], [1.0])
    """
    patches = [patch_a, patch_b]
    index = index_patches(patches, weights)
    if not np.isin(index.nodes[0], index.nodes[1]).any():
        raise OverlapError("the two patches share no node, so there is nothing to measure. Leave out this pair.")
    return measure_overlaps(patches, index, np.array([[0, 1]]))


def measure_overlaps(
    patches: Sequence[PatchLike],
    index: PatchIndex,
    edges: Int64Array,
    *,
    least: int = 1,
    progress: ProgressCallback | None = None,
) -> OverlapStatistics:
    """Measure the overlap of the two patches of each of ``edges (m, 2)``; fewer than ``least`` nodes are an error.

    Every overlap is measured by one thread: the result does not depend on their number.
    """
    m, d = len(edges), index.dim
    products = empty_products(m, d)
    measured = np.empty(m, dtype=np.int64), np.ones(m), np.zeros((m, 2, d)), np.zeros((m, 2)), products
    prepared = _Prepared(patches, index)
    # Edges of one patch follow each other, and it is opened only once or a few times.
    order = np.lexsort((edges[:, 0], edges[:, 1]))
    report(progress, "overlaps", 0, m)
    for here in pieces(m, REPORT // d**2):
        _measure_rows(prepared, edges, order[here], measured, least=least)
        report(progress, "overlaps", here.stop, m)
    return OverlapStatistics(*measured)


def _measure_rows(prepared: _Prepared, edges: Int64Array, rows: Int64Array, measured: Measured, *, least: int) -> None:
    """Measure the overlaps of the edges ``rows (r,)`` in groups that need few patches; one thread measures a group."""
    pairs, threads = edges[rows], thread_count()
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[None]] = deque()
        for start, stop, numbers in _groups(pairs):
            group = [prepared[k] for k in numbers]
            group += group[-1:] * (GROUP - len(group))
            ids, X, weights, extents = zip(*group, strict=True)
            slots = np.searchsorted(numbers, pairs[start:stop])
            data = (ids, X, weights)
            measure = partial(measure_pairs, slots, rows[start:stop], data, np.array(extents), POINT, measured)
            if threads == 1:
                measure()
                continue
            waiting.append(pool.submit(measure))
            if len(waiting) > 2 * threads:  # no more patches are open than the threads need
                waiting.popleft().result()
        for future in waiting:
            future.result()
    for e in rows[measured[0][rows] < least][:1].tolist():
        i, j = edges[e].tolist()
        check_overlap(i, j, int(measured[0][e]), least=least, dim=prepared.index.dim)


def _groups(edges: Int64Array) -> Iterator[tuple[int, int, list[int]]]:
    """Yield runs of edges with at most ``GROUP`` patches: where each begins and ends, and its patches in order."""
    start, numbers = 0, set[int]()
    for e, pair in enumerate(edges.tolist()):
        if len(numbers) > GROUP - 2 and not numbers.issuperset(pair) and len(numbers.union(pair)) > GROUP:
            yield start, e, sorted(numbers)
            start, numbers = e, set()
        numbers.update(pair)
    if numbers:
        yield start, len(edges), sorted(numbers)


class _Prepared(dict[int, OpenPatch]):
    """Patches as the compiled pass takes them; the last few stay so, and all that stay open anyway."""

    def __init__(self, patches: Sequence[PatchLike], index: PatchIndex) -> None:
        super().__init__()
        self.patches, self.index = patches, index

    def __missing__(self, k: int) -> OpenPatch:
        index, given = self.index, coordinates(self.patches[k])
        order = index.rows[k]
        X = np.ascontiguousarray(given if order is None else given[order], dtype=index.dtype)
        weights = np.empty(0) if index.weights is None else index.weights[k]
        if len(weights) and order is not None:
            weights = weights[order]
        patches = self.patches
        stays = isinstance(patches, list | tuple) or (isinstance(patches, OpenPatches) and patches.stays(k))
        if not (stays and np.may_share_memory(X, given)):
            while len(self) >= RECENT:
                del self[next(iter(self))]
        self[k] = (read_only(index.nodes[k]), read_only(X), read_only(weights), index.magnitudes[k])
        return self[k]
