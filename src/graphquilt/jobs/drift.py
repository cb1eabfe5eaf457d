"""Update: what an update did to a job, and whether its old directions still serve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphquilt.arrays import AnyArray, BoolArray, Int64Array
from graphquilt.jobs.records import patch_key, stored_patch_graph
from graphquilt.jobs.store import Store
from graphquilt.jobs.versions import frame_rotation
from graphquilt.kernels import one_blas_thread

FALLEN = 0.9  # of the share of the signal that the old directions kept: below, new directions are advised
_NEAREST, _ASKED, _PRODUCTS = 10, 1000, 1 << 25  # rows looked at to find a node again, nodes asked, cosines computed


@dataclass(frozen=True, kw_only=True)
class Update:
    """What an update did.

    Attributes
    ----------
    version : int
        The version that the job has now; the first is 1.
    nodes_added, nodes_gone, edges_added, edges_removed, reweighted : int
    missing : int
        Edges to remove that were not there.
    redone, n_patches : int
        How many patches were embedded again, and how many there are.
    share, share_before : float, optional
        The share of the signal of what is new that the directions keep, and that of all nodes before. None if the
        embedder does not say.
    found : float, optional
        How often a node's new row is among the ten nearest to its old one, of nodes that stayed.
    unlike : float, optional
        With new directions: the share of the old rows that no rotation of the new ones gives.
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
