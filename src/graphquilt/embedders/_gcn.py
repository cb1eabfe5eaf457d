"""Sparse products with their gradients, and the GCN layers made of them (torch).

A graph convolution is Â H W + b with Â = D^-1/2 (A + I) D^-1/2 (Kipf and Welling 2017). Â is symmetric, so the
gradient of Â H is Â times the gradient that comes in: one CSR matrix serves both ways and a layer costs O(nnz).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphquilt.errors import InputError
from graphquilt.graph import Graph

__all__ = ["Inputs", "encode", "finish", "inputs_of", "normalized_adjacency", "sparse_tensor"]

# Rows of features whose gradients stay in a core's cache together: the transposed product goes block by block.
BLOCK_ROWS = 2048
# Above this share of non-zeros a dense product is the faster one (AVX-512, float32, 128 columns).
DENSE_SHARE = 0.25

with warnings.catch_warnings():
    # torch says once in a process that CSR tensors are in beta; it is said here, to nobody.
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.zeros(0, dtype=torch.int64), torch.zeros(0), (1, 1))


def normalized_adjacency(graph: Graph) -> sp.csr_array:
    """Return Â = D^-1/2 (A + I) D^-1/2, (n, n), symmetric.

    A node that has a loop keeps its loop's weight. A directed graph is made undirected by the larger of both weights.

    Examples
    --------
    >>> normalized_adjacency(Graph(sp.csr_array([[0, 1], [1, 0]]))).toarray().round(6).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    A = graph.adjacency
    if graph.directed:
        A = A.maximum(A.T).tocsr()
    loops = A.diagonal()
    A = (A + sp.diags_array(np.where(loops > 0, 0.0, 1.0))).tocsr()
    A.sort_indices()
    scale = 1 / np.sqrt(np.asarray(A.sum(axis=1)).ravel())
    A.data *= np.repeat(scale, np.diff(A.indptr)) * scale[A.indices]
    return sp.csr_array(A)


