"""Detectors of others, written from their papers, for the comparison: MIDAS-R and LAD, and the number of new pairs."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.temporal import SIDES
from labelled_windows import Labelled, Scores, empty_scores

__all__ = ["lad", "midas_r", "new_pairs", "volume"]

_FADING = 0.5  # by which MIDAS-R multiplies the counts of the current tick when a tick ends


class _Counter:
    """Current and total counts of keys 0..n-1, the current ones fading from tick to tick, with exact counts."""

    def __init__(self, n: int) -> None:
        self.current, self.total, self.seen = np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.int64)

    def scores(self, keys: Int64Array, tick: int) -> Float64Array:
        """Count one tick of keys, and return the chi-squared score of each, as in the paper of MIDAS."""
        distinct, inverse, count = np.unique(keys, return_inverse=True, return_counts=True)
        faded = self.current[distinct] * _FADING ** (tick - self.seen[distinct])
        a = self.current[distinct] = faded + count
        s = self.total[distinct] = self.total[distinct] + count
        self.seen[distinct] = tick
        score = (a - s / tick) ** 2 * tick**2 / (s * (tick - 1)) if tick > 1 else np.zeros(len(a))
        return np.asarray(score[inverse], dtype=np.float64)


def midas_r(data: Labelled) -> Scores:
    """Score flows by MIDAS-R (Bhatia and others 2020); a host has the highest score of its flows in a window."""
    time, source, destination = data.flows
    tick = ((time - time[0]) // data.tick).astype(np.int64) + 1
    n_sources, n_destinations = data.shape
    keys, edge = np.unique((source << 32) | destination, return_inverse=True)
    counters = _Counter(len(keys)), _Counter(n_sources), _Counter(n_destinations)
    score = np.zeros(len(time))
    starts = np.flatnonzero(np.diff(tick, prepend=0))
    for first, last in zip(starts, [*starts[1:], len(tick)], strict=True):
        rows = slice(first, last)
        parts = zip(counters, (edge, source, destination), strict=True)
        score[rows] = np.max([counter.scores(ids[rows], int(tick[first])) for counter, ids in parts], axis=0)
    scores = empty_scores(data)
    for t, window in enumerate(data.windows):
        rows = slice(*np.searchsorted(time, [window.start, window.end]))
        for side, ids in zip(SIDES, (source, destination), strict=True):
            column = np.full(len(scores[side]), -np.inf)
            np.maximum.at(column, ids[rows], score[rows])
            scores[side][:, t] = np.where(np.isfinite(column), column, np.nan)
    return scores


def new_pairs(data: Labelled) -> Scores:
    """Score a host by how many of its pairs were in no earlier window, against its own mean, shrunk toward all."""
    scores = empty_scores(data)
    known = np.zeros(0, dtype=np.int64)
    sums = {side: np.zeros(len(S)) for side, S in scores.items()}
    seen = {side: np.zeros(len(S)) for side, S in scores.items()}
    for t, window in enumerate(data.windows):
        A = sp.coo_array(window.matrix)
        keys = (A.row.astype(np.int64) << 32) | A.col
        is_new = ~np.isin(keys, known)
        for side, ids in zip(SIDES, (A.row, A.col), strict=True):
            n = len(sums[side])
            count = np.bincount(ids[is_new], minlength=n).astype(np.float64)
            present = np.bincount(ids, minlength=n) > 0
            usual = (sums[side] + 4 * sums[side].sum() / max(seen[side].sum(), 1)) / (seen[side] + 4)
            scores[side][present, t] = ((count - usual) / np.sqrt(usual + 1))[present]
            sums[side][present] += count[present]
            seen[side] += present
        known = np.union1d(known, keys)
    return scores


def volume(data: Labelled) -> Scores:
    """Score a host by its flows, or pairs where flows are not counted, against its own mean, shrunk toward all."""
    scores = empty_scores(data)
    sums = {side: np.zeros(len(S)) for side, S in scores.items()}
    seen = {side: np.zeros(len(S)) for side, S in scores.items()}
    for t, window in enumerate(data.windows):
        A = sp.coo_array(window.matrix)
        flows = np.ones(A.nnz) if window.counts is None else window.counts
        for side, ids in zip(SIDES, (A.row, A.col), strict=True):
            n = len(sums[side])
            count = np.bincount(ids, weights=flows, minlength=n)
            usual = (sums[side] + 4 * sums[side].sum() / max(seen[side].sum(), 1)) / (seen[side] + 4)
            present = count > 0
            scores[side][present, t] = ((count - usual) / np.sqrt(usual + 1))[present]
            sums[side] += count
            seen[side] += present
    return scores


def lad(data: Labelled, *, values: int = 10, short: int = 3, long: int = 7) -> Scores:
    """Score whole windows by LAD (Huang and others 2020): singular values of the Laplacian beside those of the past.

    Every host of a window has the score of the window: LAD does not say which host it is.
    """
    from scipy.sparse.linalg import svds

    signatures = []
    for window in data.windows:
        A = window.matrix
        active = np.flatnonzero(np.diff(A.indptr)), np.unique(A.indices)
        B = A[active[0]][:, active[1]]
        L = sp.block_array([[None, B], [B.T, None]], format="csr")
        L = sp.csr_array(sp.diags_array(np.asarray(L.sum(axis=1)).ravel()) - L)
        k = min(values, L.shape[0] - 1)
        s = np.zeros(values)
        s[:k] = np.sort(svds(L, k=k, return_singular_vectors=False, random_state=0))[::-1]
        signatures.append(s / np.linalg.norm(s))
    score = np.zeros(len(signatures))
    for t in range(1, len(signatures)):
        for width in (short, long):
            past = np.array(signatures[max(0, t - width) : t])
            usual = np.linalg.svd(past.T, full_matrices=False)[0][:, 0]
            score[t] = max(score[t], 1 - abs(float(usual @ signatures[t])))
    scores = empty_scores(data)
    for t, window in enumerate(data.windows):
        scores["source"][np.diff(window.matrix.indptr) > 0, t] = score[t]
        scores["destination"][np.unique(window.matrix.indices), t] = score[t]
    return scores
