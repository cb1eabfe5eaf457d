"""A PyTorch Geometric encoder in every patch, stitched.

python examples/pyg_encoder.py [--out pyg_encoder.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from torch_geometric import seed_everything
from torch_geometric.nn import GAE, GCN
from torch_geometric.utils import from_scipy_sparse_matrix

import graphquilt as gq

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="pyg_encoder.png")
parser.add_argument("--epochs", type=int, default=150)
arguments = parser.parse_args()


def train(graph, seed):
    """Train a PyG encoder as a graph auto-encoder, and return the embedding of the graph."""
    seed_everything(seed % 2**32)
    x, edges = torch.from_numpy(graph.features), from_scipy_sparse_matrix(graph.adjacency)[0]
    model = GAE(GCN(in_channels=64, hidden_channels=32, num_layers=2, out_channels=8))
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(arguments.epochs):
        adam.zero_grad()
        model.recon_loss(model.encode(x, edges), edges).backward()
        adam.step()
    return model.encode(x, edges)


digits = load_digits()  # each handwritten digit is joined to the eight most like it
A = kneighbors_graph(digits.data, 8)
graph = gq.Graph(A.maximum(A.T), (digits.data / 16).astype(np.float32), labels=digits.target)
result = gq.embed(graph, dim=8, cutting=gq.Cutting(4, overlap=(200, 800)), embedder=train)
print(result.alignment.summary())
print(gq.evaluate.quality(result.embedding, graph))

unaligned = gq.centroid(result.patches, gq.alignment.Alignment.identity(4, 8))
figure, axes = plt.subplots(1, 2, figsize=(9, 4.5), layout="constrained")
for axis, X, title in zip(axes, (unaligned, result.embedding), ("patches as trained", "stitched"), strict=True):
    centred = X - X.mean(axis=0)
    plane = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    axis.scatter(*plane.T, c=graph.labels, cmap="tab10", s=5)
    axis.set(title=title, xticks=[], yticks=[])
figure.savefig(arguments.out, dpi=120)
print(f"Picture: {arguments.out}")
