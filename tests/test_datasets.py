"""Data sets: known counts in every file format, labels in the order of nodes, and pickles that cannot run code."""

import dataclasses
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from extras import needs
from graphquilt.datasets.loading import CATALOGUE, download
from studies.pickles import load_npz, load_pickle, load_torch
from studies.raw_datasets import SHA256, convert_dataset, load_raw_dataset

# nodes, edges in both directions, features, classes of the largest component
COUNTS = {
    "cora": (2485, 5069, 1433, 7),
    "amazon-photo": (7487, 119043, 745, 8),
    "pubmed": (19717, 44324, 500, 3),
    "citeseer": (2120, 3679, 3703, 6),
    "coauthor-cs": (18333, 81894, 6805, 15),
}


def counts(graph):
    labels = graph.labels[graph.labels >= 0]
    return graph.n_nodes, graph.n_edges, graph.features.shape[1], len(np.unique(labels))


def same(a, b):
    assert np.array_equal(a.indptr, b.indptr)
    assert np.array_equal(a.indices, b.indices)
    assert np.array_equal(a.labels, b.labels)
    assert abs(sp.csr_array(a.features) - sp.csr_array(b.features)).nnz == 0


def only(tmp_path, folder, *names):
    """Make a data folder that contains only these files of the folder of a data set."""
    (tmp_path / folder.name).mkdir(parents=True)
    for name in names:
        shutil.copy(folder / name, tmp_path / folder.name / name)
    return tmp_path


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_those_of_the_notes(dataset_folder, name):
    graph = gq.datasets.load_dataset(name, data=dataset_folder(name))
    assert counts(graph) == COUNTS[name]
    assert not graph.directed
    assert CATALOGUE[name].counts == COUNTS[name][:2]


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_planetoid_files_hold_the_same_graph(dataset_folder, tmp_path, name):
    original = dataset_folder(name)
    folder = only(tmp_path, original, *(path.name for path in original.glob("ind.*")))
    for cut in (True, False):
        same(
            load_raw_dataset(name, data=folder, largest_component=cut),
            gq.datasets.load_dataset(name, data=original, largest_component=cut),
        )
    assert convert_dataset(name, data=folder) == folder / name / f"{name}.npz"
    same(*(gq.datasets.load_dataset(name, data=path) for path in (folder, original)))


def test_pickled_matrices_in_an_npz_hold_the_same_graph(dataset_folder, tmp_path):
    original = dataset_folder("amazon-photo")
    folder = only(tmp_path, original, "amazon_photo.graphdata.npz")
    same(load_raw_dataset("amazon-photo", data=folder), gq.datasets.load_dataset("amazon-photo", data=original))


def test_the_layout_of_the_benchmark_collection_is_read(dataset_folder, tmp_path):
    graph = gq.datasets.load_dataset("amazon-photo", data=dataset_folder("amazon-photo"), largest_component=False)
    A, X = graph.adjacency, sp.csr_array(graph.features)
    parts = {
        f"{name}_{part}": getattr(matrix, part)
        for name, matrix in (("adj", A), ("attr", X))
        for part in ("data", "indices", "indptr", "shape")
    }
    names = np.array(["a", None], dtype=object)  # which are never read
    np.savez(tmp_path / "amazon_electronics_photo.npz", **parts, labels=graph.labels, attr_names=names)
    same(gq.datasets.load_dataset("amazon-photo", data=tmp_path, largest_component=False), graph)


@pytest.mark.filterwarnings("ignore")  # PyG and torch warn about each other
def test_the_cache_of_pyg_is_read(dataset_folder, tmp_path):
    planetoid = needs("torch_geometric.datasets").Planetoid
    raw = tmp_path / "Cora" / "raw"
    raw.mkdir(parents=True)
    original = dataset_folder("cora")
    for path in original.glob("ind.*"):
        shutil.copy(path, raw)
    planetoid(str(tmp_path), "Cora")
    shutil.rmtree(raw)
    same(load_raw_dataset("cora", data=tmp_path), gq.datasets.load_dataset("cora", data=original))


def test_labels_and_ids_are_cut_with_the_graph(dataset_folder):
    folder = dataset_folder("cora")
    whole, cut = (gq.datasets.load_dataset("cora", data=folder, largest_component=largest) for largest in (False, True))
    assert (whole.n_nodes, len(whole.labels)) == (2708, 2708)
    assert np.array_equal(cut.labels, whole.labels[cut.node_ids])
    assert abs(cut.features - whole.features[cut.node_ids]).nnz == 0


def test_nodes_in_no_file_have_no_label(dataset_folder):
    graph = gq.datasets.load_dataset("citeseer", data=dataset_folder("citeseer"), largest_component=False)
    assert np.flatnonzero(graph.labels < 0).tolist()[:3] == [2407, 2489, 2553]
    assert (graph.labels < 0).sum() == 15


