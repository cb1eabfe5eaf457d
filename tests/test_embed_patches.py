"""Embedding patch by patch: one answer for every executor, order and interruption, and a report of what failed."""

import multiprocessing
import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from extras import needs
from graphquilt.embedders import FunctionEmbedder
from graphquilt.errors import (
    ConvergenceError,
    FormatError,
    InputError,
    JobError,
    MissingExtraError,
    PatchesFailedError,
)
from graphquilt.graph import Graph
from graphquilt.graph.files import attach
from graphquilt.jobs import (
    DirectoryStore,
    EmbeddedPatches,
    Job,
    JobSettings,
    Processes,
    Record,
    Source,
    embed_patches,
    patch_seed,
    stored_patch_graph,
)
from graphquilt.jobs.records import describe, keep_patch_graph, patch_key
from graphquilt.jobs.sweeps import EmbeddingRun, PatchSweep
from graphquilt.jobs.tasks import GraphReference, perform
from graphquilt.patches import PatchGraph
from toy_embedders import Deadly, Failing, Picky, Pretender, Toy, Whereabouts, job_of_patches, ring_of_patches


@pytest.fixture(scope="module")
def ring():
    return ring_of_patches(20)


@pytest.fixture(scope="module")
def expected(ring):
    return embed_patches(*ring, Toy(3), seed=7)


def assert_same(patches, expected):
    assert len(patches) == len(expected)
    for one, other in zip(patches, expected, strict=True):
        assert np.array_equal(one.nodes, other.nodes)
        assert one.coordinates.tobytes() == other.coordinates.tobytes()


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
@pytest.mark.parametrize(
    "executor",
    [
        lambda: None,
        lambda: ThreadPoolExecutor(3),
        lambda: ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("forkserver")),
        lambda: Processes(1),
        lambda: Processes(2),
    ],
    ids=["loop", "threads", "pool", "one process", "two processes"],
)
def test_every_executor_gives_the_same_bits(ring, expected, executor, stored, tmp_path):
    store = DirectoryStore(tmp_path / "job") if stored else None
    pool = executor()
    if pool is None:
        assert_same(embed_patches(*ring, Toy(3), seed=7, store=store), expected)
        return
    with pool:
        assert_same(embed_patches(*ring, Toy(3), seed=7, executor=pool, store=store), expected)


def test_seeds_are_the_children_of_the_seed_and_differ(ring, expected):
    graph, quilt = ring
    children = np.random.SeedSequence(7).spawn(20)
    seeds = [int(child.generate_state(1)[0]) for child in children]
    assert [patch_seed(7, k) for k in range(20)] == seeds
    assert len(set(seeds)) == 20
    X = Toy(3)(graph.subgraph(quilt.node_sets[11]), seeds[11])
    assert np.array_equal(X, expected[11].coordinates)


def test_order_does_not_matter_and_shares_make_a_whole(ring, expected, tmp_path):
    store = DirectoryStore(tmp_path / "job")
    for share in ([19, 3, 4], range(10, 19), [0]):
        patches = embed_patches(*ring, Toy(3), seed=7, store=store, only=share)
        assert_same(patches, [expected[k] for k in sorted(share)])
    with pytest.raises(JobError, match="patch 1 is not embedded yet"):
        EmbeddedPatches(store, ring[1].node_sets)[1]
    assert_same(embed_patches(*ring, Toy(3), seed=7, store=store), expected)


def test_what_is_done_is_not_done_again(ring, expected, tmp_path):
    store, log = DirectoryStore(tmp_path / "job"), tmp_path / "log"
    embed_patches(*ring, Toy(3, log=str(log)), seed=7, store=store, only=range(8))
    assert len(log.read_text().split()) == 8
    embed_patches(*ring, Toy(3, log=str(log)), seed=7, store=store)
    assert len(set(log.read_text().split())) == len(log.read_text().split()) == 20


def test_a_plain_dict_is_a_store(ring, expected):
    store = {}
    assert_same(embed_patches(*ring, Toy(3), seed=7, store=store), expected)
    with ThreadPoolExecutor(2) as pool:
        assert_same(embed_patches(*ring, Toy(3), seed=7, store=store, executor=pool), expected)


def test_a_dict_needs_no_workers_that_reach_it(ring, expected, tmp_path):
    """The data of a patch travels with its call, and the driver writes the embedding."""
    store, log = {}, tmp_path / "log"
    with Processes(1) as pool:
        patches = embed_patches(*ring, Toy(3, log=str(log)), seed=7, store=store, executor=pool)
        assert_same(patches, expected)
        assert_same(embed_patches(*ring, Toy(3, log=str(log)), seed=7, store=store, executor=pool), expected)
    assert len(log.read_text().split()) == 20
    assert_same(pickle.loads(pickle.dumps(patches)), expected)


