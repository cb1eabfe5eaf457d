"""stitch(): align embedded patches and average them; align_files(), for patches from elsewhere; and Result."""

from __future__ import annotations

import contextlib
import html
import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

import graphquilt
from graphquilt.alignment import Alignment, PatchesLike, align, align_components, centroid, refine
from graphquilt.alignment.patch_index import check_connected, checked_patch, number_patches, stranded_nodes
from graphquilt.arrays import AnyArray, BoolArray, FloatArray
from graphquilt.drawing import main_plane, points_svg, sample_rows
from graphquilt.errors import FormatError, InputError, JobError
from graphquilt.graph import Graph
from graphquilt.jobs.options import Recipe
from graphquilt.jobs.records import keep_patch_graph, patch_graph_fingerprint, patch_key, patch_seed
from graphquilt.jobs.settings import JobSettings, UnavailableEmbedder
from graphquilt.jobs.store import Record, Store, fingerprint, locked, store_name
from graphquilt.jobs.stored_patches import EmbeddedPatches, SharedRows, open_output, output_part
from graphquilt.jobs.versions import frame_rotation, settle_rows
from graphquilt.linalg import Motions
from graphquilt.patches import Patch, PatchGraph
from graphquilt.patches.graph import overlapping_pairs
from graphquilt.progress import ProgressCallback, report, resource_usage

if TYPE_CHECKING:
    import pandas as pd

    from graphquilt.jobs.export import Neighbours
    from graphquilt.jobs.job import Job


def stitch(
    patch_graph: PatchGraph,
    patches: Sequence[Patch],
    *,
    motions: Motions | None = None,
    recipe: Recipe | None = None,
    graph: Graph | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
    out: FloatArray | None = None,
) -> tuple[Alignment, FloatArray]:
    """Align all patches, refine the alignment, and average the aligned patches into one embedding.

    Parameters
    ----------
    patch_graph : PatchGraph
        The one that was embedded; with ``recipe.runs`` above 1 it is repeated here.
    patches : sequence of Patch
        What :func:`graphquilt.embed_patches` returned, which carries motions, recipe and graph; or patches from
        anywhere.
    motions : Motions, optional
        The motions that the embedder leaves free; ``recipe.motions`` takes precedence.
    recipe : Recipe, optional
        Its runs, robust, branching, coverage, refine and precision.
    graph : Graph, optional
        Needed where ``recipe.coverage`` is above 0. What is not given is what ``patches`` carries; for patches from
        elsewhere, rotations and translations are free, and the recipe is ``Recipe()``.
    executor : concurrent.futures.Executor, optional
        Compares the overlaps.
    progress : callable, optional
    out : float array (n, d), optional
        Where to put the embedding, for example a memory map.

    Returns
    -------
    alignment : Alignment
    embedding : float array (n, d)

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(12, 2))
    >>> graph_of_patches = PatchGraph.from_patches([np.arange(8), np.arange(4, 12)])
    >>> patches = [Patch(np.arange(8), X[:8]), Patch(np.arange(4, 12), 5 - X[4:])]
    >>> alignment, embedding = stitch(graph_of_patches, patches)
    >>> round(float(alignment.edge_errors.max()), 6), embedding.shape
    (0.0, (12, 2))
    """
    task = _Stitching(patch_graph, patches, motions=motions, recipe=recipe, graph=graph)
    alignment = task.align(executor=executor, progress=progress)
    return alignment, task.average(alignment, out=out, progress=progress)


