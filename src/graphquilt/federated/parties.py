"""Party: what one party has at home, and the offer that it makes to the others."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graphquilt.arrays import AnyArray, FloatArray, Int64Array
from graphquilt.embedders import Embedder, SharedStart, checked_fit, with_start
from graphquilt.errors import FormatError, InputError, OverlapError
from graphquilt.federated import intersection
from graphquilt.federated.intersection import Pseudonyms, checked_pseudonyms, pseudonyms
from graphquilt.federated.messages import Message, check_party_name, is_share
from graphquilt.federated.rounds import Round, load_key, save_key, start_checksum
from graphquilt.federated.sharing import NoiseCost, Sharing, noise_cost, noisy
from graphquilt.files import is_size, sync_folder, translate_disk_errors
from graphquilt.graph import Graph
from graphquilt.kernels import one_thread
from graphquilt.progress import ProgressCallback

FILES = ("round.toml", "key", "party", "offer")


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
        The ids of all nodes of the party's network.
    embedding : float array (n, d)
    rows : int array (k,)
        The nodes that may be shared, in ascending order of their pseudonyms.
    pseudonyms : bytes array (k,)
        Those of ``rows``, ascending.
    coordinates : float array (k, d)
        Those of ``rows``, with noise. Everything that leaves the party is made from these, in whatever step.
    offer : Message
        The pseudonyms, or a request for private set intersection; for the other parties.
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
    def cap(self) -> int | None:
        """The most nodes whose coordinates one partner gets."""
        cap: int | None = self.offer.facts["cap"]
        return cap

    @property
    def noise(self) -> float:
        """The noise on all coordinates that leave, as a share of their spread."""
        return float(self.offer.facts["noise"])

    @property
    def offer_id(self) -> str:
        """A random number that tells this offer from others of the same party."""
        return str(self.offer.facts["offer"])

    def noise_cost(self) -> NoiseCost | None:
        """Measure the cost of the noise; None without noise."""
        if self.noise == 0:
            return None
        n_used = min(len(self.rows), self.cap or len(self.rows))
        return noise_cost(self.embedding[self.rows], self.coordinates, self.round.motions, n_used)

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
                self.round.save(part / "round.toml")
                save_key(self.key, part / "key", name=self.round.name)
                self._home().save(part / "party")
                self.offer.save(part / "offer")
                os.replace(part, folder)
                sync_folder(folder.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _home(self) -> Message:
        arrays = {
            "ids": self.ids,
            "embedding": self.embedding,
            "rows": self.rows,
            "pseudonyms": self.pseudonyms,
            "coordinates": self.coordinates,
            "psi_key": np.frombuffer(self.psi_key, dtype=np.uint8),
        }
        return self.round.message("party", self.name, {"offer": self.offer_id}, arrays).authenticated(self.key)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Party:
        """Open the folder of a party."""
        folder = Path(folder)
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise InputError(
                f"{folder} is not the folder of a party: it lacks {', '.join(missing)}. graphquilt federate offer "
                "makes one."
            )
        the_round = Round.load(folder / "round.toml")
        key = load_key(folder / "key", the_round)
        home, sent = Message.load(folder / "party"), Message.load(folder / "offer")
        the_round.check_message(home, ["party"])
        the_round.check_message(sent, ["offer"])
        check_offer_facts(sent)
        for message in (home, sent):
            if not message.is_authentic(key):
                raise FormatError(f"{folder}: the file '{message.kind}' was changed. Restore it, or offer again.")
        arrays = home.arrays
        _check_home(arrays, the_round.dim, folder)
        if home.facts.get("offer") != sent.facts["offer"] or home.sender != sent.sender:
            raise FormatError(f"{folder} has an offer of another party or another time. Restore it, or offer again.")
        return cls(
            home.sender,
            the_round,
            key,
            arrays["ids"],
            arrays["embedding"],
            arrays["rows"],
            checked_pseudonyms(arrays["pseudonyms"], home.sender),
            arrays["coordinates"],
            sent,
            arrays["psi_key"].tobytes(),
        )


def offer(
    graph: Graph,
    to_round: Round,
    key: bytes,
    *,
    party: str,
    sharing: Sharing = Sharing(),
    embedder: Embedder | None = None,
    start: Message | None = None,
    progress: ProgressCallback | None = None,
) -> Party:
    """Embed a party's network, and choose what it may share.

    Parameters
    ----------
    graph : Graph
        The party's own network; ``node_ids`` are the ids that parties have in common.
    to_round : Round
    key : bytes
        The parties' key.
    party : str
        The name of the party.
    sharing : Sharing
    embedder : Embedder, optional
        That of the round, if graphquilt cannot recreate it.
    start : Message, optional
        The shared start, if the round has one.
    progress : callable, optional

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
    rows = np.arange(graph.n_nodes) if sharing.nodes is None else np.unique(np.asarray(sharing.nodes, dtype=np.int64))
    n_used = min(len(rows), sharing.cap or len(rows))
    if n_used < to_round.least:
        raise OverlapError(
            f"{party} would share at most {n_used} nodes with a partner, and the round '{to_round.name}' needs at "
            f"least {to_round.least}. Share more nodes, raise the cap, or agree on a round with fewer dimensions."
        )
    model = _started(to_round.made_embedder(embedder), to_round, start)
    ids = np.arange(graph.n_nodes) if graph.node_ids is None else np.asarray(graph.node_ids)
    own = pseudonyms(ids[rows], key, to_round.id)
    with one_thread():
        X = np.ascontiguousarray(checked_fit(model, graph, to_round.seed, where=party, progress=progress).embedding)
    order = np.argsort(own)
    rows, own = rows[order], own[order]
    # The generator is seeded by the system: nobody can compute the noise and take it away.
    coordinates = noisy(X[rows], sharing.noise, np.random.default_rng())
    psi_key = intersection.new_key() if to_round.psi else b""
    arrays = {"request": intersection.request(own, psi_key)} if to_round.psi else {"pseudonyms": own}
    facts = {
        "offer": secrets.token_hex(16),
        "nodes": len(own),
        "cap": sharing.cap,
        "noise": float(sharing.noise),
    }
    message = to_round.message("offer", party, facts, arrays).authenticated(key)
    ids = ids.astype(np.str_) if ids.dtype.hasobject else ids
    return Party(party, to_round, key, ids, X, rows, own, coordinates, message, psi_key)


