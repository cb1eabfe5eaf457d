"""A round: keys, the card and the secrets of a party, the invitation, and the agreement of all its parties.

All primitives are those of the package cryptography: Ed25519, X25519, HKDF-SHA256 and ChaCha20.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from graphquilt.errors import InputError, needs_extra
from graphquilt.federated import messages
from graphquilt.federated.messages import Agreement, Filed
from graphquilt.federated.signal import SENSITIVITY, UNIT_BITS, WIDEST, CommonSignal, Network, noise_multiplier

Counts: TypeAlias = tuple[int, int]  # of own nodes, and of those at the border
BUCKETS = 2048  # where there are no features


def _crypto() -> Any:
    with needs_extra("sums over parties", "federated"):
        from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
    return ed25519, x25519


def new_signing_key() -> bytes:
    """Return a new secret key to sign with."""
    return bytes(_crypto()[0].Ed25519PrivateKey.generate().private_bytes_raw())


def sign(secret: bytes, content: Mapping[str, object]) -> str:
    """Return the signature of a JSON object, hexadecimal."""
    return bytes(_crypto()[0].Ed25519PrivateKey.from_private_bytes(secret).sign(messages.canonical(content))).hex()


def is_signed(public: str, content: Mapping[str, object], signature: str) -> bool:
    """Return whether the owner of a public key signed a JSON object."""
    ed25519 = _crypto()[0]
    from cryptography.exceptions import InvalidSignature

    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), messages.canonical(content))
    except (InvalidSignature, ValueError):
        return False
    return True


def mask(secret: bytes, public: str, info: bytes, size: int) -> npt.NDArray[np.uint64]:
    """Return the mask that two parties share, (size,): from the secret of one, the card of the other, and ``info``."""
    x25519 = _crypto()[1]
    try:
        other = x25519.X25519PublicKey.from_public_bytes(bytes.fromhex(public))
        shared = x25519.X25519PrivateKey.from_private_bytes(secret).exchange(other)
    except ValueError as error:  # a public key of low order would make the secret known
        raise InputError("a card has an exchange key that nobody can have made honestly; end the round.") from error
    return stream(shared, info, size)


def stream(secret: bytes, info: bytes, size: int) -> npt.NDArray[np.uint64]:
    """Return random numbers (size,) that a secret and ``info`` determine: HKDF-SHA256 and ChaCha20."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = HKDF(algorithm=SHA256(), length=messages.KEY_BYTES, salt=None, info=info).derive(secret)
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * size)), dtype="<u8").astype(np.uint64, copy=False)


@dataclass(frozen=True)
class Card(Filed):
    """What a party joins a round with: public, and signed.

    It has the id of the invitation, the number of own nodes and of those at the border, how the ids of these are
    written, and two public keys in hexadecimal digits: the long-lived one to sign with, and the one of this round.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("card",)
    invitation: messages.Checksum
    party: messages.Name
    nodes: messages.Size
    border: messages.Size
    signing: messages.Checksum
    exchange: messages.Checksum
    ids: messages.Form = ""
    signature: messages.Signature = field(default="", repr=False)

    @property
    def fingerprint(self) -> str:
        """The signing key, as people compare it by another channel."""
        return messages.readable(hashlib.sha256(bytes.fromhex(self.signing)).hexdigest())

    def is_sound(self) -> bool:
        """Return whether the owner of the signing key wrote the card."""
        return is_signed(self.signing, self.content, self.signature)


@dataclass(frozen=True)
class Member:
    """A party in one round: its card, the secret keys of the card, and the parties' key. Only the card leaves it."""

    card: Card
    signing: bytes = field(repr=False)
    exchange: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, round_id: str, party: str, counts: Counts, *, signing: bytes, key: bytes, ids: str = "") -> Member:
        """Return a party with a new exchange key, and sign its card."""
        ed25519, x25519 = _crypto()
        exchange = x25519.X25519PrivateKey.generate()
        secrets = ed25519.Ed25519PrivateKey.from_private_bytes(signing), exchange
        signs, exchanges = (bytes(one.public_key().public_bytes_raw()).hex() for one in secrets)
        card = Card(round_id, party, *counts, signs, exchanges, ids)
        signed = replace(card, signature=sign(signing, card.content))
        return cls(signed, signing, bytes(exchange.private_bytes_raw()), key)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What all parties spread, and the guards."""

    buckets: int | None = None
    """The most columns for nodes at borders. [default: 2048 without features, else 0]"""
    edges: messages.Share = 1.0
    """The weight of these columns beside features, which weigh 1."""
    per_bucket: messages.Size = 0
    """Guard: at least so many border nodes per column on average, which lowers the number of columns."""
    least: messages.Size = 1
    """Guard: a party sets columns to zero that fewer of its nodes fill."""
    two_parties: messages.Flag = False
    """Accept a round of two parties: who coordinates learns the other's total, and each learns part of it."""
    epsilon: messages.Share = 0.0
    """Differential privacy: every party adds noise that hides any one of its nodes; features only, 0 for none."""
    delta: messages.Share = 1e-6
    """The probability with which differential privacy may fail."""