class _Stitching:
    """The two steps of :func:`stitch`, with what is given, then what the patches carry, then the defaults."""

    def __init__(
        self,
        patch_graph: PatchGraph,
        patches: Sequence[Patch],
        *,
        motions: Motions | None = None,
        recipe: Recipe | None = None,
        graph: Graph | None = None,
    ) -> None:
        self.patches, self.row_file = patches, None
        if isinstance(patches, EmbeddedPatches):
            self.row_file = patches.row_file
            graph = patches.graph if graph is None else graph
            if patches.settings is not None:
                motions = patches.settings.motions if motions is None else motions
                recipe = patches.settings.recipe if recipe is None else recipe
        self.recipe = Recipe() if recipe is None else recipe
        self.patch_graph = patch_graph.repeat(self.recipe.runs)
        self.undone = self.recipe.undone(Motions() if motions is None else motions)
        several = self.patch_graph.n_patches > 1
        self.weights = self.recipe.row_weights(self.patch_graph, graph) if several else None

    def align(self, *, executor: Executor | None = None, progress: ProgressCallback | None = None) -> Alignment:
        """Align the patches, and refine the alignment."""
        patches, weights, recipe, undone = self.patches, self.weights, self.recipe, self.undone
        frame = patches.frame if isinstance(patches, EmbeddedPatches) and not undone.free else None
        if isinstance(patches, EmbeddedPatches) and self.row_file is not None:
            shared = SharedRows(patches)
            patches, weights = shared, shared.weights(weights)
        if self.patch_graph.n_patches == 1 and len(patches) == 1:
            alignment = Alignment.identity(1, checked_patch(patches[0], 0).dim)
            return alignment if frame is None else replace(alignment, frame=frame)
        options = {**vars(undone), "robust": recipe.robust, "weights": weights, "executor": executor}
        edges = self.patch_graph.edges
        if self.patch_graph.placement_arbitrary:
            alignment, _ = align_components(patches, edges, **options, progress=progress)
        else:
            alignment = align(patches, edges, **options, branching=recipe.branching, progress=progress)
        if frame is not None:
            alignment = replace(alignment, frame=frame)
        turn, shift = undone.rotate, undone.translate
        return refine(patches, alignment, sweeps=recipe.refine, rotate=turn, translate=shift, weights=weights)

    def average(
        self, alignment: Alignment, *, out: FloatArray | None = None, progress: ProgressCallback | None = None
    ) -> FloatArray:
        """Average the aligned patches, in ``out`` if it is given; rows that are not kept are removed meanwhile."""
        n = self.patch_graph.n_nodes
        out = np.empty((n, alignment.dim), dtype=self.recipe.precision) if out is None else out
        if alignment.n_patches == 1:
            nodes, X = checked_patch(self.patches[0], 0)
            out[nodes] = X
            return out
        blocks = None if self.row_file is None else self.row_file.blocks(out)
        weights = self.weights
        return centroid(self.patches, alignment, n_nodes=n, weights=weights, out=out, blocks=blocks, progress=progress)


def stitch_job(job: Job, *, executor: Executor | None = None, progress: ProgressCallback | None = None) -> Alignment:
    """Stitch a locked job from where a run was killed: first the alignment, then rows, which go as the result grows."""
    settings, patches, store = job.settings, job.patches, job.store
    patches.check(settings.dim, settings.recipe.runs)
    stitching, alignment = _Stitching(job.patch_graph, patches), None
    free = settings.motions.free
    if not free or frame_rotation(store) is None:  # an alignment that was turned onto a frame must not be turned again
        with contextlib.suppress(JobError, FormatError):
            alignment = job.alignment
    rows = stitching.row_file
    continued = None if rows is None else not rows.is_whole
    if continued and (alignment is None or not output_part(store, "embedding").exists()):
        raise JobError(
            f"the patches of {job.name} were averaged into its embedding and not kept. Embed them again, with "
            f"--keep-patches to keep them: {job.command('embed-patches')}"
        )
    shape, precision = (stitching.patch_graph.n_nodes, settings.dim), settings.recipe.precision
    with open_output(store, "embedding", shape, precision, continued=continued) as out:
        with resource_usage() as cost:
            if alignment is None:
                alignment = stitching.align(executor=executor, progress=progress)
                job.keep_alignment(alignment)
            X = stitching.average(alignment, out=out, progress=progress)
            alignment = settle_rows(store, alignment, X, free=free)
        job.keep(alignment, X, cost)
    if rows is not None:
        rows.path.unlink(missing_ok=True)
    elif settings.recipe.keep_patches is False:
        patches.remove()
    report(progress, "embedding", 1, 1)
    return alignment


