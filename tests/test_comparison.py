"""Full, aligned and unaligned embeddings side by side."""

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from graphquilt.evaluate import EvaluationOptions
from graphquilt.jobs import compare_job


def quilt():
    """A graph of close points, cut into three windows that overlap, each moved on its own."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.linspace(-3, 3, 240), rng.normal(size=240), rng.normal(size=240)])
    near = ((X[:, None] - X[None]) ** 2).sum(-1) < 0.8
    np.fill_diagonal(near, False)
    graph = gq.Graph(sp.csr_array(near.astype(float)), labels=np.repeat([0, 1, 2], 80))
    patches = []
    for nodes in (np.arange(120), np.arange(60, 190), np.arange(130, 240)):
        Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        patches.append(gq.Patch(nodes, X[nodes] @ Q + 4 * rng.normal(size=3)))
    return graph, X, patches


def test_alignment_is_better_than_unaligned_patches_and_equals_full_without_noise():
    graph, X, patches = quilt()
    seen = gq.compare(graph, patches, gq.align(patches, [[0, 1], [1, 2]]), full=X, options=EvaluationOptions(splits=5))
    assert list(seen) == ["full", "l2g", "no-trans"]
    assert seen["l2g"].accuracy == pytest.approx(seen["full"].accuracy, abs=0.05)
    assert seen["l2g"].accuracy > seen["no-trans"].accuracy
    assert len(str(seen).splitlines()) == 5
    assert f"{seen['l2g'].auc:.3f}" in str(seen)


def test_a_graph_without_labels_is_compared_by_its_links():
    graph, _, patches = quilt()
    bare = gq.Graph(graph.adjacency)
    seen = gq.compare(bare, patches, gq.align(patches, [[0, 1], [1, 2]]))
    assert list(seen) == ["l2g", "no-trans"]
    assert seen["l2g"].accuracy is None
    assert "–" in str(seen)


def test_a_job_on_disk_is_compared_as_its_parts_are(tmp_path):
    graph = gq.datasets.load_dataset("blocks")
    store, cutting = gq.DirectoryStore(tmp_path / "job"), gq.Cutting(4, overlap=(40, 160))
    result = gq.embed(graph, dim=4, cutting=cutting, recipe=gq.Recipe(), store=store)
    parts = gq.compare(graph, result.patches, result.alignment, options=EvaluationOptions(splits=2))
    assert compare_job(gq.Job.open(tmp_path / "job"), options=EvaluationOptions(splits=2)) == parts
    with pytest.raises(gq.errors.JobError, match="job of 1200 nodes; this graph has 240"):
        compare_job(gq.Job.open(tmp_path / "job"), graph=quilt()[0])
    half = gq.DirectoryStore(tmp_path / "half")
    labels = gq.Metis(4)(graph)
    patches = gq.patch_graph(graph, labels, degree=2, overlap=(40, 160))
    gq.embed_patches(graph, patches, gq.SVD(2), seed=0, store=half)
    with pytest.raises(gq.errors.JobError, match="not aligned yet"):
        compare_job(gq.Job(half, gq.JobSettings(embedder=gq.SVD(2)), graph))
