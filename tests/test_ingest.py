"""Edges from files: every way of writing them, and each error with its line."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from graphquilt import FormatError, InputError, read_edges

DATA = Path(os.environ.get("GRAPHQUILT_DATA", "/nonexistent"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="GRAPHQUILT_DATA does not name the data folder")

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
    assert "5 edges read: 1 self loops and 1 duplicates removed; 3 nodes, 4 entries" in caplog.text


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("0,1\n0,2,3\n", {}, r"line 2: 3 columns where the first row has 2"),
        ("# c\n0 1\n0\n", {}, r"line 3: 1 columns where the first row has 2"),
        ("0,1\n0,x\n2,3\n4,5\n", {}, r"line 2: the id 'x' is not an integer"),
        ("0,1,1\n0,2,heavy\n", {"columns": (0, 1, 2)}, r"line 2: the weight 'heavy' is not a number"),
        ("0,1,1\n0,2,-3\n", {"columns": (0, 1, 2)}, r"not negative"),
        ("0,1,1\n0,2,nan\n", {"columns": (0, 1, 2)}, r"finite"),
        ("", {}, "is empty"),
        ("# only\n", {}, "is empty"),
        ("source,target\n", {"header": True}, "a header and no edges"),
        ("0\n1\n", {}, "1 columns in its first row; column 1"),
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


def test_features_must_fit(tmp_path):
    with pytest.raises(InputError, match="3 nodes and the features have 4 rows"):
        read_edges(write(tmp_path, "0,1\n1,2\n"), features=np.zeros((4, 2)))


@needs_data
def test_real_text_files():
    email = read_edges(DATA / "email-eu-core" / "email-Eu-core.txt.gz", directed=True)
    assert (email.n_nodes, email.n_edges) == (1005, 25571 - 642)
    enron = read_edges(DATA / "enron-jhu" / "enron_edges.csv.gz", columns=("src", "dst"), directed=True)
    assert enron.n_nodes == 184
