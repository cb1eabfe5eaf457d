"""What is minimised: the losses of VGAE, GAE and DGI (torch)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from graphquilt.embedders._gcn import Inputs, SymmetricProduct, encode, finish
from graphquilt.embedders._pairs import NonEdges, pair_loss

__all__ = ["MAX_LOG_STD", "Task", "divergence", "held_out_loss", "infomax", "reconstruction"]

Weights = Mapping[str, Tensor]

# Beyond this the standard deviation overflows before it means anything.
MAX_LOG_STD = 10.0


@dataclass(frozen=True, eq=False)
class Task:
    """A loss to minimise, the inputs it sees, and what to judge an epoch by if not the loss itself."""

    inputs: Inputs
    loss: Callable[[Weights], Tensor]
    watch: Callable[[Weights], float] | None = None


def divergence(mean: Tensor, log_std: Tensor) -> Tensor:
    """Return KL(N(mean, std²) ‖ N(0, 1)), summed over dimensions and averaged over nodes."""
    return -0.5 * (1 + 2 * log_std - mean**2 - torch.exp(2 * log_std)).sum(dim=1).mean()


def reconstruction(
    inputs: Inputs,
    edges: Tensor,
    non_edges: NonEdges,
    generator: torch.Generator,
    *,
    dim: int | None,
    dropout: float,
) -> Callable[[Weights], Tensor]:
    """Return the loss of a graph auto-encoder (Kipf and Welling 2016), variational where ``dim`` is given.

    The decoder is the inner product. The variational one decodes a sample of N(mean, std²) and adds the divergence
    from N(0, 1), averaged over nodes and divided by their number once more.
    """

    def loss(weights: Weights) -> Tensor:
        out = encode(inputs, weights, dropout=dropout, generator=generator)
        others = non_edges.sample(edges.shape[1], generator).to(out.device)
        if dim is None:
            return pair_loss(out, edges, others)
        mean, log_std = out[:, :dim], out[:, dim:].clamp(max=MAX_LOG_STD)
        noise = torch.randn(mean.shape, generator=generator, dtype=out.dtype).to(out.device)
        Z = mean + noise * torch.exp(log_std)
        return pair_loss(Z, edges, others) + divergence(mean, log_std) / inputs.n_nodes

    return loss


def held_out_loss(inputs: Inputs, edges: Tensor, others: Tensor, dim: int) -> Callable[[Weights], float]:
    """Return the reconstruction loss of the mean on edges that were held out and as many non-edges."""
    return lambda weights: float(pair_loss(encode(inputs, weights)[:, :dim], edges, others))


def infomax(inputs: Inputs, generator: torch.Generator, *, dropout: float) -> Callable[[Weights], Tensor]:
    """Return the loss of deep graph infomax (Veličković et al. 2019).

    A bilinear discriminator tells each node's row from the row it gets when the features are shuffled among nodes,
    given the summary σ(mean of all rows).
    """

    def loss(weights: Weights) -> Tensor:
        permutation = torch.randperm(inputs.n_nodes, generator=generator).to(inputs.A.device)
        # Shuffling rows commutes with multiplying by weights, so X W is computed once for both.
        projected = inputs.project(weights["weight0"])
        rows = []
        for first in (projected, projected.index_select(0, permutation)):
            H = SymmetricProduct.apply(inputs.A, first)
            rows.append(finish(inputs, weights, H, dropout=dropout, generator=generator))
        summary = torch.sigmoid(rows[0].mean(dim=0))
        direction = weights["discriminator"] @ summary
        softplus = torch.nn.functional.softplus
        return softplus(-(rows[0] @ direction)).mean() + softplus(rows[1] @ direction).mean()

    return loss
