"""Speed and memory of graphs, partitions and patches.

    python benchmarks/patches.py                       every row, each in a process of its own
    python benchmarks/patches.py fennel-speed rmat     some of them
    python benchmarks/patches.py --write docs/benchmarks-patches.md      and keep the table; rows not run stay

Times are CPU seconds of one thread, and ratios compare two computations in the same process. Memory is the peak of
anonymous resident memory above what the process had before the work, so that mapped files do not count. Compilation
is not part of any figure: each kernel runs once on a small input first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numba
import numpy as np

import graphquilt as gq
from graphquilt.graph import check_labels
from graphquilt.graph.reading.assembly import Columns, assemble
from graphquilt.patches import Conductance, Resistance
from graphquilt.patches.sparsify import conductance, sparsify

MIB = 1 << 20


class Watch:
    """CPU seconds, and the peak of anonymous resident memory above the start."""

    def __enter__(self):
        self._stop = threading.Event()
        self._start = self._peak = anonymous()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        self._cpu = time.process_time()
        return self

    def _look(self):
        while not self._stop.wait(0.01):
            self._peak = max(self._peak, anonymous())

    def __exit__(self, *_):
        self.cpu = time.process_time() - self._cpu
        self._stop.set()
        self._thread.join()
        self.mib = (max(self._peak, anonymous()) - self._start) / MIB


def anonymous():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


def best(repeats, work):
    """Run ``work`` a few times; return the least CPU seconds, and the last result."""
    times = []
    for _ in range(repeats):
        with Watch() as watch:
            result = work()
        times.append(watch.cpu)
    return min(times), result


def rmat(scale, m, seed=0):
    """Draw an R-MAT graph (0.57, 0.19, 0.19, 0.05) with shuffled ids; return its largest component."""
    rng = np.random.default_rng(seed)
    u, v = np.zeros(m, np.int64), np.zeros(m, np.int64)
    for _ in range(scale):
        r = rng.random(m)
        u = 2 * u + (r >= 0.76)
        v = 2 * v + (((r >= 0.57) & (r < 0.76)) | (r >= 0.95))
    name = rng.permutation(1 << scale)
    graph = assemble(Columns(name[u], name[v]), n_nodes=1 << scale)
    graph = graph.largest_component()[0]
    return graph.with_attributes(node_ids=np.arange(graph.n_nodes))


def large_rmat():
    """At least 1M nodes and 10M edges, for two rows; made in another process, so that this one has a clean memory."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, "rmat", "--here", "--write", folder], check=True)
        graph = gq.Graph.open(folder)
        return gq.Graph.from_arrays(np.array(graph.indptr), np.array(graph.indices))


def small_ring(n=200):
    return gq.Graph.from_arrays(
        np.arange(0, 2 * n + 1, 2), np.sort((np.arange(n)[:, None] + [1, n - 1]) % n, axis=1).ravel().astype(np.int32)
    )


@numba.njit(cache=True)
def gather(indptr, indices, labels):
    total = 0
    for u in range(len(indptr) - 1):
        for e in range(indptr[u], indptr[u + 1]):
            total += labels[indices[e]]
    return total


def fennel_speed():
    """Fennel against nothing but gathering every neighbour's label."""
    gq.Fennel(3, passes=1)(small_ring())
    n, m = 5_000_000, 50_000_000
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        edges = rng.integers(0, n, (2, m), dtype=np.int32)
        graph = gq.graph.build_csr(edges, folder, n_nodes=n)
        del edges
        graph = gq.Graph.from_arrays(np.array(graph.indptr), np.array(graph.indices))
    labels = rng.integers(0, 10_000, n).astype(np.int32)
    gather(graph.indptr[:2], graph.indices, labels)
    fennel, found = best(2, lambda: gq.Fennel(10_000, passes=1)(graph))
    bare, _ = best(2, lambda: gather(graph.indptr, graph.indices, labels))
    largest = np.bincount(found).max() / (n / 10_000)
    return {
        "work": f"Fennel, {n:,} nodes, {graph.n_entries:,} entries, 10 000 clusters, one pass",
        "must": "CPU at most 4 × gathering every neighbour's label",
        "measured": f"{fennel:.2f} s against {bare:.2f} s: {fennel / bare:.2f} × ({largest:.3f} × the mean cluster)",
        "holds": bool(fennel <= 4 * bare),
    }


@numba.njit(cache=True)
def fennel_as_written(indptr, indices, p, alpha, cap):
    """Score every cluster for every node, as the rule is written: O(n p)."""
    n = len(indptr) - 1
    labels = np.full(n, -1)
    sizes = np.zeros(p, np.int64)
    gain = np.zeros(p)
    root = np.sqrt(np.arange(cap + 1))
    for v in range(n):
        gain[:] = 0
        for e in range(indptr[v], indptr[v + 1]):
            if labels[indices[e]] >= 0:
                gain[labels[indices[e]]] += 1
        best, best_score = -1, -np.inf
        for c in range(p):
            if sizes[c] < cap:
                score = gain[c] - 1.5 * alpha * root[sizes[c]]
                if score > best_score:
                    best, best_score = c, score
        labels[v] = best
        sizes[best] += 1
    return labels


