"""Alignment: one transform for each patch, as a value, with a statement of how good the fit is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.archives import check_layout, load_value
from graphquilt.alignment.edge_table import EdgeTable
from graphquilt.alignment.extension import place_patch
from graphquilt.alignment.frames import FrameFit
from graphquilt.alignment.overlap import PatchLike
from graphquilt.alignment.verdict import verdict
from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.files import save_arrays
from graphquilt.kernels import one_blas_thread

__all__ = ["Alignment", "with_fixed_frame", "with_worst_fit"]

FORMAT = 1
WHAT, REMEDY = "an alignment", "Align again to make one."
# The names of the arrays in a file, in their order there.
COLUMNS = ("edges", "edge_errors", "edge_weights", "edge_trust", "undetermined")
INTEGERS = ("edges", "undetermined")
FIGURES = ("residual", "next_residual", "drift")
ARRAYS = ("scales", "rotations", "translations", *COLUMNS, "eigenvalues", *FIGURES)


@dataclass(frozen=True, eq=False)
class Alignment:
    """One transform for each patch, and how well they make the patches agree.

    A point x (a row) of patch k belongs at ``scales[k] * x @ rotations[k] + translations[k]``. One similarity of the
    whole is free; it is fixed so that patch 0 is not turned, the translations have mean 0, and the scales that the
    patches had have mean 1.

    Attributes
    ----------
    scales : float array (p,)
    rotations : float array (p, d, d)
    translations : float array (p, d)
    edge_table : EdgeTable
        The m pairs of patches that were compared, in the order given, and what is known of each. Its columns can also
        be read as ``edges``, ``edge_errors``, ``edge_weights``, ``edge_trust`` and ``undetermined``.
    eigenvalues : float array (d + 1,)
        The d leading eigenvalues of the rotation step (all 1 without noise) and an estimate of the next.
    residual : float
        The largest residual norm of the d eigenvectors of the rotation step.
    next_residual : float
        How sure the last eigenvalue is: there is one within this distance.
    drift : float
        How far the rotations, scaled to norm 1, may be from those of a full solve; 0 unless ``extend`` made this.
    robust : bool
        Whether edges that contradict the others were looked for, and doubted.
    frame : FrameFit, optional
        How well the frame suits each patch, where all were embedded in one.
    """

    scales: Float64Array
    rotations: Float64Array
    translations: Float64Array
    edge_table: EdgeTable
    eigenvalues: Float64Array
    residual: float = 0.0
    next_residual: float = 0.0
    drift: float = 0.0
    robust: bool = False
    frame: FrameFit | None = None

    def __post_init__(self) -> None:
        p, d = np.size(self.scales), (0, *np.shape(self.translations))[-1]
        expected = [(p,), (p, d, d), (p, d), (d + 1,)]
        shapes = [np.shape(a) for a in (self.scales, self.rotations, self.translations, self.eigenvalues)]
        if shapes != expected:
            raise InputError(
                f"the scales, rotations, translations and eigenvalues of {p} patches in {d} dimensions have the shapes "
                f"{expected}, not {shapes}."
            )

    @classmethod
    def identity(cls, n_patches: int, dim: int) -> Alignment:
        """Return the alignment that moves nothing: the centroid with it is the paper's "no-trans".

        Examples
        --------
        >>> Alignment.identity(3, 2).apply(1, [[4.0, 5.0]]).tolist()
        [[4.0, 5.0]]
        """
        return cls(
            scales=np.ones(n_patches),
            rotations=np.tile(np.eye(dim), (n_patches, 1, 1)),
            translations=np.zeros((n_patches, dim)),
            edge_table=EdgeTable.empty(),
            eigenvalues=np.r_[np.ones(dim), -1.0],
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
    def distrusted(self) -> Int64Array:
        """The edges (k, 2) that robust alignment doubts, those with the largest errors first."""
        low = np.flatnonzero(self.edge_trust < 1)
        return self.edges[low[np.argsort(-self.edge_errors[low], kind="stable")]]

    def apply(self, k: int, X: npt.ArrayLike) -> Float64Array:
        """Return coordinates ``X (r, d)`` of patch k where they belong, (r, d), in float64."""
        turned = np.asarray(X, dtype=np.float64) @ self.rotations[k]
        return np.asarray(self.scales[k] * turned + self.translations[k])

    def undo(self, k: int, X: npt.ArrayLike) -> Float64Array:
        """Return global coordinates ``X (r, d)`` as patch k has them, (r, d): the inverse of :meth:`apply`.

        Examples
        --------
        >>> Alignment.identity(3, 2).undo(1, [[4.0, 5.0]]).tolist()
        [[4.0, 5.0]]
        """
        moved = (np.asarray(X, dtype=np.float64) - self.translations[k]) / self.scales[k]
        return np.asarray(moved @ self.rotations[k].T)

    def compose(self, following: Alignment) -> Alignment:
        """Return the alignment that does this one and then, patch by patch, the ``following`` one.

        (s1, R1, t1) and then (s2, R2, t2) is (s1 s2, R1 R2, s2 t1 R2 + t2). What is known of the fit stays this one's.
        """
        if (self.n_patches, self.dim) != (following.n_patches, following.dim):
            raise InputError(
                f"alignments of {self.n_patches} patches in {self.dim} dimensions and of {following.n_patches} in "
                f"{following.dim} cannot follow one another; both must be the same."
            )
        scales, rotations = self.scales * following.scales, self.rotations @ following.rotations
        turned = np.einsum("pi,pij->pj", self.translations, following.rotations)
        translations = following.scales[:, None] * turned + following.translations
        return replace(self, scales=scales, rotations=rotations, translations=translations)

    def take(self, patches: npt.ArrayLike) -> Alignment:
        """Return the transforms of the ``patches (k,)`` named, in that order, without their edges."""
        rows = np.asarray(patches, dtype=np.int64)
        scales, rotations, translations = self.scales[rows], self.rotations[rows], self.translations[rows]
        return Alignment(scales, rotations, translations, EdgeTable.empty(), np.r_[np.ones(self.dim), -1.0])

    def worst_edges(self, n: int = 5) -> list[tuple[int, int, float]]:
        """Return the n edges with the largest error after alignment as (patch, patch, error), worst first."""
        worst = np.argsort(-self.edge_errors, kind="stable")[:n]
        pairs, errors = self.edges[worst].tolist(), self.edge_errors[worst].tolist()
        return [(i, j, error) for (i, j), error in zip(pairs, errors, strict=True)]

    def summary(self) -> str:
        """Say in plain words how good the fit is, what is doubtful and what to change."""
        return verdict(self)

    def extend(self, patches: Sequence[PatchLike], new_patch: PatchLike, *, replaces: int | None = None) -> Alignment:
        """Place one more patch, or a new version of one, against the others without solving everything again.

        The p ``patches`` are those of this alignment, in its order, and stay where they are; ``drift`` grows. The new
        patch takes the place of patch ``replaces``, or becomes number p. An OverlapError says that it shares fewer than
        d + 1 nodes with every other.
        """
        return place_patch(patches, new_patch, self, replaces=replaces)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the alignment as flat arrays by name, as a file holds them; ``format`` is the version of the layout.

        Examples
        --------
        >>> Alignment.from_arrays(Alignment.identity(3, 2).to_arrays()).rotations.shape
        (3, 2, 2)
        """
        arrays = {name: np.asarray(getattr(self, name)) for name in ARRAYS}
        frame = {} if self.frame is None else self.frame.to_arrays()
        return {"format": np.asarray(FORMAT), **arrays, "robust": np.asarray(self.robust), **frame}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> Alignment:
        """Return the alignment that ``to_arrays`` gave these arrays for, or raise FormatError; others are ignored."""
        check_layout(arrays, ARRAYS, version=FORMAT, what=WHAT, remedy=REMEDY)
        a = {name: _numbers(name, np.asarray(arrays[name])) for name in ARRAYS}
        try:
            table = EdgeTable(*(a[name] for name in COLUMNS))
            residual, next_residual, drift = (float(a[name]) for name in FIGURES)
            # Files of earlier versions do not say whether the alignment was robust.
            robust = np.asarray(arrays.get("robust", False))
            if robust.shape or robust.dtype.kind != "b":
                raise TypeError(f"robust is true or false, not {robust.dtype} of shape {robust.shape}.")
            motions = a["scales"], a["rotations"], a["translations"]
            frame = FrameFit.from_arrays(arrays, np.size(a["scales"]))
            alignment = cls(*motions, table, a["eigenvalues"], residual, next_residual, drift, bool(robust), frame)
        except (InputError, TypeError) as error:
            raise FormatError(f"this is not {WHAT}: {error} {REMEDY}") from error
        p, pairs = alignment.n_patches, alignment.edges
        if alignment.dim == 0 or (pairs.size and not 0 <= pairs.min() <= pairs.max() < p):
            raise FormatError(
                f"this is not an alignment: of {p} patches in {alignment.dim} dimensions, it has edges between the "
                f"patches {pairs.min(initial=p)} to {pairs.max(initial=0)}. Align again to make one."
            )
        return alignment

    def save(self, path: str | PathLike[str]) -> None:
        """Write the alignment to ``path`` as a NumPy ``.npz`` archive, complete or not at all."""
        save_arrays(Path(path), self.to_arrays())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Alignment:
        """Read what ``save`` wrote."""
        return load_value(path, cls.from_arrays, what=WHAT, remedy=REMEDY)

    def __repr__(self) -> str:
        worst = f", worst edge error {self.edge_errors.max():.3g}" if len(self.edges) else ""
        return f"Alignment({self.n_patches} patches, dim={self.dim}, {len(self.edges)} edges{worst})"


