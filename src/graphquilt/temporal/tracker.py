"""A stream of windows, scored from the past only: score first, then learn."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, Int64Array, IntArray
from graphquilt.errors import ConvergenceError, FormatError, InputError
from graphquilt.linalg.procrustes import centred, nearest_orthogonal, relative_rotation
from graphquilt.temporal.batch import LAGS, Alert, Pattern, embed_window
from graphquilt.temporal.explanations import SIDES, Explanation, explain
from graphquilt.temporal.scores import check_quantile

__all__ = ["SideWindow", "Tracker", "WindowScores"]

_FORMAT = 1
_log = logging.getLogger(__name__)


class SideWindow(NamedTuple):
    """One side of one window: who was there, how far from the reference, how unusual that is.

    Attributes
    ----------
    nodes : int array (k,)
    raw, standardised : float arrays (k,)
        NaN where a node has no reference, or too little history to be standardised.
    """

    nodes: IntArray
    raw: FloatArray
    standardised: FloatArray


@dataclass(frozen=True, eq=False)
class WindowScores:
    """What :meth:`Tracker.update` says about a window.

    Attributes
    ----------
    number : int
    sides : mapping
        ``"source"`` and ``"destination"`` to a :class:`SideWindow`; empty where the window was left out.
    limits : mapping
        The quantile of the scores of the windows remembered, by side, before this one; NaN while there are none.
    left_out : str or None
        Why the window could not be scored.
    """

    number: int
    sides: Mapping[str, SideWindow]
    limits: Mapping[str, float]
    left_out: str | None = None

    def alerts(self, budget: int) -> list[Alert]:
        """Return at most ``budget`` nodes above the limit of their side, the most unusual first."""
        found = []
        for side, part in self.sides.items():
            limit = self.limits[side]
            hot = np.flatnonzero(np.nan_to_num(part.standardised, nan=-np.inf) > (0.0 if np.isnan(limit) else limit))
            best = hot[np.argsort(-part.standardised[hot], kind="stable")[:budget]]
            found += [
                Alert(self.number, side, int(part.nodes[k]), float(part.raw[k]), float(part.standardised[k]))
                for k in best
            ]
        return sorted(found, key=lambda alert: -alert.standardised)[:budget]


class _Past(NamedTuple):
    """A window that was learnt: aligned positions and scores of one side."""

    nodes: IntArray
    positions: FloatArray
    standardised: FloatArray


class Tracker:
    """Score windows as they come, each against the windows before it.

    A window is embedded; turned and moved onto the remembered windows that lie one of the ``lags`` away, in one
    solution of the paper's rotation and translation steps for this window with all others held fixed; every node
    is then compared with the mean of its own remembered positions, and that distance with the distances of those
    positions from their mean. Only then is the window learnt.

    Parameters
    ----------
    dim : int
    lags : sequence of int
    min_observations : int
        Remembered windows that a node must have been in to get a standardised score.
    history : int, optional
        How many windows are remembered; the longest lag. Older ones are forgotten, and with them nodes that were in
        no other.
    quantile : float
        What counts as an alert: above this quantile of the remembered scores.
    background : float
        See :func:`graphquilt.temporal.embed_window`.

    Attributes
    ----------
    notes : dict
        What the caller wants kept with the state, as JSON has it: :meth:`save` writes it, :meth:`load` brings it back.

    Notes
    -----
    Without drift, distances to the mean of n positions that include the point are smaller than to a mean that does
    not, by sqrt((n - 1) / (n + 1)); the remembered distances are enlarged by that factor, so that a usual window
    scores zero on average.

    A missing window is a gap in the numbers: lags that fall into it are not used. Where no lag is left, the window is
    placed by the reference positions of its nodes. A late window (a number below the last) is scored against what is
    remembered and takes its place in it, if that is not longer ago than ``history``; else it is scored and not
    learnt. A node never seen before has no score, and a reference from then on. A window that cannot be embedded or
    placed is reported as ``left_out`` and not learnt.

    Examples
    --------
    >>> from graphquilt.synthetic.netflow import netflow
    >>> stream = netflow(80, 400, 10, seed=1)
    >>> tracker = Tracker(dim=3, lags=(1, 7), min_observations=4)
    >>> for day in range(6):
    ...     today = tracker.update(stream.matrix(day), day)
    >>> tracker.numbers, today.sides["source"].raw.shape == today.sides["source"].nodes.shape
    ([0, 1, 2, 3, 4, 5], True)
    """

    def __init__(
        self,
        dim: int = 20,
        *,
        lags: Sequence[int] = LAGS,
        min_observations: int = 21,
        history: int | None = None,
        quantile: float = 0.999,
        background: float = 1.0,
    ) -> None:
        if dim < 1:
            raise InputError(f"dim must be at least 1, not {dim}.")
        if not lags or min(lags) < 1:
            raise InputError(f"lags are positive whole numbers of windows, not {lags!r}.")
        longest = max(*lags, history or 0)
        if history is not None and history < max(lags):
            raise InputError(f"a history of {history} windows forgets before the longest lag, {max(lags)}, is over.")
        if not 3 <= min_observations <= longest:
            raise InputError(
                f"min_observations is {min_observations}: it is at least 3, and at most the {longest} windows that are "
                "remembered. Lower it, or lengthen the history."
            )
        check_quantile(quantile)
        self.dim = dim
        self.lags = tuple(sorted({int(lag) for lag in lags}))
        self.min_observations = min_observations
        self.history = longest
        self.quantile = quantile
        self.background = background
        self.notes: dict[str, Any] = {}
        self._past: dict[str, dict[int, _Past]] = {side: {} for side in SIDES}
        self._patterns: dict[int, Pattern] = {}

    @property
    def numbers(self) -> list[int]:
        """The windows remembered, in order."""
        return sorted(self._patterns)

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments it was made with; ``history`` is the number of windows where none was given."""
        names = ("dim", "lags", "min_observations", "history", "quantile", "background")
        return {name: getattr(self, name) for name in names}

    def update(self, matrix: Any, number: int | None = None) -> WindowScores:
        """Score one window, then learn it.

        Parameters
        ----------
        matrix : CSR array (sources, destinations)
            Node ids must mean the same from window to window; the shape may grow.
        number : int, optional
            One more than the latest.
        """
        latest = max(self._patterns, default=None)
        number = number if number is not None else 0 if latest is None else latest + 1
        if number in self._patterns:
            raise InputError(f"window {number} was learnt already; give each window once.")
        limits = {side: self._limit(side) for side in SIDES}
        try:
            patches = embed_window(matrix, self.dim, self.background)
        except (InputError, ConvergenceError) as problem:
            return self._left_out(number, str(problem), limits)
        sides, learnt = {}, {}
        for side, (nodes, X) in zip(SIDES, patches, strict=True):
            placed = self._place(side, number, nodes, X)
            if isinstance(placed, str):
                return self._left_out(number, placed, limits)
            raw, z = self._score(side, nodes, placed)
            sides[side] = SideWindow(nodes, raw, z)
            learnt[side] = _Past(nodes.astype(np.int32), placed.astype(np.float32), z.astype(np.float32))
        if latest is None or number > latest - self.history:
            self._learn(number, learnt, Pattern(matrix.indptr, matrix.indices.astype(np.int32), matrix.shape))
        return WindowScores(number, sides, limits)

    def explain(self, number: int, side: str, node: int) -> Explanation:
        """Say which neighbours of a node are new or gone in a remembered window, against the others remembered."""
        if number not in self._patterns:
            raise InputError(f"window {number} is not remembered; windows {self.numbers} are.")
        numbers = self.numbers
        return explain([self._patterns[n] for n in numbers], node, numbers.index(number), side=side)

    def _left_out(self, number: int, reason: str, limits: Mapping[str, float]) -> WindowScores:
        _log.warning("window %d is left out and its nodes are not scored: %s", number, reason)
        return WindowScores(number, {}, limits, reason)

    def _learn(self, number: int, learnt: Mapping[str, _Past], pattern: Pattern) -> None:
        self._patterns[number] = pattern
        for side, past in learnt.items():
            self._past[side][number] = past
        oldest = max(self._patterns) - self.history
        for old in [n for n in self._patterns if n <= oldest]:
            del self._patterns[old]
            for side in SIDES:
                del self._past[side][old]

    def _limit(self, side: str) -> float:
        known = [past.standardised[~np.isnan(past.standardised)] for past in self._past[side].values()]
        values = np.concatenate(known) if known else np.zeros(0)
        return float(np.quantile(values, self.quantile)) if len(values) else float("nan")

    def _place(self, side: str, number: int, nodes: IntArray, X: FloatArray) -> Float64Array | str:
        """Return the window's positions in the frame of the remembered ones, or why there are none."""
        past, X = self._past[side], np.asarray(X, dtype=np.float64)
        if not past:
            return X.astype(np.float64)
        rows = _rows(nodes, past)
        turns, shifts, sizes = [], [], []
        for lag in self.lags:
            for other in {number - lag, number + lag} & past.keys():
                at = rows[past[other].nodes]
                here = at >= 0
                if int(here.sum()) > self.dim:
                    mine, theirs = X[at[here]], past[other].positions[here]
                    sizes.append(int(here.sum()))
                    turns.append(sizes[-1] * relative_rotation(mine, theirs))
                    shifts.append((centred(mine)[1], centred(theirs)[1]))
        if not turns:
            count, mean = _means(rows, len(nodes), self.dim, past)
            known = count > 0
            if int(known.sum()) <= self.dim:
                return (
                    f"it shares {int(known.sum())} {side}s with the windows remembered; placing it in {self.dim} "
                    f"dimensions needs at least {self.dim + 1}. Use wider windows or fewer dimensions"
                )
            turns = [relative_rotation(X[known], mean[known])]
            shifts = [(centred(X[known])[1], centred(mean[known])[1])]
        R = nearest_orthogonal(sum(turns[1:], turns[0]))
        translation = np.mean([theirs - mine @ R for mine, theirs in shifts], axis=0)
        return np.asarray(X @ R + translation, dtype=np.float64)

    def _score(self, side: str, nodes: IntArray, X: Float64Array) -> tuple[FloatArray, FloatArray]:
        """Distance to the reference, and its z-score against the remembered distances, of each node."""
        from graphquilt.temporal._kernels import add_distances

        past = self._past[side]
        rows = _rows(nodes, past)
        count, mean = _means(rows, len(nodes), self.dim, past)
        total, squares = np.zeros(len(nodes)), np.zeros(len(nodes))
        for window in past.values():
            add_distances(rows, window.nodes, window.positions, mean, total, squares)
        raw = np.where(count > 0, np.linalg.norm(X - mean, axis=1), np.nan)
        n = np.maximum(count, 2)
        enlarge = np.sqrt((n + 1) / (n - 1))
        centre, variance = total / n, np.maximum(squares / n - (total / n) ** 2, 0.0)
        fine = (count >= self.min_observations) & (variance > 1e-12 * squares)
        z = (raw - enlarge * centre) / (enlarge * np.sqrt(np.where(fine, variance, 1.0)))
        return raw, np.where(fine, z, np.nan)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one ``.npz`` file, without pickle; the old file stays until the new one is whole."""
        header = {"format": _FORMAT, "numbers": self.numbers, "notes": self.notes, **self.settings}
        arrays: dict[str, AnyArray] = {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}
        for number, pattern in self._patterns.items():
            arrays |= {f"{number}.indptr": pattern.indptr, f"{number}.indices": pattern.indices}
            arrays[f"{number}.shape"] = np.array(pattern.shape)
            for side in SIDES:
                for name, value in self._past[side][number]._asdict().items():
                    arrays[f"{number}.{side}.{name}"] = value
        target = Path(path)
        part = target.with_name(target.name + ".part")
        with open(part, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        os.replace(part, target)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tracker:
        """Read what :meth:`save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            header = json.loads(arrays["header"].tobytes())
            if header.pop("format") != _FORMAT:
                raise FormatError(f"{path} was written in another format than {_FORMAT}.")
            numbers, notes = header.pop("numbers"), header.pop("notes", {})
            tracker = cls(**header)
            tracker.notes = notes
            for n in numbers:
                shape = tuple(arrays[f"{n}.shape"].tolist())
                tracker._patterns[n] = Pattern(arrays[f"{n}.indptr"], arrays[f"{n}.indices"], shape)
                for side in SIDES:
                    parts = {name: arrays[f"{n}.{side}.{name}"] for name in _Past._fields}
                    tracker._past[side][n] = _Past(**parts)
        except FormatError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise FormatError(f"{path} does not hold the state of a Tracker: {problem}") from None
        return tracker


def _rows(nodes: IntArray, past: Mapping[int, _Past]) -> Int64Array:
    """Return the position in ``nodes`` of every id that occurs, -1 for others."""
    largest = max([int(nodes.max()), *(int(window.nodes.max()) for window in past.values())])
    rows = np.full(largest + 1, -1, dtype=np.int64)
    rows[nodes] = np.arange(len(nodes))
    return rows


def _means(rows: Int64Array, k: int, dim: int, past: Mapping[int, _Past]) -> tuple[Int64Array, Float64Array]:
    """In how many remembered windows each of the k nodes is, and its mean position there (zero where in none)."""
    from graphquilt.temporal._kernels import add_positions

    count = np.zeros(k, dtype=np.int64)
    total = np.zeros((k, dim))
    for window in past.values():
        add_positions(rows, window.nodes, window.positions, total, count)
    return count, total / np.maximum(count, 1)[:, None]
