"""What a job will cost, before the long work: time, memory and disk of each stage, from a small probe."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.embedders.contract import Embedder, checked_fit
from graphquilt.errors import JobError
from graphquilt.graph import Graph
from graphquilt.jobs.directory import DirectoryStore
from graphquilt.jobs.job import Job
from graphquilt.jobs.workers import Processes
from graphquilt.kernels import one_thread
from graphquilt.patches import PatchGraph
from graphquilt.pipeline import patch_seed
from graphquilt.pipeline.measurement import peak_memory
from graphquilt.pipeline.records import graph_of, patch_key
from graphquilt.progress import ProgressCallback, report

__all__ = ["Plan", "StagePlan", "plan_job"]

_MARGIN = 1.25  # estimates are made larger by this much before they are compared with what there is
_ITERATIONS = 12  # of the rotation solver; few where the patches agree, more where they do not
_SPARE = 300e6  # bytes for Python, its libraries and the driver


@dataclass(frozen=True)
class StagePlan:
    """The estimate for one stage.

    Attributes
    ----------
    stage : str
    seconds : float
        Wall-clock time with the workers that were asked about.
    memory : float
        Bytes at the peak, all processes together.
    disk : float
        Bytes that it adds to the job.
    """

    stage: str
    seconds: float
    memory: float
    disk: float


@dataclass(frozen=True)
class Plan:
    """What a job will take, what there is, and what to change if that is too little.

    Attributes
    ----------
    stages : tuple of StagePlan
    memory_available, disk_available : float
        Bytes.
    advice : tuple of str
        Empty where it fits.
    """

    stages: tuple[StagePlan, ...]
    memory_available: float
    disk_available: float
    advice: tuple[str, ...]


def plan_job(job: Job, *, workers: int = 1, progress: ProgressCallback | None = None) -> Plan:
    """Estimate the cost of embedding and aligning the patches of a job.

    Two patches, the smallest and a middling one, are embedded in a worker of their own and thrown away; time and
    memory of the others follow from their size. What early stopping will do elsewhere is not known: take times as a
    guide.

    Parameters
    ----------
    job : Job
        A job that has patches. Its settings say what will be done.
    workers : int
    progress : callable, optional

    Returns
    -------
    Plan
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
    item = probes[0][2]
    lanes = max(1, min(workers, repeated.n_patches))
    embedding = StagePlan(
        "embedding",
        float(seconds.sum()) * missing / patch_graph.n_patches / lanes,
        float(np.sort(np.tile(memory, recipe.runs))[-lanes:].sum()) + lanes * _SPARE,
        float(sizes.sum()) * embedder.dim * item * recipe.runs,
    )
    between = 8.0 * patch_graph.n_nodes * embedder.dim * bool(recipe.refine)  # the centroid, between sweeps
    between += 8.0 * float(repeated.sizes.sum()) * bool(recipe.coverage)
    aligning = _alignment(repeated, embedder.dim, lanes)
    stages = (embedding, *(replace(each, memory=each.memory + between) for each in aligning))
    available, free = _memory_available(), _disk_available(job)
    advice = _advice(stages, memory, available, free)
    return Plan(stages, available, free, tuple(advice))


def _probe(job: Job, picked: list[int], progress: ProgressCallback | None) -> list[tuple[float, float, int]]:
    """Embed each picked patch in a fresh process: seconds, bytes above what the process began with, item size.

    What a fresh process needs for imports and compilation is measured on the first patch and not counted: a worker
    does that once and embeds many patches.
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
    """Return the seconds of the first time and, where asked for, of a second; bytes, item size."""
    before = peak_memory()
    start = time.perf_counter()
    X = checked_fit(embedder, graph, seed, where=f"patch {patch}").embedding
    seconds = time.perf_counter() - start
    size = peak_memory() - before
    again = time.perf_counter()
    if twice:
        checked_fit(embedder, graph, seed, where=f"patch {patch}")
    return seconds, time.perf_counter() - again, size, X.dtype.itemsize


def _line(at: list[int], values: list[float], sizes: Int64Array) -> Float64Array:
    """Extend what was measured at one or two sizes to all: a straight line that never falls, or a fixed rate."""
    x, y = np.asarray(at, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if len(x) == 1 or x[1] == x[0] or y[1] <= y[0]:
        return np.asarray(y.max() * sizes / x.max())
    slope = (y[1] - y[0]) / (x[1] - x[0])
    return np.asarray(y[0] + slope * (sizes - x[0]))


def _alignment(patch_graph: PatchGraph, dim: int, lanes: int) -> tuple[StagePlan, StagePlan]:
    """Estimate the relative transforms and the solver from their counts of operations, and this machine's speed."""
    m, p = len(patch_graph.edges), patch_graph.n_patches
    overlap = int(patch_graph.overlaps.mean()) if m else 0
    rng = np.random.default_rng(0)
    with one_thread():
        X = rng.standard_normal((max(overlap, dim), dim))
        start = time.perf_counter()
        for _ in range(3):
            np.linalg.svd(X.T @ X)
        one_edge = (time.perf_counter() - start) / 3
        blocks = rng.standard_normal((64, dim, dim))
        start = time.perf_counter()
        np.matmul(blocks, blocks)
        one_block = (time.perf_counter() - start) / 64
    relative = m * one_edge * 2 / lanes
    solver = m * one_block * 2 * _ITERATIONS
    memory = 8.0 * dim * dim * (2 * m + 8 * p) + _SPARE
    rows = float(patch_graph.sizes.sum()) * dim
    bytes_out = 8.0 * patch_graph.n_nodes * dim
    return (
        StagePlan("alignment", relative + solver, memory, 8.0 * dim * dim * p),
        StagePlan("centroid", rows / 2e7, 8.0 * dim * float(patch_graph.sizes.max()) * 3 + _SPARE, 2 * bytes_out),
    )


def _disk_available(job: Job) -> float:
    return float(shutil.disk_usage(job.store.path if isinstance(job.store, DirectoryStore) else ".").free)


def _memory_available() -> float:
    """Return the bytes that are free for new work: what the machine has, or what its container allows."""
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
    embedding, alignment = stages[0], stages[1]
    if embedding.memory * _MARGIN > available:
        largest_first = np.cumsum(np.sort(memory)[::-1] + _SPARE) * _MARGIN
        fit = min(int(np.searchsorted(largest_first, available, side="right")), _cores())
        sentences.append(
            f"embedding needs {_amount(embedding.memory)} and {_amount(available)} are free: "
            + (
                f"use at most {fit} {'worker' if fit == 1 else 'workers'}."
                if fit
                else "even one patch is too large: make more and smaller patches."
            )
        )
    if alignment.memory * _MARGIN > available:
        sentences.append(
            f"aligning all patches at once needs {_amount(alignment.memory)} and {_amount(available)} are free: align "
            "level by level (graphquilt align --branching 100), or embed in fewer dimensions."
        )
    disk = sum(stage.disk for stage in stages) * _MARGIN
    if disk > free:
        sentences.append(
            f"the job will add {_amount(disk)} to a disk with {_amount(free)} free: move it to a larger one."
        )
    return sentences


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _amount(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
