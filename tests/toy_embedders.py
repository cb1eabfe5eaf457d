"""Embedders that cost next to nothing, or misbehave on purpose. In a module, so that workers can import them."""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from graphquilt.embedders import Fit, Survey
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.linalg import Motions
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
        return np.eye(graph.n_nodes, self.dim)  # positions that are all equal would be refused


@dataclass(frozen=True)
class Framed:
    """Smoothed features in one basis for all patches, which a shared start of one or two rounds finds."""

    dim: int = 2
    steps: int = 1
    surveys: bool = True  # whether a patch knows what its rows are in the whole graph
    log: str | None = field(default=None, compare=False)
    seconds: float = field(default=0.0, compare=False)
    start: Mapping[str, np.ndarray] | None = field(default=None, compare=False, repr=False)

    @property
    def complete(self):
        return self.start is not None and int(self.start["step"]) == self.steps

    @property
    def motions_started(self):
        return Motions(rotate=False, translate=False)

    def starts_on(self, graph):
        return graph.features is not None

    def _signal(self, graph, far=None):
        if far is not None and "signal" in far.nodes:
            return np.asarray(far.nodes["signal"])
        X = np.asarray(graph.features, dtype=np.float64)
        return (graph.adjacency @ X + X) / (1 + graph.degrees)[:, None]

    def survey(self, graph, seed, *, clusters=None, cut=True):
        if not self.surveys:
            return Survey()
        far = {} if clusters is None else {"cluster": clusters.clusters}
        return Survey({"signal": self._signal(graph), **far}, {"width": np.array(graph.features.shape[1])})

    def prepare(self, graph, seed, *, far=None):
        time.sleep(self.seconds)
        if self.log:
            with open(self.log, "a") as file:
                file.write(f"{seed}\n")
        if far is not None and self.surveys:
            assert int(far.shared["width"]) == graph.features.shape[1]
        return {"rows": self._signal(graph, far)}

    def contribute(self, kept):
        rows = np.rint(np.hstack([np.ones((len(kept["rows"]), 1)), kept["rows"]]) * 2**16).astype(np.int64)
        return {"moment": rows.T @ rows}

    def add(self, total, arrays):
        return dict(arrays) if total is None else {"moment": total["moment"] + arrays["moment"]}

    def combine(self, total, seed):
        M = total["moment"] / 2.0**32
        mean = M[0, 1:] / M[0, 0]
        basis = np.linalg.eigh(M[1:, 1:] / M[0, 0] - np.outer(mean, mean))[1][:, ::-1][:, : self.dim].T
        step = 1 if self.start is None else int(self.start["step"]) + 1
        return replace(self, start={"basis": basis * (step + seed), "mean": mean, "step": np.array(step)})

    def finish(self, kept):
        return None if self.steps > 1 else self._placed(kept["rows"])

    def fit(self, graph, seed, progress=None, *, far=None, kept=None):
        if self.start is None:
            H = self._signal(graph)
            return Fit(np.linalg.svd(H - H.mean(axis=0), full_matrices=False)[0][:, : self.dim], np.empty(0))
        return self._placed(self._signal(graph, far) if kept is None else kept["rows"])

    def _placed(self, H):
        return Fit((H - self.start["mean"]) @ self.start["basis"].T, np.empty(0))

    def __call__(self, graph, seed):
        return self.fit(graph, seed).embedding


class Pretender(dict):
    """A store that says that workers share it, though each gets a copy of its own."""

    folder = Path("nowhere")


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
    from graphquilt.jobs.records import keep_patch_graph

    job = Job.begin(store, JobSettings(**settings), graph)
    keep_patch_graph(store, patch_graph, graph)
    return job


def embed_shard(folder, shard, barrier):
    """Embed every second patch of a job, in a process that begins when all do."""
    from graphquilt.jobs import Job

    job = Job.open(folder)
    wanted = range(shard, job.patch_graph.n_patches, 2)
    job = job.revise(replace(job.settings, embedder=Framed(2, seconds=0.2, log=f"{folder}.log")), only=wanted)
    barrier.wait(60)
    job.embed(only=wanted)


def main(job, n_patches, seconds, workers):
    """Run or resume a job of toys in a process of its own: what the tests kill."""
    from graphquilt.files.writing import folder_lock
    from graphquilt.jobs import DirectoryStore, Processes, embed_patches

    graph, patch_graph = ring_of_patches(int(n_patches))
    with folder_lock(job):
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        with Processes(int(workers)) as pool:
            toy = Toy(3, seconds=float(seconds), log=f"{job}.log")
            embed_patches(graph, patch_graph, toy, seed=7, store=DirectoryStore(job), executor=pool)
        sys.stdout.write("done\n")
