"""Pseudonyms: keyed digests that take the place of node ids in everything that leaves a party."""

from __future__ import annotations

import hmac
import unicodedata

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, Int64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.federated.messages import subkey

__all__ = ["WIDTH", "Pseudonyms", "canonical_ids", "checked_pseudonyms", "pseudonyms", "shared_places"]

WIDTH = 32  # bytes of a pseudonym
Pseudonyms = npt.NDArray[np.bytes_]
_DTYPE = np.dtype(f"S{WIDTH}")


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


def pseudonyms(ids: npt.ArrayLike, key: bytes, round_id: str) -> Pseudonyms:
    """Return HMAC-SHA256(key, round id, node id) for each of ``ids (n,)``.

    Another round gives other pseudonyms: nobody can link nodes between rounds, even with the same key.

    Examples
    --------
    >>> bytes(pseudonyms([17], bytes(32), "00" * 32)[0]).hex()[:16] == bytes(
    ...     pseudonyms(["17"], bytes(32), "00" * 32)[0]
    ... ).hex()[:16]
    True
    """
    secret, prefix = subkey(key, "pseudonyms"), bytes.fromhex(round_id)
    texts = canonical_ids(ids)
    if len(set(texts)) != len(texts):
        twice = next(text for k, text in enumerate(texts) if text in set(texts[:k]))
        raise InputError(f"the node id '{twice[:80]}' stands for two nodes; ids that other parties share are unique.")
    digests = b"".join(hmac.digest(secret, prefix + text.encode(), "sha256") for text in texts)
    return np.frombuffer(digests, dtype=_DTYPE)


def checked_pseudonyms(array: AnyArray, sender: str) -> Pseudonyms:
    """Return the pseudonyms of a message, and refuse what is not a sorted list of different ones."""
    if array.dtype != _DTYPE or array.ndim != 1 or not np.all(array[1:] > array[:-1]):
        raise FormatError(
            f"the pseudonyms of {sender} are not {WIDTH} bytes each, all different, in ascending order; ask {sender} "
            "to make the file again."
        )
    return array


def shared_places(own: Pseudonyms, other: Pseudonyms) -> Int64Array:
    """Return the places in ``own (k,)``, which are sorted, of the pseudonyms that ``other`` has too, ascending."""
    return np.asarray(np.intersect1d(own, other, assume_unique=True, return_indices=True)[1], dtype=np.int64)
