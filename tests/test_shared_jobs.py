"""Jobs that several runs share, that refuse a run, or whose run was stopped in between: nothing is spoilt."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from graphquilt.records import job_graph, keep_graph, keep_patch_graph, kept_embedding
from graphquilt.stages import align_job, cut_patches

import graphquilt as gq
from graphquilt import stages
from graphquilt.cli import main
from graphquilt.files import write_arrays
from graphquilt.jobs import DirectoryStore, export_embedding, job_status
from graphquilt.jobs.lock import job_lock
from graphquilt.pipeline import Record
from graphquilt.pipeline.description import fingerprint
from toy_embedders import Toy, ring_of_patches

COMMAND = [sys.executable, "-c", "from graphquilt.cli import main; main()"]
RECIPE = gq.Recipe(runs=2)


@pytest.fixture(scope="module")
def ring():
    return ring_of_patches(6)


@pytest.fixture
def job(ring, tmp_path):
    """A job with two runs of each patch, not aligned yet."""
    store = DirectoryStore(tmp_path / "job")
    keep_graph(store, ring[0], {})
    gq.embed_in_rounds(*ring, Toy(2), recipe=RECIPE, seed=7, store=store)
    return store


def command(capsys, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["graphquilt", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    return ended.value.code or 0, told.out, told.err


def files(store):
    return {path: path.read_bytes() for path in store.path.rglob("*") if path.is_file() and path.name != "lock"}


# Several writers


def test_shares_that_start_together_all_finish(ring, tmp_path):
    store, quilt = DirectoryStore(tmp_path / "job"), ring[1]
    keep_graph(store, ring[0], {})
    graph = job_graph(store)
    keep_patch_graph(store, quilt, graph, {"dim": 2})
    cut_patches(store, graph, quilt)
    words = ["embed", str(store.path), "--workers", "1", "--shard"]
    shares = [
        subprocess.Popen([*COMMAND, *words, f"{k}/8"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for k in range(1, 9)
    ]
    told = [share.communicate(timeout=300)[1] for share in shares]
    assert [share.returncode for share in shares] == [0] * 8, told
    assert job_status(store)["embedded"] == [6]


def test_two_writers_of_one_record_do_not_take_it_from_each_other(tmp_path, monkeypatch):
    store, record, begun = DirectoryStore(tmp_path / "job"), Record({"x": np.arange(3)}, {"n": 1}), []

    def meanwhile(file, arrays):
        write_arrays(file, arrays)
        if not begun:
            begun.append(True)
            DirectoryStore(store.path)["a"] = record

    monkeypatch.setattr("graphquilt.store.write_arrays", meanwhile)
    store["a"] = record
    assert store["a"].arrays["x"].tolist() == [0, 1, 2]
    assert not list(store.path.glob("*.part"))


def test_a_record_that_is_written_again_as_it_is_never_vanishes(tmp_path, monkeypatch):
    store, seen = DirectoryStore(tmp_path / "job"), []
    records = {"settings": Record({}, {"n": 1}), "arrays": Record({"x": np.arange(3)})}
    for key, record in records.items():
        store[key] = record
    move = os.replace

    def watched(source, target):
        seen.append(all(key in DirectoryStore(store.path) for key in records))
        move(source, target)

    monkeypatch.setattr(os, "replace", watched)
    for key, record in records.items():
        store[key] = record
    store["settings"] = Record({}, {"n": 2})
    assert seen == [True] * 4
    assert store["settings"].parameters["n"] == 2


def test_only_what_dead_writers_left_is_removed(tmp_path):
    store, here = DirectoryStore(tmp_path), socket.gethostname()
    with subprocess.Popen(["true"]) as ended:
        pass
    token = "0123456789abcdef"
    names = {
        "dead": f"a.{here}.{ended.pid}.{token}.part",
        "live": f"a.{here}.{os.getpid()}.{token}.part",
        "elsewhere": f"a.other.host.{ended.pid}.{token}.part",
        "old": f"a.other.host.1.{token}.part",
        "foreign": "a.movie.part",
    }
    for name in names.values():
        (tmp_path / name).touch()
    for name in ("old", "foreign"):
        os.utime(tmp_path / names[name], (1e9, 1e9))
    store["a"] = Record({"x": np.zeros(1)})
    assert {path.name for path in tmp_path.glob("*.part")} == {names[it] for it in ("live", "elsewhere", "foreign")}


def test_a_job_that_another_run_starts_at_this_moment_is_not_refused(tmp_path, monkeypatch):
    """quilt.json appears after one look for it, and other things after that."""
    from pathlib import Path

    read, folder = Path.read_text, tmp_path / "job"

    def late(path, *args, **kwargs):
        if path.name == "quilt.json" and not path.exists():
            monkeypatch.setattr(Path, "read_text", read)
            DirectoryStore(folder)["a"] = Record({})
            raise FileNotFoundError
        return read(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", late)
    assert "a" in DirectoryStore(folder)


def test_a_share_of_nothing_writes_nothing(ring, tmp_path):
    """Two of them would have one name, and the lock of one would refuse the other."""
    store = DirectoryStore(tmp_path / "job")
    gq.embed_in_rounds(*ring, Toy(2), recipe=RECIPE, seed=7, store=store, only=[])
    assert not store.path.exists()


# Runs that are refused


def test_a_refused_run_has_changed_nothing(ring, job):
    before = files(job)
    with job_lock(job.path), ThreadPoolExecutor(1) as other:
        for asked in (gq.Recipe(runs=3), gq.Recipe("other", runs=2), RECIPE.changed(runs=1)):
            again = other.submit(gq.embed_in_rounds, *ring, Toy(2), recipe=asked, seed=7, store=job)
            with pytest.raises(gq.errors.JobError, match="is being worked on"):
                again.result()
        whole = other.submit(gq.embed, ring[0], 2, n_patches=3, embedder=Toy(2), store=job)
        with pytest.raises(gq.errors.JobError, match="is being worked on"):
            whole.result()
        more = other.submit(gq.embed_patches, *ring, Toy(2), seed=7, runs=3, store=job)
        with pytest.raises(gq.errors.JobError, match="is being worked on"):
            more.result()
        asked_as_it_is = other.submit(gq.embed_in_rounds, *ring, Toy(2), recipe=RECIPE, seed=7, store=job)
        assert len(asked_as_it_is.result()) == 12  # nothing to write, so nothing to wait for
    assert files(job) == before


# Runs that are stopped


def test_a_run_that_is_stopped_while_it_saves_its_graph_goes_on(ring, tmp_path, monkeypatch):
    save = gq.Graph.save

    def stopped(graph, folder):
        save(graph, folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(gq.Graph, "save", stopped)
    with pytest.raises(KeyboardInterrupt):
        keep_graph(DirectoryStore(tmp_path / "job"), ring[0], {})
    monkeypatch.setattr(gq.Graph, "save", save)
    store = DirectoryStore(tmp_path / "job")
    assert job_graph(store) is None
    keep_graph(store, ring[0], {})
    assert job_graph(store).n_nodes == ring[0].n_nodes


def test_an_alignment_that_is_stopped_leaves_no_embedding_that_looks_like_its_own(job, tmp_path, monkeypatch):
    align_job(job)
    assert job_status(job)["next"] == "nothing"
    X = kept_embedding(job)

    def stopped(*_args, **_kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stages, "centroid", stopped)
        with pytest.raises(KeyboardInterrupt):
            align_job(job, translate=False)
    assert job_status(job)["next"] == "graphquilt align"
    with pytest.raises(gq.errors.JobError, match=r"not the one of its alignment.*\(graphquilt align\)"):
        export_embedding(job, tmp_path / "out.csv")
    align_job(job)
    assert np.array_equal(kept_embedding(job), X)
    export_embedding(job, tmp_path / "out.csv")


def test_other_weights_are_another_alignment_too(job):
    """The transforms may be the same, as those of a single patch are; the embedding is not."""
    align_job(job, coverage=0)
    alignment = job["alignment"]
    job["alignment"] = Record(alignment.arrays, {**alignment.parameters, "coverage": 2.0})
    with pytest.raises(gq.errors.JobError, match="not the one of its alignment"):
        kept_embedding(job)


def test_an_embedding_that_does_not_name_its_alignment_is_read(job):
    """As jobs had it before embeddings did."""
    align_job(job)
    record = job["embedding"]
    job["embedding"] = Record(record.arrays, {"n_nodes": 72, "dim": 2})
    assert kept_embedding(job).shape == (72, 2)
    assert job_status(job)["next"] == "nothing"


@pytest.mark.parametrize("where", ["graphquilt.stages.centroid", "pyarrow.parquet.write_table"])
def test_what_a_killed_alignment_leaves_is_removed_by_the_next(job, where):
    module, name = where.rsplit(".", 1)
    code = (
        "import os, sys\n"
        f"import {module} as module\nwork = module.{name}\n"
        "from graphquilt.stages import align_job\nfrom graphquilt.store import DirectoryStore\n"
        "def killed(*args, **kwargs):\n    work(*args, **kwargs)\n    os.kill(os.getpid(), 9)\n"
        f"module.{name} = killed\nalign_job(DirectoryStore(sys.argv[1]))\n"
    )
    run = subprocess.run([sys.executable, "-c", code, job.path], check=False)
    assert run.returncode == -signal.SIGKILL
    assert list(job.path.glob("*.part"))
    align_job(job)
    assert not list(job.path.glob("*.part"))


# Jobs from Python on the command line


def test_the_command_line_goes_on_with_a_job_of_embed(blocks, tmp_path, capsys, monkeypatch):
    path = tmp_path / "job"
    kept = gq.embed(blocks, dim=4, n_patches=4, overlap=(40, 160), store=DirectoryStore(path))
    code, out, _ = command(capsys, monkeypatch, "inspect", path, "--json")
    assert (code, json.loads(out)["next"]) == (0, "nothing")
    code, out, _ = command(capsys, monkeypatch, "evaluate", path, "--splits", 2, "--json")
    assert code == 0
    assert json.loads(out)["reconstruction_auc"] == gq.evaluate.reconstruction_auc(kept.embedding, blocks, seed=0)
    assert "accuracy" in json.loads(out)
    assert command(capsys, monkeypatch, "export", path, tmp_path / "x.csv")[0] == 0
    assert len((tmp_path / "x.csv").read_text().splitlines()) == blocks.n_nodes + 1
    assert command(capsys, monkeypatch, "embed", path, "--runs", 2, "--workers", 1)[0] == 0
    assert command(capsys, monkeypatch, "align", path, "--coverage", 2)[0] == 0
    again = gq.embed(blocks, dim=4, n_patches=4, overlap=(40, 160), store=DirectoryStore(path), runs=2)
    assert np.array_equal(kept_embedding(DirectoryStore(path)), again.embedding)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_a_graph_that_was_saved_is_known_again(ring, tmp_path, kind):
    """Graph.save may narrow the numbers of the nodes; a job that was begun before is no other one for that."""
    import scipy.sparse as sp

    A = sp.csr_array(ring[0].adjacency)
    graph = gq.Graph.from_arrays(A.indptr.astype(kind), A.indices.astype(kind))
    graph.save(tmp_path / "graph")
    store = DirectoryStore(tmp_path / "job")
    gq.embed_patches(graph, ring[1], Toy(2), seed=7, store=store)
    gq.embed_patches(gq.Graph.open(tmp_path / "graph"), ring[1], Toy(2), seed=7, store=store)
    old = fingerprint(graph.indptr, graph.indices, None, None)
    store["patch_graph"] = Record(store["patch_graph"].arrays, {**store["patch_graph"].parameters, "graph": old})
    gq.embed_patches(graph, ring[1], Toy(2), seed=7, store=store)


def test_a_job_without_a_graph_is_told_from_one_without_an_embedding(ring, tmp_path, capsys, monkeypatch):
    store = DirectoryStore(tmp_path / "job")
    gq.embed_patches(*ring, Toy(2), seed=7, store=store)
    code, _, err = command(capsys, monkeypatch, "evaluate", store.path)
    assert code == 2
    assert "has no embedding yet; align it first" in err
    align_job(store)
    code, _, err = command(capsys, monkeypatch, "evaluate", store.path)
    assert code == 2
    assert "has an embedding but no graph" in err
    assert command(capsys, monkeypatch, "export", store.path, tmp_path / "x.csv")[0] == 0


# Patches that travel


def test_a_worker_opens_and_checks_the_patch_graph_once(ring, tmp_path, monkeypatch):
    store = DirectoryStore(tmp_path / "job")
    patches = gq.embed_patches(*ring, Toy(2), seed=7, store=store)
    sent, checked = pickle.dumps(patches), []
    expected = np.array(patches[4].coordinates)
    verify = DirectoryStore._verify

    def counted(self, data, marker):
        checked.append(data.name)
        verify(self, data, marker)

    monkeypatch.setattr(DirectoryStore, "_verify", counted)
    for _ in range(3):
        there = pickle.loads(sent)
        assert np.array_equal(there[4].coordinates, expected)
    assert checked == ["patch_graph.npz", "embedding.npy"]
    store["patches/00004/embedding"] = Record({"embedding": np.zeros_like(expected)})
    assert (pickle.loads(sent)[4].coordinates == 0).all()  # what has changed is seen
