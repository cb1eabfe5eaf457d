"""Round: what all parties of an alignment agree on before they begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphquilt.arrays import AnyArray
from graphquilt.errors import InputError, OverlapError
from graphquilt.federated.agreement import Agreement, new_key
from graphquilt.federated.messages import Flag, Message, Size


@dataclass(frozen=True, kw_only=True)
class Round(Agreement):
    """What all parties of a round agree on; it is public.

    Attributes
    ----------
    parties : tuple of str
        The names of the parties; empty if anyone with the key may take part.
    scale : bool
        Whether the alignment undoes scales, as it does rotations and shifts.
    least : int
        The least number of nodes that two parties must share to be compared.
    psi : bool
        Whether shared nodes are found by private set intersection, and not by pseudonyms.
    """

    scale: Flag
    least: Size
    psi: Flag
    kind: ClassVar[str] = "round"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.parties) == 1:
            raise InputError(
                f"a round has at least two parties, and this one names {self.parties[0]}. Name all, or name none: "
                "everyone with the key may then take part."
            )
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

    def check_message(self, message: Message, kinds: Sequence[str]) -> None:
        """Refuse a message of another kind or another round."""
        name = f"the {message.kind} of {message.sender}"
        if message.kind not in kinds:
            raise InputError(f"{name} is not a file for this step, which takes this: {' or '.join(kinds)}.")
        if message.round != self.id:
            raise InputError(
                f"{name} belongs to the round '{message.round_name}' ({message.round[:8]}), and this is the round "
                f"'{self.name}' ({self.id[:8]}). Files of other rounds, earlier ones included, are not taken: ask for "
                "one of this round."
            )
        if message.kind != "transform":
            self.check_invited(message.sender)


def invite(
    name: str,
    dim: int,
    *,
    scale: bool = False,
    least: int | None = None,
    parties: Sequence[str] = (),
    ids_can_be_guessed: bool = False,
) -> tuple[Round, bytes]:
    """Make a new round, and its key.

    Parameters
    ----------
    name, dim, scale, parties
        See :class:`Round`.
    least : int, optional
        The least number of nodes that two parties must share; by default 2 dim + 10, which is the least allowed.
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
    key, check = new_key(name)
    needed, named = least_shared(dim) if least is None else least, tuple(sorted(parties))
    psi = not ids_can_be_guessed
    return Round(name=name, dim=dim, scale=scale, least=needed, parties=named, psi=psi, **check), key


def least_shared(dim: int) -> int:
    """Return the least number of nodes that two parties must share.

    The statistics of a pair are dim² + dim equations for the coordinates of one party. With this many nodes they
    leave at least half of the unknowns open to somebody who knows the other party's coordinates.
    """
    return 2 * dim + 10


def check_shared(the_round: Round, names: tuple[str, str], shared: int) -> None:
    """Refuse a pair that shares too few nodes, with what to do."""
    if shared < the_round.least:
        raise OverlapError(
            f"{names[0]} and {names[1]} share {shared} nodes; the round '{the_round.name}' in {the_round.dim} "
            f"dimensions needs at least {the_round.least}. Share more nodes, leave out this pair, or agree on a round "
            "of fewer dimensions."
        )
