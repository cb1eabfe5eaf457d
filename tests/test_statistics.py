"""Overlap statistics: what they say, what they refuse, and that they are all that alignment needs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from graphquilt import kernels
from graphquilt.alignment import connection
from graphquilt.alignment import statistics as measuring
from graphquilt.errors import DisconnectedError, FormatError, InputError, OverlapError
from graphquilt.testing import patchwork, quilt
from test_synchronise import rotation_error

OPTIONS = [
    {},
    {"robust": True},
    {"scale": True, "robust": True},
    {"rotate": False},
    {"rotate": False, "translate": False},
]
PARTS = ("counts", "sizes", "means", "spreads", "products")
RESULTS = ("scales", "rotations", "translations", "edges", "edge_errors", "edge_weights", "edge_trust", "undetermined")


def some_weights(patches, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.uniform(0.1, 2.0, len(nodes)) for nodes, _ in patches]


def measured(patches, edges, weights=None):
    return gq.OverlapStatistics.concatenate(
        gq.overlap_statistics(patches[i], patches[j], None if weights is None else (weights[i], weights[j]))
        for i, j in edges
    )


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_aligning_is_measuring_and_aligning_the_statistics(options, weighted):
    """The law of the seam, bit for bit."""
    made = quilt(9, 3, degree=5, noise=0.2, wrong=0.2, scaled=True, seed=1)
    weights = some_weights(made.patches) if weighted else None
    at_once = gq.align(made.patches, made.edges, **options, weights=weights)
    in_steps = gq.align_statistics(measured(made.patches, made.edges, weights), made.edges, **options)
    for name in (*RESULTS, "eigenvalues", "residual", "next_residual"):
        np.testing.assert_array_equal(getattr(in_steps, name), getattr(at_once, name))
    assert in_steps.robust == at_once.robust


def test_the_order_and_the_direction_of_the_edges_do_not_matter():
    made = quilt(9, 3, degree=5, noise=0.2, seed=1)
    plain = gq.align_statistics(measured(made.patches, made.edges), made.edges)
    order = np.random.default_rng(0).permutation(len(made.edges))
    turned = made.edges[order]
    turned[::2] = turned[::2, ::-1]
    other = gq.align_statistics(measured(made.patches, turned), turned)
    assert other.edges.tolist() == made.edges[order].tolist()
    np.testing.assert_allclose(other.rotations, plain.rotations, atol=1e-9)
    np.testing.assert_allclose(other.edge_errors, plain.edge_errors[order], atol=1e-9)


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 2**31),
    st.integers(1, 5),
    st.sampled_from([np.float16, np.float32, np.float64]),
    st.booleans(),
    st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_statistics_are_those_of_the_shared_rows(seed, d, dtype, weighted, far):
    """Brute force, for every type of float, on rows in any order."""
    rng = np.random.default_rng(seed)
    ids = [rng.permutation(30)[: 12 + d] + shift for shift in (0, 7)]
    X = [(rng.normal(size=(len(nodes), d)) + far).astype(dtype) for nodes in ids]
    weights = [rng.uniform(0.5, 2, len(nodes)) for nodes in ids] if weighted else None
    shared = np.intersect1d(*ids)
    if len(shared) < 2:
        return
    rows = [np.array([np.flatnonzero(nodes == node)[0] for node in shared]) for nodes in ids]
    w = np.ones(len(shared)) if weights is None else weights[0][rows[0]] * weights[1][rows[1]]
    points = [part[r].astype(np.float64) for part, r in zip(X, rows, strict=True)]
    means = [np.average(part, axis=0, weights=w) for part in points]
    A, B = (np.sqrt(w)[:, None] * (part - mean) for part, mean in zip(points, means, strict=True))
    statistics = gq.overlap_statistics((ids[0], X[0]), (ids[1], X[1]), weights)
    assert statistics.counts.tolist() == [len(shared)]
    np.testing.assert_allclose(statistics.sizes[0], w.sum())
    np.testing.assert_allclose(statistics.means[0], means, rtol=1e-9, atol=1e-12)
    norms = np.linalg.norm(A), np.linalg.norm(B)
    np.testing.assert_allclose(statistics.spreads[0], norms, rtol=1e-6)
    np.testing.assert_allclose(statistics.products[0], A.T @ B / (norms[0] * norms[1]), atol=1e-6)


def test_moving_a_patch_moves_only_its_side():
    """A similarity of one patch turns the product, scales one spread, and moves one mean."""
    made = quilt(4, 3, noise=0.1, seed=3)
    i, j = made.edges[0]
    a, (nodes, X) = made.patches[i], made.patches[j]
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    plain, moved = gq.overlap_statistics(a, (nodes, X)), gq.overlap_statistics(a, (nodes, 5 * X @ Q + 7))
    np.testing.assert_allclose(moved.products, plain.products @ Q, atol=1e-12)
    np.testing.assert_allclose(moved.spreads, plain.spreads * [[1, 5]])
    np.testing.assert_allclose(moved.means[:, 1], 5 * plain.means[:, 1] @ Q + 7)
    np.testing.assert_array_equal(moved.means[:, 0], plain.means[:, 0])


@pytest.mark.parametrize("weighted", [False, True])
def test_edge_errors_are_those_of_the_coordinates(weighted):
    made = patchwork(3, 4, noise=0.3, seed=2)
    weights = some_weights(made.patches) if weighted else None
    alignment = gq.align(made.patches, made.edges, weights=weights)
    for e, (i, j) in enumerate(alignment.edges.tolist()):
        (a_nodes, A), (b_nodes, B) = made.patches[i], made.patches[j]
        _, a_rows, b_rows = np.intersect1d(a_nodes, b_nodes, return_indices=True)
        w = np.ones(len(a_rows)) if weights is None else weights[i][a_rows] * weights[j][b_rows]
        a, b = alignment.apply(i, A[a_rows]), alignment.apply(j, B[b_rows])
        spread = sum((w[:, None] * (x - np.average(x, axis=0, weights=w)) ** 2).sum() for x in (a, b))
        error = np.sqrt((w[:, None] * (a - b) ** 2).sum() / spread)
        assert alignment.edge_errors[e] == pytest.approx(min(error, 1))


@pytest.mark.parametrize("options", OPTIONS)
def test_level_by_level_is_measuring_and_aligning_the_statistics(options):
    made = quilt(30, 3, degree=5, noise=0.2, scaled=True, seed=1)
    at_once = gq.align(made.patches, made.edges, branching=8, **options)
    statistics = measured(made.patches, made.edges)
    in_steps = gq.align_statistics(statistics, made.edges, branching=8, **options)
    for name in (*RESULTS, "eigenvalues", "residual", "next_residual"):
        np.testing.assert_array_equal(getattr(in_steps, name), getattr(at_once, name))


def test_polishing_makes_levels_as_good_as_a_flat_alignment():
    made = quilt(120, 8, degree=8, noise=0.2, seed=2)
    flat, levels = gq.align(made.patches, made.edges), gq.align(made.patches, made.edges, branching=15)
    errors = [rotation_error(alignment.rotations, made.rotations) for alignment in (flat, levels)]
    assert errors[1] < 1.1 * errors[0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_memory_maps_and_threads_give_the_same_bits(dtype, tmp_path, monkeypatch):
    made = quilt(40, 3, degree=6, noise=0.2, seed=3)
    patches = [(nodes, X.astype(dtype)) for nodes, X in made.patches]
    plain = gq.align(patches, made.edges)
    for number, (nodes, X) in enumerate(patches):
        np.save(tmp_path / f"{number}-nodes.npy", nodes)
        np.save(tmp_path / f"{number}-x.npy", X)
    mapped = [tuple(np.load(tmp_path / f"{k}-{name}.npy", mmap_mode="r") for name in ("nodes", "x")) for k in range(40)]
    monkeypatch.setattr(measuring, "thread_count", lambda: 3)
    for module in (connection, kernels):
        monkeypatch.setattr(module, "thread_count", lambda: 3)
    other = gq.align(mapped, made.edges)
    for name in RESULTS:
        np.testing.assert_array_equal(getattr(other, name), getattr(plain, name))


def test_very_many_products_lie_in_a_file(monkeypatch):
    made = quilt(30, 4, degree=4, noise=0.1, seed=4)
    plain = gq.align(made.patches, made.edges)
    monkeypatch.setattr(measuring, "SINGLE_ABOVE", 10)
    overlaps = measured(made.patches, made.edges)
    assert isinstance(overlaps.products, np.memmap)
    in_file = gq.align(made.patches, made.edges)
    np.testing.assert_allclose(in_file.rotations, plain.rotations, atol=1e-4)
    in_steps = gq.align_statistics(overlaps, made.edges)
    np.testing.assert_array_equal(in_steps.rotations, in_file.rotations)
    levels = gq.align(made.patches, made.edges, branching=8)
    assert rotation_error(levels.rotations, made.rotations) < 1.1 * rotation_error(plain.rotations, made.rotations)


def test_progress_counts_overlaps_and_steps():
    made, events = quilt(60, 20, noise=0.3, seed=5), []
    gq.align(made.patches, made.edges, progress=events.append)
    overlaps = [event.done for event in events if event.stage == "overlaps"]
    steps = [event for event in events if event.stage == "rotation steps"]
    assert overlaps[0] == 0
    assert overlaps[-1] == len(made.edges)
    assert [event.done for event in steps] == list(range(len(steps)))
    assert steps[-1].values["residual"] <= 1e-5 < steps[0].values["residual"]


def test_files_keep_every_bit(tmp_path):
    made = quilt(5, 3, noise=0.1, seed=4)
    statistics = measured(made.patches, made.edges)
    statistics.save(tmp_path / "overlaps.npz")
    again = gq.OverlapStatistics.load(tmp_path / "overlaps.npz")
    for name in PARTS:
        np.testing.assert_array_equal(getattr(again, name), getattr(statistics, name))
    part = statistics.take([2, 0])
    np.testing.assert_array_equal(part.products, statistics.products[[2, 0]])
    assert repr(part) == "OverlapStatistics(2 overlaps, dim=3)"


def test_files_hold_no_id_and_no_coordinate(tmp_path):
    made = quilt(4, 3, noise=0.1, seed=5)
    i, j = made.edges[0]
    (ids, X), (others, Y) = made.patches[i], made.patches[j]
    far = ids + 2**40
    gq.overlap_statistics((far, X), (others + 2**40, Y)).save(tmp_path / "pair.npz")
    content = (tmp_path / "pair.npz").read_bytes()
    assert not any(np.int64(node).tobytes() in content for node in far)
    assert not any(value.tobytes() in content for value in X.ravel())


def one_overlap(**changes):
    values = {
        "counts": [9],
        "sizes": [9.0],
        "means": np.zeros((1, 2, 2)),
        "spreads": [[1.0, 2.0]],
        "products": [np.eye(2) / 2],
    }
    return gq.OverlapStatistics(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": [np.nan]}, "the sizes of an overlap must be finite"),
        ({"means": np.full((1, 2, 2), np.inf)}, "the means of an overlap must be finite"),
        ({"means": np.full((1, 2, 2), 1e302)}, "means at most 1.1e\\+301"),
        ({"spreads": [[1.0, np.nan]]}, "the spreads of an overlap must be finite"),
        ({"products": np.full((1, 2, 2), np.nan)}, "the product of an overlap must be finite"),
        ({"counts": [0]}, "at least one node"),
        ({"sizes": [0.0]}, "total weight of its nodes, is positive"),
        ({"spreads": [[1.0, -1.0]]}, "a norm and not negative"),
        ({"products": [np.eye(2)]}, "contradict each other.* first is number 0"),
        ({"spreads": [[0.0, 1.0]]}, "contradict each other.*0 if a spread is 0"),
        ({"products": [np.eye(3) / 3]}, r"have shapes .*'products': \(1, 2, 2\)"),
        ({"counts": [9, 9]}, "statistics of 2 overlaps in 2 dimensions have shapes"),
        ({"counts": [9.5]}, "the counts of overlaps are whole numbers, not float64"),
        ({"products": [[["a", "b"], ["c", "d"]]]}, "the products of overlaps are numbers"),
        ({"counts": 9}, "have shapes"),
        ({"sizes": np.ma.masked_array([9.0])}, "masked"),
    ],
)
def test_statistics_that_cannot_be(changes, message):
    with pytest.raises(InputError, match=message):
        one_overlap(**changes)


def test_singular_values_that_the_spreads_forbid():
    """A Frobenius norm of at most 1 is not enough: the nuclear norm is bounded by 1, too."""
    statistics = one_overlap(products=[np.eye(2) * 0.7])
    with pytest.raises(InputError, match=r"number 0: the singular values of its product sum to 1\.4, .* at most 1"):
        gq.align_statistics(statistics, [[0, 1]])


def test_bad_edges_and_unconnected_patches():
    made = quilt(6, 3, degree=2, seed=6)  # a ring
    statistics, names = measured(made.patches, made.edges), [f"bank-{k}" for k in "abcdef"]
    with pytest.raises(InputError, match="there are 1 edges and"):
        gq.align_statistics(statistics, made.edges[:1])
    with pytest.raises(InputError, match="names a patch that is not there; there are 2"):
        gq.align_statistics(statistics, made.edges, names=["a", "b"])
    inner = (made.edges != 2).all(axis=1)
    message = r"2 groups with no edge between them: \{bank-a, bank-b, .*\}; \{bank-c\}\."
    with pytest.raises(DisconnectedError, match=message):
        gq.align_statistics(statistics.take(inner), made.edges[inner], names=names)
    with pytest.raises(DisconnectedError, match="2 groups"):
        gq.align_statistics(statistics, made.edges, names=[*names, "bank-g"])


def test_overlaps_that_are_too_small_or_one_point():
    names, X = ["bank-a", "bank-b"], np.random.default_rng(0).normal(size=(20, 8))
    small = gq.overlap_statistics((np.arange(20), X), (np.arange(15, 35), X))
    message = r"patches bank-a and bank-b share 5 nodes; aligning in 8 dimensions needs at least 9\. Drop the edge"
    with pytest.raises(OverlapError, match=message):
        gq.align_statistics(small, [[0, 1]], names=names)
    point = gq.overlap_statistics((np.arange(20), X), (np.arange(20), np.tile(X[:1], (20, 1))))
    with pytest.raises(
        OverlapError, match="all 20 nodes that patches bank-a and bank-b share lie at one point in patch b"
    ):
        gq.align_statistics(point, [[0, 1]], names=names)
    with pytest.raises(OverlapError, match="share no node"):
        gq.overlap_statistics((np.arange(20), X), (np.arange(20, 40), X))
    with pytest.raises(InputError, match=r"the statistics have \[2, 8\] dimensions"):
        gq.OverlapStatistics.concatenate([small, one_overlap()])
    with pytest.raises(InputError, match="there are no overlaps"):
        gq.OverlapStatistics.concatenate([])


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "pair.npz"
    statistics = one_overlap()
    for name, value in {"format": np.asarray(9), "sizes": np.array([8.0]), "checksum": np.asarray("0" * 64)}.items():
        with path.open("wb") as file:
            np.savez(file, **(statistics.to_arrays() | {name: value}))
        with pytest.raises(FormatError, match="Upgrade graphquilt" if name == "format" else "checksum is wrong"):
            gq.OverlapStatistics.load(path)
    with path.open("wb") as file:
        np.savez(file, sizes=np.ones(3))
    with pytest.raises(FormatError, match="it lacks format, counts, means"):
        gq.OverlapStatistics.load(path)
    path.write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(FormatError, match=r"cannot be read as a set of overlap statistics|cut short"):
        gq.OverlapStatistics.load(path)
    with pytest.raises(FileNotFoundError):
        gq.OverlapStatistics.load(tmp_path / "none.npz")


def test_statistics_are_enough_to_recover_the_truth():
    made = quilt(12, 4, scaled=True, seed=7)
    options = {"scale": True}
    alignment = gq.align_statistics(measured(made.patches, made.edges), made.edges, **options)
    assert rotation_error(alignment.rotations, made.rotations) < 1e-9


def test_statistics_may_come_one_by_one():
    made = quilt(5, 3, noise=0.1, seed=8)
    one_by_one = [gq.overlap_statistics(made.patches[i], made.patches[j]) for i, j in made.edges]
    together = gq.OverlapStatistics.concatenate(one_by_one)
    alignments = [gq.align_statistics(statistics, made.edges) for statistics in (one_by_one, together)]
    np.testing.assert_array_equal(alignments[0].rotations, alignments[1].rotations)
