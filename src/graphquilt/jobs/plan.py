"""What a job will cost, before the long work: CPU time, memory and disk of each stage.

The constants are those of docs/scaling.md, measured at up to 122 million nodes on one core; another processor may be
twice as fast or slow. The embedder of a job is measured on two patches.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.embedders.contract import Embedder, checked_fit
from graphquilt.errors import InputError, JobError, counted
from graphquilt.graph import Graph
from graphquilt.jobs.job import Job
from graphquilt.jobs.measurement import peak_memory
from graphquilt.jobs.recipe import Recipe
from graphquilt.jobs.records import graph_of, patch_key
from graphquilt.jobs.store import store_folder
from graphquilt.jobs.tasks import patch_seed
from graphquilt.jobs.workers import Processes
from graphquilt.progress import ProgressCallback, report

__all__ = ["Plan", "Sizes", "StagePlan", "graph_plans", "plan_job", "plan_sizes", "stitching_plans"]

_MARGIN = 1.25  # safety factor on estimates before they are compared with what is free
_SPARE = 300e6  # bytes for Python, its libraries and the driver
_DISTINCT = 0.95  # of all citations, the fraction left without loops and repetitions
_GROWTH = 2.3  # rows of all patches per node
_INGEST, _FENNEL, _PATCHES = 106e-9, 33e-9, 205e-9  # seconds per entry; Fennel: per pass
_FENNEL_BYTES, _PATCH_BYTES, _PAIR_BYTES = 12.0, 24.0, 32.0  # per node, and per pair of adjacent clusters
_PAIRS = 300.0  # neighbours of a cluster in a large graph
_SPEED = 3.5e9  # operations per second of products of small matrices
_TRAINING = 3e10  # operations per second of torch on one core
_ITERATIONS = 12  # of the rotation solver; more if the patches disagree
_IN_MEMORY = 2**27  # entries of overlap products above which they are in a temporary file, in single precision
_SUMS = float(1 << 30)  # bytes of sums of the centroid


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
    """The sizes of a problem.

    Attributes
    ----------
    n_edges
        Each edge counts once.
    n_rows
        Rows of all patches; by default 2.3 per node, as the paper's overlaps gave at three sizes.
    n_patch_edges
        By default 10 per patch, the paper's choice for large data.
    overlap
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
    def rows(self) -> float:
        """Rows of all patches."""
        return self.n_nodes if self.n_rows is None else self.n_rows


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
    embedding = _embedding_plan(sizes, embedder, runs=recipe.runs, workers=workers)
    stages = (*graph_plans(sizes), embedding, *_stitching(sizes, recipe, workers))
    return _compared(stages, np.full(embedding.processes, embedding.memory / embedding.processes - _SPARE), folder)


