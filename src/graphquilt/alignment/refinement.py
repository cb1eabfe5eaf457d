"""Refine an alignment by generalised Procrustes analysis: fit every patch to the centroid of all (Gower 1975).

Synchronisation uses only the rotation of an overlap, in which every direction counts the same, also those in which the
points hardly extend and noise decides. A sweep of refinement uses the points themselves: it lowers the sum of squared
distances of all rows from the centroids of their nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.centroids import centroid, with_compact_ids
from graphquilt.alignment.measuring import measure_overlaps
from graphquilt.alignment.opened import kept_open
from graphquilt.alignment.overlap import PatchLike, checked_patch, checked_weights, index_patches
from graphquilt.alignment.relative import edge_errors
from graphquilt.alignment.transforms import Alignment, with_fixed_frame
from graphquilt.arrays import Float64Array, FloatArray
from graphquilt.errors import InputError
from graphquilt.kernels import one_blas_thread
from graphquilt.linalg import Motions, centred, polar, unit

__all__ = ["lay_onto", "refine"]


def refine(
    patches: Sequence[PatchLike],
    alignment: Alignment,
    *,
    sweeps: int = 3,
    weights: Sequence[npt.ArrayLike] | None = None,
    motions: Motions = Motions(),
) -> Alignment:
    """Improve an alignment by fitting every patch to the centroid of all patches, ``sweeps`` times.

    Parameters
    ----------
    patches, weights
        Those of :func:`align`; patches are read one after the other.
    alignment : Alignment
        A good one to begin with, because the sweeps end in a local optimum.
    sweeps : int
        How many; a few are enough, and 0 returns the alignment as it is.
    motions : Motions
        Whether patches may be rotated and shifted; scales stay as they are.

    Returns
    -------
    Alignment
        With the ``edge_errors`` of the new transforms. Eigenvalues and residual remain those of the rotation step.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(12, 2))
    >>> patches = [(np.arange(8), X[:8]), (np.arange(4, 12), X[4:])]
    >>> round(float(refine(patches, Alignment.identity(2, 2)).translations.max()), 6)
    0.0
    """
    if isinstance(sweeps, bool) or not isinstance(sweeps, int | np.integer) or sweeps < 0:
        raise InputError(f"sweeps is a whole number of at least 0, not {sweeps!r}.")
    if len(patches) != alignment.n_patches:
        raise InputError(f"there are {len(patches)} patches and the alignment has {alignment.n_patches}.")
    if sweeps == 0 or len(patches) == 1:
        return alignment
    patches = kept_open(patches)
    row_weights = None if weights is None else checked_weights(weights, patches)
    current, numbered = alignment, with_compact_ids(patches)
    for _ in range(sweeps):
        C = centroid(numbered, current, weights=row_weights, missing="nan")
        current = lay_onto(numbered, current, C, weights=row_weights, motions=replace(motions, scale=False))
        current = with_fixed_frame(current)
    if len(current.edges):
        statistics = measure_overlaps(patches, index_patches(patches, row_weights), current.edges)
        errors = edge_errors(statistics, current.edges, current)
        current = replace(current, edge_table=replace(current.edge_table, errors=errors))
    return current


def lay_onto(
    patches: Sequence[PatchLike],
    alignment: Alignment,
    reference: FloatArray,
    *,
    weights: Sequence[Float64Array] | None = None,
    motions: Motions = Motions(),
) -> Alignment:
    """Return the alignment that fits each patch by itself to the rows of its nodes in ``reference (n, d)``.

    What ``motions`` does not free (by default the scales) stays as ``alignment`` has it.
    """
    p, d = alignment.n_patches, alignment.dim
    scales, translations = np.array(alignment.scales), np.array(alignment.translations)
    rotations = np.empty((p, d, d))
    with one_blas_thread():
        for k in range(p):
            nodes, X = checked_patch(patches[k], k)
            w = np.ones(len(nodes)) if weights is None else weights[k]
            (a, mean), (b, target) = centred(X, w), centred(reference[nodes], w)
            if not motions.translate:
                root = np.sqrt(w)[:, None]
                a, b = root * np.asarray(X, dtype=np.float64), root * (reference[nodes] - translations[k])
            units = unit(a), unit(b)
            a, b = a / units[0], b / units[1]
            rotations[k] = polar(a.T @ b).rotation if motions.rotate else alignment.rotations[k]
            if motions.scale:
                scales[k] = np.linalg.norm(b) / np.linalg.norm(a) * (units[1] / units[0])
            if motions.translate:
                translations[k] = target - scales[k] * mean @ rotations[k]
    return replace(alignment, scales=scales, rotations=rotations, translations=translations)
