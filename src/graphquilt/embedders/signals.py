"""What is spread over a graph: features near and far, memberships in clusters, and the degree, each with a weight."""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float32Array, Float64Array
from graphquilt.embedders.walks import Walk
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.graph.structure import Features

__all__ = [
    "FEATURE_PARTS",
    "Block",
    "FarRows",
    "Signal",
    "Stack",
    "check_features",
    "column_blocks",
    "feature_blocks",
    "feature_width",
    "in_order",
    "inverse_lengths",
    "role_rows",
    "row_scale",
    "squared_lengths",
    "standard_roles",
    "times",
    "transposed_times",
]

FEATURE_PARTS = ("spread", "raw", "near")
ROLE_SHARE = 0.3  # of the weight of roles, where there are no features
WALK_RESTART = 0.15  # of the walk that starts at a node and ends in a cluster
WALK_STEPS = 8
ROLES = 3  # columns of role
NAMED = ("features", "edges", "own_features", "classes", "links")  # signals, beside the default
MOST_SPREAD = 4.0  # standard deviations beyond which a role counts no more
ROWS = 8192  # of features that are read at once


@dataclass(frozen=True, kw_only=True)
class Signal:
    """The weights of what :class:`graphquilt.Propagation` embeds, side by side; each part has unit rows times a weight.

    Attributes
    ----------
    spread : float
        Features after a walk of ten steps with restart: what a node's wide neighbourhood is about.
    raw, near : float
        Features of the node itself, and of its neighbours.
    clusters : float
        How often a walk ends in each cluster of the graph. Without features it counts 1, whatever is given here.
    doubt : float
        How much more the clusters count where the features say little. With the share s of the spread features that
        their 128 main directions keep, ``doubt * min(1, 4 (1 - s)²)`` is added to ``clusters``.
    role : float
        The degree of a node, and the mean degree one and two steps away.
    power : float
        The power of the singular values in the embedding: 1 preserves inner products, more stresses the main
        directions, less evens them out.

    Examples
    --------
    >>> Signal.features().weights(features=True)
    {'spread': 1.0}
    >>> Signal().weights(features=False)
    {'clusters': 1.0, 'role': 0.003}
    """

    spread: float = 1.0
    raw: float = 0.05
    near: float = 0.2
    clusters: float = 0.1
    doubt: float = 1.0
    role: float = 0.01
    power: float = 1.25

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= value < math.inf:
                raise InputError(f"{field.name} of a Signal is a number of at least 0, not {value!r:.40}.")
        if not any(getattr(self, name) for name in (*FEATURE_PARTS, "clusters", "role")):
            raise InputError("a Signal needs at least one part whose weight is above 0.")

    @classmethod
    def features(cls) -> Signal:
        """Return the signal of the features alone, spread over the graph."""
        return cls(raw=0, near=0, clusters=0, doubt=0, role=0, power=1)

    @classmethod
    def edges(cls) -> Signal:
        """Return the signal of the edges alone."""
        return cls(spread=0, raw=0, near=0, clusters=1, doubt=0, role=0, power=1)

    @classmethod
    def own_features(cls) -> Signal:
        """Return the signal of each node's own features, which uses no edge."""
        return cls(spread=0, raw=1, near=0, clusters=0, doubt=0, role=0, power=1)

    @classmethod
    def classes(cls) -> Signal:
        """Return the signal for telling classes apart: more of each node's own features, and of the main directions."""
        return cls(raw=0.1, power=1.5)

    @classmethod
    def links(cls) -> Signal:
        """Return the signal for finding links: more of the neighbours and of the clusters."""
        return cls(raw=0, near=1, clusters=0.5, doubt=0, role=0, power=0.75)

    @classmethod
    def named(cls, name: str) -> Signal:
        """Return the signal of a name: default, features, edges, own_features, classes or links.

        Examples
        --------
        >>> Signal.named("edges") == Signal.edges()
        True
        """
        known = {"default": cls, **{word: getattr(cls, word) for word in NAMED}}
        if name not in known:
            raise InputError(f"'{name}' is not a signal; choose one of {', '.join(known)}.")
        signal: Signal = known[name]()
        return signal

    def weights(self, *, features: bool, share: float = 1.0) -> dict[str, float]:
        """Return the weights of the parts that a graph with or without features has, in their order.

        ``share`` is the share of the spread features that 128 directions keep.
        """
        parts = {name: float(getattr(self, name)) for name in (*FEATURE_PARTS, "clusters", "role")}
        parts["clusters"] += self.doubt * min(1.0, 4 * (1 - share) ** 2)
        if not features:
            parts = {"clusters": 1.0, "role": ROLE_SHARE * parts["role"]}
        return {name: weight for name, weight in parts.items() if weight > 0}

    def in_words(self, *, features: bool, share: float = 1.0) -> str:
        """Say what is embedded and why.

        Examples
        --------
        >>> Signal().in_words(features=True, share=0.9)
        'spread 1, raw 0.05, near 0.2, clusters 0.14 (features are clear: 128 directions keep 90%), role 0.01'
        >>> Signal().in_words(features=False)
        'clusters 1 (no features), role 0.003'
        """
        parts = self.weights(features=features, share=share)
        notes = {"clusters": "" if features else " (no features)"}
        if features and self.doubt:
            clear = "clear" if share >= 0.75 else "noisy"
            notes["clusters"] = f" (features are {clear}: 128 directions keep {share:.0%})"
        return ", ".join(f"{name} {weight:.3g}{notes.get(name, '')}" for name, weight in parts.items())

    def scale(self, values: Float64Array) -> Float64Array:
        """Return what each direction is multiplied by, for the eigenvalues (d,) of the second moment, descending.

        With a power above 1 the first direction, which is mostly the mean row, is not stressed more than the second.
        """
        second = values[min(1, len(values) - 1)]
        reference = second if self.power > 1 and second > 0 else values[0]
        relative = np.minimum(values, reference) if self.power > 1 else values
        safe = np.where(values > 0, relative / max(reference, 1e-300), 1.0)
        return np.where(values > 0, safe ** ((self.power - 1) / 2), 0.0)


