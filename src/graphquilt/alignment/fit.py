"""Fit: the transforms of all patches, and everything that is known of how well they make the patches agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, BoolArray, Float64Array, Int64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.linalg import Motions

FRAME_COLUMNS = ("shares", "best", "unseen")


@dataclass(frozen=True, eq=False)
class EdgeTable:
    """The m edges of a patch graph and what the alignment knows of each of them."""

    pairs: Int64Array  # (m, 2) patches (i, j), i < j, that were compared
    errors: Float64Array  # (m,) what is left on each overlap after alignment: 0 is a perfect fit, 1 is unrelated
    weights: Float64Array  # (m,) in the rotation step: the size of the overlap, times its trust
    trust: Float64Array  # (m,) 1, or nearly 0 where robust alignment doubts the edge
    undetermined: Int64Array  # (m,) in how many of the d directions the points of the overlap do not extend

    def __post_init__(self) -> None:
        m, shapes = np.size(self.errors), [np.shape(getattr(self, field.name)) for field in fields(self)]
        if shapes != [(m, 2), *[(m,)] * 4]:
            raise InputError(f"an edge table has one pair and one value of each kind per edge, not {shapes}.")

    def __len__(self) -> int:
        return len(self.pairs)

    @classmethod
    def empty(cls) -> EdgeTable:
        """Return a table without edges."""
        pairs, none = np.empty((0, 2), dtype=np.int64), np.empty(0)
        return cls(pairs, none, none, none, pairs[:, 0])

    @classmethod
    def concatenate(cls, tables: Iterable[EdgeTable]) -> EdgeTable:
        """Return the rows of all ``tables``, one table after the other."""
        parts = [cls.empty(), *tables]
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def take(self, rows: npt.ArrayLike) -> EdgeTable:
        """Return the ``rows`` that are named (by number or by a mask (m,)), in that order."""
        return EdgeTable(*(getattr(self, field.name)[np.asarray(rows)] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class FrameFit:
    """How well the directions that all patches share suit each of them.

    Attributes
    ----------
    shares : float array (p,)
        The share of each patch's signal that the directions keep.
    best : float array (p,)
        The share that the same number of directions, chosen for this patch alone, would keep; NaN if it is too small.
    unseen : float array (p,)
        The share of each patch's walk that leaves it for where nothing is known; with a far field, its relative error.
    growth : float
        How much the last round added to the share that the directions keep.
    """

    shares: Float64Array
    best: Float64Array
    unseen: Float64Array
    growth: float = 0.0

    @property
    def suited(self) -> Float64Array:
        """What the directions keep of each patch, as a part of what its own best ones would, (p,); 1 if not known."""
        ratio = self.shares / np.where(self.best > 0, self.best, np.inf)
        return np.where(np.isfinite(self.best), np.minimum(ratio, 1.0), 1.0)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return plain arrays, for a file."""
        table = np.stack([getattr(self, name) for name in FRAME_COLUMNS], axis=1)
        return {"frame": table, "frame_growth": np.asarray(self.growth)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray], n_patches: int) -> FrameFit | None:
        """Undo :meth:`to_arrays`; None if the arrays have no frame."""
        if "frame" not in arrays:
            return None
        table, growth = np.asarray(arrays["frame"]), np.asarray(arrays.get("frame_growth", 0.0))
        shape = (n_patches, len(FRAME_COLUMNS))
        if (table.shape, table.dtype.kind, growth.shape, growth.dtype.kind) != (shape, "f", (), "f"):
            raise FormatError(f"the frame of {n_patches} patches has shape {shape}, not {table.shape}.")
        if not (np.isfinite(table[:, [0, 2]]).all() and np.isfinite(growth)):
            raise FormatError("the frame of the patches has numbers that are not finite.")
        shares, best, unseen = table.T.astype(np.float64)
        return cls(shares, best, unseen, float(growth))


