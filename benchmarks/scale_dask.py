"""Dask workers in the embedding stage of a large graph: one against two, the bytes of a call, and a worker that dies.

    PYTHONPATH=. python benchmarks/scale_dask.py FOLDER --patches 100 --share 24 --json figures.json

FOLDER is one that benchmarks/scale.py has filled. Every worker is a process with one thread that opens the graph's
folder itself. All runs embed the same share of the patches, after the workers have embedded a few more, which
compiles their kernels. A run that was stopped goes on: what the JSON file has is not measured again. Seconds are those
of the clock, since that is what workers are for; CPU seconds of the patches say what else the machine did meanwhile.
Bytes are all that went over the loopback device, so that heartbeats and other programs count as well.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pickle
import shutil
import signal
import time
from pathlib import Path

import distributed

import graphquilt as gq
from graphquilt.files import write_text
from graphquilt.jobs import Source
from graphquilt.jobs.sweeps import EmbeddingRun, PatchSweep
from measuring import machine
from scale import DIM, cutting

RUNS = (("one worker", 1, False), ("two workers", 2, False), ("one of two is killed", 2, True))


def begun(folder, name, n_patches):
    """Return a job whose patches are cut and not embedded."""
    settings = gq.JobSettings(
        embedder=gq.Propagation(DIM),
        cutting=cutting(n_patches),
        recipe=gq.Recipe.paper(),
        source=Source(path=str(folder / "graph")),
    )
    shutil.rmtree(folder / name, ignore_errors=True)
    job = gq.Job.begin(gq.DirectoryStore(folder / name), settings)
    job.cut()
    return job


def loopback_bytes():
    """Return the bytes that the loopback device has carried."""
    lines = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()
    return next(int(line.split(":")[1].split()[0]) for line in lines if line.strip().startswith("lo:"))


def embedded(folder, n_workers, share, n_patches, *, kill=False):
    """Embed a share of the patches with so many workers; kill one of them in the middle, if asked to."""
    job = begun(folder, "job dask", n_patches)
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    seen = {}

    def watch(event):
        if kill and event.done == share // 3 and not seen:
            seen.update({path: path.stat().st_mtime_ns for path in job.store.folder.glob("patches/*/embedding.json")})
            os.kill(min(pids), signal.SIGKILL)

    with (
        distributed.LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=True, **quiet) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor(pure=False, retries=2) as pool,
    ):
        pids = sorted(client.run(os.getpid).values())
        job.embed(executor=pool, only=range(n_patches - 2 * n_workers, n_patches))
        start, carried = time.perf_counter(), loopback_bytes()
        job.embed(executor=pool, only=range(share), progress=watch)
        seconds, carried = time.perf_counter() - start, loopback_bytes() - carried
    markers = [job.store[f"patches/{k:05d}/embedding"].parameters for k in range(share)]
    figures = {"seconds": round(seconds, 1), "cpu_s": round(sum(made["cpu_seconds"] for made in markers), 1)}
    figures["bytes_per_patch"] = round(carried / share)
    if kill:
        figures["finished_before_the_kill"] = len(seen)
        figures["of_these_made_again"] = sum(path.stat().st_mtime_ns != when for path, when in seen.items())
    shutil.rmtree(job.store.folder)
    return figures


def call_bytes(folder, n_patches):
    """Return the bytes of one call as Dask sends it, and of its outcome."""
    job = begun(folder, "job dask", n_patches)
    patches = job.patch_graph
    work = PatchSweep(EmbeddingRun(job.graph, patches, job.settings, job.store), "embedding", [None])
    size = len(pickle.dumps(work.call(0)))
    work.lock.close()
    shutil.rmtree(job.store.folder)
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--patches", type=int, default=100)
    parser.add_argument("--share", type=int, default=24)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    results = json.loads(options.json.read_text()) if options.json.exists() else {"machine": machine()}
    if "bytes_of_a_call" not in results:
        results["bytes_of_a_call"] = call_bytes(options.folder, options.patches)
    for name, n_workers, kill in RUNS:
        if name not in results:
            results[name] = embedded(options.folder, n_workers, options.share, options.patches, kill=kill)
            results[name]["patches"] = options.share
            print(name, results[name], flush=True)
            write_text(options.json, json.dumps(results, indent=1))
    results["speed_up"] = round(results["one worker"]["seconds"] / results["two workers"]["seconds"], 2)
    write_text(options.json, json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
