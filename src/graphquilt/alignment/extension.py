"""Place one more patch among patches that are aligned already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.edge_table import EdgeTable
from graphquilt.alignment.measuring import measure_overlaps
from graphquilt.alignment.overlap import PatchLike, index_patches
from graphquilt.alignment.relative import check_statistics, edge_errors, relative_transforms
from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.errors import InputError, OverlapError
from graphquilt.linalg import nearest_orthogonal

if TYPE_CHECKING:
    from graphquilt.alignment.transforms import Alignment

__all__ = ["place_patch"]


def place_patch(
    patches: Sequence[PatchLike], new_patch: PatchLike, alignment: Alignment, *, replaces: int | None
) -> Alignment:
    """Return ``alignment`` with a new patch, placed against every other that shares at least d + 1 nodes with it.

    Its rotation solves its own row of the eigenproblem with all other rows fixed, S = polar(sum_j w_j R_j S_j); its
    scale and translation are the weighted means of those that fit its neighbours. Scales are fitted where those of the
    aligned patches differ. The ``drift`` grows by a bound on the distance to the rotations of a full solve.
    """
    p = alignment.n_patches
    if len(patches) != p:
        raise InputError(f"the alignment has {p} patches, but {len(patches)} were given.")
    if replaces is not None and not 0 <= replaces < p:
        raise InputError(f"patch {replaces} cannot be replaced; there are {p}, 0 to {p - 1}.")
    number = p if replaces is None else replaces
    neighbours, overlapping = _neighbours(patches, new_patch, number)
    at = len(neighbours)
    index = index_patches(overlapping)
    if index.dim != alignment.dim:
        raise InputError(f"the new patch has {index.dim} dimensions and the alignment has {alignment.dim}.")
    fixed = alignment.take(neighbours)
    local = np.stack([np.full(at, at), np.arange(at)], axis=1)
    numbers, least = [*neighbours.tolist(), number], index.dim + 1
    statistics = measure_overlaps(overlapping, index, local, least=least)
    check_statistics(statistics, local, least=least, names=numbers)
    measured = relative_transforms(statistics, local)  # all edges begin at the new patch, so their order stays
    share = statistics.sizes / statistics.sizes.sum()
    implied = measured.rotations @ fixed.rotations
    rotation = nearest_orthogonal(np.einsum("e,eij->ij", share, implied))
    scale = float(fixed.scales[0])
    if np.any(alignment.scales != alignment.scales[0]):
        # A neighbour at scale s implies the scale s / ratio; these are averaged on logarithms.
        ratios = statistics.spreads[:, 0] / statistics.spreads[:, 1]
        scale = float(np.exp(share @ np.log(fixed.scales / ratios)))
    centres = fixed.scales[:, None] * np.einsum("ed,edk->ek", statistics.means[:, 1], fixed.rotations)
    offsets = centres + fixed.translations - scale * statistics.means[:, 0] @ rotation

    def put(values: Float64Array, new: npt.ArrayLike) -> Float64Array:
        return np.insert(values if replaces is None else np.delete(values, number, axis=0), number, new, axis=0)

    scales, rotations = put(alignment.scales, scale), put(alignment.rotations, rotation)
    translations = put(alignment.translations, offsets.mean(axis=0))
    placed = replace(alignment, scales=scales, rotations=rotations, translations=translations)
    pairs = np.sort(np.stack([neighbours, np.full(at, number)], axis=1), axis=1)
    errors = edge_errors(statistics, np.asarray(numbers)[local], placed)
    table = EdgeTable(pairs, errors, statistics.sizes, np.ones(at), measured.undetermined)
    remaining = alignment.edge_table.take(~(alignment.edges == number).any(axis=1))
    drift = _drift(implied - rotation, statistics.sizes, neighbours, replace(alignment, edge_table=remaining))
    return replace(placed, edge_table=EdgeTable.concatenate([remaining, table]), drift=alignment.drift + drift)


def _neighbours(patches: Sequence[PatchLike], new_patch: PatchLike, number: int) -> tuple[Int64Array, list[PatchLike]]:
    """Return which patches share at least d + 1 nodes with the new one, and those patches with it as the last."""
    new = index_patches([new_patch])
    most, numbers = 0, []
    for k in range(len(patches)):
        if k != number:
            nodes, _ = patches[k]
            shared = int(np.isin(nodes, new.nodes[0]).sum())
            most = max(most, shared)
            if shared > new.dim:
                numbers.append(k)
    if not numbers:
        raise OverlapError(
            f"the new patch shares at most {most} nodes with any other; placing it in {new.dim} dimensions needs "
            f"{new.dim + 1}. Enlarge it."
        )
    return np.asarray(numbers, dtype=np.int64), [*(patches[k] for k in numbers), new_patch]


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
