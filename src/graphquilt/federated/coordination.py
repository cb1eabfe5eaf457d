"""The coordinator aligns parties from the statistics of their pairs, and each party applies its transform."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphquilt.alignment import Alignment, OverlapStatistics, align_statistics, culprits
from graphquilt.arrays import AnyArray, Float64Array
from graphquilt.errors import DisconnectedError, FormatError, InputError, OverlapError
from graphquilt.federated.messages import Message, is_party_name, is_share
from graphquilt.federated.parties import Party
from graphquilt.federated.rounds import Round
from graphquilt.files import is_size
from graphquilt.linalg import Motions, components

COORDINATOR = "coordinator"
AGREE = 1e-8  # two measurements of one pair differ by less, relative to their size, on whatever machines
UNRELATED = 0.9  # an edge error from here on means that the coordinates of two parties have nothing in common
FEWEST = 4  # parties among whom robust alignment can tell who contradicts the others
ORTHOGONAL = 1e-6  # largest entry of R'R - 1 that a rotation may have


@dataclass(frozen=True)
class PairResult:
    """What an alignment knows of one pair of parties.

    Attributes
    ----------
    parties : pair of str
    shared : int
        Number of nodes they were compared on.
    error : float
        What is left after alignment: 0 is a perfect fit, 1 is no better than unrelated.
    expected : float
        How large the error would be if there were nothing but the noise that both parties say they have added.
    trusted : bool
        Whether robust alignment trusts the pair.
    """

    parties: tuple[str, str]
    shared: int
    error: float
    expected: float
    trusted: bool


@dataclass(frozen=True, eq=False)
class FederatedAlignment:
    """The alignment of all parties, and one transform for each.

    Attributes
    ----------
    parties : tuple of str
        Party k is patch k of the ``alignment``.
    alignment : Alignment
    pairs : tuple of PairResult
    transforms : mapping of str to Message
        By party: for that party.
    doubtful : tuple of str
        Parties most of whose pairs have an error of at least 0.9, which is no better than unrelated coordinates, while
        the others fit each other better.
    """

    parties: tuple[str, ...]
    alignment: Alignment
    pairs: tuple[PairResult, ...]
    transforms: Mapping[str, Message]
    doubtful: tuple[str, ...]

    def summary(self) -> str:
        """Say in plain words how good the fit is, with the parties that the numbers of patches stand for."""
        names = "; ".join(f"patch {k} is {name}" for k, name in enumerate(self.parties))
        lines = [f"{names}.", *self.alignment.summary(self.parties).splitlines()]
        if self.alignment.robust and len(self.parties) < FEWEST:
            lines.append(
                f"Among {len(self.parties)} parties nobody can tell who contradicts the others: which pair is "
                "distrusted says little. Look at the errors."
            )
        if self.doubtful:
            lines.append(
                f"Ask {', '.join(self.doubtful)}: most of their pairs fit no better than unrelated coordinates. A "
                "wrong file, another embedder, or coordinates that are not true look like this."
            )
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class _Measurement:
    """A measurement whose header was checked."""

    message: Message
    parties: tuple[str, str]
    offers: Mapping[str, str]
    noise: Mapping[str, float]
    motions: Motions
    statistics: OverlapStatistics


def align(
    measurements: Iterable[Message], *, of_round: Round | None = None, robust: bool = False
) -> FederatedAlignment:
    """Align the parties of a round from the statistics of their pairs: no ids and no coordinates are seen.

    Parameters
    ----------
    measurements : iterable of Message
        One for each pair of parties that was compared. If both parties of a pair have measured, the two must agree.
    of_round : Round, optional
        Files of other rounds are refused, and so is an alignment without one of the parties that it names. Without it,
        all measurements must be of the same round.
    robust : bool
        Doubt pairs that contradict the others.

    Raises
    ------
    DisconnectedError
        Some parties are not connected with the others by any pair; the message names them.
    InputError
        Measurements of several rounds, or of several offers of one party, or two of one pair that differ.
    """
    checked = [_checked(message, of_round) for message in measurements]
    if not checked:
        raise InputError("there are no measurements to align; collect at least one from each party.")
    _check_one_round(checked)
    _check_one_offer(checked)
    pairs = _one_for_each_pair(checked)
    first = checked[0].message
    names = tuple(sorted({name for pair in pairs for name in pair} | set(() if of_round is None else of_round.parties)))
    numbers = {name: k for k, name in enumerate(names)}
    edges = np.array([[numbers[a], numbers[b]] for a, b in pairs], dtype=np.int64)
    _check_connected(edges, names)
    fit = align_statistics(
        OverlapStatistics.concatenate(measurement.statistics for measurement in pairs.values()),
        edges,
        n_patches=len(names),
        names=names,
        **vars(checked[0].motions),
        robust=robust,
    )
    results = tuple(_results(fit, pairs.values()))
    unrelated = np.array([pair.error >= UNRELATED for pair in results])
    blamed = [k for k, _ in culprits(edges, unrelated)[0]]
    # If the others do not fit each other either, nobody stands out.
    others = fit.edge_errors[~np.isin(edges, blamed).any(axis=1)]
    doubtful = tuple(names[k] for k in blamed) if len(others) and np.median(others) < UNRELATED else ()
    offers = {name: offer for measurement in checked for name, offer in measurement.offers.items()}
    transforms = {
        name: _transform(first, numbers[name], name=name, offer=offers[name], fit=fit, results=results)
        for name in names
    }
    return FederatedAlignment(names, fit, results, transforms, doubtful)


def apply(party: Party, transform: Message) -> tuple[AnyArray, Float64Array]:
    """Return the ids of a party's nodes and their coordinates (n, d) in the frame that all parties share.

    Raises
    ------
    InputError
        The transform is of another round, for another party, or was made from another offer.
    FormatError
        The round does not allow this motion.
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


