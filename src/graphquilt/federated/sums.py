"""Sums over all parties: what each contributes behind masks, the directions of the total, and the embedding at home."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Float32Array, Float64Array, Int64Array
from graphquilt.embedders import FarField, Propagation
from graphquilt.errors import InputError
from graphquilt.federated.messages import Checksum, Filed, Name, Share, Signature, Size, digest, normal, readable
from graphquilt.federated.round import Member, Round, is_signed, mask, sign, stream
from graphquilt.federated.signal import UNIT_BITS, Network
from graphquilt.graph import Graph

ANSWERS = ({"basis"}, {"blocks", "products", "kept"}, {"directions", "scale"}, {"basis", "directions", "scale"})
MOST_NOISE = 7.0  # standard deviations
TOLERANCE = 1e-3  # by which rounded rows of unit length may miss it
WHO = (
    "Masks hide who sent what is wrong: let every party check its network and its version of graphquilt, and invite to "
    "a new round."
)


@dataclass(frozen=True, eq=False)
class Contribution(Filed):
    """What one party adds in one step, and signs: the sum with its masks, modulo 2^64, as ``values`` (k,).

    ``context`` is the SHA-256 of everything that all parties must agree on in this step.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("contribution",)
    round: Checksum
    step: Size
    party: Name
    context: Checksum
    values: npt.NDArray[np.uint64] = field(repr=False)
    signature: Signature = field(default="", repr=False)

    def check(self) -> None:
        """Refuse values that are not a masked sum."""
        if self.values.dtype != np.uint64 or self.values.ndim != 1:
            raise InputError(f"its values are {self.values.dtype} of shape {self.values.shape}.")

    @property
    def arrays(self) -> dict[str, AnyArray]:
        """What the file holds."""
        return {"values": self.values}

    def signed(self, secret: bytes) -> Contribution:
        """Return the contribution with the signature of the party that has this secret key."""
        return replace(self, signature=sign(secret, self.content))


