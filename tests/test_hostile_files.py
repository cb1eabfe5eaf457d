"""Damaged and hostile files: every reader gives a result or an error of graphquilt, and nothing in them runs."""

import io
import os
import pickle
import shutil
import struct
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

import graphquilt as gq
from damage import damaged_copies
from extras import needs
from graphquilt.errors import FormatError, QuiltError
from graphquilt.graph.reading.node_tables import open_features
from graphquilt.jobs.source import read_array
from studies.mag240m import read_mag240m
from studies.pickles import load_npz, load_pickle, load_torch
from studies.raw_datasets import load_raw_dataset

COUNT = int(os.environ.get("GRAPHQUILT_DAMAGED_COPIES", "120"))  # damaged copies of each file
SEED = int(os.environ.get("GRAPHQUILT_DAMAGED_COPIES_SEED", "1"))

ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"


def dtype(code, order="<", parts="NNN"):
    text = b"X" + struct.pack("<I", len(code)) + code.encode()
    return (
        b"cnumpy\ndtype\n"
        + text
        + b"K\x00K\x01\x87R(K\x03U\x01"
        + order.encode()
        + parts.encode()
        + b"K\x01K\x01K\x00tb"
    )


def array(shape, kind, content):
    return ARRAY + b"(K\x01" + shape + kind + b"\x89" + content + b"tb"


