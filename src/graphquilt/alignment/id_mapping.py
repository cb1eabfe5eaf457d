"""Number the nodes of patches that have names or any other ids: dicts, pairs with text ids, and vector files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from graphquilt.alignment.patch_index import PatchLike
from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, InputError, counted
from graphquilt.graph.reading.vectors import Vectors, check_vectors, read_vectors
from graphquilt.patches import Patch

VectorsByName: TypeAlias = Mapping[str, npt.ArrayLike] | Mapping[int, npt.ArrayLike]  # by the name of a node
NamedPatch: TypeAlias = PatchLike | tuple[npt.ArrayLike, npt.ArrayLike] | VectorsByName | str | os.PathLike[str]
PatchesLike: TypeAlias = Sequence[NamedPatch] | Mapping[str, NamedPatch] | Mapping[int, NamedPatch]
_TAKEN = "a pair of ids and coordinates, a dict of names to vectors, or the path of a vector file"


class Numbered(NamedTuple):
    """Patches whose nodes are numbers, and what each number and each patch is called."""

    patches: list[Patch]
    ids: AnyArray  # (n,) of the nodes, ascending
    names: list[str]  # (p,)


def _is_named(patches: PatchesLike) -> bool:
    """Return whether the nodes of some patches have to be numbered first; lazy sequences are never opened for that."""
    if isinstance(patches, Mapping):
        return True
    return isinstance(patches, list | tuple) and any(_has_names(patch) for patch in patches)


def _has_names(patch: object) -> bool:
    if isinstance(patch, Mapping | str | os.PathLike):
        return True
    pair = isinstance(patch, tuple | list) and len(patch) == 2
    return pair and np.asarray(patch[0]).dtype.kind in "UO"  # type: ignore[index]


def with_numbers(patches: PatchesLike) -> Sequence[PatchLike]:
    """Return patches as they are, or with numbers for nodes where they have names."""
    return number_patches(patches).patches if _is_named(patches) else cast(Sequence[PatchLike], patches)


def number_patches(patches: PatchesLike) -> Numbered:
    """Number the nodes of all patches 0..n-1, in ascending order of their ids.

    Parameters
    ----------
    patches : sequence or dict of patches
        Each is a Patch, a pair of ids (k,) and coordinates (k, d), a dict of names to vectors, or the path of a file
        that :func:`graphquilt.graph.read_vectors` reads. Ids are whole numbers or text; where both occur, all are
        taken as text.
    """
    given = dict(patches) if isinstance(patches, Mapping) else dict(enumerate(patches))
    if not given:
        raise InputError(f"there are no patches; a patch is {_TAKEN}.")
    names = [_name(key, patch, isinstance(patches, Mapping)) for key, patch in given.items()]
    pairs = [_pair(name, patch) for name, patch in zip(names, given.values(), strict=True)]
    widths = [X.shape[1] for _, X in pairs]
    if len(set(widths)) > 1:
        k = next(k for k, width in enumerate(widths) if width != widths[0])
        raise InputError(
            f"{names[k]} has vectors of {counted(widths[k], 'number')} and {names[0]} of {widths[0]}; only vectors "
            "of one length can be stitched. Embed one of the two again, or leave it out."
        )
    if len({ids.dtype.kind == "U" for ids, _ in pairs}) > 1:
        pairs = [(ids.astype(str), X) for ids, X in pairs]
    ids = np.unique(np.concatenate([ids for ids, _ in pairs]))
    numbered = []
    for name, (own, X) in zip(names, pairs, strict=True):
        try:
            numbered.append(Patch(np.searchsorted(ids, own), X))
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    return Numbered(numbered, ids, names)


def _name(key: object, patch: object, named: bool) -> str:
    return str(patch) if isinstance(patch, str | os.PathLike) and not named else str(key) if named else f"patch {key}"


def _pair(name: str, patch: NamedPatch) -> Vectors:
    if isinstance(patch, str | os.PathLike):
        return read_vectors(Path(patch))
    if isinstance(patch, np.ndarray | list | tuple) and all(isinstance(x, Real) for x in patch):
        raise InputError(
            f"{name} is one vector, not {_TAKEN}. A dict of names to vectors is one patch: give a list of such dicts."
        )
    try:
        if isinstance(patch, Mapping):
            ids, X = (
                _ids(cast(list[str], list(patch))),
                np.array([np.asarray(vector, dtype=np.float64) for vector in patch.values()]),
            )
        else:
            nodes, coordinates = patch
            ids, X = _ids(nodes), np.asanyarray(coordinates)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not {_TAKEN} ({error}).") from None
    try:
        check_vectors(name, ids, X)
    except FormatError as error:
        raise InputError(str(error)) from None
    return ids, X


def _ids(nodes: npt.ArrayLike) -> AnyArray:
    """Return ids as whole numbers, or else as text."""
    ids = np.asarray(nodes)
    if ids.dtype.kind not in "iu":
        if ids.dtype.kind == "O" and not all(isinstance(name, str | int) for name in ids.ravel().tolist()):
            raise TypeError("ids are whole numbers or text")
        if ids.dtype.kind == "f":
            raise TypeError("ids are whole numbers or text, not floats")
        return ids.astype(str)
    return ids.astype(np.int64) if ids.dtype.itemsize == 8 else ids
