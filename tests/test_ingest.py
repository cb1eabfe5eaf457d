"""Edges from files: every way of writing them, and each error with its line."""

import gzip
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from extras import needs
from graphquilt import Graph, read_edges
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import from_networkx, from_pyg

TRIANGLE = [[0, 1, 1], [1, 0, 0], [1, 0, 0]]


def write(folder, text, name="edges.txt"):
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "0,1\n0,2\n",
        "source,target\n0,1\n0,2\n",
        "0\t1\n0\t2\n",
        "0 1\n0 2\n",
        "0   1\n 0 2 \n",
        "# a comment\n% another\n0 1\n0 2\n",
        "0 1\n# in the middle\n0 2\n",
        "0;1\r\n0;2\r\n",
        "from,to\n0,1\n2,0\n0,1\n1,0\n2,2\n",
        '"0","1"\n"0","2"\n',
    ],
)
@pytest.mark.parametrize("name", ["edges.txt", "edges.csv.gz"])
def test_text(tmp_path, text, name):
    graph = read_edges(write(tmp_path, text, name))
    assert graph.adjacency.toarray().tolist() == TRIANGLE
    assert graph.node_ids is None
    assert graph.weights is None


def test_ids_are_kept(tmp_path):
    graph = read_edges(write(tmp_path, "20,10\n20,3000000000\n"))
    assert graph.node_ids.tolist() == [10, 20, 3000000000]
    graph = read_edges(write(tmp_path, "src dst\nzürich bern\nbern chur\n"))
    assert graph.node_ids.tolist() == ["bern", "chur", "zürich"]
    assert graph.adjacency.toarray().tolist() == TRIANGLE
    graph = read_edges(write(tmp_path, "1,2\n2,3\n"), ids="text")
    assert graph.node_ids.tolist() == ["1", "2", "3"]


def test_a_column_of_weights_that_are_no_numbers_is_refused(tmp_path):
    (tmp_path / "e.csv").write_text("source,target,weight\na,b,light\nb,c,heavy\n")
    with pytest.raises(FormatError, match="the weight 'light' is not a number"):
        read_edges(tmp_path / "e.csv")
    assert read_edges(tmp_path / "e.csv", columns=("source", "target")).weights is None


def test_weights_columns_and_direction(tmp_path):
    path = write(tmp_path, "time,from,to,w\n5,0,1,0.5\n6,1,0,2\n7,1,2,1\n")
    graph = read_edges(path, columns=("from", "to", "w"))
    assert graph.adjacency.toarray().tolist() == [[0, 2, 0], [2, 0, 1], [0, 1, 0]]
    graph = read_edges(path, columns=(1, 2, 3), directed=True)
    assert graph.directed
    assert graph.adjacency.toarray().tolist() == [[0, 0.5, 0], [2, 0, 1], [0, 0, 0]]
    assert read_edges(path, columns=(1, 2), n_nodes=5).n_nodes == 5


def test_what_was_removed_is_in_the_log(tmp_path, caplog):
    with caplog.at_level("INFO", logger="graphquilt"):
        read_edges(write(tmp_path, "0,1\n0,1\n1,0\n2,2\n1,2\n"))
    assert "5 edges read: 1 self loops removed, 2 duplicates merged; 3 nodes, 2 edges" in caplog.text


