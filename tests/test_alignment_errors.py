"""What bad input gets: the right class, the patch, the numbers and the remedy."""

import numpy as np
import pytest

import graphquilt as gq
from graphquilt.testing import quilt


@pytest.fixture
def made():
    return quilt(4, 2, seed=0)


def changed(made, k, nodes=None, coordinates=None):
    patches = [tuple(patch) for patch in made.patches]
    patches[k] = (patches[k][0] if nodes is None else nodes, patches[k][1] if coordinates is None else coordinates)
    return patches


def refused(error, match, patches, edges=None, **options):
    for branching in (None, 2):
        with pytest.raises(error, match=match):
            gq.align(patches, edges, branching=branching, **options)


def test_ids_and_rows_of_different_length(made):
    nodes, X = made.patches[2]
    refused(
        gq.errors.InputError,
        rf"patch 2: {len(nodes)} node ids and {len(nodes) - 1} rows",
        changed(made, 2, None, X[:-1]),
    )


def test_repeated_ids(made):
    nodes, _ = made.patches[1]
    twice = np.r_[nodes[:-1], nodes[0]]
    refused(
        gq.errors.InputError,
        f"patch 1: 1 node ids occur more than once, the first is {nodes[0]}",
        changed(made, 1, twice),
    )


def test_negative_ids(made):
    nodes, _ = made.patches[3]
    refused(
        gq.errors.InputError, "patch 3: node ids must not be negative; found -5", changed(made, 3, np.r_[-5, nodes[1:]])
    )


def test_ids_that_are_not_integers(made):
    nodes, _ = made.patches[0]
    refused(gq.errors.InputError, "patch 0: node ids must be integers, not float64", changed(made, 0, nodes + 0.5))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_coordinates_that_are_not_finite(made, value):
    nodes, X = made.patches[1]
    spoilt = X.copy()
    spoilt[3, 1] = value
    refused(
        gq.errors.InputError,
        f"patch 1: 1 of {len(X)} rows of coordinates are not finite, the first is that of node {nodes[3]}",
        changed(made, 1, None, spoilt),
    )


def test_patches_of_different_dimension(made):
    _, X = made.patches[2]
    refused(
        gq.errors.InputError, "patch 2 has 3 dimensions and patch 0 has 2", changed(made, 2, None, np.c_[X, X[:, 0]])
    )


def test_an_overlap_below_d_plus_one():
    a, b = np.arange(15), np.arange(3, 18)
    X = np.random.default_rng(0).normal(size=(15, 64))
    refused(
        gq.errors.OverlapError,
        r"patches 0 and 1 share 12 nodes; aligning in 64 dimensions needs at least 65\. "
        r"Drop the edge \(0, 1\), enlarge the overlap, or embed in at most 11 dimensions",
        [(a, X), (b, X)],
        [(0, 1)],
    )


def test_edges_that_make_no_sense(made):
    rows = made.edges.tolist()
    refused(
        gq.errors.InputError,
        r"the edge \(1, 9\) names a patch that is not there; there are 4",
        made.patches,
        [*rows, [1, 9]],
    )
    refused(gq.errors.InputError, r"the edge \(-1, 2\) names a patch", made.patches, [*rows, [-1, 2]])
    refused(gq.errors.InputError, r"the edge \(2, 2\) joins a patch to itself", made.patches, [*rows, [2, 2]])
    refused(gq.errors.InputError, r"the edge \(0, 1\) is given 2 times", made.patches, [*rows, [1, 0]])
    refused(gq.errors.InputError, r"edges are pairs of patch numbers", made.patches, [[0, 1, 2]])
    refused(gq.errors.InputError, r"edges are pairs of patch numbers", made.patches, [[0.5, 1.5]])


def test_a_patch_with_no_edge_and_several_components():
    made = quilt(40, 2, degree=2, seed=1)
    edges = made.edges[~np.isin(made.edges, [5, 20]).any(axis=1)]
    refused(
        gq.errors.DisconnectedError,
        r"the patches fall into 4 groups .*\{0, 1, 2, 3, 4, 21, .* 24 in all\}; "
        r"\{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, … 14 in all\}; \{5\}; \{20\}",
        made.patches,
        edges,
    )
    assert issubclass(gq.errors.DisconnectedError, gq.errors.InputError)
    refused(gq.errors.DisconnectedError, "fall into 40 groups", made.patches, np.empty((0, 2), dtype=int))


