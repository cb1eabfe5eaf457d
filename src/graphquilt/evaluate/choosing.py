"""Choose one of several embeddings by labels: cross-validation among the labelled nodes, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import Float64Array, FloatArray, Int64Array
from graphquilt.errors import InputError
from graphquilt.evaluate.classify import Split
from graphquilt.evaluate.logistic import InvariantLogistic

__all__ = ["Choice", "choose_by_labels"]

FOLDS, REPEATS = 5, 2
MARGIN = 0.5  # standard errors by which another must be better than the first to be chosen
FEWEST = 5  # labelled nodes of a class: classes with fewer are left out


@dataclass(frozen=True)
class Choice:
    """Which embedding was chosen, and the accuracy of each in cross-validation.

    Attributes
    ----------
    name : str
    accuracies : mapping of str to float
    n_labelled : int
        How many labelled nodes were used.
    """

    name: str
    accuracies: Mapping[str, float]
    n_labelled: int


def choose_by_labels(embeddings: Mapping[str, FloatArray], labels: npt.ArrayLike, *, seed: int = 0) -> Choice:
    """Choose the embedding that classifies best in cross-validation among the labelled nodes.

    The first is the default: another is chosen only if it is better by half a standard error of the paired difference.

    Parameters
    ----------
    embeddings : mapping of str to array (n, d)
    labels : int array (n,)
        The class of each node, -1 for none.
    seed : int
        Seed of the folds.

    Raises
    ------
    InputError
        Fewer than two classes have five labelled nodes.

    Examples
    --------
    >>> y = np.repeat([0, 1], 30)
    >>> noise = np.random.default_rng(0).normal(size=(60, 2))
    >>> choose_by_labels({"noise": noise, "classes": noise + 4 * y[:, None]}, y).name
    'classes'
    """
    given = np.asarray(labels)
    classes, counts = np.unique(given[given >= 0], return_counts=True)
    nodes = np.flatnonzero(np.isin(given, classes[counts >= FEWEST]))
    y = np.unique(given[nodes], return_inverse=True)[1].astype(np.int64)
    if len(nodes) == 0 or y.max() == 0:
        raise InputError(
            f"{int((counts >= FEWEST).sum())} classes have at least {FEWEST} labelled nodes; choosing by labels needs "
            "two. Give more labels, or leave the choice out."
        )
    splits = list(_folds(y, seed))
    hits = {name: _accuracies(np.asarray(X)[nodes], y, splits) for name, X in embeddings.items()}
    default = next(iter(hits))
    best = max(hits, key=lambda name: float(hits[name].mean()))
    gain = hits[best] - hits[default]
    if gain.mean() <= MARGIN * gain.std() / np.sqrt(FOLDS):
        best = default
    return Choice(best, {name: round(float(each.mean()), 4) for name, each in hits.items()}, len(nodes))


def _folds(y: Int64Array, seed: int) -> Iterator[Split]:
    """Yield splits in which each node is tested once per repeat; the next fold chooses the penalty."""
    rng = np.random.default_rng(seed)
    for _ in range(REPEATS):
        fold = np.empty(len(y), dtype=np.int64)
        for c in np.unique(y):
            members = rng.permutation(np.flatnonzero(y == c))
            fold[members] = np.arange(len(members)) % FOLDS
        for k in range(FOLDS):
            validation = (k + 1) % FOLDS
            train = np.flatnonzero((fold != k) & (fold != validation))
            yield Split(train, np.flatnonzero(fold == validation), np.flatnonzero(fold == k))


def _accuracies(X: FloatArray, y: Int64Array, splits: list[Split]) -> Float64Array:
    return InvariantLogistic()(np.asarray(X, dtype=np.float64), y, splits)
