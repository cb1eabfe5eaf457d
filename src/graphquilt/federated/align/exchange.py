"""What two parties send each other: an offer, the reply to it, and the statistics of the nodes that they share.

Offer of b → answer of a → reply of b (coordinates) → measurement by a. Where ids can be guessed there is no answer:
offer of b → reply of a (coordinates) → measurement by b.

Pseudonyms are keyed digests that take the place of node ids in all that leaves a party. By private set intersection
(Diffie-Hellman on an elliptic curve, the package openmined-psi) a party learns which of its nodes another has, and of
all others only how many: it sends its elements under its key; the other applies a key on top of them, and adds its own
elements under that key; the first removes its key from the former and compares.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import OverlapStatistics, overlap_statistics
from graphquilt.arrays import AnyArray, FloatArray, Int64Array
from graphquilt.errors import FormatError, InputError, OverlapError, needs_extra
from graphquilt.federated.align.parties import Message, Party, Pseudonyms, Round
from graphquilt.federated.messages import canonical_ids, check_party_name, normal, subkey, unique_ids
from graphquilt.files import is_checksum, is_size

NOISE = 0.05
LARGEST = 1e100  # a coordinate of an honest party is far smaller, and squares of this are still numbers
CONCENTRATED = 0.9  # leverage of one node in a reply; see check_concentration
WIDTH = 32  # bytes of a pseudonym
_DTYPE = np.dtype(f"S{WIDTH}")


def offer(
    ids: npt.ArrayLike,
    coordinates: npt.ArrayLike,
    to_round: Round,
    *,
    key: bytes,
    party: str,
    secret: bytes,
    share: Int64Array | None = None,
    noise: float = NOISE,
) -> Party:
    """Choose what a party may share of its coordinates, and add noise to it.

    ``ids`` (n,) are integers or text, as the other parties write them, and ``coordinates`` (n, d) come from any
    embedder. ``share`` (k,) are the rows of the nodes that may be shared, by default all. ``noise`` is the standard
    deviation of the Gaussian noise on every coordinate that leaves, as a share of the root mean square of these nodes.
    It is drawn from the party's own ``secret`` of 32 bytes (see :func:`party_secret`), the round and the id: whoever
    asks again sees the same. Offer once in a round, because two offers of other nodes have noise of another size.
    """
    check_party_name(party)
    to_round.check_key(key)
    to_round.check_invited(party)
    if not 0 <= noise < math.inf:
        raise InputError(f"noise must be finite and at least 0, not {noise}.")
    names, X = np.asarray(ids), np.ascontiguousarray(coordinates)
    if X.shape != (len(names), to_round.dim) or X.dtype.kind != "f" or not np.isfinite(X).all():
        raise InputError(
            f"the round '{to_round.name}' takes {to_round.dim} finite coordinates for each of {len(names)} nodes, not "
            f"an array {X.shape} of {X.dtype}."
        )
    rows = np.arange(len(names)) if share is None else np.unique(np.asarray(share, dtype=np.int64))
    if len(rows) < to_round.least:
        raise OverlapError(
            f"{party} would share at most {len(rows)} nodes with a partner, and the round '{to_round.name}' needs at "
            f"least {to_round.least}. Share more nodes, or agree on a round with fewer dimensions."
        )
    own = pseudonyms(names[rows], key, to_round.id)
    order = np.argsort(own)
    rows, own = rows[order], own[order]
    shared = noisy(X[rows], canonical_ids(names[rows]), noise, subkey(secret, f"noise {to_round.id}"))
    psi_key = new_psi_key() if to_round.psi else b""
    arrays = {"request": psi_request(own, psi_key)} if to_round.psi else {"pseudonyms": own}
    facts = {"offer": secrets.token_hex(32), "nodes": len(own)}
    message = to_round.message("offer", party, facts, arrays).authenticated(key)
    names = names.astype(np.str_) if names.dtype.hasobject else names
    return Party(party, to_round, key, names, X, rows, own, shared, message, psi_key)


def noisy(coordinates: FloatArray, ids: list[str], noise: float, key: bytes) -> FloatArray:
    """Return coordinates (k, d), of the same type, with Gaussian noise that a key and the ids determine."""
    if noise == 0:
        return coordinates
    offsets = coordinates - coordinates.mean(axis=0, dtype=np.float64)
    size = noise * math.sqrt(float(np.mean(np.square(offsets))))
    dim = coordinates.shape[1]
    digests = (hashlib.shake_256(hmac.digest(key, text.encode(), "sha256")).digest(8 * dim) for text in ids)
    words = np.frombuffer(b"".join(digests), dtype="<u8").reshape(len(ids), dim)
    return (coordinates + size * normal(words)).astype(coordinates.dtype)


def reply(party: Party, received: Message) -> Message:
    """Reply to the ``offer`` of another party, or to its ``answer`` if the round uses private set intersection.

    Returns a ``reply`` with the pseudonyms and coordinates of the nodes that both may share. With private set
    intersection an offer gets an ``answer`` first, from which its sender learns what is shared.
    """
    _check_received(party, received, *(("offer", "answer") if party.round.psi else ("offer",)))
    partner, own = received.sender, party.pseudonyms
    if received.kind == "offer" and party.round.psi:
        answer = psi_answer(own, _array(received, "request"), partner)
        return _sent(party, "answer", received, answer)
    if received.kind == "offer":
        places = shared_places(own, checked_pseudonyms(_array(received, "pseudonyms"), partner))
    else:
        setup, response = _array(received, "setup"), _array(received, "response")
        places = psi_intersection(own, party.psi_key, setup, response, partner)
    party.round.check_shared(party.name, partner, len(places))
    arrays = {"pseudonyms": own[places], "coordinates": party.coordinates[places]}
    return _sent(party, "reply", received, arrays)


def measure(party: Party, received: Message) -> Message:
    """Compare a party's own coordinates with those in the ``reply`` of a partner, and keep only the statistics.

    Returns a ``measurement`` for the coordinator: how many nodes are shared, two means and two spreads, with noise (see
    :func:`blur`), and one d × d product. Either party of a pair may measure, and both get the same.
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
        raise FormatError(f"coordinates of {partner} are not {dim} finite numbers for {len(theirs)} nodes: ask again.")
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
    vector e_i, whose squared length is the leverage h of row i. A share 1 - h of the variance of that row is open.
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

    Without noise, the means of two overlaps of a party that differ by one node give its coordinates.
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
            f"{name} was not written with the key of the round '{party.round.name}', or was changed on its way: ask "
            f"{message.sender} for it again."
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
        raise FormatError(f"{message.title} has no {name}; ask {message.sender} to make it again.")
    return message.arrays[name]


