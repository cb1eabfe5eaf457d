"""The networks against PyG: the same weights give the same values and the same gradients."""

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from extras import needs

torch = needs("torch")
pyg = needs("torch_geometric.nn")

from graphquilt.embedders import gcn, training  # noqa: E402
from graphquilt.embedders.training import Adam, NonEdges, Parameters, undirected_edges  # noqa: E402  # noqa: E402

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def random_graph(n=60, m=150, width=9, density=0.2, seed=0):
    rng = np.random.default_rng(seed)
    pairs = rng.integers(n, size=(2, m))
    pairs = pairs[:, pairs[0] != pairs[1]]
    A = sp.csr_array((np.ones(pairs.shape[1]), (pairs[0], pairs[1])), shape=(n, n))
    A = sp.csr_array(((A + A.T) > 0).astype(float))
    return gq.Graph(A, sp.random_array((n, width), density=density, rng=rng, format="csr", dtype=np.float32))


def edge_index(graph):
    return torch.as_tensor(np.stack(graph.adjacency.tocoo().coords).astype(np.int64))


def inputs_for(graph, features, **options):
    return gcn.inputs_of(gcn.normalized_adjacency(graph), features, **options)


def weights_for(embedder, width, seed=3):
    values = embedder._initial(width, np.random.default_rng(seed))
    rng = np.random.default_rng(seed + 1)
    values = {name: value + 0.1 * rng.standard_normal(value.shape) for name, value in values.items()}
    return Parameters(values, device="cpu", dtype=torch.float32)


def conv(weight, bias):
    layer = pyg.GCNConv(weight.shape[0], weight.shape[1])
    layer.lin.weight.data = weight.detach().T.clone()
    layer.bias.data = bias.detach().clone()
    return layer


class Encoder(torch.nn.Module):
    def __init__(self, named, dim):
        super().__init__()
        self.first = conv(named["weight0"], named["bias0"])
        self.mean = conv(named["weight1"][:, :dim], named["bias1"][:dim])
        self.log_std = conv(named["weight1"][:, dim:], named["bias1"][dim:])

    def forward(self, x, edges):
        h = self.first(x, edges).relu()
        return self.mean(h, edges), self.log_std(h, edges)


@pytest.mark.parametrize("kind", ["sparse", "dense", "identity"])
def test_vgae_is_that_of_pyg(kind):
    graph = random_graph()
    features = {"sparse": graph.features, "dense": graph.features.toarray(), "identity": None}[kind]
    x = torch.eye(60) if features is None else torch.as_tensor(graph.features.toarray())
    embedder, dim = gq.VGAE(4), 4
    parameters = weights_for(embedder, x.shape[1])
    inputs = inputs_for(graph, features)
    edges = undirected_edges(graph)
    non_edges = NonEdges(edges, 60)
    out = gcn.encode(inputs, parameters.named)
    loss = training.reconstruction(out, torch.as_tensor(edges), non_edges, torch.Generator().manual_seed(5), dim=dim)
    gradients = dict(zip(parameters.named, torch.autograd.grad(loss, [*parameters.named.values()]), strict=True))

    generator = torch.Generator().manual_seed(5)
    others = non_edges.sample(2 * edges.shape[1], generator)
    noise = torch.randn(60, dim, generator=generator)
    encoder = Encoder(parameters.named, dim)
    state = {name: value.clone() for name, value in encoder.state_dict().items()}
    model = pyg.VGAE(encoder)  # which draws new weights
    encoder.load_state_dict(state)
    model.encode(x, edge_index(graph))
    mean, log_std = model.__mu__, model.__logstd__
    np.testing.assert_allclose(gcn.encode(inputs, parameters.named).detach()[:, :dim], mean.detach(), **CLOSE)
    Z = mean + noise * log_std.exp()
    expected = model.recon_loss(Z, edge_index(graph), others) + model.kl_loss() / 60
    expected.backward()
    np.testing.assert_allclose(loss.detach(), expected.detach(), **CLOSE)
    theirs = model.encoder
    np.testing.assert_allclose(gradients["weight0"], theirs.first.lin.weight.grad.T, **CLOSE)
    np.testing.assert_allclose(gradients["bias0"], theirs.first.bias.grad, **CLOSE)
    np.testing.assert_allclose(gradients["weight1"][:, :dim], theirs.mean.lin.weight.grad.T, **CLOSE)
    np.testing.assert_allclose(gradients["weight1"][:, dim:], theirs.log_std.lin.weight.grad.T, **CLOSE)
    np.testing.assert_allclose(gradients["bias1"][dim:], theirs.log_std.bias.grad, **CLOSE)


