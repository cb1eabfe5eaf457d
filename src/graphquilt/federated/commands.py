"""The commands of federated alignment; they only move files."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from graphquilt.cli import EmbedderFlags, Output, SourceFlags, show, watching
from graphquilt.errors import InputError

if TYPE_CHECKING:
    from graphquilt.federated import Message, Party, Sharing
    from graphquilt.graph import Graph

federate_app = App(
    name="federate", help="Align networks of parties that do not show them to each other; see docs/federated.md."
)

PartyFolder = Annotated[Path, Parameter(help="The folder of the party, made by offer; keep it private.")]
OutFile = Annotated[Path, Parameter(name=["--out", "-o"], help="The file to write.")]
_MOST_IDS = 1 << 26  # bytes of a list of ids


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RoundFlags:
    """What parties agree on besides the embedder."""

    parties: str | None = None
    """Comma-separated names of the parties. [default: everyone with the key]"""
    psi: Annotated[bool, Parameter(negative="")] = False
    """Find shared nodes by private set intersection (extra 'federated')."""
    least: int | None = None
    """Minimum number of nodes that two parties must share. [default: dim + 1]"""
    seed: int = 0
    """The seed that all parties embed with."""
    scale: bool | None = None
    """Undo scales. [default: as the embedder needs]"""
    rotate: bool | None = None
    """Undo rotations. [default: as the embedder needs]"""
    translate: bool | None = None
    """Undo shifts. [default: as the embedder needs]"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SharingFlags:
    """What a party may share."""

    share: str | None = None
    """boundary, all, or a file with one id per line. [default: boundary with --own, else all]"""
    own: Path | None = None
    """A file with the ids of the party's own nodes, one per line; other nodes of its edges are neighbours."""
    cap: int | None = None
    """Maximum number of nodes whose coordinates one partner gets. [default: all shared nodes]"""
    noise: float = 0.0
    """Gaussian noise on all coordinates that are sent, as a share of their spread."""

    def apply_to(self, graph: Graph) -> Sharing:
        """Return what the flags allow of a graph."""
        from graphquilt.federated import Sharing, boundary, rows_of

        own = None if self.own is None else rows_of(graph, _ids(self.own), str(self.own))
        share = self.share or ("all" if own is None else "boundary")
        nodes = None
        if share == "boundary":
            if own is None:
                raise InputError(
                    "--share boundary needs --own FILE, the ids of the party's own nodes: without it nobody can tell "
                    "which nodes belong to others."
                )
            nodes = boundary(graph, own)
        elif share != "all":
            nodes = rows_of(graph, _ids(Path(share)), share)
        return Sharing(nodes=nodes, cap=self.cap, noise=self.noise)


@federate_app.command(help_epilogue="Example: graphquilt federate invite --dim 64 --name n1 --out round.toml --key k")
def invite(
    *,
    name: Annotated[str, Parameter(help="The name of the round.")],
    out: Annotated[Path, Parameter(name=["--out", "-o"], help="The round, as TOML: for everyone.")],
    key: Annotated[Path, Parameter(help="The secret key: for the parties, not for the coordinator.")],
    embedder: EmbedderFlags = EmbedderFlags(),
    agreed: RoundFlags = RoundFlags(),
    sample: Annotated[
        Path | None, Parameter(help="Public edges with features (.npz), or a graph folder: makes a shared start.")
    ] = None,
    start: Annotated[Path | None, Parameter(help="The shared start that --sample makes: for the parties.")] = None,
    output: Output = Output(),
) -> None:
    """Begin a round: what all parties agree on, and their key."""
    from graphquilt import federated
    from graphquilt.cli import named_embedder, replace_fields
    from graphquilt.embedders import free_motions
    from graphquilt.jobs import Recipe

    if (sample is None) != (start is None):
        raise InputError("--sample and --start go together: the start is made from the sample and written to a file.")
    _refuse_existing(out, key, start)
    recipe = Recipe.shared() if sample is not None else Recipe.paper().replace(negatives=None)
    model = named_embedder(embedder.embedder or "propagation", embedder.dim or 64, embedder.set, recipe)
    flags = {word: getattr(agreed, word) for word in ("scale", "rotate", "translate")}
    given = {word: value for word, value in flags.items() if value is not None}
    motions = replace_fields(free_motions(model, start=sample is not None), given)
    made, secret, begun = federated.invite(
        name,
        model,
        motions=motions,
        seed=agreed.seed,
        least=agreed.least,
        parties=[word.strip() for word in (agreed.parties or "").split(",") if word.strip()],
        psi=agreed.psi,
        sample=None if sample is None else _graph(sample, SourceFlags()),
    )
    federated.save_key(secret, key, name=name)
    if begun is not None and start is not None:
        begun.save(start)
    made.save(out)
    facts = {"round": str(out), "id": made.id, "dim": made.dim, "least_shared_nodes": made.least, "psi": made.psi}
    advice = [
        f"Give {out} to all parties and to the coordinator.",
        f"Give {key} to the parties only, over a channel that nobody else can read.",
    ]
    show({**facts, "motions": asdict(made.motions), "next": advice}, as_json=output.json)