def plan_job(job: Job, *, workers: int = 1, progress: ProgressCallback | None = None) -> Plan:
    """Estimate the cost of embedding and stitching the patches of a job.

    Two patches, the smallest and the median one, are embedded in a separate process and discarded; CPU time and memory
    of the others follow from their size. Early stopping may differ elsewhere: treat times as a guide. The other stages
    are estimated as by :func:`plan_sizes`.
    """
    patch_graph, recipe, embedder = job.patch_graph, job.settings.recipe, job.settings.embedders[0]
    patch_graph.check_dim(embedder.dim)
    sizes = patch_graph.sizes
    order = np.argsort(sizes, kind="stable")
    picked = list(dict.fromkeys([int(order[0]), int(order[len(order) // 2])]))
    probes = _probe(job, picked, progress)
    repeated = patch_graph.repeat(recipe.runs)
    missing = sum(patch_key(k, "embedding") not in job.store for k in range(repeated.n_patches))
    seconds = _line([int(sizes[k]) for k in picked], [probe[0] for probe in probes], sizes)
    memory = _line([int(sizes[k]) for k in picked], [probe[1] for probe in probes], sizes)
    lanes = max(1, min(workers, repeated.n_patches))
    embedding = StagePlan(
        "embedding",
        float(seconds.sum()) * missing / patch_graph.n_patches,
        float(np.sort(np.tile(memory, recipe.runs))[-lanes:].sum()) + lanes * _SPARE,
        float(sizes.sum()) * embedder.dim * probes[0][2] * recipe.runs,
        lanes,
    )
    measured = Sizes(
        n_nodes=patch_graph.n_nodes,
        n_edges=0,
        n_patches=patch_graph.n_patches,
        dim=embedder.dim,
        n_rows=float(sizes.sum()),
        n_patch_edges=len(repeated.edges),
        overlap=float(patch_graph.overlaps.mean()) if len(patch_graph.edges) else 0.0,
    )
    folder = store_folder(job.store) or Path()
    return _compared((embedding, *_stitching(measured, recipe, lanes)), memory, folder)


def graph_plans(sizes: Sizes, *, memory: float = 1 << 30, passes: int = 2) -> tuple[StagePlan, ...]:
    """Estimate the stages from files to patches, each of which is one process."""
    n, p = sizes.n_nodes, sizes.n_patches
    entries = 2 * _DISTINCT * sizes.n_edges  # both directions, without loops and repetitions
    pairs = min(p * (p - 1) / 2, p * _PAIRS / 2)
    return (
        StagePlan("ingest", _INGEST * entries, max(memory, n / 1000) + _SPARE, 8 * entries + 8 * n),
        StagePlan("fennel", _FENNEL * passes * entries, _FENNEL_BYTES * n + _SPARE, 8.0 * n),
        StagePlan("patches", _PATCHES * entries, _PATCH_BYTES * n + _PAIR_BYTES * pairs + _SPARE, 4 * sizes.rows),
    )


def _embedding_plan(sizes: Sizes, embedder: Embedder, *, runs: int, workers: int) -> StagePlan:
    """Estimate the embedding of all patches by one of graphquilt's embedders."""
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
        raise InputError(f"the cost of {word} must be measured: cut the graph (graphquilt cut), then plan that job.")
    large_patch = sizes.rows / sizes.n_patches * 1.5
    memory = large_patch * (16 * f + 64 * d) + _SPARE
    return StagePlan("embedding", runs * sizes.rows * per_row, lanes * memory, 4.0 * runs * d * sizes.rows, lanes)


def _stitching(sizes: Sizes, recipe: Recipe, workers: int) -> tuple[StagePlan, StagePlan]:
    between = 8.0 * sizes.n_nodes * sizes.dim * bool(recipe.refine)  # the centroid, between sweeps
    between += 8.0 * sizes.rows * recipe.runs * bool(recipe.coverage)
    repeated = replace(sizes, n_patches=sizes.n_patches * recipe.runs, n_rows=sizes.rows * recipe.runs)
    precision = np.dtype(recipe.precision).itemsize
    return stitching_plans(repeated, precision=precision, branching=recipe.branching, between=between, workers=workers)


def stitching_plans(
    sizes: Sizes, *, precision: int = 8, branching: int | None = None, between: float = 0.0, workers: int = 1
) -> tuple[StagePlan, StagePlan]:
    """Estimate alignment and centroid.

    Parameters
    ----------
    sizes
        Those of all runs together.
    precision
        Bytes per number of the embedding.
    between
        Bytes that the recipe also holds in memory, for weights and refinement.
    """
    d, p, m = sizes.dim, sizes.n_patches, float(sizes.n_patch_edges or 0)
    measuring = m * (3e-4 + 2 * float(sizes.overlap or 0) * d * d / _SPEED + 60 * d**3 / (3 * _SPEED))
    solving = m * 2 * d**3 * _ITERATIONS / _SPEED
    large = m * d * d > _IN_MEMORY
    products = 4.0 * m * d * d
    memory = 8.0 * d * d * 5 * p + (products if large else 16.0 * m * d * d)
    if branching is not None:
        memory = 8.0 * d * d * (p + 12 * branching) + (0 if large else products)
    memory += between + _SPARE
    averaging = sizes.rows * (2 * d * d / _SPEED + 2e-8 * d)
    sums = min(_SUMS, 8.0 * sizes.n_nodes * d) + 24.0 * d * sizes.rows / p
    return (
        StagePlan("alignment", measuring + solving, memory, 8.0 * d * d * p + products * large, workers),
        StagePlan("centroid", averaging, sums + between + _SPARE, float(precision) * sizes.n_nodes * d),
    )


def _probe(job: Job, picked: list[int], progress: ProgressCallback | None) -> list[tuple[float, float, int]]:
    """Embed each picked patch in a fresh process: CPU seconds, bytes above those at the start, item size.

    The cost of imports and compilation is measured on the first patch and subtracted: a worker pays it once and embeds
    many patches.
    """
    start_up = None
    measurements = []
    for done, k in enumerate(picked, 1):
        embedder = job.settings.embedders[k if len(job.settings.embedders) > 1 else 0]
        graph = _patch_data(job, k)
        with Processes(1) as pool:
            seconds, again, size, item = pool.submit(
                _embed_once, graph, k, embedder, patch_seed(job.settings.seed, k), twice=start_up is None
            ).result()
        start_up = max(seconds - again, 0.0) if start_up is None else start_up
        measurements.append((max(seconds - start_up, again), size, item))
        report(progress, "probe", done, len(picked))
    return measurements


def _patch_data(job: Job, patch: int) -> Graph:
    key = patch_key(patch, "graph")
    if key in job.store:
        return graph_of(job.store[key])[1]
    if job.graph is None:
        raise JobError(f"{job.name} has neither the data of patch {patch} nor a graph to cut it from.")
    return job.graph.subgraph(job.patch_graph.node_sets[patch])


def _embed_once(
    graph: Graph, patch: int, embedder: Embedder, seed: int, *, twice: bool
) -> tuple[float, float, float, int]:
    """Return the CPU seconds of the first call and, with ``twice``, of a second one; bytes; item size."""
    before, start = peak_memory(), time.process_time()
    X = checked_fit(embedder, graph, seed, where=f"patch {patch}").embedding
    seconds, size = time.process_time() - start, peak_memory() - before
    again = time.process_time()
    if twice:
        checked_fit(embedder, graph, seed, where=f"patch {patch}")
    return seconds, time.process_time() - again, size, X.dtype.itemsize


def _line(at: list[int], values: list[float], sizes: Int64Array) -> Float64Array:
    """Extrapolate from one or two measured sizes to all: a line that never falls, or a fixed rate."""
    x, y = np.asarray(at, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if len(x) == 1 or x[1] == x[0] or y[1] <= y[0]:
        return np.asarray(y.max() * sizes / x.max())
    return np.asarray(y[0] + (y[1] - y[0]) / (x[1] - x[0]) * (sizes - x[0]))


def _compared(stages: tuple[StagePlan, ...], patches: Float64Array, folder: Path) -> Plan:
    """Compare what the stages need with what is free; ``patches`` are the bytes that each patch takes."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    available, free = _memory_available(), float(shutil.disk_usage(place).free)
    return Plan(stages, available, free, tuple(_advice(stages, patches, available, free)))


def _memory_available() -> float:
    """Return the bytes that are free: on the machine, or within the limit of its container."""
    available = float("inf")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text(encoding="utf-8").splitlines() if ":" in line)
        available = float(fields["MemAvailable"].split()[0]) * 1024
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and (text := limit.read_text(encoding="utf-8").strip()) != "max":
        available = min(available, float(text) - float(used.read_text(encoding="utf-8")))
    return available


def _advice(stages: tuple[StagePlan, ...], memory: Float64Array, available: float, free: float) -> list[str]:
    sentences = []
    for stage in stages:
        if stage.memory * _MARGIN <= available:
            continue
        remedy = ""
        if stage.stage == "embedding":
            largest_first = np.cumsum(np.sort(memory)[::-1] + _SPARE) * _MARGIN
            n_workers = min(int(np.searchsorted(largest_first, available, side="right")), _cores())
            remedy = f"use at most {counted(n_workers, 'worker')}" if n_workers else "make more and smaller patches"
        elif stage.stage == "alignment":
            remedy = "align level by level (graphquilt stitch --branching 100), or embed in fewer dimensions"
        needs = f"{stage.stage} needs {_amount(stage.memory)} of memory, and {_amount(available)} are free"
        sentences.append(f"{needs}: {remedy}." if remedy else f"{needs}.")
    disk = sum(stage.disk for stage in stages) * _MARGIN
    if disk > free:
        sentences.append(f"the job needs {_amount(disk)} of disk, and {_amount(free)} are free: use a larger disk.")
    return sentences


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _amount(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