def test_a_store_that_workers_cannot_reach_though_it_says_so_is_found_out(ring):
    with Processes(1) as pool, pytest.raises(JobError, match="patch 0, but Pretender does not have it"):
        embed_patches(*ring, Toy(3), seed=7, store=Pretender(), executor=pool)


@pytest.mark.parametrize("workers", [0, 2])
def test_one_patch_fails_and_the_others_finish(ring, expected, tmp_path, workers):
    """Patches 6 and 13 are the only ones of 22 nodes."""
    store = DirectoryStore(tmp_path / "job")
    failing = Failing(3, size=22, memory=str(tmp_path / "memory"))
    pool = Processes(workers) if workers else None
    with pytest.raises(
        PatchesFailedError, match=r"2 of 20 patches failed: patches 6, 13 \(ValueError: this size"
    ) as caught:
        embed_patches(*ring, failing, seed=7, store=store, executor=pool)
    if pool:
        pool.shutdown()
    assert set(caught.value.failures) == {6, 13}
    done = [k for k in range(20) if patch_key(k, "embedding") in store]
    assert done == [k for k in range(20) if k not in (6, 13)]
    assert len((tmp_path / "memory").read_text()) == 4  # each was tried twice
    stamps = {k: (store.folder / (patch_key(k, "embedding") + ".json")).stat().st_mtime_ns for k in done}
    cured = Failing(3, size=22, times=0, memory=str(tmp_path / "memory"))
    assert_same(embed_patches(*ring, cured, seed=7, store=store), expected)
    assert stamps == {k: (store.folder / (patch_key(k, "embedding") + ".json")).stat().st_mtime_ns for k in done}


def test_a_patch_that_fails_once_is_tried_again(ring, expected, tmp_path):
    failing = Failing(3, size=22, times=1, memory=str(tmp_path / "memory"))
    assert_same(embed_patches(*ring, failing, seed=7), expected)
    (tmp_path / "memory").unlink()
    with pytest.raises(PatchesFailedError, match="1 of 20"):
        embed_patches(*ring, failing, seed=7, retries=0)


def test_a_worker_that_dies_is_replaced(ring, expected, tmp_path):
    deadly = Deadly(3, size=22, times=2, memory=str(tmp_path / "memory"))
    with Processes(2) as pool:
        store = DirectoryStore(tmp_path / "job")
        assert_same(embed_patches(*ring, deadly, seed=7, store=store, executor=pool), expected)


def test_a_patch_that_always_kills_its_worker_is_named(ring, tmp_path):
    deadly = Deadly(3, size=22, memory=str(tmp_path / "memory"))
    store = DirectoryStore(tmp_path / "job")
    died = r"2 of 20 patches failed: patches 6, 13 \(its worker died"
    with Processes(2) as pool, pytest.raises(PatchesFailedError, match=died):
        embed_patches(*ring, deadly, seed=7, store=store, executor=pool)
    assert sum(patch_key(k, "embedding") in store for k in range(20)) == 18


def test_a_plain_pool_that_breaks_ends_the_run_and_loses_nothing(ring, expected, tmp_path):
    deadly = Deadly(3, size=22, times=1, memory=str(tmp_path / "memory"))
    store = DirectoryStore(tmp_path / "job")
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(1, mp_context=context) as pool, pytest.raises(JobError, match="takes no more work"):
        embed_patches(*ring, deadly, seed=7, store=store, executor=pool)
    assert patch_key(5, "embedding") in store
    assert_same(embed_patches(*ring, deadly, seed=7, store=store), expected)


def test_embedders_may_differ_from_patch_to_patch(ring, expected, tmp_path):
    several = [Toy(3)] * 19 + [Failing(3)]
    store = DirectoryStore(tmp_path / "job")
    assert_same(embed_patches(*ring, several, seed=7, store=store), expected)
    assert store[patch_key(19, "embedding")].parameters["embedder"]["name"] == "toy_embedders.Failing"
    with pytest.raises(InputError, match="20 patches and 3 embedders"):
        embed_patches(*ring, several[:3], seed=7)
    with pytest.raises(InputError, match=r"dims \[2, 3\]"):
        embed_patches(*ring, [Toy(2), *several[1:]], seed=7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 8}, rf"embedded with seed of patch 0 {patch_seed(7, 0)} \(now {patch_seed(8, 0)}\)\. Mixing"),
        ({"embedder": Toy(4)}, r"embedded with dim 3 \(now 4\)\. Mixing"),
        ({"graph": ring_of_patches(20, 13)}, r"cut with graph \w+ \(now"),
        ({"patch_graph": ring_of_patches(21)[1]}, r"cut with patches \w+ \(now"),
    ],
    ids=["seed", "embedder", "graph", "patches"],
)
def test_a_store_with_other_parameters_is_refused(ring, tmp_path, change, message):
    store = DirectoryStore(tmp_path / "job")
    asked = {"graph": ring[0], "patch_graph": ring[1], "embedder": Toy(3), "seed": 7}
    embed_patches(*ring, Toy(3), seed=7, store=store, only=range(2))
    asked |= change if "graph" not in change else {"graph": change["graph"][0]}
    with pytest.raises(JobError, match=message):
        embed_patches(
            asked["graph"], asked["patch_graph"], asked["embedder"], seed=asked["seed"], store=store, only=range(2)
        )


