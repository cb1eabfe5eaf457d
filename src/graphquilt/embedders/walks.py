"""Random walks with restart in a patch, exact inside and on average outside, and the parts of a signal they spread.

Where direction is kept, a node is there twice, as a source and as a target, in an undirected cover of the graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray, Float32Array
from graphquilt.embedders.shared_start import FarField, Survey, check_far_clusters
from graphquilt.errors import InputError
from graphquilt.graph import Graph

Table: TypeAlias = Callable[[int], Float32Array] | None  # averages over far clusters before each step
Columns: TypeAlias = Callable[[int, int], Float32Array]
COUPLING = 0.1  # mean edges: the weight of the edge between a node as a source and the same node as a target
WALK_RESTART, WALK_STEPS = 0.15, 8  # of the walk that starts at a node and ends in a cluster
_NONE = np.empty(0, dtype=np.int32)


def degrees_with_loops(graph: Graph) -> tuple[Float32Array, Float32Array]:
    """Return the weighted degree of each node with its loop, and the loop, (n,) each; it weighs as the mean edge."""
    counts = graph.degrees
    if graph.weights is None:
        return (counts + 1).astype(np.float32), np.ones(graph.n_nodes, dtype=np.float32)
    total = _row_sums(graph.indptr, graph.weights)
    loop = np.where(counts > 0, total / np.maximum(counts, 1), 1.0)
    return (total + loop).astype(np.float32), loop.astype(np.float32)


def _row_sums(indptr: AnyArray, weights: AnyArray) -> AnyArray:
    ends: AnyArray = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)])
    return np.asarray(ends[indptr[1:]] - ends[indptr[:-1]])


@dataclass(frozen=True, eq=False)
class Walk:
    """H ← a X + (1 - a) D^-1 ((A + loops) H + B T): a walk from the nodes of a patch, which B leads out of it.

    ``needed`` numbers the far clusters that the patch has edges to, and B refers to these.
    """

    inside: tuple[AnyArray, AnyArray, AnyArray]
    outside: tuple[AnyArray, AnyArray, AnyArray]
    scale: tuple[Float32Array, Float32Array]  # 1 / D, loops
    needed: AnyArray
    to_columns: tuple[float, int] = (WALK_RESTART, WALK_STEPS)

    @property
    def leaving(self) -> Float32Array:
        """The share of each step that leaves the patch, (n,), known by the degrees in the whole graph."""
        indptr, _, weights = self.inside
        inside = _row_sums(indptr, weights) if len(weights) else np.diff(indptr).astype(np.float64)
        inverse, loops = self.scale
        return np.clip(1 - (inside + loops) * inverse, 0, 1).astype(np.float32)

    def of_values(
        self, X: Float32Array, table: Table, *, restart: float, steps: int, columns: AnyArray = _NONE, first: int = 0
    ) -> Iterator[Float32Array]:
        """Yield H after each step of a walk that begins with H = X; the arrays are overwritten later.

        ``table(i)`` (k, b) is the average over each needed cluster before step i; None if nothing is known outside.
        If X has a single 1 in each row, it may be given by ``columns``, of which those from ``first`` on are in X.
        """
        from graphquilt.embedders.kernels import walk_step

        H, out, nothing = np.array(X), np.empty_like(X), np.empty((0, X.shape[1]), dtype=np.float32)
        start = (restart, nothing if len(columns) else X, columns, first)
        for i in range(steps):
            walk_step(self.inside, self.outside, self.scale, start, nothing if table is None else table(i), H, out)
            H, out = out, H
            yield H

    def last_of_values(self, X: Float32Array, *, restart: float, steps: int) -> Float32Array:
        """Return H after the last step of a walk of which nothing is known outside."""
        *_, H = X, *self.of_values(X, None, restart=restart, steps=steps)
        return H

    def of_columns(self, columns: AnyArray, begin: int, end: int, table: Table) -> Float32Array:
        """Return H after the walk to clusters, for the signal with a 1 in one column of each row: begin..end-1."""
        H = np.zeros((len(self.scale[0]), end - begin), dtype=np.float32)
        inside = np.flatnonzero((columns >= begin) & (columns < end))
        H[inside, columns[inside] - begin] = 1
        restart, steps = self.to_columns
        *_, H = self.of_values(H, table, restart=restart, steps=steps, columns=columns, first=begin)
        return H


def walk_in(graph: Graph, far: FarField | None = None, *, tables: list[AnyArray] | None = None) -> Walk:
    """Return the walk in an undirected patch; without tables of far averages it ends where it would leave."""
    if far is not None and "degree" in far.nodes:
        degree, loop = (np.asarray(far.nodes[name], dtype=np.float32) for name in ("degree", "loop"))
    else:
        degree, loop = degrees_with_loops(graph)
    none, needed = np.empty(0, np.float32), np.asarray(np.empty(0, dtype=np.int64))
    outside = (np.zeros(graph.n_nodes + 1, dtype=np.int64), _NONE, none)
    if far is not None and tables:
        check_far_clusters(far, min(table.shape[1] for table in tables))
        needed, places = _present(far.clusters)
        strengths = none if far.weights is None else np.asarray(far.weights, dtype=np.float32)
        outside = (np.asarray(far.indptr), places.astype(np.int32), strengths)
    weights = none if graph.weights is None else np.asarray(graph.weights, dtype=np.float32)
    csr = (np.asarray(graph.indptr), np.asarray(graph.indices), weights)
    restart, steps = (WALK_RESTART, WALK_STEPS) if far is None else far.shared.get("walk", (WALK_RESTART, WALK_STEPS))
    return Walk(csr, outside, ((1 / degree).astype(np.float32), loop), needed, (float(restart), int(steps)))


def _present(numbers: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return the distinct numbers, ascending, and the place of each number among them."""
    present = np.bincount(numbers) > 0
    return np.flatnonzero(present), (np.cumsum(present) - 1)[numbers]


