"""The commands of networks that are not all yours: each reads files, calls one function, and says who may get what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from graphquilt import federated
from graphquilt.cli import Output, SourceFlags, show
from graphquilt.errors import InputError
from graphquilt.federated.home import Home, rounds_in
from graphquilt.federated.messages import Value, kind_of, load_key, rows_of, save_key
from graphquilt.federated.round import Card, Invitation, Round, Terms
from graphquilt.federated.signal import Network
from graphquilt.federated.sums import Contribution, Directions, State
from graphquilt.files import translate_disk_errors

ALIGN = "Align embeddings that parties made with a method of their own."
federate_app = App(name="federate", help="Embed networks that parties do not show each other; see docs/federated.md.")
federate_app.command("graphquilt.federated.align.commands:align_app", name="align", help=ALIGN)
OutFile = Annotated[Path, Parameter(name=["--out", "-o"], help="The file to write.")]
KeyFile = Annotated[Path, Parameter(help="The parties' key: for the parties, not for the coordinator.")]
EmbeddingFile = Annotated[Path, Parameter(name=["--out", "-o"], help="The embedding: .parquet, .csv, .tsv or .vec.")]
HomeFolder = Annotated[Path, Parameter(help="The private folder of this party, for all its rounds; nobody gets it.")]
Edges = Annotated[Path, Parameter(help="The party's own edges, or a graph folder.")]
MOST_LINES = 1 << 26  # bytes of a file with one word per line
MOST_FILES = 10_000  # that status and combine look at


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NetworkFlags:
    """The network of a party."""

    own: Path | None = None
    """The ids of the party's own nodes, one per line; all other nodes of its edges belong to others."""
    feature_names: Path | None = None
    """The names of the features, one per line in the order of the columns."""

    def read(self, edges: Path, source: SourceFlags) -> Network:
        """Return the network that the flags describe."""
        from graphquilt.jobs import Source

        graph, own = source.apply_to(Source(), edges).read(), read_lines(self.own)
        whole = Network.of(graph, names=read_lines(self.feature_names))
        return whole if own is None else Network.of(graph, rows_of(whole.ids, own, str(self.own)), names=whole.names)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RoundFlags:
    """What all parties of a round have."""

    invitation: Path
    """The invitation."""
    cards: Path
    """A folder with the cards of all parties."""

    def read(self) -> Round:
        """Return the round."""
        return Round.of(Invitation.load(self.invitation), load_all(self.cards, Card.load))


def invite(
    *,
    name: Annotated[str, Parameter(help="The name of the round.")],
    parties: Annotated[str, Parameter(help="Comma-separated names of all parties, at least three.")],
    out: OutFile,
    key: KeyFile,
    dim: Annotated[int, Parameter(help="Number of dimensions of the embedding.")] = 64,
    feature_names: Annotated[Path | None, Parameter(help="The names of the features, one per line, in order.")] = None,
    width: Annotated[int, Parameter(help="Number of features without names: nobody can check their order.")] = 0,
    terms: Annotated[Terms, Parameter(name="*")] = Terms(),
    output: Output = Output(),
) -> None:
    """Begin a round: say what is spread and who takes part, and make the parties' key."""
    refuse_existing(out, key)
    features = read_lines(feature_names) or width
    made, secret = federated.invite(name, dim, split_names(parties), features=features, terms=terms)
    file_to_write(out)  # before the key is written
    save_key(secret, file_to_write(key))
    made.save(out)
    notes = []
    if made.buckets and not made.per_bucket:
        notes.append("No guard: a column may stand for one node. --per-bucket 4 makes columns of four on average.")
    if made.features and not made.names:
        notes.append("Nobody can check the order of the features: name them with --feature-names.")
    if made.epsilon:
        notes.append("Privacy holds for one round: each further round with the same data costs epsilon again.")
    if len(made.parties) == 2:
        notes.append("Two parties: who coordinates learns the other's total, and each learns part of it.")
    facts = {"invitation": str(out), "id": made.id[:8], "dim": made.dim, "parties": list(made.parties)}
    columns = {"features": made.features, "most_buckets": made.buckets, "notes": notes}
    advice = [
        f"Send {out} to all parties and to the coordinator.",
        f"Send {key} to the parties only, over a channel that nobody else can read; the coordinator must not have it.",
    ]
    show({**facts, **columns, "next": advice}, as_json=output.json)


