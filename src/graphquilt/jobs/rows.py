"""Rows of patches that need not be kept: one file, block by block of nodes, which shrinks while the result grows.

Where a shared start leaves nothing to move, the row of a node that lies in one patch only is its position. Such rows go
to one file, in the order of blocks of nodes and in each block of patches. Every row has a fixed place, so writing it
again changes nothing, and workers need no turns. Stitching reads the last block first and cuts it off once the result
has it: the length of the file tells how far it has come, whenever it is killed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphquilt.arrays import AnyArray, BoolArray, FloatArray, IntArray
from graphquilt.files import check_disk, translate_disk_errors
from graphquilt.jobs.store import Record, Store, store_folder

KEY = "rows"  # of the record that describes the file
BLOCK = 1 << 29  # bytes of the result in a block, in double precision


def shared_rows(store: Store, nodes: IntArray) -> BoolArray:
    """Return which nodes of a patch (k,) are in other patches too, by the survey; the first always counts as such."""
    mask: BoolArray = np.asarray(store["survey"].arrays["node_patches"][nodes]) > 1
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
        step = max(1, BLOCK // (8 * dim))
        self.borders = np.append(np.arange(0, n_nodes, step), n_nodes)
        counts = np.zeros((len(self.borders) - 1, len(node_sets)), dtype=np.int64)
        for k, nodes in enumerate(node_sets):
            counts[:, k] = np.diff(np.searchsorted(nodes[~shared_rows(store, nodes)], self.borders))
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
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dim * np.dtype(self.dtype).itemsize

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
