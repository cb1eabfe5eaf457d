"""What was made from something that has changed is made again, whichever record changed and whoever wrote it."""

import fnmatch
import shutil

import numpy as np
import pytest

import graphquilt as gq
from graphquilt.errors import JobError
from graphquilt.evaluate import EvaluationOptions
from graphquilt.jobs import Record, evaluate_job, job_status
from graphquilt.jobs.records import patch_graph_fingerprint, patch_key
from graphquilt.patches import PatchGraph
from toy_embedders import Toy, ring_of_patches

SHARED = {"embedder": gq.Propagation(3), "cutting": gq.Cutting(4, overlap=(8, 16))}
MERGED = {"embedder": gq.Propagation(3), "cutting": gq.Cutting(4, partitioner=gq.Multilevel, overlap=(8, 16))}
APART = {"embedder": Toy(2), "cutting": gq.Cutting(4, overlap=(8, 16))}


def settings(given, seed=0):
    return gq.JobSettings(**given, seed=seed)


@pytest.fixture(scope="module")
def graph():
    return ring_of_patches(20)[0]


@pytest.fixture(scope="module", params=[SHARED, MERGED, APART], ids=["shared start", "clusters", "apart"])
def made(request, graph, tmp_path_factory):
    """A finished job, and its settings."""
    folder = tmp_path_factory.mktemp("made") / "job"
    job = gq.Job.begin(gq.DirectoryStore(folder), settings(request.param), graph)
    job.run()
    return folder, request.param


def rerun(folder, given, graph, seed=0):
    job = gq.Job.begin(gq.DirectoryStore(folder), settings(given, seed), graph)
    job.run()
    return np.array(job.embedding)


def change(store, key):
    """Write a record again with other arrays that are as valid, and with the same parameters, but for fingerprints."""
    record = store[key]
    arrays = {name: np.array(array) for name, array in record.arrays.items()}
    for name, array in arrays.items():
        if array.dtype.kind == "f" and array.size:
            arrays[name] = array * 2
    if key == "labels":
        arrays = {"labels": np.roll(arrays["labels"], 7)}
    if key == "clusters":  # on a ring, as many edges as before lead from one to the other
        arrays = {**record.arrays, "cluster": np.roll(record.arrays["cluster"], 7)}
    if key == "patch_graph":  # patch 0 has half of the nodes of its neighbour too
        given = PatchGraph.from_arrays(record.arrays)
        sets = [np.asarray(nodes) for nodes in given.node_sets]
        sets[0] = np.union1d(sets[0], sets[given.edges[0, 1]][::2])
        other = PatchGraph(sets, given.edges, given.n_nodes, report=given.report)
        parameters = {**record.parameters, "patches": patch_graph_fingerprint(other)}
        store[key] = Record(other.to_arrays(), parameters)
        return
    store[key] = Record(arrays, record.parameters)


def test_a_patch_that_was_embedded_again_is_stitched_again(made, graph, tmp_path):
    folder, _ = made
    store = gq.DirectoryStore(shutil.copytree(folder, tmp_path / "job"))
    before = np.array(gq.Job.open(store).embedding)
    change(store, patch_key(1, "embedding"))
    job = gq.Job.open(store)
    assert job_status(job).next.startswith("graphquilt ")
    with pytest.raises(JobError, match="was aligned with embedded patches"):
        _ = job.embedding
    job.stitch()
    assert not np.array_equal(job.embedding, before)
    # The same by another way: all patches as they are now, stitched in a job that never had an alignment.
    without = shutil.ignore_patterns("alignment.*", "embedding.*")
    fresh = gq.DirectoryStore(shutil.copytree(store.folder, tmp_path / "fresh", ignore=without))
    for k in range(job.patch_graph.n_patches):
        fresh[patch_key(k, "embedding")] = store[patch_key(k, "embedding")]
    again = gq.Job.open(fresh)
    again.stitch()
    assert np.array_equal(again.embedding, job.embedding)


ORDER = ["clusters", "labels", "patch_graph", "survey", "patches/*/kept*", "starts/0/*"]
LATER = [*ORDER, "patches/*/embedding", "alignment", "embedding"]
KEYS = [
    "clusters",
    "labels",
    "patch_graph",
    "survey",
    "patches/00001/kept0",
    "starts/0/0",
    "alignment",
]


@pytest.mark.parametrize("key", KEYS)
def test_a_changed_record_is_noticed_by_all_that_was_made_from_it(made, graph, tmp_path, key):
    """The record in question stays; everything later is what a job gives in which nothing later was ever made."""
    folder, given = made
    one = gq.DirectoryStore(shutil.copytree(folder, tmp_path / "one"))
    if key not in one:
        pytest.skip(f"this job has no {key}")
    before = np.array(gq.Job.open(one).embedding)
    change(one, key)
    other = shutil.copytree(one.folder, tmp_path / "other")
    stage = next(pattern for pattern in LATER if fnmatch.fnmatch(key, pattern))
    for pattern in LATER[LATER.index(stage) + 1 :]:
        for path in other.glob(f"{pattern}.*"):
            path.unlink()
    again = rerun(one.folder, given, graph)
    assert np.array_equal(again, rerun(other, given, graph))
    if key not in ("starts/0/0", "alignment"):  # twice the directions may be the same frame; stitching aligns again
        assert not np.array_equal(again, before)


