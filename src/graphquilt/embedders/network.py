"""Network: the parameters and the training that VGAE, GAE and DGI share; Encoder: its trained weights."""

from __future__ import annotations

import json
import math
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, FloatArray
from graphquilt.embedders.contract import Fit, Hook, check_dim
from graphquilt.errors import FormatError, InputError, needs_extra
from graphquilt.graph import Graph
from graphquilt.linalg import Motions

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from graphquilt.embedders.gcn import Inputs, Loss
    from graphquilt.embedders.training import Background

Features: TypeAlias = AnyArray | sp.csr_array
SUBSTITUTES = ("identity", "degree")
DEGREE_BUCKETS = 32
FORMAT = "graphquilt-encoder"
VERSION = 1
SETTINGS = ("kind", "dim", "featureless", "normalize")


@dataclass(frozen=True)
class Network:
    """A graph network that is trained on the graph it embeds; use VGAE, GAE or DGI.

    Parameters
    ----------
    hidden : int, optional
        Width of the layers before the last, by default 4 ``dim``.
    layers : int
        Number of GCN layers.
    lr, weight_decay : float
        Adam's learning rate and its penalty on the weights.
    max_epochs, patience : int
        Training ends after ``max_epochs``, or ``patience`` epochs without a lower loss; the best weights are used.
    init_seed : int, optional
        Seed of the initial weights, equal for patches with equally many features; None takes the seed of the call.
    featureless : {"identity", "degree"} or None
        The substitute for the features of a graph that has none: one free vector per node, or a code of the degree.
    device : str
        "cpu", "cuda", "cuda:1".
    threads : int or None
        CPU threads of torch: 1, because patches are embedded in parallel. None does not change the setting of torch.
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
        for field in ("layers", "max_epochs", "patience", "hidden"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise InputError(f"{field} of {name} must be at least 1, not {value}.")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise InputError(f"lr of {name} must be a positive number, not {self.lr}; the paper uses 0.001.")
        if self.weight_decay < 0:
            raise InputError(f"weight_decay of {name} must not be negative; it is {self.weight_decay}.")
        check_substitute(self.featureless, name)
        if self.dtype not in {"float32", "float64"}:
            raise InputError(f"dtype of {name} is 'float32' or 'float64', not {self.dtype!r}.")

    def __call__(self, graph: Graph, seed: int) -> FloatArray:
        """Train on the graph and return its embedding, (n, dim)."""
        return self.fit(graph, seed).embedding

    def fit(self, graph: Graph, seed: int, progress: Hook = None) -> Fit:
        """Train on the graph; return the embedding (n, dim), the loss of each epoch, and the encoder."""
        name = type(self).__name__
        with needs_extra(name, "torch"):
            import torch  # noqa: F401
        if graph.n_nodes == 0:
            raise InputError(f"{name} was given a graph without nodes; there is nothing to embed.")
        return self._train(graph, self._features(graph), np.random.SeedSequence(seed).spawn(1)[0], progress)

    def _features(self, graph: Graph) -> Features | None:
        return features_of(graph, featureless=self.featureless, normalize=self._normalize, name=type(self).__name__)

    @property
    def _hidden(self) -> int:
        return 4 * self.dim if self.hidden is None else self.hidden

    def _initial(self, width: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Return the initial weights for ``width`` features, uniform as in Glorot and Bengio (2010)."""
        widths, weights = [width, *[self._hidden] * (self.layers - 1), self.dim], dict[str, FloatArray]()
        for layer, (rows, columns) in enumerate(pairwise(widths)):
            limit = math.sqrt(6 / (rows + columns))
            count = self._outputs if layer == self.layers - 1 else 1  # which start as separate layers
            parts = [rng.uniform(-limit, limit, (rows, columns)) for _ in range(count)]
            weights |= {f"weight{layer}": np.concatenate(parts, axis=1), f"bias{layer}": np.zeros(columns * count)}
        return weights

    def _loss(self, graph: Graph, inputs: Inputs, generator: torch.Generator, background: Background | None) -> Loss:
        """Return the loss to minimise on the graph, as a function of the weights."""
        raise NotImplementedError

    def _train(
        self,
        graph: Graph,
        features: Features | None,
        seeds: np.random.SeedSequence,
        progress: Hook = None,
        *,
        initial: Mapping[str, AnyArray] | None = None,
        background: Background | None = None,
    ) -> Fit:
        """Train from the initial weights, which are random by default."""
        import torch

        from graphquilt.embedders.gcn import encode, inputs_of, normalized_adjacency
        from graphquilt.embedders.training import Parameters, session, train

        dtype, width = getattr(torch, self.dtype), graph.n_nodes if features is None else int(features.shape[1])
        first, second = (int(state) for state in seeds.generate_state(2, np.uint64) >> np.uint64(1))
        if initial is None:
            initial = self._initial(width, np.random.default_rng(first if self.init_seed is None else self.init_seed))
        with session(self.device, self.threads, f"{graph.n_nodes} nodes, {width} features and {self._hidden} hidden"):
            parameters, A = Parameters(initial, device=self.device, dtype=dtype), normalized_adjacency(graph)
            inputs = inputs_of(A, features, smooth=self._smooth, device=self.device, dtype=dtype)
            loss = self._loss(graph, inputs, torch.Generator().manual_seed(second), background)
            losses = train(parameters, loss, self, progress=progress)
            with torch.no_grad():
                weights = parameters.views(parameters.flat.cpu().clone())
                X = encode(inputs, parameters.named)[:, : self.dim].cpu().numpy().copy()
        return Fit(X, losses, self._encoder(graph, {name: value.numpy() for name, value in weights.items()}))

    def _encoder(self, graph: Graph, weights: Mapping[str, AnyArray]) -> Encoder:
        substitute = self.featureless if graph.features is None else None
        return Encoder(type(self).__name__, self.dim, weights, substitute, self._normalize)