def _started(embedder: Embedder, to_round: Round, start: Message | None) -> Embedder:
    if (start is None) != (to_round.start is None):
        word = "needs a" if start is None else "has no"
        remedy = "Pass the file that was made with it (--start)." if start is None else "Leave it out."
        raise InputError(f"the round '{to_round.name}' {word} shared start. {remedy}")
    if start is None:
        return embedder
    to_round.check_message(start, ["start"])
    if start_checksum(start.arrays) != to_round.start:
        raise InputError(f"this is not the shared start of the round '{to_round.name}'; ask for it again.")
    assert isinstance(embedder, SharedStart)
    return with_start(embedder, start.arrays)


def check_offer_facts(message: Message) -> None:
    """Refuse an offer, or an answer or reply that repeats one, whose header lacks what an offer says of itself."""
    facts = message.facts
    cap = facts.get("cap", False)
    sound = (
        isinstance(facts.get("offer"), str)
        and is_size(facts.get("nodes"))
        and is_share(facts.get("noise"))
        and (cap is None or (is_size(cap) and cap > 0))
    )
    if not sound:
        raise FormatError(f"the {message.kind} of {message.sender} does not say what it should; ask for it again.")


def _check_home(arrays: Any, dim: int, folder: Path) -> None:
    """Refuse arrays of a party that do not belong together."""
    try:
        ids, X, rows, own, shared = (arrays[name] for name in ("ids", "embedding", "rows", "pseudonyms", "coordinates"))
        sound = (
            ids.ndim == 1
            and X.shape == (len(ids), dim)
            and X.dtype.kind == "f"
            and rows.dtype == np.int64
            and rows.shape == own.shape
            and rows.ndim == 1
            and (rows.size == 0 or 0 <= rows.min() <= rows.max() < len(ids))
            and shared.shape == (len(rows), dim)
            and shared.dtype == X.dtype
            and bool(np.isfinite(X).all() and np.isfinite(shared).all())
            and arrays["psi_key"].dtype == np.uint8
        )
    except KeyError:
        sound = False
    if not sound:
        raise FormatError(f"the arrays in {folder} do not belong together. Restore the folder, or offer again.")
