"""A round of sums as a Flower app: in one process, and (slow) with a real SuperLink and three real SuperNodes."""

import io
import os
import re
import signal
import socket
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import graphquilt as gq
from extras import needs
from graphquilt import federated
from graphquilt.cli import SourceFlags
from graphquilt.errors import InputError, JobError
from graphquilt.federated import Directions, Home
from graphquilt.federated.commands import NetworkFlags

needs("flwr")
needs("cryptography")

from flwr.app import Context, RecordDict  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from graphquilt.federated import flower  # noqa: E402

PARTIES = "abc"
PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "federated-network.md"
COMMAND = [sys.executable, "-c", "from graphquilt.cli import main; main()"]


class Wire:
    """What a SuperLink does for a ServerApp, in one process; ``change`` may drop or falsify what it carries."""

    def __init__(self, configs, change=lambda party, message: message):
        self.configs, self.change = configs, change
        self.carried = []

    def get_node_ids(self):
        return [100 + k for k in range(len(self.configs))]

    def send_and_receive(self, messages, *, timeout=None):
        for message in messages:
            party = PARTIES[message.metadata.dst_node_id - 100]
            sent = self.change(party, message)
            if sent is not None:
                context = Context(1, message.metadata.dst_node_id, self.configs[party], RecordDict(), {})
                reply = flower.client(sent, context)
                self.carried.append((party, message.metadata.message_type, reply.content))
                yield reply


def write_network(graph, owner, k, folder):
    ids = np.array([f"patient-{number:04d}" for number in range(graph.n_nodes)])
    u, v = graph.adjacency.nonzero()
    known = (owner[u] == k) | (owner[v] == k)
    text = "".join(f"{s},{t}\n" for s, t in zip(ids[u[known]], ids[v[known]], strict=True))
    (folder / "edges.csv").write_text(text)
    (folder / "own.txt").write_text("\n".join(ids[owner == k]))


def network_of(config):
    return NetworkFlags(own=Path(config["own"])).read(Path(config["edges"]), SourceFlags())


@pytest.fixture
def round_of_three(blocks, tmp_path, monkeypatch):
    """Three parties that have joined, with the configuration of their SuperNodes, and that of the coordinator."""
    owner = gq.Metis(3)(blocks)
    invitation, key = federated.invite("night-1", 6, list(PARTIES), terms=federated.Terms(buckets=64))
    configs = {}
    for k, party in enumerate(PARTIES):
        folder = tmp_path / party
        folder.mkdir()
        write_network(blocks, owner, k, folder)
        invitation.save(folder / "invitation")
        files = {"edges": "edges.csv", "own": "own.txt", "invitation": "invitation", "home": "home"}
        files |= {"confirm": "code", "out": "embedding.parquet"}
        configs[party] = {name: str(folder / file) for name, file in files.items()}
        Home(folder / "home").join(network_of(configs[party]), invitation, key, party=party)
    coordinator = tmp_path / "coordinator"
    coordinator.mkdir()
    invitation.save(coordinator / "invitation")
    monkeypatch.chdir(coordinator)
    for name in ("_task_id", "_run_id", "_node_id"):  # what Flower sets in the process of an app
        monkeypatch.setattr(TaskIdentity, name, 1)
    config = {"invitation": str(coordinator / "invitation"), "out": str(coordinator / "directions")}
    return configs, Context(1, 0, {}, RecordDict(), {**config, "wait": 1.0, "patience": 5.0})


def confirm(configs):
    """Let all parties compare the code of the cards by telephone."""
    cards = [Home(config["home"]).member().card for config in configs.values()]
    code = federated.Round.of(federated.Invitation.load(Path(configs["a"]["invitation"])), cards).code
    for config in configs.values():
        Path(config["confirm"]).write_text(code + "\n")