@dataclass(frozen=True, eq=False)
class Encoder:
    """Trained GCN weights; calling it embeds a graph."""

    kind: str  # the class name of the embedder that trained it
    dim: int
    # ``weight0`` (f, h), ``bias0`` (h,), …; the columns of the last layer beyond ``dim`` are not used here
    weights: Mapping[str, AnyArray]
    featureless: str | None = None  # {"identity", "degree"}: the substitute for features that it was trained with
    normalize: bool = False  # whether every row of features is divided by its sum

    def __post_init__(self) -> None:
        depth = sum(name.startswith("weight") for name in self.weights)
        shapes = {name: np.shape(value) for name, value in self.weights.items()}
        for k in range(max(depth, 1)):
            inner, outer = shapes.get(f"weight{k}", (0, 0)), shapes.get(f"weight{k + 1}")
            fits = len(inner) == 2 and (outer is None or (len(outer) == 2 and outer[0] == inner[1]))
            vectors = (shapes.get(f"bias{k}"), shapes.get(f"slope{k}", inner[1:]))
            if f"weight{k}" not in shapes or not fits or vectors != (inner[1:], inner[1:]):
                raise InputError(f"layer {k} of an encoder does not fit the others; its arrays have shapes {shapes}.")
        kinds = {np.asarray(value).dtype for value in self.weights.values()}
        if len(kinds) != 1 or not kinds <= {np.dtype(np.float32), np.dtype(np.float64)}:
            raise InputError(f"the weights of an encoder are all float32 or float64, not {sorted(map(str, kinds))}.")
        width = shapes[f"weight{depth - 1}"][1]
        if not isinstance(self.dim, int | np.integer) or not 1 <= self.dim <= width:
            raise InputError(f"an encoder with {width} outputs has 1 to {width} dimensions, not {self.dim!r:.50}.")
        if type(self.kind) is not str or type(self.normalize) is not bool:
            raise InputError("an encoder has the name of its embedder as kind, and normalize is True or False.")
        check_substitute(self.featureless, "an encoder")

    def __repr__(self) -> str:
        layers = ", ".join("×".join(map(str, w.shape)) for w in self.weights.values() if w.ndim == 2)
        return f"Encoder({self.kind}, dim={self.dim}, weights {layers})"

    def __call__(self, graph: Graph) -> FloatArray:
        """Embed a graph that has the features the encoder was trained on, (n, dim)."""
        with needs_extra("an encoder", "torch"):
            from graphquilt.embedders.gcn import normalized_adjacency

        features = features_of(graph, featureless=self.featureless, normalize=self.normalize, name=self.kind)
        return self.encode(normalized_adjacency(graph), features)

    def encode(self, A: sp.csr_array, features: Features | None) -> FloatArray:
        """Embed nodes with these features by a normalised adjacency matrix, which need not be symmetric, (n, dim)."""
        with needs_extra("an encoder", "torch"):
            import torch
        from graphquilt.embedders.gcn import encode, inputs_of
        from graphquilt.embedders.training import threads

        tensors = {name: torch.as_tensor(np.array(value)) for name, value in self.weights.items()}
        with threads(1), torch.no_grad():
            inputs = inputs_of(A, features, dtype=tensors["weight0"].dtype)
            return np.array(encode(inputs, tensors)[:, : self.dim].numpy())

    def save(self, path: str | Path) -> None:
        """Write the weights, and the settings needed to apply them, to one safetensors file."""
        with needs_extra("saving an encoder", "torch"):
            from safetensors.numpy import save_file
        settings = {name: getattr(self, name) for name in SETTINGS}
        metadata = {"format": FORMAT, "version": str(VERSION), "settings": json.dumps(settings)}
        save_file({name: np.ascontiguousarray(value) for name, value in self.weights.items()}, path, metadata=metadata)

    @classmethod
    def load(cls, path: str | Path) -> Encoder:
        """Read a file that :meth:`save` wrote."""
        with needs_extra("loading an encoder", "torch"):
            from safetensors import safe_open
        if Path(path).exists() and not Path(path).is_file():
            raise FormatError(f"{path} is not a regular file; name the file that Encoder.save wrote.")
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except OSError:
            raise
        except Exception as broken:  # SafetensorError, or whatever NumPy says of a type that it does not have
            raise FormatError(f"{path} is not a safetensors file: {broken}. Train it again.") from broken
        if metadata.get("format") != FORMAT:
            raise FormatError(f"{path} holds {len(weights)} arrays but was not written by Encoder.save.")
        if metadata.get("version") != str(VERSION):
            raise FormatError(f"{path} has encoder format {metadata.get('version')}; graphquilt reads {VERSION}.")
        try:
            settings = json.loads(metadata["settings"])
            return cls(weights=weights, **{name: settings[name] for name in SETTINGS})
        except Exception as error:  # settings may be any text
            reason = str(error) or type(error).__name__
            raise FormatError(f"{path} is not an encoder that can be applied: {reason} Train it again.") from error


