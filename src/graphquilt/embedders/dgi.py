"""DGI: deep graph infomax (Veličković et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphquilt.arrays import FloatArray
from graphquilt.embedders.network import Network
from graphquilt.graph import Graph

if TYPE_CHECKING:
    import torch

    from graphquilt.embedders.gcn import Inputs, Weights
    from graphquilt.embedders.training import Background


@dataclass(frozen=True)
class DGI(Network):
    """Deep graph infomax: one GCN layer with a PReLU, trained to tell the graph from one with shuffled features.

    Takes the parameters of :class:`~graphquilt.embedders.network.Network`. Features that are not negative are divided
    by the sum of their row. A graph without features is an error unless ``featureless`` names a substitute, because
    shuffling identity features means nothing.

    Examples
    --------
    >>> import scipy.sparse as sp
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

    def _loss(
        self,
        graph: Graph,  # noqa: ARG002
        inputs: Inputs,
        generator: torch.Generator,
        background: Background | None,  # noqa: ARG002
    ) -> Callable[[Weights], torch.Tensor]:
        from graphquilt.embedders.training import infomax

        return infomax(inputs, generator)
