"""What training promises: fields that act, a process left as it was, errors that say what to do."""

import concurrent.futures
import dataclasses
import gc
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import graphquilt as gq
from extras import needs

torch = needs("torch")

from graphquilt.embedders import training  # noqa: E402
from graphquilt.embedders.training import NonEdges, reconstruction_score, undirected_edges  # noqa: E402


def blocks_graph(n=80, groups=4, seed=0, features=True):
    """A graph of dense groups, with features that tell a little about them."""
    rng = np.random.default_rng(seed)
    label = np.arange(n) % groups
    inside = label[:, None] == label
    A = np.triu(rng.random((n, n)) < np.where(inside, 0.4, 0.02), 1)
    X = (rng.random((n, 10)) < 0.2) | (label[:, None] == np.arange(10))
    return gq.Graph(sp.csr_array((A | A.T).astype(float)), X.astype(np.float32) if features else None)


def test_training_stops_and_keeps_the_best_weights():
    graph = blocks_graph()
    fit = gq.GAE(4, lr=0.05, patience=7, max_epochs=400).fit(graph, 0)
    assert len(fit.losses) < 400
    assert len(fit.losses) - 1 - np.argmin(fit.losses) == 7
    assert fit.embedding.dtype == np.float32


def test_max_epochs_is_a_limit():
    assert len(gq.VGAE(4, max_epochs=3).fit(blocks_graph(), 0).losses) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": 5},
        {"layers": 3},
        {"lr": 0.01},
        {"weight_decay": 0.1},
        {"init_seed": 9},
        {"negatives": 1},
        {"featureless": "degree"},
        {"dtype": "float64"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_field_acts(change):
    graph = blocks_graph(features="featureless" not in change)
    plain = gq.VGAE(3, lr=0.05, max_epochs=6)
    other = dataclasses.replace(plain, **change)(graph, 0)
    assert other.shape == (80, 3)
    assert not np.array_equal(plain(graph, 0), other)
    assert other.dtype == change.get("dtype", "float32")


def test_init_seed_fixes_the_initial_weights_and_no_more():
    embedder = gq.VGAE(3, init_seed=5, max_epochs=1)
    first, second = (embedder.fit(blocks_graph(seed=seed), seed).encoder for seed in (0, 1))
    assert np.array_equal(first.weights["weight0"], second.weights["weight0"])
    longer = dataclasses.replace(embedder, max_epochs=4)
    assert not np.array_equal(longer(blocks_graph(), 0), longer(blocks_graph(), 1))


def test_the_seed_encoder_is_the_best_of_three():
    graph = blocks_graph()
    sample = gq.Graph(graph.adjacency, sp.csr_array(graph.features))
    embedder = gq.GAE(2, max_epochs=20)
    best = embedder._seed_encoder(sample, 0, 0.0)
    seeds = np.random.SeedSequence(0).spawn(3)
    trials = [embedder._train(sample, sample.features, child).embedding for child in seeds]
    scores = [reconstruction_score(sample, X, 0) for X in trials]
    assert reconstruction_score(sample, best.embedding, 0) == max(scores)
    assert len(set(scores)) > 1


def test_progress_hears_of_every_epoch_and_can_end_the_training():
    heard = []
    fit = gq.VGAE(3, max_epochs=5).fit(blocks_graph(), 0, progress=heard.append)
    assert [event.done for event in heard] == [1, 2, 3, 4, 5]
    assert [event.values["loss"] for event in heard] == fit.losses.tolist()
    assert (heard[0].stage, heard[0].total) == ("training", 5)

    def interrupt(event):
        if event.done == 3:
            raise KeyboardInterrupt

    before = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        gq.VGAE(3).fit(blocks_graph(), 0, progress=interrupt)
    assert torch.get_num_threads() == before


def test_torch_is_left_as_it_was():
    torch.manual_seed(11)
    expected = torch.rand(3)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        torch.manual_seed(11)
        for embedder in (gq.VGAE(3, max_epochs=2), gq.DGI(3, max_epochs=2), gq.GAE(3, max_epochs=2)):
            embedder(blocks_graph(), 0)
        assert torch.equal(torch.rand(3), expected)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_concurrent_trainings_give_the_same_embeddings_and_leave_the_thread_count():
    graph, embedder = blocks_graph(), gq.VGAE(3, max_epochs=10, dtype="float64")
    before = torch.get_num_threads()
    alone = [embedder(graph, seed) for seed in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: embedder(graph, seed), range(4)))
    np.testing.assert_allclose(alone, together, atol=1e-9)
    seen = []
    fresh = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    fresh.start()
    fresh.join()
    assert [torch.get_num_threads(), *seen] == [before, before]


