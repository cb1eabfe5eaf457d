"""The home of a party: its long-lived key, what it knows of others, and its open round; and what is there of rounds.

A private folder. Every contribution is kept here before it is written anywhere else, so that a step has one and no
other; the secret key of a round is deleted when the round ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from graphquilt.arrays import AnyArray
from graphquilt.errors import InputError, QuiltError
from graphquilt.federated.messages import Value, canonical_ids, checks_of, digest, kind_of, read_file, write_file
from graphquilt.federated.round import Card, Invitation, Member, Round, join, new_signing_key
from graphquilt.federated.signal import Network
from graphquilt.federated.sums import Contribution, Directions, Embedded, contribute, embed, step_context
from graphquilt.files import array_checksum, is_checksum, sync_folder, translate_disk_errors

IDENTITY, LEDGER, SECRETS = "identity", "ledger", "round.secret"
DIFFERENCE = "The difference of two totals is what parties in only one contributed; if that is one, it is shown."
TOTAL = (
    "the total of all parties, nothing of one. All parties but one, together with the coordinator, see the total of "
    "that one; the coordinator with one party sees the total with names on the columns that this party knows."
)
CHECKS: Mapping[str, Mapping[str, Callable[[object], bool]]] = {  # of private files, which have checksums
    IDENTITY: {"signing": is_checksum, "known": lambda value: isinstance(value, dict)},
    LEDGER: {"entries": lambda value: isinstance(value, list)},
}


class Home:
    """The private folder of a party."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def member(self) -> Member | None:
        """Return the party in its open round; None if there is none."""
        path = self.folder / SECRETS
        if not path.exists():
            return None
        checks = {**checks_of(Card), "exchange_secret": is_checksum, "key": is_checksum}
        values, _ = read_file(path, ("secret of a round",), checks)
        exchange, key = (bytes.fromhex(values.pop(name)) for name in ("exchange_secret", "key"))
        return Member(Card(**values), self._signing(), exchange, key)

    def join(self, network: Network, invitation: Invitation, key: bytes, *, party: str) -> tuple[Member, list[str]]:
        """Accept an invitation; return the party, the same when asked again, and notes. A home has one open round."""
        open_member, notes = self.member(), list[str]()
        if open_member is not None and open_member.card.invitation == invitation.id:
            card = open_member.card
            if (card.party, card.nodes, card.border) != (party, *network.counts(invitation.buckets)):
                raise InputError(
                    f"{self.folder} joined '{invitation.name}' as {card.party} with {card.nodes} nodes, {card.border} "
                    "at the border: a card is signed once."
                )
            return open_member, notes
        if any(entry["invitation"] == invitation.id for entry in self.ledger()):
            raise InputError(f"the round '{invitation.name}' has ended here, and its keys are gone: accept a new one.")
        new = not (self.folder / IDENTITY).exists()
        member = join(network, invitation, key, party=party, signing=new_signing_key() if new else self._signing())
        if new:
            with translate_disk_errors(self.folder.parent):
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(self.folder / IDENTITY, IDENTITY, {"signing": member.signing.hex(), "known": {}})
        if open_member is not None:
            notes.append("An earlier round had not ended: its keys are deleted, and nothing can be contributed to it.")
        if self.ledger():
            notes.append(f"You contributed to {len(self.ledger())} rounds before. {DIFFERENCE}")
        self.end()
        content = {**member.card.header, "exchange_secret": member.exchange.hex(), "key": key.hex()}
        write_file(self.folder / SECRETS, "secret of a round", content)
        return member, notes

    def check_cards(self, agreed: Round, *, confirmed: str | None = None) -> None:
        """Refuse cards whose signing keys this party has not confirmed: in an earlier round, or by the code of this."""
        known, own = self._private(IDENTITY)["known"], self._open(agreed).card
        strange = [card for card in agreed.cards if card != own and known.get(card.party) != card.signing]
        if confirmed is not None and confirmed.strip().lower() != agreed.code:
            raise InputError(
                f"the code of these cards is {agreed.code}, not {confirmed[:40]}: the parties have different cards, "
                "and somebody may have forged one. Do not contribute; send the cards again by another channel."
            )
        if strange and confirmed is None:
            keys = ", ".join(f"{card.party} {card.fingerprint}" for card in strange)
            raise InputError(
                f"these signing keys are new here: {keys}. Call the other parties; if all read the code {agreed.code} "
                f"to each other, repeat the command with --confirm {agreed.code}."
            )

    def contribute(
        self,
        network: Network,
        agreed: Round,
        *,
        received: Directions | None = None,
        confirmed: str | None = None,
        again: bool = False,
    ) -> Contribution:
        """Contribute to a step once: the same bytes if asked again, and nothing if anything else is asked for.

        New signing keys must be ``confirmed`` by the code of the round. The same data for a round that differs by fewer
        than two parties is refused unless ``again``.
        """
        member, (step, context) = self._open(agreed), step_context(agreed, received)
        kept = self.folder / f"sent-{step}"
        if kept.exists():
            sent = Contribution.load(kept)
            if sent.context != context:
                raise InputError(
                    f"{member.card.party} has contributed to step {step} of '{agreed.invitation.name}', with other "
                    "cards or directions. A second contribution would show the first: it is refused."
                )
            return sent
        self.check_cards(agreed, confirmed=confirmed)
        data, signers = _data_digest(network), sorted(card.signing for card in agreed.cards)
        entries = self.ledger()
        if step and (not entries or entries[-1]["round"] != agreed.id):
            raise InputError(f"{member.card.party} did not contribute to the steps before {step} with these cards.")
        for entry in entries if step == 0 and not again else []:
            differ = len(set(entry["signers"]) ^ set(signers))
            if entry["data"] == data and entry["round"] != agreed.id and differ < 2:
                raise InputError(
                    f"this network was contributed to the round '{entry['name']}', whose parties differ from these by "
                    f"{differ}. {DIFFERENCE} If all accept that, repeat the command with --again."
                )
        made = contribute(network, agreed, member, received=received)
        if step == 0:
            entry = {"round": agreed.id, "invitation": agreed.invitation.id, "name": agreed.invitation.name}
            entries.append({**entry, "data": data, "signers": signers})
            write_file(self.folder / LEDGER, LEDGER, {"entries": entries})
            identity = self._private(IDENTITY)
            identity["known"] |= {card.party: card.signing for card in agreed.cards}
            write_file(self.folder / IDENTITY, IDENTITY, identity)
        made.save(kept)
        return made

    def embed(self, network: Network, agreed: Round, directions: Directions) -> Embedded:
        """Embed the own nodes; :meth:`end` the round when the result is safe."""
        return embed(network, agreed, self._open(agreed), directions)

    def end(self) -> None:
        """Delete the keys of the open round, and what was sent."""
        for path in [self.folder / SECRETS, *self.folder.glob("sent-*")]:
            path.unlink(missing_ok=True)
        sync_folder(self.folder)

    def ledger(self) -> list[dict[str, Any]]:
        """Return one entry for each round to which the party contributed."""
        return list(self._private(LEDGER)["entries"]) if (self.folder / LEDGER).exists() else []

    def sent(self) -> list[int]:
        """Return the steps of the open round that were contributed to."""
        return sorted(int(path.name[5:]) for path in self.folder.glob("sent-*") if path.name[5:].isdigit())

    def _private(self, kind: str) -> dict[str, Any]:
        return read_file(self.folder / kind, (kind,), CHECKS[kind])[0]

    def _signing(self) -> bytes:
        return bytes.fromhex(self._private(IDENTITY)["signing"])

    def _open(self, agreed: Round) -> Member:
        member = self.member()
        if member is None or member.card.invitation != agreed.invitation.id:
            raise InputError(
                f"{self.folder} has no open round '{agreed.invitation.name}' ({agreed.invitation.id[:8]}): join it "
                "first. The keys of a round are deleted when it ends."
            )
        return member


