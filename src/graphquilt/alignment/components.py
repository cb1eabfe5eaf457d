"""Patches whose edges leave several components: each is aligned alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.overlap import PatchLike
from graphquilt.alignment.solve import AlignOptions, align
from graphquilt.alignment.transforms import Alignment
from graphquilt.arrays import Int64Array
from graphquilt.errors import InputError
from graphquilt.linalg.laplacian import components
from graphquilt.progress import ProgressCallback

__all__ = ["align_components"]

logger = logging.getLogger(__name__)


class _Chosen(Sequence[PatchLike]):
    """Some of the patches, in a sequence that opens them only when asked."""

    def __init__(self, patches: Sequence[PatchLike], which: Int64Array) -> None:
        self.patches, self.which = patches, which

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, k: int) -> PatchLike:  # type: ignore[override]
        return self.patches[int(self.which[k])]


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

    Nothing relates one component to another: each is in a place, turn and scale of its own. Compare positions only
    within a component.

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
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    p = len(patches)
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= p):
        raise InputError(f"edges name patches 0..{p - 1}; found {pairs.min()}..{pairs.max()}.")
    component = np.asarray(components(pairs, p), dtype=np.int64)
    sizes = np.bincount(component)
    largest = int(sizes.argmax())
    results: dict[int, tuple[Int64Array, Int64Array, Alignment]] = {}
    for c in range(len(sizes)):
        which = np.flatnonzero(component == c)
        mine = np.flatnonzero(component[pairs[:, 0]] == c) if len(pairs) else np.empty(0, dtype=np.int64)
        chosen = _Chosen(patches, which)
        found = align(
            chosen,
            np.searchsorted(which, pairs[mine]),
            options=options,
            weights=None if weights is None else [weights[k] for k in which.tolist()],
            executor=executor,
            progress=progress,
        )
        results[c] = which, mine, found
    if len(sizes) > 1:
        logger.warning("%d components were aligned alone: where one lies relative to another is arbitrary", len(sizes))
    return _joined(results, pairs, p, largest), component


def _joined(
    results: dict[int, tuple[Int64Array, Int64Array, Alignment]], pairs: Int64Array, p: int, largest: int
) -> Alignment:
    main = results[largest][2]
    m, d = len(pairs), main.translations.shape[1]
    whole = Alignment.identity(p, d)
    errors, weights, trust = np.zeros(m), np.zeros(m), np.zeros(m)
    undetermined = np.zeros(m, dtype=np.int64)
    for which, mine, found in results.values():
        whole.scales[which], whole.rotations[which] = found.scales, found.rotations
        whole.translations[which] = found.translations
        errors[mine], weights[mine], trust[mine] = found.edge_errors, found.edge_weights, found.edge_trust
        undetermined[mine] = found.undetermined
    return replace(
        whole,
        edges=np.sort(pairs, axis=1),
        edge_errors=errors,
        edge_weights=weights,
        edge_trust=trust,
        undetermined=undetermined,
        eigenvalues=main.eigenvalues,
        residual=max(found.residual for _, _, found in results.values()),
        next_residual=main.next_residual,
    )
