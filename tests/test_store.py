"""The job format: what is kept comes back, and every kind of damage is found and named."""

import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.files.checksums import sealed_text
from graphquilt.files.writing import folder_lock
from graphquilt.jobs import DirectoryStore, Record
from graphquilt.testing import check_store

KEY = "patches/00003/graph"


@pytest.fixture
def store(tmp_path):
    store = DirectoryStore(tmp_path / "job")
    store[KEY] = Record({"nodes": np.arange(40), "indptr": np.arange(41, dtype=np.int32)}, {"directed": False})
    store["embedding"] = Record({"embedding": np.arange(12.0).reshape(4, 3)}, {"dim": 3})
    return store


@pytest.mark.parametrize("make", [dict, None], ids=["dict", "directory"])
def test_stores_keep_the_contract(make, tmp_path):
    check_store(make or (lambda: DirectoryStore(tmp_path / "job")))


ARRAYS = hnp.arrays(
    st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.int64, np.bool_, np.dtype("<U3")]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text("abcdefgh_", min_size=1, max_size=70), ARRAYS, min_size=1, max_size=4))
def test_what_is_kept_comes_back_bit_for_bit(tmp_path_factory, arrays):
    store = DirectoryStore(tmp_path_factory.mktemp("job"))
    store["a/b"] = Record(arrays)
    back = DirectoryStore(store.folder)["a/b"].arrays
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        assert back[name].shape == array.shape
        assert back[name].tobytes() == array.tobytes()
        assert back[name].flags.aligned


def test_data_files_are_what_numpy_writes(store):
    assert np.load(store.folder / "embedding.npy", allow_pickle=False).sum() == 66
    with np.load(store.folder / (KEY + ".npz"), allow_pickle=False) as archive:
        assert archive["nodes"].sum() == 780


def test_a_plain_savez_by_another_program_is_read(store):
    """A marker and a file that numpy.savez wrote, compressed or not, are a record."""
    import hashlib

    for save in (np.savez, np.savez_compressed):
        data = store.folder / (KEY + ".npz")
        save(data, nodes=np.arange(40), indptr=np.arange(41, dtype=np.int32))
        marker_path = store.folder / (KEY + ".json")
        marker = json.loads(marker_path.read_text())
        marker |= {"bytes": data.stat().st_size, "sha256": hashlib.sha256(data.read_bytes()).hexdigest()}
        marker_path.write_text(sealed_text(marker))
        assert DirectoryStore(store.folder)[KEY].arrays["nodes"].sum() == 780


def test_arrays_are_memory_mapped_and_read_only(store):
    nodes = store[KEY].arrays["nodes"]
    assert isinstance(nodes, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        nodes[0] = 1


@pytest.mark.parametrize("at", [0, 100, -1], ids=["first", "middle", "last"])
def test_a_flipped_bit_is_found(store, at):
    data = store.folder / (KEY + ".npz")
    content = bytearray(data.read_bytes())
    content[at] ^= 1
    data.write_bytes(content)
    with pytest.raises(FormatError, match=r"graph\.npz does not have the SHA-256"):
        DirectoryStore(store.folder)[KEY]


def test_a_change_after_the_first_reading_is_found_too(store):
    store[KEY]
    data = store.folder / (KEY + ".npz")
    content = bytearray(data.read_bytes())
    content[200] ^= 4
    data.write_bytes(content)
    os.utime(data, ns=(1, 1))
    with pytest.raises(FormatError, match="SHA-256"):
        store[KEY]


def test_a_truncated_file_is_found(store):
    data = store.folder / "embedding.npy"
    data.write_bytes(data.read_bytes()[:-8])
    assert "embedding" not in store
    with pytest.raises(FormatError, match="cut short"):
        store["embedding"]


def test_a_marker_without_data(store):
    (store.folder / "embedding.npy").unlink()
    assert "embedding" not in store
    with pytest.raises(FormatError, match="gone but its marker is there"):
        store["embedding"]


def test_data_without_a_marker_is_not_a_record(store):
    (store.folder / "embedding.json").unlink()
    assert "embedding" not in store
    with pytest.raises(KeyError):
        store["embedding"]


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"format": 2}', '{"format": 2, "file": "embedding.npy", "parameters": {}}', "[" * 90_000]
)
def test_a_torn_or_foreign_marker_is_named(store, text):
    (store.folder / "embedding.json").write_text(text)
    assert "embedding" not in store
    with pytest.raises(FormatError, match=r"embedding\.json is not"):
        store["embedding"]


def test_a_marker_may_not_point_elsewhere(store):
    path = store.folder / "embedding.json"
    path.write_text(path.read_text().replace("embedding.npy", "../../secret.npy"))
    with pytest.raises(FormatError, match="not a marker of job format 3"):
        store["embedding"]


