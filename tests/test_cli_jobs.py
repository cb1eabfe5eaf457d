"""The command line: from edges to an embedding, stage by stage or in one go, and what it says when it cannot."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import graphquilt
from extras import needs
from graphquilt.cli import app
from graphquilt.jobs import JobStatus

COMMAND = [sys.executable, "-c", "from graphquilt.cli import main; main()"]


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    """A grid of 20 × 20 with string ids and no header, written down row by row."""
    path = tmp_path_factory.mktemp("input") / "edges.csv"
    right = [(f"n{i}.{j}", f"n{i}.{j + 1}") for i in range(20) for j in range(19)]
    down = [(f"n{i}.{j}", f"n{i + 1}.{j}") for i in range(19) for j in range(20)]
    path.write_text("".join(f"{a},{b}\n" for a, b in right + down))
    return path


@pytest.fixture(scope="module")
def job(edges, tmp_path_factory):
    path = tmp_path_factory.mktemp("embed") / "job"
    done = subprocess.run(
        [
            *COMMAND,
            "embed",
            edges,
            *["--dim", "2", "--patches", "4", "-e", "svd", "--workers", "1", "--json", "--out"],
            path,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["nodes"] == 400
    assert "0:00" not in done.stderr  # no bars where nobody watches
    return path


def test_run_leaves_what_people_use(job):
    X = np.load(job / "embedding.npy", allow_pickle=False)
    assert X.shape == (400, 2)
    assert np.isfinite(X).all()
    ids = np.load(job / "graph" / "node_ids.npy").tolist()
    assert len(set(ids)) == 400
    assert "n19.19" in ids


def test_run_again_changes_nothing(job, edges, command):
    before = {path: path.stat().st_mtime_ns for path in job.glob("patches/*/*")}
    X = np.load(job / "embedding.npy")
    code, out, _ = command("embed", edges, "--dim", 2, "--patches", 4, "--out", job, "--workers", 1)
    assert code == 0
    assert "embedding.npy" in out
    assert before == {path: path.stat().st_mtime_ns for path in job.glob("patches/*/*")}
    assert np.array_equal(np.load(job / "embedding.npy"), X)


def test_the_stages_give_the_same_as_run(job, edges, command, tmp_path):
    steps = tmp_path / "steps"
    assert command("cut", edges, "--dim", 2, "--patches", 4, "-e", "svd", "--out", steps)[0] == 0
    for share in ("2/3", "1/3", "3/3"):
        code, out, _ = command("embed-patches", steps, "--shard", share, "--workers", 1, "--json")
        assert code == 0
    assert json.loads(out)["patches"] == 4
    assert command("stitch", steps, "--workers", 1)[0] == 0
    assert np.abs(np.load(steps / "embedding.npy") - np.load(job / "embedding.npy")).max() < 1e-9


def test_two_workers_give_the_same(job, edges, command, tmp_path):
    other = tmp_path / "job"
    assert command("embed", edges, "--dim", 2, "--patches", 4, "-e", "svd", "--out", other, "--workers", 2)[0] == 0
    assert np.abs(np.load(other / "embedding.npy") - np.load(job / "embedding.npy")).max() < 1e-9


def test_a_dask_cluster_gives_the_same(job, edges, command, tmp_path):
    distributed = needs("distributed")
    other = tmp_path / "job"
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0", "resources": {"GPU": 1}}
    with distributed.LocalCluster(**options) as cluster:
        workers = ("--dask", cluster.scheduler_address, "--dask-resource", "GPU=1")
        assert command("embed", edges, "--dim", 2, "--patches", 4, "-e", "svd", "--out", other, *workers)[0] == 0
    assert np.abs(np.load(other / "embedding.npy") - np.load(job / "embedding.npy")).max() < 1e-9


def test_inspect_and_evaluate(job, command, study, tmp_path):
    code, out, _ = command("inspect", job, "--json", "--verify")
    status = json.loads(out)
    assert code == 0
    assert (status["embedded"], status["next"], status["damaged"]) == (4, "nothing", [])
    labels = tmp_path / "y.npy"
    np.save(labels, np.arange(400) % 2)
    code, out, _ = command("evaluate", job, "--labels", labels, "--splits", 2, "--json")
    assert code == 0
    assert 0.5 < json.loads(out)["auc"] <= 1
    assert "accuracy" in json.loads(out)
    table = tmp_path / "labels.csv"
    ids = job / "graph" / "node_ids.npy"
    names = np.load(ids) if ids.exists() else np.arange(400)
    table.write_text("node,label\n" + "".join(f"{name},{'ab'[k % 2]}\n" for k, name in enumerate(names)))
    assert command("evaluate", job, "--labels", table, "--splits", 2, "--json")[1] == out
    table.write_text("".join(f"{name}x,a\n" for name in names))
    assert "none of the 400 ids" in command("evaluate", job, "--labels", table)[2]
    options = json.loads((job / "evaluation.json").read_text())["parameters"]["options"]
    assert (options["splits"], options["classifier"]["name"]) == (2, "graphquilt.InvariantLogistic")
    assert study("classify", job, "--labels", labels, "--splits", 2)[0] == 0
    options = json.loads((job / "evaluation.json").read_text())["parameters"]["options"]
    assert options["classifier"]["name"] == "studies.adam.AdamLogistic"
    measured = json.loads((job / "evaluation.json").read_text())["parameters"]
    assert "accuracy" not in json.loads(command("evaluate", job, "--json")[1])
    assert json.loads((job / "evaluation.json").read_text())["parameters"] == measured  # the accuracy is kept
    records = json.loads(command("inspect", job, "--json")[1])["records"]
    assert [name for name, record in records.items() if record is None] == ["choice", "clusters", "survey", "full"]
    assert len(command("inspect", job, "--all")[1].splitlines()) > 24


def test_an_evaluation_of_an_earlier_embedding_is_reported(job, command, tmp_path):
    other = tmp_path / "job"
    shutil.copytree(job, other)
    assert command("evaluate", other)[0] == 0
    assert "earlier" not in command("inspect", other)[1]
    assert command("stitch", other, "--no-translate")[0] == 0
    assert "of an earlier embedding" in " ".join(command("inspect", other)[1].split())


def test_another_graph_in_the_folder_of_the_job_is_found(edges, command, tmp_path):
    file, graph, out = tmp_path / "edges.csv", tmp_path / "graph", tmp_path / "job"
    assert command("ingest", edges, graph)[0] == 0
    assert command("embed", graph, "--dim", 2, "--patches", 4, "--out", out, "--workers", 1)[0] == 0
    file.write_text(edges.read_text().replace("n0.0,n0.1", "n0.0,n9.9"))
    shutil.rmtree(graph)
    assert command("ingest", file, graph)[0] == 0
    for words in (("evaluate", out), ("stitch", out, "--coverage", 2), ("embed-patches", out)):
        code, _, err = command(*words)
        assert code == 2
        assert f"begun with another graph than the one that is now in {graph}" in err


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "txt"])
def test_exports_hold_the_embedding_and_the_ids(job, command, tmp_path, ending):
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    file = tmp_path / f"out.{ending}"
    assert command("export", job, file)[0] == 0
    X = np.load(job / "embedding.npy").astype(np.float32)
    if ending == "parquet":
        table = pq.read_table(file)
        assert np.array_equal(np.stack([table["x0"], table["x1"]], axis=1), X)
    elif ending == "txt":
        lines = file.read_text().splitlines()
        assert lines[0] == "400 2"
        assert lines[7].split()[1:] == [f"{x:.6g}" for x in X[6].tolist()]
    else:
        separator = {"csv": ",", "tsv": "\t"}[ending]
        table = pc.read_csv(file, parse_options=pc.ParseOptions(delimiter=separator))
        assert np.array_equal(np.stack([table["x0"], table["x1"]], axis=1).astype(np.float32), X)
        assert table["node_id"][0].as_py() in file.read_text().splitlines()[1]


def inspected(command, job):
    """The status of a job, as inspect prints it for machines."""
    code, out, err = command("inspect", job, "--json")
    assert code == 0, err
    return json.loads(out)


def test_inspect_prints_the_fields_of_a_status(job, command):
    names = {field.name for field in dataclasses.fields(JobStatus)}
    assert inspected(command, job).keys() == names
    assert inspected(command, job)["settings"]["embedder"]["name"] == "graphquilt.SVD"
    records = {path.stem for path in job.glob("*.json")}
    assert records >= {"settings", "labels", "patch_graph", "alignment", "embedding"}
    assert not records & {"embed", "recipe", "source"}


def test_runs_recipe_and_diagnosis_from_the_command_line(edges, command, tmp_path):
    needs("torch")
    out = tmp_path / "job"
    words = (
        "embed",
        edges,
        "--dim",
        2,
        "--patches",
        4,
        "-e",
        "vgae",
        "--set",
        "max_epochs=5",
        "--workers",
        1,
        "--json",
    )
    code, printed, _ = command(*words, "--out", out, "--recipe", "reconstruction", "--runs", 2)
    assert code == 0
    result = json.loads(printed)
    assert (result["recipe"], result["runs"]) == ("reconstruction, changed", 2)
    status = inspected(command, out)
    assert (status["embedded"], status["wanted"]) == (8, 8)
    assert status["settings"]["embedder"]["blend"] == 0.75
    assert status["settings"]["recipe"]["name"] == "reconstruction, changed"
    assert status["records"]["alignment"]["coverage"] == 2.0
    more = ("embed-patches", out, "--runs", 3, "--workers", 1)
    assert command(*more, "--shard", "1/2")[0] == 0
    assert inspected(command, out)["next"] == f"graphquilt embed-patches {out}"
    assert command(*more, "--shard", "2/2")[0] == 0
    status = inspected(command, out)
    assert (status["next"], status["settings"]["recipe"]["coverage"]) == (f"graphquilt stitch {out}", 2.0)
    code, _, err = command("evaluate", out, "--diagnose")
    assert code == 2
    assert "was aligned with runs 2 (now 3); stitch it again" in err
    assert command("stitch", out, "--workers", 1)[0] == 0
    assert inspected(command, out)["records"]["alignment"]["coverage"] == 2.0
    assert command(*words, "--out", out, "--runs", 3)[0] == 0
    assert inspected(command, out)["embedded"] == 12
    assert command("stitch", out, "--coverage", 0, "--workers", 1)[0] == 0
    assert inspected(command, out)["settings"]["recipe"]["coverage"] == 0
    code, _, err = command(*words, "--recipe", "paper", "--set", "negatives=3", "--out", tmp_path / "other")
    assert code == 0, err
    assert inspected(command, tmp_path / "other")["settings"]["embedder"]["negatives"] == 3  # what is set by hand wins
    np.save(tmp_path / "full.npy", np.random.default_rng(0).normal(size=(400, 2)))
    code, printed, _ = command("evaluate", out, "--full", tmp_path / "full.npy", "--json")
    assert code == 0
    assert json.loads(printed)["diagnosis"][0].startswith("Full training AUC")
    assert set(json.loads(printed)["losses"]) == {"local training", "averaging", "alignment"}
    assert json.loads(printed)["unit"] == "AUC"
    assert "losses" not in command("evaluate", out, "--full", tmp_path / "full.npy")[1]


def test_a_function_of_a_graph_and_a_seed_is_an_embedder_too(edges, command, tmp_path, monkeypatch):
    (tmp_path / "my_functions.py").write_text(
        "import numpy as np\n\n\ndef corner(graph, seed):\n    return np.outer(graph.degrees, [1.0, 2.0])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = ("embed", edges, "--dim", 2, "--patches", 4, "-e", "my_functions:corner", "--workers", 1)
    code, _, err = command(*words, "--out", tmp_path / "job")
    assert code == 0, err


def test_embed_without_flags_goes_on_as_the_job_was_begun(edges, command, tmp_path):
    needs("torch")
    out = tmp_path / "job"
    assert command("cut", edges, "--dim", 2, "--patches", 4, "--seed", 5, "--out", out)[0] == 0
    begun = ("embed-patches", out, "-e", "gae", "--set", "max_epochs=4", "--recipe", "paper", "--runs", 2)
    assert command(*begun, "--robust", "--workers", 1, "--shard", "1/2")[0] == 0
    before = inspected(command, out)["settings"]
    assert (before["seed"], before["recipe"]["robust"], before["embedder"]["max_epochs"]) == (5, True, 4)
    code, printed, err = command("embed-patches", out, "--workers", 1, "--json")
    assert code == 0, err
    assert json.loads(printed)["patches"] == 8
    status = inspected(command, out)
    assert (status["settings"], status["next"]) == (before, f"graphquilt stitch {out}")
    assert command("embed-patches", out, "--runs", 3, "--workers", 1)[0] == 0
    assert inspected(command, out)["settings"]["recipe"]["runs"] == 3
    code, _, err = command("embed-patches", out, "--set", "lr=0.5")
    assert code == 2
    assert "is embedded with lr 0.001 (now 0.5)" in err
    code, _, err = command("embed-patches", out, "--recipe", "reconstruction", "--runs", 3)
    assert code == 2
    assert "is embedded with blend 0.0 (now 0.75)" in err
    code, _, err = command("embed", edges, "--patches", 5, "--out", out)
    assert code == 2
    assert "n patches 4 (now 5)" in err


def test_run_on_a_job_keeps_its_settings_where_no_flag_changes_them(edges, command, tmp_path):
    needs("torch")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(400, 3)))
    words = ("embed", edges, "--out", tmp_path / "job", "--workers", 1, "--json")
    first = ("--dim", 2, "--patches", 4, "-e", "gae", "--set", "max_epochs=4", "--features", tmp_path / "x.npy")
    assert command(*words, *first, "--seed", 3, "--runs", 2, "--coverage", 1)[0] == 0
    before = inspected(command, tmp_path / "job")["settings"]
    code, printed, err = command(*words)
    assert code == 0, err
    assert {key: json.loads(printed)[key] for key in ("runs", "dim")} == {"runs": 2, "dim": 2}
    assert "resuming " in err
    assert len(err.splitlines()) == 1
    assert inspected(command, tmp_path / "job")["settings"] == before
    assert json.loads(command(*words, "--runs", 1)[1])["runs"] == 1
    assert inspected(command, tmp_path / "job")["settings"]["recipe"]["coverage"] == 1


def test_runs_of_an_embedder_that_is_not_random_are_one(edges, command, tmp_path):
    words = ("embed", edges, "--dim", 2, "--patches", 4, "--out", tmp_path / "job", "--workers", 1, "--json")
    code, printed, _ = command(*words, "--runs", 4)
    assert code == 0
    assert json.loads(printed)["runs"] == 1


OWN_EMBEDDER = """
from dataclasses import dataclass
from graphquilt import SVD

