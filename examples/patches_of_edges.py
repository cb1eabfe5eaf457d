"""Edges as the things that are embedded: patches of edges, each in its own frame, aligned by the edges they share.

    python examples/patches_of_edges.py [--out patches_of_edges.png]

The mean of two rows turns as the rows do, so patches of edges are patches like any other. Only the ids are those of
edges.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

import graphquilt as gq

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="patches_of_edges.png")
arguments = parser.parse_args()

graph = gq.datasets.load_dataset("blocks")
i, j = graph.adjacency.nonzero()
edges = np.column_stack([i, j])[i < j]  # the id of an edge is its row here
whole = gq.Propagation(16)(graph, seed=0)

rng = np.random.default_rng(0)
patches = []
for nodes in gq.patch_graph(graph, gq.Metis(4)(graph), degree=3, overlap=(150, 400), seed=0).node_sets:
    turn = np.linalg.qr(rng.normal(size=(16, 16)))[0]  # a frame that nobody else knows
    X = np.zeros_like(whole)
    X[nodes] = whole[nodes] @ turn + rng.normal(size=16) + 0.01 * rng.normal(size=(len(nodes), 16))
    inside = np.flatnonzero(np.isin(edges, nodes).all(axis=1))
    patches.append((inside, gq.edge_embeddings(X, edges[inside], "mean")))

alignment = gq.align(patches)
print(alignment.summary())

covered = np.unique(np.concatenate([ids for ids, _ in patches]))
E = gq.centroid([(np.searchsorted(covered, ids), rows) for ids, rows in patches], alignment)
same = graph.labels[edges[covered, 0]] == graph.labels[edges[covered, 1]]  # edges inside a class, and between two
kinds = np.where(same, graph.labels[edges[covered, 0]], -1)
accuracy = gq.evaluate.classification_accuracy(E, kinds, splits=10, seed=0)
print(f"{len(covered)} of {len(edges)} edges lie in a patch; their class is found for {accuracy.mean():.1%}")

figure, axes = plt.subplots(1, 2, figsize=(9, 4.5), layout="constrained")
for k, (_, rows) in enumerate(patches):
    for axis, points in zip(axes, (rows, alignment.apply(k, rows)), strict=True):
        axis.scatter(*points[:, :2].T, s=4, alpha=0.5, label=f"patch {k + 1}")
axes[0].set_title("edges, as each patch sees them")
axes[1].set_title("aligned")
axes[0].legend()
figure.savefig(arguments.out, dpi=120)
print(f"Picture: {arguments.out}")
