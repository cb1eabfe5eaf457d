"""Sums over remembered windows, compiled: a streamed day must not cost more to score than to embed."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.kernels import kernel


@kernel("mean positions", writes=("total", "count"))
def add_positions(rows: AnyArray, nodes: AnyArray, positions: AnyArray, total: AnyArray, count: AnyArray) -> None:
    """Add the positions of one window to ``total[rows[node]]`` where that row exists, and count them."""
    for k in range(len(nodes)):
        at = rows[nodes[k]]
        if at >= 0:
            count[at] += 1
            for j in range(positions.shape[1]):
                total[at, j] += positions[k, j]


@kernel("anomaly scores", writes=("total", "squares"))
def add_distances(
    rows: AnyArray, nodes: AnyArray, positions: AnyArray, mean: AnyArray, total: AnyArray, squares: AnyArray
) -> None:
    """Add the distances of one window's positions from ``mean``, and their squares."""
    for k in range(len(nodes)):
        at = rows[nodes[k]]
        if at >= 0:
            square = 0.0
            for j in range(positions.shape[1]):
                step = positions[k, j] - mean[at, j]
                square += step * step
            total[at] += np.sqrt(square)
            squares[at] += square
