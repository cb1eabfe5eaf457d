"""What a job will cost, before the long work: CPU time, memory and disk of each stage.

The constants are those of docs/scaling.md, measured at up to 122 million nodes on one core; another processor may be
twice as fast or slow. The embedder of a job is measured on two patches.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.embedders import Embedder, checked_fit
from graphquilt.errors import InputError, JobError, counted
from graphquilt.files import available_memory
from graphquilt.graph import Graph
from graphquilt.jobs.job import Job
from graphquilt.jobs.options import Recipe
from graphquilt.jobs.records import graph_of, patch_key, patch_seed
from graphquilt.jobs.store import store_folder
from graphquilt.jobs.workers import Processes
from graphquilt.progress import ProgressCallback, peak_memory, report

_MARGIN = 1.25  # safety factor on estimates before they are compared with what is free
_SPARE = 300e6  # bytes for Python, its libraries and the driver
_SPEED = 3.5e9  # operations per second of products of small matrices
_TRAINING = 3e10  # operations per second of torch on one core
_IN_MEMORY = 2**27  # entries of overlap products above which they are in a temporary file, in single precision


@dataclass(frozen=True)
class StagePlan:
    """The estimate for one stage: CPU seconds, bytes of memory at the peak and of disk, of all processes together."""

    stage: str
    cpu_seconds: float
    memory: float
    disk: float
    processes: int = 1


@dataclass(frozen=True)
class Plan:
    """What a job will take, the bytes that are free, and what to change if they are too few."""

    stages: tuple[StagePlan, ...]
    memory_available: float
    disk_available: float
    advice: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a problem; an edge counts once, and ``overlap`` is the mean size of the overlaps.

    What is not given is estimated as the paper's large data had it: 2.3 rows per node in all patches together, 10
    patch edges per patch, and overlaps of 1200 nodes.
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
        if self.n_patches > self.n_nodes:
            raise InputError(f"{self.n_nodes} nodes cannot be cut into {self.n_patches} patches; plan for fewer.")

    @property
    def rows(self) -> float:
        """Rows of all patches."""
        return self.n_nodes * (2.3 if self.n_patches > 1 else 1) if self.n_rows is None else self.n_rows


def plan_sizes(
    sizes: Sizes, embedder: Embedder, *, recipe: Recipe = Recipe(), workers: int = 1, folder: Path = Path()
) -> Plan:
    """Estimate the cost of every stage, from files to the embedding, before any of them exists.

    ``embedder`` is one of graphquilt's; ``folder`` is where the job will be.

    Examples
    --------
    >>> from graphquilt.embedders import Propagation
    >>> paper = Sizes(n_nodes=121751666, n_edges=1297748926, n_features=768, n_patches=10000, dim=128)
    >>> plan = plan_sizes(paper, Propagation(128))
    >>> [stage.stage for stage in plan.stages]
    ['ingest', 'fennel', 'patches', 'embedding', 'alignment', 'centroid']
    """
    f, d, rows = sizes.n_features, sizes.dim, sizes.rows * recipe.runs
    per_weight = 6 * getattr(embedder, "max_epochs", 1) / (2 * _TRAINING)
    name = type(embedder).__name__
    per_row = {
        "Propagation": 1e-5 + 2e-5 * (f > 0) + 2e-8 * f + 5e-8 * d,
        "SVD": 8e-6 * d,
        "VGAE": per_weight * (4 * d * f + 8 * d * d),
        "GAE": per_weight * (4 * d * f + 4 * d * d),
        "DGI": per_weight * 2 * d * f,
    }.get(name)
    if per_row is None:
        raise InputError(f"the cost of {name} must be measured: cut the graph (graphquilt cut), then plan that job.")
    largest = 1.5 * sizes.rows / sizes.n_patches * (16 * f + 64 * d)
    lanes = max(1, min(workers, sizes.n_patches))
    embedding = StagePlan("embedding", rows * per_row, lanes * (largest + _SPARE), 4.0 * d * rows, lanes)
    stages = (*_graph_plans(sizes), embedding, *_stitching_plans(sizes, recipe, workers))
    return _compare_with_free(stages, np.full(lanes, largest), folder)


def plan_job(job: Job, *, workers: int = 1, progress: ProgressCallback | None = None) -> Plan:
    """Estimate the cost of embedding and stitching the patches of a job.

    Two patches, the smallest and the median one, are embedded in a separate process and discarded; CPU time and memory
    of the others follow from their size. Early stopping may differ elsewhere: treat times as a guide. The other stages
    are estimated as by :func:`plan_sizes`.
    """
    patch_graph, recipe, dim = job.patch_graph, job.settings.recipe, job.settings.dim
    patch_graph.check_dim(dim)
    n_patches, sizes = patch_graph.n_patches, patch_graph.sizes
    order = np.argsort(sizes, kind="stable")
    probes = _probe(job, [int(order[0]), int(order[n_patches // 2])], progress)
    seconds, memory = (_extrapolate(sizes[order[[0, n_patches // 2]]], [p[k] for p in probes], sizes) for k in (0, 1))
    missing = sum(patch_key(k, "embedding") not in job.store for k in range(n_patches * recipe.runs))
    lanes = max(1, min(workers, n_patches * recipe.runs))
    embedding = StagePlan(
        "embedding",
        float(seconds.sum()) * missing / n_patches,
        float(np.sort(np.tile(memory, recipe.runs))[-lanes:].sum()) + lanes * _SPARE,
        float(sizes.sum()) * dim * probes[0][2] * recipe.runs,
        lanes,
    )
    known = Sizes(
        n_nodes=patch_graph.n_nodes,
        n_edges=0,
        n_patches=n_patches,
        dim=dim,
        n_rows=float(sizes.sum()),
        n_patch_edges=len(patch_graph.repeat(recipe.runs).edges),
        overlap=float(patch_graph.overlaps.mean()) if len(patch_graph.edges) else 0.0,
    )
    stages = (embedding, *_stitching_plans(known, recipe, lanes))
    return _compare_with_free(stages, memory, store_folder(job.store) or Path())


def _graph_plans(sizes: Sizes) -> tuple[StagePlan, ...]:
    """Estimate the stages from files to patches, each of which is one process."""
    n, p = sizes.n_nodes, sizes.n_patches
    entries = 1.9 * sizes.n_edges  # both directions, without loops and repetitions
    adjacent = min(p * (p - 1) / 2, 150.0 * p)  # pairs of clusters
    return (
        StagePlan("ingest", 106e-9 * entries, max(2**30, n / 1000) + _SPARE, 8 * entries + 8 * n),
        StagePlan("fennel", 2 * 33e-9 * entries, 12.0 * n + _SPARE, 8.0 * n),
        StagePlan("patches", 205e-9 * entries, 24.0 * n + 32 * adjacent + _SPARE, 4 * sizes.rows),
    )


def _stitching_plans(sizes: Sizes, recipe: Recipe, workers: int) -> tuple[StagePlan, StagePlan]:
    """Estimate alignment and centroid of all runs together."""
    d, p, n, rows = sizes.dim, sizes.n_patches * recipe.runs, sizes.n_nodes, sizes.rows * recipe.runs
    m = float(min(10 * p, p * (p - 1) // 2) if sizes.n_patch_edges is None else sizes.n_patch_edges)
    overlap = min(1200.0, n / p) if sizes.overlap is None else sizes.overlap
    measuring = m * (3e-4 + 2 * overlap * d * d / _SPEED + 20 * d**3 / _SPEED)
    solving = m * 2 * d**3 * 12 / _SPEED  # 12 iterations; more if the patches disagree
    large, products = m * d * d > _IN_MEMORY, 4.0 * m * d * d
    memory = 8.0 * d * d * 5 * p + (products if large else 4 * products)
    if recipe.branching is not None:
        memory = 8.0 * d * d * (p + 12 * recipe.branching) + (0 if large else products)
    held = _SPARE + 8.0 * n * d * bool(recipe.refine) + 8.0 * rows * bool(recipe.coverage)
    averaging = rows * (2 * d * d / _SPEED + 2e-8 * d)
    sums = min(2.0**30, 8.0 * n * d) + 24.0 * d * rows / p
    precision = float(np.dtype(recipe.precision).itemsize)
    return (
        StagePlan("alignment", measuring + solving, memory + held, 8.0 * d * d * p + products * large, workers),
        StagePlan("centroid", averaging, sums + held, precision * n * d),
    )


def _probe(job: Job, patches: list[int], progress: ProgressCallback | None) -> list[tuple[float, float, int]]:
    """Embed patches in a process: CPU seconds, bytes above those at the start, and the item size of each."""
    embedders, probes = job.settings.embedders, []
    with Processes(1) as pool:
        start = pool.submit(peak_memory).result()
        for done, k in enumerate([patches[0], *patches]):  # the first call pays for imports and compilation
            embedder = embedders[k if len(embedders) > 1 else 0]
            seed = patch_seed(job.settings.seed, k)
            seconds, peak, item = pool.submit(_embed_once, _patch_data(job, k), k, embedder, seed).result()
            probes.append((seconds, float(peak - start), item))
            report(progress, "probe", done, len(patches))
    return probes[1:]


def _patch_data(job: Job, patch: int) -> Graph:
    key = patch_key(patch, "graph")
    if key in job.store:
        return graph_of(job.store[key])[1]
    if job.graph is None:
        raise JobError(f"{job.name} has neither the data of patch {patch} nor a graph to cut it from.")
    return job.graph.subgraph(job.patch_graph.node_sets[patch])


def _embed_once(graph: Graph, patch: int, embedder: Embedder, seed: int) -> tuple[float, int, int]:
    start = time.process_time()
    X = checked_fit(embedder, graph, seed, where=f"patch {patch}").embedding
    return time.process_time() - start, peak_memory(), X.dtype.itemsize


def _extrapolate(at: Int64Array, values: list[float], sizes: Int64Array) -> Float64Array:
    """Extrapolate from two measured sizes to all: a line that never falls, or a fixed rate."""
    if at[1] == at[0] or values[1] <= values[0]:
        return np.asarray(max(values) * sizes / at[1])
    return np.asarray(values[0] + (values[1] - values[0]) / (at[1] - at[0]) * (sizes - at[0]))


def _compare_with_free(stages: tuple[StagePlan, ...], patches: Float64Array, folder: Path) -> Plan:
    """Compare what the stages need with what is free; ``patches`` are the bytes that each patch takes."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    available, free = available_memory(), float(shutil.disk_usage(place).free)
    advice = []
    for stage in stages:
        if stage.memory * _MARGIN <= available:
            continue
        remedy = ""
        if stage.stage == "embedding":
            largest_first = np.cumsum(np.sort(patches)[::-1] + _SPARE) * _MARGIN
            n_workers = min(int(np.searchsorted(largest_first, available, side="right")), _cores())
            remedy = f": use at most {counted(n_workers, 'worker')}" if n_workers else ": make more and smaller patches"
        elif stage.stage == "alignment":
            remedy = ": align level by level (graphquilt stitch --branching 100), or embed in fewer dimensions"
        advice.append(
            f"{stage.stage} needs {_amount(stage.memory)} of memory, and {_amount(available)} are free{remedy}."
        )
    disk = sum(stage.disk for stage in stages) * _MARGIN
    if disk > free:
        advice.append(f"the job needs {_amount(disk)} of disk, and {_amount(free)} are free: use a larger disk.")
    return Plan(stages, available, free, tuple(advice))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _amount(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