def test_gae_is_that_of_pyg():
    graph = random_graph(seed=1)
    parameters = weights_for(gq.GAE(3), 9)
    edges = undirected_edges(graph)
    non_edges = NonEdges(edges, 60)
    inputs = inputs_for(graph, graph.features)
    out = gcn.encode(inputs, parameters.named)
    loss = training.reconstruction(out, torch.as_tensor(edges), non_edges, torch.Generator().manual_seed(5), dim=3)
    gradient = torch.autograd.grad(loss, parameters.named["weight0"])[0]
    first = conv(parameters.named["weight0"], parameters.named["bias0"])
    second = conv(parameters.named["weight1"], parameters.named["bias1"])
    x, index = torch.as_tensor(graph.features.toarray()), edge_index(graph)
    Z = second(first(x, index).relu(), index)
    others = non_edges.sample(2 * edges.shape[1], torch.Generator().manual_seed(5))
    expected = pyg.GAE(torch.nn.Identity()).recon_loss(Z, index, others)
    expected.backward()
    np.testing.assert_allclose(loss.detach(), expected.detach(), **CLOSE)
    np.testing.assert_allclose(gradient, first.lin.weight.grad.T, **CLOSE)


class InfomaxEncoder(torch.nn.Module):
    def __init__(self, named):
        super().__init__()
        self.first = conv(named["weight0"], named["bias0"])
        self.act = torch.nn.PReLU(named["slope0"].shape[0])
        self.act.weight.data = named["slope0"].detach().clone()

    def forward(self, x, edges):
        return self.act(self.first(x, edges))


@pytest.mark.parametrize("kind", ["sparse", "dense", "identity"])
def test_dgi_is_that_of_pyg(kind):
    graph = random_graph(seed=2)
    features = {"sparse": graph.features, "dense": graph.features.toarray(), "identity": None}[kind]
    x = torch.eye(60) if features is None else torch.as_tensor(graph.features.toarray())
    parameters = weights_for(gq.DGI(5), x.shape[1])
    inputs = inputs_for(graph, features, smooth=False)
    loss = training.infomax(inputs, torch.Generator().manual_seed(9))(parameters.named)
    gradients = dict(zip(parameters.named, torch.autograd.grad(loss, [*parameters.named.values()]), strict=True))
    order = torch.randperm(60, generator=torch.Generator().manual_seed(9))
    encoder = InfomaxEncoder(parameters.named)
    state = {name: value.clone() for name, value in encoder.state_dict().items()}
    model = pyg.DeepGraphInfomax(  # which draws new weights
        hidden_channels=5,
        encoder=encoder,
        summary=lambda z, *_: torch.sigmoid(z.mean(dim=0)),
        corruption=lambda x, edges: (x[order], edges),
    )
    encoder.load_state_dict(state)
    model.weight.data = parameters.named["discriminator"].detach().clone()
    rows, shuffled, summary = model(x, edge_index(graph))
    np.testing.assert_allclose(gcn.encode(inputs, parameters.named).detach(), rows.detach(), **CLOSE)
    expected = model.loss(rows, shuffled, summary)
    expected.backward()
    np.testing.assert_allclose(loss.detach(), expected.detach(), **CLOSE)
    np.testing.assert_allclose(gradients["weight0"], model.encoder.first.lin.weight.grad.T, **CLOSE)
    np.testing.assert_allclose(gradients["bias0"], model.encoder.first.bias.grad, **CLOSE)
    np.testing.assert_allclose(gradients["slope0"], model.encoder.act.weight.grad, **CLOSE)
    np.testing.assert_allclose(gradients["discriminator"], model.weight.grad, **CLOSE)


