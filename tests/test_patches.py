"""Partitions, sparsification and patches: the laws, and each error provoked."""

import hashlib

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from graphquilt import Conductance, Fennel, Graph, Limits, Metis, PatchGraph, Resistance, patch_graph, read_edges
from graphquilt.datasets.loading import block_graph
from graphquilt.errors import CoverError, DisconnectedError, FormatError, InputError, OverlapError
from graphquilt.jobs.records import patch_graph_fingerprint
from graphquilt.patches import NodeSets
from graphquilt.patches.sparsify import _descending, conductance, effective_resistance, projected_resistance, sparsify


def ring(n, chords=0, seed=0):
    rng = np.random.default_rng(seed)
    A = np.roll(np.eye(n), 1, 0)
    for u, v in rng.integers(0, n, (chords, 2)):
        A[u, v] = u != v
    return Graph(sp.csr_array(np.maximum(A, A.T)))


def connected_pairs(p, extra, seed):
    rng = np.random.default_rng(seed)
    pairs = {(int(rng.integers(0, k)), k) for k in range(1, p)}
    pairs |= {(min(u, v), max(u, v)) for u, v in rng.integers(0, p, (extra, 2)).tolist() if u != v}
    edges = np.array(sorted(pairs))
    return edges, rng.uniform(0.01, 1, len(edges))


def by_pseudo_inverse(edges, c, n):
    B = np.zeros((len(edges), n))
    B[np.arange(len(edges)), edges[:, 0]], B[np.arange(len(edges)), edges[:, 1]] = 1, -1
    P = np.linalg.pinv(B.T @ (c[:, None] * B))
    return np.einsum("ei,ij,ej->e", B, P, B)


@given(st.integers(2, 20), st.integers(0, 60), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_resistances_equal_the_pseudo_inverse(p, extra, seed):
    edges, c = connected_pairs(p, extra, seed)
    r = effective_resistance(edges, c, p)
    assert np.allclose(r, by_pseudo_inverse(edges, c, p), rtol=1e-9)
    assert np.isclose((r * c).sum(), p - 1)  # Foster's theorem


def test_resistances_of_several_components():
    edges = np.array([[0, 1], [2, 3], [3, 4], [2, 4]])
    assert np.allclose(effective_resistance(edges, np.ones(4), 6), [1, 2 / 3, 2 / 3, 2 / 3])
    estimate = projected_resistance(edges, np.ones(4), 6, projections=4000)
    assert np.allclose(estimate, [1, 2 / 3, 2 / 3, 2 / 3], rtol=0.1)


def test_the_estimate_is_as_good_as_it_says():
    edges, c = connected_pairs(200, 2000, 0)
    ratio = projected_resistance(edges, c, 200, projections=200) / effective_resistance(edges, c, 200)
    assert abs(ratio.mean() - 1) < 0.02
    assert 0.05 < ratio.std() < 0.12  # sqrt(2 / 200) = 0.1, less the clipping


def test_the_estimate_of_a_long_ring(caplog):
    n = 2000
    edges = np.sort(np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1), axis=1)
    with caplog.at_level("INFO", logger="graphquilt"):
        estimate = projected_resistance(edges, np.ones(n), n, projections=50)
    assert "factorising instead" in caplog.text
    assert abs(estimate.mean() - 1) < 0.12  # (n - 1) / n, less the clipping at 1


def test_resistance_switches_where_it_says(caplog):
    edges, c = connected_pairs(30, 60, 0)
    with caplog.at_level("INFO", logger="graphquilt"):
        exact = Resistance(exact_up_to=30)(edges, c, 30)
        estimate = Resistance(exact_up_to=29, projections=500)(edges, c, 30)
    assert "30 patches: exact" in caplog.text
    assert "estimated by 500 random projections (more than 29 patches)" in caplog.text
    assert np.allclose(exact, estimate, rtol=0.5)


