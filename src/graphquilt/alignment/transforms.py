"""Alignment: one transform for each patch, as a value, with a statement of how good the fit is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.extension import place
from graphquilt.alignment.overlap import PatchLike
from graphquilt.alignment.verdict import Fit, verdict
from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.errors import FormatError, InputError

__all__ = ["Alignment"]


DISTRUSTED = 1 / 3  # an edge whose weight fell below this share is named
FORMAT = 1


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
    edges : int array (m, 2)
        Pairs (i, j), i < j, of patches that were compared, in the order given.
    edge_errors : float array (m,)
        What is left on each overlap after alignment: 0 perfect, 1 no better than unrelated.
    edge_weights : float array (m,)
        The weight of each edge in the rotation step: its overlap, times ``edge_trust``.
    edge_trust : float array (m,)
        1, or less where robust alignment doubted the edge.
    undetermined : int array (m,)
        How many of the d directions each overlap says nothing about, because its points do not extend in them.
    eigenvalues : float array (d + 1,)
        The d leading eigenvalues of the rotation step (all 1 without noise) and an estimate of the next.
    residual : float
        Of the eigenvectors of the rotation step: the largest norm over the d.
    next_residual : float
        How sure the last eigenvalue is: there is one within this distance.
    drift : float
        0 for a full solve. After ``extend``: how far, in root mean square over the entries of a rotation scaled to
        norm 1, the answer may be from a full solve.
    """

    scales: Float64Array
    rotations: Float64Array
    translations: Float64Array
    edges: Int64Array
    edge_errors: Float64Array
    edge_weights: Float64Array
    edge_trust: Float64Array
    undetermined: Int64Array
    eigenvalues: Float64Array
    residual: float = 0.0
    next_residual: float = 0.0
    drift: float = 0.0

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
            edges=np.empty((0, 2), dtype=np.int64),
            edge_errors=np.empty(0),
            edge_weights=np.empty(0),
            edge_trust=np.empty(0),
            undetermined=np.empty(0, dtype=np.int64),
            eigenvalues=np.r_[np.ones(dim), -1.0],
        )

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
        """The edges (k, 2) that robust alignment gave less than a third of their weight, the least trusted first."""
        low = np.flatnonzero(self.edge_trust < DISTRUSTED)
        return self.edges[low[np.argsort(self.edge_trust[low], kind="stable")]]

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
        turned = np.einsum("pi,pij->pj", self.translations, following.rotations)
        return replace(
            self,
            scales=self.scales * following.scales,
            rotations=self.rotations @ following.rotations,
            translations=following.scales[:, None] * turned + following.translations,
        )

    def take(self, patches: npt.ArrayLike) -> Alignment:
        """Return the transforms of the ``patches (k,)`` named, in that order, without their edges."""
        rows = np.asarray(patches, dtype=np.int64)
        bare = Alignment.identity(len(rows), self.dim)
        return replace(
            bare, scales=self.scales[rows], rotations=self.rotations[rows], translations=self.translations[rows]
        )

    def worst_edges(self, n: int = 5) -> Int64Array:
        """Return the n edges with the largest error after alignment, worst first, (n, 2)."""
        return self.edges[np.argsort(-self.edge_errors, kind="stable")[:n]]

    def summary(self) -> str:
        """Say in plain words how good the fit is, what is doubtful and what to change."""
        fit = Fit(
            n_patches=self.n_patches,
            dim=self.dim,
            edges=self.edges,
            errors=self.edge_errors,
            undetermined=self.undetermined,
            distrusted=self.distrusted,
            eigenvalues=self.eigenvalues,
            next_residual=self.next_residual,
            residual=self.residual,
            drift=self.drift,
        )
        return verdict(fit)

    def extend(self, patches: Sequence[PatchLike], new_patch: PatchLike, *, replaces: int | None = None) -> Alignment:
        """Place one more patch, or a new version of one, against the others without solving everything again.

        Parameters
        ----------
        patches : sequence of p patches
            Those of this alignment, in its order.
        new_patch : Patch or (nodes, coordinates)
        replaces : int, optional
            The patch it takes the place of. Without it, the new patch becomes number p.

        Returns
        -------
        Alignment
            The other patches stay where they are. ``drift`` bounds how far the rotations may be from those of a full
            solve, and grows with each extension.

        Raises
        ------
        OverlapError
            If the new patch shares fewer than d + 1 nodes with every other.
        """
        if len(patches) != self.n_patches:
            raise InputError(f"the alignment has {self.n_patches} patches, but {len(patches)} were given.")
        if replaces is not None and not 0 <= replaces < self.n_patches:
            raise InputError(
                f"patch {replaces} cannot be replaced; there are {self.n_patches}, 0 to {self.n_patches - 1}."
            )
        number = self.n_patches if replaces is None else replaces
        kept = ~(self.edges == number).any(axis=1)
        spot = place(
            patches,
            new_patch,
            number=number,
            transforms=(self.scales, self.rotations, self.translations),
            known_edges=self.edges[kept],
            known_weights=self.edge_weights[kept],
            gap=self.spectral_gap,
            scale=bool(np.any(self.scales != self.scales[0])),
        )

        def put(values: Float64Array, new: npt.ArrayLike) -> Float64Array:
            rest = values if replaces is None else np.delete(values, number, axis=0)
            return np.insert(rest, number, new, axis=0)

        return replace(
            self,
            scales=put(self.scales, spot.scale),
            rotations=put(self.rotations, spot.rotation),
            translations=put(self.translations, spot.translation),
            edges=np.vstack([self.edges[kept], spot.edges]),
            edge_errors=np.r_[self.edge_errors[kept], spot.errors],
            edge_weights=np.r_[self.edge_weights[kept], spot.weights],
            edge_trust=np.r_[self.edge_trust[kept], np.ones(len(spot.edges))],
            undetermined=np.r_[self.undetermined[kept], spot.undetermined],
            drift=self.drift + spot.drift,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the alignment to ``path`` as a NumPy ``.npz`` archive, without pickle."""
        arrays: dict[str, Any] = {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}
        with open(path, "wb") as file:
            np.savez(file, format=np.asarray(FORMAT), **arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Alignment:
        """Read what ``save`` wrote."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = dict(archive)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise FormatError(
                f"{path} cannot be read as an alignment: {error}. Align again to make a new one."
            ) from error
        wanted = {field.name for field in fields(cls)}
        if "format" not in arrays or wanted - set(arrays):
            missing = ", ".join(sorted(wanted - set(arrays))) or "format"
            raise FormatError(f"{path} is not an alignment: it lacks {missing}. Align again to make one.")
        if int(arrays["format"]) != FORMAT:
            raise FormatError(
                f"{path} has format {int(arrays['format'])}; this version reads {FORMAT}. Upgrade graphquilt."
            )
        values: dict[str, Any] = {name: arrays[name] for name in wanted}
        values |= {name: float(arrays[name]) for name in ("residual", "next_residual", "drift")}
        return cls(**values)

    def __repr__(self) -> str:
        worst = f", worst edge error {self.edge_errors.max():.3g}" if len(self.edges) else ""
        return f"Alignment({self.n_patches} patches, dim={self.dim}, {len(self.edges)} edges{worst})"