@dataclass(frozen=True)
class Stack:
    """Parts that stand side by side: how many columns each has, and its weight."""

    widths: Mapping[str, int]
    weights: Mapping[str, float]

    @property
    def width(self) -> int:
        """Columns of all parts."""
        return sum(self.widths.values())

    def columns(self, part: str) -> slice:
        """Return the columns of a part."""
        names = list(self.widths)
        first = sum(self.widths[name] for name in names[: names.index(part)])
        return slice(first, first + self.widths[part])

    def length(self, part: str) -> float:
        """Return the length of the rows of a part; those of all parts together have unit length."""
        return math.sqrt(self.weights[part] / sum(self.weights.values()))


@dataclass(frozen=True, eq=False)
class Block:
    """Some columns of one part, (n, b), before its rows get unit length.

    ``spread`` is the sum of squares of what was walked, and ``missed`` that of its distance from the averages over the
    far clusters of the nodes.
    """

    part: str
    first: int  # the number of its first column among those of the part
    values: Float32Array
    spread: float = 0.0
    missed: float = 0.0


def in_order(tasks: Iterable[Callable[[], list[Block]]], threads: int) -> Iterator[Block]:
    """Yield the blocks of all tasks in their order, several of which are computed at once."""
    if threads <= 1:
        for task in tasks:
            yield from task()
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[list[Block]]] = deque()
        for task in tasks:
            waiting.append(pool.submit(task))
            if len(waiting) > threads:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


