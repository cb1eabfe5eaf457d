"""Other people's methods as embedders: a function, an object with ``fit_transform``, a PyG encoder module."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import FloatArray
from graphquilt.embedders._features import STAND_INS, features_of
from graphquilt.embedders.contract import Fit, check_dim
from graphquilt.errors import InputError, MissingExtraError
from graphquilt.graph import Graph
from graphquilt.linalg.motions import Motions

if TYPE_CHECKING:
    from graphquilt.progress import ProgressCallback

__all__ = ["FunctionEmbedder", "PyGEmbedder", "TransformerEmbedder"]


@dataclass(frozen=True)
class FunctionEmbedder:
    """A plain function ``(graph, seed) -> X`` as an embedder.

    Parameters
    ----------
    function : callable
        Takes a :class:`~graphquilt.Graph` and a seed and returns (n, dim). Define it at the top of a module where
        patches are embedded in other processes: it has to be pickled.
    dim : int
    motions : Motions
        The motions that its answers are free in.

    Examples
    --------
    >>> def degrees(graph, seed):
    ...     return graph.degrees[:, None] / 10
    >>> path = Graph(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> FunctionEmbedder(degrees, 1)(path, 0).tolist()
    [[0.1], [0.2], [0.1]]
    """

    function: Callable[[Graph, int], npt.ArrayLike]
    dim: int
    motions: Motions = Motions()

    def __post_init__(self) -> None:
        check_dim(self.dim, "FunctionEmbedder")

    def __call__(self, graph: Graph, seed: int) -> FloatArray:
        """Return what the function does, (n, dim)."""
        X: FloatArray = np.asarray(self.function(graph, seed))
        return X


@dataclass(frozen=True)
class TransformerEmbedder:
    """An object with ``fit_transform``, as in scikit-learn or scikit-network, as an embedder.

    Each call works on a copy of the object; where it has a ``random_state``, that is set to the seed.

    Parameters
    ----------
    transformer : object
        ``fit_transform(matrix)`` returns (n, dim).
    dim : int, optional
        None reads the object's ``n_components``.
    matrix : callable, optional
        What of the graph it is given, ``(graph) -> matrix``; None means the adjacency as a SciPy CSR matrix.
    motions : Motions
        The motions that its answers are free in.

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

    transformer: Any
    dim: int = 0
    matrix: Callable[[Graph], Any] | None = None
    motions: Motions = Motions()

    def __post_init__(self) -> None:
        name = type(self.transformer).__name__
        if not callable(getattr(self.transformer, "fit_transform", None)):
            raise InputError(f"{name} has no fit_transform; wrap a function in FunctionEmbedder instead.")
        if self.dim == 0:
            object.__setattr__(self, "dim", getattr(self.transformer, "n_components", 0))
        check_dim(self.dim, f"TransformerEmbedder of {name}, which has no n_components,")

    def __call__(self, graph: Graph, seed: int) -> FloatArray:
        """Fit a copy of the object to the graph and return its answer, (n, dim)."""
        mine = copy.deepcopy(self.transformer)
        if hasattr(mine, "random_state"):
            mine.random_state = int(np.random.SeedSequence(seed).generate_state(1)[0])
        given = sp.csr_matrix(graph.adjacency) if self.matrix is None else self.matrix(graph)
        try:
            X: FloatArray = np.asarray(mine.fit_transform(given))
        except ValueError as refused:
            name = type(mine).__name__
            raise InputError(f"{name} cannot embed a graph of {graph.n_nodes} nodes: {refused}") from refused
        return X


@dataclass(frozen=True, eq=False)
class PyGEmbedder:
    """A PyG encoder module, trained as the encoder of a graph auto-encoder.

    Each call trains a copy of the module, with new initial weights where its parts have ``reset_parameters``.

    Parameters
    ----------
    module : torch.nn.Module
        ``module(x, edge_index)`` returns Z (n, dim) or, for a variational auto-encoder, the mean and the logarithm of
        the standard deviation, each (n, dim).
    dim : int
    lr, max_epochs, patience, weight_decay
        As in :class:`~graphquilt.VGAE`.
    featureless : {"identity", "degree"} or None
        What stands in for the features of a graph that has none.
    motions : Motions
        The motions that its answers are free in.
    """

    module: Any
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
        if self.featureless not in (None, *STAND_INS):
            raise InputError(f"featureless of PyGEmbedder is one of {STAND_INS} or None, not {self.featureless!r}.")

    def __call__(self, graph: Graph, seed: int) -> FloatArray:
        """Train on the graph and return its embedding, (n, dim)."""
        return self.fit(graph, seed).embedding

    def fit(self, graph: Graph, seed: int, progress: ProgressCallback | None = None) -> Fit:
        """Train a copy of the module on the graph; there is no encoder in the answer."""
        try:
            import torch
        except ImportError as missing:
            raise MissingExtraError("PyGEmbedder", "pyg") from missing
        from graphquilt.embedders._fit import Schedule, threads
        from graphquilt.embedders._module import train_module

        features = features_of(graph, featureless=self.featureless, normalize=False, name="PyGEmbedder")
        if features is None:
            features = sp.eye_array(graph.n_nodes, format="csr")
        schedule = Schedule(self.lr, self.max_epochs, self.patience, self.weight_decay)
        # The module may draw from torch's global generator (dropout, initial weights): it gets a seeded one to itself.
        with threads(1), torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> np.uint64(1)))
            X, losses = train_module(copy.deepcopy(self.module), graph, features, schedule, progress)
        return Fit(X, losses)