@pytest.mark.parametrize("embedder", [gq.VGAE(2, layers=3, hidden=4), gq.VGAE(2, layers=1), gq.DGI(2, layers=2)])
def test_gradients_of_any_depth_are_finite_differences(embedder):
    graph = random_graph(n=12, m=20, width=5, density=0.5)
    values = embedder._initial(5, np.random.default_rng(0))
    values = {name: value + 0.05 for name, value in values.items()}
    parameters = Parameters(values, device="cpu", dtype=torch.float64)

    inputs = inputs_for(graph, graph.features, dtype=torch.float64, smooth=embedder._smooth)

    def loss(weights):
        return embedder._loss(graph, inputs, torch.Generator().manual_seed(1), None)(weights)

    gradients = torch.autograd.grad(loss(parameters.named), [*parameters.named.values()])
    flat = torch.cat([g.ravel() for g in gradients])
    for place in range(0, len(flat), 7):
        ends = []
        for step in (1e-5, -1e-5):
            moved = parameters.flat.clone()
            moved[place] += step
            ends.append(float(loss(parameters.views(moved))))
        assert abs((ends[0] - ends[1]) / 2e-5 - float(flat[place])) < 1e-6


def test_other_devices_compute_the_same(monkeypatch):
    rng = torch.Generator().manual_seed(0)
    Z, pairs = torch.randn(20, 6, generator=rng), torch.randint(20, (2, 50), generator=rng)

    def loss_and_gradient():
        G = torch.zeros_like(Z)
        return training.pair_gradient(Z, pairs, -1.0, G), G

    loop = loss_and_gradient()
    monkeypatch.setattr(training, "on_cpu", lambda _: False)
    for ours, theirs in zip(loop, loss_and_gradient(), strict=True):
        np.testing.assert_allclose(ours, theirs, **CLOSE)


def test_the_normalized_adjacency_is_that_of_pyg():
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    rng = np.random.default_rng(0)
    A = sp.random_array((15, 15), density=0.2, rng=rng, format="csr")
    A = sp.csr_array(A + A.T)
    index, weight = gcn_norm(
        torch.as_tensor(np.stack(A.tocoo().coords).astype(np.int64)), torch.as_tensor(A.data), num_nodes=15
    )
    expected = sp.csr_array((weight.numpy(), tuple(index.numpy())), shape=(15, 15)).toarray()
    np.testing.assert_allclose(gcn.normalized_adjacency(gq.Graph(A)).toarray(), expected, atol=1e-7)


def test_adam_is_that_of_torch():
    rng = np.random.default_rng(0)
    start = {"a": rng.standard_normal((3, 2)), "b": rng.standard_normal(4)}
    parameters = Parameters(start, device="cpu", dtype=torch.float64)
    adam = Adam(parameters, lr=0.01, weight_decay=0.1)
    theirs = [torch.tensor(value, requires_grad=True) for value in start.values()]
    reference = torch.optim.Adam(theirs, lr=0.01, weight_decay=0.1)
    for _ in range(5):
        gradients = [torch.as_tensor(rng.standard_normal(value.shape)) for value in start.values()]
        for leaf, gradient in zip(theirs, gradients, strict=True):
            leaf.grad = gradient.clone()
        reference.step()
        adam.step([gradient.clone() for gradient in gradients])
    for ours, leaf in zip(parameters.named.values(), theirs, strict=True):
        np.testing.assert_allclose(ours.detach(), leaf.detach(), rtol=1e-10)
