"""Compare routes to an embedding, and attribute the loss against full training to training, averaging and alignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import Alignment, centroid
from graphquilt.alignment.centroids import lay_onto
from graphquilt.alignment.patch_index import PatchLike, checked_patch
from graphquilt.arrays import Float64Array, FloatArray
from graphquilt.embedders.contract import Embedder, checked_fit
from graphquilt.embedders.shared_start import agree, shares_start
from graphquilt.errors import InputError
from graphquilt.evaluate import EvaluationOptions, Quality, quality
from graphquilt.evaluate.positions import checked_embedding
from graphquilt.graph import Graph
from graphquilt.linalg.motions import Motions
from graphquilt.patches import NodeSets, PatchGraph, coverage

__all__ = ["Comparison", "Diagnosis", "compare", "diagnose", "one_encoder"]


class Comparison(dict[str, Quality]):
    """The quality of each route: ``full`` (if given), ``l2g`` and ``no-trans``."""

    def __str__(self) -> str:
        lines = ["| route | AUC | accuracy |", "| --- | --- | --- |"]
        for route, scores in self.items():
            accuracy = "–" if scores.accuracy is None else f"{scores.accuracy:.3f} ± {scores.accuracy_std:.3f}"
            lines.append(f"| {route} | {scores.auc:.3f} | {accuracy} |")
        return "\n".join(lines)


def compare(
    graph: Graph,
    patches: Sequence[PatchLike],
    alignment: Alignment,
    *,
    weights: Sequence[npt.ArrayLike] | None = None,
    full: npt.ArrayLike | None = None,
    options: EvaluationOptions = EvaluationOptions(),
) -> Comparison:
    """Measure the patches aligned (``l2g``) and unaligned (``no-trans``), and one embedding of the whole graph.

    Parameters
    ----------
    graph : Graph
        With labels, accuracy is measured too.
    patches : sequence of Patch or (nodes, coordinates) pairs
    alignment : Alignment
    weights : sequence of p arrays (k_i,), optional
        Weights of the rows in the centroid, for aligned and unaligned patches.
    full : array (n, d), optional
        An embedding of the whole graph by the same method.
    options : EvaluationOptions
        All routes are measured on the same non-edges and splits.
    """
    identity = Alignment.identity(len(patches), alignment.dim)
    embeddings = {} if full is None else {"full": np.asanyarray(full)}
    embeddings["l2g"] = centroid(patches, alignment, n_nodes=graph.n_nodes, weights=weights)
    embeddings["no-trans"] = centroid(patches, identity, n_nodes=graph.n_nodes, weights=weights)
    return Comparison({route: quality(X, graph, options=options) for route, X in embeddings.items()})


_ADVICE = {
    "local training": "Local training loses most: make patches larger, or average runs (--runs 6).",
    "averaging": "Averaging loses most: weight rows by coverage (stitch --coverage 2).",
    "alignment": "Alignment loses most: refine it (stitch --refine 3), or cut with larger overlaps or a higher degree.",
    "shared": (
        "The encoder of one patch is better than all patches together: they learn well, but each in its own frame. "
        "Give them a shared start (see docs/embedders.md)."
    ),
}


@dataclass(frozen=True)
class Diagnosis:
    """The quality of four embeddings of one graph, each one step further from full training than the one before.

    Printed, it explains what each step loses.

    Attributes
    ----------
    full : Quality or None
        One embedding of the whole graph, if given.
    local : Quality
        Each node as in the patch that contains most of its edges, where every patch is moved onto the reference
        separately. The reference is full training or, without it, the stitched embedding.
    averaged : Quality
        The average of all patches of each node, moved onto the reference in the same way.
    stitched : Quality
        The embedding after alignment and averaging.
    shared : Quality or None
        The whole graph embedded by one encoder, if given; see :func:`one_encoder`. It needs no alignment. If it is
        better than the stitched embedding, the patches learn well but disagree.
    """

    full: Quality | None
    local: Quality
    averaged: Quality
    stitched: Quality
    shared: Quality | None = None

    @property
    def measure(self) -> str:
        """The measure that is compared: accuracy if there are labels, otherwise AUC."""
        return "AUC" if self.stitched.accuracy is None else "accuracy"

    @property
    def losses(self) -> dict[str, float]:
        """The loss of each step, negative for a gain; with full training they add up to the whole loss."""
        steps = {"local training": (self.full, self.local)} if self.full is not None else {}
        steps |= {"averaging": (self.local, self.averaged), "alignment": (self.averaged, self.stitched)}
        return {name: _value(a) - _value(b) for name, (a, b) in steps.items() if a is not None}

    def __str__(self) -> str:
        scale, unit, least = (1000, "thousandths", 5) if self.measure == "AUC" else (100, "points", 0.5)
        stitched = _value(self.stitched)
        if self.full is None:
            first = f"Stitched {self.measure} {stitched:.3f}; single patches, moved onto it: {_value(self.local):.3f}."
        else:
            total = _value(self.full) - stitched
            first = (
                f"Full training {self.measure} {_value(self.full):.3f}, stitched {stitched:.3f}: "
                f"{abs(total) * scale:.1f} {unit} of {self.measure} {'lost' if total >= 0 else 'gained'}."
            )
        lines = [first]
        for name, loss in self.losses.items():
            lines.append(f"{name.capitalize()} {'loses' if loss >= 0 else 'gains'} {abs(loss) * scale:.1f} {unit}.")
        if self.shared is not None:
            gain = (_value(self.shared) - stitched) * scale
            lines.append(
                f"One encoder for all: {self.measure} {_value(self.shared):.3f}, {abs(gain):.1f} {unit} "
                f"{'above' if gain >= 0 else 'below'} the stitched embedding."
            )
            if gain >= least:
                lines.append(_ADVICE["shared"])
        worst = max(self.losses, key=lambda name: self.losses[name])
        if self.losses[worst] * scale >= least:
            lines.append(_ADVICE[worst])
        return "\n".join(lines)


def _value(scores: Quality) -> float:
    return scores.auc if scores.accuracy is None else scores.accuracy


def diagnose(
    graph: Graph,
    patches: Sequence[PatchLike],
    alignment: Alignment,
    *,
    X: npt.ArrayLike | None = None,
    weights: Sequence[npt.ArrayLike] | None = None,
    full: npt.ArrayLike | None = None,
    shared: npt.ArrayLike | None = None,
    options: EvaluationOptions = EvaluationOptions(),
) -> Diagnosis:
    """Measure how much local training, averaging and alignment each lose, and what one encoder gives.

    Parameters
    ----------
    graph, patches, alignment, weights, options
        See :func:`compare`. If a patch was embedded in several runs, the first run represents it.
    X : array (n, d), optional
        The stitched embedding; by default the centroid.
    full : array (n, d), optional
        An embedding of the whole graph by the same method. Without it the loss of local training is unknown.
    shared : array (n, d), optional
        The whole graph embedded by one encoder that was trained on a part of it; see :func:`one_encoder`.
    """
    n = graph.n_nodes
    stitched = centroid(patches, alignment, weights=weights, n_nodes=n) if X is None else checked_embedding(X, n)
    reference = stitched if full is None else checked_embedding(full, n)
    if reference.shape != stitched.shape:
        raise InputError(
            f"the full embedding has shape {reference.shape} and the stitched one {stitched.shape}; they must be equal."
        )
    rescaled = bool(np.any(alignment.scales != alignment.scales[0]))
    identity = Alignment.identity(len(patches), alignment.dim)
    onto_reference = lay_onto(patches, identity, reference, motions=Motions(scale=rescaled))
    local = _best_patch_of_each_node(graph, patches, onto_reference)
    averaged = centroid(patches, onto_reference, weights=weights, n_nodes=n)
    return Diagnosis(
        full=None if full is None else quality(reference, graph, options=options),
        local=quality(local, graph, options=options),
        averaged=quality(averaged, graph, options=options),
        stitched=quality(stitched, graph, options=options),
        shared=None if shared is None else quality(shared, graph, options=options),
    )


def one_encoder(graph: Graph, nodes: npt.ArrayLike, embedder: Embedder, *, seed: int) -> FloatArray | None:
    """Train on ``nodes``, one part of a graph, and embed the whole graph by the resulting encoder, (n, d).

    An embedder with a shared start but without an encoder gets the start of the part. The result is None if the
    embedder has neither, or if its encoder cannot embed nodes that it has not seen.
    """
    part = graph.subgraph(nodes)
    try:
        encoder = checked_fit(embedder, part, seed, where="the part").encoder if hasattr(embedder, "fit") else None
        if encoder is not None:
            return encoder(graph)
        if not shares_start(embedder, part):
            return None
        return checked_fit(agree(embedder, [(part, None)], seed), graph, seed).embedding
    except InputError:  # raised by an encoder that knows only the nodes it was trained on
        return None


def _best_patch_of_each_node(graph: Graph, patches: Sequence[PatchLike], alignment: Alignment) -> Float64Array:
    """Return the aligned position of each node in the patch that contains the largest share of its edges, (n, d)."""
    n = graph.n_nodes
    node_sets = NodeSets.gather(checked_patch(patches[k], k).nodes for k in range(len(patches)))
    patch_graph = PatchGraph(node_sets, np.empty((0, 2), dtype=np.int64), n, components="each")
    X, largest = np.full((n, alignment.dim), np.nan), np.full(n, -1.0)
    for k, share in enumerate(coverage(graph, patch_graph)):
        patch = checked_patch(patches[k], k)
        order = np.argsort(patch.nodes, kind="stable")  # the nodes of a patch graph are in ascending order
        rows, coordinates = patch.nodes[order], np.asarray(patch.coordinates)[order]
        better = share > largest[rows]
        X[rows[better]], largest[rows[better]] = alignment.apply(k, coordinates)[better], share[better]
    return X
