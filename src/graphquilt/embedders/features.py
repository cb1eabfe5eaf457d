"""The features that a network trains on: those of the graph, or a substitute where it has none."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray
from graphquilt.errors import InputError
from graphquilt.graph import Graph

__all__ = ["SUBSTITUTES", "Features", "check_substitute", "degree_features", "features_of", "normalized_rows"]

Features: TypeAlias = AnyArray | sp.csr_array
SUBSTITUTES = ("identity", "degree")
DEGREE_BUCKETS = 32


def check_substitute(featureless: str | None, name: str) -> None:
    """Refuse a value of ``featureless`` that is neither None nor the name of a substitute."""
    if featureless not in (None, *SUBSTITUTES):
        raise InputError(f"featureless of {name} is one of {SUBSTITUTES} or None, not {featureless!r}.")


def degree_features(graph: Graph) -> sp.csr_array:
    """Return log(1 + degree) and a one-hot code of its binary order of magnitude, (n, 33).

    The width does not depend on the graph, so that an encoder trained on one graph can be applied to another.

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


def normalized_rows(features: Features) -> Features:
    """Return the features with rows that sum to 1; features with a negative value are returned unchanged.

    Rows of zeros stay zero.

    Examples
    --------
    >>> normalized_rows(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    values: AnyArray = features.data if isinstance(features, sp.csr_array) else features
    if values.size and float(values.min()) < 0:
        return features
    total = np.asarray(features.sum(axis=1)).ravel()
    scale = 1 / np.where(total > 0, total, 1)
    if isinstance(features, sp.csr_array):
        return sp.csr_array(sp.diags_array(scale) @ features)
    return features * scale[:, None]


def features_of(graph: Graph, *, featureless: str | None, normalize: bool, name: str) -> Features | None:
    """Return the features to train on, (n, f) dense or CSR, or None for the identity.

    A graph without features gets the substitute ``featureless``; None makes that an error, which has the ``name`` of
    the embedder. ``normalize`` divides every row by its sum.
    """
    source = graph.features
    if source is None or source.shape[1] == 0:
        if featureless is None:
            raise InputError(
                f"{name} needs node features and the graph of {graph.n_nodes} nodes has none. Choose a substitute: "
                f"{name}(..., featureless='degree'), or featureless='identity' for one free vector per node."
            )
        if featureless == "identity":
            return None
        source = degree_features(graph)
    features: Features = sp.csr_array(source) if sp.issparse(source) else np.asarray(source)
    values: AnyArray = features.data if isinstance(features, sp.csr_array) else features
    bad = ~np.isfinite(values)
    if bool(bad.any()):
        if isinstance(features, sp.csr_array):
            rows = np.unique(np.repeat(np.arange(graph.n_nodes), np.diff(features.indptr))[bad])
        else:
            rows = np.flatnonzero(bad.any(axis=1))
        raise InputError(
            f"the features of {len(rows)} of {graph.n_nodes} nodes are not finite, the first is node {int(rows[0])}; "
            "replace those values, for example by the mean of their column."
        )
    if not np.issubdtype(values.dtype, np.floating) or values.dtype.itemsize < 4:
        features = features.astype(np.float32)
    return normalized_rows(features) if normalize else features
