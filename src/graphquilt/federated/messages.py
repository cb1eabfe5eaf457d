"""What parties write: files of one format, which says what a file is and has checksums, and ids of nodes.

A file is JSON text. One with arrays is an uncompressed ``.npz`` file whose member ``header`` is such a text.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, ClassVar, Self, TypeAlias, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from graphquilt.arrays import AnyArray, Float64Array, Int64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.files import (
    array_checksum,
    atomic_file,
    is_checksum,
    is_size,
    load_arrays,
    map_arrays,
    read_sealed,
    sealed_content,
    sealed_text,
    sync_folder,
    translate_disk_errors,
    write_arrays,
)

FORMAT, VERSION = "graphquilt federated", 4
MOST_BYTES = 1 << 20  # of a file without arrays
MOST_PARTIES = 1000
KEY_BYTES = 32
Arrays: TypeAlias = Mapping[str, AnyArray]
Value = TypeVar("Value")
Checks: TypeAlias = Mapping[str, Callable[[object], bool]]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SIGNATURE = re.compile("[0-9a-f]{128}")
_ZEROS = "leading zeros"
_KINDS = {  # of characters in ids
    "digits": re.compile("[0-9]"),
    _ZEROS: re.compile("(?<![0-9])0[0-9]"),
    "capitals": re.compile("[A-Z]"),
    "small letters": re.compile("[a-z]"),
    "outer spaces": re.compile(r"^\s|\s\Z"),
    "other characters": re.compile("[^0-9A-Za-z]"),
}
_FORM = re.compile(rf"(({'|'.join(_KINDS)})(, |\Z))*([0-9]{{1,3}} long)?")


def subkey(key: bytes, purpose: str) -> bytes:
    """Return a separate key for each purpose, derived from the parties' key."""
    return hmac.digest(key, f"graphquilt {purpose}".encode(), "sha256")


def keyed(key: bytes, purpose: str, value: object) -> str:
    """Return a digest of a value that JSON can hold, under the parties' key."""
    return hmac.digest(subkey(key, purpose), json.dumps(value).encode(), "sha256").hex()


def canonical(content: Mapping[str, object]) -> bytes:
    """Return a JSON object as bytes, the same for everyone."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def digest(content: Mapping[str, object]) -> str:
    """Return the SHA-256 of a JSON object, hexadecimal."""
    return hashlib.sha256(canonical(content)).hexdigest()


def readable(checksum: str) -> str:
    """Return the first 96 bits of a SHA-256 as people read them to each other, as 0123-4567-…."""
    return "-".join(checksum[k : k + 4] for k in range(0, 24, 4))


def is_party_name(name: object) -> bool:
    """Return whether a value can be the name of a party, which is fit for a file name and means nothing else there."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_party_name(name: str) -> None:
    """Refuse a name that cannot be that of a party or round."""
    if not is_party_name(name):
        raise InputError(
            f"'{name[:80]}' cannot be the name of a party or round: use at most 64 letters, digits, '.', '-' and '_', "
            "and begin with a letter or digit."
        )


# Types of fields that files hold; each has the check of a value that comes from a file.
Size = Annotated[int, is_size]
Share = Annotated[float, lambda value: type(value) in (int, float) and 0 <= value < 1e300]
Flag = Annotated[bool, lambda value: isinstance(value, bool)]
Facts = Annotated[Mapping[str, Any], lambda value: isinstance(value, dict)]
Name = Annotated[str, is_party_name]
Names = Annotated[tuple[str, ...], lambda value: isinstance(value, list) and all(map(is_party_name, value))]
Checksum = Annotated[str, is_checksum]  # or 32 bytes of a key
MaybeChecksum = Annotated[str | None, lambda value: value is None or is_checksum(value)]
Form = Annotated[str, lambda value: isinstance(value, str) and _FORM.fullmatch(value) is not None]
Signature = Annotated[str, lambda value: isinstance(value, str) and _SIGNATURE.fullmatch(value) is not None]


def checks_of(record: type) -> Checks:
    """Return the checks of the fields of a record, by name; a field without one is not in the header of its file."""
    hints = get_type_hints(record, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}


def described(arrays: Arrays) -> dict[str, object]:
    """Return the type, shape and checksum of each array."""
    return {name: [array.dtype.str, list(array.shape), array_checksum(array)] for name, array in arrays.items()}


