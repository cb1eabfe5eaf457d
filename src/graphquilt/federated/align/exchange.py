"""What two parties send each other: the reply to an offer, and the statistics of the nodes that they share.

Offer of b → answer of a → reply of b (coordinates) → measurement by a. Where ids can be guessed there is no answer:
offer of b → reply of a (coordinates) → measurement by b.
"""

from __future__ import annotations

import hashlib
import hmac

import numpy as np

from graphquilt.alignment import OverlapStatistics, overlap_statistics
from graphquilt.arrays import AnyArray, FloatArray
from graphquilt.errors import FormatError, InputError
from graphquilt.federated.align import intersection
from graphquilt.federated.align.intersection import checked_pseudonyms, shared_places
from graphquilt.federated.align.parties import Party
from graphquilt.federated.align.rounds import Message
from graphquilt.federated.messages import subkey
from graphquilt.files import is_checksum, is_size

LARGEST = 1e100  # a coordinate of an honest party is far smaller, and squares of this are still numbers
CONCENTRATED = 0.9  # leverage of one node in a reply; see check_concentration


def reply(party: Party, received: Message) -> Message:
    """Reply to the ``offer`` of another party, or to its ``answer`` if the round uses private set intersection.

    Returns a ``reply`` with the pseudonyms and coordinates of the nodes that both may share. With private set
    intersection an offer gets an ``answer`` first, from which its sender learns what is shared. A message of another
    round, for somebody else, or not written with the key is refused, and so is a pair that shares too few nodes.
    """
    _check_received(party, received, *(("offer", "answer") if party.round.psi else ("offer",)))
    partner, own = received.sender, party.pseudonyms
    if received.kind == "offer" and party.round.psi:
        answer = intersection.answer_request(own, _array(received, "request"), partner)
        return _sent(party, "answer", received, answer)
    if received.kind == "offer":
        places = shared_places(own, checked_pseudonyms(_array(received, "pseudonyms"), partner))
    else:
        setup, response = _array(received, "setup"), _array(received, "response")
        places = intersection.intersect(own, party.psi_key, setup, response, partner)
    party.round.check_shared(party.name, partner, len(places))
    arrays = {"pseudonyms": own[places], "coordinates": party.coordinates[places]}
    return _sent(party, "reply", received, arrays)


def measure(party: Party, received: Message) -> Message:
    """Compare a party's own coordinates with those in the ``reply`` of a partner, and keep only the statistics.

    Returns a ``measurement`` for the coordinator: how many nodes are shared, two means, two spreads and one d × d
    product; no ids, no pseudonyms, no coordinates. Means and spreads have noise, see :func:`blur`. Either party of a
    pair may measure, and both get the same.
    """
    _check_received(party, received, "reply")
    partner = received.sender
    theirs = checked_pseudonyms(_array(received, "pseudonyms"), partner)
    places = shared_places(party.pseudonyms, theirs)
    if len(places) != len(theirs):
        raise FormatError(
            f"the reply of {partner} has {len(theirs)} nodes, and {len(theirs) - len(places)} of them were not in the "
            f"offer of {party.name}. A reply is about nodes that both have offered: ask {partner} to reply again."
        )
    party.round.check_shared(party.name, partner, len(places))
    coordinates, dim = _array(received, "coordinates"), party.round.dim
    sound = coordinates.shape == (len(theirs), dim) and coordinates.dtype.kind == "f"
    if not sound or not float(np.abs(coordinates).max(initial=0)) <= LARGEST:  # nor for NaN
        raise FormatError(
            f"the coordinates of {partner} are not {dim} finite numbers for each of {len(theirs)} nodes; ask {partner} "
            "to reply again."
        )
    sides = {party.name: party.coordinates[places], partner: coordinates}
    check_concentration(coordinates, partner)
    first, second = names = sorted(sides)
    nodes = np.arange(len(places))
    try:
        statistics = overlap_statistics((nodes, sides[first]), (nodes, sides[second]))
    except InputError as error:
        raise type(error)(f"{first} and {second} cannot be compared: {error}") from error
    seen = b"".join(hashlib.sha256(sides[name].tobytes()).digest() for name in names)
    seed = hmac.digest(subkey(party.key, "statistics"), bytes.fromhex(party.round.id) + seen, "sha256")
    facts = {
        "parties": names,
        "offers": {party.name: party.offer_id, partner: received.facts["offer"]},
        "nodes": {party.name: len(party.rows), partner: received.facts["nodes"]},
    }
    message = party.round.message("measurement", party.name, facts, blur(statistics, seed).to_arrays())
    return message.authenticated(party.key)


