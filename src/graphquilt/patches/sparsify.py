"""Algorithm 1: choose the pairs of neighbouring patches that will be aligned.

A maximum spanning tree keeps the patch graph connected, and further edges are sampled in proportion to their weight.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from graphquilt.arrays import Float64Array, Int64Array, pieces
from graphquilt.errors import ConvergenceError, InputError
from graphquilt.graph import Graph, group, short_labels
from graphquilt.graph import kernels as kernels_of_graphs
from graphquilt.linalg.laplacian import adjacency, components, conjugate_gradients, laplacian, solve_grounded
from graphquilt.patches import kernels
from graphquilt.progress import ProgressCallback, report

logger = logging.getLogger(__name__)
_STEPS = 100  # parts of the clusters after which progress is reported
_CHUNK = 1 << 20  # patch edges whose logarithms are taken at once
CG_ITERATIONS = 300  # an expander needs tens; a long thin graph needs more, and its sparse factors are cheap


class EdgeWeight(Protocol):
    """Anything that turns the conductances of patch edges into the weights by which Algorithm 1 chooses edges."""

    def __call__(self, edges: Int64Array, conductances: Float64Array, n_patches: int) -> Float64Array:
        """Return one positive weight for each of ``edges`` (m, 2)."""
        ...


@dataclass(frozen=True)
class Conductance:
    """Weigh patch edges by conductance alone, as the paper does at scale: w = c.

    Examples
    --------
    >>> Conductance()(np.array([[0, 1]]), np.array([0.5]), 2).tolist()
    [0.5]
    """

    def __call__(self, edges: Int64Array, conductances: Float64Array, n_patches: int) -> Float64Array:  # noqa: ARG002
        """Return the conductances."""
        return conductances


@dataclass(frozen=True)
class Resistance:
    """Weigh patch edges by effective resistance times conductance: w = r c, the leverage of each edge.

    Parameters
    ----------
    exact_up_to : int
        Up to this many patches resistances are exact, by a dense factorisation (8 p² bytes, three times); beyond they
        are estimated by random projection. The log says which was used.
    projections : int
        Number of random projections; the relative standard deviation of the estimate is about sqrt(2 / projections).

    Examples
    --------
    >>> triangle = np.array([[0, 1], [0, 2], [1, 2]])
    >>> Resistance()(triangle, np.ones(3), 3).round(4).tolist()
    [0.6667, 0.6667, 0.6667]
    """

    exact_up_to: int = 4000
    projections: int = 200
    seed: int = 0

    def __call__(self, edges: Int64Array, conductances: Float64Array, n_patches: int) -> Float64Array:
        """Return resistance times conductance of each edge."""
        exact, k = n_patches <= self.exact_up_to, self.projections
        how = "exact" if exact else f"estimated by {k} random projections (more than {self.exact_up_to} patches)"
        logger.info(f"effective resistances of {n_patches} patches: {how}")
        if exact:
            return effective_resistance(edges, conductances, n_patches) * conductances
        return projected_resistance(edges, conductances, n_patches, projections=k, seed=self.seed) * conductances


class Sparsified(NamedTuple):
    """The edges that Algorithm 1 kept."""

    edges: Int64Array  # (m, 2), i < j, in lexicographic order
    target: int  # number of edges for the mean degree; a degree limit may have allowed fewer
    at_limit: Int64Array  # patches that have reached their degree limit
    beyond_limit: Int64Array  # patches that had to exceed their limit to keep the patch graph connected


def conductance(
    graph: Graph, labels: npt.ArrayLike, *, progress: ProgressCallback | None = None
) -> tuple[Int64Array, Float64Array]:
    """Return the pairs (m, 2) of clusters joined by an edge, i < j in lexicographic order, and their conductances (m,).

    c_ij = cut(i, j) / min(vol_i, vol_j), where vol counts the (weighted) degrees of a cluster's nodes.
    """
    graph = graph.undirected()
    short = short_labels(labels, graph.n_nodes)
    clusters = short, *group(short)
    p, csr = len(clusters[2]) - 1, graph.csr
    steps = np.unique(np.linspace(0, p, min(p, _STEPS) + 1).astype(np.int64))
    parts = []
    for first, last in pairwise(steps.tolist()):
        parts.append(kernels_of_graphs.cluster_pairs(csr, clusters, first, last, True))
        report(progress, "conductances", last, p)
    volume = kernels_of_graphs.volumes(csr, short, p)
    del short, clusters
    n_pairs = sum(len(columns) for _, columns, _ in parts)
    edges, conductances, done = np.empty((n_pairs, 2), dtype=np.int64), np.empty(n_pairs), 0
    for first, last in pairwise(steps.tolist()):
        counts, columns, cuts = parts.pop(0)
        here = slice(done, done + len(columns))
        edges[here, 0], edges[here, 1] = np.repeat(np.arange(first, last), counts), columns
        conductances[here] = cuts / volume[edges[here]].min(axis=1)
        done += len(columns)
    return edges, conductances


def sparsify(
    edges: Int64Array,
    weights: Float64Array,
    n_patches: int,
    *,
    degree: float,
    limit: Int64Array | None = None,
    seed: int | np.random.Generator = 0,
) -> Sparsified:
    """Keep a maximum spanning tree and a sample of the other edges, to a mean degree (Algorithm 1).

    Of ``edges`` (m, 2) with positive ``weights`` (m,), min(m, max(p - 1, floor(k p / 2))) are kept for the mean degree
    k, those of the tree included. Sampling without replacement in proportion to w is exact: the largest log w + Gumbel
    noise. The tree is Kruskal's among the edges that respect the largest degrees ``limit`` (p,), doubled where needed.
    """
    if not 0 < degree < float("inf"):
        raise InputError(f"the mean degree of a patch graph must be positive and finite, not {degree}.")
    if len(weights) != len(edges):
        raise InputError(f"{len(edges)} patch edges and {len(weights)} weights.")
    if len(edges) and not (np.isfinite(weights).all() and weights.min() > 0):
        k = int((~np.isfinite(weights) | (weights <= 0)).argmax())
        raise InputError(f"the weight of patch edge {tuple(edges[k].tolist())} is {weights[k]}; it must be positive.")
    rng = np.random.default_rng(seed)
    # Differs from the paper: k is the mean degree as its prose says, with the tree included (its listing gives 2k).
    target = min(len(edges), max(n_patches - 1, int(degree * n_patches / 2)))
    bound = np.full(n_patches, np.iinfo(np.int64).max) if limit is None else np.maximum(limit, 1).astype(np.int64)
    chosen = np.zeros(len(edges), dtype=np.bool_)
    counts = np.zeros(n_patches, dtype=np.int64)
    parent = np.empty(n_patches, dtype=np.int64)
    needed, allowed = n_patches - kernels_of_graphs.join_ends(edges, parent), bound.copy()
    parent[:] = np.arange(n_patches)
    taken = 0
    while taken < needed:
        for by_weight in _descending(weights, 8 * target):
            taken += kernels.choose_edges(edges, by_weight, allowed, needed - taken, chosen, counts, parent)
            if taken == needed:
                break
        allowed *= 2
    beyond = np.flatnonzero(counts > bound)
    keys = rng.gumbel(size=len(weights))
    for here in pieces(len(keys), _CHUNK):
        keys[here] += np.log(weights[here])
    left = target - taken
    for by_key in _descending(keys, 8 * target):
        left -= kernels.choose_edges(edges, by_key, bound, left, chosen, counts, parent[:0])
        if left == 0:
            break
    at_limit = np.flatnonzero(counts >= bound)
    return Sparsified(edges[chosen], target, at_limit, beyond)


def _descending(values: Float64Array, count: int) -> Iterator[Int64Array]:
    """Yield the places of values in descending order, of equal ones the first first, in pieces of about ``count``."""
    above = np.inf
    left = len(values)
    while left > 0:
        below = values[values < above] if left < len(values) else values
        least = -np.inf if left <= count else np.partition(below, left - count)[left - count]
        del below
        places = np.flatnonzero((values >= least) & (values < above) if left < len(values) else values >= least)
        yield places[np.argsort(-values[places], kind="stable")]
        above, left = least, left - len(places)


def effective_resistance(edges: Int64Array, conductances: Float64Array, n: int) -> Float64Array:
    """Return the resistance between the ends of each edge in the network of conductances, exactly.

    r_ij = (e_i - e_j)' L⁺ (e_i - e_j) with L the Laplacian. Adding 11'/n inside each component makes L definite
    and leaves every r_ij inside it unchanged, so one dense inverse of that matrix serves: O(n³) time, three n × n
    arrays.
    """
    from scipy.linalg import lapack

    A, component = adjacency(edges, conductances, n), components(edges, n)
    resistances = np.empty(len(edges))
    sizes = np.bincount(component)
    place = np.empty(n, dtype=np.int64)
    of_edge = component[edges[:, 0]] if len(edges) else np.empty(0, dtype=np.int64)
    for c in np.unique(of_edge):
        nodes = np.flatnonzero(component == c)
        place[nodes] = np.arange(len(nodes))
        L = np.asfortranarray(-A[nodes][:, nodes].toarray())
        degree = -L.sum(axis=1)
        # The scale of the added constant is that of the Laplacian, which keeps the factorisation well conditioned.
        L += degree.mean() / sizes[c]
        L[np.diag_indices_from(L)] += degree
        factor, info = lapack.dpotrf(L, lower=1, overwrite_a=1)
        if info != 0:
            raise ConvergenceError(
                f"the Laplacian of a patch graph component of {sizes[c]} patches is singular at pivot {info}: its "
                "conductances span too many orders of magnitude. Use Conductance() as the edge weight.",
                residual=float("nan"),
            )
        inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
        here = of_edge == c
        i, j = place[edges[here, 0]], place[edges[here, 1]]
        low, high = np.minimum(i, j), np.maximum(i, j)
        diagonal = inverse.diagonal()
        resistances[here] = diagonal[i] + diagonal[j] - 2 * inverse[high, low]
    return resistances


def projected_resistance(
    edges: Int64Array, conductances: Float64Array, n: int, *, projections: int = 200, tol: float = 1e-4, seed: int = 0
) -> Float64Array:
    """Estimate the resistance between the ends of each edge by random projection (Spielman and Srivastava 2011).

    The columns of Z = Q W^(1/2) B L⁺, with Q of random signs over sqrt(projections), keep the squared distances
    r_ij = |Z (e_i - e_j)|² to a relative standard deviation of about sqrt(2 / projections). Each row of Z is one
    Laplacian system. Estimates are clipped to r_ij c_ij <= 1.
    """
    L, component = laplacian(edges, conductances, n), components(edges, n)
    rng = np.random.default_rng(seed)
    squared = np.zeros(len(edges))
    block = max(1, min(projections, (1 << 27) // max(8 * n, 1)))
    entries = np.concatenate([np.sqrt(conductances), -np.sqrt(conductances)])
    places = edges.T.ravel(), np.tile(np.arange(len(edges)), 2)
    incidence = sp.csr_array((entries, places), shape=(n, len(edges)))
    for done in range(0, projections, block):
        width = min(block, projections - done)
        right = np.empty((n, width))
        for column in range(width):
            right[:, column] = incidence @ rng.choice([-1.0, 1.0], size=len(edges))
        Z = _solve(L, component, right, tol)
        for here in pieces(len(edges), 1 << 16):
            squared[here] += ((Z[edges[here, 0]] - Z[edges[here, 1]]) ** 2).sum(axis=1)
    return np.minimum(squared / projections, 1 / conductances)


def _solve(L: sp.csr_array, component: Int64Array, right: Float64Array, tol: float) -> Float64Array:
    """Solve L Z = right, each column orthogonal to the constants of each component."""
    Z, residual = conjugate_gradients(L, right, tol=tol, max_iterations=CG_ITERATIONS)
    if residual > tol:
        logger.info(f"conjugate gradients reached {residual:.1e} in {CG_ITERATIONS} steps: factorising instead")
        Z = solve_grounded(L, right, component)
        scale = np.maximum(np.linalg.norm(right, axis=0), np.finfo(float).tiny)
        residual = float((np.linalg.norm(L @ Z - right, axis=0) / scale).max())
        if not residual < tol:
            raise ConvergenceError(
                f"the resistances of {len(component)} patches reached a residual of {residual:.1e}, not {tol:.1e}: the "
                "conductances span too many orders of magnitude. Use Conductance() as the edge weight.",
                residual=residual,
            )
    means = np.zeros((int(component.max()) + 1, Z.shape[1]))
    np.add.at(means, component, Z)
    return np.asarray(Z - (means / np.bincount(component)[:, None])[component])