def fennel_cut():
    """Fennel's balance and cut on a heavy-tailed graph."""
    graph = large_rmat()
    n, p = graph.n_nodes, 1000
    gq.Fennel(3, passes=1)(small_ring())
    seconds, labels = best(1, lambda: gq.Fennel(p, passes=1, balance=1.1)(graph))
    two = gq.patches.edge_cut(graph, gq.Fennel(p, passes=2, balance=1.1)(graph))
    cap = max(int(1.1 * n / p), -(-n // p))
    fennel_as_written(graph.indptr[:1], graph.indices, 2, 1.0, 1)
    alpha = graph.n_entries / 2 * p**0.5 / n**1.5
    direct, plain = best(1, lambda: fennel_as_written(graph.indptr, graph.indices, p, alpha, cap))
    largest = np.bincount(labels).max() / (n / p)
    ours, theirs = gq.patches.edge_cut(graph, labels), gq.patches.edge_cut(graph, plain)
    return {
        "work": f"Fennel on R-MAT, {n:,} nodes, {graph.n_edges:,} edges, 1000 clusters, balance 1.1",
        "must": "largest cluster ≤ 1.1 × mean, cut no worse than the O(n·p) transcription with the same cap",
        "measured": (
            f"{largest:.3f} × mean; cut {ours:,.0f} against {theirs:,.0f} ({ours / theirs:.4f}), "
            f"two passes {two:,.0f}; {seconds:.2f} s against {direct:.2f} s"
        ),
        "holds": bool(largest <= 1.1 and ours <= theirs),
    }


def random_patch_graph(p, m):
    rng = np.random.default_rng(0)
    every = np.stack(np.triu_indices(p, 1), axis=1)
    pairs = every[np.sort(rng.choice(len(every), m, replace=False))] if m < len(every) else every
    return pairs, rng.uniform(0.001, 0.1, len(pairs))


def resistance():
    """Resistance sparsification of patch graphs."""
    pairs, c = random_patch_graph(10, 40)
    sparsify(pairs, Resistance()(pairs, c, 10), 10, degree=4)
    figures = []
    for p, m in ((100, 4950), (2000, 100_000)):
        pairs, c = random_patch_graph(p, m)
        with Watch() as watch:
            kept = sparsify(pairs, Resistance()(pairs, c, p), p, degree=10)
        figures.append((watch.cpu, watch.mib, len(kept.edges)))
    p, m = 10_000, 1_000_000
    rng = np.random.default_rng(0)
    pairs = np.unique(np.sort(rng.integers(0, p, (m, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    with Watch() as watch:
        sparsify(pairs, Resistance()(pairs, rng.uniform(0.001, 0.1, len(pairs)), p), p, degree=20)
    (a, _, _), (b, mib, _) = figures
    return {
        "work": "resistance sparsification: complete patch graph of 100; 2000 patches and 100 000 edges",
        "must": "under 0.2 s; under 30 s and 2 GiB",
        "measured": (
            f"{a:.3f} s; {b:.2f} s and {mib:.0f} MiB (beyond the switch, 10 000 patches and {len(pairs):,} edges, "
            f"estimated: {watch.cpu:.1f} s, {watch.mib:.0f} MiB)"
        ),
        "holds": bool(a < 0.2 and b < 30 and mib < 2048),
    }


def expansion():
    """Patches of a heavy-tailed graph, with and without limits."""
    from graphquilt.patches.construction import allocate_overlap, expand

    gq.patch_graph(small_ring(), np.arange(200) // 50, degree=2, overlap=(10, 20))
    graph = large_rmat()
    n, p = graph.n_nodes, 1000
    labels = check_labels(gq.Fennel(p, passes=2)(graph), n)
    csr = (graph.indptr.nbytes + graph.indices.nbytes) / MIB
    with Watch() as whole:
        quilt = gq.patch_graph(graph, labels, degree=10, overlap=(256, 1024))
    targets = allocate_overlap(quilt.edges, np.bincount(labels), (256, 1024), gq.Limits())
    with Watch() as watch:
        expand(graph, labels, quilt.edges, targets, seeds=np.random.SeedSequence(0))
    pairs = conductance(graph, labels)[0]
    plain = gq.patch_graph(
        graph, labels, degree=10, overlap=(256, 1024), edge_weight=Conductance(), limits=gq.Limits.none()
    )
    bounded = gq.patch_graph(graph, labels, degree=10, overlap=(256, 1024), edge_weight=Conductance())
    mean = n / p
    return {
        "work": f"patches of that R-MAT graph, p=1000, degree 10, overlap (256, 1024), {len(pairs):,} cluster pairs",
        "must": "expansion under 5 CPU s, memory under 3 × the CSR, largest patch at most 20 × the mean cluster",
        "measured": (
            f"{watch.cpu:.2f} s ({whole.cpu:.1f} s with quotient, resistances and report); {whole.mib:.0f} MiB, "
            f"{whole.mib / csr:.2f} × the CSR; {quilt.sizes.max() / mean:.1f} × (by conductance "
            f"{bounded.sizes.max() / mean:.1f} ×, and {plain.sizes.max() / mean:.1f} × without limits)"
        ),
        "holds": bool(watch.cpu < 5 and whole.mib < 3 * csr and quilt.sizes.max() <= 20 * mean),
    }


@numba.njit(cache=True)
def build_in_memory(u, v, n):
    """One symmetric CSR, sorted and unique, all in memory."""
    indptr = np.zeros(n + 1, np.int64)
    for k in range(len(u)):
        if u[k] != v[k]:
            indptr[u[k] + 1] += 1
            indptr[v[k] + 1] += 1
    for k in range(n):
        indptr[k + 1] += indptr[k]
    place = indptr[:-1].copy()
    indices = np.empty(indptr[-1], np.int32)
    for k in range(len(u)):
        if u[k] != v[k]:
            indices[place[u[k]]] = v[k]
            place[u[k]] += 1
            indices[place[v[k]]] = u[k]
            place[v[k]] += 1
    filled = a = 0
    for r in range(n):
        b = indptr[r + 1]
        indices[a:b] = np.sort(indices[a:b])
        for k in range(a, b):
            if k == a or indices[k] != indices[filled - 1]:
                indices[filled] = indices[k]
                filled += 1
        indptr[r + 1] = filled
        a = b
    return indptr, indices[:filled].copy()


def out_of_core():
    """CSR of 100M edges within 1 GiB, against a build in memory."""
    n, m = 5_000_000, 100_000_000
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges.npy"
        edges = np.lib.format.open_memmap(path, mode="w+", dtype=np.int32, shape=(2, m))
        for start in range(0, m, 10_000_000):
            edges[:, start : start + 10_000_000] = rng.integers(0, n, (2, min(10_000_000, m - start)))
        del edges
        small = rng.integers(0, 9, (2, 20)).astype(np.int32)
        gq.graph.build_csr(small, Path(folder) / "warm")
        build_in_memory(small[0], small[1], 9)
        with Watch() as watch:
            graph = gq.graph.build_csr(path, Path(folder) / "graph", n_nodes=n, memory=1 << 30)
        edges = np.load(path)
        with Watch() as inside:
            indptr, indices = build_in_memory(edges[0], edges[1], n)
        same = np.array_equal(indptr, graph.indptr) and np.array_equal(indices, graph.indices)
    return {
        "work": f"out-of-core CSR of {m:,} edges with a bound of 1 GiB ({len(indices):,} entries)",
        "must": "under 1.5 GiB resident, mapped files not counted; at most 6 × the CPU of one in-memory numba build",
        "measured": (
            f"{watch.mib / 1024:.2f} GiB; {watch.cpu:.1f} s against {inside.cpu:.1f} s: {watch.cpu / inside.cpu:.2f} × "
            f"(in memory {inside.mib / 1024:.2f} GiB); {'the same bits' if same else 'DIFFERENT'}"
        ),
        "holds": bool(watch.mib < 1536 and watch.cpu <= 6 * inside.cpu and same),
    }


ROWS = {
    "fennel-speed": fennel_speed,
    "fennel-cut": fennel_cut,
    "resistance": resistance,
    "expansion": expansion,
    "out-of-core": out_of_core,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, "rmat", []], help="which rows; all by default")
    parser.add_argument("--here", action="store_true", help="run one row in this process and print it as JSON")
    parser.add_argument("--write", type=Path, help="write the table to this Markdown file")
    options = parser.parse_args()
    if options.rows == ["rmat"]:
        rmat(22, 10_300_000).save(options.write)
        return
    if options.here:
        print(json.dumps(ROWS[options.rows[0]]()))
        return
    kept = options.write.with_suffix(".json") if options.write else None
    results = json.loads(kept.read_text()) if kept and kept.exists() else {}
    for row in options.rows or ROWS:
        done = subprocess.run([sys.executable, __file__, row, "--here"], check=True, stdout=subprocess.PIPE, text=True)
        results[row] = json.loads(done.stdout.splitlines()[-1])
        print(line(results[row]), flush=True)
    if options.write:
        kept.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        head = ["# Benchmarks: graphs, partitions and patches", "", *__doc__.strip().splitlines()[-3:], ""]
        table = [
            "| work | goal | measured | reached |",
            "|---|---|---|---|",
            *(line(results[r]) for r in ROWS if r in results),
        ]
        options.write.write_text("\n".join([*head, *table]) + "\n")
    sys.exit(0 if all(found["holds"] for found in results.values()) else 1)


def line(found):
    """One row of the table."""
    return (
        "| " + " | ".join([found["work"], found["must"], found["measured"], "yes" if found["holds"] else "NO"]) + " |"
    )


if __name__ == "__main__":
    main()
