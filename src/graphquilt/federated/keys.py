"""Keys of parties: a long-lived one to sign with, one to exchange secrets in one round, and the card that shows both.

All primitives are those of the package cryptography: Ed25519, X25519, HKDF-SHA256 and ChaCha20.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.errors import InputError, needs_extra
from graphquilt.federated.messages import (
    KEY_BYTES,
    Checksum,
    Name,
    Signature,
    Size,
    canonical,
    checks_of,
    read_file,
    readable,
    write_file,
)


def _crypto() -> Any:
    with needs_extra("sums over parties", "federated"):
        from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
    return ed25519, x25519


def new_signing_key() -> bytes:
    """Return a new secret key to sign with."""
    return bytes(_crypto()[0].Ed25519PrivateKey.generate().private_bytes_raw())


def sign(secret: bytes, content: Mapping[str, object]) -> str:
    """Return the signature of a JSON object, hexadecimal."""
    return bytes(_crypto()[0].Ed25519PrivateKey.from_private_bytes(secret).sign(canonical(content))).hex()


def is_signed(public: str, content: Mapping[str, object], signature: str) -> bool:
    """Return whether the owner of a public key signed a JSON object."""
    ed25519 = _crypto()[0]
    from cryptography.exceptions import InvalidSignature

    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), canonical(content))
    except (InvalidSignature, ValueError):
        return False
    return True


def mask(secret: bytes, public: str, info: bytes, size: int) -> npt.NDArray[np.uint64]:
    """Return the mask that two parties share, (size,): each computes it from its secret key and the other's card.

    ``info`` is the SHA-256 of everything on which both must agree. If they differ in any of it, so do their masks.
    """
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

    key = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * size)), dtype="<u8").astype(np.uint64, copy=False)


@dataclass(frozen=True)
class Card:
    """What a party joins a round with: public, and signed.

    It has the id of the invitation, the number of own nodes and of those at the border, and two public keys in
    hexadecimal digits: the long-lived one to sign with, and the one of this round.
    """

    invitation: Checksum
    party: Name
    nodes: Size
    border: Size
    signing: Checksum
    exchange: Checksum
    signature: Signature = field(default="", repr=False)

    @property
    def content(self) -> dict[str, object]:
        """What is signed."""
        return {name: value for name, value in asdict(self).items() if name != "signature"}

    @property
    def fingerprint(self) -> str:
        """The signing key, as people compare it by another channel."""
        return readable(hashlib.sha256(bytes.fromhex(self.signing)).hexdigest())

    def is_sound(self) -> bool:
        """Return whether the owner of the signing key wrote the card."""
        return is_signed(self.signing, self.content, self.signature)

    def save(self, path: Path) -> None:
        """Write the card as JSON."""
        write_file(path, "card", asdict(self))

    @classmethod
    def load(cls, path: Path) -> Card:
        """Read a card; whether it is sound is checked where it is used."""
        return cls(**read_file(path, ("card",), checks_of(cls))[0])


@dataclass(frozen=True)
class Member:
    """A party in one round: its card, the secret keys of the card, and the parties' key. Only the card leaves it."""

    card: Card
    signing: bytes = field(repr=False)
    exchange: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, invitation: str, party: str, counts: tuple[int, int], *, signing: bytes, key: bytes) -> Member:
        """Return a party with a new exchange key, and sign its card."""
        ed25519, x25519 = _crypto()
        exchange = x25519.X25519PrivateKey.generate()
        secrets = ed25519.Ed25519PrivateKey.from_private_bytes(signing), exchange
        card = Card(invitation, party, *counts, *(bytes(one.public_key().public_bytes_raw()).hex() for one in secrets))
        signed = replace(card, signature=sign(signing, card.content))
        return cls(signed, signing, bytes(exchange.private_bytes_raw()), key)
