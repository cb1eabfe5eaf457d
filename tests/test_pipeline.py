"""embed() is its parts, called one after the other."""

import inspect

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from graphquilt.jobs import JobSettings, patch_seed
from toy_embedders import Toy


@pytest.fixture(scope="module")
def graph():
    """A torus of 24 × 25 nodes."""
    a, b = 24, 25
    ring = [sp.csr_array(np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0)) for n in (a, b)]
    return gq.Graph(sp.csr_array(sp.kron(ring[0], sp.eye(b)) + sp.kron(sp.eye(a), ring[1])))


def test_the_one_line_route_equals_the_unrolled_one_with_their_defaults(graph):
    result = gq.embed(graph, dim=8, n_patches=4)
    patch_graph = gq.cut(graph, n_patches=4)
    patches = gq.embed_patches(graph, patch_graph, gq.Propagation(8))
    alignment, X = gq.stitch(patch_graph, patches)
    assert np.array_equal(result.embedding, X)
    assert result.alignment.moves_nothing == alignment.moves_nothing
    assert np.array_equal(result.patch_graph.edges, patch_graph.edges)


@pytest.mark.parametrize(
    "options",
    [
        {"embedder": Toy(3), "seed": 4},
        {"embedder": Toy(3), "recipe": gq.Recipe.paper()},
        {"embedder": Toy(3), "recipe": gq.Recipe(runs=2, refine=1), "seed": 2},
    ],
    ids=["embedder", "paper", "runs"],
)
def test_a_setting_is_given_once_and_carried(graph, options):
    result = gq.embed(graph, n_patches=5, **options)
    patch_graph = gq.cut(graph, n_patches=5, **options)
    alignment, X = gq.stitch(patch_graph, gq.embed_patches(graph, patch_graph))
    assert np.array_equal(result.embedding, X)
    assert np.array_equal(result.alignment.rotations, alignment.rotations)


def test_both_routes_have_the_same_defaults():
    whole = inspect.signature(gq.embed).parameters
    for step in (gq.cut, gq.embed_patches, gq.stitch):
        for name, parameter in inspect.signature(step).parameters.items():
            if name in whole and parameter.default not in (inspect.Parameter.empty, None):  # None: what is carried
                assert parameter.default == whole[name].default, f"{step.__name__}({name}=)"
    assert gq.JobSettings(embedder=gq.SVD(2)).recipe == whole["recipe"].default
    assert gq.JobSettings(embedder=gq.SVD(2)).seed == whole["seed"].default


def test_patches_from_elsewhere_are_rotated_whatever_the_cut_was_for(graph):
    patch_graph = gq.cut(graph, n_patches=3, embedder=gq.SVD(2))
    patches = list(gq.embed_patches(graph, patch_graph))
    turned = [gq.Patch(nodes, X @ np.array([[0.0, 1.0], [-1.0, 0.0]])) for nodes, X in patches[:1]] + patches[1:]
    alignment, _ = gq.stitch(patch_graph, turned)
    assert alignment.edge_errors.max() < 1e-6 + gq.stitch(patch_graph, patches)[0].edge_errors.max()


def test_a_result_is_a_frame_neighbours_a_page_and_a_picture(graph, tmp_path):
    result = gq.embed(graph, dim=3, n_patches=3)
    pytest.importorskip("pandas")
    frame = result.to_frame()
    assert frame.shape == (600, 3)
    assert np.array_equal(frame.to_numpy(), result.embedding)
    assert result.neighbours(5, k=3).ids.tolist() == gq.neighbours(result, 5, k=3).ids.tolist()
    assert "<html" in result.report(tmp_path / "page.html").read_text()
    assert result._repr_html_().count("<circle") == 600


def test_the_estimator_is_a_thin_face_of_embed(graph):
    model = gq.GraphQuilt(dim=3, n_patches=3)
    assert np.array_equal(model.fit_transform(graph), gq.embed(graph, dim=3, n_patches=3).embedding)
    assert model.set_params(dim=2).get_params()["dim"] == 2
    assert repr(model) == "GraphQuilt(dim=2, n_patches=3)"
    with pytest.raises(gq.errors.InputError, match="no parameter 'n_components'"):
        model.set_params(n_components=3)


@pytest.mark.filterwarnings("ignore:Estimator GraphQuilt does not inherit")
def test_the_estimator_passes_the_checks_of_scikit_learn():
    checks = pytest.importorskip("sklearn.utils.estimator_checks", reason="needs scikit-learn (extra 'eval')")
    clone = pytest.importorskip("sklearn.base").clone
    assert clone(gq.GraphQuilt(5, seed=3)).get_params() == gq.GraphQuilt(5, seed=3).get_params()
    if not hasattr(checks, "estimator_checks_generator"):
        pytest.skip("scikit-learn below 1.6 takes no estimator that is not one of its own")
    results = checks.check_estimator(gq.GraphQuilt(dim=2), on_skip=None, on_fail=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert not failed


@pytest.mark.parametrize("workers", [0, 2])
def test_a_store_keeps_everything_and_changes_nothing(graph, tmp_path, workers):
    plain = gq.embed(graph, dim=3, n_patches=5, seed=4)
    store = gq.DirectoryStore(tmp_path / "job")
    pool = gq.Processes(workers) if workers else None
    stored = gq.embed(graph, dim=3, n_patches=5, seed=4, store=store, executor=pool)
    if pool:
        pool.shutdown()
    assert np.abs(stored.embedding - plain.embedding).max() < 1e-9
    assert np.array_equal(np.load(store.folder / "embedding.npy", allow_pickle=False), stored.embedding)
    assert np.array_equal(gq.Alignment.load(store.folder / "alignment.npz").rotations, stored.alignment.rotations)
    assert np.array_equal(gq.Job.open(store).alignment.rotations, stored.alignment.rotations)
    assert gq.PatchGraph.load(store.folder / "patch_graph.npz").n_patches == stored.patch_graph.n_patches


def test_the_motions_of_the_embedder_decide_what_is_undone(graph):
    assert JobSettings(embedder=Toy(2)).motions == gq.Motions()
    assert not JobSettings(embedder=(Toy(2), gq.SVD(2))).motions.scale
    assert JobSettings(embedder=(Toy(2), gq.SVD(2, motions=gq.Motions(scale=True)))).motions.scale
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
    with pytest.raises(gq.errors.InputError, match="n_patches must be an integer of at least 1"):
        gq.embed(graph, dim=2, n_patches=n_patches)


def test_a_recipe_is_a_value_and_the_error_says_which(graph):
    with pytest.raises(gq.errors.InputError, match=r"not 'best': pass Recipe\.shared\(\)"):
        gq.embed(graph, dim=2, recipe="best")
    with pytest.raises(gq.errors.InputError, match=r"not 'best': pass Recipe\.shared\(\)"):
        gq.embed_patches(graph, gq.cut(graph, 3, embedder=gq.SVD(2)), gq.SVD(2), recipe="best")


def test_runs_of_an_embedder_without_chance_are_one(graph, caplog):
    result = gq.embed(graph, dim=2, n_patches=3, recipe=gq.Recipe(runs=4))
    assert result.alignment.n_patches == result.patch_graph.n_patches == 3
    assert "Propagation does not depend on the seed, so 4 runs would be equal" in caplog.text
    assert gq.embed(graph, dim=2, n_patches=3, embedder=Toy(2), recipe=gq.Recipe(runs=2)).alignment.n_patches == 6


def test_a_result_is_short_to_print(graph):
    text = repr(gq.embed(graph, dim=2, n_patches=3))
    assert text.startswith("Result(600 nodes, dim=2, PatchGraph(")
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