def check_substitute(featureless: str | None, name: str) -> None:
    """Refuse a value of ``featureless`` that is neither None nor the name of a substitute."""
    if featureless not in (None, *SUBSTITUTES):
        raise InputError(f"featureless of {name} is one of {SUBSTITUTES} or None, not {featureless!r}.")


def degree_features(graph: Graph) -> sp.csr_array:
    """Return log(1 + degree) and a one-hot code of its binary order of magnitude, (n, 33), as wide for any graph."""
    degrees, n = graph.degrees, graph.n_nodes
    bucket = np.minimum(np.frexp(degrees.astype(np.float64))[1], DEGREE_BUCKETS - 1)
    data = np.column_stack([np.log1p(degrees), np.ones(n)]).astype(np.float32).ravel()
    columns = np.column_stack([np.zeros(n, dtype=np.int32), 1 + bucket.astype(np.int32)]).ravel()
    return sp.csr_array((data, columns, np.arange(0, 2 * n + 1, 2)), shape=(n, 1 + DEGREE_BUCKETS))


def features_of(graph: Graph, *, featureless: str | None, normalize: bool, name: str) -> Features | None:
    """Return the features to train on, (n, f) dense or CSR, or None for the identity; ``name`` is that of the embedder.

    A graph without features gets a substitute. ``normalize`` divides every row by its sum, if no value is negative.
    """
    source = graph.features
    if source is None or source.shape[1] == 0:
        if featureless is None:
            raise InputError(
                f"{name} needs node features and the graph of {graph.n_nodes} nodes has none. Choose a substitute: "
                f"{name}(..., featureless='degree'), or featureless='identity' for one free vector per node."
            )
        if featureless == "identity":
            return None
        source = degree_features(graph)
    features: Features = sp.csr_array(source) if sp.issparse(source) else np.asarray(source)
    values: AnyArray = features.data if isinstance(features, sp.csr_array) else features
    if not bool(np.isfinite(values).all()):
        entries = sp.coo_array(features)
        rows = np.unique(entries.row[~np.isfinite(entries.data)])
        raise InputError(
            f"the features of {len(rows)} of {graph.n_nodes} nodes are not finite, the first is node {int(rows[0])}; "
            "replace those values, for example by the mean of their column."
        )
    if not np.issubdtype(values.dtype, np.floating) or values.dtype.itemsize < 4:
        features = features.astype(np.float32)
    if not normalize or (values.size and float(values.min()) < 0):
        return features
    total = np.asarray(features.sum(axis=1)).ravel()
    scale = 1 / np.where(total > 0, total, 1)
    if isinstance(features, sp.csr_array):
        return sp.csr_array(sp.diags_array(scale) @ features)
    return features * scale[:, None]