@dataclass(frozen=True, eq=False)
class FarRows:
    """The rows of tables of averages over far clusters that a patch needs, (steps + 1, k, w); None where it knows none.

    ``own`` (n,) is the far cluster of each node of the patch.
    """

    tables: AnyArray | None
    walk: Walk
    own: AnyArray | None

    @functools.cached_property
    def _own_clusters(self) -> tuple[AnyArray, AnyArray]:
        assert self.own is not None
        present = np.bincount(self.own) > 0
        return np.flatnonzero(present), (np.cumsum(present) - 1)[self.own]

    def before(self, begin: int, end: int) -> Callable[[int], Float32Array] | None:
        """Return what gives the columns from begin to end of the needed rows before each step."""
        tables = self.tables
        if tables is None:
            return None
        return lambda step: np.ascontiguousarray(tables[step, self.walk.needed, begin:end], dtype=np.float32)

    def missed(self, H: Float32Array, begin: int, end: int) -> tuple[float, float]:
        """Return the sums of squares of H after the last step, and of its distance from the averages."""
        if self.tables is None or self.own is None:
            return 0.0, 0.0
        clusters, place = self._own_clusters
        distance = np.asarray(self.tables[-1, clusters, begin:end], dtype=np.float32)[place]
        distance -= H
        return float(np.einsum("ij,ij->", H, H)), float(np.einsum("ij,ij->", distance, distance))


def column_blocks(
    walk: Walk, columns: AnyArray, gain: Float32Array, far: FarRows, *, block: int
) -> Iterator[Callable[[], list[Block]]]:
    """Yield tasks that compute log(1 + P / share), where P is how often a walk from each node ends in each cluster.

    ``columns`` (n,) is the cluster of each node, -1 for none, and ``gain`` (c,) is 1 / share.
    """
    for begin in range(0, len(gain), block):
        end = min(begin + block, len(gain))

        def task(begin: int = begin, end: int = end) -> list[Block]:
            H = walk.of_columns(columns, begin, end, far.before(begin, end), restart=WALK_RESTART, steps=WALK_STEPS)
            figures = far.missed(H, begin, end)
            H *= gain[begin:end]
            H += 1
            return [Block("clusters", begin, np.log(H, out=H), *figures)]

        yield task


def feature_blocks(
    walk: Walk,
    X: Callable[[int, int], Float32Array],
    far: FarRows,
    parts: Mapping[str, int],
    *,
    block: int,
    restart: float,
    steps: int,
) -> Iterator[Callable[[], list[Block]]]:
    """Yield tasks that spread the columns first..last-1 of X over the graph, and return the wanted parts.

    With S = D^-1/2 (A + loops) D^-1/2 these are X itself, S X, and H = Σ_{i<k} a(1-a)^i S^i X + (1-a)^k S^k X. The walk
    is that of D^-1/2 H, which is the random walk, and its first step gives S X. ``parts`` says how wide each part is.
    """
    root = (1 / np.sqrt(walk.scale[0])).astype(np.float32)[:, None]
    last = steps if "spread" in parts else int("near" in parts)
    a = np.float32(restart)
    width = max(parts.values())
    for begin in range(0, width, block):
        end = min(begin + block, width)

        def task(begin: int = begin, end: int = end) -> list[Block]:
            raw = X(begin, end)
            blocks = [Block("raw", begin, raw)] if "raw" in parts else []
            H = raw / root
            steps_of_walk = walk.of_values(H, far.before(begin, end), restart=restart, steps=last)
            for i, H in enumerate(steps_of_walk, 1):
                if i == 1 and "near" in parts:
                    near = np.asarray((H * root - a * raw) / (1 - a), dtype=np.float32)
                    blocks.append(Block("near", begin, near))
            if "spread" in parts:
                figures = far.missed(H, begin, end)
                blocks.append(Block("spread", begin, H * root, *figures))
            return blocks

        yield task


def feature_width(graph: Graph) -> int:
    """Return the number of features; 0 where there are none."""
    return 0 if graph.features is None else int(graph.features.shape[1])


def times(X: AnyArray | sp.csr_array, V: Float32Array) -> Float32Array:
    """Return X V, float32; a dense X, which may be a file, is read a few rows at a time."""
    if isinstance(X, sp.csr_array):
        return np.asarray(X.astype(np.float32, copy=False) @ V)
    H = np.empty((X.shape[0], V.shape[1]), dtype=np.float32)
    for a in range(0, X.shape[0], ROWS):
        H[a : a + ROWS] = X[a : a + ROWS].astype(np.float32, copy=False) @ V
    return H


