"""graphquilt beside other embedders: accuracy, held-out links, CPU seconds and peak memory.

    PYTHONPATH=. python benchmarks/peers.py --data DATA --out peers/ --write docs/benchmarks-peers.md --readme README.md

Each cell runs in a fresh process with one thread. Cells that are in the folder already are kept, so that a stopped run
goes on; ``--kept`` measures nothing and only writes the tables. A method that needs more than 15 minutes of CPU time
or 8 GiB for one embedding is stopped, and the tables say so.
The peers come from `pip install pycleora fastnode2vec 'graphquilt[all]'`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np

import graphquilt as gq
from measuring import PeakMemory, machine
from peer_methods import PEERS
from studies.npz_graphs import NAMES, open_graph

DIM = 128
MINUTES, GIB = 15, 8
SETS = {
    "cora": "Cora",
    "pubmed": "Pubmed",
    "amazon-photo": "Amazon photo",
    "coauthor-cs": "Coauthor CS",
    "wordnet": "WordNet",
    "synthetic-1m": "1M nodes",
    "het-tolokers": "Tolokers",
    "musae-twitch-de": "Twitch DE",
    "debian-bookworm": "Debian",
}
OWN = {
    "graphquilt, one patch": {"n_patches": 1},
    "graphquilt, ten patches": {"n_patches": 10},
    "graphquilt, features, one patch": {"n_patches": 1, "features": True},
    "graphquilt, features, ten patches": {"n_patches": 10, "features": True},
}
VGAE = "PyG VGAE, features"
METHODS = [*list(OWN)[:2], *PEERS, *list(OWN)[2:], VGAE]
REMARKS = Path(__file__).with_name("peers_remarks.md")  # on the figures of 0.6.0
PACKAGES = ("pycleora", "scikit-network", "fastnode2vec", "torch-geometric")


def load(name, data):
    """Return the graph of a name: a data set, or a synthetic graph of 1M nodes and 10M edges.

    The synthetic graph has 20 classes of 50 communities of about 1000 nodes: half of the edges stay in a community,
    three tenths in a class, and the others go anywhere.
    """
    if name in NAMES:
        return open_graph(name, None if data is None else Path(data))
    rng, n, m = np.random.default_rng(0), 1_000_000, 10_000_000
    community = rng.integers(1000, size=n)
    members = np.argsort(community, kind="stable")
    starts = np.searchsorted(community[members], np.arange(1001))
    source, kind = rng.integers(n, size=m), rng.choice(3, p=[0.5, 0.3, 0.2], size=m)
    own = community[source]
    first = np.choose(kind, [own, own // 50 * 50, 0])
    last = np.choose(kind, [own + 1, own // 50 * 50 + 50, 1000])
    target = members[(starts[first] + rng.random(m) * (starts[last] - starts[first])).astype(np.int64)]
    graph = gq.read_edges(np.stack([source, target], axis=1), n_nodes=n)
    return gq.Graph(graph.adjacency, labels=community // 50)


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


def limited(method, graph):
    """Return the embedding, or let the system end this process after too much CPU time."""
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + MINUTES * 60, most))
    X = embedded(method, graph)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    return X


def cell(method, name, data, folder):
    """Measure one method on one data set: the embedding of all edges, and one without a tenth of them.

    The first half is kept as soon as it is there, for tables that cannot wait for the second.
    """
    graph = load(name, data)
    if "features" in method and graph.features is None:
        return {"left out": "no features"}
    few = np.arange(min(1000, graph.n_nodes))
    embedded(method, graph.subgraph(few) if method in OWN else gq.datasets.load_dataset("blocks"))  # compiles kernels
    start = time.process_time()
    with PeakMemory() as memory:
        X = limited(method, graph)
    row = {"cpu": time.process_time() - start, "gib": memory.gib}
    options = gq.evaluate.EvaluationOptions(max_edges=100_000, splits=10 if graph.n_nodes > 500_000 else 50)
    row["accuracy"] = gq.evaluate.quality(X, graph, options=options).accuracy
    (folder / f"{name} {method}.half.json").write_text(json.dumps(row), encoding="utf-8")
    del X
    rest, held_out = gq.evaluate.hold_out_edges(graph, fraction=0.1, seed=0, connected=name != "synthetic-1m")
    if "features" in method:
        rest = gq.Graph(rest.adjacency, graph.features)
    X = limited(method, rest)
    scores = {"cosine": gq.evaluate.cosine, "inner": gq.evaluate.inner_product}
    link_auc = gq.evaluate.link_prediction_auc
    return row | {name: link_auc(X, held_out, graph, seed=0, score=score) for name, score in scores.items()}


def measured(method, name, data, folder):
    """Return a cell from the folder, or measure it in a fresh process."""
    file = folder / f"{name} {method}.json"
    if not file.exists():
        command = [sys.executable, __file__, "--cell", method, name, "--out", str(folder)]
        command += ["--data", data] if data else []
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        file.write_text(json.dumps(outcome(done)), encoding="utf-8")
    result = json.loads(file.read_text(encoding="utf-8"))
    print(name, method, result, flush=True)
    return result


def outcome(done):
    """Return what a process measured, or why it measured nothing."""
    if done.returncode == 0:
        return json.loads(done.stdout.strip().splitlines()[-1])
    if done.returncode == -signal.SIGXCPU:
        return {"left out": f"over {MINUTES} min"}
    reason = (done.stderr.strip() or f"ended with code {done.returncode}").splitlines()[-1][:200]
    return {"left out": f"over {GIB} GiB"} if "MemoryError" in reason else {"failed": reason}


def shown(result, *, memory):
    """Return one cell of a table, with or without the peak memory."""
    if "cpu" not in result:
        return result.get("left out", "failed")
    links = f"{link_auc(result):.3f}" if "inner" in result else "–"
    cpu = f"{result['cpu']:.1f}" if result["cpu"] < 10 else f"{result['cpu']:.0f}"
    text = f"{result['accuracy']:.3f} / {links} / {cpu} s" + (f" / {result['gib']:.2f} GiB" if memory else "")
    return text + "\\*" * ("earlier" in result)


def table(results, *, memory):
    """Return the lines of a table with one row per method and one column per data set."""
    lines = [f"| {DIM} dimensions | " + " | ".join(SETS.values()) + " |", "|---|" + "---|" * len(SETS)]
    for method in METHODS:
        title = f"**{method}**" if method in OWN else method
        lines.append(f"| {title} | " + " | ".join(shown(results[method, s], memory=memory) for s in SETS) + " |")
    return lines


def against_the_best(results):
    """Return the lines of a table: graphquilt without features beside the best peer on each set."""
    lines = ["| edges only | best accuracy | one patch | ten | best link AUC | one patch | ten |", "|---|" + "---|" * 6]
    for name, title in SETS.items():
        cells = [title]
        for digits, unit, value in ((1, 100, lambda row: row["accuracy"]), (3, 1, link_auc)):
            peers = {m: value(results[m, name]) for m in PEERS if "inner" in results[m, name]}
            best = max(peers, key=peers.get, default=None)
            cells.append("–" if best is None else f"{unit * peers[best]:.{digits}f} ({best})")
            for own in list(OWN)[:2]:
                change = (
                    unit * (value(results[own, name]) - peers[best]) if best and "inner" in results[own, name] else None
                )
                cells.append("–" if change is None else f"{change:+.{digits}f}".replace("-", "−"))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def link_auc(result):
    """Return the better AUC of a cell."""
    return max(result["cosine"], result["inner"])


def page(results):
    """Return the page of the documentation."""
    versions = ", ".join(f"{package} {metadata.version(package)}" for package in PACKAGES)
    lines = [
        "# graphquilt beside others",
        "",
        "Each entry is accuracy / AUC of held-out links / CPU time / peak memory.",
        "",
        f"- All embeddings have {DIM} dimensions. Every cell ran in a fresh process with one thread.",
        "- Accuracy is that of `InvariantLogistic` (20 training nodes per class, 50 splits; 10 on the synthetic set).",
        "- Links: a tenth of the edges is left out; the better of cosine and inner product is shown.",
        '- Rows with "features" also use the node features; the others see only the edges.',
        f"- A method that needs more than {MINUTES} minutes of CPU time or {GIB} GiB for one embedding was stopped.",
        "- A dash was not measured.",
        '- "1M nodes" is a synthetic graph with 10M edges: 20 classes of 50 communities, without features.',
        "- Cells with an asterisk were measured with 0.5.2. Its classifier stopped early on its path of penalties, so",
        "  their accuracies are rougher where there are many classes.",
        "- Peers use the settings that their documentation recommends. FastRP and ProNE are written from their papers.",
        "",
        f"Measured by `python benchmarks/peers.py` with graphquilt {gq.__version__}, {versions}; {machine()}.",
        "",
        *table(results, memory=True),
        "",
        "## Beside the best of them",
        "",
        "Differences to the best method that sees only edges, in points of accuracy and in link AUC.",
        "",
        *against_the_best(results),
        "",
        REMARKS.read_text(encoding="utf-8").strip(),
    ]
    return "\n".join(lines) + "\n"


def with_table(text, lines):
    """Return a text in which the table of this benchmark is replaced."""
    before, rest = text.split(f"| {DIM} dimensions |", 1)
    _, after = rest.split("\n\n", 1)
    return before + "\n".join(lines) + "\n\n" + after


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path, default=Path("peers"))
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--readme", type=Path, help="the text in which to replace the table")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--kept", action="store_true", help="measure nothing, and show what the folder has")
    parser.add_argument("--cell", nargs=2)
    arguments = parser.parse_args()
    if arguments.cell:
        resource.setrlimit(resource.RLIMIT_DATA, ((GIB + 1) << 30,) * 2)  # 1 GiB for programs and the graph
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        print(json.dumps(cell(*arguments.cell, arguments.data, arguments.out)))
        return
    arguments.out.mkdir(exist_ok=True)
    results = {(m, s): {"left out": "–"} for m in METHODS for s in SETS}
    for name in arguments.sets:
        for method in arguments.methods:
            half = arguments.out / f"{name} {method}.half.json"
            if not arguments.kept or half.with_name(f"{name} {method}.json").exists():
                results[method, name] = measured(method, name, arguments.data, arguments.out)
            elif half.exists():
                results[method, name] = json.loads(half.read_text(encoding="utf-8"))
    if arguments.write:
        arguments.write.write_text(page(results), encoding="utf-8")
    if arguments.readme:
        text = with_table(arguments.readme.read_text(encoding="utf-8"), table(results, memory=False))
        arguments.readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