def test_patches_that_share_nothing_are_not_returned_as_aligned():
    X = np.random.default_rng(0).normal(size=(6, 2))
    refused(
        gq.errors.DisconnectedError,
        "need at least 3, and no two groups have any",
        [(np.arange(6), X), (np.arange(6, 12), X)],
    )


def test_no_patches():
    refused(gq.errors.InputError, "there are no patches", [])
    refused(gq.errors.InputError, "at least one node", [(np.empty(0, dtype=int), np.empty((0, 2)))])


def test_what_is_not_a_pair():
    refused(gq.errors.InputError, "patch 0 is not a", [np.arange(3)])
    refused(gq.errors.InputError, "patch 0: a patch is a vector of ids", [(np.arange(3), np.arange(3.0))])


def test_an_overlap_that_is_one_point(made):
    _, X = made.patches[2]
    point = np.tile(X[:1], (len(X), 1))
    refused(
        gq.errors.OverlapError,
        r"all 4 nodes that patches 0 and 2 share lie at one point in patch 2",
        changed(made, 2, None, point),
        made.edges,
    )


def test_a_tolerance_that_is_none(made):
    with pytest.raises(gq.errors.InputError, match="tol is the residual to reach and must be positive; it is 0"):
        gq.align(made.patches, tol=0.0)


def test_hierarchy_options(made):
    with pytest.raises(gq.errors.InputError, match=r"branching .* at least 2; it is 1"):
        gq.align(made.patches, branching=1)


def test_centroid_options(made):
    still = gq.Alignment.identity(4, 2)
    with pytest.raises(gq.errors.InputError, match="4 patches and the alignment has 3"):
        gq.centroid(made.patches, gq.Alignment.identity(3, 2))
    with pytest.raises(gq.errors.InputError, match="4 patches and 2 weights"):
        gq.centroid(made.patches, still, weights=[1, 2])
    with pytest.raises(gq.errors.InputError, match=r"the weights of patch 1 must be finite and not negative"):
        gq.centroid(made.patches, still, weights=[1, -1, 1, 1])
    with pytest.raises(gq.errors.InputError, match=r"patch 0 has \d+ nodes and weights of shape \(2,\)"):
        gq.centroid(made.patches, still, weights=[[1, 2], 1, 1, 1])
    with pytest.raises(gq.errors.CoverError, match="n_nodes is 5"):
        gq.centroid(made.patches, still, n_nodes=5)
    with pytest.raises(gq.errors.InputError, match=r"out has shape \(2, 2\)"):
        gq.centroid(made.patches, still, out=np.empty((2, 2)))
    with pytest.raises(gq.errors.InputError, match="out holds int64"):
        gq.centroid(made.patches, still, out=np.empty((len(made.points), 2), dtype=np.int64))
    with pytest.raises(gq.errors.InputError, match="missing must be"):
        gq.centroid(made.patches, still, missing="drop")
    with pytest.raises(gq.errors.InputError, match="patch 0 has 2 dimensions and the alignment has 3"):
        gq.centroid(made.patches, gq.Alignment.identity(4, 3))


def test_compose_needs_the_same_shape():
    with pytest.raises(gq.errors.InputError, match="4 patches in 2 dimensions and of 3 in 2"):
        gq.Alignment.identity(4, 2).compose(gq.Alignment.identity(3, 2))


@pytest.mark.parametrize(("p", "d"), [(1, 1), (1, 3), (2, 1), (2, 4), (3, 1), (5, 1)])
def test_few_patches_and_one_dimension_simply_work(p, d):
    made = quilt(p, d, seed=2)
    alignment = gq.align(made.patches, made.edges, scale=True, robust=True)
    X = gq.centroid(made.patches, alignment)
    assert X.shape == made.points.shape
    assert np.isfinite(X).all()
    assert alignment.summary()
    assert 0 < alignment.spectral_gap <= 2 + 1e-9
