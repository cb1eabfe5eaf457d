"""A round of sums over a network, as a Flower app: parties are SuperNodes, and the coordinator is the ServerApp.

The SuperLink carries the signed cards and is not trusted for them: each party checks them in its :class:`Home`. What a
party refuses, and why, stays in its own log. ``docs/how-to/federated-network.md`` has the commands of a round.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable
from logging import ERROR, INFO
from pathlib import Path
from typing import Any

from graphquilt.cli import SourceFlags
from graphquilt.errors import FormatError, InputError, JobError, needs_extra
from graphquilt.federated.commands import NetworkFlags, refuse_keys
from graphquilt.federated.home import Home
from graphquilt.federated.messages import Value
from graphquilt.federated.round import Card, Invitation, Round
from graphquilt.federated.signal import Network
from graphquilt.federated.sums import Contribution, Directions, combine
from graphquilt.jobs import format_of, write_embedding

with needs_extra("a round over a network", "flower"):
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.common.logger import log
    from flwr.serverapp import Grid, ServerApp

COMPONENTS = {"serverapp": "graphquilt.federated.flower:server", "clientapp": "graphquilt.federated.flower:client"}
FILES = {"pyproject.toml", ".info/CONTENT", ".info/METADATA"}  # of the bundle: everything else could be code
POLL = 0.5  # seconds between looks at who is connected
ENDED = (
    "The round ends here: without them the masks do not cancel, and what the others sent is noise. Start it again when "
    "they are back, and everybody sends the same bytes; for a round without them, invite the others anew."
)


def pack(*values: Card | Contribution | Directions) -> ConfigRecord:
    """Return a record with the files of values."""
    contents = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        for value in values:
            value.save(path)
            contents.append(path.read_bytes())
    return ConfigRecord({"files": contents})


def unpack(record: object, load: Callable[[Path], Value]) -> list[Value]:
    """Read the values that :func:`pack` put into a record; who wrote them is checked where they are used."""
    contents = record.get("files") if isinstance(record, ConfigRecord) else None
    if not isinstance(contents, list) or not all(isinstance(content, bytes) for content in contents):
        raise FormatError("a message of the network has no file in it.")
    values = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "message")
        for content in contents:
            path.write_bytes(content)
            values.append(load(path))
    return values


def _path(context: Context, name: str) -> Path:
    """Return a path that the party itself set in the configuration of its SuperNode."""
    value = context.node_config.get(name)
    if value is None:
        raise InputError(f"the SuperNode has no {name}: start it with --node-config '… {name}=\"PATH\"'.")
    return Path(str(value))


def _network(context: Context) -> Network:
    own, names = (_path(context, name) if name in context.node_config else None for name in ("own", "feature-names"))
    return NetworkFlags(own=own, feature_names=names).read(_path(context, "edges"), SourceFlags())


def _agreed(message: Message, context: Context) -> Round:
    return Round.of(Invitation.load(_path(context, "invitation")), unpack(message.content.get("cards"), Card.load))


def show_card(message: Message, context: Context) -> RecordDict:  # noqa: ARG001
    """Return the card with which the party joined; it joins by itself, with ``graphquilt federate join``."""
    member, invitation = Home(_path(context, "home")).member(), Invitation.load(_path(context, "invitation"))
    if member is None or member.card.invitation != invitation.id:
        raise InputError(f"this party has not joined '{invitation.name}' yet: graphquilt federate join.")
    return RecordDict({"file": pack(member.card)})


def add(message: Message, context: Context) -> RecordDict:
    """Return the masked sum of the party for one step."""
    agreed, received = _agreed(message, context), None
    if "file" in message.content:
        (received,) = unpack(message.content["file"], Directions.load)
    code = Path(str(context.node_config.get("confirm", "")))
    confirmed = code.read_text(encoding="utf-8").strip() if code.is_file() else None
    home = Home(_path(context, "home"))
    home.check_cards(agreed, confirmed=confirmed)  # before the work
    made = home.contribute(_network(context), agreed, received=received, confirmed=confirmed)
    return RecordDict({"file": pack(made)})


def finish(message: Message, context: Context) -> RecordDict:
    """Embed the party's own nodes, write them where only the party looks, and end the round."""
    agreed, (received,) = _agreed(message, context), unpack(message.content.get("file"), Directions.load)
    home, out = Home(_path(context, "home")), _path(context, "out")
    network = _network(context)
    made = home.embed(network, agreed, received)
    write_embedding(out, network.ids[made.rows], made.embedding, format=format_of(out), dtype="float32")
    home.end()
    log(INFO, "%s: %d nodes. %s Directions %s.", out, len(made.rows), made.verdict, received.code)
    return RecordDict({})


