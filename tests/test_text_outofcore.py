"""Edge lists in text out of core: the same graph and ids as in memory, from runs of a few rows."""

import csv
import gzip
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphquilt as gq
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import build_csr
from graphquilt.graph.reading import spool, tables
from graphquilt.graph.reading.sources import TextOptions


@pytest.fixture(autouse=True)
def small_runs(monkeypatch):
    """Blocks of a few lines and runs of a few ids, as a file a million times larger would have."""
    monkeypatch.setattr(tables, "_BLOCK", 64)
    runs = spool.collect_runs
    monkeypatch.setattr(spool, "collect_runs", lambda batches, most: runs(batches, 100))
    merge = spool._merge
    monkeypatch.setattr(spool, "_merge", lambda folder, sizes, longest, *_: merge(folder, sizes, longest, 0, None))
    monkeypatch.setattr(spool, "_LEAST_IDS", 4)


def same(a, b):
    for name in ("indptr", "indices", "weights", "node_ids"):
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None) == (y is None), name
        assert x is None or (x.dtype == y.dtype and np.array_equal(x, y)), name


odd = st.sampled_from(["007", "7", "8", "ann", "bob", "a b", "a,b", "ü", "n/a", "", "é" * 9])
ids = odd | st.integers(0, 60).map(str)
weight = st.sampled_from(["1", "2.5", "x", "-1"])
rows = st.lists(st.tuples(ids, ids, weight), min_size=1, max_size=60)


@given(rows, st.booleans(), st.sampled_from(["auto", "integer", "text"]), st.sampled_from(["stop", "skip"]))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_text_out_of_core_equals_text_in_memory(tmp_path_factory, rows, weighted, kind, bad_rows):
    folder = tmp_path_factory.mktemp("text")
    with (folder / "e.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([row if weighted else row[:2] for row in rows])
    columns = (0, 1, 2) if weighted else None
    options = TextOptions(None, ",", kind)

    def attempt(read):
        try:
            return read(), None
        except InputError as error:
            return None, str(error)

    expected, refusal = attempt(
        lambda: gq.read_edges(folder / "e.csv", columns=columns, delimiter=",", ids=kind, bad_rows=bad_rows)
    )
    built, other = attempt(
        lambda: build_csr(folder / "e.csv", folder / "g", columns=columns, text=options, bad_rows=bad_rows)
    )
    assert refusal == other
    if expected is not None:
        same(built, expected)


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "parquet"])
def test_every_format_with_string_ids_gives_the_graph_of_memory(tmp_path, ending):
    rng = np.random.default_rng(0)
    u, v = ([f"user-{k:x}" for k in rng.integers(0, 300, 150)] for _ in range(2))
    w = rng.random(150)
    path = tmp_path / f"e.{ending}"
    if ending == "parquet":
        pq.write_table(pa.table({"source": u, "target": v, "weight": w}), path)
    else:
        mark = "\t" if ending == "tsv" else ","
        cells = [("source", "target", "weight"), *zip(u, v, map(repr, w.tolist()), strict=True)]
        lines = [mark.join(row) for row in cells]
        text = "\n".join(lines).encode()
        path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    same(build_csr(path, tmp_path / "g", duplicates="sum"), gq.read_edges(path, duplicates="sum"))
    assert not list((tmp_path / "g").glob("building-*"))


def test_a_header_of_words_that_occur_nowhere_else_is_told(tmp_path, caplog):
    lines = [f"p{k},p{(k + 1) % 30}" for k in range(30)]
    (tmp_path / "e.csv").write_text("\n".join(["person,friend", *lines]))
    same(build_csr(tmp_path / "e.csv", tmp_path / "g"), gq.read_edges(tmp_path / "e.csv"))
    assert caplog.text.count("the first row, 'person' and 'friend', was taken as a header") == 2
    (tmp_path / "e.csv").write_text("\n".join(["person,friend", *lines, "alone,together"]))
    graph = build_csr(tmp_path / "e.csv", tmp_path / "g")
    assert "person" in graph.node_ids
    same(graph, gq.read_edges(tmp_path / "e.csv"))


