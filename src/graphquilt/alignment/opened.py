"""Patches of a lazy sequence that stay open, as many as is good for memory and for the limit of open files.

Opening a patch can cost more than measuring an overlap: a file is found, mapped and checked. A patch has many
overlaps, and the order in which they are measured cannot bring all of them together.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphquilt.alignment.overlap import PatchLike
from graphquilt.patches import LazySequence, Patch

__all__ = ["OpenPatches", "kept_open"]

MEMORY = 2**28  # bytes of arrays that are not maps
RESERVED = 16  # files that are left to others
FILES = 0.5  # share of the other files that this process may have open
USUAL = 512  # that number where the system does not say


def kept_open(patches: Sequence[PatchLike]) -> Sequence[PatchLike]:
    """Return a list as it is, and any other sequence as one that opens most patches only once."""
    return patches if isinstance(patches, list | tuple | OpenPatches) else OpenPatches(patches)


class OpenPatches(LazySequence[PatchLike]):
    """The patches of a sequence; those that were opened first stay open as long as this lives.

    Those that find no room are opened whenever they are asked for, and read into memory. The ones that stay are never
    exchanged for others: where all are asked for in turn, every exchange would be in vain.
    """

    def __init__(self, patches: Sequence[PatchLike]) -> None:
        self.patches, self._open, self._maps = patches, dict[int, PatchLike](), set[int]()
        self._files, self._bytes = int(max(0, _file_limit() - RESERVED) * FILES), MEMORY

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        return OpenPatches, (self.patches,)

    def __len__(self) -> int:
        return len(self.patches)

    def stays(self, k: int) -> bool:
        """Return whether patch k is open and stays so."""
        return k in self._open

    def _item(self, k: int) -> PatchLike:
        patch = self._open.get(k)
        if patch is None:
            patch = self.patches[k]
            if isinstance(patch, tuple) and len(patch) == 2 and _map_of(patch[0]) is not None:
                patch = (np.array(patch[0]), patch[1])  # the ids are needed all the time, and a map is an open file
            if not self._keep(k, patch) and any(_map_of(array) is not None for array in patch):
                nodes, X = map(np.array, patch)  # whoever works on many at once then has no files open
                patch = Patch(nodes, X) if isinstance(patch, Patch) else (nodes, X)
        return patch

    def _keep(self, k: int, patch: PatchLike) -> bool:
        """Keep a patch open if there is room for it, and return whether there is."""
        bases = [_map_of(array) for array in patch]
        maps = {id(base) for base in bases if base is not None} - self._maps
        size = sum(np.asarray(array).nbytes for array, base in zip(patch, bases, strict=True) if base is None)
        if len(maps) > self._files - len(self._maps) or size > self._bytes:
            return False
        self._open[k] = patch
        self._maps |= maps
        self._bytes -= size
        return True


def _map_of(array: object) -> mmap.mmap | None:
    """Return the mapped file in which an array lies; it stays open as long as the array lives."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array


def _file_limit() -> int:
    try:
        import resource
    except ImportError:  # not every system has limits of this kind
        return USUAL
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return USUAL if soft == resource.RLIM_INFINITY else int(soft)
