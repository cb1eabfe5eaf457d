"""Align the networks of parties that do not show them to each other.

One round: :func:`invite` makes a :class:`Round` and its key. Every party makes an :func:`offer`; for each pair, one
party makes a :func:`reply` to the offer of the other, and that one makes a :func:`measure`-ment of it for the
coordinator, who does :func:`align`; every party does :func:`apply` with its transform. What moves are values of the
type :class:`Message`, which can be saved and loaded. ``docs/federated.md`` says who sees what.
"""

from graphquilt.federated.coordination import FederatedAlignment, PairResult, align, apply
from graphquilt.federated.exchange import measure, reply
from graphquilt.federated.intersection import canonical_ids, pseudonyms
from graphquilt.federated.messages import Message
from graphquilt.federated.parties import Party, offer
from graphquilt.federated.rounds import Round, invite, load_key, save_key
from graphquilt.federated.sharing import Sharing, boundary, rows_of

__all__ = [
    "FederatedAlignment",
    "Message",
    "PairResult",
    "Party",
    "Round",
    "Sharing",
    "align",
    "apply",
    "boundary",
    "canonical_ids",
    "invite",
    "load_key",
    "measure",
    "offer",
    "pseudonyms",
    "reply",
    "rows_of",
    "save_key",
]