def test_python_objects_are_refused_both_ways(store):
    with pytest.raises(InputError, match="Python objects"):
        store["x"] = Record({"x": np.array([{}])})
    import hashlib

    data = store.folder / "embedding.npy"
    np.save(data, np.array([{"a": 1}] * 4), allow_pickle=True)
    marker = json.loads((store.folder / "embedding.json").read_text())
    marker |= {"bytes": data.stat().st_size, "sha256": hashlib.sha256(data.read_bytes()).hexdigest()}
    (store.folder / "embedding.json").write_text(sealed_text(marker))
    with pytest.raises(FormatError, match="Python objects"):
        store["embedding"]


@pytest.mark.parametrize("key", ["", "a//b", "../x", "a/..", ".hidden", "quilt", "/etc/x"])
def test_keys_stay_inside_the_job(store, key):
    with pytest.raises(InputError, match="cannot be a key"):
        store[key] = Record({})


def test_a_newer_job_is_refused_untouched(store):
    head = store.folder / "quilt.json"
    head.write_text('{"format": "graphquilt job", "version": 4}')
    with pytest.raises(JobError, match="job format 4"):
        DirectoryStore(store.folder)
    assert "4" in head.read_text()


def test_a_job_of_another_format_is_refused_with_what_to_do(store):
    (store.folder / "quilt.json").write_text('{"format": "graphquilt job", "version": 1}')
    with pytest.raises(JobError, match=r"does not say that this is a graphquilt job, .* format 3, write"):
        DirectoryStore(store.folder)


def test_a_newer_marker_is_refused_not_redone(store):
    path = store.folder / "embedding.json"
    path.write_text(path.read_text().replace('"format": 3', '"format": 7'))
    with pytest.raises(JobError, match="job format 7"):
        store["embedding"]
    with pytest.raises(JobError, match="job format 7"):
        _ = "embedding" in store


def test_a_folder_of_other_things_is_not_a_job(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(JobError, match=r"no quilt\.json but holds 1 other things \(thesis\.tex"):
        DirectoryStore(tmp_path)


def test_an_existing_file_is_not_a_job(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(JobError, match="is a file"):
        DirectoryStore(tmp_path / "x")


def test_another_programs_quilt_json_is_refused(tmp_path):
    (tmp_path / "quilt.json").write_text('{"blocks": 12}')
    with pytest.raises(JobError, match="does not say that this is a graphquilt job"):
        DirectoryStore(tmp_path)


def test_a_killed_writer_leaves_nothing_that_looks_finished(tmp_path):
    """Kill a writer that does nothing but rewrite one record: what is there is whole, or is known to be absent."""
    code = (
        "import sys, numpy as np\n"
        "from graphquilt.jobs import DirectoryStore\nfrom graphquilt.jobs import Record\n"
        "store = DirectoryStore(sys.argv[1])\n"
        "print('ready', flush=True)\n"
        "n = 0\n"
        "while True:\n"
        "    n += 1\n"
        "    store['a'] = Record({'x': np.full(20000, n), 'y': np.full(30, n)}, {'n': n})\n"
    )
    rng = np.random.default_rng(5)
    for _ in range(6):
        with subprocess.Popen([sys.executable, "-c", code, tmp_path / "job"], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(float(rng.uniform(0.02, 0.1)))
            process.kill()
        store = DirectoryStore(tmp_path / "job")
        if "a" in store:
            record = store["a"]
            assert (record.arrays["x"] == record.parameters["n"]).all()
    store["a"] = Record({"x": np.zeros(1)})
    assert not list(store.folder.glob("*.part"))


def test_a_store_can_be_sent_to_a_worker(store):
    there = pickle.loads(pickle.dumps(store))
    assert there[KEY].arrays["nodes"].sum() == 780


def test_the_second_run_is_told_the_pid_of_the_first(tmp_path):
    code = (
        "import sys, time\nfrom graphquilt.files.writing import folder_lock\n"
        "with folder_lock(sys.argv[1]):\n    print('locked', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(JobError, match=f"worked on by process {process.pid} on "), folder_lock(tmp_path):
            pass
        process.kill()
        process.wait()
        with folder_lock(tmp_path):
            pass


def test_shares_go_together_and_a_whole_run_does_not(tmp_path):
    def refused(**shard):
        with pytest.raises(JobError, match="worked on by"), folder_lock(tmp_path, **shard):
            pass

    with folder_lock(tmp_path, shard="1-of-3"), ThreadPoolExecutor(1) as other:
        other.submit(refused).result()
        other.submit(refused, shard="1-of-3").result()
        with folder_lock(tmp_path, shard="anything"):
            pass

        def second():
            with folder_lock(tmp_path, shard="2-of-3"):
                return "locked"

        assert other.submit(second).result() == "locked"


def test_an_error_inside_the_lock_is_not_dressed_up(tmp_path):
    with pytest.raises(OSError, match="mine"), folder_lock(tmp_path):
        raise OSError(28, "mine")
