"""Measure the overhead of jobs: ``python benchmarks/jobs.py [--write docs/benchmarks-jobs.md]``."""

import argparse
import json
import logging
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import scipy.sparse as sp

import graphquilt as gq


@dataclass(frozen=True)
class Instant:
    """Returns at once."""

    dim: int = 2

    def __call__(self, graph, seed):
        """Return a constant."""
        return np.full((graph.n_nodes, self.dim), seed % 7, dtype=np.float64)


@dataclass(frozen=True)
class Busy:
    """Uses a fixed amount of one core: about a tenth of a second on a core of its own."""

    dim: int = 2

    def __call__(self, graph, seed):
        """Return what a long chain of small sums ends in."""
        x = seed
        for _ in range(1_500_000):
            x = (x * 1103515245 + 12345) % 2147483648
        return np.full((graph.n_nodes, self.dim), float(x))


def ring(n_patches, size=8):
    n = n_patches * size
    at = np.arange(n)
    A = sp.coo_array((np.ones(n), (at, (at + 1) % n)), shape=(n, n))
    graph = gq.Graph((A + A.T).tocsr())
    patches = [np.sort((k * size + np.arange(size + 3)) % n) for k in range(n_patches)]
    edges = np.sort(np.stack([np.arange(n_patches), (np.arange(n_patches) + 1) % n_patches], axis=1), axis=1)
    return graph, gq.PatchGraph(patches, edges, n)


def cpu_seconds():
    """User and system time of this process and all below it that are alive."""
    times = [each.cpu_times() for each in (psutil.Process(), *psutil.Process().children(recursive=True))]
    return sum(each.user + each.system for each in times)


def timed(work):
    start, before = time.perf_counter(), cpu_seconds()
    work()
    return time.perf_counter() - start, cpu_seconds() - before


def many_patches(folder):
    graph, quilt = ring(1000)
    rows = []
    store = gq.DirectoryStore(folder / "processes")

    with gq.Processes(2) as pool:
        wall, cpu = timed(lambda: gq.embed_patches(graph, quilt, Instant(), seed=0, executor=pool, store=store))
    rows.append(("1000 patches that take no time, 2 processes", wall, "s", "< 10 s", cpu))
    wall, cpu = timed(
        lambda: gq.embed_patches(graph, quilt, Instant(), seed=0, store=gq.DirectoryStore(folder / "processes"))
    )
    rows.append(("resuming that job when it is finished", wall, "s", "< 2 s", cpu))
    import distributed

    with (
        distributed.LocalCluster(
            2, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.ERROR
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        there, pool = gq.DirectoryStore(folder / "dask"), client.get_executor(pure=False)
        wall, cpu = timed(lambda: gq.embed_patches(graph, quilt, Instant(), seed=0, executor=pool, store=there))
    rows.append(("1000 patches that take no time, Dask with 2 workers", wall, "s", "< 20 s", cpu))
    return rows


def throughput(folder):
    """Alternate one and two processes, because the machine is not ours alone, and compare the totals."""
    graph, quilt = ring(16)
    total = {1: 0.0, 2: 0.0}
    for attempt in range(4):
        for n in (1, 2):
            with gq.Processes(n) as pool:
                list(pool.map(abs, range(8)))  # the workers are up before the clock starts
                store = gq.DirectoryStore(folder / f"busy-{n}-{attempt}")
                start = time.perf_counter()
                gq.embed_patches(graph, quilt, Busy(), seed=0, executor=pool, store=store)
                total[n] += time.perf_counter() - start
    return [("throughput of two processes over one, CPU-bound patches", total[1] / total[2], "times", "≥ 1.7", None)]


def driver(folder):
    """The child: 10 000 tiny patches, then its own peak."""
    graph, quilt = ring(10_000)
    with gq.Processes(2) as pool:
        gq.embed_patches(graph, quilt, Instant(), seed=0, executor=pool, store=gq.DirectoryStore(folder))
    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def driver_memory(folder):
    command = [sys.executable, __file__, "--driver", str(folder / "driver")]
    outputs = []
    wall, _ = timed(lambda: outputs.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    return [
        ("peak resident memory of the driver, 10 000 tiny patches", json.loads(outputs[0]), "MB", "< 500 MB", None),
        ("the time that took", wall, "s", "–", None),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--driver", type=Path)
    asked = parser.parse_args()
    if asked.driver:
        driver(asked.driver)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = []
        for part in (many_patches, throughput, driver_memory):
            for row in part(folder):
                rows.append(row)
                print(f"{row[0]}: {row[1]:.3g} {row[2]} (goal {row[3]})", flush=True)
    load = os.getloadavg()
    lines = [
        "# Benchmarks: the overhead of jobs",
        "",
        "This page is written by `python benchmarks/jobs.py --write docs/benchmarks-jobs.md`. Times are wall-clock "
        "times and include the `fsync` of every embedding. The last column has the CPU seconds of all processes "
        "together, which say more on a shared machine.",
        "",
        f"It was measured with Python {platform.python_version()} on {os.cpu_count()} cores. The load average was "
        f"{load[0]:.1f} at the end; a load above {os.cpu_count()} is the work of other programs, which slowed this "
        "down.",
        "",
        "| what | measured | goal | CPU s |",
        "|---|---|---|---|",
    ]
    for what, value, unit, wanted, cpu in rows:
        lines.append(f"| {what} | {value:.3g} {unit} | {wanted} | {'' if cpu is None else f'{cpu:.2f}'} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if asked.write:
        asked.write.write_text(text)


if __name__ == "__main__":
    main()
