"""Build, cut and embed a graph within a memory limit, in a folder that can be resumed.

python examples/larger_than_memory.py [--nodes 200000] [--folder big/] [--out larger_than_memory.png]
"""

import argparse
import resource
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import graphquilt as gq

parser = argparse.ArgumentParser()
parser.add_argument("--nodes", type=int, default=200_000)
parser.add_argument("--folder", type=Path, default=Path("big"))
parser.add_argument("--out", default="larger_than_memory.png")
arguments = parser.parse_args()
n, folder = arguments.nodes, arguments.folder
folder.mkdir(exist_ok=True)

# Every node is joined to nodes that lie near it on a ring, and sometimes to one far away.
rng = np.random.default_rng(0)
source = np.repeat(np.arange(n), 5)
target = (source + rng.geometric(0.02, size=len(source))) % n
far = rng.random(len(source)) < 0.01
target[far] = rng.integers(n, size=far.sum())
np.save(folder / "edges.npy", np.stack([source, target]))

gq.graph.build_csr(np.load(folder / "edges.npy", mmap_mode="r"), folder / "graph", memory=1 << 28)
graph = gq.Graph.open(folder / "graph")
cutting = gq.Cutting(10, partitioner=gq.Fennel(10), edge_weight=gq.Conductance())
result = gq.embed(graph, dim=8, cutting=cutting, store=gq.DirectoryStore(folder / "job"))
print(result.alignment.summary())
print(f"Peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")

figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
axis.bar(np.arange(10), [len(nodes) for nodes, _ in result.patches])
axis.set(xlabel="patch", ylabel="nodes", title=f"{n} nodes in ten overlapping patches")
figure.savefig(arguments.out, dpi=120)
print(f"Picture: {arguments.out}")