@dataclass(frozen=True, eq=False)
class Block:
    """Some columns of one part, (n, b), before its rows get unit length."""

    part: str
    first: int  # the number of its first column among those of the part
    values: Float32Array
    spread: float = 0.0  # sum of squares of what was walked
    missed: float = 0.0  # of its distance from the averages over the far clusters of the nodes


class FarRows:
    """The rows of ``tables`` (steps + 1, k, w) of averages over far clusters that a patch needs, if any are known.

    ``own`` (n,) is the far cluster of each node of the patch.
    """

    def __init__(self, tables: AnyArray | None, walk: Walk, own: AnyArray | None) -> None:
        self.tables, self.walk = tables, walk
        self.own = None if own is None or tables is None else _present(own)

    def before(self, begin: int, end: int) -> Table:
        """Return what gives the columns begin..end-1 of the needed rows before each step."""
        tables = self.tables
        if tables is None:
            return None
        return lambda step: np.ascontiguousarray(tables[step, self.walk.needed, begin:end], dtype=np.float32)

    def measure_missed(self, H: Float32Array, begin: int, end: int) -> tuple[float, float]:
        """Return the sums of squares of H after the last step, and of its distance from the averages."""
        if self.tables is None or self.own is None:
            return 0.0, 0.0
        clusters, place = self.own
        distance = np.asarray(self.tables[-1, clusters, begin:end], dtype=np.float32)[place]
        distance -= H
        return float(np.einsum("ij,ij->", H, H)), float(np.einsum("ij,ij->", distance, distance))


Task: TypeAlias = Callable[[], list[Block]]


def column_blocks(walk: Walk, columns: AnyArray, gain: Float32Array, far: FarRows, *, block: int) -> Iterator[Task]:
    """Yield tasks that compute log(1 + P / share), where P is how often a walk from each node ends in each cluster.

    ``columns`` (n,) is the cluster of each node, -1 for none, and ``gain`` (c,) is 1 / share.
    """
    for begin in range(0, len(gain), block):

        def task(begin: int = begin, end: int = min(begin + block, len(gain))) -> list[Block]:
            H = walk.of_columns(columns, begin, end, far.before(begin, end))
            figures = far.measure_missed(H, begin, end)
            H *= gain[begin:end]
            H += 1
            return [Block("clusters", begin, np.log(H, out=H), *figures)]

        yield task


