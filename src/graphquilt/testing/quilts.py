"""Make alignment problems with known answers: points cut into patches, each moved by a different similarity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.patches import Patch


@dataclass(frozen=True, eq=False)
class Quilt:
    """An alignment problem: patches as an embedding method would return them, and the true positions and motions.

    The truth of patch k, but for noise, is ``scales[k] * X @ rotations[k] + translations[k]``.
    """

    patches: Sequence[Patch]
    edges: Int64Array  # (m, 2)
    points: Float64Array  # (n, d), the true positions of the nodes
    scales: Float64Array  # (p,)
    rotations: Float64Array  # (p, d, d)
    translations: Float64Array  # (p, d)
    wrong: Int64Array  # (k,), the rows of the edges whose overlaps are wrong


def random_rotations(n: int, dim: int, rng: np.random.Generator) -> Float64Array:
    """Return ``n`` orthogonal matrices (n, dim, dim), reflections included, uniform over O(dim)."""
    Q, R = np.linalg.qr(rng.normal(size=(n, dim, dim)))
    return np.asarray(Q * np.sign(np.einsum("nii->ni", R))[:, None, :])


def ring_with_chords(n: int, degree: int, rng: np.random.Generator) -> Int64Array:
    """Return the edges (m, 2), i < j, of a ring on ``n`` vertices with random chords up to a mean ``degree``."""
    n_edges = min(n * (n - 1) // 2, max(n if n > 2 else n - 1, n * degree // 2))
    edges = {(k, k + 1) for k in range(n - 1)} | ({(0, n - 1)} if n > 2 else set())
    while len(edges) < n_edges:
        i, j = sorted(rng.integers(n, size=2).tolist())
        if i != j:
            edges.add((i, j))
    return np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)


def quilt(
    n_patches: int,
    dim: int,
    *,
    degree: int = 4,
    overlap: int | None = None,
    noise: float = 0.0,
    scaled: bool = False,
    wrong: float = 0.0,
    seed: int = 0,
) -> Quilt:
    """Make patches with known motions whose patch graph is a ring with chords.

    Parameters
    ----------
    overlap : int, optional
        Number of nodes that are shared by the two patches of an edge and no other; 2 * dim by default.
    noise : float
        Standard deviation of what is added to every coordinate, as a share of the spread of the points (which is 1).
    scaled : bool
        Give each patch a different scale, between 1/3 and 3.
    wrong : float
        Share of the overlaps that are turned by a random rotation in one of their two patches; no patch loses more
        than half of its edges, beyond which nothing could tell right from wrong.

    Examples
    --------
    >>> example = quilt(5, 3, seed=1)
    >>> len(example.patches), len(example.edges), example.points.shape
    (5, 10, (70, 3))
    """
    rng = np.random.default_rng(seed)
    edges = ring_with_chords(n_patches, degree, rng)
    share = 2 * dim if overlap is None else overlap
    unshared = max(1, dim // 4) + 1 if n_patches > 1 else share
    # Nodes 0..m*share-1 belong to the overlaps, edge after edge; then each patch has a few that no other has.
    start = len(edges) * share
    points = rng.normal(size=(start + n_patches * unshared, dim))
    members = [list(range(start + k * unshared, start + (k + 1) * unshared)) for k in range(n_patches)]
    for e, (i, j) in enumerate(edges.tolist()):
        for k in (i, j):
            members[k] += range(e * share, (e + 1) * share)
    scales = np.exp(rng.uniform(-np.log(3), np.log(3), n_patches)) if scaled else np.ones(n_patches)
    rotations = random_rotations(n_patches, dim, rng)
    translations = 3 * rng.normal(size=(n_patches, dim))
    wrong_edges = _wrong_edges(edges, n_patches, round(wrong * len(edges)), rng)
    patches = []
    for k in range(n_patches):
        nodes = np.sort(np.array(members[k], dtype=np.int64))
        measured = points[nodes] + noise * rng.normal(size=(len(nodes), dim))
        for e in wrong_edges[edges[wrong_edges, 1] == k].tolist():
            rows = np.flatnonzero((nodes >= e * share) & (nodes < (e + 1) * share))
            measured[rows] = measured[rows] @ random_rotations(1, dim, rng)[0]
        patches.append(Patch(nodes, (measured - translations[k]) @ rotations[k].T / scales[k]))
    return Quilt(patches, edges, points, scales, rotations, translations, wrong_edges)


def _wrong_edges(edges: Int64Array, n: int, count: int, rng: np.random.Generator) -> Int64Array:
    """Choose ``count`` edges at random, but no more than half of those at any vertex."""
    allowed = np.bincount(edges.ravel(), minlength=n) // 2
    chosen: list[int] = []
    for e in rng.permutation(len(edges)).tolist() if count else []:
        if len(chosen) < count and np.all(allowed[edges[e]] > 0):
            allowed[edges[e]] -= 1
            chosen.append(e)
    return np.array(sorted(chosen), dtype=np.int64)


def patchwork(rows: int = 6, columns: int = 10, *, per_patch: int = 60, noise: float = 0.01, seed: int = 0) -> Quilt:
    """Cut a rectangle of points into ``rows * columns`` squares that overlap by a third, each moved in its own way.

    Examples
    --------
    >>> len(patchwork().patches)
    60
    """
    rng = np.random.default_rng(seed)
    p = rows * columns
    points = rng.uniform(0, 1, size=(p * per_patch // 2, 2)) * [columns, rows]
    corners = np.array([[k % columns, k // columns] for k in range(p)])
    rotations = random_rotations(p, 2, rng)
    translations = rng.uniform(-1, 1, size=(p, 2)) * [columns / 2, rows / 2]
    patches, node_sets = [], []
    for k, corner in enumerate(corners):
        inside = np.flatnonzero(np.all(np.abs(points - corner - 0.5) <= 0.75, axis=1))
        measured = points[inside] + noise * rng.normal(size=(len(inside), 2))
        patches.append(Patch(inside, (measured - corner - translations[k]) @ rotations[k].T))
        node_sets.append(set(inside.tolist()))
    edges = [(i, j) for i in range(p) for j in range(i + 1, p) if len(node_sets[i] & node_sets[j]) > 3]
    pairs, none = np.array(edges, dtype=np.int64), np.empty(0, dtype=np.int64)
    return Quilt(patches, pairs, points, np.ones(p), rotations, translations + corners, none)
