"""What every stage costs, from the sizes of a problem alone: CPU time, memory and disk, with measured constants.

The constants are those of docs/scaling.md, measured at up to 122 million nodes on one core; another processor may be
twice as fast or slow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphquilt.embedders.contract import Embedder
from graphquilt.errors import InputError

__all__ = ["SPARE", "Sizes", "StagePlan", "embedding_plan", "evaluation_plan", "graph_plans", "stitching_plans"]

SPARE = 300e6  # bytes for Python, its libraries and the driver
_DISTINCT = 0.95  # of all citations, the share that is left without loops and repetitions
_GROWTH = 2.3  # rows of all patches for each node
_INGEST, _FENNEL, _PATCHES = 106e-9, 33e-9, 205e-9  # seconds per entry; Fennel: per pass
_FENNEL_BYTES, _PATCH_BYTES, _PAIR_BYTES = 12.0, 24.0, 32.0  # per node, and per pair of clusters that touch
_PAIRS = 300.0  # clusters that a cluster touches, where there are so many
_SPEED = 3.5e9  # operations per second of products of small matrices
_TRAINING = 3e10  # operations per second of torch on one core
_ITERATIONS = 12  # of the rotation solver; few where the patches agree, more where they do not
_IN_MEMORY = 2**27  # entries of products of overlaps above which they lie in a temporary file, in single precision
_SUMS = float(1 << 30)  # bytes of sums of the centroid
_PERCEPTRONS, _EPOCHS = 108, 40  # of the paper's grid; epochs until a perceptron stops, as far as seen
_WEIGHTS = 0.74e6  # of a perceptron, on average over the paper's grid at d = 128
_LABELLED = 0.0115  # the share of labelled nodes in MAG240M
_SCORED = 1e-5  # seconds per edge whose score is compared with that of a non-edge


@dataclass(frozen=True)
class StagePlan:
    """The estimate for one stage.

    Attributes
    ----------
    stage : str
    cpu_seconds : float
        CPU time of all processes together, however busy the machine is.
    memory : float
        Bytes at the peak, all processes together.
    disk : float
        Bytes that have to be free where it writes.
    processes : int
        How many processes share the work.
    """

    stage: str
    cpu_seconds: float
    memory: float
    disk: float
    processes: int = 1


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a problem.

    Attributes
    ----------
    n_nodes, n_edges, n_features, n_patches, dim : int
        Edges count once, as a file lists them.
    n_rows : float, optional
        Rows of all patches; by default 2.3 per node, which is what the paper's overlaps made at three sizes.
    n_patch_edges : int, optional
        By default 10 per patch, the paper's choice for large data.
    overlap : float, optional
        Mean nodes that two joined patches share; by default 1200, between the paper's 512 and 2048.
    """

    n_nodes: int
    n_edges: int
    n_features: int = 0
    n_patches: int
    dim: int
    n_rows: float | None = None
    n_patch_edges: int | None = None
    overlap: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("n_nodes", 1), ("n_edges", 0), ("n_features", 0), ("n_patches", 1), ("dim", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name} of a plan is at least {least}, not {getattr(self, name)}.")
        p = self.n_patches
        if p > self.n_nodes:
            raise InputError(f"{self.n_nodes} nodes cannot be cut into {p} patches; plan for fewer.")
        for name, value in (
            ("n_rows", self.n_nodes * (_GROWTH if p > 1 else 1)),
            ("n_patch_edges", min(10 * p, p * (p - 1) // 2)),
            ("overlap", min(1200.0, self.n_nodes / p)),
        ):
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    @property
    def n_entries(self) -> float:
        """Entries of the adjacency: both directions, without loops and repetitions."""
        return 2 * _DISTINCT * self.n_edges

    @property
    def rows(self) -> float:
        """Rows of all patches."""
        return self.n_nodes if self.n_rows is None else self.n_rows


def graph_plans(sizes: Sizes, *, memory: float = 1 << 30, passes: int = 2) -> tuple[StagePlan, ...]:
    """Estimate the stages from files to patches, each of which is one process."""
    n, entries, p = sizes.n_nodes, sizes.n_entries, sizes.n_patches
    pairs = min(p * (p - 1) / 2, p * _PAIRS / 2)
    return (
        StagePlan("ingest", _INGEST * entries, max(memory, n / 1000) + SPARE, 8 * entries + 8 * n),
        StagePlan("fennel", _FENNEL * passes * entries, _FENNEL_BYTES * n + SPARE, 8.0 * n),
        StagePlan("patches", _PATCHES * entries, _PATCH_BYTES * n + _PAIR_BYTES * pairs + SPARE, 4 * sizes.rows),
    )


def embedding_plan(sizes: Sizes, embedder: Embedder, *, runs: int = 1, workers: int = 1) -> StagePlan:
    """Estimate the embedding of all patches by one of graphquilt's embedders.

    Raises
    ------
    InputError
        The embedder is another one: its cost is measured on a job.
    """
    f, d, lanes = sizes.n_features, sizes.dim, max(1, min(workers, sizes.n_patches))
    epochs = float(getattr(embedder, "max_epochs", 1))
    word = type(embedder).__name__
    per_row = {
        "Propagation": 1e-5 + 2e-5 * (f > 0) + 2e-8 * f + 5e-8 * d,
        "SVD": 8e-6 * d,
        "VGAE": epochs * 6 * (4 * d * f + 8 * d * d) / (2 * _TRAINING),
        "GAE": epochs * 6 * (4 * d * f + 4 * d * d) / (2 * _TRAINING),
        "DGI": epochs * 12 * d * f / (2 * _TRAINING),
    }.get(word)
    if per_row is None:
        raise InputError(
            f"what {word} costs is not known without patches: make them (graphquilt cut), and then plan that job."
        )
    size = sizes.rows / sizes.n_patches * 1.5  # of a large patch
    one = size * (16 * f + 64 * d) + SPARE
    return StagePlan("embedding", runs * sizes.rows * per_row, lanes * one, 4.0 * runs * d * sizes.rows, lanes)


def stitching_plans(
    sizes: Sizes, *, precision: int = 8, branching: int | None = None, between: float = 0.0, workers: int = 1
) -> tuple[StagePlan, StagePlan]:
    """Estimate alignment and centroid.

    Parameters
    ----------
    sizes : Sizes
        Those of all runs together.
    precision : int
        Bytes of a number of the embedding.
    branching : int, optional
        Align level by level.
    between : float
        Bytes that a recipe has in memory beside, for weights and refinement.
    workers : int
    """
    d, p, m = sizes.dim, sizes.n_patches, float(sizes.n_patch_edges or 0)
    shared = float(sizes.overlap or 0)
    measuring = m * (3e-4 + 2 * shared * d * d / _SPEED + 60 * d**3 / (3 * _SPEED))
    solving = m * 2 * d**3 * _ITERATIONS / _SPEED
    large = m * d * d > _IN_MEMORY
    products = 4.0 * m * d * d
    memory = 8.0 * d * d * 5 * p + (products if large else 16.0 * m * d * d)
    if branching is not None:
        memory = 8.0 * d * d * (p + 12 * branching) + (0 if large else products)
    averaging = sizes.rows * (2 * d * d / _SPEED + 2e-8 * d)
    sums = min(_SUMS, 8.0 * sizes.n_nodes * d) + 24.0 * d * sizes.rows / p
    return (
        StagePlan(
            "alignment", measuring + solving, memory + between + SPARE, 8.0 * d * d * p + products * large, workers
        ),
        StagePlan("centroid", averaging, sums + between + SPARE, float(precision) * sizes.n_nodes * d),
    )


def evaluation_plan(sizes: Sizes, *, max_edges: float = 1e6, labelled: float = _LABELLED) -> StagePlan:
    """Estimate the AUC of sampled edges and the paper's grid of 108 perceptrons."""
    weights = _WEIGHTS + 480 * (sizes.dim - 128)
    training = _PERCEPTRONS * _EPOCHS * 6 * weights * labelled * sizes.n_nodes / _TRAINING
    scoring = _SCORED * min(max_edges, sizes.n_edges)
    batch = min(100_000, math.ceil(labelled * sizes.n_nodes)) * 4.0 * (sizes.dim + 4 * 1024 * 3)
    return StagePlan("evaluation", training + scoring, batch + sizes.n_nodes + SPARE, 0.0)