def test_a_header_of_words_that_never_occur_again_is_seen(tmp_path, caplog):
    ring = [f"p{k},p{(k + 1) % 12}" for k in range(12)]
    graph = read_edges(write(tmp_path, "\n".join(["name,partner", *ring])))
    assert (graph.n_nodes, "name" in graph.node_ids) == (12, False)
    assert "'name' and 'partner', was taken as a header" in caplog.text
    assert read_edges(write(tmp_path, "\n".join(["name,partner", *ring])), header=False).n_nodes == 14
    two_pairs = write(tmp_path, "\n".join(["ann,bob", *ring, "eve,joe"]))
    assert read_edges(two_pairs).n_nodes == 16  # pairs that stand alone are common here
    assert read_edges(write(tmp_path, "\n".join(["p3,bob", *ring]))).n_nodes == 13


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("0,1\n0,2,3\n", {}, r"line 2: 3 columns where the first row has 2"),
        ("# c\n0 1\n0\n", {}, r"line 3: 1 column where the first row has 2"),
        ("0,1\n0,x\n2,3\n4,5\n", {}, r"line 2: the id 'x' is not an integer"),
        ("0,1,1\n0,2,heavy\n", {"columns": (0, 1, 2)}, r"line 2: the weight 'heavy' is not a number"),
        ("0,1,1\n0,2,-3\n", {"columns": (0, 1, 2)}, r"line 2: the weight '-3' must be finite and not negative"),
        ("0,1,1\n0,2,nan\n", {"columns": (0, 1, 2)}, r"line 2: the weight 'nan' must be finite"),
        ("", {}, "is empty"),
        ("# only\n", {}, "is empty"),
        ("ann,bob\n", {"header": True}, "a header and no edges"),
        ("source,target\n", {}, "a header and no edges: 'source,target'. If this row is an edge: header=False"),
        ("0\n1\n", {}, "1 column; column 1"),
        ("a,b\n0,1\n", {"columns": ("a", "c")}, "no column 'c'"),
        ("0,1\n0,7\n", {"n_nodes": 5}, r"edge 1 names node 7, but with n_nodes=5 ids run from 0 to 4"),
        ("a,b\nb,c\n", {"n_nodes": 5}, "these ids are text"),
        (f"0,{10**30}\n", {"ids": "integer"}, "beyond 64 bits"),
    ],
)
def test_bad_text(tmp_path, text, options, message):
    with pytest.raises(InputError, match=message):
        read_edges(write(tmp_path, text), **options)


def test_missing_and_truncated_files(tmp_path):
    with pytest.raises(FormatError, match="does not exist"):
        read_edges(tmp_path / "none.csv")
    path = write(tmp_path, "".join(f"{k},{k + 1}\n" for k in range(5000)), "edges.csv.gz")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(FormatError, match="cut short"):
        read_edges(path)
    (tmp_path / "binary.csv").write_bytes(b"\x80\x81\xff\n" * 10)
    with pytest.raises(FormatError, match="UTF-8"):
        read_edges(tmp_path / "binary.csv")


def test_features_say_how_many_nodes_there_are(tmp_path):
    path = write(tmp_path, "0,1\n1,2\n")
    assert read_edges(path, features=np.zeros((4, 2))).n_nodes == 4
    with pytest.raises(InputError, match="names node 2, but with n_nodes=2"):
        read_edges(path, features=np.zeros((2, 2)))
    with pytest.raises(InputError, match=r"labels must have shape \(5,\), one per node, not \(4,\)"):
        read_edges(path, n_nodes=5, labels=[0, 1, 0, 1])
    with pytest.raises(InputError, match=r"features must have 3 rows, one per node, not the shape \(2, 2\)"):
        read_edges(write(tmp_path, "a,b\nb,c\n"), features=np.zeros((2, 2)))


def test_parquet(tmp_path):
    path = tmp_path / "edges.parquet"
    pq.write_table(pa.table({"w": [0.5, 2.0, 1.0], "a": [0, 1, 1], "b": [1, 0, 2]}), path)
    graph = read_edges(path, columns=("a", "b", "w"))
    assert graph.adjacency.toarray().tolist() == [[0, 2, 0], [2, 0, 1], [0, 1, 0]]
    pq.write_table(pa.table({"a": ["x", "y"], "b": ["y", "z"]}), path)
    assert read_edges(path).node_ids.tolist() == ["x", "y", "z"]
    with pytest.raises(InputError, match="no column 'q'; it has 'a', 'b'"):
        read_edges(path, columns=("a", "q"))
    with pytest.raises(FormatError, match=r"2 columns; column 2 \(from 0\) is not there"):
        read_edges(path, columns=(0, 1, 2))
    pq.write_table(pa.table({"a": pa.array([1, None, 2]), "b": [1, 2, 3]}), path)
    with pytest.raises(FormatError, match="row 1: an id or weight is missing"):
        read_edges(path)
    pq.write_table(pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.int64())}), path)
    with pytest.raises(FormatError, match="no edges"):
        read_edges(path)
    pq.write_table(pa.table({"a": np.arange(5000), "b": np.arange(5000)}), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FormatError, match="not a complete Parquet file"):
        read_edges(path)


