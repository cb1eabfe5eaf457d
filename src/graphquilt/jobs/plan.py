"""What a job will cost, before the long work: CPU time, memory and disk of each stage.

The constants are those of docs/scaling.md, measured at up to 122 million nodes; another processor may be twice as fast
or slow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphquilt.embedders import Embedder, Propagation, free_motions
from graphquilt.embedders.shared_start import shares_start
from graphquilt.errors import FormatError, InputError, JobError, counted
from graphquilt.files.writing import available_memory
from graphquilt.jobs.options import Recipe
from graphquilt.jobs.records import patch_key
from graphquilt.jobs.store import store_folder, stored_record
from graphquilt.jobs.tasks import GROUPED, HELD
from graphquilt.patches.clusters import LARGE, MOST_PAIRS

if TYPE_CHECKING:
    from graphquilt.jobs.job import Job

_MARGIN = 1.25  # safety factor on estimates before they are compared with what is free
_ENTRIES = 1.9  # for each edge in a file: both directions, without loops and repetitions
_SPARE = 130e6  # bytes for Python and its libraries, in each process
_WALKED = 2.2e9  # entries times columns that a walk adds up in a second
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

    @property
    def seconds(self) -> float:
        """Wall seconds, if every process has a core."""
        return self.cpu_seconds / self.processes

    def shortages(self, memory: float, disk: float, margin: float = 1.0) -> Iterator[str]:
        """Say what is too small for the stage, of the bytes that are free, and what needs less."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        n_workers = min(int(memory * self.processes / (self.memory * margin)), cores)
        for what, needed, free in (("memory", self.memory, memory), ("disk", self.disk, disk)):
            if needed * margin > free:
                less = _LESS.get((self.stage, what), f"free some {what}, or use another machine")
                if (self.stage, what) == ("embedding", "memory") and n_workers:
                    less = f"use at most {counted(n_workers, 'worker')}"
                needs = f"the stage '{self.stage}' needs {_amount(needed)} of {what}, and {_amount(free)} are free"
                yield f"{needs}; {less}."


_LESS = {  # what needs less
    ("embedding", "memory"): "make more and smaller patches (--patches)",
    ("embedding", "disk"): "--precision float16 halves it, and so does half of --dim",
    ("centroid", "disk"): "--precision float16 halves it, and so does half of --dim",
    ("alignment", "memory"): "align level by level (--branching 100), or embed in fewer dimensions (--dim)",
    ("survey", "disk"): "use another disk (--out)",
}


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

    @property
    def entries(self) -> float:
        """Entries of the graph."""
        return _ENTRIES * self.n_edges


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
    ['ingest', 'clusters', 'patches', 'survey', 'embedding', 'alignment', 'centroid']
    """
    stages = stage_plans(sizes, embedder, recipe, workers)
    if np.isnan(sum(stage.cpu_seconds for stage in stages)):
        raise _unknown(embedder)
    return _compare_with_free(stages, folder)


def stage_plans(sizes: Sizes, embedder: Embedder, recipe: Recipe, workers: int = 1) -> tuple[StagePlan, ...]:
    """Estimate every stage; the CPU seconds of an embedder that is not one of graphquilt's are NaN."""
    starts = recipe.start and shares_start(embedder)
    free = recipe.undone(free_motions(embedder, start=recipe.start)).free
    if sizes.n_rows is None and not free:  # overlaps only show how well patches agree
        sizes = dataclasses.replace(sizes, n_rows=min(1.01, 1 + 16.0 * sizes.n_patches / sizes.n_nodes) * sizes.n_nodes)
    if sizes.overlap is None and not free:
        sizes = dataclasses.replace(sizes, overlap=20.0)
    f, d, n, rows = sizes.n_features, sizes.dim, sizes.n_nodes, sizes.rows * recipe.runs
    lanes = max(1, min(workers, sizes.n_patches * recipe.runs))
    largest = 1.5 * sizes.rows / sizes.n_patches * (16 * f + 32 * d + 1200)
    item = np.dtype(recipe.precision).itemsize if recipe.precision == "float16" else 4.0
    seconds = _embedding_seconds(sizes, embedder, starts=starts) * recipe.runs
    memory = lanes * (largest + _SPARE) + _SPARE * (lanes > 1)
    if starts and 4 * (sizes.entries + n * f) > GROUPED:  # each worker reads groups of patches
        memory += lanes * (HELD + 9.0 * n)
    embedding = StagePlan("embedding", seconds, memory, item * d * rows, lanes)
    survey = []
    if starts and sizes.n_patches > 1:
        small = sizes.entries <= LARGE  # a small graph has more clusters, and METIS makes its columns
        k = min(n / 2, 8192) if small else max(2048, n / 1000)
        tables = k * (2 * 9 * 256 + 4 * 11 * min(f, 256))
        cpu = _pairs(sizes) * (8 * 256 + 10 * min(f, 256)) / _WALKED + n * (1e-6 + 16e-9 * f)
        cpu += small * (2e-6 * sizes.entries + 1.6e-4 * k)
        survey.append(StagePlan("survey", cpu, 50.0 * n + 2 * tables + 16 * _pairs(sizes) + _SPARE, 31.0 * n + tables))
    alignment, centroid = _stitching_plans(sizes, recipe, free, workers)
    motions = free_motions(embedder, start=recipe.start)
    if starts and recipe.averages_at_once(motions, n, sizes.n_patches, d):  # the rows go while the result grows
        embedding = dataclasses.replace(embedding, disk=centroid.disk)
        centroid = dataclasses.replace(centroid, disk=2.0**30)
    return (*_graph_plans(sizes, starts=starts), *survey, embedding, alignment, centroid)


