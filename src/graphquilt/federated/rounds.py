"""Round: what all parties agree on before they begin, and the key that only they have."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path

import numpy as np

import graphquilt
from graphquilt.arrays import AnyArray
from graphquilt.embedders import Embedder, agree, free_motions, shares_start
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
from graphquilt.files import (
    array_checksum,
    is_checksum,
    is_size,
    read_sealed,
    sealed_text,
    sync_folder,
    translate_disk_errors,
    write_text,
)
from graphquilt.graph import Graph
from graphquilt.jobs import describe, differences, restore
from graphquilt.linalg import Motions

FORMAT, KEY_FORMAT = "graphquilt round", "graphquilt key"
KEY_BYTES = 32
_MOTIONS = ("scale", "rotate", "translate")


@dataclass(frozen=True, kw_only=True)
class Round:
    """What all parties of a round agree on; it is public.

    Attributes
    ----------
    name : str
        For people.
    dim : int
        Number of dimensions of all embeddings.
    embedder : mapping
        The description of the embedder that all parties use.
    motions : Motions
        The motions that the alignment undoes.
    seed : int
        The seed that all parties embed with.
    least : int
        The least number of nodes that two parties must share to be compared.
    parties : tuple of str
        The names of the parties; empty if anyone with the key may take part.
    psi : bool
        Whether shared nodes are found by private set intersection.
    start : str, optional
        The checksum of the shared start, if any.
    nonce, key_check : str
        A random number, and its HMAC under the parties' key, by which a party sees that it has the right key.
    """

    name: str
    dim: int
    embedder: Mapping[str, object]
    motions: Motions
    seed: int
    least: int
    parties: tuple[str, ...]
    psi: bool
    start: str | None
    nonce: str
    key_check: str

    def __post_init__(self) -> None:
        if not is_party_name(self.name):
            raise InputError(
                f"the name of a round is made of letters, digits, dots and hyphens, not {self.name!r:.80}."
            )
        for name in self.parties:
            check_party_name(name)
        if len(set(self.parties)) != len(self.parties):
            raise InputError(f"a party is named twice: {', '.join(self.parties)}. Each takes part once.")
        if len(self.parties) == 1:
            raise InputError(
                f"a round has at least two parties, and {self.parties[0]} is the only one named. Name the others too, "
                "or name none: everyone with the key may then take part."
            )
        needed = self.motions.points_needed(self.dim)
        if self.least < needed:
            raise InputError(
                f"two parties must share at least {needed} nodes to be compared in {self.dim} dimensions, and this "
                f"round asks for {self.least}. Ask for {needed} or more, or invite to at most {self.least - 1} "
                "dimensions."
            )

    @property
    def id(self) -> str:
        """The SHA-256 of everything in the round: if any of it is changed, it is another round."""
        text = json.dumps(self._plain(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def has_key(self, key: bytes) -> bool:
        """Return whether this is the key of the round."""
        return hmac.compare_digest(_key_check(key, self.nonce), self.key_check)

    def made_embedder(self, embedder: Embedder | None = None) -> Embedder:
        """Return the embedder of the round; one that graphquilt cannot recreate is passed, and compared.

        Raises
        ------
        InputError
            If another embedder is passed, or none where one is needed.
        """
        if embedder is None:
            made = restore(self.embedder, lambda _: None)
            if not isinstance(made, Embedder):
                raise InputError(
                    f"the round '{self.name}' embeds with {self.embedder.get('name')}, which graphquilt cannot make by "
                    "itself: pass the embedder (--embedder module:factory)."
                )
            embedder = made
        # Through JSON, because the description of the round has been there as well.
        changes = differences(self.embedder, json.loads(json.dumps(describe(embedder))))
        if changes or embedder.dim != self.dim:
            raise InputError(
                f"the round '{self.name}' embeds in {self.dim} dimensions, with {changes or self.dim}. All parties "
                "embed in the same way."
            )
        return embedder

    def message(self, kind: str, sender: str, facts: Mapping[str, object], arrays: Mapping[str, AnyArray]) -> Message:
        """Return a message of this round."""
        return Message(kind, self.id, self.name, self.dim, sender, facts, arrays)

    def check_message(self, message: Message, kinds: Sequence[str]) -> None:
        """Refuse a message of another kind or another round."""
        name = f"the {message.kind} of {message.sender}"
        if message.kind not in kinds:
            wanted = " or ".join(f"{_article(kind)} {kind}" for kind in kinds)
            raise InputError(f"{name} is not a file for this step, which takes {wanted}.")
        if message.round != self.id:
            raise InputError(
                f"{name} belongs to the round '{message.round_name[:64]}' ({message.round[:8]}, {message.dim} "
                f"dimensions), and this is the round '{self.name}' ({self.id[:8]}, {self.dim} dimensions). Files of "
                "other rounds, earlier ones included, are not taken: ask for one of this round."
            )
        if message.dim != self.dim:
            raise InputError(f"{name} has {message.dim} dimensions, and the round '{self.name}' has {self.dim}.")
        if message.sender in self.parties or message.kind in ("transform", "start") or not self.parties:
            return
        raise InputError(
            f"{message.sender} takes no part in the round '{self.name}'; its parties are {', '.join(self.parties)}."
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the round as TOML."""
        path = Path(path)
        values = {"format": FORMAT, "version": VERSION, **self._plain(), "id": self.id}
        motions, text = values.pop("motions"), "# A round of federated alignment. Nothing in it is secret.\n"
        values["embedder"] = json.dumps(values["embedder"])
        lines = [f"{name} = {_toml(value)}" for name, value in values.items() if value is not None]
        lines += ["", "[motions]", *(f"{name} = {_toml(value)}" for name, value in motions.items())]  # type: ignore[attr-defined]
        with translate_disk_errors(path.parent):
            write_text(path, text + "\n".join(lines))
            sync_folder(path.parent)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Round:
        """Read what ``save`` wrote, and refuse a round that was changed."""
        path = Path(path)
        try:
            values = tomllib.loads(path.read_bytes().decode("utf-8"))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{path} is not a round: it is not TOML ({str(error)[:80]}).") from error
        if values.get("format") != FORMAT:
            raise FormatError(f"{path} is not a round of federated alignment; graphquilt federate invite makes one.")
        check_version(path, values.get("version"))
        try:
            result = cls(**_checked(values))  # type: ignore[arg-type]
            same = values.get("id") == result.id
        except (InputError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise FormatError(f"{path} is not a round: {str(error)[:200]}") from error
        if not same:
            raise FormatError(
                f"{path} was changed after it was made: its id is not that of its content. Ask for it again; if the "
                "settings are to change, invite to a new round."
            )
        return result

    def _plain(self) -> dict[str, object]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "parties": list(self.parties), "motions": asdict(self.motions)}


