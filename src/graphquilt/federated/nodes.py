"""Nodes: their ids, as all parties write them, and normal numbers for noise."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from graphquilt.arrays import Float64Array, Int64Array
from graphquilt.errors import InputError


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


def unique_ids(ids: npt.ArrayLike) -> list[str]:
    """Return the canonical ids, and refuse two nodes of the same one."""
    texts, seen = canonical_ids(ids), set[str]()
    for text in texts:
        if text in seen:
            raise InputError(
                f"the node id '{text[:80]}' stands for two nodes; ids that other parties share are unique."
            )
        seen.add(text)
    return texts


def rows_of(ids: npt.ArrayLike, wanted: Sequence[str], content: str) -> Int64Array:
    """Return the rows of the nodes that a list names, and refuse a list that names none.

    Unknown ids are ignored: a list may serve several parties. ``content`` says in the error what the list is.
    """
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