def test_a_round_over_the_network_gives_what_files_give(round_of_three):
    configs, context = round_of_three
    confirm(configs)
    agreed = federated.Round.of(
        federated.Invitation.load(Path(configs["a"]["invitation"])),
        [Home(config["home"]).member().card for config in configs.values()],
    )
    networks = {party: network_of(config) for party, config in configs.items()}
    members = {party: Home(config["home"]).member() for party, config in configs.items()}
    sums = [federated.contribute(networks[party], agreed, members[party]) for party in PARTIES]
    expected = federated.combine(agreed, sums)
    wire = Wire(configs)
    flower.run_round(wire, context)
    made = Directions.load(Path(context.run_config["out"]))
    assert made.id == expected.id
    for party, config in configs.items():
        table = pq.read_table(config["out"])
        by_files = federated.embed(networks[party], agreed, members[party], expected)
        X = np.stack([table[f"x{k}"].to_numpy() for k in range(6)], axis=1)
        np.testing.assert_array_equal(X, by_files.embedding)
        assert Home(config["home"]).member() is None  # the keys of the round are gone


def test_a_party_contributes_only_to_cards_that_it_has_confirmed(round_of_three):
    configs, context = round_of_three
    wire = Wire(configs)
    with pytest.raises(JobError, match="refused by a, b, c, whose own log says why"):
        flower.run_round(wire, context)
    # Nothing but the refusal leaves the party.
    refusals = [content for _, kind, content in wire.carried if kind == "train.add"]
    assert [dict(content["refused"]) for content in refusals] == [{"refused": True}] * 3
    assert not Path(context.run_config["out"]).exists()
    confirm(configs)
    flower.run_round(Wire(configs), context)
    assert Path(context.run_config["out"]).exists()


def test_a_superlink_cannot_exchange_cards(round_of_three, blocks):
    """A card that is sound, but of a key that the SuperLink made, is not the one whose code the parties compared."""
    configs, context = round_of_three
    confirm(configs)
    member = Home(configs["c"]["home"]).member()
    forged = federated.Member.of(
        member.card.invitation, "c", (member.card.nodes, member.card.border), signing=bytes(range(32)), key=bytes(32)
    ).card

    def forge(party, message):
        if message.metadata.message_type == "train.add" and party == "a":
            cards = flower.unpack(message.content["cards"], federated.Card.load)
            message.content = RecordDict({"cards": flower.pack(*cards[:2], forged)})
        return message

    with pytest.raises(JobError, match="refused by a, whose"):
        flower.run_round(Wire(configs, forge), context)
    assert Home(configs["a"]["home"]).sent() == []


def test_a_party_that_drops_out_ends_the_round_and_may_come_back(round_of_three):
    configs, context = round_of_three
    confirm(configs)

    def drop(party, message):
        return None if party == "b" and message.metadata.message_type == "train.add" else message

    with pytest.raises(JobError, match=r"no answer in 5 s from b\. The round ends here"):
        flower.run_round(Wire(configs, drop), context)
    sent = [Path(configs[party]["home"], "sent-0").read_bytes() for party in "ac"]
    flower.run_round(wire := Wire(configs), context)
    again = [content["file"]["files"][0] for _, kind, content in wire.carried if kind == "train.add"]
    assert [again[0], again[2]] == sent  # the same bytes
    with pytest.raises(InputError, match="exists already"):
        flower.run_round(Wire(configs), context)
    with pytest.raises(JobError, match="2 SuperNodes are connected, and the round has 3 parties"):
        flower.run_round(
            Wire({party: configs[party] for party in "ab"}),
            replace(context, run_config={**context.run_config, "out": "other", "wait": 0.1}),
        )