@federate_app.command(help_epilogue="Example: graphquilt federate offer e.csv --round r.toml --key k --party a --out a")
def offer(
    edges: Annotated[Path, Parameter(help="The party's own edges, or a graph folder.")],
    *,
    round: Annotated[Path, Parameter(help="The round, made by invite.")],  # noqa: A002
    key: Annotated[Path, Parameter(help="The parties' key.")],
    party: Annotated[str, Parameter(help="The name of this party.")],
    out: Annotated[Path, Parameter(name=["--out", "-o"], help="A new folder; keep it private.")],
    source: SourceFlags = SourceFlags(),
    sharing: SharingFlags = SharingFlags(),
    start: Annotated[Path | None, Parameter(help="The shared start, if the round has one.")] = None,
    embedder: Annotated[str | None, Parameter(help="module:factory, if the round uses your own embedder.")] = None,
    output: Output = Output(),
) -> None:
    """Embed the network of a party, and offer keyed pseudonyms of the nodes that it may share."""
    from graphquilt import federated
    from graphquilt.cli import named_embedder
    from graphquilt.jobs import Recipe

    agreed = federated.Round.load(round)
    secret = federated.load_key(key, agreed)
    begun = None if start is None else federated.Message.load(start)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):  # before the work of embedding
        raise InputError(f"{out} exists and is not empty. Name another folder: what was sent must stay valid.")
    graph = _graph(edges, source)
    model = None if embedder is None else named_embedder(embedder, agreed.dim, (), Recipe())
    with watching() as progress:
        made = federated.offer(
            graph,
            agreed,
            secret,
            party=party,
            sharing=sharing.apply_to(graph),
            embedder=model,
            start=begun,
            progress=progress,
        )
    made.save(out)
    facts: dict[str, object] = {
        "party": party,
        "nodes": graph.n_nodes,
        "may_be_shared": len(made.rows),
        "cap_per_partner": made.cap,
        "noise": made.noise,
    }
    cost = made.noise_cost()
    if cost is not None:
        facts["noise_costs"] = [
            f"The noise of {party} alone gives a pair that would fit perfectly an edge error of {cost.edge_error:.3g}.",
            f"It moves nodes by {cost.displacement:.3g} of their spread, because the motion is estimated from noise.",
        ]
    reads = "your node count, but no ids" if agreed.psi else "whether it has the same nodes"
    advice = [f"Send {out / 'offer'} to the other parties: each learns {reads}.", f"Keep everything else in {out}."]
    show({**facts, "next": advice}, as_json=output.json)


@federate_app.command(help_epilogue="Example: graphquilt federate reply a/ b/offer --out a-to-b")
def reply(
    party: PartyFolder,
    received: Annotated[Path, Parameter(help="The offer of another party, or its answer to yours.")],
    *,
    out: OutFile,
    output: Output = Output(),
) -> None:
    """Reply to an offer with the coordinates of shared nodes; with private set intersection, answer it first."""
    from graphquilt import federated

    own = _party(party)
    message = federated.reply(own, federated.Message.load(received))
    _save(message, out)
    partner = message.facts["to"]
    facts: dict[str, object] = {"from": own.name, "to": partner, "file": str(out)}
    if message.kind == "answer":
        facts["next"] = [f"Send {out} to {partner}, who replies to it: graphquilt federate reply FOLDER {out.name}"]
    else:
        facts["nodes"] = len(message.arrays["pseudonyms"])
        facts["next"] = [f"Send {out} to {partner} only: it has coordinates. {partner} measures them."]
    show(facts, as_json=output.json)


