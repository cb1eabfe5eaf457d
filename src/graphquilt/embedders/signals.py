"""Signal: what Propagation spreads over a graph, each part with a weight, and its rows in one patch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float32Array, Float64Array
from graphquilt.embedders.shared_start import Arrays, FarField
from graphquilt.embedders.walks import Block, FarRows, Walk, column_blocks, feature_blocks, run_in_order, walk_in
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import Graph
from graphquilt.kernels import loop_threads

if TYPE_CHECKING:
    from graphquilt.embedders.propagation import Propagation

FEATURE_PARTS = ("spread", "raw", "near")
ROLE_SHARE = 0.3  # of the weight of roles in a graph without features
ROLES = 3  # columns of role
NAMED = ("features", "edges", "own_features", "classes", "links")  # signals besides the default
MOST_SPREAD = 4.0  # standard deviations: roles further from the mean are clipped
ROWS = 8192  # of features that are read at once
NODES = 1 << 20  # for which numbers in double precision are held at once


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
        How often a walk ends in each cluster of the graph. In a graph without features the weight is always 1.
    doubt : float
        Extra weight of the clusters if the features say little. With the share s of the spread features that their 128
        main directions keep, ``doubt * min(1, 4 (1 - s)²)`` is added to ``clusters``.
    role : float
        The degree of a node, and the mean degree one and two steps away.
    power : float
        The power of the singular values in the embedding: 1 preserves inner products; more stresses the main
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
        """Return the signal of a name: default, features, edges, own_features, classes or links."""
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
        note = "" if features else " (no features)"
        if features and self.doubt:
            note = f" (features are {'clear' if share >= 0.75 else 'noisy'}: 128 directions keep {share:.0%})"
        return ", ".join(f"{name} {weight:.3g}{note if name == 'clusters' else ''}" for name, weight in parts.items())

    def scale(self, values: Float64Array) -> Float64Array:
        """Return what each direction is multiplied by, for the eigenvalues (d,) of the second moment, descending.

        With a power above 1 the first direction, which is mostly the mean row, is not stressed more than the second.
        """
        second = values[min(1, len(values) - 1)]
        reference = second if self.power > 1 and second > 0 else values[0]
        relative = np.minimum(values, reference) if self.power > 1 else values
        safe = np.where(values > 0, relative / max(reference, 1e-300), 1.0)
        return np.where(values > 0, safe ** ((self.power - 1) / 2), 0.0)


class Part(NamedTuple):
    """A part of the signal: its columns, and the length of its rows; those of all parts together have unit length."""

    first: int
    width: int
    length: float


Parts: TypeAlias = dict[str, Part]


def signal_parts(signal: Signal, graph: Graph, far: FarField | None, basis: AnyArray | None) -> Parts:
    """Return the parts of a signal on this graph, side by side, with features reduced by ``basis`` (w, r)."""
    width = feature_width(graph)
    share = 1.0 if far is None else float(far.shared.get("feature_share", 1.0))
    weights = signal.weights(features=width > 0, share=share)
    widths = {part: width if basis is None else basis.shape[1] for part in FEATURE_PARTS if part in weights}
    if far is not None and "column" in far.nodes and "clusters" in weights:
        widths["clusters"] = len(far.shared["gain"])
    if far is not None and "role" in far.nodes and "role" in weights:
        widths["role"] = ROLES
    if not widths:
        raise InputError(
            f"the {graph.n_nodes} nodes have no features, and no survey tells which clusters of the whole graph "
            "they are in, so they have nothing in common with other patches; pass the survey of the whole graph."
        )
    total, ends = sum(weights[part] for part in widths), accumulate(widths.values())
    lengths = {part: math.sqrt(weights[part] / total) for part in widths}
    return {part: Part(end - w, w, lengths[part]) for (part, w), end in zip(widths.items(), ends, strict=True)}


def spread_signal(
    embedder: Propagation, graph: Graph, far: FarField | None, parts: Parts, take: Callable[[int, Block], None]
) -> tuple[Float32Array, Float32Array]:
    """Give ``take`` all blocks of the signal, each with its first column; return the lengths and the facts.

    The lengths (n, parts) are what the rows of each part are multiplied by, the facts the share of the walk that leaves
    the patch, and that share by how little is known of where it leads.
    """
    shared: Arrays = {} if far is None else far.shared
    tables = [shared[name] for name in ("feature_tables", "column_tables") if name in shared]
    walk = walk_in(graph, far, tables=tables)
    squares = {name: np.zeros(graph.n_nodes, dtype=np.float32) for name in parts}
    spread = missed = 0.0
    for block in _blocks(embedder, graph, far, parts, walk):
        take(parts[block.part].first + block.first, block)
        squares[block.part] += np.einsum("ij,ij->i", block.values, block.values)
        spread += block.spread
        missed += block.missed
    scales = [np.ones_like(sums) if name == "role" else inverse_lengths(sums) for name, sums in squares.items()]
    lengths = [scale * np.float32(part.length) for scale, part in zip(scales, parts.values(), strict=True)]
    leaving = float(walk.leaving.mean()) if graph.n_nodes else 0.0
    counts = np.zeros(0) if far is None else np.diff(far.indptr)
    outgoing = float(counts[counts > 0].mean()) if counts.any() else 1.0
    # A step to several neighbours outside averages what far clusters miss of each.
    unknown = math.sqrt(missed / spread / outgoing) if spread else 1.0
    return np.stack(lengths, axis=1), np.array([leaving, leaving * min(unknown, 1.0)], dtype=np.float32)


def _blocks(embedder: Propagation, graph: Graph, far: FarField | None, parts: Parts, walk: Walk) -> Iterator[Block]:
    """Yield all columns of the signal, a block of one part at a time."""
    shared: Arrays = {} if far is None else far.shared
    own = None if far is None else far.nodes.get("cluster")
    tasks: list[Callable[[], list[Block]]] = []
    widths = {name: part.width for name, part in parts.items() if name in FEATURE_PARTS}
    if widths:
        X, basis, scale = graph.features, embedder.basis(far), row_scale(graph)[:, None]
        assert X is not None

        def columns(first: int, last: int) -> Float32Array:
            if basis is None:
                V = np.eye(X.shape[1], last - first, -first, dtype=np.float32)
            else:
                V = np.ascontiguousarray(basis[:, first:last], dtype=np.float32)
            return np.asarray(scale * times(X, V))

        rows, a = FarRows(shared.get("feature_tables"), walk, own), embedder.restart
        tasks += feature_blocks(walk, columns, rows, widths, block=embedder.block, restart=a, steps=embedder.steps)
    if far is not None and "clusters" in parts:
        column, gain = _check_columns(far, graph.n_nodes)
        rows = FarRows(shared.get("column_tables"), walk, own)
        tasks += column_blocks(walk, column, gain, rows, block=embedder.block)
    yield from run_in_order(tasks, loop_threads())
    if far is not None and "role" in parts:
        role, moments = np.asarray(far.nodes["role"]), np.asarray(far.shared["role"])
        if moments.shape != (2, ROLES):
            raise FormatError(f"roles have moments of shape {moments.shape}, not {(2, ROLES)}; make the survey again.")
        standard = (role - moments[0]) / np.where(moments[1] > 0, moments[1], 1)
        standard = np.clip(standard, -MOST_SPREAD, MOST_SPREAD) / math.sqrt(ROLES)
        yield Block("role", 0, standard.astype(np.float32))


def _check_columns(far: FarField, n_nodes: int) -> tuple[AnyArray, Float32Array]:
    """Return the membership of each node and the gain of each column; refuse a survey that cannot be right."""
    column, gain = np.asarray(far.nodes["column"]), np.asarray(far.shared["gain"], dtype=np.float32)
    if column.shape != (n_nodes,) or column.dtype.kind != "i":
        raise InputError(
            f"the survey has columns {column.dtype} {column.shape}; {n_nodes} nodes need as many whole numbers. It "
            "belongs to another graph."
        )
    if n_nodes and not -1 <= int(column.min()) <= int(column.max()) < len(gain):
        raise InputError(f"the survey has column {column.max()}, and gains for {len(gain)}; make the survey again.")
    if gain.ndim != 1 or not bool(((gain >= 1) & np.isfinite(gain)).all()):
        raise InputError("the survey has gains of clusters that are not numbers of at least 1; make the survey again.")
    return column, gain


def feature_width(graph: Graph) -> int:
    """Return the number of features, which may be 0."""
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
    """Return X' F, float32, likewise."""
    if isinstance(X, sp.csr_array):
        return np.asarray(X.astype(np.float32, copy=False).T @ F)
    product = np.zeros((X.shape[1], F.shape[1]), dtype=np.float32)
    for a in range(0, X.shape[0], ROWS):
        product += X[a : a + ROWS].astype(np.float32, copy=False).T @ F[a : a + ROWS]
    return product


