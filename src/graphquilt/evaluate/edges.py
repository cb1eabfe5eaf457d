"""Embeddings of edges, made of those of their nodes, and the classification of edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import Float64Array, FloatArray
from graphquilt.errors import InputError
from graphquilt.evaluate.classification import Classifier, classification_accuracy
from graphquilt.evaluate.positions import checked_embedding

Combine = Literal["hadamard", "mean", "l1", "l2"] | Callable[[FloatArray, FloatArray], FloatArray]

_OPERATORS: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "hadamard": lambda A, B: A * B,
    "mean": lambda A, B: (A + B) / 2,
    "l1": lambda A, B: np.abs(A - B),
    "l2": lambda A, B: (A - B) ** 2,
}


def edge_embeddings(X: npt.ArrayLike, pairs: npt.ArrayLike, combine: Combine = "hadamard") -> FloatArray:
    """Return one row for each pair of nodes, made of the rows of both; the order of the two does not matter.

    Parameters
    ----------
    X : array (n, d)
    pairs : int array (k, 2)
        Rows of X.
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
    result = np.asarray(operator(*(np.asarray(X[ends], dtype=dtype) for ends in rows.T)))
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

    ``y`` (k,) are the classes of ``pairs``, -1 for none. See :func:`edge_embeddings` and
    :func:`classification_accuracy` for the other parameters; classes with too few edges are left out.

    Examples
    --------
    >>> X = np.repeat(np.eye(2), 30, axis=0)
    >>> pairs = np.random.default_rng(0).integers(0, 60, size=(400, 2))
    >>> same = (pairs[:, 0] < 30) == (pairs[:, 1] < 30)
    >>> float(edge_classification_accuracy(X, pairs, same.astype(int), splits=3, seed=0).mean())
    1.0
    """
    rows = edge_embeddings(X, pairs, combine)
    return classification_accuracy(
        rows, y, per_class=per_class, splits=splits, seed=seed, classifier=classifier, skip_small=True
    )
