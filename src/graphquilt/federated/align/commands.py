"""The commands of federated alignment; they only move files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from graphquilt.cli import Output, show
from graphquilt.errors import InputError
from graphquilt.federated import align
from graphquilt.federated.align import Message, Party
from graphquilt.federated.commands import (
    ALIGN,
    EmbeddingFile,
    KeyFile,
    OutFile,
    file_to_write,
    load_all,
    read_lines,
    refuse_existing,
    split_names,
)
from graphquilt.federated.messages import new_folder, rows_of

align_app = App(name="align", help=ALIGN)

Home = Annotated[Path, Parameter(help="The folder of the party, for all its rounds; offer makes it. Keep it private.")]
RoundFile = Annotated[Path, Parameter(help="The round, made by invite.")]


@align_app.command(help_epilogue="Example: graphquilt federate align invite --dim 64 --name n1 --out r.json --key k")
def invite(
    *,
    name: Annotated[str, Parameter(help="The name of the round.")],
    dim: Annotated[int, Parameter(name=["--dim", "-d"], help="Number of dimensions.")],
    out: OutFile,
    key: KeyFile,
    parties: Annotated[str, Parameter(help="Comma-separated names of the parties; none: everyone with the key.")] = "",
    least: Annotated[int | None, Parameter(help="Least number of shared nodes. [default: 2 dim + 10]")] = None,
    ids_can_be_guessed: Annotated[bool, Parameter(negative="", help="Find shared nodes by pseudonyms.")] = False,
    scale: Annotated[bool, Parameter(negative="", help="Undo scales, too.")] = False,
    output: Output = Output(),
) -> None:
    """Begin a round: what all parties agree on, and their key."""
    refuse_existing(out, key)
    named, guessed = split_names(parties), ids_can_be_guessed
    made, secret = align.invite(name, dim, scale=scale, least=least, parties=named, ids_can_be_guessed=guessed)
    align.save_key(secret, key)
    made.save(out)
    facts = {"round": str(out), "id": made.id, "dim": made.dim, "least_shared_nodes": made.least, "psi": made.psi}
    advice = [
        f"Give {out} to all parties and to the coordinator.",
        f"Give {key} to the parties only, over a channel that nobody else can read.",
    ]
    if ids_can_be_guessed:
        advice.append("Whoever has the key can test guesses of ids against every offer.")
    show({**facts, "next": advice}, as_json=output.json)


@align_app.command(help_epilogue="Example: graphquilt federate align offer x.csv --round r --key k --party a --home h")
def offer(
    vectors: Annotated[Path, Parameter(help="Ids and coordinates: .npz, .parquet, .csv, .tsv or word2vec.")],
    *,
    round: RoundFile,  # noqa: A002
    key: KeyFile,
    party: Annotated[str, Parameter(help="The name of this party.")],
    home: Home,
    share: Annotated[Path | None, Parameter(help="A file with one id per line. [default: all nodes]")] = None,
    noise: Annotated[float, Parameter(help="Gaussian noise on what is sent, as a share of its spread.")] = 0.05,
    output: Output = Output(),
) -> None:
    """Offer the nodes that a party may share, and draw the noise on their coordinates."""
    from graphquilt.graph import read_vectors

    agreed = align.Round.load(round)
    secret, folder = align.load_key(key), home / agreed.folder
    agreed.check_key(secret)  # before the home is made
    if folder.exists():
        raise InputError(f"{party} has made its offer in this round: send {folder / 'offer'}. Another tells more.")
    ids, X = read_vectors(vectors)
    rows = None if share is None else rows_of(ids, read_lines(share) or [], str(share))
    own = align.party_secret(home)
    made = align.offer(ids, X, agreed, key=secret, party=party, secret=own, share=rows, noise=noise)
    made.save(folder)
    cost = f"The noise alone gives a pair that fits perfectly an error of {(noise**2 / (2 + noise**2)) ** 0.5:.3g}."
    cost = cost if noise else "Without noise, partners get exact coordinates of shared nodes."
    reads = "your node count, but no ids" if agreed.psi else "whether you have the ids that it can guess"
    advice = [f"Send {folder / 'offer'} to the other parties: each learns {reads}.", f"Keep all else in {home}."]
    facts = {"party": party, "nodes": len(made.ids), "may_be_shared": len(made.rows), "noise": noise}
    show({**facts, "noise_costs": cost, "next": advice}, as_json=output.json)


@align_app.command(help_epilogue="Example: graphquilt federate align reply home/ b-offer --out a-to-b")
def reply(
    home: Home,
    received: Annotated[Path, Parameter(help="The offer of another party, or its answer to yours.")],
    *,
    out: OutFile,
    output: Output = Output(),
) -> None:
    """Answer the offer of another party, and reply to an answer with the coordinates of shared nodes."""
    message = align.Message.load(received)
    own, folder = _party(home, message)
    made = align.reply(own, message)
    align.accept_once(folder, message)
    made.save(file_to_write(out))
    partner = made.facts["to"]
    facts: dict[str, object] = {"from": own.name, "to": partner, "file": str(out)}
    if made.kind == "answer":
        facts["next"] = [f"Send {out} to {partner}, who replies: graphquilt federate align reply HOME {out.name}"]
    else:
        facts["nodes"] = len(made.arrays["pseudonyms"])
        facts["next"] = [f"Send {out} to {partner} only: it has coordinates. {partner} measures them."]
    show(facts, as_json=output.json)


@align_app.command(help_epilogue="Example: graphquilt federate align measure home/ a-to-b --out stats/")
def measure(
    home: Home,
    received: Annotated[Path, Parameter(help="The reply of another party.")],
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"], help="The folder for measurements.")],
    output: Output = Output(),
) -> None:
    """Measure a pair: statistics of the shared nodes for the coordinator, without ids and coordinates."""
    message = align.Message.load(received)
    own, folder = _party(home, message)
    measured = align.measure(own, message)
    align.accept_once(folder, message)
    path = out / f"{own.name}+{message.sender}"
    measured.save(file_to_write(path))
    shared = int(measured.arrays["counts"][0])
    cost = f"Means have noise of {1 / shared:.2g} of the spread of their nodes, so that no node can be told from them."
    facts = {"parties": measured.facts["parties"], "shared_nodes": shared, "noise_costs": cost, "file": str(path)}
    show({**facts, "next": [f"Send {path} to the coordinator."]}, as_json=output.json)


@align_app.command(help_epilogue="Example: graphquilt federate align solve stats/ --round r.json --out transforms/")
def solve(
    measurements: Annotated[Path, Parameter(help="The folder with the measurements of all pairs.")],
    *,
    round: RoundFile,  # noqa: A002
    out: Annotated[Path, Parameter(name=["--out", "-o"], help="A new folder: one transform for each party.")],
    output: Output = Output(),
) -> None:
    """Align all parties from the statistics of their pairs. A bad fit gives exit code 3 and no transforms."""
    result = align.solve(load_all(measurements, align.Message.load), align.Round.load(round))
    bad = result.verdict == "bad"
    if not bad:
        with new_folder(out) as part:
            for party, transform in result.transforms.items():
                transform.save(part / party)
    pairs = {" and ".join(pair.parties): {"shared nodes": pair.shared, "error": pair.error} for pair in result.pairs}
    facts = {"parties": list(result.parties), "pairs": pairs, "verdict": result.verdict}
    advice = {} if bad else {"next": [f"Send each file in {out} to the party of its name."]}
    show({**facts, "certificate": result.summary().splitlines(), **advice}, as_json=output.json)
    if bad:
        print("graphquilt: the fit is bad, and no transforms were written (exit code 3).", file=sys.stderr)
        sys.stdout.flush()
        raise SystemExit(3)


@align_app.command(help_epilogue="Example: graphquilt federate align apply home/ transforms/bank-a --out a.parquet")
def apply(
    home: Home,
    transform: Annotated[Path, Parameter(help="The transform for this party.")],
    *,
    out: EmbeddingFile,
    output: Output = Output(),
) -> None:
    """Move the embedding of a party into the frame that all parties share, and write it with its ids."""
    from graphquilt.jobs import format_of, write_embedding

    name, message = format_of(out), align.Message.load(transform)
    own, _ = _party(home, message)
    ids, X = align.apply(own, message)
    write_embedding(out, ids, X, format=name, dtype="float64")
    facts = {"party": own.name, "nodes": len(ids), "dim": X.shape[1], "embedding": str(out)}
    certificate = {name: message.facts.get(name) for name in ("verdict", "errors")}
    show({**facts, **certificate}, as_json=output.json)


def _party(home: Path, message: Message) -> tuple[Party, Path]:
    """Return the party in the round of a message, and its folder."""
    if not (home / "secret").is_file():
        raise InputError(f"{home} is not the folder of a party. graphquilt federate align offer makes one.")
    rounds = sorted(path for path in home.iterdir() if path.is_dir() and path.suffix != ".part")
    for folder in rounds:
        if folder.name.endswith(f"-{message.round[:8]}"):
            return Party.load(folder), folder
    raise InputError(
        f"the {message.kind} of {message.sender} belongs to the round '{message.round_name[:64]}' "
        f"({message.round[:8]}), and {home} has offers in these: "
        f"{', '.join(folder.name for folder in rounds)}. Ask for a file of one of them, or offer first."
    )