def row_scale(graph: Graph) -> Float32Array:
    """Return what gives each row of the features unit length, (n,): 0 for rows of zeros; refuse infinite values."""
    X = graph.features
    assert X is not None
    scale = np.empty(X.shape[0], dtype=np.float32)
    n_bad, first_bad = 0, 0
    for a in range(0, X.shape[0], NODES):
        part = X[a : a + NODES]
        if isinstance(part, sp.csr_array):
            squares = np.zeros(part.shape[0])
            filled = np.flatnonzero(np.diff(part.indptr))
            if len(filled):
                squares[filled] = np.add.reduceat(np.square(part.data, dtype=np.float64), part.indptr[filled])
        else:
            blocks = (part[b : b + ROWS].astype(np.float64) for b in range(0, len(part), ROWS))
            squares = np.concatenate([np.einsum("ij,ij->i", block, block) for block in blocks])
        bad = np.flatnonzero(~np.isfinite(squares))
        if len(bad):
            n_bad, first_bad = n_bad + len(bad), first_bad if n_bad else a + int(bad[0])
        scale[a : a + NODES] = inverse_lengths(squares)
    if n_bad:
        raise InputError(
            f"the features of {n_bad} of {len(scale)} nodes are not finite, the first is node {first_bad}; "
            "replace those values, for example by the mean of their column."
        )
    return scale


