"""Aligned runs and coverage: what they promise, on every route, and after an interruption."""

import pickle
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from extras import needs
from graphquilt.errors import InputError
from graphquilt.evaluate import EvaluationOptions
from graphquilt.jobs import Job, job_status, patch_seed
from graphquilt.linalg.procrustes import centred
from toy_embedders import Toy, job_of_patches, ring_of_patches


def quick(dim=4, **settings):
    needs("torch")
    return gq.VGAE(dim, max_epochs=15, **settings)


def same(one, other):
    return all(np.array_equal(a.coordinates, b.coordinates) for a, b in zip(one, other, strict=True))


# Repeating a patch graph


@given(st.integers(1, 5), st.integers(2, 6))
@settings(max_examples=20, deadline=None)
def test_repeating_keeps_every_run_as_it_was_and_joins_the_runs_of_a_patch(runs, p):
    sets = [np.arange(3 * k, 3 * k + 5) for k in range(p)]
    one = gq.PatchGraph.from_patches(sets)
    many = one.repeat(runs)
    assert many.n_patches == runs * p
    inside = many.edges[many.edges[:, 0] // p == many.edges[:, 1] // p]
    assert np.array_equal(inside, np.concatenate([one.edges + r * p for r in range(runs)]))
    between = many.edges[many.edges[:, 0] // p != many.edges[:, 1] // p]
    assert (between[:, 0] % p == between[:, 1] % p).all()
    assert len(between) == p * runs * (runs - 1) // 2
    assert all(np.array_equal(many.node_sets[r * p + k], sets[k]) for r in range(runs) for k in range(p))


@pytest.mark.parametrize("runs", [0, -1, 1.5, True])
def test_runs_are_counted_in_whole_numbers(blocks_quilt, runs):
    with pytest.raises(InputError, match="at least 1"):
        blocks_quilt.repeat(runs)


def test_the_law_of_runs_noise_free_runs_align_exactly():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(40, 3))
    one = gq.PatchGraph.from_patches([np.arange(20), np.arange(10, 30), np.arange(20, 40)], min_overlap=4)
    many = one.repeat(3)
    turned = [Z[nodes] @ np.linalg.qr(rng.normal(size=(3, 3)))[0] + rng.normal(size=3) for nodes in many.node_sets]
    patches = [*zip(many.node_sets, turned, strict=True)]
    X = gq.centroid(patches, gq.align(patches, many.edges))
    assert gq.evaluate.procrustes_error(X, Z) < 1e-7


# Embedding runs


def test_more_runs_only_do_the_new_ones(tmp_path):
    graph, ring = ring_of_patches(6)
    log = tmp_path / "log"
    store = gq.DirectoryStore(tmp_path / "job")
    gq.embed_patches(graph, ring, Toy(2, log=str(log)), seed=5, recipe=gq.Recipe(runs=2), store=store)
    assert len(log.read_text().split()) == 12
    patches = gq.embed_patches(graph, ring, Toy(2, log=str(log)), seed=5, recipe=gq.Recipe(runs=3), store=store)
    seeds = [int(word) for word in log.read_text().split()]
    assert seeds == [patch_seed(5, k) for k in range(18)]
    assert same(patches, gq.embed_patches(graph, ring, Toy(2), seed=5, recipe=gq.Recipe(runs=3)))
    fewer = gq.embed_patches(graph, ring, Toy(2, log=str(log)), seed=5, recipe=gq.Recipe(runs=1), store=store)
    assert len(fewer) == 6
    assert len(log.read_text().split()) == 18
    assert not list((store.folder / "patches").glob("0001*/graph*"))  # runs share the data of their patch


def test_runs_on_processes_are_those_of_a_loop(blocks, blocks_quilt, tmp_path):
    expected = gq.embed_patches(blocks, blocks_quilt, quick(), seed=1, recipe=gq.Recipe(runs=2))
    store = gq.DirectoryStore(tmp_path / "job")
    with gq.Processes(2) as pool:
        assert same(
            gq.embed_patches(
                blocks, blocks_quilt, quick(), seed=1, recipe=gq.Recipe(runs=2), store=store, executor=pool
            ),
            expected,
        )


def test_read_only_features_of_a_job_make_no_warning(blocks, tmp_path, recwarn):
    graph = gq.Graph(blocks.adjacency, sp.random_array((blocks.n_nodes, 30), density=0.1, rng=0).tocsr())
    graph.save(tmp_path / "graph")
    quilt = gq.patch_graph(graph, gq.Metis(4)(graph), degree=2, overlap=(40, 120), seed=0)
    store = gq.DirectoryStore(tmp_path / "job")
    gq.embed_patches(gq.Graph.open(tmp_path / "graph"), quilt, quick(), seed=0, store=store)
    assert not [warning for warning in recwarn if "writable" in str(warning.message)]


def test_a_fixed_start_is_the_same_for_the_patches_of_a_run_and_another_in_the_next(blocks):
    still = quick(init_seed=3, lr=1e-12)  # does not leave its start
    quilt = gq.PatchGraph.from_patches([np.arange(blocks.n_nodes)] * 2)
    first, second, third, fourth = (
        patch.coordinates for patch in gq.embed_patches(blocks, quilt, still, seed=0, recipe=gq.Recipe(runs=2))
    )
    assert np.abs(first - second).max() < 1e-5
    assert np.abs(third - fourth).max() < 1e-5
    assert np.abs(first - third).max() > 1e-2


def test_an_ensemble_of_one_whole_graph(blocks):
    one = gq.embed(blocks, dim=4, n_patches=1, embedder=quick(), seed=2)
    five = gq.embed(blocks, dim=4, n_patches=1, embedder=quick(), seed=2, recipe=gq.Recipe(runs=5))
    assert five.alignment.n_patches == 5
    assert len(five.alignment.edges) == 10
    assert np.array_equal(five.patches[0].coordinates, one.patches[0].coordinates)
    assert five.embedding.shape == one.embedding.shape


# Coverage


def test_coverage_counts_edges_inside(blocks, blocks_quilt):
    shares = gq.patches.coverage(blocks, blocks_quilt)
    for nodes, share in zip(blocks_quilt.node_sets, shares, strict=True):
        inside = np.asarray(blocks.adjacency[nodes][:, nodes].astype(bool).sum(axis=1)).ravel()
        assert np.allclose(share, inside / np.maximum(blocks.degrees[nodes], 1))


def test_coverage_of_a_directed_graph_counts_both_ways():
    graph = gq.Graph(sp.csr_array(np.array([[0, 1, 0], [0, 0, 0], [0, 1, 0]])))
    assert graph.directed
    quilt = gq.PatchGraph.from_patches([[0, 1], [1, 2]])
    assert [each.tolist() for each in gq.patches.coverage(graph, quilt)] == [[1.0, 0.5], [0.5, 1.0]]


def test_equal_weights_change_nothing_and_a_wrong_row_without_weight_neither():
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(30, 2))
    nodes = [np.arange(20), np.arange(8, 30)]
    patches = [(nodes[0], Z[:20]), (nodes[1], Z[8:] @ np.array([[0.0, 1.0], [-1.0, 0.0]]) + 3)]
    plain = gq.align(patches)
    equal = gq.align(patches, weights=[np.full(20, 0.5), np.full(22, 2.0)])
    assert np.allclose(plain.rotations, equal.rotations)
    assert np.allclose(plain.translations, equal.translations)
    patches[1][1][0] += 100
    trusted = np.ones(22)
    trusted[0] = 1e-12
    doubted = gq.align(patches, weights=[np.ones(20), trusted])
    assert np.allclose(plain.rotations, doubted.rotations, atol=1e-6)
    assert np.allclose(plain.translations, doubted.translations, atol=1e-6)
    assert not np.allclose(plain.rotations, gq.align(patches).rotations, atol=1e-3)


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_weighted_centring_is_that_of_repeated_points(seed):
    rng = np.random.default_rng(seed)
    points, counts = rng.normal(size=(6, 2)), rng.integers(1, 5, 6)
    offsets, mean = centred(points, counts.astype(float))
    repeated, expected = centred(np.repeat(points, counts, axis=0))
    assert np.allclose(mean, expected)
    assert np.allclose(offsets.T @ offsets, repeated.T @ repeated)