@dataclass(frozen=True, eq=False)
class Fit:
    """The fields of an :class:`Alignment`, which documents them, and the figures that follow from them."""

    scales: Float64Array
    rotations: Float64Array
    translations: Float64Array
    edge_table: EdgeTable
    eigenvalues: Float64Array
    residual: float = 0.0
    next_residual: float = 0.0
    drift: float = 0.0
    uncertainty: float = 0.0
    n_stranded: int = 0
    robust: bool = False
    frame: FrameFit | None = None
    motions: Motions | None = None

    def __post_init__(self) -> None:
        p, d = np.size(self.scales), (0, *np.shape(self.translations))[-1]
        expected = [(p,), (p, d, d), (p, d), (d + 1,)]
        shapes = [np.shape(a) for a in (self.scales, self.rotations, self.translations, self.eigenvalues)]
        if shapes != expected:
            raise InputError(
                f"the scales, rotations, translations and eigenvalues of {p} patches in {d} dimensions have the shapes "
                f"{expected}, not {shapes}."
            )

    @property
    def edges(self) -> Int64Array:
        """The pairs of patches that were compared, (m, 2)."""
        return self.edge_table.pairs

    @property
    def edge_errors(self) -> Float64Array:
        """What is left on each overlap after alignment, (m,): 0 is a perfect fit, 1 is no better than unrelated."""
        return self.edge_table.errors

    @property
    def edge_weights(self) -> Float64Array:
        """The weight of each edge in the rotation step, (m,)."""
        return self.edge_table.weights

    @property
    def edge_trust(self) -> Float64Array:
        """1 for each edge, or nearly 0 where robust alignment doubts it, (m,)."""
        return self.edge_table.trust

    @property
    def undetermined(self) -> Int64Array:
        """How many of the d directions each overlap says nothing about, (m,)."""
        return self.edge_table.undetermined

    @property
    def moves_nothing(self) -> bool:
        """Whether every patch stays where it is, as after a shared start."""
        still = bool(np.all(self.scales == 1)) and not np.any(self.translations)
        return still and bool(np.all(self.rotations == np.eye(self.dim)))

    @property
    def n_patches(self) -> int:
        """Number of patches."""
        return len(self.scales)

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return int(self.translations.shape[1])

    @property
    def spectral_gap(self) -> float:
        """How far the d-th eigenvalue lies above the next: 0 means the rotations are not determined, 2 is the most."""
        return float(self.eigenvalues[-2] - self.eigenvalues[-1])

    @property
    def left_out(self) -> Int64Array:
        """The patches that most distrusted edges have in common, which are not averaged in if others have a node."""
        patches, _ = culprits(self.edges, self.edge_trust < 1)
        return np.array(sorted(k for k, _ in patches), dtype=np.int64)

    @property
    def distrusted(self) -> Int64Array:
        """The edges (k, 2) that robust alignment doubts, those with the largest errors first."""
        low = np.flatnonzero(self.edge_trust < 1)
        return self.edges[low[np.argsort(-self.edge_errors[low], kind="stable")]]


def culprits(edges: Int64Array, bad: BoolArray) -> tuple[list[tuple[int, int]], BoolArray]:
    """Return the patches, each with its number of ``bad (m,)`` edges, that explain most of those, and the bad rest.

    A patch is to blame if at least two of its edges, and more than half of them, are bad and not explained by another
    patch. The patch with the most bad edges is blamed first.

    Examples
    --------
    >>> star = np.array([[0, 3], [1, 3], [2, 3], [0, 1], [1, 2], [0, 2]])
    >>> patches, rest = culprits(star, np.array([True, True, True, False, False, True]))
    >>> patches, rest.tolist()
    ([(3, 3)], [False, False, False, False, False, True])
    """
    rest, patches = np.array(bad), []
    p = int(edges.max(initial=-1)) + 1
    degrees = np.bincount(edges.ravel(), minlength=p)
    while rest.any():
        counts = np.bincount(edges[rest].ravel(), minlength=p)
        blamed = np.where((counts >= 2) & (2 * counts > degrees), counts + counts / (degrees + 1), 0)
        k = int(blamed.argmax())
        if blamed[k] == 0:
            break
        patches.append((k, int((bad & (edges == k).any(axis=1)).sum())))
        rest &= ~(edges == k).any(axis=1)
    return patches, rest
