"""Federated alignment between real processes: each sees its own folder and what was sent to it, and nothing else."""

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import graphquilt as gq
from extras import needs
from federation import shares
from graphquilt.federated import align
from graphquilt.federated.align import Message, Party

DIM = 5
PARTIES = ("bank-a", "bank-b", "bank-c")
NOISY = "bank-c"
COMMAND = [sys.executable, "-c", "from graphquilt.cli import main; main()"]


class World:
    """Folders of actors. While one acts, the folders of the others are somewhere that it cannot know."""

    def __init__(self, root):
        self.root, self.hidden = root, root / os.urandom(8).hex()
        self.hidden.mkdir()
        self.left_home = {}  # every file that was sent, by what it is
        self.folders = {}  # of each party, the name of its folder in the round

    def __call__(self, actor, *words):
        """Run a command in the folder of an actor, alone."""
        home = self.root / actor
        (self.hidden / actor).mkdir(exist_ok=True)
        (self.hidden / actor).rename(home)
        try:
            command = [*COMMAND, "federate", "align", *map(str, words), "--json"]
            done = subprocess.run(command, cwd=home, capture_output=True, check=False)
            assert [path.name for path in self.root.iterdir() if path != self.hidden] == [actor]
        finally:
            home.rename(self.hidden / actor)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    def home(self, actor):
        (self.hidden / actor).mkdir(exist_ok=True)
        return self.hidden / actor

    def party(self, name):
        return Party.load(self.home(name) / "home" / self.folders[name])

    def send(self, sender, name, *receivers, kind=None):
        """Copy one file, which is looked at later."""
        for receiver in receivers:
            to = self.home(receiver) / (Path(name).name if Path(name).name != "offer" else f"{sender}-offer")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.home(sender) / name, to)
            self.left_home[sender, kind, receiver] = to.read_bytes()


def write_vectors(world, graph, ids):
    """Let each party embed its network, and write the coordinates in a format of its own."""
    own, nodes = shares(graph, len(PARTIES))
    for party, mine, some in zip(PARTIES, own, nodes, strict=True):
        X = gq.Propagation(DIM)(graph.subgraph(some), 0)
        home, columns = world.home(party), {f"x{k}": X[:, k] for k in range(DIM)}
        if party == "bank-b":
            pq.write_table(pa.table({"id": ids[some], **columns}), home / "vectors.parquet")
        else:
            rows = [",".join([str(ids[node]), *map(repr, x.tolist())]) for node, x in zip(some, X, strict=True)]
            (home / "vectors.csv").write_text("\n".join([",".join(["id", *columns]), *rows]))
        edge = np.setdiff1d(some, mine[np.diff(graph.adjacency[mine].indptr) == 0])
        (home / "share.txt").write_text("".join(f"{ids[k]}\n" for k in edge))


def run_round(world, *, psi=True, parties=PARTIES):
    """Run all steps of a round."""
    flags = [] if psi else ["--ids-can-be-guessed"]
    names = ["--parties", ",".join(parties)]
    agreed = ["--dim", DIM, "--name", "night-1", "--out", "round.json", "--key", "parties.key", *names, *flags]
    world("inviter", "invite", *agreed)
    world.send("inviter", "round.json", *parties, "coordinator", kind="round")
    world.send("inviter", "parties.key", *parties, kind="key")
    for party in parties:
        vectors = "vectors.parquet" if party == "bank-b" else "vectors.csv"
        own = ["--share", "share.txt", "--noise", "0.1" if party == NOISY else "0"]
        agreed = ["--round", "round.json", "--key", "parties.key", "--party", party, "--home", "home"]
        world(party, "offer", vectors, *agreed, *own)
        (folder,) = (path for path in (world.home(party) / "home").iterdir() if path.is_dir())
        world.folders[party] = folder.name
        world.send(party, f"home/{folder.name}/offer", *(other for other in parties if other != party), kind="offer")
    for first, second in combinations(parties, 2):
        a, b = first, second
        world(a, "reply", "home", f"{b}-offer", "--out", f"{a}-to-{b}")
        if psi:
            world.send(a, f"{a}-to-{b}", b, kind="answer")
            world(b, "reply", "home", f"{a}-to-{b}", "--out", f"{b}-to-{a}")
            a, b = second, first
        world.send(a, f"{a}-to-{b}", b, kind="reply")
        world(b, "measure", "home", f"{a}-to-{b}", "--out", "stats")
        world.send(b, f"stats/{b}+{a}", "coordinator/stats", kind=f"measurement with {a}")
    if psi:
        return None
    certificate = world("coordinator", "solve", "stats", "--out", "transforms", "--round", "round.json")
    for party in parties:
        world.send("coordinator", f"transforms/{party}", party, kind="transform")
        world(party, "apply", "home", party, "--out", "embedding.parquet")
    return certificate


@pytest.fixture(scope="module")
def ids():
    """The id of each node: numbers that are long enough to be found nowhere by chance."""
    return 1_000_000_007 + 7919 * np.random.default_rng(0).permutation(1200)


@pytest.fixture(scope="module")
def world(blocks, ids, tmp_path_factory):
    """A whole round among three parties, and its certificate."""
    world = World(tmp_path_factory.mktemp("world"))
    write_vectors(world, blocks, ids)
    world.certificate = run_round(world, psi=False)
    return world


def embedding_of(world, party):
    table = pq.read_table(world.home(party) / "embedding.parquet")
    names = [str(name) for name in table["node_id"].to_pylist()]
    return names, np.stack([table[f"x{k}"].to_numpy() for k in range(DIM)], axis=1)


