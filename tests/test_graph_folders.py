"""A graph folder is checked like a job: damage is found when it is opened; only features by reference lie outside."""

import json
import os
import time

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from graphquilt.embedders import SVD
from graphquilt.errors import FormatError, InputError
from graphquilt.files import checksums
from graphquilt.files.checksums import sealed_text
from graphquilt.graph import Graph, build_csr
from graphquilt.graph import files as graph_files
from graphquilt.graph.files import attach, open_graph
from graphquilt.graph.reading import outofcore
from graphquilt.jobs import DirectoryStore, Job, JobSettings, Source
from graphquilt.jobs.records import graph_fingerprint
from graphquilt.jobs.store import Record


def ring(n=40, *, features=True, weighted=False):
    A = np.roll(np.eye(n), 1, 0) * (1 + weighted * np.arange(n))
    X = np.arange(3.0 * n).reshape(n, 3) if features else None
    return Graph(sp.csr_array(A + A.T), X, node_ids=[f"n{k}" for k in range(n)])


def change(path, place, value):
    """Change one entry of an array in a file, and nothing else."""
    values = np.load(path, mmap_mode="r+")
    values[place] = value
    values.flush()


@pytest.fixture
def folder(tmp_path):
    ring(weighted=True).save(tmp_path / "g")
    return tmp_path / "g"


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("indices", 7, 2**30, r"columns must lie in 0\.\.39"),
        ("indices", 7, -1, r"columns must lie in 0\.\.39"),
        ("indices", 6, 39, "must ascend"),
        ("indptr", 3, 2**40, "must not decrease"),
        ("indptr", 3, -5, "must not decrease"),
        ("indptr", -1, 2**40, "must start at 0 and end at"),
        ("indptr", 0, 1, "must start at 0 and end at"),
        ("weights", 5, np.nan, "must be finite"),
        ("weights", 5, -1.0, "must be finite and not negative"),
    ],
)
def test_edges_that_are_no_graph_are_refused_before_anything_uses_them(folder, name, place, value, message):
    """Before, a column of 2**30 ended the process in largest_component and in METIS."""
    change(folder / f"{name}.npy", place, value)
    with pytest.raises(FormatError, match=message) as error:
        Graph.open(folder)
    assert "write the graph again" in str(error.value)


def test_sparse_features_are_checked_as_well(tmp_path):
    X = sp.csr_array(np.eye(4))
    Graph(sp.csr_array(np.ones((4, 4))), X).save(tmp_path)
    for name, value in (("features_indices", 2**30), ("features_indptr", 2**30), ("features_shape", -1)):
        before = (tmp_path / f"{name}.npy").read_bytes()
        change(tmp_path / f"{name}.npy", 1, value)
        with pytest.raises(FormatError, match="cannot be used"):
            Graph.open(tmp_path)
        (tmp_path / f"{name}.npy").write_bytes(before)
    assert Graph.open(tmp_path).features.sum() == 4


@pytest.mark.parametrize("name", ["../x", "/etc/x", "x", "sub/indices", ""])
def test_a_name_that_is_no_array_of_a_graph_is_not_opened(folder, name):
    np.save(folder.parent / "x.npy", np.arange(40))
    description = json.loads((folder / "graph.json").read_text())
    arrays = description["arrays"]
    entry = {"shape": [40], "dtype": "<i8", "sha256": "0" * 64}
    arrays = arrays | {name: entry}
    (folder / "graph.json").write_text(sealed_text(description | {"arrays": arrays}))
    with pytest.raises(FormatError, match="is not a graph's description: it lists"):
        Graph.open(folder)


@pytest.mark.parametrize(
    "values",
    [
        {"n_nodes": -1},
        {"n_nodes": 40.0},
        {"n_nodes": True},
        {"n_edges": 10**30},
        {"directed": "no"},
        {"arrays": 3},
        {"arrays": {"indptr": {}, "indices": {}}},
        {"arrays": ["indices"]},
        {"version": 1},
        {"version": 1.5},
        {"version": [1]},
        {"format": None},
    ],
    ids=str,
)
def test_wild_values_in_the_description_are_refused(folder, values):
    description = json.loads((folder / "graph.json").read_text())
    (folder / "graph.json").write_text(sealed_text(description | values))
    with pytest.raises(FormatError, match=r"graph\.json"):
        Graph.open(folder)