def test_only_an_app_without_code_is_run():
    def bundle(**files):
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return content.getvalue()

    parts = "\n".join(f'{name} = "{value}"' for name, value in flower.COMPONENTS.items())
    project = f"[tool.flwr.app.components]\n{parts}\n"
    flower.check_bundle(bundle(**{"pyproject.toml": project, ".info/CONTENT": ""}))
    for files in (
        {"pyproject.toml": project, "graphquilt/__init__.py": ""},
        {"pyproject.toml": project.replace("graphquilt", "other")},
        {"pyproject.toml": ""},
    ):
        with pytest.raises(InputError, match="not graphquilt's, and it was not run"):
            flower.check_bundle(bundle(**files))


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Shells:
    """The shells of the page: those that return are run, and those that wait are started and ended by their id."""

    def __init__(self, place):
        self.place, self.ports = place, free_ports(4)
        self.blocks = dict(re.findall(r"<!-- shell: (\w+) -->\n```sh\n(.*?)^```", PAGE.read_text(), re.M | re.S))
        bin_ = place / "bin"
        bin_.mkdir()
        for name, words in (("graphquilt", COMMAND), ("python", [sys.executable])):
            (bin_ / name).write_text(f'#!/bin/sh\nexec {" ".join(repr(word) for word in words)} "$@"\n')
            (bin_ / name).chmod(0o755)
        scripts = Path(sys.executable).parent
        self.environment = {**os.environ, "PATH": f"{bin_}:{scripts}:{os.environ['PATH']}"}
        self.running = {}

    def text(self, name, party="a"):
        link, *nodes = self.ports
        own = nodes[PARTIES.index(party)]
        changes = {"cd a\n": f"cd {party}\n", "--port 9094": f"--port {own}", "--port 8000": f"--port {link}"}
        text = self.blocks["every"] + self.blocks[name]
        for old, new in {**changes, "127.0.0.1:8000": f"127.0.0.1:{link}"}.items():
            text = text.replace(old, new)
        return text

    def run(self, name, **options):
        return subprocess.run(
            ["bash", "-e", "-c", self.text(name)], cwd=self.place, env=self.environment, capture_output=True, text=True,
            check=False, **options,
        )  # fmt: skip

    def start(self, name, party="a"):
        log = self.place / f"{name}-{party}.log"
        with log.open("w") as file:
            text = self.text(name, party).replace("\nflower-super", "\nexec flower-super")
            self.running[name, party] = subprocess.Popen(
                ["bash", "-e", "-c", text], cwd=self.place, env=self.environment, stdout=file, stderr=file
            )
        return log

    def begin_round(self):
        text = f"cd coordinator\nexport FLWR_HOME=$PWD/flwr\n{self.text('run')}"
        text = text.replace("--stream", "--stream --run-config 'patience=120.0 wait=600.0'")
        return subprocess.Popen(
            ["bash", "-e", "-c", text], cwd=self.place, env=self.environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def end(self):
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(30)


def wait_for(log, words, seconds=600):
    end = time.monotonic() + seconds
    while words not in log.read_text():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)


@pytest.mark.slow
def test_the_page_with_a_real_superlink_and_a_supernode_that_is_killed(tmp_path):
    shells = Shells(tmp_path)
    for name in ("before", "keys"):
        done = shells.run(name)
        assert done.returncode == 0, done.stderr
    cards = [federated.Card.load(tmp_path / party / "card") for party in PARTIES]
    agreed = federated.Round.of(federated.Invitation.load(tmp_path / "a" / "invitation"), cards)
    for party in PARTIES:
        (tmp_path / party / "code").write_text(agreed.code)
    try:
        wait_for(shells.start("superlink"), "Fleet HTTP API")
        done = shells.run("coordinator")
        assert done.stdout.count("registered successfully") == 3, done.stdout + done.stderr
        logs = {party: shells.start("supernode", party) for party in PARTIES}
        first = shells.begin_round()
        wait_for(logs["c"], "Receiving: train.add")
        killed = shells.running["supernode", "c"]
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        text, _ = first.communicate(timeout=900)
        assert "no answer in 120 s from c. The round ends here" in text
        assert not (tmp_path / "coordinator" / "directions").exists()
        wait_for(shells.start("supernode", "c"), "SuperNode ID")
        text, _ = shells.begin_round().communicate(timeout=900)
        assert "Done: all parties have embedded" in text, text
    finally:
        shells.end()
    made = Directions.load(tmp_path / "coordinator" / "directions")
    assert made.complete
    assert {pq.read_table(tmp_path / party / "embedding.parquet").num_rows for party in PARTIES} == {400}
    assert "They suit your network" in logs["a"].read_text()
