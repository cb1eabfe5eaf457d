"""Embedders made from other methods: a function, an object with ``fit_transform``, or a PyG encoder module."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import Float64Array, FloatArray
from graphquilt.embedders.contract import Embedder, Fit, check_dim
from graphquilt.embedders.network import Features, check_substitute, features_of
from graphquilt.errors import InputError, needs_extra
from graphquilt.graph import Graph
from graphquilt.linalg import Motions

if TYPE_CHECKING:
    import torch

    from graphquilt.embedders.training import Schedule
    from graphquilt.progress import ProgressCallback


class Transformer(Protocol):
    """An object in the style of scikit-learn."""

    def fit_transform(self, X: object, /) -> npt.ArrayLike:
        """Return one row per row of X."""
        ...


EmbedderLike: TypeAlias = Any  # what as_embedder takes


def as_embedder(value: object, dim: int | None = None) -> Embedder:
    """Return an embedder for an embedder, its class, a function, an object with ``fit_transform``, or a PyG module.

    ``dim`` is needed if the value does not state its dimension.
    """
    if callable(value) and hasattr(value, "dim") and not isinstance(value, type):
        return cast("Embedder", value)
    name = getattr(value, "__name__", type(value).__name__)
    if not isinstance(value, type) and callable(getattr(value, "fit_transform", None)):
        transformer = cast("Transformer", value)
        return TransformerEmbedder(transformer, dim if getattr(value, "n_components", None) is None and dim else 0)
    if not callable(value) or (isinstance(value, type) and not hasattr(value, "__dataclass_fields__")):
        given = f"the class {name}; make an object of it" if isinstance(value, type) else f"{value!r}"
        raise InputError(
            "an embedder is one of graphquilt's, such as VGAE(32), a function of a graph and a seed, an object with "
            f"fit_transform, or a PyG module, not {given}."
        )
    if dim is None:
        raise InputError(f"{name} does not say in how many dimensions it embeds; give dim.")
    if isinstance(value, type):
        return cast("Embedder", value(dim))
    if hasattr(value, "named_parameters"):
        return PyGEmbedder(cast("torch.nn.Module", value), dim)
    return FunctionEmbedder(cast("Callable[..., npt.ArrayLike]", value), dim)


@dataclass(frozen=True)
class FunctionEmbedder:
    """A plain function ``(graph, seed) -> X``, or ``(graph) -> X``, as an embedder; X is (n, dim).

    To embed patches in other processes, define it at the top of a module: then it can be pickled. ``motions`` are those
    that its embeddings are free in.

    Examples
    --------
    >>> def degrees(graph, seed):
    ...     return graph.degrees[:, None] / 10
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> FunctionEmbedder(degrees, 1)(path, 0).tolist()
    [[0.1], [0.2], [0.1]]
    """

    function: Callable[..., npt.ArrayLike]
    dim: int
    motions: Motions = Motions()

    def __post_init__(self) -> None:
        check_dim(self.dim, "FunctionEmbedder")

    def __call__(self, graph: Graph, seed: int) -> FloatArray:
        """Call the function and return its result, (n, dim)."""
        return _floats(self.function(graph, seed) if _takes_seed(self.function) else self.function(graph))


def _takes_seed(function: Callable[..., object]) -> bool:
    """Return whether a function takes a second argument that nothing else is meant for."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions of other languages have no signature
        return True
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    several = any(p.kind == p.VAR_POSITIONAL for p in parameters)
    return several or (len(places) > 1 and (places[1].default is places[1].empty or places[1].name == "seed"))


def _floats(values: object) -> FloatArray:
    """Return an array of floats; tensors of torch and whole numbers are converted."""
    detach = getattr(values, "detach", None)
    X: FloatArray = np.asanyarray(values if detach is None else detach().cpu().numpy())
    return X.astype(np.float64) if X.dtype.kind in "biu" else X


@dataclass(frozen=True)
class TransformerEmbedder:
    """An object with ``fit_transform``, as in scikit-learn or scikit-network, as an embedder.

    Each call works on a copy of the object; its ``random_state``, if any, is set to the seed.

    Parameters
    ----------
    transformer : object
        ``fit_transform(matrix)`` returns (n, dim).
    dim : int, optional
        By default the object's ``n_components``.
    matrix : callable, optional
        Computes the argument of ``fit_transform`` from the graph; by default the adjacency as a SciPy CSR matrix.
    motions : Motions
        The motions that its embeddings are free in.

    Examples
    --------
    >>> class Sums:
    ...     n_components = 1
    ...     def fit_transform(self, A):
    ...         return np.asarray(A.sum(axis=1))
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> TransformerEmbedder(Sums())(path, 0).ravel().tolist()
    [1.0, 2.0, 1.0]
    """

    transformer: Transformer
    dim: int = 0
    matrix: Callable[[Graph], object] | None = None
    motions: Motions = Motions()

    def __post_init__(self) -> None:
        name = type(self.transformer).__name__
        if not callable(getattr(self.transformer, "fit_transform", None)):
            raise InputError(f"{name} has no fit_transform; wrap a function in FunctionEmbedder instead.")
        if self.dim == 0:
            object.__setattr__(self, "dim", getattr(self.transformer, "n_components", 0))
        check_dim(self.dim, f"TransformerEmbedder of {name}, which has no n_components,")

    def __call__(self, graph: Graph, seed: int) -> FloatArray:
        """Fit a copy of the object to the graph and return its embedding, (n, dim)."""
        transformer = copy.deepcopy(self.transformer)
        if hasattr(transformer, "random_state"):
            transformer.random_state = int(np.random.SeedSequence(seed).generate_state(1)[0])
        matrix = sp.csr_matrix(graph.adjacency) if self.matrix is None else self.matrix(graph)
        try:
            return _floats(transformer.fit_transform(matrix))
        except ValueError as error:
            name = type(transformer).__name__
            raise InputError(f"{name} cannot embed a graph of {graph.n_nodes} nodes: {error}") from error


