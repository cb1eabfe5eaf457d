"""Laws of the readers: the same rows give the same graph in any order and format, and exports come back."""

import csv
import gzip
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from graphquilt.errors import FormatError
from graphquilt.graph import read_vectors
from graphquilt.jobs.export import write_embedding

MARKS = list("\"',;|\t #%/\\0+-=789ea._\ufeff\u00a0\u2028\x85\x1c")
letters = st.characters(exclude_categories=("Cs",), exclude_characters="\r\n\0") | st.sampled_from(MARKS)
odd = st.sampled_from(["007", "7", "+7", "-0", "nan", "NA", "1e3", "0x10", "source", "word", "id", "#x", "//y", " a"])
ids = st.text(letters, min_size=1, max_size=6) | st.integers(-20, 200).map(str) | odd
edges = st.lists(st.tuples(ids, ids, st.floats(0.01, 100)), min_size=2, max_size=14)


def read(source):
    """Return the edges with ids and weights, or None if they are refused."""
    try:
        graph = gq.read_edges(source)
    except FormatError:
        return None
    names = np.arange(graph.n_nodes) if graph.node_ids is None else graph.node_ids
    A = graph.adjacency.tocoo()
    return sorted((str(names[i]), str(names[j]), w) for i, j, w in zip(A.row, A.col, A.data, strict=True))


def write_text(path, rows, delimiter):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)


@settings(max_examples=60, deadline=None)
@given(edges, st.randoms(use_true_random=False))
def test_rows_in_any_order_and_format_give_the_same_graph_or_are_refused(rows, random):
    texts, tables = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(2):
            table = pa.table(dict(zip(("source", "target", "weight"), zip(*rows, strict=True), strict=True)))
            pq.write_table(table, folder / "e.parquet")
            cells = [("source", "target", "weight"), *((u, v, repr(w)) for u, v, w in rows)]
            for ending, delimiter in (("csv", ","), ("tsv", "\t"), ("txt", ";")):
                write_text(folder / f"e.{ending}", cells, delimiter)
            (folder / "e.csv.gz").write_bytes(gzip.compress((folder / "e.csv").read_bytes()))
            texts += [read(folder / f"e.{ending}") for ending in ("csv", "tsv", "txt", "csv.gz")]
            frames = [table.to_pandas()] if find_spec("pandas") else []
            tables += [read(source) for source in (folder / "e.parquet", table, *frames, rows)]
            rows = random.sample(rows, len(rows))
    assert all(graph == tables[0] for graph in tables)
    assert all(graph == texts[0] for graph in texts)
    assert texts[0] is None or texts[0] == tables[0]  # words among integers may be a question in text files


@settings(max_examples=60, deadline=None)
@given(st.lists(ids, min_size=1, max_size=12, unique=True) | st.lists(st.integers(), min_size=1, unique=True))
def test_exports_come_back_with_the_same_ids_and_numbers(names):
    names = np.array(names) if isinstance(names[0], str) else np.array([n % 2**40 for n in names])
    names = np.unique(names)
    X = np.random.default_rng(len(names)).standard_normal((len(names), 3))
    with tempfile.TemporaryDirectory() as folder:
        for ending in ("csv", "tsv", "parquet", "npy"):
            path = Path(folder) / f"x.{ending}"
            write_embedding(path, names, X, format=ending, dtype="float64")
            again, coordinates = read_vectors(path)
            assert again.astype(str).tolist() == names.astype(str).tolist()
            assert np.array_equal(coordinates, X)


def test_ids_that_a_spreadsheet_or_terminal_would_run_are_counted(tmp_path, caplog):
    ids = np.array(["=cmd|' /C calc'!A0", "-1", "-a", "@b", "\x1b[2Jc", "d"])
    write_embedding(tmp_path / "x.csv", ids, np.eye(6), format="csv", dtype="float64")
    assert "4 ids would be run as a formula by a spreadsheet" in caplog.text
    caplog.clear()
    write_embedding(tmp_path / "x.csv", np.array(["-1", "a"]), np.eye(2), format="csv", dtype="float64")
    assert caplog.text == ""
