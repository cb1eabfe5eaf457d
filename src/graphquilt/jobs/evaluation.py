"""Evaluation of a job: how good its embedding is, and where it loses."""

from __future__ import annotations

import html
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import Alignment, PatchLike, centroid
from graphquilt.alignment.centroids import lay_onto
from graphquilt.alignment.patch_index import checked_patch
from graphquilt.arrays import AnyArray, Float64Array, IntArray
from graphquilt.drawing import main_plane, points_svg, sample_rows
from graphquilt.embedders import checked_fit
from graphquilt.embedders.contract import EmbedderLike, as_embedder
from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.evaluate import EvaluationOptions, Quality, inner_product, quality, source_target
from graphquilt.evaluate.positions import checked_embedding
from graphquilt.files import write_text
from graphquilt.graph import Graph
from graphquilt.jobs.job import Job
from graphquilt.jobs.records import describe, differences, graph_fingerprint, plain
from graphquilt.jobs.settings import UnavailableEmbedder
from graphquilt.jobs.stitching import Result
from graphquilt.jobs.store import Record, fingerprint, record_digest, stored_record
from graphquilt.linalg import Motions, nearest_orthogonal
from graphquilt.patches import NodeSets, PatchGraph, coverage
from graphquilt.progress import ProgressCallback

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
    X, graph, options = job.embedding, _labelled(job, job.require_graph(), labels), _suited(job, options)
    measured, losses = quality(X, graph, options=options), None
    figures: dict[str, object] = {name: value for name, value in asdict(measured).items() if value is not None}
    if diagnosis or full is not None:
        losses = diagnose(graph, job.patches, job.alignment, X=X, weights=job.weights, full=full, options=options)
        figures |= {"losses": losses.losses, "unit": losses.measure}
    record_evaluation(job, {**figures, "options": plain(options)})
    return Evaluation(measured, losses)


def _labelled(job: Job, graph: Graph, labels: npt.ArrayLike | None) -> Graph:
    """Return the graph with its labels or others, without those that chose the signal: accuracy would be too high."""
    graph = graph if labels is None else graph.with_attributes(labels=labels)
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


def _suited(job: Job, options: EvaluationOptions) -> EvaluationOptions:
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
    current = record.parameters.get("full") == _digest(job, FULL)
    return {name: value for name, value in record.parameters.items() if current or name != "routes"}


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
    measured = (quality(X, graph, options=options) for X in (local, averaged, stitched))
    return Diagnosis(None if full is None else quality(reference, graph, options=options), *measured)


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


_COLUMNS = {"auc": "AUC", "hits": "Hits@50", "mrr": "MRR", "accuracy": "accuracy"}
FULL = "full"  # the record of the whole graph's embedding


class Comparison(dict[str, Quality]):
    """The quality of each route: ``full`` (if there is one), ``l2g`` and ``no-trans``; printed, a table.

    ``points`` are the main directions (k, 2) of each route for the same nodes, turned onto those of the first route;
    ``classes`` (k,) are the classes of these nodes.
    """

    def __init__(
        self,
        routes: Mapping[str, Quality],
        points: Mapping[str, Float64Array] | None = None,
        classes: IntArray | None = None,
    ) -> None:
        super().__init__(routes)
        self.points, self.classes = dict(points or {}), classes

    def _rows(self) -> list[list[str]]:
        columns = [name for name in _COLUMNS if any(getattr(one, name) is not None for one in self.values())]
        rows = [["route", *(_COLUMNS[name] for name in columns)]]
        for route, scores in self.items():
            cells = {name: f"{getattr(scores, name):.3f}" for name in columns if getattr(scores, name) is not None}
            if scores.accuracy is not None:
                cells["accuracy"] += f" ± {scores.accuracy_std:.3f}"
            rows.append([route, *(cells.get(name, "–") for name in columns)])
        return rows

    def __str__(self) -> str:
        head, *rows = (f"| {' | '.join(cells)} |" for cells in self._rows())
        return "\n".join([head, "|" + " --- |" * (head.count("|") - 1), *rows])

    def picture(self) -> str:
        """Return the picture as SVG: one panel for each route, coloured by class."""
        titles = {}
        for route, points in self.points.items():
            scores = self[route]
            accuracy = "" if scores.accuracy is None else f", accuracy {scores.accuracy:.3f}"
            titles[f"{route}: AUC {scores.auc:.3f}{accuracy}"] = points
        return points_svg(titles, self.classes)

    def save_picture(self, path: str | PathLike[str]) -> Path:
        """Write the picture to an ``.svg`` file."""
        target = Path(path)
        if target.suffix != ".svg":
            raise InputError(f"the picture of a comparison is an .svg file; {target.name} has another ending.")
        write_text(target, self.picture())
        return target

    def _repr_html_(self) -> str:
        head, *rows = ([html.escape(cell) for cell in cells] for cells in self._rows())
        body = "".join(f"<tr><td>{'</td><td>'.join(cells)}</td></tr>" for cells in rows)
        return f"<div><table><tr><th>{'</th><th>'.join(head)}</th></tr>{body}</table>{self.picture()}</div>"