def test_two_jobs_cannot_stand_in_for_each_other(graph, tmp_path):
    """Alignments that move nothing are equal; the embeddings that were made with them are not."""
    folders = [tmp_path / f"seed{seed}" for seed in (0, 5)]
    for seed, folder in zip((0, 5), folders, strict=True):
        rerun(folder, SHARED, graph, seed)
    one, other = (gq.DirectoryStore(folder) for folder in folders)
    expected = np.array(gq.Job.open(one).embedding)
    one["embedding"] = other["embedding"]
    if not np.array_equal(other["embedding"].arrays["embedding"], expected):
        with pytest.raises(JobError, match="does not belong to its alignment"):
            _ = gq.Job.open(one).embedding
    assert np.array_equal(rerun(folders[0], SHARED, graph), expected)


CLASSES = np.arange(240) * 4 // 240
FEW = EvaluationOptions(splits=2)


def shown(job):
    """Return what inspect shows of the evaluation."""
    return job_status(job).records["evaluation"]


@pytest.mark.parametrize("key", ["patches/00001/embedding", "starts/0/0", "alignment", "embedding", "full"])
def test_figures_of_something_that_has_changed_are_not_shown_as_current(made, graph, tmp_path, key):
    folder, given = made
    one = gq.Job.open(gq.DirectoryStore(shutil.copytree(folder, tmp_path / "one")))
    if key not in one.store and key != "full":
        pytest.skip(f"this job has no {key}")
    one = gq.Job(one.store, settings(given), one.graph)  # with an embedder that can embed the whole graph
    gq.compare(one, options=FEW, labels=CLASSES)
    evaluate_job(one, options=FEW, labels=CLASSES)
    assert {"auc", "routes"} <= shown(one).keys()
    assert "of" not in shown(one)
    change(one.store, key)
    if key == "full":
        assert "routes" not in shown(one)
        assert "auc" in shown(one)
        return
    if key != "embedding":
        rerun(one.store.folder, given, graph)
    assert shown(one)["of"] == "an earlier embedding"
    again = evaluate_job(one, options=FEW, labels=CLASSES).quality
    assert "of" not in shown(one)
    assert "routes" not in shown(one)
    without = shutil.ignore_patterns("evaluation.*")
    fresh = gq.Job.open(gq.DirectoryStore(shutil.copytree(one.store.folder, tmp_path / "fresh", ignore=without)))
    assert evaluate_job(fresh, options=FEW, labels=CLASSES).quality == again


def choose(store, graph, seed=0, **changes):
    options = {"embedder": gq.Propagation(3, **changes), "n_patches": 4, "seed": seed}
    return gq.embed(graph, **options, choose_by=CLASSES, store=store)


def test_a_signal_is_chosen_again_for_another_embedder_seed_or_choice(graph, tmp_path):
    """As long as nothing is embedded; afterwards the run is refused."""
    for changes in ({"seed": 5}, {"steps": 2}):
        expected = choose({}, graph, **changes).job.store["choice"]
        store = gq.DirectoryStore(tmp_path / str(*changes))
        store["choice"] = choose({}, graph).job.store["choice"]
        choose(store, graph, **changes)
        assert store["choice"].parameters == expected.parameters
        with pytest.raises(JobError, match=r"signal of .* was chosen with .* \(now"):
            choose(store, graph)


def test_a_changed_choice_is_followed_or_refused(graph, tmp_path):
    result = choose(gq.DirectoryStore(tmp_path / "job"), graph)
    job, choice = result.job, result.job.store["choice"]
    evaluate_job(job, options=FEW, labels=np.where(np.arange(240) % 2, CLASSES, -1))
    other = "edges" if choice.parameters["signal"] != "edges" else "near"
    assert f"{choice.parameters['signal']}, chosen by 240 labels" in job_status(job).signal
    changed = Record({"used": np.arange(240) % 2 == 0}, {**choice.parameters, "signal": other})
    job.store["choice"] = changed
    assert "chosen by" not in job_status(job).signal
    assert shown(job)["of"] == "an earlier embedding"  # other labels were left out
    with pytest.raises(JobError, match=r"is embedded with .*\(now .*Mixing them"):
        choose(job.store, graph)
    fresh = gq.DirectoryStore(tmp_path / "fresh")
    fresh["choice"] = changed
    one = choose(fresh, graph)
    two = gq.embed(graph, n_patches=4, embedder=one.job.settings.embedder)
    assert np.array_equal(one.embedding, two.embedding)
    assert job_status(one.job).signal.startswith(f"{other}, chosen by 240 labels")
