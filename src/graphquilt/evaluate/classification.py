"""Classify nodes by their positions over many random splits; the default classifier ignores axes, origin and scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from graphquilt.errors import ConvergenceError, InputError
from graphquilt.evaluate.positions import checked_embedding, checked_labels

_MEMORY = 6  # pairs of step and gradient change that L-BFGS keeps
_STEPS = 1000


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint sets of nodes for training, for choosing settings (or when to stop), and for testing."""

    train: Int64Array
    validation: Int64Array
    test: Int64Array


class Classifier(Protocol):
    """Any callable that takes an embedding, classes 0..C-1 and splits, and returns one accuracy per split."""

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
    """Return the test accuracy of a classifier on an embedding, one number per random split, (splits,).

    Parameters
    ----------
    X : array (n, d)
    y : int array (n,)
        Classes; nodes with -1 are left out.
    per_class : int
        Training nodes per class.
    splits : int
        Number of independent random splits.
    seed : int
    classifier : callable, optional
        By default :class:`InvariantLogistic`, whose accuracy does not change when the embedding is rotated, translated
        or scaled.
    skip_small : bool
        Leave out classes with fewer than ``per_class + 1`` nodes instead of raising.

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
    nodes, classes = _usable_nodes(checked_labels(y, len(X)), per_class, skip_small)
    parts = random_splits(classes, per_class=per_class, splits=splits, seed=seed)
    rows = np.asarray(X[nodes], dtype=np.promote_types(X.dtype, np.float32))
    return (classifier or InvariantLogistic())(rows, classes, parts)


def _usable_nodes(labels: Int64Array, per_class: int, skip_small: bool) -> tuple[Int64Array, Int64Array]:
    """Return the nodes of classes that are large enough, and their classes numbered 0..C-1."""
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
            f"{len(names)} classes have more than {per_class} labelled nodes, among {int((labels >= 0).sum())}; a "
            "classifier needs at least two."
        )
    nodes = np.flatnonzero(np.isin(labels, names))
    return nodes, np.searchsorted(names, labels[nodes])


def random_splits(
    y: Int64Array, *, per_class: int, splits: int, seed: int | np.random.Generator, validation: int = 500
) -> list[Split]:
    """Return independent random splits: ``per_class`` nodes per class, ``validation`` others, the rest for testing.

    If at most ``validation`` others are left, half of them are for validation, and some remain to test on.

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
class InvariantLogistic:
    r"""Multinomial logistic regression with one isotropic penalty, which the validation nodes choose.

    An embedding is defined up to a rigid motion, and its accuracy must not change under one. Points are centred and
    divided by one number, the root mean square of their norms. Then

    .. math:: \frac1m \sum_i -\log p_{y_i}(x_i) + \frac\lambda2 \|W\|_F^2, \qquad p(x) = \mathrm{softmax}(W x + b)

    is minimised over the training nodes for each penalty, from strong to weak. Every step is equivariant under
    rotation; only rounding differs. The penalty with the best accuracy on the validation nodes is used, the stronger
    in a tie. A split stops after ``patience`` penalties without improvement.

    L-BFGS minimises all splits as one batch. It starts from the bound of Böhning (1992) on the second derivatives,
    :math:`\frac12 (X^\top X / m) + \lambda`, and most penalties need 5 to 20 steps.

    Attributes
    ----------
    penalties : tuple of float
        The values of λ to try, in descending order. With one value the validation nodes are not used.
    patience : int
    tol : float
        Accept a minimum when the norm of the gradient is below this.
    """

    penalties: tuple[float, ...] = tuple(2.0**-k for k in range(1, 19, 2))
    patience: int = 9
    tol: float = 1e-3

    def __post_init__(self) -> None:
        falling = all(a > b for a, b in zip(self.penalties, self.penalties[1:], strict=False))
        if not self.penalties or min(self.penalties) <= 0 or not falling:
            raise InputError(f"penalties must be positive and in descending order, not {self.penalties}.")

    def __call__(self, X: FloatArray, y: Int64Array, splits: list[Split]) -> Float64Array:
        """Return the accuracy on the test nodes of each split, (s,)."""
        points = _standardise(X)
        accuracies = []
        for W, split in zip(self._fit(points, y, splits), splits, strict=True):
            correct = (W @ points.T).argmax(axis=0) == y  # all nodes: a copy of most rows would cost more
            accuracies.append(np.mean(correct[split.test]))
        return np.array(accuracies)

    def fit(self, X: FloatArray, y: Int64Array, splits: list[Split]) -> Float64Array:
        """Return the weights of each split on the standardised points, (s, C, d + 1); the last column is the bias."""
        return self._fit(_standardise(X), y, splits)

    def _fit(self, points: Float64Array, y: Int64Array, splits: list[Split]) -> Float64Array:
        several = len(self.penalties) > 1
        if several and not all(len(split.validation) for split in splits):
            raise InputError(
                f"a split has no validation nodes, which choose one of {len(self.penalties)} penalties; add some, or "
                "use InvariantLogistic(penalties=(0.01,))."
            )
        problem = _TrainingRows.select(points, y, splits)
        V = np.zeros((len(splits), problem.target.shape[1], problem.rows.shape[2]))
        W = problem.weights(V)
        highest, stale = np.full(len(splits), -1.0), np.zeros(len(splits), dtype=np.int64)
        ids = np.arange(len(splits))
        for penalty in self.penalties:
            V = _minimise(problem, V, penalty, self.tol)
            weights = problem.weights(V)
            nodes = [splits[k].validation for k in ids]
            share = np.array([_accuracy(w, points, y, part) for w, part in zip(weights, nodes, strict=True)])
            better = share > highest[ids] if several else np.ones(len(ids), dtype=np.bool_)
            W[ids[better]], highest[ids[better]] = weights[better], share[better]
            stale[ids] = np.where(better, 0, stale[ids] + 1)
            active = stale[ids] < self.patience
            if not active.any():
                break
            if not active.all():
                ids, V, problem = ids[active], V[active], problem.only(active)
        return W


