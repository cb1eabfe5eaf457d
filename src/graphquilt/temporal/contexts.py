"""Contexts: clusters of hosts by their usual positions, and how unlike itself the mixture is that a host talks to.

A context is a cluster of the hosts of one side, by the directions of their usual positions. Its centre moves on from
window to window and keeps its number, so the mixture of contexts that a host talks to in a window can be compared with
the same host's earlier mixtures: no window is rotated onto another one for that.
"""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import AnyArray, Float32Array, Float64Array, Int64Array

CONTEXTS = 16  # clusters of each side
_SAMPLE = 20_000  # hosts that centres are computed from at most
_STEPS = 3  # of Lloyd's algorithm per window
_PRIOR = 2.0  # earlier windows of a host that count as much as the mixture of all hosts
_LEAST = 0.5 / CONTEXTS  # pseudo-count of each context


def move_centres(centres: Float32Array, positions: Float32Array, seed: tuple[int, ...]) -> Float32Array:
    """Move the centres (contexts, dim) to the means of the nearest directions of positions (k, dim).

    Centres that are all zero begin at positions far from each other.
    """
    rng = np.random.default_rng(list(seed))
    rows = positions if len(positions) <= _SAMPLE else positions[rng.choice(len(positions), _SAMPLE, replace=False)]
    X = _directions(rows)
    if len(X) < CONTEXTS:
        return centres
    C = centres.astype(np.float64) if centres.any() else _spread_out(X, rng)
    for _ in range(_STEPS):
        nearest = np.argmax(X @ C.T, axis=1)
        for k in np.unique(nearest):
            C[k] = X[nearest == k].mean(axis=0)
        C = _directions(C)
    return C.astype(np.float32)


def _spread_out(X: Float64Array, rng: np.random.Generator) -> Float64Array:
    """Choose rows one by one, each with a probability that grows with its distance from those before (k-means++)."""
    chosen = [int(rng.integers(len(X)))]
    distance = np.full(len(X), np.inf)
    while len(chosen) < CONTEXTS:
        distance = np.minimum(distance, np.maximum(1.0 - X @ X[chosen[-1]], 0.0))
        total = float(distance.sum())
        chosen.append(int(rng.choice(len(X), p=distance / total)) if total > 0 else int(rng.integers(len(X))))
    return X[chosen]


def nearest_contexts(centres: Float32Array, positions: AnyArray) -> Int64Array:
    """Return the context of each position (k, dim)."""
    return np.asarray(np.argmax(_directions(positions) @ centres.T.astype(np.float64), axis=1), dtype=np.int64)


def _directions(X: AnyArray) -> Float64Array:
    X = np.asarray(X, dtype=np.float64)
    return np.asarray(X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12))


def count_contexts(rows: Int64Array, contexts: Int64Array, size: int) -> Float64Array:
    """Return how many partners of each row lie in each context, (size, contexts)."""
    counts = np.bincount(rows * CONTEXTS + contexts, minlength=size * CONTEXTS)
    return counts.reshape(size, CONTEXTS).astype(np.float64)


def compare_mixtures(counts: Float64Array, usual: AnyArray, windows: AnyArray) -> Float64Array:
    r"""Return how unlike its earlier mixtures the partners of each host are, (k,); NaN for hosts without a past.

    With counts c of partners by context and shares m expected from the host's earlier windows and from all hosts, this
    is :math:`\sqrt{2 \sum_k c_k \log(c_k / (m_k \sum c))}`, the root of the deviance of a multinomial model.
    """
    n = counts.sum(axis=1)
    everyone = (counts.sum(axis=0) + 1.0) / (n.sum() + CONTEXTS)
    expected = (windows[:, None] * usual + _PRIOR * everyone + _LEAST) / (windows + _PRIOR + CONTEXTS * _LEAST)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(counts > 0, counts * np.log(counts / (expected * n[:, None])), 0.0)
    deviance = np.sqrt(2 * np.maximum(terms.sum(axis=1), 0.0))
    return np.where((windows > 0) & (n > 0), deviance, np.nan)
