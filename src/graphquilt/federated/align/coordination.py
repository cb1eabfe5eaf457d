"""The coordinator aligns parties from the statistics of their pairs, and each party applies its transform."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphquilt.alignment import Alignment, OverlapStatistics, align_statistics, culprits, grade
from graphquilt.arrays import AnyArray, Float64Array
from graphquilt.errors import FormatError, InputError, counted
from graphquilt.federated.align.parties import Party
from graphquilt.federated.align.rounds import Round, check_shared
from graphquilt.federated.messages import Checks, Message, is_party_name, is_share
from graphquilt.files import is_size

COORDINATOR = "coordinator"
AGREE = 1e-8  # two measurements of one pair differ by less, relative to their size, on whatever machines
UNRELATED = 0.9  # an edge error from here on means that the coordinates of two parties have nothing in common
FEWEST = 4  # parties among whom a majority can tell who contradicts the others
MEANING: Mapping[str, str] = {
    "good": "the pairs agree",
    "fair": "the pairs agree roughly, or hardly determine the motions",
    "doubtful": "some pairs contradict the others, or do not determine the motions; look at the errors before using it",
    "bad": "most pairs do not agree; do not use it",
    "unknown": "nothing was compared",
}
ORTHOGONAL = 1e-6  # largest entry of R'R - 1 that a rotation may have


@dataclass(frozen=True)
class PairResult:
    """What an alignment knows of one pair of parties, compared on ``shared`` nodes.

    ``error`` is what is left after alignment: 0 is a perfect fit, 1 is no better than unrelated. It would be
    ``expected`` if there were nothing but the noise that both parties say they have added. ``trusted`` says whether
    robust alignment trusts the pair.
    """

    parties: tuple[str, str]
    shared: int
    error: float
    expected: float
    trusted: bool


@dataclass(frozen=True, eq=False)
class FederatedAlignment:
    """The alignment of all parties, and one transform for each.

    Party k is patch k of the ``alignment``. Send no ``transforms`` if the verdict is bad. Among at least four parties,
    ``contradicting`` are those most of whose pairs contradict the other pairs, which fit each other.
    """

    parties: tuple[str, ...]
    alignment: Alignment
    pairs: tuple[PairResult, ...]
    transforms: Mapping[str, Message]
    contradicting: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """The fit in one word; every text about it follows from this."""
        return grade(self.alignment)

    def summary(self) -> str:
        """Say in plain words how good the fit is, one sentence per line."""
        fit, word = self.alignment, self.verdict
        worst = max(self.pairs, key=lambda pair: pair.error)
        middle = float(np.median(fit.edge_errors))
        lines = [
            f"{len(self.parties)} parties in {counted(fit.dim, 'dimension')}, compared in "
            f"{counted(len(self.pairs), 'pair')}.",
            f"{word.capitalize()}: {MEANING[word]}. Error left on a pair (0 perfect, 1 unrelated): {middle:.2g} in the "
            f"median, {worst.error:.2g} at worst ({' and '.join(worst.parties)}).",
        ]
        if word != "good":
            lines.append(
                f"Noise may misplace parties by {fit.uncertainty:.0%} of their extent; the spectral gap is "
                f"{fit.spectral_gap:.2g} (0: rotations undetermined). More shared nodes, more pairs, fewer dimensions "
                "and one embedder with the same settings and features for all parties help."
            )
        if len(self.pairs) < len(self.parties):
            lines.append("No cycle of pairs tests the rotations: false coordinates would not show.")
        for name in self.contradicting:
            lines.append(
                f"Most pairs of {name} contradict the others. A wrong file, another embedder, a network unlike the "
                f"others, false coordinates or false measurements by partners of {name} look like this: ask them."
            )
        return "\n".join(lines)


def solve(measurements: Iterable[Message], of_round: Round, *, robust: bool = False) -> FederatedAlignment:
    """Align the parties of a round from the statistics of their pairs: no ids and no coordinates are seen.

    There is one measurement for each pair that was compared; if both parties have measured, the two must agree.
    ``robust`` doubts pairs that contradict the others, and needs at least four parties.

    Raises
    ------
    DisconnectedError
        Some parties are not connected with the others by any pair; the message names them.
    InputError
        A measurement of another round, measurements of several offers of one party, or two of one pair that differ.
    """
    checked = [(message, _checked(message, of_round)) for message in measurements]
    if not checked:
        raise InputError("there are no measurements to align; collect at least one from each party.")
    offers = _one_offer_each([message for message, _ in checked])
    pairs = _one_for_each_pair(checked)
    names = tuple(sorted({name for pair in pairs for name in pair} | set(of_round.parties)))
    numbers = {name: k for k, name in enumerate(names)}
    edges = np.array([[numbers[a], numbers[b]] for a, b in pairs], dtype=np.int64)
    if robust and len(names) < FEWEST:
        raise InputError(
            f"robust alignment needs at least {FEWEST} parties, and these are {len(names)}: nobody can tell which "
            "of them contradicts the others."
        )
    fit = align_statistics(
        limited(OverlapStatistics.concatenate(statistics for _, statistics in pairs.values())),
        edges,
        n_patches=len(names),
        names=names,
        **vars(of_round.motions),
        robust=robust,
    )
    results = tuple(
        _result(message, int(statistics.counts[0]), float(error), bool(trust >= 1))
        for (message, statistics), error, trust in zip(pairs.values(), fit.edge_errors, fit.edge_trust, strict=True)
    )
    transforms = {
        name: _transform(of_round, k, name, offer=offers[name], fit=fit, results=results) for name, k in numbers.items()
    }
    return FederatedAlignment(names, fit, results, transforms, _contradicting(fit, names))


def limited(statistics: OverlapStatistics) -> OverlapStatistics:
    """Return the statistics with weights such that no pair weighs more than all others together.

    A pair that weighs c times as much as its nodes has c-fold sizes and squared spreads, and the same error.
    """
    sizes = statistics.sizes
    others = sizes.sum() - sizes
    share = np.where(others > 0, np.minimum(1.0, others / sizes), 1.0)
    return replace(statistics, sizes=sizes * share, spreads=statistics.spreads * np.sqrt(share)[:, np.newaxis])


def _contradicting(fit: Alignment, names: Sequence[str]) -> tuple[str, ...]:
    """Return the parties most of whose pairs contradict the others; nobody if the others do not fit each other."""
    if len(names) < FEWEST:
        return ()
    bad = (fit.edge_trust < 1) | (fit.edge_errors >= UNRELATED)
    blamed = [k for k, _ in culprits(fit.edges, bad)[0]]
    others = fit.edge_errors[~np.isin(fit.edges, blamed).any(axis=1)]
    return tuple(names[k] for k in blamed) if len(others) and np.median(others) < UNRELATED else ()


def apply(party: Party, transform: Message) -> tuple[AnyArray, Float64Array]:
    """Return the ids of a party's nodes and their coordinates (n, d) in the frame that all parties share.

    A transform of another round, for another party, from another offer, or with a motion that the round does not allow
    is refused.
    """
    party.round.check_message(transform, ["transform"])
    to = transform.facts.get("to")
    if to != party.name:
        raise InputError(f"this transform is for {str(to)[:64]}, and not for {party.name}.")
    if transform.facts.get("offer") != party.offer_id:
        raise InputError(
            f"this transform was made from another offer of {party.name} than the one in this folder, and does "
            "not fit its embedding. Measure and align again with the offer that is here."
        )
    scale, rotation, translation = _motion(transform, party.round)
    moved = scale * (party.embedding.astype(np.float64) @ rotation) + translation
    return party.ids, moved


def _checked(message: Message, of_round: Round) -> OverlapStatistics:
    """Return the statistics of a measurement whose numbers can be what its header says."""
    of_round.check_message(message, ["measurement"])
    name, facts = f"the measurement of {message.sender}", message.facts
    if not _says_enough(message):
        raise FormatError(f"{name} does not say what a measurement says; ask {message.sender} to measure again.")
    first, second = facts["parties"]
    pair, nodes = f"{first} and {second}", facts["nodes"]
    try:
        statistics = OverlapStatistics.from_arrays(message.arrays)
    except FormatError as error:
        raise FormatError(f"{name}, of {pair}, is wrong: {error}") from error
    if statistics.dim != of_round.dim or len(statistics) != 1:
        raise FormatError(
            f"{name}, of {pair}, has {len(statistics)} overlaps in {statistics.dim} dimensions, and the round has one "
            f"in {of_round.dim}; ask {message.sender} to measure again."
        )
    shared = int(statistics.counts[0])
    check_shared(of_round, (first, second), shared)
    if statistics.sizes[0] != shared or shared > min(nodes.values()):
        raise FormatError(
            f"{name}, of {pair}, says that they share {shared} nodes of total weight {statistics.sizes[0]:g}. Each "
            f"node weighs 1, and their offers have {nodes[first]} and {nodes[second]}."
        )
    return statistics


def _says_enough(message: Message) -> bool:
    """Return whether the header of a measurement says which pair it is of, and how the pair was measured."""
    parties = message.facts.get("parties")
    if not isinstance(parties, list) or len(parties) != 2 or not all(map(is_party_name, parties)):
        return False
    of_each: Checks = {"offers": lambda value: isinstance(value, str), "nodes": is_size, "noise": is_share}
    values: dict[str, Any] = {name: message.facts.get(name) for name in of_each}
    return (
        parties[0] < parties[1]
        and message.sender in parties
        and all(isinstance(value, dict) and set(value) == set(parties) for value in values.values())
        and all(all(map(check, values[name].values())) for name, check in of_each.items())
    )


def _one_offer_each(measurements: Sequence[Message]) -> dict[str, str]:
    """Return the offer of each party, and refuse measurements that tell different things about it."""
    offers: dict[str, tuple[str, int]] = {}
    for one in measurements:
        for name, offer in one.facts["offers"].items():
            nodes = one.facts["nodes"][name]
            first, count = offers.setdefault(name, (offer, nodes))
            if (first, count) != (offer, nodes):
                raise InputError(
                    f"the measurements are of different offers of {name}, of {count} and of {nodes} nodes. All pairs "
                    f"of {name} must be measured with the same offer: measure the others again."
                )
    return {name: offer for name, (offer, _) in offers.items()}


def _one_for_each_pair(
    checked: Sequence[tuple[Message, OverlapStatistics]],
) -> dict[tuple[str, str], tuple[Message, OverlapStatistics]]:
    """Return the measurements by pair, sorted; where both parties have measured, the two must be the same."""
    pairs: dict[tuple[str, str], tuple[Message, OverlapStatistics]] = {}
    for one, a in sorted(checked, key=lambda pair: (pair[0].facts["parties"], pair[0].sender)):
        first, second = one.facts["parties"]
        other, b = pairs.setdefault((first, second), (one, a))
        sizes = float(np.abs(a.means).max() + a.spreads.max())
        same = all(
            np.allclose(getattr(a, name), getattr(b, name), rtol=AGREE, atol=AGREE * scale)
            for name, scale in (("counts", 0.0), ("means", sizes), ("spreads", 0.0), ("products", 1.0))
        )
        if not same:
            raise InputError(
                f"{first} and {second} were measured twice, by {other.sender} and by {one.sender}, and the two differ. "
                "Each sees the same nodes, so one file is wrong: leave out the pair."
            )
    return pairs


def _result(message: Message, shared: int, error: float, trusted: bool) -> PairResult:
    first, second = message.facts["parties"]
    variance = sum(value**2 for value in message.facts["noise"].values())
    return PairResult((first, second), shared, error, math.sqrt(variance / (2 + variance)), trusted)


def _transform(
    of_round: Round, number: int, name: str, *, offer: str, fit: Alignment, results: Sequence[PairResult]
) -> Message:
    """Return what one party needs: its motion, and the fit of its own pairs and of the whole."""
    facts = {
        "to": name,
        "offer": offer,
        "pairs": {
            next(other for other in pair.parties if other != name): {"error": pair.error, "trusted": pair.trusted}
            for pair in results
            if name in pair.parties
        },
        "verdict": grade(fit),
        "worst_error": max(pair.error for pair in results),
        "spectral_gap": fit.spectral_gap,
    }
    arrays = {
        "scale": fit.scales[number : number + 1].copy(),
        "rotation": fit.rotations[number].copy(),
        "translation": fit.translations[number].copy(),
    }
    return of_round.message("transform", COORDINATOR, facts, arrays)


def _motion(transform: Message, of_round: Round) -> tuple[float, Float64Array, Float64Array]:
    """Return the motion of a transform, and refuse what is none, or what the round does not allow."""
    d, motions, arrays = of_round.dim, of_round.motions, transform.arrays
    shapes = {name: array.shape for name, array in arrays.items()}
    sound = shapes == {"scale": (1,), "rotation": (d, d), "translation": (d,)}
    if not sound or not all(X.dtype.kind == "f" and bool(np.isfinite(X).all()) for X in arrays.values()):
        raise FormatError(f"this transform has no scale, rotation and translation in {d} dimensions; ask for it again.")
    scale, rotation, translation = float(arrays["scale"][0]), arrays["rotation"], arrays["translation"]
    allowed = (
        (scale > 0 if motions.scale else scale == 1)
        and np.abs(rotation.T @ rotation - np.eye(d)).max() <= ORTHOGONAL
        and (motions.rotate or np.array_equal(rotation, np.eye(d)))
        and (motions.translate or not translation.any())
    )
    if not allowed:
        raise FormatError(
            f"this transform is not a motion that the round '{of_round.name}' allows ({motions}): applying it would "
            "distort the embedding. Ask the coordinator to align again."
        )
    return scale, rotation, translation