def _standardise(X: FloatArray) -> Float64Array:
    """Centre the points, divide them by the root mean square of their norms, and append a one, (n, d + 1)."""
    points = np.empty((len(X), X.shape[1] + 1))
    points[:, :-1], points[:, -1] = X, 1
    Z = points[:, :-1]
    Z -= Z.mean(axis=0)
    size = float(np.sqrt(np.einsum("ij,ij->", Z, Z) / len(Z)))
    if size > 0:
        Z /= size
    return points


def _accuracy(W: Float64Array, points: Float64Array, y: Int64Array, nodes: Int64Array) -> float:
    return float(np.mean((W @ points[nodes].T).argmax(axis=0) == y[nodes])) if len(nodes) else 0.0


@dataclass(frozen=True, eq=False)
class _TrainingRows:
    """The training nodes of some splits: rows (s, m, r + 1) that end with a one, and one-hot classes (s, C, m).

    The best weights are combinations of the training rows. With fewer rows than dimensions, the rows are expressed in
    an orthonormal basis (s, r, d) of their span, which preserves norms and makes them shorter.
    """

    rows: Float64Array
    target: Float64Array
    basis: Float64Array | None

    @classmethod
    def select(cls, points: Float64Array, y: Int64Array, splits: list[Split]) -> _TrainingRows:
        rows = np.stack([points[split.train] for split in splits])
        classes = np.eye(int(y.max()) + 1)
        target = np.stack([classes[:, y[split.train]] for split in splits])
        if rows.shape[1] >= rows.shape[2] - 1:
            return cls(rows, target, None)
        Q, R = np.linalg.qr(rows[:, :, :-1].transpose(0, 2, 1))
        short = np.concatenate([R.transpose(0, 2, 1), rows[:, :, -1:]], axis=2)
        return cls(short, target, np.ascontiguousarray(Q.transpose(0, 2, 1)))

    def only(self, active: BoolArray) -> _TrainingRows:
        return _TrainingRows(self.rows[active], self.target[active], None if self.basis is None else self.basis[active])

    def weights(self, V: Float64Array) -> Float64Array:
        """Return weights in the coordinates of the points, (s, C, d + 1)."""
        if self.basis is None:
            return V.copy()
        return np.concatenate([V[:, :, :-1] @ self.basis, V[:, :, -1:]], axis=2)

    def loss_and_gradient(self, V: Float64Array, penalty: float) -> tuple[Float64Array, Float64Array]:
        """Return the penalised loss, (s,), and its gradient, (s, C, r + 1)."""
        Z = V @ self.rows.transpose(0, 2, 1)
        Z -= Z.max(axis=1, keepdims=True)
        true = np.einsum("scm,scm->sm", Z, self.target)
        np.exp(Z, out=Z)
        total = Z.sum(axis=1)
        loss = (np.log(total) - true).mean(axis=1)
        Z /= total[:, None]
        Z -= self.target
        gradient = Z @ self.rows
        gradient /= self.rows.shape[1]
        gradient[:, :, :-1] += penalty * V[:, :, :-1]
        return loss + 0.5 * penalty * _products(V[:, :, :-1], V[:, :, :-1]), gradient

    def inverse_bound(self, penalty: float) -> Float64Array:
        """Return the inverse of an upper bound on the second derivatives of every class, (s, r + 1, r + 1)."""
        B = self.rows.transpose(0, 2, 1) @ self.rows
        B *= 0.5 / self.rows.shape[1]
        diagonal = np.arange(B.shape[1] - 1)
        B[:, diagonal, diagonal] += penalty
        return np.asarray(np.linalg.inv(B), dtype=np.float64)