def feature_blocks(
    walk: Walk, X: Columns, far: FarRows, parts: Mapping[str, int], *, block: int, restart: float, steps: int
) -> Iterator[Task]:
    """Yield tasks that spread the columns first..last-1 of X over the graph, and return the parts that are asked for.

    With S = D^-1/2 (A + loops) D^-1/2 these are X itself, S X, and H = Σ_{i<k} a(1-a)^i S^i X + (1-a)^k S^k X. The walk
    is that of D^-1/2 H, which is the random walk, and its first step gives S X. ``parts`` has the width of each part.
    """
    root, a, width = (1 / np.sqrt(walk.scale[0])).astype(np.float32)[:, None], np.float32(restart), max(parts.values())
    last = steps if "spread" in parts else int("near" in parts)
    for begin in range(0, width, block):

        def task(begin: int = begin, end: int = min(begin + block, width)) -> list[Block]:
            raw = X(begin, end)
            blocks = [Block("raw", begin, raw)] if "raw" in parts else []
            H = raw / root
            for i, H in enumerate(walk.of_values(H, far.before(begin, end), restart=restart, steps=last)):  # noqa: B020
                if i == 0 and "near" in parts:
                    near = np.asarray((H * root - a * raw) / (1 - a), dtype=np.float32)
                    blocks.append(Block("near", begin, near))
            if "spread" in parts:
                blocks.append(Block("spread", begin, H * root, *far.measure_missed(H, begin, end)))
            return blocks

        yield task


def run_in_order(tasks: Iterable[Task], threads: int) -> Iterator[Block]:
    """Yield the blocks of all tasks in their order, computing several at once."""
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


def double_cover(graph: Graph, coupling: float | None = None) -> Graph:
    """Return the undirected graph of 2n nodes in which u → v joins u with n + v, and ``coupling`` joins u with n + u.

    Nodes 0..n-1 are the sources and n..2n-1 the targets. Without a coupling it is a share of the mean weight; without
    any, a walk would alternate between sources and targets and never follow a path.
    """
    if not graph.directed:
        raise InputError(
            "Propagation(directed=True) keeps the direction of edges, and the edges of this graph have none: read them "
            "with directed=True (--directed), or leave directed out."
        )
    n, X = graph.n_nodes, graph.features
    if X is not None:
        X = sp.csr_array(sp.vstack([X, X])) if isinstance(X, sp.csr_array) else np.concatenate([X, X])
    weight = mean_coupling(graph) if coupling is None else coupling
    A = graph.adjacency.astype(np.float64) + sp.diags_array(np.full(n, weight))
    return Graph(sp.csr_array(sp.block_array([[None, A], [A.T, None]], format="csr")), X)


def mean_coupling(graph: Graph) -> float:
    """Return the weight of the edge between a node as a source and itself as a target."""
    return COUPLING * (1.0 if graph.weights is None or not len(graph.weights) else float(np.mean(graph.weights)))


def folded(survey: Survey, column: AnyArray | None, k: int, coupling: float) -> Survey:
    """Return the survey of a cover with one row per node: arrays (n, 2, …); ``k`` is the first cluster of targets."""
    nodes = {name: np.stack(np.split(np.asarray(values), 2), axis=1) for name, values in survey.nodes.items()}
    if "cluster" in nodes:
        nodes["cluster"] = np.ascontiguousarray(nodes["cluster"][:, 0])
    nodes |= {} if column is None else {"column": column}
    return Survey(nodes, {**survey.shared, "coupling": np.array(coupling), "targets": np.array(k)})


def cover_of_patch(graph: Graph, far: FarField | None) -> tuple[Graph, FarField | None]:
    """Return the cover of a patch, and what it knows of the rest, with one row for each source and each target."""
    if far is None:
        return double_cover(graph), None
    rows: dict[str, AnyArray] = {}
    for name, values in far.nodes.items():
        sources, targets = (values, values) if values.ndim == 1 else (values[:, 0], values[:, 1])
        shift = int(far.shared["targets"]) if name == "cluster" else 0
        rows[name] = np.concatenate([sources, targets + shift if shift else targets])
    none = np.zeros(2 * graph.n_nodes + 1, dtype=np.int64)
    indptr = far.indptr if len(far.indptr) == len(none) else none  # of the whole graph, which no edge leaves
    cover = double_cover(graph, float(far.shared["coupling"]))
    return cover, replace(far, n_nodes=2 * far.n_nodes, nodes=rows, indptr=indptr)


def reversed_graph(graph: Graph) -> Graph:
    """Return the graph with every edge turned round, without features."""
    A = sp.csr_array(graph.adjacency.T)
    A.sort_indices()
    weights = None if graph.weights is None else A.data
    return Graph.from_arrays(A.indptr.astype(np.int64), A.indices, weights, directed=True)
