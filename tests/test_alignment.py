"""Laws of the alignment: exact recovery, equivariance, and what the certificate says."""

import weakref
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import graphquilt as gq
from graphquilt.alignment import patch_index, rotations
from graphquilt.alignment import statistics as measuring
from graphquilt.alignment.fit import EdgeTable
from graphquilt.linalg import nearest_orthogonal
from graphquilt.testing import quilt, random_rotations


def fitted(X, Y, *, scale=True):
    """Y after the similarity (or rigid motion) that brings it nearest to X, and the error relative to X's spread."""
    a, b = Y - Y.mean(axis=0), X - X.mean(axis=0)
    R = nearest_orthogonal(a.T @ b)
    factor = np.sum(a @ R * b) / np.sum(a * a) if scale else 1.0
    return factor * a @ R + X.mean(axis=0), np.linalg.norm(factor * a @ R - b) / np.linalg.norm(b)


def stitched(made, *, scale=False, tol=1e-5):
    alignment = gq.align(made.patches, made.edges, scale=scale, tol=tol)
    return alignment, gq.centroid(made.patches, alignment)


shapes = st.tuples(st.integers(1, 9), st.integers(1, 6), st.integers(2, 5), st.integers(0, 10**6))


@settings(deadline=None, max_examples=40)
@given(shapes, st.booleans())
def test_recovers_exactly_without_noise(shape, scaled):
    p, d, k, seed = shape
    made = quilt(p, d, degree=k, scaled=scaled, seed=seed)
    alignment, X = stitched(made, scale=scaled)
    assert fitted(made.points, X, scale=scaled)[1] < 1e-9
    assert np.all(alignment.edge_errors < 1e-6)
    np.testing.assert_allclose(alignment.eigenvalues[:d], 1, atol=1e-10)
    assert -1 - 1e-9 <= alignment.eigenvalues[-1] < 1 - 1e-9


@pytest.mark.parametrize("seed", range(40))
def test_repeated_eigenvalues_are_no_trap(seed):
    """Without noise the d leading eigenvalues are equal, which some eigensolvers do not survive."""
    made = quilt(7, 2, degree=2, scaled=True, seed=seed)
    alignment, X = stitched(made, scale=True)
    assert alignment.residual < 1e-10
    assert fitted(made.points, X)[1] < 1e-9


def test_recovers_exactly_without_noise_when_the_solver_iterates(monkeypatch):
    monkeypatch.setattr(rotations, "DENSE_SIZE", 0)
    made = quilt(60, 16, degree=4, scaled=True, seed=3)
    alignment, X = stitched(made, scale=True)
    assert fitted(made.points, X)[1] < 1e-9
    assert alignment.residual < 1e-10


@settings(deadline=None, max_examples=20)
@given(shapes, st.integers(0, 8))
def test_moving_one_patch_changes_only_its_transform(shape, which):
    p, d, k, seed = shape
    made = quilt(p, d, degree=k, noise=0.1, scaled=True, seed=seed)
    alignment, X = stitched(made, scale=True)
    assume(alignment.spectral_gap > 0.01)  # a frustrated ring in one dimension has two equally good answers
    rng = np.random.default_rng(seed)
    k = which % p
    Q, s, t = random_rotations(1, d, rng)[0], float(np.exp(rng.normal())), rng.normal(size=d)
    moved = list(made.patches)
    nodes, Y = moved[k]
    moved[k] = (nodes, s * Y @ Q + t)
    other = gq.align(moved, made.edges, scale=True)
    Z = gq.centroid(moved, other)
    assert fitted(X, Z)[1] < 1e-7
    np.testing.assert_allclose(other.edge_errors, alignment.edge_errors, atol=1e-7)
    # All others keep their place relative to each other: one global similarity explains the difference.
    ratio = other.scales / alignment.scales
    rest = np.delete(np.arange(p), k)
    np.testing.assert_allclose(ratio[rest], ratio[rest[0]] if len(rest) else 1, rtol=1e-9)
    turn = alignment.rotations.transpose(0, 2, 1) @ other.rotations
    np.testing.assert_allclose(turn[rest], np.broadcast_to(turn[rest[:1]], turn[rest].shape), atol=1e-7)


