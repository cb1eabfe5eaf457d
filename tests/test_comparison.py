"""Full, aligned and unaligned embeddings side by side, for any embedder."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from graphquilt.cli import app, run
from graphquilt.evaluate import EvaluationOptions

FEW = EvaluationOptions(splits=2)


@dataclass(frozen=True)
class Turned:
    """Somebody's own embedder: principal components of the features, turned and moved anew on every graph."""

    dim: int = 4
    log: str | None = field(default=None, compare=False)

    def __call__(self, graph, seed):
        if self.log is not None:
            with Path(self.log).open("a") as file:
                file.write(f"{graph.n_nodes}\n")
        rng = np.random.default_rng(seed)
        X = np.asarray(graph.features.toarray() if sp.issparse(graph.features) else graph.features, dtype=float)
        plane = np.linalg.svd(np.random.default_rng(0).normal(size=(X.shape[1], self.dim)), full_matrices=False)[0]
        turn = np.linalg.qr(rng.normal(size=(self.dim, self.dim)))[0]
        return X @ plane @ turn + 5 * rng.normal(size=self.dim)


@pytest.fixture
def job(blocks, tmp_path):
    embedder = Turned(log=str(tmp_path / "log.txt"))
    cutting = gq.Cutting(4, overlap=(40, 160))
    gq.embed(blocks, 4, embedder=embedder, cutting=cutting, recipe=gq.Recipe.paper(), store=tmp_path / "job")
    return tmp_path / "job"


def test_aligned_patches_equal_the_whole_graph_and_unaligned_ones_do_not(job):
    seen = gq.compare(job, embedder=Turned(), options=FEW)
    assert list(seen) == ["full", "l2g", "no-trans"]
    assert seen["l2g"].accuracy == pytest.approx(seen["full"].accuracy, abs=1e-6)  # exact without noise
    assert abs(seen["no-trans"].accuracy - seen["full"].accuracy) > 0.05
    lines = str(seen).splitlines()
    assert len(lines) == 5
    assert f"{seen['l2g'].auc:.3f}" in lines[3]


def test_the_whole_graph_is_embedded_once(job, blocks):
    log = job.parent / "log.txt"
    before = len(log.read_text().splitlines())
    first = gq.compare(job, embedder=Turned(log=str(log)), options=FEW)
    assert log.read_text().splitlines()[before:] == [str(blocks.n_nodes)]
    assert gq.compare(job, embedder=Turned(log=str(log)), options=FEW) == first
    assert len(log.read_text().splitlines()) == before + 1
    assert set(gq.Job.open(job).store["evaluation"].parameters["routes"]) == {"full", "l2g", "no-trans"}


def test_a_result_in_memory_is_compared_like_a_job(blocks, tmp_path):
    settings = {"dim": 4, "cutting": gq.Cutting(4, overlap=(40, 160))}
    kept = gq.embed(blocks, **settings, store=tmp_path / "job")
    in_memory = gq.compare(gq.embed(blocks, **settings), options=FEW)
    assert gq.compare(kept, options=FEW) == in_memory == gq.compare(tmp_path / "job", options=FEW)


def test_other_means_give_the_whole_embedding_or_leave_it_out(job, blocks):
    X = np.eye(6)[blocks.labels]
    assert gq.compare(job, full=X, options=FEW)["full"].accuracy == 1
    assert list(gq.compare(job, full=False, options=FEW)) == ["l2g", "no-trans"]
    with pytest.raises(gq.errors.InputError, match="1200"):
        gq.compare(job, full=X[1:], options=FEW)


def test_an_embedder_that_is_not_at_hand_is_asked_for(blocks, tmp_path):
    def local(graph, seed):
        return Turned()(graph, seed)

    gq.embed(blocks, 4, embedder=gq.FunctionEmbedder(local, 4), n_patches=4, store=tmp_path / "job")
    with pytest.raises(gq.errors.JobError, match=r"not at hand: pass it .*--full.* leave it out \(--no-whole"):
        gq.compare(tmp_path / "job", options=FEW)
    assert list(gq.compare(tmp_path / "job", full=False, options=FEW)) == ["l2g", "no-trans"]


def test_labels_may_come_from_elsewhere(blocks):
    bare = gq.Graph(blocks.adjacency, blocks.features)
    result = gq.embed(bare, 4, n_patches=4)
    assert gq.compare(result, options=FEW)["l2g"].accuracy is None
    assert "accuracy" not in str(gq.compare(result, options=FEW))
    assert gq.compare(result, labels=blocks.labels, options=FEW)["l2g"].accuracy > 0.5


def test_errors(job, tmp_path, blocks):
    with pytest.raises(gq.errors.JobError, match="job of 1200 nodes; this graph has 3"):
        gq.compare(job, graph=gq.read_edges([(0, 1), (1, 2)]))
    half = gq.DirectoryStore(tmp_path / "half")
    patches = gq.patch_graph(blocks, gq.Metis(4)(blocks), degree=2, overlap=(40, 160))
    gq.embed_patches(blocks, patches, gq.SVD(2), seed=0, store=half)
    with pytest.raises(gq.errors.JobError, match="not aligned yet"):
        gq.compare(gq.Job(half, gq.JobSettings(embedder=gq.SVD(2)), blocks))
    with pytest.raises(gq.errors.InputError, match=r"embedded with .*Turned.* \(now .*SVD\); compare it with"):
        gq.compare(job, embedder=gq.SVD(4), options=FEW)
    with pytest.raises(gq.errors.InputError, match=r"an \.svg file; x\.gif has another ending"):
        gq.compare(job, full=False, options=FEW).save_picture(tmp_path / "x.gif")


def test_the_command_prints_one_table_and_draws_one_picture(blocks, tmp_path, capsys):
    gq.embed(blocks, 4, n_patches=4, store=tmp_path / "job")
    run(app, ["compare", str(tmp_path / "job"), "--splits", "2"])
    printed = capsys.readouterr().out
    assert [line.split(" |")[0] for line in printed.splitlines()[2:5]] == ["| full", "| l2g", "| no-trans"]
    assert "shared start" in printed
    picture = (tmp_path / "job" / "compare.svg").read_text()
    assert picture.count("<circle") == 3 * 1000
    assert "l2g: AUC" in picture
    run(app, ["compare", str(tmp_path / "job"), "--splits", "2", "--no-whole", "--json"])
    assert set(json.loads(capsys.readouterr().out)["routes"]) == {"l2g", "no-trans"}
