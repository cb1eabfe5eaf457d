"""Patches that are averaged into the result as they come, and not kept: the same bits, whatever happens on the way."""

import dataclasses

import numpy as np
import pytest

import graphquilt as gq
from graphquilt.datasets.loading import block_graph
from graphquilt.embedders import survey
from graphquilt.errors import JobError, PatchesFailedError
from graphquilt.jobs import stored_patches

DIM = 4
RECIPE = gq.Recipe.shared()


@pytest.fixture(scope="module")
def graph():
    return block_graph(600, seed=1)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(stored_patches, "BLOCK", 8 * DIM * 130)  # five blocks of nodes


def settings(**changes):
    recipe = RECIPE.replace(**{"keep_patches": False, **changes})
    return gq.JobSettings(embedder=gq.Propagation(DIM), cutting=gq.Cutting(6), recipe=recipe)


def job_in(folder, graph, **changes):
    return gq.Job.begin(gq.DirectoryStore(folder), settings(**changes), graph)


@pytest.fixture(scope="module")
def expected(graph):
    return np.asarray(gq.embed(graph, DIM, n_patches=6, recipe=RECIPE).embedding)


def test_rows_that_are_not_kept_give_the_same_bits(graph, expected, tmp_path):
    job = job_in(tmp_path / "job", graph)
    job.run()
    assert np.array_equal(job.embedding, expected)
    assert not list(tmp_path.glob("job/rows.bin")) + list(tmp_path.glob("job/*.part"))
    n_rows = [len(job.store[f"patches/{k:05d}/embedding"].arrays["embedding"]) for k in range(6)]
    assert sum(n_rows) < job.patch_graph.sizes.sum()  # only what overlaps consist of
    kept = job_in(tmp_path / "kept", graph, keep_patches=True)
    kept.run()
    assert np.array_equal(job.alignment.edge_errors, kept.alignment.edge_errors)
    with pytest.raises(JobError, match="averaged into the embedding and not kept; keep them with --keep-patches"):
        job.patches[0]
    before = (tmp_path / "job/embedding.npy").stat().st_mtime_ns
    job_in(tmp_path / "job", graph).run()  # nothing is left to do
    assert (tmp_path / "job/embedding.npy").stat().st_mtime_ns == before


def test_workers_and_half_precision_give_the_same_bits(graph, expected, tmp_path):
    with gq.Processes(2) as pool:
        job = job_in(tmp_path / "job", graph)
        job.run(executor=pool)
        assert np.array_equal(job.embedding, expected)
    results = []
    for keep in (False, True):
        half = job_in(tmp_path / f"half {keep}", graph, keep_patches=keep, precision="float16")
        half.run()
        results.append(np.asarray(half.embedding))
    assert results[0].dtype == np.float16
    assert np.array_equal(*results)
    assert np.abs(results[0] - expected).max() < 2e-3


