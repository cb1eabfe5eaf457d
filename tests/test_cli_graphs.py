"""graphquilt ingest: files to graph folders."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from graphquilt import Graph
from graphquilt.cli import app
from graphquilt.errors import InputError


def run(*words):
    return CliRunner().invoke(app, ["ingest", *map(str, words)], catch_exceptions=False)


def test_text_to_a_folder(tmp_path):
    (tmp_path / "edges.csv").write_text("from,to,w\na,b,1\nb,c,2\nx,y,1\n")
    result = run(tmp_path / "edges.csv", tmp_path / "g", "--columns", "from,to,w", "--json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert (told["nodes"], told["entries"], told["components"], told["largest_component"]) == (5, 6, 2, 3)
    assert Graph.open(tmp_path / "g").node_ids.tolist() == ["a", "b", "c", "x", "y"]
    result = run(tmp_path / "edges.csv", tmp_path / "h", "--largest-component")
    assert "largest component  3" in result.stdout
    assert Graph.open(tmp_path / "h").node_ids.tolist() == ["a", "b", "c"]


def test_features_and_labels_go_along(tmp_path):
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n")
    np.save(tmp_path / "x.npy", np.ones((4, 2)))
    np.save(tmp_path / "y.npy", np.arange(4))
    run(tmp_path / "edges.txt", tmp_path / "g", "--features", tmp_path / "x.npy", "--labels", tmp_path / "y.npy")
    graph = Graph.open(tmp_path / "g")
    assert (graph.features.shape, graph.labels.tolist()) == ((4, 2), [0, 1, 2, 3])


@pytest.mark.parametrize("sparse", [False, True])
def test_out_of_core(tmp_path, sparse):
    edges = np.random.default_rng(0).integers(0, 30, (2, 100))
    (tmp_path / "parts").mkdir()
    pq.write_table(pa.table({"u": edges[0], "v": edges[1]}), tmp_path / "parts" / "0.parquet")
    np.save(tmp_path / "x.npy", np.eye(30))
    sp.save_npz(tmp_path / "x.npz", sp.csr_array(np.eye(30)))
    x = tmp_path / ("x.npz" if sparse else "x.npy")
    result = run(tmp_path / "parts", tmp_path / "g", "--memory", "64M", "--features", x, "--json")
    assert json.loads(result.stdout)["features"] == 30
    graph = Graph.open(tmp_path / "g")
    assert graph.n_nodes == 30
    assert (graph.features.sum(), type(graph.indices)) == (30, np.memmap)


def test_bad_words(tmp_path):
    (tmp_path / "edges.txt").write_text("0 1\n")
    for words, message in [
        (["--columns", "0"], "--columns is source,target"),
        (["--memory", "much"], "--memory is a number"),
        (["--ids", "names"], "--ids is auto"),
        (["--memory", "1G", "--largest-component"], "needs the graph in memory"),
    ]:
        with pytest.raises(InputError, match=message):
            run(tmp_path / "edges.txt", tmp_path / "g", *words)
    with pytest.raises(InputError, match="does not exist"):
        run(tmp_path / "none.txt", tmp_path / "g")
    assert not (tmp_path / "g").exists()


def test_the_mag240m_folder_is_told_as_it_is_written(tmp_path):
    rng = np.random.default_rng(0)
    papers = tmp_path / "mag" / "processed" / "paper"
    cites = tmp_path / "mag" / "processed" / "paper___cites___paper"
    for folder in (papers, cites):
        folder.mkdir(parents=True)
    np.save(cites / "edge_index.npy", rng.integers(0, 50, (2, 200)))
    np.save(papers / "node_feat.npy", rng.normal(size=(50, 8)).astype(np.float16))
    np.save(papers / "node_label.npy", np.arange(50.0) % 3)
    bare = json.loads(run(tmp_path / "mag", tmp_path / "g", "--json").stdout)
    assert (bare["features"], bare["labelled"]) == (None, True)
    assert Graph.open(tmp_path / "g").labels.tolist() == (np.arange(50) % 3).tolist()
    features = ("--features", papers / "node_feat.npy")
    assert json.loads(run(tmp_path / "mag", tmp_path / "h", *features, "--json").stdout)["features"] == 8


def test_ids_with_leading_zeros_are_names_and_a_sink_is_not_isolated(tmp_path):
    (tmp_path / "edges.csv").write_text("007,7\n7,8\n008,9\n")
    told = json.loads(run(tmp_path / "edges.csv", tmp_path / "g", "--directed", "--json").stdout)
    assert Graph.open(tmp_path / "g").node_ids.tolist() == ["007", "008", "7", "8", "9"]
    assert told["isolated_nodes"] == 0
