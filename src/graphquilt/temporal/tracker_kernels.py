"""Compiled sums over remembered windows, so that scoring a window costs no more than embedding it."""

from __future__ import annotations

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.kernels import kernel


@kernel("mean positions", writes=("total", "count"))
def add_positions(rows: AnyArray, nodes: AnyArray, positions: AnyArray, total: AnyArray, count: AnyArray) -> None:
    """Add the positions of one window to ``total[rows[node]]`` where that row exists, and count them."""
    for k in range(len(nodes)):
        row = rows[nodes[k]]
        if row >= 0:
            count[row] += 1
            for j in range(positions.shape[1]):
                total[row, j] += positions[k, j]


@kernel("anomaly scores", writes=("total", "squares"))
def add_distances(
    rows: AnyArray, nodes: AnyArray, positions: AnyArray, mean: AnyArray, total: AnyArray, squares: AnyArray
) -> None:
    """Add the distances between the positions of one window and ``mean``, and add the squares of these distances."""
    for k in range(len(nodes)):
        row = rows[nodes[k]]
        if row >= 0:
            square = 0.0
            for j in range(positions.shape[1]):
                step = positions[k, j] - mean[row, j]
                square += step * step
            total[row] += np.sqrt(square)
            squares[row] += square