@pytest.mark.parametrize(
    ("weights", "message"),
    [([np.ones(3)], "2 patches and 1 weights"), ([np.zeros(3), np.ones(3)], "3 weights of patch 0 are 0")],
)
def test_weights_that_do_not_fit_are_named(weights, message):
    patches = [(np.arange(3), np.eye(3)[:, :1]), (np.arange(3), np.eye(3)[:, 1:2])]
    with pytest.raises(InputError, match=message):
        gq.align(patches, weights=weights)


# Jobs with runs


def test_more_runs_make_an_alignment_old(blocks, blocks_quilt, tmp_path):
    store = gq.DirectoryStore(tmp_path / "job")
    job = job_of_patches(store, blocks, blocks_quilt, embedder=quick(), seed=3)
    job.run()
    assert job_status(job).next == "nothing"
    job = job.revise(replace(job.settings, recipe=gq.Recipe.shared().replace(runs=2)))
    job.embed()
    assert job_status(Job.open(store)).next.startswith("graphquilt stitch ")
    with pytest.raises(gq.errors.JobError, match=r"aligned with runs 1 \(now 2\); stitch it again"):
        gq.compare(job, options=EvaluationOptions(splits=2))
    job.stitch()
    assert len(job.alignment.scales) == 8


def test_stored_patches_of_fewer_runs_travel_as_they_are(blocks, blocks_quilt, tmp_path):
    store = gq.DirectoryStore(tmp_path / "job")
    two = gq.embed_patches(blocks, blocks_quilt, quick(), seed=3, recipe=gq.Recipe(runs=2), store=store)
    gq.embed_patches(blocks, blocks_quilt, quick(), seed=3, recipe=gq.Recipe(runs=1), store=store)
    assert len(pickle.loads(pickle.dumps(two))) == 2 * blocks_quilt.n_patches