def check_concentration(coordinates: FloatArray, partner: str) -> None:
    """Refuse coordinates (n, d) that let their sender compute rows of the other party, together with the coordinator.

    The two know A and A'B, so w'B for all w in the span of A and 1. The nearest to row i is the projection of the unit
    vector e_i, whose squared length is the leverage h of row i. What is left open is a share of 1 - h of the variance
    of that row of B.
    """
    offsets = coordinates.astype(np.float64) - coordinates.mean(axis=0, dtype=np.float64)
    scale = float(np.abs(offsets).max())
    left, sizes, _ = np.linalg.svd(offsets / scale if scale > 0 else offsets, full_matrices=False)
    left = left[:, sizes > np.finfo(np.float64).eps * len(offsets) * sizes[0]]
    leverage = 1 / len(offsets) + np.square(left).sum(axis=1)
    highest = float(leverage.max())
    if highest > CONCENTRATED:
        raise InputError(
            f"the coordinates of {partner} are concentrated on few nodes: one of {len(offsets)} has a leverage of "
            f"{highest:.2f}, and at most {CONCENTRATED} is allowed. {partner} and the coordinator could compute your "
            f"coordinates of it. Let both parties share more nodes, or ask {partner} how it embeds."
        )


def blur(statistics: OverlapStatistics, seed: bytes) -> OverlapStatistics:
    """Return the statistics of one overlap with noise on means and spreads, as large as one node of n counts in them.

    A party is in several pairs. Without noise, the means of two overlaps that differ by one node give its coordinates.
    """
    n, rng = int(statistics.counts[0]), np.random.default_rng(np.frombuffer(seed, dtype="<u4"))
    one_node = statistics.spreads / (n * np.sqrt(n * statistics.dim))  # in each coordinate of the mean
    means = statistics.means + one_node[:, :, np.newaxis] * rng.normal(size=statistics.means.shape)
    spreads = statistics.spreads * np.sqrt(np.maximum(1 + rng.normal(size=statistics.spreads.shape) / n, 0.5))
    return OverlapStatistics(statistics.counts, statistics.sizes, means, spreads, statistics.products)


def _check_received(party: Party, message: Message, *kinds: str) -> None:
    """Refuse what is not for this party, of this round and of somebody who has the key."""
    party.round.check_message(message, *kinds)
    name = message.title
    if not message.is_authentic(party.key):
        raise InputError(
            f"{name} was not written with the key of the round '{party.round.name}', or was changed on its way. Ask "
            f"{message.sender} for it again, on another way."
        )
    if message.sender == party.name:
        raise InputError(f"this is {party.name}'s own {message.kind}; it is for the other parties.")
    if not is_checksum(message.facts.get("offer")) or not is_size(message.facts.get("nodes")):
        raise FormatError(f"{name} does not say what it should; ask for it again.")
    if message.kind == "offer":
        return
    if message.facts.get("to") != party.name:
        raise InputError(f"{name} is for {str(message.facts.get('to'))[:64]}, and not for {party.name}.")
    if message.facts.get("replies_to") != party.offer_id:
        raise InputError(
            f"{name} was made for another offer of {party.name} than the one in this folder. Send {message.sender} the "
            "offer that is here, and ask for a new reply."
        )


def _sent(party: Party, kind: str, received: Message, arrays: dict[str, AnyArray]) -> Message:
    """Return a message to the sender of another, which it names; it repeats what the own offer said."""
    facts = {**party.offer.facts, "to": received.sender, "replies_to": received.facts["offer"]}
    return party.round.message(kind, party.name, facts, arrays).authenticated(party.key)


def _array(message: Message, name: str) -> AnyArray:
    if name not in message.arrays:
        raise FormatError(
            f"{message.title} has no {name}; it has {', '.join(message.arrays) or 'nothing'}. Ask {message.sender} to "
            "make it again."
        )
    return message.arrays[name]