ALIGN_DEFAULTS = Recipe("align", start=False, motions=Motions(scale=True))  # how they were embedded is unknown


def align_files(
    patches: PatchesLike,
    *,
    recipe: Recipe = ALIGN_DEFAULTS,
    store: Store | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> Result:
    """Align embeddings that exist already, from files or memory, and average them, as ``graphquilt align`` does.

    Parameters
    ----------
    patches : sequence or dict of patches
        Each is the path of a file with ids and vectors (word2vec text, CSV, Parquet, ``.npz``, or ``.npy`` with ids
        beside it), a dict of names to vectors, or a pair of ids (k,) and coordinates (k, d). Two that share at least
        d + 1 ids are compared.
    recipe : Recipe
        How they are aligned; by default scale, rotation and translation of each are free.
    store, executor, progress
        As for :func:`graphquilt.embed`.

    Returns
    -------
    Result
        One row per id; ``node_ids`` holds the ids.

    Examples
    --------
    >>> one = {"ann": [0.0, 0.0], "bob": [1.0, 0.0], "eve": [0.0, 2.0], "joe": [3.0, 3.0]}
    >>> two = {name: [5 - 2 * y, 2 * x] for name, (x, y) in one.items() if name != "joe"} | {"kim": [9.0, 9.0]}
    >>> result = align_files([one, two])
    >>> result.node_ids.tolist(), result.embedding.shape
    (['ann', 'bob', 'eve', 'joe', 'kim'], (5, 2))
    """
    job = import_patches({} if store is None else store, patches, recipe)
    alignment = job.stitch(executor=executor, progress=progress)
    ids = job.store["node_ids"].arrays["node_ids"]
    return Result(job.embedding, job.patch_graph, job.patches, alignment, np.asarray(ids))


def import_patches(store: Store, patches: PatchesLike, recipe: Recipe = ALIGN_DEFAULTS) -> Job:
    """Make a job of embedded patches, or resume the one in the store; a job of other patches is refused."""
    from graphquilt.jobs.job import Job

    numbered = number_patches(patches)
    dim = numbered.patches[0].dim
    sets = [np.sort(patch.nodes) for patch in numbered.patches]
    pairs = overlapping_pairs(sets, dim + 1)
    check_connected(pairs, numbered.names, node_sets=sets, dim=dim)
    patch_graph = PatchGraph.from_patches(sets, pairs.tolist(), n_nodes=len(numbered.ids))
    described: dict[str, object] = {"name": "files", "patches": numbered.names}
    patches_digest = patch_graph_fingerprint(patch_graph)
    with locked(store):
        keep_patch_graph(store, patch_graph, None)
        store["node_ids"] = Record({"node_ids": numbered.ids}, {})
        for k, patch in enumerate(numbered.patches):
            key, X = patch_key(k, "embedding"), np.asarray(patch.coordinates)[np.argsort(patch.nodes)]
            if key not in store:
                made_with = {"embedder": described, "seed": patch_seed(0, k), "patches": patches_digest}
                store[key] = Record({"embedding": X}, made_with)
            elif fingerprint(store[key].arrays["embedding"]) != fingerprint(X):
                raise JobError(f"{store_name(store)} has other coordinates for patch {k}. Use another folder.")
    embedder = UnavailableEmbedder(described, dim, Motions(scale=True))
    return Job.begin(store, JobSettings(embedder=embedder, recipe=recipe))


@dataclass(frozen=True, eq=False)
class Result:
    """What :func:`embed` returns.

    Attributes
    ----------
    embedding : float array (n, dim)
        Row u is the position of node u.
    patch_graph, patches, alignment : PatchGraph, sequence of Patch, Alignment
        Of all runs; the patches are those before alignment.
    node_ids : array (n,) or None
        The ids that the nodes came with, in the order of the rows; None if they are 0..n-1.
    job : Job, optional
        The job that made it, if it has a store.
    """

    embedding: FloatArray
    patch_graph: PatchGraph
    patches: Sequence[Patch]
    alignment: Alignment
    node_ids: AnyArray | None = None
    job: Job | None = field(default=None, repr=False)

    @classmethod
    def of(cls, job: Job) -> Result:
        """Return the result of a finished job."""
        from graphquilt.jobs.export import job_ids

        repeated = job.patch_graph.repeat(job.settings.recipe.runs)
        X = job.embedding
        ids = job_ids(job, len(X)) if job.graph is None else job.graph.node_ids
        return cls(X, repeated, job.patches, job.alignment, ids, job)

    @property
    def stranded(self) -> BoolArray:
        """Which nodes (n,) are only in patches that do not fit the others: do not rely on their positions."""
        mask = np.zeros(len(self.embedding), dtype=np.bool_)
        mask[stranded_nodes(self.patch_graph.node_sets, self.alignment.left_out)] = True
        return mask

    def __repr__(self) -> str:
        nodes, dim = self.embedding.shape
        return f"Result({nodes} nodes, dim={dim}, {self.patch_graph!r}, {self.alignment!r})"

    def to_frame(self) -> pd.DataFrame:
        """Return the embedding as a pandas DataFrame: one row per node, indexed by its id, with columns x0, x1, …."""
        try:
            import pandas as pd
        except ImportError as error:
            raise InputError("a DataFrame needs pandas: pip install pandas, or use .embedding, .node_ids.") from error
        columns = [f"x{k}" for k in range(self.embedding.shape[1])]
        index = pd.RangeIndex(len(self.embedding)) if self.node_ids is None else pd.Index(self.node_ids)
        return pd.DataFrame(np.asarray(self.embedding), index=index.rename("node_id"), columns=columns)

    def neighbours(self, node: int | str, k: int = 10, *, metric: Literal["cosine", "inner"] = "cosine") -> Neighbours:
        """Find the k nodes nearest to a node; see :func:`graphquilt.neighbours`."""
        from graphquilt.jobs.export import neighbours

        return neighbours(self, node, k=k, metric=metric)

    def report(self, path: str | os.PathLike[str] = "report.html") -> Path:
        """Write a page with the map, the patches and the quality of the fit; return its path."""
        return Path(graphquilt.report.write_job_report(self.as_job(), Path(path)))

    def as_job(self) -> Job:
        """Return the job that made this, or one in memory that has the same records."""
        from graphquilt.jobs.job import Job

        if self.job is not None:
            return self.job
        if not isinstance(self.patches, EmbeddedPatches) or self.patches.settings is None:
            raise InputError("only the result of gq.embed or gq.align_files knows how it was made.")
        job = Job(self.patches.store, self.patches.settings, self.patches.graph)
        job.keep(self.alignment, self.embedding, {})
        return job

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a few facts, the verdict, and the two main directions of the embedding."""
        nodes, dim = self.embedding.shape
        patches = self.alignment.n_patches
        facts = f"{nodes:,} nodes in {dim} dimensions, {patches} {'patch' if patches == 1 else 'patches'}"
        verdict = "<br>".join(html.escape(line) for line in self.alignment.summary().splitlines()[:3])
        rows = sample_rows(nodes)
        graph = getattr(self.patches, "graph", None)
        classes = None if graph is None or graph.labels is None else np.asarray(graph.labels)[rows]
        picture = points_svg({"": main_plane(self.embedding[rows])}, classes)
        return f"<div><b>{facts}</b><br>{verdict}<br>{picture}</div>"