def sparse_tensor(matrix: Any, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a torch CSR tensor of a SciPy matrix, with 32-bit indices where they suffice (torch converts others)."""
    M = sp.csr_array(matrix)
    index = torch.int32 if max(*M.shape, M.nnz) < 2**31 else torch.int64
    return torch.sparse_csr_tensor(
        torch.as_tensor(M.indptr, dtype=index),
        torch.as_tensor(M.indices, dtype=index),
        torch.as_tensor(M.data, dtype=dtype),
        size=M.shape,
        device=device,
    )


def multiply(A: Tensor, x: Tensor) -> Tensor:
    """Return A x. ``A @ x`` makes and clears two arrays for it; this writes into one, up to 5 times faster."""
    if A.layout != torch.sparse_csr:
        return A @ x
    out = torch.empty(A.shape[0], x.shape[1], dtype=x.dtype, device=x.device)
    return torch.addmm(out, A, x, beta=0, out=out)


class SymmetricProduct(torch.autograd.Function):  # type: ignore[misc]
    """A x for a constant symmetric A: the gradient is A times the gradient."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, x: Tensor) -> Tensor:
        """Return A x."""
        ctx.A = A
        return multiply(A, x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        """Return A g."""
        return None, multiply(ctx.A, gradient)


class FeatureProduct(torch.autograd.Function):  # type: ignore[misc]
    """X W for constant sparse features X, with X^T kept in blocks of rows of X."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, blocks: list[Tensor], W: Tensor) -> Tensor:
        """Return X W."""
        ctx.blocks = blocks
        return multiply(X, W)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, Tensor]:
        """Return X^T g, summed over blocks."""
        g = gradient.contiguous()
        total = torch.zeros(ctx.blocks[0].shape[0], g.shape[1], dtype=g.dtype, device=g.device)
        start = 0
        for block in ctx.blocks:
            stop = start + block.shape[1]
            torch.addmm(total, block, g[start:stop], out=total)
            start = stop
        return None, None, total


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a network sees of a graph: Â and the features, ready to be multiplied.

    Three forms: no features at all, where X W is W; sparse ``X`` with the transposed ``blocks``; or ``dense``, which is
    X, or Â X where ``smoothed`` says so (both products of a first layer then cost one).
    """

    A: Tensor
    X: Tensor | None
    blocks: list[Tensor]
    dense: Tensor | None
    smoothed: bool
    n_nodes: int
    width: int

    def project(self, W: Tensor) -> Tensor:
        """Return X W, (n, columns of W)."""
        if self.X is not None:
            return FeatureProduct.apply(self.X, self.blocks, W)
        return W if self.dense is None else self.dense @ W

    def first(self, W: Tensor) -> Tensor:
        """Return Â X W, (n, columns of W)."""
        if self.smoothed and self.dense is not None:
            return self.dense @ W
        return SymmetricProduct.apply(self.A, self.project(W))


def inputs_of(
    A: sp.csr_array,
    features: Any,
    *,
    smooth: bool = True,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Inputs:
    """Put Â and the features, (n, f) dense or sparse or None for the identity, on the device.

    ``smooth`` allows Â X to be multiplied out where X is dense; what needs X W by itself must forbid it.
    """
    n = A.shape[0]
    adjacency = sparse_tensor(A, device=device, dtype=dtype)
    if features is None:
        return Inputs(adjacency, None, [], None, False, n, n)
    width = int(features.shape[1])
    if sp.issparse(features) and features.nnz < DENSE_SHARE * n * width:
        X = sp.csr_array(features)
        blocks = [
            sparse_tensor(X[row : row + BLOCK_ROWS].T.tocsr(), device=device, dtype=dtype)
            for row in range(0, n, BLOCK_ROWS)
        ]
        return Inputs(adjacency, sparse_tensor(X, device=device, dtype=dtype), blocks, None, False, n, width)
    full = features.toarray() if sp.issparse(features) else np.array(features, order="C")
    dense = torch.as_tensor(full, dtype=dtype, device=device)
    return Inputs(adjacency, None, [], multiply(adjacency, dense) if smooth else dense, smooth, n, width)


def dropped(x: Tensor, share: float, generator: torch.Generator | None) -> Tensor:
    """Return x with a share of its entries set to 0 and the others enlarged to make up for them."""
    if generator is None or share == 0:
        return x
    keep = torch.rand(x.shape, generator=generator, dtype=x.dtype).to(x.device) >= share
    return x * (keep / (1 - share))


def encode(
    inputs: Inputs,
    weights: Mapping[str, Tensor],
    *,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Run the GCN layers ``weight0, bias0, weight1, …``, (n, columns of the last weight)."""
    if inputs.width != weights["weight0"].shape[0]:
        raise InputError(
            f"this encoder was trained on {weights['weight0'].shape[0]} features and the graph has {inputs.width}; "
            "give it the same features, or train with featureless='degree', whose width does not depend on the graph."
        )
    return finish(inputs, weights, inputs.first(weights["weight0"]), dropout=dropout, generator=generator)


def finish(
    inputs: Inputs,
    weights: Mapping[str, Tensor],
    H: Tensor,
    *,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Run what follows Â X W of the first layer, given as H (n, columns of weight0).

    A layer that has a ``slope`` ends in a PReLU; the others end in a ReLU, but for the last one, which is linear.
    Dropout acts on what every layer but the first takes in, when there is a generator.
    """
    depth = sum(name.startswith("weight") for name in weights)
    for layer in range(depth):
        if layer > 0:
            H = dropped(H, dropout, generator)
            H = SymmetricProduct.apply(inputs.A, H @ weights[f"weight{layer}"])
        H = H + weights[f"bias{layer}"]
        if f"slope{layer}" in weights:
            H = torch.nn.functional.prelu(H, weights[f"slope{layer}"])
        elif layer < depth - 1:
            H = torch.relu(H)
    return H