@pytest.mark.parametrize(("p", "d", "dense_size"), [(7, 3, 1000), (40, 16, 0)])
def test_relabelling_permuting_and_flipping_change_nothing(p, d, dense_size, monkeypatch):
    monkeypatch.setattr(rotations, "DENSE_SIZE", dense_size)  # 0: the solver iterates
    made = quilt(p, d, noise=0.1, seed=5)
    _, X = stitched(made, tol=1e-10)
    rng = np.random.default_rng(0)
    names = rng.permutation(len(X))
    order = rng.permutation(p)
    place = np.argsort(order)
    edges = place[made.edges][rng.permutation(len(made.edges))]
    flip = rng.random(len(edges)) < 0.5
    edges[flip] = edges[flip, ::-1]
    patches = []
    for k in order:
        nodes, Y = made.patches[k]
        rows = rng.permutation(len(nodes))
        patches.append((names[nodes][rows], Y[rows]))
    Z = gq.centroid(patches, gq.align(patches, edges, tol=1e-10))
    assert fitted(X, Z[names], scale=False)[1] < 1e-8


def test_default_tolerance_is_tight_enough_that_order_hardly_matters():
    made = quilt(40, 16, noise=0.1, seed=5)
    _, X = stitched(made)
    order = np.random.default_rng(1).permutation(40)
    patches = [made.patches[k] for k in order]
    Z = gq.centroid(patches, gq.align(patches, np.argsort(order)[made.edges]))
    assert fitted(X, Z, scale=False)[1] < 1e-4


def test_translation_is_found_without_rotation_and_rotation_without_translation():
    made = quilt(6, 3, seed=2)
    turned = [(nodes, Y @ R) for (nodes, Y), R in zip(made.patches, made.rotations, strict=True)]
    alignment = gq.align(turned, made.edges, rotate=False)
    assert fitted(made.points, gq.centroid(turned, alignment), scale=False)[1] < 1e-9
    np.testing.assert_array_equal(alignment.rotations, np.tile(np.eye(3), (6, 1, 1)))
    only = gq.align(made.patches, made.edges, translate=False)
    assert np.all(only.translations == 0)
    full = gq.align(made.patches, made.edges)
    np.testing.assert_allclose(only.rotations, full.rotations)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_float_type_gives_float64(dtype, tmp_path):
    made = quilt(5, 3, seed=4)
    patches = []
    for k, (nodes, Y) in enumerate(made.patches):
        np.save(tmp_path / f"{k}.npy", Y.astype(dtype))
        patches.append((nodes, np.load(tmp_path / f"{k}.npy", mmap_mode="r")))
    X = gq.centroid(patches, gq.align(patches, made.edges))
    assert X.dtype == np.float64
    assert fitted(made.points, X, scale=False)[1] < 20 * np.finfo(dtype).eps


def test_edges_are_found_where_none_are_given():
    made = quilt(8, 3, overlap=5, seed=6)
    alignment = gq.align(made.patches)
    assert alignment.edges.tolist() == made.edges.tolist()


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_every_executor_gives_the_same(pool):
    made = quilt(8, 3, noise=0.1, seed=7)
    alone = gq.align(made.patches, made.edges)
    with pool(2) as executor:
        shared = gq.align(made.patches, made.edges, executor=executor)
    # Not to the last bit: another process may add numbers in another order.
    np.testing.assert_allclose(alone.rotations, shared.rotations, atol=1e-9)
    np.testing.assert_allclose(alone.edge_errors, shared.edge_errors, atol=1e-12)


class OpensOnDemand(Sequence):
    """A lazy sequence that counts how many of the patches it opened are alive, and how many at most."""

    def __init__(self, patches):
        self.patches = patches
        self.alive = self.most_alive = 0

    def __len__(self):
        return len(self.patches)

    def __getitem__(self, k):
        nodes, Y = self.patches[k]
        coordinates = Y.copy()
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        weakref.finalize(coordinates, self._closed)
        return nodes.copy(), coordinates

    def _closed(self):
        self.alive -= 1


def test_a_lazy_sequence_is_as_good_as_a_list():
    made = quilt(8, 3, noise=0.1, seed=8)
    lazy = OpensOnDemand(made.patches)
    alignment = gq.align(lazy, made.edges)
    np.testing.assert_allclose(alignment.rotations, gq.align(made.patches, made.edges).rotations, atol=1e-9)
    np.testing.assert_allclose(gq.centroid(lazy, alignment), gq.centroid(made.patches, alignment), atol=1e-12)


def test_few_patches_of_a_lazy_sequence_are_open_at_once(monkeypatch):
    monkeypatch.setattr(measuring, "RECENT", 3)
    monkeypatch.setattr(patch_index, "MEMORY", 0)
    made = quilt(120, 3, noise=0.1, seed=8)
    weights = [np.ones(len(nodes)) for nodes, _ in made.patches]

    def most_alive(work):
        lazy = OpensOnDemand(made.patches)
        work(lazy)
        assert lazy.alive == 0
        return lazy.most_alive

    # Those that stay open for the next edges, those that are measured, and those that take their place.
    most = 3 + 2 * measuring.GROUP + 2
    assert 1 < most_alive(lambda lazy: gq.align(lazy, made.edges, weights=weights)) <= most
    assert most_alive(lambda lazy: gq.align_components(lazy, made.edges)) <= most
    alignment = gq.align(made.patches, made.edges)
    assert most_alive(lambda lazy: gq.centroid(lazy, alignment)) <= 2
    assert most_alive(lambda lazy: gq.refine(lazy, alignment)) <= most
    assert most_alive(lambda lazy: gq.align(lazy, made.edges, branching=20)) <= most