@federate_app.command(help_epilogue="Example: graphquilt federate measure b/ a-to-b --out stats/")
def measure(
    party: PartyFolder,
    received: Annotated[Path, Parameter(help="The reply of another party.")],
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"], help="The folder for measurements.")],
    output: Output = Output(),
) -> None:
    """Measure a pair: statistics of the shared nodes for the coordinator, without ids and coordinates."""
    from graphquilt import federated
    from graphquilt.files import translate_disk_errors

    own, message = _party(party), federated.Message.load(received)
    measured = federated.measure(own, message)
    with translate_disk_errors(out.parent):
        out.mkdir(parents=True, exist_ok=True)
    path = out / f"{own.name}+{message.sender}"
    _save(measured, path)
    shared = int(measured.arrays["counts"][0])
    facts = {"parties": measured.facts["parties"], "shared_nodes": shared, "file": str(path)}
    show({**facts, "next": [f"Send {path} to the coordinator."]}, as_json=output.json)


@federate_app.command(help_epilogue="Example: graphquilt federate align stats/ --out transforms/")
def align(
    measurements: Annotated[Path, Parameter(help="The folder with the measurements of all pairs.")],
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"], help="A new folder: one transform for each party.")],
    round: Annotated[  # noqa: A002
        Path | None, Parameter(help="The round; files of other rounds are refused, and missing parties named.")
    ] = None,
    robust: Annotated[bool, Parameter(help="Down-weight pairs inconsistent with the rest.")] = False,
    output: Output = Output(),
) -> None:
    """Align all parties from the statistics of their pairs."""
    from graphquilt import federated

    if not measurements.is_dir():
        raise InputError(f"{measurements} is not a folder with measurements.")
    _refuse_full(out)
    files = sorted(path for path in measurements.iterdir() if path.is_file() and path.suffix != ".part")
    agreed = None if round is None else federated.Round.load(round)
    result = federated.align(map(federated.Message.load, files), of_round=agreed, robust=robust)
    _save_all(result.transforms, out)
    pairs = {
        " and ".join(pair.parties): {
            "shared nodes": pair.shared,
            "error": pair.error,
            **({"expected of noise": pair.expected} if pair.expected else {}),
            **({} if pair.trusted else {"trusted": False}),
        }
        for pair in result.pairs
    }
    facts = {"parties": list(result.parties), "pairs": pairs, "spectral_gap": result.alignment.spectral_gap}
    shown = {**facts, "doubtful": list(result.doubtful), "certificate": result.summary().splitlines()}
    show({**shown, "next": [f"Send each file in {out} to the party of its name."]}, as_json=output.json)


@federate_app.command(help_epilogue="Example: graphquilt federate apply a/ transforms/bank-a --out embedding.parquet")
def apply(
    party: PartyFolder,
    transform: Annotated[Path, Parameter(help="The transform for this party.")],
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"], help="The embedding: .parquet, .csv, .tsv or .vec.")],
    output: Output = Output(),
) -> None:
    """Move the embedding of a party into the frame that all parties share, and write it with its ids."""
    from graphquilt import federated
    from graphquilt.jobs import format_of, write_embedding

    name, own, message = format_of(out), _party(party), federated.Message.load(transform)
    ids, X = federated.apply(own, message)
    write_embedding(out, ids, X, format=name, dtype="float64")
    facts = {"party": own.name, "nodes": len(ids), "dim": X.shape[1], "embedding": str(out)}
    certificate = {name: message.facts.get(name) for name in ("pairs", "worst_error", "spectral_gap")}
    show({**facts, **certificate}, as_json=output.json)


def _graph(path: Path, source: SourceFlags) -> Graph:
    from graphquilt.jobs import Source

    return source.apply_to(Source(), path).read()


def _party(folder: Path) -> Party:
    from graphquilt.federated import Party

    return Party.load(folder)


def _ids(path: Path) -> list[str]:
    try:
        if path.stat().st_size > _MOST_IDS:
            raise InputError(f"{path} is too large for a list of ids; it has more than {_MOST_IDS} bytes.")
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read as a list of ids: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} cannot be read as a list of ids: it is not text in UTF-8.") from error
    return [line.strip() for line in lines if line.strip()]


def _save(message: Message, path: Path) -> None:
    from graphquilt.files import translate_disk_errors

    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file.")
    with translate_disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    message.save(path)


def _save_all(messages: Mapping[str, Message], folder: Path) -> None:
    """Write a new folder with one file per message: all of them, or nothing."""
    from graphquilt.files import translate_disk_errors

    part = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}.part")
    try:
        with translate_disk_errors(folder.parent):
            part.mkdir(parents=True)
            for name, message in messages.items():
                message.save(part / name)
            part.replace(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _refuse_full(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not empty. Name another folder.")


def _refuse_existing(*paths: Path | None) -> None:
    there = [str(path) for path in paths if path is not None and path.exists()]
    if there:
        exist = "exists" if len(there) == 1 else "exist"
        raise InputError(f"{' and '.join(there)} {exist} already. Another round needs other files: name new ones.")