def transposed_times(X: AnyArray | sp.csr_array, F: Float32Array) -> Float32Array:
    """Return X' F, float32, in the same way."""
    if isinstance(X, sp.csr_array):
        return np.asarray(X.astype(np.float32, copy=False).T @ F)
    product = np.zeros((X.shape[1], F.shape[1]), dtype=np.float32)
    for a in range(0, X.shape[0], ROWS):
        product += X[a : a + ROWS].astype(np.float32, copy=False).T @ F[a : a + ROWS]
    return product


def row_scale(graph: Graph) -> Float32Array:
    """Return what gives each row of the features unit length, (n,): 0 for rows of zeros.

    Raises
    ------
    InputError
        A value is not finite.
    """
    assert graph.features is not None
    return inverse_lengths(squared_lengths(graph.features))


def check_features(graph: Graph) -> None:
    """Refuse features of a whole graph that are zero or the same everywhere."""
    X, n = graph.features, graph.n_nodes
    assert X is not None
    zero = not row_scale(graph).any()
    if n > 1 and (zero or _all_equal(X)):
        what = "zero, or too small to tell from zero" if zero else "the same"
        raise InputError(
            f"the features of all {n} nodes are {what}; leave them out, or give features that tell nodes apart."
        )


def _all_equal(X: Features) -> bool:
    """Return whether all rows are the same; looks no further than the first other row."""
    first = X[:1].toarray() if isinstance(X, sp.csr_array) else np.asarray(X[:1])
    for a in range(0, X.shape[0], 64):
        rows = X[a : a + 64]
        if bool(((rows.toarray() if isinstance(rows, sp.csr_array) else np.asarray(rows)) != first).any()):
            return False
    return True


def inverse_lengths(squares: AnyArray) -> Float32Array:
    """Return 1 / sqrt of each entry, and 0 where that is 0: rows of zeros stay zero."""
    positive = squares > 0
    return np.where(positive, 1 / np.sqrt(np.where(positive, squares, 1)), 0).astype(np.float32)


def squared_lengths(X: AnyArray | sp.csr_array) -> Float64Array:
    """Return the squared length of each row; refuse values that are not finite."""
    squares = np.zeros(X.shape[0])
    if isinstance(X, sp.csr_array):
        filled = np.flatnonzero(np.diff(X.indptr))
        if len(filled):
            squares[filled] = np.add.reduceat(np.square(X.data, dtype=np.float64), X.indptr[filled])
    else:
        for a in range(0, X.shape[0], ROWS):
            part = X[a : a + ROWS].astype(np.float64)
            squares[a : a + ROWS] = np.einsum("ij,ij->i", part, part)
    bad = np.flatnonzero(~np.isfinite(squares))
    if len(bad):
        raise InputError(
            f"the features of {len(bad)} of {len(squares)} nodes are not finite, the first is node {bad[0]}; "
            "replace those values, for example by the mean of their column."
        )
    return squares


def role_rows(graph: Graph, walk: Walk) -> tuple[Float32Array, Float64Array]:
    """Return the role of each node of a whole graph, (n, 3), and the mean and deviation of each column, (2, 3).

    The columns are log(1 + degree), its mean over a node and its neighbours, and the mean of that.
    """
    own = np.log1p(graph.degrees).astype(np.float32)[:, None]
    near, second = (H.copy() for H in walk.of_values(own, None, restart=0.0, steps=2))
    role = np.hstack([own, near, second])
    moments = np.stack([role.mean(axis=0, dtype=np.float64), role.std(axis=0, dtype=np.float64)])
    return role, moments


def standard_roles(role: Float32Array, moments: Float64Array) -> Float32Array:
    """Return roles in standard deviations from their mean, divided by √3, within bounds."""
    deviation = np.where(moments[1] > 0, moments[1], 1)
    standard = np.clip((role - moments[0]) / deviation, -MOST_SPREAD, MOST_SPREAD)
    scaled: Float32Array = (standard / math.sqrt(ROLES)).astype(np.float32)
    return scaled