def test_processes_give_what_one_place_gives(world):
    measured = [Message.load(path) for path in sorted((world.home("coordinator") / "stats").iterdir())]
    result = align.solve(measured, world.party("bank-a").round)
    assert world.certificate["verdict"] == result.verdict
    errors = {" and ".join(pair.parties): pair.error for pair in result.pairs}
    assert {name: pair["error"] for name, pair in world.certificate["pairs"].items()} == pytest.approx(errors)
    for k, party in enumerate(PARTIES):
        names, moved = embedding_of(world, party)
        home = world.party(party)
        assert names == [str(value) for value in home.ids.tolist()]
        np.testing.assert_allclose(moved, result.alignment.apply(k, home.embedding), atol=1e-9)


def id_forms(ids):
    for value in ids.tolist():
        text = str(value)
        yield from (text.encode(), text.encode("utf-16-le"), text.encode("utf-32-le"))
        yield from (value.to_bytes(8, "little"), value.to_bytes(8, "big"))
        yield from (value.to_bytes(4, "little"), value.to_bytes(4, "big"))


def ids_in_clear(forms, content):
    """Return the forms of ids in a file; up to four of only 4 bytes are there by chance where bytes are random."""
    found = [form for form in forms if form in content]
    return found if len(found) > 4 or any(len(form) > 4 for form in found) else []


def windows(content):
    return {content[k : k + 8] for k in range(len(content) - 7)}


def coordinate_forms(X):
    """Pairs of neighbouring float32, and single float64, in both orders of bytes."""
    for order in "<>":
        rows = X.astype(f"{order}f4")
        yield from (rows[i, k : k + 2].tobytes() for i in range(len(rows)) for k in range(X.shape[1] - 1))
        yield from (rows[i : i + 2, k].tobytes() for i in range(len(rows) - 1) for k in range(X.shape[1]))
        yield from (value.tobytes() for value in X.astype(f"{order}f8").ravel())


def test_no_id_leaves_a_party_in_clear(world, ids):
    forms = list(id_forms(ids))
    edges = (world.home("bank-a") / "vectors.csv").read_bytes()
    assert sum(form in edges for form in forms) > 100  # they would be found
    home = (world.home("bank-a") / "home" / world.folders["bank-a"] / "party").read_bytes()
    assert sum(form in home for form in forms) > 100
    for (sender, kind, _), content in world.left_home.items():
        assert not ids_in_clear(forms, content), (sender, kind)


def test_no_coordinates_leave_but_those_of_shared_nodes_to_the_partner(world):
    parties = {party: world.party(party) for party in PARTIES}
    for name, party in parties.items():
        assert windows((world.home(name) / "home" / world.folders[name] / "party").read_bytes()) & set(
            coordinate_forms(party.embedding)
        )
        for (sender, kind, receiver), content in world.left_home.items():
            if sender != name:
                continue
            hidden, shown = np.ones(len(party.ids), dtype=bool), set()
            if kind == "reply" and name != NOISY:
                hidden[party.rows[np.isin(party.pseudonyms, parties[receiver].pseudonyms)]] = False
                shown = set(coordinate_forms(party.embedding[~hidden]))
                assert windows(content) & shown
            forms = set(coordinate_forms(party.embedding[hidden])) - shown  # two nodes may have an equal number
            assert not windows(content) & forms, (sender, kind, receiver)


def test_the_coordinator_sees_no_pseudonyms_and_no_key(world):
    key = world.party("bank-a").key
    names = {party: world.party(party).pseudonyms.tobytes() for party in PARTIES}
    for (sender, kind, _), content in world.left_home.items():
        assert kind == "key" or (key not in content and key.hex().encode() not in content)
        if kind.startswith(("measurement", "transform", "round")):
            pieces = {all_[k : k + 32] for all_ in names.values() for k in range(0, len(all_), 32)}
            assert not [piece for piece in pieces if piece in content or piece.hex().encode() in content], sender
    assert not [path for path in world.home("coordinator").rglob("*") if "key" in path.name or "offer" in path.name]


def test_private_set_intersection_between_processes(world, blocks, ids, tmp_path):
    needs("private_set_intersection")
    private = World(tmp_path)
    write_vectors(private, blocks, ids)
    run_round(private, parties=PARTIES[:2])
    measured = Message.load(next((private.home("coordinator") / "stats").iterdir()))
    assert measured.arrays["counts"] == world.certificate["pairs"]["bank-a and bank-b"]["shared nodes"]
    forms = list(id_forms(ids))
    parties = [private.party(party) for party in PARTIES[:2]]
    own = [{party.pseudonyms.tobytes()[k : k + 32] for k in range(0, 32 * len(party.rows), 32)} for party in parties]
    assert own[0] - own[1]
    for (sender, kind, _), content in private.left_home.items():
        assert not ids_in_clear(forms, content), (sender, kind)
        # A partner gets the pseudonyms of shared nodes only.
        assert not [name for name in own[0] ^ own[1] if name in content or name.hex().encode() in content], kind


@pytest.mark.slow
def test_the_walk_through_in_the_docs_runs(tmp_path):
    needs("private_set_intersection")
    page = (Path(__file__).parents[1] / "docs" / "how-to" / "federated-alignment.md").read_text(encoding="utf-8")
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S))
    assert script.count("graphquilt federate align") == 7
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, words in (("graphquilt", COMMAND), ("python", [sys.executable])):
        quoted = " ".join(f"'{word}'" for word in words)
        (bin_ / name).write_text(f'#!/bin/sh\nexec {quoted} "$@"\n')
        (bin_ / name).chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    environment = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"}
    command = ["bash", "-e", "-c", script]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(place.rglob("embedding.parquet"))) == 3
    assert Message.load(next(place.rglob("transforms/hospital-a"))).kind == "transform"
