"""Who finds the intruder: aligned windows, in batch and in a stream, beside two baselines on the same windows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import BoolArray, Float64Array, Int64Array
from graphquilt.errors import InputError
from graphquilt.evaluate import alert_quality
from graphquilt.synthetic.netflow import BEHAVIOURS, Netflow
from graphquilt.temporal import SIDES, Tracker, leave_one_out_zscore, score_windows
from graphquilt.temporal.windows import Window, snapshots

__all__ = ["DETECTORS", "Labelled", "Settings", "darpa_windows", "detect", "judge", "netflow_windows"]

Scores = dict[str, Float64Array]


@dataclass(frozen=True, eq=False)
class Labelled:
    """Windows and what is known of them.

    Attributes
    ----------
    windows : list of Window
        All matrices of one shape.
    attacks : dict
        Name of a kind of attack, or ``"all"``, to CSR patterns, one a window, of the pairs that are attacks.
    first : int
        Position of the first window that is judged; those before it are only learnt from.
    """

    windows: list[Window]
    attacks: Mapping[str, list[sp.csr_array]]
    first: int

    @property
    def shape(self) -> tuple[int, int]:
        """Sources and destinations."""
        return self.windows[0].matrix.shape  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Settings:
    """What all detectors share.

    Attributes
    ----------
    dim, lags, min_observations
        As in :func:`graphquilt.temporal.score_windows`.
    history : int
        Windows remembered in a stream.
    refit : int
        The streamed baseline computes its basis anew after so many windows.
    """

    dim: int = 20
    lags: tuple[int, ...] = (1, 7, 14, 21, 28, 35, 42, 49)
    min_observations: int = 21
    history: int = 49
    refit: int = 7
    budgets: tuple[int, ...] = field(default=(10, 50, 100))


def netflow_windows(network: Netflow) -> Labelled:
    """Draw every day of a generated network, with the intruder's pairs as the truth; judged from his first day."""
    shape = (network.n_sources, network.n_destinations)
    windows: list[Window] = []
    attacks: dict[str, list[sp.csr_array]] = {name: [] for name in ("all", *BEHAVIOURS)}
    truth = network.truth
    for day in range(network.n_days):
        matrix = network.matrix(day)
        windows.append(Window(day, 86400.0 * day, 86400.0 * (day + 1), matrix, matrix.nnz))
        for kind, days in attacks.items():
            rows = truth.day == day
            if kind != "all":
                rows &= truth.behaviour == BEHAVIOURS.index(kind)
            days.append(_pattern(truth.source[rows], truth.destination[rows], shape))
    return Labelled(windows, attacks, network.first_red_day)