def _embedding_seconds(sizes: Sizes, embedder: Embedder, *, starts: bool) -> float:
    """Estimate the CPU seconds of embedding all patches once."""
    f, d, rows = sizes.n_features, sizes.dim, sizes.rows
    per_weight = 6 * getattr(embedder, "max_epochs", 1) / (2 * _TRAINING)
    if isinstance(embedder, Propagation):
        clusters, reduced = 256 * starts, min(f, 256)
        walked = (sizes.entries * sizes.rows / sizes.n_nodes + 2 * rows) * (8 * clusters + embedder.steps * reduced)
        return walked / _WALKED + rows * (2e-6 + (clusters + 3 * reduced) * (4e-10 * d + 6e-9) + 2e-8 * f)
    weights = {"VGAE": 4 * d * f + 8 * d * d, "GAE": 4 * d * f + 4 * d * d, "DGI": 2 * d * f}
    name = type(embedder).__name__
    return rows * (8e-6 * d if name == "SVD" else per_weight * weights.get(name, np.nan))


def plan_job(job: Job, *, workers: int = 1) -> Plan:
    """Estimate the cost of embedding and stitching the patches of a job from their sizes; see :func:`plan_sizes`.

    For an embedder that is not one of graphquilt's, the records of patches that are embedded say what others will cost.
    """
    settings, left = job.settings, 1 - job.count_embedded() / job.n_wanted
    if settings.recipe.undone(settings.motions).free:
        job.patch_graph.check_dim(settings.dim)
    stages = stage_plans(_sizes_of(job), settings.embedders[0], settings.recipe, workers)
    embedding, *others = (stage for stage in stages if stage.stage in ("embedding", "alignment", "centroid"))
    seconds = _measured_seconds(job) if np.isnan(embedding.cpu_seconds) else embedding.cpu_seconds
    embedding = dataclasses.replace(embedding, cpu_seconds=seconds * left)
    return _compare_with_free((embedding, *others), store_folder(job.store))


def _measured_seconds(job: Job) -> float:
    """Return the CPU seconds that embedding all patches takes by the records of some."""
    sizes, seconds, n_rows = job.patch_graph.sizes, 0.0, 0
    for k in range(job.n_wanted):
        record = stored_record(job.store, patch_key(k, "embedding"))
        cost = None if record is None else record.parameters.get("cpu_seconds")
        if isinstance(cost, int | float):
            seconds, n_rows = seconds + cost, n_rows + int(sizes[k % len(sizes)])
    if n_rows == 0:
        raise _unknown(job.settings.embedders[0])
    return seconds / n_rows * float(sizes.sum()) * job.settings.recipe.runs


def _unknown(embedder: Embedder) -> InputError:
    name = type(embedder).__name__
    return InputError(f"the cost of {name} is not known: embed some patches of a job (--shard), then plan that job.")


def _sizes_of(job: Job) -> Sizes:
    """Return the sizes of a job, with those of its patches if it is cut."""
    cut, graph, settings = None, job.graph, job.settings
    with contextlib.suppress(JobError, FormatError):  # not cut yet, or to be cut again
        cut = job.patch_graph
    n_nodes, runs = job.n_nodes, settings.recipe.runs
    return Sizes(
        n_nodes=n_nodes,
        n_edges=0 if graph is None else round(graph.n_entries / _ENTRIES),
        n_features=0 if graph is None or graph.features is None else int(graph.features.shape[1]),
        n_patches=min(settings.cutting.n_patches or 1, n_nodes) if cut is None else cut.n_patches,
        dim=settings.dim,
        n_rows=None if cut is None else float(cut.sizes.sum()),
        n_patch_edges=None if cut is None else runs * len(cut.edges) + cut.n_patches * runs * (runs - 1) // 2,
        overlap=None if cut is None or not len(cut.edges) else float(cut.overlaps.mean()),
    )


