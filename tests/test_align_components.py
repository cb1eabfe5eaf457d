"""Components of a patch graph, each aligned alone."""

import numpy as np
import pytest
import scipy.sparse as sp

from graphquilt import Graph, align, align_components, centroid, patch_graph
from graphquilt.errors import InputError


def test_each_component_is_aligned_as_if_alone(caplog):
    rng = np.random.default_rng(0)
    one = np.roll(np.eye(60), 1, 0)
    graph = Graph(sp.block_diag([sp.csr_array(one + one.T)] * 2).tocsr())
    quilt = patch_graph(graph, np.arange(120) // 15, degree=2, overlap=(8, 12), components="each")
    assert quilt.placement_arbitrary
    X = rng.normal(size=(120, 3))
    patches = []
    for nodes in quilt.node_sets:
        Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        patches.append((nodes, X[nodes] @ Q + rng.normal(size=3)))
    alignment, component = align_components(patches, quilt.edges)
    assert np.array_equal(component, quilt.component)
    assert "arbitrary" in caplog.text
    assert alignment.edge_errors.max() < 1e-6
    Y = centroid(patches, alignment)
    for half in (slice(0, 60), slice(60, 120)):  # distances are right within a component
        distances = [np.linalg.norm(Z[half][:, None] - Z[half][None], axis=2) for Z in (X, Y)]
        assert np.allclose(*distances, atol=1e-6)


def test_one_component_is_plain_alignment():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20, 2))
    patches = [(np.arange(12), X[:12]), (np.arange(8, 20), X[8:] @ np.array([[0.0, 1], [-1, 0]]) + 2)]
    alignment, component = align_components(patches, [[0, 1]])
    plain = align(patches, [[0, 1]])
    assert component.tolist() == [0, 0]
    assert np.allclose(alignment.rotations, plain.rotations)
    assert np.allclose(alignment.translations, plain.translations)


def test_patches_without_edges_stay_where_they_are():
    X = np.random.default_rng(1).normal(size=(5, 2))
    alignment, component = align_components([(np.arange(5), X), (np.arange(5, 10), X)], [])
    assert component.tolist() == [0, 1]
    assert np.array_equal(alignment.apply(1, X), X)
    with pytest.raises(InputError, match=r"the edge \(0, 7\) names a patch that is not there; there are 2"):
        align_components([(np.arange(5), X), (np.arange(5), X)], [[0, 7]])
