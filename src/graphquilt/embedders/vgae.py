"""VGAE and GAE: graph auto-encoders with an inner-product decoder (Kipf and Welling 2016)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import Int64Array
from graphquilt.embedders.network import Network
from graphquilt.errors import InputError
from graphquilt.graph import Graph

if TYPE_CHECKING:
    import torch

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
        name = type(self).__name__
        if self.negatives < 1:
            raise InputError(f"negatives of {name} must be at least 1, not {self.negatives}.")
        if not 0 <= self.validation < 1:
            raise InputError(f"validation of {name} is a share from 0 to below 1, not {self.validation}.")

    def _task(self, graph: Graph, inputs: Callable[[Graph], Inputs], generator: torch.Generator) -> Task:
        import torch

        from graphquilt.embedders.gcn import encode
        from graphquilt.embedders.losses import Task, Weights, reconstruction, reconstruction_loss
        from graphquilt.embedders.pairs import NonEdges, undirected_edges

        pairs = undirected_edges(graph)
        non_edges = NonEdges(pairs, graph.n_nodes)
        n_held_out = round(self.validation * pairs.shape[1])
        edges, training_graph = torch.as_tensor(pairs), graph
        if n_held_out:
            order = torch.randperm(pairs.shape[1], generator=generator)
            held_out = edges[:, order[:n_held_out]]
            edges = edges[:, order[n_held_out:].sort().values]
            training_graph = without(graph, held_out.numpy())
        training = inputs(training_graph)
        edges = edges.to(self.device)

        def loss(weights: Weights) -> torch.Tensor:
            out = encode(training, weights, dropout=self.dropout, generator=generator)
            return reconstruction(
                training.space, out, edges, non_edges, generator, dim=self.dim, negatives=self.negatives
            )

        if not n_held_out:
            return Task(training, loss)
        held_out, others = (x.to(self.device) for x in (held_out, non_edges.sample(n_held_out, generator)))

        def held_out_loss(weights: Weights) -> float:
            Z = encode(training, weights)[:, : self.dim].contiguous()
            return float(reconstruction_loss(training.space, Z, held_out, others))

        return Task(training, loss, held_out_loss)


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

    _outputs: ClassVar[int] = 2  # the mean and the logarithm of the standard deviation


def without(graph: Graph, edges: Int64Array) -> Graph:
    """Return the graph without these undirected edges (2, k), with its weights."""
    A = graph.adjacency
    removed = sp.csr_array((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=A.shape)
    return Graph(A - A.multiply(removed + removed.T))
