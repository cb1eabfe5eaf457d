"""Numbers of every size and type: right answers, or errors that say what is wrong."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from graphquilt.errors import CoverError, InputError, OverlapError
from graphquilt.testing import quilt

MADE = quilt(6, 3, noise=0.1, scaled=True, seed=0)
OPTIONS = [{}, {"scale": True}, {"robust": True}]
FAR = 2**62


def times(c, patches=MADE.patches):
    return [(nodes, c * X) for nodes, X in patches]


def hierarchical(patches, edges, **options):
    return gq.align(patches, edges, branching=3, **options)


@settings(deadline=None, max_examples=40)
@given(st.integers(-1000, 990), st.sampled_from(OPTIONS), st.sampled_from([gq.align, hierarchical]))
def test_the_unit_of_the_coordinates_does_not_matter(k, options, align):
    """align(c X) has the rotations and scales of align(X), and c times its translations and centroid."""
    c = 2.0**k
    before, after = (align(patches, MADE.edges, **options) for patches in (MADE.patches, times(c)))
    for refined in (False, True):
        if refined:
            before, after = gq.refine(MADE.patches, before), gq.refine(times(c), after)
        np.testing.assert_allclose(after.rotations, before.rotations, atol=1e-9)
        np.testing.assert_allclose(after.scales, before.scales, rtol=1e-9)
        np.testing.assert_allclose(after.translations / c, before.translations, atol=1e-9)
        np.testing.assert_allclose(after.edge_errors, before.edge_errors, atol=1e-9)
        assert after.distrusted.tolist() == before.distrusted.tolist()
        X, Y = gq.centroid(MADE.patches, before), gq.centroid(times(c), after)
        np.testing.assert_allclose(Y / c, X, atol=1e-9)


@settings(deadline=None, max_examples=20)
@given(st.integers(-1000, 990))
def test_a_patch_is_added_in_any_unit(k):
    c, made = 2.0**k, quilt(6, 3, noise=0.1, seed=0)
    first, last = made.edges[(made.edges < 5).all(axis=1)], 5
    grown = [
        gq.align(patches[:last], first).extend(patches[:last], patches[last])
        for patches in (made.patches, times(c, made.patches))
    ]
    np.testing.assert_allclose(grown[1].rotations, grown[0].rotations, atol=1e-9)
    np.testing.assert_allclose(grown[1].translations / c, grown[0].translations, atol=1e-9)


def test_patches_of_very_different_scale():
    """Scales undo a factor of 1e200, and beyond what a double holds the message says so."""
    options = {"scale": True}
    made = quilt(5, 2, overlap=8, seed=1)
    patches = [*times(1e-100, made.patches[:2]), *times(1e100, made.patches[2:])]
    alignment = gq.align(patches, made.edges, **options)
    assert alignment.edge_errors.max() < 1e-6
    assert alignment.scales[0] / alignment.scales[4] == pytest.approx(1e200)
    with pytest.raises(OverlapError, match="differ in scale by a factor beyond 1e308"):
        gq.align([*times(1e-300, made.patches[:2]), *times(1e300, made.patches[2:])], made.edges, **options)


def test_one_point_far_away():
    made = quilt(5, 2, overlap=8, seed=1)
    nodes, X = made.patches[0]
    own = np.flatnonzero(nodes >= 8 * len(made.edges))[0]  # a node of no other patch
    spoilt = np.array(X)
    spoilt[own] = 1e300
    alignment = gq.align([(nodes, spoilt), *made.patches[1:]], made.edges)
    assert alignment.edge_errors.max() < 1e-6
    spoilt[own] = 1e302
    with pytest.raises(InputError, match=r"patch 0 has coordinates as large as 1e\+302"):
        gq.align([(nodes, spoilt), *made.patches[1:]], made.edges)


@pytest.mark.parametrize("c", [1e-200, 1e-30, 1.0, 1e200])
def test_points_at_one_point_are_refused_in_any_unit(c):
    made = quilt(4, 2, overlap=8, seed=1)
    nodes, X = made.patches[0]
    i, j = made.edges[0]
    flat = np.array(X)
    flat[nodes < 8] = 5.0  # the nodes of the first overlap
    patches = times(c, [(nodes, flat), *made.patches[1:]])
    with pytest.raises(OverlapError, match=f"all 8 nodes that patches {i} and {j} share lie at one point in patch 0"):
        gq.align(patches, made.edges)


@pytest.mark.parametrize(
    "convert",
    [
        lambda X: X.astype(np.longdouble),
        lambda X: X.astype(">f8"),
        np.asfortranarray,
        lambda X: np.repeat(X, 2, axis=0)[::2],
    ],
)
def test_every_real_type_gives_the_same_answer(convert):
    patches = [(nodes.astype(">i8"), convert(X)) for nodes, X in MADE.patches]
    for _, X in patches:
        X.setflags(write=False)
    plain, other = gq.align(MADE.patches, MADE.edges), gq.align(patches, MADE.edges)
    np.testing.assert_allclose(other.rotations, plain.rotations, atol=1e-9)
    np.testing.assert_allclose(gq.centroid(patches, other), gq.centroid(MADE.patches, plain), atol=1e-9)
    np.testing.assert_allclose(gq.refine(patches, other).rotations, gq.refine(MADE.patches, plain).rotations, atol=1e-9)
    assert gq.PatchGraph.from_patches(patches).n_nodes == len(MADE.points)


def test_whole_numbers_and_half_precision():
    whole = [(nodes, np.rint(1000 * X).astype(np.int16)) for nodes, X in quilt(5, 2, noise=0.0, seed=2).patches]
    assert gq.align(whole).edge_errors.max() < 0.01
    half = [(nodes, X.astype(np.float16)) for nodes, X in quilt(5, 2, noise=0.0, seed=2).patches]
    assert gq.align(half).edge_errors.max() < 0.01
    with np.errstate(over="ignore"):
        beyond = np.array([[1e5], [1.0]]).astype(np.float16)
    with pytest.raises(InputError, match="1 of 2 rows of coordinates are not finite, the first is that of node 7"):
        gq.Patch([7, 8], beyond)
    if np.finfo(np.longdouble).max > np.finfo(np.float64).max:
        with pytest.raises(InputError, match="1 of 2 rows of coordinates are not finite"):
            gq.Patch([7, 8], np.array([[np.longdouble("1e400")], [1]]))


def sparse(nodes):
    return FAR - 1000 * (1000 - np.asarray(nodes, dtype=np.int64))


def test_ids_of_any_size():
    """Refinement, extension and both alignments give with sparse ids what they give with dense ones."""
    made = quilt(8, 2, noise=0.1, seed=3)
    far = [(sparse(nodes), X) for nodes, X in made.patches]
    for align in (gq.align, hierarchical):
        dense, other = (align(patches, made.edges) for patches in (made.patches, far))
        np.testing.assert_allclose(other.rotations, dense.rotations, atol=1e-12)
        refined = [gq.refine(patches, a) for patches, a in ((made.patches, dense), (far, other))]
        np.testing.assert_allclose(refined[1].translations, refined[0].translations, atol=1e-12)
    edges = made.edges[(made.edges < 7).all(axis=1)]
    grown = [gq.align(p[:7], edges).extend(p[:7], p[7]) for p in (made.patches, far)]
    np.testing.assert_allclose(grown[1].rotations, grown[0].rotations, atol=1e-12)


def test_signed_and_unsigned_ids_are_the_same_ids():
    X = np.random.default_rng(0).normal(size=(8, 2))
    ids = FAR + np.arange(8)
    alignment = gq.align([(ids, X), (ids.astype(np.uint64), X)])
    assert alignment.edge_errors.max() < 1e-6
    with pytest.raises(InputError, match=r"below 2\*\*63"):
        gq.Patch(np.array([2**63], dtype=np.uint64), [[1.0]])
    with pytest.raises(InputError, match=r"below 2\*\*63"):
        gq.PatchGraph.from_patches([np.array([2**63], dtype=np.uint64)])


@pytest.mark.parametrize("missing", ["error", "nan"])
def test_a_centroid_with_a_row_for_each_of_very_many_ids_is_refused(missing):
    patches = [(np.array([3, FAR]), np.zeros((2, 1))), (np.array([FAR, 5]), np.ones((2, 1)))]
    message = rf"the first are \[0, 1, 2, 4, 6\]: the patches have 3 nodes, and the largest id is {FAR}"
    with pytest.raises(CoverError, match=message):
        gq.centroid(patches, gq.Alignment.identity(2, 1), missing=missing)
    few = [(np.array([3, 9]), np.zeros((2, 1))), (np.array([9, 5]), np.ones((2, 1)))]
    assert gq.centroid(few, gq.Alignment.identity(2, 1), missing="nan").shape == (10, 1)


def test_a_patch_graph_of_sparse_ids_says_how_to_number_them():
    with pytest.raises(CoverError, match=r"nodes are in no patch.* number the nodes that are there 0\.\.n-1"):
        gq.PatchGraph.from_patches([[0, FAR], [7, FAR]])
    sets = [np.array([0, FAR]), np.array([7, FAR])]
    ids = np.unique(np.concatenate(sets))
    assert gq.PatchGraph.from_patches([np.searchsorted(ids, nodes) for nodes in sets]).n_nodes == 3


MASKED = np.ma.masked_array(np.arange(4), mask=[0, 1, 0, 0])
RING = gq.Graph(sp.csr_array(np.roll(np.eye(4), 1, 0) + np.roll(np.eye(4), -1, 0)))


@pytest.mark.parametrize(
    "use",
    [
        lambda: gq.Patch(MASKED, np.eye(4)),
        lambda: gq.Patch(np.arange(4), MASKED[:, None] * 1.0),
        lambda: gq.align([(np.arange(4), MASKED[:, None] * 1.0), (np.arange(4), np.ones((4, 1)))]),
        lambda: gq.align(MADE.patches, np.ma.masked_array(MADE.edges)),
        lambda: gq.centroid([(np.arange(4), np.eye(4))], gq.Alignment.identity(1, 4), weights=[MASKED]),
        lambda: gq.PatchGraph.from_patches([MASKED]),
        lambda: gq.Graph(RING.adjacency, features=MASKED[:, None]),
        lambda: gq.Graph(RING.adjacency, labels=MASKED),
        lambda: gq.patch_graph(RING, MASKED, degree=2, overlap=(1, 2)),
        lambda: gq.evaluate.reconstruction_auc(MASKED[:, None] * 1.0, RING, seed=0),
        lambda: gq.embed_patches(RING, gq.PatchGraph.from_patches([range(4)]), Masked()),
    ],
)
def test_masked_arrays_are_refused(use):
    with pytest.raises(gq.errors.QuiltError, match=r"masked.*filled|filled.*masked"):
        use()


class Masked:
    """An embedder that returns a masked array."""

    dim = 1
    motions = gq.Motions()

    def __call__(self, graph, seed):
        return np.ma.masked_array(np.zeros((graph.n_nodes, 1)), mask=False)


def test_durations_are_no_integers(tmp_path):
    """NumPy counts timedelta64 among the integers."""
    edges = np.array([[0, 1], [1, 2], [2, 3]]).T.astype("m8[ns]")
    np.save(tmp_path / "edges.npy", edges)
    for source in (edges, tmp_path / "edges.npy"):
        with pytest.raises(InputError, match=r"integers of shape .* not timedelta64"):
            gq.read_edges(source)
    with pytest.raises(InputError):
        gq.align([(np.arange(9).astype("m8[ns]"), np.ones((9, 1)))] * 2)
