"""Place tomorrow's nodes in today's frame, without training.

python examples/new_nodes.py [--out new_nodes.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

import graphquilt as gq

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="new_nodes.png")
arguments = parser.parse_args()

graph = gq.datasets.load_dataset("blocks")
is_old = np.random.default_rng(0).random(graph.n_nodes) < 0.8
today = graph.subgraph(np.flatnonzero(is_old))
encoder = gq.Propagation(8).fit(today, seed=0).encoder

tomorrow = encoder(graph)  # every node, the new ones included
moved = np.linalg.norm(tomorrow[is_old] - encoder(today), axis=1) / np.linalg.norm(tomorrow[is_old], axis=1)
print(f"{int((~is_old).sum())} new nodes. The old ones moved by {np.median(moved):.0%} of their length in the median.")

plane = np.linalg.svd(tomorrow - tomorrow.mean(axis=0), full_matrices=False)[2][:2].T
figure, axis = plt.subplots(figsize=(5.5, 5), layout="constrained")
for new, marker, title in ((False, ".", "known yesterday"), (True, "^", "new")):
    rows = is_old != new
    axis.scatter(*(tomorrow[rows] @ plane).T, c=graph.labels[rows], cmap="tab10", marker=marker, s=18, label=title)
axis.set(title="Classes are coloured; triangles are new nodes", xticks=[], yticks=[])
axis.legend()
figure.savefig(arguments.out, dpi=120)
print(f"Picture: {arguments.out}")
