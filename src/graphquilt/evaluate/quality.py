"""The quality of one embedding: how well it reconstructs the edges, and how well it separates the classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy.typing as npt

from graphquilt.evaluate.classification import Classifier, InvariantLogistic, classification_accuracy
from graphquilt.evaluate.links import Score, inner_product, reconstruction_auc, reconstruction_ranks
from graphquilt.graph import Graph


@dataclass(frozen=True)
class EvaluationOptions:
    """How the quality of an embedding is measured.

    The ``seed`` is that of the non-edges, the sample of edges and the ``splits`` of the classification. See
    :func:`reconstruction_auc` for ``max_edges`` and ``score``; without a ``classifier``, links alone are measured.
    """

    seed: int = 0
    splits: int = 50
    max_edges: int | None = None
    score: Score = inner_product
    classifier: Classifier | None = InvariantLogistic()


@dataclass(frozen=True)
class Quality:
    """The quality of one embedding: of its edges, all and a sample (:class:`LinkRanking`), and of its classes."""

    auc: float  # of reconstruction
    accuracy: float | None = None  # mean and standard deviation over splits
    accuracy_std: float | None = None
    hits: float | None = None  # Hits@50, and the mean reciprocal rank
    mrr: float | None = None


def quality(X: npt.ArrayLike, graph: Graph, *, options: EvaluationOptions = EvaluationOptions()) -> Quality:
    """Return the reconstruction AUC of an embedding ``X (n, d)`` and, if the graph has labels, its accuracy.

    Classes with too few nodes to learn from are left out of the accuracy.

    Examples
    --------
    >>> import numpy as np
    >>> from graphquilt.datasets import load_dataset
    >>> blocks = load_dataset("blocks")
    >>> round(quality(np.eye(6)[blocks.labels], blocks, options=EvaluationOptions(splits=2)).auc, 2)
    0.75
    """
    auc = reconstruction_auc(X, graph, seed=options.seed, max_edges=options.max_edges, score=options.score)
    hits, mrr = reconstruction_ranks(X, graph, seed=options.seed, score=options.score)
    if graph.labels is None or options.classifier is None:
        return Quality(auc, hits=hits, mrr=mrr)
    accuracy = classification_accuracy(
        X, graph.labels, splits=options.splits, seed=options.seed, classifier=options.classifier, skip_small=True
    )
    return Quality(auc, float(accuracy.mean()), float(accuracy.std()), hits, mrr)
