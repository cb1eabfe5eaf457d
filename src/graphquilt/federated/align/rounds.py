"""Round: what all parties of an alignment agree on before they begin. Message: what they send each other."""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

from graphquilt.arrays import AnyArray
from graphquilt.errors import InputError, OverlapError
from graphquilt.federated.messages import (
    Agreement,
    Checksum,
    Facts,
    Flag,
    MaybeChecksum,
    Name,
    Size,
    canonical,
    checks_of,
    described,
    new_key,
    read_file,
    subkey,
    write_file,
)

KINDS = ("party", "offer", "answer", "reply", "measurement", "transform")
Kind = Annotated[str, lambda value: value in KINDS]


@dataclass(frozen=True, eq=False)
class Message:
    """One message of an alignment, by a party or the ``coordinator``.

    The kind is ``offer``, ``answer``, ``reply``, ``measurement``, ``transform``, or ``party`` for what stays home; the
    ``facts``, plain values that JSON can hold, depend on it. ``round`` is the id of the round, and ``authentication``
    the HMAC-SHA256 of everything else under the parties' key, None if the coordinator wrote the message.
    """

    kind: Kind
    round: Checksum
    round_name: Name
    sender: Name
    facts: Facts
    arrays: Mapping[str, AnyArray] = field(repr=False)
    authentication: MaybeChecksum = None

    @property
    def title(self) -> str:
        """How errors name the message."""
        return f"the {self.kind} of {self.sender}"

    def authenticated(self, key: bytes) -> Message:
        """Return the message with its HMAC under the parties' key."""
        return replace(self, authentication=self._mac(key))

    def is_authentic(self, key: bytes) -> bool:
        """Return whether somebody who has the parties' key wrote this message, and nobody has changed it since."""
        return self.authentication is not None and hmac.compare_digest(self._mac(key), self.authentication)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the message to a file that only its owner can read, and that is complete once it is there."""
        write_file(Path(path), self.kind, {**self._header(), "authentication": self.authentication}, self.arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Message:
        """Read a message, and refuse one that is damaged or of another version; it is not authenticated here."""
        values, arrays = read_file(Path(path), KINDS, checks_of(cls))
        return cls(**values, arrays=arrays)

    def _header(self) -> dict[str, object]:
        names = ("round", "round_name", "sender")
        return {**{name: getattr(self, name) for name in names}, "facts": dict(self.facts)}

    def _mac(self, key: bytes) -> str:
        content = {**self._header(), "kind": self.kind, "arrays": described(self.arrays)}
        return hmac.digest(subkey(key, "authentication"), canonical(content), "sha256").hex()


@dataclass(frozen=True, kw_only=True)
class Round(Agreement):
    """What all parties of a round agree on; it is public.

    Without ``parties``, anyone with the key may take part. Two parties must share at least ``least`` nodes to be
    compared, which private set intersection (``psi``) finds, or pseudonyms. The alignment undoes rotations and shifts,
    and with ``scale`` scales.
    """

    scale: Flag
    least: Size
    psi: Flag
    kind: ClassVar[str] = "round"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.parties) == 1:
            raise InputError(
                f"a round has at least two parties, and this one names {self.parties[0]}: name all, or none."
            )
        needed = least_shared(self.dim)
        if self.dim < 1 or self.least < needed:
            raise InputError(
                f"two parties must share at least {needed} nodes (2 dim + 10) in {self.dim} dimensions, and this round "
                f"asks for {self.least}: statistics of fewer nodes would give their coordinates away."
            )

    @property
    def folder(self) -> str:
        """The name of the folder that a party has for this round."""
        return f"{self.name}-{self.id[:8]}"

    def message(self, kind: str, sender: str, facts: Mapping[str, object], arrays: Mapping[str, AnyArray]) -> Message:
        """Return a message of this round."""
        return Message(kind, self.id, self.name, sender, facts, arrays)

    def check_message(self, message: Message, *kinds: str) -> None:
        """Refuse a message of another kind or another round."""
        if message.kind not in kinds:
            raise InputError(f"{message.title} is not a file for this step, which takes this: {' or '.join(kinds)}.")
        if message.round != self.id:
            raise InputError(
                f"{message.title} belongs to the round '{message.round_name}' ({message.round[:8]}), and this is "
                f"{self.label}. Files of other rounds, earlier ones included, are not taken: ask for one of this round."
            )
        if kinds != ("transform",):
            self.check_invited(message.sender)

    def check_shared(self, first: str, second: str, shared: int) -> None:
        """Refuse a pair that shares too few nodes, with what to do."""
        if shared < self.least:
            raise OverlapError(
                f"{first} and {second} share {shared} nodes; the round '{self.name}' in {self.dim} dimensions needs "
                f"at least {self.least}. Share more nodes, leave out this pair, or agree on a round of fewer "
                "dimensions."
            )


def invite(
    name: str,
    dim: int,
    *,
    scale: bool = False,
    least: int | None = None,
    parties: Sequence[str] = (),
    ids_can_be_guessed: bool = False,
) -> tuple[Round, bytes]:
    """Make a new round for everyone, and its key (32 bytes) for the parties, and not for the coordinator.

    ``least`` is by default 2 dim + 10, which is the least allowed. With ``ids_can_be_guessed``, shared nodes are found
    by pseudonyms, against which whoever has the key can test guessed ids, and not by private set intersection.

    Examples
    --------
    >>> night, key = invite("night-1", 4)
    >>> night.least, night.has_key(key), night.psi
    (18, True, True)
    """
    key, check = new_key(name)
    needed, named = least_shared(dim) if least is None else least, tuple(sorted(parties))
    psi = not ids_can_be_guessed
    return Round(name=name, dim=dim, scale=scale, least=needed, parties=named, psi=psi, **check), key


def least_shared(dim: int) -> int:
    """Return the least number of nodes that two parties must share.

    The statistics of a pair are dim² + dim equations for the coordinates of one party. With this many nodes they
    leave at least half of the unknowns open to somebody who knows the other party's coordinates.
    """
    return 2 * dim + 10
