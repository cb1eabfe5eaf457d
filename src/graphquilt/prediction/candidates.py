"""Pairs of nodes that may become links, and what they have in common: compiled passes over CSR arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, Int64Array, IntArray
from graphquilt.graph import Graph
from graphquilt.kernels import kernel

TWO_STEPS, NEAR = 20, 10  # candidates of a node: by common neighbours, and by the cosine of rows
_EXACT = 1 << 31  # pairs of rows that are compared one by one; above, a forest finds most of the nearest
_TREES, _LEAF = 4, 128
_ROWS = 1024  # rows compared with all others at a time


def candidate_lists(graph: Graph, X: AnyArray, nodes: Int64Array, *, seed: int = 0) -> AnyArray:
    """Return 20 candidates of each node by resource allocation and 10 by unit rows ``X``, (n, 30), -1 for none."""
    near = nearest_rows(X, nodes, NEAR, seed=seed).astype(np.int32 if len(X) < 2**31 else np.int64)
    return np.concatenate([nodes_two_steps_away(graph, nodes, TWO_STEPS).astype(near.dtype), near], axis=1)


def listed_pairs(nodes: Int64Array, lists: AnyArray) -> Int64Array:
    """Return the pairs of nodes and their candidates, each once, (k, 2), the node first."""
    lists = np.sort(lists, axis=1)
    first = lists >= 0
    first[:, 1:] &= lists[:, 1:] != lists[:, :-1]
    return np.column_stack([nodes[np.nonzero(first)[0]], lists[first]])


def candidate_pairs(graph: Graph, X: AnyArray, nodes: Int64Array, *, seed: int = 0) -> Int64Array:
    """Return the candidates of some nodes as pairs, (k, 2); a pair may come twice, once from each side."""
    return listed_pairs(nodes, candidate_lists(graph, X, nodes, seed=seed))


def pair_keys(pairs: Int64Array, n_nodes: int) -> Int64Array:
    """Return one number for each pair of nodes, whatever their order, (k,)."""
    return np.asarray(pairs.min(axis=1) * n_nodes + pairs.max(axis=1))


def unit_rows(X: AnyArray) -> AnyArray:
    """Return rows of length 1 in single precision, (n, d); rows of zeros stay."""
    rows = np.array(X, dtype=np.float32)
    for start in range(0, len(rows), 1 << 16):
        block = rows[start : start + (1 << 16)]
        lengths = np.sqrt(np.einsum("ij,ij->i", block, block))
        block /= np.where(lengths > 0, lengths, 1)[:, None]
    return rows


def nearest_rows(X: AnyArray, nodes: Int64Array, k: int, *, seed: int = 0) -> Int64Array:
    """Return for each node those with the largest cosine, (len(nodes), k), in no order, -1 where there are fewer.

    ``X`` has unit rows. Up to 2³¹ pairs of rows are compared exactly. For more, four random trees halve the rows until
    128 are left together, and each node is compared with those beside it.
    """
    k = min(k, len(X) - 1)
    if k < 1 or len(nodes) == 0:
        return np.full((len(nodes), max(k, 0)), -1, dtype=np.int64)
    if len(X) * len(nodes) <= _EXACT or len(X) <= _LEAF:
        everything = np.arange(len(X))
        blocks = np.split(nodes, range(_ROWS, len(nodes), _ROWS))
        return np.concatenate([_nearest_among(X, block, everything, k)[0] for block in blocks])
    place = np.full(len(X), -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    found = np.full((len(nodes), _TREES * k), -1, dtype=np.int32 if len(X) < 2**31 else np.int64)
    cosines = np.full(found.shape, -3, dtype=np.float32)
    rng = np.random.default_rng(seed)
    for tree in range(0, _TREES * k, k):
        for leaf in _leaves(X, rng):
            here = leaf[place[leaf] >= 0]
            if len(here):
                ids, values = _nearest_among(X, here, leaf, k)
                found[place[here], tree : tree + k], cosines[place[here], tree : tree + k] = ids, values
    parts = (slice(start, start + (1 << 16)) for start in range(0, len(nodes), 1 << 16))
    return np.concatenate([_best_once(found[part], cosines[part], k) for part in parts])


def _nearest_among(X: AnyArray, nodes: Int64Array, others: Int64Array, k: int) -> tuple[Int64Array, AnyArray]:
    """Return the k of ``others`` nearest to each node, and their cosines."""
    products = X[nodes] @ (X if len(others) == len(X) else X[others]).T
    own = np.searchsorted(others, nodes)
    products[np.arange(len(nodes)), own] = -3  # the node itself
    order = np.argpartition(products, len(others) - k, axis=1)[:, -k:] if k < len(others) else np.argsort(products)
    values = np.take_along_axis(products, order, axis=1)
    return np.where(values < -2, -1, others[order]), values


def _best_once(ids: AnyArray, cosines: AnyArray, k: int) -> Int64Array:
    """Return the k ids of each row with the largest cosines, none twice."""
    order = np.argsort(ids, axis=1)
    ids, cosines = (np.take_along_axis(array, order, axis=1) for array in (ids, cosines))
    cosines[:, 1:][ids[:, 1:] == ids[:, :-1]] = -3
    best = np.argpartition(cosines, cosines.shape[1] - k, axis=1)[:, -k:]
    kept = np.take_along_axis(cosines, best, axis=1) > -3
    return np.where(kept, np.take_along_axis(ids, best, axis=1), -1)


def _leaves(X: AnyArray, rng: np.random.Generator) -> Iterator[Int64Array]:
    """Halve the rows at the median of the direction between two random rows, until few are left; yield them sorted."""
    groups = [np.arange(len(X))]
    while groups:
        group = groups.pop()
        if len(group) <= _LEAF:
            yield np.sort(group)
            continue
        a, b = X[rng.choice(group, 2, replace=False)]
        order = np.argpartition(X[group] @ (a - b), len(group) // 2)
        groups += [group[order[: len(group) // 2]], group[order[len(group) // 2 :]]]


_WORK = 1 << 30  # entries that the search for common neighbours may look at, and 64 more for each entry of the graph


def count_common(graph: Graph, pairs: Int64Array) -> Float64Array:
    r"""Return what the neighbours of each pair have in common, (k, 4).

    The columns are, over the common neighbours :math:`w`, with strengths :math:`s`, and 1 for an unweighted edge:
    common neighbours :math:`\sum_w m_w`, Adamic-Adar :math:`\sum_w m_w / \log(1 + s_w)`, resource allocation
    :math:`\sum_w m_w / s_w`, where :math:`m_w` is the smaller of both weights; and the weight of the pair itself.
    """
    counts = np.zeros((len(pairs), 4))
    _count_common(graph.csr, strengths(graph), pairs, counts)
    return counts


def strengths(graph: Graph) -> Float64Array:
    """Return the sum of the weights of each node's edges, (n,); its degree where there are no weights."""
    if graph.weights is None:
        return np.diff(graph.indptr).astype(np.float64)
    return np.asarray(graph.adjacency @ np.ones(graph.n_nodes))


