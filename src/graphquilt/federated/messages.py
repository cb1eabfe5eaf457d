"""Messages: what moves between parties and coordinator, each one file with a header, checksums and authentication.

A message is an uncompressed ``.npz`` file. Its member ``header`` is JSON text: who sent what in which round, the shape,
type and checksum of every other member, and, if a party wrote it, an HMAC of all that under the parties' key.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError
from graphquilt.files import (
    array_checksum,
    is_array_entry,
    is_checksum,
    is_size,
    load_arrays,
    sealed_content,
    sealed_text,
    sync_folder,
    temporary_sibling,
    translate_disk_errors,
    write_arrays,
)

FORMAT = "graphquilt federated"
VERSION = 2
KINDS = ("party", "offer", "answer", "reply", "measurement", "transform")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_AGAIN = "It may be truncated or damaged; ask for it again."


def subkey(key: bytes, purpose: str) -> bytes:
    """Return a separate key for each purpose, derived from the parties' key."""
    return hmac.digest(key, f"graphquilt {purpose}".encode(), "sha256")


def is_party_name(name: object) -> bool:
    """Return whether a value can be the name of a party: it is fit for a file name, and means nothing else there.

    Examples
    --------
    >>> is_party_name("bank-a"), is_party_name("../bank"), is_party_name("")
    (True, False, False)
    """
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_party_name(name: str) -> None:
    """Refuse a name that cannot be that of a party."""
    if not is_party_name(name):
        raise InputError(
            f"'{str(name)[:80]}' cannot be the name of a party: use 1 to 64 letters, digits, dots, hyphens and "
            "underscores, and begin with a letter or digit."
        )


@dataclass(frozen=True, eq=False)
class Message:
    """One message of a round.

    Attributes
    ----------
    kind : str
        ``offer``, ``answer``, ``reply``, ``measurement``, ``transform``, or ``party`` for what stays home.
    round : str
        The id of the round.
    round_name : str
    dim : int
        Number of dimensions of the round.
    sender : str
        The name of the party, or ``coordinator``.
    facts : mapping
        Plain values that JSON can hold; what they are depends on the kind.
    arrays : mapping of str to array
    authentication : str, optional
        HMAC-SHA256 of everything else under the parties' key; None if the coordinator wrote the message.
    """

    kind: str
    round: str
    round_name: str
    dim: int
    sender: str
    facts: Mapping[str, Any]
    arrays: Mapping[str, AnyArray]
    authentication: str | None = None

    def __repr__(self) -> str:
        return f"Message({self.kind} of {self.sender} in round {self.round_name!r}, {', '.join(self.arrays)})"

    def authenticated(self, key: bytes) -> Message:
        """Return the message with its HMAC under the parties' key."""
        return replace(self, authentication=_mac(self._content(), key))

    def is_authentic(self, key: bytes) -> bool:
        """Return whether somebody who has the parties' key wrote this message, and nobody has changed it since."""
        return self.authentication is not None and hmac.compare_digest(_mac(self._content(), key), self.authentication)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the message to a file that only its owner can read, and that is complete once it is there."""
        header = sealed_text({**self._content(), "authentication": self.authentication})
        arrays = {"header": np.frombuffer(header.encode(), dtype=np.uint8), **self.arrays}
        write_private(Path(path), lambda file: write_arrays(file, arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Message:
        """Read a message, and refuse one that is damaged or has a newer version; it is not authenticated here."""
        path = Path(path)
        try:
            arrays = load_arrays(path)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
        header = arrays.pop("header", None)
        if header is None or header.dtype != np.uint8 or header.ndim != 1:
            raise FormatError(f"{path} is not a file of a federated round: it has no header. {_AGAIN}")
        content, intact = sealed_content(header.tobytes(), f"the header of {path}")
        _check_header(path, content, intact=intact)
        _check_arrays(path, content["arrays"], arrays)
        names = ("kind", "round", "round_name", "dim", "sender", "facts", "authentication")
        values: dict[str, Any] = {name: content[name] for name in names}
        return cls(**values, arrays=arrays)

    def _content(self) -> dict[str, object]:
        """Return the header without its checksum and authentication."""
        described = {
            name: {"shape": list(array.shape), "dtype": array.dtype.str, "sha256": array_checksum(array)}
            for name, array in self.arrays.items()
        }
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "round": self.round,
            "round_name": self.round_name,
            "dim": self.dim,
            "sender": self.sender,
            "facts": dict(self.facts),
            "arrays": described,
        }


def check_version(path: Path, version: object) -> None:
    """Refuse a file in another version of the format."""
    if version != VERSION:
        raise FormatError(
            f"{path} has version {str(version)[:20]} of the format, and this graphquilt reads version {VERSION}. All "
            "parties of a round need releases that agree on it: upgrade the older ones."
        )


def _mac(content: Mapping[str, object], key: bytes) -> str:
    text = json.dumps(content, sort_keys=True).encode()
    return hmac.digest(subkey(key, "authentication"), text, "sha256").hex()


def _check_header(path: Path, content: Mapping[str, object], *, intact: bool) -> None:
    """Refuse a header that is not one, or of another version, or damaged."""
    if content.get("format") != FORMAT:
        raise FormatError(f"{path} is not a file of a federated round.")
    check_version(path, content.get("version"))
    if not intact:
        raise FormatError(f"{path} does not have the checksum that its header says. {_AGAIN}")
    mac = content.get("authentication", False)
    sound = (
        content.get("kind") in KINDS
        and is_checksum(content.get("round"))
        and isinstance(content.get("round_name"), str)
        and is_size(content.get("dim"))
        and is_party_name(content.get("sender"))
        and isinstance(content.get("facts"), dict)
        and isinstance(content.get("arrays"), dict)
        and (mac is None or is_checksum(mac))
    )
    if not sound:
        raise FormatError(f"the header of {path} does not say what a message of a round says. {_AGAIN}")


def _check_arrays(path: Path, described: Any, arrays: Mapping[str, AnyArray]) -> None:
    """Refuse arrays that are not those of the header."""
    if set(described) != set(arrays):
        raise FormatError(f"{path} has other arrays than its header says. {_AGAIN}")
    for name, array in arrays.items():
        entry = described[name]
        same = (
            is_array_entry(entry)
            and entry["shape"] == list(array.shape)
            and entry["dtype"] == array.dtype.str
            and entry.get("sha256") == array_checksum(array)
        )
        if not same:
            raise FormatError(f"'{name[:40]}' in {path} is not what its header says. {_AGAIN}")


def write_private(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file that only its owner can read; ``write`` gets it open, and it is complete once it is there."""
    with translate_disk_errors(path.parent), temporary_sibling(path) as part:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_folder(path.parent)


def is_share(value: object) -> bool:
    """Return whether a value from a header is a finite number of at least 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
