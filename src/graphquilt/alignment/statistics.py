"""OverlapStatistics: all that alignment needs of an overlap, as a few numbers for each pair of patches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, BoolArray, Float64Array, FloatArray, Int64Array, refuse_masked
from graphquilt.errors import FormatError, InputError
from graphquilt.files import load_arrays, save_arrays, temporary_array
from graphquilt.files.checksums import array_checksum

Value = TypeVar("Value")

FORMAT = 1
WHAT, REMEDY = "a set of overlap statistics", "Measure the overlaps again to make one."
LARGEST = 2.0**1000  # about 1e301; sums of larger coordinates could exceed what a double holds
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
            object.__setattr__(self, field.name, _numbers(field.name, np.asanyarray(value)))
        m, d = len(self.counts) if self.counts.ndim else 0, (0, *self.means.shape)[-1]
        expected = {"counts": (m,), "sizes": (m,), "means": (m, 2, d), "spreads": (m, 2), "products": (m, d, d)}
        shapes = {name: getattr(self, name).shape for name in ARRAYS}
        if shapes != expected or d == 0:
            raise InputError(
                f"the statistics of {m} overlaps in {d} dimensions have the shapes {expected}, not {shapes}."
            )
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
        rows = max(1, CHUNK // self.dim**2)
        for start in range(0, len(self), rows):
            part = self.products[start : start + rows].astype(np.float64, copy=False)
            norms = np.sqrt(np.einsum("eij,eij->e", part, part))
            most = np.where(flat[start : start + rows], 0.0, 1 + slack(self.products))
            _refuse(~np.isfinite(norms), "the product of an overlap must be finite", start)
            message = (
                "the numbers of an overlap contradict each other: the norm of its product must be at most 1, and 0 if "
                "a spread is 0 (Cauchy-Schwarz)"
            )
            _refuse(norms > most, message, start)

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
    """Return an array ``(m, dim, dim)`` for products; very many lie in a temporary file, in single precision.

    They are written once and read twice, in order; the rotation step makes better use of the memory.
    """
    shape = (m, dim, dim)
    if m * dim**2 <= SINGLE_ABOVE:
        return np.empty(shape)
    return temporary_array(shape, np.float32)


def slack(products: FloatArray) -> float:
    """Return by how much rounding errors may carry a norm of ``products`` above 1."""
    return 1e-3 if products.dtype == np.float32 else 1e-6


def _numbers(name: str, array: AnyArray) -> AnyArray:
    whole = name == "counts"
    if array.dtype.kind not in ("iu" if whole else "iuf"):
        raise InputError(f"the {name} of overlaps are {'whole ' if whole else ''}numbers, not {array.dtype}.")
    single = name == "products" and array.dtype == np.float32
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
        raise FormatError(
            f"this is {what} of format {str(given)[:20]}; this version reads {version}. Upgrade graphquilt."
        )
