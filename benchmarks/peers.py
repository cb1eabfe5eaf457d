"""graphquilt beside other embedders: accuracy, held-out links, CPU seconds and peak memory.

    python benchmarks/peers.py --data DATA --out peers/ --write docs/benchmarks-peers.md

Each cell runs in a fresh process. Cells that are in the folder already are kept, so that a stopped run goes on.
The peers come from `pip install pycleora fastnode2vec 'graphquilt[all]'`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np

import graphquilt as gq
from measuring import PeakMemory, machine
from peer_methods import PEERS

DIM = 128
SETS = ("cora", "pubmed", "amazon-photo", "coauthor-cs", "wordnet", "synthetic-1m")
OWN = {
    "graphquilt, one patch": {"n_patches": 1},
    "graphquilt, ten patches": {"n_patches": 10},
    "graphquilt, features, one patch": {"n_patches": 1, "features": True},
    "graphquilt, features, ten patches": {"n_patches": 10, "features": True},
}
VGAE = "PyG VGAE, features"
METHODS = [*OWN, *PEERS, VGAE]
SLOW = {
    ("node2vec", "synthetic-1m"),
    (VGAE, "synthetic-1m"),
    (VGAE, "wordnet"),
    ("node2vec", "coauthor-cs"),
    ("node2vec", "wordnet"),
}
PACKAGES = ("pycleora", "scikit-network", "fastnode2vec", "torch-geometric")


def load(name, data):
    """Return the graph of a name: a data set, or a synthetic graph of 1M nodes and 10M edges in 1000 communities."""
    if name != "synthetic-1m":
        return gq.datasets.load_dataset(name, data=data)
    rng, n, m = np.random.default_rng(0), 1_000_000, 10_000_000
    community = rng.integers(1000, size=n)
    members = np.argsort(community, kind="stable")
    starts = np.searchsorted(community[members], np.arange(1001))
    source = rng.integers(n, size=m)
    c = community[source]
    inside = members[(starts[c] + rng.random(m) * (starts[c + 1] - starts[c])).astype(np.int64)]
    target = np.where(rng.random(m) < 0.8, inside, rng.integers(n, size=m))
    graph = gq.read_edges(np.stack([source, target], axis=1), n_nodes=n)
    return gq.Graph(graph.adjacency, labels=community % 20)


def pyg_vgae(graph, dim, seed):
    """The variational graph auto-encoder of PyG's documentation: two GCN layers, 200 epochs, learning rate .01."""
    import torch
    from torch_geometric import nn

    torch.manual_seed(seed)
    x = torch.tensor(graph.features.toarray() if hasattr(graph.features, "toarray") else np.asarray(graph.features))

    class Encoder(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.first, self.mean = nn.GCNConv(width, 2 * dim), nn.GCNConv(2 * dim, dim)
            self.deviation = nn.GCNConv(2 * dim, dim)

        def forward(self, x, edges):
            h = self.first(x, edges).relu()
            return self.mean(h, edges), self.deviation(h, edges)

    edges = torch.tensor(np.stack(graph.adjacency.nonzero()), dtype=torch.int64)
    model = nn.VGAE(Encoder(x.shape[1]))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        optimiser.zero_grad()
        Z = model.encode(x.float(), edges)
        loss = model.recon_loss(Z, edges) + model.kl_loss() / graph.n_nodes
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        return model.eval().encode(x.float(), edges).numpy()


def embedded(method, graph):
    """Return the embedding of a graph by a method."""
    if method in OWN:
        bare = graph if OWN[method].get("features") else gq.Graph(graph.adjacency)
        return gq.embed(bare, dim=DIM, n_patches=OWN[method]["n_patches"]).embedding
    if method == VGAE:
        return pyg_vgae(graph, DIM, 0)
    return PEERS[method](graph.adjacency.astype(np.float32), DIM, 0)


def cell(method, name, data):
    """Measure one method on one data set: the embedding of all edges, and one without a tenth of them."""
    graph = load(name, data)
    if "features" in method and graph.features is None:
        return {"left out": "no features"}
    few = np.arange(min(1000, graph.n_nodes))
    embedded(method, graph.subgraph(few) if method in OWN else gq.datasets.load_dataset("blocks"))  # compiles kernels
    start = time.process_time()
    with PeakMemory() as memory:
        X = embedded(method, graph)
    row = {"cpu": time.process_time() - start, "gib": memory.gib}
    options = gq.evaluate.EvaluationOptions(max_edges=100_000)
    row["accuracy"] = gq.evaluate.quality(X, graph, options=options).accuracy
    del X
    rest, held_out = gq.evaluate.hold_out_edges(graph, fraction=0.1, seed=0, connected=name != "synthetic-1m")
    if "features" in method:
        rest = gq.Graph(rest.adjacency, graph.features)
    links = gq.evaluate.link_quality(embedded(method, rest), held_out, graph, seed=0)
    return row | {"cosine": links.cosine, "inner": links.inner_product}


def measured(method, name, data, folder):
    """Return a cell from the folder, or measure it in a fresh process."""
    file = folder / f"{name} {method}.json"
    if not file.exists():
        command = [sys.executable, __file__, "--cell", method, name, "--out", str(folder)]
        command += ["--data", data] if data else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            result = {"failed": (done.stderr.strip() or f"ended with code {done.returncode}").splitlines()[-1][:200]}
        else:
            result = json.loads(done.stdout.strip().splitlines()[-1])
        file.write_text(json.dumps(result), encoding="utf-8")
    result = json.loads(file.read_text(encoding="utf-8"))
    print(name, method, result, flush=True)
    return result


def shown(result):
    """Return one cell of the table."""
    if "cpu" not in result:
        return "–" if "left out" in result else "failed"
    links = max(result["cosine"], result["inner"])
    return f"{result['accuracy']:.3f} / {links:.3f} / {result['cpu']:.1f} / {result['gib']:.2f}"


def table(results):
    """Return the page."""
    versions = ", ".join(f"{package} {metadata.version(package)}" for package in PACKAGES)
    lines = [
        "# graphquilt beside others",
        "",
        "Each entry is accuracy / AUC of held-out links / CPU seconds / peak memory in GiB.",
        "",
        f"- All embeddings have {DIM} dimensions. Every cell ran in a fresh process with one thread.",
        "- Accuracy is that of `InvariantLogistic` (20 training nodes per class, 50 splits).",
        "- Links: a tenth of the edges is left out; the better of cosine and inner product is shown.",
        '- Rows with "features" also use the node features; the others see only the edges.',
        "- Peers use the settings that their documentation recommends. FastRP and ProNE are written from their papers.",
        "",
        f"Measured by `python benchmarks/peers.py` with graphquilt {gq.__version__}, {versions}; {machine()}.",
        "",
        "| method | " + " | ".join(SETS) + " |",
        "|---|" + "---|" * len(SETS),
    ]
    lines += [f"| {m} | " + " | ".join(shown(results[m, s]) for s in SETS) + " |" for m in METHODS]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path, default=Path("peers"))
    parser.add_argument("--write", type=Path)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--kept", action="store_true", help="measure nothing, and show what the folder has")
    parser.add_argument("--cell", nargs=2)
    arguments = parser.parse_args()
    if arguments.cell:
        print(json.dumps(cell(*arguments.cell, arguments.data)))
        return
    arguments.out.mkdir(exist_ok=True)
    results = {(m, s): {"left out": "takes more than an hour"} for m, s in SLOW}
    asked = {(m, s) for m in arguments.methods for s in arguments.sets}
    results |= {(m, s): {"left out": "not asked for"} for m in METHODS for s in SETS if (m, s) not in asked}
    for name in arguments.sets:
        for method in arguments.methods:
            if arguments.kept and not (arguments.out / f"{name} {method}.json").exists():
                results[method, name] = {"left out": "not measured"}
            elif (method, name) not in results:
                results[method, name] = measured(method, name, arguments.data, arguments.out)
    if arguments.write:
        arguments.write.write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
