"""Score a stream of windows, each from the windows before it: score a window first, then learn it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array, IntArray
from graphquilt.errors import FormatError, InputError
from graphquilt.linalg import nearest_orthogonal
from graphquilt.temporal.authors import find_authors
from graphquilt.temporal.components import WindowPairs, compare_pairs, measure_counts
from graphquilt.temporal.contexts import CONTEXTS, compare_mixtures, count_contexts, nearest_contexts
from graphquilt.temporal.embedding import EmbeddedWindow, embed_or_explain, warn_left_out
from graphquilt.temporal.judging import POOLED, Comparison, compare_hosts, judge_hosts, judge_pairs, score_by_partners
from graphquilt.temporal.memory import Memory, PairMemory, Pool, SideMemory, read_state, write_state
from graphquilt.temporal.open_window import LOW_BITS
from graphquilt.temporal.results import COMPONENTS, MEASURED, Explanation, WindowScores, compare_neighbours
from graphquilt.temporal.tokens import WindowTokens, compare_tokens, highest_by_host, most_surprising
from graphquilt.temporal.windows import SIDES, Window

LAGS = (1, 7, 14, 21, 28, 35, 42, 49)
_HISTORY = 28  # windows that are remembered at least, unless the caller says otherwise
_CONTEXTS = COMPONENTS.index("contexts")
_TOKENS = COMPONENTS.index("tokens")
_PARTNERS = MEASURED.index("partners")
ONCE = 6  # times as soon as others, hosts are forgotten that were in a single window
_FORMAT = 6


@dataclass(frozen=True)
class ScoringOptions:
    """How windows are embedded, aligned and scored.

    Examples
    --------
    >>> ScoringOptions(dim=5, lags=[7, 1, 7]).lags
    (1, 7)
    """

    dim: int = 20
    """Dimensions of the embedding of each window."""
    lags: tuple[int, ...] = LAGS
    """Windows whose numbers differ by one of these lags are aligned with each other."""
    min_observations: int = 21
    """Windows that a node must be in to get a leave-one-out z-score of its drift; at least 3."""
    quantile: float = 0.999
    """Flag nodes whose z-score of drift lies above this quantile of their side."""
    background: float = 1.0
    """Weight of the faint uniform background; 0 is the paper's embedding."""
    prior: float = 4.0
    """How many earlier values of a host count as much as the population."""
    concentration: float = 2.0
    """How many earlier contacts of a host count as much as the contacts of all hosts, for the surprise of a pair."""
    pool: int = 2000
    """How many hosts of one window and side are remembered for p-values at most."""
    max_pairs: int = 1 << 24
    """How many pairs are remembered at most."""
    token_weight: float = 0.0
    """Weight of event tokens as further columns of the matrix that is embedded; 0 leaves them out."""

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise InputError(f"dim must be at least 1, not {self.dim}.")
        if not self.lags or min(self.lags) < 1 or any(int(lag) != lag for lag in self.lags):
            raise InputError(f"lags are positive whole numbers of windows, not {self.lags!r}.")
        check_min_observations(self.min_observations)
        if not 0 < self.quantile < 1:
            raise InputError(f"a quantile lies between 0 and 1, not at {self.quantile}.")
        for name in ("prior", "concentration"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name} is a positive number, not {getattr(self, name)}.")
        for words, weight in (("the background", self.background), ("tokens", self.token_weight)):
            if not 0 <= weight < float("inf"):
                raise InputError(f"the weight of {words} is finite and not negative; it is {weight}.")
        if self.pool < 16 or self.max_pairs < 1:
            raise InputError(
                f"pool is {self.pool} hosts and max_pairs {self.max_pairs} pairs; at least 16 and 1 must be remembered."
            )
        object.__setattr__(self, "lags", tuple(sorted({int(lag) for lag in self.lags})))

    def check_events(self, events: object) -> None:
        """Raise an InputError if tokens have a weight but there are no events."""
        if not events and self.token_weight:
            raise InputError("--token-weight weighs the tokens of events; name their logs with --events.")


def check_min_observations(min_observations: int) -> None:
    """Raise an InputError unless a leave-one-out z-score has two other values."""
    if min_observations < 3:
        raise InputError(f"a z-score needs two other values: min_observations is at least 3, not {min_observations}.")


