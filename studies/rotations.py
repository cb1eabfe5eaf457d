"""Relative rotations with a known answer, for tests and benchmarks of their synchronisation."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.linalg import nearest_orthogonal
from graphquilt.testing import random_rotations
from graphquilt.testing.quilts import ring_with_chords

__all__ = ["rotation_measurements"]


def rotation_measurements(
    n: int, dim: int, *, degree: int, noise: float, seed: int = 0
) -> tuple[Int64Array, Float64Array, Float64Array]:
    """Return edges (m, 2), noisy relative rotations (m, d, d) and the true rotations (n, d, d) behind them.

    Noise moves each entry of a relative rotation by ``noise / sqrt(dim)`` times a normal variable, before it is made
    orthogonal again.
    """
    rng = np.random.default_rng(seed)
    edges = ring_with_chords(n, degree, rng)
    edges = edges[np.lexsort(edges.T)]
    truth = random_rotations(n, dim, rng)
    measured = truth[edges[:, 0]] @ truth[edges[:, 1]].transpose(0, 2, 1)
    if noise > 0:
        measured = nearest_orthogonal(measured + noise / np.sqrt(dim) * rng.normal(size=measured.shape))
    return edges, measured, truth
