"""Positions of nodes: what an embedding and its labels must be, and the distance of two embeddings up to a motion."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import FloatArray, Int64Array, refuse_masked
from graphquilt.errors import InputError
from graphquilt.linalg import centred, polar

_ROWS = 1 << 18  # rows checked at a time: a memory map is never loaded whole


def checked_embedding(X: npt.ArrayLike, n_nodes: int | None = None) -> FloatArray:
    """Return ``X`` as a float array (n, d), or raise; a memory map stays one."""
    refuse_masked(rows_of_the_embedding=X)
    array = np.asanyarray(X)
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"an embedding must be a matrix with one row per node; its shape is {array.shape}.")
    if n_nodes is not None and len(array) != n_nodes:
        raise InputError(f"the graph has {n_nodes} nodes and the embedding has {len(array)} rows; each node needs one.")
    if not np.issubdtype(array.dtype, np.floating):
        if array.dtype.kind not in "iu":
            raise InputError(f"an embedding must contain real numbers, not {array.dtype}.")
        array = array.astype(np.float64)
    blocks = (array[start : start + _ROWS] for start in range(0, len(array) or 1, _ROWS))
    rows = np.flatnonzero(~np.concatenate([np.isfinite(block).all(axis=1) for block in blocks]))
    if len(rows):
        first = ", ".join(str(int(row)) for row in rows[:5])
        raise InputError(
            f"{len(rows)} of {len(array)} rows of the embedding are not finite (the first: nodes {first}); leave those "
            "nodes out or embed again (a node that no patch contains has a NaN row)."
        )
    return array


def checked_labels(y: npt.ArrayLike, n_nodes: int) -> Int64Array:
    """Return ``y`` as an int array (n,), with -1 for nodes without a label."""
    refuse_masked(labels=y)
    labels = np.asarray(y)
    if labels.ndim != 1 or len(labels) != n_nodes:
        raise InputError(
            f"labels must have shape ({n_nodes},), one per node with -1 for none, not {labels.shape}. If the graph was "
            "reduced to its largest component, reduce its labels too."
        )
    if np.issubdtype(labels.dtype, np.floating):
        known = np.isfinite(labels)  # some data sets use NaN for "no label"
        if bool(np.any(labels[known] != np.floor(labels[known]))):
            raise InputError("labels must be class numbers 0, 1, 2, …; these have fractions.")
        labels = np.where(known, labels, -1)
    elif labels.dtype.kind not in "iu":
        raise InputError(f"labels must be class numbers 0, 1, 2, …, not {labels.dtype}; number them by numpy.unique.")
    labels = labels.astype(np.int64)
    return np.where(labels < 0, -1, labels)


def procrustes_error(X: npt.ArrayLike, reference: npt.ArrayLike, *, scale: bool = False) -> float:
    r"""Return the relative difference that remains after the best rigid motion of ``X`` onto ``reference``.

    .. math:: \min_{s, R, t} \|s X R + t - Y\|_F / \|Y - \bar Y\|_F, \qquad R^\top R = I

    0 means that they agree up to a motion; an unrelated embedding is near 1 (with ``scale``, never above 1).

    Parameters
    ----------
    X, reference : array (n, d)
        Row r of both is the same node.
    scale : bool
        Fit s too; otherwise s = 1.

    Examples
    --------
    >>> square = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    >>> turned = square @ np.array([[0.0, 1.0], [-1.0, 0.0]]) + 5
    >>> round(procrustes_error(turned, square), 6), round(procrustes_error(2 * square, square), 6)
    (0.0, 1.0)
    >>> round(procrustes_error(2 * square, square, scale=True), 6)
    0.0
    """
    A, B = (np.asarray(checked_embedding(Z), dtype=np.float64) for Z in (X, reference))
    if A.shape != B.shape:
        raise InputError(f"the embedding is {A.shape[0]} × {A.shape[1]}, the reference {B.shape[0]} × {B.shape[1]}.")
    A, B = centred(A)[0], centred(B)[0]
    size = float(np.linalg.norm(B))
    if size == 0:
        raise InputError(f"all {len(B)} points of the reference coincide; the relative error is undefined.")
    rotation, sigma = polar(A.T @ B)
    spread = float(np.sum(A * A))
    s = float(sigma.sum()) / spread if scale and spread > 0 else 1.0
    return float(np.linalg.norm(s * (A @ rotation) - B)) / size
