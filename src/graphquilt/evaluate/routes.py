"""The quality of one embedding, and a comparison of full training, aligned patches and unaligned patches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import Alignment, centroid
from graphquilt.alignment.patch_index import PatchLike
from graphquilt.evaluate.classify import Classifier, classification_accuracy
from graphquilt.evaluate.links import Score, inner_product, reconstruction_auc
from graphquilt.evaluate.logistic import InvariantLogistic
from graphquilt.graph import Graph

__all__ = ["Comparison", "EvaluationOptions", "Quality", "compare_routes", "quality"]


@dataclass(frozen=True)
class EvaluationOptions:
    """How the quality of an embedding is computed.

    Attributes
    ----------
    seed : int
        Seed of all random choices: the non-edges, the sample of edges and the splits.
    splits : int
        Number of random splits of the classification.
    max_edges : int, optional
        Use at most this many edges; see :func:`reconstruction_auc`.
    score : callable
        The score of a pair of nodes; see :func:`reconstruction_auc`.
    classifier : callable or None
        See :func:`classification_accuracy`; ``AdamLogistic()`` is the paper's. None measures links only.
    """

    seed: int = 0
    splits: int = 50
    max_edges: int | None = None
    score: Score = inner_product
    classifier: Classifier | None = InvariantLogistic()


@dataclass(frozen=True)
class Quality:
    """The quality of one embedding.

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


class Comparison(dict[str, Quality]):
    """The quality of each route: ``full`` (where there is one), ``l2g`` and ``no-trans``."""

    def __str__(self) -> str:
        lines = ["| route | AUC | accuracy |", "| --- | --- | --- |"]
        for route, scores in self.items():
            accuracy = "–" if scores.accuracy is None else f"{scores.accuracy:.3f} ± {scores.accuracy_std:.3f}"
            lines.append(f"| {route} | {scores.auc:.3f} | {accuracy} |")
        return "\n".join(lines)


def quality(X: npt.ArrayLike, graph: Graph, *, options: EvaluationOptions = EvaluationOptions()) -> Quality:
    """Return the reconstruction AUC of an embedding and, where the graph has labels, its accuracy.

    Classes with too few nodes to learn from are left out of the accuracy.

    Parameters
    ----------
    X : array (n, d)
    graph : Graph
    options : EvaluationOptions

    Examples
    --------
    >>> import numpy as np
    >>> from graphquilt.datasets import load_dataset
    >>> blocks = load_dataset("blocks")
    >>> round(quality(np.eye(6)[blocks.labels], blocks, options=EvaluationOptions(splits=2)).auc, 2)
    0.75
    """
    auc = reconstruction_auc(X, graph, seed=options.seed, max_edges=options.max_edges, score=options.score)
    if graph.labels is None or options.classifier is None:
        return Quality(auc)
    accuracy = classification_accuracy(
        X, graph.labels, splits=options.splits, seed=options.seed, classifier=options.classifier, skip_small=True
    )
    return Quality(auc, float(accuracy.mean()), float(accuracy.std()))


def compare_routes(
    graph: Graph,
    patches: Sequence[PatchLike],
    alignment: Alignment,
    *,
    weights: Sequence[npt.ArrayLike] | None = None,
    full: npt.ArrayLike | None = None,
    options: EvaluationOptions = EvaluationOptions(),
) -> Comparison:
    """Compute the quality of the patches aligned and unaligned, and of one embedding of the whole graph.

    Parameters
    ----------
    graph : Graph
        A graph with labels, where accuracy is wanted.
    patches : sequence of Patch or (nodes, coordinates) pairs
    alignment : Alignment
    weights : sequence of p arrays (k_i,), optional
        Weights of the rows in the centroid, of aligned and of unaligned patches.
    full : array (n, d), optional
        An embedding of the whole graph by the same method.
    options : EvaluationOptions
        All routes are evaluated with the same non-edges and splits.
    """
    identity = Alignment.identity(len(patches), alignment.dim)
    embeddings = {} if full is None else {"full": np.asanyarray(full)}
    embeddings["l2g"] = centroid(patches, alignment, n_nodes=graph.n_nodes, weights=weights)
    embeddings["no-trans"] = centroid(patches, identity, n_nodes=graph.n_nodes, weights=weights)
    return Comparison({route: quality(X, graph, options=options) for route, X in embeddings.items()})
