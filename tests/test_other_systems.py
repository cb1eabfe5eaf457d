"""The core where METIS and the modules of POSIX are missing, as on Windows, as far as Linux can pretend."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scipy.sparse as sp

from graphquilt import Graph, Metis
from graphquilt.errors import InputError
from graphquilt.files import folder_lock
from graphquilt.patches import coarse_graph, default_partitioner, edge_cut, fine_clusters, merge_clusters

# Locks of Windows are of bytes, exclusive, and mandatory; lockf is the nearest that POSIX has.
PRETEND = """
import subprocess, sys, types  # subprocess first: it takes msvcrt as the sign of Windows
try:
    import fcntl, os
except ImportError:
    pass
else:
    def locking(handle, mode, count):
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, count, os.lseek(handle, 0, os.SEEK_CUR))
    sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
for name in ("fcntl", "resource", "pymetis", "pwd", "grp", "termios"):
    sys.modules[name] = None
"""


def communities(n=400, k=8, seed=0):
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(k), n // k)
    A = np.triu(rng.random((n, n)) < np.where(label[:, None] == label, 0.2, 0.004), 1)
    return Graph(sp.csr_array((A | A.T).astype(float))), label


@pytest.fixture
def without_metis(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)


def test_the_default_partitioner_needs_no_package(without_metis):
    graph, label = communities()
    clusters = default_partitioner(8, seed=1)(graph)
    assert np.bincount(clusters).max() <= 1.1 * len(label) / 8
    assert edge_cut(graph, clusters) < 2 * edge_cut(graph, label)


def test_clusters_are_merged_without_metis(without_metis):
    graph, label = communities()
    coarse = coarse_graph(graph, fine_clusters(graph))
    merged = merge_clusters(coarse, 8)[coarse.clusters]
    assert merged.max() == 7
    assert np.bincount(merged).max() <= 1.5 * len(label) / 8
    assert edge_cut(graph, merged) < 2 * edge_cut(graph, label)


def test_metis_itself_says_that_it_is_not_there(without_metis):
    with pytest.raises(InputError, match="METIS is not installed"):
        Metis(2)(communities()[0])


def test_a_job_runs_where_the_modules_of_posix_and_metis_are_missing(tmp_path):
    graph, label = communities()
    edges = np.stack(graph.adjacency.nonzero(), axis=1)
    (tmp_path / "edges.csv").write_text("\n".join(f"n{i},n{j}" for i, j in edges if i < j) + "\n", encoding="utf-8")
    program = PRETEND + textwrap.dedent("""
        import numpy as np, graphquilt as gq
        job = gq.jobs.DirectoryStore("job")
        result = gq.embed("edges.csv", dim=8, n_patches=4, store=job)
        assert "Fennel" in open("job/settings.json", encoding="utf-8").read()
        np.save("X.npy", result.embedding), np.save("ids.npy", result.node_ids)
    """)
    for _ in range(2):  # the second run resumes the job
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    X, ids = np.load(tmp_path / "X.npy"), np.load(tmp_path / "ids.npy")
    group = label[[int(name[1:]) for name in ids.astype(str)]]
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    means = np.stack([X[group == c].mean(axis=0) for c in range(8)])
    assert np.mean((X @ means.T).argmax(axis=1) == group) > 0.95


HOLD = PRETEND + textwrap.dedent("""
    from graphquilt.files import folder_lock
    with folder_lock("job", shard={shard!r}):
        print("locked", flush=True)
        sys.stdin.read()
""")
TRY = PRETEND + textwrap.dedent("""
    from graphquilt.files import folder_lock
    from graphquilt.errors import JobError
    try:
        with folder_lock("job", shard={shard!r}):
            print("free")
    except JobError as error:
        print("taken" if "process" in str(error) else error)
""")


@pytest.mark.parametrize(
    ("held", "tried", "answer"),
    [(None, None, "taken"), (None, "1", "taken"), ("1", None, "taken"), ("1", "1", "taken"), ("1", "2", "free")],
)
def test_locks_of_bytes_exclude_as_those_of_posix_do(tmp_path, held, tried, answer):
    command = [sys.executable, "-c", HOLD.format(shard=held)]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        command = [sys.executable, "-c", TRY.format(shard=tried)]
        seen = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
        holder.stdin.close()
    assert seen.strip() == answer


def test_a_lock_that_ends_with_its_process_is_free_again(tmp_path):
    command = [sys.executable, "-c", HOLD.format(shard=None)]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        holder.kill()
    with folder_lock(tmp_path / "job"):
        pass
