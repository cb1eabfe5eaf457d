"""Consensus rounds: patches are embedded again, each drawn to where the others saw its nodes, and aligned again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from graphquilt.alignment import Alignment
from graphquilt.arrays import AnyArray, BoolArray, FloatArray
from graphquilt.embedders.contract import Target
from graphquilt.errors import InputError
from graphquilt.patches import NodeSets

__all__ = ["ConsensusTargets", "Round", "consensus_targets"]


@dataclass(frozen=True, eq=False)
class Round:
    """One pass over all patches: which one it is, how many there are to be after the first, and what it is drawn to.

    Attributes
    ----------
    number : int
        0 is the first embedding, drawn to nothing; consensus rounds count from 1.
    of : int
        How many consensus rounds there are to be.
    targets : sequence of Target or None
        One for each patch, from round 1 on; see :func:`consensus_targets`.
    """

    number: int = 0
    of: int = 0
    targets: Sequence[Target] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.number <= self.of or (self.targets is None) != (self.number == 0):
            raise InputError(
                f"round {self.number} of {self.of} with {'no' if self.targets is None else len(self.targets)} targets; "
                "rounds from 1 on have one target a patch, round 0 has none."
            )


class ConsensusTargets(Sequence[Target]):
    """For each patch, where the aligned centroid puts its shared nodes, in the patch's own coordinates.

    Each is computed when it is asked for, from an embedding that may lie on disk.
    """

    def __init__(
        self,
        nodes: Sequence[AnyArray],
        alignment: Alignment,
        X: FloatArray,
        shared: BoolArray,
        pull: float,
    ) -> None:
        self._nodes, self._alignment, self._X, self._shared, self._pull = nodes, alignment, X, shared, pull

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, index: int) -> Target: ...
    @overload
    def __getitem__(self, index: slice) -> list[Target]: ...
    def __getitem__(self, index: int | slice) -> Target | list[Target]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        k = range(len(self))[index]
        rows = np.flatnonzero(self._shared[self._nodes[k]])
        places = self._alignment.undo(k, self._X[self._nodes[k][rows]])
        # Single precision: what is written to a job and what travels is half as large, and training rounds anyway.
        return Target(rows, places.astype(np.float32), self._pull)


def consensus_targets(
    patches: Sequence[Any], alignment: Alignment, X: FloatArray, *, pull: float = 1.0
) -> ConsensusTargets:
    """Return where each patch should put the nodes that it shares with others, for :func:`graphquilt.embed_patches`.

    Parameters
    ----------
    patches : sequence of Patch, (nodes, coordinates) pairs, or arrays of nodes
        Those that were aligned. Rows of the targets count their nodes in ascending order, as patch graphs do.
    alignment : Alignment
    X : float array (n, d)
        The aligned centroid of all patches.
    pull : float
        How strongly; see :class:`graphquilt.embedders.contract.Target`.

    Examples
    --------
    >>> targets = consensus_targets([[0, 1], [1, 2]], Alignment.identity(2, 1), np.array([[0.0], [1.0], [2.0]]))
    >>> targets[1].rows.tolist(), targets[1].coordinates.tolist()
    ([0], [[1.0]])
    """
    if not pull > 0:
        raise InputError(f"pull is the weight of the consensus beside the embedder's loss and positive, not {pull}.")
    nodes = patches if isinstance(patches, NodeSets) else NodeSets.gather(patches)
    if len(nodes) != alignment.n_patches:
        raise InputError(f"there are {len(nodes)} patches and the alignment has {alignment.n_patches}.")
    held = np.zeros(len(X), dtype=np.int64)
    for each in nodes:
        held[each] += 1
    return ConsensusTargets(nodes, alignment, X, held > 1, pull)
