"""The coordinator aligns parties from the statistics of their pairs, and each party applies its transform."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from graphquilt.alignment import Alignment, OverlapStatistics, align_statistics, grade
from graphquilt.arrays import AnyArray, Float64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.federated.align.parties import Message, Party, Round
from graphquilt.federated.messages import is_party_name
from graphquilt.files import is_checksum, is_size

AGREE = 1e-8  # two measurements of one pair differ by less, relative to their size, on whatever machines
MEANING: Mapping[str, str] = {
    "good": "the pairs agree",
    "fair": "the pairs agree roughly, or hardly determine the motions",
    "doubtful": "some pairs contradict the others, or do not determine the motions; look at the errors before using it",
    "bad": "most pairs do not agree; do not use it",
}
ORTHOGONAL = 1e-6  # largest entry of R'R - 1 that a rotation may have


class PairResult(NamedTuple):
    """A pair of parties that ``shared`` nodes compare; the ``error`` left is 0 for a perfect fit, 1 for unrelated."""

    parties: tuple[str, str]
    shared: int
    error: float


@dataclass(frozen=True, eq=False)
class FederatedAlignment:
    """The alignment, in which party k is patch k, and a transform for each; send none if the verdict is bad."""

    parties: tuple[str, ...]
    alignment: Alignment
    pairs: tuple[PairResult, ...]
    transforms: Mapping[str, Message]

    @property
    def verdict(self) -> str:
        """The fit in one word; every text about it follows from this."""
        return grade(self.alignment)

    def summary(self) -> str:
        """Say in plain words how good the fit is, one sentence per line; nobody is told to leave a party out."""
        fit, word = self.alignment, self.verdict
        worst, middle = max(self.pairs, key=lambda pair: pair.error), float(np.median(fit.edge_errors))
        lines = [
            f"{word.capitalize()}: {MEANING[word]}. Error left on a pair (0 perfect, 1 unrelated): {middle:.2g} in the "
            f"median, {worst.error:.2g} at worst ({' and '.join(worst.parties)})."
        ]
        if word != "good":
            lines.append(
                f"Noise may misplace parties by {fit.uncertainty:.0%} of their extent; the spectral gap is "
                f"{fit.spectral_gap:.2g} (0: rotations undetermined). More shared nodes, more pairs, fewer dimensions "
                "and one embedder with the same settings and features for all parties help."
            )
        if len(self.pairs) < len(self.parties):
            lines.append("No cycle of pairs tests the rotations: false coordinates would not show.")
        return "\n".join(lines)


def solve(measurements: Iterable[Message], of_round: Round) -> FederatedAlignment:
    """Align the parties of a round from the statistics of their pairs: no ids and no coordinates are seen.

    There is one measurement for each pair that was compared; if both parties have measured, the two must agree. Parties
    that no pair connects with the others raise a :class:`~graphquilt.errors.DisconnectedError`.
    """
    pairs: dict[tuple[str, str], tuple[Message, OverlapStatistics]] = {}
    offers: dict[str, tuple[str, int]] = {}
    for message in sorted(measurements, key=lambda message: message.sender):
        statistics = _checked(message, of_round)
        for name, offer in message.facts["offers"].items():
            said = offer, message.facts["nodes"][name]
            if offers.setdefault(name, said) != said:
                raise InputError(
                    f"the measurements are of different offers of {name}, of {offers[name][1]} and of {said[1]} nodes. "
                    f"All pairs of {name} must be measured with the same offer: measure the others again."
                )
        first, second = message.facts["parties"]
        other, before = pairs.setdefault((first, second), (message, statistics))
        if not _agree(statistics, before):
            raise InputError(
                f"{first} and {second} were measured twice, by {other.sender} and by {message.sender}, and the two "
                "differ. Each sees the same nodes, so one file is wrong: leave out the pair."
            )
    if not pairs:
        raise InputError("there are no measurements to align; collect at least one from each party.")
    pairs = dict(sorted(pairs.items()))
    names = tuple(sorted({name for pair in pairs for name in pair} | set(of_round.parties)))
    fit = align_statistics(
        limited(OverlapStatistics.concatenate(statistics for _, statistics in pairs.values())),
        np.array([[names.index(a), names.index(b)] for a, b in pairs], dtype=np.int64),
        names=names,
        scale=of_round.scale,
    )
    results = tuple(
        PairResult(pair, int(statistics.counts[0]), float(error))
        for (pair, (_, statistics)), error in zip(pairs.items(), fit.edge_errors, strict=True)
    )
    transforms = {}
    for k, name in enumerate(names):
        own = {pair.parties[pair.parties[0] == name]: pair.error for pair in results if name in pair.parties}
        facts = {"to": name, "offer": offers[name][0], "verdict": grade(fit), "errors": own}
        motion = {"scale": fit.scales[[k]], "rotation": fit.rotations[k], "translation": fit.translations[k]}
        transforms[name] = of_round.message("transform", "coordinator", facts, motion)
    return FederatedAlignment(names, fit, results, transforms)


def limited(statistics: OverlapStatistics) -> OverlapStatistics:
    """Return the statistics with weights such that no pair weighs more than all others; errors stay the same."""
    sizes = statistics.sizes
    others = sizes.sum() - sizes
    share = np.where(others > 0, np.minimum(1.0, others / sizes), 1.0)
    return replace(statistics, sizes=sizes * share, spreads=statistics.spreads * np.sqrt(share)[:, np.newaxis])


def apply(party: Party, transform: Message) -> tuple[AnyArray, Float64Array]:
    """Return the ids of a party's nodes and their coordinates (n, d) in the frame that all parties share."""
    party.round.check_message(transform, "transform")
    if (to := transform.facts.get("to")) != party.name:
        raise InputError(f"this transform is for {str(to)[:64]}, and not for {party.name}.")
    if transform.facts.get("offer") != party.offer_id:
        raise InputError(
            f"this transform was made from another offer of {party.name} than the one in this folder, and does "
            "not fit its embedding. Measure and align again with the offer that is here."
        )
    d, arrays = party.round.dim, transform.arrays
    shapes = {"scale": (1,), "rotation": (d, d), "translation": (d,)}
    sound = {name: array.shape for name, array in arrays.items()} == shapes and all(
        X.dtype.kind == "f" and bool(np.isfinite(X).all()) for X in arrays.values()
    )
    if sound:
        scale, rotation = float(arrays["scale"][0]), arrays["rotation"]
        sound = float(np.abs(rotation.T @ rotation - np.eye(d)).max()) <= ORTHOGONAL
    if not sound or not (scale > 0 if party.round.scale else scale == 1):
        raise FormatError(
            f"this transform is not a motion in {d} dimensions that the round '{party.round.name}' allows: it would "
            "distort the embedding. Ask the coordinator to align again."
        )
    return party.ids, scale * (party.embedding.astype(np.float64) @ rotation) + arrays["translation"]


