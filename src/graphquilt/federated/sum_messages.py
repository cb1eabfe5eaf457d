"""What moves in a round of sums: contributions of parties, and the directions that the coordinator sends back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError
from graphquilt.federated.keys import sign
from graphquilt.federated.messages import (
    Checksum,
    Name,
    Share,
    Signature,
    Size,
    checks_of,
    described,
    digest,
    read_file,
    readable,
    write_file,
)

ANSWERS = ({"basis"}, {"blocks", "products", "kept"}, {"directions", "scale"}, {"basis", "directions", "scale"})


@dataclass(frozen=True, eq=False)
class Contribution:
    """What one party adds in one step, behind its masks.

    ``context`` is the SHA-256 of everything that all parties must agree on in this step, and ``values`` (k,) the sum
    with the masks, modulo 2^64. The party signs all of it.
    """

    round: Checksum
    step: Size
    party: Name
    context: Checksum
    values: npt.NDArray[np.uint64] = field(repr=False)
    signature: Signature = field(default="", repr=False)

    @property
    def content(self) -> dict[str, object]:
        """What is signed."""
        facts = {name: getattr(self, name) for name in ("round", "step", "party", "context")}
        return {**facts, **described({"values": self.values})}

    def signed(self, secret: bytes) -> Contribution:
        """Return the contribution with the signature of the party that has this secret key."""
        return replace(self, signature=sign(secret, self.content))

    def save(self, path: Path) -> None:
        """Write the contribution to a file that only its owner can read."""
        facts = {name: getattr(self, name) for name in checks_of(Contribution)}
        write_file(path, "contribution", facts, {"values": self.values})

    @classmethod
    def load(cls, path: Path) -> Contribution:
        """Read a contribution; who signed it is checked where it is used."""
        facts, arrays = read_file(path, ("contribution",), checks_of(cls))
        values = arrays.get("values", np.empty(0))
        if values.dtype != np.uint64 or values.ndim != 1:
            raise FormatError(f"{path} is not a sound contribution. It may be damaged; ask for it again.")
        return cls(values=values, **facts)


@dataclass(frozen=True, eq=False)
class Directions:
    """What the coordinator sends to all parties after a step: the directions, or what the next step needs.

    Attributes
    ----------
    step : int
        The number of steps that were made.
    arrays : mapping of str to array
        ``directions`` (w, d) and ``scale`` (d,) at the end; before, and with wide features, ``basis`` or ``blocks``.
    share : float
        The share of the total that the directions keep; 0 before the end.
    state : mapping of str to array
        What the coordinator needs for the next step, and keeps to itself.
    """

    round: Checksum
    step: Size
    arrays: Mapping[str, AnyArray] = field(repr=False)
    share: Share = 0.0
    state: Mapping[str, AnyArray] = field(default_factory=dict, repr=False)

    @property
    def complete(self) -> bool:
        """Whether parties can embed now."""
        return "directions" in self.arrays

    @property
    def facts(self) -> dict[str, object]:
        """What the header of its file says."""
        return {"round": self.round, "step": self.step, "share": self.share}

    @property
    def id(self) -> str:
        """The SHA-256 of everything that the parties get."""
        return digest({**self.facts, "arrays": described(self.arrays)})

    @property
    def code(self) -> str:
        """What parties can compare: it is the same if all got the same directions."""
        return readable(self.id)

    def save(self, path: Path, *, state: bool = False) -> None:
        """Write what the parties get, or the coordinator's ``state``."""
        write_file(path, "state" if state else "directions", self.facts, self.state if state else self.arrays)

    @classmethod
    def load(cls, path: Path, *, state: bool = False) -> Directions:
        """Read directions, or a ``state``."""
        facts, arrays = read_file(path, ("state" if state else "directions",), checks_of(cls))
        sound = set(arrays) in ANSWERS and all(array.ndim <= 2 for array in arrays.values())
        if not sound or not all(a.dtype.kind == "f" and bool(np.isfinite(a).all()) for a in arrays.values()):
            raise FormatError(f"{path} does not hold sound directions. It may be damaged; ask for it again.")
        return cls(**facts, arrays={}, state=arrays) if state else cls(**facts, arrays=arrays)
