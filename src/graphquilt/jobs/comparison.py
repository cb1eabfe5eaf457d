"""compare(): the whole graph embedded at once, the stitched patches, and the patches as they are, side by side."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphquilt.alignment import Alignment, centroid
from graphquilt.arrays import AnyArray, Float64Array, IntArray
from graphquilt.drawing import main_plane, points_svg, sample_rows
from graphquilt.embedders import checked_fit
from graphquilt.embedders.adapters import EmbedderLike, as_embedder
from graphquilt.errors import InputError, JobError
from graphquilt.evaluate import EvaluationOptions, Quality, quality
from graphquilt.evaluate.positions import checked_embedding
from graphquilt.files import write_text
from graphquilt.graph import Graph
from graphquilt.jobs.description import describe, differences
from graphquilt.jobs.evaluation import record_evaluation, suited_score, without_choosing_labels
from graphquilt.jobs.job import Job
from graphquilt.jobs.records import graph_fingerprint
from graphquilt.jobs.result import Result
from graphquilt.jobs.settings import UnavailableEmbedder
from graphquilt.jobs.store import Record, record_digest, stored_record
from graphquilt.linalg import nearest_orthogonal
from graphquilt.progress import ProgressCallback

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
    if labels is not None:
        graph = graph.with_attributes(labels=labels)
    graph = without_choosing_labels(opened, graph)
    # The centroid without transforms: the paper's "no-trans".
    identity = Alignment.identity(opened.alignment.n_patches, opened.alignment.dim)
    embeddings = {"l2g": opened.embedding}
    embeddings["no-trans"] = centroid(opened.patches, identity, n_nodes=graph.n_nodes, weights=opened.weights)
    whole = _whole_embedding(opened, graph, embedder, progress) if full is None else None
    if full is not None and full is not False:
        whole = checked_embedding(full, graph.n_nodes)
    if whole is not None:
        embeddings = {"full": whole, **embeddings}
    options = suited_score(opened, options)
    routes = {route: quality(X, graph, options=options) for route, X in embeddings.items()}
    kept = record_digest(opened.store, FULL) if FULL in opened.store else None
    record_evaluation(opened, {"routes": {route: asdict(measured) for route, measured in routes.items()}, "full": kept})
    rows = sample_rows(graph.n_nodes)
    points = {route: main_plane(np.asarray(X)[rows]) for route, X in embeddings.items()}
    classes = None if graph.labels is None else np.asarray(graph.labels)[rows]
    first = next(iter(points.values()))  # all are turned onto it, to look alike where they are alike
    turned = {route: each @ nearest_orthogonal(each.T @ first) for route, each in points.items()}
    return Comparison(routes, turned, classes)


def _whole_embedding(
    job: Job, graph: Graph, given: EmbedderLike | None, progress: ProgressCallback | None
) -> AnyArray:
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
