"""embed_patches(): a shared start, then every patch is embedded on its own, in several runs, on any executor."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor

import numpy as np

from graphquilt.embedders.adapters import EmbedderLike, as_embedder
from graphquilt.embedders.contract import Embedder
from graphquilt.errors import InputError
from graphquilt.graph import Graph
from graphquilt.jobs.embedded import EmbeddedPatches
from graphquilt.jobs.recipe import Recipe, check_recipe
from graphquilt.jobs.settings import JobSettings, default_embedders, resolve_recipe
from graphquilt.jobs.starting import make_starts
from graphquilt.jobs.store import Store
from graphquilt.jobs.sweeps import EmbeddingRun
from graphquilt.jobs.tasks import patch_seed
from graphquilt.kernels import loop_threads, one_thread, use_loop_threads
from graphquilt.patches import Patch, PatchGraph
from graphquilt.progress import ProgressCallback


def embed_patches(
    graph: Graph | None,
    patch_graph: PatchGraph,
    embedder: EmbedderLike | Sequence[EmbedderLike] | None = None,
    *,
    seed: int | None = None,
    recipe: Recipe | None = None,
    executor: Executor | None = None,
    store: Store | None = None,
    progress: ProgressCallback | None = None,
    retries: int = 1,
    only: Iterable[int] | None = None,
) -> Sequence[Patch]:
    """Embed the induced subgraph of every patch, each with its own seed.

    If the embedder has a shared start and the recipe allows it, the whole graph is surveyed, every patch contributes
    a sum, and all patches are then embedded in the frame that the sums define. Otherwise no patch knows anything
    of another.

    The result does not depend on the executor, the order, the number of workers, or on whether the work was
    interrupted and resumed.

    Parameters
    ----------
    graph : Graph or None
        None if a store in a folder has the data of every patch already.
    patch_graph : PatchGraph
    embedder : Embedder, function, object with ``fit_transform``, or sequence of these, optional
        One for all patches, or one for each; by default the one that the graph was cut for, or
        :class:`graphquilt.Propagation`. Of a function, the first patch shows in how many dimensions it embeds;
        ``FunctionEmbedder(function, dim)`` says it before, and saves that one call.
    seed : int, optional
        Patch k is embedded with ``patch_seed(seed, k)``; by default the seed of the cut, or 0.
    recipe : Recipe, optional
        By default the one that the graph was cut for, or ``Recipe.shared()``.
        With ``runs``, every patch is embedded that often with other seeds, and the result has the patches of
        ``patch_graph.repeat(runs)``, whose edges align them; a store that has some of the runs already gets the others.
        An embedder with an ``init_seed`` starts run r from ``init_seed + r``. ``start`` allows the shared start.
    executor : concurrent.futures.Executor, optional
        Threads, :class:`graphquilt.Processes`, ``Client(...).get_executor(pure=False)`` of Dask,
        ``MPIPoolExecutor`` of mpi4py; None is a plain loop in this process.
    store : Store, optional
        Where patches and embeddings are kept. What it has already, made from the same things, is not made again.
        Workers read and write a store in a folder themselves; only a few numbers per patch travel.
    progress : callable, optional
        Called with a :class:`graphquilt.progress.Progress` after each patch (stages ``"start"`` and ``"patches"``).
    retries : int
        How often a patch that fails is tried again, unless its input is wrong (:class:`graphquilt.errors.InputError`).
    only : iterable of int, optional
        Embed only these patches, for instance the shard of one machine; they count to ``recipe.runs * n_patches``.
        A shared start needs all patches: the first shard prepares them, and the others wait for it.

    Returns
    -------
    sequence of Patch
        Each is opened from the store when it is asked for. They carry what :func:`graphquilt.stitch` needs.

    Raises
    ------
    PatchesFailedError
        Some patches failed in every attempt; all others are done, and kept in the store.
    JobError
        The store has patches of another graph, or embeddings by another embedder or seed; another run is at work on it;
        or no patch can succeed (a full disk, a scheduler that went away).

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from graphquilt.embedders import SVD
    >>> ring = Graph(sp.csr_array(np.roll(np.eye(8), 1, 0) + np.roll(np.eye(8), -1, 0)))
    >>> two = PatchGraph([np.arange(5), np.array([0, 1, 4, 5, 6, 7])], np.array([[0, 1]]), 8)
    >>> [patch.coordinates.shape for patch in embed_patches(ring, two, SVD(1), seed=0)]
    [(5, 1), (6, 1)]
    """
    settings = _settings(graph, patch_graph, embedder, recipe, seed)
    threads = loop_threads() if executor is None else 1
    with one_thread(), use_loop_threads(threads), contextlib.ExitStack() as lock:
        run = EmbeddingRun(
            graph,
            patch_graph,
            settings,
            store={} if store is None else store,
            wanted=_wanted(only, settings.recipe.runs * patch_graph.n_patches),
            is_shard=only is not None,
            executor=executor,
            progress=progress,
            retries=retries,
            lock=lock,
        )
        run.begin()
        run.sweep("embedding", run.wanted, make_starts(run))
        which = run.wanted if run.is_shard else None
        return EmbeddedPatches(run.store, run.repeated.node_sets, which=which, settings=settings, graph=graph)


def _settings(
    graph: Graph | None,
    patch_graph: PatchGraph,
    embedder: EmbedderLike | Sequence[EmbedderLike] | None,
    recipe: Recipe | None,
    seed: int | None,
) -> JobSettings:
    """Return the settings: what is given, then what the patch graph carries, then the defaults."""
    carried = patch_graph.settings
    if not isinstance(carried, JobSettings):
        carried = JobSettings(embedder=default_embedders(None))
    recipe = carried.recipe if recipe is None else recipe
    check_recipe(recipe)
    seed = carried.seed if seed is None else seed
    embedders = carried.embedder if embedder is None else _with_dims(embedder, graph, patch_graph, seed)
    n_embedders = len(embedders) if isinstance(embedders, tuple) else patch_graph.n_patches
    if n_embedders != patch_graph.n_patches:
        raise InputError(
            f"there are {patch_graph.n_patches} patches and {n_embedders} embedders; pass one, or one per patch."
        )
    settings = dataclasses.replace(carried, embedder=embedders, recipe=recipe, seed=seed)
    each, recipe = resolve_recipe(settings.embedders, recipe, graph)
    return dataclasses.replace(settings, embedder=each if isinstance(embedders, tuple) else each[0], recipe=recipe)


def _with_dims(
    given: EmbedderLike | Sequence[EmbedderLike], graph: Graph | None, patch_graph: PatchGraph, seed: int
) -> Embedder | tuple[Embedder, ...]:
    """Return what was given as embedders; what does not say its dimension is called on the first patch to find it."""
    several = isinstance(given, Sequence) and not isinstance(given, str)
    embedders = []
    for value in given if several else [given]:
        silent = not hasattr(value, "dim") and getattr(value, "n_components", None) is None
        if silent and callable(getattr(value, "fit_transform", value)) and graph is not None:
            first = graph.subgraph(patch_graph.node_sets[0])
            width = np.shape(as_embedder(value, 1)(first, patch_seed(seed, 0)))
            embedders.append(as_embedder(value, width[1] if len(width) == 2 else 1))
        else:
            embedders.append(as_embedder(value))
    return tuple(embedders) if several else embedders[0]


def _wanted(only: Iterable[int] | None, n_patches: int) -> Sequence[int]:
    wanted = range(n_patches) if only is None else sorted(set(only))
    if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < n_patches:
        raise InputError(f"patch numbers must be in 0..{n_patches - 1}; got {wanted[0]}..{wanted[-1]}.")
    return wanted
