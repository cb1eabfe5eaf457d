"""Evaluation of a job: how good its embedding is, and where it loses."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import FloatArray
from graphquilt.errors import FormatError, JobError, MissingExtraError
from graphquilt.evaluate import EvaluationOptions, Quality, quality
from graphquilt.graph import Graph
from graphquilt.jobs.choosing import labels_used
from graphquilt.jobs.comparison import Comparison, Diagnosis, compare, diagnose, one_encoder
from graphquilt.jobs.description import fingerprint, plain
from graphquilt.jobs.job import Job
from graphquilt.jobs.settings import UnavailableEmbedder
from graphquilt.jobs.store import Record
from graphquilt.jobs.tasks import patch_seed

_log = logging.getLogger(__name__)

__all__ = ["Evaluation", "compare_job", "evaluate_job", "record_evaluation"]


@dataclass(frozen=True)
class Evaluation:
    """How good the embedding of a job is.

    Attributes
    ----------
    quality : Quality
        AUC, and accuracy if there are labels.
    diagnosis : Diagnosis or None
        What local training, averaging and alignment lose, on request.
    """

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

    Parameters
    ----------
    job : Job
    labels : array (n,), optional
        A class for each node; by default those of the graph.
    full : array (n, d), optional
        An embedding of the whole graph to diagnose against.
    diagnosis : bool
        Also measure what local training, averaging and alignment lose, and what the encoder of one patch gives on the
        whole graph. This trains the largest patch once more.
    options : EvaluationOptions
    """
    X, graph = job.embedding, _job_graph(job)
    if labels is not None:
        graph = graph.with_attributes(labels=labels)
    graph = _without_choosing_labels(job, graph)
    measured, losses = quality(X, graph, options=options), None
    figures: dict[str, object] = {name: value for name, value in asdict(measured).items() if value is not None}
    if diagnosis or full is not None:
        shared = _largest_patch_encoding(job, graph)
        losses = diagnose(
            graph, job.patches, job.alignment, X=X, weights=job.weights, full=full, shared=shared, options=options
        )
        figures |= {"losses": losses.losses, "unit": losses.measure}
        if losses.shared is not None:
            figures["shared"] = asdict(losses.shared)
    record_evaluation(job, {**figures, "options": plain(options)})
    return Evaluation(measured, losses)


def _without_choosing_labels(job: Job, graph: Graph) -> Graph:
    """Return the graph without the labels that chose the signal of the job: accuracy on them would be too high."""
    used = labels_used(job.store, graph.n_nodes)
    if used is None or graph.labels is None:
        return graph
    unused = np.where(used, -1, np.asarray(graph.labels))
    if not (unused >= 0).any():
        _log.warning("all labels chose the signal of the job; the accuracy is measured on the same labels")
        return graph
    _log.warning("%d labels that chose the signal of the job are left out of the evaluation", int(used.sum()))
    return graph.with_attributes(labels=unused)


def compare_job(
    job: Job,
    *,
    graph: Graph | None = None,
    full: npt.ArrayLike | None = None,
    options: EvaluationOptions = EvaluationOptions(),
) -> Comparison:
    """Measure the patches of a job aligned and unaligned, and record the result in the job; see :func:`compare`.

    Parameters
    ----------
    job : Job
        Embedded and aligned; its patches are opened one at a time.
    graph : Graph, optional
        With labels, accuracy is measured too; by default the graph of the job.
    full : array (n, d), optional
        An embedding of the whole graph.
    options : EvaluationOptions
    """
    graph = _job_graph(job) if graph is None else graph
    if job.patch_graph.n_nodes != graph.n_nodes:
        raise JobError(f"{job.name} is a job of {job.patch_graph.n_nodes} nodes; this graph has {graph.n_nodes}.")
    alignment, _ = job.alignment, job.embedding
    comparison = compare(graph, job.patches, alignment, weights=job.weights, full=full, options=options)
    record_evaluation(job, {"routes": {route: asdict(measured) for route, measured in comparison.items()}})
    return comparison


def record_evaluation(job: Job, figures: Mapping[str, object]) -> None:
    """Add figures to those that the job has of the same embedding; its report shows them.

    Accuracy measured with labels from a file stays when the job is evaluated again without them.
    """
    embedding = fingerprint(job.embedding)
    try:
        before = job.store["evaluation"].parameters
    except (KeyError, FormatError):
        before = {}
    before = before if before.get("embedding") == embedding else {}
    merged = {**before, **figures}
    old, new = before.get("options"), figures.get("options")
    if "accuracy" in before and "accuracy" not in figures and isinstance(old, Mapping) and isinstance(new, Mapping):
        merged["options"] = {**new, **{name: old[name] for name in ("splits", "classifier") if name in old}}
    job.store["evaluation"] = Record({}, {**merged, "embedding": embedding})


def _largest_patch_encoding(job: Job, graph: Graph) -> FloatArray | None:
    """Embed the whole graph by the encoder of the largest patch, if the embedder of the job can do that."""
    patch = int(job.patch_graph.sizes.argmax())
    embedders = job.settings.embedders
    embedder = embedders[patch] if len(embedders) > 1 else embedders[0]
    if isinstance(embedder, UnavailableEmbedder):
        return None
    seed = patch_seed(job.settings.seed, patch)
    try:
        return one_encoder(graph, job.patch_graph.node_sets[patch], embedder, seed=seed)
    except MissingExtraError:  # a job can be evaluated where it could not be embedded
        return None


def _job_graph(job: Job) -> Graph:
    if job.graph is None:
        raise JobError(
            f"{job.name} was made from patches alone and has no graph to measure its embedding with. In Python, "
            "compare_job(job, graph=graph) measures it with a graph that you have."
        )
    return job.graph
