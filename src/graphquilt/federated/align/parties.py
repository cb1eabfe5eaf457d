"""Party: what one party has at home, and the offer that it makes to the others."""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from graphquilt.arrays import AnyArray, Float64Array, FloatArray, Int64Array
from graphquilt.errors import FormatError, InputError, OverlapError
from graphquilt.federated.align import intersection
from graphquilt.federated.align.intersection import Pseudonyms, checked_pseudonyms, pseudonyms
from graphquilt.federated.align.rounds import KEY_BYTES, Round, load_key, save_key
from graphquilt.federated.messages import Message, check_party_name, is_share, subkey, write_private
from graphquilt.federated.nodes import canonical_ids
from graphquilt.files import is_size, sync_folder, translate_disk_errors

FILES = ("round.json", "key", "party", "offer")
NOISE = 0.05


@dataclass(frozen=True, eq=False)
class Party:
    """What one party has at home in a round. Only ``offer`` leaves it.

    Attributes
    ----------
    name : str
    round : Round
    key : bytes
        The parties' key.
    ids : array (n,)
        The ids of all nodes of the party.
    embedding : float array (n, d)
    rows : int array (k,)
        The nodes that may be shared, in ascending order of their pseudonyms.
    pseudonyms : bytes array (k,)
        Those of ``rows``, ascending.
    coordinates : float array (k, d)
        Those of ``rows``, with noise. Everything that leaves the party is made from these, in whatever step.
    offer : Message
        A request for private set intersection, or the pseudonyms; for the other parties.
    psi_key : bytes
        The secret of the request, or empty.
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
    def noise(self) -> float:
        """The noise on all coordinates that leave, as a share of their spread."""
        return float(self.offer.facts["noise"])

    @property
    def offer_id(self) -> str:
        """A random number that tells this offer from others of the same party."""
        return str(self.offer.facts["offer"])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a new folder that only its owner can open: all of it, or nothing.

        Raises
        ------
        InputError
            The folder exists and is not empty: an offer that was sent must not be replaced by another.
        """
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} exists and is not empty. Name another folder: what was sent must stay valid.")
        part = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}.part")
        try:
            with translate_disk_errors(folder.parent):
                folder.parent.mkdir(parents=True, exist_ok=True)
                part.mkdir(mode=0o700)
                self.round.save(part / "round.json")
                save_key(self.key, part / "key")
                self._home().save(part / "party")
                self.offer.save(part / "offer")
                os.replace(part, folder)
                sync_folder(folder.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _home(self) -> Message:
        names = ("ids", "embedding", "rows", "pseudonyms", "coordinates")
        arrays = {name: getattr(self, name) for name in names}
        arrays["psi_key"] = np.frombuffer(self.psi_key, dtype=np.uint8)
        return self.round.message("party", self.name, {"offer": self.offer_id}, arrays).authenticated(self.key)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Party:
        """Open the folder of a party in one round."""
        folder = Path(folder)
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise InputError(
                f"{folder} is not the folder of a party in a round: it lacks {', '.join(missing)}. graphquilt federate "
                "align offer makes one."
            )
        the_round = Round.load(folder / "round.json")
        key = load_key(folder / "key", the_round)
        home, sent = Message.load(folder / "party"), Message.load(folder / "offer")
        the_round.check_message(home, ["party"])
        the_round.check_message(sent, ["offer"])
        check_offer_facts(sent)
        if not (home.is_authentic(key) and sent.is_authentic(key)):
            raise FormatError(f"{folder}: the file 'party' or 'offer' was changed. Restore it.")
        if home.facts.get("offer") != sent.facts["offer"] or home.sender != sent.sender:
            raise FormatError(f"{folder} has an offer of another party or another time. Restore it.")
        arrays = dict(home.arrays)
        _check_home(arrays, the_round.dim, folder)
        checked_pseudonyms(arrays["pseudonyms"], home.sender)
        psi_key = arrays.pop("psi_key").tobytes()
        return cls(home.sender, the_round, key, offer=sent, psi_key=psi_key, **arrays)


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

    Parameters
    ----------
    ids : array (n,)
        The ids of the party's nodes, integers or text, as the other parties write them.
    coordinates : float array (n, d)
        One row per node, from any embedder.
    to_round : Round
    key : bytes
        The parties' key.
    party : str
        The name of the party.
    secret : bytes (32)
        The party's own, which it keeps for all rounds; see :func:`party_secret`. The noise of a node is drawn from the
        secret, the round and the id of the node: whoever asks again sees the same. Offer only once in a round, because
        two offers of other nodes have noise of another size.
    share : int array (k,), optional
        The rows of the nodes that may be shared; by default all.
    noise : float
        The standard deviation of the Gaussian noise on every coordinate that leaves, as a share of the spread (root
        mean square over coordinates) of the nodes that may be shared.

    Returns
    -------
    Party
        What stays at home, with the ``offer`` for the others.
    """
    check_party_name(party)
    if not to_round.has_key(key):
        raise InputError(f"this is not the key of the round '{to_round.name}' ({to_round.id[:8]}).")
    if to_round.parties and party not in to_round.parties:
        raise InputError(f"{party} takes no part in the round '{to_round.name}': {', '.join(to_round.parties)} do.")
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
    facts = {"offer": secrets.token_hex(16), "nodes": len(own), "noise": float(noise)}
    message = to_round.message("offer", party, facts, arrays).authenticated(key)
    names = names.astype(np.str_) if names.dtype.hasobject else names
    return Party(party, to_round, key, names, X, rows, own, shared, message, psi_key)


def noisy(coordinates: FloatArray, ids: list[str], noise: float, key: bytes) -> FloatArray:
    """Return coordinates (k, d), of the same type, with Gaussian noise that a key and the ids determine."""
    if noise == 0:
        return coordinates
    offsets = coordinates - coordinates.mean(axis=0, dtype=np.float64)
    size = noise * math.sqrt(float(np.mean(np.square(offsets))))
    return (coordinates + size * _normal(ids, coordinates.shape[1], key)).astype(coordinates.dtype)


def _normal(ids: list[str], dim: int, key: bytes) -> Float64Array:
    """Return standard normal numbers (k, dim), each row from the key and one id."""
    digests = (hashlib.shake_256(hmac.digest(key, text.encode(), "sha256")).digest(8 * dim) for text in ids)
    words = np.frombuffer(b"".join(digests), dtype="<u8").reshape(len(ids), dim)
    return np.asarray(ndtri(((words >> np.uint64(11)) + 0.5) * 2.0**-53), dtype=np.float64)


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


def check_offer_facts(message: Message) -> None:
    """Refuse an offer, or an answer or reply that repeats one, whose header lacks what an offer says of itself."""
    facts = message.facts
    if not (isinstance(facts.get("offer"), str) and is_size(facts.get("nodes")) and is_share(facts.get("noise"))):
        raise FormatError(f"the {message.kind} of {message.sender} does not say what it should; ask for it again.")


def _check_home(arrays: Any, dim: int, folder: Path) -> None:
    """Refuse arrays of a party that do not belong together."""
    names = {"ids", "embedding", "rows", "pseudonyms", "coordinates", "psi_key"}
    sound = set(arrays) == names
    if sound:
        ids, X, rows, shared = (arrays[name] for name in ("ids", "embedding", "rows", "coordinates"))
        sound = (
            ids.ndim == 1
            and X.shape == (len(ids), dim)
            and X.dtype.kind == "f"
            and rows.dtype == np.int64
            and rows.shape == arrays["pseudonyms"].shape
            and rows.ndim == 1
            and (rows.size == 0 or 0 <= rows.min() <= rows.max() < len(ids))
            and shared.shape == (len(rows), dim)
            and shared.dtype == X.dtype
            and bool(np.isfinite(X).all() and np.isfinite(shared).all())
            and arrays["psi_key"].dtype == np.uint8
        )
    if not sound:
        raise FormatError(f"the arrays in {folder} do not belong together. Restore the folder.")
