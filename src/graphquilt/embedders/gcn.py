"""Sparse products with their gradients, and the GCN layers built from them (torch).

A graph convolution is Â H W + b with Â = D^-1/2 (A + I) D^-1/2 (Kipf and Welling 2017). Â is symmetric, so the
gradient of Â H is Â times the gradient that comes in: one CSR matrix serves both ways and a layer costs O(nnz).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphquilt.embedders.network import Features
from graphquilt.errors import InputError
from graphquilt.graph import Graph

Context: TypeAlias = Any  # the object of autograd that carries attributes from ``forward`` to ``backward``
Weights: TypeAlias = Mapping[str, Tensor]
Loss: TypeAlias = Callable[[Weights], Tensor]

BLOCK_ROWS = 2048  # rows of features in a block of the transposed product: their gradients fit into a core's cache
DENSE_SHARE = 0.25  # above this share of non-zeros a dense product is faster (AVX-512, float32, 128 columns)

with warnings.catch_warnings():
    # torch warns once in a process that CSR tensors are in beta: trigger the warning here and drop it.
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.zeros(0, dtype=torch.int64), torch.zeros(0), (1, 1))


def on_cpu(x: Tensor) -> bool:
    """Return whether compiled loops can read x."""
    return x.device.type == "cpu"


def adjacency_with_loops(graph: Graph) -> sp.csr_array:
    """Return A + I, (n, n), symmetric by the larger of both weights; a loop of the graph keeps its weight."""
    A = graph.undirected().adjacency
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


def sparse_tensor(M: sp.csr_array, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a torch CSR tensor of a SciPy matrix, with 32-bit indices where they suffice (torch converts others)."""
    index = torch.int32 if max(*M.shape, M.nnz) < 2**31 else torch.int64
    # Features of a job are memory maps that cannot be written to, which torch warns about: copy them.
    M = M if M.data.flags.writeable and M.indices.flags.writeable and M.indptr.flags.writeable else M.copy()
    parts = ((M.indptr, index), (M.indices, index), (M.data, dtype))
    indptr, indices, data = (torch.as_tensor(values, dtype=kind) for values, kind in parts)
    return torch.sparse_csr_tensor(indptr, indices, data, size=M.shape, device=device)


def multiply(A: Tensor, x: Tensor, out: Tensor | None = None) -> Tensor:
    """Return A x, or add it to ``out``: faster than ``A @ x``, which allocates two arrays."""
    total = x.new_empty(A.shape[0], x.shape[1]) if out is None else out
    return torch.addmm(total, A, x, beta=0 if out is None else 1, out=total)


class _Spread(torch.autograd.Function):
    """Â P."""

    @staticmethod
    def forward(ctx: Context, A: Tensor, P: Tensor) -> Tensor:
        ctx.A = A
        return multiply(A, P)

    @staticmethod
    def backward(ctx: Context, g: Tensor) -> tuple[None, Tensor]:
        return None, multiply(ctx.A, g.contiguous())


spread: Callable[[Tensor, Tensor], Tensor] = _Spread.apply


class _Project(torch.autograd.Function):
    """X W for the constant sparse features X."""

    @staticmethod
    def forward(ctx: Context, inputs: Inputs, W: Tensor) -> Tensor:
        ctx.inputs = inputs
        assert inputs.X is not None
        return multiply(inputs.X, W)

    @staticmethod
    def backward(ctx: Context, g: Tensor) -> tuple[None, Tensor]:
        total = g.new_zeros(ctx.inputs.width, g.shape[1])
        for number, block in enumerate(ctx.inputs.blocks):
            rows = g[number * BLOCK_ROWS : (number + 1) * BLOCK_ROWS]
            multiply(block, rows.contiguous(), total)
        return None, total


project: Callable[[Inputs, Tensor], Tensor] = _Project.apply


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a network gets of a graph: Â and the features, ready to be multiplied.

    Features are none (X W is W), sparse ``X`` with the transposed ``blocks``, or ``dense``: X, or Â X if ``smoothed``.
    """

    A: Tensor
    n_nodes: int
    width: int
    X: Tensor | None = None
    blocks: Sequence[Tensor] = ()
    dense: Tensor | None = None
    smoothed: bool = False

    def project(self, W: Tensor) -> Tensor:
        """Return X W (Â X W where it is ``smoothed``), (n, columns of W)."""
        if self.dense is not None:
            return self.dense @ W
        return W if self.X is None else project(self, W)


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
    adjacency = sparse_tensor(A, device=device, dtype=dtype)
    if features is None:
        return Inputs(adjacency, n, n)
    width = int(features.shape[1])
    if isinstance(features, sp.csr_array) and features.nnz < DENSE_SHARE * n * width:
        parts = (sp.csr_array(features[row : row + BLOCK_ROWS].T) for row in range(0, n, BLOCK_ROWS))
        X, *blocks = (sparse_tensor(part, device=device, dtype=dtype) for part in (features, *parts))
        return Inputs(adjacency, n, width, X, blocks)
    full = features.toarray() if isinstance(features, sp.csr_array) else np.array(features, order="C")
    dense = torch.as_tensor(full, dtype=dtype, device=device)
    return Inputs(adjacency, n, width, dense=multiply(adjacency, dense) if smooth else dense, smoothed=smooth)


def encode(inputs: Inputs, weights: Weights) -> Tensor:
    """Run the GCN layers ``weight0, bias0, weight1, …``, (n, columns of the last weight)."""
    if inputs.width != weights["weight0"].shape[0]:
        raise InputError(
            f"this encoder was trained on {weights['weight0'].shape[0]} features and the graph has {inputs.width}; "
            "give it the same features, or train with featureless='degree', whose width does not depend on the graph."
        )
    return finish(inputs, weights, inputs.project(weights["weight0"]))


def finish(inputs: Inputs, weights: Weights, P: Tensor) -> Tensor:
    """Run the layers on P, the product of the features and ``weight0``, (n, columns of weight0).

    A layer that has a ``slope`` ends in a PReLU; the others end in a ReLU, except for the last one, which is linear.
    """
    depth = sum(name.startswith("weight") for name in weights)
    H = P
    for layer in range(depth):
        P = P if layer == 0 else H @ weights[f"weight{layer}"]
        H = (P if layer == 0 and inputs.smoothed else spread(inputs.A, P)) + weights[f"bias{layer}"]
        slope = weights.get(f"slope{layer}")
        if slope is not None:
            H = torch.nn.functional.prelu(H, slope)
        elif layer < depth - 1:
            H = torch.relu(H)
    return H
