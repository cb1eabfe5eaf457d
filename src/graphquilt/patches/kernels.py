"""Growing patches, counting what they share, and choosing patch edges, compiled."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import BoolArray, Int64Array, IntArray
from graphquilt.kernels import jit, kernel

UInt64Array: TypeAlias = npt.NDArray[np.uint64]
BitArray: TypeAlias = npt.NDArray[np.uint8]  # node v is bit v & 7 of byte v >> 3
Csr: TypeAlias = tuple[IntArray, IntArray]  # indptr, indices
Demand: TypeAlias = tuple[Int64Array, Int64Array, UInt64Array]  # of each patch: at least, at most, random seed
Clusters: TypeAlias = tuple[IntArray, IntArray, Int64Array]  # labels (n,), members (n,) by cluster, starts (p + 1,)


@jit
def random_bits(state: UInt64Array) -> np.uint64:
    """Advance a splitmix64 generator (Steele et al. 2014) and return 64 random bits."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z: np.uint64 = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@jit
def _with_room(array: IntArray, used: int, more: int) -> IntArray:
    """Return the array, or a copy of its ``used`` values with room for ``more``; call it outside inner loops."""
    if used + more <= len(array):
        return array
    longer = np.empty(2 * (used + more), array.dtype)
    longer[:used] = array[:used]
    return longer


@jit
def _sample(values: IntArray, count: int, state: UInt64Array) -> IntArray:
    """Return ``count`` of ``values``, uniformly without replacement; ``values`` is shuffled."""
    for f in range(count):
        pick = f + np.int64(random_bits(state) % np.uint64(len(values) - f))
        values[f], values[pick] = values[pick], values[f]
    return values[:count]


@jit
def _ascending(values: IntArray) -> IntArray:
    """Sort ids: many of them digit by digit, which is several times faster."""
    if len(values) < 256:
        return values[np.argsort(values)]  # not sort: see graph/kernels.py
    largest = np.int64(values.max())
    source, target = values.copy(), np.empty_like(values)
    counts = np.empty(1 << 11, np.int64)
    shift = 0
    while largest >> shift > 0:
        counts[:] = 0
        for v in source:
            counts[(v >> shift) & 0x7FF] += 1
        place = 0
        for digit in range(len(counts)):
            counts[digit], place = place, place + counts[digit]
        for v in source:
            digit = (v >> shift) & 0x7FF
            target[counts[digit]] = v
            counts[digit] += 1
        source, target = target, source
        shift += 11
    return source


@kernel("borders of patches", writes=("mark",))
def frontiers(
    csr: Csr, clusters: Clusters, i: int, neighbours: Int64Array, demand: tuple[Int64Array, UInt64Array], mark: BitArray
) -> tuple[IntArray, Int64Array]:
    """Find F = N(C_i) ∩ C_j for every neighbour j in one scan of the edges of cluster i, none larger than its cap.

    ``neighbours`` ascend, ``demand`` is the cap of each and its random seed, and ``mark`` has one zero bit per node.
    Return the nodes by neighbour, ascending unless sampled, and where the nodes of each neighbour end.
    """
    indptr, indices = csr
    labels, members, starts = clusters
    cap, seeds = demand
    slot = np.full(len(starts) - 1, -1, np.int32)
    for t in range(len(neighbours)):
        slot[neighbours[t]] = t
    nodes = np.empty(256, members.dtype)
    slots: IntArray = np.empty(256, np.int32)
    n_nodes = 0
    for u in members[starts[i] : starts[i + 1]]:
        degree = indptr[u + 1] - indptr[u]
        nodes, slots = _with_room(nodes, n_nodes, degree), _with_room(slots, n_nodes, degree)
        for e in range(indptr[u], indptr[u + 1]):
            v = indices[e]
            # The clusters first: most edges lead to none of the neighbours, and the table is small.
            t = slot[labels[v]]
            if t >= 0 and (mark[v >> 3] >> (v & 7)) & 1 == 0:
                mark[v >> 3] |= np.uint8(1 << (v & 7))
                nodes[n_nodes] = v
                slots[n_nodes] = t
                n_nodes += 1
    for v in nodes[:n_nodes]:
        mark[v >> 3] = 0
    ends = np.zeros(len(neighbours) + 1, np.int64)
    for t in slots[:n_nodes]:
        ends[t + 1] += 1
    ends = np.cumsum(ends)
    place = ends[:-1].copy()
    by_slot = np.empty(n_nodes, members.dtype)
    for k in range(n_nodes):
        by_slot[place[slots[k]]] = nodes[k]
        place[slots[k]] += 1
    taken_ends = np.zeros(len(neighbours) + 1, np.int64)
    state = np.empty(1, np.uint64)
    for t in range(len(neighbours)):
        # Sorted: a sample must not depend on the order in which the frontier was found.
        part = _ascending(by_slot[ends[t] : ends[t + 1]])
        if len(part) > cap[t]:
            state[0] = seeds[t]
            part = _sample(part, cap[t], state)
        by_slot[taken_ends[t] : taken_ends[t] + len(part)] = part
        taken_ends[t + 1] = taken_ends[t] + len(part)
    return by_slot[: taken_ends[-1]].copy(), taken_ends


@jit
def _fill_row(row: IntArray, labels: IntArray, own: IntArray, j: int, columns: IntArray, used: int) -> int:
    """Put the places in cluster j of a node's neighbours there behind the ``used`` values of ``columns``."""
    for v in row:
        if labels[v] == j:
            columns[used] = np.searchsorted(own, v)
            used += 1
    return used


