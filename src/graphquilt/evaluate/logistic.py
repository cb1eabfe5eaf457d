"""Logistic regression whose accuracy does not depend on the axes, the origin or the scale of an embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from graphquilt.errors import ConvergenceError, InputError

if TYPE_CHECKING:
    from graphquilt.evaluate.classify import Split

__all__ = ["InvariantLogistic"]

_MEMORY = 6  # pairs of steps and gradient changes that L-BFGS remembers
_STEPS = 1000


@dataclass(frozen=True)
class InvariantLogistic:
    r"""Multinomial logistic regression with one isotropic penalty, which the validation nodes choose.

    An embedding is defined up to a rigid motion, so that its accuracy must not change under one. Points are centred and
    divided by one number, the root mean square of their norms. Then

    .. math:: \frac1m \sum_i -\log p_{y_i}(x_i) + \frac\lambda2 \|W\|_F^2, \qquad p(x) = \mathrm{softmax}(W x + b)

    is minimised over the training nodes for one penalty after the other, from strong to weak. Every part of this, the
    iterations included, turns with the points; only rounding remains. The penalty with the best accuracy on the
    validation nodes is used, the stronger of equals. A split leaves the path after ``patience`` penalties that were not
    better.

    The minimum is computed by L-BFGS for all splits as one batch. It starts from the bound of Böhning (1992) on the
    second derivatives, :math:`\frac12 (X^\top X / m) + \lambda`, and most penalties need 5 to 20 steps.

    Attributes
    ----------
    penalties : tuple of float
        The values of λ to try, falling. With one value the validation nodes are not used.
    patience : int
    tol : float
        The norm of the gradient at which a minimum is accepted.
    """

    penalties: tuple[float, ...] = tuple(2.0**-k for k in range(1, 19, 2))
    patience: int = 9
    tol: float = 1e-3

    def __post_init__(self) -> None:
        falling = all(a > b for a, b in zip(self.penalties, self.penalties[1:], strict=False))
        if not self.penalties or min(self.penalties) <= 0 or not falling:
            raise InputError(
                f"the penalties must be positive and fall, from strong to weak; they are {self.penalties}."
            )

    def __call__(self, X: FloatArray, y: Int64Array, splits: list[Split]) -> Float64Array:
        """Return the accuracy on the test nodes of each split, (s,)."""
        points = _standardised(X)
        accuracies = []
        for W, split in zip(self._fit(points, y, splits), splits, strict=True):
            correct = (W @ points.T).argmax(axis=0) == y  # all nodes: a copy of most rows would cost more
            accuracies.append(np.mean(correct[split.test]))
        return np.array(accuracies)

    def fit(self, X: FloatArray, y: Int64Array, splits: list[Split]) -> Float64Array:
        """Return the weights of each split on the standardised points, (s, C, d + 1); the last column is the bias."""
        return self._fit(_standardised(X), y, splits)

    def _fit(self, points: Float64Array, y: Int64Array, splits: list[Split]) -> Float64Array:
        several = len(self.penalties) > 1
        if several and not all(len(split.validation) for split in splits):
            raise InputError(
                f"a split has no validation nodes to choose one of {len(self.penalties)} penalties with; add some, or "
                "use InvariantLogistic(penalties=(0.01,))."
            )
        problem = _Problem.of(points, y, splits)
        V = np.zeros((len(splits), problem.target.shape[1], problem.rows.shape[2]))
        W = problem.weights(V)
        highest, stale = np.full(len(splits), -1.0), np.zeros(len(splits), dtype=np.int64)
        ids = np.arange(len(splits))
        for penalty in self.penalties:
            V = _minimise(problem, V, penalty, self.tol)
            found = problem.weights(V)
            nodes = [splits[k].validation for k in ids]
            share = np.array([_accuracy(w, points, y, part) for w, part in zip(found, nodes, strict=True)])
            better = share > highest[ids] if several else np.ones(len(ids), dtype=np.bool_)
            W[ids[better]], highest[ids[better]] = found[better], share[better]
            stale[ids] = np.where(better, 0, stale[ids] + 1)
            active = stale[ids] < self.patience
            if not active.any():
                break
            if not active.all():
                ids, V, problem = ids[active], V[active], problem.only(active)
        return W


def _standardised(X: FloatArray) -> Float64Array:
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
class _Problem:
    """The training nodes of some splits: rows (s, m, r + 1) with a one at the end, one-hot classes (s, C, m).

    The best weights are combinations of the training rows. Where there are fewer rows than dimensions, the rows are
    written in an orthonormal basis (s, r, d) of their span, which changes no norm and makes them shorter.
    """

    rows: Float64Array
    target: Float64Array
    basis: Float64Array | None

    @classmethod
    def of(cls, points: Float64Array, y: Int64Array, splits: list[Split]) -> _Problem:
        rows = np.stack([points[split.train] for split in splits])
        classes = np.eye(int(y.max()) + 1)
        target = np.stack([classes[:, y[split.train]] for split in splits])
        if rows.shape[1] >= rows.shape[2] - 1:
            return cls(rows, target, None)
        Q, R = np.linalg.qr(rows[:, :, :-1].transpose(0, 2, 1))
        short = np.concatenate([R.transpose(0, 2, 1), rows[:, :, -1:]], axis=2)
        return cls(short, target, np.ascontiguousarray(Q.transpose(0, 2, 1)))

    def only(self, active: BoolArray) -> _Problem:
        return _Problem(self.rows[active], self.target[active], None if self.basis is None else self.basis[active])

    def weights(self, V: Float64Array) -> Float64Array:
        """Return weights in the coordinates of the points, (s, C, d + 1)."""
        if self.basis is None:
            return V.copy()
        return np.concatenate([V[:, :, :-1] @ self.basis, V[:, :, -1:]], axis=2)

    def descend(self, V: Float64Array, penalty: float) -> tuple[Float64Array, Float64Array]:
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
        """Return the inverse of a matrix that no second derivative of any class exceeds, (s, r + 1, r + 1)."""
        B = self.rows.transpose(0, 2, 1) @ self.rows
        B *= 0.5 / self.rows.shape[1]
        diagonal = np.arange(B.shape[1] - 1)
        B[:, diagonal, diagonal] += penalty
        return np.asarray(np.linalg.inv(B), dtype=np.float64)


def _minimise(problem: _Problem, V: Float64Array, penalty: float, tol: float) -> Float64Array:
    """Return the weights of least penalised loss by L-BFGS from ``V``, (s, C, r + 1); a split that is done leaves."""
    V, ids = V.copy(), np.arange(len(V))
    W, bound = V, problem.inverse_bound(penalty)
    loss, gradient = problem.descend(W, penalty)
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
            new_loss, new_gradient = problem.descend(moved, penalty)
            far = new_loss > loss - 1e-4 * step * slope + 1e-14
            if not far.any():
                break
            step[far] /= 2
        change, turn = moved - W, new_gradient - gradient
        curvature = _products(change, turn)  # positive, because the penalised loss is strictly convex, up to rounding
        known = curvature > 1e-12 * _products(turn, turn)
        inverse = np.divide(1, curvature, out=np.zeros(len(ids)), where=known)
        pairs = [*pairs[-_MEMORY + 1 :], (change, turn, inverse)]
        W, loss, gradient = moved, new_loss, new_gradient
    raise ConvergenceError(
        f"logistic regression with penalty {penalty:.3g} has a gradient of {size.max():.2g} after {_STEPS} steps; "
        f"{tol:.2g} was wanted. Use stronger penalties or a larger tol.",
        residual=float(size.max()),
    )


def _direction(
    gradient: Float64Array, bound: Float64Array, pairs: Sequence[tuple[Float64Array, Float64Array, Float64Array]]
) -> Float64Array:
    """Multiply the gradient by the inverse second derivatives that L-BFGS has learnt (Nocedal 1980)."""
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
