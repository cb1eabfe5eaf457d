"""What edges and embedders may be: what people have, and one sentence for anything else."""

import contextlib
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from extras import needs
from graphquilt.errors import EmbedderError, InputError
from graphquilt.graph import from_networkx, from_pyg
from graphquilt.jobs.options import default_patches

PAIRS = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]
WEIGHTS = [1.0, 2.0, 0.5, 4.0]
NAMES = ["a", "b", "c", "d"]


def numbers():
    return np.array([["abcd".index(u), "abcd".index(v)] for u, v in PAIRS])


def matrix():
    A = sp.coo_array((WEIGHTS, numbers().T), shape=(4, 4))
    return (A + A.T).tocsr()


def networkx_graph():
    nx = pytest.importorskip("networkx")
    network = nx.Graph()
    network.add_weighted_edges_from((u, v, w) for (u, v), w in zip(PAIRS, WEIGHTS, strict=True))
    return network


def pyg_data():
    needs("torch_geometric")
    import torch
    from torch_geometric.data import Data

    return Data(edge_index=torch.tensor(numbers().T), edge_weight=torch.tensor(WEIGHTS), num_nodes=4)


def arrow_table():
    import pyarrow as pa

    return pa.table({"from": [u for u, _ in PAIRS], "to": [v for _, v in PAIRS], "weight": WEIGHTS})


def rows(layout):
    """The edges as lines of a text file."""
    edges = [(u, v, w) for (u, v), w in zip(PAIRS, WEIGHTS, strict=True)]
    return "".join(layout.format(u=u, v=v, w=w) + "\n" for u, v, w in edges)


