"""Neighbours and exports: what a job tells about its nodes, by the ids that they came with."""

import csv
import json

import numpy as np
import pytest

import graphquilt as gq
from graphquilt.errors import InputError
from graphquilt.jobs import Job, export, export_embedding

NAMES = np.array([f"{word}-{k}" for k in range(40) for word in ("Ann", "bob", "carol")])


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A job of 120 nodes with names, in one patch."""
    rng = np.random.default_rng(0)
    edges = [(NAMES[u], NAMES[v]) for u in range(120) for v in rng.choice(120, 4, replace=False) if u != v]
    store = gq.DirectoryStore(tmp_path_factory.mktemp("asked") / "job")
    gq.embed(edges, 6, store=store)
    return Job.open(store)


def exact(X, row, k, metric):
    """All scores at once, sorted."""
    scores = X @ X[row]
    if metric == "cosine":
        scores = scores / (np.linalg.norm(X, axis=1) * np.linalg.norm(X[row]))
    scores[row] = -np.inf
    return np.argsort(-scores, kind="stable")[:k], np.sort(scores)[::-1][:k]


@pytest.mark.parametrize("metric", ["cosine", "inner"])
@pytest.mark.parametrize("k", [1, 7, 500])
@pytest.mark.parametrize("rows", [5, 64, 1000])
def test_blocks_give_what_all_rows_at_once_give(metric, k, rows, monkeypatch):
    monkeypatch.setattr(export, "_ROWS", rows)
    X = np.random.default_rng(1).standard_normal((200, 4))
    X[50:60] = X[40:50]  # ties
    for node in (0, 45, 199):
        found = gq.neighbours(X, node, k=k, metric=metric)
        expected, scores = exact(X, node, min(k, 199), metric)
        assert np.allclose(found.scores, scores)
        assert node not in found.rows.tolist()
        assert set(found.rows.tolist()) == set(expected.tolist()) or len(np.unique(scores)) < len(scores)


def test_equal_neighbours_come_in_the_order_of_their_rows():
    assert gq.neighbours(np.ones((9, 2)), 4, k=3).ids.tolist() == [0, 1, 2]


def test_rows_at_the_origin_are_no_neighbours_and_have_none():
    X = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [-1.0, 0.0]])
    assert gq.neighbours(X, 0).ids.tolist() == [2, 1, 3]
    with pytest.raises(InputError, match="node 1 lies at the origin"):
        gq.neighbours(X, 1)
    assert gq.neighbours(X, 1, metric="inner").ids.tolist() == [0, 2, 3]


def test_a_result_and_a_job_answer_by_their_own_ids(job):
    expected = gq.neighbours(np.asarray(job.embedding), int(np.flatnonzero(np.sort(NAMES) == "bob-7")[0]), k=4)
    assert gq.neighbours(job, "bob-7", k=4).ids.tolist() == np.sort(NAMES)[expected.rows].tolist()
    result = gq.embed([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")], 2)
    assert set(gq.neighbours(result, "a").ids.tolist()) == {"b", "c", "d"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node": "ann-7"}, r"node 'ann-7' does not exist; did you mean 'Ann-7' or "),
        ({"node": "bpb-7"}, r"did you mean 'bob-7' or "),
        ({"node": "?"}, r"node '\?' does not exist; the first ids are 'Ann-0', "),
        ({"node": "bob-7", "k": 0}, "k must be a positive integer"),
        ({"node": "bob-7", "metric": "edges"}, "metric is 'cosine' or 'inner', not 'edges'"),
    ],
)
def test_a_wrong_question_says_what_is_right(job, options, message):
    with pytest.raises(InputError, match=message):
        gq.neighbours(job, **options)


@pytest.mark.parametrize(
    ("ids", "node", "message"),
    [
        (None, 9, "node 9 does not exist: the node ids are integers from 0 to 3; the nearest are 1, 2, 3"),
        ([10, 20, 30, 90], 29, "node 29 does not exist: .*; the nearest are 10, 20, 30"),
        ([10, 20, 30, 90], "ann", "node 'ann' does not exist: the node ids are integers from 10 to 90"),
        ([10, 20], 10, r"ids must have shape \(4,\), one per row of the embedding, not \(2,\)"),
    ],
)
def test_numbers_that_are_no_ids(ids, node, message):
    with pytest.raises(InputError, match=message):
        gq.neighbours(np.eye(4), node, ids=ids)


def test_the_command_prints_ids_and_scores(job, command):
    code, out, _ = command("neighbours", job.name, "bob-7", "-k", 3)
    found = gq.neighbours(job, "bob-7", k=3)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == found.ids.tolist()
    code, out, _ = command("neighbours", job.name, "bob-7", "--metric", "inner", "--json")
    entries = json.loads(out)["neighbours"]
    assert [entry["id"] for entry in entries] == gq.neighbours(job, "bob-7", metric="inner").ids.tolist()
    code, _, err = command("neighbours", job.name, "bo-7")
    assert (code, "did you mean 'bob-7'" in err) == (2, True)


@pytest.mark.parametrize("n_nodes", [3000, 120_000])
def test_a_number_with_other_zeros_in_front_is_the_nearest_spelling(n_nodes):
    ids = np.array([f"user{k:04d}" for k in range(n_nodes)])
    with pytest.raises(InputError, match=r"did you mean 'user0007' or "):
        gq.neighbours(np.zeros((n_nodes, 1)), "user007", ids=ids)


def test_a_second_node_is_refused_in_a_sentence(job, command):
    code, _, err = command("neighbours", job.name, "bob-7", "bob-8")
    assert (code, err) == (
        2,
        "graphquilt: neighbours does not take 'bob-8'; see graphquilt neighbours --help.\n",
    )


def test_the_nearest_spelling_is_found_among_very_many_ids():
    ids = np.array([f"node{k:07d}" for k in range(120_000)])
    with pytest.raises(InputError, match=r"did you mean 'node0119999'"):
        gq.neighbours(np.zeros((120_000, 1)), "nod0119999", ids=ids)


def test_control_characters_of_ids_do_not_reach_the_terminal():
    from graphquilt.cli.display import printable

    assert printable("\x1b[2Jann\tü\u202e") == "\\x1b[2Jann\\tü\\u202e"


def test_a_job_without_an_embedding_names_the_command_that_makes_one(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edges.txt").write_text("".join(f"{k} {(k + 1) % 50}\n" for k in range(50)))
    assert command("cut", "edges.txt", "--dim", 2, "--out", "my job")[0] == 0
    code, _, err = command("neighbours", "my job", 3)
    assert code == 2
    assert "(0 of 1 are), then stitch it: graphquilt embed-patches 'my job'" in err
    assert command("embed-patches", "my job", "--workers", 1)[0] == 0
    assert "stitch it first: graphquilt stitch 'my job'" in command("neighbours", "my job", 3)[2]
    assert command("stitch", "my job", "--workers", 1)[0] == 0
    assert command("neighbours", "my job", 3)[0] == 0


@pytest.mark.parametrize("rows", [7, 1000])
def test_exports_are_the_same_in_any_blocks(job, tmp_path, rows, monkeypatch):
    import pyarrow.parquet as pq

    monkeypatch.setattr(export, "_ROWS", rows)
    X, ids = np.asarray(job.embedding).astype(np.float32), np.sort(NAMES)
    matrix = np.load(export_embedding(job, tmp_path / "x.npy"), allow_pickle=False)
    assert matrix.dtype == np.float32
    assert matrix.flags.c_contiguous
    assert np.array_equal(matrix, X)
    assert np.load(tmp_path / "x.ids.npy", allow_pickle=False).tolist() == ids.tolist()
    table = pq.read_table(export_embedding(job, tmp_path / "x.parquet"))
    assert table["node_id"].to_pylist() == ids.tolist()
    assert np.array_equal(np.stack([table[f"x{k}"] for k in range(6)], axis=1), X)
    assert pq.ParquetFile(tmp_path / "x.parquet").num_row_groups == -(-120 // rows)
    lines = export_embedding(job, tmp_path / "x.vec").read_text().splitlines()
    assert lines[0] == "120 6"
    assert lines[1].split(" ") == [ids[0], *(f"{x:.6g}" for x in X[0].tolist())]
    cells = list(csv.reader(export_embedding(job, tmp_path / "n.csv", format="neo4j").read_text().splitlines()))
    assert cells[0] == ["nodeId:ID", "embedding:float[]"]
    assert np.array_equal(np.array(cells[3][1].split(";"), dtype=np.float32), X[2])
    lengths = np.linalg.norm(np.load(export_embedding(job, tmp_path / "u.npy", unit=True)), axis=1)
    assert np.allclose(lengths, 1, atol=1e-6)
    double = export_embedding(job, tmp_path / "d.csv", dtype="float64").read_text().splitlines()
    assert [float(x) for x in double[5].split(",")[1:]] == np.asarray(job.embedding)[4].tolist()


def test_an_export_says_which_endings_and_digits_there_are(job, tmp_path):
    with pytest.raises(InputError, match=r"has no suffix\. Add \.npy, .* or .*: npy, parquet"):
        export_embedding(job, tmp_path / "x")
    with pytest.raises(InputError, match="word2vec text has only 6 digits"):
        export_embedding(job, tmp_path / "x.vec", dtype="float64")
    assert not list(tmp_path.glob("x*"))
