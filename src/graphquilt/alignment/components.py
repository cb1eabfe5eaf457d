"""Align groups of patches on their own and join the results; components that share no edge, for example."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.edge_table import EdgeTable
from graphquilt.alignment.overlap import PatchLike, check_count
from graphquilt.alignment.patch_edges import checked_pairs
from graphquilt.alignment.solve import AlignOptions, align
from graphquilt.alignment.transforms import Alignment, with_worst_fit
from graphquilt.arrays import Int64Array
from graphquilt.linalg import components
from graphquilt.progress import ProgressCallback

__all__ = ["Part", "align_components", "join_parts", "split_patches"]

logger = logging.getLogger(__name__)


def align_components(
    patches: Sequence[PatchLike],
    edges: npt.ArrayLike,
    *,
    options: AlignOptions = AlignOptions(),
    weights: Sequence[npt.ArrayLike] | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[Alignment, Int64Array]:
    """Align each component of a patch graph alone, for patch graphs made with ``components="each"``.

    The parameters are those of :func:`align`. Where a motion is free, nothing relates one component to another: each
    has a position, rotation and scale of its own. Compare positions only within a component.

    Returns
    -------
    alignment : Alignment
        Of all patches; ``eigenvalues`` are those of the largest component, ``residual`` is the worst of all.
    component : int array (p,)
        The component of each patch; the log warns if there are several.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(6, 2))
    >>> ids = np.arange(6)
    >>> four = [(ids, X), (ids, X + 1), (ids + 6, X), (ids + 6, 2 - X)]
    >>> alignment, component = align_components(four, [[0, 1], [2, 3]])
    >>> component.tolist(), float(alignment.edge_errors.max().round(6))
    ([0, 0, 1, 1], 0.0)
    """
    if weights is not None:
        check_count(weights, patches)
    pairs = np.sort(checked_pairs(edges, len(patches)), axis=1)
    component = components(pairs, len(patches))
    parts = split_patches(patches, pairs, component, weights)
    alignments = [
        align(part.patches, part.edges, options=options, weights=part.weights, executor=executor, progress=progress)
        for part in parts
    ]
    if len(parts) > 1 and options.motions.free:
        logger.warning("%d components were aligned alone: where one lies relative to another is arbitrary", len(parts))
    largest = max(alignments, key=lambda alignment: alignment.n_patches)
    whole = join_parts(parts, alignments, pairs)
    return replace(whole, eigenvalues=largest.eigenvalues, next_residual=largest.next_residual), component


class Part(NamedTuple):
    """Some of the patches, with the edges between them, and where both are in the whole."""

    numbers: Int64Array  # (k,) of the patches
    rows: Int64Array  # (m,) of the edges
    patches: Sequence[PatchLike]
    edges: Int64Array  # (m, 2), between 0 and k - 1
    weights: list[npt.ArrayLike] | None


class _SelectedPatches(Sequence[PatchLike]):
    """Some of the patches of a lazy sequence, each opened when it is asked for."""

    def __init__(self, patches: Sequence[PatchLike], numbers: Int64Array) -> None:
        self.patches, self.numbers = patches, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, k: int) -> PatchLike:  # type: ignore[override]
        return self.patches[int(self.numbers[k])]


def split_patches(
    patches: Sequence[PatchLike], edges: Int64Array, labels: Int64Array, weights: Sequence[npt.ArrayLike] | None
) -> list[Part]:
    """Return the patches of each of the ``labels (p,)``, which no edge crosses; lazy sequences stay lazy."""
    parts = []
    for label in range(int(labels.max(initial=0)) + 1):
        numbers, rows = np.flatnonzero(labels == label), np.flatnonzero(labels[edges[:, 0]] == label)
        members: Sequence[PatchLike] = _SelectedPatches(patches, numbers)
        if isinstance(patches, list | tuple):
            members = list(members)
        part_weights = None if weights is None else [weights[k] for k in numbers.tolist()]
        parts.append(Part(numbers, rows, members, np.searchsorted(numbers, edges[rows]), part_weights))
    return parts


def join_parts(parts: Sequence[Part], alignments: Sequence[Alignment], pairs: Int64Array) -> Alignment:
    """Put the alignments of all parts together, each where it is, as one with the edges ``pairs (m, 2)``."""
    order = np.argsort(np.concatenate([part.numbers for part in parts]))
    rows = np.argsort(np.concatenate([part.rows for part in parts]))
    table = EdgeTable.concatenate(alignment.edge_table for alignment in alignments).take(rows)
    scales = np.concatenate([alignment.scales for alignment in alignments])[order]
    rotations = np.concatenate([alignment.rotations for alignment in alignments])[order]
    translations = np.concatenate([alignment.translations for alignment in alignments])[order]
    whole = Alignment(scales, rotations, translations, replace(table, pairs=pairs), alignments[0].eigenvalues)
    return with_worst_fit(replace(whole, robust=alignments[0].robust), alignments)
