"""Score a stream of windows, each from the windows before it: score a window first, then learn it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import Float64Array, FloatArray, Int64Array, IntArray
from graphquilt.errors import FormatError, InputError
from graphquilt.files import explained, load_arrays, save_arrays
from graphquilt.linalg.procrustes import centred, nearest_orthogonal, relative_rotation
from graphquilt.temporal.alerts import Alert, Explanation, Pattern, explain
from graphquilt.temporal.embedding import embed_or_explain, warn_left_out
from graphquilt.temporal.scores import ScoringOptions
from graphquilt.temporal.tracker_kernels import add_distances, add_positions
from graphquilt.temporal.windows import SIDES

__all__ = ["SideWindow", "Tracker", "WindowScores"]

_FORMAT = 1


class SideWindow(NamedTuple):
    """Scores of one side of one window.

    Attributes
    ----------
    nodes : int array (k,)
        The nodes that have a position in the window.
    raw, standardised : float arrays (k,)
        Distance from the reference position, and its z-score; NaN where there is none.
    """

    nodes: IntArray
    raw: FloatArray
    standardised: FloatArray


@dataclass(frozen=True, eq=False)
class WindowScores:
    """The result of :meth:`Tracker.update` for one window.

    Attributes
    ----------
    sides : mapping of "source" and "destination" to SideWindow
        Empty if the window was left out.
    limits : mapping
        For each side, the quantile of the scores of the windows remembered before this one; NaN if there are none.
    left_out : str or None
        Why the window could not be scored.
    """

    number: int
    sides: Mapping[str, SideWindow]
    limits: Mapping[str, float]
    left_out: str | None = None

    def alerts(self, budget: int) -> list[Alert]:
        """Return at most ``budget`` nodes above the limit of their side, the most unusual first."""
        alerts: list[Alert] = []
        for side, (nodes, raw, z) in self.sides.items():
            rows = np.flatnonzero(z > np.nan_to_num(self.limits[side]))
            rows = rows[np.argsort(-z[rows], kind="stable")[:budget]]
            alerts += [Alert(self.number, side, int(nodes[k]), float(raw[k]), float(z[k])) for k in rows]
        return sorted(alerts, key=lambda alert: -alert.standardised)[:budget]


class _PastWindow(NamedTuple):
    """Aligned positions and scores of one side of a window that was learnt."""

    nodes: IntArray
    positions: FloatArray
    standardised: FloatArray


class _Reference(NamedTuple):
    """One side of the remembered windows, and the usual positions of the k nodes of a new window.

    ``rows[id]`` is the position of a node among the k, or -1; ``n_windows`` (k,) is the number of remembered windows
    that have it, and ``mean`` (k, d) is its mean position in them, zero if there are none.
    """

    past: Mapping[int, _PastWindow]
    rows: Int64Array
    n_windows: Int64Array
    mean: Float64Array


class Tracker:
    """Score windows as they come, each against the windows before it.

    A window is embedded, and then rotated and shifted onto the remembered windows that lie one of the lags away, by the
    paper's rotation and translation steps with all other windows fixed. The distance of each node from the mean of its
    remembered positions is compared with the distances of those positions. Only then is the window learnt.

    Parameters
    ----------
    options : ScoringOptions, optional
        ``min_observations`` and ``quantile`` refer to the remembered windows and their scores.
    history : int, optional
        How many windows are remembered; by default the longest lag. Older windows are forgotten, and with them the
        nodes that were in no other window.

    Attributes
    ----------
    notes : dict
        Data of the caller, as JSON allows it: :meth:`save` writes it, and :meth:`load` reads it.

    Notes
    -----
    Without drift, the distance from a mean of n positions that includes the position itself is smaller than the
    distance from a mean that does not, by the factor sqrt((n - 1) / (n + 1)). The remembered distances are divided by
    that factor, so that a usual window scores zero on average.

    Lags that lead to a missing window are not used; if no lag is left, the window is placed by the reference positions
    of its nodes. A late window (its number is below the last) is scored, and learnt unless it is older than
    ``history``. A node that was never seen before has no score, and has a reference position from then on. A window
    that cannot be embedded or placed is reported as ``left_out`` and not learnt.

    Examples
    --------
    >>> from graphquilt.synthetic.netflow import netflow
    >>> stream = netflow(80, 400, 10, seed=1)
    >>> tracker = Tracker(ScoringOptions(dim=3, lags=(1, 7), min_observations=4))
    >>> for day in range(6):
    ...     today = tracker.update(stream.matrix(day), day)
    >>> tracker.numbers, today.sides["source"].raw.shape == today.sides["source"].nodes.shape
    ([0, 1, 2, 3, 4, 5], True)
    """

    def __init__(self, options: ScoringOptions | None = None, *, history: int | None = None) -> None:
        self.options = options or ScoringOptions()
        longest_lag = max(self.options.lags)
        self.history = longest_lag if history is None else history
        if self.history < longest_lag:
            problem = f"a history of {self.history} windows is shorter than the longest lag, {longest_lag}"
            raise InputError(f"{problem}. Lengthen the history, or shorten the lags.")
        if self.options.min_observations > self.history:
            least = self.options.min_observations
            problem = f"min_observations is {least}, but only {self.history} windows are remembered"
            raise InputError(f"{problem}. Lower it, or lengthen the history.")
        self.notes: dict[str, Any] = {}
        self._past: dict[int, Mapping[str, _PastWindow]] = {}
        self._patterns: dict[int, Pattern] = {}

    @property
    def numbers(self) -> list[int]:
        """The numbers of the remembered windows, in order."""
        return sorted(self._patterns)

    @property
    def settings(self) -> dict[str, object]:
        """All scoring options and the history, by name."""
        return {**asdict(self.options), "history": self.history}

    def update(self, matrix: sp.csr_array, number: int | None = None) -> WindowScores:
        """Score one window, then learn it.

        Parameters
        ----------
        matrix : CSR array (sources, destinations)
            Node ids must mean the same from window to window; the shape may grow.
        number : int, optional
            The number of the window; by default one more than the latest.
        """
        if number is None:
            number = max(self._patterns, default=-1) + 1
        if number in self._patterns:
            raise InputError(f"window {number} was learnt already; give each window once.")
        limits = {side: self._limit(side) for side in SIDES}
        patches = embed_or_explain(matrix, self.options)
        if isinstance(patches, str):
            return _left_out(number, patches, limits)
        sides, learnt = {}, {}
        for side, (nodes, X) in zip(SIDES, patches, strict=True):
            reference = self._reference(side, nodes)
            positions = self._place(side, number, np.asarray(X, dtype=np.float64), reference)
            if isinstance(positions, str):
                return _left_out(number, positions, limits)
            raw, z = self._score(positions, reference)
            sides[side] = SideWindow(nodes, raw, z)
            learnt[side] = _PastWindow(nodes.astype(np.int32), positions.astype(np.float32), z.astype(np.float32))
        self._past[number], self._patterns[number] = learnt, Pattern.of(matrix)
        for old in [n for n in self._past if n <= max(self._past) - self.history]:
            del self._past[old], self._patterns[old]
        return WindowScores(number, sides, limits)

    def explain(self, number: int, side: str, node: int) -> Explanation:
        """Return which neighbours of a node are new or gone in a remembered window, compared with the other ones."""
        numbers = self.numbers
        if number not in numbers:
            raise InputError(f"window {number} is not remembered; windows {numbers} are.")
        return explain([self._patterns[n] for n in numbers], node, numbers.index(number), side=side)

    def _limit(self, side: str) -> float:
        windows = self._past.values()
        scores = np.concatenate([np.zeros(0, np.float32), *(window[side].standardised for window in windows)])
        scores = scores[~np.isnan(scores)]
        return float(np.quantile(scores, self.options.quantile)) if len(scores) else float("nan")

    def _reference(self, side: str, nodes: IntArray) -> _Reference:
        past = {number: window[side] for number, window in self._past.items()}
        largest = max(int(ids.max()) for ids in (nodes, *(window.nodes for window in past.values())))
        rows = np.full(largest + 1, -1, dtype=np.int64)
        rows[nodes] = np.arange(len(nodes))
        count, total = np.zeros(len(nodes), dtype=np.int64), np.zeros((len(nodes), self.options.dim))
        for window in past.values():
            add_positions(rows, window.nodes, window.positions, total, count)
        return _Reference(past, rows, count, total / np.maximum(count, 1)[:, None])

    def _place(self, side: str, number: int, X: Float64Array, reference: _Reference) -> Float64Array | str:
        """Return the positions of the window in the frame of the remembered windows, or why there are none."""
        past, dim = reference.past, self.options.dim
        if not past:
            return X
        rotations, means = [], []
        for lag in self.options.lags:
            for other in {number - lag, number + lag} & past.keys():
                row = reference.rows[past[other].nodes]
                shared = row >= 0
                size = int(shared.sum())
                if size > dim:
                    here, there = X[row[shared]], past[other].positions[shared]
                    rotations.append(size * relative_rotation(here, there))
                    means.append((centred(here)[1], centred(there)[1]))
        if not rotations:
            known = reference.n_windows > 0
            if int(known.sum()) <= dim:
                return (
                    f"it shares {int(known.sum())} {side}s with the windows remembered; placing it in {dim} "
                    f"dimensions needs at least {dim + 1}. Use wider windows or fewer dimensions"
                )
            here, there = X[known], reference.mean[known]
            rotations = [relative_rotation(here, there)]
            means = [(centred(here)[1], centred(there)[1])]
        R = nearest_orthogonal(sum(rotations[1:], rotations[0]))
        translation = np.mean([there - here @ R for here, there in means], axis=0)
        return np.asarray(X @ R + translation, dtype=np.float64)

    def _score(self, X: Float64Array, reference: _Reference) -> tuple[Float64Array, Float64Array]:
        """Return the distance of each node from its reference, and its z-score against the remembered distances."""
        past, rows, count, mean = reference
        total, squares = np.zeros(len(X)), np.zeros(len(X))
        for window in past.values():
            add_distances(rows, window.nodes, window.positions, mean, total, squares)
        raw = np.where(count > 0, np.linalg.norm(X - mean, axis=1), np.nan)
        n = np.maximum(count, 2)
        enlarge = np.sqrt((n + 1) / (n - 1))
        centre, variance = total / n, np.maximum(squares / n - (total / n) ** 2, 0.0)
        scored = (count >= self.options.min_observations) & (variance > 1e-12 * squares)
        z = (raw - enlarge * centre) / (enlarge * np.sqrt(np.where(scored, variance, 1.0)))
        return raw, np.where(scored, z, np.nan)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one ``.npz`` file, without pickle; an old file stays until the new one is complete."""
        header = {"format": _FORMAT, "numbers": self.numbers, "notes": self.notes, **self.settings}
        # A single array would be written as .npy, so that there are always two.
        arrays = {"format": np.array(_FORMAT), "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}
        for n, pattern in self._patterns.items():
            arrays |= {f"{n}.{name}": np.asarray(value) for name, value in pattern._asdict().items()}
            for side, window in self._past[n].items():
                arrays |= {f"{n}.{side}.{name}": value for name, value in window._asdict().items()}
        with explained(Path(path).parent):
            save_arrays(Path(path), arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tracker:
        """Read the file that :meth:`save` wrote."""
        try:
            arrays = load_arrays(Path(path))
            header = json.loads(arrays["header"].tobytes())
            if header.pop("format") != _FORMAT:
                raise ValueError(f"it was written in another format than {_FORMAT}")
            numbers, notes, history = header.pop("numbers"), header.pop("notes", {}), header.pop("history")
            tracker = cls(ScoringOptions(**header), history=history)
            tracker.notes = notes
            for n in numbers:
                tracker._patterns[n] = Pattern(*(arrays[f"{n}.{name}"] for name in Pattern._fields))
                tracker._past[n] = {
                    side: _PastWindow(*(arrays[f"{n}.{side}.{name}"] for name in _PastWindow._fields)) for side in SIDES
                }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path} does not hold the state of a Tracker: {error}") from None
        return tracker


def _left_out(number: int, reason: str, limits: Mapping[str, float]) -> WindowScores:
    warn_left_out(number, reason)
    return WindowScores(number, {}, limits, reason)
