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

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, Int64Array, IntArray
from graphquilt.errors import FormatError, InputError
from graphquilt.files import beside, explained
from graphquilt.linalg.procrustes import centred, nearest_orthogonal, relative_rotation
from graphquilt.temporal.alerts import Alert, Explanation, Pattern, alerts_above, explain, most_unusual_first
from graphquilt.temporal.embedding import embed_or_explain, warn_left_out
from graphquilt.temporal.scores import ScoringOptions
from graphquilt.temporal.windows import SIDES

__all__ = ["SideWindow", "Tracker", "WindowScores", "write_npz"]

_FORMAT = 1


class SideWindow(NamedTuple):
    """Scores of one side of one window.

    Attributes
    ----------
    nodes : int array (k,)
        The nodes that have a position in the window.
    raw, standardised : float arrays (k,)
        Distance from the reference position, and its z-score. NaN if a node has no reference position, or was in too
        few windows to be standardised.
    """

    nodes: IntArray
    raw: FloatArray
    standardised: FloatArray


@dataclass(frozen=True, eq=False)
class WindowScores:
    """The result of :meth:`Tracker.update` for one window.

    Attributes
    ----------
    number : int
    sides : mapping
        ``"source"`` and ``"destination"`` to a :class:`SideWindow`; empty if the window was left out.
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
        for side, scores in self.sides.items():
            limit = 0.0 if np.isnan(self.limits[side]) else self.limits[side]
            alerts += alerts_above(limit, number=self.number, side=side, scores=scores, budget=budget)
        return most_unusual_first(alerts)[:budget]


class _PastWindow(NamedTuple):
    """Aligned positions and scores of one side of a window that was learnt."""

    nodes: IntArray
    positions: FloatArray
    standardised: FloatArray


class Tracker:
    """Score windows as they come, each against the windows before it.

    A window is embedded, and then rotated and shifted onto the remembered windows that lie one of the lags away. This
    is one solution of the paper's rotation and translation steps for this window, with all other windows fixed. Each
    node is then compared with the mean of its own remembered positions, and that distance with the distances of those
    positions from their mean. Only then is the window learnt.

    Parameters
    ----------
    options : ScoringOptions, optional
        How windows are embedded, aligned and scored. ``min_observations`` and ``quantile`` refer to the remembered
        windows and their scores.
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

    A missing window is a gap in the numbers: lags that lead into the gap are not used. If no lag is left, the window
    is placed by the reference positions of its nodes. A late window (its number is below the last) is scored against
    the remembered windows and is then remembered too, unless it is older than ``history``; then it is scored but not
    learnt. A node that was never seen before has no score, and has a reference position from then on. A window that
    cannot be embedded or placed is reported as ``left_out`` and not learnt.

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
            raise InputError(
                f"a history of {self.history} windows is shorter than the longest lag, {longest_lag}. Lengthen the "
                "history, or shorten the lags."
            )
        if self.options.min_observations > self.history:
            raise InputError(
                f"min_observations is {self.options.min_observations}, but only {self.history} windows are remembered. "
                "Lower it, or lengthen the history."
            )
        self.notes: dict[str, Any] = {}
        self._past: dict[str, dict[int, _PastWindow]] = {side: {} for side in SIDES}
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
        latest = max(self._patterns, default=None)
        if number is None:
            number = 0 if latest is None else latest + 1
        if number in self._patterns:
            raise InputError(f"window {number} was learnt already; give each window once.")
        limits = {side: self._limit(side) for side in SIDES}
        patches = embed_or_explain(matrix, self.options)
        if isinstance(patches, str):
            return _left_out(number, patches, limits)
        sides, learnt = {}, {}
        for side, (nodes, X) in zip(SIDES, patches, strict=True):
            positions = self._place(side, number, nodes, np.asarray(X, dtype=np.float64))
            if isinstance(positions, str):
                return _left_out(number, positions, limits)
            raw, z = self._score(side, nodes, positions)
            sides[side] = SideWindow(nodes, raw, z)
            learnt[side] = _PastWindow(nodes.astype(np.int32), positions.astype(np.float32), z.astype(np.float32))
        if latest is None or number > latest - self.history:
            self._learn(number, learnt, Pattern.of(matrix))
        return WindowScores(number, sides, limits)

    def explain(self, number: int, side: str, node: int) -> Explanation:
        """Return which neighbours of a node are new or gone in a remembered window, compared with the other ones."""
        numbers = self.numbers
        if number not in numbers:
            raise InputError(f"window {number} is not remembered; windows {numbers} are.")
        return explain([self._patterns[n] for n in numbers], node, numbers.index(number), side=side)

    def _learn(self, number: int, learnt: Mapping[str, _PastWindow], pattern: Pattern) -> None:
        self._patterns[number] = pattern
        for side, window in learnt.items():
            self._past[side][number] = window
        oldest = max(self._patterns) - self.history
        for old in [n for n in self._patterns if n <= oldest]:
            del self._patterns[old]
            for side in SIDES:
                del self._past[side][old]

    def _limit(self, side: str) -> float:
        scores = [window.standardised[~np.isnan(window.standardised)] for window in self._past[side].values()]
        values = np.concatenate(scores) if scores else np.zeros(0)
        return float(np.quantile(values, self.options.quantile)) if len(values) else float("nan")

    def _place(self, side: str, number: int, nodes: IntArray, X: Float64Array) -> Float64Array | str:
        """Return the positions of the window in the frame of the remembered windows, or why there are none."""
        past, dim = self._past[side], self.options.dim
        if not past:
            return X
        rows = _rows(nodes, past)
        rotations, means = [], []
        for lag in self.options.lags:
            for other in {number - lag, number + lag} & past.keys():
                row = rows[past[other].nodes]
                shared = row >= 0
                size = int(shared.sum())
                if size > dim:
                    here, there = X[row[shared]], past[other].positions[shared]
                    rotations.append(size * relative_rotation(here, there))
                    means.append((centred(here)[1], centred(there)[1]))
        if not rotations:
            count, mean = _means(rows, len(nodes), dim, past)
            known = count > 0
            if int(known.sum()) <= dim:
                return (
                    f"it shares {int(known.sum())} {side}s with the windows remembered; placing it in {dim} "
                    f"dimensions needs at least {dim + 1}. Use wider windows or fewer dimensions"
                )
            rotations = [relative_rotation(X[known], mean[known])]
            means = [(centred(X[known])[1], centred(mean[known])[1])]
        R = nearest_orthogonal(sum(rotations[1:], rotations[0]))
        translation = np.mean([there - here @ R for here, there in means], axis=0)
        return np.asarray(X @ R + translation, dtype=np.float64)

    def _score(self, side: str, nodes: IntArray, X: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return the distance of each node from its reference, and its z-score against the remembered distances."""
        from graphquilt.temporal.tracker_kernels import add_distances

        past = self._past[side]
        rows = _rows(nodes, past)
        count, mean = _means(rows, len(nodes), self.options.dim, past)
        total, squares = np.zeros(len(nodes)), np.zeros(len(nodes))
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
        arrays: dict[str, AnyArray] = {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}
        for number, pattern in self._patterns.items():
            arrays |= {f"{number}.{name}": np.asarray(value) for name, value in pattern._asdict().items()}
            for side in SIDES:
                window = self._past[side][number]
                arrays |= {f"{number}.{side}.{name}": value for name, value in window._asdict().items()}
        write_npz(Path(path), arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tracker:
        """Read the file that :meth:`save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            header = json.loads(arrays["header"].tobytes())
            if header.pop("format") != _FORMAT:
                raise FormatError(f"{path} was written in another format than {_FORMAT}.")
            numbers, notes, history = header.pop("numbers"), header.pop("notes", {}), header.pop("history")
            tracker = cls(ScoringOptions(**header), history=history)
            tracker.notes = notes
            for n in numbers:
                shape = tuple(arrays[f"{n}.shape"].tolist())
                tracker._patterns[n] = Pattern(arrays[f"{n}.indptr"], arrays[f"{n}.indices"], shape)
                for side in SIDES:
                    window = _PastWindow(*(arrays[f"{n}.{side}.{name}"] for name in _PastWindow._fields))
                    tracker._past[side][n] = window
        except FormatError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path} does not hold the state of a Tracker: {error}") from None
        return tracker


def write_npz(path: Path, arrays: Mapping[str, AnyArray]) -> None:
    """Write arrays to one ``.npz`` file that is complete once it has its name."""
    with explained(path.parent), beside(path) as part:
        with open(part, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        os.replace(part, path)


def _left_out(number: int, reason: str, limits: Mapping[str, float]) -> WindowScores:
    warn_left_out(number, reason)
    return WindowScores(number, {}, limits, reason)


def _rows(nodes: IntArray, past: Mapping[int, _PastWindow]) -> Int64Array:
    """Return the position in ``nodes`` of every id that occurs; -1 for ids that are not in ``nodes``."""
    largest = max([int(nodes.max()), *(int(window.nodes.max()) for window in past.values())])
    rows = np.full(largest + 1, -1, dtype=np.int64)
    rows[nodes] = np.arange(len(nodes))
    return rows


def _means(rows: Int64Array, k: int, dim: int, past: Mapping[int, _PastWindow]) -> tuple[Int64Array, Float64Array]:
    """Count in how many remembered windows each of k nodes is, and return its mean position (zero if in none)."""
    from graphquilt.temporal.tracker_kernels import add_positions

    count = np.zeros(k, dtype=np.int64)
    total = np.zeros((k, dim))
    for window in past.values():
        add_positions(rows, window.nodes, window.positions, total, count)
    return count, total / np.maximum(count, 1)[:, None]
