"""links(): the best new partners of a node, the probabilities of given pairs, and the likeliest links of a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, BoolArray, Float64Array, FloatArray, Int64Array
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.graph.reading.ids import find_ids
from graphquilt.graph.reading.recency import Period, read_recent_edges
from graphquilt.jobs import Job, JobSettings, Record, Result, Source, embed
from graphquilt.jobs.export import job_ids, node_row, refuse_gone
from graphquilt.jobs.store import fingerprint, stored_record
from graphquilt.jobs.versions import gone_nodes
from graphquilt.prediction.candidates import candidate_lists, candidate_pairs, listed_pairs, pair_keys, unit_rows
from graphquilt.prediction.model import COMPONENTS, LinkModel, are_new, fit_links, link_components, training_pairs

_RECORD, _VERSION = "links", 2
_NODES = 1 << 14  # whose candidates are scored at a time


@dataclass(frozen=True, eq=False)
class Links:
    """Pairs of nodes and how likely they are links, likeliest first unless the pairs were given.

    Attributes
    ----------
    ids : array (k, 2)
        The ids of both nodes.
    rows : int array (k, 2)
        Their rows in the embedding.
    probabilities : float array (k,)
        That the pair is a link, if as many edges are missing as were held out.
    scores : float array (k,)
        Log-odds before calibration; comparable for all pairs.
    calibrated : bool array (k,)
        Whether the pair is one of the candidates that the probabilities hold for.
    joined : bool array (k,)
        Whether the graph has this edge already.
    contributions : float array (k, 6)
        What each of ``COMPONENTS`` adds to the score, against the mean candidate.
    """

    ids: AnyArray
    rows: Int64Array
    probabilities: Float64Array
    scores: Float64Array
    calibrated: BoolArray
    joined: BoolArray
    contributions: Float64Array

    @property
    def reasons(self) -> list[str]:
        """The component of each pair that adds most to its score."""
        return [COMPONENTS[k] for k in self.contributions.argmax(axis=1)]


@dataclass(frozen=True, eq=False)
class _Case:
    """A graph, its unit rows, the ids of its nodes, and what makes a link in it."""

    graph: Graph
    X: AnyArray
    ids: AnyArray
    model: LinkModel
    gone: BoolArray | None = None

    def describe(self, pairs: Int64Array, calibrated: BoolArray) -> Links:
        components = link_components(self.graph, self.X, pairs)
        scores, new = self.model.score(components), are_new(components)
        probabilities, contributions = self.model.probability(scores), self.model.contributions(components)
        return Links(self.ids[pairs], pairs, probabilities, scores, calibrated & new, ~new, contributions)

    def best(self, nodes: Int64Array, count: int) -> Links:
        """Return the best new links among the candidates of some nodes, each once, the best first."""
        best, scores = np.empty((0, 2), dtype=np.int64), np.empty(0)
        lists = candidate_lists(self.graph, self.X, nodes)
        for start in range(0, len(nodes), _NODES):
            pairs = listed_pairs(nodes[start : start + _NODES], lists[start : start + _NODES])
            if len(lists) == self.graph.n_nodes:  # the smaller node of two that list each other has the pair already
                later = pairs[:, 1] < pairs[:, 0]
                later[later] = (lists[pairs[later, 1]] == pairs[later, :1]).any(axis=1)
                pairs = pairs[~later]
            pairs = pairs if self.gone is None else pairs[~self.gone[pairs].any(axis=1)]
            components = link_components(self.graph, self.X, pairs)
            new = are_new(components)
            best = np.concatenate([best, pairs[new]])
            scores = np.concatenate([scores, self.model.score(components[new])])
            order = np.lexsort((best[:, 1], best[:, 0], -scores))[:count]
            best, scores = best[order], scores[order]
        return self.describe(best, np.ones(len(best), dtype=np.bool_))


def links(
    job: Job | Result,
    node: int | str | None = None,
    *,
    pairs: npt.ArrayLike | None = None,
    top: int | None = None,
    k: int = 10,
    after: str | None = None,
    missing: float = 0.1,
    seed: int = 0,
) -> Links:
    """Predict links: the best new partners of a node, the given pairs, or the likeliest new links of the graph.

    The score combines the cosine of rows, common neighbours, Adamic-Adar, resource allocation and degrees. How is
    learnt from edges held out of this graph, which is embedded without them by the same settings. A job keeps what was
    learnt.

    Parameters
    ----------
    job : Job or Result
        With its graph. Directions of edges are not predicted.
    node : int or str
        Return the ``k`` best new partners of this node.
    pairs : array (k, 2) of ids
        Return these pairs, in this order.
    top : int
        Return this many pairs of the whole graph.
    after : str, optional
        A date, or a number where the times are numbers: learn from the links since then instead of from random ones.
        The job must have been made with a half-life. The probabilities are those of a time as long as since then.
    missing : float
        Share of the edges to hold out.
    seed : int

    Examples
    --------
    >>> from graphquilt.datasets import load_dataset
    >>> result = embed(load_dataset("blocks"), dim=8)
    >>> best = links(result, top=5)
    >>> best.ids.shape, bool(best.joined.any()), bool(np.all(np.diff(best.scores) <= 0))
    ((5, 2), False, True)
    """
    if (node is not None) + (pairs is not None) + (top is not None) != 1:
        raise InputError("links takes one of: a node, pairs (--pairs), or a number of links of the graph (--top).")
    for name, value in (("k", k), ("top", top)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1):
            raise InputError(f"{name} must be a positive integer, not {value!r}.")
    job = job.as_job() if isinstance(job, Result) else job
    if job.graph is None:
        raise InputError("links are predicted from edges, and this embedding was made without a graph; see gq.embed.")
    graph, ids = job.graph.undirected(), job_ids(job, job.graph.n_nodes)
    if pairs is None:
        rows = np.arange(graph.n_nodes) if node is None else np.array([node_row(ids, node)])
    else:
        rows = pair_rows(ids, pairs)
    X, gone = job.embedding, gone_nodes(job.store, graph.n_nodes)
    if pairs is not None or node is not None:
        refuse_gone(gone, rows, ids)
    learning: dict[str, object] = {"after": after, "missing": missing, "seed": seed}
    question = {**learning, "version": _VERSION, "embedding": fingerprint(X)}
    record, names = stored_record(job.store, _RECORD, {"question": question}), [each.name for each in fields(LinkModel)]
    if record is None or not set(names) <= set(record.arrays):
        model = _fit(graph, job.settings, ids, after=after, missing=missing, seed=seed)
        job.store[_RECORD] = record = Record(vars(model), {"question": question})
    model = LinkModel(**{name: np.asarray(record.arrays[name]) for name in names})
    case = _Case(graph, unit_rows(X), ids, model, gone)
    if pairs is None:
        return case.best(rows, int(k if top is None else top))
    candidates = candidate_pairs(graph, case.X, np.unique(rows))
    inside = np.isin(pair_keys(rows, graph.n_nodes), pair_keys(candidates, graph.n_nodes))
    return case.describe(rows, inside)


def pair_rows(ids: AnyArray, pairs: npt.ArrayLike) -> Int64Array:
    """Return the rows of pairs of ids, (k, 2); an unknown id is an error that names the nearest spellings."""
    names = np.asarray(pairs)
    if names.ndim != 2 or names.shape[1] != 2:
        raise InputError(f"pairs are two ids each, (k, 2), not an array of shape {names.shape}.")
    if ids.dtype.kind not in "iu":
        names = names.astype(str)
    elif names.dtype.kind not in "iu":
        unknown = next((name for name in names.ravel().tolist() if not str(name).lstrip("-").isdigit()), None)
        names = names.astype(np.int64) if unknown is None else np.array([[node_row(ids, unknown)] * 2])
    rows = find_ids(ids, names)
    wrong = np.flatnonzero(rows.ravel() < 0)
    if len(wrong):
        more = f" ({len(wrong)} of {names.size} ids of the pairs are unknown.)" if len(wrong) > 1 else ""
        try:
            node_row(ids, names.ravel()[wrong[0]].item())
        except InputError as error:
            raise InputError(f"{error}{more}") from None
    same = np.flatnonzero(rows[:, 0] == rows[:, 1])
    if len(same):
        raise InputError(f"pair {same[0]} (from 0) joins node {names[same[0], 0]!r} with itself; give two nodes.")
    return rows


def _fit(
    graph: Graph, settings: JobSettings, ids: AnyArray, *, after: str | None, missing: float, seed: int
) -> LinkModel:
    """Learn what makes a link, by embedding a part of the graph as the job was embedded."""
    embedders = settings.embedders
    embedder = embedders[0] if len(embedders) == 1 else list(embedders)

    def embed_again(part: Graph) -> FloatArray:
        result = embed(part, embedder=embedder, cutting=settings.cutting, recipe=settings.recipe, seed=settings.seed)
        return result.embedding

    if after is None:
        return fit_links(graph, embed_again, missing=missing, seed=seed)
    return fit_later_links(*graphs_before_and_after(settings.source, after, graph, ids), embed_again, seed=seed)


def fit_later_links(
    before: Graph, later: Int64Array, embed_graph: Callable[[Graph], FloatArray], *, seed: int = 0
) -> LinkModel:
    """Learn what makes a link from a graph ``before`` some moment, and the links that came ``later``, (k, 2).

    Pairs that were joined before may be linked again, which is learnt too; the calibration is that of new links.
    """
    components, is_link, new = training_pairs(before, unit_rows(embed_graph(before)), later, seed=seed, repeated=True)
    return LinkModel.fit(components, is_link, new)


def graphs_before_and_after(source: Source, after: str, graph: Graph, ids: AnyArray) -> tuple[Graph, Int64Array]:
    """Read the edge list again: the graph before a moment, whose last edge is of age 0, and the links since, (k, 2)."""
    if source.path is None or source.half_life is None:
        raise InputError(
            "--after needs the times of the edges, and this job was made without them. Make it from an edge list with "
            "times: graphquilt embed edges.csv --half-life 30d --out job."
        )
    parts = []
    for period in (Period(before=after), Period(since=after)):
        part = read_recent_edges(source.path, half_life=source.half_life, columns=source.columns, period=period)
        parts.append(_with_rows_of(part, graph, ids))
    before, later = parts
    links = sp.triu(later.adjacency, 1).tocoo()
    return before, np.column_stack([links.row, links.col]).astype(np.int64)


def _with_rows_of(part: Graph, graph: Graph, ids: AnyArray) -> Graph:
    """Return the edges of ``part`` between nodes of ``graph``, with its rows and features."""
    place = find_ids(ids, part.ids)
    entries = part.adjacency.tocoo()
    used = (place[entries.row] >= 0) & (place[entries.col] >= 0)
    ends = place[entries.row[used]], place[entries.col[used]]
    A = sp.csr_array((entries.data[used], ends), shape=(graph.n_nodes, graph.n_nodes))
    return Graph(A, graph.features, labels=graph.labels)