def test_numpy_files(tmp_path):
    ends = np.array([[0, 0], [1, 2]])
    np.save(tmp_path / "e.npy", ends)
    assert read_edges(tmp_path / "e.npy").adjacency.toarray().tolist() == TRIANGLE
    np.save(tmp_path / "e.npy", np.array([[0, 1], [0, 2], [0, 1]]))
    assert read_edges(tmp_path / "e.npy").adjacency.toarray().tolist() == TRIANGLE
    np.save(tmp_path / "f.npy", ends.astype(float))
    with pytest.raises(FormatError, match="not float64"):
        read_edges(tmp_path / "f.npy")
    data = (tmp_path / "e.npy").read_bytes()
    (tmp_path / "e.npy").write_bytes(data[:-8])
    with pytest.raises(FormatError, match="cut short"):
        read_edges(tmp_path / "e.npy")
    np.savez(tmp_path / "g.npz", edges=ends, edge_weight=[1.0, 3.0], x=np.ones((4, 2)), y=[0, 1, 2, 3])
    graph = read_edges(tmp_path / "g.npz")
    assert (graph.n_nodes, graph.weights.tolist(), graph.features.shape) == (4, [1, 3, 1, 3], (4, 2))
    sp.save_npz(tmp_path / "s.npz", sp.csr_array(np.array(TRIANGLE)))
    assert read_edges(tmp_path / "s.npz").adjacency.toarray().tolist() == TRIANGLE
    np.savez(tmp_path / "h.npz", nothing=ends)
    with pytest.raises(FormatError, match="holds nothing; expected an array edge_index or edges"):
        read_edges(tmp_path / "h.npz")
    (tmp_path / "g.npz").write_bytes((tmp_path / "g.npz").read_bytes()[:300])
    with pytest.raises(FormatError, match=r"g\.npz \(300 bytes\) cannot be read as arrays"):
        read_edges(tmp_path / "g.npz")


def test_networkx_in_its_own_order():
    nx = needs("networkx")
    network = nx.karate_club_graph()
    graph = from_networkx(network)
    assert (graph.n_nodes, graph.n_edges, graph.node_ids) == (34, 78, None)
    assert np.array_equal(graph.adjacency.toarray(), nx.to_numpy_array(network, weight=None))
    directed = nx.DiGraph([("a", "b"), ("b", "c")])
    directed.add_node("alone")
    graph = from_networkx(directed)
    assert graph.directed
    assert graph.node_ids.tolist() == ["a", "b", "c", "alone"]
    assert np.array_equal(graph.adjacency.toarray(), nx.to_numpy_array(directed))
    weighted = nx.Graph()
    weighted.add_edge(0, 1, weight=2.5)
    assert from_networkx(weighted, weight="weight").weights.tolist() == [2.5, 2.5]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyG's own imports
def test_pyg_data_with_all_attributes():
    pyg, torch = needs("torch_geometric"), needs("torch")
    graph = read_like_karate()
    edges, weights = pyg.utils.from_scipy_sparse_matrix(graph.adjacency)
    x, y = torch.from_numpy(graph.features), torch.from_numpy(graph.labels)
    data = pyg.data.Data(x=x, edge_index=edges, edge_weight=weights, y=y)
    again = from_pyg(data)
    assert np.array_equal(again.indices, graph.indices)
    assert np.array_equal(again.features, graph.features)
    assert np.array_equal(again.labels, graph.labels)
    assert np.array_equal(again.weights, graph.weights)


