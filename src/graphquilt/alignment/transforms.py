"""Alignment: one transform for each patch, as a value, with a statement of how good the fit is."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.fit import EdgeTable, Fit, FrameFit
from graphquilt.alignment.patch_index import PatchLike, index_patches
from graphquilt.alignment.relative import check_statistics, edge_errors, relative_transforms
from graphquilt.alignment.statistics import as_numbers, check_layout, load_value, measure_overlaps
from graphquilt.alignment.verdict import verdict
from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.drawing import network_svg
from graphquilt.errors import FormatError, InputError, OverlapError
from graphquilt.files import save_arrays
from graphquilt.kernels import one_blas_thread
from graphquilt.linalg import Motions, nearest_orthogonal

FORMAT = 1
WHAT, REMEDY = "an alignment", "Align again to make one."
# The names of the arrays in a file, in their order there.
COLUMNS = ("edges", "edge_errors", "edge_weights", "edge_trust", "undetermined")
INTEGERS = ("edges", "undetermined")
FIGURES = ("residual", "next_residual", "drift", "uncertainty", "n_stranded")
ARRAYS = ("scales", "rotations", "translations", *COLUMNS, "eigenvalues", *FIGURES)


@dataclass(frozen=True, eq=False)
class Alignment(Fit):
    """One transform for each patch, and how well they make the patches agree.

    A point x (a row) of patch k belongs at ``scales[k] * x @ rotations[k] + translations[k]``. One similarity of the
    whole is free; it is chosen to leave patch 0 unturned, with translations of mean 0, and mean 1 of the scales that
    the patches had.

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
    uncertainty : float
        How far noise may have misplaced the patches (root mean square), as a share of how far they extend.
    n_stranded : int
        How many nodes are only in patches that do not fit (``left_out``); -1 if there are such patches but their nodes
        are not known. Their positions are no better than those patches.
    robust : bool
        Whether edges that contradict the others were looked for, and doubted.
    frame : FrameFit, optional
        How well the frame suits each patch, where all were embedded in one.
    motions : Motions, optional
        The motions that were undone.
    """

    @classmethod
    def identity(cls, n_patches: int, dim: int) -> Alignment:
        """Return the alignment that moves nothing: the centroid with it is the paper's "no-trans".

        Examples
        --------
        >>> Alignment.identity(3, 2).apply(1, [[4.0, 5.0]]).tolist()
        [[4.0, 5.0]]
        """
        rotations, translations = np.tile(np.eye(dim), (n_patches, 1, 1)), np.zeros((n_patches, dim))
        return cls(np.ones(n_patches), rotations, translations, EdgeTable.empty(), np.r_[np.ones(dim), -1.0])

    def apply(self, k: int, X: npt.ArrayLike) -> Float64Array:
        """Return coordinates ``X (r, d)`` of patch k where they belong, (r, d), in float64."""
        turned = np.asarray(X, dtype=np.float64) @ self.rotations[k]
        return np.asarray(self.scales[k] * turned + self.translations[k])

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

    def summary(self, names: Sequence[str] | None = None) -> str:
        """Say in plain words how good the fit is, what is doubtful and what to change; ``names`` are of the patches."""
        return verdict(self, names)

    def extend(self, patches: Sequence[PatchLike], new_patch: PatchLike) -> Alignment:
        """Place one more patch against the others, without solving everything again.

        The p ``patches`` are those of this alignment, in its order, and stay where they are; ``drift`` grows. The new
        patch becomes number p, and has the ``motions`` of the others, or is turned and shifted if those are not known.
        An OverlapError says that it shares fewer than d + 1 nodes with every other.
        """
        # Its rotation solves its own row of the eigenproblem with all others fixed, S = polar(sum_j w_j R_j S_j); scale
        # and translation are the weighted means of those that fit its neighbours.
        p, dim, motions = self.n_patches, self.dim, self.motions or Motions()
        if len(patches) != p:
            raise InputError(f"the alignment has {p} patches, but {len(patches)} were given.")
        new = index_patches([new_patch])
        if new.dim != dim:
            raise InputError(f"the new patch has {new.dim} dimensions and the alignment has {dim}.")
        node_sets = (nodes for nodes, _ in (patches[k] for k in range(p)))
        shared = np.array([np.isin(nodes, new.nodes[0]).sum() for nodes in node_sets])
        neighbours = np.flatnonzero(shared > dim)
        if not len(neighbours):
            raise OverlapError(
                f"the new patch shares at most {shared.max()} nodes with any other; placing it in {dim} dimensions "
                f"needs {dim + 1}. Enlarge it."
            )
        overlapping, at = [*(patches[k] for k in neighbours.tolist()), new_patch], len(neighbours)
        local, numbers = np.stack([np.full(at, at), np.arange(at)], axis=1), np.append(neighbours, p)
        statistics = measure_overlaps(overlapping, index_patches(overlapping), local)
        check_statistics(statistics, local, least=dim + 1, names=numbers.tolist())
        measured, fixed = relative_transforms(statistics, local), self.take(neighbours)  # in the order of the edges
        share = statistics.sizes / statistics.sizes.sum()
        implied = measured.rotations @ fixed.rotations
        rotation = nearest_orthogonal(np.einsum("e,eij->ij", share, implied)) if motions.rotate else fixed.rotations[0]
        scale = float(fixed.scales[0])
        if motions.scale:
            # A neighbour at scale s implies the scale s / ratio; these are averaged on logarithms.
            ratios = statistics.spreads[:, 0] / statistics.spreads[:, 1]
            scale = float(np.exp(share @ np.log(fixed.scales / ratios)))
        centres = fixed.scales[:, None] * np.einsum("ed,edk->ek", statistics.means[:, 1], fixed.rotations)
        offsets = centres + fixed.translations - scale * statistics.means[:, 0] @ rotation
        translation = offsets.mean(axis=0) if motions.translate else np.zeros(dim)
        rotations = np.concatenate([self.rotations, rotation[None]])
        translations = np.concatenate([self.translations, translation[None]])
        placed = replace(self, scales=np.append(self.scales, scale), rotations=rotations, translations=translations)
        errors = np.minimum(edge_errors(statistics, numbers[local], placed), 1)
        pairs = np.stack([neighbours, np.full(at, p)], axis=1)
        table = EdgeTable(pairs, errors, statistics.sizes, np.ones(at), measured.undetermined)
        drift = _drift(implied - rotation, statistics.sizes, neighbours, self)
        table = EdgeTable.concatenate([self.edge_table, table])
        return replace(placed, edge_table=table, drift=self.drift + drift)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the alignment as flat arrays by name, as a file holds them; ``format`` is the version of the layout.

        Examples
        --------
        >>> Alignment.from_arrays(Alignment.identity(3, 2).to_arrays()).rotations.shape
        (3, 2, 2)
        """
        arrays = {name: np.asarray(getattr(self, name)) for name in ARRAYS}
        frame = {} if self.frame is None else self.frame.to_arrays()
        motions = {} if self.motions is None else {"motions": np.array(list(vars(self.motions).values()))}
        return {"format": np.asarray(FORMAT), **arrays, "robust": np.asarray(self.robust), **frame, **motions}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> Alignment:
        """Undo ``to_arrays``, or raise FormatError; other arrays are ignored."""
        check_layout(arrays, ARRAYS, version=FORMAT, what=WHAT, remedy=REMEDY)
        try:
            a = {name: as_numbers(name, np.asarray(arrays[name]), whole=name in INTEGERS) for name in ARRAYS}
            if bad := [name for name in ARRAYS if not np.isfinite(a[name]).all()]:
                raise InputError(f"its {bad[0]} are not finite.")
            robust, free = _flags(arrays, "robust", ()), _flags(arrays, "motions", (3,))
            values: dict[str, Any] = {name: a[name] for name in ("scales", "rotations", "translations", "eigenvalues")}
            values |= {name: float(a[name]) for name in FIGURES}
            alignment = cls(
                **values | {"n_stranded": int(a["n_stranded"])},
                edge_table=EdgeTable(*(a[name] for name in COLUMNS)),
                robust=bool(robust),
                frame=FrameFit.from_arrays(arrays, np.size(a["scales"])),
                motions=None if free is None else Motions(scale=free[0], rotate=free[1], translate=free[2]),
            )
            p, dim, pairs = alignment.n_patches, alignment.dim, alignment.edges
            if dim == 0 or (pairs.size and not 0 <= pairs.min() <= pairs.max() < p):
                numbers = f"{pairs.min(initial=p)} to {pairs.max(initial=0)}"
                raise InputError(f"of {p} patches in {dim} dimensions, it has edges between the patches {numbers}.")
        except (InputError, TypeError) as error:
            raise FormatError(f"this is not {WHAT}: {error} {REMEDY}") from error
        return alignment

    def save(self, path: str | PathLike[str]) -> None:
        """Write the alignment to ``path`` as a NumPy ``.npz`` archive, complete or not at all."""
        save_arrays(Path(path), self.to_arrays())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Alignment:
        """Read what ``save`` wrote."""
        return load_value(path, cls.from_arrays, what=WHAT, remedy=REMEDY)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, and the patches, joined by lines that redden with their error."""
        verdict = "<br>".join(html.escape(line) for line in self.summary().splitlines())
        picture = network_svg(np.ones(self.n_patches), self.edges, self.edge_weights, self.edge_errors)
        return f"<div>{verdict}<br>{picture}</div>"

    def __repr__(self) -> str:
        worst = f", worst edge error {self.edge_errors.max():.3g}" if len(self.edges) else ""
        return f"Alignment({self.n_patches} patches, dim={self.dim}, {len(self.edges)} edges{worst})"


def _flags(arrays: Mapping[str, AnyArray], name: str, shape: tuple[int, ...]) -> Any:
    """Return what is true or false in a file; None if it is not there."""
    values = np.asarray(arrays.get(name, np.zeros(shape, dtype=bool)))
    if values.shape != shape or values.dtype.kind != "b":
        raise TypeError(f"{name} is true or false, not {values.dtype} of shape {values.shape}.")
    return values.tolist() if name in arrays else None


def with_worst_fit(alignment: Alignment, parts: Sequence[Alignment]) -> Alignment:
    """Return ``alignment`` with the smallest spectral gap and the largest other figures among its ``parts``."""
    loosest = min(parts, key=lambda part: part.spectral_gap)
    worst = {name: max(getattr(part, name) for part in parts) for name in ("residual", "uncertainty")}
    return replace(alignment, eigenvalues=loosest.eigenvalues, next_residual=loosest.next_residual, **worst)


def with_fixed_frame(alignment: Alignment) -> Alignment:
    """Turn and shift the whole: patch 0 is not turned afterwards, and the translations have mean 0."""
    turn = alignment.rotations[0].T
    with one_blas_thread():
        translations = alignment.translations @ turn
        rotations = alignment.rotations @ turn
    return replace(alignment, rotations=rotations, translations=translations - translations.mean(axis=0))


def _drift(misfit: Float64Array, weights: Float64Array, neighbours: Int64Array, alignment: Alignment) -> float:
    """Bound the distance to a full solve by (residual that the new edges leave) / (spectral gap): Davis and Kahan.

    Each new edge leaves w (R_ij S_j - S_i), over sqrt(D_i D), in the rows of both its patches.
    """
    d, edges = alignment.dim, alignment.edges
    p = int(max(edges.max(initial=0), neighbours.max())) + 2
    degrees = np.bincount(edges.ravel(), weights=np.repeat(alignment.edge_weights, 2), minlength=p).astype(np.float64)
    degrees[neighbours] += weights
    total = degrees.sum() + weights.sum()
    amounts = weights**2 * (misfit**2).sum(axis=(1, 2)) / d
    at_neighbours = (amounts / degrees[neighbours]).sum() / total
    together = np.einsum("e,eij->ij", weights, misfit)
    at_new = (together**2).sum() / d / weights.sum() / total
    return float(min(np.sqrt(2), np.sqrt(at_neighbours + at_new) / max(alignment.spectral_gap, 1e-12)))
