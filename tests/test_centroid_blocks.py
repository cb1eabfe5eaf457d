"""The centroid in blocks of nodes, embeddings in lower precision, and counts that do not read all edges."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from graphquilt.alignment import centroids
from graphquilt.datasets.loading import block_graph
from graphquilt.errors import CoverError, InputError, JobError
from graphquilt.evaluate import links, pairs
from graphquilt.testing import quilt


def in_blocks(monkeypatch, rows, dim):
    monkeypatch.setattr(centroids, "_BLOCK", 8 * (dim + 1) * rows)


@pytest.mark.parametrize("rows", [1, 7, 40])
def test_blocks_of_nodes_give_the_centroid(monkeypatch, rows):
    example = quilt(6, 3, noise=0.1, seed=2)
    alignment = gq.align(example.patches, example.edges)
    weights = [np.linspace(0.5, 2, len(patch.nodes)) for patch in example.patches]
    backwards = [(patch.nodes[::-1], patch.coordinates[::-1]) for patch in example.patches]
    expected = gq.centroid(example.patches, alignment, weights=weights)
    in_blocks(monkeypatch, rows, 3)
    assert np.allclose(gq.centroid(example.patches, alignment, weights=weights), expected, atol=1e-12)
    turned = gq.centroid(backwards, alignment, weights=[w[::-1] for w in weights])
    assert np.allclose(turned, expected, atol=1e-12)
    single = np.empty(expected.shape, dtype=np.float32)
    assert gq.centroid(example.patches, alignment, weights=weights, out=single) is single
    assert np.allclose(single, expected, rtol=1e-5, atol=1e-5)


def test_blocks_say_which_nodes_are_missing_and_how_far_they_are(monkeypatch):
    patches = [(np.arange(10), np.ones((10, 1))), (np.arange(12, 30), np.ones((18, 1)))]
    alignment, events = gq.Alignment.identity(2, 1), []
    in_blocks(monkeypatch, 5, 1)
    with pytest.raises(CoverError, match=r"at least 2 of 30 nodes are in no patch .* \[10, 11\]"):
        gq.centroid(patches, alignment, n_nodes=30)
    X = gq.centroid(patches, alignment, n_nodes=30, missing="nan", progress=events.append)
    assert np.flatnonzero(np.isnan(X[:, 0])).tolist() == [10, 11]
    assert (events[-1].stage, events[-1].done) == ("centroid", events[-1].total)
    assert np.all(np.diff([event.done for event in events]) > 0)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_job_has_the_precision_that_was_asked_for(tmp_path, monkeypatch, precision):
    graph = block_graph(300, 3)
    recipe = gq.Recipe.shared().replace(precision=precision)
    full = gq.embed(graph, dim=4, n_patches=3, recipe=gq.Recipe.shared(), seed=1)
    memory = gq.embed(graph, dim=4, n_patches=3, recipe=recipe, seed=1)
    in_blocks(monkeypatch, 50, 4)
    folder = gq.embed(graph, dim=4, n_patches=3, recipe=recipe, seed=1, store=gq.DirectoryStore(tmp_path / "job"))
    assert memory.embedding.dtype == folder.embedding.dtype == np.dtype(precision)
    rounding = 1e-3 if precision == "float16" else 0  # patches have half precision too
    assert np.allclose(memory.embedding, full.embedding.astype(precision), rtol=0, atol=rounding)
    assert np.allclose(folder.embedding.astype(float), memory.embedding.astype(float), atol=2e-3)
    names = sorted(path.name for path in (tmp_path / "job").glob("*mbedding*"))
    assert names == ["embedding.json", "embedding.npy"]
    marker = json.loads((tmp_path / "job" / "embedding.json").read_text())
    assert marker["arrays"]["embedding"]["dtype"] == np.dtype(precision).str
    with pytest.raises(InputError, match="float64, float32 or float16, not 'double'"):
        gq.Recipe(precision="double")


def test_too_little_disk_for_the_embedding_is_said_before_alignment(tmp_path, monkeypatch):
    graph = block_graph(300, 3)
    gq.embed(graph, dim=4, n_patches=3, seed=1, store=gq.DirectoryStore(tmp_path / "job"))
    (tmp_path / "job" / "embedding.json").unlink()

    def full(folder, needed, work):
        raise JobError(f"{work} needs {needed} bytes in {folder.name}")

    monkeypatch.setattr("graphquilt.jobs.stored_patches.check_disk", full)
    n = gq.Job.open(tmp_path / "job").graph.n_nodes
    with pytest.raises(JobError, match=f"the embedding needs {n * 4 * 4} bytes in job"):
        gq.Job.open(tmp_path / "job").stitch()


def test_a_sample_of_edges_does_not_read_them_all(monkeypatch):
    rng = np.random.default_rng(0)
    A = sp.random_array((400, 400), density=0.02, rng=rng, format="csr")
    graph = gq.Graph(sp.csr_array(A + A.T))
    X = rng.normal(size=(400, 3))
    expected = links.reconstruction_auc(X, graph, seed=3, max_edges=100)
    monkeypatch.setattr(pairs, "_COUNTED", 0)
    close = links.reconstruction_auc(X, graph, seed=3, max_edges=100)
    assert abs(close - expected) < 0.2  # loops are left out, so that the samples may differ

    without = gq.Graph(sp.csr_array(graph.adjacency - sp.diags_array(graph.adjacency.diagonal())))
    monkeypatch.setattr(pairs, "_COUNTED", 1 << 22)
    expected = links.reconstruction_auc(X, without, seed=3, max_edges=100)
    monkeypatch.setattr(pairs, "_COUNTED", 0)
    monkeypatch.setattr(pairs, "_entries", None)
    assert links.reconstruction_auc(X, without, seed=3, max_edges=100) == expected
