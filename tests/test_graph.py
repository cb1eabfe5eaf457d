"""Graph: what it holds, what follows a subgraph, what is on disk."""

import json
from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from graphquilt import Graph
from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.graph import attach
from graphquilt.graph.files import save_largest_component


def random_graph(n, m, seed, *, weighted=False, directed=False):
    rng = np.random.default_rng(seed)
    A = np.zeros((n, n))
    for u, v in rng.integers(0, n, (m, 2)):
        if u != v:
            A[u, v] = rng.uniform(0.5, 2) if weighted else 1
            if not directed:
                A[v, u] = A[u, v]
    return A, Graph(sp.csr_array(A), rng.normal(size=(n, 3)), labels=rng.integers(0, 4, n), node_ids=np.arange(n) * 7)


graphs = st.tuples(st.integers(2, 24), st.integers(0, 60), st.integers(0, 2**31), st.booleans(), st.booleans())


@given(graphs, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_subgraph_is_the_submatrix_and_everything_follows(spec, random):
    n, m, seed, weighted, directed = spec
    A, graph = random_graph(n, m, seed, weighted=weighted, directed=directed)
    nodes = np.array(random.sample(range(n), random.randint(1, n)))
    part = graph.subgraph(nodes)
    assert np.array_equal(part.adjacency.toarray(), A[np.ix_(nodes, nodes)])
    assert all(np.all(np.diff(part.indices[a:b]) > 0) for a, b in zip(part.indptr[:-1], part.indptr[1:], strict=True))
    assert np.array_equal(part.features, graph.features[nodes])
    assert np.array_equal(part.labels, graph.labels[nodes])
    assert np.array_equal(part.node_ids, nodes * 7)


@given(graphs, st.randoms(use_true_random=False), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_split_has_the_subgraph_and_the_clusters_that_edges_leave_it_for(spec, random, k):
    n, m, seed, weighted, directed = spec
    A, graph = random_graph(n, m, seed, weighted=weighted, directed=directed)
    nodes = np.array(random.sample(range(n), random.randint(0, n)), dtype=int)
    cluster = np.random.default_rng(seed).integers(0, k, n).astype(np.int32)
    part, (indptr, clusters, weights) = graph.split(nodes, cluster)
    assert np.array_equal(part.adjacency.toarray(), A[np.ix_(nodes, nodes)])
    assert np.array_equal(part.features, graph.features[nodes])
    outside = np.setdiff1d(np.arange(n), nodes)
    assert len(indptr) == len(nodes) + 1
    assert len(weights) == (len(clusters) if graph.weights is not None else 0)
    for row, node in enumerate(nodes):
        ends = outside[A[node, outside] > 0]
        edges = slice(indptr[row], indptr[row + 1])
        assert sorted(clusters[edges].tolist()) == sorted(cluster[ends].tolist())
        if graph.weights is not None:
            found = np.bincount(clusters[edges], weights=weights[edges], minlength=k)
            np.testing.assert_allclose(found, np.bincount(cluster[ends], weights=A[node, ends], minlength=k))
    alone, (_, none, _) = graph.split(nodes, np.empty(0, dtype=np.int32))
    assert len(none) == 0
    assert np.array_equal(alone.indices, part.indices)


def test_subgraph_of_a_wide_graph_needs_no_table():
    n = (1 << 22) + 10
    graph = Graph.from_arrays(
        np.concatenate([np.arange(0, 2 * n - 1, 2).clip(1) - 1, [2 * n - 2]]).astype(np.int64), path_indices(n)
    )
    nodes = np.array([n - 1, 5, 6, n - 2, 100])
    assert graph.subgraph(nodes).adjacency.toarray().sum(axis=1).tolist() == [1, 1, 1, 1, 0]


def path_indices(n):
    pairs = np.stack([np.arange(-1, n - 1), np.arange(1, n + 1)], axis=1).ravel()
    return pairs[1:-1].astype(np.int32)


@given(graphs, st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_quotient_equals_brute_force(spec, p):
    n, m, seed, weighted, directed = spec
    A, graph = random_graph(n, m, seed, weighted=weighted, directed=directed)
    labels = np.unique(np.random.default_rng(seed).integers(0, p, n), return_inverse=True)[1]
    H = np.eye(labels.max() + 1)[labels]
    expected = H.T @ A @ H
    np.fill_diagonal(expected, 0)
    assert np.allclose(graph.quotient(labels).adjacency.toarray(), expected)


@given(graphs)
@settings(max_examples=40, deadline=None)
def test_components_and_the_largest(spec):
    n, m, seed, weighted, directed = spec
    A, graph = random_graph(n, m, seed, weighted=weighted, directed=directed)
    expected = connected_components(sp.csr_array(A), directed=True, connection="weak")[1]
    numbers = graph.components()
    assert (
        len(np.unique(np.stack([numbers, expected]), axis=1).T) == len(np.unique(expected)) == len(np.unique(numbers))
    )
    part, nodes = graph.largest_component()
    assert part.n_nodes == len(nodes) == np.bincount(expected).max()
    assert len(np.unique(expected[nodes])) == 1


def test_relabelling_nodes_permutes_the_largest_component():
    A, graph = random_graph(40, 30, 3)
    order = np.random.default_rng(0).permutation(40)
    _, nodes = graph.largest_component()
    _, moved = Graph(sp.csr_array(A[np.ix_(order, order)])).largest_component()
    assert set(order[moved]) == set(nodes)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_save_and_open(tmp_path, sparse, weighted):
    _, graph = random_graph(20, 40, 0, weighted=weighted)
    X = sp.csr_array(graph.features * (graph.features > 0)) if sparse else graph.features
    graph = Graph(graph.adjacency, X, labels=graph.labels, node_ids=[f"node {k}" for k in range(20)])
    graph.save(tmp_path / "g")
    again = Graph.open(tmp_path / "g")
    assert isinstance(again.indices, np.memmap)
    assert again.indices.dtype == np.int32
    assert (tmp_path / "g" / "weights.npy").exists() == weighted
    assert np.array_equal(again.adjacency.toarray(), graph.adjacency.toarray())
    assert np.array_equal(again.labels, graph.labels)
    assert again.node_ids.tolist() == graph.node_ids.tolist()
    assert (again.features != graph.features).sum() == 0
    part = again.subgraph([3, 1])
    assert part.node_ids.tolist() == ["node 3", "node 1"]


def test_an_empty_graph_can_be_saved(tmp_path):
    Graph(sp.csr_array((4, 4))).save(tmp_path)
    assert Graph.open(tmp_path).largest_component()[0].n_nodes == 1


def test_a_folder_without_its_description_is_no_graph(tmp_path):
    _, graph = random_graph(20, 40, 0)
    graph.save(tmp_path)
    (tmp_path / "graph.json").unlink()
    with pytest.raises(FormatError, match=r"graph\.json, which is written last, is missing"):
        Graph.open(tmp_path)


def test_a_truncated_array_is_named(tmp_path):
    _, graph = random_graph(20, 40, 0)
    graph.save(tmp_path)
    file = tmp_path / "indices.npy"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(FormatError, match=r"indices\.npy .* cut short"):
        Graph.open(tmp_path)
    file.unlink()
    with pytest.raises(FormatError, match=r"indices\.npy is missing"):
        Graph.open(tmp_path)


def test_another_version_is_refused(tmp_path):
    random_graph(5, 5, 0)[1].save(tmp_path)
    description = json.loads((tmp_path / "graph.json").read_text())
    (tmp_path / "graph.json").write_text(json.dumps(description | {"version": 99}))
    with pytest.raises(FormatError, match="version 99"):
        Graph.open(tmp_path)


def test_bad_input():
    A = sp.csr_array(np.array([[0, 1.0], [1, 0]]))
    with pytest.raises(InputError, match=r"features must have 2 rows, one per node, not the shape \(3, 1\)"):
        Graph(A, np.zeros((3, 1)))
    with pytest.raises(InputError, match=r"2 rows, one per node, not the shape \(2,\)"):
        Graph(A, [1.0, 2.0])
    with pytest.raises(InputError, match=r"labels must have shape \(2,\), one per node, not \(1,\)"):
        Graph(A, labels=[0])
    with pytest.raises(InputError, match="2 × 3"):
        Graph(sp.csr_array(np.ones((2, 3))))
    with pytest.raises(InputError, match=r"2 of 2 are not, the first is -1\.0"):
        Graph(-A)
    with pytest.raises(InputError, match="finite"):
        Graph(A * np.inf)
    with pytest.raises(InputError, match="not from list"):
        Graph([[0, 1], [1, 0]])
    graph = Graph(A)
    with pytest.raises(InputError, match=r"0\.\.1; found 0\.\.2"):
        graph.subgraph([0, 2])
    with pytest.raises(InputError, match="node 1 is named more than once"):
        graph.subgraph([1, 1])
    with pytest.raises(InputError, match="shape"):
        graph.quotient([0])
    with pytest.raises(InputError, match=r"1 of the clusters 0\.\.2 have no nodes, the first is 1"):
        Graph(sp.csr_array((3, 3))).quotient([0, 2, 2])
    with pytest.raises(InputError, match="integers"):
        graph.quotient([0.0, 1.0])
    with pytest.raises(InputError, match="negative; node 1 has -1"):
        graph.quotient([0, -1])


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([0, 2, 2], [1, 0], r"row 0 has 1, 0"),
        ([0, 2, 2], [1, 1], r"row 0 has 1, 1"),
        ([0, 1, 2], [1, 2], r"0\.\.1; found 1\.\.2"),
        ([0, 1, 2], [1, -1], r"0\.\.1; found -1\.\.1"),
        ([0, 2, 1, 2], [1, 0], r"must not decrease; it does after row 1: 2, 1"),
        ([0, 1], [0, 0], r"end at the number of indices, 2; it has 2 entries and ends at 1"),
        ([], [], r"it has 0 entries"),
    ],
)
def test_arrays_that_are_no_csr(indptr, indices, message):
    with pytest.raises(InputError, match=message):
        Graph.from_arrays(np.array(indptr, dtype=np.int64), np.array(indices, dtype=np.int32))


def test_rows_may_begin_anywhere():
    graph = Graph.from_arrays(np.array([0, 1, 1, 3, 3]), np.array([2, 0, 1]), directed=True)
    assert graph.degrees.tolist() == [1, 0, 2, 0]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JobError, match="cannot be written"):
        random_graph(5, 5, 0)[1].save(tmp_path / "file")