def join(
    edges: Edges,
    *,
    invitation: Annotated[Path, Parameter(help="The invitation.")],
    key: KeyFile,
    party: Annotated[str, Parameter(help="The name of this party.")],
    home: HomeFolder,
    out: OutFile,
    source: SourceFlags = SourceFlags(),
    network: NetworkFlags = NetworkFlags(),
    output: Output = Output(),
) -> None:
    """Accept an invitation: make the keys of this party, and its signed card."""
    asked = Invitation.load(invitation)
    read = network.read(edges, source)
    member, notes = Home(home).join(read, asked, load_key(key), party=party)
    member.card.save(file_to_write(out))
    if read.own.all():
        notes.append(
            "All nodes count as your own. If some of them belong to other parties, name yours with --own: a node that "
            "two parties own counts twice, and nobody can see that."
        )
    facts = {"party": party, "nodes": read.n_own, "at_border": read.n_border, "fingerprint": member.card.fingerprint}
    seconds = read.cost(asked.features, asked.buckets, len(asked.parties))
    cost = {"columns_at_most": asked.features + asked.buckets, "cpu_seconds_about": round(seconds, 1)}
    advice = [
        f"Send {out} to all parties and to the coordinator: your name, these numbers, and how ids are written.",
        "Tell the other parties your fingerprint by telephone: it stays the same in later rounds.",
        f"Keep {home}: nobody gets it.",
    ]
    show({**facts, **cost, "notes": notes, "next": advice}, as_json=output.json)


def contribute(
    edges: Edges,
    *,
    of_round: RoundFlags,
    home: HomeFolder,
    out: OutFile,
    directions: Annotated[Path | None, Parameter(help="What the coordinator sent after the step before.")] = None,
    confirm: Annotated[str | None, Parameter(help="The code that all parties read to each other.")] = None,
    again: Annotated[bool, Parameter(negative="", help="To a round that differs by one party or none.")] = False,
    source: SourceFlags = SourceFlags(),
    network: NetworkFlags = NetworkFlags(),
    output: Output = Output(),
) -> None:
    """Spread the signal in the party's own network, add it up over its own nodes, and mask the sum."""
    agreed, private = of_round.read(), Home(home)
    received = None if directions is None else Directions.load(directions)
    target = file_to_write(out)
    if received is None:
        private.check_cards(agreed, confirmed=confirm)  # before the work
    read = network.read(edges, source)
    made = private.contribute(read, agreed, received=received, confirmed=confirm, again=again)
    made.save(target)
    facts = {"party": made.party, "step": made.step, "numbers": len(made.values), "bytes": out.stat().st_size}
    advice = [f"Send {out} to the coordinator. Alone it is noise; with those of all parties it adds up to the total."]
    show({**facts, "code": agreed.code, "notes": agreed.notes, "next": advice}, as_json=output.json)


def combine(
    contributions: Annotated[Path, Parameter(help="A folder with the contributions of all parties.")],
    *,
    of_round: RoundFlags,
    out: OutFile,
    before: Annotated[Path | None, Parameter(help="What combine wrote in the step before, with its .state.")] = None,
    output: Output = Output(),
) -> None:
    """Add up the contributions of all parties, check the total, and find its directions."""
    refuse_keys({Path.cwd(), contributions, of_round.cards, of_round.invitation.parent, out.parent})
    agreed = of_round.read()
    refuse_existing(out)
    earlier = None
    if before is not None:
        held = State.load(_state(before))
        held.check_round(agreed)
        earlier = Directions(held.round, held.step, {}, state=held.arrays)
    made = federated.combine(agreed, load_all(contributions, Contribution.load), before=earlier)
    file_to_write(out)
    advice = [f"Send {out} to all parties: every party gets the same file."]
    if made.complete:
        advice.append("Delete the contributions: they are not needed any more.")
    else:
        State(made.round, made.step, made.state).save(_state(out))
        advice.append(f"Every party contributes again, with --directions; then combine with --before {out}.")
        advice.append(f"Keep {_state(out)}: nobody gets it.")
    made.save(out)
    facts = {"round": agreed.invitation.name, "nodes": agreed.n_nodes, "steps": made.step, "complete": made.complete}
    facts |= {"share": made.share, "code": made.code, "notes": agreed.notes}
    show({**facts, "next": advice}, as_json=output.json)


