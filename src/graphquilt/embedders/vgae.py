"""Graph networks that are trained: VGAE and GAE (Kipf and Welling 2016), and DGI (Veličković et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float64Array, FloatArray
from graphquilt.embedders import shared_encoder as shared
from graphquilt.embedders.contract import Fit, Hook
from graphquilt.embedders.network import Encoder, Features, Network
from graphquilt.embedders.shared_start import Arrays, FarField, Survey, check_clusters
from graphquilt.errors import InputError, needs_extra
from graphquilt.graph import Graph
from graphquilt.linalg import Motions
from graphquilt.patches import CoarseGraph

if TYPE_CHECKING:
    import torch

    from graphquilt.embedders.gcn import Inputs, Loss, Weights
    from graphquilt.embedders.training import Background

# Of the training that resumes from a shared start: encoders that are averaged must not move far apart, and classify
# better if large weights are penalised; those that are not reconstruct edges better the longer they are trained.
_EPOCHS, _OWN_EPOCHS = 120, 200  # at most, with blend 0 and with any other
# The seed encoder is the best of three after 100 epochs, and is then trained with three times the patience: all patches
# depend on it, and the loss on a few ego nets changes more by chance than that on a graph.
_SEEDS, _TRIAL, _PATIENCE = 3, 100, 3
_DECAY = 2e-3  # Adam's penalty on the weights with blend 0, where the embedder has none
_WORDS = 20  # the squared length of feature rows from which on the penalty is whole: that of a bag of 20 words


@dataclass(frozen=True)
class GAE(Network):
    """A graph auto-encoder: two GCN layers, trained to tell edges from non-edges by inner products.

    Takes the parameters of :class:`~graphquilt.embedders.network.Network`, and:

    Parameters
    ----------
    negatives : int
        Non-edges sampled for each edge and direction; the paper's protocol is 1.
    blend : float
        With a shared start: 0 embeds all patches by the average of their encoders, which classifies best, 1 each by its
        own, and values between by a mixture; 0.75 reconstructs edges best. Training resumes from the start for at most
        120 epochs with 0 and 200 otherwise. With 0 and without ``weight_decay`` there is a penalty of at most 0.002.
    start : mapping, optional
        The shared start, which :meth:`combine` makes.

    Notes
    -----
    The loss is the mean of -log σ(z_u·z_v) over the edges plus the mean of -log(1 - σ(z_u·z_v)) over sampled
    non-edges, which are new in every epoch. A graph without edges gets the coordinates of the initial weights.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1]))
    >>> GAE(2, max_epochs=5)(path, 0).shape
    (10, 2)
    """

    featureless: str | None = "identity"
    _: KW_ONLY
    blend: float = 0.0
    start: Mapping[str, AnyArray] | None = field(default=None, compare=False, repr=False)
    # Differs from the paper: twice as many non-edges. Their mean is the same and has half the variance; with as many
    # non-edges as edges, a training that stops by chance after 150 epochs costs a point of AUC on Cora.
    negatives: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        if self.negatives < 1:
            raise InputError(f"negatives of {name} must be at least 1, not {self.negatives}.")
        if not 0 <= self.blend <= 1:
            raise InputError(f"blend of {name} is a number from 0 to 1, not {self.blend}.")

    @property
    def motions_started(self) -> Motions:
        """One encoder for all leaves nothing free; separate encoders leave a small rotation."""
        return Motions(rotate=self.blend > 0, translate=False)

    @property
    def complete(self) -> bool:
        """Whether there is a seed encoder and, unless ``blend`` is 1, the average of all encoders."""
        return self.start is not None and (self.blend == 1 or int(self.start["step"]) == 2)

    def starts_on(self, graph: Graph) -> bool:
        """Return whether patches of this graph can share an encoder: features must mean the same in each."""
        return self.featureless == "degree" or (graph.features is not None and graph.features.shape[1] > 0)

    def survey(self, graph: Graph, seed: int, *, clusters: CoarseGraph | None = None, cut: bool = True) -> Survey:  # noqa: ARG002
        """Return the degree of every node in the whole graph, with its loop, and the graph between far clusters."""
        with needs_extra(type(self).__name__, "torch"):
            from graphquilt.embedders.gcn import adjacency_with_loops

        A = adjacency_with_loops(graph)
        degree = np.asarray(A.sum(axis=1), dtype=np.float64).ravel()
        nodes: dict[str, AnyArray] = {"degree": degree.astype(np.float32)}
        if clusters is None or not cut:
            return Survey(nodes)
        check_clusters(clusters, graph.undirected())
        far = clusters.clusters
        return Survey({**nodes, "cluster": far}, shared.far_clusters(A, degree, self._shared_features(graph), far))

    def prepare(self, graph: Graph, seed: int, *, far: FarField | None = None) -> dict[str, AnyArray]:
        """Return some ego nets of a patch, and in the second round the encoder that was trained on it."""
        features = self._shared_features(graph)
        if self.start is None:
            n_nodes = graph.n_nodes if far is None else far.n_nodes
            return shared.sample_of(graph, shared.ego_nets(graph, seed, n_nodes=n_nodes), features)
        weights, losses = self._resume(graph, seed, far)
        return {**weights, "counts": shared.feature_counts(features), "losses": losses}

    def contribute(self, kept: Arrays) -> dict[str, AnyArray]:
        """Return the ego nets, or the weights of the encoder as whole numbers, those of each feature by its count."""
        if self.start is None:
            return {name: np.asarray(values) for name, values in kept.items()}
        return shared.weight_sums(kept, self._names)

    def add(self, total: Arrays | None, arrays: Arrays) -> dict[str, AnyArray]:
        """Return all ego nets as one graph, or the sum of weights."""
        if total is None:
            return dict(arrays)
        return shared.add_samples(total, arrays) if self.start is None else shared.add_weights(total, arrays)

    def combine(self, total: Arrays, seed: int) -> Self:
        """Return the embedder with an encoder trained on all ego nets, or with the average of the encoders."""
        if self.start is None:
            sample = shared.sample_graph(total)
            decay = self._decay(sample)
            fit = self._seed_encoder(sample, seed, decay)
            assert isinstance(fit.encoder, Encoder)
            first = {f"seed_{name}": np.asarray(value) for name, value in fit.encoder.weights.items()}
            facts = {"sample": fit.embedding, "decay": np.array(decay), "step": np.array(1)}
            return replace(self, start={**first, **facts})
        after = {f"mean_{name}": value for name, value in shared.average(total, self._names, self.dtype).items()}
        return replace(self, start={**self.start, **after, "step": np.array(2)})

    def fit(
        self, graph: Graph, seed: int, progress: Hook = None, *, far: FarField | None = None, kept: Arrays | None = None
    ) -> Fit:
        """Train on the graph; with a shared start, resume from it and see the far clusters around the patch."""
        if self.start is None:
            return super().fit(graph, seed, progress)
        losses = np.asarray((kept or {}).get("losses", np.empty(0)))  # of the training in the last round
        weights = self._of_start("mean")
        if self.blend > 0:
            own_weights = kept
            if own_weights is None or "weight0" not in own_weights:
                own_weights, losses = self._resume(graph, seed, far, progress)
            weights = weights or dict(own_weights)
            weights = {name: mean + self.blend * (own_weights[name] - mean) for name, mean in weights.items()}
        return Fit(self._encode(graph, weights, far)[: graph.n_nodes], losses, self._encoder(graph, weights))

    def finish(self, kept: Arrays) -> Fit | None:  # noqa: ARG002
        """Return None: a patch is embedded with its graph."""
        return None

    def _encode(self, graph: Graph, weights: Mapping[str, AnyArray], far: FarField | None) -> FloatArray:
        """Return the positions of the nodes of a patch, and of its far clusters after them."""
        encoder = self._encoder(graph, weights)
        if far is None or "degree" not in far.nodes:
            return encoder(graph)
        return encoder.encode(*shared.with_far_clusters(graph, far, self._shared_features(graph)))

    def _seed_encoder(self, sample: Graph, seed: int, decay: float) -> Fit:
        """Train several encoders on the sample for a while, and the best of them to the end, with more patience."""
        from graphquilt.embedders.training import reconstruction_score

        epochs = min(self.max_epochs, _TRIAL)
        own = replace(self, featureless=None, weight_decay=decay, max_epochs=epochs)
        features = own._features(sample)
        trials = (own._train(sample, features, child) for child in np.random.SeedSequence(seed).spawn(_SEEDS))
        best = max(trials, key=lambda fit: reconstruction_score(sample, fit.embedding, seed))
        if epochs == self.max_epochs:
            return best
        assert isinstance(best.encoder, Encoder)
        patient = replace(own, patience=_PATIENCE * self.patience, max_epochs=self.max_epochs - epochs)
        return patient._train(sample, features, np.random.SeedSequence(seed), initial=best.encoder.weights)

    def _decay(self, sample: Graph) -> float:
        """Return the penalty on the weights, which grows with the features, as the weights shrink with them."""
        X = sample.features
        assert isinstance(X, sp.csr_array)
        length = float(np.square(X.data, dtype=np.float64).sum()) / max(sample.n_nodes, 1)
        return self.weight_decay or (0.0 if self.blend else _DECAY * min(1.0, length / _WORDS))

    @property
    def _names(self) -> list[str]:
        return [f"{part}{layer}" for layer in range(self.layers) for part in ("weight", "bias")]

    def _of_start(self, part: str) -> dict[str, AnyArray]:
        """Return the weights of an encoder in the start: "seed" or "mean"."""
        start = self.start or {}
        return {name: np.asarray(start[f"{part}_{name}"]) for name in self._names if f"{part}_{name}" in start}

    def _shared_features(self, graph: Graph) -> Features:
        features = self._features(graph)
        if features is None:
            raise InputError(
                f"the graph has no features, and without them {type(self).__name__} trains a vector per node, which "
                "other patches do not have. Leave the shared start out (Recipe(start=False)), or use "
                "featureless='degree'."
            )
        return features

    def _resume(
        self, graph: Graph, seed: int, far: FarField | None, progress: Hook = None
    ) -> tuple[dict[str, AnyArray], Float64Array]:
        """Train on a patch from the seed encoder; return the weights and the losses."""
        from graphquilt.embedders.training import Background

        assert self.start is not None
        n, features, first = graph.n_nodes, self._shared_features(graph), self._of_start("seed")
        places = self._encode(graph, first, far)[n:]
        leaving = np.empty((2, 0), dtype=np.int64)
        if far is not None and len(places):
            leaving = np.stack([np.repeat(np.arange(n), np.diff(far.indptr)), np.asarray(far.clusters, dtype=np.int64)])
        outside = np.concatenate([places, np.asarray(self.start["sample"])])
        epochs = min(self.max_epochs, _OWN_EPOCHS if self.blend else _EPOCHS)
        resumed = replace(self, weight_decay=float(self.start.get("decay", self.weight_decay)), max_epochs=epochs)
        background = Background(outside, leaving, len(places), n / max(n if far is None else far.n_nodes, 1))
        seeds = np.random.SeedSequence(seed)
        fit = resumed._train(graph, features, seeds, progress, initial=first, background=background)
        assert isinstance(fit.encoder, Encoder)
        return dict(fit.encoder.weights), fit.losses

    def _loss(self, graph: Graph, inputs: Inputs, generator: torch.Generator, background: Background | None) -> Loss:
        import torch

        from graphquilt.embedders.gcn import encode
        from graphquilt.embedders.training import NonEdges, reconstruction, undirected_edges

        pairs = undirected_edges(graph)
        non_edges, edges = NonEdges(pairs, graph.n_nodes), torch.as_tensor(pairs).to(self.device)
        if background is not None:
            background = background.on(self.device, getattr(torch, self.dtype))
            edges = background.edges(edges, graph.n_nodes)

        def loss(weights: Weights) -> torch.Tensor:
            out, options = encode(inputs, weights), {"dim": self.dim, "negatives": self.negatives}
            return reconstruction(out, edges, non_edges, generator, **options, background=background)

        return loss


@dataclass(frozen=True)
class VGAE(GAE):
    """A variational graph auto-encoder with the parameters of :class:`GAE`; the embedding is the mean.

    Notes
    -----
    The loss is that of :class:`GAE` on a sample of N(mean, std²), plus the divergence from N(0, 1) averaged over nodes
    and divided by their number once more. The logarithm of std is limited to 10.

    Examples
    --------
    >>> path = Graph(sp.diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1]))
    >>> VGAE(2, max_epochs=5).fit(path, 0).losses.shape
    (5,)
    """

    _outputs: ClassVar[int] = 2  # the mean and the logarithm of the standard deviation


@dataclass(frozen=True)
class DGI(Network):
    """Deep graph infomax: one GCN layer with a PReLU, trained to tell the graph from one with shuffled features.

    Takes the parameters of :class:`~graphquilt.embedders.network.Network`. Features that are not negative are divided
    by the sum of their row. A graph without features is an error unless ``featureless`` names a substitute.

    Examples
    --------
    >>> path = Graph(sp.diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1]), np.eye(10))
    >>> DGI(3, max_epochs=5)(path, 0).shape
    (10, 3)
    """

    layers: int = 1
    _smooth: ClassVar[bool] = False
    _normalize: ClassVar[bool] = True

    def _initial(self, width: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        weights = super()._initial(width, rng)
        for layer in range(self.layers):
            weights[f"slope{layer}"] = np.full(len(weights[f"bias{layer}"]), 0.25)
        limit = 1 / math.sqrt(self.dim)
        weights["discriminator"] = rng.uniform(-limit, limit, (self.dim, self.dim))
        return weights

    def _loss(self, graph: Graph, inputs: Inputs, generator: torch.Generator, background: Background | None) -> Loss:  # noqa: ARG002
        from graphquilt.embedders.training import infomax

        return infomax(inputs, generator)