EIGHT = b"C\x08AAAAAAAA"
HOSTILE = {
    "a function that ends the process": b"cos\n_exit\n(K\x07tR.",
    "an array of objects over the bytes of the file": b"cnumpy\nndarray\n((K\x01tX\x01\x00\x00\x00OC\x08AAAAAAAAtR.",
    "a call of a class of NumPy": b"cnumpy\nndarray\n(K\x08tR.",
    "objects from bytes": array(b"K\x01\x85", dtype("O8", "|"), EIGHT) + b".",
    "a scalar of objects": b"cnumpy.core.multiarray\nscalar\n" + dtype("O8", "|") + EIGHT + b"\x86R.",
    "a structure": array(b"K\x01\x85", dtype("V8", "|"), EIGHT) + b".",
    "fields": array(b"K\x01\x85", dtype("i8", "<", "NX\x01\x00\x00\x00a\x85N"), EIGHT) + b".",
    "a shape beyond the bytes": array(b"K\x02\x85", dtype("i8"), EIGHT) + b".",
    "a negative shape": array(b"J\xff\xff\xff\xffJ\xff\xff\xff\xff\x86", dtype("i8"), EIGHT) + b".",
    "a shape that wraps": array(b"\x8a\x08\x01\x00\x00\x00\x00\x00\x00\x20\x85", dtype("i8"), EIGHT) + b".",
    "a shape of texts": array(b"X\x01\x00\x00\x00a\x85", dtype("i8"), EIGHT) + b".",
    "a type that is no type": array(b"K\x01\x85", b"N", EIGHT) + b".",
    "entries without bytes": array(b"\x8a\x05\x00\x00\x00\x00\x40\x85", dtype("S0", "|"), b"C\x00") + b".",
    "truth values of 65": array(b"K\x08\x85", dtype("b1", "|"), EIGHT) + b".",
    "text that is none": array(b"K\x01\x85", dtype("U1"), b"C\x04\xff\xff\xff\x7f") + b".",
    "attributes of a function": b"c_codecs\nencode\n}X\x0c\x00\x00\x00__defaults__K\x01\x85sb.",
    "attributes of a class": b"ccollections\nOrderedDict\n}X\x01\x00\x00\x00aK\x01sb.",
    "attributes of a list": b"]}X\x01\x00\x00\x00aK\x01sb.",
    "another coding": b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.",
    "a memo of 32 GB": b"Nr\xff\xff\xff\x7fj\xfe\xff\xff\x7f.",
    "bytes of 8 EB": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "a frame of 8 EB": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f",
    "an empty stack": b".",
    "no mark": b"t.",
    "a pop from nothing": b"0.",
    "three of two": b"K\x01K\x02\x87.",
    "a key of deep tuples": b"}" + b")" + b"\x85" * 100_000 + b"K\x01s.",
    "a key that is a list": b"}]K\x01s.",
    "a key of a huge number": b"}\x8a\x08" + struct.pack("<q", 2**61 - 1) + b"K\x01s.",
    "an odd dictionary": b"}(K\x01u.",
    "a reference to another file": b"N\x85Q.",
    "a name in a registry": b"\x82\x01.",
    "a name from a stack of numbers": b"\x80\x04K\x01K\x02\x93.",
    "an instance of protocol 0": b"(ios\nsystem\n.",
    "items that would be lost": b"ccollections\nOrderedDict\n](K\x01K\x02\x86e\x85R.",
    "a sparse matrix without arrays": b"cscipy.sparse.csr\ncsr_matrix\n)\x81}b.",
    "a sparse matrix with a list": b"cscipy.sparse.csr\ncsr_matrix\n)\x81]b.",
    "text cut in a character": b"X\x01\x00\x00\x00\xc3.",
    "a number of 10000 digits": b"L" + b"9" * 10_000 + b"L\n.",
    "nothing": b"",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_pickle_is_a_format_error(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"x cannot be read as a pickle of arrays: .*Get the file again"):
        load_pickle(path)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/data.pkl", content)
    path.write_bytes(file.getvalue())
    with pytest.raises(FormatError, match="x cannot be read as a torch file"):
        load_torch(path)


def test_the_pieces_of_the_hostile_pickles_make_arrays_when_they_are_right(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(array(b"K\x01\x85", dtype("i8"), EIGHT) + b".")
    assert load_pickle(path).tolist() == [0x4141414141414141]
    path.write_bytes(b"cnumpy.core.multiarray\nscalar\n" + dtype("i8") + EIGHT + b"\x86R.")
    assert load_pickle(path) == 0x4141414141414141


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_of_every_kind_come_back_from_a_pickle(tmp_path, protocol):
    rng = np.random.default_rng(0)
    X = sp.random_array((5, 4), density=0.5, rng=rng, format="csr")
    held = {
        "f": np.asfortranarray(rng.random((3, 2))),
        "big": np.arange(3, dtype=">i4"),
        "truth": np.array([True, False]),
        "text": np.array(["a", "é"]),
        "bytes": np.array([b"a", b"bc"]),
        "empty": np.zeros((0, 3)),
        "zero": np.array(4.5),
        "scalar": np.float32(2.5),
        "csc": X.tocsc(),
        "coo": X.tocoo(),
        "matrix": sp.csr_matrix(X),
    }
    held["again"] = held["f"]
    (tmp_path / "x").write_bytes(pickle.dumps(held, protocol=protocol))
    read = load_pickle(tmp_path / "x")
    assert read["again"] is read["f"]
    for name, value in held.items():
        if sp.issparse(value):
            assert np.array_equal(read[name].toarray(), value.toarray())
        else:
            assert (read[name].dtype, read[name].shape) == (value.dtype, value.shape)
            assert np.array_equal(read[name], value)
    objects = np.array([{"a": 1}, [2]], dtype=object)
    np.savez(tmp_path / "o.npz", two=objects, one=np.array({"m": X}, dtype=object))
    read = load_npz(tmp_path / "o.npz")
    assert read["two"] == [{"a": 1}, [2]]
    assert np.array_equal(read["one"]["m"].toarray(), X.toarray())


def test_bytes_that_are_used_again_and_again_are_refused(tmp_path):
    path = tmp_path / "x"
    column = sp.csc_array(([1.0], ([900_000], [0])), shape=(1 << 20, 1))  # 8 MB as rows
    path.write_bytes(pickle.dumps([sp.csc_array(column) for _ in range(50)]))
    with pytest.raises(FormatError, match="many times larger than the file"):
        load_pickle(path)
    text = b"X" + struct.pack("<I", 100_000) + b"a" * 100_000
    names = b"c_codecs\nencode\nq\x00" + text + b"q\x01X\x06\x00\x00\x00latin1q\x02"
    path.write_bytes(names + b"](" + b"h\x00h\x01h\x02\x86R" * 2000 + b"e.")  # 200 MB
    with pytest.raises(FormatError, match="many times larger than the file"):
        load_pickle(path)
    neighbours = list(range(200))
    save_planetoid(tmp_path)
    (tmp_path / "ind.cora.graph").write_bytes(pickle.dumps(dict.fromkeys(range(4000), neighbours)))
    with pytest.raises(FormatError, match=r"lists 800000 neighbours"):
        load_raw_dataset("cora", data=tmp_path)


BAD_MATRICES = {
    "indptr beyond the end": {"indptr": np.array([0, 2, 1 << 30], dtype=np.int32)},
    "indptr that falls": {"indptr": np.array([0, 2, 1], dtype=np.int32)},
    "a short indptr": {"indptr": np.array([0, 2], dtype=np.int32)},
    "a column too large": {"indices": np.array([0, 1 << 30], dtype=np.int32)},
    "a negative column": {"indices": np.array([0, -(1 << 30)], dtype=np.int32)},
    "columns that are no array": {"indices": [0, 1]},
    "too few values": {"data": np.ones(1)},
    "a negative shape": {"_shape": (-2, 2)},
    "a huge shape": {"_shape": (1 << 70, 2)},
}


@pytest.mark.parametrize("change", BAD_MATRICES.values(), ids=BAD_MATRICES)
def test_a_matrix_in_a_pickle_is_checked_before_scipy_gets_it(tmp_path, change):
    save_planetoid(tmp_path)
    matrix = sp.csr_matrix(np.eye(2))
    matrix.__dict__.update(change)
    (tmp_path / "ind.cora.allx").write_bytes(pickle.dumps(matrix, protocol=2))
    with pytest.raises(FormatError, match=r"ind\.cora\.allx .*a sparse matrix"):
        load_raw_dataset("cora", data=tmp_path)


def save_planetoid(folder):
    parts = {
        "x": sp.csr_matrix(np.eye(2)),
        "tx": sp.csr_matrix(np.eye(2)),
        "allx": sp.csr_matrix(np.eye(2)),
        "y": np.eye(2),
        "ty": np.eye(2),
        "ally": np.eye(2),
        "graph": {0: [1], 1: [0, 2], 2: [1, 3], 3: [2]},
    }
    for part, held in parts.items():
        (folder / f"ind.cora.{part}").write_bytes(pickle.dumps(held, protocol=2))
    (folder / "ind.cora.test.index").write_text("3\n2\n")


def attempt(read):
    """Return whether ``read`` gives a result; any error that is not graphquilt's fails the test."""
    try:
        read()
    except QuiltError:
        return False
    return True


def try_copies(path, read, *, seed=SEED):
    """Read damaged copies of a file in its place, and return the share of them that is refused."""
    original = path.read_bytes()
    results = []
    try:
        for content in damaged_copies(original, COUNT, seed=seed):
            path.write_bytes(content)
            results.append(attempt(read))
    finally:
        path.write_bytes(original)
    assert attempt(read)
    return 1 - np.mean(results)


def try_members(path, read):
    """Read copies of a zip file in which a member is damaged and all checksums are right again."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    original = path.read_bytes()
    try:
        for number, name in enumerate(members):
            for content in damaged_copies(members[name], COUNT // len(members) + 1, seed=SEED + number):
                with zipfile.ZipFile(path, "w") as archive:
                    for other, rest in members.items():
                        archive.writestr(other, content if other == name else rest)
                attempt(read)
    finally:
        path.write_bytes(original)


def use(graph):
    """Use all of a graph, so that compiled code sees every number."""
    graph.largest_component()
    graph.adjacency @ np.ones(graph.n_nodes)
    if isinstance(graph.features, sp.csr_array):
        graph.features.sum()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers that damage made infinite
@pytest.mark.parametrize("part", ["allx", "ally", "graph", "test.index"])
def test_damaged_planetoid_files(tmp_path, part):
    save_planetoid(tmp_path)
    path = tmp_path / f"ind.cora.{part}"
    assert try_copies(path, lambda: use(load_raw_dataset("cora", data=tmp_path))) > 0.3


def npz_layouts():
    A, X, y = sp.csr_array(np.roll(np.eye(6), 1, 0) + np.roll(np.eye(6), -1, 0)), sp.csr_array(np.eye(6)), np.arange(6)
    named = {"data": "data", "indices": "indices", "indptr": "indptr", "shape": "shape"}
    x = {f"x_{name}": np.asarray(getattr(X, part)) for name, part in named.items()}
    adj = {f"adj_{name}": np.asarray(getattr(A, part)) for name, part in named.items()}
    attr = {f"attr_{name}": np.asarray(getattr(X, part)) for name, part in named.items()}
    yield "edge_index", {"edge_index": np.array(A.nonzero()), **x, "y": y}
    yield "benchmark", {**adj, **attr, "labels": y}
    yield "pickled", {"adj_matrix": np.array(A, dtype=object), "node_attr": np.array(X, dtype=object), "node_label": y}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("layout", "arrays"), list(npz_layouts()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_damaged_npz_data_sets(tmp_path, layout, arrays):
    path = tmp_path / "cora.npz"
    np.savez_compressed(path, **arrays)

    def read():
        use(load_raw_dataset("cora", data=tmp_path))

    assert try_copies(path, read) > 0.5, layout
    try_members(path, read)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damaged_torch_files(tmp_path):
    torch = needs("torch")
    path = tmp_path / "data.pt"
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    torch.save(({"edge_index": edges, "x": torch.eye(4).T, "y": torch.arange(4)}, {"slices": [edges[:1]]}), path)

    def read():
        use(load_raw_dataset("cora", data=tmp_path))

    try_copies(path, read)
    try_members(path, read)


def test_a_tensor_that_repeats_its_numbers_is_refused(tmp_path):
    torch = needs("torch")
    torch.save({"t": torch.ones(1).expand(1000, 1000)}, tmp_path / "t.pt")
    with pytest.raises(FormatError, match="or repeats some"):
        load_torch(tmp_path / "t.pt")


def test_damaged_folders_of_ogb(tmp_path):
    processed = tmp_path / "mag240m_kddcup2021" / "processed"
    (processed / "paper").mkdir(parents=True)
    (processed / "paper___cites___paper").mkdir()
    built = tmp_path / "mag240m_kddcup2021" / "graphquilt"
    files = {
        processed / "paper___cites___paper" / "edge_index.npy": np.array([[0, 1, 2, 4], [1, 2, 0, 3]]),
        processed / "paper" / "node_feat.npy": np.ones((5, 3), dtype=np.float16),
        processed / "paper" / "node_label.npy": np.array([0, np.nan, 2, 1, np.nan]),
    }
    for path, values in files.items():
        np.save(path, values)

    def read():
        use(read_mag240m(tmp_path, built))

    def read_anew():
        shutil.rmtree(built, ignore_errors=True)
        read()

    for path in files:
        try_copies(path, read_anew if path.name == "edge_index.npy" else read)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damaged_features_and_labels(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(6, 2))
    assert try_copies(tmp_path / "x.npy", lambda: read_array(tmp_path / "x.npy", "features")) > 0.2
    sp.save_npz(tmp_path / "x.npz", sp.csr_array(np.eye(6)))

    def read():
        X = open_features(tmp_path / "x.npz")
        X.sum(axis=1)

    assert try_copies(tmp_path / "x.npz", read) > 0.5
    try_members(tmp_path / "x.npz", read)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damaged_edge_files(tmp_path):
    np.savez(tmp_path / "e.npz", edges=np.array([[0, 1], [1, 2]]), edge_weight=np.ones(2), y=np.arange(3))
    sp.save_npz(tmp_path / "s.npz", sp.csr_array(np.ones((3, 3)) - np.eye(3)))
    for name in ("e.npz", "s.npz"):

        def read(path=tmp_path / name):
            use(gq.read_edges(path))

        try_copies(tmp_path / name, read)
        try_members(tmp_path / name, read)


@pytest.mark.parametrize("name", ["x", "y", "node_id", "edge_weight"])
@pytest.mark.parametrize("value", [np.array(3), np.array([1j, 2j])], ids=["a number", "complex"])
def test_what_does_not_belong_beside_edges_is_refused(tmp_path, name, value):
    np.savez(tmp_path / "e.npz", edges=np.array([[0, 1], [1, 0]]), **{name: value})
    with pytest.raises(FormatError, match=rf"e\.npz: {name} is"):
        gq.read_edges(tmp_path / "e.npz")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damaged_alignments(tmp_path):
    patches = [(np.arange(k, k + 6), np.random.default_rng(k).random((6, 2))) for k in range(0, 9, 3)]
    path = tmp_path / "alignment.npz"
    gq.align(patches).save(path)

    def read():
        alignment = gq.Alignment.load(path)
        alignment.apply(0, np.ones((2, alignment.dim)))
        assert alignment.summary()
        repr(alignment)

    assert try_copies(path, read) > 0.5
    try_members(path, read)


def test_damaged_patch_graphs(tmp_path):
    path = tmp_path / "patches.npz"
    gq.PatchGraph.from_patches([np.arange(k, k + 8) for k in range(0, 30, 4)]).save(path)

    def read():
        patches = gq.PatchGraph.load(path)
        patches.summary()
        list(patches.node_sets)

    assert try_copies(path, read) > 0.5
    try_members(path, read)


CHANGES = [{"starts": [0, 3, 1 << 40]}, {"starts": [0, 9, 6]}, {"n_nodes": 1 << 50}, {"starts": 3}, {"starts": []}]


@pytest.mark.parametrize("change", CHANGES)
def test_a_patch_graph_is_checked_before_kernels_get_it(change):
    arrays = gq.PatchGraph.from_patches([[0, 1, 2], [1, 2, 3]]).to_arrays()
    with pytest.raises(QuiltError):
        gq.PatchGraph.from_arrays(arrays | {name: np.array(value) for name, value in change.items()})


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damaged_encoders(tmp_path):
    needs("torch")
    ring = gq.Graph(sp.csr_array(np.roll(np.eye(6), 1, 0) + np.roll(np.eye(6), -1, 0)), np.eye(6, 4))
    path = tmp_path / "encoder.safetensors"
    for embedder in (gq.embedders.DGI(2, max_epochs=1), gq.embedders.GAE(2, max_epochs=1)):
        embedder.fit(ring, 0).encoder.save(path)

        def read():
            gq.embedders.Encoder.load(path)(ring)

        assert try_copies(path, read) > 0.2


@pytest.fixture
def elsewhere(tmp_path):
    """A folder of the user that no file may lead to."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    yield folder
    assert [path.name for path in folder.iterdir()] == ["letter.txt"]
    assert (folder / "letter.txt").read_text() == "dear"


def test_no_link_in_a_job_makes_it_write_elsewhere(tmp_path, elsewhere):
    ring = gq.Graph(sp.csr_array(np.roll(np.eye(60), 1, 0) + np.roll(np.eye(60), -1, 0)))
    for name, target in (("lock", "letter.txt"), ("patches", ""), ("graph", ""), ("patches.json", "letter.txt")):
        job = tmp_path / f"job-{name}"
        store = gq.jobs.DirectoryStore(job)
        store.create()
        (job / name).symlink_to(elsewhere / target)
        read = attempt(lambda store=store: gq.embed(ring, 2, n_patches=3, store=store, embedder=gq.embedders.SVD(2)))
        assert read == (name == "patches.json")  # a link in the place of a file is replaced


def test_no_link_makes_a_build_write_or_remove_elsewhere(tmp_path, elsewhere):
    edges = np.array([[0, 1, 2], [1, 2, 0]])
    target = tmp_path / "g"
    target.mkdir()
    (target / "building-1").symlink_to(elsewhere)
    (target / "building-2").mkdir()
    (target / "building-2" / "0.rows").symlink_to(elsewhere / "letter.txt")
    (target / "indices.npy").symlink_to(elsewhere / "letter.txt")
    assert gq.graph.build_csr(edges, target).n_edges == 3
    assert not list(target.glob("building-*"))