def test_a_refusal_names_the_job_by_its_path_and_another_embedder_by_its_name(ring, tmp_path):
    store = DirectoryStore(tmp_path / "job")
    embed_patches(*ring, Toy(3), seed=7, store=store, only=range(2))
    with pytest.raises(JobError) as refused:
        embed_patches(*ring, Failing(3), seed=7, store=store)
    assert str(refused.value).startswith(
        f"{tmp_path / 'job'} is embedded with embedder toy_embedders.Toy (now toy_embedders.Failing)."
    )
    several = DirectoryStore(tmp_path / "several")
    embed_patches(*ring, [Toy(3)] * 20, seed=7, store=several, only=range(2))
    with pytest.raises(JobError, match=r"with embedder toy_embedders.Toy \(now toy_embedders.Failing\)"):
        embed_patches(*ring, [Failing(3)] * 2 + [Toy(3)] * 18, seed=7, store=several)
    embed_patches(*ring, [Toy(3)] * 19 + [Failing(3)], seed=7, store=several)  # patch 19 was not embedded yet


def test_settings_with_which_nothing_was_embedded_are_replaced(ring, expected, tmp_path):
    """A first attempt that failed on every patch, or was mistyped, does not block the folder."""

    class Wrong(Toy):
        def __call__(self, graph, seed):
            raise InputError("no features")

    store = DirectoryStore(tmp_path / "job")
    with pytest.raises(PatchesFailedError):
        embed_patches(*ring, Wrong(3), seed=1, store=store)
    assert_same(embed_patches(*ring, Toy(3), seed=7, store=store), expected)
    parameters = store[patch_key(3, "embedding")].parameters
    assert (parameters["seed"], parameters["embedder"]["name"]) == (patch_seed(7, 3), "toy_embedders.Toy")


@pytest.mark.parametrize("workers", [0, 1])
def test_only_damaged_patches_are_redone(ring, expected, tmp_path, caplog, workers):
    """Every kind of damage at once: each is named in the log, and each costs its own patch and no other."""
    store, log = DirectoryStore(tmp_path / "job"), tmp_path / "log"
    toy = Toy(3, log=str(log))
    embed_patches(*ring, toy, seed=7, store=store)
    log.unlink()

    def file(patch, name):
        return store.folder / "patches" / f"{patch:05d}" / name

    file(1, "embedding.npy").write_bytes(file(1, "embedding.npy").read_bytes()[:-5])  # truncated
    content = bytearray(file(2, "embedding.npy").read_bytes())
    content[-3] ^= 16
    file(2, "embedding.npy").write_bytes(content)  # bit-flipped
    file(3, "embedding.npy").write_bytes(file(4, "embedding.npy").read_bytes())  # foreign
    file(5, "embedding.npy").unlink()  # marker without data
    file(6, "embedding.json").unlink()  # data without marker
    file(7, "embedding.json").write_text(file(8, "embedding.json").read_text()[:50])  # torn marker
    other = DirectoryStore(store.folder)
    for k, size in ((0, 16), (9, 18)):
        other[patch_key(k, "embedding")] = Record({"embedding": np.zeros((size, 3))}, {"embedder": "mine", "seed": 1})
    pool = Processes(workers) if workers else None
    fresh = DirectoryStore(store.folder)
    assert_same(embed_patches(*ring, toy, seed=7, store=fresh, executor=pool), expected)
    if pool:
        pool.shutdown()
    redone = sorted(map(int, log.read_text().split()))
    assert redone == sorted(patch_seed(7, k) for k in (0, 1, 2, 3, 5, 6, 7, 9))
    for k in (0, 1, 2, 3, 5, 7, 9):
        assert f"patch {k} is embedded again" in caplog.text


