"""Align patches inside clusters of the patch graph, then the clusters with each other, and so on, level by level.

The statistics of two clusters are put together from those of the patch edges between them.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from itertools import starmap
from typing import NamedTuple

import numpy as np

from graphquilt.alignment import synchronisation
from graphquilt.alignment.connection import Connection
from graphquilt.alignment.fit import EdgeTable
from graphquilt.alignment.relative import Extents, edge_errors, turn_rows
from graphquilt.alignment.statistics import OverlapStatistics
from graphquilt.alignment.synchronisation import AlignOptions, synchronise
from graphquilt.alignment.transforms import Alignment, with_fixed_frame, with_worst_fit
from graphquilt.arrays import Float64Array, Int64Array, pieces
from graphquilt.linalg import nearest_orthogonal, unit
from graphquilt.linalg.laplacian import adjacency, components
from graphquilt.progress import ProgressCallback, report

SWEEPS = 5  # of the whole patch graph after the last level
CHUNK = 2**18  # entries of d × d matrices worked on at a time


def synchronise_levels(
    statistics: OverlapStatistics,
    edges: Int64Array,
    p: int,
    options: AlignOptions,
    *,
    executor: Executor | None,
    progress: ProgressCallback | None,
    extents: Extents | None = None,
) -> Alignment:
    """Align ``p`` patches from the statistics of ``edges (m, 2)``, level by level with a ``branching``."""
    if options.branching is None or p <= options.branching:
        extents = extents if options.branching is None else None
        return synchronise(statistics, edges, p, options, extents, progress=progress)
    level = _Level(statistics, edges, p, options.branching, options, executor, progress)
    polished = _polished(level, _align_level(level))
    report(progress, "synchronised", 1, 1)
    return with_fixed_frame(polished) if options.motions.rotate else polished


class _Level(NamedTuple):
    """The overlaps of one level (on the first those of patches, then those of clusters), and how to align them."""

    statistics: OverlapStatistics
    edges: Int64Array
    n: int
    branching: int
    options: AlignOptions
    executor: Executor | None
    progress: ProgressCallback | None
    number: int = 1


def _cut(level: _Level) -> Int64Array:
    """Cut a patch graph into clusters of about ``branching`` patches, cutting small overlaps rather than large ones."""
    from graphquilt.graph import Graph
    from graphquilt.patches import default_partitioner

    graph = Graph(adjacency(level.edges, level.statistics.sizes, level.n))
    return np.asarray(default_partitioner(-(-level.n // level.branching))(graph), dtype=np.int64)


def _align_level(level: _Level) -> Alignment:
    """Align one level and all above it; of each edge the result knows the undetermined directions."""
    p, edges, options = level.n, level.edges, level.options
    labels = np.zeros(p, dtype=np.int64) if p <= level.branching else _cut(level)
    inside = labels[edges[:, 0]] == labels[edges[:, 1]]
    labels = components(edges[inside], p)  # a cluster whose patches are not connected is split
    count = int(labels.max()) + 1
    if count in (1, p):
        return synchronise(level.statistics, edges, p, options, progress=level.progress)
    whole, what = (level.statistics, edges, labels, options), f"clusters of level {level.number}"
    lower = synchronise_parts(*whole, executor=level.executor, progress=level.progress, what=what)
    pairs, which = np.unique(np.sort(labels[edges[~inside]], axis=1), axis=0, return_inverse=True)
    joined = _joined(level.statistics, edges, np.flatnonzero(~inside), which.ravel(), lower=lower, labels=labels)
    upper = _align_level(level._replace(statistics=joined, edges=pairs, n=count, number=level.number + 1))
    lower.undetermined[~inside] = upper.undetermined[which.ravel()]
    _move(lower, upper, labels)
    return with_worst_fit(lower, [lower, upper])


def _move(lower: Alignment, upper: Alignment, labels: Int64Array) -> None:
    """Let the patches follow their clusters: ``lower.compose(upper.take(labels))``, without another copy of all."""
    for rows in pieces(lower.n_patches, CHUNK // lower.dim**2):
        here = np.arange(lower.n_patches)[rows]
        part = lower.take(here).compose(upper.take(labels[here]))
        lower.scales[here], lower.rotations[here] = part.scales, part.rotations
        lower.translations[here] = part.translations


def synchronise_parts(
    statistics: OverlapStatistics,
    edges: Int64Array,
    labels: Int64Array,
    options: AlignOptions,
    *,
    executor: Executor | None,
    progress: ProgressCallback | None,
    what: str,
    extents: Extents | None = None,
) -> Alignment:
    """Align the patches of each of the ``labels (p,)`` alone; the result has the worst figures of all of them."""
    m, part_of = len(edges), np.where(labels[edges[:, 0]] == labels[edges[:, 1]], labels[edges[:, 0]], -1)
    several = np.flatnonzero(np.bincount(labels) > 1).tolist()
    members, rows = ({c: np.flatnonzero(of == c) for c in several} for of in (labels, part_of))

    def task(c: int) -> tuple[object, ...]:
        measured, pairs = statistics.take(rows[c]), np.searchsorted(members[c], edges[rows[c]])
        return measured, pairs, len(members[c]), options, None if extents is None else extents.take(members[c])

    table = EdgeTable(edges, np.zeros(m), statistics.sizes.copy(), np.ones(m), np.zeros(m, dtype=np.int64))
    whole = replace(Alignment.identity(len(labels), statistics.dim), edge_table=table, robust=options.robust)
    whole = worst = replace(whole, motions=options.motions)
    tasks = map(task, several)
    parts = starmap(synchronise, tasks) if executor is None else executor.map(synchronise, *zip(*tasks, strict=True))
    for done, (c, part) in enumerate(zip(several, parts, strict=True)):
        whole.scales[members[c]], whole.translations[members[c]] = part.scales, part.translations
        whole.rotations[members[c]] = part.rotations
        for name in ("errors", "weights", "trust", "undetermined"):
            getattr(table, name)[rows[c]] = getattr(part.edge_table, name)
        worst = with_worst_fit(whole, [part, worst])
        report(progress, what, done + 1, len(several))
    return worst


def _joined(
    statistics: OverlapStatistics,
    edges: Int64Array,
    rows: Int64Array,
    which: Int64Array,
    *,
    lower: Alignment,
    labels: Int64Array,
) -> OverlapStatistics:
    """Put the statistics of the edges ``rows (r,)`` together to those of the pairs of clusters ``which (r,)``.

    Spread and product of such an overlap have a part inside the overlaps of the edges, and one between their means.
    """
    m, d = int(which.max()) + 1, statistics.dim
    ends = edges[rows]
    turn = labels[ends[:, 0]] > labels[ends[:, 1]]  # edges that lead from the second cluster to the first
    ends[turn] = ends[turn, ::-1]
    sides = np.where(turn[:, None], [[1, 0]], [[0, 1]])
    points = np.take_along_axis(statistics.means[rows], sides[:, :, None], axis=1)
    places = [turn_rows(points[:, s], lower.rotations, ends[:, s]) for s in range(2)]
    means = lower.scales[ends, None] * np.stack(places, axis=1) + lower.translations[ends]
    size = unit(means, statistics.spreads[rows] * lower.scales[edges[rows]])
    means /= size
    spreads = np.take_along_axis(statistics.spreads[rows], sides, axis=1) * lower.scales[ends] / size
    weights = statistics.sizes[rows]
    total = np.bincount(which, weights=weights, minlength=m).astype(np.float64)
    centres = np.zeros((m, 2, d))
    np.add.at(centres, which, (weights / total[which])[:, None, None] * means)
    means -= centres[which]
    squares = spreads**2 + weights[:, None] * (means**2).sum(axis=2)
    together = np.stack([np.sqrt(np.bincount(which, weights=squares[:, s], minlength=m)) for s in range(2)], axis=1)
    products = np.zeros((m, d, d))
    for here in pieces(len(rows), CHUNK // d**2):
        part = statistics.products[rows[here]].astype(np.float64)
        part[turn[here]] = part[turn[here]].transpose(0, 2, 1)
        part = lower.rotations[ends[here, 0]].transpose(0, 2, 1) @ part @ lower.rotations[ends[here, 1]]
        part *= (spreads[here, 0] * spreads[here, 1])[:, None, None]
        part += weights[here, None, None] * means[here, 0, :, None] * means[here, 1, None, :]
        np.add.at(products, which[here], part)
    norms = together[:, 0] * together[:, 1]
    products /= np.where(norms > 0, norms, 1)[:, None, None]
    products = products.astype(statistics.products.dtype, copy=False)
    counts = np.bincount(which, weights=statistics.counts[rows], minlength=m).astype(np.int64)
    return OverlapStatistics(counts, total, size * centres, size * together, products)


def _polished(level: _Level, alignment: Alignment) -> Alignment:
    """Improve the rotations by sweeps over all edges, and find the scales and translations of all edges."""
    statistics, edges, p, options = level.statistics, level.edges, level.n, level.options
    trust, doubt = np.ones(len(edges)), np.ones(len(edges))
    current, undetermined = alignment, alignment.undetermined
    del alignment  # its rotations take much memory
    for judgement in range(1 + (synchronisation.JUDGEMENTS if options.robust else 0)):
        if options.robust:
            trust = synchronisation.edge_trust(statistics, edges, edge_errors(statistics, edges, current))
            if judgement and np.array_equal(trust, current.edge_trust):
                break
        if options.motions.scale:
            scales, doubt = synchronisation.scale_step(statistics, edges, trust, p, robust=options.robust)
            current = replace(current, scales=scales)
        if options.motions.rotate:
            current = replace(current, rotations=_swept(level, current.rotations, trust * doubt))
        if options.motions.translate:
            moves = current.scales, current.rotations
            shift = synchronisation.translation_step(statistics, edges, *moves, trust * doubt, robust=options.robust)
            current = replace(current, translations=shift)
        errors = edge_errors(statistics, edges, current)
        table = EdgeTable(edges, np.minimum(errors, 1), statistics.sizes * trust, trust, undetermined)
        current = replace(current, edge_table=table)
    return current


def _swept(level: _Level, rotations: Float64Array, trust: Float64Array) -> Float64Array:
    """Turn every patch to fit all its neighbours at once, several times (generalised Procrustes analysis).

    A sweep is a step of the power method with the products, in which directions of little extent count little.
    """
    statistics, (p, d, _) = level.statistics, rotations.shape
    connection = Connection(level.edges, statistics.products, statistics.sizes * trust, p)
    scaled = np.sqrt(connection.degrees)[:, None, None]
    current = rotations.astype(statistics.products.dtype)
    X, image = current.reshape(p * d, d), np.empty((p * d, d), dtype=current.dtype)
    for sweep in range(SWEEPS):
        current *= scaled.astype(current.dtype)
        # The singular values of a product sum to 1: d A X is as large as X, and A X is X - L X.
        connection(X, image, (-float(d), 1.0 + d, 0.0))
        blocks = image.reshape(p, d, d)
        for here in pieces(p, CHUNK // d**2):
            current[here] = nearest_orthogonal(blocks[here])
        report(level.progress, "polishing sweeps", sweep + 1, SWEEPS)
    del X, image, blocks  # as large as the result
    return current.astype(np.float64)
