"""Array files that are damaged or hostile: each gives its arrays or a FormatError, and allocates nothing in advance."""

import io
import os
import struct
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from damage import damaged_copies
from graphquilt.errors import FormatError
from graphquilt.files import array_checksum, load_arrays, map_array, map_arrays, save_arrays
from graphquilt.files.array_files import open_archive
from graphquilt.files.checksums import is_array_entry, is_size, seal
from graphquilt.graph import read_edges
from graphquilt.graph.checks import saved_sparse
from graphquilt.graph.reading.node_tables import open_features
from graphquilt.jobs.source import read_array

READERS = (map_array, lambda path: map_arrays(path, ("a",)), load_arrays)


def npy(header, content=b"", version=(1, 0)):
    text = header if isinstance(header, bytes) else header.encode("latin1")
    length = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + content


def head(descr="'<f8'", shape="(3,)", order="False"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def zipped(*members, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


EIGHTS = bytes(24)
BAD_ARRAYS = {
    "empty": b"",
    "cut in the magic": b"\x93NUM",
    "cut in the length": b"\x93NUMPY\x01\x00\x10",
    "cut in the header": npy(head())[:30],
    "cut in the data": npy(head(), EIGHTS[:-1]),
    "more data than declared": npy(head(), EIGHTS + b"x"),
    "version 3": npy(head(), EIGHTS, (3, 0)),
    "version 9": npy(head(), EIGHTS, (9, 7)),
    "a header of 4 GB": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + EIGHTS,
    "objects": npy(head("'|O'"), b"\x80\x03cos\nsystem\nX\x04\x00\x00\x00true\x85R."),
    "a structure": npy(head("[('x', '<f8')]"), EIGHTS),
    "a structure of objects": npy(head("[('x', '|O')]"), EIGHTS),
    "a subarray": npy(head("('<f8', (3,))", "()"), EIGHTS),
    "raw bytes": npy(head("'|V8'"), EIGHTS),
    "an odd number of bytes": npy(head("'<i3'"), EIGHTS),
    "no bytes per entry": npy(head("'|S0'", "(2000000000000,)")),
    "text of no length": npy(head("'<U'", "(2000000000000,)")),
    "long text": npy(head("'<U999999999'", "(1,)"), EIGHTS),
    "2 * 10^12 numbers": npy(head(shape="(2000000000000,)"), EIGHTS),
    "a product beyond 64 bits": npy(head(shape="(4294967296, 4294967296, 4294967299)"), EIGHTS),
    "a product that wraps to 24": npy(head(shape="(9223372036854775811, 2)"), EIGHTS),
    "an empty array that is too large": npy(head(shape="(0, 9999999999999999999)")),
    "a negative number": npy(head(shape="(-3,)"), EIGHTS),
    "two negative numbers": npy(head(shape="(-3, -1)"), EIGHTS),
    "a float shape": npy(head(shape="(3.0,)"), EIGHTS),
    "40 dimensions": npy(head(shape="(" + "1," * 39 + "3)"), EIGHTS),
    "a true shape": npy(head(shape="(True, 3)"), EIGHTS),
    "a digit of another script": npy(head(shape="(³,)"), EIGHTS),
    "no dictionary": npy("3", EIGHTS),
    "no closing brace": npy(head()[:-1], EIGHTS),
    "an open string": npy("{'descr': '<f8", EIGHTS),
    "deep brackets": npy(head(shape="(" * 9000 + ")" * 9000), EIGHTS),
    "many signs": npy(head(shape="(" + "-" * 60000 + "3,)"), EIGHTS),
    "blanks": npy(head() + " " * 60000 + "x", EIGHTS),
    "a call": npy(head(shape="(__import__('os').system('true'),)"), EIGHTS),
    "a key twice": npy("{'descr': '<f8', 'shape': (3,), 'shape': (3,)}", EIGHTS),
    "no shape": npy("{'descr': '<f8', 'fortran_order': False}", EIGHTS),
    "null bytes": npy(b"\0" * 60, EIGHTS),
    "truth values of 2": npy(head("'|b1'"), b"\0\1\2"),
    "numbers that are no characters": npy(head("'<U1'", "(1,)"), b"\xff\xff\xff\x7f"),
    "half of a character": npy(head("'<U1'", "(1,)"), b"\x00\xd8\x00\x00"),
}


@pytest.mark.parametrize("content", BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_a_bad_array_is_a_format_error_in_every_reader(tmp_path, content):
    alone, stored, deflated = tmp_path / "a.npy", tmp_path / "s.npz", tmp_path / "d.npz"
    alone.write_bytes(content)
    stored.write_bytes(zipped(("a.npy", content)))
    deflated.write_bytes(zipped(("a.npy", content), compression=zipfile.ZIP_DEFLATED))
    for path in (alone, stored, deflated):
        for read in READERS:
            with pytest.raises(
                FormatError, match=rf"{path.name}( \(\d+ bytes\) cannot be read .*again|.* Python objects)"
            ):
                read(path)


def patched(content, old, new):
    assert content.count(old) >= 1
    return content.replace(old, new)


GOOD = npy(head(), EIGHTS)
LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


def flagged(content, place, value):
    """Set a byte of both headers of each member: at ``place`` in the central one, two less in the local one."""
    data = bytearray(content)
    for signature, at in ((LOCAL, place - 2), (CENTRAL, place)):
        start = data.find(signature)
        while start >= 0:
            data[start + at] = value
            start = data.find(signature, start + 4)
    return bytes(data)


DEFLATED = zipped(("a.npy", GOOD), compression=zipfile.ZIP_DEFLATED)
BAD_ZIPS = {
    "only a start": LOCAL,
    "no members": zipped(),
    "encrypted": flagged(zipped(("a.npy", GOOD)), 8, 1),
    "bzip2": zipped(("a.npy", GOOD), compression=zipfile.ZIP_BZIP2),
    "an unknown compression": flagged(zipped(("a.npy", GOOD)), 10, 77),
    "stored but called deflated": flagged(zipped(("a.npy", GOOD)), 10, 8),
    "a bad checksum": flagged(DEFLATED, 16, 0x5A),
    "a size that lies": patched(DEFLATED, struct.pack("<I", len(GOOD)), struct.pack("<I", 4_000_000_000)),
    "a size that lies a little": patched(DEFLATED, struct.pack("<I", len(GOOD)), struct.pack("<I", 1000)),
    "cut": DEFLATED[:-30],
    "another name in the local header": DEFLATED.replace(b"a.npy", b"b.npy", 1),
    "a folder": zipped(("a.npy/", b"")),
}


@pytest.mark.parametrize("content", BAD_ZIPS.values(), ids=BAD_ZIPS)
def test_a_bad_archive_is_a_format_error(tmp_path, content):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    for read in READERS[1:]:
        if read is load_arrays and content == BAD_ZIPS["no members"]:
            assert load_arrays(path) == {}
            continue
        with pytest.raises(FormatError, match=r"a\.npz \(\d+ bytes\) cannot be read"):
            read(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_that_share_a_name_or_bytes_are_an_error(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(zipped(("a.npy", GOOD), ("a.npy", GOOD)))
    with pytest.raises(FormatError, match="2 members have only 1 names"):
        load_arrays(path)
    # 50 entries of the central directory lead to the same 200 kB.
    content = zipped(("00.npy", bytes(200_000)))
    start, end = content.index(CENTRAL), content.index(b"PK\x05\x06")
    entries = [content[start:end].replace(b"00.npy", b"%02d.npy" % k) for k in range(50)]
    tail = bytearray(content[end:])
    struct.pack_into("<HHI", tail, 8, 50, 50, 50 * (end - start))
    path.write_bytes(content[:start] + b"".join(entries) + tail)
    with pytest.raises(FormatError, match="its members declare 10000000 bytes"):
        load_arrays(path)


def test_what_a_lying_header_asks_for_is_not_allocated(tmp_path):
    tracemalloc = pytest.importorskip("tracemalloc")
    path = tmp_path / "a.npz"
    lie = npy(head(shape="(2000000000000,)"), bytes(100_000))
    path.write_bytes(zipped(("a.npy", lie), compression=zipfile.ZIP_DEFLATED))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"16000000000000 bytes, and 100000 follow"):
            load_arrays(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "a.npy")
    with pytest.raises(FormatError, match="not a regular file"):
        map_array(tmp_path / "a.npy")


def test_plain_arrays_come_back_from_every_way_to_write_them(tmp_path):
    arrays = {
        "a": np.arange(6.0).reshape(2, 3),
        "f": np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3)),
        "text": np.array(["é", "longer", ""]),
        "bytes": np.array([b"x", b"yz"]),
        "number": np.array(7, dtype=np.uint8),
        "none": np.zeros((0, 5), dtype=np.float16),
        "truth": np.array([True, False]),
        "times": np.array(["2020-01-01"], dtype="M8[ns]"),
        "complex": np.array([1j]),
    }
    np.savez(tmp_path / "numpy.npz", **arrays)
    np.savez_compressed(tmp_path / "compressed.npz", **arrays)
    save_arrays(tmp_path / "ours.npz", arrays)
    for name in ("numpy", "compressed", "ours"):
        for read in (load_arrays(tmp_path / f"{name}.npz"), map_arrays(tmp_path / f"{name}.npz", tuple(arrays))):
            assert list(read) == list(arrays)
            for key, array in arrays.items():
                assert (read[key].dtype, read[key].shape) == (array.dtype, array.shape)
                assert np.array_equal(read[key], array)
    for key, array in arrays.items():
        np.save(tmp_path / f"{key}.npy", array)
        assert np.array_equal(map_array(tmp_path / f"{key}.npy"), array)


@pytest.mark.filterwarnings("ignore:Reading ..npy")  # of Python 2, which NumPy tells
def test_headers_of_other_writers_are_read(tmp_path):
    path = tmp_path / "a.npy"
    for header in (
        "{'shape':(3,),'fortran_order':False,'descr':'<f8'}",
        '{"descr": "<f8", "fortran_order": True, "shape": (3L,)}\n',
        head().replace(" ", "\n  "),
    ):
        for version in ((1, 0), (2, 0)):
            path.write_bytes(npy(header, EIGHTS, version))
            assert map_array(path).tolist() == [0, 0, 0]


def test_objects_go_to_the_function_that_was_given(tmp_path):
    np.savez(tmp_path / "o.npz", a=np.array({"x": 1}), b=np.ones(2))
    read = load_arrays(tmp_path / "o.npz", unpickle=len)
    assert read["a"] > 10
    assert read["b"].tolist() == [1, 1]


BAD_MATRICES = {
    "indptr beyond the end": {"indptr": [0, 1, 10**6]},
    "indptr that falls": {"indptr": [0, 2, 1]},
    "indptr that begins late": {"indptr": [1, 1, 2]},
    "a short indptr": {"indptr": [0, 2]},
    "an empty indptr": {"indptr": np.zeros(0, dtype=int)},
    "indptr of 2^63": {"indptr": np.array([0, 1, 2**63], dtype=np.uint64)},
    "a column too large": {"indices": [0, 3]},
    "a negative column": {"indices": [0, -1]},
    "columns that are no integers": {"indices": [0.0, 1.0]},
    "a table of columns": {"indices": [[0, 1]]},
    "too few columns": {"indices": [0]},
    "too few values": {"data": [1.0]},
    "values of text": {"data": ["a", "b"]},
    "a negative shape": {"shape": [-2, 3]},
    "a shape of three": {"shape": [2, 3, 4]},
    "a shape of floats": {"shape": [2.0, 3.0]},
    "another form": {"format": b"dia"},
    "a form of numbers": {"format": 3},
    "coordinates that are missing": {"format": b"coo"},
    "more rows than there can be": {"format": b"csc", "shape": [10**15, 2]},
}


@pytest.mark.parametrize("change", BAD_MATRICES.values(), ids=BAD_MATRICES)
def test_a_bad_sparse_matrix_is_found_before_scipy_gets_it(tmp_path, change):
    good = {"format": b"csr", "shape": [2, 3], "data": [1.0, 2.0], "indices": [0, 2], "indptr": [0, 1, 2]}
    path = tmp_path / "x.npz"
    np.savez(path, **good)
    assert open_features(path).toarray().tolist() == [[1, 0, 0], [0, 0, 2]]
    np.savez(path, **(good | change))
    with pytest.raises(FormatError, match=r"x\.npz"):
        open_features(path)
    with pytest.raises(FormatError, match=r"x\.npz"):
        read_edges(path)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_matrices_of_scipy_come_back(tmp_path, form):
    rng = np.random.default_rng(3)
    X = sp.random_array((40, 30), density=0.1, rng=rng, format=form)
    for matrix in (X, X.astype(np.float32), getattr(sp, f"{form}_matrix")(X)):
        sp.save_npz(tmp_path / "x.npz", matrix)
        assert np.array_equal(saved_sparse(load_arrays(tmp_path / "x.npz")).toarray(), matrix.toarray())


def test_mutated_array_files_give_arrays_or_format_errors(tmp_path):
    arrays = {"a": np.arange(8.0), "b": np.array(["x", "yz"]), "c": np.arange(3)}
    np.savez(tmp_path / "plain.npz", **arrays)
    np.savez_compressed(tmp_path / "packed.npz", **arrays)
    np.save(tmp_path / "one.npy", arrays["b"])
    sp.save_npz(tmp_path / "sparse.npz", sp.csr_array(np.eye(6)))
    path = tmp_path / "mutated"
    readers = {
        "plain.npz": (load_arrays, lambda path: map_arrays(path, ("a", "b"))),
        "packed.npz": (load_arrays, lambda path: map_arrays(path, ("a", "b"))),
        "one.npy": (map_array, lambda path: read_array(path, "labels")),
        "sparse.npz": (lambda path: saved_sparse(load_arrays(path)) @ np.ones((6, 2)),),
    }
    for name, reads in readers.items():
        refused = 0
        for content in damaged_copies((tmp_path / name).read_bytes(), 150, seed=4):
            path.write_bytes(content)
            for read in reads:
                try:
                    read(path)
                except FormatError:
                    refused += 1
        assert refused > 50, name


def test_a_member_is_read_by_name(tmp_path):
    (tmp_path / "z").write_bytes(zipped(("n/data", b"abc")))
    with open_archive(tmp_path / "z") as archive:
        assert archive.read("n/data") == b"abc"
    with pytest.raises(FormatError, match="lacks 'n/other'; it holds n/data"), open_archive(tmp_path / "z") as archive:
        archive.read("n/other")


def test_checksums_stay_the_same_in_all_releases():
    assert [array_checksum(np.arange(n))[:12] for n in (3, 4)] == ["ab25350e3e65", "a1e03200f1f8"]
    assert seal({"seed": 5})["checksum"][:12] == "f282ceca71d4"
    assert [is_size(value) for value in (3, -3, True, 10**30)] == [True, False, False, False]
    assert [is_array_entry({"shape": [2, 3], "dtype": kind}) for kind in ("<f8", "|O")] == [True, False]
