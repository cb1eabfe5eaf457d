"""graphquilt ingest: files to graph folders."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from graphquilt import Graph
from graphquilt.cli import main


@pytest.fixture
def ingest(capsys, monkeypatch):
    """Run the command in this process; return its exit code, standard output and standard error."""

    def call(*words):
        monkeypatch.setattr("sys.argv", ["graphquilt", "ingest", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, *capsys.readouterr()

    return call


def test_text_to_a_folder(ingest, tmp_path):
    (tmp_path / "edges.csv").write_text("from,to,w\na,b,1\nb,c,2\nx,y,1\n")
    code, out, _ = ingest(tmp_path / "edges.csv", tmp_path / "g", "--columns", "from,to,w", "--json")
    assert code == 0
    counts = json.loads(out)
    assert [counts[name] for name in ("nodes", "edges", "components", "largest_component")] == [5, 3, 2, 3]
    assert Graph.open(tmp_path / "g").node_ids.tolist() == ["a", "b", "c", "x", "y"]
    assert "largest component  3" in ingest(tmp_path / "edges.csv", tmp_path / "h", "--largest-component")[1]
    assert Graph.open(tmp_path / "h").node_ids.tolist() == ["a", "b", "c"]


def test_features_and_labels_go_along(ingest, tmp_path):
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n")
    np.save(tmp_path / "x.npy", np.ones((4, 2)))
    np.save(tmp_path / "y.npy", np.arange(4))
    ingest(tmp_path / "edges.txt", tmp_path / "g", "--features", tmp_path / "x.npy", "--labels", tmp_path / "y.npy")
    graph = Graph.open(tmp_path / "g")
    assert (graph.features.shape, graph.labels.tolist()) == ((4, 2), [0, 1, 2, 3])


def test_tables_of_features_and_labels_are_matched_by_id(ingest, tmp_path, caplog):
    (tmp_path / "edges.csv").write_text('"From, Synset",kind,To\n' + "".join(f"n{k},x,n{k + 1}\n" for k in range(11)))
    (tmp_path / "x.tsv").write_text("id\tage\n" + "".join(f"n{k}\t{k}\n" for k in range(12)))
    (tmp_path / "y.csv").write_text("".join(f"n{k},{'even' if k % 2 == 0 else 'odd'}\n" for k in range(10)))
    tables = ("--features", tmp_path / "x.tsv", "--labels", tmp_path / "y.csv")
    code, _, err = ingest(tmp_path / "edges.csv", tmp_path / "g", *tables)
    assert (code, "'From, Synset' (n0, n1), 'kind' (x, x), 'To' (n1, n2)" in err) == (2, True)
    code, _, err = ingest(tmp_path / "edges.csv", tmp_path / "g", "--columns", '"From, Synset",To', *tables)
    assert code == 0, err
    graph = Graph.open(tmp_path / "g")
    assert graph.features.ravel().tolist() == [int(i[1:]) for i in graph.node_ids]
    assert graph.labels.tolist() == [-1 if int(i[1:]) > 9 else int(i[1:]) % 2 for i in graph.node_ids]
    np.save(tmp_path / "edges.npy", np.array([[0, 1, 2], [1, 2, 3]]))
    (tmp_path / "z.csv").write_text("id,x\n3,30\n1,10\n2,20\n0,0\n")
    for words in ((), ("--largest-component",)):
        code, _, err = ingest(
            tmp_path / "edges.npy", tmp_path / "h", "--memory", "64M", "--features", tmp_path / "z.csv", *words
        )
        assert code == 0, err
        assert Graph.open(tmp_path / "h").features.ravel().tolist() == [0, 10, 20, 30]


@pytest.mark.parametrize("sparse", [False, True])
def test_out_of_core(ingest, tmp_path, sparse):
    edges = np.random.default_rng(0).integers(0, 30, (2, 100))
    (tmp_path / "parts").mkdir()
    pq.write_table(pa.table({"u": edges[0], "v": edges[1]}), tmp_path / "parts" / "0.parquet")
    np.save(tmp_path / "x.npy", np.eye(30))
    sp.save_npz(tmp_path / "x.npz", sp.csr_array(np.eye(30)))
    x = tmp_path / ("x.npz" if sparse else "x.npy")
    out = ingest(tmp_path / "parts", tmp_path / "g", "--memory", "64M", "--features", x, "--json")[1]
    assert json.loads(out)["features"] == 30
    graph = Graph.open(tmp_path / "g")
    assert graph.n_nodes == 30
    assert (graph.features.sum(), type(graph.indices)) == (30, np.memmap)


def test_wrong_flags_are_one_sentence_and_leave_nothing(ingest, tmp_path):
    (tmp_path / "edges.txt").write_text("0 1\n")
    sp.save_npz(tmp_path / "y.npz", sp.csr_array(np.eye(2)))
    (tmp_path / "y.csv").write_text("id,x\n0,1\n")
    for words, message in [
        (["--columns", "0"], "--columns takes source,target"),
        (["--memory", "much"], "--memory is a number"),
        (["--half-life", "30d"], "a graph folder keeps no times"),
        (["--ids", "names"], 'Invalid value "names" for --ids. Choose from: "auto", "integer", "text".'),
        (["--labels", tmp_path / "y.npz"], "y.npz cannot be read as labels"),
        (["--labels", tmp_path / "y.json"], "y.json cannot be read as labels: it does not exist. Give a table with an"),
        (["--features", tmp_path / "y.csv"], "y.csv has no features for 1 node of 2, the first is '1'. Add their rows"),
    ]:
        code, out, err = ingest(tmp_path / "edges.txt", tmp_path / "g", *words)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert message in err
    assert "does not exist" in ingest(tmp_path / "none.txt", tmp_path / "g")[2]
    assert not (tmp_path / "g").exists()


def test_arrays_out_of_core_are_reported_as_they_are_written(ingest, tmp_path):
    rng = np.random.default_rng(0)
    papers = tmp_path / "mag" / "processed" / "paper"
    cites = tmp_path / "mag" / "processed" / "paper___cites___paper"
    for folder in (papers, cites):
        folder.mkdir(parents=True)
    np.save(cites / "edge_index.npy", rng.integers(0, 50, (2, 200)))
    np.save(papers / "node_feat.npy", rng.normal(size=(50, 8)).astype(np.float16))
    np.save(papers / "node_label.npy", np.arange(50.0) % 3)
    files = (cites / "edge_index.npy", "--features", papers / "node_feat.npy", "--labels", papers / "node_label.npy")
    files += ("--memory", "1G", "--json")
    bare = json.loads(ingest(files[0], tmp_path / "g", *files[1:])[1])
    assert (bare["features"], bare["labelled"]) == (8, True)
    assert Graph.open(tmp_path / "g").labels.tolist() == (np.arange(50) % 3).tolist()
    assert not (tmp_path / "g" / "features.npy").exists()
    assert Path(Graph.open(tmp_path / "g").features.filename) == papers / "node_feat.npy"
    assert json.loads(ingest(files[0], tmp_path / "h", *files[1:], "--copy-features")[1])["features"] == 8
    assert (tmp_path / "h" / "features.npy").exists()


def test_the_largest_component_out_of_core_is_the_one_in_memory(ingest, tmp_path):
    rng = np.random.default_rng(0)
    np.save(
        tmp_path / "edges.npy", np.concatenate([rng.integers(0, 60, (2, 70)), rng.integers(60, 90, (2, 90))], axis=1)
    )
    np.save(tmp_path / "x.npy", rng.normal(size=(100, 3)).astype(np.float16))
    np.save(tmp_path / "y.npy", np.arange(100) % 4)
    words = ("--features", tmp_path / "x.npy", "--labels", tmp_path / "y.npy", "--largest-component", "--json")
    in_memory = json.loads(ingest(tmp_path / "edges.npy", tmp_path / "a", *words)[1])
    out_of_core = json.loads(ingest(tmp_path / "edges.npy", tmp_path / "b", *words, "--memory", "1G")[1])
    assert {**in_memory, "graph": ""} == {**out_of_core, "graph": ""}
    assert out_of_core["components"] == 1
    a, b = Graph.open(tmp_path / "a"), Graph.open(tmp_path / "b")
    for name in ("indptr", "indices", "features", "labels", "node_ids"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
        assert getattr(a, name).dtype == getattr(b, name).dtype, name
    assert not (tmp_path / "b" / "whole").exists()


def test_ids_with_leading_zeros_are_names_and_a_sink_is_not_isolated(ingest, tmp_path):
    (tmp_path / "edges.csv").write_text("007,7\n7,8\n008,9\n")
    counts = json.loads(ingest(tmp_path / "edges.csv", tmp_path / "g", "--directed", "--json")[1])
    assert Graph.open(tmp_path / "g").node_ids.tolist() == ["007", "008", "7", "8", "9"]
    assert counts["isolated_nodes"] == 0


def test_a_value_that_is_wrong_is_not_printed_at_full_length(ingest, tmp_path):
    (tmp_path / "edges.txt").write_text("0 1\n", encoding="utf-8")
    code, _, error = ingest(tmp_path / "edges.txt", tmp_path / "g", "--columns", "9" * 100_000)
    assert (code, len(error) < 2100) == (2, True)
    code, _, error = ingest(tmp_path / "edges.txt", tmp_path / "g", "--memory", "infG")
    assert (code, "--memory is a number with K, M, G or T" in error) == (2, True)


def test_unknown_headers_are_answered_with_the_whole_command(ingest, tmp_path, monkeypatch):
    edges = tmp_path / "my payments.csv"
    edges.write_text('date,"payer, account",payee account,eur\n2024-01-01,a,b,2\n2024-01-02,b,c,3\n')
    code, _, err = ingest(edges, tmp_path / "g", "--json")
    assert code == 2
    command = err.splitlines()[-1].removeprefix("For example: ")
    assert shlex.split(command)[:5] == ["graphquilt", "ingest", str(edges), str(tmp_path / "g"), "--json"]
    monkeypatch.setattr("sys.argv", shlex.split(command))
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert Graph.open(tmp_path / "g").node_ids.tolist() == ["a", "b", "c"]


def test_control_c_while_the_commands_are_imported_is_one_sentence(tmp_path):
    (tmp_path / "cyclopts.py").write_text("print('importing', flush=True)\nimport time\ntime.sleep(300)\n")
    code = (
        # A shell in the background ignores interrupts, and its children inherit that.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from graphquilt.__main__ import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--help"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "\ngraphquilt: stopped before it began.\n")
