"""Classify nodes and edges over many random splits; the default classifier ignores axes, origin and scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.optimize import OptimizeResult, minimize

from graphquilt.arrays import Float64Array, FloatArray, Int64Array
from graphquilt.errors import ConvergenceError, InputError
from graphquilt.evaluate.positions import checked_embedding, checked_labels

_MEMORY = 6  # pairs of step and gradient change that L-BFGS keeps
_STEPS = 1000
Combine = Literal["hadamard", "mean", "l1", "l2"] | Callable[[FloatArray, FloatArray], FloatArray]

_OPERATORS: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "hadamard": lambda A, B: A * B,
    "mean": lambda A, B: (A + B) / 2,
    "l1": lambda A, B: np.abs(A - B),
    "l2": lambda A, B: (A - B) ** 2,
}


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
            f"{len(names)} classes have more than {per_class} labelled nodes; a classifier needs at least two."
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
    rotation; only rounding differs. The penalty with the best accuracy on the validation nodes is used.

    L-BFGS minimises, from the minimum of the penalty before, in coordinates in which the bound of Böhning (1992) on the
    second derivatives, :math:`\frac12 (X^\top X / m) + \lambda`, is the identity: most penalties need 5 to 20 steps.

    Attributes
    ----------
    penalties : tuple of float
        The values of λ to try, in descending order. With one value the validation nodes are not used.
    tol : float
        Accept a minimum when the norm of the gradient is below this.
    """

    penalties: tuple[float, ...] = tuple(2.0**-k for k in range(1, 19, 2))
    tol: float = 1e-3

    def __post_init__(self) -> None:
        if not self.penalties or not all(a > b for a, b in pairwise((*self.penalties, 0))):
            raise InputError(f"penalties must be positive and in descending order, not {self.penalties}.")

    def __call__(self, X: FloatArray, y: Int64Array, splits: list[Split]) -> Float64Array:
        """Return the accuracy on the test nodes of each split, (s,)."""
        points, fitted = _standardise(X), zip(self.fit(X, y, splits), splits, strict=True)
        # All nodes are classified: a copy of most rows would cost more.
        return np.array([np.mean(((W @ points.T).argmax(axis=0) == y)[split.test]) for W, split in fitted])

    def fit(self, X: FloatArray, y: Int64Array, splits: list[Split]) -> Float64Array:
        """Return the weights of each split on the standardised points, (s, C, d + 1); the last column is the bias."""
        if len(self.penalties) > 1 and not all(len(split.validation) for split in splits):
            raise InputError(
                f"a split has no validation nodes, which choose one of {len(self.penalties)} penalties; add some, or "
                "use InvariantLogistic(penalties=(0.01,))."
            )
        points = _standardise(X)
        return np.stack([self._fit_split(points, y, split) for split in splits])

    def _fit_split(self, points: Float64Array, y: Int64Array, split: Split) -> Float64Array:
        """Return the weights of one split with the penalty that its validation nodes choose, (C, d + 1)."""
        rows, basis = points[split.train], None
        if len(rows) < points.shape[1] - 1:  # the best weights are combinations of the rows: use a basis of their span
            basis, R = np.linalg.qr(rows[:, :-1].T)
            rows = np.concatenate([R.T, rows[:, -1:]], axis=1)
        target = np.eye(int(y.max()) + 1)[:, y[split.train]]
        V = np.zeros((len(target), rows.shape[1]))
        highest = -1.0
        for penalty in self.penalties:
            V = _minimise(rows, target, V, penalty, self.tol)
            weights = V if basis is None else np.concatenate([V[:, :-1] @ basis.T, V[:, -1:]], axis=1)
            if len(self.penalties) == 1:
                return weights
            accuracy = np.mean((weights @ points[split.validation].T).argmax(axis=0) == y[split.validation])
            if accuracy > highest:
                best, highest = weights, float(accuracy)
        return best


def _standardise(X: FloatArray) -> Float64Array:
    """Centre the points, divide them by the root mean square of their norms, and append a one, (n, d + 1)."""
    points = np.ones((len(X), X.shape[1] + 1))
    Z = points[:, :-1]
    Z[:] = X
    Z -= Z.mean(axis=0)
    Z /= float(np.sqrt(np.einsum("ij,ij->", Z, Z) / len(Z))) or 1.0
    return points


