"""The same settings give the same bits, whichever way a job is run, and however often it is killed on the way."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from extras import needs

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-c", "from graphquilt.cli import main; main()"]
STAGES = {
    "default": (
        "labels",
        "patch_graph",
        "clusters",
        "survey",
        "patches/00001/kept0",
        "patches/00002/embedding",
        "alignment",
    ),
    "vgae": ("starts/0/0", "patches/00003/kept1", "starts/1/1", "patches/00007/embedding"),
}


def ring(n):
    return sp.csr_array(np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0))


@pytest.fixture(scope="module")
def graph():
    """A torus of 24 × 25 nodes, every other edge of which has a shortcut."""
    A = sp.csr_array(sp.kron(ring(24), sp.eye(25)) + sp.kron(sp.eye(24), ring(25)))
    return gq.Graph(A, np.random.default_rng(0).random((600, 5)).astype(np.float32))


@pytest.fixture(scope="module")
def edges(graph, tmp_path_factory):
    path = tmp_path_factory.mktemp("input") / "edges.csv"
    rows, columns = sp.coo_array(graph.adjacency).coords
    path.write_text("".join(f"{a},{b}\n" for a, b in zip(rows, columns, strict=True) if a < b))
    np.save(path.with_name("x.npy"), graph.features)
    return path


# What is asked for: flags of the command line, and the same as values.
CASES = {
    "default": (
        ["--dim", "3", "--patches", "5", "--seed", "4"],
        lambda: {"dim": 3, "cutting": gq.Cutting(5), "seed": 4},
    ),
    "vgae": (
        [
            *["--dim", "3", "--patches", "5", "--seed", "4", "-e", "vgae", "--set", "max_epochs=6"],
            *["--runs", "2", "--robust", "--coverage", "2", "--refine", "1"],
        ],
        lambda: {
            "dim": 3,
            "cutting": gq.Cutting(5),
            "seed": 4,
            "embedder": gq.VGAE(3, max_epochs=6),
            "recipe": gq.Recipe.shared().replace(runs=2, robust=True, refine=1),
        },
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    if request.param == "vgae":
        needs("torch")
    flags, options = CASES[request.param]
    return request.param, flags, options()


@pytest.fixture(scope="module")
def expected(case, graph):
    """The embedding of gq.embed in memory."""
    return np.asarray(gq.embed(graph, **case[2]).embedding)


def command(*words, **options):
    return subprocess.run([*COMMAND, *map(str, words)], check=True, capture_output=True, text=True, **options)


def features(edges):
    return ["--features", edges.with_name("x.npy")]


def embedding(job):
    return np.load(Path(job) / "embedding.npy", allow_pickle=False)


def test_a_dict_gives_the_same_bits(case, graph, expected):
    store = {}
    assert np.array_equal(gq.embed(graph, **case[2], store=store).embedding, expected)
    assert np.array_equal(store["embedding"].arrays["embedding"], expected)
    assert np.array_equal(gq.embed(graph, **case[2], store=store).embedding, expected)


def test_a_folder_gives_the_same_bits_and_partitions_once(case, graph, expected, tmp_path, monkeypatch):
    store = gq.DirectoryStore(tmp_path / "job")
    assert np.array_equal(gq.embed(graph, **case[2], store=store).embedding, expected)
    monkeypatch.setattr(gq.Metis, "__call__", None)
    assert np.array_equal(gq.embed(graph, **case[2], store=gq.DirectoryStore(store.folder)).embedding, expected)


def test_the_command_line_gives_the_same_bits_and_settings(case, graph, edges, expected, tmp_path):
    command("embed", edges, *features(edges), *case[1], "--out", tmp_path / "job", "--workers", 1)
    assert np.array_equal(embedding(tmp_path / "job"), expected)
    store = gq.DirectoryStore(tmp_path / "python")
    gq.embed(graph, **case[2], store=store)
    settings = [
        json.loads((path / "settings.json").read_text())["parameters"] for path in (tmp_path / "job", store.folder)
    ]
    for one in settings:
        for name in ("path", "checksums", "stamps", "features"):  # the graph of the other one was never a file
            del one["source"][name]
    assert settings[0] == settings[1]


def test_the_commands_in_steps_give_the_same_bits(case, edges, expected, tmp_path):
    name, flags, _ = case
    split = flags.index("--runs") if name == "vgae" else len(flags)
    command("cut", edges, *features(edges), *flags[:split], "--out", tmp_path / "job")
    command("embed-patches", tmp_path / "job", *flags[split:], "--workers", 1)
    command("stitch", tmp_path / "job", "--workers", 1)
    assert np.array_equal(embedding(tmp_path / "job"), expected)


def test_two_workers_give_the_same_bits(case, graph, edges, expected, tmp_path):
    command("embed", edges, *features(edges), *case[1], "--out", tmp_path / "job", "--workers", 2)
    assert np.array_equal(embedding(tmp_path / "job"), expected)
    with gq.Processes(2) as pool:
        assert np.array_equal(gq.embed(graph, **case[2], executor=pool).embedding, expected)


KILL = """
import os, sys
from graphquilt.jobs.store import DirectoryStore
write, key = DirectoryStore.__setitem__, sys.argv.pop(1)
def killed(store, name, record):
    write(store, name, record)
    if name == key:
        os.kill(os.getpid(), 9)
DirectoryStore.__setitem__ = killed
from graphquilt.cli import main
main()
"""


def test_a_job_that_is_killed_at_each_stage_gives_the_same_bits(case, edges, expected, tmp_path):
    name, flags, _ = case
    job = tmp_path / "job"
    for stage in STAGES[name]:
        words = ["embed", edges, *features(edges), *flags, "--out", job, "--workers", "1"]
        run = subprocess.run([sys.executable, "-c", KILL, stage, *map(str, words)], check=False, capture_output=True)
        assert run.returncode == -signal.SIGKILL, run.stderr
    command("embed-patches", job, "--workers", 1)  # without flags: the job knows its settings, robust included
    command("stitch", job, "--workers", 1)
    assert np.array_equal(embedding(job), expected)


def test_the_unrolled_block_of_the_readme_gives_the_same_bits(graph, edges, tmp_path):
    page = (ROOT / "README.md").read_text()
    block = next(text for text in re.findall(r"```python\n(.*?)```", page, re.S) if "gq.cut(" in text)
    folder = os.getcwd()
    os.chdir(edges.parent)
    try:
        names = {}
        exec(block, names)
    finally:
        os.chdir(folder)
    assert np.array_equal(names["result"].embedding, names["X"])
    public = set(re.findall(r"gq\.(\w+)", block))
    assert public <= set(gq.__all__)
