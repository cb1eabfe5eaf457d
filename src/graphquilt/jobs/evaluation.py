"""Evaluation of a job: how good its embedding is, and where it loses."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from graphquilt.arrays import AnyArray, FloatArray, Int64Array
from graphquilt.errors import FormatError, JobError, MissingExtraError
from graphquilt.evaluate import (
    Comparison,
    Diagnosis,
    EvaluationOptions,
    Grid,
    GridResult,
    Quality,
    compare_routes,
    diagnose,
    fixed_split,
    mlp_grid,
    one_encoder,
    quality,
)
from graphquilt.graph import Graph
from graphquilt.jobs.choosing import labels_used
from graphquilt.jobs.description import fingerprint, plain
from graphquilt.jobs.job import Job
from graphquilt.jobs.settings import UnavailableEmbedder
from graphquilt.jobs.store import Record, store_folder
from graphquilt.jobs.tasks import patch_seed
from graphquilt.progress import ProgressCallback

_log = logging.getLogger(__name__)

__all__ = ["Evaluation", "classify_job", "compare_job", "evaluate_job", "keep_routes"]


@dataclass(frozen=True)
class Evaluation:
    """How good the embedding of a job is.

    Attributes
    ----------
    quality : Quality
        AUC, and accuracy where there are labels.
    diagnosis : Diagnosis or None
        What local training, averaging and alignment lose, where that was asked for.
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
    """Measure the embedding of a job, and keep the result in the job.

    Parameters
    ----------
    job : Job
    labels : array (n,), optional
        A class for each node; by default those of the graph.
    full : array (n, d), optional
        An embedding of the whole graph to diagnose against.
    diagnosis : bool
        Also measure what local training, averaging and alignment lose, and what the encoder of one patch gives on the
        whole graph; for the last the largest patch is trained once more.
    options : EvaluationOptions
    """
    X, graph = job.embedding, _graph(job)
    if labels is not None:
        graph = graph.with_attributes(labels=labels)
    graph = _without_chosen(job, graph)
    result = Evaluation(quality(X, graph, options=options))
    if diagnosis or full is not None:
        found = diagnose(
            graph,
            job.patches,
            job.alignment,
            X=X,
            weights=job.weights,
            full=full,
            shared=_one_encoder(job, graph),
            options=options,
        )
        result = Evaluation(result.quality, found)
    figures = {name: value for name, value in asdict(result.quality).items() if value is not None}
    if result.diagnosis is not None:
        figures |= {"losses": result.diagnosis.losses, "unit": result.diagnosis.measure}
        if result.diagnosis.shared is not None:
            figures["shared"] = asdict(result.diagnosis.shared)
    _keep(job, {**figures, "options": plain(options)})
    return result


def _without_chosen(job: Job, graph: Graph) -> Graph:
    """Return the graph without the labels that chose the signal of the job: an accuracy on them would flatter it."""
    used = labels_used(job.store, graph.n_nodes)
    if used is None or graph.labels is None:
        return graph
    kept = np.where(used, -1, np.asarray(graph.labels))
    if not (kept >= 0).any():
        _log.warning("all labels were used to choose the signal of the job, so that the accuracy has seen them")
        return graph
    _log.warning("%d labels that chose the signal of the job are left out of the evaluation", int(used.sum()))
    return graph.with_attributes(labels=kept)


def compare_job(
    job: Job,
    *,
    graph: Graph | None = None,
    full: npt.ArrayLike | None = None,
    options: EvaluationOptions = EvaluationOptions(),
) -> Comparison:
    """Measure the patches of a job aligned and not aligned, and an embedding of the whole graph; keep the result in it.

    Parameters
    ----------
    job : Job
        Embedded and aligned; its patches are opened one at a time.
    graph : Graph, optional
        With labels where accuracy is wanted; by default the graph of the job.
    full : array (n, d), optional
    options : EvaluationOptions
    """
    graph = _graph(job) if graph is None else graph
    if job.patch_graph.n_nodes != graph.n_nodes:
        raise JobError(f"{job.name} is a job of {job.patch_graph.n_nodes} nodes; this graph has {graph.n_nodes}.")
    alignment, _ = job.alignment, job.embedding
    comparison = compare_routes(graph, job.patches, alignment, weights=job.weights, full=full, options=options)
    keep_routes(job, comparison)
    return comparison


def classify_job(
    job: Job,
    parts: Mapping[str, Int64Array],
    *,
    labels: AnyArray | None = None,
    grid: Grid | None = None,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> GridResult:
    """Train the paper's grid of perceptrons on the embedding of a job, and keep the result in the job.

    A job in a folder remembers which perceptrons are trained, so that a grid that was stopped goes on.

    Parameters
    ----------
    job : Job
    parts : mapping of str to int array
        Nodes for ``train``, ``valid`` and perhaps ``test``, by their ids in the files of the graph where these are
        whole numbers; see :func:`graphquilt.evaluate.fixed_split`.
    labels : array (n,), optional
        A class for each node; by default those of the graph.
    grid : Grid, optional
    seed : int
    progress : callable, optional
    """
    X, graph = job.embedding, _graph(job)
    labels = graph.labels if labels is None else labels
    if labels is None:
        raise JobError(f"the graph of {job.name} has no labels; give them.")
    ids = graph.node_ids
    if ids is not None and ids.dtype.kind in "iu":
        parts = {name: np.flatnonzero(np.isin(ids, nodes)) for name, nodes in parts.items()}
    split = fixed_split(parts, labels, seed=seed)
    folder = store_folder(job.store)
    keep = None if folder is None else folder / "perceptrons.json"
    result = mlp_grid(X, labels, split, seed=seed, grid=grid, keep=keep, progress=progress)
    _keep(job, {"mlp": {"accuracy": result.accuracy, "perceptron": asdict(result.best)}})
    return result


def keep_routes(job: Job, routes: Mapping[str, Quality]) -> None:
    """Keep the quality of several routes beside the other measurements of the embedding, for the report of the job."""
    _keep(job, {"routes": {route: asdict(measured) for route, measured in routes.items()}})


def _keep(job: Job, figures: Mapping[str, object]) -> None:
    """Keep figures with those that the job has of the same embedding already.

    So the accuracy with the labels of a file stays where the job is evaluated again without them.
    """
    embedding = fingerprint(job.embedding)
    try:
        before = job.store["evaluation"].parameters
    except (KeyError, FormatError):
        before = {}
    before = before if before.get("embedding") == embedding else {}
    kept = {**before, **figures}
    old, new = before.get("options"), figures.get("options")
    if "accuracy" in before and "accuracy" not in figures and isinstance(old, Mapping) and isinstance(new, Mapping):
        kept["options"] = {**new, **{name: old[name] for name in ("splits", "classifier") if name in old}}
    job.store["evaluation"] = Record({}, {**kept, "embedding": embedding})


def _one_encoder(job: Job, graph: Graph) -> FloatArray | None:
    """Embed the whole graph by the encoder of the largest patch, where the embedder of the job allows that."""
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


def _graph(job: Job) -> Graph:
    if job.graph is None:
        raise JobError(
            f"{job.name} has an embedding but no graph to measure it with, because it was made from patches alone: in "
            "Python, compare_job(job, graph=graph) measures it with a graph that you have."
        )
    return job.graph
