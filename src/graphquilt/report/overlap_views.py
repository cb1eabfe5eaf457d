"""Both sides of an overlap before and after alignment, in the plane, for some or all patch edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphquilt.alignment import Alignment
from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.patches import Patch
from graphquilt.progress import ProgressCallback, report
from graphquilt.report.projection import principal_plane

__all__ = ["overlap_view", "overlap_views", "viewed_edges"]

_POINTS = 48  # shared nodes in a view
_VIEWS = 300  # edges with a view


def viewed_edges(errors: Float64Array, limit: int = _VIEWS) -> Int64Array:
    """Return the edges that get a view, ascending: all, or the worst half of the limit and others spread over the rest.

    Examples
    --------
    >>> viewed_edges(np.array([0.1, 0.9, 0.2, 0.3]), 2).tolist()
    [0, 1]
    """
    order = np.argsort(-errors, kind="stable")
    if len(order) <= limit:
        return np.arange(len(order))
    worst, rest = order[: limit // 2], order[limit // 2 :]
    spread = np.linspace(0, len(rest) - 1, limit - limit // 2).astype(np.int64)
    return np.unique(np.r_[worst, rest[np.flip(len(rest) - 1 - spread)]])


def overlap_views(
    patches: Sequence[Patch], alignment: Alignment, *, progress: ProgressCallback | None = None
) -> tuple[Int64Array, list[dict[str, object]]]:
    """Return which edges of the alignment have a view, and the views; see :func:`overlap_view`."""
    edges = viewed_edges(alignment.edge_errors)
    views = []
    for done, edge in enumerate(edges.tolist(), 1):
        i, j = alignment.edges[edge].tolist()
        views.append(overlap_view(patches[i], patches[j], alignment, (i, j)))
        report(progress, "overlaps", done, len(edges))
    return edges, views


def overlap_view(first: Patch, second: Patch, alignment: Alignment, edge: tuple[int, int]) -> dict[str, object]:
    """Return the places of some shared nodes in both patches, before and after alignment.

    Each of ``before`` and ``after`` is a 16-bit array with x and y of every node in the first patch and then in the
    second, in the plane of the two leading principal components of all these points. ``gap_before`` and ``gap_after``
    are the root mean square distance between the two places of a node, in units of the spread of the points.
    """
    shared, rows_i, rows_j = np.intersect1d(first.nodes, second.nodes, assume_unique=True, return_indices=True)
    chosen = np.unique(np.linspace(0, len(shared) - 1, min(len(shared), _POINTS)).astype(np.int64))
    a = np.asarray(first.coordinates[rows_i[chosen]], dtype=np.float64)
    b = np.asarray(second.coordinates[rows_j[chosen]], dtype=np.float64)
    before, gap_before = _places(a, b)
    after, gap_after = _places(alignment.apply(edge[0], a), alignment.apply(edge[1], b))
    gaps = {"gap_before": gap_before, "gap_after": gap_after}
    return {"nodes": shared[chosen].astype(np.uint32), "before": before, "after": after, **gaps}


def _places(a: Float64Array, b: Float64Array) -> tuple[AnyArray, float]:
    both = np.concatenate([a, b])
    points = principal_plane(both)(both)
    low, high = points.min(axis=0), points.max(axis=0)
    side = max(float((high - low).max()), 1e-12)
    places = np.round(((points - (low + high) / 2) / side + 0.5) * 65_535).astype(np.uint16)
    # The spread within each side: what sets the two apart is not part of it.
    spread = np.sqrt((((a - a.mean(axis=0)) ** 2).sum() + ((b - b.mean(axis=0)) ** 2).sum()) / len(both))
    return places.ravel(), float(np.sqrt(((a - b) ** 2).sum(axis=1).mean()) / max(float(spread), 1e-300))