@pytest.mark.parametrize("text", ["[" * 90_000, '{"n_nodes": ' + "9" * 5000 + "}", "\x00", "[]", '"'])
def test_a_description_that_is_too_deep_or_too_long_is_refused(folder, text):
    (folder / "graph.json").write_text(text)
    with pytest.raises(FormatError, match=r"graph\.json is not JSON, or was cut short"):
        Graph.open(folder)


def test_a_folder_without_a_graph_is_called_what_it_is(tmp_path):
    with pytest.raises(FormatError, match=r"is empty\. Give an edge list, or a folder"):
        Graph.open(tmp_path)
    DirectoryStore(tmp_path / "job")["x"] = Record({})
    with pytest.raises(InputError, match=r'is a job\. Open it with gq\.Job\.open\(".*job"\)'):
        gq.embed(tmp_path / "job")
    with pytest.raises(FormatError, match=r"graph\.json, which is written last, is missing"):
        Graph.open(tmp_path)


def test_a_description_that_was_changed_is_refused(tmp_path):
    ring().save(tmp_path)
    path = tmp_path / "graph.json"
    path.write_text(path.read_text().replace('"directed": false', '"directed": true'))
    with pytest.raises(FormatError, match="does not have its own checksum"):
        Graph.open(tmp_path)


def test_one_changed_number_that_is_still_a_graph_is_found_by_its_checksum(tmp_path):
    ring().save(tmp_path)
    change(tmp_path / "features.npy", (17, 1), 4.25)
    with pytest.raises(FormatError, match=r"features\.npy does not have the SHA-256 that graph\.json says"):
        Graph.open(tmp_path)


def test_a_folder_is_read_once_and_again_when_a_file_changes(tmp_path, monkeypatch):
    readings = []
    check = graph_files._check_content
    monkeypatch.setattr(checksums, "LARGE", 0)
    monkeypatch.setattr(checksums, "is_settled", lambda *_: True)
    monkeypatch.setattr(graph_files, "_check_content", lambda arrays: readings.append(1) or check(arrays))
    ring().save(tmp_path)
    Graph.open(tmp_path)
    assert not readings  # the writer of a graph has read it already
    (tmp_path / checksums.MEMORY).unlink()
    for _ in range(3):
        Graph.open(tmp_path)
    assert len(readings) == 1
    open_graph(tmp_path, verify=True)
    assert len(readings) == 2
    path = tmp_path / "features.npy"
    status = path.stat()
    change(path, (17, 1), 4.25)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # the size and the time are those of before
    with pytest.raises(FormatError, match="SHA-256"):
        Graph.open(tmp_path)
    change(path, (17, 1), ring().features[17, 1])
    memory = tmp_path / "checked.json"
    memory.write_text(memory.read_text().replace("sha256", "sha265"))
    Graph.open(tmp_path)
    assert len(readings) == 4


def test_what_was_changed_a_moment_ago_is_not_remembered(tmp_path, monkeypatch):
    ring().save(tmp_path)
    monkeypatch.setattr(checksums, "LARGE", 0)
    Graph.open(tmp_path)
    memory = tmp_path / "checked.json"
    marks = json.loads(memory.read_text())["files"].values() if memory.exists() else []  # the disk may have been slow
    assert all(checksums.is_settled(mark, memory.stat().st_mtime_ns) for mark in marks)


def test_a_large_graph_is_not_read_again_by_its_writer(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, "LARGE", 0)
    monkeypatch.setattr(graph_files, "_check_content", lambda _: pytest.fail("it was read again"))
    edges = np.stack([np.arange(999), np.arange(1, 1000)])
    graph = build_csr(edges, tmp_path / "a")
    ring().save(tmp_path / "b")
    assert Graph.open(tmp_path / "b").n_nodes == 40
    monkeypatch.undo()
    assert open_graph(tmp_path / "a", verify=True).n_edges == graph.n_edges == 999