def read_like_karate():
    nx = needs("networkx")
    A = nx.to_scipy_sparse_array(nx.karate_club_graph(), weight="weight")
    rng = np.random.default_rng(0)
    return Graph(A, rng.normal(size=(34, 3)).astype(np.float32), labels=rng.integers(0, 2, 34))


@pytest.mark.parametrize(
    ("name", "n", "m", "largest_n", "largest_m", "width", "classes"),
    [
        ("cora", 2708, 5278, 2485, 5069, 1433, 7),
        ("pubmed", 19717, 44324, 19717, 44324, 500, 3),
        ("amazon-photo", 7650, 119081, 7487, 119043, 745, 8),
    ],
)
def test_the_paper_s_graphs_have_the_paper_s_counts(  # noqa: PLR0917
    dataset_folder, name, n, m, largest_n, largest_m, width, classes
):
    graph = read_edges(dataset_folder(name) / f"{name}.npz")
    assert (graph.n_nodes, graph.n_edges) == (n, m)
    part, nodes = graph.largest_component()
    assert (part.n_nodes, part.n_edges, part.features.shape[1]) == (largest_n, largest_m, width)
    assert len(np.unique(part.labels)) == classes
    assert np.array_equal(part.labels, graph.labels[nodes])


def test_real_text_files(dataset_folder):
    email = read_edges(dataset_folder("email-eu-core") / "email-Eu-core.txt.gz", directed=True)
    assert (email.n_nodes, email.n_edges) == (1005, 25571 - 642)
    enron = read_edges(dataset_folder("enron-jhu") / "enron_edges.csv.gz", columns=("src", "dst"), directed=True)
    assert enron.n_nodes == 184


LONG_ID = b"".join(b"a%d,b\n" % k for k in range(9000)) + b"a0," + b"x" * 30_000 + b"\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.gz", gzip.compress(b"0 1\n" * 5000, mtime=0)[:40] + b"\xff" * 60, "cut short or not gzip, after line"),
        ("e.csv", b"from,to\nk\xc3\xb6ln,bonn\nbonn,k\xf6ln\n", r"line 3: the byte 0xf6 after 'bonn,k' .*iconv"),
        ("e.txt.bz2", b"BZh91AY&SY\xff\xfe\n", "line 1: .*unpack it"),
        ("e.txt", b"0 1\n" + b"1" * (1 << 20), "line 2: the line has 1048576 letters or more"),
        ("e.txt", b"0 1\n1 " + b"9" * 5000 + b"\n", "line 2: the id '9{80}' is beyond 64 bits"),
        ("e.txt", b"0 1\n2 3\n1 \xd9\xa3\n", "line 3: the id '\u0663' is not an integer"),
        ("e.csv", b"a,b\nc,d\0\n", r"e\.csv: the id 'd\\x00' has a NUL"),
        ("e.csv", LONG_ID, r"an id has 30000 letters \('x{20}'…\), and 9002 ids"),
        ("e.csv", b'a,b\na,"' + b"x" * 200_000 + b"\nb,c\n", "line 2: a quote is not closed"),
    ],
)
def test_text_that_cannot_be_read_is_named_by_its_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=message):
        read_edges(tmp_path / name)