@dataclass(frozen=True)
class Mine:
    dim: int
    power: float = 1.0

    def __call__(self, graph, seed):
        return self.power * SVD(self.dim)(graph, seed)
"""


@pytest.mark.parametrize(
    "workers", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("loop", "processes")), "dask"]
)
def test_an_embedder_of_your_own_is_found_by_all_workers(workers, edges, job, tmp_path):
    """A file in the current folder, which no worker has on its path."""
    name = f"own_{workers}"
    (tmp_path / f"{name}.py").write_text(OWN_EMBEDDER)
    own = ("-e", f"{name}:Mine", "--set", "power=2")

    def command(*words):
        command = [*COMMAND, *map(str, words)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    with contextlib.ExitStack() as stack:
        flags = ("--workers", 2 if workers == "processes" else 1)
        if workers == "dask":
            options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
            cluster = stack.enter_context(needs("distributed").LocalCluster(**options))
            flags = ("--dask", cluster.scheduler_address)
        run = command("embed", edges, "--dim", 2, "--patches", 4, "--out", "job", *own, *flags)
        assert run.returncode == 0, run.stderr
        for record in (tmp_path / "job" / "patches").glob("*2/embedding.*"):
            record.unlink()
        run = command("embed-patches", "job", *flags)
        assert run.returncode == 2
        assert f"made with {name}.Mine, which graphquilt cannot recreate: pass it again" in run.stderr
        assert command("embed-patches", "job", *own, *flags).returncode == 0
    assert np.abs(np.load(tmp_path / "job" / "embedding.npy") / 2 - np.load(job / "embedding.npy")).max() < 1e-9
    run = command("plan", "job", *own, "--workers", 2, "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["workers"] == 2
    run = command("embed-patches", "job", "-e", f"{name}:Mine", "--set", "power=3")
    assert "is embedded with power 2 (now 3)" in run.stderr


def content(folder):
    """All files of a folder, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.fixture
