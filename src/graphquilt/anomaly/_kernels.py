"""Sums over remembered windows, compiled: a streamed day must not cost more to score than to embed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.graph._kernels import jit

Array = npt.NDArray[Any]


@jit
def add_positions(rows: Array, nodes: Array, positions: Array, total: Array, count: Array) -> None:
    """Add the positions of one window to ``total[rows[node]]`` where that row exists, and count them."""
    for k in range(len(nodes)):
        at = rows[nodes[k]]
        if at >= 0:
            count[at] += 1
            for j in range(positions.shape[1]):
                total[at, j] += positions[k, j]


@jit
def add_distances(rows: Array, nodes: Array, positions: Array, mean: Array, total: Array, squares: Array) -> None:
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
