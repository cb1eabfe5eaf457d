"""Dask distributed, with real processes: workers that die and leave, and a scheduler that goes away."""

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from extras import needs
from graphquilt.errors import JobError
from graphquilt.jobs import DirectoryStore, Processes, embed_patches
from graphquilt.jobs.records import patch_key
from toy_embedders import Toy, ring_of_patches

distributed = needs("distributed")


@pytest.fixture(scope="module")
def ring():
    return ring_of_patches(40)


@pytest.fixture(scope="module")
def expected(ring):
    return embed_patches(*ring, Toy(3), seed=7)


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("distributed").setLevel(logging.WARNING)


def cluster(n_workers):
    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=logging.CRITICAL
    )


def assert_same(patches, expected):
    for one, other in zip(patches, expected, strict=True):
        assert one.coordinates.tobytes() == other.coordinates.tobytes()


def test_a_cluster_gives_the_same_bits(ring, expected, tmp_path):
    with (
        cluster(2) as workers,
        distributed.Client(workers) as client,
        client.get_executor(pure=False, retries=2) as pool,
    ):
        assert_same(embed_patches(*ring, Toy(3), seed=7, executor=pool, only=range(40)), expected)
        store = DirectoryStore(tmp_path / "job")
        assert_same(embed_patches(*ring, Toy(3), seed=7, executor=pool, store=store), expected)


def test_a_worker_is_killed_in_mid_patch_and_another_leaves_for_good(ring, expected, tmp_path):
    store = DirectoryStore(tmp_path / "job")
    with cluster(3) as workers, distributed.Client(workers) as client:
        pids = sorted(client.run(os.getpid).values())
        leaver = workers.workers[2]

        def disturb(event):
            if event.done == 5:
                os.kill(pids[0], signal.SIGKILL)
            elif event.done == 10:
                client.loop.add_callback(leaver.close)

        with client.get_executor(pure=False) as pool:
            toy = Toy(3, seconds=0.1)
            patches = embed_patches(*ring, toy, seed=7, executor=pool, store=store, progress=disturb)
        assert_same(patches, expected)


def test_the_scheduler_goes_away_and_plain_processes_finish(ring, expected, tmp_path):
    def start(*words):
        path = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
        command = [sys.executable, "-m", *words, "--no-dashboard"]
        return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.DEVNULL)

    store, log = DirectoryStore(tmp_path / "job"), tmp_path / "log"
    address = tmp_path / "scheduler.json"
    scheduler = start(
        "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(address)
    )
    worker = start("distributed.cli.dask_worker", "--scheduler-file", str(address), "--nthreads", "1")
    try:
        with distributed.Client(scheduler_file=str(address), timeout=300) as client:
            client.wait_for_workers(1, timeout=300)

            def kill_at_five(event):
                if event.done == 5:
                    scheduler.kill()

            toy = Toy(3, seconds=0.1, log=str(log))
            with (
                pytest.raises(JobError, match=r"scheduler went away.*What is finished is kept"),
                client.get_executor(pure=False) as pool,
            ):
                embed_patches(*ring, toy, seed=7, executor=pool, store=store, progress=kill_at_five)
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()
    time.sleep(0.3)  # the worker's own process ends with its nanny
    done = [k for k in range(40) if patch_key(k, "embedding") in store]
    assert 5 <= len(done) < 40
    stamps = [np.int64((store.folder / (patch_key(k, "embedding") + ".json")).stat().st_mtime_ns) for k in done]
    with Processes(2) as pool:
        assert_same(embed_patches(*ring, toy, seed=7, executor=pool, store=store), expected)
    assert stamps == [(store.folder / (patch_key(k, "embedding") + ".json")).stat().st_mtime_ns for k in done]
