"""The detectors of the comparison: our components, the paper's drift, unfolding and degrees; see also ``baselines``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from baselines import lad, midas_r, new_pairs, volume
from graphquilt.arrays import BoolArray, Float64Array
from graphquilt.errors import InputError
from graphquilt.temporal import SIDES, ScoringOptions, Tracker, drift_scores
from labelled_windows import Labelled, Scores, empty_scores, touched

__all__ = ["DETECTORS", "Settings", "detect"]


@dataclass(frozen=True)
class Settings:
    """The settings that all detectors share.

    Attributes
    ----------
    scoring : ScoringOptions
        How windows are embedded, aligned and scored.
    history : int
        How many windows are remembered in a stream.
    refit : int
        The streamed baseline computes its basis again after so many windows.
    budgets : tuple of int
        Numbers of alerts per window for which the recall is measured.
    """

    scoring: ScoringOptions = field(default_factory=ScoringOptions)
    history: int = 49
    refit: int = 7
    budgets: tuple[int, ...] = (20, 100)


def detect(name: str, data: Labelled, settings: Settings) -> tuple[Scores, float]:
    """Run one detector; return its score matrices (n, windows) by side, and the CPU seconds it took."""
    if name not in DETECTORS:
        raise InputError(f"there is no detector {name!r}; there are {', '.join(DETECTORS)}.")
    start = time.process_time()
    scores = DETECTORS[name](data, settings)
    return scores, time.process_time() - start


def _components(data: Labelled, settings: Settings) -> Scores:
    """Score by all components together: -log of the p-value; the alerts are those of the analyst, without victims.

    A pair has the p-value of its connection, in the order of the matrix.
    """
    tracker = Tracker(settings.scoring, history=settings.history)
    scores = empty_scores(data)
    alerts, pairs = [], []
    for t, window in enumerate(data.windows):
        result = tracker.update(window)
        pairs.append(-np.log(np.maximum(result.connections.pvalue, 1e-300)))
        for side, table in result.sides.items():
            scores[side][table.nodes, t] = -np.log(table.pvalue)
        alerts.append({budget: [alert[1:3] for alert in result.alerts(budget)] for budget in settings.budgets})
    return scores | {"alerts": alerts, "pairs": pairs}


def _new_pairs_first(data: Labelled) -> Scores:
    """Score hosts by their new pairs, and pairs by that of their higher end, with all new pairs before all others."""
    scores, known, pairs = new_pairs(data), np.zeros(0, dtype=np.int64), []
    highest = max(float(np.nanmax(scores[side])) for side in SIDES)
    lowest = min(float(np.nanmin(scores[side])) for side in SIDES)
    for t, window in enumerate(data.windows):
        source, destination = window.matrix.tocoo().coords
        keys = (source.astype(np.int64) << 32) | destination
        ends = np.fmax(scores["source"][source, t], scores["destination"][destination, t])
        pairs.append(ends + np.where(np.isin(keys, known), 0.0, highest - lowest + 1))
        known = np.union1d(known, keys)
    return scores | {"pairs": pairs}


def _contexts_stream(data: Labelled, settings: Settings) -> Scores:
    """Score by one component of the stream alone."""
    tracker = Tracker(settings.scoring, history=settings.history)
    scores = empty_scores(data)
    for t, window in enumerate(data.windows):
        for side, table in tracker.update(window).sides.items():
            scores[side][table.nodes, t] = table.column("contexts")
    return scores


def _unfolded(matrices: Sequence[sp.csr_array], dim: int) -> tuple[Float64Array, Float64Array]:
    """Return the leading left singular vectors and values of all windows side by side (UASE)."""
    from scipy.sparse.linalg import svds

    wide = sp.csr_array(sp.hstack(matrices, format="csr"))
    k = min(dim, min(wide.shape) - 1)
    U, values, _ = svds(wide, k=k, random_state=0)
    order = np.argsort(-values)
    return U[:, order], np.maximum(values[order], np.finfo(float).tiny)


def _positions(matrix: sp.csr_array, U: Float64Array, values: Float64Array) -> Float64Array:
    """Return the positions of the columns of one window: A_t^T U S^-1/2, the right embedding of UASE."""
    Y: Float64Array = (matrix.T @ U) / np.sqrt(values)
    return Y


def _with_columns(data: Labelled, side: str) -> list[sp.csr_array]:
    """Return matrices whose columns are the nodes of ``side``, because UASE lets the columns move between windows."""
    return [w.matrix if side == "destination" else sp.csr_array(w.matrix.T) for w in data.windows]


def _unfolded_stream(data: Labelled, settings: Settings) -> Scores:
    """Take the basis from the remembered windows, again after every ``refit``; the rest is the Tracker's rule."""
    scores = empty_scores(data)
    for side in SIDES:
        matrices = _with_columns(data, side)
        here = [touched(w.matrix, side) for w in data.windows]
        placed: list[Float64Array] = []
        for t in range(settings.scoring.min_observations, len(matrices)):
            past = range(max(0, t - settings.history), t)
            if (t - settings.scoring.min_observations) % settings.refit == 0:
                U, values = _unfolded([matrices[s] for s in past], settings.scoring.dim)
                placed = [_positions(matrices[s], U, values) for s in past]
            else:
                placed = [*placed, _positions(matrices[t - 1], U, values)][-len(past) :]
            now = _positions(matrices[t], U, values)
            scores[side][:, t] = _past_zscore(now, here[t], placed, [here[s] for s in past], settings)
    return scores


