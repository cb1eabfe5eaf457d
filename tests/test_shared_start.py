"""The shared start: sums of all patches, one frame for all of them, on every route and after an interruption."""

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
from graphquilt.embedders import SharedStart, Survey, agree, shares_start
from graphquilt.embedders.shared_encoder import add_samples, sample_graph, sample_of
from graphquilt.embedders.shared_start import cut_patch
from graphquilt.errors import DisconnectedError, InputError, JobError
from graphquilt.jobs import Job, job_status
from graphquilt.jobs.store import Record
from toy_embedders import Framed, Toy, job_of_patches, ring_of_patches


class Puzzled(Framed):
    """An embedder that cannot use the sum of its patches."""

    def combine(self, total, seed):
        raise IndexError("no such row")


def same(one, other):
    return all(np.array_equal(a.coordinates, b.coordinates) for a, b in zip(one, other, strict=True))


# One frame


def test_a_single_patch_goes_the_same_way():
    graph = gq.datasets.load_dataset("blocks")
    for one in (graph, gq.Graph(graph.adjacency)):
        store = {}
        whole = gq.PatchGraph([np.arange(one.n_nodes)], np.empty((0, 2), dtype=int), one.n_nodes)
        (patch,) = gq.embed_patches(one, whole, gq.Propagation(4), store=store)
        Z = gq.Propagation(4)(one, 0)
        np.testing.assert_allclose(patch.coordinates @ patch.coordinates.T, Z @ Z.T, atol=2e-3)  # half precision
        assert {"survey", "patches/00000/kept0", "starts/0/0"} <= store.keys()
        assert "clusters" not in store  # nothing is far away


@pytest.mark.parametrize("steps", [1, 2])
def test_patches_agree_where_the_survey_knows_what_is_outside(steps):
    graph, ring = ring_of_patches(6)
    patches = gq.embed_patches(graph, ring, Framed(2, steps=steps))
    alignment, _ = gq.stitch(ring, patches, motions=gq.Motions(rotate=False, translate=False))
    assert alignment.edge_errors.max() < 1e-7  # from sums of squares, so that half of the digits are left
    assert np.array_equal(alignment.rotations, np.broadcast_to(np.eye(2), (6, 2, 2)))
    apart = gq.embed_patches(graph, ring, Framed(2, steps=steps), recipe=gq.Recipe(start=False))
    assert not same(patches, apart)
    without = gq.embed_patches(graph, ring, Framed(2, surveys=False, steps=steps))
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
    for share in shares:
        job.embed(only=share)
    assert same(job.patches, expected)
    job.stitch()
    assert job_status(Job.open(job.store), verify=True).damaged == []