def _minimise(rows: Float64Array, target: Float64Array, V: Float64Array, penalty: float, tol: float) -> Float64Array:
    """Return the weights of least penalised loss by L-BFGS from ``V``, (C, r + 1).

    ``rows (m, r + 1)`` end with a one, and ``target (C, m)`` is one where a row is of a class.
    """
    m, size = len(rows), np.inf
    shrink = np.append(np.full(rows.shape[1] - 1, penalty), 0.0)  # the bias is free
    L = np.linalg.cholesky(0.5 / m * (rows.T @ rows) + np.diag(shrink))
    inverse = np.linalg.inv(L)

    def loss_and_gradient(u: Float64Array) -> tuple[float, Float64Array]:
        nonlocal size
        W = u.reshape(V.shape) @ inverse
        Z = W @ rows.T
        Z -= Z.max(axis=0)
        loss = -np.vdot(Z, target)
        np.exp(Z, out=Z)
        total = Z.sum(axis=0)
        loss = (loss + np.log(total).sum()) / m + 0.5 * np.vdot(W * shrink, W)
        gradient = (Z / total - target) @ rows / m + W * shrink
        size = float(np.linalg.norm(gradient))
        return float(loss), (gradient @ inverse.T).ravel()

    def stop(intermediate_result: OptimizeResult) -> None:  # noqa: ARG001  (SciPy passes it by name)
        if size <= tol:
            raise StopIteration

    start = (V @ L).ravel()
    loss_and_gradient(start)
    if size <= tol:
        return V
    options: Any = {"maxiter": _STEPS, "maxcor": _MEMORY, "ftol": 0.0, "gtol": 0.0}
    result = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", callback=stop, options=options)
    loss_and_gradient(result.x)
    if size > tol:
        raise ConvergenceError(
            f"logistic regression with penalty {penalty:.3g} has a gradient of {size:.2g} after {result.nit} steps, "
            f"above the tolerance of {tol:.2g}. Use stronger penalties or a larger tol.",
            residual=size,
        )
    return np.asarray(result.x.reshape(V.shape) @ inverse)


def edge_embeddings(X: npt.ArrayLike, pairs: npt.ArrayLike, combine: Combine = "hadamard") -> FloatArray:
    """Return one row for each of the ``pairs`` (k, 2) of rows of X, made of both; their order does not matter.

    Parameters
    ----------
    combine : {"hadamard", "mean", "l1", "l2"} or callable
        Product, mean, absolute or squared difference of each coordinate, or a function of two arrays (k, d).

    Notes
    -----
    Products and differences change when the embedding is rotated: compare edges within one embedding, or align the
    nodes first. Rows of patches of edges can be aligned as those of nodes are, with ids of edges.

    Examples
    --------
    >>> edge_embeddings([[1.0, 2.0], [3.0, 4.0]], [[0, 1]], "mean").tolist()
    [[2.0, 3.0]]
    """
    X = checked_embedding(X)
    rows = np.asarray(pairs)
    if rows.ndim != 2 or rows.shape[1] != 2 or rows.dtype.kind not in "iu":
        raise InputError(f"pairs are two rows of the embedding each, (k, 2) integers, not {rows.dtype} {rows.shape}.")
    if len(rows) and (rows.min() < 0 or rows.max() >= len(X)):
        raise InputError(f"pairs name rows {rows.min()} to {rows.max()}; the embedding has 0 to {len(X) - 1}.")
    if not callable(combine) and combine not in _OPERATORS:
        raise InputError(f"combine is one of {', '.join(_OPERATORS)} or a function, not {combine!r}.")
    operator = combine if callable(combine) else _OPERATORS[combine]
    dtype = np.promote_types(X.dtype, np.float32)
    result: FloatArray = np.asarray(operator(*(np.asarray(X[ends], dtype=dtype) for ends in rows.T)))
    if result.ndim != 2 or len(result) != len(rows):
        raise InputError(f"combine returned {result.shape} for {len(rows)} pairs; it must return one row for each.")
    return result


def edge_classification_accuracy(
    X: npt.ArrayLike,
    pairs: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    combine: Combine = "hadamard",
    per_class: int = 20,
    splits: int = 50,
    seed: int,
    classifier: Classifier | None = None,
) -> Float64Array:
    """Return the accuracy of a classifier of edges, by kind or sign say, one number per random split, (splits,).

    ``y`` (k,) are the classes of ``pairs``, -1 for none; those with too few edges are left out. See
    :func:`edge_embeddings` and :func:`classification_accuracy`.

    Examples
    --------
    >>> X = np.repeat(np.eye(2), 30, axis=0)
    >>> pairs = np.random.default_rng(0).integers(0, 60, size=(400, 2))
    >>> same = (pairs[:, 0] < 30) == (pairs[:, 1] < 30)
    >>> float(edge_classification_accuracy(X, pairs, same.astype(int), splits=3, seed=0).mean())
    1.0
    """
    options = {"per_class": per_class, "splits": splits, "seed": seed}
    rows = edge_embeddings(X, pairs, combine)
    return classification_accuracy(rows, y, **options, classifier=classifier, skip_small=True)
