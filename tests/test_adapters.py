"""Embedders made of other people's methods, and the check that anybody can run."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from extras import needs
from graphquilt.conformance import check_embedder
from graphquilt.embedders.contract import checked_fit, free_motions


def two_columns(graph, seed):
    rng = np.random.default_rng(seed)
    return np.column_stack([graph.degrees, rng.standard_normal(graph.n_nodes)])


def wrong_shape(graph, seed):
    return np.zeros((graph.n_nodes + 1, 2))


def not_finite(graph, seed):
    X = np.zeros((graph.n_nodes, 2))
    X[3] = np.nan
    return X


def integers(graph, seed):
    return np.zeros((graph.n_nodes, 2), dtype=int)


CALLS = itertools.count()


def forgetful(graph, seed):
    return np.full((graph.n_nodes, 2), float(next(CALLS)))


def careless(graph, seed):
    graph.features[0] += 1
    return np.zeros((graph.n_nodes, 2))


def brittle(graph, seed):
    return graph.features[:, :2] + 0.0


def first_features(graph):
    return graph.features


@pytest.mark.parametrize(
    "embedder",
    [
        gq.SVD(3),
        gq.VGAE(3, max_epochs=4),
        gq.GAE(3, max_epochs=4),
        gq.DGI(3, max_epochs=4),
        gq.DGI(3, max_epochs=4, featureless="identity"),
        gq.FunctionEmbedder(two_columns, 2),
    ],
    ids=["SVD", "VGAE", "GAE", "DGI", "DGI without features", "function"],
)
def test_built_in_embedders_conform(embedder):
    if hasattr(embedder, "max_epochs"):
        needs("torch")
    check_embedder(embedder)
    assert isinstance(embedder, gq.embedders.Embedder)
    assert isinstance(free_motions(embedder), gq.Motions)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (wrong_shape, r"shape \(41, 2\) for a connected graph"),
        (not_finite, "not finite"),
        (integers, "an embedding is an array of floats"),
        (forgetful, "the same seed gave another embedding"),
        (careless, "the embedder has changed the graph"),
        (brittle, "a graph without features raised TypeError instead of InputError"),
        (lambda graph, seed: np.zeros((graph.n_nodes, 2)), "cannot be pickled"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_check_embedder_says_what_is_wrong(function, message):
    with pytest.raises(AssertionError, match=message):
        check_embedder(gq.FunctionEmbedder(function, 2))


def test_check_embedder_looks_at_dim_and_motions():
    with pytest.raises(AssertionError, match="dim is None"):
        check_embedder(two_columns)
    with pytest.raises(AssertionError, match=r"motions of .* must be a graphquilt.Motions"):
        check_embedder(gq.FunctionEmbedder(two_columns, 2, frozenset({"shear"})))


def test_a_wrong_answer_names_the_patch_and_the_embedder():
    graph = gq.Graph(sp.csr_array((6, 6)))
    with pytest.raises(
        gq.errors.InputError, match=r"wrong_shape.* returned an array of shape \(7, 2\) for patch 17, which has 6"
    ):
        checked_fit(gq.FunctionEmbedder(wrong_shape, 2), graph, 0, where="patch 17")
    with pytest.raises(gq.errors.InputError, match=r"not finite for patch 4: 1 of 6 rows, the first is row 3"):
        checked_fit(gq.FunctionEmbedder(not_finite, 2), graph, 0, where="patch 4")


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_scikit_learn_object_is_an_embedder():
    decomposition = needs("sklearn.decomposition")
    embedder = gq.TransformerEmbedder(decomposition.TruncatedSVD(3))
    assert embedder.dim == 3
    assert embedder.transformer.random_state is None
    check_embedder(embedder)
    on_features = gq.TransformerEmbedder(decomposition.PCA(2), matrix=first_features)
    graph = gq.Graph(sp.csr_array((9, 9)), np.random.default_rng(0).random((9, 5)))
    assert on_features(graph, 0).shape == (9, 2)
    with pytest.raises(gq.errors.InputError, match="dict has no fit_transform"):
        gq.TransformerEmbedder({})


def test_a_pyg_module_is_an_embedder():
    torch = needs("torch")
    pyg = needs("torch_geometric.nn")

    module = pyg.GAT(12, 8, num_layers=2, out_channels=3, dropout=0.2)
    embedder = gq.PyGEmbedder(module, 3, max_epochs=5, featureless=None)
    torch.manual_seed(4)
    expected = torch.rand(2)
    torch.manual_seed(4)
    state = {name: value.clone() for name, value in module.state_dict().items()}
    check_embedder(embedder)
    assert torch.equal(torch.rand(2), expected)
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())


def test_a_variational_pyg_module_learns():
    torch = needs("torch")
    pyg = needs("torch_geometric.nn")

    class Variational(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.log_std = pyg.SAGEConv(33, 4), pyg.SAGEConv(33, 4)

        def forward(self, x, edges):
            return self.mean(x, edges), self.log_std(x, edges)

    ring = np.arange(30)
    A = sp.csr_array((np.ones(30), (ring, (ring + 1) % 30)), shape=(30, 30))
    fit = gq.PyGEmbedder(Variational(), 4, lr=0.01, max_epochs=60, patience=60).fit(gq.Graph(A + A.T), 0)
    assert fit.embedding.shape == (30, 4)
    assert fit.losses[-10:].mean() < fit.losses[:10].mean()


def test_the_checks_are_public_names_of_the_package():
    gq.conformance.check_embedder(gq.SVD(2))
    gq.conformance.check_partitioner(gq.Metis(3), n_patches=3)
    gq.conformance.check_store(dict)
