"""Round: what all parties agree on before they begin, and the key that only they have."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError
from graphquilt.federated.messages import (
    VERSION,
    Message,
    check_party_name,
    check_version,
    is_party_name,
    subkey,
    write_private,
)
from graphquilt.files import is_size, read_sealed, sealed_text, sync_folder, translate_disk_errors, write_text
from graphquilt.linalg import Motions

FORMAT = "graphquilt round"
KEY_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Round:
    """What all parties of a round agree on; it is public.

    Attributes
    ----------
    name : str
        For people.
    dim : int
        Number of dimensions of all coordinates.
    motions : Motions
        The motions that the alignment undoes.
    least : int
        The least number of nodes that two parties must share to be compared.
    parties : tuple of str
        The names of the parties; empty if anyone with the key may take part.
    psi : bool
        Whether shared nodes are found by private set intersection, and not by pseudonyms.
    nonce, key_check : str
        A random number, and its HMAC under the parties' key, by which a party sees that it has the right key.
    """

    name: str
    dim: int
    motions: Motions
    least: int
    parties: tuple[str, ...]
    psi: bool
    nonce: str
    key_check: str

    def __post_init__(self) -> None:
        if not is_party_name(self.name):
            raise InputError(
                f"the name of a round is made of letters, digits, dots and hyphens, not {self.name!r:.80}."
            )
        for name in self.parties:
            check_party_name(name)
        if len(set(self.parties)) != len(self.parties) or len(self.parties) == 1:
            raise InputError(
                f"a round has at least two parties, each named once, and not: {', '.join(self.parties)}. Name all, or "
                "name none: everyone with the key may then take part."
            )
        needed = least_shared(self.dim)
        if self.dim < 1 or self.least < needed:
            raise InputError(
                f"two parties must share at least {needed} nodes (2 dim + 10) in {self.dim} dimensions, and this round "
                f"asks for {self.least}: statistics of fewer nodes would give their coordinates away."
            )

    @property
    def id(self) -> str:
        """The SHA-256 of everything in the round: if any of it is changed, it is another round."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def folder(self) -> str:
        """The name of the folder that a party has for this round."""
        return f"{self.name}-{self.id[:8]}"

    def has_key(self, key: bytes) -> bool:
        """Return whether this is the key of the round."""
        return hmac.compare_digest(_key_check(key, self.nonce), self.key_check)

    def message(self, kind: str, sender: str, facts: Mapping[str, object], arrays: Mapping[str, AnyArray]) -> Message:
        """Return a message of this round."""
        return Message(kind, self.id, self.name, self.dim, sender, facts, arrays)

    def check_message(self, message: Message, kinds: Sequence[str]) -> None:
        """Refuse a message of another kind or another round."""
        name = f"the {message.kind} of {message.sender}"
        if message.kind not in kinds:
            raise InputError(f"{name} is not a file for this step, which takes this: {' or '.join(kinds)}.")
        if message.round != self.id or message.dim != self.dim:
            raise InputError(
                f"{name} belongs to the round '{message.round_name[:64]}' ({message.round[:8]}, {message.dim} "
                f"dimensions), and this is the round '{self.name}' ({self.id[:8]}, {self.dim} dimensions). Files of "
                "other rounds, earlier ones included, are not taken: ask for one of this round."
            )
        if self.parties and message.sender not in self.parties and message.kind != "transform":
            raise InputError(
                f"{message.sender} takes no part in the round '{self.name}'; its parties are {', '.join(self.parties)}."
            )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the round as JSON."""
        path = Path(path)
        with translate_disk_errors(path.parent):
            write_text(path, sealed_text({"format": FORMAT, "version": VERSION, **asdict(self)}) + "\n")
            sync_folder(path.parent)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Round:
        """Read what ``save`` wrote, and refuse a round that was changed."""
        path = Path(path)
        try:
            values, intact = read_sealed(path)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
        if values.get("format") != FORMAT:
            raise FormatError(f"{path} is not a round; graphquilt federate align invite makes one.")
        check_version(path, values.get("version"))
        if not intact:
            raise FormatError(f"{path} was changed after it was made. Ask for it again, or invite to a new round.")
        try:
            return cls(**_checked(values))  # type: ignore[arg-type]
        except (InputError, KeyError, TypeError) as error:
            raise FormatError(f"{path} is not a round: {str(error)[:200]}") from error


def invite(
    name: str,
    dim: int,
    *,
    motions: Motions = Motions(),
    least: int | None = None,
    parties: Sequence[str] = (),
    ids_can_be_guessed: bool = False,
) -> tuple[Round, bytes]:
    """Make a new round, and its key.

    Parameters
    ----------
    name : str
        For display; a random number distinguishes rounds of the same name.
    dim : int
        Number of dimensions of the coordinates that all parties bring.
    motions : Motions
        Which motions to undo.
    least : int, optional
        The least number of nodes that two parties must share; by default 2 dim + 10, which is the least allowed.
    parties : sequence of str
        Who takes part; by default everyone who has the key.
    ids_can_be_guessed : bool
        Find shared nodes by pseudonyms, against which whoever has the key can test guessed ids, and not by private
        set intersection.

    Returns
    -------
    round : Round
        For everyone.
    key : bytes (32)
        For the parties, and not for the coordinator.

    Examples
    --------
    >>> night, key = invite("night-1", 4)
    >>> night.least, night.has_key(key), night.psi
    (18, True, True)
    """
    key, nonce = secrets.token_bytes(KEY_BYTES), secrets.token_hex(16)
    made = Round(
        name=name,
        dim=dim,
        motions=motions,
        least=least_shared(dim) if least is None else least,
        parties=tuple(sorted(parties)),
        psi=not ids_can_be_guessed,
        nonce=nonce,
        key_check=_key_check(key, nonce),
    )
    return made, key


def least_shared(dim: int) -> int:
    """Return the least number of nodes that two parties must share.

    The statistics of a pair are dim² + dim equations for the coordinates of one party. With this many nodes they
    leave at least half of the unknowns open to somebody who knows the other party's coordinates.
    """
    return 2 * dim + 10


def save_key(key: bytes, path: str | PathLike[str]) -> None:
    """Write 32 secret bytes to a file that only its owner can read."""
    write_private(Path(path), lambda file: file.write(key.hex().encode() + b"\n"))


def load_key(path: str | PathLike[str], of_round: Round | None = None) -> bytes:
    """Read what :func:`save_key` wrote, and refuse the key of another round."""
    try:
        with open(path, "rb") as file:
            key = bytes.fromhex(file.read(2 * KEY_BYTES + 2).decode())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise FormatError(f"{path} is not a key: it has no {KEY_BYTES} bytes in hexadecimal digits. Ask for it again.")
    if of_round is not None and not of_round.has_key(key):
        raise InputError(
            f"{path} is the key of another round, and not of this one ('{of_round.name}', {of_round.id[:8]}). Ask for "
            "the key that was made with it."
        )
    return key


def _key_check(key: bytes, nonce: str) -> str:
    return hmac.digest(subkey(key, "check"), nonce.encode(), "sha256").hex()


def _checked(values: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a round in a file, each of its type."""
    motions, parties = values["motions"], values["parties"]
    texts, sizes = ("name", "nonce", "key_check"), ("dim", "least")
    sound = (
        isinstance(motions, dict)
        and motions.keys() == vars(Motions()).keys()
        and all(isinstance(value, bool) for value in motions.values())
        and isinstance(parties, list)
        and all(isinstance(values[name], str) for name in texts)
        and all(is_size(values[name]) for name in sizes)
        and isinstance(values["psi"], bool)
    )
    if not sound:
        raise TypeError("a value is not of its type.")
    agreed = {name: values[name] for name in (*texts, *sizes, "psi")}
    return {**agreed, "motions": Motions(**motions), "parties": tuple(parties)}  # type: ignore[arg-type]