def invite(
    name: str,
    embedder: Embedder,
    *,
    motions: Motions | None = None,
    seed: int = 0,
    least: int | None = None,
    parties: Sequence[str] = (),
    psi: bool = False,
    sample: Graph | None = None,
) -> tuple[Round, bytes, Message | None]:
    """Make a new round, and its key.

    Parameters
    ----------
    name : str
        For display; a random number distinguishes rounds of the same name.
    embedder : Embedder
        What all parties embed with.
    motions : Motions, optional
        Which motions to undo; by default those that the embedder leaves free.
    seed : int
        The seed that all parties embed with.
    least : int, optional
        The least number of nodes that two parties must share; by default one more than there are dimensions.
    parties : sequence of str
        Who takes part; by default everyone who has the key.
    psi : bool
        Find shared nodes by private set intersection.
    sample : Graph, optional
        Public data with features like those of the parties. The embedder's shared start is made from it: all
        parties then embed in one frame, and alignment only measures how well they agree.

    Returns
    -------
    round : Round
        For everyone.
    key : bytes (32)
        For the parties, and not for the coordinator.
    start : Message or None
        The shared start, for the parties.

    Examples
    --------
    >>> from graphquilt.embedders import SVD
    >>> night, key, start = invite("night-1", SVD(4))
    >>> night.least, night.has_key(key), start is None
    (5, True, True)
    """
    start = None if sample is None else sample_start(embedder, sample, seed)
    if motions is None:
        motions = free_motions(embedder, start=start is not None)
    key, nonce = secrets.token_bytes(KEY_BYTES), secrets.token_hex(16)
    made = Round(
        name=name,
        dim=embedder.dim,
        embedder=json.loads(json.dumps(describe(embedder))),
        motions=motions,
        seed=seed,
        # With no more nodes than dimensions the statistics of a pair could give coordinates away.
        least=embedder.dim + 1 if least is None else least,
        parties=tuple(sorted(parties)),
        psi=psi,
        start=None if start is None else start_checksum(start),
        nonce=nonce,
        key_check=_key_check(key, nonce),
    )
    message = None if start is None else made.message("start", "inviter", {}, start).authenticated(key)
    return made, key, message


