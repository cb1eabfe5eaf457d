"""Three departments embed together and show each other nothing but sums behind masks.

python examples/three_departments.py [--out three_departments.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

import graphquilt as gq
from graphquilt import federated

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="three_departments.png")
arguments = parser.parse_args()

# Each department knows its own nodes, and the edges that touch them.
graph = gq.datasets.load_dataset("blocks")
owner = gq.Metis(3)(graph)
networks = {}
for k, name in enumerate("abc"):
    own = np.flatnonzero(owner == k)
    known = np.union1d(own, graph.adjacency[own].indices)
    part = gq.Graph(graph.adjacency).subgraph(known).with_attributes(node_ids=known)
    networks[name] = federated.Network.of(part, np.searchsorted(known, own))

# One round: each adds up its own nodes behind masks, and the coordinator finds the directions of the total.
invitation, key = federated.invite("tonight", 6, list(networks), terms=federated.Terms(buckets=400))
members = {name: federated.join(network, invitation, key, party=name) for name, network in networks.items()}
agreed = federated.Round.of(invitation, [member.card for member in members.values()])
sums = [federated.contribute(networks[name], agreed, member) for name, member in members.items()]
directions = federated.combine(agreed, sums)

figure, axes = plt.subplots(1, 2, figsize=(9, 4.5), layout="constrained")
for name, network in networks.items():
    made = federated.embed(network, agreed, members[name], directions)  # at home
    print(f"{name}: {made.verdict}")
    points, nodes = made.embedding[:, 1:3].T, network.ids[made.rows]
    axes[0].scatter(*points, s=5, alpha=0.5, label=f"department {name}")
    axes[1].scatter(*points, c=graph.labels[nodes], cmap="tab10", vmin=0, vmax=9, s=5)
axes[0].set(title="one frame, by department", xticks=[], yticks=[])
axes[1].set(title="the same, by class", xticks=[], yticks=[])
axes[0].legend()
figure.savefig(arguments.out, dpi=120)
print(f"Picture: {arguments.out}")
