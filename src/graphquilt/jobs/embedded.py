"""Embedded patches that stay in their store until they are needed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import cast

import numpy as np

from graphquilt.alignment.fit import FrameFit
from graphquilt.alignment.patch_index import checked_patch
from graphquilt.arrays import AnyArray, IntArray
from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.graph import Graph
from graphquilt.jobs.cutting import stored_patch_graph
from graphquilt.jobs.records import patch_key
from graphquilt.jobs.settings import JobSettings
from graphquilt.jobs.store import Store, store_folder, store_name
from graphquilt.patches import LazySequence, Patch


class EmbeddedPatches(LazySequence[Patch]):
    """The embedded patches of a store, each opened whenever it is asked for.

    Parameters
    ----------
    store : Store
    node_sets : sequence of int arrays
        Node ids of each patch; row r of an embedding belongs to ``node_sets[k][r]``.
    which : sequence of int, optional
        The numbers of the patches; by default all of them in order.
    settings : JobSettings, optional
        How they were embedded: the defaults of :func:`graphquilt.stitch`.
    graph : Graph, optional
    """

    def __init__(
        self,
        store: Store,
        node_sets: Sequence[IntArray],
        *,
        which: Sequence[int] | None = None,
        settings: JobSettings | None = None,
        graph: Graph | None = None,
    ) -> None:
        self.store, self._node_sets = store, node_sets
        self.settings, self.graph = settings, graph
        self._which = range(len(node_sets)) if which is None else which

    def __reduce__(self) -> tuple[Callable[..., Sequence[Patch]], tuple[object, ...]]:
        if store_folder(self.store) is None:
            return list, (list(self),)
        # The node lists are in the store as well: a worker opens them there, and they do not travel.
        record = self.store["patch_graph"]
        runs = len(self._node_sets) // (len(record.arrays["starts"]) - 1)
        which = None if self._which == range(len(self._node_sets)) else tuple(self._which)
        version = record.parameters["patches"]
        return _reopen, (self.store, version, runs, which)

    def __len__(self) -> int:
        return len(self._which)

    def _item(self, index: int) -> Patch:
        k = self._which[index]
        return checked_patch((self._node_sets[k], self._coordinates(k)), k)

    def between(self, index: int, first: int, last: int) -> tuple[IntArray, AnyArray, slice, int]:
        """Return those nodes of a patch that lie in first..last-1, and their coordinates, without checking the rest.

        Also return which rows of the patch these are, and how many it has.
        """
        k = self._which[index]
        nodes, X = self._node_sets[k], self._coordinates(k)
        if X.ndim != 2 or len(X) != len(nodes):
            raise FormatError(f"patch {k} has {len(nodes)} nodes and an embedding of shape {X.shape}.")
        rows = slice(*(int(place) for place in np.searchsorted(nodes, [first, last])))
        return nodes[rows], X[rows], rows, len(nodes)

    @property
    def frame(self) -> FrameFit | None:
        """How well the common frame suits each patch; None if their records do not say."""
        columns: list[list[float]] = []
        for k in self._which:
            facts = self.store[patch_key(k, "embedding")].parameters
            values = [facts.get(name) for name in ("share", "best", "unseen")]
            if not all(isinstance(value, int | float) for value in values):
                return None
            columns.append([float(cast(float, value)) for value in values])
        growth = 0.0
        if "survey" in self.store:
            growth = float(np.asarray(self.store["survey"].arrays.get("shared_feature_growth", 0.0)))
        shares, best, unseen = np.array(columns).reshape(-1, 3).T
        return FrameFit(shares, np.where(best > 0, best, np.nan), unseen, growth) if columns else None

    def check(self, dim: int, runs: int) -> None:
        """Refuse to stitch if patches are missing, have other dimensions, or come from different shared starts."""
        n_patches = len(self)
        missing = [k for k in self._which if patch_key(k, "embedding") not in self.store]
        if missing:
            raise JobError(
                f"{len(missing)} of {n_patches} patches are not embedded yet, the first is {missing[0]}; finish them "
                "first (graphquilt embed-patches)."
            )
        if self[0].dim != dim:
            raise InputError(
                f"patch 0 has {self[0].dim} dimensions, and the settings of {store_name(self.store)} say {dim}; make "
                "them equal."
            )
        for run in range(runs):
            starts: dict[str, int] = {}
            for k in range(run * n_patches // runs, (run + 1) * n_patches // runs):
                starts.setdefault(repr(self.store[patch_key(k, "embedding")].parameters.get("start")), k)
            if len(starts) > 1:
                first, other, *_ = starts.values()
                raise JobError(
                    f"patches {first} and {other} of {store_name(self.store)} were embedded from different shared "
                    "starts; embed them again (graphquilt embed-patches)."
                )

    def _coordinates(self, k: int) -> AnyArray:
        try:
            arrays = self.store[patch_key(k, "embedding")].arrays
        except KeyError:
            raise JobError(f"patch {k} is not embedded yet; run the embedding again to finish the job.") from None
        if "embedding" not in arrays:
            raise FormatError(f"the embedding of patch {k} has no array 'embedding', but {', '.join(arrays)}.")
        return arrays["embedding"]


def _reopen(store: Store, version: str, runs: int, which: tuple[int, ...] | None) -> EmbeddedPatches:
    opened, node_sets = _opened(cast(Hashable, store), version, runs)
    return EmbeddedPatches(opened, node_sets, which=which)


@functools.lru_cache(maxsize=2)
def _opened(store: Hashable, version: str, runs: int) -> tuple[Store, Sequence[IntArray]]:  # noqa: ARG001
    """Open the node lists once per worker, not once per call; ``version`` is the fingerprint of the patches."""
    opened = cast(Store, store)
    return opened, stored_patch_graph(opened).repeat(runs).node_sets