class Killed(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize("kill", [(0, False), (1, True), (3, False), (4, True)])
def test_a_job_that_ends_between_two_blocks_continues(graph, expected, tmp_path, monkeypatch, kill):
    after, truncated = kill
    whole = stored_patches.RowFile.blocks

    def killed(self, result):
        blocks = whole(self, result)
        for k, block in enumerate(blocks):
            yield block
            if k == after:
                if truncated:
                    next(blocks, None)
                raise Killed

    job = job_in(tmp_path / "job", graph)
    job.cut()
    job.embed()
    monkeypatch.setattr(stored_patches.RowFile, "blocks", killed)
    with pytest.raises(Killed):
        job.stitch()
    monkeypatch.setattr(stored_patches.RowFile, "blocks", whole)
    again = job_in(tmp_path / "job", graph)
    again.run()
    assert np.array_equal(again.embedding, expected)


def test_rows_that_were_never_written_or_have_changed_are_made_again(graph, expected, tmp_path, caplog):
    job = job_in(tmp_path / "job", graph)
    job.cut()
    job.embed()
    with open(tmp_path / "job/rows.bin", "r+b") as file:
        file.write(b"\0" * 64)
    job.run()
    assert "its rows in rows.bin have changed" in caplog.text
    assert np.array_equal(job.embedding, expected)


def test_another_alignment_needs_the_patches_again(graph, tmp_path):
    job_in(tmp_path / "job", graph).run()
    other = job_in(tmp_path / "job", graph, coverage=0.0)
    with pytest.raises(JobError, match="not kept\\. Embed them again, with --keep-patches"):
        other.stitch()
    other.run()
    fresh = job_in(tmp_path / "fresh", graph, coverage=0.0)
    fresh.run()
    assert np.array_equal(other.embedding, fresh.embedding)


def test_patches_that_were_moved_are_removed_on_request(graph, tmp_path):
    recipe = {"start": False, "negatives": 1}
    kept, job = (job_in(tmp_path / str(keep), graph, keep_patches=keep, **recipe) for keep in (True, False))
    kept.run()
    job.run()
    assert np.array_equal(job.embedding, kept.embedding)
    assert not list(tmp_path.glob("False/patches/*/embedding.npy"))
    with pytest.raises(JobError, match="patch 0 was removed after it was stitched"):
        job.patches[0]
    assert job_in(tmp_path / "False", graph, **recipe).count_embedded() == 6
    before = (tmp_path / "False/embedding.npy").stat().st_mtime_ns
    job_in(tmp_path / "False", graph, **recipe).run()
    assert (tmp_path / "False/embedding.npy").stat().st_mtime_ns == before


def test_coordinates_that_half_precision_cannot_hold_are_refused(graph):
    def large(part, seed):
        return np.random.default_rng(seed).choice([-7e4, 7e4], (part.n_nodes, 2))

    with pytest.raises(
        PatchesFailedError, match="coordinates as large as 7e\\+04 do not fit into float16; use another"
    ):
        gq.embed(graph, 2, embedder=large, n_patches=6, recipe=gq.Recipe(precision="float16"))


def test_a_sample_decides_the_directions_of_a_large_graph_and_patches_are_walked_once(graph, tmp_path, monkeypatch):
    exact = gq.embed(graph, DIM, n_patches=6)
    monkeypatch.setattr(survey, "KEPT", 0)
    sampled = gq.embed(graph, DIM, n_patches=6)
    job = job_in(tmp_path / "job", graph)
    job.run()
    assert np.array_equal(job.embedding, sampled.embedding)
    assert not list(tmp_path.glob("job/patches/*/kept0.*"))
    assert not np.array_equal(sampled.embedding, exact.embedding)
    auc = [gq.evaluate.reconstruction_auc(result.embedding, graph, seed=0) for result in (sampled, exact)]
    assert auc[0] > auc[1] - 0.01


def test_a_graph_that_changes_during_the_run_stops_it(graph, tmp_path):
    features = np.random.default_rng(0).random((600, 8), dtype=np.float32)
    gq.Graph(graph.adjacency).save(tmp_path / "graph")
    np.save(tmp_path / "x.npy", features)
    gq.graph.attach(tmp_path / "graph", features=tmp_path / "x.npy")
    source = gq.jobs.Source(path=str(tmp_path / "graph"))
    wanted = dataclasses.replace(settings(), source=source)

    def run(folder, progress=None):
        job = gq.Job.begin(gq.DirectoryStore(tmp_path / folder), wanted)
        job.run(progress=progress)
        return job.embedding

    def change(event):
        if event.stage == "start" and event.done == 2:
            np.save(tmp_path / "x.npy", features + 1)

    with pytest.raises(JobError, match=r"graph changed while patch \d was at work\. Bring them back, and run again"):
        run("job", change)
    np.save(tmp_path / "x.npy", features)
    assert np.array_equal(run("job"), run("other"))
