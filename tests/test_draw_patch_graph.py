"""The picture of a patch graph."""

import numpy as np
import pytest

from extras import needs
from graphquilt import PatchGraph
from graphquilt.report import draw_patch_graph
from graphquilt.report.pictures import layout


def ring_of_patches(p, size=20, shared=5):
    step = size - shared
    return PatchGraph.from_patches([(np.arange(size) + k * step) % (p * step) for k in range(p)])


@pytest.mark.parametrize("p", [1, 2, 12, 420])
def test_it_draws(tmp_path, p):
    needs("matplotlib")
    patches = ring_of_patches(p) if p > 1 else PatchGraph.from_patches([[0, 1, 2]])
    draw_patch_graph(patches, tmp_path / "patches.png")
    assert (tmp_path / "patches.png").read_bytes().startswith(b"\x89PNG")


def test_joined_patches_lie_near_each_other():
    patches = ring_of_patches(30)
    X = layout(30, patches.edges, seed=1)
    distance = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))
    joined = distance[patches.edges[:, 0], patches.edges[:, 1]].mean()
    assert joined < 0.6 * distance[np.triu_indices(30, 1)].mean()
    assert np.array_equal(X, layout(30, patches.edges, seed=1))


def test_components_are_called_arbitrary():
    needs("matplotlib")
    patches = PatchGraph.from_patches([[0, 1], [1, 2], [3, 4], [4, 5]], components="each")
    figure = draw_patch_graph(patches)
    assert "means nothing" in figure.axes[0].get_title()
