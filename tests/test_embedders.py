"""VGAE, GAE and DGI: the laws of an embedder, and what they reach on Cora."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from extras import needs

NETWORKS = [gq.VGAE(3, max_epochs=8), gq.GAE(3, max_epochs=8), gq.DGI(3, max_epochs=8, featureless="degree")]


def random_graph(n=40, m=120, width=7, seed=0):
    rng = np.random.default_rng(seed)
    pairs = np.sort(rng.integers(n, size=(2, m)), axis=0)
    A = sp.csr_array((np.ones(m), (pairs[0], pairs[1])), shape=(n, n))
    A.setdiag(0)
    A = ((A + A.T) > 0).astype(float)
    return gq.Graph(A, sp.random_array((n, width), density=0.3, rng=rng, format="csr", dtype=np.float32))


@pytest.mark.parametrize("embedder", NETWORKS, ids=lambda e: type(e).__name__)
def test_the_same_seed_gives_the_same_bits_and_pickles(embedder):
    needs("torch")
    graph = random_graph()
    first = embedder.fit(graph, 3)
    again = pickle.loads(pickle.dumps(embedder)).fit(graph, 3)
    assert first.embedding.shape == (40, 3)
    assert np.array_equal(first.embedding, again.embedding)
    assert np.array_equal(first.losses, again.losses)
    assert not np.array_equal(first.embedding, embedder(graph, 4))


@pytest.mark.parametrize("embedder", NETWORKS, ids=lambda e: type(e).__name__)
def test_the_encoder_gives_the_embedding_again(embedder, tmp_path):
    needs("torch")
    graph = random_graph()
    fit = embedder.fit(graph, 0)
    fit.encoder.save(tmp_path / "encoder.safetensors")
    loaded = gq.embedders.Encoder.load(tmp_path / "encoder.safetensors")
    np.testing.assert_allclose(loaded(graph), fit.embedding, atol=1e-6)
    assert loaded(random_graph(n=55, seed=1)).shape == (55, 3)


def test_vgae_reconstructs_cora(dataset_folder):
    needs("torch")
    from graphquilt.embedders.training import reconstruction_score

    graph = gq.datasets.load_dataset("cora", data=dataset_folder("cora"))
    assert (graph.n_nodes, graph.n_edges) == (2485, 5069)
    assert reconstruction_score(graph, gq.VGAE(32)(graph, 1), 0) > 0.98
