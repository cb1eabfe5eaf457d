"""Windows with known attacks, and how good the scores of a detector are on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from graphquilt.arrays import BoolArray, Float64Array, Int64Array
from graphquilt.errors import InputError
from graphquilt.evaluate import average_precision, roc_auc
from graphquilt.temporal import SIDES, Names, Window, read_flows, snapshots
from graphquilt.temporal.traffic import BEHAVIOURS, Netflow
from planted_changes import KINDS, Messages, plant_changes

__all__ = [
    "Labelled",
    "Scores",
    "alert_quality",
    "darpa_windows",
    "email_windows",
    "empty_scores",
    "enron_windows",
    "false_share",
    "judge",
    "log_windows",
    "macro_auc",
    "netflow_windows",
    "precision",
    "touched",
]

Scores = dict[str, Float64Array]


@dataclass(frozen=True, eq=False)
class Labelled:
    """Windows, and the pairs in them that are attacks.

    Attributes
    ----------
    windows : list of Window
        All matrices of one shape.
    attacks : dict
        The kind of attack, or ``"all"``, to one CSR pattern per window of the pairs that are attacks.
    first : int
        Position of the first window that is judged; the detectors only learn from those before it.
    flows : arrays (m,)
        Time, source and destination of every flow, in order of time.
    tick : float
        The resolution of time for detectors that need one, in seconds.
    single : list of lists, optional
        The pairs of each single attack of a window, where the labels name attacks; otherwise every attacking source of
        a window is an attack.
    """

    windows: list[Window]
    attacks: Mapping[str, list[sp.csr_array]]
    first: int
    flows: tuple[Float64Array, Int64Array, Int64Array]
    tick: float
    single: list[list[sp.csr_array]] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of sources and destinations."""
        return self.windows[0].matrix.shape


def netflow_windows(network: Netflow) -> Labelled:
    """Draw every day of a generated network; the intruder's pairs are the attacks, judged from his first day on."""
    shape = (network.n_sources, network.n_destinations)
    windows: list[Window] = []
    attacks: dict[str, list[sp.csr_array]] = {name: [] for name in ("all", *BEHAVIOURS)}
    truth = network.truth
    as_source = np.where(np.arange(shape[1]) < shape[0], np.arange(shape[1]), -1)  # internal hosts come first
    for day in range(network.n_days):
        matrix = network.matrix(day)
        windows.append(Window(day, 86400.0 * day, 86400.0 * (day + 1), matrix, matrix.nnz, as_source=as_source))
        for kind, days in attacks.items():
            rows = truth.day == day
            if kind != "all":
                rows &= truth.behaviour == BEHAVIOURS.index(kind)
            days.append(_pattern(truth.source[rows], truth.destination[rows], shape))
    pairs = [network.pairs(day) for day in range(network.n_days)]
    time = np.repeat(86400.0 * np.arange(network.n_days), [len(source) for source, _ in pairs])
    flows = (time, *(np.concatenate(ids).astype(np.int64) for ids in zip(*pairs, strict=True)))
    return Labelled(windows, attacks, network.first_red_day, flows, 86400.0)


def log_windows(paths: Sequence[str | Path], width: str, *, benign: str, learnt: int) -> Labelled:
    """Cut a log with labels into windows; flows whose label does not match the pattern ``benign`` are attacks."""
    names, kinds = Names(), Names()
    parts = []
    for batch in read_flows(paths, labels=True):
        labels = pc.fill_null(batch.column("label").cast(pa.string()), "-")
        is_benign = pc.match_substring_regex(labels, benign, ignore_case=True)
        kind = kinds.add_column(pc.if_else(is_benign, "benign", labels))
        ends = [names.add_column(batch.column(side)) for side in SIDES]
        parts.append((batch.column("time").to_numpy(), *ends, np.where(is_benign, -1, kind)))
    seconds, source, destination, kind = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(seconds, kind="stable")
    return _cut(seconds[order], source[order], destination[order], kind[order], (len(names), width, learnt))