def check_room(job: Job, *names: str, workers: int = 1) -> None:
    """Refuse stages that the memory, or the disk of the job's folder, is too small for, before they begin."""
    folder = store_folder(job.store)
    if folder is None or job.graph is None:
        return
    for stage in stage_plans(_sizes_of(job), job.settings.embedders[0], job.settings.recipe, workers):
        if stage.stage in names:
            for shortage in stage.shortages(available_memory(), disk_free(folder)):
                raise JobError(shortage)


def _graph_plans(sizes: Sizes, *, starts: bool) -> tuple[StagePlan, ...]:
    """Estimate the stages from files to patches, each of which is one process."""
    n, p, entries = sizes.n_nodes, sizes.n_patches, sizes.entries
    adjacent = min(p * (p - 1) / 2, 150.0 * p)  # pairs of clusters
    partition = StagePlan("fennel", 2 * 33e-9 * entries, 12.0 * n + _SPARE, 8.0 * n)
    if starts:  # fine clusters in ten passes, which METIS merges
        pairs = _pairs(sizes)
        partition = StagePlan(
            "clusters", 45e-8 * entries + 3e-7 * pairs, 40.0 * n + 50 * pairs + _SPARE, 12.0 * n + 12 * pairs
        )
    return (
        StagePlan("ingest", 130e-9 * entries, max(2**30, n / 1000) + _SPARE, 8 * entries + 8 * n),
        partition,
        StagePlan("patches", 205e-9 * entries, 24.0 * n + 32 * adjacent + _SPARE, 4 * sizes.rows),
    )


def _pairs(sizes: Sizes) -> float:
    """Estimate how many pairs of fine clusters are kept."""
    return min(max(2048.0, sizes.n_nodes / 1000) ** 2 / 2, 0.15 * sizes.entries, float(MOST_PAIRS))


def _stitching_plans(sizes: Sizes, recipe: Recipe, free: bool, workers: int) -> tuple[StagePlan, StagePlan]:
    """Estimate alignment and centroid of all runs together."""
    d, p, n, rows = sizes.dim, sizes.n_patches * recipe.runs, sizes.n_nodes, sizes.rows * recipe.runs
    m = min((10.0 if free else max(4.0, np.log2(p)) / 2) * p, p * (p - 1) / 2)
    m = m if sizes.n_patch_edges is None else float(sizes.n_patch_edges)
    overlap = min(1200.0, n / p) if sizes.overlap is None else sizes.overlap
    measuring = m * (3e-4 + 2 * overlap * d * d / _SPEED + 20 * d**3 / _SPEED)
    solving = m * 2 * d**3 * 12 / _SPEED * free  # 12 iterations; more if the patches disagree
    large, products = m * d * d > _IN_MEMORY, 4.0 * m * d * d
    memory = 8.0 * d * d * 5 * p + (products if large else 4 * products)
    if recipe.branching is not None:
        memory = 8.0 * d * d * (p + 12 * recipe.branching) + (0 if large else products)
    coverage = bool(recipe.coverage)
    held = _SPARE + 8.0 * n * d * bool(recipe.refine) + 2.0 * rows * coverage
    averaging = rows * (2 * d * d * free / _SPEED + 2e-8 * d) + 2e-8 * sizes.entries * coverage
    sums = min(2.0**30, 8.0 * n * d) + 24.0 * d * rows / p
    result = float(np.dtype(recipe.precision).itemsize) * n * d
    return (
        StagePlan("alignment", measuring + solving, memory + held, 8.0 * d * d * p + products * large, workers),
        StagePlan("centroid", averaging + 2e-9 * result, sums + held, result),
    )


def _compare_with_free(stages: tuple[StagePlan, ...], folder: Path | None) -> Plan:
    """Compare what the stages need with what is free."""
    available, free = available_memory(), disk_free(folder or Path())
    advice = [line for stage in stages for line in stage.shortages(available, np.inf, _MARGIN)]
    disk = sum(stage.disk for stage in stages) * _MARGIN
    if disk > free:
        advice.append(f"the job needs {_amount(disk)} of disk, and {_amount(free)} are free: use a larger disk.")
    return Plan(stages, available, free, tuple(advice))


def disk_free(folder: Path) -> float:
    """Return the bytes that are free on the disk of a folder, which may not exist yet."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return float(shutil.disk_usage(place).free)


def _amount(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