class Capsule:
    """A frame that nobody has heard of: it has Arrow's C stream, and nothing else."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def igraph_graph():
    network = needs("igraph").Graph(len(NAMES))
    network.vs["name"] = NAMES
    network.add_edges([(NAMES.index(u), NAMES.index(v)) for u, v in PAIRS], {"weight": WEIGHTS})
    return network


INPUTS = {
    "Graph": lambda: gq.Graph(matrix(), node_ids=NAMES),
    "PyG": pyg_data,
    "NetworkX": networkx_graph,
    "SciPy": matrix,
    "array of numbers": lambda: np.c_[numbers(), WEIGHTS],
    "array of text": lambda: np.array(PAIRS),
    "array of objects": lambda: np.array(PAIRS, dtype=object),
    "edge index": lambda: numbers().T,
    "list of pairs": lambda: PAIRS,
    "list of triples": lambda: [(u, v, w) for (u, v), w in zip(PAIRS, WEIGHTS, strict=True)],
    "Arrow": arrow_table,
    "pandas": lambda: pytest.importorskip("pandas") and arrow_table().to_pandas(),
    "polars": lambda: pytest.importorskip("polars").from_arrow(arrow_table()),
    "narwhals": lambda: needs("narwhals").from_native(arrow_table()),
    "DuckDB": lambda: needs("duckdb").from_arrow(arrow_table()),
    "stream of batches": lambda: arrow_table().to_reader(),
    "capsule alone": lambda: Capsule(arrow_table()),
    "igraph": igraph_graph,
}
WITHOUT_NAMES = ("PyG", "SciPy", "array of numbers", "edge index")
WITHOUT_WEIGHTS = ("array of text", "array of objects", "edge index", "list of pairs")


@pytest.mark.parametrize("kind", INPUTS)
def test_every_kind_of_input_gives_the_same_graph(kind):
    graph = gq.read_edges(INPUTS[kind]())
    A = matrix()
    A = (A != 0).astype(float) if kind in WITHOUT_WEIGHTS else A
    assert (graph.adjacency != A).nnz == 0
    assert graph.node_ids is None if kind in WITHOUT_NAMES else graph.node_ids.tolist() == NAMES
    result = gq.embed(INPUTS[kind](), 2)
    assert result.embedding.shape == (4, 2)
    assert np.isfinite(result.embedding).all()
    assert result.node_ids is None if kind in WITHOUT_NAMES else result.node_ids.tolist() == NAMES


def test_a_path_gives_what_its_file_has(tmp_path):
    (tmp_path / "edges.csv").write_text("from,to,weight\n" + rows("{u},{v},{w}"))
    graph = gq.read_edges(tmp_path / "edges.csv")
    assert (graph.adjacency != matrix()).nnz == 0
    graph.save(tmp_path / "graph")
    assert np.array_equal(gq.read_edges(tmp_path / "graph").indices, graph.indices)
    expected = gq.embed(graph, 2).embedding
    for path in (tmp_path / "edges.csv", str(tmp_path / "graph")):
        assert np.array_equal(gq.embed(path, 2).embedding, expected)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ({"a": ["b"]}, r"edges are a Graph, a PyG Data, a graph of NetworkX or igraph, .*; not dict\."),
        (7, r"or the path of a file or graph folder; not int\."),
        ([("a", "b"), ("c",)], "all alike; these have 1 and 2 entries"),
        ([("a", "b", "x")], "the third column of edges is their weight, a number"),
        ([("a", None)], "node ids are whole numbers or text; None is neither"),
        (np.array([[0.5, 1.0], [1.0, 2.0], [1.0, 2.0]]), "0.5 is neither"),
        (np.eye(5), r"5 × 5 may be a matrix, which is given as scipy\.sparse\.csr_array"),
        (np.eye(5, dtype=int), "5 × 5 may be a matrix"),
        (np.eye(5, dtype=bool), "5 × 5 may be a matrix"),
        (SimpleNamespace(edge_index=None, num_nodes=4), "this Data has no edges: its edge_index is None"),
        (np.ones((3, 3)), "3 × 3 may be a matrix"),
        (np.zeros((4, 7), dtype=int), r"edges are integers of shape \(2, m\) or \(m, 2\)"),
    ],
)
def test_anything_else_is_an_error_that_names_what_is_taken(edges, message):
    with pytest.raises(InputError, match=message):
        gq.read_edges(edges)


def test_a_weight_of_networkx_that_is_no_number_is_named():
    nx = pytest.importorskip("networkx")
    network = nx.Graph([("a", "b", {"weight": 2}), ("b", "c", {"weight": "x"})])
    with pytest.raises(InputError, match="the weight of the edge from 'b' to 'c' is 'x', which is not a number"):
        gq.read_edges(network)


@pytest.mark.parametrize(
    ("edges", "options", "message"),
    [
        (sp.csr_array((0, 0)), {}, "the graph has no nodes"),
        (PAIRS, {"dim": 0}, "Propagation needs a dim that is an integer of at least 1, not 0"),
        (PAIRS, {"seed": "a"}, "seed must be a non-negative integer, not 'a'"),
        (PAIRS, {"seed": -1}, "seed must be a non-negative integer, not '-1'"),
    ],
)
def test_embed_refuses_what_makes_no_sense_with_one_sentence(edges, options, message):
    with pytest.raises(InputError, match=message):
        gq.embed(edges, **options)


def test_options_for_text_files_are_refused_without_a_file():
    with pytest.raises(InputError, match="header and ids say how a text file is read"):
        gq.read_edges(PAIRS, header=True, ids="text")


def test_weights_are_used_where_the_header_says_so_and_else_announced(tmp_path, caplog):
    (tmp_path / "named.csv").write_text("person,friend,Weight\n" + rows("{u},{v},{w}"))
    (tmp_path / "moved.csv").write_text("id,weight,Source,Target\n" + rows("7,{w},{u},{v}"))
    for name in ("named", "moved"):
        assert gq.read_edges(tmp_path / f"{name}.csv").weights.max() == 4
    assert not caplog.records
    (tmp_path / "bare.csv").write_text(rows("{u},{v},{w}"))
    (tmp_path / "noted.csv").write_text("from,to,note\n" + rows("{u},{v},see {w}"))
    (tmp_path / "counted.csv").write_text("from,to,count\n" + rows("{u},{v},{w}"))
    expected = {"bare": ["--columns '0,1,2'"], "counted": ["--columns 'from,to,count'"], "noted": []}
    for name, advice in expected.items():
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert gq.read_edges(tmp_path / f"{name}.csv").weights is None
        messages = [record.getMessage() for record in caplog.records]
        assert len(messages) == len(advice)
        assert all(words in message for words, message in zip(advice, messages, strict=True))
    caplog.clear()
    assert gq.read_edges(tmp_path / "bare.csv", columns=(0, 1, 2)).weights.max() == 4
    assert gq.read_edges(tmp_path / "counted.csv", columns=(0, 1)).weights is None
    assert not caplog.records


def ring(n=60):
    A = sp.csr_array(np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0))
    return gq.Graph(A, np.random.default_rng(0).random((n, 3)))


def features_of(graph, seed):
    return np.asarray(graph.features)


def degrees(graph):
    return np.c_[graph.degrees, graph.degrees]


class Columns:
    """What an object of another package looks like."""

    def fit_transform(self, A):
        return (A @ A @ np.arange(3.0 * A.shape[0]).reshape(-1, 3)) ** 0.5 + A @ np.eye(A.shape[0], 3)


@pytest.mark.parametrize(("embedder", "dim"), [(features_of, 3), (degrees, 2), (Columns(), 3)])
def test_functions_and_objects_embed(embedder, dim):
    graph = ring()
    assert gq.embed(graph, dim, embedder=embedder).patches[0].dim == dim
    patch_graph = gq.cut(graph, cutting=gq.Cutting(3, overlap=(8, 16)), embedder=gq.SVD(dim))
    assert [patch.dim for patch in gq.embed_patches(graph, patch_graph, embedder)] == [dim] * 3
    assert [patch.dim for patch in gq.embed_patches(graph, patch_graph, [embedder] * 3)] == [dim] * 3


def test_a_class_of_embedders_gets_the_dimension():
    assert gq.embed(ring(), 3, embedder=gq.SVD).embedding.shape == (60, 3)


def test_the_embedder_says_the_dimension():
    assert gq.embed(ring(), embedder=gq.SVD(3)).embedding.shape == (60, 3)
    assert gq.embed(ring()).embedding.shape == (60, 64)
    with pytest.raises(InputError, match=r"dim is 4, and SVD.* embeds in 3 dimensions"):
        gq.embed(ring(), 4, embedder=gq.SVD(3))


@pytest.mark.parametrize("store", [None, "folder"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_wrong_width_is_found_on_the_first_patch_and_told_once(store, workers, tmp_path):
    options = {"n_patches": 3, "embedder": features_of, "store": gq.DirectoryStore(tmp_path / "job") if store else None}
    message = r"^features_of returned 3 columns for patch \d and its dim is 4: give dim=3, or let it return 4"
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(gq.Processes(workers)) if workers else None
        with pytest.raises(EmbedderError, match=message) as caught:
            gq.embed(ring(), 4, executor=pool, **options)
    assert str(caught.value).count("features_of") == 1


@pytest.mark.parametrize(
    ("embedder", "message"),
    [
        ("vgae", "an embedder is one of graphquilt's, .*, not 'vgae'"),
        (3, "a function of a graph and a seed, or an object with fit_transform, not 3"),
        (Columns, "not the class Columns; make an object of it"),
    ],
)
def test_what_is_no_embedder_is_refused(embedder, message):
    with pytest.raises(InputError, match=message):
        gq.embed(ring(), 3, embedder=embedder)


def test_a_function_without_a_dimension_has_to_be_told_one():
    with pytest.raises(InputError, match="degrees does not say in how many dimensions it embeds; give dim"):
        gq.embed(ring(), embedder=degrees)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 100])
def test_small_graphs_are_one_patch(n):
    path = sp.csr_array(np.eye(n, k=1) + np.eye(n, k=-1))
    result = gq.embed(path, 8)
    assert result.patch_graph.n_patches == 1
    assert result.embedding.shape == (n, 8)
    assert np.isfinite(result.embedding).all()


def test_the_number_of_patches_never_falls_with_the_size():
    sizes = [default_patches(n) for n in range(0, 3_000_000, 1_000)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (1, 60)
    assert gq.Cutting(partitioner=gq.Fennel).resolved(dim=2, n_nodes=6000, seed=3).partitioner == gq.Fennel(10, seed=3)


@pytest.mark.parametrize(
    ("edges", "features", "message"),
    [
        ([(2**70, 1), (1, 2)], None, "the id 1180591620717411303424 is beyond 64 bits"),
        (np.array([[0, 1], [2, 3]]), None, "2 × 2 may be a matrix"),
        ([(0, 1), (1, 2)], np.ones((3, 2), dtype=complex), "features are real numbers, not complex128"),
        ([(0, 1), (1, 2)], np.array([["a"]] * 3, dtype=object), "features are real numbers, not object"),
    ],
)
def test_odd_input_is_refused_with_one_sentence(edges, features, message):
    with pytest.raises(InputError, match=message):
        gq.read_edges(edges, features=features)


def test_weights_of_networkx_under_another_name_are_told(caplog):
    networkx = pytest.importorskip("networkx")
    network = networkx.Graph()
    network.add_edge("a", "b", w=3)
    assert gq.read_edges(network).weights is None
    assert "have no weight, but 'w', which is not used" in caplog.text
    assert from_networkx(network, weight="w").weights.max() == 3


def hetero():
    """Users who follow users and rate items."""
    needs("torch_geometric")
    import torch
    from torch_geometric.data import HeteroData

    data = HeteroData()
    data["user"].x, data["user"].y = torch.eye(4), torch.tensor([0, 0, 1, 1])
    data["item"].num_nodes = 2
    data["user", "follows", "user"].edge_index = torch.tensor(numbers().T)
    data["user", "follows", "user"].edge_weight = torch.tensor(WEIGHTS)
    data["user", "rates", "item"].edge_index = torch.tensor([[0, 1, 3], [0, 1, 1]])
    return data


def test_one_edge_type_of_a_heterodata_is_a_graph():
    data = hetero()
    graph = from_pyg(data, edge_type=("user", "follows", "user"))
    assert (graph.adjacency != matrix()).nnz == 0
    assert graph.features.shape == (4, 4)
    assert graph.labels.tolist() == [0, 0, 1, 1]
    graph = from_pyg(data, edge_type=("user", "rates", "item"))
    assert graph.node_ids.tolist() == ["user/0", "user/1", "user/2", "user/3", "item/0", "item/1"]
    assert sorted(zip(*(ends.tolist() for ends in graph.adjacency.nonzero()), strict=True)) == [
        (0, 4), (1, 5), (3, 5), (4, 0), (5, 1), (5, 3),
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"several kinds of edges; choose one of \('user', 'follows', 'user'\)"):
        gq.read_edges(data)
    with pytest.raises(InputError, match="has no edges"):
        from_pyg(data, edge_type=("user", "likes", "item"))
    del data["user", "rates", "item"]
    assert (gq.read_edges(data).adjacency != matrix()).nnz == 0
    with pytest.raises(InputError, match="Leave it out"):
        from_pyg(pyg_data(), edge_type=("user", "rates", "item"))


def test_a_directed_igraph_keeps_its_direction():
    igraph = needs("igraph")
    graph = gq.read_edges(igraph.Graph(3, [(0, 1), (2, 1)], directed=True))
    assert graph.directed
    assert graph.adjacency.toarray().tolist() == [[0, 1, 0], [0, 0, 0], [0, 1, 0]]
    weighted = igraph.Graph(2, [(0, 1)], edge_attrs={"weight": ["much"]})
    with pytest.raises(InputError, match="from 0 to 1 is 'much', which is not a number"):
        gq.read_edges(weighted)


def test_the_lines_for_graph_tool_and_dgl():
    """Their arrays, as docs/how-to/other-tools.md uses them; the packages themselves have no wheels here."""
    of_graph_tool = numbers()  # graph.get_edges()
    assert (gq.read_edges(of_graph_tool, n_nodes=4).adjacency != (matrix() != 0)).nnz == 0
    of_dgl = numbers().T[0], numbers().T[1]  # graph.edges()
    assert (gq.read_edges(np.stack(of_dgl), n_nodes=4).adjacency != (matrix() != 0)).nnz == 0


def test_cells_of_an_anndata_get_an_embedding():
    anndata = needs("anndata")
    cells = anndata.AnnData(obs={"cell": NAMES}, obsp={"connectivities": matrix()})
    cells.obsm["X_graphquilt"] = gq.embed(cells.obsp["connectivities"], 2).embedding
    assert cells.obsm["X_graphquilt"].shape == (4, 2)
    assert (gq.read_edges(cells.obsp["connectivities"]).adjacency != matrix()).nnz == 0