@given(n=st.integers(2, 25), share=st.floats(0, 1), seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_sampled_pairs_are_never_edges(n, share, seed):
    rng = np.random.default_rng(seed)
    A = np.triu(rng.random((n, n)) < share, 1)
    edges = np.stack(np.nonzero(A)).astype(np.int64)
    pairs = NonEdges(edges, n).sample(200, torch.Generator().manual_seed(seed)).numpy()
    assert pairs.shape[1] == (0 if A.sum() == n * (n - 1) // 2 else 200)
    assert not (A | A.T)[pairs[0], pairs[1]].any()
    assert (pairs[0] != pairs[1]).all()


def test_sampled_pairs_are_uniform():
    A = np.triu(np.random.default_rng(0).random((8, 8)) < 0.2, 1)
    edges = np.stack(np.nonzero(A)).astype(np.int64)
    pairs = np.sort(NonEdges(edges, 8).sample(60_000, torch.Generator().manual_seed(0)).numpy(), axis=0)
    counts = np.bincount(pairs[0] * 8 + pairs[1], minlength=64)
    counts = counts[counts > 0]
    assert len(counts) == 28 - A.sum()
    assert np.abs(counts / counts.mean() - 1).max() < 0.1


def test_the_reconstruction_score_is_the_share_of_pairs_in_order():
    graph = blocks_graph(n=12)
    X = np.random.default_rng(0).integers(-2, 3, size=(12, 2)).astype(float)
    edges = undirected_edges(graph)
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence(3).generate_state(1)[0]))
    others = NonEdges(edges, 12).sample(edges.shape[1], generator).numpy()
    high, low = ((X[p[0]] * X[p[1]]).sum(axis=1) for p in (edges, others))
    difference = high[:, None] - low
    expected = ((difference > 0) + 0.5 * (difference == 0)).mean()
    assert reconstruction_score(graph, X, 3) == pytest.approx(expected)
    assert reconstruction_score(gq.Graph(sp.csr_array((3, 3))), X[:3], 0) == 0.5


@pytest.mark.parametrize("embedder", [gq.VGAE(3, max_epochs=30), gq.GAE(3, max_epochs=30), gq.DGI(3, max_epochs=30)])
def test_one_node_and_no_edges_get_finite_coordinates(embedder):
    for n in (1, 5):
        X = embedder(gq.Graph(sp.csr_array((n, n)), np.ones((n, 4))), 0)
        assert X.shape == (n, 3)
        assert np.isfinite(X).all()


def test_a_directed_graph_is_embedded_as_its_undirected_one():
    graph = blocks_graph()
    upper = sp.csr_array(sp.triu(graph.adjacency))
    one_way = gq.Graph(upper, graph.features)
    assert one_way.directed
    embedder = gq.GAE(3, max_epochs=5, dtype="float64")
    np.testing.assert_allclose(embedder(one_way, 0), embedder(graph, 0), atol=1e-9)


def test_features_that_are_sparse_dense_or_half_give_the_same():
    graph = blocks_graph()
    embedder = gq.VGAE(3, max_epochs=20)
    forms = [graph.features, sp.csr_array(graph.features), graph.features.astype(np.float16), graph.features > 0]
    answers = [embedder(gq.Graph(graph.adjacency, form), 0) for form in forms]
    for other in answers[1:]:
        np.testing.assert_allclose(answers[0], other, atol=2e-4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dim": 0}, "VGAE needs a dim that is an integer of at least 1, not 0"),
        ({"dim": 2.5}, "not 2.5"),
        ({"dim": 2, "lr": -1}, "lr of VGAE must be a positive number, not -1"),
        ({"dim": 2, "weight_decay": -0.1}, "weight_decay of VGAE must not be negative"),
        ({"dim": 2, "negatives": 0}, "negatives of VGAE must be at least 1, not 0"),
        ({"dim": 2, "patience": 0}, "patience of VGAE must be at least 1, not 0"),
        ({"dim": 2, "featureless": "noise"}, "featureless of VGAE is one of"),
        ({"dim": 2, "dtype": "int8"}, "dtype of VGAE is 'float32' or 'float64'"),
    ],
)
def test_wrong_fields_are_refused(fields, message):
    with pytest.raises(gq.errors.InputError, match=message):
        gq.VGAE(**fields)


