"""Embedded patches that stay on disk until they are asked for."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from graphquilt.alignment.overlap import checked_patch
from graphquilt.arrays import AnyArray
from graphquilt.errors import FormatError, JobError
from graphquilt.patches import Patch
from graphquilt.records import kept_patch_graph, patch_key
from graphquilt.store import DirectoryStore, Store


class StoredPatches(Sequence[Patch]):
    """The embedded patches of a job, each opened when it is asked for.

    Parameters
    ----------
    store : Store
    patches : sequence of int arrays
        Node ids of each patch; row r of an embedding belongs to ``patches[k][r]``.
    keep : int
        How many of the patches opened last stay open.
    round_number : int
        The consensus round whose embeddings to open; 0 is before any.
    """

    def __init__(self, store: Store, patches: Sequence[AnyArray], *, keep: int = 64, round_number: int = 0) -> None:
        self._store, self._patches, self._keep, self._round = store, patches, keep, round_number
        self._open: OrderedDict[int, Patch] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        # The node lists are in the store as well: a worker opens them there, they do not travel.
        record = self._store["patch_graph"]
        runs = len(self) // (len(record.arrays["starts"]) - 1)
        return _reopen, (self._store, record.parameters["patches"], runs, self._keep, self._round)

    def __len__(self) -> int:
        return len(self._patches)

    @overload
    def __getitem__(self, index: int) -> Patch: ...
    @overload
    def __getitem__(self, index: slice) -> list[Patch]: ...
    def __getitem__(self, index: int | slice) -> Patch | list[Patch]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        k = range(len(self))[index]
        patch = self._open.get(k)
        if patch is None:
            try:
                arrays = self._store[patch_key(k, "embedding", self._round)].arrays
            except KeyError:
                raise JobError(f"patch {k} is not embedded yet; run the embedding again to finish the job.") from None
            if "embedding" not in arrays:
                raise FormatError(f"the embedding of patch {k} has no array 'embedding', but {', '.join(arrays)}.")
            patch = self._open[k] = checked_patch((self._patches[k], arrays["embedding"]), k)
            while len(self._open) > self._keep:
                self._open.popitem(last=False)
        return patch


def _reopen(store: Store, which: str, runs: int, keep: int, round_number: int) -> StoredPatches:
    if isinstance(store, DirectoryStore):
        store, patches = _opened(store.path, which, runs)
    else:
        patches = kept_patch_graph(store).repeat(runs).node_sets
    return StoredPatches(store, patches, keep=keep, round_number=round_number)


@functools.lru_cache(maxsize=2)
def _opened(path: Path, which: str, runs: int) -> tuple[Store, Sequence[AnyArray]]:  # noqa: ARG001
    """Open a job and its node lists once a worker, not once a call; ``which`` is the fingerprint of the patches."""
    store = DirectoryStore(path)
    return store, kept_patch_graph(store).repeat(runs).node_sets


def embedded_patches(store: Store) -> StoredPatches:
    """Open the patches of a job as they were embedded last: all its runs, in its last round."""
    settings = store["embed"].parameters if "embed" in store else {}
    quilt = kept_patch_graph(store).repeat(settings.get("runs", 1))
    return StoredPatches(store, quilt.node_sets, round_number=settings.get("rounds", 0))