def test_the_driver_needs_no_graph_when_the_store_has_all_embeddings(ring, expected, tmp_path):
    store = DirectoryStore(tmp_path / "job")
    embed_patches(*ring, Toy(3), seed=7, store=store)
    assert_same(embed_patches(None, stored_patch_graph(store), Toy(3), seed=7, store=store), expected)
    with pytest.raises(JobError, match="no graph was given"):
        embed_patches(None, ring[1], Toy(3), seed=7)


def test_finished_patches_are_opened_when_asked_for(ring, expected, tmp_path):
    store = DirectoryStore(tmp_path / "job")
    patches = embed_patches(*ring, Toy(3), seed=7, store=store)
    assert patches[-1].nodes[0] == expected[19].nodes[0]
    assert_same(pickle.loads(pickle.dumps(patches))[2:4], expected[2:4])
    with pytest.raises(IndexError):
        patches[20]


def test_workers_have_one_thread_and_one_gpu_each(tmp_path, monkeypatch):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    graph, quilt = ring_of_patches(6)
    log = tmp_path / "log"
    with Processes(2) as pool:
        embed_patches(graph, quilt, Whereabouts(2, log=str(log)), seed=0, executor=pool)
    seen = {tuple(line.split()) for line in log.read_text().splitlines()}
    assert {threads for _, threads, _ in seen} == {"1"}
    assert {gpu for _, _, gpu in seen} == {"4", "6"}
    assert len({pid for pid, _, _ in seen}) == 2
    log.unlink()
    embed_patches(graph, quilt, Whereabouts(2, log=str(log)), seed=0, only=[0])
    assert log.read_text().split()[1] == "1"
    assert "OMP_NUM_THREADS" not in os.environ


def test_an_error_no_patch_can_escape_stops_at_once(ring):
    calls = []

    class Absent(Toy):
        def __call__(self, graph, seed):
            calls.append(seed)
            raise MissingExtraError("Absent", "torch")

    with pytest.raises(JobError, match=r"patch 0: Absent needs the extra 'torch'"):
        embed_patches(*ring, Absent(3), seed=7)
    assert len(calls) == 1


def test_wrong_answers_of_an_embedder_are_failures(ring):
    class Short(Toy):
        def __call__(self, graph, seed):
            return np.zeros((3, 3))

    with pytest.raises(PatchesFailedError, match=r"returned an array of shape \(3, 3\) for patch 0"):
        embed_patches(*ring, Short(3), seed=7)


@pytest.mark.parametrize("workers", [0, 1])
def test_wrong_input_is_not_tried_again_and_reported_once(ring, tmp_path, caplog, workers):
    pool = Processes(workers) if workers else None
    log = tmp_path / "log"
    with pytest.raises(PatchesFailedError) as caught:
        embed_patches(*ring, Picky(3, log=str(log)), seed=7, executor=pool)
    if pool:
        pool.shutdown()
    reported = "20 patches, the first is 0 (the graph of 16 nodes has no features). Remove the cause and run again."
    assert str(caught.value) == f"20 of 20 patches failed: {reported}"
    assert len(log.read_text().split()) == 20
    assert not caplog.records


def test_progress_counts_every_patch(ring, tmp_path):
    store, events = DirectoryStore(tmp_path / "job"), []
    embed_patches(*ring, Toy(3), seed=7, store=store, only=range(5))
    embed_patches(*ring, Toy(3), seed=7, store=store, progress=events.append)
    assert [(event.done, event.total) for event in events if event.stage == "patches"] == [
        (k, 20) for k in range(1, 21)
    ]


def test_other_networks_and_other_lambdas_are_other_embedders():
    torch = needs("torch")
    narrow, wide = (FunctionEmbedder(torch.nn.Linear(3, width), dim=2) for width in (8, 64))
    assert describe(narrow) != describe(wide)
    assert describe(narrow) == describe(FunctionEmbedder(torch.nn.Linear(3, 8), dim=2))
    first, second = (lambda graph, seed: 1), (lambda graph, seed: 2)
    assert describe(first) != describe(second)


