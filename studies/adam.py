"""The paper's classifier for small data: logistic regression by Adam, over many splits at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphquilt.arrays import BoolArray, Float32Array, Float64Array, FloatArray, Int64Array
from graphquilt.evaluate import Split

__all__ = ["AdamLogistic"]


@dataclass(frozen=True)
class AdamLogistic:
    """Multinomial logistic regression by Adam with early stopping on the validation loss: the paper's procedure.

    Adam scales every coordinate separately, and the accuracy depends on the axes of an embedding that is defined only
    up to a rotation (on Cora, propagated features in 128 principal axes .65, after a random rotation .82). Use it to
    repeat the paper's figures, and :class:`graphquilt.evaluate.InvariantLogistic` to compare embeddings.

    All splits are trained together as one batch of matrices. Each stops separately, after ``patience`` epochs without a
    new best validation loss, leaves the batch, and uses its best weights. Weights start at zero, and only the splits
    are random. (The paper does not mention the start. From torch's random weights, embeddings with few and small
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

    Classes come before nodes, (s, C, k): sums over a few classes run along long rows.
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
    """Append a column of ones, whose weights are the bias."""
    return np.hstack([X, np.ones((len(X), 1), dtype=X.dtype)])