@jit
def _take_random(pool: Int64Array, untried: int, mark: BoolArray, state: UInt64Array) -> tuple[int, int]:
    """Mark a random node of those in the pool that are not marked; return it, and how many are left untried."""
    while True:
        k = np.int64(random_bits(state) % np.uint64(untried))
        untried -= 1
        v = pool[k]
        pool[k] = pool[untried]
        if not mark[v]:
            mark[v] = True
            return v, untried


@kernel("growing patches")
def grow(
    csr: Csr, clusters: Clusters, j: int, taken: tuple[IntArray, Int64Array], demand: Demand
) -> tuple[IntArray, Int64Array, int]:
    """Let patches take nodes of cluster j, ring by ring, until each has what it needs: the second half of Algorithm 2.

    ``taken`` are the nodes that each has already, and where they begin. Return the nodes, where those of each patch
    begin, and how many patches had an exhausted frontier that was seeded again.
    """
    labels, members, starts = clusters
    own = members[starts[j] : starts[j + 1]]
    given, begins = taken
    need, cap, seeds = demand
    rows = np.full((len(own), 2), -1, np.int64)
    columns: IntArray = np.empty(1024, np.int32)
    n_columns = 0
    result = np.empty(cap.sum(), members.dtype)
    ends = np.zeros(len(need) + 1, np.int64)
    mark = np.zeros(len(own), np.bool_)
    state = np.empty(1, np.uint64)
    n_reseeded = 0
    for t in range(len(need)):
        state[0] = seeds[t]
        frontier: IntArray = np.searchsorted(own, given[begins[t] : begins[t + 1]]).astype(np.int32)
        mark[:] = False
        mark[frontier] = True
        pool = np.empty(0, np.int64)
        untried = len(own)
        n_taken = 0
        while True:
            if len(frontier) > cap[t] - n_taken:
                frontier = _sample(frontier, cap[t] - n_taken, state)
            result[ends[t] + n_taken : ends[t] + n_taken + len(frontier)] = own[frontier]
            n_taken += len(frontier)
            if n_taken >= need[t]:
                break
            ring: IntArray = np.empty(64, np.int32)
            n_ring = 0
            for u in frontier:
                if rows[u, 0] < 0:
                    rows[u, 0] = n_columns
                    begin, end = csr[0][own[u]], csr[0][own[u] + 1]
                    columns = _with_room(columns, n_columns, end - begin)
                    n_columns = _fill_row(csr[1][begin:end], labels, own, j, columns, n_columns)
                    rows[u, 1] = n_columns
                ring = _with_room(ring, n_ring, rows[u, 1] - rows[u, 0])
                for v in columns[rows[u, 0] : rows[u, 1]]:
                    if not mark[v]:
                        mark[v] = True
                        ring[n_ring] = v
                        n_ring += 1
            if n_ring == 0:
                # Differs from the paper: an exhausted frontier is seeded again with a random node of the cluster.
                if len(pool) == 0:
                    pool = np.arange(len(own))
                    n_reseeded += 1
                ring[0], untried = _take_random(pool, untried, mark, state)
                n_ring = 1
            frontier = _ascending(ring[:n_ring])
        ends[t + 1] = ends[t] + n_taken
    return result[: ends[-1]], ends, n_reseeded


@kernel("edges inside patches", writes=("mark",))
def degrees_inside(csr: Csr, nodes: IntArray, mark: BitArray) -> Int64Array:
    """Count each node's neighbours among the sorted ``nodes (k,)``, (k,); ``mark`` has one zero bit per node."""
    indptr, indices = csr
    for u in nodes:
        mark[u >> 3] |= np.uint8(1 << (u & 7))
    counts = np.zeros(len(nodes), np.int64)
    for k, u in enumerate(nodes):
        a, b = indptr[u], indptr[u + 1]
        if b - a > 16 * len(nodes):
            row = indices[a:b]
            for v in nodes:
                place = np.searchsorted(row, v)
                if place < len(row) and row[place] == v:
                    counts[k] += 1
        else:
            count = 0
            for e in range(a, b):
                v = indices[e]
                count += (mark[v >> 3] >> (v & 7)) & 1
            counts[k] = count
    for u in nodes:
        mark[u >> 3] = 0
    return counts


@kernel("overlaps of patches")
def overlap_sizes(nodes: IntArray, starts: Int64Array, edges: Int64Array) -> Int64Array:
    """Count the nodes shared by the two patches of each edge; patches are sorted runs of ``nodes``."""
    result = np.zeros(len(edges), np.int64)
    for k in range(len(edges)):
        a, a_end = starts[edges[k, 0]], starts[edges[k, 0] + 1]
        b, b_end = starts[edges[k, 1]], starts[edges[k, 1] + 1]
        while a < a_end and b < b_end:
            if nodes[a] < nodes[b]:
                a += 1
            elif nodes[a] > nodes[b]:
                b += 1
            else:
                result[k] += 1
                a += 1
                b += 1
    return result


@kernel("choice of patch edges", writes=("chosen", "degree", "parent"))
def choose_edges(
    edges: Int64Array,
    order: Int64Array,
    limit: Int64Array,
    count: int,
    chosen: BoolArray,
    degree: Int64Array,
    parent: Int64Array,
) -> int:
    """Take edges in ``order`` while both ends are below their ``limit``, at most ``count``; return how many.

    Those that join two trees of the forest ``parent`` are taken or, if that is empty, all.
    """
    taken = 0
    for k in order:
        if taken == count:
            break
        i, j = edges[k, 0], edges[k, 1]
        if chosen[k] or degree[i] >= limit[i] or degree[j] >= limit[j]:
            continue
        if len(parent) > 0:
            a, b = i, j
            while parent[a] != a:
                parent[a] = parent[parent[a]]
                a = parent[a]
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            if a == b:
                continue
            parent[max(a, b)] = min(a, b)
        chosen[k] = True
        degree[i] += 1
        degree[j] += 1
        taken += 1
    return taken
