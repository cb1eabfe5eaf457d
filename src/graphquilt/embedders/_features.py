"""The features a network is given: the graph's own, or a stand-in where it has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray
from graphquilt.errors import InputError
from graphquilt.graph import Graph

__all__ = ["STAND_INS", "degree_features", "features_of", "normalized_rows"]

STAND_INS = ("identity", "degree")
DEGREE_BUCKETS = 32


def degree_features(graph: Graph) -> sp.csr_array:
    """Return log(1 + degree) and a one-hot code of its binary order of magnitude, (n, 33).

    The width does not depend on the graph, so that an encoder trained on one can be applied to another.

    Examples
    --------
    >>> degree_features(Graph(sp.csr_array([[0, 1], [1, 0]]))).toarray()[:, :3].astype(float).round(3).tolist()
    [[0.693, 0.0, 1.0], [0.693, 0.0, 1.0]]
    """
    degrees = graph.degrees
    bucket = np.minimum(np.frexp(degrees.astype(np.float64))[1], DEGREE_BUCKETS - 1)
    n = graph.n_nodes
    data = np.column_stack([np.log1p(degrees), np.ones(n)]).astype(np.float32).ravel()
    columns = np.column_stack([np.zeros(n, dtype=np.int32), 1 + bucket.astype(np.int32)]).ravel()
    return sp.csr_array((data, columns, np.arange(0, 2 * n + 1, 2)), shape=(n, 1 + DEGREE_BUCKETS))


def normalized_rows(features: Any) -> Any:
    """Return the features with rows that sum to 1 if they are not negative, and as they are otherwise.

    Rows of zeros stay zero.

    Examples
    --------
    >>> normalized_rows(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    values = features.data if sp.issparse(features) else features
    if values.size and float(values.min()) < 0:
        return features
    total = np.asarray(features.sum(axis=1)).ravel()
    scale = 1 / np.where(total > 0, total, 1)
    return sp.csr_array(sp.diags_array(scale) @ features) if sp.issparse(features) else features * scale[:, None]


def features_of(graph: Graph, *, featureless: str | None, normalize: bool, name: str) -> Any:
    """Return the features to train on, (n, f) dense or CSR, or None for the identity.

    Parameters
    ----------
    featureless : {"identity", "degree"} or None
        The stand-in for a graph that has no features; None makes that an error.
    normalize : bool
        Whether rows are to sum to 1.
    name : str
        Who asks, for the error message.
    """
    features: Any = graph.features
    if features is None or features.shape[1] == 0:
        if featureless is None:
            raise InputError(
                f"{name} needs node features and the graph of {graph.n_nodes} nodes has none. Choose a stand-in: "
                f"{name}(..., featureless='degree'), or featureless='identity' for one free vector a node."
            )
        if featureless == "identity":
            return None
        features = degree_features(graph)
    sparse = sp.issparse(features)
    features = sp.csr_array(features) if sparse else np.asarray(features)
    values: AnyArray = features.data if sparse else features
    bad = ~np.isfinite(values)
    if bool(bad.any()):
        of_entry = np.repeat(np.arange(graph.n_nodes), np.diff(features.indptr)) if sparse else None
        rows = np.flatnonzero(bad.any(axis=1)) if of_entry is None else np.unique(of_entry[bad])
        raise InputError(
            f"the features of {len(rows)} of {graph.n_nodes} nodes are not finite, the first is node {int(rows[0])}; "
            "replace those values, for example by the mean of their column."
        )
    if not np.issubdtype(values.dtype, np.floating) or values.dtype.itemsize < 4:
        features = features.astype(np.float32)
    return normalized_rows(features) if normalize else features
