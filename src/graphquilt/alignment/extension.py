"""Placing one more patch among patches that are aligned already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.overlap import PatchLike, edge_errors, index_patches, measure
from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.errors import InputError, OverlapError
from graphquilt.linalg.procrustes import nearest_orthogonal

__all__ = ["Spot", "place"]


class Spot(NamedTuple):
    """Where a new patch goes, what its edges look like there, and how far a full solve may lie from that."""

    scale: float
    rotation: Float64Array
    translation: Float64Array
    edges: Int64Array
    errors: Float64Array
    weights: Float64Array
    undetermined: Int64Array
    drift: float


def place(
    patches: Sequence[PatchLike],
    new_patch: PatchLike,
    *,
    number: int,
    transforms: tuple[Float64Array, Float64Array, Float64Array],
    known_edges: Int64Array,
    known_weights: Float64Array,
    gap: float,
    scale: bool,
) -> Spot:
    """Place ``new_patch`` as patch ``number`` against every other patch that shares at least d + 1 nodes with it.

    Its rotation solves its own row of the eigenproblem with all other rows held fixed, S = polar(sum_j w_j R_j S_j);
    its scale and translation are the weighted means that its neighbours ask for.
    """
    neighbours, everyone = _neighbours(patches, new_patch, number)
    at = len(everyone) - 1
    index = index_patches(everyone)
    scales, rotations, translations = transforms
    if index.dim != rotations.shape[1]:
        raise InputError(f"the new patch has {index.dim} dimensions and the alignment has {rotations.shape[1]}.")
    local = np.stack([np.full(at, at), np.arange(at)], axis=1)
    measured = measure(everyone, index, local, least=index.dim + 1, executor=None)
    weights = measured.sizes.astype(np.float64)
    share = weights / weights.sum()
    wanted = measured.rotations @ rotations[neighbours]
    rotation = nearest_orthogonal(np.einsum("e,eij->ij", share, wanted))
    # The neighbour at scale s wants ratio * (1 / s) undone: s_new = s / ratio, averaged on logarithms.
    own = float(np.exp(share @ np.log(scales[neighbours] / measured.ratios))) if scale else float(scales[neighbours[0]])
    theirs = scales[neighbours, None] * np.einsum("ed,edk->ek", measured.means[:, 1], rotations[neighbours])
    offsets = theirs + translations[neighbours] - own * measured.means[:, 0] @ rotation
    translation = offsets.mean(axis=0)

    def where(k: int, X: npt.ArrayLike) -> Float64Array:
        s, R, t = (own, rotation, translation) if k == at else (a[neighbours[k]] for a in transforms)
        return np.asarray(s * np.asarray(X, dtype=np.float64) @ R + t)

    return Spot(
        own,
        rotation,
        translation,
        np.sort(np.stack([neighbours, np.full(at, number)], axis=1), axis=1),
        edge_errors(everyone, index, local, where),
        weights,
        measured.undetermined,
        _drift(wanted - rotation, weights, neighbours, edges=known_edges, edge_weights=known_weights, gap=gap),
    )


def _neighbours(patches: Sequence[PatchLike], new_patch: PatchLike, number: int) -> tuple[Int64Array, list[PatchLike]]:
    """Return which patches share at least d + 1 nodes with the new one, and those patches with it as the last."""
    new = index_patches([new_patch])
    best, found = 0, []
    for k in range(len(patches)):
        if k != number:
            nodes, _ = patches[k]
            share = int(np.isin(nodes, new.nodes[0]).sum())
            best = max(best, share)
            if share > new.dim:
                found.append(k)
    if not found:
        raise OverlapError(
            f"the new patch shares at most {best} nodes with any other; placing it in {new.dim} dimensions needs "
            f"{new.dim + 1}. Enlarge it."
        )
    return np.asarray(found, dtype=np.int64), [*(patches[k] for k in found), new_patch]


def _drift(
    misfit: Float64Array,
    weights: Float64Array,
    neighbours: Int64Array,
    *,
    edges: Int64Array,
    edge_weights: Float64Array,
    gap: float,
) -> float:
    """Bound the distance to a full solve by (residual that the new edges leave) / (spectral gap): Davis and Kahan.

    The rows of the new patch and of its neighbours no longer solve their equations exactly; each new edge leaves
    w (R_ij S_j - S_i) in both. In the normalised problem that is divided by sqrt(D_i D).
    """
    d = misfit.shape[1]
    p = int(max(edges.max(initial=0), neighbours.max())) + 2
    degrees = np.bincount(edges.ravel(), weights=np.repeat(edge_weights, 2), minlength=p).astype(np.float64)
    degrees[neighbours] += weights
    total = degrees.sum() + weights.sum()
    amounts = weights**2 * (misfit**2).sum(axis=(1, 2)) / d
    at_neighbours = (amounts / degrees[neighbours]).sum() / total
    together = np.einsum("e,eij->ij", weights, misfit)
    at_new = (together**2).sum() / d / weights.sum() / total
    return float(min(np.sqrt(2), np.sqrt(at_neighbours + at_new) / max(gap, 1e-12)))
