"""Every file of a job is covered by a checksum: damage is found or made good, and never gives another embedding."""

import contextlib
import ctypes
import json
import logging
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphquilt import SVD, Cutting
from graphquilt.cli import main
from graphquilt.errors import FormatError, JobError, QuiltError
from graphquilt.evaluate import EvaluationOptions
from graphquilt.files.checksums import sealed_text
from graphquilt.graph import read_edges
from graphquilt.jobs import DirectoryStore, Job, JobSettings, Source, evaluate_job, export_embedding, job_status
from graphquilt.jobs import source as source_module
from graphquilt.jobs.store import Record


def write_grid(path, n=8):
    right = [(f"n{i}.{j}", f"n{i}.{j + 1}") for i in range(n) for j in range(n - 1)]
    down = [(f"n{i}.{j}", f"n{i + 1}.{j}") for i in range(n - 1) for j in range(n)]
    path.write_text("".join(f"{a},{b}\n" for a, b in right + down))
    return path


def settings(path, **source):
    return JobSettings(embedder=SVD(2), cutting=Cutting(3), source=Source(path=str(path), **source))


def run(folder, source, **options):
    job = Job.begin(DirectoryStore(folder), settings(source, **options))
    job.run()
    return job


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The edges, a graph folder, and a finished job; nobody changes them."""
    root = tmp_path_factory.mktemp("whole")
    edges = write_grid(root / "edges.csv")
    read_edges(edges).save(root / "graph")
    evaluate_job(run(root / "job", edges), options=EvaluationOptions(splits=2))
    export_embedding(Job.open(root / "job"), root / "whole.csv")
    return root


@pytest.fixture
def job(whole, tmp_path):
    return Path(shutil.copytree(whole / "job", tmp_path / "job"))


def edit(path, **values):
    """Change the parameters in a marker, without its checksum."""
    marker = json.loads(path.read_text())
    marker["parameters"] |= values
    path.write_text(json.dumps(marker))


def attempt(action, *arguments):
    """Return what an action returns, or the error with which the command line would end."""
    try:
        return action(*arguments), None
    except QuiltError as error:
        return None, error


def mutated(data, rng):
    """Flip a bit, change a byte or a digit, cut the file short, or overwrite eight bytes."""
    content, at = bytearray(data), rng.randrange(len(data))
    digits = [place for place, byte in enumerate(data) if 48 <= byte <= 57] or [at]
    match rng.randrange(5):
        case 0:
            content[at] ^= 1 << rng.randrange(8)
        case 1:
            content[at] = rng.randrange(256)
        case 2:
            content[rng.choice(digits)] = 48 + rng.randrange(10)
        case 3:
            del content[at:]
        case _:
            content[at : at + 8] = bytes(len(content[at : at + 8]))
    return bytes(content)


def files_of(folder):
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]


def export(folder, out):
    export_embedding(Job.open(folder), out)
    return out.read_bytes()


def test_no_change_of_a_job_gives_another_embedding(whole, tmp_path):
    """Either --verify finds the change, or it is harmless; run and export succeed only with the same bits."""
    rng = random.Random(7)
    text, bits = (whole / "whole.csv").read_bytes(), (whole / "job" / "embedding.npy").read_bytes()
    job, missed = tmp_path / "job", set()
    shutil.copytree(whole / "job", job)
    for path in files_of(job):
        shutil.copytree(whole / "job", job, dirs_exist_ok=True)
        content = path.read_bytes()
        changed = mutated(content, rng)
        path.write_bytes(changed)
        status, error = attempt(lambda: job_status(Job.open(job), verify=True))
        if changed != content and error is None and not status.damaged:
            missed.add(path.name)
        exported, _ = attempt(export, job, tmp_path / "a.csv")
        assert exported in (None, text), path
        _, error = attempt(run, job, whole / "edges.csv")
        assert error is not None or (job / "embedding.npy").read_bytes() == bits, path
        exported, _ = attempt(export, job, tmp_path / "a.csv")
        assert exported in (None, text), path
        if error is not None:
            assert str(error).count(" ") > 8
            shutil.rmtree(job)
            shutil.copytree(whole / "job", job)
    assert missed <= {"lock", "indices.npy", "indptr.npy", "node_ids.npy"}


def test_some_hundred_changes_are_found_when_a_record_is_read(whole, tmp_path):
    """A record that can be read at all has the parameters and the bits that were written."""
    rng = random.Random(8)
    job = Path(shutil.copytree(whole / "job", tmp_path / "job"))
    markers = [path for path in files_of(job) if path.suffix == ".json" and path.parent.name != "graph"]
    markers.remove(job / "quilt.json")
    for path in markers:
        key = str(path.relative_to(job).with_suffix(""))
        record = DirectoryStore(job)[key]
        parts = [path, *(other for other in (path.with_suffix(".npy"), path.with_suffix(".npz")) if other.exists())]
        for _ in range(12):
            part = rng.choice(parts)
            content = part.read_bytes()
            part.write_bytes(mutated(content, rng))
            with contextlib.suppress(FormatError, JobError):
                again = DirectoryStore(job)[key]
                assert again.parameters == record.parameters
                assert all(np.array_equal(again.arrays[name], array) for name, array in record.arrays.items())
                assert list(again.arrays) == list(record.arrays)
            part.write_bytes(content)


def test_no_change_of_a_graph_folder_gives_another_graph(whole, tmp_path):
    rng = random.Random(9)
    folder = Path(shutil.copytree(whole / "graph", tmp_path / "graph"))
    graph = read_edges(whole / "edges.csv")
    for path in files_of(folder):
        content = path.read_bytes()
        for _ in range(25):
            path.write_bytes(mutated(content, rng))
            with contextlib.suppress(FormatError):
                again = type(graph).open(folder)
                assert np.array_equal(again.indptr, graph.indptr)
                assert np.array_equal(again.indices, graph.indices)
                assert again.node_ids.tolist() == graph.node_ids.tolist()
                assert (again.weights, again.features, again.directed) == (None, None, False)
            path.write_bytes(content)


def test_damaged_node_ids_are_found_by_export_and_written_again_by_run(whole, job, tmp_path, caplog):
    """Before, export wrote wrong ids."""
    path = job / "graph" / "node_ids.npy"
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"node_ids\.npy does not have the SHA-256"):
        export(job, tmp_path / "a.csv")
    with caplog.at_level(logging.WARNING):
        run(job, whole / "edges.csv")
    assert "the graph is read from its source again" in caplog.text
    assert export(job, tmp_path / "a.csv") == (whole / "whole.csv").read_bytes()


def test_a_changed_number_in_the_settings_is_an_error_with_the_remedy(whole, job, caplog):
    """Before, another number gave another embedding."""
    edit(job / "settings.json", seed=8)
    with pytest.raises(FormatError, match=r"settings\.json does not have its own checksum.*Run it with its edges"):
        Job.open(job)
    with caplog.at_level(logging.WARNING):
        again = run(job, whole / "edges.csv")
    assert "the settings were written again" in caplog.text
    assert again.settings.seed == 0
    assert (job / "embedding.npy").read_bytes() == (whole / "job" / "embedding.npy").read_bytes()
    assert Job.open(job).settings.seed == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embedder": SVD(3)}, "(embedded|cut) with .*"),
        ({"cutting": Cutting(4)}, "cut with .*n patches 3"),
        ({"seed": 1}, r"cut with .*seed 0 \(now 1\)"),
    ],
    ids=["embedder", "cutting", "seed"],
)
def test_damaged_settings_are_not_replaced_by_others(whole, job, change, message):
    from dataclasses import replace

    edit(job / "settings.json", seed=8)
    before = (job / "settings.json").read_bytes()
    now = settings(whole / "edges.csv")
    with pytest.raises(JobError, match=message):
        Job.begin(DirectoryStore(job), replace(now, **change))
    assert (job / "settings.json").read_bytes() == before


def test_a_damaged_graph_is_read_from_its_edges_again(whole, job, caplog):
    (job / "graph" / "indices.npy").write_bytes(b"no numbers")
    with pytest.raises(FormatError, match="write it again"):
        Job.open(job)
    with caplog.at_level(logging.WARNING):
        run(job, whole / "edges.csv")
    assert "the graph is read from its source again" in caplog.text
    assert job_status(Job.open(job), verify=True).damaged == []


def test_a_damaged_patch_graph_is_cut_again(whole, job, caplog):
    path = job / "patch_graph.npz"
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        run(job, whole / "edges.csv")
    assert "the graph is cut again" in caplog.text
    assert path.read_bytes() == (whole / "job" / "patch_graph.npz").read_bytes()


@pytest.mark.parametrize(
    "values",
    [
        {"bytes": -1},
        {"bytes": "9"},
        {"bytes": True},
        {"sha256": 7},
        {"sha256": "../x"},
        {"arrays": []},
        {"arrays": {"embedding": {"shape": [-1, 2], "dtype": "<f8"}}},
        {"arrays": {"embedding": {"shape": [1e9], "dtype": "<f8"}}},
        {"arrays": {"embedding": {"shape": [64, 2], "dtype": "|O"}}},
        {"arrays": {"embedding": {"shape": [64, 2]}}},
        {"arrays": {"embedding": None}},
        {"file": "../quilt.json"},
        {"file": 5},
        {"file": ["embedding.npy"]},
        {"parameters": None},
        {"parameters": [1]},
        {"format": "2"},
        {"format": True},
        {"format": -1},
        {"format": 1},
    ],
    ids=str,
)
def test_wild_markers_are_format_errors(job, values):
    """Also where the checksum of the marker is right."""
    path = job / "embedding.json"
    path.write_text(sealed_text(json.loads(path.read_text()) | values))
    with pytest.raises(FormatError, match="made again"):
        DirectoryStore(job)["embedding"]
    assert "embedding" not in DirectoryStore(job)


@pytest.mark.parametrize("text", ["[" * 90_000, '{"a":' * 90_000, '{"format": ' + "9" * 5000 + "}"])
def test_json_that_is_too_deep_or_too_long_is_a_format_error(job, text):
    (job / "embedding.json").write_text(text)
    with pytest.raises(FormatError, match=r"embedding\.json is not JSON.*made again"):
        DirectoryStore(job)["embedding"]
    (job / "quilt.json").write_text(text)
    with pytest.raises(JobError, match=r"quilt\.json does not say that this is a graphquilt job"):
        DirectoryStore(job)


@pytest.mark.parametrize(
    "values",
    [
        {"seed": 1e400},
        {"seed": -1},
        {"dim": "two", "embedder": {"name": "other"}},
        {"source": {"graph": "../elsewhere"}},
        {"source": {"graph": 5}},
        {"source": {"columns": 3}},
        {"source": {"checksums": 3}},
        {"cutting": {"overlap": [1]}},
        {"motions": {"scale": 3}},
    ],
    ids=str,
)
def test_wild_settings_are_format_errors(job, values):
    path = job / "settings.json"
    marker = json.loads(path.read_text())
    marker["parameters"] |= values
    path.write_text(sealed_text(marker))
    with pytest.raises(FormatError, match="Run it with its edges"):
        Job.open(job)


def test_large_files_are_not_read_at_each_call(whole, tmp_path, monkeypatch):
    """A file with the size, times and inode of before has the checksum of before."""
    edges, features = Path(shutil.copy(whole / "edges.csv", tmp_path)), tmp_path / "x.npy"
    np.save(features, np.arange(128.0).reshape(64, 2))
    monkeypatch.setattr(source_module, "is_settled", lambda *_: True)
    run(tmp_path / "job", edges, features=str(features))
    readings = []
    checksum = source_module.file_checksum
    monkeypatch.setattr(source_module, "file_checksum", lambda path: readings.append(path.name) or checksum(path))
    run(tmp_path / "job", edges, features=str(features))
    assert readings == []
    os.utime(features)
    run(tmp_path / "job", edges, features=str(features))
    assert readings == ["x.npy"]
    np.save(features, np.ones((64, 2)))
    with pytest.raises(JobError, match="made from other input: features with SHA-256"):
        run(tmp_path / "job", edges, features=str(features))


def test_a_graph_folder_that_changes_beside_the_same_features_is_noticed(whole, tmp_path):
    """Before, only the file of features was compared."""
    folder = Path(shutil.copytree(whole / "graph", tmp_path / "graph"))
    np.save(tmp_path / "x.npy", np.arange(128.0).reshape(64, 2))
    run(tmp_path / "job", folder, features=str(tmp_path / "x.npy"))
    other = read_edges(write_grid(tmp_path / "other.csv")).adjacency.tolil()
    other[0, 63] = other[63, 0] = 1
    type(read_edges(whole / "edges.csv"))(other.tocsr()).save(folder)
    with pytest.raises(JobError, match="made from other input: graph with fingerprint"):
        run(tmp_path / "job", folder, features=str(tmp_path / "x.npy"))


COMMAND = [sys.executable, "-c", "from graphquilt.cli import main; main()"]


def without_the_rights_of_root():
    """Take from root the right to write where the permissions do not allow it (CAP_DAC_OVERRIDE)."""
    if os.getuid() == 0 and ctypes.CDLL(None).prctl(24, 1, 0, 0, 0):  # PR_CAPBSET_DROP
        raise OSError("this right cannot be taken away")


def test_run_on_a_finished_job_needs_no_permission_to_write(whole, job):
    words = [*COMMAND, "embed", whole / "edges.csv", "--dim", "2", "--patches", "3", "--workers", "1", "--out", job]
    before = subprocess.run([*words, "--json"], capture_output=True, text=True, check=True).stdout
    for path in (*job.rglob("*"), job):
        path.chmod(0o555 if path.is_dir() else 0o444)
    options = {"preexec_fn": without_the_rights_of_root, "capture_output": True, "text": True}
    try:
        probe = subprocess.run([sys.executable, "-c", f"open({str(job / 'probe')!r}, 'w')"], check=False, **options)
        if probe.returncode == 0:
            pytest.skip("nothing keeps this user from writing")
        again = subprocess.run([*words, "--json"], check=False, **options)
        align = subprocess.run([*COMMAND, "stitch", job, "--robust", "--workers", "1"], check=False, **options)
    except subprocess.SubprocessError:
        pytest.skip("root keeps its rights here")
    finally:
        for path in (job, *job.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert (again.returncode, again.stdout) == (0, before), again.stderr
    assert align.returncode == 2, "what has to be written cannot be"
    assert "cannot be written to" in align.stderr


def test_inspect_says_what_is_damaged_and_ends_with_1(whole, job, tmp_path, capsys, monkeypatch):
    def inspect(*words):
        monkeypatch.setattr(sys, "argv", ["graphquilt", "inspect", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out + printed.err

    assert inspect(job, "--verify")[0] == 0
    edit(job / "labels.json", seed=8)
    code, text = inspect(job, "--verify")
    assert code == 1
    assert "labels.json does not have its own checksum" in text
    code, text = inspect(whole / "graph", "--verify")
    assert code == 0
    assert "everything matches" in text
    folder = Path(shutil.copytree(whole / "graph", tmp_path / "graph"))
    content = bytearray((folder / "node_ids.npy").read_bytes())
    content[-4] ^= 1
    (folder / "node_ids.npy").write_bytes(content)
    code, text = inspect(folder, "--verify")
    assert code == 2
    assert "node_ids.npy does not have the SHA-256" in text


@pytest.mark.parametrize("arrays", [{}, {"other": np.ones((64, 2))}, {"embedding": np.ones((64, 3))}])
def test_a_forged_embedding_is_refused_and_made_again(job, arrays):
    """Its checksums are right, as those of a forger would be."""
    store = DirectoryStore(job)
    expected, parameters = np.array(store["embedding"].arrays["embedding"]), store["embedding"].parameters
    store["embedding"] = Record(arrays, parameters)
    with pytest.raises(FormatError, match="not the embedding of 64 nodes in 2 dimensions; stitch it again"):
        _ = Job.open(job).embedding
    assert job_status(Job.open(job)).next.startswith("graphquilt stitch ")
    Job.open(job).stitch()
    assert np.array_equal(Job.open(job).embedding, expected)


def test_forged_records_are_refused(job):
    for key, arrays, parameters, message in (
        ("patch_graph", {}, {}, "this is not a patch graph: it lacks 'nodes'"),
        ("settings", {}, {"embedder": []}, "at least one embedder"),
        ("patches/00001/embedding", None, {"start": [1]}, "from different shared starts"),
    ):
        copy = shutil.copytree(job, job.with_name(key.replace("/", "-")))
        store = DirectoryStore(copy)
        record = store[key]
        store[key] = Record(record.arrays if arrays is None else arrays, {**record.parameters, **parameters})
        for path in copy.glob("embedding.*"):
            path.unlink()
        with pytest.raises(QuiltError, match=message):
            Job.open(copy).stitch()
