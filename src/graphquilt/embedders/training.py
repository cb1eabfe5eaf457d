"""Training with torch: the losses of VGAE, GAE and DGI, Adam, early stopping, the choice of a device and of threads."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, Int64Array
from graphquilt.embedders import kernels
from graphquilt.embedders.contract import Hook
from graphquilt.embedders.gcn import Context, Inputs, Loss, Weights, finish, on_cpu
from graphquilt.errors import ConvergenceError, InputError
from graphquilt.graph import Graph
from graphquilt.linalg.ranking import roc_auc
from graphquilt.progress import report

if TYPE_CHECKING:
    from graphquilt.embedders.network import Network

_lock = threading.Lock()
_users = 0
_original = 1


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let torch use ``count`` threads inside the block; None leaves the number unchanged.

    A new thread starts with the number that was set last anywhere: all concurrent blocks restore the first one's.
    """
    global _users, _original  # noqa: PLW0603
    if count is None:
        yield
        return
    with _lock:
        if _users == 0:
            _original = torch.get_num_threads()
        _users += 1
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            torch.set_num_threads(_original)


@contextmanager
def session(device: str, thread_count: int | None, size: str) -> Iterator[None]:
    """Check the device, limit the threads inside the block, and explain what to reduce if memory runs out."""
    kind, _, number = device.partition(":")
    if kind not in {"cpu", "cuda"}:
        raise InputError(f"the device {device!r} is not known; choose 'cpu' or 'cuda' (or 'cuda:1' …).")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "cuda" and int(number or 0) >= count:
        raise InputError(
            f"the device {device!r} is not available: torch {torch.__version__} finds {count} CUDA devices. "
            "Use device='cpu', or install a torch built for CUDA and check the driver."
        )
    with threads(thread_count):
        try:
            yield
        except torch.OutOfMemoryError as full:
            raise InputError(
                f"the memory of {device} does not hold a training on {size}. Reduce hidden or dim, cut the graph into "
                f"more and smaller patches, or use device='cpu'. ({str(full).splitlines()[0]})"
            ) from full