def test_shares_that_begin_at_once_make_one_start(tmp_path):
    graph, ring = ring_of_patches(6)
    job = job_of_patches(gq.DirectoryStore(tmp_path / "job"), graph, ring, embedder=Framed(2))
    threads = [threading.Thread(target=job.embed, kwargs={"only": range(k, 6, 3)}) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same(job.patches, gq.embed_patches(graph, ring, Framed(2)))


def test_what_is_there_is_not_made_again_and_what_is_damaged_is(tmp_path):
    graph, ring = ring_of_patches(6)
    log, store = tmp_path / "log", gq.DirectoryStore(tmp_path / "job")
    embedder = Framed(2, log=str(log))
    expected = gq.embed_patches(graph, ring, embedder, store=store)
    assert len(log.read_text().split()) == 6
    gq.embed_patches(graph, ring, embedder, store=store)
    assert len(log.read_text().split()) == 6
    (store.folder / "starts" / "0" / "0.npz").write_bytes(b"damaged")
    (store.folder / "patches" / "00003" / "kept0.npy").write_bytes(b"damaged")
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
    if forgery == "no origin":
        del parameters["patches"]
    else:
        arrays = {
            name: np.atleast_1d(array)[:1] if forgery == "one row" else array.sum() for name, array in arrays.items()
        }
    later = {"survey": ["patches/*/*", "starts/0/*"], "starts/0/0": ["patches/*/embedding.*"]}
    for pattern in later.get(key, ["starts/0/*", "patches/*/embedding.*"]):
        for path in copy.glob(pattern):
            path.unlink()
    store[key] = Record(arrays, parameters)
    return copy


@pytest.mark.parametrize("key", ["survey", "starts/0/0"])
@pytest.mark.parametrize("forgery", ["one row", "no rows", "no origin"])
def test_a_forged_survey_or_start_is_made_again(tmp_path, key, forgery):
    expected = [np.array(patch.coordinates) for patch in propagated(tmp_path)]
    again = [patch.coordinates for patch in propagated(forged(tmp_path, key, forgery))]
    assert all(map(np.array_equal, expected, again))


def test_a_forged_contribution_is_refused(tmp_path):
    propagated(tmp_path)
    copy = forged(tmp_path, "patches/00001/kept0", "no rows")
    with pytest.raises(JobError, match="cannot be made from what its patches contribute"):
        propagated(copy)


def test_sums_that_no_start_can_be_made_of_are_an_error_of_the_job():
    graph, ring = ring_of_patches(6)
    with pytest.raises(JobError, match=r"cannot be made from what its patches contribute \(IndexError: "):
        gq.embed_patches(graph, ring, Puzzled(2))


def test_samples_of_ego_nets_are_checked_before_compiled_code_gets_them():
    sample = sample_of(gq.Graph(sp.csr_array(np.ones((3, 3)))), np.arange(3), np.eye(3))
    assert sample_graph(add_samples(sample, sample)).n_nodes == 6
    for name, array in (
        ("features_indices", np.full(3, 2**30, np.int32)),
        ("width", np.ones(2)),
        ("indptr", np.ones(4)),
    ):
        with pytest.raises(InputError):
            sample_graph(add_samples(sample, {**sample, name: array}))


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


def test_what_is_prepared_must_be_arrays_of_finite_numbers():
    class Odd(Framed):
        def prepare(self, graph, seed, *, far=None):
            return {"rows": np.array([np.nan])}

    graph, ring = ring_of_patches(6)
    with pytest.raises(gq.errors.PatchesFailedError, match="'rows' that are not finite"):
        gq.embed_patches(graph, ring, Odd(2))


def test_a_protocol_tells_who_has_a_shared_start():
    graph, _ = ring_of_patches(6)
    assert all(isinstance(one, SharedStart) for one in (Framed(2), gq.Propagation(2), gq.VGAE(2), gq.GAE(2)))
    assert not any(shares_start(one) for one in (gq.SVD(2), gq.DGI(2), Toy(2)))
    assert shares_start(gq.VGAE(2))
    assert not shares_start(gq.VGAE(2), gq.Graph(graph.adjacency))


# The far field


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_patch_has_exactly_its_nodes_and_the_clusters_of_their_neighbours(seed, weighted):
    rng = np.random.default_rng(seed)
    A = np.triu(rng.random((25, 25)) < 0.2, 1) * rng.uniform(0.5, 2, (25, 25))
    A = (A + A.T) if weighted else ((A + A.T) > 0).astype(float)
    cluster, nodes = rng.integers(0, 5, 25), rng.permutation(25)[: rng.integers(0, 26)]
    degree = A.sum(axis=1)
    part, far = cut_patch(gq.Graph(sp.csr_array(A)), nodes, Survey({"cluster": cluster, "degree": degree}))
    assert part.n_nodes == len(nodes)
    np.testing.assert_allclose(part.adjacency.toarray(), A[np.ix_(nodes, nodes)])
    assert np.array_equal(far.nodes["degree"], degree[nodes])  # of the whole graph
    inside = np.isin(np.arange(25), nodes)
    weights = np.ones(len(far.clusters)) if far.weights is None else far.weights
    for row, node in enumerate(nodes):
        edges = slice(far.indptr[row], far.indptr[row + 1])
        expected = np.bincount(cluster[~inside], weights=A[node, ~inside], minlength=5)
        np.testing.assert_allclose(np.bincount(far.clusters[edges], weights=weights[edges], minlength=5), expected)


def test_a_survey_of_another_graph_is_refused():
    graph, _ = ring_of_patches(6)
    for cluster in (np.zeros(3, int), np.zeros(graph.n_nodes), np.zeros((graph.n_nodes, 1), int)):
        with pytest.raises(InputError, match="It belongs to another graph: make the survey again"):
            cut_patch(graph, np.arange(4), Survey({"cluster": cluster}))


def test_parts_agree_here_as_they_do_in_a_job():
    graph, ring = ring_of_patches(6)
    expected = gq.embed_patches(graph, ring, Framed(2, steps=2))
    survey = Framed(2).survey(graph, 0)
    parts = [cut_patch(graph, nodes, survey) for nodes in ring.node_sets]
    embedder = agree(Framed(2, steps=2), parts, 0)
    for (part, far), patch in zip(parts, expected, strict=True):
        assert np.array_equal(embedder.fit(part, 0, far=far).embedding, patch.coordinates)


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
    for key in ("survey", "patches/00002/kept0", "starts/0/0", "patches/00004/kept1", "starts/0/1"):
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