@pytest.mark.parametrize(
    "error",
    [
        InputError("no nodes"),
        ConvergenceError("stopped", residual=0.5),
        PatchesFailedError({3: "ValueError: no edges"}, n_done=9),
        MissingExtraError("VGAE", "torch"),
    ],
)
def test_errors_travel_between_processes(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_embedders_are_described_by_their_settings():
    assert describe(Toy(3)) == {"name": "toy_embedders.Toy", "dim": 3}
    assert describe(np.linalg.svd)["name"].endswith("svd")


def test_one_patch_and_two(tmp_path):
    graph, _ = ring_of_patches(2)
    quilt = PatchGraph([np.arange(24)], np.empty((0, 2), dtype=np.int64), 24)
    assert len(embed_patches(graph, quilt, Toy(2), seed=0, store=DirectoryStore(tmp_path / "job"))) == 1


def test_an_embedder_of_a_script_is_known_again(tmp_path):
    """In a worker the script's own classes have another module name; the job must not notice."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, logging\nfrom toy_embedders import *\nimport graphquilt as gq\n"
        "class Mine(Toy):\n    pass\n"
        "if __name__ == '__main__':\n"
        "    for _ in range(2):\n"
        "        with gq.Processes(1) as pool:\n"
        "            job = gq.DirectoryStore(sys.argv[1])\n"
        "            gq.embed_patches(*ring_of_patches(3), Mine(2), seed=0, executor=pool, store=job)\n"
    )
    path = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    command = [sys.executable, script, tmp_path / "job"]
    run = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True)
    assert "again" not in run.stderr  # the second round found every patch


# Patches that workers cut themselves


@pytest.fixture
def referring(ring, tmp_path):
    """Return a graph folder that refers to a file of features, and that file."""
    graph, file = ring[0], tmp_path / "features.npy"
    Graph.from_arrays(graph.indptr, graph.indices, graph.weights).save(tmp_path / "graph")
    np.save(file, np.asarray(graph.features))
    attach(tmp_path / "graph", features=file)
    return tmp_path / "graph", file


@pytest.mark.parametrize("workers", [0, 2])
def test_a_job_on_a_graph_folder_copies_neither_features_nor_subgraphs(ring, expected, referring, workers, tmp_path):
    store = DirectoryStore(tmp_path / "job")
    settings = JobSettings(embedder=Toy(3), seed=7, source=Source(path=str(referring[0])))
    job = Job.begin(store, settings)
    keep_patch_graph(store, ring[1], job.graph)
    with Processes(workers) if workers else nullcontext() as pool:
        assert_same(job.embed(executor=pool), expected)
    names = {path.name for path in store.folder.rglob("*.np*")}
    assert names == {"embedding.npy", "patch_graph.npz"}


def test_the_graph_of_a_job_is_what_its_workers_cut_from(ring, expected, tmp_path):
    store = DirectoryStore(tmp_path / "job")
    job = job_of_patches(store, *ring, embedder=Toy(3), seed=7)
    assert job.graph.folder == str(store.folder / "graph")
    with Processes(2) as pool:
        assert_same(job.embed(executor=pool), expected)
    assert not list(store.folder.rglob("patches/*/graph*"))


def test_features_that_changed_are_an_error_that_says_so(ring, referring, tmp_path):
    folder, file = referring
    store = DirectoryStore(tmp_path / "job")
    job = Job.begin(store, JobSettings(embedder=Toy(3), seed=7, source=Source(path=str(folder))))
    keep_patch_graph(store, ring[1], job.graph)

    def change(event):
        if event.done == 3:
            np.save(file, 1 + np.load(file))

    with (
        Processes(1) as pool,
        pytest.raises(JobError, match=r"its content has changed|changed while patch \d+ was at work"),
    ):
        job.revise(replace(job.settings, embedder=Toy(3, seconds=0.05))).embed(executor=pool, progress=change)
    with pytest.raises(FormatError, match="its content has changed"):
        Job.open(store)


def test_workers_that_do_not_have_the_graph_say_so(ring, expected, referring, tmp_path):
    store = DirectoryStore(tmp_path / "job")
    job = Job.begin(store, JobSettings(embedder=Toy(3), seed=7, source=Source(path=str(referring[0]))))
    keep_patch_graph(store, ring[1], job.graph)
    referring[0].rename(tmp_path / "moved")
    with Processes(1) as pool:
        with pytest.raises(JobError, match=r"cannot cut patches .* All workers need the graph in its folder"):
            job.embed(executor=pool)
        (tmp_path / "moved").rename(referring[0])
        assert_same(job.embed(executor=pool), expected)


def test_a_call_to_a_worker_is_small(ring, referring, tmp_path):
    store = DirectoryStore(tmp_path / "job")
    job = Job.begin(store, JobSettings(embedder=Toy(3), seed=7, source=Source(path=str(referring[0]))))
    keep_patch_graph(store, ring[1], job.graph)
    run = EmbeddingRun(job.graph, ring[1], job.settings, store)
    call = PatchSweep(run, "embedding", [None]).task(0)
    assert call.inputs == GraphReference(str(referring[0]), job.settings.source.fingerprint)
    assert len(pickle.dumps((perform, call))) < 2000
