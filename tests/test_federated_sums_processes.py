"""A round of sums between real processes, as three organisations run it, and what bad input gets."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import graphquilt as gq
from extras import needs
from graphquilt import federated
from sums import networks

needs("cryptography")
PARTIES = ("hospital-a", "hospital-b", "hospital-c")
COMMAND = [sys.executable, "-c", "from graphquilt.cli import main; main()"]


def run_script(place, script):
    """Run a script in which ``graphquilt`` and ``python`` are those of this test."""
    programs = place.parent / "bin"
    programs.mkdir(exist_ok=True)
    for name, words in (("graphquilt", COMMAND), ("python", [sys.executable])):
        quoted = " ".join(f"'{word}'" for word in words)
        (programs / name).write_text(f'#!/bin/sh\nexec {quoted} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    command = ["bash", "-e", "-c", script]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """Run the page, and keep a copy of all folders from before the parties embed, when rounds are still open."""
    page = (Path(__file__).parents[1] / "docs" / "federated.md").read_text(encoding="utf-8")
    steps = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    assert "".join(steps).count("graphquilt federate") == 7
    place = tmp_path_factory.mktemp("walk") / "place"
    place.mkdir()
    before = run_script(place, "\n".join(steps[:-1]))
    assert before.returncode == 0, before.stderr
    shutil.copytree(place, place.with_name("open"))
    after = run_script(place, steps[-1])
    assert after.returncode == 0, after.stderr
    return place, before.stdout + after.stdout


def test_the_walk_through_in_the_docs_runs_and_all_embeddings_lie_in_one_frame(walked):
    place, output = walked
    blocks = gq.datasets.load_dataset("blocks")
    X = np.full((blocks.n_nodes, 6), np.nan)
    for party in PARTIES:
        table = pq.read_table(place / party / "embedding.parquet").to_pandas()
        own = (place / party / "own.txt").read_text().split()
        assert sorted(table.iloc[:, 0]) == sorted(own)
        X[[int(name.removeprefix("patient-")) for name in table.iloc[:, 0]]] = table.iloc[:, 1:].to_numpy()
    accuracy = gq.evaluate.classification_accuracy(X, blocks.labels, splits=5, seed=0).mean()
    full = gq.Propagation(6)(gq.Graph(blocks.adjacency), 0)
    assert accuracy > gq.evaluate.classification_accuracy(full, blocks.labels, splits=5, seed=0).mean() - 0.05
    assert output.count("They suit your network.") == 3
    codes = re.findall(r"^code +([0-9a-f-]{29})$", output, re.M)
    assert len(set(codes[3:])) == 1  # those of combine and of all three that embed


def test_no_file_that_is_sent_has_an_id_and_no_secret_is_left(walked):
    place, _ = walked
    for path in (place / "drive").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"patient" not in content
            assert b"from,to" not in content
    for party in PARTIES:
        home = place / party / "home"
        assert sorted(path.name for path in home.iterdir()) == ["identity", "ledger"]
        assert home.stat().st_mode & 0o077 == 0
        secret = json.loads((home / "identity").read_text())["signing"]
        assert not any(secret.encode() in path.read_bytes() for path in (place / "drive").rglob("*") if path.is_file())


@pytest.fixture
def federate(command, monkeypatch):
    """Return the function that runs a command in a folder."""

    def call(folder, *words):
        monkeypatch.chdir(folder)
        return command("federate", *words)

    return call


def test_status_says_who_does_what_next(walked, tmp_path, federate):
    drive = tmp_path / "drive"
    shutil.copytree(walked[0] / "drive", drive)

    def state():
        code, out, _ = federate(tmp_path, "status", drive, "--json")
        assert code == 0
        return json.loads(out)["night-1"]

    assert state()["next"] == ["every party: embed, which ends the round and deletes its keys."]
    (drive / "directions").unlink()
    assert state()["next"][0].startswith("the coordinator: combine")
    (drive / "sums" / "hospital-b").unlink()
    assert state()["next"][0].startswith("hospital-b: contribute to step 0")
    assert "names on the columns" in state()["coordinator_sees"]
    (drive / "cards" / "hospital-c").unlink()
    assert state()["next"] == ["hospital-c: join, and send the card to all."]
    homes = federate(tmp_path, "status", walked[0].with_name("open"))[1]
    assert homes.count("open round of hospital") == 3
    assert "for parties only" in homes


def test_bad_input_gets_one_sentence_and_leaves_nothing(walked, tmp_path, federate):
    place = tmp_path / "place"
    shutil.copytree(walked[0].with_name("open"), place)
    drive, home = place / "drive", place / "hospital-a"
    (drive / "directions").unlink()
    common = ("--invitation", drive / "invitation")
    cards = ("--cards", drive / "cards")
    result = place / "coordinator" / "out"

    def refused(folder, *words):
        listed = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
        code, out, err = federate(folder, *words)
        assert code == 2, out
        assert err.count("\n") == 1
        assert out == ""
        assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == listed
        return err

    combine = ("combine", drive / "sums", *common, *cards, "--out", result)
    contribute = ("contribute", "edges.csv", "--own", "own.txt", *common, "--home", "home", *cards, "--out", "again")
    assert "is a key of the parties" in refused(home, *combine[:-1], home / "out")
    sums, last = drive / "sums", ("--directions", walked[0] / "drive" / "directions")
    (sums / "twice").write_bytes((sums / "hospital-a").read_bytes())
    assert "contributed twice" in refused(place / "coordinator", *combine)
    (sums / "twice").unlink()
    (sums / "hospital-b").rename(place / "b")
    assert "contributions of hospital-b are missing" in refused(place / "coordinator", *combine)
    (sums / "hospital-b").write_bytes((place / "b").read_bytes()[:1000])
    assert "hospital-b" in refused(place / "coordinator", *combine)
    (place / "b").rename(sums / "hospital-b")
    signing, sent = federated.Home(home / "home").member().signing, (sums / "hospital-a").read_bytes()
    honest = federated.Contribution.load(sums / "hospital-a")
    for lie, expected in {
        "a wrong mask": (replace(honest, values=honest.values ^ np.uint64(1 << 60)), "Masks hide who sent"),
        "scaled": (replace(honest, values=honest.values * np.uint64(2)), "Masks hide who sent"),
        "another width": (replace(honest, values=honest.values[:-1]), "is of another signal, or damaged"),
        "replayed": (replace(honest, round="0" * 64), "is of another round"),
    }.values():
        lie.signed(signing).save(sums / "hospital-a")
        assert expected in refused(place / "coordinator", *combine)
    (sums / "hospital-a").write_bytes(sent)
    (drive / "cards" / "hospital-c").rename(place / "card")
    assert "cards of hospital-c are missing" in refused(place / "coordinator", *combine)
    assert "cards of hospital-c are missing" in refused(home, *contribute)
    (place / "card").rename(drive / "cards" / "hospital-c")
    embed = ("embed", "edges.csv", *common, "--home", "home", *cards, *last, "--out", "x.csv")  # without --own
    assert "Contribute the network that you joined with" in refused(home, *embed)
    assert "is not the key of the round" in refused(
        home,
        "join",
        "edges.csv",
        *_other_round(federate, tmp_path),
        "--key",
        "parties.key",
        "--party",
        "hospital-a",
        "--home",
        "home",
        "--out",
        "card",
    )
    stranger = ("--party", "hospital-z", "--home", "new", "--out", "card")  # leaves no home behind
    assert "is not invited" in refused(home, "join", "edges.csv", *common, "--key", "parties.key", *stranger)
    assert not (home / "new").exists()
    alone = (
        "--party",
        "hospital-a",
        "--key",
        "parties.key",
        "--home",
        tmp_path / "alone",
        "--out",
        tmp_path / "alone-card",
    )
    code, out, err = federate(home, "join", "edges.csv", *common, *alone, "--json")
    assert "All nodes count as your own" in json.loads(out)["notes"][0], err
    code, out, err = federate(home, *contribute, "--json")  # the same bytes again
    assert code == 0, err
    assert (home / "again").read_bytes() == (sums / "hospital-a").read_bytes()
    code, out, err = federate(place / "coordinator", *combine, "--json")
    assert json.loads(out)["complete"]
    assert result.read_bytes() == (walked[0] / "drive" / "directions").read_bytes()


def _other_round(federate, folder):
    words = ("--name", "night-2", "--parties", ",".join(PARTIES), "--out", "other", "--key", "other.key")
    assert federate(folder, "invite", *words)[0] == 0
    return "--invitation", folder / "other"


def test_wide_features_take_steps_with_files(tmp_path, federate, monkeypatch):
    monkeypatch.setattr("graphquilt.federated.signal.WIDEST", 300)
    rng = np.random.default_rng(0)
    blocks = gq.datasets.load_dataset("blocks").subgraph(np.arange(400))
    X = np.abs(rng.normal(size=(400, 310))).astype(np.float32)
    owner, (u, v) = gq.Metis(3)(blocks), blocks.adjacency.nonzero()
    names = tmp_path / "names.txt"
    names.write_text("\n".join(f"feature {k}" for k in range(310)))
    words = ("--name", "wide", "--dim", 4, "--parties", ",".join(PARTIES), "--feature-names", names)
    (tmp_path / "key").mkdir()
    files = ("--out", "invitation", "--key", tmp_path / "key" / "parties.key")
    assert federate(tmp_path, "invite", *words, *files)[0] == 0
    given = {}
    for k, party in enumerate(PARTIES):
        known = (owner[u] == k) | (owner[v] == k)
        nodes = np.unique([u[known], v[known]])
        np.savez(
            tmp_path / f"{party}.npz",
            edge_index=np.searchsorted(nodes, [u[known], v[known]]),
            x=X[nodes],
            node_id=nodes,
        )
        (tmp_path / f"{party}.txt").write_text("\n".join(map(str, np.flatnonzero(owner == k))))
        home = ("--home", tmp_path / "key" / party, "--invitation", "invitation")
        given[party] = (f"{party}.npz", "--own", f"{party}.txt", "--feature-names", names, *home)
        card = ("--key", tmp_path / "key" / "parties.key", "--party", party, "--out", f"cards/{party}")
        other = tmp_path / "other.txt"
        other.write_text("\n".join(reversed(names.read_text().split("\n"))))
        code, out, err = federate(tmp_path, "join", *given[party], *card, "--feature-names", other)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "or are in another order" in err
        assert not (tmp_path / "key" / party).exists()
        code, out, err = federate(tmp_path, "join", *given[party], *card)
        assert code == 0, err
    status = federate(tmp_path, "status", "--json")[1]
    confirm = ("--confirm", json.loads(status)["wide"]["code"], "--cards", "cards")
    place, step, complete = tmp_path / "coordinator", 0, False
    place.mkdir()
    while not complete:
        last = ("--directions", place / f"after-{step}") if step else ()
        for party, words in given.items():
            to = ("--out", f"sums-{step}/{party}", *last)
            code, _, err = federate(tmp_path, "contribute", *words, *confirm, *to)
            assert code == 0, err
        # the coordinator works elsewhere
        for name in ("invitation", "cards", f"sums-{step}"):
            source = tmp_path / name
            (shutil.copytree if source.is_dir() else shutil.copy)(
                source, place / name, **({"dirs_exist_ok": True} if source.is_dir() else {})
            )
        before = ("--before", f"after-{step}") if step else ()
        words = (
            f"sums-{step}",
            "--invitation",
            "invitation",
            "--cards",
            "cards",
            "--out",
            f"after-{step + 1}",
            *before,
        )
        code, out, err = federate(place, "combine", *words, "--json")
        assert code == 0, err
        complete, step = json.loads(out)["complete"], step + 1
    assert step >= 3
    for party, words in given.items():
        to = ("--cards", "cards", "--directions", place / f"after-{step}", "--out", f"{party}.csv")
        code, out, err = federate(tmp_path, "embed", *words, *to, "--json")
        assert code == 0, err
        assert json.loads(out)["dim"] == 4


def test_the_python_of_the_docs_runs(capsys):
    page = (Path(__file__).parents[1] / "docs" / "federated.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    exec(block, {"networks": networks(gq.Graph(gq.datasets.load_dataset("blocks").adjacency), PARTIES)})
    assert "They suit your network." in capsys.readouterr().out
