"""Checks of an embedding and of labels, shared by all measures."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import FloatArray, Int64Array, refuse_masked
from graphquilt.errors import InputError

__all__ = ["checked_embedding", "checked_labels"]

_ROWS = 1 << 18  # rows checked at a time, so that a memory map is never loaded whole


def checked_embedding(X: npt.ArrayLike, n_nodes: int | None = None) -> FloatArray:
    """Return ``X`` as a float array (n, d), or refuse it; a memory map stays one."""
    refuse_masked(rows_of_the_embedding=X)
    array = np.asanyarray(X)
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"an embedding is a matrix with one row per node; this has shape {array.shape}.")
    if n_nodes is not None and len(array) != n_nodes:
        raise InputError(f"the graph has {n_nodes} nodes and the embedding has {len(array)} rows; each node needs one.")
    if not np.issubdtype(array.dtype, np.floating):
        if not np.issubdtype(array.dtype, np.integer):
            raise InputError(f"an embedding holds real numbers, not {array.dtype}.")
        array = array.astype(np.float64)
    blocks = (array[start : start + _ROWS] for start in range(0, len(array) or 1, _ROWS))
    rows = np.flatnonzero(~np.concatenate([np.isfinite(block).all(axis=1) for block in blocks]))
    if len(rows):
        first = ", ".join(str(int(row)) for row in rows[:5])
        raise InputError(
            f"{len(rows)} of {len(array)} rows of the embedding are not finite, the first are those of nodes {first}; "
            "leave those nodes out or embed again (a node that no patch contains has a NaN row)."
        )
    return array


def checked_labels(y: npt.ArrayLike, n_nodes: int) -> Int64Array:
    """Return ``y`` as an int array (n,), -1 where there is no label."""
    refuse_masked(labels=y)
    labels = np.asarray(y)
    if labels.ndim != 1 or len(labels) != n_nodes:
        raise InputError(
            f"the embedding has {n_nodes} rows and the labels have shape {labels.shape}; give one label per row, -1 "
            "where there is none. Labels of a whole graph must be cut with it when it is cut to its largest component."
        )
    if np.issubdtype(labels.dtype, np.floating):
        known = np.isfinite(labels)  # some data sets use NaN for "no label"
        if bool(np.any(labels[known] != np.floor(labels[known]))):
            raise InputError("labels are class numbers 0, 1, 2, …; these have fractions.")
        labels = np.where(known, labels, -1)
    elif not np.issubdtype(labels.dtype, np.integer):
        raise InputError(f"labels are class numbers 0, 1, 2, …, not {labels.dtype}; use numpy.unique(…)[1] on names.")
    labels = labels.astype(np.int64)
    return np.where(labels < 0, -1, labels)
