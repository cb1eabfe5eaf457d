"""The shared start: offers of all patches, one frame for all of them, on every route and after an interruption."""

import shutil
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from extras import needs
from graphquilt.embedders import Context
from graphquilt.embedders.seeding import joined, sample_of
from graphquilt.errors import DisconnectedError, InputError, JobError
from graphquilt.jobs import Job, job_status
from graphquilt.patches.context import surrounding_nodes
from graphquilt.pipeline.store import Record
from toy_embedders import Framed, job_of_patches, ring_of_patches


class Puzzled(Framed):
    """An embedder that cannot use the offers of its patches."""

    def started(self, offers, seed):
        raise IndexError("no such row")


def same(one, other):
    return all(np.array_equal(a.coordinates, b.coordinates) for a, b in zip(one, other, strict=True))


# What surrounds a patch


@given(st.integers(0, 10**6), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_without_a_cap_the_surroundings_are_the_ball(seed, hops):
    rng = np.random.default_rng(seed)
    A = sp.random_array((30, 30), density=0.05, rng=rng).tocsr()
    graph = gq.Graph(A + A.T)
    nodes = rng.choice(30, 4, replace=False)
    reach = np.zeros(30)
    reach[nodes] = 1
    for _ in range(hops):
        reach += graph.adjacency.astype(bool) @ reach
    outer = surrounding_nodes(graph, nodes, hops=hops, neighbours=30)
    assert outer.tolist() == sorted(set(np.flatnonzero(reach)) - set(nodes))


def test_a_hub_brings_in_no_more_than_the_cap():
    star = sp.lil_array((1000, 1000))
    star[0, 1:] = 1
    star[1:, 0] = 1
    outer = surrounding_nodes(gq.Graph(star.tocsr()), [0, 5], hops=2, neighbours=8)
    assert 7 <= len(outer) <= 8


@given(st.integers(0, 10**6), st.floats(0, 3))
@settings(max_examples=30, deadline=None)
def test_surroundings_keep_to_their_growth_and_prefer_what_is_linked_most(seed, growth):
    A = sp.random_array((60, 60), density=0.1, rng=seed).tocsr()
    graph = gq.Graph(A + A.T)
    nodes = np.arange(10)
    outer = surrounding_nodes(graph, nodes, hops=1, neighbours=60, growth=growth)
    everything = surrounding_nodes(graph, nodes, hops=1, neighbours=60)
    assert len(outer) == min(len(everything), int(growth * 10))
    links = np.asarray(graph.adjacency.astype(bool)[:10].sum(axis=0)).ravel()
    left = np.setdiff1d(everything, outer)
    assert links[outer].min(initial=60) >= links[left].max(initial=0)


# One frame


def test_a_single_patch_is_the_whole_graph_and_needs_no_start():
    graph = gq.datasets.load_dataset("blocks")
    for one in (graph, gq.Graph(graph.adjacency)):
        store = {}
        whole = gq.PatchGraph([np.arange(one.n_nodes)], np.empty((0, 2), dtype=int), one.n_nodes)
        (patch,) = gq.embed_patches(one, whole, gq.Propagation(4), store=store)
        assert np.array_equal(patch.coordinates, gq.Propagation(4)(one, 0))
        assert not any("offer" in str(key) or "starts" in str(key) for key in store)


@pytest.mark.parametrize("steps", [1, 2])
def test_patches_agree_wherever_their_context_covers_what_they_need(steps):
    graph, ring = ring_of_patches(6)
    patches = gq.embed_patches(graph, ring, Framed(2, steps=steps))
    alignment, _ = gq.stitch(ring, patches, motions=gq.Motions(rotate=False, translate=False))
    assert alignment.edge_errors.max() < 1e-7  # from sums of squares, so that half of the digits are left
    assert np.array_equal(alignment.rotations, np.broadcast_to(np.eye(2), (6, 2, 2)))
    apart = gq.embed_patches(graph, ring, Framed(2, steps=steps), recipe=gq.Recipe(start=False))
    assert not same(patches, apart)
    without = gq.embed_patches(graph, ring, Framed(2, context=None, steps=steps))
    assert gq.stitch(ring, without, motions=gq.Motions(rotate=False, translate=False))[0].edge_errors.max() > 1e-3


def test_the_alignment_still_finds_a_patch_that_does_not_fit():
    graph, ring = ring_of_patches(8)
    patches = [*gq.embed_patches(graph, ring, Framed(2))]
    patches[3] = gq.Patch(patches[3].nodes, patches[3].coordinates[::-1].copy())
    alignment, _ = gq.stitch(ring, patches, motions=gq.Motions(rotate=False, translate=False))
    bad = alignment.edges[alignment.edge_errors > 0.1]
    assert len(bad)
    assert (bad == 3).any(axis=1).all()


def test_a_graph_in_several_components_is_embedded_whole():
    graph, _ = ring_of_patches(6)
    n = graph.n_nodes
    A = sp.block_diag([graph.adjacency, graph.adjacency, sp.csr_array((5, 5))], format="csr")
    features = np.concatenate([graph.features, graph.features + 1, np.ones((5, 3), dtype=np.float32)])
    whole = gq.Graph(A, features)
    result = gq.embed(whole, dim=2, n_patches=6, embedder=Framed(2))
    assert result.embedding.shape == (2 * n + 5, 2)
    assert np.isfinite(result.embedding).all()
    two = whole.subgraph(np.arange(2 * n))
    assert gq.embed(two, dim=2, n_patches=2, embedder=Framed(2)).patch_graph.placement_arbitrary
    with pytest.raises(DisconnectedError):
        gq.embed(two, dim=2, n_patches=2, embedder=Framed(2), recipe=gq.Recipe.paper())


# Every route


@pytest.mark.parametrize("steps", [1, 2])
def test_a_loop_a_dict_a_folder_processes_and_shares_give_the_same_bits(tmp_path, steps):
    graph, ring = ring_of_patches(6)
    embedder, recipe = Framed(2, steps=steps), gq.Recipe()
    expected = gq.embed_patches(graph, ring, embedder, seed=3, recipe=recipe)
    assert same(gq.embed_patches(graph, ring, embedder, seed=3, store={}), expected)
    store = gq.DirectoryStore(tmp_path / "loop")
    assert same(gq.embed_patches(graph, ring, embedder, seed=3, store=store), expected)
    assert same(gq.embed_patches(None, ring, embedder, seed=3, store=store), expected)
    with gq.Processes(2) as pool:
        assert same(gq.embed_patches(graph, ring, embedder, seed=3, executor=pool), expected)
        store = gq.DirectoryStore(tmp_path / "pool")
        assert same(gq.embed_patches(graph, ring, embedder, seed=3, store=store, executor=pool), expected)
    job = job_of_patches(gq.DirectoryStore(tmp_path / "shares"), graph, ring, embedder=embedder, seed=3)
    shares = [range(k, 6, 2) for k in range(2)]
    if steps == 2:  # the second step needs what every share has made
        for share in shares[:1]:
            with pytest.raises(JobError, match=r"3 of them are not done yet\. This share is"):
                job.embed(only=share)
        job.embed(only=shares[1])
    for share in shares:
        job.embed(only=share)
    assert same(job.patches, expected)
    job.stitch()
    assert job_status(Job.open(job.store), verify=True).damaged == []


def test_shares_that_begin_at_once_make_one_start(tmp_path):
    graph, ring = ring_of_patches(6)
    job = job_of_patches(
        gq.DirectoryStore(tmp_path / "job"), graph, ring, embedder=Framed(2, log=str(tmp_path / "log"))
    )
    threads = [threading.Thread(target=job.embed, kwargs={"only": range(k, 6, 3)}) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len((tmp_path / "log").read_text().split()) == 6
    assert same(job.patches, gq.embed_patches(graph, ring, Framed(2)))


def test_what_is_there_is_not_made_again_and_what_is_damaged_is(tmp_path):
    graph, ring = ring_of_patches(6)
    log, store = tmp_path / "log", gq.DirectoryStore(tmp_path / "job")
    embedder = Framed(2, log=str(log))
    expected = gq.embed_patches(graph, ring, embedder, store=store)
    assert len(log.read_text().split()) == 6
    gq.embed_patches(graph, ring, embedder, store=store)
    assert len(log.read_text().split()) == 6
    (store.path / "starts" / "0" / "0.npz").write_bytes(b"damaged")
    (store.path / "patches" / "00003" / "offer0.npy").write_bytes(b"damaged")
    assert same(gq.embed_patches(graph, ring, embedder, store=store), expected)
    assert len(log.read_text().split()) == 7
    other = gq.embed_patches(graph, ring, embedder, store={}, seed=1)
    assert not same(other, expected)


def propagated(folder):
    graph, ring = ring_of_patches(6)
    graph = graph.with_attributes(features=np.random.default_rng(0).random((graph.n_nodes, 4)))
    return gq.embed_patches(graph, ring, gq.Propagation(2), store=gq.DirectoryStore(folder))


def forged(folder, key, forgery):
    """Return a copy of a job in which one record does not fit, and what was made from it is missing.

    The checksums are right, as those of a forger would be.
    """
    copy = shutil.copytree(folder, folder / "copy")
    store = gq.DirectoryStore(copy)
    arrays, parameters = store[key].arrays, dict(store[key].parameters)
    if forgery == "no fingerprint":
        del parameters["survey" if key == "survey" else "start"]
    else:
        arrays = {name: array[:1] if forgery == "one row" else array.sum() for name, array in arrays.items()}
    later = {"survey": ["patches/*/*", "starts/0/*"], "starts/0/0": ["patches/*/embedding.*"]}
    for pattern in later.get(key, ["starts/0/*", "patches/*/embedding.*"]):
        for path in copy.glob(pattern):
            path.unlink()
    store[key] = Record(arrays, parameters)
    return copy


@pytest.mark.parametrize("key", ["survey", "starts/0/0"])
@pytest.mark.parametrize("forgery", ["one row", "no rows", "no fingerprint"])
def test_a_forged_survey_or_start_is_made_again(tmp_path, key, forgery):
    expected = [np.array(patch.coordinates) for patch in propagated(tmp_path)]
    again = [patch.coordinates for patch in propagated(forged(tmp_path, key, forgery))]
    assert all(map(np.array_equal, expected, again))


def test_a_forged_offer_is_refused(tmp_path):
    propagated(tmp_path)
    copy = forged(tmp_path, "patches/00001/offer0", "no rows")
    with pytest.raises(InputError, match="offer for the shared start is not a matrix"):
        propagated(copy)


def test_offers_that_no_start_can_be_made_of_are_an_error_of_the_job():
    graph, ring = ring_of_patches(6)
    with pytest.raises(JobError, match=r"cannot be made of what its 6 patches offer \(IndexError: "):
        gq.embed_patches(graph, ring, Puzzled(2))


def test_offers_of_ego_nets_are_checked_before_compiled_code_gets_them():
    offer = sample_of(gq.Graph(sp.csr_array(np.ones((3, 3)))), np.arange(3), np.eye(3))
    assert joined([offer, offer]).n_nodes == 6
    for name, array in (
        ("features_indices", np.full(3, 2**30, np.int32)),
        ("width", np.ones(2)),
        ("indptr", np.ones(4)),
    ):
        with pytest.raises(InputError):
            joined([offer, {**offer, name: array}])


def test_patches_from_different_starts_are_not_stitched(tmp_path):
    graph, ring = ring_of_patches(6)
    job = job_of_patches(gq.DirectoryStore(tmp_path / "job"), graph, ring, embedder=Framed(2))
    job.embed()
    key = "patches/00002/embedding"
    record = job.store[key]
    job.store[key] = replace(record, parameters={**record.parameters, "start": "another"})
    with pytest.raises(JobError, match=r"patches 0 and 2 .* from different shared starts"):
        job.stitch()
    job.embed()
    job.stitch()


def test_patch_data_written_ahead_has_the_surroundings(tmp_path):
    graph, ring = ring_of_patches(6)
    job = job_of_patches(gq.DirectoryStore(tmp_path / "job"), graph, ring, embedder=Framed(2))
    job.write_patches()
    expected = gq.embed_patches(graph, ring, Framed(2))
    assert same(gq.embed_patches(None, ring, Framed(2), store=job.store), expected)


def test_an_offer_that_is_no_arrays_is_refused():
    class Odd(Framed):
        def offer(self, graph, seed, surroundings=None):
            return {"rows": np.array([np.nan])}

    graph, ring = ring_of_patches(6)
    with pytest.raises(gq.errors.PatchesFailedError, match="'rows' that are not finite"):
        gq.embed_patches(graph, ring, Odd(2))
    with pytest.raises(InputError, match="hops of a Context"):
        Context(hops=0)


def test_a_dask_cluster_makes_the_same_start(tmp_path):
    distributed = needs("distributed")
    graph, ring = ring_of_patches(6)
    store = gq.DirectoryStore(tmp_path / "job")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as workers,
        distributed.Client(workers) as client,
        client.get_executor(pure=False) as pool,
    ):
        client.run(sys.path.insert, 0, str(__file__).rpartition("/")[0])
        patches = gq.embed_patches(graph, ring, Framed(2), store=store, executor=pool)
        assert same(patches, gq.embed_patches(graph, ring, Framed(2)))


KILL = """
import os, sys
sys.path.insert(0, sys.argv[3])
from graphquilt import DirectoryStore, embed_patches
from toy_embedders import Framed, ring_of_patches
write = DirectoryStore.__setitem__
def killed(store, name, record):
    write(store, name, record)
    if name == sys.argv[2]:
        os.kill(os.getpid(), 9)
DirectoryStore.__setitem__ = killed
embed_patches(*ring_of_patches(6), Framed(2, steps=2), store=DirectoryStore(sys.argv[1]))
"""


def test_a_start_that_is_killed_at_each_step_gives_the_same_bits(tmp_path):
    folder = str(__file__).rpartition("/")[0]
    for key in ("survey", "patches/00002/offer0", "starts/0/0", "patches/00004/offer1", "starts/0/1"):
        run = subprocess.run([sys.executable, "-c", KILL, tmp_path / "job", key, folder], check=False)
        assert run.returncode == -9
    graph, ring = ring_of_patches(6)
    patches = gq.embed_patches(graph, ring, Framed(2, steps=2), store=gq.DirectoryStore(tmp_path / "job"))
    assert same(patches, gq.embed_patches(graph, ring, Framed(2, steps=2)))


FEW_FILES = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from graphquilt import DirectoryStore, align, embed_patches
from toy_embedders import Framed, ring_of_patches
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
graph, ring = ring_of_patches(100)
align(embed_patches(graph, ring, Framed(2), store=DirectoryStore(sys.argv[1])), ring.edges)
"""


def test_more_patches_than_files_may_be_open(tmp_path):
    folder = str(__file__).rpartition("/")[0]
    subprocess.run([sys.executable, "-c", FEW_FILES, tmp_path / "job", folder], check=True)
