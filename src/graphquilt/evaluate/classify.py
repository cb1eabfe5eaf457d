"""Classification of nodes by their positions over many random splits, and the classifiers of the paper and others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import BoolArray, Float32Array, Float64Array, FloatArray, Int64Array
from graphquilt.errors import InputError, needs_extra
from graphquilt.evaluate.checks import checked_embedding, checked_labels
from graphquilt.evaluate.logistic import InvariantLogistic

__all__ = ["AdamLogistic", "Classifier", "ScikitLogistic", "Split", "classification_accuracy", "random_splits"]


@dataclass(frozen=True, eq=False)
class Split:
    """Nodes to train on, nodes that decide when to stop, and nodes to test on; the three are disjoint."""

    train: Int64Array
    validation: Int64Array
    test: Int64Array


class Classifier(Protocol):
    """Anything that returns one accuracy per split for (X, classes 0..C-1, splits)."""

    def __call__(self, X: FloatArray, y: Int64Array, splits: list[Split]) -> Float64Array:
        """Return the accuracy on the test nodes of each split, (s,)."""


def classification_accuracy(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    per_class: int = 20,
    splits: int = 50,
    seed: int,
    classifier: Classifier | None = None,
    skip_small: bool = False,
) -> Float64Array:
    """Return the test accuracy of a classifier on the embedding, one number per random split.

    Parameters
    ----------
    X : array (n, d)
        The embedding.
    y : int array (n,)
        Classes; nodes with -1 are in no part of a split.
    per_class : int
        Labelled nodes of each class in training.
    splits : int
        Number of independent random splits.
    seed : int
    classifier : callable, optional
        :class:`InvariantLogistic` (default), whose accuracy does not change when the embedding is rotated, translated
        or scaled; :class:`AdamLogistic` (the paper's), :class:`ScikitLogistic`, or your own.
    skip_small : bool
        Leave out classes with fewer than ``per_class + 1`` nodes instead of raising.

    Returns
    -------
    float array (splits,)

    Examples
    --------
    >>> import numpy as np
    >>> y = np.repeat([0, 1, 2], 60)
    >>> X = np.eye(3)[y] + 0.1 * np.random.default_rng(0).normal(size=(180, 3))
    >>> accuracy = classification_accuracy(X, y, splits=5, seed=0)
    >>> accuracy.shape, float(accuracy.mean())
    ((5,), 1.0)
    """
    X = checked_embedding(X)
    nodes, classes = _usable(checked_labels(y, len(X)), per_class, skip_small)
    parts = random_splits(classes, per_class=per_class, splits=splits, seed=seed)
    rows = np.asarray(X[nodes], dtype=np.promote_types(X.dtype, np.float32))
    return (classifier or InvariantLogistic())(rows, classes, parts)


def _usable(labels: Int64Array, per_class: int, skip_small: bool) -> tuple[Int64Array, Int64Array]:
    """Return the nodes of classes that are large enough, and their classes renumbered 0..C-1."""
    names, counts = np.unique(labels[labels >= 0], return_counts=True)
    small = counts <= per_class
    if small.any() and not skip_small:
        listed = ", ".join(f"class {n} has {c}" for n, c in zip(names[small], counts[small], strict=True))
        raise InputError(
            f"training needs {per_class} nodes of each class and testing at least one more: {listed}. "
            "Lower per_class, or pass skip_small=True to leave those classes out."
        )
    names = names[~small]
    if len(names) < 2:
        raise InputError(
            f"there is {len(names)} class with more than {per_class} labelled nodes among {int((labels >= 0).sum())}; "
            "a classifier needs at least two."
        )
    nodes = np.flatnonzero(np.isin(labels, names))
    return nodes, np.searchsorted(names, labels[nodes])


def random_splits(
    y: Int64Array, *, per_class: int, splits: int, seed: int | np.random.Generator, validation: int = 500
) -> list[Split]:
    """Return independent random splits: ``per_class`` nodes per class, ``validation`` others, the rest for testing.

    Where no more than ``validation`` nodes are left, half of them are for validation, so that some remain to test on.

    Examples
    --------
    >>> import numpy as np
    >>> split = random_splits(np.repeat([0, 1], 30), per_class=20, splits=1, seed=0)[0]
    >>> len(split.train), len(split.validation), len(split.test)
    (40, 10, 10)
    """
    if per_class < 1 or splits < 1:
        raise InputError(f"per_class is {per_class} and splits is {splits}; both must be at least 1.")
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(y == c) for c in np.unique(y)]
    parts = []
    for _ in range(splits):
        train = np.concatenate([rng.choice(nodes, per_class, replace=False) for nodes in members])
        others = rng.permutation(np.setdiff1d(np.arange(len(y)), train, assume_unique=True))
        size = validation if len(others) > validation else len(others) // 2
        parts.append(Split(train, others[:size], others[size:]))
    return parts


@dataclass(frozen=True)
class AdamLogistic:
    """Multinomial logistic regression by Adam with early stopping on the validation loss: the paper's procedure.

    Adam scales every coordinate separately, so that the accuracy depends on the axes of an embedding that is defined up
    to a rotation (on Cora, propagated features in 128 principal axes .65, after a random rotation .82). Use it to
    repeat the paper's figures, and :class:`InvariantLogistic` to compare embeddings.

    All splits are trained together as one batch of matrices. Each stops separately, after ``patience`` epochs without a
    new best validation loss, leaves the batch, and uses its best weights. Weights start at zero, so that only the
    splits are random. (The paper does not mention the start. From torch's random weights, embeddings with few and small
    coordinates, such as those of DGI at d = 8, stop by chance after the first epochs.)
    """

    learning_rate: float = 0.01
    max_epochs: int = 10_000
    patience: int = 20

    def __call__(self, X: FloatArray, y: Int64Array, splits: list[Split]) -> Float64Array:
        """Return the accuracy on the test nodes of each split, (s,)."""
        Xt, accuracies = X.astype(np.float32).T, []
        for W, split in zip(self.fit(X, y, splits), splits, strict=True):
            correct = (W[:, :-1] @ Xt + W[:, -1:]).argmax(axis=0) == y
            accuracies.append(np.mean(correct[split.test]))
        return np.array(accuracies)

    def fit(self, X: FloatArray, y: Int64Array, splits: list[Split]) -> Float32Array:
        """Return the weights of each split at its best validation loss, (s, C, d + 1); the last column is the bias."""
        start = np.zeros((int(y.max()) + 1, X.shape[1] + 1), dtype=np.float32)
        batch = _Batch.of(X.astype(np.float32), y, splits, start)
        best = batch.W.copy()
        lowest = np.full(len(splits), np.inf)
        stale = np.zeros(len(splits), dtype=np.int64)
        for epoch in range(1, self.max_epochs + 1):
            batch.step(epoch, self.learning_rate)
            loss = batch.validation_loss()
            better = loss < lowest[batch.ids]
            improved = batch.ids[better]
            lowest[improved] = loss[better]
            best[improved] = batch.W[better]
            stale[batch.ids] += 1
            stale[improved] = 0
            active = stale[batch.ids] < self.patience
            if not active.any():
                break
            if not active.all():
                batch = batch.only(active)
        return best


@dataclass(eq=False)
class _Batch:
    """The splits still in training: data, one-hot classes, weights, and Adam's two moments, all (s, …).

    Classes come before nodes, (s, C, k), so that sums over a few classes run along long rows.
    """

    ids: Int64Array
    train: Float32Array
    train_t: Float32Array
    target: Float32Array
    check_t: Float32Array
    check_class: Int64Array
    W: Float32Array
    first: Float32Array
    second: Float32Array

    @classmethod
    def of(cls, X: Float32Array, y: Int64Array, splits: list[Split], start: Float32Array) -> _Batch:
        train = np.stack([_with_one(X[s.train]) for s in splits])
        one_hot = np.eye(len(start), dtype=np.float32)
        zero = np.zeros((len(splits), *start.shape), dtype=np.float32)
        return cls(
            ids=np.arange(len(splits)),
            train=train / np.float32(train.shape[1]),
            train_t=np.ascontiguousarray(train.transpose(0, 2, 1)),
            target=np.stack([one_hot[:, y[s.train]] for s in splits]),
            check_t=np.stack([np.ascontiguousarray(_with_one(X[s.validation]).T) for s in splits]),
            check_class=np.stack([y[s.validation] for s in splits])[:, None, :],
            W=zero + start,
            first=zero,
            second=zero.copy(),
        )

    def only(self, active: BoolArray) -> _Batch:
        return _Batch(*(value[active] for value in vars(self).values()))

    def step(self, epoch: int, rate: float) -> None:
        """Take one step of Adam on the cross entropy of the training nodes."""
        Z = self.W @ self.train_t
        Z -= Z.max(axis=1, keepdims=True)
        np.exp(Z, out=Z)
        Z /= Z.sum(axis=1, keepdims=True)
        Z -= self.target
        gradient = Z @ self.train
        self.first += np.float32(0.1) * (gradient - self.first)
        gradient *= gradient
        self.second += np.float32(0.001) * (gradient - self.second)
        size = np.sqrt(self.second)
        size *= np.float32(1 / np.sqrt(1 - 0.999**epoch))
        size += np.float32(1e-8)
        self.W -= np.float32(rate / (1 - 0.9**epoch)) * self.first / size

    def validation_loss(self) -> FloatArray:
        """Return the mean cross entropy of the validation nodes, (s,)."""
        Z = self.W @ self.check_t
        Z -= Z.max(axis=1, keepdims=True)
        true = np.take_along_axis(Z, self.check_class, axis=1)[:, 0]
        np.exp(Z, out=Z)
        return np.asarray((np.log(Z.sum(axis=1)) - true).mean(axis=1, dtype=np.float64))


def _with_one(X: FloatArray) -> FloatArray:
    """Append a column of ones, so that the last column of the weights is the bias."""
    return np.hstack([X, np.ones((len(X), 1), dtype=X.dtype)])


@dataclass(frozen=True)
class ScikitLogistic:
    """scikit-learn's logistic regression (L2 penalty, L-BFGS), one split after the other.

    Points are not scaled, so that the strength of its penalty depends on their scale. It uses the validation nodes
    neither for training nor for testing, so that all classifiers are tested on the same nodes.
    """

    C: float = 1.0
    max_iter: int = 1000

    def __call__(self, X: FloatArray, y: Int64Array, splits: list[Split]) -> Float64Array:
        """Return the accuracy on the test nodes of each split, (s,)."""
        with needs_extra("ScikitLogistic", "eval"):
            from sklearn.linear_model import LogisticRegression
        accuracies = []
        for split in splits:
            model = LogisticRegression(C=self.C, max_iter=self.max_iter).fit(X[split.train], y[split.train])
            accuracies.append(np.mean(model.predict(X[split.test]) == y[split.test]))
        return np.array(accuracies)
