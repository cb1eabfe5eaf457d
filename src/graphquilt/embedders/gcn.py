"""Sparse products with their gradients, and the GCN layers built from them (torch).

A graph convolution is Â H W + b with Â = D^-1/2 (A + I) D^-1/2 (Kipf and Welling 2017). Â is symmetric, so the
gradient of Â H is Â times the gradient that comes in: one CSR matrix serves both ways and a layer costs O(nnz).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphquilt.embedders import kernels
from graphquilt.embedders.network import Features
from graphquilt.errors import InputError
from graphquilt.graph import Graph

Context: TypeAlias = Any  # the object of autograd that carries attributes from ``forward`` to ``backward``
Weights: TypeAlias = Mapping[str, Tensor]

BLOCK_ROWS = 2048  # rows of features in a block of the transposed product: their gradients fit into a core's cache
DENSE_SHARE = 0.25  # above this share of non-zeros a dense product is faster (AVX-512, float32, 128 columns)

with warnings.catch_warnings():
    # torch warns once in a process that CSR tensors are in beta: trigger the warning here and drop it.
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.zeros(0, dtype=torch.int64), torch.zeros(0), (1, 1))


def on_cpu(x: Tensor) -> bool:
    """Return whether compiled loops can read x."""
    return x.device.type == "cpu"


class Workspace:
    """Arrays that are reused in every epoch, each under its key: fresh pages cost more than the arithmetic in them."""

    def __init__(self, *, device: str, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.arrays: dict[tuple[object, ...], Tensor] = {}

    def clear(self) -> None:
        """Release all arrays: those of the last epoch and torch's graph of gradients refer to each other for ever."""
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


def adjacency_with_loops(graph: Graph) -> sp.csr_array:
    """Return A + I, (n, n), symmetric by the larger of both weights; a loop of the graph keeps its weight."""
    A = graph.adjacency
    if graph.directed:
        A = A.maximum(A.T).tocsr()
    loops = A.diagonal()
    A = (A + sp.diags_array(np.where(loops > 0, 0.0, 1.0))).tocsr()
    A.sort_indices()
    return sp.csr_array(A)


def normalized_adjacency(graph: Graph) -> sp.csr_array:
    """Return Â = D^-1/2 (A + I) D^-1/2, (n, n), symmetric; see :func:`adjacency_with_loops`."""
    A = adjacency_with_loops(graph)
    scale = 1 / np.sqrt(np.asarray(A.sum(axis=1)).ravel())
    A.data *= np.repeat(scale, np.diff(A.indptr)) * scale[A.indices]
    return A


