"""cut() and stitch(): from a graph to overlapping patches, and from embedded patches to one embedding."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

import numpy as np

from graphquilt.alignment import Alignment, align, align_components, centroid, refine
from graphquilt.arrays import Float64Array, FloatArray, Int64Array
from graphquilt.embedders.adapters import EmbedderLike
from graphquilt.errors import FormatError, InputError
from graphquilt.graph import Graph
from graphquilt.jobs.cutting import Cutting, check_patch_graph, stored_patch_graph, write_patch_graph
from graphquilt.jobs.description import describe
from graphquilt.jobs.embedded import EmbeddedPatches
from graphquilt.jobs.patch_inputs import far_clusters
from graphquilt.jobs.recipe import Recipe
from graphquilt.jobs.records import graph_fingerprint
from graphquilt.jobs.settings import JobSettings, default_embedders
from graphquilt.jobs.store import Record, Store, record_digest
from graphquilt.linalg import Motions
from graphquilt.patches import (
    Multilevel,
    Patch,
    PatchGraph,
    coverage_weights,
    merge_small,
    patch_graph,
    smallest_cluster,
)
from graphquilt.progress import ProgressCallback, report, resource_usage

_log = logging.getLogger(__name__)


def cut(
    graph: Graph,
    n_patches: int | None = None,
    *,
    embedder: EmbedderLike | Sequence[EmbedderLike] | None = None,
    cutting: Cutting | None = None,
    recipe: Recipe = Recipe.shared(),
    seed: int = 0,
    store: Store | None = None,
    progress: ProgressCallback | None = None,
) -> PatchGraph:
    """Cut a graph into overlapping patches: partition, merge small clusters, build the patch graph.

    The patch graph carries the embedder, the recipe and the seed: :func:`graphquilt.embed_patches` uses them unless it
    is given others.

    Parameters
    ----------
    graph : Graph
        Connected, unless the embedder needs no alignment; see :meth:`graphquilt.Graph.largest_component`.
    n_patches : int, optional
        The short form of ``cutting=Cutting(n_patches)``; by default it follows from the size of the graph.
    embedder : Embedder, function, object with ``fit_transform``, or sequence of these, optional
        What will embed the patches; by default :class:`graphquilt.Propagation`. Its dimension and the motions that it
        leaves free decide how many nodes overlaps need: dim + 1 where patches are rotated.
    cutting : Cutting, optional
    recipe : Recipe
    seed : int
        Seed of the partition and of the patch graph.
    store : Store, optional
        Keeps the cluster labels as soon as they are known, and then the patch graph. Nothing in it is made twice.
    progress : callable, optional

    Returns
    -------
    PatchGraph

    Raises
    ------
    JobError
        The store has patches of another graph, or patches that were cut in another way.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from graphquilt.embedders import SVD
    >>> ring = Graph(sp.csr_array(np.roll(np.eye(90), 1, 0) + np.roll(np.eye(90), -1, 0)))
    >>> cut(ring, 3, embedder=SVD(2)).n_patches
    3
    """
    settings = JobSettings(
        embedder=default_embedders(embedder),
        cutting=Cutting.given(n_patches, cutting),
        recipe=recipe,
        seed=seed,
    )
    return cut_graph(graph, settings.resolved(graph), {} if store is None else store, progress)


def cut_graph(graph: Graph, settings: JobSettings, store: Store, progress: ProgressCallback | None) -> PatchGraph:
    """Cut a graph as resolved settings say, or open the patches that the store has."""
    cutting, motions = settings.cutting, settings.motions
    made_with: dict[str, object] = {"cutting": describe(cutting), "seed": settings.seed}
    if "patch_graph" in store:
        try:
            check_patch_graph(store, graph=graph, settings=made_with)
            labels = store["patch_graph"].parameters.get("labels")
            if labels is None or "labels" not in store or labels == record_digest(store, "labels"):
                return stored_patch_graph(store).with_settings(settings)
            _log.warning("the graph is cut again: its cluster labels have changed")
        except FormatError as error:
            _log.warning("the graph is cut again: %s", error)
    assert cutting.overlap is not None
    assert cutting.degree is not None
    with resource_usage() as cost:
        _announce_components(graph, cutting, motions)
        labels = _labels(graph, cutting, made_with, store, progress)
        report(progress, "partition", 1, 1)
        patches = patch_graph(
            graph,
            labels,
            degree=cutting.degree,
            overlap=cutting.overlap,
            edge_weight=cutting.edge_weight,
            limits=cutting.limits,
            components="error" if motions.free and cutting.components is None else "each",
            seed=settings.seed,
            progress=progress,
        )
    if motions.rotate:
        patches.check_dim(settings.dim)
    write_patch_graph(store, patches, graph, {**made_with, "labels": record_digest(store, "labels"), **cost})
    return patches.with_settings(settings)


def _announce_components(graph: Graph, cutting: Cutting, motions: Motions) -> None:
    """Say at once, before the long work, what becomes of a graph in several components, and what else can be done."""
    sizes = np.bincount(graph.components()) if graph.n_nodes else np.ones(1, dtype=np.int64)
    if len(sizes) == 1:
        return
    if not motions.free or cutting.n_patches == 1:
        largest = "--largest-component (in Python graph.largest_component())"
        fate = f"all are embedded in one frame. To keep only the largest: {largest}"
    elif cutting.components == "each":
        fate = "each is aligned alone, and where one lies relative to another is arbitrary"
    else:
        fate = (
            "alignment relates two of them only through a patch that has nodes of both. Keep only the largest "
            "(--largest-component), align each alone (--each-component), or embed all in one frame "
            "(--embedder propagation)"
        )
    message = "the graph has %d components, and the largest has %d of %d nodes: %s."
    _log.warning(message, len(sizes), sizes.max(), graph.n_nodes, fate)


def _labels(
    graph: Graph, cutting: Cutting, made_with: dict[str, object], store: Store, progress: ProgressCallback | None
) -> Int64Array:
    """Return the cluster of each node: those of the store, or new ones, which the store then keeps."""
    made_with = made_with | {"graph": graph_fingerprint(graph)}
    try:
        record = store["labels"]
        if dict(record.parameters) == made_with:
            return np.asarray(record.arrays["labels"])
    except (KeyError, FormatError):
        pass
    assert cutting.partitioner is not None
    assert not isinstance(cutting.partitioner, type)
    assert cutting.overlap is not None
    if isinstance(cutting.partitioner, Multilevel):
        labels = cutting.partitioner.merge(far_clusters(store, graph, progress))
    else:
        options = {"progress": progress} if getattr(cutting.partitioner, "reports", False) else {}
        labels = cutting.partitioner(graph, **options)
    labels = merge_small(graph, labels, smallest_cluster(cutting.overlap))
    store["labels"] = Record({"labels": labels}, made_with)
    return labels


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
        The motions that the embedder leaves free; ``recipe.motions`` takes precedence. By default those that
        ``patches`` carries, and rotations and translations for patches from elsewhere.
    recipe : Recipe, optional
        Its runs, robust, branching, coverage, refine and precision. By default the one that ``patches`` carries, and
        ``Recipe()`` for patches from elsewhere.
    graph : Graph, optional
        Needed where ``recipe.coverage`` is above 0 and ``patches`` carries none.
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
    frame = None
    if isinstance(patches, EmbeddedPatches):
        frame, graph = patches.frame, patches.graph if graph is None else graph
        if patches.settings is not None:
            motions = patches.settings.motions if motions is None else motions
            recipe = patches.settings.recipe if recipe is None else recipe
    recipe = Recipe() if recipe is None else recipe
    repeated = patch_graph.repeat(recipe.runs)
    weights = row_weights(repeated, recipe, graph)
    undone = recipe.undone(Motions() if motions is None else motions)
    if repeated.placement_arbitrary:
        alignment, _ = align_components(
            patches,
            repeated.edges,
            **vars(undone),
            robust=recipe.robust,
            weights=weights,
            executor=executor,
            progress=progress,
        )
    else:
        alignment = align(
            patches,
            repeated.edges,
            **vars(undone),
            robust=recipe.robust,
            branching=recipe.branching,
            weights=weights,
            executor=executor,
            progress=progress,
        )
    if frame is not None and not undone.free:
        alignment = replace(alignment, frame=frame)
    turn, shift = undone.rotate, undone.translate
    alignment = refine(patches, alignment, sweeps=recipe.refine, rotate=turn, translate=shift, weights=weights)
    n = repeated.n_nodes
    out = np.empty((n, alignment.dim), dtype=recipe.precision) if out is None else out
    return alignment, centroid(patches, alignment, n_nodes=n, weights=weights, out=out, progress=progress)


def row_weights(repeated: PatchGraph, recipe: Recipe, graph: Graph | None) -> Sequence[Float64Array] | None:
    """Return the weight of each row of each patch of all runs, or None if all weights are equal."""
    if recipe.coverage == 0:
        return None
    if graph is None:
        raise InputError("coverage is counted in the graph, and none was given; use a recipe with coverage 0.")
    return coverage_weights(graph, repeated, power=recipe.coverage)
