"""stitch(): from embedded patches to one embedding, by alignment, refinement and the weighted centroid."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

import numpy as np

from graphquilt.alignment import Alignment, align, align_components, centroid, refine
from graphquilt.arrays import Float64Array, FloatArray
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.jobs.recipe import Recipe
from graphquilt.linalg.motions import Motions
from graphquilt.patches import Patch, PatchGraph, coverage_weights
from graphquilt.progress import ProgressCallback

__all__ = ["row_weights", "stitch"]


def stitch(
    patch_graph: PatchGraph,
    patches: Sequence[Patch],
    *,
    motions: Motions = Motions(),
    recipe: Recipe = Recipe(),
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
        What :func:`graphquilt.embed_patches` returned.
    motions : Motions
        The motions that the embedder leaves free; ``recipe.motions`` wins where it is given.
    recipe : Recipe
        Its runs, robust, branching, coverage, refine and precision.
    graph : Graph, optional
        Needed where ``recipe.coverage`` is above 0.
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
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(12, 2))
    >>> graph_of_patches = PatchGraph.from_patches([np.arange(8), np.arange(4, 12)])
    >>> patches = [Patch(np.arange(8), X[:8]), Patch(np.arange(4, 12), 5 - X[4:])]
    >>> alignment, embedding = stitch(graph_of_patches, patches)
    >>> round(float(alignment.edge_errors.max()), 6), embedding.shape
    (0.0, (12, 2))
    """
    repeated = patch_graph.repeat(recipe.runs)
    weights = row_weights(repeated, recipe, graph)
    undone = recipe.undone(motions)
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
    frame = getattr(patches, "frame", None)
    if frame is not None and not undone.free:
        alignment = replace(alignment, frame=frame)
    turn, shift = undone.rotate, undone.translate
    alignment = refine(patches, alignment, sweeps=recipe.refine, rotate=turn, translate=shift, weights=weights)
    n = repeated.n_nodes
    out = np.empty((n, alignment.dim), dtype=recipe.precision) if out is None else out
    return alignment, centroid(patches, alignment, n_nodes=n, weights=weights, out=out, progress=progress)


def row_weights(repeated: PatchGraph, recipe: Recipe, graph: Graph | None) -> Sequence[Float64Array] | None:
    """Return what each row of each patch of all runs counts with, or None where all count alike."""
    if recipe.coverage == 0:
        return None
    if graph is None:
        raise InputError("coverage is counted in the graph, and none was given; use a recipe with coverage 0.")
    return coverage_weights(graph, repeated, power=recipe.coverage)