def _minimise(problem: _TrainingRows, V: Float64Array, penalty: float, tol: float) -> Float64Array:
    """Return the weights of least penalised loss by L-BFGS from ``V``, (s, C, r + 1); converged splits drop out."""
    V, ids = V.copy(), np.arange(len(V))
    W, bound = V, problem.inverse_bound(penalty)
    loss, gradient = problem.loss_and_gradient(W, penalty)
    pairs: list[tuple[Float64Array, Float64Array, Float64Array]] = []
    for _ in range(_STEPS):
        size = np.sqrt(_products(gradient, gradient))
        active = size > tol
        if not active.all():
            V[ids] = W
            if not active.any():
                return V
            ids, W, bound, loss, gradient = ids[active], W[active], bound[active], loss[active], gradient[active]
            pairs = [(s[active], g[active], c[active]) for s, g, c in pairs]
            problem = problem.only(active)
        direction = _direction(gradient, bound, pairs)
        slope = _products(gradient, direction)
        step = np.ones(len(ids))
        for _ in range(40):
            moved = W - step[:, None, None] * direction
            new_loss, new_gradient = problem.loss_and_gradient(moved, penalty)
            too_far = new_loss > loss - 1e-4 * step * slope + 1e-14
            if not too_far.any():
                break
            step[too_far] /= 2
        change, turn = moved - W, new_gradient - gradient
        curvature = _products(change, turn)  # positive up to rounding: the penalised loss is strictly convex
        known = curvature > 1e-12 * _products(turn, turn)
        inverse = np.divide(1, curvature, out=np.zeros(len(ids)), where=known)
        pairs = [*pairs[-_MEMORY + 1 :], (change, turn, inverse)]
        W, loss, gradient = moved, new_loss, new_gradient
    raise ConvergenceError(
        f"logistic regression with penalty {penalty:.3g} has a gradient of {size.max():.2g} after {_STEPS} steps, "
        f"above the tolerance of {tol:.2g}. Use stronger penalties or a larger tol.",
        residual=float(size.max()),
    )


def _direction(
    gradient: Float64Array, bound: Float64Array, pairs: Sequence[tuple[Float64Array, Float64Array, Float64Array]]
) -> Float64Array:
    """Multiply the gradient by L-BFGS's approximation of the inverse second derivatives (Nocedal 1980)."""
    q, factors = gradient.copy(), []
    for change, turn, inverse in reversed(pairs):
        factor = inverse * _products(change, q)
        q -= factor[:, None, None] * turn
        factors.append(factor)
    q = q @ bound
    for (change, turn, inverse), factor in zip(pairs, reversed(factors), strict=True):
        q += (factor - inverse * _products(turn, q))[:, None, None] * change
    return q


def _products(A: Float64Array, B: Float64Array) -> Float64Array:
    """Return the inner product of each pair of matrices, (s,)."""
    return np.asarray(np.einsum("scd,scd->s", A, B))
