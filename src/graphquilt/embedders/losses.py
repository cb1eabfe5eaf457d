"""The losses that VGAE, GAE and DGI minimise (torch)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from graphquilt.embedders.elementwise import Workspace, pair_gradient
from graphquilt.embedders.gcn import Context, Inputs, finish, project_twice
from graphquilt.embedders.pairs import NonEdges

__all__ = ["Background", "Task", "Weights", "infomax", "reconstruction", "reconstruction_loss"]

Weights = Mapping[str, Tensor]

MAX_LOG_STD = 10.0  # a standard deviation with a larger logarithm would overflow


@dataclass(frozen=True, eq=False)
class Task:
    """A loss to minimise, its inputs, and the loss that early stopping watches where that is another one."""

    inputs: Inputs
    loss: Callable[[Weights], Tensor]
    watch: Callable[[Weights], float] | None = None


class _Reconstruction(torch.autograd.Function):
    """The mean of -log σ(z_u·z_v) over edges plus the mean of -log(1 - σ(z_u·z_v)) over other pairs.

    An empty set of pairs adds nothing. Value and gradient are computed in one pass over the pairs.
    """

    @staticmethod
    def forward(ctx: Context, space: Workspace, Z: Tensor, edges: Tensor, others: Tensor) -> Tensor:
        ctx.G = space(("pairs",), *Z.shape).zero_()
        total = Z.new_zeros(())
        for pairs, sign in ((edges, -1.0), (others, 1.0)):
            if pairs.shape[1]:
                total += pair_gradient(Z, pairs, sign, ctx.G)
        return total

    @staticmethod
    def backward(ctx: Context, g: Tensor) -> tuple[None, Tensor, None, None]:
        return None, ctx.G.mul_(g), None, None


reconstruction_loss: Callable[[Workspace, Tensor, Tensor, Tensor], Tensor] = _Reconstruction.apply


class _Sampled(torch.autograd.Function):
    """A sample Z of N(mean, std²), and the divergence of that distribution from N(0, 1).

    KL = ½ Σ (mean² + std² - 1 - 2 log std), summed over dimensions and averaged over nodes. The first half of the
    columns of ``out`` is the mean, the other half the logarithm of std, which is limited to ``MAX_LOG_STD``.
    """

    @staticmethod
    def forward(ctx: Context, space: Workspace, out: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        ctx.space, ctx.out, ctx.noise = space, out, noise
        n, dim = noise.shape
        mean, log_std = out[:, :dim], out[:, dim:]
        std = torch.clamp(log_std, max=MAX_LOG_STD, out=space(("std",), n, dim))
        entropy = std.sum()
        ctx.std = std.exp_()
        Z = torch.addcmul(mean, noise, std, out=space(("sample",), n, dim))
        squares = torch.mul(std, std, out=space(("squares",), n, dim)).addcmul_(mean, mean).sum()
        return Z, 0.5 * (squares - n * dim - 2 * entropy) / n

    @staticmethod
    def backward(ctx: Context, g: Tensor, g_kl: Tensor) -> tuple[None, Tensor, None]:
        n, dim = ctx.noise.shape
        total = ctx.space(("to output",), n, 2 * dim)
        mean, log_std = ctx.out[:, :dim], ctx.out[:, dim:]
        share = float(g_kl) / n
        torch.add(g, mean, alpha=share, out=total[:, :dim])
        spread = torch.mul(g, ctx.noise, out=total[:, dim:]).mul_(ctx.std)
        spread.addcmul_(ctx.std, ctx.std, value=share).sub_(share)
        spread.masked_fill_(log_std > MAX_LOG_STD, 0)
        return None, total, None


sample_and_divergence: Callable[[Workspace, Tensor, Tensor], tuple[Tensor, Tensor]] = _Sampled.apply


@dataclass(frozen=True, eq=False)
class Background:
    """Nodes outside a patch that stay where they are while it is trained.

    Attributes
    ----------
    places : tensor (k, dim)
        First the far ends of edges that leave the patch, then a sample of the whole graph.
    leaving : tensor (2, m)
        The edges that leave the patch: a node of the patch, and the number of its far end.
    n_far : int
        How many places are far ends.
    share : float
        The share of the whole graph that the patch is: so often a non-edge is sampled inside it, and otherwise between
        the patch and the sample.
    """

    places: Tensor
    leaving: Tensor
    n_far: int
    share: float

    def edges(self, inside: Tensor, n_nodes: int) -> Tensor:
        """Return the edges inside the patch and those that leave it, whose far ends are numbered from n_nodes on."""
        shift = torch.tensor([[0], [n_nodes]], device=inside.device)
        return torch.cat([inside, self.leaving + shift], dim=1)

    def others(self, count: int, non_edges: NonEdges, generator: torch.Generator) -> Tensor:
        """Sample non-edges in the proportion of the whole graph; far pairs are not compared with its edges."""
        sampled = len(self.places) - self.n_far
        n_inside = round(count * self.share) if sampled else count
        inside, n = non_edges.sample(n_inside, generator), non_edges.n_nodes
        near = torch.randint(n, (count - n_inside,), generator=generator)
        far = torch.randint(max(sampled, 1), (count - n_inside,), generator=generator) + n + self.n_far
        return torch.cat([inside, torch.stack([near, far])], dim=1)


def reconstruction(
    space: Workspace,
    out: Tensor,
    edges: Tensor,
    non_edges: NonEdges,
    generator: torch.Generator,
    *,
    dim: int,
    negatives: int = 1,
    background: Background | None = None,
) -> Tensor:
    """Return the loss of a graph auto-encoder whose encoder returned ``out`` (Kipf and Welling 2016).

    The decoder is the inner product. Where ``out`` has 2 ``dim`` columns, the auto-encoder is variational: it decodes
    a sample and adds the divergence, which is divided by the number of nodes once more. With a ``background``, edges
    and non-edges that leave the patch count as well.
    """
    count = 2 * negatives * edges.shape[1]
    if background is None:
        others = non_edges.sample(count, generator).to(edges.device)
    else:
        others = background.others(count, non_edges, generator).to(edges.device)

    def decoded(Z: Tensor) -> Tensor:
        if background is not None:
            Z = torch.cat([Z, background.places])
        return reconstruction_loss(space, Z.contiguous(), edges, others)

    if out.shape[1] == dim:
        return decoded(out)
    noise = torch.randn(len(out), dim, generator=generator, dtype=out.dtype).to(out.device)
    Z, divergence = sample_and_divergence(space, out, noise)
    return decoded(Z) + divergence / len(out)


class _Discrimination(torch.autograd.Function):
    """The loss of a bilinear discriminator W that tells true rows H from shuffled rows, given a summary of H.

    With s = σ(mean of H), it is the mean of -log σ(H W s) plus the mean of -log(1 - σ(shuffled W s)).
    """

    @staticmethod
    def forward(ctx: Context, space: Workspace, H: Tensor, shuffled: Tensor, W: Tensor) -> Tensor:
        summary = torch.sigmoid(H.mean(dim=0))
        direction = W @ summary
        scores = H @ direction, shuffled @ direction
        ctx.space, ctx.H, ctx.shuffled, ctx.W = space, H, shuffled, W
        ctx.summary, ctx.direction, ctx.scores = summary, direction, scores
        softplus = torch.nn.functional.softplus
        return softplus(-scores[0]).mean() + softplus(scores[1]).mean()

    @staticmethod
    def backward(ctx: Context, g: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:
        share = g / len(ctx.H)
        true, false = -share * torch.sigmoid(-ctx.scores[0]), share * torch.sigmoid(ctx.scores[1])
        to_direction = ctx.H.T @ true + ctx.shuffled.T @ false
        to_summary = (ctx.W.T @ to_direction) * ctx.summary * (1 - ctx.summary)
        to_H = torch.outer(true, ctx.direction, out=ctx.space(("to rows", 0), *ctx.H.shape))
        to_H.add_(to_summary / len(ctx.H))
        to_shuffled = torch.outer(false, ctx.direction, out=ctx.space(("to rows", 1), *ctx.H.shape))
        return None, to_H, to_shuffled, torch.outer(to_direction, ctx.summary)


discrimination_loss: Callable[[Workspace, Tensor, Tensor, Tensor], Tensor] = _Discrimination.apply


def infomax(inputs: Inputs, generator: torch.Generator, *, dropout: float) -> Callable[[Weights], Tensor]:
    """Return the loss of deep graph infomax (Veličković et al. 2019), which tells features from shuffled features."""

    def loss_of(weights: Weights) -> Tensor:
        permutation = torch.randperm(inputs.n_nodes, generator=generator).to(inputs.space.device)
        # Shuffling rows commutes with multiplying by weights, so that one product is enough for both.
        products = project_twice(inputs, weights["weight0"], permutation)
        H, shuffled = (
            finish(inputs, weights, P, key=number, dropout=dropout, generator=generator)
            for number, P in enumerate(products)
        )
        return discrimination_loss(inputs.space, H, shuffled, weights["discriminator"])

    return loss_of