def save_key(key: bytes, path: str | PathLike[str], *, name: str) -> None:
    """Write the key of the round ``name`` to a file that only its owner can read."""
    content = {"format": KEY_FORMAT, "version": VERSION, "round_name": name, "key": key.hex()}
    text = sealed_text(content) + "\n"
    write_private(Path(path), lambda file: file.write(text.encode()))


def load_key(path: str | PathLike[str], of_round: Round) -> bytes:
    """Read the key of a round, and refuse one of another round."""
    path = Path(path)
    try:
        content, intact = read_sealed(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    key = content.get("key")
    if content.get("format") != KEY_FORMAT or not intact or not is_checksum(key):
        raise FormatError(f"{path} is not a key of federated alignment, or is damaged; ask for it again.")
    secret = bytes.fromhex(str(key))
    if not of_round.has_key(secret):
        raise InputError(
            f"{path} is the key of another round ('{str(content.get('round_name'))[:64]}'), and not of this one "
            f"('{of_round.name}', {of_round.id[:8]}). Ask for the key that was made with it."
        )
    return secret


def _key_check(key: bytes, nonce: str) -> str:
    return hmac.digest(subkey(key, "check"), nonce.encode(), "sha256").hex()


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _toml(value: object) -> str:
    # The strings and lists of JSON are those of TOML as well.
    return json.dumps(value, ensure_ascii=True)


def _checked(values: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a round in a TOML file, each of its type."""
    motions, parties, embedder = values["motions"], values["parties"], json.loads(str(values["embedder"]))
    texts = [values["name"], values["nonce"], values["key_check"]]
    sizes = [values["dim"], values["seed"], values["least"]]
    start = values.get("start")
    sound = (
        isinstance(motions, dict)
        and isinstance(parties, list)
        and isinstance(embedder, dict)
        and all(isinstance(text, str) for text in texts)
        and all(is_size(size) for size in sizes)
        and isinstance(values["psi"], bool)
        and (start is None or is_checksum(start))
        and values["dim"] != 0
    )
    if not sound:
        raise TypeError(f"a value is not of its type; made by graphquilt {graphquilt.__version__}.")
    names = ("name", "dim", "seed", "least", "psi", "nonce", "key_check")
    own = Motions(**{name: motions[name] for name in _MOTIONS})  # type: ignore[index]
    return {
        **{name: values[name] for name in names},
        "start": start,
        "embedder": embedder,
        "motions": own,
        "parties": tuple(parties),  # type: ignore[arg-type]
    }


def sample_start(embedder: Embedder, sample: Graph, seed: int) -> dict[str, AnyArray]:
    """Return the shared start that an embedder makes of a sample, as if the sample were the only patch of a job.

    Raises
    ------
    InputError
        The embedder has no shared start, or the sample has no features. Without features a start would refer to parts
        of the sample, which the graphs of the parties do not have.
    """
    if sample.features is None or not shares_start(embedder, sample):
        raise InputError(
            f"{type(embedder).__name__} cannot make a shared start of this sample: the embedder must have a shared "
            "start, and the sample must have features like those of the parties. Leave out the sample, and the "
            "alignment finds the motion of each party."
        )
    start = agree(embedder, [(sample, None)], seed).start
    assert start is not None
    return {name: np.asarray(array) for name, array in start.items()}


def start_checksum(arrays: Mapping[str, AnyArray]) -> str:
    """Return the SHA-256 of names, types, shapes and values of the arrays of a start."""
    parts = [
        f"{name} {array.dtype.str} {array.shape} {array_checksum(array)}" for name, array in sorted(arrays.items())
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
