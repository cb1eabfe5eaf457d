"""Many patches against one at a million nodes: CPU seconds, peak memory, held-out links; and two threads against one.

    PYTHONPATH=. python benchmarks/far_field.py

Each row runs in a fresh process. ``communities`` is the graph of benchmarks/peers.py with 1M nodes and 10M edges;
``weighted`` gives its edges random weights; ``rmat`` has as many nodes and edges and no communities. Compilation is not
counted: every process embeds a small graph first.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

import graphquilt as gq
from graphquilt.alignment.verdict import grade
from graphquilt.evaluate import cosine, hold_out_edges, link_prediction_auc
from measuring import PeakMemory, alone, machine
from peers import load

DIM, HELD = 128, 0.02
ROWS = [
    *({"graph": "communities", "patches": p} for p in (1, 10, 100)),
    *({"graph": "weighted", "patches": p} for p in (1, 10)),
    *({"graph": "rmat", "patches": p} for p in (1, 10)),
]
THREADS = [{"graph": "communities", "patches": p, "links": False} for p in (1, 10)]


def graph_of(kind):
    """Return a graph of a million nodes and about ten million edges."""
    if kind != "rmat":
        graph = load("synthetic-1m", "")
        if kind == "communities":
            return graph
        A = graph.adjacency
        i, j = np.minimum(*A.nonzero()).astype(np.uint64), np.maximum(*A.nonzero()).astype(np.uint64)
        bits = (i * np.uint64(0x9E3779B97F4A7C15) + j) * np.uint64(0xBF58476D1CE4E5B9)
        A.data = 0.5 + (bits >> np.uint64(40)) / 2.0**24  # the same for both directions
        return gq.Graph(A, labels=graph.labels)
    rng, levels, m = np.random.default_rng(0), 20, 10_000_000
    ends = np.zeros((2, m), dtype=np.int64)
    for _ in range(levels):  # a = .57, b = c = .19, d = .05 (Chakrabarti et al. 2004)
        quadrant = np.searchsorted([0.57, 0.76, 0.95], rng.random(m))
        ends = 2 * ends + np.stack([quadrant // 2, quadrant % 2])
    return gq.read_edges(ends.T[ends[0] != ends[1]], n_nodes=1 << levels)


def measure(row):
    """Return what one row costs and how good it is."""
    graph = graph_of(row["graph"])
    held = None
    if row.get("links", True):
        kept, held = hold_out_edges(graph, fraction=HELD, seed=0, connected=False)
    else:
        kept = graph
    ring = gq.read_edges(np.stack([np.arange(400), (np.arange(400) + 1) % 400], axis=1))
    for patches in (1, 3):
        gq.embed(ring, dim=2, n_patches=patches)
    cpu, wall = time.process_time(), time.perf_counter()
    with PeakMemory() as peak:
        result = gq.embed(kept, dim=DIM, n_patches=row["patches"])
    figures = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "gib": peak.gib}
    figures["verdict"] = grade(result.alignment)
    if result.alignment.frame is not None:
        figures["unseen"] = float(result.alignment.frame.unseen.mean())
    if held is not None:
        figures["links"] = link_prediction_auc(result.embedding, held, graph, seed=0, score=cosine)
    figures["sum"] = float(np.abs(result.embedding.astype(np.float64)).sum())
    return figures


def main():
    """Run all rows, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="")
    parser.add_argument("--row", type=json.loads)
    given = parser.parse_args()
    if given.row is not None:
        print(json.dumps(measure(given.row)))
        return
    print(machine())
    for row in ROWS:
        print(json.dumps({**row, **alone(__file__, "row", row)}), flush=True)
    for row in THREADS:
        for threads in (1, 2):
            print(json.dumps({**row, "threads": threads, **alone(__file__, "row", row, threads=threads)}), flush=True)


if __name__ == "__main__":
    main()
