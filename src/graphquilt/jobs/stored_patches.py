"""Embedded patches, opened when they are needed; and the file of rows that are not kept, block by block of nodes.

Where a shared start leaves nothing to move, the row of a node that lies in one patch only is its position. Such rows go
to one file, in the order of blocks of nodes and in each block of patches. Every row has a fixed place, so writing it
again changes nothing, and workers need no turns. Stitching reads the last block first and cuts it off once the result
has it: the length of the file tells how far it has come, whenever it is killed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np

from graphquilt.alignment.fit import FrameFit
from graphquilt.alignment.patch_index import checked_patch
from graphquilt.arrays import AnyArray, BoolArray, Float64Array, FloatArray, IntArray
from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.files import check_disk, translate_disk_errors
from graphquilt.graph import Graph
from graphquilt.jobs.records import patch_key, stored_patch_graph
from graphquilt.jobs.settings import JobSettings
from graphquilt.jobs.store import Record, Store, store_folder, store_name
from graphquilt.patches import LazySequence, Patch

KEY = "rows"  # of the record that describes the file
BLOCK = 1 << 29  # bytes of the result in a block, in double precision


def patch_counts(store: Store) -> AnyArray:
    """Return in how many patches each node is, by the survey of a store."""
    return store["survey"].arrays["node_patches"]


def shared_rows(counts: AnyArray, nodes: IntArray) -> BoolArray:
    """Return which nodes of a patch (k,) are in other patches too, by their counts; the first always counts as such."""
    mask: BoolArray = np.asarray(counts[nodes]) > 1
    mask[:1] = True
    return mask


@dataclass(frozen=True)
class PatchRows:
    """The places of one patch's rows in the file: (place, first row, row after the last) for each block."""

    path: str
    dtype: str
    dim: int
    spans: tuple[tuple[int, int, int], ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dim * np.dtype(self.dtype).itemsize

    def write(self, X: FloatArray) -> str:
        """Write the rows (k, d), flush them to the disk, and return their checksum."""
        rows = np.ascontiguousarray(X, dtype=self.dtype)
        with translate_disk_errors(Path(self.path).parent), open(self.path, "r+b", buffering=0) as file:
            for place, first, last in self.spans:
                file.seek(place * self.row_bytes)
                left = memoryview(rows[first:last].tobytes())
                while left:
                    left = left[file.write(left) :]
            os.fsync(file.fileno())
        return hashlib.sha256(rows.data).hexdigest()

    def read(self, begin: int = 0, end: int | None = None) -> AnyArray:
        """Return the rows begin..end-1, by default all; fewer if the file was cut off before them."""
        end = max((last for _, _, last in self.spans), default=0) if end is None else end
        parts = []
        with open(self.path, "rb") as file:
            for place, first, last in self.spans:
                a, b = max(first, begin), min(last, end)
                if a < b:
                    file.seek((place + a - first) * self.row_bytes)
                    parts.append(file.read((b - a) * self.row_bytes))
        content = b"".join(parts)
        whole = len(content) // self.row_bytes * self.row_bytes
        return np.frombuffer(content[:whole], self.dtype).reshape(-1, self.dim)

    def checksum(self) -> str:
        """Return the checksum of what the file has."""
        return hashlib.sha256(self.read().data).hexdigest()


class RowFile:
    """The file with the rows of all nodes that are in one patch only; its store is in a folder and has a survey."""

    def __init__(self, store: Store, node_sets: Sequence[IntArray], n_nodes: int, *, dim: int, dtype: str) -> None:
        folder = store_folder(store)
        assert folder is not None
        self.path, self.dim, self.dtype = folder / f"{KEY}.bin", dim, dtype
        self.row_bytes = dim * np.dtype(dtype).itemsize
        step = max(1, BLOCK // (8 * dim))
        self.borders = np.append(np.arange(0, n_nodes, step), n_nodes)
        counts, patches = np.zeros((len(self.borders) - 1, len(node_sets)), dtype=np.int64), patch_counts(store)
        for k, nodes in enumerate(node_sets):
            counts[:, k] = np.diff(np.searchsorted(nodes[~shared_rows(patches, nodes)], self.borders))
        self.counts = counts
        self.places = np.concatenate([[0], np.cumsum(counts)])  # of block b and patch k: b * p + k

    @classmethod
    def opened(cls, store: Store, node_sets: Sequence[IntArray], n_nodes: int) -> RowFile | None:
        """Return the file that a store describes, or None if its patches are kept, or were never embedded."""
        if store_folder(store) is None or KEY not in store:
            return None
        facts = store[KEY].parameters
        return cls(store, node_sets, n_nodes, dim=int(str(facts["dim"])), dtype=str(facts["dtype"]))

    @property
    def blocks_left(self) -> int:
        """Number of blocks that the file still has, from the first on; -1 if there is no file."""
        try:
            n_rows = self.path.stat().st_size // self.row_bytes
        except FileNotFoundError:
            return -1
        ends = self.places[self.counts.shape[1] :: self.counts.shape[1]]
        return int(np.searchsorted(ends, n_rows, side="right"))

    @property
    def is_whole(self) -> bool:
        """Whether the file has its full length."""
        return self.blocks_left == len(self.counts)

    def create(self, store: Store) -> None:
        """Make a file of the full length, unless there is one; its blocks take disk only when they are written."""
        if not self.is_whole:
            size = int(self.places[-1]) * self.row_bytes
            check_disk(self.path.parent, size, "the embedding of the patches")
            with translate_disk_errors(self.path.parent), open(self.path, "wb") as file:
                file.truncate(size)
        store[KEY] = Record({}, {"dim": self.dim, "dtype": self.dtype})

    def of_patch(self, patch: int) -> PatchRows:
        """Return the places of a patch's rows."""
        p, ends = self.counts.shape[1], np.cumsum(self.counts[:, patch]).tolist()
        spans = (
            (int(self.places[b * p + patch]), end - int(count), end)
            for b, (end, count) in enumerate(zip(ends, self.counts[:, patch], strict=True))
        )
        return PatchRows(str(self.path), self.dtype, self.dim, tuple(span for span in spans if span[1] < span[2]))

    def blocks(self, result: FloatArray) -> Iterator[tuple[int, int]]:
        """Yield the first node of each block that is left and the one after its last; flush it, and then cut it off."""
        for b in reversed(range(self.blocks_left)):
            yield int(self.borders[b]), int(self.borders[b + 1])
            if isinstance(result, np.memmap):
                result.flush()
            os.truncate(self.path, int(self.places[b * self.counts.shape[1]]) * self.row_bytes)


class EmbeddedPatches(LazySequence[Patch]):
    """The embedded patches of a store, each opened whenever it is asked for; ``which`` of them, by default all.

    Row r of an embedding belongs to ``node_sets[k][r]``. ``settings``, how they were embedded, and ``graph`` are the
    defaults of :func:`graphquilt.stitch`.
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
        self._masks: dict[int, BoolArray] = {}

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

    def nodes_of(self, index: int) -> IntArray:
        """Return the nodes of a patch, ascending, without its coordinates."""
        return self._node_sets[self._which[index]]

    def shared_of(self, index: int) -> BoolArray:
        """Return which of the nodes of a patch are in other patches too; a byte per node is kept."""
        return self._shared(self._which[index])

    def _shared(self, k: int) -> BoolArray:
        if k not in self._masks:
            self._masks[k] = shared_rows(self._counts, self._node_sets[k])
        return self._masks[k]

    @functools.cached_property
    def _counts(self) -> AnyArray:
        return patch_counts(self.store)

    @functools.cached_property
    def row_file(self) -> RowFile | None:
        """The file with the rows of nodes that are in one patch only; None if patches are kept."""
        if not any("rows" in self.store[patch_key(k, "embedding")].parameters for k in self._which):
            return None
        n_nodes = 1 + max(int(nodes[-1]) for nodes in self._node_sets)
        return RowFile.opened(self.store, self._node_sets, n_nodes)

    def between(self, index: int, first: int, last: int) -> tuple[IntArray, AnyArray, slice, int]:
        """Return those nodes of a patch that lie in first..last-1, and their coordinates, without checking the rest.

        Also return which rows of the patch these are, and how many it has.
        """
        k = self._which[index]
        nodes = self._node_sets[k]
        rows = slice(*(int(place) for place in np.searchsorted(nodes, [first, last])))
        return nodes[rows], self._coordinates(k, rows), rows, len(nodes)

    def remove(self) -> None:
        """Remove the embeddings of all patches; their records remain."""
        for k in self._which:
            record = self.store[patch_key(k, "embedding")]
            parameters = {**record.parameters, "rows": record.checksum or record.digest}
            self.store[patch_key(k, "embedding")] = Record({}, parameters)

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
        """Refuse to stitch if patches are missing, have other dimensions, or were embedded differently."""
        missing = [k for k in self._which if patch_key(k, "embedding") not in self.store]
        if missing:
            left = f"{len(missing)} of {len(self)} patches are not embedded yet, the first is {missing[0]}"
            raise JobError(f"{left}; finish them first (graphquilt embed-patches).")
        width = stored_rows(self.store, self._which[0])[0].shape[1]
        if width != dim:
            name = store_name(self.store)
            raise InputError(f"patch 0 has {width} dimensions, and the settings of {name} say {dim}; make them equal.")
        several = self.settings is not None and isinstance(self.settings.embedder, tuple)
        for run in np.array_split(self._which, runs):
            made_with: dict[str, int] = {}
            for k in run.tolist():
                facts = self.store[patch_key(k, "embedding")].parameters
                made_with.setdefault(repr((facts.get("start"), None if several else facts.get("embedder"))), k)
            if len(made_with) > 1:
                first, other, *_ = made_with.values()
                raise JobError(
                    f"patches {first} and {other} of {store_name(self.store)} were embedded by different embedders or "
                    "from different shared starts; embed them again (graphquilt embed-patches)."
                )

    def _coordinates(self, k: int, rows: slice = slice(None)) -> AnyArray:
        nodes, (X, is_part) = self._node_sets[k], stored_rows(self.store, k)
        if is_part:
            return self._merged(k, X, rows)
        if X.ndim != 2 or len(X) != len(nodes):
            raise FormatError(f"patch {k} has {len(nodes)} nodes and an embedding of shape {X.shape}.")
        return X[rows]

    def _merged(self, k: int, X: AnyArray, rows: slice) -> AnyArray:
        """Return rows of a patch from its record, which has those that other patches share, and from the row file."""
        mask = self._shared(k)
        before, chosen = int(mask[: rows.start or 0].sum()), mask[rows]
        own = np.empty((0, X.shape[1]), dtype=X.dtype)
        if self.row_file is not None and self.row_file.blocks_left > 0:
            own = self.row_file.of_patch(k).read((rows.start or 0) - before, int((~mask[: rows.stop]).sum()))
        if len(own) != int((~chosen).sum()):
            raise JobError(
                f"the patches of {store_name(self.store)} were averaged into the embedding and not kept; keep them "
                "with --keep-patches (Recipe.keep_patches) when you embed."
            )
        merged = np.empty((len(chosen), X.shape[1]), dtype=X.dtype)
        merged[chosen], merged[~chosen] = X[before : before + int(chosen.sum())], own
        return merged


def stored_rows(store: Store, patch: int) -> tuple[AnyArray, bool]:
    """Return the rows in the record of a patch, and whether they are only those that other patches share."""
    try:
        record = store[patch_key(patch, "embedding")]
    except KeyError:
        raise JobError(f"patch {patch} is not embedded yet; run the embedding again to finish the job.") from None
    if "embedding" not in record.arrays and "rows" in record.parameters:
        raise JobError(f"patch {patch} was removed after it was stitched; --keep-patches keeps them.")
    if "embedding" not in record.arrays:
        raise FormatError(f"the embedding of patch {patch} has no array 'embedding', but {', '.join(record.arrays)}.")
    return record.arrays["embedding"], "rows" in record.parameters


class SharedRows(LazySequence[Patch]):
    """The rows of embedded patches that overlaps consist of: those of nodes that are in other patches too."""

    def __init__(self, patches: EmbeddedPatches) -> None:
        self.patches = patches

    def __len__(self) -> int:
        return len(self.patches)

    def _item(self, index: int) -> Patch:
        nodes, mask = self.patches.nodes_of(index), self.patches.shared_of(index)
        X, is_part = stored_rows(self.patches.store, index)
        return checked_patch((nodes[mask], X if is_part else X[mask]), index)

    def weights(self, weights: Sequence[Float64Array] | None) -> Sequence[Float64Array] | None:
        """Return the weights of these rows."""
        if weights is None:
            return None
        return [weights[k][self.patches.shared_of(k)] for k in range(len(self))]


def _reopen(store: Store, version: str, runs: int, which: tuple[int, ...] | None) -> EmbeddedPatches:
    opened, node_sets = _opened(cast(Hashable, store), version, runs)
    return EmbeddedPatches(opened, node_sets, which=which)


@functools.lru_cache(maxsize=2)
def _opened(store: Hashable, version: str, runs: int) -> tuple[Store, Sequence[IntArray]]:  # noqa: ARG001
    """Open the node lists once per worker, not once per call; ``version`` is the fingerprint of the patches."""
    opened = cast(Store, store)
    return opened, stored_patch_graph(opened).repeat(runs).node_sets


@contextlib.contextmanager
def open_output(
    store: Store, key: str, shape: tuple[int, int], dtype: str, *, continued: bool | None = None
) -> Iterator[FloatArray | None]:
    """Lend an array in a file, which becomes the record of this key without a copy; None for a store in memory.

    Unless ``continued`` is None, the file survives a run that is killed: the next continues it, or makes a new one.
    """
    folder, part = store_folder(store), output_part(store, key)
    if folder is None:
        yield None
        return
    if continued is None:
        check_disk(folder, shape[0] * shape[1] * np.dtype(dtype).itemsize, f"the {key}")
    try:
        with translate_disk_errors(folder):
            mode: Literal["r+", "w+"] = "r+" if continued else "w+"
            yield np.lib.format.open_memmap(part, mode=mode, dtype=np.dtype(dtype), shape=shape)
    except BaseException:
        if continued is None:
            part.unlink(missing_ok=True)
        raise


def output_part(store: Store, key: str) -> Path:
    """Return the file in which a run that was killed has left a part of an array."""
    return (store_folder(store) or Path()) / f"{key}.part"
