"""Names for the types of arrays, in one place, and the check that every array passes where it enters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from graphquilt.errors import InputError

__all__ = [
    "AnyArray",
    "BoolArray",
    "Float32Array",
    "Float64Array",
    "FloatArray",
    "Int64Array",
    "IntArray",
    "pieces",
    "refuse_masked",
]

AnyArray: TypeAlias = npt.NDArray[Any]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
Float32Array: TypeAlias = npt.NDArray[np.float32]
Float64Array: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.integer[Any]]
Int64Array: TypeAlias = npt.NDArray[np.int64]


def pieces(length: int, size: int) -> Iterator[slice]:
    """Yield the slices of at most ``size``, or of 1, that cover 0..length-1, in order."""
    step = max(size, 1)
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def refuse_masked(*, where: str = "", **arrays: object) -> None:
    """Raise if one of the ``arrays``, each passed under its name, is a masked array.

    Most functions of NumPy would use the values under the mask, or leave them out, without saying so.
    """
    for name, array in arrays.items():
        if isinstance(array, np.ma.MaskedArray):
            hidden = int(np.sum(np.ma.getmaskarray(array)))
            raise InputError(
                f"{where}{name.replace('_', ' ')} are a masked array, with {hidden} of {array.size} values masked: "
                "these could be taken for real ones. Pass a plain array: fill the masked values with "
                "array.filled(value), or leave out their rows."
            )
