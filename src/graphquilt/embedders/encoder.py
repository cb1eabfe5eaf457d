"""Encoder: the trained weights of a network, which embed other graphs without training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.arrays import AnyArray, FloatArray
from graphquilt.embedders.features import features_of
from graphquilt.errors import FormatError, needs_extra

if TYPE_CHECKING:
    from graphquilt.graph import Graph

__all__ = ["Encoder"]

FORMAT = "graphquilt-encoder"
VERSION = 1


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

    def __repr__(self) -> str:
        layers = ", ".join("×".join(map(str, w.shape)) for w in self.weights.values() if w.ndim == 2)
        return f"Encoder({self.kind}, dim={self.dim}, weights {layers})"

    def __call__(self, graph: Graph, degrees: AnyArray | None = None) -> FloatArray:
        """Embed a graph that has the features the encoder was trained on, (n, dim).

        ``degrees`` (n,) says how many neighbours each node has, itself included, where the graph lacks some of them.
        """
        with needs_extra("an encoder", "torch"):
            import torch
        from graphquilt.embedders.gcn import encode, inputs_of, normalized_adjacency
        from graphquilt.embedders.training import threads

        tensors = {name: torch.as_tensor(np.array(value)) for name, value in self.weights.items()}
        features = features_of(graph, featureless=self.featureless, normalize=self.normalize, name=self.kind)
        with threads(1), torch.no_grad():
            inputs = inputs_of(normalized_adjacency(graph, degrees), features, dtype=tensors["weight0"].dtype)
            return np.array(encode(inputs, tensors)[:, : self.dim].numpy())

    def save(self, path: str | Path) -> None:
        """Write the weights, and the settings needed to apply them, to one safetensors file."""
        with needs_extra("saving an encoder", "torch"):
            from safetensors.numpy import save_file
        settings = {"kind": self.kind, "dim": self.dim, "featureless": self.featureless, "normalize": self.normalize}
        metadata = {"format": FORMAT, "version": str(VERSION), "settings": json.dumps(settings)}
        save_file({name: np.ascontiguousarray(value) for name, value in self.weights.items()}, path, metadata=metadata)

    @classmethod
    def load(cls, path: str | Path) -> Encoder:
        """Read a file that :meth:`save` wrote."""
        with needs_extra("loading an encoder", "torch"):
            from safetensors import SafetensorError, safe_open
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as broken:
            raise FormatError(f"{path} is not a safetensors file: {broken}.") from broken
        if metadata.get("format") != FORMAT:
            raise FormatError(f"{path} holds {len(weights)} arrays but was not written by Encoder.save.")
        if metadata.get("version") != str(VERSION):
            raise FormatError(
                f"{path} has encoder format {metadata.get('version')}; this graphquilt reads format {VERSION}."
            )
        return cls(weights=weights, **json.loads(metadata["settings"]))