def sparse_tensor(M: sp.csr_array, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor | Entries:
    """Return a torch CSR tensor of a SciPy matrix, with 32-bit indices where they suffice (torch converts others)."""
    if device.startswith("mps"):
        rows = np.repeat(np.arange(M.shape[0]), np.diff(M.indptr))
        row, column = (torch.as_tensor(index, dtype=torch.int64, device=device) for index in (rows, M.indices))
        return Entries(row, column, torch.as_tensor(M.data, dtype=dtype, device=device))
    index = torch.int32 if max(*M.shape, M.nnz) < 2**31 else torch.int64
    # Features of a job are memory maps that cannot be written to, which torch warns about: copy them.
    M = M if M.data.flags.writeable and M.indices.flags.writeable and M.indptr.flags.writeable else M.copy()
    return torch.sparse_csr_tensor(
        torch.as_tensor(M.indptr, dtype=index),
        torch.as_tensor(M.indices, dtype=index),
        torch.as_tensor(M.data, dtype=dtype),
        size=M.shape,
        device=device,
    )


def multiply(A: Tensor | Entries, x: Tensor, out: Tensor, *, add: bool = False) -> Tensor:
    """Write A x into ``out``, or add it to ``out``: up to 5 times as fast as ``A @ x``, which allocates two arrays."""
    if isinstance(A, Entries):
        total = out if add else out.zero_()
        return total.index_add_(0, A.rows, A.values[:, None] * x.index_select(0, A.columns))
    return torch.addmm(out, A, x, beta=1 if add else 0, out=out)


class _Project(torch.autograd.Function):
    """X W for the constant features X."""

    @staticmethod
    def forward(ctx: Context, inputs: Inputs, W: Tensor) -> Tensor:
        ctx.inputs = inputs
        out = inputs.space(("project",), inputs.n_nodes, W.shape[1])
        if inputs.dense is not None:
            return torch.mm(inputs.dense, W, out=out)
        assert inputs.X is not None
        return multiply(inputs.X, W, out)

    @staticmethod
    def backward(ctx: Context, g: Tensor) -> tuple[None, Tensor]:
        return None, ctx.inputs.multiply_transposed(g)


project: Callable[[Inputs, Tensor], Tensor] = _Project.apply


class _ProjectTwice(torch.autograd.Function):
    """X W and the same with its rows in another order, from one product."""

    @staticmethod
    def forward(ctx: Context, inputs: Inputs, W: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        ctx.inputs, ctx.order = inputs, order
        # Without features X W is W itself, and an output that is an input would confuse autograd.
        first = W.clone() if inputs.featureless else _Project.forward(ctx, inputs, W)
        return first, torch.index_select(first, 0, order, out=inputs.space(("shuffled",), *first.shape))

    @staticmethod
    def backward(ctx: Context, g: Tensor, g_shuffled: Tensor) -> tuple[None, Tensor, None]:
        inverse = torch.empty_like(ctx.order)
        inverse[ctx.order] = torch.arange(len(inverse), device=inverse.device)
        total = torch.index_select(g_shuffled, 0, inverse, out=ctx.inputs.space(("unshuffled",), *g.shape)).add_(g)
        return None, total if ctx.inputs.featureless else ctx.inputs.multiply_transposed(total), None


project_twice: Callable[[Inputs, Tensor, Tensor], tuple[Tensor, Tensor]] = _ProjectTwice.apply


class _Product(torch.autograd.Function):
    """H W for hidden values H."""

    @staticmethod
    def forward(ctx: Context, space: Workspace, key: object, H: Tensor, W: Tensor) -> Tensor:
        ctx.space, ctx.key, ctx.H, ctx.W = space, key, H, W
        return torch.mm(H, W, out=space(("product", key), H.shape[0], W.shape[1]))

    @staticmethod
    def backward(ctx: Context, g: Tensor) -> tuple[None, None, Tensor, Tensor]:
        to_H = torch.mm(g, ctx.W.T, out=ctx.space(("product to input", ctx.key), *ctx.H.shape))
        to_W = torch.mm(ctx.H.T, g, out=ctx.space(("product to weight", ctx.key), *ctx.W.shape))
        return None, None, to_H, to_W


product: Callable[[Workspace, object, Tensor, Tensor], Tensor] = _Product.apply


class _Propagate(torch.autograd.Function):
    """f(Â P + bias) for f a ReLU, a PReLU (with a slope) or nothing."""

    @staticmethod
    def forward(  # noqa: PLR0917
        ctx: Context, inputs: Inputs, key: tuple[object, int], relu: bool, P: Tensor, bias: Tensor, slope: Tensor | None
    ) -> Tensor:
        space, A = inputs.space, inputs.A
        ctx.inputs, ctx.key, ctx.relu, ctx.slope = inputs, key, relu, slope
        ctx.multiplied = key[1] == 0 and inputs.smoothed
        rows = inputs.n_nodes, P.shape[1]
        Y = P if ctx.multiplied else multiply(A, P, space(("propagate", key), *rows))
        ctx.Y = Y
        if slope is not None:
            out = space(("activated", key), *rows)
            add_bias_prelu(Y, bias, slope, out)
            return out
        if relu:
            add_bias_relu(Y, bias)
        else:
            Y.add_(bias)
        return Y

    @staticmethod
    def backward(ctx: Context, g: Tensor) -> tuple[None, None, None, Tensor, Tensor, Tensor | None]:
        space, key = ctx.inputs.space, ctx.key
        sums = space(("bias", key), 2, g.shape[1])
        before = space(("before", key), *g.shape)
        if ctx.slope is not None:
            prelu_gradient(g, ctx.Y, ctx.slope, before, sums)
        elif ctx.relu:
            relu_gradient(g, ctx.Y, before, sums[0])
        else:
            before = g
            torch.sum(g, dim=0, out=sums[0])
        if not ctx.multiplied:
            before = multiply(ctx.inputs.A, before.contiguous(), space(("backward", key), *g.shape))
        return None, None, None, before, sums[0], None if ctx.slope is None else sums[1]


propagate: Callable[[Inputs, tuple[object, int], bool, Tensor, Tensor, Tensor | None], Tensor] = _Propagate.apply


@dataclass(frozen=True, eq=False)
class Entries:
    """A sparse matrix as a list of its entries, for devices without CSR products in torch (Metal)."""

    rows: Tensor
    columns: Tensor
    values: Tensor


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a network gets of a graph: Â and the features, ready to be multiplied, and a workspace.

    There are three forms: no features, where X W is W; sparse ``X`` with the transposed ``blocks``; or ``dense``, which
    is X, or Â X if ``smoothed`` (the two products of a first layer then cost one).
    """

    A: Tensor | Entries
    X: Tensor | Entries | None
    blocks: list[Tensor | Entries]
    dense: Tensor | None
    smoothed: bool
    n_nodes: int
    width: int
    space: Workspace

    @property
    def featureless(self) -> bool:
        """Whether X is the identity."""
        return self.X is None and self.dense is None

    def project(self, W: Tensor) -> Tensor:
        """Return X W (Â X W where it is ``smoothed``), (n, columns of W)."""
        return W if self.featureless else project(self, W)

    def multiply_transposed(self, g: Tensor) -> Tensor:
        """Return X^T g, (f, columns of g), block by block of rows of X."""
        total = self.space(("to features",), self.width, g.shape[1])
        if self.dense is not None:
            return torch.mm(self.dense.T, g, out=total)
        for number, block in enumerate(self.blocks):
            rows = g[number * BLOCK_ROWS : (number + 1) * BLOCK_ROWS]
            multiply(block, rows.contiguous(), total, add=number > 0)
        return total


def inputs_of(
    A: sp.csr_array,
    features: Features | None,
    *,
    smooth: bool = True,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Inputs:
    """Put Â and the features (None for the identity) on the device; ``smooth`` allows Â X instead of dense X."""
    n = A.shape[0]
    space = Workspace(device=device, dtype=dtype)
    adjacency = sparse_tensor(A, device=device, dtype=dtype)
    if features is None:
        return Inputs(adjacency, None, [], None, False, n, n, space)
    width = int(features.shape[1])
    if isinstance(features, sp.csr_array) and features.nnz < DENSE_SHARE * n * width:
        parts = (sp.csr_array(features[row : row + BLOCK_ROWS].T) for row in range(0, n, BLOCK_ROWS))
        X, *blocks = (sparse_tensor(part, device=device, dtype=dtype) for part in (features, *parts))
        return Inputs(adjacency, X, blocks, None, False, n, width, space)
    full = features.toarray() if isinstance(features, sp.csr_array) else np.array(features, order="C")
    dense = torch.as_tensor(full, dtype=dtype, device=device)
    if smooth:
        dense = multiply(adjacency, dense, torch.empty_like(dense))
    return Inputs(adjacency, None, [], dense, smooth, n, width, space)


def encode(inputs: Inputs, weights: Weights) -> Tensor:
    """Run the GCN layers ``weight0, bias0, weight1, …``, (n, columns of the last weight)."""
    if inputs.width != weights["weight0"].shape[0]:
        raise InputError(
            f"this encoder was trained on {weights['weight0'].shape[0]} features and the graph has {inputs.width}; "
            "give it the same features, or train with featureless='degree', whose width does not depend on the graph."
        )
    return finish(inputs, weights, inputs.project(weights["weight0"]))


def finish(inputs: Inputs, weights: Weights, P: Tensor, *, key: object = 0) -> Tensor:
    """Run the layers on P, the product of the features and ``weight0``, (n, columns of weight0).

    A layer that has a ``slope`` ends in a PReLU; the others end in a ReLU, except for the last one, which is linear.
    The result is an array of the workspace of ``inputs`` under ``key``; the next call with that key overwrites it.
    """
    depth = sum(name.startswith("weight") for name in weights)
    H = P
    for layer in range(depth):
        if layer > 0:
            P = product(inputs.space, (key, layer), H, weights[f"weight{layer}"])
        slope = weights.get(f"slope{layer}")
        H = propagate(inputs, (key, layer), layer < depth - 1, P, weights[f"bias{layer}"], slope)
    return H
