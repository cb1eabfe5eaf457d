"""Evaluation of a job: how good its embedding is, and where it loses."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import Alignment, PatchLike, centroid
from graphquilt.alignment.centroids import lay_onto
from graphquilt.alignment.patch_index import checked_patch
from graphquilt.arrays import Float64Array
from graphquilt.errors import FormatError, InputError
from graphquilt.evaluate import EvaluationOptions, Quality, inner_product, quality, source_target
from graphquilt.evaluate.positions import checked_embedding
from graphquilt.graph import Graph
from graphquilt.jobs.description import fingerprint, plain
from graphquilt.jobs.job import Job
from graphquilt.jobs.store import Record, record_digest, stored_record
from graphquilt.linalg import Motions
from graphquilt.patches import NodeSets, PatchGraph, coverage

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """How good the embedding of a job is, and on request what local training, averaging and alignment lose."""

    quality: Quality
    diagnosis: Diagnosis | None = None


def evaluate_job(
    job: Job,
    *,
    labels: npt.ArrayLike | None = None,
    full: npt.ArrayLike | None = None,
    diagnosis: bool = False,
    options: EvaluationOptions = EvaluationOptions(),
) -> Evaluation:
    """Measure the embedding of a job, and record the result in the job.

    ``labels`` (n,) are classes, by default those of the graph. With ``diagnosis``, also measure what local training,
    averaging and alignment lose, with ``full`` (n, d) against an embedding of the whole graph.
    """
    X, graph, options = job.embedding, job.require_graph(), suited_score(job, options)
    if labels is not None:
        graph = graph.with_attributes(labels=labels)
    graph = without_choosing_labels(job, graph)
    measured, losses = quality(X, graph, options=options), None
    figures: dict[str, object] = {name: value for name, value in asdict(measured).items() if value is not None}
    if diagnosis or full is not None:
        losses = diagnose(graph, job.patches, job.alignment, X=X, weights=job.weights, full=full, options=options)
        figures |= {"losses": losses.losses, "unit": losses.measure}
    record_evaluation(job, {**figures, "options": plain(options)})
    return Evaluation(measured, losses)


def without_choosing_labels(job: Job, graph: Graph) -> Graph:
    """Return the graph without the labels that chose the signal of the job: accuracy on them would be too high."""
    if "choice" not in job.store or graph.labels is None:
        return graph
    used = np.asarray(job.store["choice"].arrays.get("used", np.empty(0)))
    if used.shape != (graph.n_nodes,) or used.dtype != bool:
        raise FormatError(f"the record 'choice' of {job.name} does not have {graph.n_nodes} entries, one per node.")
    unused = np.where(used, -1, np.asarray(graph.labels))
    if not (unused >= 0).any():
        _log.warning("all labels chose the signal of the job; the accuracy is measured on the same labels")
        return graph
    _log.warning("%d labels that chose the signal of the job are left out of the evaluation", int(used.sum()))
    return graph.with_attributes(labels=unused)


def suited_score(job: Job, options: EvaluationOptions) -> EvaluationOptions:
    """Return the options with the score of directed links, if the job's embedder keeps directions."""
    directed = all(getattr(embedder, "directed", False) for embedder in job.settings.embedders)
    return replace(options, score=source_target) if directed and options.score is inner_product else options


def record_evaluation(job: Job, figures: Mapping[str, object]) -> None:
    """Add figures to those that the job has of the same embedding; its report shows them.

    Accuracy measured with labels from a file stays when the job is evaluated again without them.
    """
    _ = job.embedding  # refuses one that is out of date
    before = current_evaluation(job) or {}
    merged = {**before, **figures}
    old, new = before.get("options"), figures.get("options")
    if "accuracy" in before and "accuracy" not in figures and isinstance(old, Mapping) and isinstance(new, Mapping):
        merged["options"] = {**new, **{name: old[name] for name in ("splits", "classifier") if name in old}}
    job.store["evaluation"] = Record({}, {**merged, **_measured(job)})


def current_evaluation(job: Job) -> dict[str, object] | None:
    """Return the figures that the job has of its embedding, without those that something has changed for."""
    record = stored_record(job.store, "evaluation", _measured(job))
    if record is None:
        return None
    figures = dict(record.parameters)
    if figures.get("full") != _digest(job, "full"):
        figures.pop("routes", None)
    return figures


def _measured(job: Job) -> dict[str, object]:
    """Return what figures are made from: the embedding, its alignment, the labels, and which were left out."""
    labels = None if job.graph is None or job.graph.labels is None else fingerprint(job.graph.labels)
    return {**{key: _digest(job, key) for key in ("embedding", "alignment", "choice")}, "labels": labels}


def _digest(job: Job, key: str) -> str | None:
    return record_digest(job.store, key) if key in job.store else None


_ADVICE = {
    "local training": "Local training loses most: make patches larger, or average runs (--runs 6).",
    "averaging": "Averaging loses most: weight rows by coverage (stitch --coverage 2).",
    "alignment": "Alignment loses most: refine it (stitch --refine 3), or cut with larger overlaps or a higher degree.",
}


@dataclass(frozen=True)
class Diagnosis:
    """The quality of four embeddings of one graph, each one step further from full training than the one before.

    Printed, it explains what each step loses. ``full`` is one embedding of the whole graph, if given. ``local`` has
    each node as in the patch that contains most of its edges; every patch is moved onto the reference separately: full
    training or, without it, the stitched embedding. ``averaged`` is the average of all patches, moved in the same way.
    """

    full: Quality | None
    local: Quality
    averaged: Quality
    stitched: Quality

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
    options: EvaluationOptions = EvaluationOptions(),
) -> Diagnosis:
    """Measure how much local training, averaging and alignment each lose; for the arguments see :func:`compare`.

    If a patch was embedded in several runs, the first run represents it. ``X`` (n, d) is the stitched embedding, by
    default the centroid, and ``full`` (n, d) one of the whole graph by the same method: without it, the loss of local
    training is unknown.
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
    )


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
