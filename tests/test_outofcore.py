"""CSR out of core: the same bits as in memory, whatever the bound, wherever it is interrupted."""

import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphquilt import Graph
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import build_csr
from graphquilt.graph.reading import outofcore
from graphquilt.graph.reading.assembly import Columns, assemble
from graphquilt.graph.reading.outofcore import array_source


def same(a, b):
    assert a.indptr.dtype == b.indptr.dtype
    assert a.indices.dtype == b.indices.dtype
    assert np.array_equal(a.indptr, b.indptr)
    assert np.array_equal(a.indices, b.indices)
    assert (a.weights is None) == (b.weights is None)
    assert a.weights is None or np.array_equal(a.weights, b.weights)


@given(st.integers(1, 300), st.integers(0, 900), st.booleans(), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_out_of_core_equals_in_memory(tmp_path_factory, n, m, directed, seed):
    edges = np.random.default_rng(seed).integers(0, n, (2, m))
    expected = assemble(Columns(edges[0], edges[1]), n_nodes=n, directed=directed)
    built = build_csr(edges, tmp_path_factory.mktemp("g"), n_nodes=n, directed=directed, memory=1 << 24)
    same(built, expected)


@pytest.fixture
def small_steps(monkeypatch):
    """Many batches and buckets, as a graph a thousand times larger would have."""
    monkeypatch.setattr(outofcore, "array_source", lambda edges, _: array_source(edges, 700))
    cut = outofcore._cut
    monkeypatch.setattr(outofcore, "_cut", lambda counts, shift, n, most: cut(counts, shift, n, 1500))


def test_interrupted_at_every_step_and_begun_again(tmp_path, small_steps):
    edges = np.random.default_rng(0).integers(0, 400, (2, 5000))
    expected = assemble(Columns(edges[0], edges[1]), n_nodes=400)
    steps = []
    same(build_csr(edges, tmp_path / "whole", progress=steps.append), expected)
    assert len(steps) > 20
    for last in steps:

        def stop(event, last=last):
            if event == last:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            build_csr(edges, tmp_path / "parts", progress=stop)
        assert not any((tmp_path / "parts").iterdir())
    same(build_csr(edges, tmp_path / "parts"), expected)


def test_a_killed_process_leaves_nothing_that_looks_finished(tmp_path, small_steps):
    edges = np.random.default_rng(1).integers(0, 400, (2, 5000))
    np.save(tmp_path / "edges.npy", edges)
    code = f"""
        import os
        from graphquilt.graph import build_csr
        def stop(event):
            if event.stage == "distributing edges":
                os._exit(9)
        build_csr({str(tmp_path / "edges.npy")!r}, {str(tmp_path / "g")!r}, progress=stop)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False).returncode == 9
    with pytest.raises(FormatError, match="holds no graph"):
        Graph.open(tmp_path / "g")
    assert list((tmp_path / "g").glob("building-*"))
    same(build_csr(edges, tmp_path / "g"), assemble(Columns(edges[0], edges[1]), n_nodes=400))
    assert not list((tmp_path / "g").glob("building-*"))


def test_a_full_disk_is_reported_and_the_build_succeeds_later(tmp_path):
    np.save(tmp_path / "edges.npy", np.random.default_rng(1).integers(0, 4000, (2, 60_000)))
    code = f"""
        import resource, graphquilt
        import numpy as np
        edges = np.load({str(tmp_path / "edges.npy")!r})
        graphquilt.graph.build_csr(edges[:, :10], {str(tmp_path / "warm")!r})
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        try:
            graphquilt.graph.build_csr(edges, {str(tmp_path / "g")!r})
        except graphquilt.errors.JobError as error:
            assert "is full" in str(error) and "run the same command again" in str(error), error
        else:
            raise SystemExit("no error")
        try:
            graphquilt.read_edges({str(tmp_path / "edges.npy")!r}).save({str(tmp_path / "saved")!r})
        except graphquilt.errors.JobError as error:
            assert "is full" in str(error), error
        else:
            raise SystemExit("no error")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
    for folder in ("g", "saved"):
        with pytest.raises(FormatError, match=r"holds no graph|is empty"):
            Graph.open(tmp_path / folder)
    edges = np.load(tmp_path / "edges.npy")
    same(build_csr(edges, tmp_path / "g"), assemble(Columns(edges[0], edges[1]), n_nodes=4000))


def test_parquet_batches_with_weights(tmp_path):
    rng = np.random.default_rng(2)
    u, v, w = rng.integers(0, 90, 3000), rng.integers(0, 90, 3000), rng.random(3000)
    (tmp_path / "parts").mkdir()
    for k, part in enumerate(np.array_split(np.arange(3000), 3)):
        pq.write_table(pa.table({"u": u[part], "v": v[part], "w": w[part]}), tmp_path / "parts" / f"{k}.parquet")
    built = build_csr(tmp_path / "parts", tmp_path / "g", columns=("u", "v", "w"), n_nodes=90)
    same(built, assemble(Columns(u, v, w), n_nodes=90))
    assert built.weights is not None
    pq.write_table(pa.table({"u": [0], "v": [1], "w": [-1.0]}), tmp_path / "bad.parquet")
    with pytest.raises(FormatError, match=r"row 0: the weight '-1\.0' must be finite and not negative"):
        build_csr(tmp_path / "bad.parquet", tmp_path / "h", columns=("u", "v", "w"))
    with pytest.raises(FormatError, match="neither a file of edges nor a folder"):
        build_csr(tmp_path / "nothing", tmp_path / "h")


def test_bad_edges(tmp_path):
    with pytest.raises(InputError, match=r"edge 1 joins 2 and 9, but ids run from 0 to 4\. State a larger n_nodes"):
        build_csr(np.array([[0, 2], [1, 9]]), tmp_path, n_nodes=5)
    with pytest.raises(InputError, match="must not be negative"):
        build_csr(np.array([[0, 2], [1, -1]]), tmp_path)
    with pytest.raises(InputError, match="there are no edges"):
        build_csr(np.empty((2, 0), int), tmp_path)
    with pytest.raises(InputError, match=r"\(3, 3\)"):
        build_csr(np.zeros((3, 3), int), tmp_path)
    with pytest.raises(InputError, match="not float64"):
        build_csr(np.zeros((2, 3)), tmp_path)
    with pytest.raises(InputError, match="at least 16777216"):
        build_csr(np.zeros((2, 3), int), tmp_path, memory=100)
    assert build_csr(np.empty((2, 0), int), tmp_path, n_nodes=3).n_nodes == 3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of memory from /proc")
def test_one_large_id_does_not_take_memory_for_all_nodes_below_it(tmp_path):
    code = f"""
        import re
        import numpy as np
        from graphquilt.graph import build_csr

        def peak():
            return int(re.search("VmHWM: *(.*) kB", open("/proc/self/status", encoding="ascii").read())[1]) / 1024

        build_csr(np.array([[0, 1], [1, 2]]), {str(tmp_path / "warm")!r}, memory=1 << 24)
        before = peak()
        graph = build_csr(np.array([[0, 1], [1, 2**24]]), {str(tmp_path / "g")!r}, memory=1 << 24)
        assert graph.indices.tolist() == [1, 0, 2**24, 1]
        assert graph.indptr[[0, 1, 2, 3, 2**24, 2**24 + 1]].tolist() == [0, 1, 3, 3, 3, 4]
        assert peak() - before < 64, f"{{peak() - before}} MB"
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_ids_too_sparse_for_an_index_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"the largest id is 1099511627776: .* only 2 edges .* Number the nodes"):
        build_csr(np.array([[0, 1], [1, 2**40]]), tmp_path)
    with pytest.raises(InputError, match="or allow more memory"):
        build_csr(np.array([[0, 1], [1, 2]]), tmp_path, n_nodes=2**60)
    with pytest.raises(FormatError, match="the id 9223372036854775808 of edge 1 is beyond 63 bits"):
        build_csr(np.array([[0, 1], [1, 2**63]], dtype=np.uint64), tmp_path)


def test_stated_nodes_of_a_parquet_file_are_there(tmp_path):
    pq.write_table(pa.table({"source": [0, 1], "target": [1, 2]}), tmp_path / "e.parquet")
    assert build_csr(tmp_path / "e.parquet", tmp_path / "g", n_nodes=5).n_nodes == 5