def known(edges, job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    return {"EDGES": edges, "JOB": job, "EMPTY": tmp_path / "empty"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("embed", "nowhere.csv"), "nowhere.csv does not exist"),
        (("embed", "EDGES", "--embedder", "word2vec"), "choose one of propagation, svd, vgae, gae, dgi"),
        (("embed", "EDGES", "--set", "epoch=3"), "'epoch' is not a setting of propagation"),
        (("embed", "EDGES", "--overlap", "many"), "two integers with a colon"),
        (("embed", "EDGES", "--partition", "spectral"), "choose one of metis"),
        (("embed", "EDGES", "--dim", "many"), "--dim takes an integer, not 'many'."),
        (("embed", "EDGES", "--dmi", "3"), "Unknown option: --dmi. Did you mean --dim?"),
        (("embde", "EDGES"), 'Did you mean "embed"?'),
        (("embed",), "EDGES is missing; see graphquilt embed --help."),
        (("update", "job", "--add"), "the value of --add is missing; see graphquilt update --help."),
        (("embed", "EDGES", "-e", "nowhere:Mine"), "--embedder nowhere:Mine cannot be imported"),
        (("embed", "EDGES", "-e", "toy_embedders:Toy", "--set", "size=1"), "cannot be called with dim 64"),
        (("embed", "EDGES", "--workers", "0", "--out", "none"), 'Invalid value "0" for --workers. Must be >= 1.'),
        (("embed", "EDGES", "--dim", "0"), "for --dim. Must be >= 1."),
        (("embed", "EDGES", "--dim", "2.7"), "--dim takes an integer, not '2.7'."),
        (("ingest", "EDGES", "g", "--ids", "names"), 'Invalid value "names" for --ids. Choose from'),
        (("embed", "EDGES", "--features", "EDGES"), "cannot be read as features"),
        (("embed", "EDGES", "--features", "none.npy"), "none.npy cannot be read as features: it does not exist."),
        (("embed-patches", "EMPTY"), "has no patches yet"),
        (("stitch", "EMPTY"), "has no patches yet"),
        (("evaluate", "EMPTY"), "has no patches yet"),
        (("export", "EMPTY", "x.csv"), "has no patches yet"),
        (("inspect", "EMPTY"), "has no patches yet"),
        (("inspect", "none"), "none does not exist; check the path"),
        (("report", "none"), "none does not exist; check the path"),
        (("neighbours", "EMPTY", "n3.4"), "has no patches yet"),
        (("embed-patches", "JOB", "--shard", "4/3"), "shards are numbered 1/3 to 3/3"),
        (("embed-patches", "JOB", "--shard", "one"), "two integers with a slash"),
        (("embed", "EDGES", "--recipe", "secret"), "choose one of shared, reconstruction, paper"),
        (("embed-patches", "JOB", "--seed", "9"), "Unknown option: --seed"),
        (("embed", "EDGES", "--seed", "9", "--out", "JOB"), "seed 0 (now 9)"),
        (("export", "JOB", "x.docx"), "choose one of npy, parquet, csv, tsv, word2vec, neo4j"),
        (("embed-patches", "JOB", "--dask", "tcp://127.0.0.1:1"), "no Dask scheduler at tcp://127.0.0.1:1"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(words, message, known, command):
    before = content(known["JOB"])
    if "--dask" in words:
        dask, _ = needs("dask"), needs("distributed")  # whose defaults would go with the setting if they came after it
        with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
            code, out, err = command(*(known.get(word, word) for word in words))
    else:
        code, out, err = command(*(known.get(word, word) for word in words))
    assert code == 2
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1
    assert [path.name for path in Path.cwd().iterdir()] == ["empty"]
    assert not list(known["EMPTY"].iterdir())
    assert content(known["JOB"]) == before


def test_a_bug_shows_its_traceback_and_exits_1(job, monkeypatch):
    code = "import graphquilt.jobs as j\ndef broken(*a, **k): raise ZeroDivisionError\nj.job_status = broken\n"
    command = [sys.executable, "-c", code + "from graphquilt.cli import main; main()", "inspect", job]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "Traceback" in run.stderr


def test_other_content_under_the_same_name_is_not_resumed(command, edges, tmp_path):
    """As many bytes as before, and another graph: the old answer would be wrong without a word."""
    file, out = tmp_path / "edges.csv", tmp_path / "job"
    file.write_text(edges.read_text())
    words = ("embed", file, "--dim", "2", "--patches", "4", "--workers", "1", "--out", out)
    assert command(*words)[0] == 0
    file.write_text(edges.read_text().replace("n0.0,n0.1", "n0.0,n9.9"))
    code, _, err = command(*words)
    assert code == 2
    assert "edges with SHA-256" in err


def test_a_job_is_resumed_from_another_folder(command, edges, tmp_path, monkeypatch):
    """Where a file lies is not what it holds."""
    (tmp_path / "below").mkdir()
    (tmp_path / "conn.csv").write_text(edges.read_text())
    np.save(tmp_path / "x.npy", np.arange(1.0, 801).reshape(400, 2))
    monkeypatch.chdir(tmp_path)
    words = ("--dim", 2, "--patches", 4, "--workers", 1)
    assert command("embed", "conn.csv", "--features", "x.npy", *words, "--out", "j")[0] == 0
    assert command("ingest", "conn.csv", "graph")[0] == 0
    assert command("embed", "graph", *words, "--out", "k")[0] == 0
    monkeypatch.chdir(tmp_path / "below")
    assert command("embed", "../conn.csv", "--features", "../x.npy", *words, "--out", "../j")[0] == 0
    assert command("embed", "../graph", *words, "--out", "../k")[0] == 0
    np.save(tmp_path / "x.npy", np.zeros((400, 1)))
    code, _, err = command("embed", "../conn.csv", "--features", "../x.npy", "--directed", *words, "--out", "../j")
    assert code == 2
    assert "made from other input: " in err
    assert "features with SHA-256" in err
    assert "directed false (now true)" in err
    assert "edges" not in err
    (tmp_path / "conn.csv").write_text(edges.read_text().replace("n0.0,n0.1", "n0.0,n9.9"))
    assert command("ingest", "../conn.csv", "../other")[0] == 0
    code, _, err = command("embed", "../other", *words, "--out", "../k")
    assert code == 2
    assert "graph with fingerprint" in err


def test_a_job_without_patches_can_be_made_otherwise(command, edges, tmp_path):
    """Two components stop the first attempt; its folder serves the next one."""
    file, out = tmp_path / "edges.csv", tmp_path / "job"
    file.write_text(edges.read_text() + edges.read_text().replace("n", "m").removesuffix("m18.19,m19.19\n"))
    words = ("embed", file, "--dim", "2", "--patches", "4", "--workers", "1", "--out", out, "-e", "svd")
    code, _, err = command(*words)
    assert code == 2
    assert "--largest-component" in err
    assert command(*words, "--largest-component")[0] == 0
    assert len(np.load(out / "embedding.npy")) == 400
    assert inspected(command, out)["settings"]["cutting"]["overlap"] == [100, 400]  # that of the smaller graph


def test_a_failed_first_attempt_does_not_block_the_job(command, edges, tmp_path):
    needs("torch")
    out = tmp_path / "job"
    assert command("cut", edges, "--dim", 2, "--patches", 4, "--out", out)[0] == 0
    code, _, err = command("embed-patches", out, "-e", "dgi", "--workers", 1)
    assert code == 2
    assert err.count("featureless='degree'") == 1
    settings = ("--set", "featureless=degree", "--set", "max_epochs=3")
    assert command("embed-patches", out, "-e", "dgi", *settings, "--workers", 1)[0] == 0


def test_weights_are_read_where_asked_and_merged_patches_are_reported(command, edges, tmp_path):
    file = tmp_path / "weighted.csv"
    lines = edges.read_text().split()
    file.write_text("a,b,w\n" + "".join(f"{line},{1 + k % 5}\n" for k, line in enumerate(lines)))
    code, out, err = command(
        "embed",
        file,
        "--columns",
        "a,b,w",
        "--dim",
        "2",
        "--patches",
        "100",
        "--overlap",
        "12:24",
        "--out",
        tmp_path / "job",
    )
    assert code == 0
    assert "patches instead of 100" in err
    assert "compared on" in out
    assert graphquilt.Graph.open(tmp_path / "job" / "graph").weights is not None


def test_control_c_stops_cleanly_and_the_next_run_finishes(edges, job, tmp_path):
    """A real interrupt of a real process, while two workers sleep over their patches."""
    out = tmp_path / "job"
    code = (
        # A shell in the background ignores interrupts, and its children inherit that.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from graphquilt.cli import main; main()"
    )
    path = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    words = ["embed", edges, "--dim", "2", "--patches", "8", "--out", out, "--workers", "2", "-e", "toy_embedders:Toy"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words, "--set", "seconds=2"],
        env=os.environ | {"PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    while len(list(out.glob("patches/*/embedding.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "to resume: graphquilt embed" in err
    assert "Traceback" not in err
    done = {path: path.stat().st_mtime_ns for path in out.glob("patches/*/embedding.json")}
    assert 2 <= len(done) < 8
    again = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        check=False,
    )
    assert again.returncode == 0
    assert done.items() <= {path: path.stat().st_mtime_ns for path in out.glob("patches/*/embedding.json")}.items()


def commands(parent=app):
    """The words of every command, those of groups included."""
    for name in parent:
        if not name.startswith("-"):
            command = parent[name]
            nested = list(commands(command))
            yield from [(name, *words) for words in nested] or [(name,)]


COMMANDS = list(commands())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_is_the_same_in_every_command(words, command):
    """Each has an example, and the same flag for its output."""
    code, out, _ = command(*words, "--help")
    text = " ".join(out.replace("│", " ").split())
    assert code == 0
    if len(words) == 1:
        assert f"Example: graphquilt {words[0]}" in text
    assert "--json Print the result as JSON." in text


@pytest.mark.parametrize("name", ["embed", "cut", "embed-patches", "stitch", "align", "plan", "report", "map"])
def test_help_begins_with_few_flags_and_has_no_broken_lines(name, command):
    """The other flags stand in named groups below; no default in brackets is broken by a line of the source."""
    first = command(name, "--help")[1].partition("─╮\n")[2].partition("╰─")[0]
    assert 1 <= len(re.findall(r"^│ \*? *(?:[A-Z]+ )?--[a-z]", first, re.M)) <= 14
    arguments = app[name].assemble_argument_collection()
    assert not [argument.name for argument in arguments if "\n" in (argument.parameter.help or "")]


def test_commands_that_are_imported_late_are_listed_with_their_own_words():
    """The list of commands must not import them, so it repeats what their functions say."""
    packages = {"anomaly": "graphquilt.temporal", "watch": "graphquilt.temporal", "demo": "graphquilt.cli"}
    for name, package in packages.items():
        function = app[name].default_command
        assert function.__module__.startswith(package)
        assert app[name].help == function.__doc__
    from graphquilt.federated.commands import federate_app

    assert app["federate"] is federate_app


def test_json_is_one_document_on_standard_output(job, edges, command, tmp_path):
    """Of every command that is quick enough to run here; the others are run elsewhere."""
    other = tmp_path / "job"
    shutil.copytree(job, other)
    for words in (
        ("cut", edges, "--out", other),
        ("embed-patches", other, "--workers", 1),
        ("stitch", other, "--workers", 1),
        ("inspect", other),
        ("evaluate", other),
        ("export", other, tmp_path / "x.csv"),
        ("neighbours", other, "n3.4"),
        ("ingest", edges, tmp_path / "graph"),
        ("datasets", "list"),
        ("datasets", "show", "blocks"),
    ):
        code, out, err = command(*words, "--json")
        assert code == 0, err
        assert isinstance(json.loads(out), dict)


def test_help_loads_no_numerical_package():
    """What makes it start at once: everything slow is imported by the command that needs it."""
    code = (
        "import atexit, sys; from graphquilt.cli import main\n"
        "heavy = {'numpy', 'scipy', 'numba', 'pyarrow', 'pymetis', 'torch', 'sklearn', 'matplotlib', 'distributed'}\n"
        "atexit.register(lambda: print(sorted(heavy & sys.modules.keys()), file=sys.stderr))\n"
        "main()"
    )
    run = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert run.stderr == "[]\n"


def test_version_and_completion(command):
    assert command("--version")[1] == f"graphquilt {graphquilt.__version__}\n"
    code, out, _ = command("--show-completion", "bash")
    assert code == 0
    assert "--largest-component" in out


def test_damage_is_found_named_and_repaired(job, edges, command, tmp_path):
    other = tmp_path / "job"
    shutil.copytree(job, other)
    file = other / "patches" / "00002" / "embedding.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    damaged = json.loads(command("inspect", other, "--verify", "--json")[1])["damaged"]
    assert len(damaged) == 1
    assert "00002/embedding.npy" in damaged[0]
    code, _, err = command("stitch", other, "--refine", 1)  # without the flag there is nothing to do
    assert code == 2
    assert "00002/embedding.npy" in err
    assert command("embed", edges, "--refine", 0, "--out", other, "--workers", 1)[0] == 0
    # SVD's last bits depend on where BLAS finds its arrays in memory.
    assert np.abs(np.load(other / "embedding.npy") - np.load(job / "embedding.npy")).max() < 1e-9


def test_whoever_watches_sees_patches_epochs_and_loss(edges, tmp_path):
    """On a terminal (a pseudo one) progress goes to standard error, and standard output stays clean."""
    needs("torch")
    import pty

    master, slave = pty.openpty()
    words = ["embed", edges, "--dim", "2", "--patches", "2", "--embedder", "vgae", "--set", "max_epochs=20"]
    with subprocess.Popen(
        [*COMMAND, *words, "--out", tmp_path / "job", "--workers", "1", "--json"],
        stdout=subprocess.PIPE,
        stderr=slave,
        env=os.environ | {"COLUMNS": "160", "TERM": "xterm"},
    ) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:  # the other side has closed it
                break
            if not piece:
                break
            seen += piece
        out = process.stdout.read()
    os.close(master)
    assert process.returncode == 0
    assert json.loads(out)["patches"] == 2
    shown = seen.decode()
    assert "patches" in shown
    assert "2/2" in shown
    assert "loss" in shown


def test_a_half_embedded_job_says_what_comes_next(command, edges, tmp_path):
    out = tmp_path / "job"
    assert command("cut", edges, "--dim", 2, "--patches", 4, "--out", out)[0] == 0
    code, printed, _ = command("embed-patches", out, "--shard", "1/4", "--workers", 1, "--json")
    assert code == 0
    assert (json.loads(printed)["embedded"], json.loads(printed)["already"]) == (1, 0)
    for words in (("evaluate", out), ("export", out, tmp_path / "x.csv")):
        code, _, err = command(*words)
        assert code == 2
        assert "embed its patches first (1 of 4 are), then stitch it: graphquilt embed-patches " in err
    code, printed, _ = command("embed-patches", out, "--workers", 1, "--json")
    counts = json.loads(printed)
    assert (counts["embedded"], counts["already"], counts["patches"]) == (3, 1, 4)
    for words in (("evaluate", out), ("export", out, tmp_path / "x.csv")):
        code, _, err = command(*words)
        assert code == 2
        assert "has no embedding yet; stitch it first: graphquilt stitch " in err
    assert json.loads(command("embed-patches", out, "--workers", 1, "--json")[1])["embedded"] == 0


def test_a_lack_of_memory_is_one_sentence(command, edges, tmp_path, monkeypatch):
    def refuse(*_):
        raise MemoryError

    monkeypatch.setattr("graphquilt.jobs.Job.begin", refuse)
    code, _, said = command("embed", edges, "--out", tmp_path / "job")
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("graphquilt: out of memory. Finished work is kept")
