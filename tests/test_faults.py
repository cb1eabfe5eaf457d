"""Faults, with real processes and real file systems: nothing that is finished is lost or done twice."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from graphquilt.alignment import align, centroid
from graphquilt.errors import JobError
from graphquilt.files.writing import folder_lock
from graphquilt.jobs import DirectoryStore, Record, embed_patches, patch_seed
from graphquilt.jobs.records import patch_key
from toy_embedders import Toy, ring_of_patches

N_PATCHES, SECONDS = 240, 0.02


def start(job):
    path = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    code = "import sys, toy_embedders; toy_embedders.main(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(job), str(N_PATCHES), str(SECONDS), "2"]
    return subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def workers_of(driver):
    """The processes two levels down: what the driver's fork server has forked."""
    children = psutil.Process(driver.pid).children(recursive=True)
    parents = {process.pid for process in children}
    return [process for process in children if process.ppid() in parents]


def markers(job):
    return {path: path.stat().st_mtime_ns for path in Path(job).glob("patches/*/embedding.json")}


@pytest.mark.slow
def test_twenty_kills_at_seeded_moments_lose_nothing(tmp_path):
    rng = np.random.default_rng(2026)
    job, finished, kills, hits = tmp_path / "job", {}, 0, 0
    while kills < 20:
        with start(job) as driver:
            assert driver.stdout.readline() == b"begun\n"
            time.sleep(float(rng.uniform(0.15, 0.6)))
            if kills % 3 == 2 and (workers := workers_of(driver)):
                workers[int(rng.integers(len(workers)))].kill()
                kills += 1
                time.sleep(float(rng.uniform(0.1, 0.4)))
            driver.kill()
            kills += 1
            hits += b"done" not in driver.stdout.read()
        now = markers(job)
        assert finished.items() <= now.items(), "a finished patch was done again"
        store = DirectoryStore(job)
        assert all(f"patches/{path.parent.name}/embedding" in store for path in now), "a marker without its data"
        finished = now
    assert hits >= 10, "most kills must fall into the work"
    with start(job) as driver:
        out, err = driver.communicate(timeout=300)
    assert out == b"begun\ndone\n", err.decode()
    assert finished.items() <= markers(job).items()
    graph, quilt = ring_of_patches(N_PATCHES)
    whole = embed_patches(graph, quilt, Toy(3), seed=7)
    resumed = embed_patches(graph, quilt, Toy(3), seed=7, store=DirectoryStore(job))
    for one, other in zip(resumed, whole, strict=True):
        assert one.coordinates.tobytes() == other.coordinates.tobytes()
    stitched = [centroid(each, align(each, quilt.edges)) for each in (whole, resumed)]
    assert stitched[0].tobytes() == stitched[1].tobytes()
    lines = Path(f"{job}.log").read_text().split()
    assert {int(seed) for seed in lines} == {patch_seed(7, k) for k in range(N_PATCHES)}


def test_workers_end_when_their_driver_is_killed(tmp_path):
    with start(tmp_path / "job") as driver:
        driver.stdout.readline()
        deadline = time.monotonic() + 300
        while len(workers := workers_of(driver)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        driver.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(workers, timeout=300)
    assert not alive


def test_a_second_run_is_refused_with_the_pid_of_the_first(tmp_path):
    with start(tmp_path / "job") as first:
        first.stdout.readline()
        with start(tmp_path / "job") as second:
            _, err = second.communicate(timeout=300)
        assert f"process {first.pid} on ".encode() in err
        assert second.returncode == 1
        first.kill()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 600 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", disk]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount a small disk; the fake writer below covers the rest")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_is_one_clear_error_and_what_is_done_stays(small_disk):
    graph, quilt = ring_of_patches(60)
    store = DirectoryStore(small_disk / "job")
    with pytest.raises(JobError, match=r"disk is full .* intact"):
        embed_patches(graph, quilt, Toy(100), seed=7, store=store)
    done = [k for k in range(60) if patch_key(k, "embedding") in store]
    assert 5 < len(done) < 60
    whole = embed_patches(graph, quilt, Toy(100), seed=7)
    for k in done:
        assert np.array_equal(store[patch_key(k, "embedding")].arrays["embedding"], whole[k].coordinates)
    subprocess.run(["mount", "-o", "remount,size=60m", small_disk], check=True)
    for one, other in zip(embed_patches(graph, quilt, Toy(100), seed=7, store=store), whole, strict=True):
        assert np.array_equal(one.coordinates, other.coordinates)


@pytest.mark.parametrize("at", ["data", "marker"])
def test_a_full_disk_leaves_the_old_record_in_place(tmp_path, monkeypatch, at):
    """A write that fails half-way, without a small disk: the first or the second file meets the end of the space."""
    store = DirectoryStore(tmp_path / "job")
    store["embedding"] = Record({"x": np.arange(3)}, {"n": 1})
    calls = []

    def full(handle):
        calls.append(handle)
        if len(calls) == (1 if at == "data" else 2):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JobError, match="disk is full"):
        store["embedding"] = Record({"x": np.arange(4)}, {"n": 2})
    assert not list(store.folder.glob("*.part"))
    if at == "data":
        assert store["embedding"].parameters["n"] == 1
    else:
        assert "embedding" not in store  # the marker is missing, so nothing looks finished


def test_a_read_only_folder_is_one_clear_error(small_disk):
    """A read-only mount, because no folder is read-only for root."""
    graph, quilt = ring_of_patches(4)
    store = DirectoryStore(small_disk / "job")
    embed_patches(graph, quilt, Toy(2), seed=7, store=store, only=range(2))
    before = markers(store.folder)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(JobError, match=r"it cannot be written to\. Allow writing, or choose another folder"):
        embed_patches(graph, quilt, Toy(2), seed=7, store=store)
    with pytest.raises(JobError, match="it cannot be written to"), folder_lock(small_disk / "other"):
        pass
    assert markers(store.folder) == before
    assert len(embed_patches(graph, quilt, Toy(2), seed=7, store=store, only=range(2))) == 2