def nodes_two_steps_away(graph: Graph, nodes: Int64Array, limit: int) -> Int64Array:
    """Return for each node those with the most resource allocation to it, (k, limit), -1 where there are fewer.

    Neighbours of a node are not among them. Hubs are skipped as common neighbours where all paths through them are
    too many to look at; they add least to the sum.
    """
    partners = np.full((len(nodes), limit), -1, dtype=np.int64)
    scratch = np.zeros(graph.n_nodes, dtype=np.float32), np.empty(graph.n_nodes, dtype=np.int32)
    degrees = np.sort(graph.degrees)
    work = np.cumsum(degrees.astype(np.float64) ** 2)
    place = int(np.searchsorted(work, _WORK + 64.0 * graph.n_entries, side="right"))
    hub = int(degrees[min(place, len(degrees) - 1)]) if len(degrees) else 0
    _two_steps(graph.csr, strengths(graph), (nodes, hub), scratch, partners)
    return partners


@kernel("counts of common neighbours", writes=("counts",))
def _count_common(
    csr: tuple[IntArray, IntArray, Float64Array], strength: Float64Array, pairs: Int64Array, counts: Float64Array
) -> None:
    """Walk along the shorter row, and search the longer one from where the last search ended."""
    indptr, indices, weights = csr
    weighted = len(weights) > 0
    for k in range(len(pairs)):
        u, v = pairs[k, 0], pairs[k, 1]
        if indptr[u + 1] - indptr[u] > indptr[v + 1] - indptr[v]:
            u, v = v, u
        a, b, end = indptr[u], indptr[v], indptr[v + 1]
        while a < indptr[u + 1]:
            w = indices[a]
            if w == v:
                counts[k, 3] = weights[a] if weighted else 1.0
            step = 1
            while b + step < end and indices[b + step] < w:
                step *= 2
            high = min(b + step, end)
            while b < high:
                middle = (b + high) // 2
                if indices[middle] < w:
                    b = middle + 1
                else:
                    high = middle
            if b == end:
                break
            if indices[b] == w and w not in (u, v):
                m = min(weights[a], weights[b]) if weighted else 1.0
                counts[k, 0] += m
                counts[k, 1] += m / np.log(1 + strength[w])
                counts[k, 2] += m / strength[w]
            a += 1
        while a < indptr[u + 1]:  # the row of v is used up; v may still be a neighbour of u
            if indices[a] == v:
                counts[k, 3] = weights[a] if weighted else 1.0
            a += 1


@kernel("nodes two steps away", writes=("scratch", "partners"))
def _two_steps(
    csr: tuple[IntArray, IntArray, Float64Array],
    strength: Float64Array,
    search: tuple[Int64Array, int],
    scratch: tuple[FloatArray, IntArray],
    partners: Int64Array,
) -> None:
    indptr, indices, weights = csr
    nodes, hub = search
    sums, touched = scratch
    limit, weighted = partners.shape[1], len(weights) > 0
    best = np.empty(limit)
    for k in range(len(nodes)):
        u, n_touched = nodes[k], 0
        for a in range(indptr[u], indptr[u + 1]):
            w = indices[a]
            if w == u or indptr[w + 1] - indptr[w] > hub:
                continue
            for b in range(indptr[w], indptr[w + 1]):
                v = indices[b]
                if sums[v] == 0:
                    touched[n_touched] = v
                    n_touched += 1
                sums[v] += (min(weights[a], weights[b]) if weighted else 1.0) / strength[w]
        sums[u] = 0
        for a in range(indptr[u], indptr[u + 1]):
            sums[indices[a]] = 0
        count, least = 0, 0
        for t in range(n_touched):
            v = touched[t]
            value, sums[v] = sums[v], 0
            if value == 0:
                continue
            if count < limit:
                best[count], partners[k, count] = value, v
                count += 1
            elif value > best[least]:
                best[least], partners[k, least] = value, v
            else:
                continue
            if count == limit:
                least = int(np.argmin(best))
