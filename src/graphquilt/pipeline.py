"""embed(): the stages one after the other, and nothing else."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import operator
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from graphquilt.alignment import Alignment, AlignOptions, align, centroid, refine
from graphquilt.arrays import FloatArray
from graphquilt.consensus import Round, consensus_targets
from graphquilt.embedders import SVD, Embedder
from graphquilt.embedders.contract import check_drawable
from graphquilt.embedders.contract import free_motions as motions_of
from graphquilt.errors import FormatError, InputError
from graphquilt.fanout import begin, embed_patches, held, lacking_records
from graphquilt.graph import Graph
from graphquilt.linalg.motions import Motions
from graphquilt.partition import Metis, Partitioner, merge_small
from graphquilt.patches import Patch, PatchGraph, coverage_weights, patch_graph
from graphquilt.patches.sparsify import EdgeWeight
from graphquilt.progress import ProgressCallback, report
from graphquilt.recipes import Recipe
from graphquilt.records import (
    alignment_of,
    alignment_record,
    embedding_record,
    keep_graph,
    keep_node_ids,
    keep_patch_graph,
)
from graphquilt.store import DirectoryStore, Record, Store

__all__ = [
    "Motions",
    "QuiltResult",
    "default_degree",
    "default_overlap",
    "embed",
    "embed_in_rounds",
    "free_motions",
    "stitch",
    "without_copies",
]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class QuiltResult:
    """What :func:`embed` gives.

    Attributes
    ----------
    embedding : float array (n, dim)
        Row u is the place of node u.
    patch_graph : PatchGraph
        Of all runs: its edges are those that were aligned.
    patches : sequence of Patch
        The patches as they were embedded last, before alignment; all runs, one after the other.
    alignment : Alignment
    """

    embedding: FloatArray
    patch_graph: PatchGraph
    patches: Sequence[Patch]
    alignment: Alignment

    def __repr__(self) -> str:
        nodes, dim = self.embedding.shape
        return f"QuiltResult({nodes} nodes, dim={dim}, {self.patch_graph!r}, {self.alignment!r})"


def default_degree(n_patches: int) -> int:
    """Return the mean degree of the patch graph where none is asked for: log2 of the patches, and 4 at least.

    That gives the paper's 4 at 10 patches and 5 at 20.

    Examples
    --------
    >>> default_degree(10), default_degree(20), default_degree(10_000)
    (4, 5, 14)
    """
    return max(4, math.ceil(math.log2(max(n_patches, 2))))


def default_overlap(dim: int, n_nodes: int, n_patches: int) -> tuple[int, int]:
    """Return the overlap (l, u) where none is asked for.

    l is as many nodes as a cluster has on average, but no more than 256 or 2 dim, whichever is larger, and never
    below the dim + 1 that alignment needs; u is 4 l. At 10 patches of 250 nodes or more and 128 dimensions that is
    about the paper's (256, 1024).

    Examples
    --------
    >>> default_overlap(128, 2560, 10), default_overlap(8, 300, 10), default_overlap(300, 10**6, 10)
    ((256, 1024), (30, 120), (600, 2400))
    """
    least = max(dim + 1, min(max(256, 2 * dim), n_nodes // n_patches))
    return least, 4 * least


def free_motions(embedder: Embedder | Sequence[Embedder]) -> Motions:
    """Return the motions that :func:`graphquilt.align` has to undo for embeddings of this kind.

    Examples
    --------
    >>> free_motions(SVD(4))
    Motions(scale=True, rotate=True, translate=True)
    """
    each = embedder if isinstance(embedder, Sequence) else [embedder]
    return functools.reduce(operator.or_, (motions_of(one) for one in each))


def without_copies(recipe: Recipe, embedder: Embedder | Sequence[Embedder]) -> Recipe:
    """Return the recipe with one run where the embedder gives the same whatever the seed: others would be copies.

    Examples
    --------
    >>> without_copies(Recipe(runs=4), SVD(4)).runs
    1
    """
    each = embedder if isinstance(embedder, Sequence) else [embedder]
    if recipe.runs == 1 or not all(getattr(one, "deterministic", False) for one in each):
        return recipe
    name = type(each[0]).__name__
    _log.warning("%s does not depend on the seed, so %d runs would be equal: one is made", name, recipe.runs)
    return recipe.changed(runs=1)


def _checked_recipe(recipe: Recipe) -> Recipe:
    if not isinstance(recipe, Recipe):
        raise InputError(
            f"recipe is a Recipe, not {recipe!r}: pass Recipe.best(), Recipe.paper(), Recipe.reconstruction() or one "
            "of your own."
        )
    return recipe


def embed(
    graph: Graph,
    dim: int,
    *,
    n_patches: int = 10,
    embedder: Embedder | Sequence[Embedder] | None = None,
    partitioner: Partitioner | None = None,
    degree: float | None = None,
    overlap: tuple[int, int] | None = None,
    edge_weight: EdgeWeight | None = None,
    robust: bool = False,
    recipe: Recipe | None = None,
    runs: int | None = None,
    rounds: int | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    store: Store | None = None,
    progress: ProgressCallback | None = None,
) -> QuiltResult:
    """Embed a graph from patches: partition, patch graph, embedding of each patch, alignment, centroid.

    It does what its parts do, called one after the other; call them yourself to change what lies between.

    Parameters
    ----------
    graph : Graph
        Connected; see :meth:`graphquilt.Graph.largest_component`.
    dim : int
    n_patches : int
        Clusters to cut the graph into; those with less than half of the least overlap are merged into neighbours.
    embedder : Embedder or sequence of Embedder, optional
        By default :class:`graphquilt.SVD`, whatever is installed. Its ``group`` decides which motions are undone.
    partitioner : Partitioner, optional
        By default ``Metis(n_patches, seed)``.
    degree, overlap : optional
        See :func:`graphquilt.patch_graph`; by default :func:`default_degree` and :func:`default_overlap`.
    edge_weight : EdgeWeight, optional
    robust : bool
        Doubt patch edges that contradict the others; see :func:`graphquilt.align`.
    recipe : Recipe, optional
        How to train and what to trust; by default every patch is trained once, with the embedder as it is.
    runs, rounds : int, optional
        In place of the recipe's: how often every patch is trained, all runs being aligned together, and how often it
        is trained again after that, drawn to where the aligned patches put its nodes. With ``n_patches=1`` runs are an
        ensemble of the whole graph's embeddings.
    seed : int
        Of the partition, the patch graph and the embeddings.
    executor : concurrent.futures.Executor, optional
        For the embeddings and the comparison of overlaps.
    store : Store, optional
        Keeps everything, and resumes; see :func:`graphquilt.embed_patches`. A :class:`graphquilt.DirectoryStore` also
        gets the graph and the ids of its nodes, so that the command line can go on with the job.
    progress : callable, optional

    Returns
    -------
    QuiltResult

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> ring = Graph(sp.csr_array(np.roll(np.eye(90), 1, 0) + np.roll(np.eye(90), -1, 0)))
    >>> embed(ring, dim=2, n_patches=3).embedding.shape
    (90, 2)
    """
    if isinstance(n_patches, bool) or not isinstance(n_patches, int | np.integer) or n_patches < 1:
        raise InputError(f"n_patches is a whole number of at least 1, not {n_patches!r}.")
    recipe = (Recipe() if recipe is None else _checked_recipe(recipe)).changed(runs=runs, rounds=rounds)
    given = SVD(dim) if embedder is None else embedder
    recipe = without_copies(recipe, given)
    each = [recipe.tuned(one) for one in (given if isinstance(given, Sequence) else [given])]
    for one in each:
        if one.dim != dim:
            raise InputError(f"dim is {dim}, and {one!r} embeds in {one.dim} dimensions; make them equal.")
    overlap = overlap or default_overlap(dim, graph.n_nodes, n_patches)
    labels = (partitioner or Metis(n_patches, seed))(graph)
    report(progress, "partition", 1, 1)
    labels = merge_small(graph, labels, -(-overlap[0] // 2))
    quilt = patch_graph(
        graph,
        labels,
        degree=default_degree(n_patches) if degree is None else degree,
        overlap=overlap,
        edge_weight=edge_weight,
        seed=seed,
        progress=progress,
    )
    with held(store):
        if store is not None:
            keep_patch_graph(store, quilt, graph, {"dim": dim})
        if isinstance(store, DirectoryStore):
            if "source" not in store:
                keep_graph(store, graph, {"python": "graphquilt.embed"})
            keep_node_ids(store, graph, graph.n_nodes)
        patches = embed_in_rounds(
            graph,
            quilt,
            each if isinstance(given, Sequence) else each[0],
            recipe=recipe,
            robust=robust,
            seed=seed,
            executor=executor,
            store=store,
            progress=progress,
        )
        repeated = quilt.repeat(recipe.runs)
        alignment, X = stitch(
            graph, repeated, patches, each, recipe=recipe, robust=robust, executor=executor, progress=progress
        )
        if store is not None:
            counts = {"runs": recipe.runs, "rounds": recipe.rounds}
            said = {"robust": robust, "coverage": recipe.coverage, "refine": recipe.refine, **counts}
            record = alignment_record(alignment, {**asdict(free_motions(each)), **said})
            store["alignment"] = record
            store["embedding"] = embedding_record(X, record)
    report(progress, "embedding", 1, 1)
    return QuiltResult(X, repeated, patches, alignment)


def embed_in_rounds(
    graph: Graph | None,
    quilt: PatchGraph,
    embedder: Embedder | Sequence[Embedder],
    *,
    recipe: Recipe,
    robust: bool = False,
    seed: int = 0,
    executor: Executor | None = None,
    store: Store | None = None,
    progress: ProgressCallback | None = None,
    retries: int = 1,
    only: Iterable[int] | None = None,
) -> Sequence[Patch]:
    """Embed the patches as often as the recipe says: all its runs, and then all its consensus rounds.

    Between two rounds everything is aligned; within a round every patch is trained for itself.

    Parameters
    ----------
    graph, quilt, embedder, robust, seed, executor, store, progress, retries
        As for :func:`embed` and :func:`graphquilt.embed_patches`; the embedder is taken as it is.
    recipe : Recipe
        Its runs, rounds, pull and coverage.
    only : iterable of int, optional
        Only these of all ``recipe.runs * quilt.n_patches`` patches; not with rounds, which need all of them.

    Returns
    -------
    sequence of Patch
        Of the last round, for the edges of ``quilt.repeat(recipe.runs)``.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> ring = Graph(sp.csr_array(np.roll(np.eye(8), 1, 0) + np.roll(np.eye(8), -1, 0)))
    >>> quilt = PatchGraph([np.arange(5), np.array([0, 1, 4, 5, 6, 7])], np.array([[0, 1]]), 8)
    >>> len(embed_in_rounds(ring, quilt, SVD(1), recipe=Recipe(runs=3)))
    6
    """
    each = [*embedder] if isinstance(embedder, Sequence) else [embedder]
    repeated = quilt.repeat(_checked_recipe(recipe).runs)
    repeated.check_dim(each[0].dim)
    if recipe.rounds:
        _check_rounds(graph, quilt, each, recipe, only)
    share = None if only is None else sorted(set(only))
    work = partial(
        embed_patches,
        graph,
        quilt,
        embedder,
        seed=seed,
        runs=recipe.runs,
        executor=executor,
        store=store,
        progress=progress,
        retries=retries,
        only=share,
    )

    def lacking(store: Store) -> dict[str, Record]:
        how = {"seed": seed, "runs": recipe.runs, "rounds": recipe.rounds}
        found = lacking_records(store, graph=graph, patch_graph=quilt, embedder=embedder, **how)
        asked = Record({}, asdict(recipe))
        same = "recipe" in store and store["recipe"].parameters == asked.parameters
        return found if same else {**found, "recipe": asked}

    with contextlib.ExitStack() as hold:
        begin(store, lacking, hold, share)
        patches = work(consensus=Round(0, recipe.rounds))
        for number in range(1, recipe.rounds + 1):
            key = f"rounds/{number}/consensus"
            said = {name: getattr(recipe, name) for name in ("runs", "pull", "coverage", "refine")} | {"robust": robust}
            found = _kept_consensus(store, key, said)
            if found is None:
                hold.enter_context(held(store))
                found = stitch(
                    graph, repeated, patches, each, recipe=recipe, robust=robust, executor=executor, progress=progress
                )
                if store is not None:
                    record = alignment_record(found[0], said)
                    store[key] = replace(record, arrays={**record.arrays, "centroid": found[1]})
            targets = consensus_targets(repeated.node_sets, *found, pull=recipe.pull)
            patches = work(consensus=Round(number, recipe.rounds, targets))
    return patches


def _check_rounds(
    graph: Graph | None, quilt: PatchGraph, embedders: list[Embedder], recipe: Recipe, only: Iterable[int] | None
) -> None:
    """Refuse before any training what rounds would fail at after it."""
    for one in embedders:
        check_drawable(one)
    if only is not None:
        raise InputError(
            f"{recipe.rounds} consensus rounds need all patches aligned between them and cannot go by shares "
            "(--shard): embed all from one place, or use rounds=0."
        )
    if quilt.placement_arbitrary:
        raise InputError("consensus rounds need one connected patch graph, and this one has several components.")
    if graph is None and recipe.coverage:
        raise InputError("coverage is counted in the graph, and none was given; use a recipe with coverage 0.")


def _kept_consensus(store: Store | None, key: str, said: dict[str, Any]) -> tuple[Alignment, FloatArray] | None:
    """Return what a round was begun with: aligning again elsewhere could differ in the last bits and undo the round."""
    if store is None or key not in store:
        return None
    try:
        record = store[key]
    except FormatError as error:
        _log.warning("a consensus round is begun again: %s", error)
        return None
    if record.parameters != said:
        return None
    return alignment_of(record), np.asarray(record.arrays["centroid"])


def stitch(
    graph: Graph | None,
    quilt: PatchGraph,
    patches: Sequence[Patch],
    embedders: Sequence[Embedder],
    *,
    recipe: Recipe,
    robust: bool = False,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[Alignment, FloatArray]:
    """Align all patches, refine and average them, as the recipe says; return the alignment and the embedding."""
    weights = None
    if recipe.coverage and graph is not None:
        weights = coverage_weights(graph, quilt, power=recipe.coverage)
    motions = free_motions(embedders)
    alignment = align(
        patches,
        quilt.edges,
        options=AlignOptions(motions=motions, robust=robust),
        weights=weights,
        executor=executor,
        progress=progress,
    )
    alignment = refine(patches, alignment, sweeps=recipe.refine, weights=weights, motions=motions)
    return alignment, centroid(patches, alignment, n_nodes=quilt.n_nodes, weights=weights)