def test_a_build_that_was_stopped_has_the_same_checksums(tmp_path, monkeypatch):
    np.save(tmp_path / "edges.npy", np.random.default_rng(0).integers(0, 100_000, (2, 750_000)))
    edges = np.load(tmp_path / "edges.npy", mmap_mode="r")
    build_csr(edges, tmp_path / "whole", memory=1 << 24)
    monkeypatch.setattr(outofcore, "report", stop_in("sorting edges"))
    with pytest.raises(KeyboardInterrupt):
        build_csr(edges, tmp_path / "parts", memory=1 << 24)
    monkeypatch.undo()
    build_csr(edges, tmp_path / "parts", memory=1 << 24)
    one, two = ((tmp_path / name / "graph.json").read_text() for name in ("whole", "parts"))
    assert one == two
    open_graph(tmp_path / "parts", verify=True)


def stop_in(stage):
    def report(_progress, name, done, total):
        if name == stage and done == 2 < total:
            raise KeyboardInterrupt

    return report


def test_memory_maps_of_ones_own_are_checked_too(tmp_path):
    np.save(tmp_path / "indices.npy", np.array([1, 2**30], dtype=np.int32))
    indices = np.load(tmp_path / "indices.npy", mmap_mode="r")
    with pytest.raises(InputError, match=r"columns must lie in 0\.\.1; found 1\.\.1073741824"):
        Graph.from_arrays(np.array([0, 1, 2]), indices)


def test_the_fingerprint_sees_every_entry():
    """Before, it looked at 4096 places of each array: 40 changed entries between them went unnoticed."""
    X = np.zeros((100_000, 1), dtype=np.float32)
    A = sp.csr_array((100_000, 100_000))
    before = graph_fingerprint(Graph(A, X))
    X[77_777 : 77_777 + 40 : 3] = 1
    assert graph_fingerprint(Graph(A, X)) != before


def test_the_fingerprint_of_a_folder_is_that_of_the_graph(tmp_path):
    for k, graph in enumerate([ring(), ring(weighted=True), Graph(ring().adjacency, sp.csr_array(np.eye(40)))]):
        graph.save(tmp_path / str(k))
        assert graph_fingerprint(Graph.open(tmp_path / str(k))) == graph_fingerprint(graph)
    fortran = Graph(ring().adjacency, np.asfortranarray(ring().features))
    fortran.save(tmp_path / "fortran")
    assert (
        graph_fingerprint(Graph.open(tmp_path / "fortran")) == graph_fingerprint(fortran) == graph_fingerprint(ring())
    )


def test_times_in_the_future_make_no_writer_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, "LARGE", 0)
    monkeypatch.setattr(checksums, "_LONGEST_TICK", 0.2)
    ring().save(tmp_path)
    for path in tmp_path.iterdir():  # as if the clock had been set back
        os.utime(path, (time.time() + 10**8,) * 2)
    attach(tmp_path, labels=np.arange(40))
    assert Graph.open(tmp_path).labels[7] == 7


@pytest.fixture
def referring(tmp_path):
    """Return a graph folder whose features are in a file elsewhere, and that file."""
    rng = np.random.default_rng(0)
    A = sp.random_array((60, 60), density=0.1, rng=rng, format="csr")
    Graph(sp.csr_array(A + A.T), labels=np.arange(60) % 3).save(tmp_path / "graph")
    np.save(tmp_path / "x.npy", rng.normal(size=(60, 5)).astype(np.float16))
    attach(tmp_path / "graph", features=tmp_path / "x.npy")
    return tmp_path / "graph", tmp_path / "x.npy"


