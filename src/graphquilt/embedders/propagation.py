"""Propagation: features, or memberships in clusters, spread over the graph and reduced to their main directions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

import numpy as np

from graphquilt.arrays import AnyArray, Float32Array, Int64Array
from graphquilt.embedders.basis import BasisEncoder
from graphquilt.embedders.contract import Context, Fit, Surroundings, check_dim
from graphquilt.embedders.principal import principal_directions
from graphquilt.embedders.reduction import Weighted, half, measured_rows, projected, sketched_rows, stored
from graphquilt.embedders.signals import cluster_signal, clusters_of, feature_signal, feature_width
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.linalg.motions import Motions
from graphquilt.progress import ProgressCallback

__all__ = ["Propagation"]

FEWEST, USUAL = 256, 1000  # clusters of a graph, where the embedder does not say how many
CLUSTER = 50  # nodes of a cluster, of which larger graphs have more than usual,
SIGNAL = 2 * 10**8  # as long as the signal of memberships has no more entries than this
POWERS = 1  # of a sketch of the whole graph; those of patches need none, because together they tell more


@dataclass(frozen=True)
class Propagation:
    """Spread a signal over the graph, and place each node by the main directions of what arrives there; no training.

    Parameters
    ----------
    dim : int
        Number of directions. Where the signal has fewer, the other columns are zero.
    structure : float
        The weight of the cluster memberships beside the features. A graph without features is embedded by its
        memberships alone.
    clusters : int, optional
        Number of clusters; at most a quarter of the number of nodes are made. By default 1000, one per 50 nodes from
        50 000 to 100 000 nodes, and then fewer again, down to 256: more tell neighbours apart better, and cost as much
        more.
    steps, restart : int, float
        The features are propagated so many steps, and with the probability ``restart`` they begin again at their node.
    sample : int
        Number of rows of the whole graph that its directions are computed from, where it has more. Where memberships
        are used, patches offer the same rows for a shared start, so that they get the directions of the whole graph.
    block : int
        Number of columns that are propagated at once: fewer need less memory.
    context : Context or None
        How much of the graph around a patch travels with it; None means that a patch sees only itself. Its features
        are then propagated no further than across the patch: at most log n / log(k - 1) steps, with n nodes of mean
        degree k, because what a longer walk would bring lies outside.
    start : mapping of str to array, optional
        The shared start that :meth:`started` made: the ``directions`` (w, dim). Embeddings with the same start lie in
        the same frame.

    Notes
    -----
    With features X of unit rows and S = D^-1/2 (A + I) D^-1/2 the signal is H = Σ_{i<k} a(1-a)^i S^i X + (1-a)^k S^k X,
    where k is ``steps`` and a is ``restart`` (personalised PageRank, Gasteiger et al. 2019). Without features X is the
    membership of each node in one of many small clusters of the graph, S = D^-1 (A + I), k = 8, a = .15, and H is
    replaced by log(1 + H / share of the cluster). The rows of H get unit length, and the embedding is H V with the
    leading right singular vectors V of H, so that inner products of rows are preserved as well as ``dim`` columns can.

    A directed graph is made undirected by the larger of both weights. A node with neither edges nor features lies at
    the origin. The seed does not matter.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1]))
    >>> Propagation(1)(path, 0).shape
    (10, 1)
    """

    dim: int
    _: KW_ONLY
    structure: float = 0.0
    clusters: int | None = None
    steps: int = 10
    restart: float = 0.1
    sample: int = 16_384
    block: int = 64
    context: Context | None = Context()
    start: Mapping[str, AnyArray] | None = field(default=None, compare=False, repr=False)
    deterministic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_dim(self.dim, "Propagation")
        for name in ("clusters", "sample", "block", "steps", "structure", "restart"):
            kinds = (int, np.integer) if name in ("clusters", "sample", "block", "steps") else (int, float, np.number)
            value = getattr(self, name)
            if isinstance(value, bool) or not (isinstance(value, kinds) or (name == "clusters" and value is None)):
                raise InputError(f"{name} of Propagation is a number, not {str(value)[:40]!r}.")
        for name in ("clusters", "sample", "block"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} of Propagation must be at least 1, not {getattr(self, name)}.")
        if self.steps < 0:
            raise InputError(f"steps of Propagation must not be negative; there are {self.steps}.")
        if not 0 <= self.restart <= 1:
            raise InputError(f"restart of Propagation is a probability from 0 to 1, not {self.restart}.")
        if not 0 <= self.structure < np.inf:
            raise InputError(f"structure of Propagation is a weight of at least 0, not {self.structure}.")
        if self.start is not None:
            _check_directions(self.start, self.dim)

    @property
    def motions(self) -> Motions:
        """The motions by which embeddings of overlapping graphs differ: none with a shared start."""
        return Motions() if self.start is None else Motions(rotate=False, translate=False)

    def survey(self, graph: Graph, seed: int) -> dict[str, AnyArray]:  # noqa: ARG002
        """Return what patches need to know of the whole graph, one row per node; nothing where only features are used.

        ``sample`` numbers the nodes whose rows are offered, and is -1 for others, ``cluster`` is the cluster of each
        node, -1 without edges, and ``share`` the share of the nodes that are in it.
        """
        graph = graph.undirected()
        if not self._needs_clusters(graph):
            return {}
        chosen = _chosen(graph.n_nodes, self.sample)
        sample = np.full(graph.n_nodes, -1, dtype=np.int32)
        sample[chosen] = np.arange(len(chosen), dtype=np.int32)
        return {"sample": sample, **self._clusters(graph)}

    def offer(self, graph: Graph, seed: int, surroundings: Surroundings | None = None) -> dict[str, AnyArray]:  # noqa: ARG002
        """Return a few rows that have the main directions of the propagated signal, for :meth:`started`.

        Of features they are a sketch of all rows of the patch. Features are spread inside the patch alone, since their
        directions hardly depend on what lies around it, and a node that is in several patches counts in each with its
        share. Where memberships are used, the offered rows are those of the nodes that the survey has chosen. A patch
        with neither features nor a survey has no frame in common with others, and offers nothing.
        """
        if not self._needs_clusters(graph):
            n = _count(graph, surroundings)
            counts = {} if surroundings is None else surroundings.survey
            weights = 1 / np.maximum(counts["patches"][:n], 1) if "patches" in counts else None
            part = graph if n == graph.n_nodes else graph.subgraph(np.arange(n))
            ((_, signal),) = self._signals(part, np.arange(n), None)
            return {"rows": half(sketched_rows(signal, self.dim, self.block, weights=weights))}
        if surroundings is None or "sample" not in surroundings.survey:
            return {}
        sample = np.asarray(surroundings.survey["sample"][: surroundings.n_inner])
        if sample.ndim != 1 or sample.dtype.kind != "i":
            raise InputError(f"the sample of a survey is one whole number per node, not {sample.dtype} {sample.shape}.")
        chosen = np.flatnonzero(sample >= 0)
        rows = measured_rows(self._signals(graph, chosen, surroundings), np.arange(len(chosen)), self.block)
        return {"sample": sample[chosen], "rows": half(rows)}

    def started(self, offers: Sequence[Mapping[str, AnyArray]], seed: int) -> Propagation:  # noqa: ARG002
        """Return the embedder that all patches use: its directions are those of all offered rows together.

        A numbered node that several patches offer counts once. Where a patch offers nothing, there is no shared start.
        """
        if not offers or any("rows" not in offer for offer in offers):
            return replace(self, start=None)
        if not all(_is_offer(offer) for offer in offers):
            raise InputError(
                "an offer for the shared start is not a matrix of finite rows, with one whole number per row where "
                "nodes are numbered; let the patches make their offers again."
            )
        widths = sorted({offer["rows"].shape[1] for offer in offers})
        if len(widths) > 1:
            raise InputError(f"the offered rows have {widths} columns; all patches need the same features.")
        rows = np.vstack([offer["rows"] for offer in offers])
        if all("sample" in offer for offer in offers):
            rows = rows[np.unique(np.concatenate([offer["sample"] for offer in offers]), return_index=True)[1]]
        return replace(self, start={"directions": principal_directions(rows, self.dim)})

    def fit(
        self,
        graph: Graph,
        seed: int,  # noqa: ARG002
        progress: ProgressCallback | None = None,
        surroundings: Surroundings | None = None,
    ) -> Fit:
        """Embed the graph, or only its inner nodes where there are surroundings; the result has an encoder.

        Without a shared start the directions are those of the nodes that are embedded.
        """
        n, start = _count(graph, surroundings), self.start
        signals = self._signals(graph, np.arange(n), surroundings)
        if start is None:
            signals = [(weight, stored(signal)) for weight, signal in signals]
            chosen = _chosen(n, self.sample)
            if self._needs_clusters(graph):
                rows = measured_rows(signals, chosen, self.block, progress)
            else:
                ((_, signal),) = self._signals(graph, chosen, surroundings)
                rows = sketched_rows(signal, self.dim, self.block, powers=POWERS, progress=progress)
            start = {"directions": principal_directions(rows, self.dim)}
            progress = None  # what is left costs less
        Z = projected(signals, start["directions"], self.block, progress)
        # The encoder goes as many steps on any graph as were gone here.
        encoder = BasisEncoder(replace(self, start=start, steps=self._steps(graph), context=Context()))
        return Fit(Z, np.empty(0), encoder)

    def __call__(self, graph: Graph, seed: int) -> Float32Array:
        """Return the embedding (n, dim)."""
        return np.asarray(self.fit(graph, seed).embedding)

    def _needs_clusters(self, graph: Graph) -> bool:
        return feature_width(graph) == 0 or self.structure > 0

    def _clusters(self, graph: Graph) -> dict[str, AnyArray]:
        if not self._needs_clusters(graph):
            return {}
        cluster, share = clusters_of(graph, self._n_clusters(graph, graph.n_nodes))
        return {"cluster": cluster, "share": share}

    def _n_clusters(self, graph: Graph, n_nodes: int) -> int:
        """Return how many clusters the signal has: as many as the start, or those for a whole graph of n_nodes."""
        if self.start is not None:
            return len(self.start["directions"]) - feature_width(graph)
        if self.clusters is not None:
            return self.clusters
        return max(FEWEST, min(max(USUAL, n_nodes // CLUSTER), SIGNAL // max(n_nodes, 1)))

    def _steps(self, graph: Graph) -> int:
        """Return how many steps features are propagated: in a patch that sees only itself, at most those across it."""
        if self.context is not None:
            return self.steps
        degree = len(graph.undirected().indices) / max(graph.n_nodes, 1)
        if degree <= 2:
            return self.steps
        return min(self.steps, math.ceil(math.log(graph.n_nodes) / math.log(degree - 1)))

    def _signals(self, graph: Graph, rows: Int64Array, surroundings: Surroundings | None) -> Weighted:
        """Return these rows of the signals of the graph, with their weights."""
        graph = graph.undirected()
        survey = {} if surroundings is None else surroundings.survey
        signals = []
        if feature_width(graph):
            signals.append((1.0, feature_signal(graph, rows, restart=self.restart, steps=self._steps(graph))))
        if self._needs_clusters(graph):
            if "cluster" not in survey:
                if self.start is not None:
                    raise InputError(
                        f"the shared start refers to {self._n_clusters(graph, 0)} clusters of another graph, and there "
                        f"is no survey that tells which of them the {graph.n_nodes} nodes are in; pass the survey of "
                        "that graph."
                    )
                survey = self._clusters(graph)
            n_clusters = self._n_clusters(graph, graph.n_nodes if surroundings is None else surroundings.n_nodes)
            signals.append((self.structure if signals else 1.0, cluster_signal(graph, rows, survey, n_clusters)))
        return signals


def _check_directions(start: Mapping[str, AnyArray], dim: int) -> None:
    """Refuse a shared start that is not ``dim`` directions."""
    V = start.get("directions")
    shape = None if V is None else V.shape
    if V is None or V.ndim != 2 or V.shape[1] != dim or V.dtype.kind != "f" or not np.isfinite(V).all():
        raise InputError(
            f"a shared start of Propagation has finite numbers as directions, one column for each of {dim} dimensions; "
            f"the shape of these is {shape}. Make the start again."
        )


def _is_offer(offer: Mapping[str, AnyArray]) -> bool:
    """Return whether the rows of an offer are a matrix of finite numbers, and their sample numbers one per row."""
    rows, sample = offer["rows"], offer.get("sample")
    is_matrix = rows.ndim == 2 and rows.dtype.kind == "f" and bool(np.isfinite(rows).all())
    return is_matrix and (sample is None or (sample.shape == (len(rows),) and sample.dtype.kind == "i"))


def _count(graph: Graph, surroundings: Surroundings | None) -> int:
    return graph.n_nodes if surroundings is None else surroundings.n_inner


def _chosen(n: int, count: int) -> Int64Array:
    """Return at most ``count`` of n rows, ascending."""
    return np.arange(n) if n <= count else np.sort(np.random.default_rng(0).choice(n, count, replace=False))