def _data_digest(network: Network) -> str:
    """Return the SHA-256 of everything that a party contributes from."""
    graph, X = network.graph, network.graph.features
    parts: list[AnyArray | None] = [graph.indptr, graph.indices, graph.weights, network.own.astype(np.uint8)]
    parts += [X.indptr, X.indices, X.data] if isinstance(X, sp.csr_array) else [X]
    sums = [None if part is None else array_checksum(np.asarray(part)) for part in parts]
    return digest({"arrays": sums, "ids": canonical_ids(network.ids)})


def rounds_in(files: Sequence[Path]) -> dict[str, object]:
    """Describe every round that has an invitation among these files."""
    kinds = {path: kind_of(path) for path in files}

    def load(kind: str, read: Callable[[Path], Value]) -> list[Value]:
        loaded = []
        for path in (path for path, found in kinds.items() if found == kind):
            with suppress(QuiltError):  # what cannot be read is not there
                loaded.append(read(path))
        return loaded

    cards, sums = load("card", Card.load), load("contribution", Contribution.load)
    answers, invitations = load("directions", Directions.load), load("invitation", Invitation.load)
    unique = {made.id: made for made in invitations}.values()
    result: dict[str, object] = {made.name: _describe(made, cards, sums, answers) for made in unique}
    for home in (Home(path.parent) for path, kind in kinds.items() if kind == IDENTITY):
        member = home.member()
        state = "no open round" if member is None else f"open round of {member.card.party}, steps sent {home.sent()}"
        result[f"home {home.folder}"] = f"private; contributed to {len(home.ledger())} rounds; {state}"
    keys = [str(path) for path, kind in kinds.items() if kind == "key"]
    if keys:
        result["parties_key"] = f"{', '.join(keys)}: for parties only; combine refuses to run beside it"
    return result or {"rounds": "none: no invitation is here"}