class _Placement(NamedTuple):
    """The profiles of one side of a window among the earlier ones, (k, dim)."""

    nodes: IntArray
    profiles: Float64Array


class _Latest(NamedTuple):
    """The window scored last: its pairs, and of each side the hosts, the windows they were in, and usual degrees."""

    number: int
    pairs: WindowPairs
    hosts: dict[str, tuple[Int64Array, Float64Array, Float64Array]]


class Tracker:
    """Score windows as they come, each against the windows before it.

    Every window is measured host by host (:data:`graphquilt.temporal.COMPONENTS`). Every value is compared with the
    earlier values of its host, and with those of all hosts as far as these are few, and becomes a p-value by comparison
    with a pool of earlier windows. Only then is the window learnt. ``notes`` are data of the caller, as JSON allows it.

    Parameters
    ----------
    history : int, optional
        How many windows are remembered; by default 28, or the longest lag if that is longer. Pairs absent from all of
        them are forgotten, and as many values of each host count.

    Notes
    -----
    *One* rotation places the positions of both sides, times the roots of the singular values, among the usual positions
    of their hosts: inner products stay, and 1 + x · y says how probable a pair is. Hosts are clustered by these usual
    positions (:mod:`graphquilt.temporal.contexts`); which contexts a host talks to needs no rotation at all.

    A window that cannot be embedded or placed teaches no positions; ``left_out`` says why. A late window is scored and
    learnt like any other. Memory is bounded by the number of hosts, ``max_pairs`` and ``history`` · ``pool``.

    Examples
    --------
    >>> from graphquilt.temporal import Window, netflow
    >>> stream = netflow(80, 400, 10, seed=1)
    >>> tracker = Tracker(ScoringOptions(dim=3, lags=(1, 7)))
    >>> for day in range(6):
    ...     A = stream.matrix(day)
    ...     today = tracker.update(Window(day, 86400.0 * day, 86400.0 * (day + 1), A, A.nnz))
    >>> tracker.numbers, len(today.alerts(budget=5))
    ([0, 1, 2, 3, 4, 5], 5)
    """

    def __init__(self, options: ScoringOptions | None = None, *, history: int | None = None) -> None:
        self.options = options = options or ScoringOptions()
        self.history = history = max(_HISTORY, *options.lags) if history is None else history
        if history < 2:
            raise InputError(f"a history is at least 2 windows, not {history}.")
        self.notes: dict[str, Any] = {}
        sides = {side: SideMemory.empty(options.dim) for side in SIDES}
        pools = {name: Pool(options.pool, history, width) for name, width in POOLED.items()}
        pairs = PairMemory(history, options.max_pairs)
        self._memory = Memory([], sides, pairs, pairs, pools)
        self._latest: _Latest | None = None

    @property
    def numbers(self) -> list[int]:
        """The numbers of the windows that were learnt, in order, at most ``history`` of them."""
        return list(self._memory.numbers)

    @property
    def known(self) -> dict[str, Int64Array]:
        """The ids of the sources, destinations and tokens that are remembered."""
        ids = {side: np.flatnonzero(part.last >= 0) for side, part in self._memory.sides.items()}
        tokens = self._memory.tokens.keys
        return {**ids, SIDES[0]: np.union1d(ids[SIDES[0]], tokens >> 32), "token": np.unique(tokens & LOW_BITS)}

    @property
    def settings(self) -> dict[str, object]:
        """All scoring options and the history, by name."""
        return {**asdict(self.options), "history": self.history}

    def update(
        self, window: Window, tokens: WindowTokens | None = None, *, embedded: EmbeddedWindow | str | None = None
    ) -> WindowScores:
        """Score one window, then learn it.

        Ids must mean the same from window to window; the shape of the matrix may grow. ``tokens`` are those of the
        sources; only hosts with a connection in the window are scored. ``embedded`` is the embedding, or why there is
        none, if known.
        """
        number, memory = window.number, self._memory
        if number in memory.numbers:
            raise InputError(f"window {number} was learnt already; give each window once.")
        for side, size in zip(SIDES, window.matrix.shape, strict=True):
            memory.sides[side] = memory.sides[side].grow(size)
        if embedded is None:
            embedded = embed_or_explain(window.matrix, self.options, tokens)
        placements, fit = self._place(embedded)
        if isinstance(placements, str):
            warn_left_out(number, placements)
        pairs = WindowPairs.of(window)
        concentration = self.options.concentration
        connections = compare_pairs(
            pairs,
            memory.pairs,
            (memory.sides["source"], memory.sides["destination"]),
            concentration=concentration,
            as_source=window.as_source,
            young_since=number - self.history // 2,
        )
        surprise = None if tokens is None else compare_tokens(tokens, memory.tokens, concentration)
        compared, tables, mixtures, n_learnt = {}, {}, {}, len(memory.numbers)
        for k, side in enumerate(SIDES):
            nodes, values = measure_counts(window, connections, side, len(memory.sides[side]))
            mixtures[side] = self._mix(side, pairs, nodes)
            own = memory.sides[side]
            values[:, _CONTEXTS] = compare_mixtures(mixtures[side], own.mixtures[nodes], own.mixed[nodes])
            if surprise is not None and side == SIDES[0]:
                values[:, _TOKENS] = highest_by_host(surprise, nodes)
            pool = memory.pools[side]
            seed = number & 0xFFFFFFFF, k
            compared[side] = compare_hosts(nodes, values, memory.sides[side], pool, prior=self.options.prior, seed=seed)
            tables[side] = judge_hosts(compared[side], memory.sides[side], pool, n_learnt=n_learnt)
        if surprise is not None:
            sources = tables[SIDES[0]]
            tables[SIDES[0]] = replace(sources, tokens=most_surprising(surprise, sources.nodes))
        judged = score_by_partners(tables, connections, memory.sides, n_learnt=n_learnt)
        judged, victims = find_authors(judged, connections, memory.sides)
        pair_seed = number & 0xFFFFFFFF, 2
        connection_table = judge_pairs(connections, judged, memory.pools["pair"], pair_seed, n_learnt=n_learnt)
        for side in SIDES:
            memory.sides[side].learn_mixtures(compared[side].nodes, mixtures[side], self.history)
        hosts = self._learn(number, pairs, compared, {} if isinstance(placements, str) else placements)
        self._latest = _Latest(number, pairs, hosts)
        if tokens is not None:
            memory.tokens = memory.tokens.learn(tokens.keys, number)
        reason = placements if isinstance(placements, str) else None
        times = number, window.start, window.end, window.rows
        return WindowScores(*times, judged, connection_table, reason, fit, victims, n_learnt)

    def _place(self, embedded: EmbeddedWindow | str) -> tuple[dict[str, _Placement] | str, float]:
        """Return the profiles of both sides among the earlier windows, or why there are none; and the error."""
        if isinstance(embedded, str):
            return embedded, float("nan")
        sides, fit = self._memory.sides, float("nan")
        patches = dict(zip(SIDES, embedded[:2], strict=True))
        known = {side: sides[side].places[patch.nodes] > 0 for side, patch in patches.items()}
        for side, is_known in known.items():
            if sides[side].places.any() and int(is_known.sum()) <= self.options.dim:
                return (
                    f"it shares {int(is_known.sum())} {side}s with the windows remembered; placing it in "
                    f"{self.options.dim} dimensions needs at least {self.options.dim + 1}. Use wider windows or fewer "
                    "dimensions"
                ), fit
        both = np.concatenate([X * embedded.roots for _, X in patches.values()]).astype(np.float64)
        is_known = np.concatenate(list(known.values()))
        if is_known.any():
            usual = np.concatenate([sides[side].profiles[nodes] for side, (nodes, _) in patches.items()])
            here, there = both[is_known], usual[is_known].astype(np.float64)
            both = both @ nearest_orthogonal(here.T @ there)
            fit = float(np.linalg.norm(both[is_known] - there) / max(float(np.linalg.norm(there)), 1e-300))
        profiles = np.split(both, [len(embedded.source.nodes)])
        return {side: _Placement(patches[side].nodes, profiles[k]) for k, side in enumerate(SIDES)}, fit

    def _mix(self, side: str, pairs: WindowPairs, nodes: Int64Array) -> Float64Array:
        """Count the partners of each host of a side by context, (k, contexts); partners without a profile are none."""
        own, other = (pairs.source, pairs.destination)[:: 1 if side == SIDES[0] else -1]
        memory = self._memory.sides[SIDES[1 - SIDES.index(side)]]
        partners = np.unique(other)
        partners = partners[memory.places[partners] > 0]
        if len(partners) == 0 or not memory.centres.any():
            return np.zeros((len(nodes), CONTEXTS))
        context = np.full(len(memory), -1)
        context[partners] = nearest_contexts(memory.centres, memory.profiles[partners])
        known = np.flatnonzero(context[other] >= 0)
        return count_contexts(np.searchsorted(nodes, own[known]), context[other[known]], len(nodes))

    def _learn(
        self, number: int, pairs: WindowPairs, compared: dict[str, Comparison], placements: dict[str, _Placement]
    ) -> dict[str, tuple[Int64Array, Float64Array, Float64Array]]:
        """Learn a window; return the hosts of each side, and what was known of their partners before."""
        memory, hosts = self._memory, {}
        for side, part in compared.items():
            own = memory.sides[side]
            hosts[side] = (part.nodes, own.number[part.nodes, _PARTNERS], own.mean[part.nodes, _PARTNERS])
            own.learn(part.nodes, part.x, (part.centre, part.spread), self.history)
            own.first[part.nodes] = np.where(own.first[part.nodes] < 0, number, own.first[part.nodes])
            own.last[part.nodes] = np.maximum(own.last[part.nodes], number)
        for side, placement in placements.items():
            memory.sides[side].learn_profiles(*placement, self.history)
            memory.sides[side].move_centres((number & 0xFFFFFFFF, 3 + SIDES.index(side)))
        memory.pairs = memory.pairs.learn(pairs.keys, number)
        memory.numbers = sorted([*memory.numbers, number])[-self.history :]
        return hosts

    def forget(self, windows: int) -> None:
        """Forget the hosts that none of the last windows had; those of a single window after a sixth of that.

        Their ids may then stand for others.
        """
        now, memory = max(self.numbers, default=0), self._memory
        unknown = [memory.sides[side].forget(now - windows, now - windows // ONCE) for side in SIDES]
        memory.pairs = memory.pairs.forget(*unknown)

    def explain(self, number: int, side: str, node: int) -> Explanation:
        """Return which neighbours of a node are new or gone in the window scored last, compared with the others."""
        latest = self._latest
        if latest is None or number != latest.number:
            last = "no window was scored yet" if latest is None else f"the window scored last is {latest.number}"
            raise InputError(f"window {number} cannot be explained any more: {last}.")
        if side not in SIDES:
            raise InputError(f"a side is 'source' or 'destination', not {side!r}.")
        nodes, windows_before, usual_degree = latest.hosts[side]
        row = int(np.searchsorted(nodes, node))
        if row == len(nodes) or nodes[row] != node:
            raise InputError(f"{side} {node} is not in window {number}.")
        own, other = (latest.pairs.source, latest.pairs.destination)[:: 1 if side == SIDES[0] else -1]
        here = other[own == node]
        known, times = self._memory.pairs.partners(node, side)
        times = times - np.isin(known, here)
        n, usual = float(windows_before[row]), float(usual_degree[row])
        return compare_neighbours(node, number, here, (known, times), n_windows=n, usual_degree=usual)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one ``.npz`` file with a checksum, without pickle.

        An old file stays until the new one is complete, and the new one is on the disk when this returns.
        """
        memory = self._memory
        text = json.dumps({"format": _FORMAT, "numbers": memory.numbers, "notes": self.notes, **self.settings})
        write_state(Path(path), {"header": np.frombuffer(text.encode(), dtype=np.uint8), **memory.arrays()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tracker:
        """Read the file that :meth:`save` wrote; a damaged or foreign file is a FormatError."""
        arrays = read_state(Path(path))
        try:
            header = json.loads(arrays["header"].tobytes())
            if header.pop("format") != _FORMAT:
                raise ValueError(f"its format is not {_FORMAT}")
            numbers, notes, history = (header.pop(name) for name in ("numbers", "notes", "history"))
            if not isinstance(notes, dict):
                raise ValueError("its notes are not a JSON object")
            if not all(type(value) is int for value in (history, header["dim"], header["pool"], *header["lags"])):
                raise ValueError("a number in its header is not an integer")
            tracker = cls(ScoringOptions(**header), history=history)
            tracker.notes = notes
            tracker._memory.fill(numbers, arrays)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError, InputError) as error:
            raise FormatError(
                f"{path} does not hold the state of a Tracker: {error}. Restore it from a copy, or begin anew."
            ) from None
        return tracker