def _guarded(work: Callable[[Message, Context], RecordDict]) -> Callable[[Message, Context], Message]:
    """Return a function for Flower that tells the network only that the party refused, and its own log why."""

    def answer(message: Message, context: Context) -> Message:
        try:
            content = work(message, context)
        except Exception as error:  # Flower would send its text to the SuperLink
            log(ERROR, "refused: %s", error)
            content = RecordDict({"refused": ConfigRecord({"refused": True})})
        return Message(content, reply_to=message)

    return answer


client = ClientApp()
client.query("card")(_guarded(show_card))
client.train("add")(_guarded(add))
client.train("finish")(_guarded(finish))


def guarded_clientapp() -> None:
    """Run Flower's ``flwr-clientapp``, and refuse every bundle that has code or names another app.

    With a script of this name that calls this function before Flower's on its PATH, a SuperNode runs nothing but the
    graphquilt that the party has installed, whatever the SuperLink sends.
    """
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp
    from flwr.supernode.runtime import run_clientapp as runtime

    install = runtime.install_from_fab

    def install_checked(fab_file: bytes, *arguments: Any, **options: Any) -> Any:
        check_bundle(fab_file)
        return install(fab_file, *arguments, **options)

    runtime.install_from_fab = install_checked
    sys.exit(flwr_clientapp())


def check_bundle(content: bytes) -> None:
    """Refuse a bundle that is not the configuration of this app and nothing else."""
    with zipfile.ZipFile(io.BytesIO(content)) as bundle:
        other = sorted(set(bundle.namelist()) - FILES)
        project = tomllib.loads(bundle.read("pyproject.toml").decode()) if not other else {}
    components = project.get("tool", {}).get("flwr", {}).get("app", {}).get("components")
    if other or components != COMPONENTS:
        found = ", ".join(other)[:200] or components
        raise InputError(f"the SuperLink sent an app that is not graphquilt's, and it was not run: {found}.")


def run_round(grid: Grid, context: Context) -> None:
    """Collect cards, let the parties add up, find directions, and let the parties embed; else raise a JobError."""
    config = context.run_config
    out, patience = Path(str(config["out"])), float(config["patience"])
    refuse_keys({Path.cwd(), Path(str(config["invitation"])).parent, out.parent})
    invitation = Invitation.load(Path(str(config["invitation"])))
    if out.exists():
        raise InputError(f"{out} exists already: name a new file.")
    nodes = _wait(grid, len(invitation.parties), float(config["wait"]))
    names = {node: f"SuperNode {node}" for node in nodes}

    def ask(kind: str, content: RecordDict) -> list[Any]:
        """Return the answers of all SuperNodes; the round ends if one gives none."""
        messages = [Message(content, dst_node_id=node, message_type=kind) for node in nodes]
        replies = grid.send_and_receive(messages, timeout=patience)
        answers = {reply.metadata.src_node_id: reply.content for reply in replies if reply.has_content()}
        refused = [names[node] for node in nodes if "refused" in answers.get(node, ())]
        silent = [names[node] for node in nodes if node not in answers]
        if refused or silent:
            parts = [f"no answer in {patience:g} s from {', '.join(silent)}"] if silent else []
            parts += [f"refused by {', '.join(refused)}, whose own log says why"] if refused else []
            raise JobError(f"{'; '.join(parts)}. {ENDED}")
        return [answers[node].get("file") for node in nodes]

    cards = [unpack(file, Card.load)[0] for file in ask("query.card", RecordDict({}))]
    agreed = Round.of(invitation, cards)
    joined, notes = ", ".join(invitation.parties), " ".join(agreed.notes)
    log(INFO, "%s: %s have joined. Code of the cards: %s. %s", invitation.name, joined, agreed.code, notes)
    names = {node: card.party for node, card in zip(nodes, cards, strict=True)}
    content = RecordDict({"cards": pack(*agreed.cards)})
    made: Directions | None = None
    while made is None or not made.complete:
        sums = [unpack(file, Contribution.load)[0] for file in ask("train.add", content)]
        made = combine(agreed, sums, before=made)
        content["file"] = pack(made)
        log(INFO, "step %d: the total of %d nodes.", made.step, agreed.n_nodes)
    made.save(out)
    ask("train.finish", content)
    log(INFO, "Done: all parties have embedded. Directions %s keep %.0f %%.", made.code, 100 * made.share)


def _wait(grid: Grid, count: int, seconds: float) -> list[int]:
    end = time.monotonic() + seconds
    while True:
        nodes = sorted(grid.get_node_ids())
        if len(nodes) == count:
            return nodes
        if len(nodes) > count or time.monotonic() > end:
            raise JobError(f"{len(nodes)} SuperNodes are connected, and the round has {count} parties.")
        time.sleep(POLL)


server = ServerApp()
server.main()(run_round)
