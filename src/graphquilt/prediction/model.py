"""The score of a pair: a logistic regression on few monotone components, and its calibrated probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from graphquilt.arrays import AnyArray, BoolArray, Float64Array, FloatArray, Int64Array
from graphquilt.errors import InputError
from graphquilt.evaluate import hold_out_edges
from graphquilt.graph import Graph
from graphquilt.prediction.candidates import candidate_pairs, count_common, pair_keys, strengths, unit_rows

COMPONENTS = ("cosine", "common neighbours", "Adamic-Adar", "resource allocation", "earlier links", "degrees")
_MONOTONE = 5  # more of these components never lowers the score; degrees may count for or against a link
_PENALTY = 10.0  # of the squared coefficients, for standardised components
_NODES = 100_000  # whose candidates are looked at, in one round or, in a small graph, in several
_ENOUGH, _ROUNDS = 1000, 5  # positives; more rounds are added until there are as many, up to this number
_GROUP = 50  # candidates in the smallest group of the calibration
_BLOCK = 1 << 16  # pairs whose rows are in memory at a time
_NO_LINK = np.log(1e-2)  # the component of earlier links of a pair that is not joined


def link_components(graph: Graph, X: AnyArray, pairs: Int64Array) -> Float64Array:
    """Return the components of pairs, (k, 7): see ``COMPONENTS``; degrees are two columns, the smaller one first.

    ``X`` has unit rows. Counts enter by their logarithms.
    """
    blocks = np.split(pairs, range(_BLOCK, len(pairs), _BLOCK))
    cosines = [np.einsum("ij,ij->i", X[block[:, 0]], X[block[:, 1]]) for block in blocks]
    counts = count_common(graph, pairs)
    ends = np.sort(strengths(graph)[pairs], axis=1)
    return np.column_stack(
        [
            np.concatenate(cosines),
            np.log1p(counts[:, 0]),
            np.log1p(counts[:, 1]),
            np.log(counts[:, 2] + 1e-3),
            np.where(counts[:, 3] > 0, np.log(counts[:, 3] + 1e-2), _NO_LINK),
            np.log1p(ends),
        ]
    )


def are_new(components: Float64Array) -> BoolArray:
    """Return which pairs are not joined, (k,), by their components."""
    return np.asarray(components[:, 4] == _NO_LINK)


@dataclass(frozen=True, eq=False)
class LinkModel:
    """What makes a link in one graph, learnt from links that were held out of it.

    Attributes
    ----------
    mean, deviation : float array (7,)
        Of the components of candidates.
    coefficients : float array (8,)
        Of the standardised components; the last one is the constant.
    knots : float array (2, q)
        Scores and their probabilities, both ascending: the calibration over candidates.
    """

    mean: Float64Array
    deviation: Float64Array
    coefficients: Float64Array
    knots: Float64Array

    def contributions(self, components: Float64Array) -> Float64Array:
        """Return what each of ``COMPONENTS`` adds to the score against the mean candidate, (k, 6)."""
        parts = (components - self.mean) / self.deviation * self.coefficients[:-1]
        return np.column_stack([parts[:, :_MONOTONE], parts[:, _MONOTONE:].sum(axis=1)])

    def score(self, components: Float64Array) -> Float64Array:
        """Return the log-odds of pairs, (k,), before calibration."""
        return np.asarray(self.contributions(components).sum(axis=1) + self.coefficients[-1])

    def probability(self, scores: Float64Array) -> Float64Array:
        """Return the calibrated probabilities of scores, (k,)."""
        return np.asarray(np.interp(scores, self.knots[0], self.knots[1]))

    @classmethod
    def fit(cls, components: Float64Array, is_link: BoolArray, calibrating: BoolArray) -> LinkModel:
        """Fit the coefficients on all pairs, and the calibration on some of them."""
        if is_link.all() or not is_link[calibrating].any():
            raise InputError(
                f"{int(is_link[calibrating].sum())} of {len(is_link)} candidates are links that were held out; without "
                "some of both kinds nothing can be learnt. The graph is too small, or has no pattern to predict by."
            )
        mean, deviation = components.mean(axis=0), components.std(axis=0)
        deviation = np.where(deviation > 1e-9, deviation, np.inf)  # a component that never varies has no part
        coefficients = _regress((components - mean) / deviation, is_link)
        model = cls(mean, deviation, coefficients, np.zeros((2, 0)))
        return replace(model, knots=_calibrate(model.score(components[calibrating]), is_link[calibrating]))


def fit_links(graph: Graph, embed: Callable[[Graph], FloatArray], *, missing: float = 0.1, seed: int = 0) -> LinkModel:
    """Learn what makes a link from edges that are held out of the graph.

    The graph without them is embedded again, because the embedding of the whole graph has seen them. Candidates
    are those of that graph and embedding. Small graphs are split up to five times.

    Parameters
    ----------
    graph : Graph
        Undirected.
    embed : callable
        Returns the embedding (n, d) of a graph.
    missing : float
        Share of the edges to hold out. The probabilities are those of a graph that lacks this share of its edges.
    seed : int
    """
    components: list[Float64Array] = []
    links: list[BoolArray] = []
    most = min(_ROUNDS, -(-_NODES // graph.n_nodes))
    while len(links) < most and sum(np.count_nonzero(part) for part in links) < _ENOUGH:
        draw = seed + 1000 * len(links)
        rest, held_out = hold_out_edges(graph, fraction=missing, seed=draw, connected=False)
        part, is_link, _ = training_pairs(rest, unit_rows(embed(rest)), held_out, seed=draw)
        components.append(part)
        links.append(is_link)
    is_link = np.concatenate(links)
    model = LinkModel.fit(np.concatenate(components), is_link, np.ones(len(is_link), dtype=np.bool_))
    # The graph lacks other edges too, which look the same and were not counted as links: with h held out and u others
    # like them, p = h / (h + u + others). What is asked for is u / (u + others), and h = (1 - missing) u.
    scores, p = model.knots
    odds = p / np.maximum(1 - p, 1e-9)
    return replace(model, knots=np.stack([scores, np.minimum(odds / (1 - missing), 1)]))


def training_pairs(
    graph: Graph, X: AnyArray, later: Int64Array, *, seed: int, repeated: bool = False
) -> tuple[Float64Array, BoolArray, BoolArray]:
    """Return components of candidates, which are ``later`` links, and which no edges; edges only if ``repeated``."""
    n = graph.n_nodes
    rng = np.random.default_rng(seed)
    nodes = np.arange(n) if n <= _NODES else np.sort(rng.choice(n, _NODES, replace=False))
    keys = np.unique(pair_keys(candidate_pairs(graph, X, nodes, seed=seed), n))
    if repeated:
        own = np.repeat(np.arange(len(nodes)), graph.degrees[nodes])
        entries = np.concatenate([np.arange(graph.indptr[u], graph.indptr[u + 1]) for u in nodes.tolist()])
        edges = np.column_stack([nodes[own], np.asarray(graph.indices[entries], dtype=np.int64)])
        keys = np.union1d(keys, pair_keys(edges[edges[:, 0] != edges[:, 1]], n))
    pairs = np.column_stack(np.divmod(keys, n))
    components = link_components(graph, X, pairs)
    new = are_new(components)
    selected = np.ones(len(pairs), dtype=np.bool_) if repeated else new
    is_link = np.isin(keys, pair_keys(later, n))
    return components[selected], is_link[selected], new[selected]


def _regress(Z: Float64Array, is_link: BoolArray) -> Float64Array:
    """Return coefficients of a ridge logistic regression, (8,), those of monotone components not negative."""
    from scipy.optimize import minimize

    rows, y = np.column_stack([Z, np.ones(len(Z))]), is_link.astype(np.float64)

    def loss(w: Float64Array) -> tuple[float, Float64Array]:
        z = rows @ w
        slope = rows.T @ (1 / (1 + np.exp(-np.clip(z, -500, 500))) - y)
        slope[:-1] += _PENALTY * w[:-1]
        return float(np.logaddexp(0, z).sum() - y @ z + _PENALTY / 2 * (w[:-1] @ w[:-1])), slope

    start = np.zeros(rows.shape[1])
    start[-1] = np.log(y.mean() / (1 - y.mean()))
    bounds = [(0, None) if k < _MONOTONE else (None, None) for k in range(len(start))]
    return np.asarray(minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x)


def _calibrate(scores: Float64Array, is_link: BoolArray) -> Float64Array:
    """Return knots (2, q) of an isotonic regression of links on scores, over groups of at least 50 pairs."""
    from scipy.optimize import isotonic_regression

    order = np.argsort(-scores, kind="stable")
    groups = np.array_split(order, max(1, min(len(order) // _GROUP, 2000)))
    sizes = np.array([len(group) for group in groups], dtype=np.float64)
    rates = np.array([(is_link[group].sum() + 0.5 * is_link.mean()) / (len(group) + 0.5) for group in groups])
    middles = np.array([scores[group].mean() for group in groups])
    fitted = isotonic_regression(rates[::-1], weights=sizes[::-1]).x
    return np.stack([middles[::-1], fitted])
