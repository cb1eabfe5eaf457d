"""Propagation: features, clusters and degrees, spread over the graph and reduced to their main directions."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

import numpy as np

from graphquilt.arrays import AnyArray, BoolArray, Float32Array
from graphquilt.embedders.contract import Fit, Hook, check_dim
from graphquilt.embedders.directions import BasisEncoder, grid_product, leading
from graphquilt.embedders.shared_start import Arrays, FarField, Survey, agree
from graphquilt.embedders.signals import FEATURE_PARTS, Parts, Signal, feature_width, signal_parts, spread_signal, times
from graphquilt.embedders.survey import after_round, follow_graph, round_product, survey_graph
from graphquilt.embedders.walks import Block, cover_of_patch, double_cover, folded, mean_coupling
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import Graph
from graphquilt.kernels import one_blas_thread
from graphquilt.linalg import Motions
from graphquilt.patches import CoarseGraph, coarse_graph
from graphquilt.progress import report

BASIS = 256  # directions that wide features are reduced to first, at least
PRODUCT_ROWS = 1 << 14  # that are multiplied by the directions at once
UNIT = 2.0**36  # of sums
ROWS_PER_DIRECTION = 10  # that a patch needs to tell what its own best directions would keep
BEST_ROWS = 2048  # of a patch that are examined for that


@dataclass(frozen=True)
class Propagation:
    """Spread a signal over the graph, and place each node by the main directions of what arrives there; no training.

    Parameters
    ----------
    dim : int
        Number of directions. If the signal has fewer, the other columns are zero.
    signal : Signal
        What is spread, and the weight of each part.
    clusters : int, optional
        Number of clusters of the part ``clusters``, at most a quarter of the number of nodes. By default 1000, one per
        50 nodes from 50 000 to 100 000 nodes, and then fewer again, down to 256.
    steps, restart : int, float
        Number of steps of the walk that spreads the features, and the probability that it restarts at its node.
    sample : int
        Number of nodes whose rows decide the directions in larger graphs; a hash of their number chooses them.
    block : int
        Number of columns that are spread at once: fewer need less memory.
    far_field : bool
        Whether a patch knows on average what lies outside it; otherwise a walk ends where it would leave.
    directed : bool
        Keep the direction of edges: two rows per node side by side, ``dim / 2`` columns as a source and as many as a
        target. A link u → v scores by the source row of u times the target row of v
        (:func:`graphquilt.evaluate.source_target`).
    start : mapping of str to array, optional
        The shared start: the ``directions`` (w, dim). Embeddings with the same start lie in the same frame.

    Notes
    -----
    With features X of unit rows and S = D^-1/2 (A + I) D^-1/2 the main part is H = Σ_{i<k} a(1-a)^i S^i X + (1-a)^k S^k
    X, where k is ``steps`` and a is ``restart`` (personalised PageRank, Gasteiger et al. 2019). Features of more than
    256 columns are reduced to their main directions first. Memberships are spread by D^-1 (A + I) with k = 8 and a =
    .15, and log(1 + H / share of the cluster) is taken. The rows of each part get unit length times the root of its
    weight, and the embedding is H V Σ^(power - 1) with the leading right singular vectors V of all parts side by side
    and their singular values Σ.

    Inside a patch the walk is exact; an edge that leaves it leads to the average over a far cluster. A directed graph
    is made undirected by the larger of both weights. A node with neither edges nor features lies at the origin. The
    seed does not matter. With ``directed``, the walk is that on the bipartite graph in which u → v joins u as a source
    with v as a target, and a weak edge (a tenth of the mean weight) joins both rows of a node; there is no encoder.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = Graph(sp.diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1]))
    >>> Propagation(1)(path, 0).shape
    (10, 1)
    """

    dim: int
    _: KW_ONLY
    signal: Signal = Signal()
    clusters: int | None = None
    steps: int = 10
    restart: float = 0.1
    sample: int = 16_384
    block: int = 64
    far_field: bool = True
    directed: bool = False
    start: Arrays | None = field(default=None, compare=False, repr=False)
    deterministic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_dim(self.dim, "Propagation")
        for name in ("clusters", "sample", "block", "steps", "restart"):
            kinds = (int, float, np.number) if name == "restart" else (int, np.integer)
            value = getattr(self, name)
            if isinstance(value, bool) or not (isinstance(value, kinds) or (name == "clusters" and value is None)):
                raise InputError(f"{name} of Propagation is a number, not {str(value)[:40]!r}.")
            least = 0 if name in ("steps", "restart") else 1
            if value is not None and value < least:
                raise InputError(f"{name} of Propagation must be at least {least}, not {value}.")
        if not 0 <= self.restart < 1:
            raise InputError(f"restart of Propagation is a probability from 0 to below 1, not {self.restart}.")
        if not isinstance(self.signal, Signal):
            raise InputError(f"signal of Propagation is a Signal, such as Signal.features(), not {self.signal!r:.60}.")
        if self.directed and self.dim % 2:
            raise InputError(f"Propagation(directed=True) needs an even dim, half of it for targets, not {self.dim}.")
        if self.start is None or (("basis" in self.start or "blocks" in self.start) and not self.complete):
            return
        V, scale = (np.asarray(self.start.get(name, np.empty(0))) for name in ("directions", "scale"))
        shapes_fit = V.ndim == 2 and V.shape[1] == self.n_directions and scale.shape == (self.n_directions,)
        if not shapes_fit or any(each.dtype.kind != "f" or not np.isfinite(each).all() for each in (V, scale)):
            raise InputError(
                f"a shared start of Propagation has finite directions and a scale, a column for each of "
                f"{self.n_directions} dimensions, not {V.dtype} {V.shape}, {scale.dtype} {scale.shape}: make it again."
            )

    @property
    def n_directions(self) -> int:
        """Columns of a row: all, or half of them where each node has two rows."""
        return self.dim // 2 if self.directed else self.dim

    @property
    def motions(self) -> Motions:
        """The motions by which embeddings of overlapping graphs differ: none with a shared start."""
        return self.motions_started if self.complete else Motions()

    @property
    def motions_started(self) -> Motions:
        """A shared start leaves nothing free."""
        return Motions(rotate=False, translate=False)

    @property
    def complete(self) -> bool:
        """Whether the directions are known."""
        return self.start is not None and "directions" in self.start

    def starts_on(self, graph: Graph) -> bool:  # noqa: ARG002
        """Return True: patches can agree by features or by a survey."""
        return True

    def survey(self, graph: Graph, seed: int, *, clusters: CoarseGraph | None = None, cut: bool = True) -> Survey:  # noqa: ARG002
        """Return the far ``cluster``, ``degree``, ``loop``, ``column`` and ``role`` of each node, and arrays for all.

        These are the walk between far clusters as tables, the gain of each column, and reduced features.
        """
        cut = cut and clusters is not None and self.far_field
        members = graph.undirected()
        with one_blas_thread():  # products on several threads would have other bits, here and below
            if not self.directed:
                return survey_graph(self, members, clusters, cut=cut)
            coupling = mean_coupling(graph)
            cover = double_cover(graph, coupling)
            far = None
            if clusters is not None:  # those of the graph for sources, and once more for targets
                far = coarse_graph(cover, np.concatenate([clusters.clusters, clusters.clusters + clusters.k]))
            made = survey_graph(self, cover, far, cut=cut, members=(members, clusters))
            column = made.nodes.get("column")
            rest = {name: rows for name, rows in made.nodes.items() if name != "column"}
            shared = {name: rows for name, rows in made.shared.items() if name != "sample"}  # of nodes of the cover
            return folded(Survey(rest, shared), column, 0 if clusters is None else clusters.k, coupling)

    def follow(self, graph: Graph, before: Survey, clusters: CoarseGraph | None, *, renew: BoolArray) -> Survey:
        """Return the survey of a graph that has changed, in the frame of the survey ``before``.

        Columns, their gains and the reduction of the features stay; new nodes, with -1 as ``column``, join their
        neighbours. Degrees and roles follow the graph, and so do the tables of the far clusters ``renew`` (k,).
        """
        if self.directed:
            raise InputError("a job of Propagation(directed=True) cannot be updated. Embed the graph in a new folder.")
        with one_blas_thread():
            return follow_graph(self, graph.undirected(), before, clusters, renew=renew)

    @property
    def basis_width(self) -> int:
        """The number of columns that wide features are reduced to."""
        return max(BASIS, self.n_directions)

    def prepare(self, graph: Graph, seed: int, *, far: FarField | None = None) -> dict[str, AnyArray]:  # noqa: ARG002
        """Return the rows of a patch in half precision, and the weight of each in the sum."""
        graph, far = self._view(graph, far)
        n, weights = graph.n_nodes, np.ones(graph.n_nodes, dtype=np.float32)
        if far is not None:
            counted = np.asarray(far.nodes.get("sampled", np.ones(n, dtype=bool)))
            weights = np.where(counted, 1 / np.maximum(far.nodes.get("patches", weights), 1), 0).astype(np.float32)
        spreads = any(getattr(self.signal, part) for part in FEATURE_PARTS)
        if spreads and feature_width(graph) > self.basis_width and self.basis(far) is None:
            with one_blas_thread():
                walk, count = (self.restart, self.steps), self.basis_width
                return {"product": round_product(graph, self.start, count, weights=weights, walk=walk)}
        parts = signal_parts(self.signal, graph, far, self.basis(far))
        width = sum(part.width for part in parts.values())
        rows = np.empty((n, width), dtype=np.float16)

        def keep(first: int, block: Block) -> None:
            rows[:, first : first + block.values.shape[1]] = block.values

        with one_blas_thread():
            lengths, facts = spread_signal(self, graph, far, parts, keep)
        widths = np.array([part.width for part in parts.values()])
        return {"rows": rows, "lengths": lengths, "weights": weights, "facts": facts, "widths": widths}

    def contribute(self, kept: Arrays) -> dict[str, AnyArray]:
        """Return the second moment of the rows, H' W H, as whole numbers, and their number."""
        if "product" in kept:
            return {"product": np.asarray(kept["product"])}
        weights = np.asarray(kept["weights"], dtype=np.float32)
        counted = np.flatnonzero(weights)
        rows = kept["rows"][counted].astype(np.float32)
        for part, columns in enumerate(_parts_of(kept)):
            rows[:, columns] *= (np.sqrt(weights) * kept["lengths"][:, part])[counted, None]
        return {"moment": grid_product(rows, rows)}

    def add(self, total: Arrays | None, arrays: Arrays) -> dict[str, AnyArray]:
        """Return the sum of whole numbers."""
        if total is None:
            return {name: np.array(values) for name, values in arrays.items()}
        for name, values in arrays.items():
            if name not in total or total[name].shape != np.shape(values):
                raise InputError(
                    f"patches contribute sums of {np.shape(values)} and {np.shape(total.get(name, ()))} columns; all "
                    "patches need the same features."
                )
        return {name: total[name] + values for name, values in arrays.items()}

    def combine(self, total: Arrays, seed: int) -> Propagation:  # noqa: ARG002
        """Return the embedder with the directions of all rows, or with the reduction of the features after a round."""
        if "product" in total:
            return replace(self, start=after_round(self.start, np.asarray(total["product"]) / UNIT, self.basis_width))
        M = np.asarray(total["moment"], dtype=np.float64) / UNIT
        with one_blas_thread():
            values, V = leading(M, self.n_directions)
        start = {name: array for name, array in (self.start or {}).items() if name == "basis"}
        start |= {"directions": V.astype(np.float32), "scale": self.signal.scale(values).astype(np.float32)}
        return replace(self, start={**start, "share": np.array(values.sum() / max(np.trace(M), 1e-300))})

    def fit(
        self, graph: Graph, seed: int, progress: Hook = None, *, far: FarField | None = None, kept: Arrays | None = None
    ) -> Fit:
        """Embed the graph; the result has an encoder. Without a shared start, the frame is that of this graph alone."""
        if not self.complete:
            whole = FarField.whole(self.survey(graph, seed), graph.n_nodes)
            started = agree(self, [(graph, whole)], seed)
            return started.fit(graph, seed, progress, far=whole)
        assert self.start is not None
        graph, far = self._view(graph, far)
        parts = signal_parts(self.signal, graph, far, self.basis(far))
        V = np.asarray(self.start["directions"], dtype=np.float32)
        width = sum(part.width for part in parts.values())
        if len(V) != width:
            raise InputError(
                f"the shared start is for signals of {len(V)} columns, and this graph has one of {width}; the "
                "features must be those that the start was made with."
            )
        finished = None if kept is None else self.finish(kept)
        if finished is None:
            with one_blas_thread():
                finished = self._scale(*self._project(graph, far, parts, V, progress))
        return finished if self.directed else replace(finished, encoder=BasisEncoder.of(self, graph, far))

    def _view(self, graph: Graph, far: FarField | None) -> tuple[Graph, FarField | None]:
        """Return the undirected graph that is walked: without directions, or with a row for each source and target."""
        return cover_of_patch(graph, far) if self.directed else (graph.undirected(), far)

    def finish(self, kept: Arrays) -> Fit | None:
        """Return the rows that a patch has kept, times the directions; None if it has kept only some."""
        if not self.complete or "facts" not in kept:
            return None
        assert self.start is not None
        V = np.asarray(self.start["directions"], dtype=np.float32)
        shape = (*kept["rows"].shape, *kept["lengths"].shape, *kept["facts"].shape)
        if shape != (len(kept["rows"]), len(V), len(kept["rows"]), len(kept["widths"]), 2):
            raise FormatError(f"what the patch keeps has arrays of other shapes than it wrote: {shape}.")
        Z = np.zeros((len(kept["rows"]), self.n_directions), dtype=np.float32)
        with one_blas_thread():
            for part, columns in enumerate(_parts_of(kept)):
                product = times(kept["rows"][:, columns], V[columns])
                product *= kept["lengths"][:, part, None]
                Z += product
            return self._scale(Z, kept["facts"], self._best_share(kept, V))

    def _best_share(self, kept: Arrays, V: Float32Array) -> float:
        """Estimate the share of the rows that ``dim`` directions of their own would keep; 0 if there are few rows."""
        n = len(kept["rows"])
        if n < ROWS_PER_DIRECTION * self.n_directions:
            return 0.0
        chosen = np.linspace(0, n - 1, min(n, max(BEST_ROWS, ROWS_PER_DIRECTION * self.n_directions))).astype(np.int64)
        rows = kept["rows"][chosen].astype(np.float32)
        for part, columns in enumerate(_parts_of(kept)):
            rows[:, columns] *= kept["lengths"][chosen, part, None]
        for _ in range(2):  # steps of subspace iteration from the common directions
            V = np.linalg.qr(rows.T @ (rows @ V))[0]
        return float(np.square(rows @ V).sum() / max(np.square(rows).sum(), 1e-30))

    def _scale(self, Z: Float32Array, facts: AnyArray, best: float = 0.0) -> Fit:
        """Return the embedding of products with the directions, and what is known about it."""
        assert self.start is not None
        share = float(np.einsum("ij,ij->", Z, Z) / max(len(Z), 1))
        Z *= np.asarray(self.start["scale"], dtype=np.float32)
        Z = np.hstack(np.split(Z, 2)) if self.directed else Z
        leaving, unseen = (round(float(value), 4) for value in facts)
        figures = {"share": round(share, 4), "best": round(best, 4), "leaving": leaving, "unseen": unseen}
        return Fit(Z, np.empty(0), facts=figures)

    def __call__(self, graph: Graph, seed: int) -> Float32Array:
        """Return the embedding (n, dim)."""
        return np.asarray(self.fit(graph, seed).embedding)

    def basis(self, far: FarField | None) -> AnyArray | None:
        """Return the directions that wide features are reduced to, (w, r); None if they are not."""
        if self.start is not None and "basis" in self.start:
            return self.start["basis"]
        return None if far is None else far.shared.get("basis")

    def _project(
        self, graph: Graph, far: FarField | None, parts: Parts, V: Float32Array, progress: Hook
    ) -> tuple[Float32Array, Float32Array]:
        """Return H V for the rows H of all parts, without keeping them, and facts."""
        products = {name: np.zeros((graph.n_nodes, V.shape[1]), dtype=np.float32) for name in parts}
        done = 0

        def multiply(first: int, block: Block) -> None:
            nonlocal done
            onto, product = V[first : first + block.values.shape[1]], products[block.part]
            for a in range(0, graph.n_nodes, PRODUCT_ROWS):
                product[a : a + PRODUCT_ROWS] += block.values[a : a + PRODUCT_ROWS] @ onto
            done += len(onto)
            report(progress, "propagation", done, len(V))

        lengths, facts = spread_signal(self, graph, far, parts, multiply)
        Z = np.zeros((graph.n_nodes, V.shape[1]), dtype=np.float32)
        for name, length in zip(parts, lengths.T, strict=True):
            Z += products[name] * length[:, None]
        return Z, facts


def _parts_of(kept: Arrays) -> list[slice]:
    """Return the columns of each part of the rows that a patch has kept."""
    ends = np.cumsum(kept["widths"]).tolist()
    return [slice(end - width, end) for end, width in zip(ends, np.asarray(kept["widths"]).tolist(), strict=True)]
