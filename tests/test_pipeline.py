"""embed() is its parts, called one after the other."""

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from graphquilt.jobs import patch_seed
from graphquilt.jobs.cutting import default_degree, default_overlap
from graphquilt.jobs.recipe import common_motions
from graphquilt.patches import smallest_cluster
from toy_embedders import Toy


@pytest.fixture(scope="module")
def graph():
    """A torus of 24 × 25 nodes."""
    a, b = 24, 25
    ring = [sp.csr_array(np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0)) for n in (a, b)]
    return gq.Graph(sp.csr_array(sp.kron(ring[0], sp.eye(b)) + sp.kron(sp.eye(a), ring[1])))


def test_the_one_line_route_equals_the_unrolled_one(graph):
    result = gq.embed(graph, dim=3, n_patches=5, embedder=gq.SVD(3), recipe=gq.Recipe(), seed=4)
    overlap = default_overlap(3, graph.n_nodes, 5)
    labels = gq.merge_small(graph, gq.Metis(5, seed=4)(graph), smallest_cluster(overlap))
    patch_graph = gq.patch_graph(graph, labels, degree=default_degree(5), overlap=overlap, seed=4)
    patches = gq.embed_patches(graph, patch_graph, gq.SVD(3), seed=4)
    alignment = gq.align(patches, patch_graph.edges, **vars(gq.SVD(3).motions))
    X = gq.centroid(patches, alignment)
    assert np.abs(result.embedding - X).max() < 1e-9  # SVD's last bits depend on where BLAS finds its arrays
    assert np.array_equal(result.patch_graph.edges, patch_graph.edges)
    assert np.abs(result.alignment.rotations - alignment.rotations).max() < 1e-9


@pytest.mark.parametrize("workers", [0, 2])
def test_a_store_keeps_everything_and_changes_nothing(graph, tmp_path, workers):
    plain = gq.embed(graph, dim=3, n_patches=5, seed=4)
    store = gq.DirectoryStore(tmp_path / "job")
    pool = gq.Processes(workers) if workers else None
    stored = gq.embed(graph, dim=3, n_patches=5, seed=4, store=store, executor=pool)
    if pool:
        pool.shutdown()
    assert np.abs(stored.embedding - plain.embedding).max() < 1e-9
    assert np.array_equal(np.load(store.path / "embedding.npy", allow_pickle=False), stored.embedding)
    assert np.array_equal(gq.Alignment.load(store.path / "alignment.npz").rotations, stored.alignment.rotations)
    assert np.array_equal(gq.Job.open(store).alignment.rotations, stored.alignment.rotations)
    assert gq.PatchGraph.load(store.path / "patch_graph.npz").n_patches == stored.patch_graph.n_patches


def test_the_motions_of_the_embedder_decide_what_is_undone(graph):
    assert common_motions(Toy(2)) == gq.Motions()
    assert not common_motions([Toy(2), gq.SVD(2)]).scale
    assert common_motions([Toy(2), gq.SVD(2, motions=gq.Motions(scale=True))]).scale
    result = gq.embed(graph, dim=2, n_patches=3, embedder=gq.SVD(2, motions=gq.Motions(translate=False)))
    assert (result.alignment.scales == 1).all()
    assert (result.alignment.translations == 0).all()


def test_n_patches_is_the_short_form_of_a_cutting(graph):
    one, other = (gq.embed(graph, dim=2, **form).patch_graph for form in ({"n_patches": 4}, {"cutting": gq.Cutting(4)}))
    assert np.array_equal(one.edges, other.edges)
    with pytest.raises(gq.errors.InputError, match=r"n_patches \(4\) or cutting .*, not both"):
        gq.embed(graph, dim=2, n_patches=4, cutting=gq.Cutting(4))


def test_one_patch_is_the_whole_graph(graph):
    result = gq.embed(graph, dim=2, n_patches=1, embedder=Toy(2), seed=3)
    assert np.array_equal(result.embedding, Toy(2)(graph, patch_seed(3, 0)).astype(np.float32))


def test_other_dims_are_refused(graph):
    with pytest.raises(gq.errors.InputError, match="dim is 3, and SVD embeds in 2"):
        gq.embed(graph, dim=3, embedder=gq.SVD(2))


@pytest.mark.parametrize("n_patches", [0, -1, 2.5, True])
def test_patches_are_counted_in_whole_numbers(graph, n_patches):
    with pytest.raises(gq.errors.InputError, match="n_patches is a whole number of at least 1"):
        gq.embed(graph, dim=2, n_patches=n_patches)


def test_a_recipe_is_a_value_and_the_error_says_which(graph):
    with pytest.raises(gq.errors.InputError, match=r"not 'best': pass Recipe\.shared\(\)"):
        gq.embed(graph, dim=2, recipe="best")
    with pytest.raises(gq.errors.InputError, match=r"not 'best': pass Recipe\.shared\(\)"):
        gq.embed_patches(graph, gq.cut(graph, gq.Cutting(3), dim=2), gq.SVD(2), recipe="best")


def test_runs_of_an_embedder_without_chance_are_one(graph, caplog):
    result = gq.embed(graph, dim=2, n_patches=3, recipe=gq.Recipe(runs=4))
    assert result.alignment.n_patches == result.patch_graph.n_patches == 3
    assert "Propagation does not depend on the seed, so 4 runs would be equal" in caplog.text
    assert gq.embed(graph, dim=2, n_patches=3, embedder=Toy(2), recipe=gq.Recipe(runs=2)).alignment.n_patches == 6


def test_a_result_is_short_to_print(graph):
    text = repr(gq.embed(graph, dim=2, n_patches=3))
    assert text.startswith("QuiltResult(600 nodes, dim=2, PatchGraph(")
    assert len(text) < 250


def test_the_default_embedder_needs_no_extra(graph, monkeypatch):
    """Without torch, the default works and gives the same; asking for VGAE names the extra."""
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    with_none = gq.embed(graph, dim=2, n_patches=3).embedding
    monkeypatch.delitem(sys.modules, "torch")
    assert np.abs(with_none - gq.embed(graph, dim=2, n_patches=3).embedding).max() < 1e-9


def test_vgae_without_torch_names_the_extra(graph, tmp_path):
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np, scipy.sparse as sp, graphquilt as gq\n"
        "ring = gq.Graph(sp.csr_array(np.roll(np.eye(90), 1, 0) + np.roll(np.eye(90), -1, 0)))\n"
        "gq.embed(ring, dim=2, n_patches=3, embedder=gq.VGAE(2))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "needs the extra 'torch'" in run.stderr
