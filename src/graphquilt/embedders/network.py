"""The fields that VGAE, GAE and DGI share, and the steps of their training."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphquilt.arrays import AnyArray, FloatArray
from graphquilt.embedders.contract import Fit, check_dim
from graphquilt.embedders.encoder import Encoder
from graphquilt.embedders.features import Features, check_substitute, features_of
from graphquilt.errors import InputError, needs_extra
from graphquilt.linalg.motions import Motions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import torch

    from graphquilt.embedders.gcn import Inputs
    from graphquilt.embedders.losses import Background, Task
    from graphquilt.graph import Graph
    from graphquilt.progress import ProgressCallback

__all__ = ["Network"]


@dataclass(frozen=True)
class Network:
    """A graph network that is trained on the graph it embeds; use VGAE, GAE or DGI.

    Parameters
    ----------
    dim : int
        Columns of the embedding.
    hidden : int, optional
        Width of the layers before the last; None means 4 ``dim``.
    layers : int
        Number of GCN layers.
    lr, max_epochs, patience, weight_decay : float, int, int, float
        Adam's learning rate; the largest number of epochs; the number of epochs without a lower loss after which the
        training ends (the best weights are used); Adam's penalty on the weights.
    dropout : float
        Share of hidden values set to 0 in training.
    restarts : int
        Number of trainings from different random starts; the one with the best reconstruction AUC is returned.
    init_seed : int, optional
        Seed of the initial weights; None derives it from the seed of the call. With a number, all patches with equally
        many features start from the same weights.
    featureless : {"identity", "degree"} or None
        The substitute for the features of a graph that has none: one free vector per node, or a code of the degree.
    device : str
        "cpu", "cuda", "cuda:1", "mps".
    dtype : {"float32", "float64"}
    threads : int or None
        CPU threads of torch. The default is 1: patches are embedded in parallel, and the result does not depend on
        the number of cores. None does not change the setting of torch.
    motions : Motions
        The motions by which several trainings on one graph differ, which alignment has to undo.
    """

    dim: int
    _: KW_ONLY
    hidden: int | None = None
    layers: int = 2
    lr: float = 1e-3
    max_epochs: int = 10_000
    patience: int = 20
    weight_decay: float = 0.0
    dropout: float = 0.0
    restarts: int = 1
    init_seed: int | None = None
    featureless: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = 1
    motions: Motions = Motions()
    _smooth: ClassVar[bool] = True  # whether Â X may be computed once, before training
    _outputs: ClassVar[int] = 1  # arrays (n, dim) that the last layer returns
    _normalize: ClassVar[bool] = False  # whether rows of features are divided by their sum

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_dim(self.dim, name)
        for field in ("layers", "max_epochs", "patience", "restarts", "hidden"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise InputError(f"{field} of {name} must be at least 1, not {value}.")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise InputError(f"lr of {name} must be a positive number, not {self.lr}; the paper uses 0.001.")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout of {name} is a share from 0 to below 1, not {self.dropout}.")
        if self.weight_decay < 0:
            raise InputError(f"weight_decay of {name} must not be negative; it is {self.weight_decay}.")
        check_substitute(self.featureless, name)
        if self.dtype not in {"float32", "float64"}:
            raise InputError(f"dtype of {name} is 'float32' or 'float64', not {self.dtype!r}.")

    def __call__(self, graph: Graph, seed: int) -> FloatArray:
        """Train on the graph and return its embedding, (n, dim)."""
        return self.fit(graph, seed).embedding

    def fit(self, graph: Graph, seed: int, progress: ProgressCallback | None = None) -> Fit:
        """Train on the graph; return the embedding (n, dim), the loss of each epoch, and the encoder.

        ``progress`` is called after every epoch with its loss; an exception that it raises ends the training.
        """
        name = type(self).__name__
        with needs_extra(name, "torch"):
            import torch  # noqa: F401
        from graphquilt.embedders.training import device_for, out_of_memory_explained, threads

        if graph.n_nodes == 0:
            raise InputError(f"{name} was given a graph without nodes; there is nothing to embed.")
        device = device_for(self.device)
        features = features_of(graph, featureless=self.featureless, normalize=self._normalize, name=name)
        width = graph.n_nodes if features is None else int(features.shape[1])
        with threads(self.threads), out_of_memory_explained(graph.n_nodes, width, self._hidden, device):
            seeds = np.random.SeedSequence(seed).spawn(self.restarts)
            fits = (self._train(graph, features, child, progress) for child in seeds)
            return next(fits) if self.restarts == 1 else self._best(graph, fits, seed)

    @property
    def _hidden(self) -> int:
        return 4 * self.dim if self.hidden is None else self.hidden

    def _initial(self, width: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Return the initial weights for ``width`` features, uniform as in Glorot and Bengio (2010)."""
        widths = [width, *[self._hidden] * (self.layers - 1), self.dim]
        weights: dict[str, FloatArray] = {}
        for layer, (rows, columns) in enumerate(pairwise(widths)):
            limit = math.sqrt(6 / (rows + columns))
            # The outputs of the last layer start as separate layers.
            count = self._outputs if layer == self.layers - 1 else 1
            parts = [rng.uniform(-limit, limit, (rows, columns)) for _ in range(count)]
            weights[f"weight{layer}"] = np.concatenate(parts, axis=1)
            weights[f"bias{layer}"] = np.zeros(columns * count)
        return weights

    def _task(
        self,
        graph: Graph,
        inputs: Callable[[Graph], Inputs],
        generator: torch.Generator,
        background: Background | None = None,
    ) -> Task:
        """Return the loss to minimise on the graph; ``inputs`` prepares a graph for the network."""
        raise NotImplementedError

    def _train(
        self,
        graph: Graph,
        features: Features | None,
        seeds: np.random.SeedSequence,
        progress: ProgressCallback | None = None,
        *,
        initial: Mapping[str, AnyArray] | None = None,
        background: Background | None = None,
        max_epochs: int | None = None,
    ) -> Fit:
        """Train from the initial weights, which are random by default."""
        import torch

        from graphquilt.embedders.gcn import encode, inputs_of, normalized_adjacency
        from graphquilt.embedders.training import Parameters, Schedule, train

        dtype = getattr(torch, self.dtype)
        first, second = (int(state) for state in seeds.generate_state(2, np.uint64) >> np.uint64(1))
        rng = np.random.default_rng(first if self.init_seed is None else self.init_seed)
        width = graph.n_nodes if features is None else int(features.shape[1])
        initial = self._initial(width, rng) if initial is None else initial
        parameters = Parameters(initial, device=self.device, dtype=dtype)

        prepared: list[Inputs] = []

        def inputs(training_graph: Graph) -> Inputs:
            A = normalized_adjacency(training_graph)
            prepared.append(inputs_of(A, features, smooth=self._smooth, device=self.device, dtype=dtype))
            return prepared[-1]

        try:
            task = self._task(graph, inputs, torch.Generator().manual_seed(second), background)
            schedule = Schedule(self.lr, max_epochs or self.max_epochs, self.patience, self.weight_decay)
            losses = train(parameters, task.loss, schedule, watch=task.watch, progress=progress)
            whole = task.inputs if task.watch is None else inputs(graph)
            with torch.no_grad():
                weights = parameters.views(parameters.flat.cpu().clone())
                X = encode(whole, parameters.named)[:, : self.dim].cpu().numpy().copy()
        finally:
            for whole in prepared:
                whole.space.clear()
        substitute = self.featureless if graph.features is None else None
        arrays = {name: value.numpy() for name, value in weights.items()}
        return Fit(X, losses, Encoder(type(self).__name__, self.dim, arrays, substitute, self._normalize))

    def _best(self, graph: Graph, fits: Iterable[Fit], seed: int) -> Fit:
        """Return the fit whose inner products separate edges best from as many sampled non-edges."""
        import torch

        from graphquilt.embedders.pairs import NonEdges, area_under_curve, undirected_edges

        edges = undirected_edges(graph)
        generator = torch.Generator().manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
        others = NonEdges(edges, graph.n_nodes).sample(edges.shape[1], generator).numpy()
        return max(fits, key=lambda fit: area_under_curve(fit.embedding, edges, others))