def darpa_windows(path: str | Path, width: str) -> Labelled:
    """Cut the DARPA 1998 flows into windows; a pair is an attack where any of its rows in the window is labelled so.

    The whole period is judged, after the first quarter of the windows.
    """
    with np.load(path, allow_pickle=False) as file:
        order = np.argsort(file["t_min"], kind="stable")
        source, destination = file["src"][order].astype(np.int64), file["dst"][order].astype(np.int64)
        seconds, label = file["t_min"][order].astype(np.float64) * 60, file["label"][order]
        n, normal = len(file["host_names"]), int(np.flatnonzero(file["label_names"] == "-")[0])
    return _cut(seconds, source, destination, np.where(label == normal, -1, label), (n, width, None))


def _cut(
    seconds: Float64Array,
    source: Int64Array,
    destination: Int64Array,
    kind: Int64Array,
    shape: tuple[int, str, int | None],
) -> Labelled:
    """Cut flows between ``n`` hosts into windows; a kind of -1 is no attack, and a quarter is learnt by default."""
    n, width, learnt = shape
    days = snapshots([(seconds, source, destination)], width)
    windows = [_grown(window, n) for window in days.windows()]
    number = np.floor(seconds / days.width).astype(np.int64)
    attacks, single = [], []
    for window in windows:
        rows = np.flatnonzero((kind >= 0) & (number == window.number))
        attacks.append(_pattern(source[rows], destination[rows], (n, n)))
        by_label = [rows[kind[rows] == label] for label in np.unique(kind[rows])]
        single.append([_pattern(source[own], destination[own], (n, n)) for own in by_label])
    first = len(windows) // 4 if learnt is None else learnt
    return Labelled(windows, {"all": attacks}, first, (seconds, source, destination), 60.0, single)


def email_windows(path: str | Path, *, seed: int) -> Labelled:
    """Cut email-Eu-core into weeks, and plant changes from the middle on; see ``planted_changes``."""
    source, destination, seconds = np.loadtxt(path, dtype=np.int64).T
    order = np.argsort(seconds, kind="stable")
    return _planted(Messages(seconds[order].astype(np.float64), source[order], destination[order]), seed)


def enron_windows(path: str | Path, *, seed: int) -> Labelled:
    """Cut the Enron mail of 184 people into weeks, without loops, and plant changes from the middle on."""
    columns = np.genfromtxt(path, delimiter=",", skip_header=1, usecols=(0, 1, 2), dtype=None, encoding="utf-8")
    stamps = np.array([str(time).replace(" ", "T")[:19] for time in columns["f0"]], dtype="datetime64[s]")
    seconds = stamps.astype(np.int64)
    source, destination = columns["f1"].astype(np.int64), columns["f2"].astype(np.int64)
    keep = (source != destination) & (seconds > np.datetime64("1998-01-01", "s").astype(np.int64))
    order = np.flatnonzero(keep)[np.argsort(seconds[keep], kind="stable")]
    time = (seconds[order] - seconds[order[0]]).astype(np.float64)
    return _planted(Messages(time, source[order], destination[order]), seed)