def test_dgi_without_features_asks_for_a_choice():
    graph = blocks_graph(features=False)
    with pytest.raises(
        gq.errors.InputError, match=r"DGI needs node features and the graph of 80 nodes has none.*'degree'"
    ):
        gq.DGI(3)(graph, 0)
    for choice in ("degree", "identity"):
        assert gq.DGI(3, featureless=choice, max_epochs=3)(graph, 0).shape == (80, 3)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_features_that_are_not_finite_are_named(form):
    graph = blocks_graph()
    X = graph.features.copy()
    X[[7, 12], 3] = np.nan, np.inf
    with pytest.raises(gq.errors.InputError, match="features of 2 of 80 nodes are not finite, the first is node 7"):
        gq.VGAE(3)(gq.Graph(graph.adjacency, form(X)), 0)


def test_a_device_that_is_not_there_is_named():
    graph = blocks_graph()
    if not torch.cuda.is_available():
        with pytest.raises(
            gq.errors.InputError, match=r"'cuda' is not available: torch .* finds 0 CUDA devices. Use device='cpu'"
        ):
            gq.VGAE(3, device="cuda")(graph, 0)
    with pytest.raises(gq.errors.InputError, match="the device 'tpu' is not known"):
        gq.VGAE(3, device="tpu")(graph, 0)


def test_a_full_device_says_what_to_reduce():
    with (
        pytest.raises(gq.errors.InputError, match=r"memory of cpu does not hold .* 9 nodes.* Reduce hidden or dim"),
        training.session("cpu", 1, "9 nodes"),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


def test_a_loss_that_is_not_finite_names_epoch_and_rate():
    with pytest.raises(
        gq.errors.ConvergenceError, match=r"became (nan|inf) in epoch \d+ with a learning rate of 1e\+30"
    ):
        gq.VGAE(3, lr=1e30, patience=1000)(blocks_graph(), 0)


def test_a_graph_without_nodes_is_refused():
    with pytest.raises(gq.errors.InputError, match="without nodes"):
        gq.GAE(2)(gq.Graph(sp.csr_array((0, 0))), 0)


def test_an_encoder_is_short_to_print():
    encoder = gq.GAE(2, max_epochs=2, featureless="degree").fit(blocks_graph(features=False), 0).encoder
    assert repr(encoder).startswith("Encoder(GAE, dim=2, weights ")
    assert len(repr(encoder)) < 80


def test_an_encoder_refuses_other_features_and_other_files(tmp_path):
    fit = gq.GAE(2, max_epochs=2).fit(blocks_graph(), 0)
    narrow = gq.Graph(blocks_graph().adjacency, np.ones((80, 3)))
    with pytest.raises(gq.errors.InputError, match="trained on 10 features and the graph has 3"):
        fit.encoder(narrow)
    identity = gq.GAE(2, max_epochs=2).fit(blocks_graph(features=False), 0).encoder
    with pytest.raises(gq.errors.InputError, match="trained on 80 features and the graph has 60"):
        identity(blocks_graph(n=60, features=False))
    degree = gq.GAE(2, max_epochs=2, featureless="degree").fit(blocks_graph(features=False), 0).encoder
    assert degree(blocks_graph(n=60, features=False)).shape == (60, 2)
    (tmp_path / "text").write_text("not an encoder")
    with pytest.raises(gq.errors.FormatError, match="is not a safetensors file"):
        gq.embedders.Encoder.load(tmp_path / "text")
    from safetensors.numpy import save_file

    save_file({"a": np.ones(2)}, tmp_path / "other")
    with pytest.raises(gq.errors.FormatError, match=r"was not written by Encoder\.save"):
        gq.embedders.Encoder.load(tmp_path / "other")
    save_file({"a": np.ones(2)}, tmp_path / "newer", metadata={"format": "graphquilt-encoder", "version": "99"})
    with pytest.raises(gq.errors.FormatError, match="encoder format 99; graphquilt reads 1"):
        gq.embedders.Encoder.load(tmp_path / "newer")


@pytest.mark.parametrize("embedder", [gq.VGAE(4), gq.GAE(4), gq.DGI(4)])
def test_a_training_leaves_no_arrays_behind(embedder):
    from graphquilt.embedders.gcn import Inputs

    graph, embedder = blocks_graph(), dataclasses.replace(embedder, max_epochs=3)

    def left_behind():
        gc.collect()
        return sum(type(each) is Inputs for each in gc.get_objects())

    before = left_behind()
    embedder.fit(graph, 0)

    def stop(event):
        if event.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embedder.fit(graph, 0, progress=stop)
    assert left_behind() == before
