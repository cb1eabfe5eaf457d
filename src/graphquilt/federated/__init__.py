"""Embed networks of parties that do not show them to each other.

One round of sums: :func:`invite` makes an :class:`Invitation` and the parties' key; every party does :func:`join`;
:class:`Round` is the invitation with all cards; every party does :func:`contribute`, the coordinator :func:`combine`,
and every party :func:`embed`. :class:`Home` is the private folder of a party, which refuses what would give it away.
:mod:`graphquilt.federated.align` brings embeddings of other methods into one frame. ``docs/federated.md`` says more.
"""

from graphquilt.federated import align
from graphquilt.federated.home import Home
from graphquilt.federated.messages import canonical_ids
from graphquilt.federated.round import Card, Invitation, Member, Round, Terms, invite, join
from graphquilt.federated.signal import CommonSignal, Network
from graphquilt.federated.sums import Contribution, Directions, Embedded, combine, contribute, embed, plain_sum

__all__ = [
    "Card",
    "CommonSignal",
    "Contribution",
    "Directions",
    "Embedded",
    "Home",
    "Invitation",
    "Member",
    "Network",
    "Round",
    "Terms",
    "align",
    "canonical_ids",
    "combine",
    "contribute",
    "embed",
    "invite",
    "join",
    "plain_sum",
]