def test_features_by_reference_stay_where_they_are(referring, tmp_path):
    folder, file = referring
    graph = Graph.open(folder)
    assert np.array_equal(graph.features, np.load(file))
    assert not (folder / "features.npy").exists()
    attach(folder, labels=np.arange(60) % 2)
    again = Graph.open(folder)
    assert (again.features.filename, again.labels.max()) == (str(file), 1)
    assert graph_fingerprint(again) == graph_fingerprint(graph)
    again.save(tmp_path / "copy")
    assert np.array_equal(np.load(tmp_path / "copy" / "features.npy"), np.load(file))


def test_a_file_of_features_is_known_by_size_time_and_samples(referring, monkeypatch):
    folder, file = referring
    with monkeypatch.context() as patch:
        patch.setattr(checksums, "_sampled_checksum", None)  # an unchanged file is not read
        Graph.open(folder)
    os.utime(file, (1, 1))
    Graph.open(folder)
    np.save(file, np.zeros((60, 5), dtype=np.float16))
    with pytest.raises(FormatError, match=r"x\.npy is not the file that it was when the graph in .* was made"):
        Graph.open(folder)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(FormatError, match="cut short or damaged"):
        Graph.open(folder)
    file.unlink()
    with pytest.raises(FormatError, match=r"has its features in .*x\.npy', which cannot be read"):
        Graph.open(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"indices": {"path": "/x.npy", "stamp": [1, 2]}},
        {"features": {"path": "x.npy"}},
        {"features": {"path": 7}},
        {"features": {"path": "/a\0b"}},
        {"features": {"path": "/\ud800"}},
        {"features": {"stamp": [1, -2]}},
        {"features": {"stamp": None}},
    ],
)
def test_a_forged_reference_is_refused(referring, change):
    folder, _ = referring
    content = json.loads((folder / "graph.json").read_text())
    for name, values in change.items():
        content["arrays"][name] |= values
    (folder / "graph.json").write_text(sealed_text(content))
    with pytest.raises(FormatError, match=r"only features can|is not a graph's description|its name is not text"):
        Graph.open(folder)


def test_features_by_reference_with_the_wrong_rows(referring):
    folder, file = referring
    np.save(file.with_name("short.npy"), np.zeros((59, 5)))
    with pytest.raises(InputError, match="60 nodes and the features have 59 rows"):
        attach(folder, features=file.with_name("short.npy"))
    np.save(file.with_name("flat.npy"), np.zeros(60))
    with pytest.raises(InputError, match="one per node"):
        attach(folder, features=file.with_name("flat.npy"))
    with pytest.raises(InputError, match="cannot be read: No such file"):
        attach(folder, features=file.with_name("none.npy"))
    assert np.array_equal(Graph.open(folder).features, np.load(file))


def test_a_job_leaves_large_features_in_their_file(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    edges, file = tmp_path / "edges.npy", tmp_path / "x.npy"
    np.save(edges, np.stack([np.arange(40), (np.arange(40) + 1) % 40], axis=1))
    np.save(file, rng.normal(size=(40, 3)))
    settings = JobSettings(embedder=SVD(2), source=Source(path=str(edges), features=str(file)))
    small = Job.begin(DirectoryStore(tmp_path / "small"), settings)
    assert (small.store.folder / "graph" / "features.npy").exists()
    monkeypatch.setattr(checksums, "LARGE", 8 * 40 * 3)
    job = Job.begin(DirectoryStore(tmp_path / "large"), settings)
    assert not (job.store.folder / "graph" / "features.npy").exists()
    opened = Job.open(job.store)
    assert opened.graph.features.filename == str(file)
    assert Job.begin(DirectoryStore(tmp_path / "large"), settings).settings == opened.settings
    np.save(file, rng.normal(size=(40, 3)))
    with pytest.raises(FormatError, match="its content has changed"):
        Job.open(job.store)


def test_a_job_on_an_open_graph_folder_does_not_copy_it(referring, tmp_path):
    job = Job.begin(DirectoryStore(tmp_path / "job"), JobSettings(embedder=SVD(2)), Graph.open(referring[0]))
    assert not (job.store.folder / "graph").exists()
    assert job.graph.folder == str(referring[0]) == job.settings.source.graph
    assert Graph.open(referring[0]).with_attributes(labels=np.zeros(60, dtype=int)).folder is None