def _planted(messages: Messages, seed: int) -> Labelled:
    width = 604800.0
    first = int(messages.time[-1] // width) // 2
    changed, truth = plant_changes(messages, width, first=first, seed=seed)
    n = 1 + int(max(changed.source.max(), changed.destination.max()))
    windows = [_grown(window, n) for window in snapshots([tuple(changed)], width).windows()]
    attacks: dict[str, list[sp.csr_array]] = {}
    for kind, rows in (("all", np.concatenate(truth)), *zip(KINDS, truth, strict=True)):
        keys = [rows[rows[:, 0] == window.number, 1] for window in windows]
        attacks[kind] = [_pattern(key >> 32, key & 0xFFFFFFFF, (n, n)) for key in keys]
    start = next(t for t, window in enumerate(windows) if window.number >= first)
    return Labelled(windows, attacks, start, tuple(changed), 3600.0)


def judge(
    scores: Scores, data: Labelled, *, min_observations: int, budgets: Sequence[int]
) -> dict[str, dict[str, dict[str, float]]]:
    """Measure scores against the truth: by side for (host, window), and for (pair, window), for each kind of attack.

    A host attacks, or is attacked, in a window if one of its pairs is an attack there. The score of a pair is the
    higher score of its two ends. When one kind is judged, hosts and pairs of other kinds are left out. Only hosts that
    were in ``min_observations`` windows before are judged, because nothing is known of what is usual for the others;
    ``known_attacks`` is their share of all attacks.
    """
    judged = range(data.first, len(data.windows))
    known = {side: np.stack(list(_known(data, side, min_observations)), axis=1)[:, data.first :] for side in SIDES}
    here = {side: np.stack([touched(data.windows[t].matrix, side) for t in judged], axis=1) for side in SIDES}
    any_attack = {side: np.stack([touched(data.attacks["all"][t], side) for t in judged], axis=1) for side in SIDES}
    qualities: dict[str, dict[str, dict[str, float]]] = {}
    for kind, marks in data.attacks.items():
        results: dict[str, dict[str, float]] = {}
        for side in SIDES:
            truth = np.stack([touched(marks[t], side) for t in judged], axis=1)
            if (truth & known[side]).any():
                share = float((truth & known[side]).sum() / truth.sum())
                truth &= known[side]
                present = here[side] & known[side] & (truth | ~any_attack[side])
                values = np.where(present, scores[side][:, data.first :], np.nan)
                quality = alert_quality(values, truth, present=present, budgets=budgets)
                results[side] = {"known_attacks": share, **quality}
        pairs = _pair_quality(scores, data, kind, budgets)
        if pairs is not None:
            results["pair"] = pairs
        qualities[kind] = results
    return qualities


def _known(data: Labelled, side: str, least: int) -> Iterator[BoolArray]:
    """Give, for each window, which nodes were in at least ``least`` windows before it."""
    count = np.zeros(data.shape[SIDES.index(side)], dtype=np.int64)
    for window in data.windows:
        yield count >= least
        count += touched(window.matrix, side)


def _pair_quality(scores: Scores, data: Labelled, kind: str, budgets: Sequence[int]) -> dict[str, float] | None:
    """Make the pairs of each window one column of a matrix, padded, and measure them like hosts."""
    columns, truths = [], []
    for t in range(data.first, len(data.windows)):
        A = data.windows[t].matrix
        rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
        ends = np.stack([scores["source"][rows, t], scores["destination"][A.indices, t]])
        best = np.fmax(ends[0], ends[1])
        key = rows.astype(np.int64) * A.shape[1] + A.indices
        of_kind, of_any_kind = (_is_in(key, marks[t]) for marks in (data.attacks[kind], data.attacks["all"]))
        judged = of_kind | ~of_any_kind
        columns.append(best[judged])
        truths.append(of_kind[judged])
    height = max(len(column) for column in columns)
    S = np.full((height, len(columns)), np.nan)
    truth, present = np.zeros(S.shape, dtype=bool), np.zeros(S.shape, dtype=bool)
    for t, (column, attack) in enumerate(zip(columns, truths, strict=True)):
        S[: len(column), t], truth[: len(column), t], present[: len(column), t] = column, attack, True
    return alert_quality(S, truth, present=present, budgets=budgets) if truth.any() else None


def touched(matrix: sp.csr_array, side: str) -> BoolArray:
    """Return which nodes of a side have a pair, (n,)."""
    if side == "source":
        return np.asarray(np.diff(matrix.indptr) > 0)
    mark = np.zeros(matrix.shape[1], dtype=bool)
    mark[matrix.indices] = True
    return mark


def _pattern(source: Int64Array, destination: Int64Array, shape: tuple[int, int]) -> sp.csr_array:
    A = sp.csr_array((np.ones(len(source)), (source, destination)), shape=shape)
    A.sum_duplicates()
    return A


def _grown(window: Window, n: int) -> Window:
    A = sp.csr_array(window.matrix)
    A.resize((n, n))
    return replace(window, matrix=A, as_source=np.arange(n))


def empty_scores(data: Labelled) -> Scores:
    """Return scores that are all NaN."""
    n_sources, n_destinations = data.shape
    T = len(data.windows)
    return {"source": np.full((n_sources, T), np.nan), "destination": np.full((n_destinations, T), np.nan)}


def macro_auc(scores: Scores, data: Labelled) -> float:
    """Return the mean over judged windows of the ROC AUC of pairs, where a window has attacks and others."""
    values = []
    for t in range(data.first, len(data.windows)):
        A = data.windows[t].matrix
        rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
        best = np.nan_to_num(np.fmax(scores["source"][rows, t], scores["destination"][A.indices, t]), nan=-1e300)
        attack = _is_in(rows.astype(np.int64) * A.shape[1] + A.indices, data.attacks["all"][t])
        if attack.any() and not attack.all():
            values.append(roc_auc(best[attack], best[~attack]))
    return float(np.mean(values))


def precision(scores: Scores, data: Labelled, budget: int) -> float:
    """Return the share of attacks or attacked hosts among the ``budget`` highest scores of both sides per window."""
    hits = alerts = 0
    for t in range(data.first, len(data.windows)):
        marks = data.attacks["all"][t]
        value = np.concatenate([scores[side][:, t] for side in SIDES])
        truth = np.concatenate([touched(marks, side) for side in SIDES])
        scored = np.flatnonzero(~np.isnan(value))
        top = scored[np.argsort(-value[scored], kind="stable")[:budget]]
        hits, alerts = hits + int(truth[top].sum()), alerts + len(top)
    return hits / max(alerts, 1)


def false_share(scores: Scores, data: Labelled, limit: float) -> float:
    """Return the share of host-windows without an attack whose score lies above ``limit``."""
    above = count = 0
    for t in range(data.first, len(data.windows)):
        for side in SIDES:
            value = scores[side][:, t]
            normal = ~np.isnan(value) & ~touched(data.attacks["all"][t], side)
            above, count = above + int((value[normal] > limit).sum()), count + int(normal.sum())
    return above / count


def _is_in(key: Int64Array, marks: sp.csr_array) -> BoolArray:
    rows = np.repeat(np.arange(marks.shape[0], dtype=np.int64), np.diff(marks.indptr))
    return np.isin(key, rows * marks.shape[1] + marks.indices)


def alert_quality(
    scores: npt.ArrayLike,
    truth: npt.ArrayLike,
    *,
    present: npt.ArrayLike | None = None,
    budgets: Sequence[int] = (10, 50, 100),
) -> dict[str, float]:
    """Compare the scores of (node, window) pairs with the known attacks.

    Parameters
    ----------
    scores : float array (n, windows)
        Higher is more suspicious; NaN means no score and ranks below every score.
    truth : bool array (n, windows)
    present : bool array (n, windows), optional
        The pairs that exist, scored or not; by default those with a score or an attack.
    budgets : sequence of int
        For each k, compute the share of all attacks that are among the k highest scores of their window.

    Returns
    -------
    dict
        ``pairs``, ``attacks``, ``scored_attacks`` (the share of attacks that have a score), ``roc_auc`` (0.5 is
        chance), ``average_precision`` (the share of attacks is chance) and ``recall@k``.

    Examples
    --------
    >>> quality = alert_quality([[3.0, 0.0], [2.0, 1.0]], [[True, False], [False, False]], budgets=[1])
    >>> quality["roc_auc"], quality["average_precision"], quality["recall@1"]
    (1.0, 1.0, 1.0)
    """
    S, attack = np.asarray(scores, dtype=np.float64), np.asarray(truth, dtype=bool)
    if S.shape != attack.shape or S.ndim != 2:
        raise InputError(f"scores are {S.shape} and the truth is {attack.shape}; both are (nodes, windows).")
    here = ~np.isnan(S) | attack if present is None else np.asarray(present, dtype=bool) | attack
    y, scored = attack[here], ~np.isnan(S[here])
    if y.all() or not y.any():
        raise InputError(f"of {len(y)} pairs {int(y.sum())} are attacks; quality needs some of both kinds.")
    # No score ranks below every score.
    s = np.where(scored, S[here], np.min(S[here], where=scored, initial=0.0) - 1.0)
    quality = {
        "pairs": float(len(y)),
        "attacks": float(y.sum()),
        "scored_attacks": float(scored[y].mean()),
        "roc_auc": roc_auc(s[y], s[~y]),
        "average_precision": average_precision(s[y], s[~y]),
    }
    # The rows of each window from the highest score down; those that have no score or are absent come last.
    ranked = np.where(here, S, np.nan)
    order = np.argsort(-ranked, axis=0, kind="stable")
    caught = np.take_along_axis(attack & ~np.isnan(ranked), order, axis=0)
    return quality | {f"recall@{k}": float(caught[:k].sum() / attack.sum()) for k in budgets}
