"""What moves in a round of sums: contributions of parties, and the directions that the coordinator sends back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError
from graphquilt.federated.keys import VERSION, digest, is_hex, readable, sign
from graphquilt.federated.messages import is_party_name, is_share, write_private
from graphquilt.files import (
    array_checksum,
    is_checksum,
    is_size,
    load_arrays,
    sealed_content,
    sealed_text,
    write_arrays,
)

ANSWERS = ({"basis"}, {"blocks", "products", "kept"}, {"directions", "scale"}, {"basis", "directions", "scale"})


@dataclass(frozen=True, eq=False)
class Contribution:
    """What one party adds in one step, behind its masks.

    ``context`` is the SHA-256 of everything that all parties must agree on in this step, and ``values`` (k,) the sum
    with the masks, modulo 2^64. The party signs all of it.
    """

    round: str
    step: int
    party: str
    context: str
    values: npt.NDArray[np.uint64] = field(repr=False)
    signature: str = field(default="", repr=False)

    @property
    def content(self) -> dict[str, object]:
        """What is signed."""
        facts = {name: getattr(self, name) for name in ("round", "step", "party", "context")}
        return {**facts, "size": len(self.values), "sha256": array_checksum(self.values)}

    def signed(self, secret: bytes) -> Contribution:
        """Return the contribution with the signature of the party that has this secret key."""
        return replace(self, signature=sign(secret, self.content))

    def save(self, path: Path) -> None:
        """Write the contribution to a file that only its owner can read."""
        _save(path, "contribution", {**self.content, "signature": self.signature}, {"values": self.values})

    @classmethod
    def load(cls, path: Path) -> Contribution:
        """Read a contribution; who signed it is checked where it is used."""
        facts, arrays = _load(path, "contribution")
        values = arrays.get("values", np.empty(0))
        sound = (
            values.dtype == np.uint64
            and values.ndim == 1
            and is_checksum(facts.get("round"))
            and is_size(facts.get("step"))
            and is_party_name(facts.get("party"))
            and is_checksum(facts.get("context"))
            and is_hex(64)(facts.get("signature"))
            and facts.get("sha256") == array_checksum(values)
        )
        if not sound:
            raise FormatError(f"{path} is not a sound contribution. It may be damaged; ask for it again.")
        named = {name: facts[name] for name in ("round", "step", "party", "context", "signature")}
        return cls(values=values, **named)


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

    round: str
    step: int
    arrays: Mapping[str, AnyArray] = field(repr=False)
    share: float = 0.0
    state: Mapping[str, AnyArray] = field(default_factory=dict, repr=False)

    @property
    def complete(self) -> bool:
        """Whether parties can embed now."""
        return "directions" in self.arrays

    @property
    def id(self) -> str:
        """The SHA-256 of everything that the parties get."""
        sums = {name: [array_checksum(array), list(array.shape)] for name, array in self.arrays.items()}
        return digest({"round": self.round, "step": self.step, "share": self.share, "arrays": sums})

    @property
    def code(self) -> str:
        """What parties can compare: it is the same if all got the same directions."""
        return readable(self.id)

    def save(self, path: Path, *, state: bool = False) -> None:
        """Write what the parties get, or the coordinator's ``state``."""
        facts = {"round": self.round, "step": self.step, "share": self.share}
        if state:
            _save(path, "state", facts, self.state)
        else:
            _save(path, "directions", {**facts, "id": self.id}, self.arrays)

    @classmethod
    def load(cls, path: Path, *, state: bool = False) -> Directions:
        """Read directions, or a ``state``."""
        facts, arrays = _load(path, "state" if state else "directions")
        sound = is_checksum(facts.get("round")) and is_size(facts.get("step")) and is_share(facts.get("share"))
        sound = sound and set(arrays) in ANSWERS and all(array.ndim <= 2 for array in arrays.values())
        if not sound or not all(a.dtype.kind == "f" and bool(np.isfinite(a).all()) for a in arrays.values()):
            raise FormatError(f"{path} does not hold sound directions. It may be damaged; ask for it again.")
        values = {name: facts[name] for name in ("round", "step", "share")}
        if state:
            return cls(**values, arrays={}, state=arrays)
        made = cls(**values, arrays=arrays)
        if made.id != facts.get("id"):
            raise FormatError(f"{path} was damaged: its arrays are not what its header says. Ask for it again.")
        return made


def _save(path: Path, kind: str, facts: Mapping[str, object], arrays: Mapping[str, AnyArray]) -> None:
    header = sealed_text({"format": f"graphquilt {kind}", "version": VERSION, **facts})
    content = {"header": np.frombuffer(header.encode(), dtype=np.uint8), **arrays}
    write_private(path, lambda file: write_arrays(file, content))


def _load(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    try:
        arrays = load_arrays(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    header = arrays.pop("header", np.empty(0))
    if header.dtype != np.uint8 or header.ndim != 1:
        raise FormatError(f"{path} is not a file of a federated round: it has no header.")
    facts, intact = sealed_content(header.tobytes(), f"the header of {path}")
    if facts.get("format") != f"graphquilt {kind}" or facts.get("version") != VERSION or not intact:
        raise FormatError(f"{path} does not hold {kind} of version {VERSION}, or is damaged; ask for it again.")
    return facts, arrays
