"""Align embeddings that parties made with a method of their own, without showing their networks to each other.

One round: :func:`invite`; every party makes an :func:`offer`; for each pair, one party makes a :func:`reply` to the
offer of the other, which does :func:`measure` it; the coordinator does :func:`solve`, and every party :func:`apply`.
What moves are values of the type :class:`Message`. ``docs/how-to/federated-alignment.md`` says who sees what.
"""

from graphquilt.federated.align.coordination import FederatedAlignment, PairResult, apply, solve
from graphquilt.federated.align.exchange import measure, offer, pseudonyms, reply
from graphquilt.federated.align.parties import Message, Party, Round, accept_once, invite, party_secret
from graphquilt.federated.messages import load_key, save_key

__all__ = [
    "FederatedAlignment",
    "Message",
    "PairResult",
    "Party",
    "Round",
    "accept_once",
    "apply",
    "invite",
    "load_key",
    "measure",
    "offer",
    "party_secret",
    "pseudonyms",
    "reply",
    "save_key",
    "solve",
]
