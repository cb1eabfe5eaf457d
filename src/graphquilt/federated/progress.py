"""What is there of rounds of sums in some files, what is missing, and who does what next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from graphquilt.errors import QuiltError
from graphquilt.federated.home import IDENTITY, Home
from graphquilt.federated.keys import Card
from graphquilt.federated.messages import kind_of
from graphquilt.federated.round import Invitation, Round
from graphquilt.federated.sums import Contribution, Directions

Value = TypeVar("Value")
TOTAL = (
    "the total of all parties, nothing of one. All parties but one, together with the coordinator, see the total of "
    "that one; the coordinator with one party sees the total with names on the columns that this party knows."
)


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
    result: dict[str, object] = {}
    for invitation in {made.id: made for made in invitations}.values():
        result[invitation.name] = _describe(invitation, cards, sums, answers)
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
