"""Hierarchical alignment: align patches inside clusters of the patch graph, then the clusters, and so on up."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.centroids import centroid
from graphquilt.alignment.overlap import (
    PatchIndex,
    PatchLike,
    check_edges,
    check_overlap,
    edge_errors,
    index_patches,
    shared_rows,
)
from graphquilt.alignment.solve import AlignOptions, align, place
from graphquilt.alignment.transforms import Alignment
from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.errors import InputError
from graphquilt.linalg.laplacian import components
from graphquilt.patches import Patch

__all__ = ["align_hierarchical"]


def align_hierarchical(
    patches: Sequence[PatchLike],
    edges: npt.ArrayLike | None = None,
    *,
    branching: int = 100,
    clusters: npt.ArrayLike | None = None,
    options: AlignOptions = AlignOptions(),
    executor: Executor | None = None,
) -> Alignment:
    """Align many patches level by level: never more than about ``branching`` at a time.

    The patch graph is cut into clusters of about ``branching`` patches, each cluster is aligned on its own and becomes
    one patch (the centroid of its members), and the clusters are aligned the same way. Without noise the result is
    that of :func:`align`; with noise it costs a little accuracy and makes the largest problem small.

    Parameters
    ----------
    branching : int
        How many patches, or clusters, to align at once; at least 2.
    clusters : int array (p,), optional
        A cluster for each patch on the first level. A cluster whose patches do not hang together is split.
    executor : concurrent.futures.Executor, optional
        Who aligns the clusters of a level, one each.
    patches, edges, options
        As for :func:`align`, on every level.

    Returns
    -------
    Alignment
        Of all patches. Its eigenvalues and residual are the worst over all levels; an edge between clusters has the
        trust and the open directions of its two clusters.

    Examples
    --------
    >>> from graphquilt.synthetic import quilt
    >>> made = quilt(30, 2, seed=0)
    >>> bool(align_hierarchical(made.patches, made.edges, branching=6).edge_errors.max() < 1e-9)
    True
    """
    if not isinstance(branching, int | np.integer) or branching < 2:
        raise InputError(
            f"branching is how many patches are aligned at once, a whole number of at least 2; it is {branching}."
        )
    index = index_patches(patches)
    pairs = check_edges(index, edges)
    sizes = np.empty(len(pairs))
    for e, (i, j) in enumerate(pairs.tolist()):
        sizes[e] = len(shared_rows(index, i, j)[0])
        check_overlap(i, j, int(sizes[e]), least=options.motions.points_needed(index.dim), dim=index.dim)
    labels = _first_labels(clusters, index, pairs, sizes, branching)
    result = _level(patches, pairs, sizes, labels, branching=branching, options=options, executor=executor)
    errors = edge_errors(patches, index, pairs, partial(place, result), executor=executor)
    return replace(result, edges=pairs, edge_errors=errors, edge_weights=sizes * result.edge_trust)


def _first_labels(
    clusters: npt.ArrayLike | None, index: PatchIndex, edges: Int64Array, sizes: AnyArray, branching: int
) -> Int64Array:
    if clusters is None:
        return _cut(edges, sizes, index.n_patches, branching)
    given = np.asarray(clusters)
    if given.shape != (index.n_patches,):
        raise InputError(f"there are {index.n_patches} patches and clusters of shape {given.shape}; give one a patch.")
    return np.unique(given, return_inverse=True)[1].astype(np.int64)


def _cut(edges: Int64Array, weights: AnyArray, n: int, branching: int) -> Int64Array:
    """Cut a patch graph into clusters of about ``branching`` patches, cutting small overlaps rather than large ones."""
    if n <= branching:
        return np.zeros(n, dtype=np.int64)
    import scipy.sparse as sp

    from graphquilt.graph import Graph
    from graphquilt.partition import Metis

    i, j = edges.T
    A = sp.csr_array((np.r_[weights, weights], (np.r_[i, j], np.r_[j, i])), shape=(n, n))
    return np.asarray(Metis(n_patches=-(-n // branching))(Graph(A)), dtype=np.int64)


def _level(
    patches: Sequence[PatchLike],
    edges: Int64Array,
    sizes: AnyArray,
    labels: Int64Array,
    *,
    branching: int,
    options: AlignOptions,
    executor: Executor | None,
) -> Alignment:
    """Align one level and all above it; the result carries trust and open directions in the order of ``edges``."""
    p = len(labels)
    inside = labels[edges[:, 0]] == labels[edges[:, 1]]
    labels = components(edges[inside], p)  # what the labels join and the edges do not is split
    inside = labels[edges[:, 0]] == labels[edges[:, 1]]
    if labels.max() == 0 or labels.max() == p - 1:
        return align(patches, edges, options=options, executor=executor)
    lower, tops = _clusters(patches, edges[inside], labels, options, executor)
    across = np.sort(labels[edges[~inside]], axis=1)
    upper_edges, which = np.unique(across, axis=0, return_inverse=True)
    upper_sizes = np.bincount(which.ravel(), weights=sizes[~inside])
    upper_labels = _cut(upper_edges, upper_sizes, len(tops), branching)
    upper = _level(
        tops, upper_edges, upper_sizes, upper_labels, branching=branching, options=options, executor=executor
    )
    result = _worse(lower, upper).compose(upper.take(labels))
    trust, undetermined = np.empty(len(edges)), np.empty(len(edges), dtype=np.int64)
    trust[inside], undetermined[inside] = lower.edge_trust, lower.undetermined
    trust[~inside], undetermined[~inside] = upper.edge_trust[which.ravel()], upper.undetermined[which.ravel()]
    return replace(result, edges=edges, edge_trust=trust, undetermined=undetermined)


def _clusters(
    patches: Sequence[PatchLike],
    edges: Int64Array,
    labels: Int64Array,
    options: AlignOptions,
    executor: Executor | None,
) -> tuple[Alignment, list[Patch]]:
    """Align every cluster on its own: all their transforms in one Alignment, and each cluster as one patch."""
    members = [np.flatnonzero(labels == c) for c in range(int(labels.max()) + 1)]
    rows = [np.flatnonzero(labels[edges[:, 0]] == c) for c in range(len(members))]
    tasks = []
    for here, mine in zip(members, rows, strict=True):
        # A lazy sequence goes to the worker as it is, and the worker opens what it needs.
        part = {k: patches[k] for k in here.tolist()} if isinstance(patches, list | tuple) else patches
        tasks.append((part, here, np.searchsorted(here, edges[mine]), options))
    if executor is None:
        done = [_align_cluster(*task) for task in tasks]
    else:
        done = [future.result() for future in [executor.submit(_align_cluster, *task) for task in tasks]]
    whole = Alignment.identity(len(labels), done[0][0].dim)
    trust, undetermined = np.ones(len(edges)), np.zeros(len(edges), dtype=np.int64)
    for (aligned, _), here, mine in zip(done, members, rows, strict=True):
        for name in ("scales", "rotations", "translations"):
            getattr(whole, name)[here] = getattr(aligned, name)
        trust[mine], undetermined[mine] = aligned.edge_trust, aligned.undetermined
        whole = _worse(whole, aligned)
    return replace(whole, edges=edges, edge_trust=trust, undetermined=undetermined), [patch for _, patch in done]


def _align_cluster(
    patches: Any, members: Int64Array, edges: Int64Array, options: AlignOptions
) -> tuple[Alignment, Patch]:
    own = [patches[k] for k in members.tolist()]
    aligned = align(own, edges, options=options)
    nodes = np.unique(np.concatenate([np.asarray(ids) for ids, _ in own]))
    local = [(np.searchsorted(nodes, ids), X) for ids, X in own]
    return aligned, Patch(nodes, centroid(local, aligned, n_nodes=len(nodes)))


def _worse(one: Alignment, other: Alignment) -> Alignment:
    """Return ``one`` with the smaller spectral gap and the larger residual of the two."""
    loose = one if one.spectral_gap <= other.spectral_gap else other
    return replace(
        one,
        eigenvalues=loose.eigenvalues,
        next_residual=loose.next_residual,
        residual=max(one.residual, other.residual),
    )