def _past_zscore(
    now: Float64Array,
    present: BoolArray,
    placed: Sequence[Float64Array],
    seen: Sequence[BoolArray],
    settings: Settings,
) -> Float64Array:
    count = np.sum(seen, axis=0)
    mean = sum(np.where(s[:, None], Y, 0.0) for s, Y in zip(seen, placed, strict=True)) / np.maximum(count, 1)[:, None]
    past = np.stack(
        [np.where(s, np.linalg.norm(Y - mean, axis=1), np.nan) for s, Y in zip(seen, placed, strict=True)], axis=1
    )
    n = np.maximum(count, 2)
    past *= np.sqrt((n + 1) / (n - 1))[:, None]
    return _against(np.linalg.norm(now - mean, axis=1), past, present & (count >= settings.scoring.min_observations))


def _against(value: Float64Array, past: Float64Array, wanted: BoolArray) -> Float64Array:
    """Standardise by the mean and deviation of the past columns, in the wanted rows."""
    z = np.full(len(value), np.nan)
    rows = np.flatnonzero(wanted)
    if len(rows):
        spread = np.nanstd(past[rows], axis=1)
        varies = spread > 1e-12
        z[rows[varies]] = (value[rows[varies]] - np.nanmean(past[rows[varies]], axis=1)) / spread[varies]
    return z


def _degrees(data: Labelled, side: str) -> Float64Array:
    """Return log(1 + degree) by window; NaN where a node is absent."""
    columns = []
    for window in data.windows:
        A = window.matrix
        degree = np.diff(A.indptr) if side == "source" else np.bincount(A.indices, minlength=A.shape[1])
        columns.append(np.where(degree > 0, np.log1p(degree), np.nan))
    return np.stack(columns, axis=1)


def _degree_stream(data: Labelled, settings: Settings) -> Scores:
    scores = empty_scores(data)
    for side in SIDES:
        L = _degrees(data, side)
        for t in range(1, L.shape[1]):
            past = L[:, max(0, t - settings.history) : t]
            enough = (~np.isnan(past)).sum(axis=1) >= settings.scoring.min_observations
            scores[side][:, t] = np.abs(_against(L[:, t], past, enough & ~np.isnan(L[:, t])))
    return scores


def _paper_batch(data: Labelled, settings: Settings) -> Scores:
    """Score by the paper's drift, which sees all windows, with our background."""
    result = drift_scores(data.windows, settings.scoring)
    position = {window.number: t for t, window in enumerate(data.windows)}
    columns = [position[int(number)] for number in result.numbers]
    scores = empty_scores(data)
    for side, part in result.sides.items():
        scores[side][: len(part.raw), columns] = part.standardised
    return scores


DETECTORS: dict[str, Callable[[Labelled, Settings], Scores]] = {
    "all components, stream": _components,
    "contexts alone, stream": _contexts_stream,
    "the paper's drift, batch": _paper_batch,
    "unfolded (UASE), stream": _unfolded_stream,
    "degree z, stream": _degree_stream,
    "new pairs, stream": lambda data, _: new_pairs(data),
    "new pairs first, stream": lambda data, _: _new_pairs_first(data),
    "volume, stream": lambda data, _: volume(data),
    "MIDAS-R, stream": lambda data, _: midas_r(data),
    "LAD, stream": lambda data, _: lad(data),
}
