"""The elementwise steps of a layer and of the decoder: compiled loops on the CPU, torch on other devices."""

from __future__ import annotations

import torch
from torch import Tensor

from graphquilt.embedders import _kernels as kernels

__all__ = ["Workspace", "add_bias_prelu", "add_bias_relu", "pair_gradient", "prelu_gradient", "relu_gradient"]


def on_cpu(x: Tensor) -> bool:
    """Return whether compiled loops can read x."""
    return x.device.type == "cpu"


class Workspace:
    """Arrays that are used again in every epoch of a training, each under its own key.

    Fresh pages from the operating system cost more than the arithmetic done in them.
    """

    def __init__(self, *, device: str, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.arrays: dict[tuple[object, ...], Tensor] = {}

    def clear(self) -> None:
        """Release all arrays at the end of a training.

        Those of the last epoch and the graph of their gradients, which belongs to torch, refer to each other, so that
        Python's garbage collector would never free them.
        """
        self.arrays.clear()

    def __call__(self, key: tuple[object, ...], *shape: int) -> Tensor:
        """Return the array of this key and shape; it is not cleared."""
        array = self.arrays.get(key)
        if array is None or tuple(array.shape) != shape:
            array = self.arrays[key] = torch.empty(shape, device=self.device, dtype=self.dtype)
        return array


def add_bias_relu(Y: Tensor, bias: Tensor) -> None:
    """Y ← max(Y + bias, 0), for Y (n, h)."""
    if on_cpu(Y):
        kernels.add_bias_relu(Y.numpy(), bias.numpy())
    else:
        Y.add_(bias).relu_()


def relu_gradient(g: Tensor, Y: Tensor, out: Tensor, bias: Tensor) -> None:
    """Out ← g where Y > 0, else 0; bias ← its column sums."""
    if on_cpu(g):
        kernels.relu_gradient(g.contiguous().numpy(), Y.numpy(), out.numpy(), bias.numpy())
    else:
        torch.mul(g, Y > 0, out=out)
        torch.sum(out, dim=0, out=bias)


def add_bias_prelu(Y: Tensor, bias: Tensor, slope: Tensor, out: Tensor) -> None:
    """Y ← Y + bias; out ← Y where Y > 0, else slope Y."""
    if on_cpu(Y):
        kernels.add_bias_prelu(Y.numpy(), bias.numpy(), slope.numpy(), out.numpy())
    else:
        Y.add_(bias)
        out.copy_(torch.where(Y > 0, Y, slope * Y))


def prelu_gradient(g: Tensor, Y: Tensor, slope: Tensor, out: Tensor, sums: Tensor) -> None:
    """Out ← g where Y > 0, else slope g; sums (2, h) ← column sums of out, and of g min(Y, 0)."""
    if on_cpu(g):
        kernels.prelu_gradient(g.contiguous().numpy(), Y.numpy(), slope.numpy(), out.numpy(), sums.numpy())
    else:
        out.copy_(torch.where(Y > 0, g, slope * g))
        sums[0] = out.sum(dim=0)
        sums[1] = (g * Y.clamp(max=0)).sum(dim=0)


def pair_gradient(Z: Tensor, pairs: Tensor, sign: float, G: Tensor) -> Tensor:
    """Return the mean of log(1 + exp(sign z_u·z_v)) over pairs (2, k) and add its gradient to G (n, d)."""
    if on_cpu(Z):
        return torch.tensor(kernels.pair_gradient(Z.numpy(), pairs.numpy(), sign, G.numpy()), dtype=Z.dtype)
    u, v = Z.index_select(0, pairs[0]), Z.index_select(0, pairs[1])
    x = sign * (u * v).sum(dim=1)
    g = (sign / pairs.shape[1]) * torch.sigmoid(x)[:, None]
    G.index_add_(0, pairs[0], g * v).index_add_(0, pairs[1], g * u)
    return torch.nn.functional.softplus(x).mean()
