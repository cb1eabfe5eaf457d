"""Three departments that share only overlaps, in one frame; the coordinator sees neither node ids nor coordinates.

python examples/three_departments.py [--out three_departments.png]
"""

import argparse
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np

import graphquilt as gq
from graphquilt import federated

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="three_departments.png")
arguments = parser.parse_args()

# Each department knows its own nodes, their features, and the nodes that these are joined to.
graph = gq.datasets.load_dataset("blocks")
owner = gq.Metis(3)(graph)
adjacency = graph.adjacency
known = {name: np.flatnonzero((owner == k) | (adjacency @ (owner == k) > 0)) for k, name in enumerate("abc")}

# One round: every department embeds at home, and offers keyed pseudonyms of its nodes.
agreed, key, _ = federated.invite("tonight", gq.Propagation(6))
parties = {}
for name, nodes in known.items():
    part = graph.subgraph(nodes)
    part = gq.Graph(part.adjacency, part.features, node_ids=np.array([f"person-{node}" for node in nodes]))
    parties[name] = federated.offer(part, agreed, key, party=name)
measurements = [
    federated.measure(parties[b], federated.reply(parties[a], parties[b].offer)) for a, b in combinations("abc", 2)
]
result = federated.align(measurements, of_round=agreed)  # what the coordinator does
print(result.alignment.summary())

figure, axes = plt.subplots(1, 2, figsize=(9, 4.5), layout="constrained")
plane = None
for name, nodes in known.items():
    _, X = federated.apply(parties[name], result.transforms[name])
    if plane is None:
        plane = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:2].T
    axes[0].scatter(*(X @ plane).T, s=5, alpha=0.5, label=f"department {name}")
    axes[1].scatter(*(X @ plane).T, c=graph.labels[nodes], cmap="tab10", vmin=0, vmax=9, s=5)
axes[0].set(title="one frame, by department", xticks=[], yticks=[])
axes[1].set(title="the same, by class", xticks=[], yticks=[])
axes[0].legend()
figure.savefig(arguments.out, dpi=120)
print(f"Picture: {arguments.out}")
