"""Whether patches of an embedder can be stitched: two overlapping halves of a graph are embedded and compared."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graphquilt.alignment import Alignment
from graphquilt.alignment.centroids import lay_onto
from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.embedders.contract import Embedder, checked_fit
from graphquilt.embedders.shared_start import (
    Arrays,
    FarField,
    SharedStart,
    cut_patch,
    free_motions,
    shares_start,
)
from graphquilt.errors import QuiltError
from graphquilt.graph import Graph
from graphquilt.linalg.motions import Motions
from graphquilt.patches import coarse_graph, fine_clusters

GOOD, FAIR = 0.3, 0.7  # shares of the spread, as in the verdict of an alignment: below the first the halves agree
_COMMUNITIES = 6
_MOST_ROUNDS = 100  # of a shared start; an embedder that asks for more never ends


@dataclass(frozen=True)
class EmbedderReport:
    """What :func:`check_embedder` reports of an embedder that fulfils the contract; ``str`` puts it into words.

    Both errors are root mean square distances of the same nodes in two patches, as shares of the spread of these nodes
    in both: 0 means that the patches agree, and unrelated patches are near 1, as for the edges of an alignment.

    Attributes
    ----------
    motions : Motions
        The motions that were undone; see :func:`graphquilt.embedders.free_motions`.
    aligned : float or None
        The error that is left after the best of these motions. It is fitted on one half of the shared nodes and
        computed on the other half. None where the positions of all shared nodes coincide.
    started : float or None
        The error without any motion, from a shared start; None where the embedder has none.
    """

    motions: Motions
    aligned: float | None
    started: float | None = None

    def __str__(self) -> str:
        lines = [_aligned_in_words(self.aligned, self.motions, has_start=self.started is not None)]
        if self.started is not None:
            lines.append(_started_in_words(self.started))
        return "\n".join(lines)


def _aligned_in_words(error: float | None, motions: Motions, *, has_start: bool) -> str:
    if error is None:
        return "All nodes that two halves of a graph share have the same position, so nothing can be aligned."
    words = {"scale": "scale", "rotate": "rotation", "translate": "translation"}
    free = " and ".join(words[name] for name, value in vars(motions).items() if value) or "no motion"
    if error <= GOOD:
        return f"The two halves agree up to {error:.0%} after alignment: patches of this embedder can be stitched."
    if error <= FAIR:
        return (
            f"The two halves agree roughly: {error:.0%} of the spread is left after the best motion ({free}). Patches "
            "can be stitched, but some quality is lost."
        )
    remedy = (
        "Use its shared start."
        if has_start
        else "Give the embedder a shared start (see docs/embedders.md), or coordinates whose inner products are the "
        "same in every patch."
    )
    return (
        f"{error:.0%} of the spread is left after the best motion ({free}): each patch chooses its own frame, which no "
        f"such motion makes equal. {remedy}"
    )


def _started_in_words(error: float) -> str:
    if error <= GOOD:
        return f"From a shared start the two halves agree up to {error:.0%} without any alignment."
    return (
        f"From a shared start {error:.0%} of the spread is left without any alignment: the start does not fix the "
        "frame. Train less from it, or let it determine more of the result."
    )


def compare_halves(embedder: Embedder, width: int) -> EmbedderReport:
    """Embed two overlapping halves of a graph of communities, align them, and return what is left.

    An AssertionError says where the embedder, its sums or its shared start break the contract.
    """
    shared = max(60, 4 * (embedder.dim + 1))
    graph, halves = _communities(shared, width)
    motions = free_motions(embedder)
    parts = [graph.subgraph(nodes) for nodes in halves]
    a, b = (X[rows] for X, rows in zip(_embedded(embedder, parts), _shared_rows(halves), strict=True))
    if not shares_start(embedder, graph):
        return EmbedderReport(motions, _error_after(a, b, motions))
    survey = embedder.survey(graph, 1, clusters=coarse_graph(graph, fine_clusters(graph)))
    for name, array in survey.nodes.items():
        assert len(array) == graph.n_nodes, f"survey has {len(array)} rows in {name!r} for {graph.n_nodes} nodes"
    far = [cut_patch(graph, nodes, survey)[1] for nodes in halves]
    kept: list[Arrays] = []
    for _ in range(_MOST_ROUNDS):
        if embedder.complete:
            break
        kept = [_prepared(embedder, *part) for part in zip(parts, far, strict=True)]
        embedder = _combined(embedder, kept)
    assert embedder.complete, f"the shared start is not complete after {_MOST_ROUNDS} rounds"
    options = [{"far": around, "kept": own} for around, own in zip(far, kept, strict=True)]
    c, d = (X[rows] for X, rows in zip(_embedded(embedder, parts, options), _shared_rows(halves), strict=True))
    left = embedder.motions_started
    moved = _error_after(c, d, left) if left.free else _error(c, d)
    return EmbedderReport(motions, _error_after(a, b, motions), moved)


def _communities(size: int, width: int) -> tuple[Graph, list[Int64Array]]:
    """Return a graph of six communities in a row, and the first and the last four, which share ``size`` nodes."""
    rng = np.random.default_rng(0)
    n = _COMMUNITIES * (size // 2)
    home = np.arange(n) // (size // 2)
    pairs = rng.integers(0, n, size=(40 * n, 2))
    apart = np.abs(home[pairs[:, 0]] - home[pairs[:, 1]])
    chance = np.where(apart == 0, 0.7, np.where(apart == 1, 0.1, 0.01))
    pairs = pairs[rng.random(len(pairs)) < chance]
    chain = np.column_stack([np.arange(n - 1), np.arange(1, n)])  # keeps both halves connected
    rows, columns = np.concatenate([pairs, chain]).T
    A = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    A = sp.csr_array(((A + A.T) > 0).astype(np.float64))
    A.setdiag(0)
    A.eliminate_zeros()
    features = rng.random((_COMMUNITIES, width))[home] + 0.5 * rng.random((n, width))
    return Graph(A, features.astype(np.float32)), [np.flatnonzero(home < 4), np.flatnonzero(home >= 2)]


def _embedded(
    embedder: Embedder, parts: Sequence[Graph], options: Sequence[Mapping[str, object]] = ({}, {})
) -> list[Float64Array]:
    try:
        fits = [
            checked_fit(embedder, part, seed, where="one half", progress=None, **each)
            for seed, (part, each) in enumerate(zip(parts, options, strict=True))
        ]
    except QuiltError as error:
        raise AssertionError(f"half of a graph of communities was not embedded: {error}") from error
    return [np.asarray(fit.embedding, dtype=np.float64) for fit in fits]


def _shared_rows(halves: Sequence[Int64Array]) -> list[Int64Array]:
    shared = np.intersect1d(halves[0], halves[1])
    return [np.searchsorted(half, shared) for half in halves]


def _spread(*clouds: Float64Array) -> float:
    return float(np.sqrt(sum(np.sum((X - X.mean(axis=0)) ** 2) for X in clouds)))


def _error(a: Float64Array, b: Float64Array) -> float:
    """Return the distance of two clouds of the same nodes as a share of their spread; 0 where both have none."""
    distance = float(np.linalg.norm(a - b))
    return distance / _spread(a, b) if distance > 0 else 0.0


def _error_after(a: Float64Array, b: Float64Array, motions: Motions) -> float | None:
    """Fit ``a`` to ``b`` on every second node, and return the relative distance of the others."""
    fitted, tested = np.arange(0, len(a), 2), np.arange(1, len(a), 2)
    if min(_spread(Z[part]) for Z in (a, b) for part in (fitted, tested)) <= 1e-12 * max(map(np.linalg.norm, (a, b))):
        return None
    fit = lay_onto([(fitted, a[fitted])], Alignment.identity(1, a.shape[1]), b, motions=motions)
    return _error(fit.apply(0, a[tested]), b[tested])


def _prepared(embedder: SharedStart, graph: Graph, far: FarField) -> Arrays:
    """Return what a part prepares, named arrays that are the same for the same seed."""
    first, second = (embedder.prepare(graph, 1, far=far) for _ in range(2))
    for made in (first, second):
        assert isinstance(made, Mapping), f"prepare returned {type(made).__name__}, not a mapping of names to arrays"
    for name, value in first.items():
        assert isinstance(name, str), f"prepare has the key {name!r}, which is not a string"
        assert isinstance(value, np.ndarray), f"prepare has {type(value).__name__} under {name!r}, not an array"
    same = first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)
    assert same, "the same seed prepared something else"
    return first


def _combined(embedder: SharedStart, kept: Sequence[Arrays]) -> SharedStart:
    """Return the embedder after one round, which has the same dim and a ``start``."""
    before, total = embedder.start, None
    for own in kept:
        total = embedder.add(total, embedder.contribute(own))
    assert total is not None
    result: object = embedder.combine(total, 1)
    assert isinstance(result, SharedStart), f"combine returned {type(result).__name__}, not an embedder"
    assert result.dim == embedder.dim, f"combine returned an embedder of dim {result.dim}, not {embedder.dim}"
    assert result.start is not None, "combine returned an embedder without a start"
    assert embedder.start is before, "combine has changed the embedder itself"
    try:
        pickle.loads(pickle.dumps(result))
    except Exception as error:
        raise AssertionError(f"the embedder with a start cannot be pickled: {error}") from error
    return result