def pseudonyms(ids: npt.ArrayLike, key: bytes, round_id: str) -> Pseudonyms:
    """Return HMAC-SHA256(key, round id, node id) for each of ``ids (n,)``: nodes cannot be linked between rounds."""
    secret, prefix = subkey(key, "pseudonyms"), bytes.fromhex(round_id)
    digests = b"".join(hmac.digest(secret, prefix + text.encode(), "sha256") for text in unique_ids(ids))
    return np.frombuffer(digests, dtype=_DTYPE)


def checked_pseudonyms(array: AnyArray, sender: str) -> Pseudonyms:
    """Return the pseudonyms of a message, and refuse what is not a sorted list of different ones."""
    if array.dtype != _DTYPE or array.ndim != 1 or not np.all(array[1:] > array[:-1]):
        raise FormatError(f"the pseudonyms of {sender} are not {WIDTH} bytes each, different, ascending: ask again.")
    return array


def shared_places(own: Pseudonyms, other: Pseudonyms) -> Int64Array:
    """Return the places in ``own (k,)``, which are sorted, of the pseudonyms that ``other`` has too, ascending."""
    return np.asarray(np.intersect1d(own, other, assume_unique=True, return_indices=True)[1], dtype=np.int64)


def _psi() -> Any:
    with needs_extra("private set intersection", "federated"):
        import private_set_intersection.python as psi
    return psi


def new_psi_key() -> bytes:
    """Return a new secret key for requests."""
    return bytes(_psi().client.CreateWithNewKey(True).GetPrivateKeyBytes())


def psi_request(own: Pseudonyms, key: bytes) -> AnyArray:
    """Return the elements under the party's own key, as bytes."""
    made = _psi().client.CreateFromKey(key, True).CreateRequest(_elements(own, _order(own, key)))
    return _bytes(made)


def psi_answer(own: Pseudonyms, asked: AnyArray, sender: str) -> dict[str, AnyArray]:
    """Return the request of ``sender`` under both keys, and the own elements under a key that is used only once."""
    psi, parsed = _psi(), _parsed("Request", asked, sender)
    server = psi.server.CreateWithNewKey(True)
    elements = _elements(own, np.random.default_rng().permutation(len(own)))
    try:
        # Raw elements give no false positives, unlike the compressed sets that the package has too.
        setup = server.CreateSetupMessage(1e-9, len(parsed.encrypted_elements), elements, psi.DataStructure.RAW)
        response = server.ProcessRequest(parsed)
    except (RuntimeError, ValueError) as error:
        raise _refused(sender) from error
    return {"setup": _bytes(setup), "response": _bytes(response)}


def psi_intersection(own: Pseudonyms, key: bytes, setup: AnyArray, response: AnyArray, sender: str) -> Int64Array:
    """Return the places in ``own (k,)`` of the elements that ``sender`` has too, ascending."""
    order = _order(own, key)
    parsed = _parsed("ServerSetup", setup, sender), _parsed("Response", response, sender)
    if len(parsed[1].encrypted_elements) != len(own):
        raise FormatError(
            f"the answer of {sender} is about {len(parsed[1].encrypted_elements)} nodes, and the offer had {len(own)}. "
            f"Ask {sender} to answer the offer again."
        )
    try:
        found = _psi().client.CreateFromKey(key, True).GetIntersection(*parsed)
    except (RuntimeError, ValueError) as error:
        raise _refused(sender) from error
    places = np.unique(np.asarray(found, dtype=np.int64))
    return np.sort(order[places])


def _order(own: Pseudonyms, key: bytes) -> Int64Array:
    """Return an order of the elements that only the owner of the key knows."""
    digests = [hmac.digest(key, bytes.fromhex(one), "sha256") for one in _elements(own, np.arange(len(own)))]
    return np.array(sorted(range(len(digests)), key=digests.__getitem__), dtype=np.int64)


def _elements(own: Pseudonyms, order: Int64Array) -> list[str]:
    raw = own.tobytes()
    return [raw[k * WIDTH : (k + 1) * WIDTH].hex() for k in order.tolist()]


def _bytes(message: Any) -> AnyArray:
    return np.frombuffer(message.SerializeToString(), dtype=np.uint8)


def _parsed(kind: str, content: AnyArray, sender: str) -> Any:
    from google.protobuf.message import DecodeError

    message = getattr(_psi(), kind)()
    try:
        message.ParseFromString(content.tobytes())
    except DecodeError as error:
        raise _refused(sender) from error
    return message


def _refused(sender: str) -> FormatError:
    return FormatError(f"what {sender} sent for the set intersection cannot be read; ask {sender} to make it again.")
