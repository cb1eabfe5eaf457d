"""Agreement: what everybody knows of a round before it begins, and the key that only its parties have."""

from __future__ import annotations

import hmac
import json
import secrets
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

from graphquilt.errors import FormatError, InputError
from graphquilt.federated.messages import (
    KEY_BYTES,
    Checksum,
    Name,
    Names,
    Size,
    check_party_name,
    checks_of,
    digest,
    read_file,
    subkey,
    write_file,
)
from graphquilt.files import is_checksum

MOST_PARTIES = 1000


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What everybody knows of a round; it is public.

    Attributes
    ----------
    name : str
        For people.
    dim : int
        Number of dimensions of the embedding.
    parties : tuple of str
        The names of the parties, in order.
    nonce, key_check : str
        A random number, and its digest under the parties' key, by which a party sees that it has the right key.
    """

    name: Name
    dim: Size
    parties: Names
    nonce: Checksum
    key_check: Checksum
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        for name in (self.name, *self.parties):
            check_party_name(name)
        if list(self.parties) != sorted(set(self.parties)) or len(self.parties) > MOST_PARTIES:
            raise InputError(f"parties are different names, at most {MOST_PARTIES}: {', '.join(self.parties)[:200]}.")

    @property
    def id(self) -> str:
        """The SHA-256 of everything in it: if any of it is changed, it is another round."""
        return digest(asdict(self))

    def has_key(self, key: bytes) -> bool:
        """Return whether this is the parties' key."""
        return hmac.compare_digest(keyed(key, "check", self.nonce), self.key_check)

    def check_key(self, key: bytes, whose: str = "this") -> None:
        """Refuse the key of another round."""
        if not self.has_key(key):
            raise InputError(f"{whose} is not the key of the round '{self.name}' ({self.id[:8]}).")

    def check_invited(self, party: str) -> None:
        """Refuse somebody who takes no part."""
        if self.parties and party not in self.parties:
            raise InputError(f"{party} is not invited to the round '{self.name}': {', '.join(self.parties)} are.")

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as JSON; nothing in it is secret."""
        write_file(Path(path), self.kind, {**asdict(self), "id": self.id})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what ``save`` wrote, and refuse what was changed."""
        values, _ = read_file(Path(path), (cls.kind,), {**checks_of(cls), "id": is_checksum})
        expected = values.pop("id")
        try:
            made = cls(**cls._from_json(values))
        except InputError as error:
            raise FormatError(f"{path} is not a sound {cls.kind}: {error}") from error
        if made.id != expected:
            raise FormatError(f"{path} was changed: its content is not that of {expected[:8]}.")
        return made

    @classmethod
    def _from_json(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "parties": tuple(values["parties"])}


def keyed(key: bytes, purpose: str, value: object) -> str:
    """Return a digest of a value that JSON can hold, under the parties' key."""
    return hmac.digest(subkey(key, purpose), json.dumps(value).encode(), "sha256").hex()


def new_key(name: str, key: bytes | None = None) -> tuple[bytes, dict[str, str]]:
    """Return a new key of parties, or this one, and the fields by which an agreement of this name knows it."""
    key = key or secrets.token_bytes(KEY_BYTES)
    nonce = keyed(key, "nonce", name)
    return key, {"nonce": nonce, "key_check": keyed(key, "check", nonce)}


def save_key(key: bytes, path: str | PathLike[str]) -> None:
    """Write a secret key to a file that only its owner can read."""
    write_file(Path(path), "key", {"key": key.hex()})


def load_key(path: str | PathLike[str], agreed: Agreement | None = None) -> bytes:
    """Read what :func:`save_key` wrote, and refuse the key of another round."""
    key = bytes.fromhex(read_file(Path(path), ("key",), {"key": is_checksum})[0]["key"])
    if agreed is not None:
        agreed.check_key(key, str(path))
    return key