class Parameters:
    """Named weights in one vector ``flat`` (k,); ``named`` has the views of it that gradients are computed for."""

    def __init__(self, values: Mapping[str, AnyArray], *, device: str, dtype: torch.dtype) -> None:
        self.shapes = {name: value.shape for name, value in values.items()}
        joined = np.concatenate([np.ravel(value) for value in values.values()])
        self.flat = torch.as_tensor(joined, dtype=dtype, device=device).clone()
        self.named = {name: view.requires_grad_(True) for name, view in self.views(self.flat).items()}

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return the named views of a flat vector."""
        parts = torch.split(flat, [math.prod(shape) for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}


class Adam:
    """Adam with its default decay rates (Kingma and Ba 2015); importing that of torch.optim takes seconds."""

    def __init__(self, parameters: Parameters, *, lr: float, weight_decay: float = 0.0) -> None:
        self.lr, self.weight_decay, self.epoch = lr, weight_decay, 0
        self.weights = [view.detach() for view in parameters.named.values()]
        flats = (torch.zeros_like(parameters.flat) for _ in range(3))
        self.first, self.second, self.spare = ([*parameters.views(flat).values()] for flat in flats)

    def step(self, gradients: Iterable[Tensor]) -> None:
        """Move the weights by one step, given one gradient for each; the gradients may be overwritten."""
        self.epoch += 1
        size = -self.lr / (1 - 0.9**self.epoch)
        root = 1 / math.sqrt(1 - 0.999**self.epoch)
        for w, g, m, v, spare in zip(self.weights, gradients, self.first, self.second, self.spare, strict=True):
            if self.weight_decay:
                g.add_(w, alpha=self.weight_decay)
            m.lerp_(g, 0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            torch.sqrt(v, out=spare).mul_(root).add_(1e-8)
            w.addcdiv_(m, spare, value=size)


def train(parameters: Parameters, loss_of: Loss, network: Network, *, progress: Hook = None) -> Float64Array:
    """Minimise the loss by the settings of ``network``; leave the best weights in ``parameters``, return the losses."""
    best, best_loss, waited = parameters.flat.clone(), math.inf, 0
    adam = Adam(parameters, lr=network.lr, weight_decay=network.weight_decay)
    leaves = [*parameters.named.values()]
    losses: list[float] = []
    for epoch in range(1, network.max_epochs + 1):
        loss = loss_of(parameters.named)
        gradients = torch.autograd.grad(loss, leaves)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ConvergenceError(
                f"the loss became {value} in epoch {epoch} with a learning rate of {network.lr:g}. Lower lr, "
                "scale the features down, or look for extreme values in them.",
                residual=value,
            )
        losses.append(value)
        report(progress, "training", epoch, network.max_epochs, values={"epoch": epoch, "loss": value})
        if value < best_loss:
            best_loss, waited = value, 0
            best.copy_(parameters.flat)
        else:
            waited += 1
            if waited >= network.patience:
                break
        adam.step(gradients)
    parameters.flat.copy_(best)
    return np.array(losses)


MAX_LOG_STD = 10.0  # a standard deviation with a larger logarithm would overflow
SPREAD = -7046029254386353131  # multiplying by this odd 64-bit number spreads the keys of pairs over a hash table


def undirected_edges(graph: Graph) -> Int64Array:
    """Return each edge once, (2, m) with first row < second row, without loops."""
    graph = graph.undirected()
    rows, columns = np.repeat(np.arange(graph.n_nodes), graph.degrees), np.asarray(graph.indices, dtype=np.int64)
    return np.stack([rows, columns])[:, rows < columns]


class NonEdges:
    """Uniform samples of pairs that no edge joins; in a dense graph all are listed.

    Pairs that are edges are replaced. A hash table rules out nearly all; only the others are searched for.
    """

    def __init__(self, edges: Int64Array, n_nodes: int) -> None:
        self.n_nodes = n_nodes
        pairs = n_nodes * (n_nodes - 1) // 2
        self.n_pairs = pairs - edges.shape[1]
        keys = np.sort(edges[0] * n_nodes + edges[1])
        self.keys = torch.as_tensor(keys)
        self.listed: Tensor | None = None
        if pairs <= 4 * edges.shape[1]:
            candidates = np.stack(np.triu_indices(n_nodes, 1)).astype(np.int64)
            free = ~np.isin(candidates[0] * n_nodes + candidates[1], keys, assume_unique=True)
            self.listed = torch.as_tensor(candidates[:, free])
            return
        bits = max(10, int(np.ceil(np.log2(max(edges.shape[1], 1)))) + 4)
        self.shift, self.mask = 64 - bits, 2**bits - 1
        self.table = torch.zeros(2**bits, dtype=torch.bool)
        self.table[self._slots(self.keys)] = True

    def _slots(self, keys: Tensor) -> Tensor:
        slots: Tensor = ((keys * SPREAD) >> self.shift) & self.mask
        return slots

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Sample ``count`` pairs with replacement, (2, count); none if every pair is an edge."""
        if self.n_pairs == 0 or count == 0:
            return torch.zeros(2, 0, dtype=torch.int64)
        if self.listed is not None:
            return self.listed[:, torch.randint(self.listed.shape[1], (count,), generator=generator)]
        pairs = torch.randint(self.n_nodes, (2, count), generator=generator)
        again = self._find_edges(pairs)
        while len(again):
            pairs[:, again] = fresh = torch.randint(self.n_nodes, (2, len(again)), generator=generator)
            again = again[self._find_edges(fresh)]
        return pairs

    def _find_edges(self, pairs: Tensor) -> Tensor:
        """Return the positions of the pairs that are edges or loops."""
        low, high = torch.minimum(pairs[0], pairs[1]), torch.maximum(pairs[0], pairs[1])
        keys = low * self.n_nodes + high
        doubtful = torch.nonzero(self.table[self._slots(keys)] | (low == high)).ravel()
        unsure = keys[doubtful]
        place = torch.searchsorted(self.keys, unsure).clamp_(max=max(len(self.keys) - 1, 0))
        is_edge = self.keys[place] == unsure if len(self.keys) else torch.zeros_like(unsure, dtype=torch.bool)
        return doubtful[is_edge | (low[doubtful] == high[doubtful])]


def reconstruction_score(graph: Graph, X: FloatArray, seed: int) -> float:
    """Return the AUC of inner products on the edges and equally many sampled non-edges; 0.5 without any."""
    edges = undirected_edges(graph)
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
    others = NonEdges(edges, graph.n_nodes).sample(edges.shape[1], generator).numpy()
    if edges.shape[1] == 0 or others.shape[1] == 0:
        return 0.5
    return roc_auc(*(np.einsum("ij,ij->i", X[pairs[0]], X[pairs[1]]) for pairs in (edges, others)))


def pair_gradient(Z: Tensor, pairs: Tensor, sign: float, G: Tensor) -> Tensor:
    """Return the mean of log(1 + exp(sign z_u·z_v)) over pairs (2, k) and add its gradient to G (n, d)."""
    if on_cpu(Z):
        return torch.tensor(kernels.pair_gradient(Z.numpy(), pairs.numpy(), sign, G.numpy()), dtype=Z.dtype)
    u, v = Z.index_select(0, pairs[0]), Z.index_select(0, pairs[1])
    x = sign * (u * v).sum(dim=1)
    g = (sign / pairs.shape[1]) * torch.sigmoid(x)[:, None]
    G.index_add_(0, pairs[0], g * v).index_add_(0, pairs[1], g * u)
    return torch.nn.functional.softplus(x).mean()


