"""The patch graph on the page: where patches are drawn, their edges with errors, and both sides of overlaps."""

from __future__ import annotations

import numpy as np

from graphquilt.alignment import Alignment
from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.jobs import Job
from graphquilt.jobs.export import job_ids
from graphquilt.jobs.records import patch_key
from graphquilt.patches import Patch, PatchGraph
from graphquilt.progress import ProgressCallback, report
from graphquilt.report.node_map import principal_plane

__all__ = ["layout", "overlap_view", "quilt_data", "viewed_edges"]

_EDGES = 20_000  # patch edges on the page, the worst first
_POINTS = 48  # shared nodes in a view
_VIEWS = 300  # edges with a view


def quilt_data(
    job: Job, patch_graph: PatchGraph, alignment: Alignment | None, progress: ProgressCallback | None
) -> dict[str, object]:
    """Return the patch graph as ``quilt.js`` reads it: positions of patches, edges with errors, views of overlaps."""
    x, y = np.round(layout(patch_graph, seed=0) * 65_535).astype(np.uint16).T
    result: dict[str, object] = {"x": x, "y": y, "sizes": patch_graph.sizes.astype(np.uint32)}
    embedded = [patch_key(k, "embedding") in job.store for k in range(patch_graph.n_patches)]
    result["done"] = np.array(embedded, dtype=np.uint8)
    if alignment is None or alignment.n_patches != patch_graph.n_patches or len(alignment.edges) == 0:
        edges = patch_graph.edges[:_EDGES]
        ends = {"first": edges[:, 0].astype("u4"), "second": edges[:, 1].astype("u4")}
        overlaps = patch_graph.overlaps[:_EDGES].astype("u4")
        return result | ends | {"overlaps": overlaps, "n_edges": len(patch_graph.edges)}
    viewed = viewed_edges(alignment.edge_errors)
    views, patches, ids = [], job.patches, np.asarray(job_ids(job, patch_graph.n_nodes))
    for done, (i, j) in enumerate(alignment.edges[viewed].tolist(), 1):
        views.append(overlap_view((patches[i], patches[j]), alignment, (i, j), ids))
        report(progress, "overlaps", done, len(viewed))
    view = np.full(len(alignment.edges), -1, dtype=np.int32)
    view[viewed] = np.arange(len(viewed))
    order = np.argsort(-alignment.edge_errors, kind="stable")[:_EDGES]
    table = alignment.edge_table.take(order)
    return result | {
        "first": table.pairs[:, 0].astype("u4"),
        "second": table.pairs[:, 1].astype("u4"),
        "overlaps": _overlaps(patch_graph, table.pairs).astype("u4"),
        "errors": table.errors.astype("f4"),
        "doubted": (table.trust < 1).astype("u1"),
        "view": view[order],
        "views": views,
        "n_edges": len(alignment.edges),
        "moves_nothing": alignment.moves_nothing,
    }


def _overlaps(patch_graph: PatchGraph, pairs: AnyArray) -> AnyArray:
    """Return the number of shared nodes of each pair of patches; 0 for pairs that the patch graph does not join."""
    known = dict(zip(map(tuple, patch_graph.edges.tolist()), patch_graph.overlaps.tolist(), strict=True))
    return np.array([known.get((i, j), 0) for i, j in pairs.tolist()], dtype=np.int64)


def layout(patch_graph: PatchGraph, *, seed: int = 0) -> Float64Array:
    """Place the patches in the unit square, (p, 2): springs along edges, repulsion between all; components lie apart.

    After Fruchterman and Reingold (1991).

    Examples
    --------
    >>> layout(PatchGraph.from_patches([[0, 1], [1, 2]])).shape
    (2, 2)
    """
    rng = np.random.default_rng(seed)
    p = patch_graph.n_patches
    X = rng.uniform(-0.5, 0.5, (p, 2))
    ideal = 1 / np.sqrt(max(p, 1))
    i, j = patch_graph.edges[:, 0], patch_graph.edges[:, 1]
    # Beyond a few hundred patches each is repelled by a sample of the others, chosen again in every step.
    sample = min(p, 400)
    steps = 150 if p <= 400 else 60
    for step in range(steps):
        others = np.arange(p) if sample == p else rng.choice(p, sample, replace=False)
        gap = X[:, None] - X[None, others]
        squared = np.maximum((gap**2).sum(axis=2), 1e-6)
        force = (gap * (ideal**2 / squared)[:, :, None]).sum(axis=1) * (p / sample)
        along = X[i] - X[j]
        pull = along * (np.sqrt((along**2).sum(axis=1)) / ideal)[:, None]
        np.subtract.at(force, i, pull)
        np.add.at(force, j, pull)
        force -= 0.3 * ideal * p**0.5 * X  # keeps components from drifting away
        length = np.maximum(np.sqrt((force**2).sum(axis=1)), 1e-9)
        heat = 0.15 * (1 - step / steps) + 1e-3
        X = X + force / length[:, None] * np.minimum(length, heat)[:, None]
    X -= X.min(axis=0)
    return np.asarray(X / np.maximum(X.max(axis=0), 1e-9))


def viewed_edges(errors: Float64Array, limit: int = _VIEWS) -> Int64Array:
    """Return the edges that get a view, ascending: all, or the worst ``limit / 2`` and an even sample of the rest.

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


def overlap_view(
    patches: tuple[Patch, Patch], alignment: Alignment, edge: tuple[int, int], ids: AnyArray
) -> dict[str, object]:
    """Return the positions of some shared nodes in both patches, before and after alignment.

    Each of ``before`` and ``after`` is a 16-bit array with x and y of every node in the first patch and then in the
    second, in the plane of the two leading principal components of all these points. ``gap_before`` and ``gap_after``
    are the root mean square distance between the two positions of a node, relative to the spread of the points.
    """
    first, second = patches
    shared, rows_i, rows_j = np.intersect1d(first.nodes, second.nodes, assume_unique=True, return_indices=True)
    chosen = np.unique(np.linspace(0, len(shared) - 1, min(len(shared), _POINTS)).astype(np.int64))
    a = np.asarray(first.coordinates[rows_i[chosen]], dtype=np.float64)
    b = np.asarray(second.coordinates[rows_j[chosen]], dtype=np.float64)
    before, gap_before = _places(a, b)
    after, gap_after = _places(alignment.apply(edge[0], a), alignment.apply(edge[1], b))
    names = [text if len(text) <= 40 else f"{text[:39]}…" for text in map(str, ids[shared[chosen]].tolist())]
    return {"before": before, "after": after, "gap_before": gap_before, "gap_after": gap_after, "ids": names}


def _places(a: Float64Array, b: Float64Array) -> tuple[AnyArray, float]:
    """Return 16-bit positions of both sides in one plane, and their relative distance."""
    both = np.concatenate([a, b])
    points = principal_plane(both)(both)
    low, high = points.min(axis=0), points.max(axis=0)
    side = max(float((high - low).max()), 1e-12)
    places = np.round(((points - (low + high) / 2) / side + 0.5) * 65_535).astype(np.uint16)
    # The spread within each side, without the distance between the sides.
    spread = np.sqrt((((a - a.mean(axis=0)) ** 2).sum() + ((b - b.mean(axis=0)) ** 2).sum()) / len(both))
    return places.ravel(), float(np.sqrt(((a - b) ** 2).sum(axis=1).mean()) / max(float(spread), 1e-300))