def test_a_job_with_runs_is_the_same_as_in_memory(blocks, blocks_quilt, tmp_path):
    recipe = gq.Recipe(runs=2, coverage=1.0, start=False)
    store = gq.DirectoryStore(tmp_path / "job")
    job = job_of_patches(store, blocks, blocks_quilt, embedder=quick(), recipe=recipe, seed=3)
    patches = job.embed()
    alignment = job.stitch()
    weights = list(gq.patches.coverage_weights(blocks, blocks_quilt, power=1.0)) * 2
    exact = [np.maximum(share, 0.01) for share in gq.patches.coverage(blocks, blocks_quilt)] * 2
    assert max(np.abs(one - other).max() for one, other in zip(weights, exact, strict=True)) <= 2**-16  # as rounded
    expected = gq.align(patches, blocks_quilt.repeat(2).edges, weights=weights)
    assert np.allclose(alignment.rotations, expected.rotations)
    X = np.load(store.folder / "embedding.npy", allow_pickle=False)
    assert np.allclose(X, gq.centroid(patches, expected, weights=weights))
    status = job_status(Job.open(store))
    assert (status.embedded, status.next, status.settings["recipe"]["runs"]) == (8, "nothing", 2)
    comparison = gq.compare(Job.open(store), full=False, options=EvaluationOptions(splits=2))
    assert set(comparison) == {"l2g", "no-trans"}
    assert comparison["l2g"].auc == pytest.approx(gq.evaluate.reconstruction_auc(X, blocks, seed=0))
    with pytest.raises(gq.errors.JobError, match="a job of 1200 nodes; this graph has 72"):
        gq.compare(job, graph=ring_of_patches(6)[0])