@dataclass(frozen=True, eq=False)
class PyGEmbedder:
    """A PyG encoder module, trained as the encoder of a graph auto-encoder.

    Each call trains a copy of the module, with new initial weights if its parts have ``reset_parameters``.

    Parameters
    ----------
    module : torch.nn.Module
        ``module(x, edge_index)`` returns Z (n, dim) or, for a variational auto-encoder, the mean and the logarithm of
        the standard deviation, each (n, dim).
    lr, max_epochs, patience, weight_decay, featureless, motions
        As in :class:`~graphquilt.VGAE`.
    """

    module: torch.nn.Module
    dim: int
    _: KW_ONLY
    lr: float = 1e-3
    max_epochs: int = 10_000
    patience: int = 20
    weight_decay: float = 0.0
    featureless: str | None = "degree"
    motions: Motions = Motions()

    def __post_init__(self) -> None:
        check_dim(self.dim, "PyGEmbedder")
        check_substitute(self.featureless, "PyGEmbedder")

    def __call__(self, graph: Graph, seed: int) -> FloatArray:
        """Train on the graph and return its embedding, (n, dim)."""
        return self.fit(graph, seed).embedding

    def fit(self, graph: Graph, seed: int, progress: ProgressCallback | None = None) -> Fit:
        """Train a copy of the module on the graph; the result has no encoder."""
        with needs_extra("PyGEmbedder", "pyg"):
            import torch
        from graphquilt.embedders.training import Schedule, threads

        features = features_of(graph, featureless=self.featureless, normalize=False, name="PyGEmbedder")
        if features is None:
            features = sp.eye_array(graph.n_nodes, format="csr")
        schedule = Schedule(self.lr, self.max_epochs, self.patience, self.weight_decay)
        # The module may use torch's global generator (dropout, initial weights), which is seeded here and restored.
        with threads(1), torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> np.uint64(1)))
            X, losses = _train_module(copy.deepcopy(self.module), graph, features, schedule, progress)
        return Fit(X, losses)


def _train_module(
    module: torch.nn.Module, graph: Graph, features: Features, schedule: Schedule, progress: ProgressCallback | None
) -> tuple[FloatArray, Float64Array]:
    """Train ``module(x, edge_index)`` with torch's global generator; return the embedding (n, dim) and the losses."""
    import torch
    from torch import Tensor
    from torch.func import functional_call

    from graphquilt.embedders.gcn import Weights
    from graphquilt.embedders.training import NonEdges, Parameters, reconstruction, train, undirected_edges

    for part in module.modules():
        getattr(part, "reset_parameters", lambda: None)()
    dense = features.toarray() if isinstance(features, sp.csr_array) else np.array(features)
    x = torch.as_tensor(dense, dtype=torch.float32)
    rows = np.repeat(np.arange(graph.n_nodes), graph.degrees)
    edge_index = torch.as_tensor(np.stack([rows, np.asarray(graph.indices, dtype=np.int64)]))
    edges = undirected_edges(graph)
    non_edges, pairs = NonEdges(edges, graph.n_nodes), torch.as_tensor(edges)

    def outputs(weights: Weights) -> tuple[Tensor, ...]:
        out = functional_call(module, dict(weights), (x, edge_index))
        return (out,) if isinstance(out, Tensor) else tuple(out)

    def loss(weights: Weights) -> Tensor:
        parts = outputs(weights)
        out, dim = torch.cat(parts, dim=1), parts[0].shape[1]
        return reconstruction(out, pairs, non_edges, torch.default_generator, dim=dim)

    values = {name: value.detach().numpy() for name, value in module.named_parameters()}
    parameters = Parameters(values, device="cpu", dtype=torch.float32)
    module.train()
    losses = train(parameters, loss, schedule, progress=progress)
    module.eval()
    with torch.no_grad():
        return outputs(parameters.named)[0].numpy().copy(), losses
