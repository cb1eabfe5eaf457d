"""DGI: deep graph infomax (Veličković et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.embedders.network import FloatArray, Network, glorot
from graphquilt.graph import Graph

if TYPE_CHECKING:
    import torch

    from graphquilt.embedders._gcn import Inputs
    from graphquilt.embedders._tasks import Task
    from graphquilt.embedders.contract import Target

__all__ = ["DGI"]


@dataclass(frozen=True)
class DGI(Network):
    """Deep graph infomax: one GCN layer with a PReLU, trained to tell the graph from one with shuffled features.

    Takes the parameters of :class:`~graphquilt.embedders.network.Network`. Features that are not negative are divided
    by the sum of their row. A graph without features is an error unless ``featureless`` says what to do: with identity
    features there is nothing to shuffle that would mean anything, so the choice is left to you.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1]), np.eye(10))
    >>> DGI(3, max_epochs=5)(path, 0).shape
    (10, 3)
    """

    layers: int = 1

    @property
    def _normalize(self) -> bool:
        return True

    @property
    def _smooth(self) -> bool:
        return False

    def _initial(self, width: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        widths = [width, *[self._hidden] * (self.layers - 1), self.dim]
        weights: dict[str, FloatArray] = {}
        for layer in range(self.layers):
            rows, columns = widths[layer], widths[layer + 1]
            weights[f"weight{layer}"] = glorot(rng, rows, columns)
            weights[f"bias{layer}"] = np.zeros(columns)
            weights[f"slope{layer}"] = np.full(columns, 0.25)
        limit = 1 / math.sqrt(self.dim)
        weights["discriminator"] = rng.uniform(-limit, limit, (self.dim, self.dim))
        return weights

    def _task(
        self, graph: Graph, inputs: Callable[[Graph], Inputs], generator: torch.Generator, target: Target | None = None
    ) -> Task:
        from graphquilt.embedders._tasks import Pull, Task, infomax

        given = inputs(graph)
        return Task(given, infomax(given, generator, dropout=self.dropout, pull=Pull.towards(target, given)))
