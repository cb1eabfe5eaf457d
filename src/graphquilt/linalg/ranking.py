"""Measures of a ranking: ROC AUC and average precision of the scores of positives and negatives."""

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