@dataclass(frozen=True, eq=False)
class Directions(Filed):
    """What the coordinator sends to all parties after a number of steps: the directions, or what the next step needs.

    ``arrays`` are ``directions`` (w, d) and ``scale`` (d,) at the end; before, and with wide features, ``basis`` or
    ``blocks``. The directions keep a ``share`` of the total. The coordinator keeps ``state`` to itself.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("directions",)
    round: Checksum
    step: Size
    arrays: Mapping[str, AnyArray] = field(repr=False)
    share: Share = 0.0
    state: Mapping[str, AnyArray] = field(default_factory=dict, repr=False)

    def check(self) -> None:
        """Refuse arrays that no step makes."""
        sound = set(self.arrays) in ANSWERS and all(array.ndim <= 2 for array in self.arrays.values())
        if not sound or not all(a.dtype.kind == "f" and bool(np.isfinite(a).all()) for a in self.arrays.values()):
            raise InputError("it does not hold sound directions. It may be damaged; ask for it again.")

    @property
    def complete(self) -> bool:
        """Whether parties can embed now."""
        return "directions" in self.arrays

    @property
    def id(self) -> str:
        """The SHA-256 of everything that the parties get."""
        return digest(self.content)

    @property
    def code(self) -> str:
        """What parties can compare: it is the same if all got the same directions."""
        return readable(self.id)

    def check_round(self, agreed: Round) -> None:
        """Refuse directions of another round."""
        if self.round != agreed.id:
            raise InputError(f"these directions are of another round than '{agreed.invitation.name}' ({agreed.code}).")


class State(Directions):
    """The file of what the coordinator keeps between two steps, as its ``arrays``."""

    KINDS: ClassVar[tuple[str, ...]] = ("state",)


@dataclass(frozen=True, eq=False)
class Embedded:
    """The ``embedding`` (k, d) of a party's own nodes, the ``rows`` (k,) of its network, and its certificate.

    The directions keep the ``share`` of the party's own signal, and that of the ``total``; as many directions of its
    own would keep the share ``best``. ``notes`` are those of the round.
    """

    rows: AnyArray
    embedding: Float32Array = field(repr=False)
    share: float
    total: float
    best: float
    notes: Sequence[str] = ()

    @property
    def verdict(self) -> str:
        """What the shares mean."""
        low = (
            "That is low: your network differs from the others, or somebody contributed nonsense, which masks hide. "
            "Compare with what the other parties see, and embed alone if theirs is low too."
        )
        warnings = [*([low] if self.share < 0.75 * self.best else []), *self.notes]
        meaning = " ".join(warnings) or "They suit your network."
        return (
            f"The directions keep {self.share:.0%} of your signal and {self.total:.0%} of the total; directions of "
            f"your own would keep {self.best:.0%}. {meaning}"
        )


def step_context(agreed: Round, received: Directions | None) -> tuple[int, str]:
    """Return the step, and the SHA-256 of everything that parties must agree on in it; masks are made from it."""
    step, directions = (0, None) if received is None else (received.step, received.id)
    return step, digest({"round": agreed.id, "step": step, "directions": directions})


def contribute(network: Network, agreed: Round, member: Member, *, received: Directions | None = None) -> Contribution:
    """Spread the signal in a party's own network, add it up over its own nodes, and mask the sum for the coordinator.

    ``received`` is what the coordinator sent after the step before. The same arguments give the same bits: never send
    two contributions to one step that differ.
    """
    if received is not None:
        received.check_round(agreed)
        if received.complete:
            raise InputError("the round is complete: nothing is left to contribute, and every party can embed.")
    step, context = step_context(agreed, received)
    _, values = plain_sum(network, agreed, member, received=received)
    own = member.card
    if agreed.card(own.party) != own:
        raise InputError(f"the card of {own.party} in this round is not its own: somebody replaced it. End the round.")
    for card in agreed.cards:
        if card.party != own.party:
            shared = mask(member.exchange, card.exchange, bytes.fromhex(context), len(values))
            values = values + shared if own.party < card.party else values - shared
    return Contribution(agreed.id, step, own.party, context, values).signed(member.signing)


def plain_sum(
    network: Network, agreed: Round, member: Member, *, received: Directions | None = None
) -> tuple[str, npt.NDArray[np.uint64]]:
    """Return what a party adds in a step, without masks, but with noise if any: its kind, and the sum modulo 2^64."""
    graph, far, filled = _placed(network, agreed, member)
    embedder, noise = _embedder(agreed, received), agreed.signal.noise
    kept = (replace(embedder, steps=0) if noise else embedder).prepare(graph, 0, far=far)
    ((kind, total),) = embedder.contribute(kept).items()
    bits = agreed.bits(kind)
    if kind == "moment":
        empty = agreed.signal.empty_share(kept, network.own)
        columns, width = _columns(len(total), filled, agreed)
        moment = np.zeros((width, width), dtype=np.int64)
        moment[np.ix_(columns, columns)] = total
        total = np.append(moment[np.triu_indices(width)], np.int64(round(empty * 2.0**UNIT_BITS)))
    if noise:  # from a secret: asked again, a party sends the same
        words = stream(member.exchange, bytes.fromhex(agreed.id) + b"noise", len(total))
        total = total + np.rint(noise * 2.0**UNIT_BITS * normal(words)).astype(np.int64)
    shift = UNIT_BITS - bits
    whole = total.ravel() if shift == 0 else (total.ravel() + (1 << (shift - 1))) >> shift
    return kind, whole.astype(np.int64).view(np.uint64)


def combine(agreed: Round, contributions: Iterable[Contribution], *, before: Directions | None = None) -> Directions:
    """Add up what all parties contributed to a step, check the total, and find its directions.

    ``before`` is what this function returned in the step before, with its ``state``. A contribution that is missing,
    twice, of another round or step, or not signed is refused, and so is a total that cannot be one.
    """
    step = 0 if before is None else before.step
    messages = _collected(agreed, contributions, step)
    embedder = _embedder(agreed, before, state=True)
    basis, width = embedder.basis(None), agreed.signal.features
    kind = "product" if agreed.signal.is_wide and basis is None and width > embedder.basis_width else "moment"
    if kind == "product":
        size = width * (embedder.basis_width if before is None else _block(before.state).shape[1])
    else:
        width = (width if basis is None else basis.shape[1]) + agreed.signal.buckets
        size = width * (width + 1) // 2 + 1
    total = np.zeros(size, dtype=np.uint64)
    for message in messages:
        if len(message.values) != size:
            raise InputError(
                f"the contribution of {message.party} has {len(message.values)} numbers, and a signal of {width} "
                f"columns makes {size}: it is of another signal, or damaged. Ask {message.party} for it again."
            )
        total += message.values
    real = total.view(np.int64) / 2.0 ** agreed.bits(kind)
    if kind == "moment":
        M = np.zeros((width, width))
        M[np.triu_indices(width)] = real[:-1]
        M += np.triu(M, 1).T
        _check_moment(M, float(real[-1]), agreed)
    else:
        M = real.reshape(width, -1)
        _check_product(M, before, agreed)
    return _answer(agreed, embedder.combine({kind: M * 2.0**UNIT_BITS}, 0), step + 1)


def embed(network: Network, agreed: Round, member: Member, directions: Directions) -> Embedded:
    """Embed the own nodes of a party by the directions of all, and measure what they keep of its signal."""
    directions.check_round(agreed)
    if not directions.complete:
        raise InputError(f"these are no directions yet: step {directions.step} needs another contribution.")
    graph, far, filled = _placed(network, agreed, member)
    embedder = _embedder(agreed, directions)
    before = _embedder(agreed, replace(directions, arrays={k: v for k, v in directions.arrays.items() if k == "basis"}))
    kept = before.prepare(graph, 0, far=far)
    own = before.combine(before.contribute(kept), 0)
    assert embedder.start is not None
    V, (columns, width) = embedder.start["directions"], _columns(kept["rows"].shape[1], filled, agreed)
    if len(V) != width:
        raise InputError(f"these directions are of {len(V)} columns, and the signal of the round has {width}.")
    embedder = replace(embedder, start={**embedder.start, "directions": V[columns]})
    Z = np.asarray(embedder.fit(graph, 0, far=far, kept=kept).embedding)[network.own]
    scale = np.asarray(directions.arrays["scale"], dtype=np.float64)
    unscaled = np.square(Z / np.where(scale > 0, scale, 1)).sum()
    rows = max(network.n_own - agreed.signal.empty_share(kept, network.own), 1e-9)
    best = float(own.start["share"]) if own.start is not None else 0.0
    return Embedded(np.flatnonzero(network.own), Z, float(unscaled / rows), directions.share, best, agreed.notes)


def _placed(network: Network, agreed: Round, member: Member) -> tuple[Graph, FarField, Int64Array]:
    """Return the graph that is spread, the column of each node among the filled buckets, and the numbers of these."""
    card, invitation = member.card, agreed.invitation
    invitation.check_key(member.key)
    invitation.check_names(network.names, member.key)
    if network.counts(invitation.buckets) != (card.nodes, card.border):
        raise InputError(
            f"{card.party} joined with {card.nodes} nodes, {card.border} at the border, and this network has other "
            "numbers of them. Contribute the network that you joined with, or join a new round."
        )
    graph, far = agreed.signal.place(network, invitation.bucket_key(member.key))
    if not agreed.signal.buckets:
        return graph, far, np.empty(0, dtype=np.int64)
    column = far.nodes["column"]
    filled = np.union1d(column[column >= 0], [0])
    places = np.where(column < 0, -1, np.searchsorted(filled, column)).astype(np.int32)
    shared = {**far.shared, "gain": far.shared["gain"][filled]}
    return graph, replace(far, nodes={**far.nodes, "column": places}, shared=shared), filled


def _columns(width: int, filled: Int64Array, agreed: Round) -> tuple[Int64Array, int]:
    """Return which columns of the signal rows of this ``width`` have, and the width of the signal."""
    features = width - len(filled)
    return np.append(np.arange(features), features + filled), features + agreed.signal.buckets


def _embedder(agreed: Round, received: Directions | None, *, state: bool = False) -> Propagation:
    signal = agreed.signal
    made = signal.embedder(agreed.invitation.dim)
    arrays: dict[str, AnyArray] = {} if received is None else dict(received.state if state else received.arrays)
    if not arrays:
        return made
    arrays = arrays if "blocks" in arrays else {**(made.start or {}), **arrays}
    for name in ("basis", "blocks", "products"):
        shape = arrays[name].shape if name in arrays else (signal.features, 0)
        if len(shape) != 2 or shape[0] != signal.features:
            raise InputError(f"the {name} have shape {shape}, and the round has {signal.features} features.")
    return replace(made, start=arrays)


def _block(state: Mapping[str, AnyArray]) -> AnyArray:
    return state["blocks"][:, state["products"].shape[1] :]


def _collected(agreed: Round, contributions: Iterable[Contribution], step: int) -> list[Contribution]:
    by_party: dict[str, Contribution] = {}
    for message in contributions:
        whose = f"the contribution of {message.party}"
        if message.round != agreed.id or message.party not in agreed.invitation.parties:
            raise InputError(f"{whose} is of another round than '{agreed.invitation.name}' ({agreed.code}).")
        if message.step != step:
            raise InputError(f"{whose} is for step {message.step}, and this is step {step}: ask for a new one.")
        if not is_signed(agreed.card(message.party).signing, message.content, message.signature):
            raise InputError(f"{whose} is not signed by its key, or was changed on its way: ask for it again.")
        if message.party in by_party:
            raise InputError(f"{message.party} contributed twice to step {step}; each does once.")
        by_party[message.party] = message
    missing = [party for party in agreed.invitation.parties if party not in by_party]
    if missing:
        raise InputError(
            f"the contributions of {', '.join(missing)} are missing. Without them the masks do not cancel, and nothing "
            "can be computed. If a party has dropped out, the round has ended: invite the others to a new one."
        )
    if len({message.context for message in by_party.values()}) > 1:
        raise InputError(f"the parties did not get the same directions or cards, so their masks do not cancel. {WHO}")
    return [by_party[party] for party in agreed.invitation.parties]


def _check_moment(M: Float64Array, empty: float, agreed: Round) -> None:
    from scipy.linalg import LinAlgError, cholesky

    n, trace, noise = agreed.n_nodes, float(np.trace(M)), MOST_NOISE * agreed.signal.noise * len(agreed.cards) ** 0.5
    largest, slack = float(np.abs(M).max(initial=0)), TOLERANCE * n + noise * (len(M) + 1) ** 0.5
    if largest > n * (1 + TOLERANCE) + noise or not abs(trace + empty - n) <= slack or empty < -slack:
        raise InputError(
            f"the total is not one of {n} nodes: its trace is {trace + empty:.6g}, its largest entry {largest:.6g}. "
            f"A contribution was scaled or damaged, or masks did not cancel. {WHO}"
        )
    slack = 1e-9 * n + len(M) * len(agreed.cards) * 2.0 ** -agreed.bits("moment") + noise * len(M) ** 0.5
    try:
        cholesky(M + slack * np.eye(len(M)), lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError as error:
        raise InputError(f"the total has a negative eigenvalue, which no sum of squares has. {WHO}") from error


def _check_product(P: Float64Array, before: Directions | None, agreed: Round) -> None:
    n, largest = agreed.n_nodes, float(np.abs(P).max(initial=0))
    V = None if before is None else _block(before.state).astype(np.float64)
    bound = 2.0 * n * (1 + TOLERANCE) * (8.0 + np.sqrt(len(P)) if V is None else 1.0)
    if V is not None:
        T = V.T @ P
        skew = float(np.abs(T - T.T).max(initial=0))
        if skew > TOLERANCE * max(float(np.abs(T).max(initial=0)), 1.0) or np.linalg.eigvalsh(T)[0] < -TOLERANCE * n:
            raise InputError(f"the total is not a symmetric sum of squares: it is skew by {skew:.3g}. {WHO}")
    if not largest <= bound:
        raise InputError(f"the total has an entry of {largest:.3g}, and {n} nodes make at most {bound:.3g}. {WHO}")


def _answer(agreed: Round, after: Propagation, step: int) -> Directions:
    start = {name: np.asarray(array) for name, array in (after.start or {}).items()}
    if after.complete:
        share = min(float(start.pop("share")), 1.0)
        names = start if agreed.signal.is_wide else ("directions", "scale")
        return Directions(agreed.id, step, {name: start[name] for name in names}, share)
    if "basis" in start:
        return Directions(agreed.id, step, start, state=start)
    shown = {"blocks": _block(start), "products": start["products"][:, :0], "kept": np.zeros(0)}  # no products
    return Directions(agreed.id, step, shown, state=start)
