"""Which pairs of patches are compared: the checks of edges, with messages that name the patches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import Int64Array, IntArray, refuse_masked
from graphquilt.errors import DisconnectedError, InputError, OverlapError, counted
from graphquilt.linalg import components

__all__ = ["check_connected", "check_overlap", "checked_pairs", "overlapping_pairs"]


def checked_pairs(edges: npt.ArrayLike, p: int) -> Int64Array:
    """Return ``edges (m, 2)`` as they are, after checking that they are distinct pairs of ``p`` patches."""
    refuse_masked(edges=edges)
    array = np.asarray(edges) if np.size(edges) else np.empty((0, 2), dtype=np.int64)
    if array.shape[1:] != (2,) or not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            f"edges are pairs of patch numbers (m, 2); these have shape {array.shape} and type {array.dtype}."
        )
    outside = array[(array < 0).any(axis=1) | (array >= p).any(axis=1)]
    if len(outside):
        raise InputError(
            f"the edge {tuple(outside[0].tolist())} names a patch that is not there; there are {p}, 0 to {p - 1}."
        )
    loops = array[array[:, 0] == array[:, 1]]
    if len(loops):
        raise InputError(f"the edge {tuple(loops[0].tolist())} joins a patch to itself; drop it.")
    pairs = np.sort(array.astype(np.int64), axis=1)
    unique, counts = np.unique(pairs[:, 0] * p + pairs[:, 1], return_counts=True)
    if len(unique) < len(pairs):
        twice = divmod(int(unique[counts.argmax()]), p)
        raise InputError(f"the edge {twice} is given {counts.max()} times; keep one.")
    return array.astype(np.int64)


def check_connected(
    pairs: Int64Array, names: Sequence[object], *, node_sets: Sequence[IntArray] | None = None, dim: int = 0
) -> None:
    """Refuse ``pairs (m, 2)`` that do not join all patches, which the error calls by their ``names (p,)``.

    With ``node_sets``, the pairs are those that share dim + 1 nodes, and the error says how many more are needed.
    """
    labels = components(pairs, len(names))
    if labels.max() > 0:
        raise DisconnectedError(
            _apart(labels, names) if node_sets is None else _too_little(labels, names, node_sets, dim)
        )


def check_overlap(i: object, j: object, share: int, *, least: int, dim: int) -> None:
    """Refuse an edge between the patches named i and j that share fewer than ``least`` nodes."""
    if share < least:
        raise OverlapError(
            f"patches {i} and {j} share {share} nodes; aligning in {dim} dimensions needs at least {least}. "
            f"Drop the edge ({i}, {j}), enlarge the overlap"
            + (f", or embed in at most {share - 1} dimensions." if share > 1 else ".")
        )


def overlapping_pairs(node_sets: Sequence[IntArray], least: int) -> Int64Array:
    """Return all pairs of patches ``(m, 2)``, i < j, that share at least ``least`` nodes."""
    shared = _shared(node_sets)
    enough = shared.data >= least
    pairs = np.stack([shared.row[enough], shared.col[enough]], axis=1).astype(np.int64)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def _shared(node_sets: Sequence[IntArray]) -> sp.coo_array:
    """Count the shared nodes of all pairs of patches, by one product of the patch-node incidence with its transpose."""
    ids, columns = np.unique(np.concatenate(node_sets), return_inverse=True)
    indptr = np.cumsum([0, *(len(nodes) for nodes in node_sets)])
    ones, shape = np.ones(len(columns), dtype=np.int32), (len(node_sets), len(ids))
    incidence = sp.csr_array((ones, columns.ravel(), indptr), shape=shape)
    return sp.coo_array(sp.triu(incidence @ incidence.T, k=1))


def _too_little(labels: Int64Array, names: Sequence[object], node_sets: Sequence[IntArray], dim: int) -> str:
    """Say which groups share too few nodes, how many they share, and how many are needed."""
    shared = _shared(node_sets)
    between = np.where(labels[shared.row] != labels[shared.col], shared.data, 0)
    most, less = int(between.max(initial=0)), ""
    found = "no two groups have any"
    if most > 0:
        k = int(between.argmax())
        found = f"of two groups, {names[shared.row[k]]} and {names[shared.col[k]]} have the most: {most}"
    if most > 1:
        less = f", embed in at most {counted(most - 1, 'dimension')}"
    count, named, _ = _groups(labels, names)
    return (
        f"the patches fall into {count} groups that have too few ids in common: {named}. Two patches in "
        f"{counted(dim, 'dimension')} need at least {dim + 1}, and {found}. Give patches with more ids "
        f"in common{less}, or align each group on its own."
    )


def _apart(labels: Int64Array, names: Sequence[object]) -> str:
    count, named, lonely = _groups(labels, names)
    alone = f" Patches with no edge: {_shortened(lonely)}." if lonely else ""
    return (
        f"the patches fall into {count} groups with no edge between them: {named}.{alone} Add edges that join the "
        "groups, or align each group on its own."
    )


def _groups(labels: Int64Array, names: Sequence[object]) -> tuple[int, str, list[object]]:
    """Return the number of groups, the patches in each as text, and the patches that are alone."""
    groups = [[names[k] for k in np.flatnonzero(labels == c).tolist()] for c in np.unique(labels)]
    groups.sort(key=len, reverse=True)
    named = "; ".join("{" + _shortened(group) + "}" for group in groups[:8]) + ("; …" if len(groups) > 8 else "")
    return len(groups), named, [group[0] for group in groups if len(group) == 1]


def _shortened(names: Sequence[object]) -> str:
    if len(names) <= 12:
        return ", ".join(map(str, names))
    return ", ".join(map(str, names[:10])) + f", … {len(names)} in all"
