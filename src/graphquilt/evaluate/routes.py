"""Full training, aligned patches and unaligned patches side by side, all measured in the same way."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import Alignment, centroid
from graphquilt.arrays import Float64Array
from graphquilt.errors import JobError
from graphquilt.evaluate.classify import classification_accuracy
from graphquilt.evaluate.links import Score, inner_product, reconstruction_auc
from graphquilt.graph import Graph
from graphquilt.patches import coverage_weights

__all__ = ["Comparison", "Measures", "compare_routes", "measure"]


@dataclass(frozen=True)
class Measures:
    """What one embedding scores.

    Attributes
    ----------
    auc : float
        Reconstruction AUC.
    accuracy, accuracy_std : float or None
        Mean and standard deviation of the accuracy over splits; None without labels.
    """

    auc: float
    accuracy: float | None = None
    accuracy_std: float | None = None


@dataclass(frozen=True)
class Comparison(Mapping[str, Measures]):
    """Measures by route: ``full`` (where there is one), ``l2g`` and ``no-trans``."""

    routes: Mapping[str, Measures]

    def __getitem__(self, route: str) -> Measures:
        return self.routes[route]

    def __iter__(self) -> Iterator[str]:
        return iter(self.routes)

    def __len__(self) -> int:
        return len(self.routes)

    def __str__(self) -> str:
        lines = ["| route | AUC | accuracy |", "| --- | --- | --- |"]
        for route, m in self.routes.items():
            accuracy = "–" if m.accuracy is None else f"{m.accuracy:.3f} ± {m.accuracy_std:.3f}"
            lines.append(f"| {route} | {m.auc:.3f} | {accuracy} |")
        return "\n".join(lines)


def measure(
    X: npt.ArrayLike,
    graph: Graph,
    *,
    seed: int,
    splits: int = 50,
    max_edges: int | None = None,
    score: Score = inner_product,
) -> Measures:
    """Return the reconstruction AUC of an embedding and, where the graph has labels, its accuracy.

    Examples
    --------
    >>> import numpy as np
    >>> from graphquilt.datasets import load_dataset
    >>> blocks = load_dataset("blocks")
    >>> round(measure(np.eye(6)[blocks.labels], blocks, seed=0, splits=2).auc, 2)
    0.75
    """
    auc = reconstruction_auc(X, graph, seed=seed, max_edges=max_edges, score=score)
    if graph.labels is None:
        return Measures(auc)
    accuracy = classification_accuracy(X, graph.labels, splits=splits, seed=seed, skip_small=True)
    return Measures(auc, float(accuracy.mean()), float(accuracy.std()))


def compare_routes(
    graph: Graph,
    patches: Sequence[Any],
    alignment: Alignment,
    *,
    weights: Sequence[npt.ArrayLike] | None = None,
    full: npt.ArrayLike | None = None,
    seed: int,
    splits: int = 50,
    max_edges: int | None = None,
) -> Comparison:
    """Measure patches aligned and as they are, and one embedding of the whole graph if there is one.

    Parameters
    ----------
    graph : Graph
        With labels, where accuracy is wanted.
    patches : sequence of Patch or (nodes, coordinates) pairs
    alignment : Alignment
    weights : sequence of p arrays (k_i,), optional
        What the rows count with in the centroid, of aligned patches and of others.
    full : array (n, d), optional
        An embedding of the whole graph by the same method.
    seed : int
        The same non-edges and splits serve all routes.
    splits : int
    max_edges : int, optional
        See :func:`reconstruction_auc`.
    """
    dim = np.asarray(alignment.translations).shape[1]
    identity = Alignment.identity(len(patches), dim)
    embeddings = {} if full is None else {"full": np.asanyarray(full)}
    embeddings["l2g"] = centroid(patches, alignment, n_nodes=graph.n_nodes, weights=weights)
    embeddings["no-trans"] = centroid(patches, identity, n_nodes=graph.n_nodes, weights=weights)
    return Comparison(
        {route: measure(X, graph, seed=seed, splits=splits, max_edges=max_edges) for route, X in embeddings.items()}
    )