def _describe(
    invitation: Invitation, cards: list[Card], sums: list[Contribution], answers: list[Directions]
) -> dict[str, object]:
    """Return what is there of one round."""
    joined = sorted({card.party for card in cards if card.invitation == invitation.id})
    waiting = [party for party in invitation.parties if party not in joined]
    facts: dict[str, object] = {"parties": list(invitation.parties), "joined": joined}
    if waiting:
        return {**facts, "next": [f"{', '.join(waiting)}: join, and send the card to all."]}
    try:
        agreed = Round.of(invitation, [card for card in cards if card.invitation == invitation.id])
    except QuiltError as error:
        return {**facts, "problem": str(error)}
    facts |= {card.party: f"fingerprint {card.fingerprint}, {card.nodes} nodes" for card in agreed.cards}
    signal = agreed.signal
    facts |= {"code": agreed.code, "columns": signal.features + signal.buckets, "coordinator_sees": TOTAL}
    facts |= {"notes": agreed.notes} if agreed.notes else {}
    found = sorted((answer for answer in answers if answer.round == agreed.id), key=lambda answer: answer.step)
    step = found[-1].step if found else 0
    if found and found[-1].complete:
        kept = f"step {step}, {found[-1].share:.0%} of the total, code {found[-1].code}"
        return {**facts, "directions": kept, "next": ["every party: embed, which ends the round and deletes its keys."]}
    sent = sorted({made.party for made in sums if made.round == agreed.id and made.step == step})
    missing = [party for party in invitation.parties if party not in sent]
    facts |= {"step": step, "contributed": sent}
    if missing:
        return {**facts, "next": [f"{', '.join(missing)}: contribute to step {step}, and send it to the coordinator."]}
    return {**facts, "next": ["the coordinator: combine, and send the directions to all parties."]}
