"""SharedStart: how an embedder gives all patches one frame before they are embedded.

The whole graph, if it is available, is surveyed once. Then, round by round, every patch prepares something and keeps
it, contributes a sum of it, and the sums of all patches, in whatever order, make the next start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, Self, TypeAlias, TypeGuard, runtime_checkable

import numpy as np

from graphquilt.arrays import AnyArray, IntArray
from graphquilt.embedders.contract import Embedder, Fit, Hook
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.linalg import Motions
from graphquilt.patches import CoarseGraph

Arrays = Mapping[str, AnyArray]
Part: TypeAlias = "tuple[Graph, FarField]"


@dataclass(frozen=True, eq=False)
class Survey:
    """What an embedder knows about the whole graph.

    ``nodes`` has arrays with one row per node, of which a patch gets its own; an entry ``cluster`` is the far
    cluster of each. ``shared`` has arrays that are the same for all patches. In it an entry ``targets`` asks for edges
    with their direction, and is the number of the first far cluster of targets; an entry ``sample`` lists nodes that
    decide the start, as one patch with a far field, and the other patches are then walked only once.
    """

    nodes: Arrays = field(default_factory=dict)
    shared: Arrays = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FarField:
    """What a patch knows of the rest of the graph, which has ``n_nodes``: near by exactly, far away on average.

    ``nodes`` has the rows of the survey for the nodes of the patch, and ``shared`` what it has for all patches.
    ``indptr``, ``clusters`` and ``weights`` are the edges that leave the patch in CSR form: the far clusters of each
    node's neighbours outside. Without weights every edge counts 1. Where direction is kept, k rows of edges out of the
    patch are followed by k rows of edges into it.
    """

    n_nodes: int
    nodes: Arrays = field(default_factory=dict)
    shared: Arrays = field(default_factory=dict)
    indptr: AnyArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    clusters: AnyArray = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    weights: AnyArray | None = None

    @classmethod
    def whole(cls, survey: Survey, n_nodes: int) -> FarField:
        """Return the far field of the whole graph as one patch: no edge leaves it."""
        return cls(n_nodes, survey.nodes, survey.shared, np.zeros(n_nodes + 1, dtype=np.int64))


def cut_patch(graph: Graph, nodes: IntArray, survey: Survey, *, backwards: Graph | None = None) -> Part:
    """Return the subgraph of some nodes, and what it knows of the rest; ``backwards`` has directed edges reversed."""
    cluster = np.asarray(survey.nodes.get("cluster", np.empty(0, dtype=np.int32)))
    if "cluster" in survey.nodes and (cluster.shape != (graph.n_nodes,) or cluster.dtype.kind not in "iu"):
        raise InputError(
            f"the survey has far clusters of shape {cluster.shape} and type {cluster.dtype}, not one whole number for "
            f"each of {graph.n_nodes} nodes. It belongs to another graph: make the survey again."
        )
    shift = 0 if backwards is None else int(survey.shared["targets"])
    part, (indptr, clusters, weights) = graph.split(nodes, cluster + shift if shift else cluster)
    if backwards is not None:
        _, into = backwards.split(nodes, cluster)
        indptr = np.concatenate([indptr, indptr[-1] + into[0][1:]])
        clusters, weights = np.concatenate([clusters, into[1]]), np.concatenate([weights, into[2]])
    rows = {name: np.asarray(array[nodes]) for name, array in survey.nodes.items()}
    strengths = None if graph.weights is None else weights
    return part, FarField(graph.n_nodes, rows, survey.shared, indptr, clusters, strengths)


@runtime_checkable
class SharedStart(Embedder, Protocol):
    """An embedder that agrees on a frame before patches are embedded: a frozen dataclass with a field ``start``.

    In each round every patch calls :meth:`prepare` and keeps the result, :meth:`contribute` sums it up, :meth:`add`
    adds the sums of all patches, and :meth:`combine` returns the embedder for the next, until it is ``complete``.
    """

    @property
    def start(self) -> Arrays | None:
        """What is agreed on so far; None before the first round."""

    @property
    def complete(self) -> bool:
        """Whether patches can be embedded, or another round is needed."""

    @property
    def motions_started(self) -> Motions:
        """The motions that stay free with a shared start."""

    def starts_on(self, graph: Graph) -> bool:
        """Return whether patches of this graph can have a shared start."""

    def survey(self, graph: Graph, seed: int, *, clusters: CoarseGraph | None = None, cut: bool = True) -> Survey:
        """Return what patches need to know of the whole graph; one that is not ``cut`` needs no far field."""

    def prepare(self, graph: Graph, seed: int, *, far: FarField | None = None) -> dict[str, AnyArray]:
        """Return what a patch keeps for itself in this round."""

    def contribute(self, kept: Arrays) -> dict[str, AnyArray]:
        """Return what a patch adds, made of what it keeps."""

    def add(self, total: Arrays | None, arrays: Arrays) -> dict[str, AnyArray]:
        """Return the sum of ``total``, what some patches contributed, and of what one more contributes."""

    def combine(self, total: Arrays, seed: int) -> Self:
        """Return the embedder for the next round, made of the sum over all patches."""

    def finish(self, kept: Arrays) -> Fit | None:
        """Embed a patch by what it prepared in the last round; None if that is not enough."""

    def fit(
        self, graph: Graph, seed: int, progress: Hook = None, *, far: FarField | None = None, kept: Arrays | None = None
    ) -> Fit:
        """Embed the graph; ``kept`` is what it prepared in the last round."""


def shares_start(embedder: Embedder, graph: Graph | None = None) -> TypeGuard[SharedStart]:
    """Return whether an embedder has a shared start, and if a graph is given, whether it has one on that graph."""
    return isinstance(embedder, SharedStart) and (graph is None or embedder.starts_on(graph))


def free_motions(embedder: Embedder, *, start: bool = False) -> Motions:
    """Return the motions that the embeddings are free in, by default rotation and translation, as in the paper.

    With ``start``, patches get a shared start if the embedder has one.
    """
    motions = getattr(embedder, "motions", Motions())
    if start and shares_start(embedder):
        motions = embedder.motions_started
    if not isinstance(motions, Motions):
        raise InputError(f"motions of {embedder!r} must be Motions, such as Motions(scale=True), not {motions!r}.")
    return motions


def with_start(embedder: SharedStart, start: Arrays) -> SharedStart:
    """Return the embedder with a start that was made before."""
    changed: SharedStart = replace(embedder, start=start)  # type: ignore[type-var]
    return changed


def agree(embedder: SharedStart, parts: list[tuple[Graph, FarField | None]], seed: int) -> SharedStart:
    """Return the embedder with the start that these parts of a graph agree on, one part at a time."""
    while not embedder.complete:
        total: Arrays | None = None
        for k, (graph, far) in enumerate(parts):
            total = embedder.add(total, embedder.contribute(embedder.prepare(graph, seed + k, far=far)))
        assert total is not None
        embedder = embedder.combine(total, seed)
    return embedder


def check_clusters(clusters: CoarseGraph, graph: Graph) -> None:
    """Refuse far clusters that are not of this undirected graph."""
    total = len(graph.indices) if graph.weights is None else float(graph.weights.sum())
    between = float(clusters.between.sum())
    if len(clusters.clusters) != graph.n_nodes or not np.isclose(between, total, rtol=1e-6):
        raise InputError(
            f"the far clusters have {len(clusters.clusters)} nodes and edges of weight {between:g}, and this graph has "
            f"{graph.n_nodes} and {total:g}: they belong to another graph. Make them again."
        )


def check_far_clusters(far: FarField, k: int) -> None:
    """Refuse a patch with an edge to a far cluster that is not one of the k that the survey has."""
    clusters = np.asarray(far.clusters)
    if len(clusters) and not 0 <= int(clusters.min()) <= int(clusters.max()) < k:
        raise InputError(
            f"edges of the patch lead to far clusters {clusters.min()} to {clusters.max()}, and the survey has {k} of "
            "them: it belongs to another graph. Make the survey again."
        )


def checked_arrays(arrays: object, what: str) -> dict[str, AnyArray]:
    """Refuse what is not named arrays of finite numbers."""
    if not isinstance(arrays, Mapping) or not arrays:
        raise InputError(f"the {what} is {arrays!r:.80}; it must be a mapping of names to arrays, with at least one.")
    checked = {str(name): np.asarray(array) for name, array in arrays.items()}
    for name, values in checked.items():
        if values.dtype.hasobject or (values.dtype.kind == "f" and not np.isfinite(values).all()):
            raise InputError(f"the {what} has values in '{name}' that are not finite numbers.")
    return checked
