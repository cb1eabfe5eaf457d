"""Embedders that cost next to nothing, or misbehave on purpose. In a module, so that workers can import them."""

import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.patches import PatchGraph


@dataclass(frozen=True)
class Toy:
    """Random places that depend on the graph and the seed, after ``seconds`` of sleep."""

    dim: int = 2
    seconds: float = field(default=0.0, compare=False)
    log: str | None = field(default=None, compare=False)

    def __call__(self, graph, seed):
        if self.seconds:
            time.sleep(self.seconds)
        if self.log:
            with open(self.log, "a") as file:
                file.write(f"{seed}\n")
        X = np.random.default_rng(seed).standard_normal((graph.n_nodes, self.dim))
        return X + graph.adjacency @ X


@dataclass(frozen=True)
class Failing(Toy):
    """Fails on patches of ``size`` nodes, the first ``times`` times."""

    size: int = 0
    times: int = field(default=10**9, compare=False)
    memory: str = field(default="", compare=False)

    def __call__(self, graph, seed):
        if graph.n_nodes == self.size:
            with open(self.memory, "a") as file:
                file.write("x")
            if Path(self.memory).stat().st_size <= self.times:
                raise ValueError("this size does not please me")
        return super().__call__(graph, seed)


@dataclass(frozen=True)
class Deadly(Failing):
    """Kills its own process on patches of ``size`` nodes, the first ``times`` times."""

    def __call__(self, graph, seed):
        try:
            return super().__call__(graph, seed)
        except ValueError:
            os.kill(os.getpid(), 9)


@dataclass(frozen=True)
class Picky(Toy):
    """Finds something wrong with every graph."""

    def __call__(self, graph, seed):
        super().__call__(graph, seed)
        raise InputError(f"the graph of {graph.n_nodes} nodes has no features.")


@dataclass(frozen=True)
class Whereabouts(Toy):
    """Writes down where it runs: the threads and the GPU it was given."""

    def __call__(self, graph, seed):
        from threadpoolctl import threadpool_info

        threads = max((pool["num_threads"] for pool in threadpool_info()), default=1)
        time.sleep(0.3)
        with open(self.log, "a") as file:
            file.write(f"{os.getpid()} {threads} {os.environ.get('CUDA_VISIBLE_DEVICES', '-')}\n")
        return np.zeros((graph.n_nodes, self.dim))


class Pretender(dict):
    """A store that says that workers share it, though each gets a copy of its own."""

    shared = True


def ring_of_patches(n_patches, size=12):
    """A ring graph and overlapping stretches of it, stretch k with a size of its own (size + k % 7)."""
    n = n_patches * size
    rows = np.arange(n)
    A = sp.coo_array((np.ones(n), (rows, (rows + 1) % n)), shape=(n, n))
    features = np.random.default_rng(0).standard_normal((n, 3)).astype(np.float32)
    graph = Graph((A + A.T).tocsr(), features)
    starts = np.arange(n_patches) * size
    patches = [np.unique((start + np.arange(size + 4 + k % 7)) % n) for k, start in enumerate(starts)]
    edges = np.sort(np.stack([np.arange(n_patches), (np.arange(n_patches) + 1) % n_patches], axis=1), axis=1)
    return graph, PatchGraph(patches, np.unique(edges, axis=0), n)


def job_of_patches(store, graph, patch_graph, **settings):
    """Begin a job whose patches are given instead of cut."""
    from graphquilt.jobs import Job, JobSettings
    from graphquilt.pipeline.cutting import keep_patch_graph

    job = Job.begin(store, JobSettings(**settings), graph)
    keep_patch_graph(store, patch_graph, graph)
    return job


def main(job, n_patches, seconds, workers):
    """Run or resume a job of toys in a process of its own: what the tests kill."""
    from graphquilt.jobs import DirectoryStore, Processes
    from graphquilt.locks import folder_lock
    from graphquilt.pipeline import embed_patches

    graph, patch_graph = ring_of_patches(int(n_patches))
    with folder_lock(job):
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        with Processes(int(workers)) as pool:
            toy = Toy(3, seconds=float(seconds), log=f"{job}.log")
            embed_patches(graph, patch_graph, toy, seed=7, store=DirectoryStore(job), executor=pool)
        sys.stdout.write("done\n")