def test_stated_nodes_take_integers_as_they_are(tmp_path):
    (tmp_path / "e.csv").write_text("5,7\n7,9\n")
    graph = build_csr(tmp_path / "e.csv", tmp_path / "g", n_nodes=12)
    same(graph, gq.read_edges(tmp_path / "e.csv", n_nodes=12))
    with pytest.raises(InputError, match="joins 7 and 9, but ids run from 0 to 8"):
        build_csr(tmp_path / "e.csv", tmp_path / "h", n_nodes=9)
    (tmp_path / "t.csv").write_text("a,b\nb,c\n")
    with pytest.raises(InputError, match="has 3 text ids, and 12 nodes are stated"):
        build_csr(tmp_path / "t.csv", tmp_path / "h", n_nodes=12)


def test_an_interrupted_build_of_text_begins_again(tmp_path):
    (tmp_path / "e.csv").write_text("\n".join(f"p{k},p{(k * 7 + 1) % 30}" for k in range(30)))

    def stop(event):
        if event.stage == "sorting edges":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_csr(tmp_path / "e.csv", tmp_path / "g", progress=stop)
    same(build_csr(tmp_path / "e.csv", tmp_path / "g"), gq.read_edges(tmp_path / "e.csv"))


def test_bad_rows_of_parquet_are_skipped_out_of_core(tmp_path, caplog):
    table = pa.table({"source": [0, None, 2, 1], "target": [1, 2, 3, 2], "weight": [1.0, 1.0, -1.0, 4.0]})
    pq.write_table(table, tmp_path / "e.parquet")
    with pytest.raises(FormatError, match=r"row 1: an id or weight is missing; row 2: .* 2 of 4 rows are bad"):
        build_csr(tmp_path / "e.parquet", tmp_path / "g")
    graph = build_csr(tmp_path / "e.parquet", tmp_path / "g", bad_rows="skip")
    assert graph.adjacency.toarray().tolist() == [[0, 1, 0], [1, 0, 4], [0, 4, 0]]
    assert "They were left out" in caplog.text


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of memory from /proc")
@pytest.mark.slow
def test_text_takes_at_most_twelve_times_its_size_in_memory(tmp_path):
    """Ids of 8 letters, of one digit, which packed take next to nothing, and ids that occur once.

    40 MB are for the blocks that are read.
    """
    code = f"""
        import gzip, re
        import numpy as np
        import graphquilt as gq

        def peak(name="VmHWM"):
            return int(re.search(f"{{name}}: *(.*) kB", open("/proc/self/status", encoding="ascii").read())[1]) * 1024

        def rest():
            open("/proc/self/clear_refs", "w", encoding="ascii").write("5")  # the peak is forgotten
            return peak("VmRSS")

        place = {str(tmp_path)!r}
        ends = np.random.default_rng(0).integers(0, 1_500_000, (1_500_000, 2)).tolist()
        texts = ["".join(f"{{u:08x}},{{v:08x}}\\n" for u, v in ends), "0,1\\n" * 6_750_000]
        texts.append("".join(f"{{2 * k:x}}g,{{2 * k + 1:x}}g\\n" for k in range(1_700_000)))
        for name, text in zip("abc", texts):
            gzip.open(f"{{place}}/{{name}}.csv.gz", "wt", compresslevel=1).write(text)
            gzip.open(f"{{place}}/{{name}}0.csv.gz", "wt").write(text[: text.index("\\n", 180)])
            gq.read_edges(f"{{place}}/{{name}}0.csv.gz")
        size = max(map(len, texts))
        del ends, texts, text
        before = rest()
        for name in "abc":
            gq.read_edges(f"{{place}}/{{name}}.csv.gz")
            assert peak() - before < 12 * size + 40e6, f"{{name}}: {{(peak() - before) / size}} times the text"
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