def test_undirected_keeps_the_larger_weight():
    graph = Graph(sp.csr_array(np.array([[0, 3.0, 0], [1, 0, 2], [0, 0, 0]])))
    assert graph.directed
    assert graph.undirected().adjacency.toarray().tolist() == [[0, 3, 0], [3, 0, 2], [0, 2, 0]]
    assert not graph.undirected().directed


def test_attached_features_take_the_place_of_older_ones_dense_or_sparse(tmp_path):
    graph = Graph(sp.csr_array(np.array([[0, 1.0], [1, 0]])), np.ones((2, 3)))
    graph.save(tmp_path)
    attach(tmp_path, features=sp.csr_array(np.eye(2)))
    assert Graph.open(tmp_path).features.toarray().tolist() == [[1, 0], [0, 1]]
    attach(tmp_path, features=np.zeros((2, 1)), labels=np.array([4, 5]))
    assert Graph.open(tmp_path).features.shape == (2, 1)
    assert Graph.open(tmp_path).labels.tolist() == [4, 5]
    with pytest.raises(InputError, match="the graph has 2 nodes and the labels have 3 rows"):
        attach(tmp_path, labels=np.zeros(3))


def test_labels_and_ids_are_one_per_node():
    A = sp.csr_array([[0, 1], [1, 0]])
    for name in ("labels", "node_ids"):
        for values in (3, [[1, 2], [3, 4]], [1]):
            with pytest.raises(InputError, match=rf"{name} must have shape \(2,\), one per node"):
                Graph(A, **{name: values})


@given(st.integers(0, 10**6))
def test_the_largest_component_on_disk_is_the_one_in_memory(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    A = sp.random_array((n, n), density=min(1.0, 1.2 / n), rng=rng, format="csr")
    features = sp.random_array((n, 4), density=0.3, rng=rng, format="csr") if seed % 2 else rng.normal(size=(n, 4))
    graph = Graph(A, features, labels=rng.integers(0, 3, n))
    expected, nodes = graph.largest_component()
    with patch("graphquilt.graph.files._ENTRIES", int(rng.integers(1, 20))):
        written = save_largest_component(graph, tmp_path_factory.mktemp("part"))
    assert np.array_equal(written.node_ids, nodes)
    assert (written.adjacency != expected.adjacency).nnz == 0
    assert written.directed == expected.directed
    assert np.array_equal(written.labels, expected.labels)
    dense = [X.toarray() if sp.issparse(X) else X for X in (written.features, expected.features)]
    assert np.array_equal(*dense)