def _checked(message: Message, of_round: Round | None) -> _Measurement:
    """Return a measurement whose numbers can be what its header says."""
    if of_round is not None:
        of_round.check_message(message, ["measurement"])
    if message.kind != "measurement":
        raise InputError(f"the {message.kind} of {message.sender} is not a measurement; only measurements are aligned.")
    name, facts = f"the measurement of {message.sender}", message.facts
    if not _says_enough(message):
        raise FormatError(f"{name} does not say what a measurement says; ask {message.sender} to measure again.")
    parties, motions = facts["parties"], Motions(**facts["motions"])
    if of_round is not None and motions != of_round.motions:
        raise InputError(f"{name} has other motions than the round '{of_round.name}'.")
    pair = " and ".join(parties)
    try:
        statistics = OverlapStatistics.from_arrays(message.arrays)
    except FormatError as error:
        raise FormatError(f"{name}, of {pair}, is wrong: {error}") from error
    if statistics.dim != message.dim or len(statistics) != 1:
        raise FormatError(
            f"{name}, of {pair}, has {len(statistics)} overlaps in {statistics.dim} dimensions, and its header says "
            f"one in {message.dim}; ask {message.sender} to measure again."
        )
    shared = int(statistics.counts[0])
    if shared < facts["least"]:
        raise OverlapError(
            f"{pair} share {shared} nodes; their round needs at least {facts['least']}. Leave out this pair, or let "
            "both parties share more nodes."
        )
    return _Measurement(message, (parties[0], parties[1]), facts["offers"], facts["noise"], motions, statistics)


def _says_enough(message: Message) -> bool:
    """Return whether the header of a measurement says which pair it is of, and how the pair was measured."""
    parties, offers, noise, motions = (message.facts.get(key) for key in ("parties", "offers", "noise", "motions"))
    return (
        isinstance(parties, list)
        and len(parties) == 2
        and all(map(is_party_name, parties))
        and parties[0] < parties[1]
        and message.sender in parties
        and isinstance(offers, dict)
        and isinstance(noise, dict)
        and isinstance(motions, dict)
        and set(offers) == set(noise) == set(parties)
        and all(isinstance(value, str) for value in offers.values())
        and all(map(is_share, noise.values()))
        and is_size(message.facts.get("least"))
        and set(motions) == set(vars(Motions()))
        and all(isinstance(value, bool) for value in motions.values())
    )


def _check_one_round(checked: Sequence[_Measurement]) -> None:
    rounds: dict[tuple[str, str, int, Motions], list[str]] = {}
    for one in checked:
        message = one.message
        key = (message.round, message.round_name, message.dim, one.motions)
        rounds.setdefault(key, []).append(" and ".join(one.parties))
    if len(rounds) > 1:
        described = "; ".join(
            f"'{name[:64]}' ({number[:8]}, {dim} dimensions): {', '.join(pairs[:3])}" + (" …" if len(pairs) > 3 else "")
            for (number, name, dim, _), pairs in rounds.items()
        )
        raise InputError(
            f"the measurements are of {len(rounds)} different rounds or have different settings: {described}. Take "
            "away those of other rounds; --round names the files that do not belong to it."
        )