@given(st.integers(2, 30), st.integers(0, 200), st.floats(0.5, 12), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_sparsify_keeps_the_mean_degree_the_tree_and_the_seed(p, extra, degree, seed):
    edges, w = connected_pairs(p, extra, seed)
    sparse = sparsify(edges, w, p, degree=degree, seed=seed)
    assert len(sparse.edges) == min(len(edges), max(p - 1, int(degree * p / 2)))
    tree = sp.csgraph.minimum_spanning_tree(sp.csr_array((1 / w, edges.T.astype(np.int32)), shape=(p, p))).tocoo()
    assert {tuple(sorted(pair)) for pair in zip(tree.row.tolist(), tree.col.tolist(), strict=True)} <= {
        tuple(pair) for pair in sparse.edges.tolist()
    }
    assert np.array_equal(sparse.edges, sparsify(edges, w, p, degree=degree, seed=seed).edges)


def test_sampling_is_in_proportion_to_weight():
    # A heavy path keeps the tree out of the way; one of two chords is then sampled, the second three times as often.
    edges = np.array([[0, 1], [1, 2], [2, 3], [0, 2], [1, 3]])
    w = np.array([90.0, 90, 90, 1, 3])
    sampled = [[1, 3] in sparsify(edges, w, 4, degree=2, seed=s).edges.tolist() for s in range(2000)]
    assert abs(np.mean(sampled) - 0.75) < 0.04


def test_a_star_is_kept_within_its_limit():
    p = 40
    hub = np.array([[0, k] for k in range(1, p)])
    rim = np.array([[k, k + 1] for k in range(1, p - 1)])
    edges = np.concatenate([hub, rim])
    w = np.concatenate([np.full(len(hub), 10.0), np.ones(len(rim))])
    plain = sparsify(edges, w, p, degree=2)
    assert np.bincount(plain.edges.ravel())[0] == p - 1
    bounded = sparsify(edges, w, p, degree=2, limit=np.full(p, 5))
    assert np.bincount(bounded.edges.ravel()).max() <= 5
    assert len(bounded.beyond_limit) == 0
    assert 0 in bounded.at_limit
    forced = sparsify(hub, np.ones(len(hub)), p, degree=2, limit=np.full(p, 5))
    assert forced.beyond_limit.tolist() == [0]
    assert len(forced.edges) == p - 1


@given(st.tuples(st.integers(40, 160), st.integers(0, 120), st.integers(2, 6)), st.integers(2, 10), st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_laws_of_patches(sizes, least, more):
    n, chords, p = sizes
    seed = n * chords
    graph = ring(n, chords, seed)
    labels = np.arange(n) * p // n
    patches = patch_graph(graph, labels, degree=3, overlap=(least, least + more), seed=seed)
    assert patches.n_nodes == n
    covered = np.zeros(n, bool)
    for k, nodes in enumerate(patches.node_sets):
        covered[nodes] = True
        assert np.all(np.diff(nodes) > 0)
        assert np.isin(np.flatnonzero(labels == k), nodes).all()
    assert covered.all()
    for (i, j), shared in zip(patches.edges, patches.overlaps, strict=True):
        assert shared == len(np.intersect1d(patches.node_sets[i], patches.node_sets[j])) >= least
        added = np.sum(labels[patches.node_sets[i]] == j) + np.sum(labels[patches.node_sets[j]] == i)
        assert least <= added <= least + more
    for k in range(p):  # a patch takes nodes of its neighbours only
        near = set(patches.edges[(patches.edges == k).any(axis=1)].ravel().tolist()) | {k}
        assert set(labels[patches.node_sets[k]].tolist()) <= near
    again = patch_graph(graph, labels, degree=3, overlap=(least, least + more), seed=seed)
    assert all(np.array_equal(a, b) for a, b in zip(patches.node_sets, again.node_sets, strict=True))
    inside = sum(graph.subgraph(nodes).n_entries for nodes in patches.node_sets)
    assert np.isclose(patches.report["edge_oversampling"], inside / graph.n_entries)
    assert np.isclose(patches.summary()["node_oversampling"], sum(map(len, patches.node_sets)) / n)
    full = graph.quotient(labels).n_edges
    assert len(patches.edges) == min(full, max(p - 1, int(3 * p / 2)))


def test_relabelling_nodes_relabels_the_patches():
    graph = ring(120, 60, 1)
    labels = np.arange(120) // 20
    order = np.random.default_rng(5).permutation(120)
    moved = Graph(graph.adjacency[order][:, order])
    # u is out of reach, so nothing is sampled and growth does not depend on the order of nodes.
    one = patch_graph(graph, labels, degree=3, overlap=(6, 10_000), seed=3)
    two = patch_graph(moved, labels[order], degree=3, overlap=(6, 10_000), seed=3)
    assert np.array_equal(one.edges, two.edges)
    for a, b in zip(one.node_sets, two.node_sets, strict=True):
        assert np.array_equal(a, np.sort(order[b]))


def test_growth_ring_by_ring_as_in_the_paper():
    graph = ring(40)
    patches = patch_graph(graph, np.arange(40) // 20, degree=1, overlap=(8, 8))
    assert set(patches.node_sets[0].tolist()) == {*range(20), 20, 21, 38, 39}


def test_an_exhausted_frontier_is_seeded_again():
    # Cluster 1 is a path end plus isolated pieces: its boundary leads to two nodes only.
    A = np.zeros((24, 24))
    for u in range(11):
        A[u, u + 1] = 1
    A[11, 12] = A[12, 13] = 1
    graph = Graph(sp.csr_array(A + A.T))
    labels = np.repeat([0, 1], 12)
    patches = patch_graph(graph, labels, degree=1, overlap=(12, 16), seed=0)
    assert patches.overlaps.tolist() == [12]
    assert patches.report["edges_reseeded"] == 1


def test_directed_and_disconnected_graphs():
    directed = Graph(sp.csr_array(np.roll(np.eye(40), 1, 0)))
    assert directed.directed
    assert patch_graph(directed, np.arange(40) // 20, degree=1, overlap=(4, 8)).n_patches == 2
    two = Graph(sp.block_diag([ring(40).adjacency, ring(20).adjacency]).tocsr())
    labels = np.arange(60) // 10
    with pytest.raises(DisconnectedError, match=r"patches 0, 1, 2, 3 with 40 nodes; patches 4, 5 with 20"):
        patch_graph(two, labels, degree=2, overlap=(4, 8))
    patches = patch_graph(two, labels, degree=2, overlap=(4, 8), components="each")
    assert patches.placement_arbitrary
    assert patches.component.tolist() == [0, 0, 0, 0, 1, 1]
    assert patches.summary()["placement_arbitrary"]
    isolated = Graph(sp.block_diag([ring(40).adjacency, sp.csr_array((5, 5))]).tocsr())
    assert patch_graph(isolated, Metis(3)(isolated), degree=2, overlap=(4, 8)).n_nodes == 45


@pytest.mark.parametrize(("name", "p", "k"), [("cora", 10, 4), ("amazon-photo", 10, 4), ("pubmed", 20, 5)])
def test_limits_leave_the_paper_s_patches_alone(dataset_folder, name, p, k):
    graph, _ = read_edges(dataset_folder(name) / f"{name}.npz").largest_component()
    labels = Metis(p)(graph)
    patches = patch_graph(graph, labels, degree=k, overlap=(256, 1024))
    plain = patch_graph(graph, labels, degree=k, overlap=(256, 1024), limits=Limits.none())
    assert all(np.array_equal(a, b) for a, b in zip(patches.node_sets, plain.node_sets, strict=True))
    assert patches.overlaps.min() >= 256
    assert patches.degrees.mean() == k
    assert patches.report["edges_capped_by_growth"] == 0


def test_one_patch():
    patches = patch_graph(ring(10), np.zeros(10, int), degree=4, overlap=(4, 8))
    assert patches.n_patches == 1
    assert len(patches.edges) == 0
    assert patches.summary()["overlap"] is None


def test_no_patch_swallows_a_star():
    # One hub cluster joined to thirty others, which have no edges among themselves.
    size, p = 40, 31
    A = np.zeros((size * p, size * p))
    for k in range(p):
        for u in range(size):
            A[k * size + u, k * size + (u + 1) % size] = 1
        A[0, k * size + 3] = k > 0
    graph = Graph(sp.csr_array(np.maximum(A, A.T)))
    labels = np.repeat(np.arange(p), size)
    plain = patch_graph(graph, labels, degree=2, overlap=(20, 40), limits=Limits.none())
    assert plain.sizes[0] >= size + 10 * (p - 1)
    bounded = patch_graph(graph, labels, degree=2, overlap=(20, 40), limits=Limits(growth=4))
    assert bounded.sizes[0] <= 4 * size
    assert bounded.overlaps.min() >= 20
    assert bounded.report["edges_shifted_by_growth"] == p - 1
    assert bounded.report["patches_beyond_degree_limit"] == [0]
    assert bounded.report["patches_beyond_growth"] == []


def test_a_limit_that_cannot_be_kept_is_reported(caplog):
    graph = ring(60)
    patches = patch_graph(graph, np.arange(60) // 10, degree=2, overlap=(18, 20), limits=Limits(growth=1.5))
    assert patches.report["patches_beyond_growth"] == [0, 1, 2, 3, 4, 5]
    assert patches.overlaps.min() >= 18
    assert "grew beyond 1.5 times" in caplog.text


def test_too_small_a_cluster_is_named():
    graph = ring(44)
    labels = np.minimum(np.arange(44) // 20, 2)
    with pytest.raises(OverlapError, match=r"patches 0 and 2 cannot share 10 .* 5 nodes of cluster 2, which has 4"):
        patch_graph(graph, labels, degree=2, overlap=(10, 20))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"overlap": (0, 5)}, r"1 <= l <= u; it is \(0, 5\)"),
        ({"overlap": (6, 5)}, r"1 <= l <= u; it is \(6, 5\)"),
        ({"degree": 0}, "must be positive and finite, not 0"),
        ({"labels": np.zeros(10, int)}, "20 nodes and the cluster labels have shape"),
        ({"labels": np.repeat([0, 2], 10)}, "have no nodes, the first is 1"),
    ],
)
def test_bad_arguments(change, message):
    arguments = {"labels": np.repeat([0, 1], 10), "degree": 1, "overlap": (4, 6)} | change
    with pytest.raises(InputError, match=message):
        patch_graph(ring(20), arguments.pop("labels"), **arguments)


def test_bad_limits():
    with pytest.raises(InputError, match="must be above 1"):
        Limits(growth=1)
    with pytest.raises(InputError, match="at least 2"):
        Limits(degree=1)


def test_conductance_is_cut_over_the_smaller_volume():
    graph = ring(30, 20, 0)
    labels = np.arange(30) // 10
    A = graph.adjacency.toarray()
    edges, c = conductance(graph, labels)
    for (i, j), value in zip(edges, c, strict=True):
        cut = A[np.ix_(labels == i, labels == j)].sum()
        assert np.isclose(value, cut / min(A[labels == i].sum(), A[labels == j].sum()))
    assert np.array_equal(Conductance()(edges, c, 3), c)


def test_patches_from_elsewhere(tmp_path):
    patches = PatchGraph.from_patches([[3, 1, 0], (np.array([1, 2, 3]), np.zeros((3, 2))), [2, 3, 4]])
    assert patches.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert patches.overlaps.tolist() == [2, 1, 2]
    assert patches.node_sets[0].tolist() == [0, 1, 3]
    assert PatchGraph.from_patches(patches.node_sets, min_overlap=2).edges.tolist() == [[0, 1], [1, 2]]
    assert PatchGraph.from_patches(patches.node_sets, [[2, 1], [1, 0]]).edges.tolist() == [[1, 2], [0, 1]]
    patches.save(tmp_path / "patches.npz")
    again = PatchGraph.load(tmp_path / "patches.npz")
    assert np.array_equal(again.edges, patches.edges)
    assert [p.tolist() for p in again.node_sets] == [p.tolist() for p in patches.node_sets]
    data = (tmp_path / "patches.npz").read_bytes()
    (tmp_path / "patches.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(FormatError, match="not a complete patch graph"):
        PatchGraph.load(tmp_path / "patches.npz")
    with pytest.raises(FormatError, match="does not exist"):
        PatchGraph.load(tmp_path / "nothing.npz")


def test_invariants_of_patch_graphs():
    with pytest.raises(CoverError, match="1 of 5 nodes are in no patch, the first is 3"):
        PatchGraph.from_patches([[0, 1, 2], [2, 4]])
    with pytest.raises(CoverError, match="patch 1 holds node 4, but there are only 3 nodes"):
        PatchGraph.from_patches([[0, 1, 2], [2, 4]], n_nodes=3)
    with pytest.raises(OverlapError, match="patches 0 and 1 share no nodes"):
        PatchGraph.from_patches([[0, 1], [2, 3]], [[0, 1]])
    with pytest.raises(DisconnectedError, match="2 components"):
        PatchGraph.from_patches([[0, 1], [2, 3]])
    assert PatchGraph.from_patches([[0, 1], [2, 3]], components="each").placement_arbitrary
    with pytest.raises(InputError, match="joins a patch to itself"):
        PatchGraph.from_patches([[0, 1], [1, 2]], [[1, 1]])
    with pytest.raises(InputError, match="2 times"):
        PatchGraph.from_patches([[0, 1], [1, 2]], [[0, 1], [1, 0]])
    with pytest.raises(InputError, match=r"the edge \(0, 2\) names a patch that is not there"):
        PatchGraph.from_patches([[0, 1], [1, 2]], [[0, 2]])
    with pytest.raises(InputError, match="patch 0: 1 node ids occur more than once"):
        PatchGraph.from_patches([[0, 1, 1]])
    with pytest.raises(CoverError, match="patch 1 has no nodes"):
        PatchGraph.from_patches([[0, 1], np.empty(0, int)])
    with pytest.raises(CoverError, match="no patches"):
        PatchGraph.from_patches([])
    with pytest.raises(OverlapError, match=r"patches 0 and 1 share 2 nodes; aligning in 2 dimensions needs at least 3"):
        PatchGraph.from_patches([[0, 1, 2], [1, 2, 3]]).check_dim(2)


def test_node_lists_from_elsewhere_must_be_in_order():
    with pytest.raises(CoverError, match="patch 1 must list its nodes in ascending order"):
        PatchGraph(NodeSets(np.array([0, 1, 2, 3, 2]), np.array([0, 3, 5])), np.array([[0, 1]]), 4)


@pytest.mark.parametrize(
    ("sizes", "overlap", "limits", "seed", "expected"),
    [
        ((1200, 6, 3), (60, 200), Limits(), 0, "85d6839bde0e1a54"),
        ((2400, 12, 4), (40, 90), Limits(growth=3), 1, "b25321fb544fe127"),
        ((1200, 30, 5), (30, 36), Limits.none(), 2, "cc4f814e1e10cce1"),
        ((1800, 5, 2), (500, 600), Limits(), 3, "afd0d6653437aea1"),
    ],
)
def test_the_same_seed_gives_the_patches_that_it_always_gave(sizes, overlap, limits, seed, expected):
    n, p, degree = sizes
    graph = block_graph(n, 6, seed=seed)
    weight = Conductance() if seed % 2 else Resistance()
    labels = Fennel(p)(graph)
    patches = patch_graph(graph, labels, degree=degree, overlap=overlap, edge_weight=weight, limits=limits, seed=seed)
    digest = hashlib.sha256()
    for array in (patches.node_sets.nodes, patches.node_sets.starts, patches.edges):
        digest.update(np.asarray(array).astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == expected


def test_node_lists_take_32_bits_and_mean_the_same_as_lists_of_64(tmp_path):
    graph = block_graph(600, 4)
    patches = patch_graph(graph, Fennel(5)(graph), degree=2, overlap=(20, 60))
    assert {nodes.dtype.name for nodes in patches.node_sets} == {"int32"}
    wide = PatchGraph([nodes.astype(np.int64) for nodes in patches.node_sets], patches.edges, patches.n_nodes)
    assert patch_graph_fingerprint(patches) == patch_graph_fingerprint(wide)
    assert np.array_equal(patches.overlaps, wide.overlaps)
    patches.save(tmp_path / "patches.npz")
    assert patch_graph_fingerprint(PatchGraph.load(tmp_path / "patches.npz")) == patch_graph_fingerprint(wide)


@given(st.integers(0, 10**6), st.integers(1, 40))
def test_descending_pieces_are_the_stable_order(seed, count):
    values = np.random.default_rng(seed).integers(0, 12, 60).astype(float)
    pieces = np.concatenate(list(_descending(values, count)))
    assert np.array_equal(pieces, np.argsort(-values, kind="stable"))
