"""Versions of a job: what an update did and took over, which nodes are gone, and how a new version takes its place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from graphquilt.alignment import Alignment
from graphquilt.arrays import AnyArray, BoolArray, Float64Array, FloatArray, Int64Array
from graphquilt.jobs.records import patch_key, stored_patch_graph
from graphquilt.jobs.store import HISTORY, UPDATE, Store, store_folder, stored_record
from graphquilt.kernels import one_blas_thread

FRAME = "frame"  # the key of the rotation onto the frame of an earlier version
_BLOCK = 65_536  # rows turned at a time
FALLEN = 0.9  # of the share of the signal that the old directions kept: below, new directions are advised
_NEAREST, _ASKED, _PRODUCTS = 10, 1000, 1 << 25  # rows looked at to find a node again, nodes asked, cosines computed


def taken_over(store: Store) -> Mapping[str, str]:
    """Return the digests of the records that the last update has taken over from the version before, by key."""
    record = stored_record(store, UPDATE)
    reused = {} if record is None else record.parameters.get("reused")
    return reused if isinstance(reused, dict) else {}


def gone_nodes(store: Store, n_nodes: int) -> BoolArray | None:
    """Return which nodes (n,) updates have found gone; None if none are."""
    record = stored_record(store, UPDATE)
    gone = None if record is None else record.arrays.get("gone")
    return None if gone is None or gone.shape != (n_nodes,) or not gone.any() else np.asarray(gone, dtype=bool)


def history(store: Store) -> list[dict[str, object]]:
    """Return the updates of a job, the first one first."""
    record = stored_record(store, HISTORY)
    entries = [] if record is None else record.parameters.get("history")
    return [dict(entry) for entry in entries] if isinstance(entries, list) else []


def frame_rotation(store: Store) -> tuple[Float64Array, str] | None:
    """Return the rotation (d, d) onto the frame of an earlier version, and its digest; None if there is none."""
    record = stored_record(store, FRAME)
    return None if record is None else (np.asarray(record.arrays["rotation"]), record.digest)


def turn(X: AnyArray, rotation: AnyArray) -> AnyArray:
    """Return rows times a rotation, in the type of the rows."""
    return np.asarray(np.asarray(X, dtype=np.float64) @ rotation, dtype=X.dtype)


def settle_rows(store: Store, alignment: Alignment, X: FloatArray, *, free: bool) -> Alignment:
    """Put the rows of gone nodes at the origin and, where patches are ``free`` to turn, turn all onto the frame."""
    found = frame_rotation(store) if free else None
    if found is not None:
        for start in range(0, len(X), _BLOCK):
            X[start : start + _BLOCK] = turn(X[start : start + _BLOCK], found[0])
        rotations = np.tile(found[0], (alignment.n_patches, 1, 1))
        alignment = alignment.compose(replace(Alignment.identity(*rotations.shape[:2]), rotations=rotations))
    gone = gone_nodes(store, len(X))
    if gone is not None:
        X[gone] = 0
    return alignment


def copy_record(source: Store, target: Store, key: str) -> None:
    """Give another store a record, in a folder as further links to the same files."""
    folders = store_folder(source), store_folder(target)
    if folders[0] is None or folders[1] is None:
        target[key] = source[key]
        return
    (folders[1] / key).parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".npy", ".npz", ".json"):  # the marker last
        path, copy = folders[0] / f"{key}{suffix}", folders[1] / f"{key}{suffix}"
        if path.exists() and not copy.exists():
            try:
                os.link(path, copy)
            except OSError:  # a disk without links
                shutil.copyfile(path, copy)


@dataclass(frozen=True, kw_only=True)
class Update:
    """What an update did.

    ``version`` is the one that the job has now; the first is 1. ``missing`` edges were to be removed and not there.
    ``share`` is the share of the signal of what is new that the directions keep, ``share_before`` that of all nodes
    before; None if the embedder does not say. ``found`` is how often a node's new row is among the ten nearest to its
    old one. With new directions, no rotation gives the part ``unlike`` of the old rows.
    """

    version: int
    nodes_added: int = 0
    nodes_gone: int = 0
    edges_added: int = 0
    edges_removed: int = 0
    reweighted: int = 0
    missing: int = 0
    redone: int = 0
    n_patches: int = 0
    share: float | None = None
    share_before: float | None = None
    found: float | None = None
    unlike: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the old directions still serve, in a sentence."""
        if self.unlike is not None:
            return f"New directions, turned onto the old ones; no rotation gives {self.unlike:.0%} of the old rows."
        if self.share is None or self.share_before is None:
            return "The frame is the old one."
        now, before = f"{self.share:.0%}", f"{self.share_before:.0%}"
        kept = f"The old directions keep {now} of the signal of what is new, and kept {before} of all before"
        if self.share < FALLEN * self.share_before:
            return f"{kept}: they miss what is new. Update with --refresh for new directions."
        return f"{kept}: they still serve."


def start_keys(store: Store, run: int) -> list[str]:
    """Return the keys of the shared starts of a run, round by round."""
    keys: list[str] = []
    while f"starts/{run}/{len(keys)}" in store:
        keys.append(f"starts/{run}/{len(keys)}")
    return keys


def share_of(store: Store, mask: BoolArray) -> float | None:
    """Return the share of the signal of some nodes that the directions of the start keep: their rows are unscaled."""
    keys = start_keys(store, 0)
    start = store[keys[-1]].arrays if keys else {}
    if "scale" not in start or not mask.any():
        return None
    scale, frame, total, count = np.asarray(start["scale"], dtype=np.float64), frame_rotation(store), 0.0, 0
    inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1), 0)
    for k, nodes in enumerate(stored_patch_graph(store).node_sets):
        rows = np.flatnonzero(mask[nodes])
        if len(rows):
            X = np.asarray(store[patch_key(k, "embedding")].arrays["embedding"][rows], dtype=np.float64)
            X = X if frame is None else X @ frame[0].T
            total += float(np.square(X * inverse).sum())
            count += len(rows)
    return total / count


def found_again(before: AnyArray, after: AnyArray, nodes: Int64Array, *, n_nearest: int = _NEAREST) -> float | None:
    """Return how often a node's row after is among those nearest, by cosine, to its row before, of up to 1000 nodes."""
    count = min(_ASKED, len(nodes), max(_PRODUCTS // max(len(after), 1), 50))
    if not count:
        return None
    asked = nodes[np.linspace(0, len(nodes) - 1, count).astype(np.int64)]
    with one_blas_thread():
        unit = np.asarray(after, dtype=np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", unit, unit))
        cosines = np.asarray(before[asked], dtype=np.float32) @ unit.T / np.where(lengths > 0, lengths, 1)
    own = cosines[np.arange(count), asked]
    return float(np.mean((cosines > own[:, None]).sum(axis=1) < n_nearest))