def _check_one_offer(checked: Sequence[_Measurement]) -> None:
    offers: dict[str, str] = {}
    for one in checked:
        for name, offer in one.offers.items():
            if offers.setdefault(name, offer) != offer:
                raise InputError(
                    f"{name} has made more than one offer in this round, and the measurements are of different ones. "
                    f"All pairs of {name} must be measured with the same offer: measure the others again."
                )


def _one_for_each_pair(checked: Sequence[_Measurement]) -> dict[tuple[str, str], _Measurement]:
    """Return the measurements by pair, sorted; where both parties have measured, the two must be the same."""
    pairs: dict[tuple[str, str], _Measurement] = {}
    for one in sorted(checked, key=lambda one: (one.parties, one.message.sender)):
        other = pairs.setdefault(one.parties, one)
        if other is not one:
            _check_same(other, one)
    return pairs


def _check_same(one: _Measurement, other: _Measurement) -> None:
    a, b = one.statistics, other.statistics
    spreads = np.maximum(a.spreads, b.spreads)
    sizes = float(np.abs(a.means).max() + spreads.max())
    differences = {
        "numbers of nodes": float(np.abs(a.counts - b.counts).max()),
        "means": float(np.abs(a.means - b.means).max()) / max(sizes, np.finfo(np.float64).tiny),
        "spreads": float((np.abs(a.spreads - b.spreads) / np.maximum(spreads, np.finfo(np.float64).tiny)).max()),
        "products": float(np.abs(a.products - b.products).max()),
    }
    wrong = [name for name, difference in differences.items() if difference > AGREE]
    if wrong:
        first, second = one.parties
        raise InputError(
            f"{first} and {second} were measured twice, by {one.message.sender} and by {other.message.sender}, and the "
            f"{', '.join(wrong)} differ by up to {max(differences.values()):.2g}. Each sees the same nodes, so one of "
            "the two files is wrong: let both measure again, or leave out the pair."
        )


def _check_connected(edges: AnyArray, names: Sequence[str]) -> None:
    labels = components(edges, len(names))
    if labels.max(initial=0) == 0:
        return
    groups: dict[int, list[str]] = {}
    for name, label in zip(names, labels.tolist(), strict=True):
        groups.setdefault(label, []).append(name)
    largest = max(groups.values(), key=len)
    described = "; ".join(", ".join(group) for group in groups.values() if group is not largest)
    raise DisconnectedError(
        f"no measurement connects these parties with {', '.join(largest)}: {described}. Measure a pair that joins "
        "them, or align each group on its own."
    )


def _results(fit: Alignment, measurements: Iterable[_Measurement]) -> Iterable[PairResult]:
    for row, one in enumerate(measurements):
        variance = sum(value**2 for value in one.noise.values())
        yield PairResult(
            one.parties,
            int(one.statistics.counts[0]),
            float(fit.edge_errors[row]),
            math.sqrt(variance / (2 + variance)),
            bool(fit.edge_trust[row] >= 1),
        )


def _transform(
    first: Message, number: int, *, name: str, offer: str, fit: Alignment, results: Sequence[PairResult]
) -> Message:
    """Return what one party needs: its motion, and the fit of its own pairs and of the whole."""
    own = [pair for pair in results if name in pair.parties]
    facts = {
        "to": name,
        "offer": offer,
        "pairs": {
            next(other for other in pair.parties if other != name): {"error": pair.error, "trusted": pair.trusted}
            for pair in own
        },
        "worst_error": max(pair.error for pair in results),
        "spectral_gap": fit.spectral_gap,
        "n_parties": fit.n_patches,
    }
    arrays = {
        "scale": fit.scales[number : number + 1].copy(),
        "rotation": fit.rotations[number].copy(),
        "translation": fit.translations[number].copy(),
    }
    return Message("transform", first.round, first.round_name, first.dim, COORDINATOR, facts, arrays)


def _motion(transform: Message, of_round: Round) -> tuple[float, Float64Array, Float64Array]:
    """Return the motion of a transform, and refuse what is none, or what the round does not allow."""
    d, motions = of_round.dim, of_round.motions
    shapes = {"scale": (1,), "rotation": (d, d), "translation": (d,)}
    arrays = transform.arrays
    sound = all(
        name in arrays
        and arrays[name].shape == shape
        and arrays[name].dtype.kind == "f"
        and bool(np.isfinite(arrays[name]).all())
        for name, shape in shapes.items()
    )
    if not sound:
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