def compare(
    job: Job | Result | str | PathLike[str],
    *,
    embedder: EmbedderLike | None = None,
    graph: Graph | None = None,
    labels: npt.ArrayLike | None = None,
    full: npt.ArrayLike | Literal[False] | None = None,
    options: EvaluationOptions = EvaluationOptions(),
    progress: ProgressCallback | None = None,
) -> Comparison:
    """Measure the embedding of a job beside its patches without alignment, and beside one of the whole graph.

    The routes are those of the paper: ``full`` is the job's embedder on the whole graph, ``l2g`` the stitched
    embedding, and ``no-trans`` the average of the patches as they are. All are measured on the same non-edges and
    splits. The job keeps the embedding of the whole graph and the figures, so a comparison can be resumed.

    Parameters
    ----------
    job : Job, Result or path
        Embedded and stitched, by any embedder. After a shared start, patches lie in one frame already, and
        ``no-trans`` is nearly ``l2g``; ``Recipe.paper()`` embeds them independently.
    embedder : Embedder or function, optional
        Your own embedder, for a job in a folder: graphquilt runs no code because a job names it.
    graph : Graph, optional
        By default that of the job.
    labels : array (n,), optional
        Classes, for the accuracy; by default those of the graph.
    full : array (n, d), optional
        An embedding of the whole graph by other means. False leaves this route out.

    Examples
    --------
    >>> import graphquilt as gq
    >>> result = gq.embed(gq.datasets.load_dataset("blocks"), dim=8, n_patches=3)
    >>> list(compare(result, options=EvaluationOptions(splits=2)))
    ['full', 'l2g', 'no-trans']
    """
    opened = job.as_job() if isinstance(job, Result) else job if isinstance(job, Job) else Job.open(job)
    graph = opened.require_graph() if graph is None else graph
    if opened.patch_graph.n_nodes != graph.n_nodes:
        raise JobError(f"{opened.name} is a job of {opened.patch_graph.n_nodes} nodes; this graph has {graph.n_nodes}.")
    graph = _labelled(opened, graph, labels)
    # The centroid without transforms: the paper's "no-trans".
    identity = Alignment.identity(opened.alignment.n_patches, opened.alignment.dim)
    embeddings = {"l2g": opened.embedding}
    embeddings["no-trans"] = centroid(opened.patches, identity, n_nodes=graph.n_nodes, weights=opened.weights)
    whole = _whole_embedding(opened, graph, embedder, progress) if full is None else None
    if full is not None and full is not False:
        whole = checked_embedding(full, graph.n_nodes)
    if whole is not None:
        embeddings = {"full": whole, **embeddings}
    options = _suited(opened, options)
    routes = {route: quality(X, graph, options=options) for route, X in embeddings.items()}
    figures = {route: asdict(measured) for route, measured in routes.items()}
    record_evaluation(opened, {"routes": figures, "full": _digest(opened, FULL)})
    rows = sample_rows(graph.n_nodes)
    points = {route: main_plane(np.asarray(X)[rows]) for route, X in embeddings.items()}
    classes = None if graph.labels is None else np.asarray(graph.labels)[rows]
    first = next(iter(points.values()))  # all are turned onto it, to look alike where they are alike
    turned = {route: each @ nearest_orthogonal(each.T @ first) for route, each in points.items()}
    return Comparison(routes, turned, classes)


def _whole_embedding(job: Job, graph: Graph, given: EmbedderLike | None, progress: ProgressCallback | None) -> AnyArray:
    """Embed the whole graph as the patches were, or open the embedding that the job has kept."""
    embedder = job.settings.embedders[0]
    if given is not None:
        before, embedder = embedder, as_embedder(given, embedder.dim)
        changes = differences({"embedder": describe(before)}, {"embedder": describe(embedder)})
        if changes:
            raise InputError(f"{job.name} was embedded with {changes}; compare it with the embedder that made it.")
    several = len({repr(describe(each)) for each in job.settings.embedders}) > 1
    if several or isinstance(embedder, UnavailableEmbedder):
        reason = "its patches have different embedders" if several else "its embedder is not at hand: pass it"
        raise JobError(
            f"the whole graph of {job.name} cannot be embedded: {reason} (--embedder module:factory, or embedder=). "
            "Or give an embedding of the whole graph (--full, or full=), or leave it out (--no-whole, or full=False)."
        )
    parameters = {"embedder": describe(embedder), "seed": job.settings.seed, "graph": graph_fingerprint(graph)}
    record = stored_record(job.store, FULL, parameters)
    if record is not None:
        return record.arrays["embedding"]
    fit = checked_fit(embedder, graph, job.settings.seed, where="the whole graph", progress=progress)
    job.store[FULL] = Record({"embedding": np.asarray(fit.embedding)}, parameters)
    return fit.embedding
