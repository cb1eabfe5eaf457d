"""What measuring costs: 50 logistic regressions, as one batch and one after the other, and the AUC of a million edges.

Run with one thread (``OMP_NUM_THREADS=1``). Needs the extra ``torch`` for the usual way, which is the baseline.
Pubmed is read from GRAPHQUILT_DATA; without it, points of the same shape are drawn.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import graphquilt as gq
from graphquilt.evaluate import Split
from studies.adam import AdamLogistic


def cpu(work: Callable[[], Any], repeat: int = 3) -> tuple[float, Any]:
    """Return the least CPU seconds of a few runs, and the answer."""
    best = np.inf
    for _ in range(repeat):
        start = time.process_time()
        answer = work()
        best = min(best, time.process_time() - start)
    return best, answer


def pubmed_like(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an embedding of Pubmed by smoothed random projection, or points of its size, and classes."""
    rng = np.random.default_rng(0)
    if "GRAPHQUILT_DATA" not in os.environ:
        y = rng.integers(0, 3, 19717)
        return (rng.normal(size=(3, dim))[y] + 3 * rng.normal(size=(19717, dim))).astype(np.float32), y
    graph = gq.datasets.load_dataset("pubmed")
    X = graph.features @ rng.normal(size=(graph.features.shape[1], dim)).astype(np.float32)
    step = sp.diags_array(1 / (1 + graph.degrees)) @ (graph.adjacency + sp.eye_array(graph.n_nodes))
    return (step @ (step @ X)).astype(np.float32), graph.labels


def with_torch(X: np.ndarray, y: np.ndarray, split: Split) -> float:
    """Train one logistic regression the usual way: a Linear layer, autograd, torch's Adam, early stopping."""
    parts = [torch.from_numpy(nodes) for nodes in (split.train, split.validation, split.test)]
    features, classes = torch.from_numpy(X), torch.from_numpy(y)
    model = torch.nn.Linear(X.shape[1], int(y.max()) + 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    data = [(features[part], classes[part]) for part in parts]
    lowest, stale, best = np.inf, 0, model.state_dict()
    for _ in range(10_000):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(data[0][0]), data[0][1]).backward()
        optimiser.step()
        with torch.no_grad():
            loss = float(torch.nn.functional.cross_entropy(model(data[1][0]), data[1][1]))
        stale += 1
        if loss < lowest:
            lowest, stale = loss, 0
            best = {name: value.clone() for name, value in model.state_dict().items()}
        if stale >= 20:
            break
    model.load_state_dict(best)
    with torch.no_grad():
        return float((model(data[2][0]).argmax(1) == data[2][1]).float().mean())


def classification() -> None:
    """Compare the batch with the usual way and with our own classifier, one split after the other."""
    X, y = pubmed_like(128)
    splits = gq.evaluate.random_splits(y, per_class=20, splits=50, seed=0)
    ours = AdamLogistic()
    default, invariant = cpu(lambda: gq.evaluate.InvariantLogistic()(X, y, splits))
    batch, together = cpu(lambda: ours(X, y, splits))
    single, alone = cpu(lambda: np.concatenate([ours(X, y, [split]) for split in splits]), repeat=1)
    usual, torched = cpu(lambda: np.array([with_torch(X, y, split) for split in splits]), repeat=1)
    print("50 logistic regressions, Pubmed, d = 128        CPU s   ratio   accuracy")
    for name, seconds, accuracy in (
        ("invariant, one batch (the default)", default, invariant),
        ("Adam, one batch (the paper's)", batch, together),
        ("Adam, one after the other", single, alone),
        ("torch, one after the other", usual, torched),
    ):
        print(f"  {name:44} {seconds:6.2f}  {seconds / batch:6.1f}   {accuracy.mean():.4f} ± {accuracy.std():.4f}")


def links() -> None:
    """Time the AUC of a million edges and as many non-edges, the sampling of both included."""
    rng = np.random.default_rng(0)
    n, m = 400_000, 1_000_000
    pairs = rng.integers(0, n, size=(m + 50_000, 2))
    A = sp.coo_array((np.ones(len(pairs)), pairs.T), shape=(n, n)).tocsr()
    A = A + A.T
    A.setdiag(0)
    A.eliminate_zeros()
    A.data[:] = 1
    graph = gq.Graph(A)
    X = rng.normal(size=(n, 128)).astype(np.float32)
    seconds, auc = cpu(lambda: gq.evaluate.reconstruction_auc(X, graph, seed=0, max_edges=m))
    print(f"AUC of {m} edges and {m} non-edges, n = {n}, d = 128: {seconds:.2f} CPU s (AUC {auc:.4f} on noise)")


if __name__ == "__main__":
    classification()
    links()
