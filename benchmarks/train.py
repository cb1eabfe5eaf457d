"""How long the embedders take, side by side with PyG and SciPy in one run.

``python benchmarks/train.py [epochs whole memory svd propagation]`` prints every row of the table in
docs/embedders.md. Cora and Pubmed are read from the folder that GRAPHQUILT_DATA names.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

import graphquilt as gq
from graphquilt.embedders.training import reconstruction_score

warnings.simplefilter("ignore")
ROUNDS, EPOCHS = 3, 6


def planetoid(name: str) -> gq.Graph:
    """Return the largest component of a data set."""
    folder = os.environ.get("GRAPHQUILT_DATA")
    if not folder:
        sys.exit("set GRAPHQUILT_DATA to the folder that holds cora/cora.npz and pubmed/pubmed.npz")
    file = np.load(Path(folder, name, f"{name}.npz"))
    X = sp.csr_array((file["x_data"], file["x_indices"], file["x_indptr"]), shape=tuple(file["x_shape"]))
    A = sp.csr_array((np.ones(file["edge_index"].shape[1]), tuple(file["edge_index"])), shape=(X.shape[0],) * 2)
    _, label = sp.csgraph.connected_components(A, directed=False)
    kept = np.flatnonzero(label == np.bincount(label).argmax())
    return gq.Graph(A[kept][:, kept], X[kept])


def pyg_epoch(graph: gq.Graph, kind: str, dim: int):
    """Return a function that trains PyG's model for one epoch, on edge_index and dense features."""
    from torch_geometric.nn import VGAE, DeepGraphInfomax, GCNConv

    class Auto(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first = GCNConv(width, 4 * dim, cached=True)
            self.mean, self.log_std = (GCNConv(4 * dim, dim, cached=True) for _ in range(2))

        def forward(self, x, edges):
            h = self.first(x, edges).relu()
            return self.mean(h, edges), self.log_std(h, edges)

    class Info(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first, self.act = GCNConv(width, dim, cached=True), torch.nn.PReLU(dim)

        def forward(self, x, edges):
            return self.act(self.first(x, edges))

    x = torch.as_tensor(graph.features.toarray(), dtype=torch.float32)
    edges = torch.as_tensor(np.stack(graph.adjacency.tocoo().coords).astype(np.int64))
    if kind == "VGAE":
        model = VGAE(Auto(x.shape[1]))
    else:
        model = DeepGraphInfomax(
            hidden_channels=dim,
            encoder=Info(x.shape[1]),
            summary=lambda z, *_: torch.sigmoid(z.mean(dim=0)),
            corruption=lambda x, edges: (x[torch.randperm(len(x))], edges),
        )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def epoch() -> None:
        optimizer.zero_grad()
        if kind == "VGAE":
            loss = model.recon_loss(model.encode(x, edges), edges) + model.kl_loss() / len(x)
        else:
            loss = model.loss(*model(x, edges))
        loss.backward()
        optimizer.step()
        float(loss.detach())

    return epoch


def seconds_each(epoch, count: int) -> np.ndarray:
    """Return (CPU, wall) seconds of each of ``count`` epochs."""
    times = []
    for _ in range(count):
        start = time.process_time(), time.perf_counter()
        epoch()
        times.append((time.process_time() - start[0], time.perf_counter() - start[1]))
    return np.array(times)


def our_epochs(graph: gq.Graph, kind: str, dim: int, threads: int) -> np.ndarray:
    """Return (CPU, wall) seconds of each epoch of one training, the first left out."""
    marks = []
    embedder = getattr(gq, kind)(dim, max_epochs=EPOCHS + 1, patience=10**6, threads=threads)
    embedder.fit(graph, 0, progress=lambda _: marks.append((time.process_time(), time.perf_counter())))
    return np.diff(np.array(marks), axis=0)


def epochs(threads: int) -> None:
    """Print epochs of VGAE and DGI beside PyG's, taking turns."""
    for name, kind, dim in (("cora", "VGAE", 32), ("pubmed", "VGAE", 32), ("pubmed", "DGI", 128)):
        graph = planetoid(name)
        torch.set_num_threads(threads)
        theirs_epoch = pyg_epoch(graph, kind, dim)
        seconds_each(theirs_epoch, 2)
        our_epochs(graph, kind, dim, threads)
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours.append(our_epochs(graph, kind, dim, threads))
            theirs.append(seconds_each(theirs_epoch, EPOCHS))
        mine, other = np.median(np.concatenate(ours), axis=0), np.median(np.concatenate(theirs), axis=0)
        print(
            f"{kind} d={dim} {name}, {threads} threads: ours {1e3 * mine[0]:.1f} CPU ms, {1e3 * mine[1]:.1f} wall ms; "
            f"PyG {1e3 * other[0]:.1f}, {1e3 * other[1]:.1f}; times faster: {other[0] / mine[0]:.1f} CPU, "
            f"{other[1] / mine[1]:.1f} wall",
            flush=True,
        )


def whole(threads: int) -> None:
    """Print whole trainings on Cora to early stopping, with their reconstruction AUC."""
    graph = planetoid("cora")
    for dim in (32, 128):
        rows = []
        for seed in range(3):
            start = time.process_time()
            fit = gq.VGAE(dim, threads=threads).fit(graph, seed)
            used = time.process_time() - start
            rows.append((used, len(fit.losses), reconstruction_score(graph, fit.embedding, 0)))
        mean = np.mean(rows, axis=0)
        print(
            f"VGAE d={dim} cora to early stopping, {threads} threads: {mean[0]:.2f} CPU s, {mean[1]:.0f} epochs, "
            f"AUC {mean[2]:.4f} (means of 3 seeds; CPU s {', '.join(f'{row[0]:.2f}' for row in rows)})",
            flush=True,
        )


def anonymous_megabytes() -> float:
    """Return the resident memory of this process that is no mapped file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return float("nan")


def peak_of(who: str, kind: str) -> None:
    """Print the peak resident memory above import of a few epochs on Pubmed, d=128."""
    import torch_geometric.nn  # noqa: F401

    from graphquilt.embedders import training  # noqa: F401

    base, peak, stop = anonymous_megabytes(), [0.0], threading.Event()

    def watch() -> None:
        while not stop.is_set():
            peak[0] = max(peak[0], anonymous_megabytes())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    torch.set_num_threads(1)
    graph = planetoid("pubmed")
    if who == "ours":
        getattr(gq, kind)(128, max_epochs=4).fit(graph, 0)
    else:
        seconds_each(pyg_epoch(graph, kind, 128), 4)
    stop.set()
    watcher.join()
    print(peak[0] - base)


def memory() -> None:
    """Print peak memory of both, each in a process of its own."""
    for kind in ("VGAE", "DGI"):
        commands = ([sys.executable, __file__, "--peak", who, kind] for who in ("ours", "PyG"))
        peaks = [float(subprocess.run(line, capture_output=True, text=True, check=True).stdout) for line in commands]
        print(f"peak memory, {kind} d=128 pubmed: ours {peaks[0]:.0f} MB, PyG {peaks[1]:.0f} MB", flush=True)


def communities(n: int = 100_000, m: int = 1_000_000, groups: int = 500) -> sp.csr_array:
    """Return a graph of uneven communities, some tighter than others, with heavy-tailed degrees."""
    rng = np.random.default_rng(0)
    weight = rng.pareto(2.5, size=n) + 1
    weight /= weight.sum()
    label = rng.choice(groups, size=n, p=rng.dirichlet(np.ones(groups)))
    order, sizes = np.argsort(label, kind="stable"), np.bincount(label, minlength=groups)
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    out = rng.uniform(0.05, 0.6, size=groups)
    u, v = (rng.choice(n, size=int(1.3 * m), p=weight) for _ in range(2))
    c = label[u]
    inside = rng.random(len(u)) > out[c]
    near = order[start[c] + (rng.random(len(u)) * sizes[c]).astype(np.int64)]
    v = np.where(inside, near, v)
    low, high = np.minimum(u, v)[u != v], np.maximum(u, v)[u != v]
    keys = rng.permutation(np.unique(low * n + high))[:m]
    A = sp.csr_array((np.ones(len(keys)), (keys // n, keys % n)), shape=(n, n))
    return sp.csr_array(A + A.T)


def sparse_graphs() -> Iterator[tuple[str, sp.csr_array, int]]:
    """Yield the name, the adjacency of the largest component, and the dimensions of graphs with close eigenvalues."""
    rng, n = np.random.default_rng(0), 50_000
    child = np.arange(1, n)
    ends = {
        "random graph, mean degree 4": (rng.integers(0, n, 2 * n), rng.integers(0, n, 2 * n), n, 32),
        "random tree": ((rng.random(n - 1) * child).astype(np.int64), child, n, 32),
        "path": (np.arange(19_999), np.arange(1, 20_000), 20_000, 32),
        "ring": (np.arange(1200), np.roll(np.arange(1200), 1), 1200, 6),
    }
    for name, (u, v, nodes, dim) in ends.items():
        ones = (u != v).astype(np.float64)
        A = sp.csr_array((ones, (u, v)), shape=(nodes, nodes))
        yield name, gq.Graph(sp.csr_array(((A + A.T) > 0).astype(np.float64))).largest_component()[0].adjacency, dim
    yield "communities", gq.Graph(communities()).largest_component()[0].adjacency, 128
    with contextlib.suppress(gq.errors.InputError):
        yield "Amazon photo", gq.datasets.load_dataset("amazon-photo").adjacency, 32


def svd() -> None:
    """Print SVD beside SciPy's eigsh on the same matrices, with the same tolerance, and the residuals of both."""
    from scipy.sparse.linalg import eigsh

    for name, A, dim in sparse_graphs():
        degree = np.asarray(A.sum(axis=1)).ravel() + 1
        root = sp.diags_array(1 / np.sqrt(degree))
        M = sp.csr_array(root @ (A + sp.eye_array(len(degree))) @ root)
        graph = gq.Graph(A)
        gq.SVD(2, steps=1, tol=0.5)(graph, 0)  # compiles
        start = time.process_time()
        X = gq.SVD(dim, steps=1)(graph, 0)
        ours = time.process_time() - start
        first = np.random.default_rng(0).standard_normal(len(degree))
        start = time.process_time()
        values, V = eigsh(M, k=dim, which="LM", v0=first, tol=1e-3, maxiter=1000)
        theirs = time.process_time() - start
        lengths = np.linalg.norm(X, axis=0)
        residuals = [
            np.linalg.norm(M @ (M @ U) - U * squares, axis=0).max()
            for U, squares in ((X / lengths, lengths**2), (V, values**2))
        ]
        print(
            f"SVD({dim}), {name}, {len(degree)} nodes: ours {ours:.2f} CPU s, residual {residuals[0]:.1e}; SciPy eigsh "
            f"{theirs:.2f} CPU s, residual {residuals[1]:.1e}; times faster: {theirs / ours:.1f}",
            flush=True,
        )


def propagation(n: int = 1_000_000, m: int = 10_000_000, p: int = 100, dim: int = 128) -> None:
    """Print the cost of Propagation without features: the whole graph, and its patches with one process and two.

    For the patches the graph is in a folder, as that of a job is, so that every process cuts its patches itself.
    """
    graph = gq.Graph(communities(n, m, n // 200))
    gq.Propagation(2)(gq.Graph(communities(1000, 5000, 10)), 0)  # compiles
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    gq.Propagation(dim)(graph, 0)
    cost, peak = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"Propagation({dim}), {n} nodes, {m} edges, no features: {cost:.1f} CPU s, peak memory {peak / 2**20:.2f} "
        f"GiB, of which {before / 2**20:.2f} GiB before, with the graph",
        flush=True,
    )
    patches = gq.cut(
        graph,
        embedder=gq.VGAE(dim),
        cutting=gq.Cutting(p, partitioner=gq.Fennel(p), degree=4, overlap=(256, 1024)),
        recipe=gq.Recipe(),
    )
    walls = []
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder, gq.Processes(workers) as executor:
            graph.save(Path(folder, "graph"))
            kept = gq.Graph.open(Path(folder, "graph"))
            list(executor.map(abs, range(2 * workers)))  # starts the workers
            wall, own = time.perf_counter(), time.process_time()
            store = gq.DirectoryStore(Path(folder, "job"))
            gq.embed_patches(kept, patches, gq.Propagation(dim), executor=executor, store=store)
            walls.append(time.perf_counter() - wall)
            own, others = time.process_time() - own, max(executor.map(_cpu_seconds, range(workers)))
        print(
            f"Propagation({dim}), {p} patches of the same graph, {workers} processes: {walls[-1]:.0f} s; {own:.1f} "
            f"CPU s here and {others:.1f} in the busiest process",
            flush=True,
        )
    print(f"two processes are {walls[0] / walls[1]:.2f} times as fast as one", flush=True)


def _cpu_seconds(_: int) -> float:
    return time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["epochs", "whole", "memory", "svd", "propagation"])
    parser.add_argument("--nodes", type=int, default=1_000_000, help="of the graph of 'propagation'")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.peak:
        peak_of(*chosen.peak)
        return
    for threads in sorted({1, os.cpu_count() or 1}):
        for name in ("epochs", "whole"):
            if name in chosen.what:
                globals()[name](threads)
    for name in ("memory", "svd"):
        if name in chosen.what:
            globals()[name]()
    if "propagation" in chosen.what:
        propagation(chosen.nodes, 10 * chosen.nodes)


if __name__ == "__main__":
    main()
