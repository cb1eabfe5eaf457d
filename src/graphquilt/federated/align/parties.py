"""Party: what one party has at home, and the offer that it makes to the others."""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, FloatArray, Int64Array
from graphquilt.errors import FormatError, InputError, OverlapError
from graphquilt.federated.align import intersection
from graphquilt.federated.align.intersection import Pseudonyms, pseudonyms
from graphquilt.federated.align.rounds import Message, Round
from graphquilt.federated.messages import (
    KEY_BYTES,
    check_party_name,
    load_key,
    new_folder,
    save_key,
    subkey,
    write_private,
)
from graphquilt.federated.nodes import canonical_ids, normal
from graphquilt.files import translate_disk_errors

NOISE = 0.05
ARRAYS = ("ids", "embedding", "rows", "pseudonyms", "coordinates")


@dataclass(frozen=True, eq=False)
class Party:
    """What one party has at home in a round. Only ``offer`` leaves it.

    ``ids`` (n,) and ``embedding`` (n, d) are those of all its nodes. ``rows`` (k,) are the nodes that may be shared, in
    ascending order of their ``pseudonyms`` (k,), and ``coordinates`` (k, d) are theirs, with noise: everything that
    leaves the party is made from these, in whatever step. The offer is a request for private set intersection, of which
    ``psi_key`` is the secret, or the pseudonyms.
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
        with new_folder(Path(folder)) as part:
            self.round.save(part / "round")
            save_key(self.key, part / "key")
            home.save(part / "party")
            self.offer.save(part / "offer")

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Party:
        """Open the folder of a party in one round; what was not written with the key of the round is refused."""
        folder = Path(folder)
        agreed = Round.load(folder / "round")
        key = load_key(folder / "key")
        home, sent = Message.load(folder / "party"), Message.load(folder / "offer")
        agreed.check_message(home, "party")
        agreed.check_message(sent, "offer")
        authentic = home.is_authentic(key) and sent.is_authentic(key)
        if not authentic or (home.facts, home.sender) != (sent.facts, sent.sender):
            raise FormatError(
                f"{folder}: the files 'party' and 'offer' were changed, or are of two offers. Restore them."
            )
        arrays = dict(home.arrays)
        return cls(home.sender, agreed, key, offer=sent, psi_key=arrays.pop("psi_key").tobytes(), **arrays)


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
    deviation of the Gaussian noise on every coordinate that leaves, as a share of the spread (root mean square over
    coordinates) of these nodes. The noise of a node is drawn from the party's own ``secret`` of 32 bytes (see
    :func:`party_secret`), the round and the id: whoever asks again sees the same. Offer only once in a round, because
    two offers of other nodes have noise of another size.
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
    psi_key = intersection.new_key() if to_round.psi else b""
    arrays = {"request": intersection.request(own, psi_key)} if to_round.psi else {"pseudonyms": own}
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


def party_secret(home: Path) -> bytes:
    """Return the secret of the party that lives in the folder ``home``; the first call makes it."""
    path = home / "secret"
    if not path.exists():
        with translate_disk_errors(home.parent):
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
        save_key(secrets.token_bytes(KEY_BYTES), path)
    return load_key(path)


def accept_once(folder: Path, message: Message) -> None:
    """Record a message in the folder of a party, and refuse another of the same kind by the same sender.

    Each offer that is answered tells a partner something about ids, and each reply that is measured tells it, together
    with the coordinator, something about coordinates. The same message may come again.
    """
    path, digest = folder / f"{message.kind}-of-{message.sender}", str(message.authentication).encode()
    if path.exists() and path.read_bytes() != digest:
        raise InputError(
            f"{message.sender} has sent another {message.kind} before, and one is used in a round: each would tell "
            f"{message.sender} more. Take the first, or invite to a new round."
        )
    write_private(path, lambda file: file.write(digest))
