"""Three departments that share only overlaps, in one frame; the coordinator sees neither node ids nor coordinates.

python examples/three_departments.py [--out three_departments.png]
"""

import argparse
import secrets
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np

import graphquilt as gq
from graphquilt.federated import align

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="three_departments.png")
arguments = parser.parse_args()

# Each department knows its own nodes, their features, and the nodes that these are joined to.
graph = gq.datasets.load_dataset("blocks")
owner = gq.Metis(3)(graph)
adjacency = graph.adjacency
known = {name: np.flatnonzero((owner == k) | (adjacency @ (owner == k) > 0)) for k, name in enumerate("abc")}

# One round: every department embeds at home by its own means, and offers its nodes under pseudonyms.
agreed, key = align.invite("tonight", 6, ids_can_be_guessed=True)
parties = {}
for name, nodes in known.items():
    X = gq.Propagation(6)(graph.subgraph(nodes), seed=0)
    ids = np.array([f"person-{node}" for node in nodes])
    parties[name] = align.offer(ids, X, agreed, key=key, party=name, secret=secrets.token_bytes(32))
measurements = [align.measure(parties[b], align.reply(parties[a], parties[b].offer)) for a, b in combinations("abc", 2)]
result = align.solve(measurements, agreed)  # what the coordinator does
print(result.summary())

figure, axes = plt.subplots(1, 2, figsize=(9, 4.5), layout="constrained")
plane = None
for name, nodes in known.items():
    _, X = align.apply(parties[name], result.transforms[name])
    if plane is None:
        plane = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:2].T
    axes[0].scatter(*(X @ plane).T, s=5, alpha=0.5, label=f"department {name}")
    axes[1].scatter(*(X @ plane).T, c=graph.labels[nodes], cmap="tab10", vmin=0, vmax=9, s=5)
axes[0].set(title="one frame, by department", xticks=[], yticks=[])
axes[1].set(title="the same, by class", xticks=[], yticks=[])
axes[0].legend()
figure.savefig(arguments.out, dpi=120)
print(f"Picture: {arguments.out}")
