"""Align patches whose edges leave several components: each component alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.overlap import PatchLike, check_count, checked_pairs, select_patches
from graphquilt.alignment.solve import AlignOptions, align
from graphquilt.alignment.transforms import Alignment, Part, join_parts
from graphquilt.arrays import Int64Array
from graphquilt.linalg import components
from graphquilt.progress import ProgressCallback

__all__ = ["align_components"]

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

    Nothing relates one component to another: each has a position, rotation and scale of its own. Compare positions
    only within a component.

    Parameters
    ----------
    patches, options, weights, executor, progress
        As for :func:`graphquilt.align`.
    edges : int array (m, 2)

    Returns
    -------
    alignment : Alignment
        Of all patches; ``eigenvalues`` are those of the largest component, ``residual`` is the worst of all.
    component : int array (p,)
        The component of each patch. Where it has more than one value, their placement is arbitrary, and the log warns.

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
    pairs = checked_pairs(edges, len(patches))
    component = components(pairs, len(patches))
    parts = []
    for c in range(int(component.max(initial=0)) + 1):
        members, rows = np.flatnonzero(component == c), np.flatnonzero(component[pairs[:, 0]] == c)
        alignment = align(
            select_patches(patches, members),
            np.searchsorted(members, pairs[rows]),
            options=options,
            weights=None if weights is None else [weights[k] for k in members.tolist()],
            executor=executor,
            progress=progress,
        )
        parts.append(Part(members, rows, alignment))
    if len(parts) > 1:
        logger.warning("%d components were aligned alone: where one lies relative to another is arbitrary", len(parts))
    largest = max(parts, key=lambda part: len(part.patches)).alignment
    whole = join_parts(parts, pairs)
    return replace(whole, eigenvalues=largest.eigenvalues, next_residual=largest.next_residual), component
