"""Cora: ten patches against one model of the whole graph.

    python examples/cora_from_raw_files.py DATA [--out cora.png]

DATA is a folder with cora.npz; in a clone, `python -m studies convert cora` downloads and converts it.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

import graphquilt as gq

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--out", default="cora.png")
arguments = parser.parse_args()

graph = gq.datasets.load_dataset("cora", data=arguments.data)
print(graph)
ways = {
    "whole graph": gq.Propagation(32)(graph, seed=0),
    "ten patches, shared start": gq.embed(graph, dim=32, n_patches=10).embedding,
    "ten patches, aligned": gq.embed(graph, dim=32, n_patches=10, recipe=gq.Recipe.paper()).embedding,
}

figure, axes = plt.subplots(1, 3, figsize=(13, 4.5), layout="constrained")
for axis, (title, X) in zip(axes, ways.items(), strict=True):
    measured = gq.evaluate.quality(X, graph)
    print(f"{title:<28} accuracy {measured.accuracy:.3f}   AUC {measured.auc:.3f}")
    centred = X - X.mean(axis=0)
    plane = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    axis.scatter(*plane.T, c=graph.labels, cmap="tab10", s=4)
    axis.set(title=f"{title}: accuracy {measured.accuracy:.3f}", xticks=[], yticks=[])
figure.savefig(arguments.out, dpi=120)
print(f"Picture: {arguments.out}")
