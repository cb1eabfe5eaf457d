"""Rounds that find the main directions of wide features by sums, where no survey of the whole graph has found them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float32Array
from graphquilt.embedders.directions import Basis, grid_product, orthonormal
from graphquilt.embedders.far_tables import GROWTH, PROBES, ROUNDS, probes
from graphquilt.embedders.shared_start import Arrays
from graphquilt.embedders.signals import check_features, feature_width, inverse_lengths, row_scale, times
from graphquilt.embedders.walks import walk_in
from graphquilt.graph import Graph

__all__ = ["after_round", "round_product"]


def round_product(graph: Graph, start: Arrays | None, count: int, *, restart: float, steps: int) -> AnyArray:
    """Return H' H V + X' X V (w, b) as whole numbers, for raw features X, spread ones H, and the current block V.

    The lengths of the rows of H are estimated by the same probes in every round and everywhere.
    """
    X, width = graph.features, feature_width(graph)
    assert X is not None
    check_features(graph)
    scale = row_scale(graph)[:, None]
    walk = walk_in(graph, None, tables=False)
    root = (1 / np.sqrt(walk.scale[0])).astype(np.float32)[:, None]

    def spread(Y: Float32Array) -> Float32Array:  # its own transpose
        H = Y / root
        for H in walk.of_values(H, None, restart=restart, steps=steps):  # noqa: B007, B020
            pass
        return np.asarray(H * root)

    V = probes(width, count) if start is None else _basis(start).block
    length = inverse_lengths(np.square(spread(scale * times(X, probes(width, PROBES)))).sum(axis=1))[:, None]
    raw = scale * times(X, V)
    both = raw + spread(np.square(length) * spread(raw))
    unit = sp.csr_array(sp.diags_array(scale.ravel()) @ X) if isinstance(X, sp.csr_array) else scale * X
    return grid_product(unit, both)


def after_round(start: Arrays | None, product: AnyArray, count: int) -> dict[str, AnyArray]:
    """Return the start after a round whose sum is ``product`` (w, b): the basis, or what the next round needs."""
    if start is None:  # the first round only finds where to begin
        basis = Basis(orthonormal(product))
    else:
        basis = _basis(start)
        basis.take(product, count)
    if basis.settled(GROWTH) or len(basis.kept) >= ROUNDS:
        return {"basis": basis.directions(count)}
    return {"blocks": basis.blocks, "products": basis.products, "kept": np.array(basis.kept)}


def _basis(start: Arrays) -> Basis:
    return Basis.of(*(np.asarray(start[name]) for name in ("blocks", "products", "kept")))