def _checked(message: Message, of_round: Round) -> OverlapStatistics:
    """Return the statistics of a measurement whose numbers can be what its header says."""
    of_round.check_message(message, "measurement")
    facts: Any = message.facts
    parties, offers, nodes = (facts.get(name) for name in ("parties", "offers", "nodes"))
    sound = isinstance(parties, list) and len(parties) == 2 and all(map(is_party_name, parties))
    sound = sound and parties[0] < parties[1] and message.sender in parties
    for values, kind in ((offers, is_checksum), (nodes, is_size)):
        sound = sound and isinstance(values, dict) and sorted(values) == parties and all(map(kind, values.values()))
    if not sound:
        raise FormatError(f"{message.title} does not say what a measurement says; ask {message.sender} for another.")
    name, counts = f"{message.title}, of {parties[0]} and {parties[1]},", [nodes[party] for party in parties]
    try:
        statistics = OverlapStatistics.from_arrays(message.arrays)
    except FormatError as error:
        raise FormatError(f"{name} is wrong: {error}") from error
    if (statistics.dim, len(statistics)) != (of_round.dim, 1):
        raise FormatError(f"{name} is not of one overlap in {of_round.dim} dimensions; ask {message.sender} again.")
    shared = int(statistics.counts[0])
    of_round.check_shared(parties[0], parties[1], shared)
    if statistics.sizes[0] != shared or shared > min(counts):
        raise FormatError(
            f"{name} is of {shared} nodes that weigh {statistics.sizes[0]:g}. Each node weighs 1, and their offers "
            f"have {counts[0]} and {counts[1]}."
        )
    return statistics


def _agree(one: OverlapStatistics, other: OverlapStatistics) -> bool:
    """Return whether both parties of a pair have measured the same, up to rounding."""
    scale = float(np.abs(one.means).max() + one.spreads.max())
    return (
        np.array_equal(one.counts, other.counts)
        and np.allclose(one.means, other.means, rtol=AGREE, atol=AGREE * scale)
        and np.allclose(one.spreads, other.spreads, rtol=AGREE, atol=0)
        and np.allclose(one.products, other.products, rtol=AGREE, atol=AGREE)
    )