def check_features(graph: Graph) -> None:
    """Refuse features of a whole graph that are zero or the same everywhere."""
    X, n = graph.features, graph.n_nodes
    assert X is not None
    zero = not row_scale(graph).any()
    blocks = (X[a : a + 64] for a in range(0, n, 64))
    dense = (block.toarray() if isinstance(block, sp.csr_array) else np.asarray(block) for block in blocks)
    first = X[:1].toarray() if isinstance(X, sp.csr_array) else X[:1]
    if n > 1 and (zero or all((rows == first).all() for rows in dense)):
        state = "zero, or too small to tell from zero" if zero else "the same"
        raise InputError(f"the features of all {n} nodes are {state}: leave them out, or give some that differ.")


def inverse_lengths(squares: AnyArray) -> Float32Array:
    """Return 1 / sqrt of each entry, and 0 where that is 0: rows of zeros stay zero."""
    positive = squares > 0
    return np.where(positive, 1 / np.sqrt(np.where(positive, squares, 1)), 0).astype(np.float32)


def role_rows(graph: Graph) -> tuple[Float32Array, Float64Array]:
    """Return the role of each node of a whole graph, (n, 3), and the mean and deviation of each column, (2, 3).

    The columns are log(1 + degree), its mean over a node and its neighbours, and the mean of that.
    """
    role = np.empty((graph.n_nodes, ROLES), dtype=np.float32)
    role[:, 0] = np.log1p(graph.degrees)
    own = np.ascontiguousarray(role[:, :1])
    for step, H in enumerate(walk_in(graph).of_values(own, None, restart=0.0, steps=2), 1):
        role[:, step] = H[:, 0]
    return role, np.stack([role.mean(axis=0, dtype=np.float64), role.std(axis=0, dtype=np.float64)])