class OpensFiles(Sequence):
    """A lazy sequence of memory maps that counts how often it opens one."""

    def __init__(self, folder, patches):
        self.folder, self.n, self.opened = folder, len(patches), 0
        for k, (nodes, Y) in enumerate(patches):
            np.save(folder / f"{k}-nodes.npy", nodes)
            np.save(folder / f"{k}.npy", Y)

    def __len__(self):
        return self.n

    def __getitem__(self, k):
        self.opened += 1
        return tuple(np.load(self.folder / f"{k}{end}.npy", mmap_mode="r") for end in ("-nodes", ""))


@pytest.mark.parametrize("files", [1000, 68])
def test_as_many_maps_stay_open_as_the_limit_of_files_allows(files, tmp_path, monkeypatch):
    monkeypatch.setattr(patch_index, "_file_limit", lambda: files)
    made = quilt(60, 3, degree=8, noise=0.1, seed=8)
    lazy = OpensFiles(tmp_path, made.patches)
    alignment = gq.align(lazy, made.edges)
    np.testing.assert_array_equal(alignment.rotations, gq.align(made.patches, made.edges).rotations)
    assert lazy.opened == 60 if files == 1000 else lazy.opened > 60
    lazy.opened = 0
    np.testing.assert_array_equal(gq.centroid(lazy, alignment), gq.centroid(made.patches, alignment))
    assert lazy.opened == 60 if files == 1000 else lazy.opened > 60
    patches = patch_index.keep_open(lazy)
    assert len(list(patches)) == 60
    assert sum(map(patches.stays, range(60))) == min(60, (files - patch_index.RESERVED) // 2)


def test_patches_are_not_touched():
    made = quilt(6, 3, noise=0.1, seed=9)
    before = [Y.copy() for _, Y in made.patches]
    for _, Y in made.patches:
        Y.setflags(write=False)
    alignment = gq.align(made.patches, made.edges, scale=True, robust=True)
    gq.centroid(made.patches, alignment)
    for Y, (_, after) in zip(before, made.patches, strict=True):
        np.testing.assert_array_equal(Y, after)


def test_aligned_scale_undoes_what_the_patches_had():
    """The paper multiplies by the estimate, which would square the error (differences-from-the-paper)."""
    made = quilt(10, 4, scaled=True, seed=10)
    alignment = gq.align(made.patches, made.edges, scale=True)
    np.testing.assert_allclose(alignment.scales / alignment.scales[0], made.scales / made.scales[0], rtol=1e-9)
    np.testing.assert_allclose(np.mean(1 / alignment.scales), 1)


def test_a_bipartite_patch_graph_is_no_trap():
    """Its spectrum has -1 as well as 1; the leading eigenvectors are the algebraically largest."""
    made = quilt(6, 2, degree=2, seed=11)
    alignment, X = stitched(made)
    assert alignment.eigenvalues[-1] == pytest.approx(0.5)
    assert fitted(made.points, X, scale=False)[1] < 1e-9


def test_edge_errors_are_what_they_say():
    made = quilt(6, 3, noise=0.3, seed=12)
    alignment = gq.align(made.patches, made.edges)
    e = 4
    i, j = alignment.edges[e]
    (nodes_i, Y_i), (nodes_j, Y_j) = made.patches[i], made.patches[j]
    _, rows_i, rows_j = np.intersect1d(nodes_i, nodes_j, return_indices=True)
    a, b = alignment.apply(i, Y_i)[rows_i], alignment.apply(j, Y_j)[rows_j]
    spread = np.sum((a - a.mean(axis=0)) ** 2) + np.sum((b - b.mean(axis=0)) ** 2)
    assert alignment.edge_errors[e] == pytest.approx(np.sqrt(np.sum((a - b) ** 2) / spread))
    assert alignment.edge_weights[e] == len(rows_i)
    worst = alignment.edge_errors.argmax()
    assert alignment.worst_edges(1) == [(*alignment.edges[worst].tolist(), alignment.edge_errors[worst])]


def test_unrelated_patches_have_errors_near_one():
    rng = np.random.default_rng(0)
    patches = [(np.arange(400), rng.normal(size=(400, 3))) for _ in range(4)]
    assert np.all(gq.align(patches).edge_errors > 0.85)


def test_collapsed_directions_are_counted():
    made = quilt(5, 3, seed=13)
    flat = [(nodes, Y @ R * [1, 1, 0]) for (nodes, Y), R in zip(made.patches, made.rotations, strict=True)]
    alignment = gq.align(flat, made.edges)
    assert np.all(alignment.undetermined == 1)
    assert f"Directions are undetermined in {len(alignment.edges)} overlaps" in alignment.summary()


def test_compose_is_doing_one_after_the_other():
    made = quilt(5, 3, noise=0.1, scaled=True, seed=14)
    first, second = (
        gq.align(made.patches, made.edges, scale=True),
        gq.align(made.patches, made.edges),
    )
    X = np.random.default_rng(0).normal(size=(4, 3))
    both = first.compose(second)
    for k in range(5):
        np.testing.assert_allclose(both.apply(k, X), second.apply(k, first.apply(k, X)))


def test_save_and_load_keep_everything(tmp_path):
    alignment = gq.align(quilt(5, 3, noise=0.1, seed=15).patches, robust=True)
    alignment.save(tmp_path / "alignment.npz")
    again = gq.Alignment.load(tmp_path / "alignment.npz")
    arrays = again.to_arrays()
    assert arrays.keys() == {
        *(field for field in alignment.__dataclass_fields__ if field not in ("edge_table", "frame")),
        "format",
        "edges",
        "edge_errors",
        "edge_weights",
        "edge_trust",
        "undetermined",
    }
    for name, array in alignment.to_arrays().items():
        np.testing.assert_array_equal(arrays[name], array)
        if name != "motions":
            np.testing.assert_array_equal(getattr(again, name, 1), array)
    assert again.motions == alignment.motions


def test_load_refuses_what_is_not_an_alignment(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04 torn")
    for name in ("other.npz", "torn.npz"):
        with pytest.raises(gq.errors.FormatError, match=name):
            gq.Alignment.load(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rotations", np.zeros((5, 3, 2)), r"\(5, 3, 2\)"),
        ("scales", np.zeros(4), "4 patches in 3 dimensions"),
        ("eigenvalues", np.zeros(3), r"\(4,\)"),
        ("edge_trust", np.zeros(1), "one value of each kind per edge"),
        ("edges", np.zeros(3, dtype=int), "one pair"),
        ("drift", np.zeros(2), "not an alignment"),
        ("format", np.asarray(9), "format 9; this version reads 1"),
        ("residual", None, "it lacks residual"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(name, value, message):
    arrays = gq.align(quilt(5, 3, noise=0.1, seed=15).patches).to_arrays()
    arrays[name] = value
    with pytest.raises(gq.errors.FormatError, match=message):
        gq.Alignment.from_arrays({key: array for key, array in arrays.items() if array is not None})


def test_rows_of_an_edge_table_stay_together():
    table = gq.align(quilt(8, 3, noise=0.1, seed=16).patches).edge_table
    order = np.random.default_rng(0).permutation(len(table))
    first, second = table.take(order[:5]), table.take(order[5:])
    back = EdgeTable.concatenate([first, second, EdgeTable.empty()]).take(np.argsort(order))
    for name in table.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(back, name), getattr(table, name))
    assert EdgeTable.concatenate([]).pairs.shape == (0, 2)
    with pytest.raises(gq.errors.InputError, match="one value of each kind per edge"):
        EdgeTable(table.pairs, table.errors[1:], table.weights, table.trust, table.undetermined)


def test_agrees_with_the_authors_on_trained_cora_patches(dataset_folder):
    with np.load(dataset_folder("cora-patches") / "cora_vgae_d32_patches.npz") as archive:
        patches = [(archive[f"nodes{k}"], archive[f"x{k}"]) for k in range(10)]
        edges, theirs, theirs_scaled, scales = (
            archive[name] for name in ("edges", "aligned", "aligned_with_scale", "scales")
        )
    X = gq.centroid(patches, gq.align(patches, edges))
    assert fitted(theirs, X, scale=False)[1] < 0.01
    scaled = gq.align(patches, edges, scale=True)
    assert fitted(theirs_scaled, gq.centroid(patches, scaled))[1] < 0.02
    np.testing.assert_allclose(1 / scaled.scales, scales, rtol=1e-3)


def test_where_nothing_checks_the_rotations_the_summary_says_so():
    X = np.random.default_rng(0).normal(size=(30, 2))
    chain = [(np.arange(10 * k, 10 * k + 15), X[10 * k : 10 * k + 15]) for k in range(2)]
    assert "No cycle of overlaps tests" in gq.align(chain).summary()
    three = [(np.arange(30), X + k) for k in range(3)]
    assert "stand out from noise" in gq.align(three).summary()
    assert "No cycle" in gq.align(three, rotate=False).summary()