@dataclass(frozen=True, kw_only=True)
class Invitation(Agreement, Terms):
    """What a round of sums is about, with its :class:`Terms`; it is public.

    ``features`` and ``buckets`` are numbers of columns, ``names`` a keyed digest of names of features, where checked.
    """

    features: messages.Size
    names: messages.MaybeChecksum
    buckets: messages.Size
    KINDS: ClassVar[tuple[str, ...]] = ("invitation",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.parties) < 3 and not (self.two_parties and len(self.parties) == 2):
            raise InputError(
                f"a round has at least three parties, and this one names {len(self.parties)}. A round of two parties "
                "shows the other's total to the one that coordinates, and part of it to both: name a third party, or "
                "say that both accept this (--two-parties)."
            )
        if not self.features and not self.buckets:
            raise InputError("a round spreads features, nodes at borders (--buckets), or both: name one.")
        if not 1 <= self.dim <= WIDEST or not 0 <= self.buckets < WIDEST:
            raise InputError(f"dim is 1 to {WIDEST}, and buckets 0 to {WIDEST - 1}, not {self.dim}, {self.buckets}.")
        if self.dim > self.features + self.buckets:
            raise InputError(f"{self.features} features and {self.buckets} buckets have no {self.dim} directions.")
        if not 0 < self.edges < math.inf or self.per_bucket < 0 or self.least < 1:
            raise InputError("the weight of edges is above 0, per-bucket at least 0, and least at least 1.")
        if not 0 <= self.epsilon <= 100 or not 0 < self.delta < 0.1:
            raise InputError(f"epsilon is from 0 to 100, and delta between 0 and .1, not {self.epsilon}, {self.delta}.")
        if self.epsilon and (self.buckets or self.least > 1 or self.features > WIDEST):
            raise InputError(
                f"differential privacy (--epsilon) is proved for at most {WIDEST} features, without buckets or "
                "--least: a walk lets one node move the sums by more than can be hidden."
            )

    def bucket_key(self, key: bytes) -> bytes:
        """Return the key that decides the column of a node: another in each round."""
        return hmac.digest(messages.subkey(key, "buckets"), self.id.encode(), "sha256")

    def check_names(self, names: Sequence[str] | None, key: bytes) -> None:
        """Refuse features with other names than those of the round, or in another order."""
        if self.names is None or not self.features:
            return
        if names is None:
            raise InputError(f"{self.label} checks the names of its {self.features} features (--feature-names).")
        if not hmac.compare_digest(messages.keyed(key, "features", list(names)), self.names):
            raise InputError(
                f"the names of these {len(names)} features are not the {self.features} of the round '{self.name}', or "
                "are in another order. Bring the columns into the order that the parties agreed on."
            )


def invite(
    name: str,
    dim: int,
    parties: Sequence[str],
    *,
    features: Sequence[str] | int = 0,
    terms: Terms = Terms(),
    key: bytes | None = None,
) -> tuple[Invitation, bytes]:
    """Begin a round: return the invitation, for everyone, and the key, for the parties and not for the coordinator.

    ``features`` are the names of the features in the order of their columns, or only their number, which nobody can
    check. The ``key`` (32 bytes) decides the columns of nodes: nothing but a new one, the default, is safe.

    Examples
    --------
    >>> invitation, key = invite("night-1", 16, ["a", "b", "c"], terms=Terms(buckets=512))
    >>> invitation.has_key(key), invitation.has_key(bytes(32))
    (True, False)
    """
    key, check = messages.new_key(name, key)
    count = features if isinstance(features, int) else len(features)
    names = None if isinstance(features, int) else messages.keyed(key, "features", list(features))
    asked: dict[str, Any] = {**asdict(terms), "edges": float(terms.edges), "epsilon": float(terms.epsilon)}
    asked["buckets"] = (0 if count else BUCKETS) if terms.buckets is None else terms.buckets
    invited = tuple(sorted(parties))
    return Invitation(name=name, dim=dim, parties=invited, features=count, names=names, **asked, **check), key


