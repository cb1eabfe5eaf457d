"""Training of somebody else's torch module as the encoder of a graph auto-encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.func import functional_call

from graphquilt.arrays import AnyArray, Float64Array
from graphquilt.embedders._fit import Parameters, Schedule, train
from graphquilt.embedders._ops import Workspace
from graphquilt.embedders._pairs import NonEdges, undirected_edges
from graphquilt.embedders._tasks import Reconstruction, Sampled
from graphquilt.graph import Graph
from graphquilt.progress import ProgressCallback

__all__ = ["train_module"]


def train_module(
    module: Any, graph: Graph, features: Any, schedule: Schedule, progress: ProgressCallback | None
) -> tuple[AnyArray, Float64Array]:
    """Train ``module(x, edge_index)`` in place; return the embedding (n, dim) and the losses.

    Random numbers come from torch's global generator.
    """
    for part in module.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    x = torch.as_tensor(features.toarray() if sp.issparse(features) else np.array(features), dtype=torch.float32)
    rows = np.repeat(np.arange(graph.n_nodes), graph.degrees)
    edge_index = torch.as_tensor(np.stack([rows, np.asarray(graph.indices, dtype=np.int64)]))
    edges = undirected_edges(graph)
    non_edges = NonEdges(edges, graph.n_nodes)
    pairs = torch.as_tensor(edges)
    space = Workspace(device="cpu", dtype=torch.float32)

    def loss(weights: Mapping[str, Tensor]) -> Tensor:
        out = functional_call(module, dict(weights), (x, edge_index))
        others = non_edges.sample(2 * pairs.shape[1], torch.default_generator)
        if isinstance(out, Tensor):
            return Reconstruction.apply(space, out.contiguous(), pairs, others)
        both = torch.cat(list(out), dim=1)
        Z, divergence = Sampled.apply(space, both, torch.randn(both.shape[0], both.shape[1] // 2))
        return Reconstruction.apply(space, Z, pairs, others) + divergence / graph.n_nodes

    values = {name: value.detach().numpy() for name, value in module.named_parameters()}
    parameters = Parameters(values, device="cpu", dtype=torch.float32)
    module.train()
    losses = train(parameters, loss, schedule, progress=progress)
    module.eval()
    with torch.no_grad():
        out = functional_call(module, parameters.named, (x, edge_index))
    Z = out if isinstance(out, Tensor) else out[0]
    return Z.numpy().copy(), losses