def test_the_embedded_set_needs_no_folder(monkeypatch):
    monkeypatch.delenv("GRAPHQUILT_DATA", raising=False)
    graph = gq.datasets.load_dataset("blocks")
    assert (graph.n_nodes, graph.features.shape[1]) == (1200, 120)
    same(graph, gq.datasets.load_dataset("blocks"))
    rows, columns = graph.adjacency.nonzero()
    assert 0.6 < np.mean(graph.labels[rows] == graph.labels[columns]) < 0.7


def test_a_missing_set_says_which_files_and_where_from(tmp_path, monkeypatch):
    with pytest.raises(
        gq.errors.InputError, match=r"Looked for cora\.npz.*kimiyoung/planetoid.*python -m studies convert"
    ):
        gq.datasets.load_dataset("cora", data=tmp_path)
    with pytest.raises(gq.errors.InputError, match=r"wordnet\.npz.*english-wordnet.*does not download it"):
        gq.datasets.load_dataset("wordnet", data=tmp_path)
    with pytest.raises(gq.errors.InputError, match=r"no data set named 'core'; the names are blocks, amazon-photo"):
        gq.datasets.load_dataset("core", data=tmp_path)
    with pytest.raises(gq.errors.InputError, match="does not exist"):
        gq.datasets.load_dataset("cora", data=tmp_path / "nowhere")
    monkeypatch.delenv("GRAPHQUILT_DATA", raising=False)
    with pytest.raises(gq.errors.InputError, match="--data FOLDER"):
        gq.datasets.load_dataset("cora")


def test_flows_are_found_but_are_no_graph(dataset_folder):
    folder = dataset_folder("lanl-2017-netflow")
    form, files = gq.datasets.dataset_files("lanl", folder)
    assert form == "flows"
    assert files[0].name.startswith("netflow_day-02")
    with pytest.raises(gq.errors.InputError, match="record of flows"):
        gq.datasets.load_dataset("lanl", data=folder)


@pytest.mark.parametrize(
    ("name", "form", "file"),
    [
        ("darpa-1998", "flows", "darpa_original.zip"),
        ("lanl-2015", "flows", "auth_day0_head5000.txt.gz"),
        ("optc", "flows and events", "ecar-admin.json.gz"),
        ("beth", "events", "labelled_2021may-ip-10-100-1-105.csv"),
    ],
)
def test_security_logs_have_names(dataset_folder, name, form, file):
    root = dataset_folder("security-logs").parent
    found, files = gq.datasets.dataset_files(name, root)
    assert (found, files[0].name) == (form, file)
    with pytest.raises(gq.errors.InputError, match=f"is a record of {form} and not one graph"):
        gq.datasets.load_dataset(name, data=root)
    read = gq.temporal.read_flows if "flows" in form else gq.temporal.read_events
    assert any(map(len, read(files[0])))


class Bite:
    def __reduce__(self):
        return os.system, ("exit 3",)


def test_a_pickle_with_anything_but_arrays_is_refused(tmp_path):
    for held in (Bite(), [np.ones(2), Bite()], print, Path("x")):
        path = tmp_path / "x.pickle"
        path.write_bytes(pickle.dumps(held))
        with pytest.raises(gq.errors.FormatError, match="only NumPy and SciPy arrays"):
            load_pickle(path)
    np.savez(tmp_path / "x.npz", x=np.array([Bite()], dtype=object))
    with pytest.raises(gq.errors.FormatError, match="only NumPy and SciPy arrays"):
        load_npz(tmp_path / "x.npz")


def test_arrays_come_back_from_a_pickle(tmp_path):
    path = tmp_path / "x.pickle"
    held = {"a": np.arange(3), "b": sp.csr_array(np.eye(2)), "c": [1, 2.5, "x", np.float64(3), b"yz"]}
    for protocol in range(6):
        path.write_bytes(pickle.dumps(held, protocol=protocol))
        if protocol < 2:
            continue  # those name copyreg._reconstructor, which builds any object
        read = load_pickle(path)
        assert np.array_equal(read["a"], held["a"])
        assert (read["b"] - held["b"]).nnz == 0
        assert read["c"] == held["c"]