def test_a_line_without_end_is_read_in_blocks(tmp_path):
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(1 << 28), 1))  # 1 MB that unpacks to 256 MB
    code = f"""
        import resource, graphquilt as gq
        gq.read_edges
        import pyarrow.csv
        used = int(open("/proc/self/statm", encoding="ascii").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (128 << 20), resource.RLIM_INFINITY))
        try:
            gq.read_edges({str(tmp_path / "bomb.gz")!r})
        except gq.errors.FormatError as error:
            assert "line 1" in str(error), error
        else:
            raise SystemExit("no error")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1], [2], [3]]), r"ids must be integers or text, and column 'v' has list"),
        (pa.array([b"a", b"\xff", b"b"], pa.binary()), "column 'v' has binary"),
        (
            pa.array([b"a", b"b", b"k\xf6ln"], pa.binary()).view(pa.string()),
            r"row 2: the id b'k\\xf6ln' is not text in UTF-8",
        ),
        (pa.array([1, 2, 2**63], pa.uint64()), "the id 9223372036854775808 of edge 2 is beyond 63 bits"),
        (pa.array(["a", "b", "c\0"]), r"the id 'c\\x00' has a NUL"),
        (pa.array(["a", "b", "c"]), "of source and target, one has numbers and the other has text"),
    ],
)
def test_parquet_columns_that_are_not_ids(tmp_path, column, message):
    ends = (
        pa.array(["x", "y", "z"])
        if pa.types.is_string(column.type) and message.startswith(("row 2", "the id 'c"))
        else pa.array([1, 2, 3])
    )
    pq.write_table(pa.table({"u": ends, "v": column}), tmp_path / "e.parquet")
    with pytest.raises(FormatError, match=message):
        read_edges(tmp_path / "e.parquet")


def test_a_parquet_file_does_not_promise_more_rows_than_it_has(tmp_path):
    path = tmp_path / "e.parquet"
    pq.write_table(pa.table([pa.array([1, 2]), pa.array([2, 3])], names=["u", "u"]), path)
    with pytest.raises(FormatError, match="2 columns named 'u'"):
        read_edges(path)
    pq.write_table(pa.table({"u": [1, 2], "v": [2, 3]}), path)
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    for count, message in (
        (b"\x80\x94\xeb\xdc\x03", "says that it has 500000000 rows in"),
        (b"\x06", "promises 3 rows"),
    ):
        footer = content[-8 - length : -8].replace(b"\x16\x04", b"\x16" + count, 1)  # the number of rows, which is 2
        path.write_bytes(content[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
        with pytest.raises(FormatError, match=message):
            read_edges(path)


def test_what_stands_between_columns_is_one_character(tmp_path):
    (tmp_path / "e.txt").write_text("0::1\n", encoding="utf-8")
    with pytest.raises(InputError, match="one ASCII character"):
        read_edges(tmp_path / "e.txt", delimiter="::")


def test_a_number_of_nodes_that_does_not_fit_in_memory_is_refused(tmp_path):
    (tmp_path / "e.txt").write_text("0 1\n", encoding="utf-8")
    for n in (2**45, 2**62, 10**30):
        with pytest.raises(InputError, match=f"a graph of {n} nodes does not fit in memory"):
            read_edges(tmp_path / "e.txt", n_nodes=n)


def test_one_column_is_not_both_ends(tmp_path):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n", encoding="utf-8")
    pq.write_table(pa.table({"u": [0], "v": [1]}), tmp_path / "e.parquet")
    for name, columns in (("e.txt", (0, 0)), ("e.parquet", ("u", 0))):
        with pytest.raises(InputError, match="names one column twice"):
            read_edges(tmp_path / name, columns=columns)


def test_a_long_number_is_looked_at_once(tmp_path):
    # A pattern that could split the digits in two ways would try all of them: days for this line.
    (tmp_path / "e.csv").write_text("0,1,1\n1,2," + "9" * 900_000 + "x\n", encoding="utf-8")
    with pytest.raises(FormatError, match=r"line 2: the weight '9{80}' is not a number"):
        read_edges(tmp_path / "e.csv", columns=(0, 1, 2))


@pytest.mark.parametrize("rows", ["a,b\nb,\n", "a b,c\n,d\n"])
def test_an_edge_without_an_end_is_refused_with_its_line(tmp_path, rows):
    path = tmp_path / "edges.csv"
    path.write_text(rows, encoding="utf-8")
    with pytest.raises(FormatError, match="line 2: an id is missing"):
        read_edges(path)