@contextmanager
def private_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write that only its owner can read, and that is complete once it is there."""
    with translate_disk_errors(path.parent), atomic_file(path, mode=0o600) as file:
        yield file
    sync_folder(path.parent)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Fill a new folder that only its owner can open: yields it under another name; it is there as a whole, or not."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not empty. Name another folder: what was sent must stay valid.")
    part = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}.part")
    try:
        with translate_disk_errors(folder.parent):
            folder.parent.mkdir(parents=True, exist_ok=True)
            part.mkdir(mode=0o700)
            yield part
            os.replace(part, folder)
            sync_folder(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_file(path: Path, kind: str, facts: Mapping[str, object], arrays: Arrays | None = None) -> None:
    """Write a file of a round."""
    content = {"format": FORMAT, "version": VERSION, "kind": kind, **facts}
    header = sealed_text(content if arrays is None else {**content, "arrays": described(arrays)}).encode()
    with private_file(path) as file:
        if arrays is None:
            file.write(header)
        else:
            write_arrays(file, {"header": np.frombuffer(header, dtype=np.uint8), **arrays})


def read_file(path: Path, kinds: tuple[str, ...], checks: Checks) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Return the facts that have a check, and the arrays; refuse another kind, and facts that are missing or wrong."""
    try:
        if is_archive(path):
            arrays = load_arrays(path)
            header = np.asarray(arrays.pop("header", np.empty(0)))
            content, intact = sealed_content(header.tobytes(), f"the header of {path}")
        elif path.stat().st_size > MOST_BYTES:
            raise FormatError(f"{path} is not a file of a federated round: it is too large.")
        else:
            arrays, (content, intact) = {}, read_sealed(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    if content.get("format") != FORMAT:
        raise FormatError(f"{path} is not a file of a federated round.")
    if content.get("version") != VERSION:
        raise FormatError(
            f"{path} has version {str(content.get('version'))[:20]} of the format, and this graphquilt reads version "
            f"{VERSION}. All parties of a round need releases that agree on it: upgrade the older ones."
        )
    if content.get("kind") not in kinds:
        raise FormatError(f"{path} is of the kind '{str(content.get('kind'))[:40]}', not {' or '.join(kinds)}.")
    wrong = [name for name, check in checks.items() if not check(content.get(name))]
    if wrong or not intact or content.get("arrays", {}) != described(arrays):
        reason = f"{wrong[0]} is missing or not valid" if wrong else "it was changed: its checksums differ"
        raise FormatError(f"{path} is not a sound file of a federated round: {reason}. Ask for it again.")
    return {name: content[name] for name in checks}, arrays


def kind_of(path: Path) -> str:
    """Return the kind that a file says it is; an empty text if it is not a file of a round."""
    try:
        if is_archive(path):
            content = json.loads(map_arrays(path, ("header",))["header"].tobytes())
        else:
            content = json.loads(path.read_bytes()) if path.stat().st_size <= MOST_BYTES else {}
    except (OSError, ValueError, KeyError, RecursionError, FormatError):
        return ""
    return str(content.get("kind")) if isinstance(content, dict) and content.get("format") == FORMAT else ""


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip archive."""
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def save_key(key: bytes, path: str | os.PathLike[str]) -> None:
    """Write a secret key to a file that only its owner can read."""
    write_file(Path(path), "key", {"key": key.hex()})


def load_key(path: str | os.PathLike[str]) -> bytes:
    """Read what :func:`save_key` wrote."""
    return bytes.fromhex(read_file(Path(path), ("key",), {"key": is_checksum})[0]["key"])


def new_key(name: str, key: bytes | None = None) -> tuple[bytes, dict[str, Any]]:
    """Return a new key of parties, or this one, and the fields by which an agreement of this name knows it."""
    key = key or secrets.token_bytes(KEY_BYTES)
    nonce = keyed(key, "nonce", name)
    return key, {"nonce": nonce, "key_check": keyed(key, "check", nonce)}


class Filed:
    """A frozen value that is one file: its fields that have a check are the header, and its ``arrays`` the rest."""

    KINDS: ClassVar[tuple[str, ...]]

    @property
    def header(self) -> dict[str, object]:
        """What the file says, beside its arrays."""
        return {name: getattr(self, name) for name in checks_of(type(self))}

    @property
    def content(self) -> dict[str, object]:
        """Everything in it but the ``signature`` or ``authentication``, which are made of this."""
        facts = {name: value for name, value in self.header.items() if name not in ("signature", "authentication")}
        arrays = getattr(self, "arrays", None)
        return facts if arrays is None else {**facts, "arrays": described(arrays)}

    def check(self) -> None:
        """Refuse a value that cannot be what its file says."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file that only its owner can read."""
        write_file(Path(path), getattr(self, "kind", self.KINDS[0]), self.header, getattr(self, "arrays", None))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what ``save`` wrote, and refuse what was changed; who wrote it is checked where it is used."""
        facts, arrays = read_file(Path(path), cls.KINDS, checks_of(cls))
        make: Any = cls
        try:
            made: Self = make(**facts, **({"arrays": arrays} if "arrays" in make.__dataclass_fields__ else arrays))
            made.check()
        except (InputError, TypeError) as error:
            raise FormatError(f"{path} is not a sound {cls.__name__.lower()}: {error}") from error
        return made


@dataclass(frozen=True, kw_only=True)
class Agreement(Filed):
    """What everybody knows of a round before it begins; it is public.

    By ``key_check``, the digest of a random ``nonce`` under the parties' key, each sees that it has the right key.
    """

    name: Name
    dim: Size
    parties: Names
    nonce: Checksum
    key_check: Checksum

    def __post_init__(self) -> None:
        object.__setattr__(self, "parties", tuple(self.parties))
        for name in (self.name, *self.parties):
            check_party_name(name)
        if list(self.parties) != sorted(set(self.parties)) or len(self.parties) > MOST_PARTIES:
            raise InputError(f"parties are different names, at most {MOST_PARTIES}: {', '.join(self.parties)[:200]}.")

    @property
    def id(self) -> str:
        """The SHA-256 of everything in it: if any of it is changed, it is another round."""
        return digest(self.header)

    @property
    def label(self) -> str:
        """How messages name the round."""
        return f"the round '{self.name}' ({self.id[:8]})"

    def has_key(self, key: bytes) -> bool:
        """Return whether this is the parties' key."""
        return hmac.compare_digest(keyed(key, "check", self.nonce), self.key_check)

    def check_key(self, key: bytes) -> None:
        """Refuse the key of another round."""
        if not self.has_key(key):
            raise InputError(f"this is not the key of {self.label}.")

    def check_invited(self, party: str) -> None:
        """Refuse somebody who takes no part."""
        if self.parties and party not in self.parties:
            raise InputError(f"{party} is not invited to {self.label}: {', '.join(self.parties)} are.")


def canonical_ids(ids: npt.ArrayLike) -> list[str]:
    """Return node ids as text that is the same for all parties: integers in decimal, text in Unicode form NFC.

    So 17 from a Parquet file and "17" from a text file are one node, and "017" is another.

    Examples
    --------
    >>> canonical_ids([17, 4]), canonical_ids(["17", "017"])
    (['17', '4'], ['17', '017'])
    """
    array = np.asarray(ids)
    if array.dtype.kind in "iu":
        return [str(value) for value in array.tolist()]
    if array.dtype.kind not in "UO" or not all(isinstance(value, str | int) for value in array.tolist()):
        raise InputError(f"node ids must be integers or text, not {array.dtype}.")
    return [unicodedata.normalize("NFC", str(value)) for value in array.tolist()]


def id_form(ids: Sequence[str]) -> str:
    """Return how ids are written, without any of them: kinds of characters, and the length where all have the same."""
    kinds = [kind for kind, pattern in _KINDS.items() if any(map(pattern.search, ids))]
    lengths = set(map(len, ids))
    return ", ".join(kinds + [f"{min(length, 999)} long" for length in lengths if len(lengths) == 1])


def same_form(one: str, other: str) -> bool:
    """Return whether two parties can write the same ids; without leading zeros, ids may be long and short by chance."""
    a, b = (set(form.split(", ")) for form in (one, other))
    kinds, lengths = (a ^ b) - {word for word in a ^ b if "long" in word}, {word for word in a & b if "long" in word}
    return not kinds - {_ZEROS} and (_ZEROS not in a | b or a == b or bool(lengths))


def unique_ids(ids: npt.ArrayLike) -> list[str]:
    """Return the canonical ids, and refuse two nodes of the same one."""
    texts, seen = canonical_ids(ids), set[str]()
    for text in texts:
        if text in seen:
            raise InputError(f"the node id '{text[:80]}' stands for two nodes; ids that parties share are unique.")
        seen.add(text)
    return texts


def rows_of(ids: npt.ArrayLike, wanted: Sequence[str], content: str) -> Int64Array:
    """Return the rows of the nodes that a list names; unknown ids are ignored, because it may serve several parties."""
    named = set(canonical_ids(np.array(wanted, dtype=np.str_)))
    rows = np.flatnonzero([text in named for text in canonical_ids(ids)])
    if len(rows) == 0:
        raise InputError(
            f"none of the {len(wanted)} ids in {content} is one of the {np.size(np.asarray(ids))} nodes here. Write "
            "one id per line, as in the file of the network."
        )
    return rows


def normal(words: npt.NDArray[np.uint64]) -> Float64Array:
    """Return standard normal numbers from random words."""
    return np.asarray(ndtri(((words >> np.uint64(11)) + 0.5) * 2.0**-53), dtype=np.float64)
