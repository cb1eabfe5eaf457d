"""The picture of a patch graph."""

import numpy as np

from graphquilt import PatchGraph
from graphquilt.drawing import layout


def ring_of_patches(p, size=20, shared=5):
    step = size - shared
    return PatchGraph.from_patches([(np.arange(size) + k * step) % (p * step) for k in range(p)])


def test_joined_patches_lie_near_each_other():
    patches = ring_of_patches(30)
    X = layout(30, patches.edges, seed=1)
    distance = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))
    joined = distance[patches.edges[:, 0], patches.edges[:, 1]].mean()
    assert joined < 0.6 * distance[np.triu_indices(30, 1)].mean()
    assert np.array_equal(X, layout(30, patches.edges, seed=1))