def embed(
    edges: Edges,
    *,
    of_round: RoundFlags,
    home: HomeFolder,
    directions: Annotated[Path, Parameter(help="The directions, made by combine.")],
    out: EmbeddingFile,
    source: SourceFlags = SourceFlags(),
    network: NetworkFlags = NetworkFlags(),
    output: Output = Output(),
) -> None:
    """Embed the party's own nodes by the directions of all, and end the round: its keys are deleted."""
    from graphquilt.jobs import format_of, write_embedding

    kind, received, private = format_of(out), Directions.load(directions), Home(home)
    read = network.read(edges, source)
    made = private.embed(read, of_round.read(), received)
    write_embedding(file_to_write(out), read.ids[made.rows], made.embedding, format=kind, dtype="float32")
    private.end()
    facts = {"nodes": len(made.rows), "dim": made.embedding.shape[1], "embedding": str(out), "code": received.code}
    shares = {"share_of_own": made.share, "share_of_total": made.total, "best_of_own": made.best}
    advice = [
        f"{out} has your ids and coordinates: it is yours. Those of all parties lie in one frame.",
        "If the other parties see another code, the coordinator sent different directions: do not compare embeddings.",
    ]
    show({**facts, **shares, "verdict": made.verdict, "next": advice}, as_json=output.json)


def status(
    folder: Annotated[Path, Parameter(help="A folder with files of rounds, in subfolders too.")] = Path("."),
    *,
    output: Output = Output(),
) -> None:
    """Say what is there of each round, what is missing, and who does what next."""
    paths = list(islice((path for path in folder.rglob("*") if path.is_file()), MOST_FILES + 1))
    if not folder.is_dir() or len(paths) > MOST_FILES:
        raise InputError(f"{folder} is not a folder, or has more than {MOST_FILES} files; name that of the round.")
    show(rounds_in(sorted(paths)), as_json=output.json)


EXAMPLES: dict[Callable[..., None], str] = {
    invite: "--name night-1 --parties a,b,c --out invitation --key parties.key",
    join: "edges.csv --invitation invitation --key parties.key --party a --home home --own own.txt --out a.card",
    contribute: "edges.csv --invitation invitation --home home --cards cards --own own.txt --out a.sum",
    combine: "sums --invitation invitation --cards cards --out directions",
    embed: "edges.csv --invitation invitation --home home --cards cards --directions directions --out a.parquet",
    status: "shared-drive",
}
for _command, _example in EXAMPLES.items():
    federate_app.command(_command, help_epilogue=f"Example: graphquilt federate {_command.__name__} {_example}")


def split_names(text: str) -> list[str]:
    """Return names that commas separate."""
    return [word.strip() for word in text.split(",") if word.strip()]


def load_all(folder: Path, load: Callable[[Path], Value]) -> Iterator[Value]:
    """Read every file of a folder."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder.")
    yield from (load(path) for path in sorted(folder.iterdir()) if path.is_file() and path.suffix != ".part")


def read_lines(path: Path | None) -> list[str] | None:
    """Read a file with one word per line; None if there is none."""
    if path is None:
        return None
    try:
        if path.stat().st_size > MOST_LINES:
            raise InputError(f"{path} is too large: it has more than {MOST_LINES} bytes.")
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8.") from error
    return [line.strip() for line in lines if line.strip()]


def refuse_keys(folders: set[Path]) -> None:
    """Refuse to combine beside the parties' key or the home of a party."""
    for folder in folders:
        near = [*folder.glob("*"), *folder.glob("*/*")] if folder.is_dir() else []
        for path in near[:MOST_FILES]:
            if path.is_file() and kind_of(path) in ("key", "identity", "secret of a round"):
                raise InputError(
                    f"{path} is a key of the parties. Who combines must not have one: with it, columns of the total "
                    "get names. Combine on another machine or in another account, or delete the key."
                )


def refuse_existing(*paths: Path) -> None:
    """Refuse to write over files."""
    there = [str(path) for path in paths if path.exists()]
    if there:
        raise InputError(f"{' and '.join(there)} exist already: name new files, what was sent must stay valid.")


def file_to_write(path: Path) -> Path:
    """Return a path to write to, and make its folder."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file.")
    with translate_disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _state(path: Path) -> Path:
    return path.with_name(f"{path.name}.state")
