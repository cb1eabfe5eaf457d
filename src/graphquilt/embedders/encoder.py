"""Encoder: the trained weights of a network, which embed other graphs without training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, FloatArray
from graphquilt.embedders.features import Features, check_substitute, features_of
from graphquilt.errors import FormatError, InputError, needs_extra

if TYPE_CHECKING:
    from graphquilt.graph import Graph

__all__ = ["Encoder"]

FORMAT = "graphquilt-encoder"
VERSION = 1
SETTINGS = ("kind", "dim", "featureless", "normalize")


@dataclass(frozen=True, eq=False)
class Encoder:
    """Trained GCN weights; calling it embeds a graph.

    Attributes
    ----------
    kind : str
        The class name of the embedder that trained it.
    dim : int
        Columns of the embedding.
    weights : mapping of str to float array
        ``weight0`` (f, h), ``bias0`` (h,), …; the columns of the last layer beyond ``dim`` are not used here.
    featureless : {"identity", "degree"} or None
        The substitute for features that it was trained with.
    normalize : bool
        Whether every row of features is divided by its sum.
    """

    kind: str
    dim: int
    weights: Mapping[str, AnyArray]
    featureless: str | None = None
    normalize: bool = False

    def __post_init__(self) -> None:
        depth = sum(name.startswith("weight") for name in self.weights)
        shapes = {name: np.shape(value) for name, value in self.weights.items()}
        for k in range(max(depth, 1)):
            inner, outer = shapes.get(f"weight{k}", (0, 0)), shapes.get(f"weight{k + 1}")
            fits = len(inner) == 2 and (outer is None or (len(outer) == 2 and outer[0] == inner[1]))
            vectors = (shapes.get(f"bias{k}"), shapes.get(f"slope{k}", inner[1:]))
            if f"weight{k}" not in shapes or not fits or vectors != (inner[1:], inner[1:]):
                raise InputError(
                    f"layer {k} of an encoder does not fit its others; its arrays have the shapes {shapes}."
                )
        kinds = {np.asarray(value).dtype for value in self.weights.values()}
        if len(kinds) != 1 or not kinds <= {np.dtype(np.float32), np.dtype(np.float64)}:
            raise InputError(
                f"the weights of an encoder are all float32 or all float64, not {sorted(map(str, kinds))}."
            )
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
            raise FormatError(
                f"{path} has encoder format {metadata.get('version')}; this graphquilt reads format {VERSION}."
            )
        try:
            settings = json.loads(metadata["settings"])
            return cls(weights=weights, **{name: settings[name] for name in SETTINGS})
        except Exception as error:  # settings may be any text
            reason = str(error) or type(error).__name__
            raise FormatError(f"{path} is not an encoder that can be applied: {reason} Train it again.") from error
