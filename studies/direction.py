"""Held-out links of directed graphs: Propagation with and without direction, whole and in patches."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import graphquilt as gq
from graphquilt.arrays import AnyArray, BoolArray, Int64Array
from graphquilt.evaluate import cosine, roc_auc
from graphquilt.files import load_arrays

SETS = ("debian", "wordnet", "higgs")
HELD_OUT = 0.1  # of the edges


def read_set(data: Path, name: str) -> tuple[Int64Array, int, sp.csr_array | None]:
    """Return the directed edges (2, m) without loops and duplicates, the number of nodes, and their features."""
    if name == "higgs":
        with gzip.open(data / "higgs-twitter" / "higgs-retweet_network.edgelist.gz", "rt", encoding="utf-8") as file:
            ends = np.array([line.split()[:2] for line in file], dtype=np.int64).T
        ends = np.unique(ends, return_inverse=True)[1].reshape(2, -1)
        return _distinct(ends), int(ends.max()) + 1, None
    folder = {"debian": "debian-bookworm", "wordnet": "wordnet"}[name]
    arrays = load_arrays(data / folder / f"{folder}.npz")
    X = sp.csr_array((arrays["x_data"], arrays["x_indices"], arrays["x_indptr"]), shape=tuple(arrays["x_shape"]))
    if name == "debian":
        typed = np.asarray(arrays["typed_edges"])
        ends = (typed if typed.shape[0] == 3 else typed.T)[:2]
    if name == "wordnet":
        with gzip.open(data / folder / "relations.tsv.gz", "rt", encoding="utf-8") as file:
            cells = (line.split("\t") for line in file)
            ends = np.array([(int(row[0]), int(row[2])) for row in cells if row[0].isdigit()]).T
    return _distinct(ends.astype(np.int64)), int(X.shape[0]), X


def _distinct(ends: Int64Array) -> Int64Array:
    return np.unique(ends[:, ends[0] != ends[1]], axis=1)


def measure(
    data: Path, name: str, *, features: bool, dim: int, patches: int, seed: int = 0
) -> Iterator[dict[str, object]]:
    """Yield one row per embedder: AUC against random pairs, shuffled targets, and the same pairs turned round.

    Pairs are scored by the cosine of their rows: that of the source with that of the target where direction is kept.
    """
    ends, n, X = read_set(data, name)
    rng = np.random.default_rng(seed)
    held = rng.random(ends.shape[1]) < HELD_OUT
    seen, test = ends[:, ~held], ends[:, held]
    degree = np.bincount(seen.ravel(), minlength=n)
    test = test[:, (degree[test] > 0).all(axis=0)]
    live, known = np.flatnonzero(degree), np.sort(ends[0] * n + ends[1])

    def absent(u: AnyArray, v: AnyArray) -> BoolArray:
        keys = u * n + v
        return np.asarray((known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] != keys) & (u != v))

    pairs = {"random": rng.choice(live, test.shape), "shuffled": np.stack([test[0], rng.permutation(test[1])])}
    pairs = {kind: each[:, absent(*each)] for kind, each in pairs.items()}
    one_way = test[:, absent(*test[::-1])]
    A = sp.csr_array((np.ones(seen.shape[1]), (seen[0], seen[1])), shape=(n, n))
    graph = gq.Graph(A, X if features else None)
    for directed in (False, True):
        embedder = gq.Propagation(dim, directed=directed)
        clock = time.process_time()
        Z = np.asarray(gq.embed(graph, embedder=embedder, n_patches=patches).embedding, dtype=np.float64)
        cpu = time.process_time() - clock
        half = dim // 2 if directed else dim
        S, T = Z[:, :half], Z[:, -half:]
        links = cosine(S[test[0]], T[test[1]])
        scores = {kind: (links, cosine(S[u], T[v])) for kind, (u, v) in pairs.items()}
        u, v = one_way
        scores["reversed"] = cosine(S[u], T[v]), cosine(S[v], T[u])
        figures = {kind: round(float(roc_auc(*both)), 4) for kind, both in scores.items()}
        yield {
            "set": name,
            "features": features,
            "patches": patches,
            "directed": directed,
            **figures,
            "cpu": round(cpu),
        }
