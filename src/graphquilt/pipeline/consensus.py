"""Consensus rounds: patches are embedded again, each pulled to where the others put its nodes, and aligned again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphquilt.alignment import Alignment
from graphquilt.arrays import BoolArray, FloatArray, Int64Array
from graphquilt.embedders.contract import Target
from graphquilt.errors import InputError
from graphquilt.patches import LazySequence, NodeSets

__all__ = ["ConsensusTargets", "Round", "consensus_targets"]


@dataclass(frozen=True, eq=False)
class Round:
    """One pass over all patches.

    Attributes
    ----------
    number : int
        0 is the first embedding, which is not pulled anywhere; consensus rounds count from 1.
    targets : sequence of Target or None
        One target for each patch, from round 1 on; see :func:`consensus_targets`.
    """

    number: int = 0
    targets: Sequence[Target] | None = None

    def __post_init__(self) -> None:
        if self.number < 0 or (self.targets is None) != (self.number == 0):
            raise InputError(
                f"round {self.number} has {'no' if self.targets is None else len(self.targets)} targets; rounds from 1 "
                "on have one target for each patch, and round 0 has none."
            )


class ConsensusTargets(LazySequence[Target]):
    """For each patch, where the aligned centroid puts its shared nodes, in the patch's own coordinates.

    Each target is computed when it is asked for, from an embedding that may lie on disk.
    """

    def __init__(
        self, node_sets: Sequence[Int64Array], alignment: Alignment, X: FloatArray, shared: BoolArray, pull: float
    ) -> None:
        self._node_sets, self._alignment, self._X, self._shared, self._pull = node_sets, alignment, X, shared, pull

    def __len__(self) -> int:
        return len(self._node_sets)

    def _item(self, index: int) -> Target:
        nodes = self._node_sets[index]
        rows = np.flatnonzero(self._shared[nodes])
        places = self._alignment.undo(index, self._X[nodes[rows]])
        # Single precision: the job and the network carry half as much, and training rounds to it anyway.
        return Target(rows, places.astype(np.float32), self._pull)


def consensus_targets(
    patches: Sequence[object], alignment: Alignment, X: FloatArray, *, pull: float = 1.0
) -> ConsensusTargets:
    """Return where each patch should put the nodes that it shares with others.

    Parameters
    ----------
    patches : sequence of Patch, (nodes, coordinates) pairs, or arrays of nodes
        Those that were aligned. Rows of the targets count their nodes in ascending order, as patch graphs do.
    alignment : Alignment
    X : float array (n, d)
        The aligned centroid of all patches.
    pull : float
        How strongly the nodes are pulled; see :class:`graphquilt.embedders.Target`.

    Examples
    --------
    >>> targets = consensus_targets([[0, 1], [1, 2]], Alignment.identity(2, 1), np.array([[0.0], [1.0], [2.0]]))
    >>> targets[1].rows.tolist(), targets[1].coordinates.tolist()
    ([0], [[1.0]])
    """
    if not pull > 0:
        raise InputError(f"pull is the weight of the consensus beside the embedder's loss and positive, not {pull}.")
    node_sets = patches if isinstance(patches, NodeSets) else NodeSets.gather(patches)
    if len(node_sets) != alignment.n_patches:
        raise InputError(f"there are {len(node_sets)} patches and the alignment has {alignment.n_patches}.")
    counts = np.zeros(len(X), dtype=np.int64)
    for nodes in node_sets:
        counts[nodes] += 1
    return ConsensusTargets(node_sets, alignment, X, counts > 1, pull)
