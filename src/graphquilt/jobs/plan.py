"""What a job will cost, before the long work: CPU time, memory and disk of each stage."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.embedders.contract import Embedder, checked_fit
from graphquilt.errors import JobError, counted
from graphquilt.graph import Graph
from graphquilt.jobs.calls import patch_seed
from graphquilt.jobs.costs import (
    SPARE,
    Sizes,
    StagePlan,
    embedding_plan,
    evaluation_plan,
    graph_plans,
    stitching_plans,
)
from graphquilt.jobs.directory import DirectoryStore
from graphquilt.jobs.job import Job
from graphquilt.jobs.measurement import peak_memory
from graphquilt.jobs.recipe import Recipe
from graphquilt.jobs.records import graph_of, patch_key
from graphquilt.jobs.workers import Processes
from graphquilt.progress import ProgressCallback, report

__all__ = ["Plan", "StagePlan", "plan_job", "plan_sizes"]

_MARGIN = 1.25  # estimates are made larger by this much before they are compared with what there is


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


def plan_sizes(
    sizes: Sizes,
    embedder: Embedder,
    *,
    recipe: Recipe = Recipe(),
    workers: int = 1,
    folder: Path = Path(),
) -> Plan:
    """Estimate the cost of every stage, from files to the evaluation, before any of them exists.

    Parameters
    ----------
    sizes : Sizes
    embedder : Embedder
        One of graphquilt's.
    recipe : Recipe
    workers : int
    folder : path
        Where the job will be, whose free disk is compared.

    Examples
    --------
    >>> from graphquilt.embedders import Propagation
    >>> paper = Sizes(n_nodes=121751666, n_edges=1297748926, n_features=768, n_patches=10000, dim=128)
    >>> plan = plan_sizes(paper, Propagation(128))
    >>> [stage.stage for stage in plan.stages]
    ['ingest', 'fennel', 'patches', 'embedding', 'alignment', 'centroid', 'evaluation']
    """
    embedding = embedding_plan(sizes, embedder, runs=recipe.runs, workers=workers)
    stages = (*graph_plans(sizes), embedding, *_stitching(sizes, recipe, workers), evaluation_plan(sizes))
    lane = embedding.memory / embedding.processes
    return _plan(stages, np.full(embedding.processes, lane - SPARE), folder)


def plan_job(job: Job, *, workers: int = 1, progress: ProgressCallback | None = None) -> Plan:
    """Estimate the cost of embedding and aligning the patches of a job.

    Two patches, the smallest and a middling one, are embedded in a worker of their own and thrown away; CPU time and
    memory of the others follow from their size. What early stopping will do elsewhere is not known: take times as a
    guide. The other stages are estimated as by :func:`plan_sizes`.

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
        float(seconds.sum()) * missing / patch_graph.n_patches,
        float(np.sort(np.tile(memory, recipe.runs))[-lanes:].sum()) + lanes * SPARE,
        float(sizes.sum()) * embedder.dim * item * recipe.runs,
        lanes,
    )
    measured = Sizes(
        n_nodes=patch_graph.n_nodes,
        n_edges=0 if job.graph is None else job.graph.n_entries // 2,
        n_patches=patch_graph.n_patches,
        dim=embedder.dim,
        n_rows=float(sizes.sum()),
        n_patch_edges=len(repeated.edges),
        overlap=float(patch_graph.overlaps.mean()) if len(patch_graph.edges) else 0.0,
    )
    folder = job.store.path if isinstance(job.store, DirectoryStore) else Path()
    return _plan((embedding, *_stitching(measured, recipe, lanes)), memory, folder)


def _stitching(sizes: Sizes, recipe: Recipe, workers: int) -> tuple[StagePlan, StagePlan]:
    between = 8.0 * sizes.n_nodes * sizes.dim * bool(recipe.refine)  # the centroid, between sweeps
    between += 8.0 * sizes.rows * recipe.runs * bool(recipe.coverage)
    repeated = replace(sizes, n_patches=sizes.n_patches * recipe.runs, n_rows=sizes.rows * recipe.runs)
    precision = np.dtype(recipe.precision).itemsize
    return stitching_plans(repeated, precision=precision, branching=recipe.branching, between=between, workers=workers)


def _plan(stages: tuple[StagePlan, ...], patches: Float64Array, folder: Path) -> Plan:
    """Compare what the stages need with what there is; ``patches`` are the bytes that each patch takes."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    available, free = _memory_available(), float(shutil.disk_usage(place).free)
    return Plan(stages, available, free, tuple(_advice(stages, patches, available, free)))


def _probe(job: Job, picked: list[int], progress: ProgressCallback | None) -> list[tuple[float, float, int]]:
    """Embed each picked patch in a fresh process: CPU seconds, bytes above what the process began with, item size.

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
    """Return the CPU seconds of the first time and, where asked for, of a second; bytes, item size."""
    before = peak_memory()
    start = time.process_time()
    X = checked_fit(embedder, graph, seed, where=f"patch {patch}").embedding
    seconds = time.process_time() - start
    size = peak_memory() - before
    again = time.process_time()
    if twice:
        checked_fit(embedder, graph, seed, where=f"patch {patch}")
    return seconds, time.process_time() - again, size, X.dtype.itemsize


def _line(at: list[int], values: list[float], sizes: Int64Array) -> Float64Array:
    """Extend what was measured at one or two sizes to all: a straight line that never falls, or a fixed rate."""
    x, y = np.asarray(at, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if len(x) == 1 or x[1] == x[0] or y[1] <= y[0]:
        return np.asarray(y.max() * sizes / x.max())
    slope = (y[1] - y[0]) / (x[1] - x[0])
    return np.asarray(y[0] + slope * (sizes - x[0]))


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
    by_name = {stage.stage: stage for stage in stages}
    embedding, alignment = by_name["embedding"], by_name["alignment"]
    if embedding.memory * _MARGIN > available:
        largest_first = np.cumsum(np.sort(memory)[::-1] + SPARE) * _MARGIN
        fit = min(int(np.searchsorted(largest_first, available, side="right")), _cores())
        sentences.append(
            f"embedding needs {_amount(embedding.memory)} and {_amount(available)} are free: "
            + (
                f"use at most {counted(fit, 'worker')}."
                if fit
                else "even one patch is too large: make more and smaller patches."
            )
        )
    if alignment.memory * _MARGIN > available:
        sentences.append(
            f"aligning all patches at once needs {_amount(alignment.memory)} and {_amount(available)} are free: align "
            "level by level (graphquilt align --branching 100), or embed in fewer dimensions."
        )
    for stage in stages:
        if stage not in (embedding, alignment) and stage.memory * _MARGIN > available:
            sentences.append(f"{stage.stage} needs {_amount(stage.memory)} and {_amount(available)} are free.")
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
