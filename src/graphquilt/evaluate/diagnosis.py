"""Where a stitched embedding loses against full training: in the patches, in averaging them, or in aligning them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import Alignment, centroid
from graphquilt.alignment.overlap import checked_patch
from graphquilt.alignment.refinement import lay_onto
from graphquilt.errors import InputError
from graphquilt.evaluate.checks import checked_embedding
from graphquilt.evaluate.routes import Measures, measure
from graphquilt.graph import Graph
from graphquilt.linalg.motions import Motions
from graphquilt.patches import NodeSets, PatchGraph, coverage

__all__ = ["Diagnosis", "diagnose"]


@dataclass(frozen=True)
class Diagnosis:
    """What four embeddings of one graph score, each one step further from full training than the one before.

    ``print`` says what each step costs.

    Attributes
    ----------
    full : Measures or None
        One embedding of the whole graph, where there is one.
    local : Measures
        Each node from the one patch that sees most of its edges, every patch laid onto the reference by itself. The
        reference is full training, or without that the stitched embedding.
    averaged : Measures
        All patches of each node averaged, laid onto the reference in the same way.
    stitched : Measures
        What alignment and averaging gave.
    """

    full: Measures | None
    local: Measures
    averaged: Measures
    stitched: Measures

    @property
    def measure(self) -> str:
        """What is spoken of: accuracy where there are labels, otherwise AUC."""
        return "AUC" if self.stitched.accuracy is None else "accuracy"

    def _value(self, measures: Measures) -> float:
        return measures.auc if measures.accuracy is None else measures.accuracy

    @property
    def losses(self) -> dict[str, float]:
        """What each step loses; negative is a gain. With full training they add up to the whole loss."""
        steps = {"local training": (self.full, self.local)} if self.full is not None else {}
        steps |= {"averaging": (self.local, self.averaged), "alignment": (self.averaged, self.stitched)}
        return {name: self._value(a) - self._value(b) for name, (a, b) in steps.items() if a is not None}

    def __str__(self) -> str:
        scale, unit, least = (1000, "thousandths", 5) if self.measure == "AUC" else (100, "points", 0.5)
        stitched = self._value(self.stitched)
        if self.full is None:
            lines = [
                f"Stitched {self.measure} {stitched:.3f}; patches alone, laid onto it: {self._value(self.local):.3f}."
            ]
        else:
            total = self._value(self.full) - stitched
            word = "lost" if total >= 0 else "won"
            lines = [
                f"Full training {self.measure} {self._value(self.full):.3f}, stitched {stitched:.3f}: "
                f"{abs(total) * scale:.1f} {unit} of {self.measure} {word}."
            ]
        for name, loss in self.losses.items():
            lines.append(f"{name.capitalize()} {'loses' if loss >= 0 else 'wins'} {abs(loss) * scale:.1f} {unit}.")
        worst = max(self.losses, key=lambda name: self.losses[name])
        if self.losses[worst] * scale >= least:
            lines.append(_ADVICE[worst])
        return "\n".join(lines)


_ADVICE = {
    "local training": "Most is lost inside the patches: make them larger, regularise, average runs (--recipe best).",
    "averaging": "Averaging loses most: weigh rows by coverage (align --coverage 2), or try consensus rounds.",
    "alignment": "Alignment loses most: refine it (align --refine 3), or cut with larger overlaps or a higher degree.",
}


def diagnose(
    graph: Graph,
    patches: Sequence[Any],
    alignment: Alignment,
    *,
    X: npt.ArrayLike | None = None,
    weights: Sequence[npt.ArrayLike] | None = None,
    full: npt.ArrayLike | None = None,
    seed: int,
    splits: int = 50,
    max_edges: int | None = None,
) -> Diagnosis:
    """Say how much is lost in local training, in averaging and in alignment.

    Parameters
    ----------
    graph : Graph
        With labels, where accuracy is to be spoken of.
    patches : sequence of Patch or (nodes, coordinates) pairs
        As they were aligned; of several runs, the first says what one patch alone is worth.
    alignment : Alignment
    X : array (n, d), optional
        The stitched embedding; by default the centroid.
    weights : sequence of p arrays (k_i,), optional
        What the rows counted with in the centroid.
    full : array (n, d), optional
        An embedding of the whole graph by the same method. Without it, what local training loses cannot be told.
    seed, splits, max_edges
        See :func:`graphquilt.evaluate.compare_routes`.
    """
    n = graph.n_nodes
    stitched = centroid(patches, alignment, weights=weights, n_nodes=n) if X is None else checked_embedding(X, n)
    reference = stitched if full is None else checked_embedding(full, n)
    if reference.shape != stitched.shape:
        raise InputError(f"the full embedding is {reference.shape} and the stitched one {stitched.shape}.")
    nodes = NodeSets.gather(checked_patch(patches[k], k).nodes for k in range(len(patches)))
    rescaled = bool(np.any(alignment.scales != alignment.scales[0]))
    laid = lay_onto(
        patches, Alignment.identity(len(patches), alignment.dim), reference, motions=Motions(scale=rescaled)
    )
    alone, seen = np.full(stitched.shape, np.nan), np.full(n, -1.0)
    quilt = PatchGraph(nodes, np.empty((0, 2), dtype=np.int64), n, components="each")
    for k, share in enumerate(coverage(graph, quilt)):
        patch = checked_patch(patches[k], k)
        order = np.argsort(patch.nodes, kind="stable")  # patch graphs count nodes in ascending order
        rows, places = patch.nodes[order], np.asarray(patch.coordinates)[order]
        better = share > seen[rows]
        alone[rows[better]], seen[rows[better]] = laid.apply(k, places)[better], share[better]
    averaged = centroid(patches, laid, weights=weights, n_nodes=n)

    def score(Z: npt.ArrayLike) -> Measures:
        return measure(Z, graph, seed=seed, splits=splits, max_edges=max_edges)

    return Diagnosis(None if full is None else score(reference), score(alone), score(averaged), score(stitched))