# Recipes


def test_a_recipe_leaves_alone_what_was_set_by_hand():
    assert gq.Recipe.reconstruction().apply_to(gq.VGAE(8, blend=0.5)).blend == 0.5
    assert gq.Recipe.reconstruction().apply_to(gq.VGAE(8)).blend == 0.75
    assert gq.Recipe.paper().apply_to(gq.VGAE(8)).negatives == 1
    assert gq.Recipe.paper().apply_to(gq.SVD(8)) == gq.SVD(8)


def test_recipes_are_the_same_by_value_and_by_hand(blocks):
    recipe = gq.Recipe("own", runs=2, coverage=2.0, negatives=1)
    by_value = gq.embed(blocks, dim=4, n_patches=3, embedder=quick(), recipe=recipe)
    tuned = quick(negatives=1)
    by_hand = gq.embed(blocks, dim=4, n_patches=3, embedder=tuned, recipe=gq.Recipe(runs=2, coverage=2.0))
    assert np.array_equal(by_value.embedding, by_hand.embedding)


def test_a_recipe_gives_back_an_embedder_that_it_does_not_change():
    odd = Toy(2)
    assert gq.Recipe.shared().apply_to(odd) is odd


@pytest.mark.parametrize(
    "wrong", [{"coverage": float("nan")}, {"coverage": float("inf")}, {"runs": 0}, {"refine": -1}, {"coverage": -1}]
)
def test_a_wrong_recipe_is_refused(wrong):
    with pytest.raises(InputError):
        gq.Recipe(**wrong)


# Real kills and a real cluster


@pytest.mark.slow
def test_a_killed_command_with_runs_goes_on(tmp_path):
    needs("torch")
    edges = tmp_path / "edges.csv"
    right = [(20 * i + j, 20 * i + j + 1) for i in range(20) for j in range(19)]
    down = [(20 * i + j, 20 * i + j + 20) for i in range(19) for j in range(20)]
    edges.write_text("".join(f"{a},{b}\n" for a, b in right + down))

    def command(out):
        words = ["embed", edges, "--dim", "2", "--patches", "4", "-e", "vgae", "--set", "max_epochs=150"]
        words += ["--runs", "6", "--workers", "1", "--out", tmp_path / out]
        return [sys.executable, "-c", "from graphquilt.cli import main; main()", *map(str, words)]

    subprocess.run(command("whole"), check=True, capture_output=True)
    job, done = tmp_path / "job", {}
    for wanted in (3, 9, 14, 20):  # of 24 trainings
        with subprocess.Popen(command("job"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and len(list(job.rglob("embedding.json"))) < wanted:
                time.sleep(0.01)
            process.kill()
        now = {path: path.stat().st_mtime_ns for path in job.rglob("patches/*/embedding.json")}
        assert done.items() <= now.items(), "a finished training was done again"
        done = now
    assert len(done) < 24
    subprocess.run(command("job"), check=True, capture_output=True)
    assert done.items() <= {path: path.stat().st_mtime_ns for path in job.rglob("patches/*/embedding.json")}.items()
    results = [np.load(tmp_path / name / "embedding.npy", allow_pickle=False) for name in ("whole", "job")]
    assert results[0].tobytes() == results[1].tobytes()


def test_a_dask_cluster_does_runs(blocks, blocks_quilt, tmp_path):
    distributed = needs("distributed")
    recipe = gq.Recipe(runs=2)
    expected = gq.embed_patches(blocks, blocks_quilt, quick(), recipe=recipe, seed=3)
    store = gq.DirectoryStore(tmp_path / "job")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as workers,
        distributed.Client(workers) as client,
        client.get_executor(pure=False) as pool,
    ):
        patches = gq.embed_patches(blocks, blocks_quilt, quick(), recipe=recipe, seed=3, store=store, executor=pool)
        assert same(patches, expected)