def join(network: Network, invitation: Invitation, key: bytes, *, party: str, signing: bytes | None = None) -> Member:
    """Accept an invitation: make a key for this round, and sign it by the long-lived one, by default a new one."""
    invitation.check_key(key)
    invitation.check_invited(party)
    invitation.check_names(network.names, key)
    if not network.n_own:
        raise InputError(f"{party} owns none of the {network.graph.n_nodes} nodes of its network.")
    if invitation.buckets and not network.n_border:
        raise InputError(
            f"none of the {network.n_own} nodes of {party} has an edge to a node of somebody else, and the round "
            f"'{invitation.name}' spreads nodes at borders. Read the edges that lead to others too."
        )
    counts, ids = network.counts(invitation.buckets), network.border_form if invitation.buckets else ""
    return Member.of(invitation.id, party, counts, signing=signing or new_signing_key(), key=key, ids=ids)


@dataclass(frozen=True)
class Round:
    """An invitation and the cards of all its parties by name; made of the same files it is the same for everyone."""

    invitation: Invitation
    cards: tuple[Card, ...]

    @classmethod
    def of(cls, invitation: Invitation, cards: Iterable[Card]) -> Round:
        """Return the round, and refuse cards that are missing, twice, of another round, forged, or have one key."""
        made = tuple(sorted(set(cards), key=lambda card: card.party))
        named, name = [card.party for card in made], f"the round '{invitation.name}'"
        for card in made:
            if card.invitation != invitation.id:
                raise InputError(f"the card of {card.party} is not of {invitation.label}: ask for a new one.")
            if not card.is_sound():
                raise InputError(f"the card of {card.party} is not signed by its key: it was changed on its way.")
        missing = [party for party in invitation.parties if party not in named]
        if missing:
            raise InputError(f"the cards of {', '.join(missing)} are missing: {name} begins when all have joined.")
        if len(named) != len(invitation.parties):
            raise InputError(f"{name} has {len(named)} cards for {len(invitation.parties)} parties: one for each.")
        if min(len({getattr(card, key) for card in made}) for key in ("signing", "exchange")) < len(made):
            raise InputError(f"two cards of {name} have the same key: one organisation joined under two names.")
        return cls(invitation, made)

    @cached_property
    def id(self) -> str:
        """The SHA-256 of the invitation and all cards."""
        return messages.digest({"invitation": self.invitation.id, "cards": [card.header for card in self.cards]})

    @property
    def code(self) -> str:
        """What parties read to each other by another channel: it is the same if all have the same cards."""
        return messages.readable(self.id)

    @property
    def notes(self) -> list[str]:
        """What the cards contradict each other in; nobody sees ids of others, and nothing else would tell."""
        if all(messages.same_form(card.ids, self.cards[0].ids) for card in self.cards):
            return []
        forms = "; ".join(f"{card.party}: {card.ids}" for card in self.cards)
        return [
            f"The parties seem to write ids in different ways ({forms}). A node that two of them write differently is "
            "two nodes: write ids alike, with the same zeros in front, capitals and spaces, and invite to a new round."
        ]

    def card(self, party: str) -> Card:
        """Return the card of a party."""
        return next(card for card in self.cards if card.party == party)

    @property
    def n_nodes(self) -> int:
        """Number of nodes that all parties own together."""
        return sum(card.nodes for card in self.cards)

    @cached_property
    def signal(self) -> CommonSignal:
        """What is spread; the number of buckets follows from the border nodes of all parties."""
        buckets, per = self.invitation.buckets, self.invitation.per_bucket
        if buckets and per:
            border = sum(card.border for card in self.cards)
            buckets = min(buckets, border // per)
            if buckets < self.invitation.dim and not self.invitation.features:
                raise InputError(
                    f"{border} border nodes with at least {per} per bucket make {buckets} buckets, and "
                    f"{self.invitation.dim} dimensions need as many. Invite to fewer dimensions, or lower --per-bucket."
                )
        asked = self.invitation
        noise = SENSITIVITY * noise_multiplier(asked.epsilon, asked.delta) if asked.epsilon else 0.0
        return CommonSignal(features=asked.features, buckets=buckets, edges=asked.edges, least=asked.least, noise=noise)

    def bits(self, kind: str) -> int:
        """Return the bits behind the binary point of a sum: N 2^bits < 2^62, and less for products of wide features."""
        room = 62 if kind == "moment" else 58
        return min(UNIT_BITS, room - self.n_nodes.bit_length())
