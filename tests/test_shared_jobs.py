"""Jobs that several runs share, that refuse a run, or whose run was stopped in between: nothing is spoilt."""

import json
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

import graphquilt as gq
from graphquilt.cli import main
from graphquilt.files import write_arrays
from graphquilt.files.checksums import file_checksum
from graphquilt.files.writing import folder_lock
from graphquilt.jobs import DirectoryStore, Job, JobSettings, Record, export_embedding, follow_job, job_status
from graphquilt.linalg import Motions
from toy_embedders import Framed, Toy, embed_shard, job_of_patches, ring_of_patches

COMMAND = [sys.executable, "-c", "from graphquilt.cli import main; main()"]
SETTINGS = JobSettings(embedder=Toy(2), recipe=gq.Recipe(runs=2), seed=7)


@pytest.fixture(scope="module")
def ring():
    return ring_of_patches(6)


@pytest.fixture
def job(ring, tmp_path):
    """A job with two runs of each patch, not aligned yet."""
    store = DirectoryStore(tmp_path / "job")
    job = job_of_patches(store, *ring, embedder=Toy(2), recipe=gq.Recipe(runs=2), seed=7)
    job.embed()
    return job


def command(capsys, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["graphquilt", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    return ended.value.code or 0, printed.out, printed.err


def files(job):
    return {path: path.read_bytes() for path in job.store.folder.rglob("*") if path.is_file() and path.name != "lock"}


def with_recipe(job, **changes):
    return job.revise(replace(job.settings, recipe=job.settings.recipe.replace(**changes)))


# Several writers


def test_shares_that_start_together_all_finish(ring, tmp_path):
    store = DirectoryStore(tmp_path / "job")
    job_of_patches(store, *ring, embedder=gq.SVD(2))
    words = [
        "embed-patches",
        str(store.folder),
        "--refine",
        "2",
        "--workers",
        "1",
        "--shard",
    ]  # each writes the settings, too
    shares = [
        subprocess.Popen([*COMMAND, *words, f"{k}/8"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for k in range(1, 9)
    ]
    errors = [share.communicate(timeout=300)[1] for share in shares]
    assert [share.returncode for share in shares] == [0] * 8, errors
    job = Job.open(store)
    assert (job_status(job).embedded, job.settings.recipe.refine) == (6, 2)


def test_a_share_notices_that_another_began_with_other_settings(ring, tmp_path):
    store = DirectoryStore(tmp_path / "job")
    job = job_of_patches(store, *ring, embedder=Toy(2), seed=7)

    def meanwhile(event):
        if event.stage == "patches" and event.done == 1:
            other = replace(job.settings, embedder=gq.SVD(2))
            store["settings"] = gq.jobs.Record({}, other.to_parameters())

    with pytest.raises(gq.errors.JobError, match=r"with embedder toy_embedders.Toy \(now graphquilt.SVD\)"):
        job.embed(only=[4, 5], progress=meanwhile)


def test_two_writers_of_one_record_do_not_take_it_from_each_other(tmp_path, monkeypatch):
    store, record, begun = DirectoryStore(tmp_path / "job"), Record({"x": np.arange(3)}, {"n": 1}), []

    def meanwhile(file, arrays):
        write_arrays(file, arrays)
        if not begun:
            begun.append(True)
            DirectoryStore(store.folder)["a"] = record

    monkeypatch.setattr("graphquilt.jobs.store.write_arrays", meanwhile)
    store["a"] = record
    assert store["a"].arrays["x"].tolist() == [0, 1, 2]
    assert not list(store.folder.rglob("*.part"))


def test_a_record_that_is_written_again_as_it_is_never_vanishes(tmp_path, monkeypatch):
    store, seen = DirectoryStore(tmp_path / "job"), []
    records = {"settings": Record({}, {"n": 1}), "arrays": Record({"x": np.arange(3)})}
    for key, record in records.items():
        store[key] = record
    move = os.replace

    def watched(source, target):
        seen.append(all(key in DirectoryStore(store.folder) for key in records))
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
    assert {path.name for path in tmp_path.rglob("*.part")} == {names[it] for it in ("live", "elsewhere", "foreign")}


def test_a_job_that_another_run_starts_at_this_moment_is_not_refused(tmp_path, monkeypatch):
    """quilt.json appears after one look for it, and other things after that."""
    from pathlib import Path

    read, folder = Path.read_bytes, tmp_path / "job"

    def late(path, *args, **kwargs):
        if path.name == "quilt.json" and not path.exists():
            monkeypatch.setattr(Path, "read_bytes", read)
            DirectoryStore(folder)["a"] = Record({})
            raise FileNotFoundError
        return read(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_bytes", late)
    assert "a" in DirectoryStore(folder)


def test_a_share_of_nothing_writes_nothing(ring, tmp_path):
    """Two of them would have one name, and the lock of one would refuse the other."""
    store = DirectoryStore(tmp_path / "job")
    gq.embed_patches(*ring, Toy(2), seed=7, store=store, only=[])
    assert not store.folder.exists()


# Runs that are refused


def test_a_refused_run_has_changed_nothing(ring, job):
    before = files(job)
    with folder_lock(job.store.folder), ThreadPoolExecutor(1) as other:
        refused = [
            other.submit(Job.begin, job.store, replace(SETTINGS, recipe=gq.Recipe(name, runs=runs)), ring[0])
            for name, runs in (("own", 3), ("other", 2), ("own", 1))
        ]
        refused += [
            other.submit(gq.embed, ring[0], 2, n_patches=3, embedder=Toy(2), store=job.store),
            other.submit(gq.embed_patches, *ring, Toy(2), seed=7, recipe=gq.Recipe(runs=3), store=job.store),
            other.submit(with_recipe, job, robust=True),
            other.submit(job.stitch),
        ]
        for run in refused:
            with pytest.raises(gq.errors.JobError, match="is being worked on"):
                run.result()
        again = other.submit(Job.begin, job.store, SETTINGS, ring[0]).result()
        assert len(other.submit(again.embed).result()) == 12  # nothing to write, so nothing to wait for
    assert files(job) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 8}, r"is embedded with seed of patch 0"),
        ({"embedder": Toy(3)}, r"is embedded with dim 2 \(now 3\)\. Mixing them"),
        ({"embedder": gq.SVD(2)}, r"is embedded with embedder toy_embedders.Toy \(now graphquilt.SVD\)\. Mixing them"),
    ],
    ids=["seed", "dim", "embedder"],
)
def test_settings_that_do_not_go_with_what_is_made_are_refused(ring, job, change, message):
    before, cutting = files(job), job.settings.cutting
    settings = replace(SETTINGS, cutting=cutting)
    with pytest.raises(gq.errors.JobError, match=message):
        Job.begin(job.store, replace(settings, **change), ring[0])
    with pytest.raises(gq.errors.JobError, match=message):
        Job.open(job.store).revise(replace(settings, source=job.settings.source, **change))
    assert files(job) == before


def test_settings_with_which_nothing_was_made_are_replaced(ring, tmp_path):
    """A first attempt that failed, or was mistyped, does not block the folder."""
    store = DirectoryStore(tmp_path / "job")
    Job.begin(store, replace(SETTINGS, seed=8, cutting=gq.Cutting(4)), ring_of_patches(5)[0])
    job = Job.begin(store, replace(SETTINGS, embedder=gq.SVD(2)), ring[0])
    job.cut()
    job = Job.begin(store, SETTINGS, ring[0])  # another embedder, and nothing is embedded
    assert Job.open(store).settings.to_parameters() == job.settings.to_parameters()
    assert Job.open(store).graph.n_nodes == ring[0].n_nodes
    with pytest.raises(gq.errors.JobError, match=r"was made from other input: graph with fingerprint \w+ \(now \w+\)"):
        Job.begin(store, SETTINGS, ring_of_patches(5)[0])


# Runs that are stopped


def test_a_run_that_is_stopped_while_it_saves_its_graph_goes_on(ring, tmp_path, monkeypatch):
    save = gq.Graph.save

    def stopped(graph, folder):
        save(graph, folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(gq.Graph, "save", stopped)
    with pytest.raises(KeyboardInterrupt):
        Job.begin(DirectoryStore(tmp_path / "job"), SETTINGS, ring[0])
    monkeypatch.setattr(gq.Graph, "save", save)
    store = DirectoryStore(tmp_path / "job")
    with pytest.raises(gq.errors.JobError, match="has no patches yet"):
        Job.open(store)
    Job.begin(store, SETTINGS, ring[0])
    assert Job.open(store).graph.n_nodes == ring[0].n_nodes


@dataclass(frozen=True)
class Counting:
    """A partitioner that counts its calls in a file."""

    n_patches: int
    log: str = field(compare=False)

    def __call__(self, graph):
        with open(self.log, "a") as file:
            file.write("x")
        return np.arange(graph.n_nodes) * self.n_patches // graph.n_nodes


def test_a_run_that_is_stopped_after_the_partition_does_not_partition_again(ring, tmp_path, monkeypatch):
    log = tmp_path / "log"
    cutting = gq.Cutting(4, partitioner=Counting(4, str(log)), overlap=(6, 12))
    job = Job.begin(DirectoryStore(tmp_path / "job"), replace(SETTINGS, cutting=cutting), ring[0])

    def stopped(*_args, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("graphquilt.jobs.steps.patch_graph", stopped)
        with pytest.raises(KeyboardInterrupt):
            job.cut()
    assert "labels" in job.store
    assert "patch_graph" not in job.store
    with pytest.raises(gq.errors.JobError, match="has no patches yet"):
        job.embed()
    patch_graph = Job.begin(DirectoryStore(job.store.folder), job.settings, ring[0]).cut()
    assert log.read_text() == "x"
    assert np.array_equal(patch_graph.edges, gq.cut(ring[0], cutting=cutting, embedder=Toy(2), seed=7).edges)
    other = gq.Cutting(3, partitioner=Counting(3, str(log)), overlap=(6, 12))  # other labels are not taken for these
    store = DirectoryStore(tmp_path / "other")
    store["labels"] = job.store["labels"]
    assert gq.cut(ring[0], cutting=other, embedder=Toy(2), seed=7, store=store).n_patches == 3


def test_an_alignment_that_is_stopped_leaves_no_embedding_that_looks_like_its_own(job, tmp_path, monkeypatch):
    job.stitch()
    assert job_status(job).next == "nothing"
    X = np.array(job.embedding)

    write = DirectoryStore.__setitem__

    def stop(store, key, record):
        if key == "embedding":
            raise KeyboardInterrupt
        write(store, key, record)

    still = with_recipe(job, motions=Motions(translate=False))
    with monkeypatch.context() as patched:
        patched.setattr(DirectoryStore, "__setitem__", stop)
        with pytest.raises(KeyboardInterrupt):
            still.stitch()
    assert job_status(still).next.startswith("graphquilt stitch ")
    with pytest.raises(gq.errors.JobError, match=r"does not belong to its alignment.*: graphquilt stitch "):
        export_embedding(still, tmp_path / "out.csv")
    job = with_recipe(still, motions=None)
    with pytest.raises(gq.errors.JobError, match=r"was aligned with .*translate false \(now true\).*graphquilt stitch"):
        export_embedding(job, tmp_path / "out.csv")
    job.stitch()
    assert np.array_equal(job.embedding, X)
    export_embedding(job, tmp_path / "out.csv")


def test_other_weights_are_another_alignment_too(job):
    """The transforms may be the same, as those of a single patch are; the embedding is not."""
    job.stitch()
    job = with_recipe(job, coverage=2.0)
    record = job.store["alignment"]
    job.store["alignment"] = Record(record.arrays, {**record.parameters, "coverage": 2.0})
    with pytest.raises(gq.errors.JobError, match="does not belong to its alignment"):
        _ = job.embedding


def test_what_is_stitched_is_not_stitched_again(job, monkeypatch):
    expected = job.stitch()
    monkeypatch.setattr("graphquilt.jobs.job.stitch_job", None)
    assert np.array_equal(Job.open(job.store).stitch().rotations, expected.rotations)
    with pytest.raises(TypeError):
        with_recipe(job, refine=1).stitch()


@pytest.mark.parametrize("where", ["graphquilt.jobs.stitching.centroid", "numpy.lib.format.write_array_header_1_0"])
def test_what_a_killed_run_leaves_is_removed_by_the_next(ring, job, tmp_path, where):
    module, name = where.rsplit(".", 1)
    path = job.store.folder if name == "centroid" else tmp_path / "new"
    ring[0].save(tmp_path / "graph")
    code = (
        "import os, sys\n"
        f"import {module} as module\nwork = module.{name}\n"
        "from graphquilt import SVD, DirectoryStore, Graph, Job, JobSettings\n"
        "def killed(*args, **kwargs):\n    work(*args, **kwargs)\n    os.kill(os.getpid(), 9)\n"
        f"module.{name} = killed\n"
        "store = DirectoryStore(sys.argv[1])\n"
        "if 'patch_graph' in store:\n    Job.open(store).stitch()\n"
        "Job.begin(store, JobSettings(embedder=SVD(2)), Graph(Graph.open(sys.argv[2]).adjacency))\n"
    )
    run = subprocess.run([sys.executable, "-c", code, path, tmp_path / "graph"], check=False)
    assert run.returncode == -signal.SIGKILL
    assert list(path.rglob("*.part"))
    if name == "centroid":
        job.stitch()
    else:
        Job.begin(DirectoryStore(path), SETTINGS, ring[0])
    assert not list(path.rglob("*.part"))


# Jobs from Python on the command line


def test_the_command_line_goes_on_with_a_job_of_embed(blocks, tmp_path, capsys, monkeypatch):
    path = tmp_path / "job"
    options = {"dim": 4, "cutting": gq.Cutting(4, overlap=(40, 160))}
    X = gq.embed(blocks, **options, store=DirectoryStore(path)).embedding
    code, out, _ = command(capsys, monkeypatch, "inspect", path, "--json")
    assert (code, json.loads(out)["next"]) == (0, "nothing")
    code, out, _ = command(capsys, monkeypatch, "evaluate", path, "--splits", 2, "--json")
    assert code == 0
    assert json.loads(out)["auc"] == gq.evaluate.reconstruction_auc(X, blocks, seed=0)
    assert "accuracy" in json.loads(out)
    assert command(capsys, monkeypatch, "export", path, tmp_path / "x.csv")[0] == 0
    assert len((tmp_path / "x.csv").read_text().splitlines()) == blocks.n_nodes + 1
    assert command(capsys, monkeypatch, "embed-patches", path, "--runs", 2, "--workers", 1)[0] == 0
    assert command(capsys, monkeypatch, "stitch", path, "--coverage", 0, "--workers", 1)[0] == 0
    options["recipe"] = gq.Recipe.shared().replace(coverage=0.0)
    again = gq.embed(blocks, **options, store=DirectoryStore(path))
    assert np.array_equal(Job.open(path).embedding, again.embedding)
    assert np.abs(gq.embed(blocks, **options).embedding - again.embedding).max() < 1e-9
    assert not np.array_equal(X, again.embedding)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_a_graph_that_was_saved_is_known_again(ring, tmp_path, kind):
    """Graph.save may narrow the numbers of the nodes; a job that was begun before is no other one for that."""
    import scipy.sparse as sp

    A = sp.csr_array(ring[0].adjacency)
    graph = gq.Graph.from_arrays(A.indptr.astype(kind), A.indices.astype(kind))
    graph.save(tmp_path / "graph")
    store = DirectoryStore(tmp_path / "job")
    job_of_patches(store, graph, ring[1], embedder=Toy(2), seed=7).embed()
    again = Job.begin(store, JobSettings(embedder=Toy(2), seed=7), gq.Graph.open(tmp_path / "graph"))
    assert len(again.embed()) == 6


def test_another_graph_in_the_place_of_the_first_is_refused(ring, tmp_path):
    store = DirectoryStore(tmp_path / "job")
    job_of_patches(store, *ring, embedder=Toy(2))
    shutil.rmtree(store.folder / "graph")
    ring_of_patches(5)[0].save(store.folder / "graph")
    with pytest.raises(gq.errors.JobError, match=r"begun with another graph than the one that is now in .*graph"):
        Job.open(store)


def test_a_job_without_a_graph_is_told_from_one_without_an_embedding(ring, tmp_path, capsys, monkeypatch):
    store = DirectoryStore(tmp_path / "job")
    gq.embed_patches(*ring, Toy(2), seed=7, store=store)
    code, _, err = command(capsys, monkeypatch, "evaluate", store.folder)
    assert code == 2
    assert "has patches but no settings" in err
    job = Job.begin(store, JobSettings(embedder=Toy(2), seed=7))
    code, _, err = command(capsys, monkeypatch, "evaluate", store.folder)
    assert code == 2
    assert "has no embedding yet; stitch it first" in err
    job.stitch()
    code, _, err = command(capsys, monkeypatch, "evaluate", store.folder)
    assert code == 2
    assert "has no graph, because it was made from patches alone" in err
    assert command(capsys, monkeypatch, "export", store.folder, tmp_path / "x.csv")[0] == 0


# Patches that travel


def test_a_worker_opens_and_checks_the_patch_graph_once(ring, tmp_path, monkeypatch):
    store = DirectoryStore(tmp_path / "job")
    patches = gq.embed_patches(*ring, Toy(2), seed=7, store=store)
    sent, checked = pickle.dumps(patches), []
    expected = np.array(patches[4].coordinates)

    def counted(path):
        checked.append(path.name)
        return file_checksum(path)

    monkeypatch.setattr("graphquilt.jobs.store.file_checksum", counted)
    for _ in range(3):
        there = pickle.loads(sent)
        assert np.array_equal(there[4].coordinates, expected)
    assert checked == ["patch_graph.npz", "embedding.npy"]
    store["patches/00004/embedding"] = Record({"embedding": np.zeros_like(expected)})
    assert (pickle.loads(sent)[4].coordinates == 0).all()  # what has changed is seen


def test_a_round_is_prepared_by_all_shards(tmp_path):
    """Two processes begin at once: both prepare patches, whoever watches sees them, and the bits are those of one."""
    graph, ring = ring_of_patches(8)
    job = job_of_patches(DirectoryStore(tmp_path / "job"), graph, ring, embedder=Framed(2, seconds=0.2), seed=3)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    shards = [context.Process(target=embed_shard, args=(str(tmp_path / "job"), k, barrier)) for k in range(2)]
    for shard in shards:
        shard.start()
    seen = []
    for progress in follow_job(job, interval=0.05):
        seen.append(progress)
        if progress.stage == "stitch" or not any(shard.is_alive() for shard in shards):
            break
    for shard in shards:
        shard.join(120)
    assert [shard.exitcode for shard in shards] == [0, 0]
    workers = [job.store[f"patches/{k:05d}/kept0"].parameters["worker"] for k in range(8)]
    assert len(set(workers)) == 2
    assert len((tmp_path / "job.log").read_text().split()) == 8  # each patch was prepared once
    assert max(progress.workers for progress in seen if progress.stage == "start") == 2
    expected = gq.embed_patches(graph, ring, Framed(2), seed=3)
    assert all(np.array_equal(a.coordinates, b.coordinates) for a, b in zip(job.patches, expected, strict=True))


def test_a_waiting_shard_says_what_it_waits_for_and_takes_over(tmp_path, caplog):
    job = job_of_patches(DirectoryStore(tmp_path / "job"), *ring_of_patches(6), embedder=Framed(2))
    claim = "import os, sys, time; from pathlib import Path; from graphquilt.jobs.sweeps import FileClaims\n"
    claim += "claims = FileClaims(Path(sys.argv[1])); print(claims.take(2 + 4), flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", claim, str(tmp_path / "job")], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "True\n"
    threading.Timer(1.0, other.kill).start()
    job.embed(only=[0])
    other.communicate()
    assert "waiting for other shards, which prepare 1 of 6 patches, the first is 4" in caplog.text
    assert job.count_embedded() == 1