def test_torn_files_are_named(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(pickle.dumps(np.arange(100))[:-20])
    with pytest.raises(gq.errors.FormatError, match="pickle of arrays"):
        load_pickle(path)
    for read, word in ((load_npz, "arrays"), (load_torch, "torch file")):
        path.write_bytes(b"PK\x03\x04 and then nothing")
        with pytest.raises(gq.errors.FormatError, match=word):
            read(path)
    np.savez(tmp_path / "cora.npz", z=np.ones(3))
    with pytest.raises(gq.errors.FormatError, match="contains z; expected edge_index"):
        gq.datasets.load_dataset("cora", data=tmp_path)


def test_a_torch_file_with_code_is_refused(tmp_path):
    torch = needs("torch")
    torch.save({"edge_index": torch.zeros((2, 1), dtype=torch.long), "x": Bite()}, tmp_path / "data.pt")
    with pytest.raises(gq.errors.FormatError, match="only NumPy and SciPy arrays"):
        load_torch(tmp_path / "data.pt")
    torch.save({"t": torch.arange(12).reshape(3, 4).T[1:]}, tmp_path / "data.pt")
    assert load_torch(tmp_path / "data.pt")["t"].tolist() == [[1, 5, 9], [2, 6, 10], [3, 7, 11]]
    torch.save({"x": torch.ones(2)}, tmp_path / "data.pt")
    with pytest.raises(gq.errors.FormatError, match="no edge_index"):
        load_raw_dataset("cora", data=tmp_path)


def test_planetoid_files_that_do_not_fit_are_named(tmp_path):
    parts = {
        "x": sp.csr_array(np.eye(2)),
        "tx": sp.csr_array(np.eye(2)),
        "allx": sp.csr_array(np.eye(2)),
        "y": np.eye(2),
        "ty": np.eye(2),
        "ally": np.eye(2),
        "graph": {0: [1], 1: [0, 2], 2: [1, 3], 3: [2]},
    }
    for part, held in parts.items():
        (tmp_path / f"ind.cora.{part}").write_bytes(pickle.dumps(held))
    index = tmp_path / "ind.cora.test.index"
    index.write_text("3\n2\n")
    assert load_raw_dataset("cora", data=tmp_path).labels.tolist() == [0, 1, 1, 0]
    index.write_text("3\n")
    with pytest.raises(gq.errors.FormatError, match="lists 1 nodes, tx has 2 rows"):
        load_raw_dataset("cora", data=tmp_path)
    index.write_text("3\n9\n")
    with pytest.raises(gq.errors.FormatError, match="the graph of 4 nodes does not have"):
        load_raw_dataset("cora", data=tmp_path)


def serve(folder):
    """Serve a folder on this machine, so that fetching is tried for real."""
    import threading
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def from_address(monkeypatch, name, address):
    monkeypatch.setitem(CATALOGUE, name, dataclasses.replace(CATALOGUE[name], url=address))


def test_fetching_brings_the_files_and_checks_them(dataset_folder, tmp_path, monkeypatch):
    server = serve(dataset_folder("amazon-photo"))
    try:
        from_address(monkeypatch, "amazon-photo", f"http://127.0.0.1:{server.server_port}/amazon-photo.npz")
        files = gq.datasets.fetch_dataset("amazon-photo", data=tmp_path)
        assert [path.name for path in files] == ["amazon-photo.npz"]
        assert counts(gq.datasets.load_dataset("amazon-photo", data=tmp_path)) == COUNTS["amazon-photo"]
        server.shutdown()
        assert gq.datasets.fetch_dataset("amazon-photo", data=tmp_path) == files  # nothing to do
    finally:
        server.shutdown()
        server.server_close()


def test_the_pickles_of_planetoid_are_fetched_and_converted(dataset_folder, tmp_path):
    server = serve(dataset_folder("cora"))
    try:
        path = convert_dataset("cora", data=tmp_path, address=f"http://127.0.0.1:{server.server_port}/")
    finally:
        server.shutdown()
        server.server_close()
    assert path == tmp_path / "cora" / "cora.npz"
    assert counts(gq.datasets.load_dataset("cora", data=tmp_path)) == COUNTS["cora"]


def test_a_changed_download_is_refused_and_leaves_nothing(dataset_folder, tmp_path, monkeypatch):
    source, target = tmp_path / "source", tmp_path / "data"
    source.mkdir()
    target.mkdir()
    name = "ind.cora.x"
    (source / name).write_bytes((dataset_folder("cora") / name).read_bytes()[:-1])
    np.savez(source / "amazon_electronics_photo.npz", **np.load(dataset_folder("cora") / "cora.npz"))
    server = serve(source)
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        with pytest.raises(gq.errors.FormatError, match="SHA-256"):
            download(f"{address}/{name}", target, SHA256[name])
        from_address(monkeypatch, "amazon-photo", f"{address}/amazon_electronics_photo.npz")
        with pytest.raises(gq.errors.FormatError, match=r"has 2485 nodes and 5069 edges.*file was removed"):
            gq.datasets.fetch_dataset("amazon-photo", data=target)
        from_address(monkeypatch, "amazon-photo", f"{address}/nothing")
        with pytest.raises(gq.errors.InputError, match="cannot be downloaded"):
            gq.datasets.fetch_dataset("amazon-photo", data=target)
    finally:
        server.shutdown()
        server.server_close()
    assert not [path for path in target.rglob("*") if path.is_file()]


def test_what_has_a_form_to_fill_in_is_not_fetched(tmp_path):
    with pytest.raises(gq.errors.InputError, match=r"csr\.lanl\.gov.*graphquilt does not download"):
        gq.datasets.fetch_dataset("lanl", data=tmp_path)