def _numbers(name: str, array: AnyArray) -> AnyArray:
    """Return an array of a file as the numbers that an alignment has under this name."""
    whole = name in INTEGERS
    if array.dtype.kind not in ("iu" if whole else "iuf"):
        raise FormatError(
            f"this is not an alignment: its {name} are {array.dtype} and not {'whole ' if whole else ''}numbers. "
            "Align again to make one."
        )
    return array.astype(np.int64 if whole else np.float64)


def with_worst_fit(alignment: Alignment, parts: Sequence[Alignment]) -> Alignment:
    """Return ``alignment`` with the smallest spectral gap and the largest residual among its ``parts``."""
    loosest, residual = min(parts, key=lambda part: part.spectral_gap), max(part.residual for part in parts)
    eigenvalues, next_residual = loosest.eigenvalues, loosest.next_residual
    return replace(alignment, eigenvalues=eigenvalues, next_residual=next_residual, residual=residual)


def with_fixed_frame(alignment: Alignment) -> Alignment:
    """Turn and shift the whole so that patch 0 is not turned and the translations have mean 0."""
    turn = alignment.rotations[0].T
    with one_blas_thread():
        translations = alignment.translations @ turn
        rotations = alignment.rotations @ turn
    return replace(alignment, rotations=rotations, translations=translations - translations.mean(axis=0))