def darpa_windows(path: str | Path, width: str) -> Labelled:
    """Cut the DARPA 1998 flows into windows; a pair is an attack where any of its rows in the window is labelled so.

    The whole period is judged, after the first quarter of the windows.
    """
    with np.load(path, allow_pickle=False) as file:
        order = np.argsort(file["t_min"], kind="stable")
        source, destination = file["src"][order].astype(np.int64), file["dst"][order].astype(np.int64)
        seconds, label = file["t_min"][order].astype(np.float64) * 60, file["label"][order]
        n, normal = len(file["host_names"]), int(np.flatnonzero(file["label_names"] == "-")[0])
    days = snapshots([(seconds, source, destination)], width)
    windows = [_grown(window, n) for window in days.windows()]
    attack = label != normal
    number = np.floor(seconds / days.width).astype(np.int64)
    marks = []
    for window in windows:
        rows = attack & (number == window.number)
        marks.append(_pattern(source[rows], destination[rows], (n, n)))
    return Labelled(windows, {"all": marks}, len(windows) // 4)


def detect(name: str, data: Labelled, settings: Settings) -> tuple[Scores, float]:
    """Run one detector; return its score matrices (n, windows) by side, and the CPU seconds it took."""
    if name not in DETECTORS:
        raise InputError(f"there is no detector {name!r}; there are {', '.join(DETECTORS)}.")
    start = time.process_time()
    scores = DETECTORS[name](data, settings)
    return scores, time.process_time() - start


def judge(scores: Scores, data: Labelled, settings: Settings) -> dict[str, dict[str, dict[str, float]]]:
    """Measure scores against the truth: by side for (host, window), and for (pair, window), for each kind of attack.

    A host is attacked, or attacks, in a window if one of its pairs is an attack there. A pair scores as the higher of
    its two ends. When one kind is judged, hosts and pairs of other kinds are left out. Hosts are those that had been
    in ``min_observations`` windows before: nobody can say what is unusual for a stranger; ``known_attacks`` is their
    share of all attacks.
    """
    judged = range(data.first, len(data.windows))
    known = {
        side: np.stack(list(_known(data, side, settings.min_observations)), axis=1)[:, data.first :] for side in SIDES
    }
    here = {side: np.stack([_touched(data.windows[t].matrix, side) for t in judged], axis=1) for side in SIDES}
    any_attack = {side: np.stack([_touched(data.attacks["all"][t], side) for t in judged], axis=1) for side in SIDES}
    out: dict[str, dict[str, dict[str, float]]] = {}
    for kind, marks in data.attacks.items():
        results: dict[str, dict[str, float]] = {}
        for side in SIDES:
            truth = np.stack([_touched(marks[t], side) for t in judged], axis=1)
            if (truth & known[side]).any():
                share = float((truth & known[side]).sum() / truth.sum())
                truth &= known[side]
                present = here[side] & known[side] & (truth | ~any_attack[side])
                values = np.where(present, scores[side][:, data.first :], np.nan)
                quality = alert_quality(values, truth, present=present, budgets=settings.budgets)
                results[side] = {"known_attacks": share, **quality}
        pairs = _pair_quality(scores, data, kind, settings)
        if pairs is not None:
            results["pair"] = pairs
        out[kind] = results
    return out


def _known(data: Labelled, side: str, least: int) -> Iterator[BoolArray]:
    """Give, window by window, which nodes have been in at least ``least`` windows before."""
    count = np.zeros(data.shape[SIDES.index(side)], dtype=np.int64)
    for window in data.windows:
        yield count >= least
        count += _touched(window.matrix, side)


def _pair_quality(scores: Scores, data: Labelled, kind: str, settings: Settings) -> dict[str, float] | None:
    """Lay the pairs of each window side by side as one column, padded, and measure like hosts."""
    columns, truths = [], []
    for t in range(data.first, len(data.windows)):
        A = data.windows[t].matrix
        rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
        ends = np.stack([scores["source"][rows, t], scores["destination"][A.indices, t]])
        best = np.fmax(ends[0], ends[1])
        key = rows.astype(np.int64) * A.shape[1] + A.indices
        mine, other = (_is_in(key, marks[t]) for marks in (data.attacks[kind], data.attacks["all"]))
        keep = mine | ~other
        columns.append(best[keep])
        truths.append(mine[keep])
    height = max(len(column) for column in columns)
    S = np.full((height, len(columns)), np.nan)
    truth, present = np.zeros(S.shape, dtype=bool), np.zeros(S.shape, dtype=bool)
    for t, (column, mine) in enumerate(zip(columns, truths, strict=True)):
        S[: len(column), t], truth[: len(mine), t], present[: len(column), t] = column, mine, True
    return alert_quality(S, truth, present=present, budgets=settings.budgets) if truth.any() else None


def _aligned_batch(background: float) -> Callable[[Labelled, Settings], Scores]:
    def run(data: Labelled, settings: Settings) -> Scores:
        found = score_windows(
            data.windows,
            dim=settings.dim,
            lags=settings.lags,
            min_observations=settings.min_observations,
            background=background,
        )
        position = {window.number: t for t, window in enumerate(data.windows)}
        columns = [position[int(number)] for number in found.numbers]
        out = _empty(data)
        for side, part in found.sides.items():
            out[side][: len(part.raw), columns] = part.standardised
        return out

    return run


def _aligned_stream(data: Labelled, settings: Settings) -> Scores:
    tracker = Tracker(
        settings.dim, lags=settings.lags, min_observations=settings.min_observations, history=settings.history
    )
    out = _empty(data)
    for t, window in enumerate(data.windows):
        for side, part in tracker.update(window.matrix, window.number).sides.items():
            out[side][part.nodes, t] = part.standardised
    return out


def _unfolded(matrices: Sequence[sp.csr_array], dim: int) -> tuple[Float64Array, Float64Array]:
    """The d leading left singular vectors and values of all windows side by side (UASE)."""
    from scipy.sparse.linalg import svds

    wide = sp.csr_array(sp.hstack(matrices, format="csr"))
    k = min(dim, min(wide.shape) - 1)
    U, values, _ = svds(wide, k=k, random_state=0)
    order = np.argsort(-values)
    return U[:, order], np.maximum(values[order], np.finfo(float).tiny)


def _positions(matrix: sp.csr_array, U: Float64Array, values: Float64Array) -> Float64Array:
    """Where the columns of one window lie: A_t^T U S^-1/2, the right embedding of UASE."""
    Y: Float64Array = (matrix.T @ U) / np.sqrt(values)
    return Y


def _turned(data: Labelled, side: str) -> list[sp.csr_array]:
    """Matrices whose columns are the nodes of ``side``: those are what UASE lets move from window to window."""
    return [w.matrix if side == "destination" else sp.csr_array(w.matrix.T) for w in data.windows]


def _unfolded_batch(data: Labelled, settings: Settings) -> Scores:
    out = _empty(data)
    for side in SIDES:
        matrices = _turned(data, side)
        U, values = _unfolded(matrices, settings.dim)
        count, total = np.zeros(len(out[side])), np.zeros((len(out[side]), U.shape[1]))
        here = [_touched(w.matrix, side) for w in data.windows]
        placed = [_positions(A, U, values) for A in matrices]
        for seen, Y in zip(here, placed, strict=True):
            total[seen] += Y[seen]
            count += seen
        mean = total / np.maximum(count, 1)[:, None]
        D = np.full(out[side].shape, np.nan)
        for t, (seen, Y) in enumerate(zip(here, placed, strict=True)):
            D[seen, t] = np.linalg.norm(Y[seen] - mean[seen], axis=1)
        out[side] = leave_one_out_zscore(D, min_observations=settings.min_observations).astype(np.float64)
    return out


def _unfolded_stream(data: Labelled, settings: Settings) -> Scores:
    """The basis comes from the windows remembered, anew after every ``refit``; the rest is the Tracker's rule."""
    out = _empty(data)
    for side in SIDES:
        matrices = _turned(data, side)
        here = [_touched(w.matrix, side) for w in data.windows]
        placed: list[Float64Array] = []
        for t in range(settings.min_observations, len(matrices)):
            past = range(max(0, t - settings.history), t)
            if (t - settings.min_observations) % settings.refit == 0:
                U, values = _unfolded([matrices[s] for s in past], settings.dim)
                placed = [_positions(matrices[s], U, values) for s in past]
            else:
                placed = [*placed, _positions(matrices[t - 1], U, values)][-len(past) :]
            now = _positions(matrices[t], U, values)
            out[side][:, t] = _past_zscore(now, here[t], placed, [here[s] for s in past], settings)
    return out


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
    return _against(np.linalg.norm(now - mean, axis=1), past, present & (count >= settings.min_observations))


def _against(value: Float64Array, past: Float64Array, wanted: BoolArray) -> Float64Array:
    """Standardise by the mean and deviation of the past columns, where wanted."""
    z = np.full(len(value), np.nan)
    rows = np.flatnonzero(wanted)
    if len(rows):
        spread = np.nanstd(past[rows], axis=1)
        fine = spread > 1e-12
        z[rows[fine]] = (value[rows[fine]] - np.nanmean(past[rows[fine]], axis=1)) / spread[fine]
    return z


def _degrees(data: Labelled, side: str) -> Float64Array:
    """log(1 + degree) by window; NaN where a node is absent."""
    columns = []
    for window in data.windows:
        A = window.matrix
        degree = np.diff(A.indptr) if side == "source" else np.bincount(A.indices, minlength=A.shape[1])
        columns.append(np.where(degree > 0, np.log1p(degree), np.nan))
    return np.stack(columns, axis=1)


def _degree_batch(data: Labelled, settings: Settings) -> Scores:
    least = settings.min_observations
    return {side: np.abs(leave_one_out_zscore(_degrees(data, side), min_observations=least)) for side in SIDES}


def _degree_stream(data: Labelled, settings: Settings) -> Scores:
    out = _empty(data)
    for side in SIDES:
        L = _degrees(data, side)
        for t in range(1, L.shape[1]):
            past = L[:, max(0, t - settings.history) : t]
            enough = (~np.isnan(past)).sum(axis=1) >= settings.min_observations
            out[side][:, t] = np.abs(_against(L[:, t], past, enough & ~np.isnan(L[:, t])))
    return out


DETECTORS: dict[str, Callable[[Labelled, Settings], Scores]] = {
    "aligned, batch": _aligned_batch(1.0),
    "aligned as in the paper, batch": _aligned_batch(0.0),
    "unfolded, batch": _unfolded_batch,
    "degree, batch": _degree_batch,
    "aligned, stream": _aligned_stream,
    "unfolded, stream": _unfolded_stream,
    "degree, stream": _degree_stream,
}


def _empty(data: Labelled) -> Scores:
    n_sources, n_destinations = data.shape
    T = len(data.windows)
    return {"source": np.full((n_sources, T), np.nan), "destination": np.full((n_destinations, T), np.nan)}


def _touched(matrix: sp.csr_array, side: str) -> BoolArray:
    """Which nodes of a side have a pair, (n,)."""
    if side == "source":
        return np.asarray(np.diff(matrix.indptr) > 0)
    mark = np.zeros(matrix.shape[1], dtype=bool)
    mark[matrix.indices] = True
    return mark


def _pattern(source: Any, destination: Any, shape: tuple[int, int]) -> sp.csr_array:
    A = sp.csr_array((np.ones(len(source)), (source, destination)), shape=shape)
    A.sum_duplicates()
    return A


def _grown(window: Window, n: int) -> Window:
    A = sp.csr_array(window.matrix)
    A.resize((n, n))
    return Window(window.number, window.start, window.end, A, window.rows)


def _is_in(key: Int64Array, marks: sp.csr_array) -> BoolArray:
    rows = np.repeat(np.arange(marks.shape[0], dtype=np.int64), np.diff(marks.indptr))
    return np.isin(key, rows * marks.shape[1] + marks.indices)
