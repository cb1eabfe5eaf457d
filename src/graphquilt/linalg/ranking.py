"""Measures of a ranking of positives and negatives by their scores: ROC AUC, average precision, Hits@K and MRR."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from graphquilt.errors import InputError


def roc_auc(positive: npt.ArrayLike, negative: npt.ArrayLike) -> float:
    """Return the probability that a positive scores above a negative; ties count one half."""
    a, b = (np.sort(np.ravel(scores)) for scores in (positive, negative))  # sorted queries read memory in order
    if len(a) == 0 or len(b) == 0:
        raise InputError(f"a ranking needs scores on both sides; there are {len(a)} positives and {len(b)} negatives.")
    below = np.searchsorted(b, a, side="left").sum(dtype=np.int64)
    not_above = np.searchsorted(b, a, side="right").sum(dtype=np.int64)
    return float((int(below) + int(not_above)) / (2 * len(a) * len(b)))


def average_precision(positive: npt.ArrayLike, negative: npt.ArrayLike) -> float:
    """Return the precision averaged over the positives, from the highest score down; ties are counted together."""
    a, b = np.ravel(positive), np.ravel(negative)
    if len(a) == 0:
        raise InputError("average precision needs at least one positive.")
    values = np.concatenate([a, b])
    order = np.argsort(-values, kind="stable")
    last = np.append(np.flatnonzero(np.diff(values[order])), len(values) - 1)  # the end of each group of ties
    hits = np.cumsum(order < len(a))[last]
    return float(np.sum(np.diff(hits, prepend=0) * hits / (last + 1)) / len(a))


def hits_at(positive: npt.ArrayLike, negative: npt.ArrayLike, k: int = 50) -> float:
    """Return the share of positives that score above the k-th best negative; ties do not count."""
    a, b = np.ravel(positive), np.ravel(negative)
    if len(a) == 0 or not 1 <= k <= len(b):
        raise InputError(f"Hits@{k} needs a positive and {k} negatives; there are {len(a)} and {len(b)}.")
    return float(np.mean(a > np.partition(b, len(b) - k)[len(b) - k]))


def mean_reciprocal_rank(positive: npt.ArrayLike, negative: npt.ArrayLike) -> float:
    """Return the mean of 1 / rank of each positive (p,) among negatives of its own (p, q); ties count one half."""
    a, b = np.ravel(positive), np.asarray(negative)
    if len(a) == 0 or b.shape[:1] != (len(a),):
        raise InputError(f"each of {len(a)} positives needs a row of negatives; their shape is {b.shape}.")
    above = (b > a[:, None]).sum(axis=1) + 0.5 * (b == a[:, None]).sum(axis=1)
    return float(np.mean(1 / (1 + above)))
