"""A round of alignment: what all parties agree on, the messages that they send, and what each has at home."""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, FloatArray, Int64Array
from graphquilt.errors import FormatError, InputError, OverlapError
from graphquilt.federated import messages
from graphquilt.federated.messages import Agreement, Filed
from graphquilt.files import translate_disk_errors

Pseudonyms: TypeAlias = npt.NDArray[np.bytes_]
ARRAYS = ("ids", "embedding", "rows", "pseudonyms", "coordinates")
KINDS = ("party", "offer", "answer", "reply", "measurement", "transform")
Kind = Annotated[str, lambda value: value in KINDS]


@dataclass(frozen=True, eq=False)
class Message(Filed):
    """One message of an alignment, by a party or the ``coordinator``; what is of the kind ``party`` stays home.

    The ``facts``, plain values that JSON can hold, depend on the kind. ``round`` is the id of the round, and
    ``authentication`` the HMAC-SHA256 of everything else under the parties' key, None for the coordinator's messages.
    """

    KINDS: ClassVar[tuple[str, ...]] = KINDS
    kind: Kind
    round: messages.Checksum
    round_name: messages.Name
    sender: messages.Name
    facts: messages.Facts
    arrays: Mapping[str, AnyArray] = field(repr=False)
    authentication: messages.MaybeChecksum = None

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

    def _mac(self, key: bytes) -> str:
        return hmac.digest(messages.subkey(key, "authentication"), messages.canonical(self.content), "sha256").hex()


@dataclass(frozen=True, kw_only=True)
class Round(Agreement):
    """What all parties of a round agree on; it is public.

    Without ``parties``, anyone with the key may take part. Two parties are compared if they share at least ``least``
    nodes, which private set intersection (``psi``) finds, or pseudonyms. With ``scale``, scales are undone too.
    """

    scale: messages.Flag
    least: messages.Size
    psi: messages.Flag
    KINDS: ClassVar[tuple[str, ...]] = ("round",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.parties) == 1:
            raise InputError(f"a round has at least two parties, and this one names {self.parties[0]}: name all.")
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
                f"{self.label}. Files of other rounds are not taken: ask for one of this round."
            )
        if kinds != ("transform",):
            self.check_invited(message.sender)

    def check_shared(self, first: str, second: str, shared: int) -> None:
        """Refuse a pair that shares too few nodes, with what to do."""
        if shared < self.least:
            raise OverlapError(
                f"{first} and {second} share {shared} nodes; the round '{self.name}' in {self.dim} dimensions needs at "
                f"least {self.least}. Share more nodes, leave out this pair, or agree on a round of fewer dimensions. "
                "If you expected more, compare how both write ids: zeros in front, capitals, spaces."
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
    key, check = messages.new_key(name)
    needed, named = least_shared(dim) if least is None else least, tuple(sorted(parties))
    psi = not ids_can_be_guessed
    return Round(name=name, dim=dim, scale=scale, least=needed, parties=named, psi=psi, **check), key


def least_shared(dim: int) -> int:
    """Return the least number of nodes that two parties must share.

    The statistics of a pair are dim² + dim equations for the coordinates of one party. With so many nodes they leave
    at least half of the unknowns open to somebody who knows the other party's.
    """
    return 2 * dim + 10


@dataclass(frozen=True, eq=False)
class Party:
    """What one party has at home in a round. Only ``offer`` leaves it.

    ``ids`` (n,) and ``embedding`` (n, d) are those of all its nodes. ``rows`` (k,) are the nodes that may be shared, in
    ascending order of their ``pseudonyms`` (k,), and ``coordinates`` (k, d) are theirs, with noise: whatever leaves the
    party is made from these. ``psi_key`` is the secret of the offer where it asks for private set intersection.
    """

    name: str
    round: Round
    key: bytes = field(repr=False)
    ids: AnyArray = field(repr=False)
    embedding: FloatArray = field(repr=False)
    rows: Int64Array = field(repr=False)
    pseudonyms: Pseudonyms = field(repr=False)
    coordinates: FloatArray = field(repr=False)
    offer: Message
    psi_key: bytes = field(default=b"", repr=False)

    @property
    def offer_id(self) -> str:
        """A random number that tells this offer from others of the same party."""
        return str(self.offer.facts["offer"])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a new folder that only its owner can open: all of it, or nothing."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        arrays["psi_key"] = np.frombuffer(self.psi_key, dtype=np.uint8)
        home = self.round.message("party", self.name, self.offer.facts, arrays).authenticated(self.key)
        with messages.new_folder(Path(folder)) as part:
            self.round.save(part / "round")
            messages.save_key(self.key, part / "key")
            home.save(part / "party")
            self.offer.save(part / "offer")

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Party:
        """Open the folder of a party in one round; what was not written with the key of the round is refused."""
        folder = Path(folder)
        agreed = Round.load(folder / "round")
        key = messages.load_key(folder / "key")
        home, sent = Message.load(folder / "party"), Message.load(folder / "offer")
        agreed.check_message(home, "party")
        agreed.check_message(sent, "offer")
        authentic = home.is_authentic(key) and sent.is_authentic(key)
        if not authentic or (home.facts, home.sender) != (sent.facts, sent.sender):
            raise FormatError(f"{folder}: 'party' and 'offer' were changed, or are of two offers. Restore them.")
        arrays = dict(home.arrays)
        return cls(home.sender, agreed, key, offer=sent, psi_key=arrays.pop("psi_key").tobytes(), **arrays)


def party_secret(home: Path) -> bytes:
    """Return the secret of the party that lives in the folder ``home``; the first call makes it."""
    path = home / "secret"
    if not path.exists():
        with translate_disk_errors(home.parent):
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
        messages.save_key(secrets.token_bytes(messages.KEY_BYTES), path)
    return messages.load_key(path)


def accept_once(folder: Path, message: Message) -> None:
    """Record a message in the folder of a party, and refuse another of the same kind by the same sender.

    Each offer that is answered tells something about ids, and each reply that is measured something about coordinates.
    """
    path, digest = folder / f"{message.kind}-of-{message.sender}", str(message.authentication).encode()
    if path.exists() and path.read_bytes() != digest:
        raise InputError(
            f"{message.sender} has sent another {message.kind} before, and one is used in a round: each would tell "
            f"{message.sender} more. Take the first, or invite to a new round."
        )
    with messages.private_file(path) as file:
        file.write(digest)