class _Reconstruction(torch.autograd.Function):
    """The mean of -log σ(z_u·z_v) over edges plus the mean of -log(1 - σ(z_u·z_v)) over other pairs, if any."""

    @staticmethod
    def forward(ctx: Context, Z: Tensor, edges: Tensor, others: Tensor) -> Tensor:
        ctx.G, total = torch.zeros_like(Z), Z.new_zeros(())
        for pairs, sign in ((edges, -1.0), (others, 1.0)):
            if pairs.shape[1]:
                total += pair_gradient(Z, pairs, sign, ctx.G)
        return total

    @staticmethod
    def backward(ctx: Context, g: Tensor) -> tuple[Tensor, None, None]:
        return ctx.G * g, None, None


reconstruction_loss: Callable[[Tensor, Tensor, Tensor], Tensor] = _Reconstruction.apply


@dataclass(frozen=True, eq=False)
class Background:
    """Nodes outside a patch that stay where they are while it is trained."""

    places: Any  # (k, dim): first the far ends of edges that leave the patch, then a sample of the whole graph
    leaving: Any  # (2, m): the edges that leave the patch, each from a node of it to the number of a far end
    n_far: int  # places that are far ends
    share: float  # of the whole graph that the patch is: this share of the non-edges is sampled inside it

    def on(self, device: str, dtype: torch.dtype) -> Background:
        """Return it with tensors on a device."""
        places, leaving = torch.as_tensor(self.places, dtype=dtype).to(device), torch.as_tensor(self.leaving).to(device)
        return replace(self, places=places, leaving=leaving)

    def edges(self, inside: Tensor, n_nodes: int) -> Tensor:
        """Return the edges inside the patch and those that leave it; far ends are numbered from n_nodes."""
        shift = torch.tensor([[0], [n_nodes]], device=inside.device)
        return torch.cat([inside, self.leaving + shift], dim=1)

    def others(self, count: int, non_edges: NonEdges, generator: torch.Generator) -> Tensor:
        """Sample non-edges in the proportion of the whole graph; far pairs are not compared with its edges."""
        n, sampled = non_edges.n_nodes, len(self.places) - self.n_far
        n_inside = round(count * self.share) if sampled else count
        inside = non_edges.sample(n_inside, generator)
        near = torch.randint(n, (count - n_inside,), generator=generator)
        far = torch.randint(max(sampled, 1), (count - n_inside,), generator=generator) + n + self.n_far
        return torch.cat([inside, torch.stack([near, far])], dim=1)


def reconstruction(
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

    If ``out`` has 2 ``dim`` columns, the auto-encoder is variational: they are a mean and the logarithm of a standard
    deviation. It decodes a sample of N(mean, std²), and adds the divergence KL = ½ Σ (mean² + std² - 1 - 2 log std),
    averaged over nodes and divided by their number once more. With a ``background``, pairs that leave count as well.
    """
    count, n = 2 * negatives * edges.shape[1], len(out)
    sample = non_edges.sample if background is None else partial(background.others, non_edges=non_edges)
    others = sample(count, generator=generator).to(edges.device)
    Z, penalty = out, out.new_zeros(())
    if out.shape[1] > dim:
        noise = torch.randn(n, dim, generator=generator, dtype=out.dtype).to(out.device)
        mean, log_std = out[:, :dim], out[:, dim:].clamp(max=MAX_LOG_STD)
        std = log_std.exp()
        Z = torch.addcmul(mean, noise, std)
        penalty = 0.5 * (mean.square().sum() + std.square().sum() - n * dim - 2 * log_std.sum()) / n**2
    if background is not None:
        Z = torch.cat([Z, background.places])
    return reconstruction_loss(Z.contiguous(), edges, others) + penalty


def infomax(inputs: Inputs, generator: torch.Generator) -> Loss:
    """Return the loss of deep graph infomax: the means of -log σ(H W s) and of -log(1 - σ(shuffled W s)), added.

    A discriminator W tells true rows H from those of shuffled features, given a summary s = σ(mean of H).
    """
    softplus = torch.nn.functional.softplus

    def loss(weights: Weights) -> Tensor:
        order = torch.randperm(inputs.n_nodes, generator=generator).to(weights["weight0"].device)
        product = inputs.project(weights["weight0"])  # enough for both: shuffling rows commutes with it
        H, shuffled = (finish(inputs, weights, P) for P in (product, product.index_select(0, order)))
        direction = weights["discriminator"] @ torch.sigmoid(H.mean(dim=0))
        return softplus(-(H @ direction)).mean() + softplus(shuffled @ direction).mean()

    return loss
