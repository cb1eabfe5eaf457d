"""VGAE and GAE: graph auto-encoders with an inner-product decoder (Kipf and Welling 2016)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import FloatArray, Int64Array
from graphquilt.embedders.network import Network, glorot
from graphquilt.errors import InputError
from graphquilt.graph import Graph

if TYPE_CHECKING:
    import torch

    from graphquilt.embedders.contract import Target
    from graphquilt.embedders.gcn import Inputs
    from graphquilt.embedders.losses import Task

__all__ = ["GAE", "VGAE"]


@dataclass(frozen=True)
class GAE(Network):
    """A graph auto-encoder: two GCN layers, trained so that inner products tell edges from non-edges.

    Takes the parameters of :class:`~graphquilt.embedders.network.Network`, and:

    Parameters
    ----------
    validation : float
        Share of the edges that are held out of the training; early stopping then watches the reconstruction of those
        edges instead of the training loss. The embedding returned is that of the whole graph.
    negatives : int
        Non-edges sampled for each edge and direction; the paper's protocol is 1.

    Notes
    -----
    The loss is the mean of -log σ(z_u·z_v) over the edges plus the mean of -log(1 - σ(z_u·z_v)) over sampled
    non-edges, which are new in every epoch. A graph without edges gives nothing to learn from: its nodes get the
    finite coordinates of the initial weights.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1]))
    >>> GAE(2, max_epochs=5)(path, 0).shape
    (10, 2)
    """

    featureless: str | None = "identity"
    _: KW_ONLY
    validation: float = 0.0
    # Differs from the paper: twice as many non-edges. Their mean is the same and has half the variance; with as many
    # non-edges as edges, a training that stops by chance after 150 epochs costs a point of AUC on Cora.
    negatives: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.negatives < 1:
            raise InputError(f"negatives of {type(self).__name__} must be at least 1, not {self.negatives}.")
        if not 0 <= self.validation < 1:
            raise InputError(
                f"validation of {type(self).__name__} is a share from 0 to below 1, not {self.validation}."
            )

    @property
    def _outputs(self) -> int:
        return self.dim

    def _initial(self, width: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        widths = [width, *[self._hidden] * (self.layers - 1)]
        weights: dict[str, FloatArray] = {}
        for layer, rows in enumerate(widths):
            last = layer == self.layers - 1
            columns = self.dim if last else widths[layer + 1]
            # The mean and the logarithm of the standard deviation start as two separate layers.
            parts = [glorot(rng, rows, columns) for _ in range(self._outputs // self.dim if last else 1)]
            weights[f"weight{layer}"] = np.concatenate(parts, axis=1)
            weights[f"bias{layer}"] = np.zeros(columns * len(parts))
        return weights

    def _task(
        self, graph: Graph, inputs: Callable[[Graph], Inputs], generator: torch.Generator, target: Target | None = None
    ) -> Task:
        import torch

        from graphquilt.embedders.losses import Pull, Task, held_out_loss, reconstruction
        from graphquilt.embedders.pairs import NonEdges, undirected_edges

        edges = undirected_edges(graph)
        non_edges = NonEdges(edges, graph.n_nodes)
        n_held_out = round(self.validation * edges.shape[1])
        training_edges, training_graph = torch.as_tensor(edges), graph
        if n_held_out:
            order = torch.randperm(edges.shape[1], generator=generator)
            held_out = training_edges[:, order[:n_held_out]]
            training_edges = training_edges[:, order[n_held_out:].sort().values]
            training_graph = without(graph, held_out.numpy())
        training_inputs = inputs(training_graph)
        variational = self._outputs > self.dim
        loss = reconstruction(
            training_inputs,
            training_edges.to(self.device),
            non_edges,
            generator,
            variational=variational,
            negatives=self.negatives,
            dropout=self.dropout,
            pull=Pull.towards(target, training_inputs),
        )
        if not n_held_out:
            return Task(training_inputs, loss)
        others = non_edges.sample(n_held_out, generator).to(self.device)
        return Task(training_inputs, loss, held_out_loss(training_inputs, held_out.to(self.device), others, self.dim))


@dataclass(frozen=True)
class VGAE(GAE):
    """A variational graph auto-encoder; the embedding is the mean.

    Takes the parameters of :class:`GAE`.

    Notes
    -----
    The loss is that of :class:`GAE` on a sample of N(mean, std²), plus the divergence from N(0, 1) averaged over nodes
    and divided by their number once more. The logarithm of std is limited to 10. The nodes of a graph without edges
    move towards the origin, and their coordinates are finite.

    Examples
    --------
    >>> path = Graph(sp.diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1]))
    >>> VGAE(2, max_epochs=5).fit(path, 0).losses.shape
    (5,)
    """

    @property
    def _outputs(self) -> int:
        return 2 * self.dim


def without(graph: Graph, edges: Int64Array) -> Graph:
    """Return the graph without these undirected edges (2, k), with its weights."""
    A = graph.adjacency
    removed = sp.csr_array((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=A.shape)
    return Graph(A - A.multiply(removed + removed.T))
