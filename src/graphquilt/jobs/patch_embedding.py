"""embed_patches(): a shared start, then every patch is embedded on its own, in several runs, on any executor."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from graphquilt.embedders.contract import Embedder, EmbedderLike, as_embedder
from graphquilt.embedders.shared_start import Arrays, SharedStart, checked_arrays, cut_patch, with_start
from graphquilt.errors import FormatError, InputError, JobError, QuiltError
from graphquilt.graph import Graph
from graphquilt.jobs.options import Recipe
from graphquilt.jobs.records import check_embedder, describe, differences, keep_patch_graph, patch_key, patch_seed
from graphquilt.jobs.settings import JobSettings, default_embedders
from graphquilt.jobs.store import Record, Store, combined_digest, store_name
from graphquilt.jobs.stored_patches import EmbeddedPatches
from graphquilt.jobs.sweeps import START, EmbeddingRun, PatchSweep
from graphquilt.jobs.tasks import Start
from graphquilt.kernels import loop_threads, one_thread, use_loop_threads
from graphquilt.patches import Patch, PatchGraph
from graphquilt.progress import ProgressCallback

_log = logging.getLogger(__name__)


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
    a sum, and all patches are then embedded in the frame that the sums define. The result does not depend on the
    executor, the order, the number of workers, or on whether the work was interrupted and resumed.

    Parameters
    ----------
    graph : Graph or None
        None if the store has every patch already.
    patch_graph : PatchGraph
    embedder : Embedder, function, object with ``fit_transform``, or sequence of these, optional
        One for all patches, or one for each; by default the one that the graph was cut for, or
        :class:`graphquilt.Propagation`. Of a function, the first patch shows in how many dimensions it embeds.
    seed : int, optional
        Patch k is embedded with ``patch_seed(seed, k)``; by default the seed of the cut, or 0.
    recipe : Recipe, optional
        By default the one that the graph was cut for, or ``Recipe.shared()``. With ``runs``, the result has the patches
        of ``patch_graph.repeat(runs)``; an embedder with an ``init_seed`` starts run r from ``init_seed + r``.
    executor : concurrent.futures.Executor, optional
        Threads, :class:`graphquilt.Processes`, ``Client(...).get_executor(pure=False)`` of Dask,
        ``MPIPoolExecutor`` of mpi4py; None is a plain loop in this process.
    store : Store, optional
        Where patches and embeddings are kept. What it has already, made from the same things, is not made again.
    progress : callable, optional
        Called with a :class:`graphquilt.progress.Progress` after each patch (stages ``"start"`` and ``"patches"``).
    retries : int
        How often a patch that fails is tried again, unless its input is wrong (:class:`graphquilt.errors.InputError`).
    only : iterable of int, optional
        Embed only these patches, for instance the shard of one machine; they count to ``recipe.runs * n_patches``.
        A shared start needs all patches: a shard prepares its own, then those that no other shard is at work on.

    Returns
    -------
    sequence of Patch
        Each is opened from the store when it is asked for. They carry what :func:`graphquilt.stitch` needs.

    Raises
    ------
    PatchesFailedError
        Some patches failed in every attempt; all others are done, and kept in the store.
    JobError
        The store has other patches or embeddings, another run is at work on it, or no patch can succeed.

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
    total = settings.recipe.runs * patch_graph.n_patches
    wanted = range(total) if only is None else sorted(set(only))
    if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < total:
        raise InputError(f"patch numbers must be in 0..{total - 1}; got {wanted[0]}..{wanted[-1]}.")
    threads = loop_threads() if executor is None else 1
    with one_thread(), use_loop_threads(threads), contextlib.ExitStack() as lock:
        records: Store = {} if store is None else store
        how: dict[str, Any] = {"executor": executor, "progress": progress, "retries": retries, "lock": lock}
        run = EmbeddingRun(graph, patch_graph, settings, records, wanted, is_shard=only is not None, **how)
        check_embedder(run.store, run.embedders, settings.seed)
        if "patch_graph" not in run.store and len(wanted):
            run.take_lock()
        if "patch_graph" in run.store or len(wanted):  # a shard of no patches writes nothing
            keep_patch_graph(run.store, patch_graph, graph)
        PatchSweep(run, "embedding", make_starts(run)).work_through(wanted)
        which = wanted if run.is_shard else None
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
    if not isinstance(carried, JobSettings) or not (embedder is None and recipe is None and seed is None):
        carried = carried if isinstance(carried, JobSettings) else JobSettings(embedder=default_embedders(None))
        seed, recipe = carried.seed if seed is None else seed, carried.recipe if recipe is None else recipe
        given = carried.embedder if embedder is None else _with_dims(embedder, graph, patch_graph, seed)
        carried = dataclasses.replace(carried, embedder=given, recipe=recipe, seed=seed).tuned(graph)
    n_embedders = len(carried.embedders) if isinstance(carried.embedder, tuple) else patch_graph.n_patches
    if n_embedders != patch_graph.n_patches:
        raise InputError(f"there are {patch_graph.n_patches} patches and {n_embedders} embedders; pass one or as many.")
    return carried


def _with_dims(
    given: EmbedderLike | Sequence[EmbedderLike], graph: Graph | None, patch_graph: PatchGraph, seed: int
) -> Embedder | tuple[Embedder, ...]:
    """Return what was given as embedders; what does not say its dimension is called on the first patch to find it."""
    several = isinstance(given, Sequence) and not isinstance(given, str)
    embedders = []
    for value in given if several else [given]:
        dim, silent = None, not hasattr(value, "dim") and getattr(value, "n_components", None) is None
        if silent and callable(getattr(value, "fit_transform", value)) and graph is not None:
            first = graph.subgraph(patch_graph.node_sets[0])
            width = np.shape(as_embedder(value, 1)(first, patch_seed(seed, 0)))
            dim = width[1] if len(width) == 2 else 1
        embedders.append(as_embedder(value, dim))
    return tuple(embedders) if several else embedders[0]


def make_starts(run: EmbeddingRun) -> list[Start | None]:
    """Return the shared start of each repetition, from the store as far as it has them; None without a start."""
    runs = range(run.settings.recipe.runs)
    starts: list[Start | None] = [None] * len(runs)
    if not (run.has_start and run.wanted):
        return starts
    for step in itertools.count():
        starts = [_start(run, r, step, starts[r]) for r in runs]
        if all(_embedder(run, r, starts[r]).complete for r in runs):
            break
    return starts


def _embedder(run: EmbeddingRun, r: int, start: Start | None) -> SharedStart:
    embedder = run.embedders[r * run.patch_graph.n_patches]
    assert isinstance(embedder, SharedStart)
    return embedder if start is None else with_start(embedder, start.arrays)


def _parameters(run: EmbeddingRun, r: int, step: int, before: Start | None) -> dict[str, object]:
    """Return what a start is made from: where any of this has changed, it is made again."""
    survey, p = run.inputs.survey, run.patch_graph.n_patches
    try:
        kept = combined_digest(run.store, (patch_key(r * p + k, f"kept{step}") for k in range(p)))
    except (KeyError, FormatError):
        kept = None
    digests = {"survey": survey and survey.digest, "before": before and before.digest, "kept": kept}
    return {"embedder": describe(_embedder(run, r, None)), "seed": run.settings.seed, "patches": run.patches, **digests}


def _stored_start(run: EmbeddingRun, r: int, step: int, before: Start | None) -> Start | None:
    key = f"starts/{r}/{step}"
    try:
        record = run.store[key]
        taken = run.reused.get(key) == record.digest
        wanted = {} if taken else _parameters(run, r, step, before)
        changes = differences({name: record.parameters.get(name) for name in wanted}, wanted)
        if changes:
            raise FormatError(f"it was made with {changes}")
        elsewhere = taken or run.sample is not None  # patches have kept nothing for it
        start = Start(record.arrays, record.digest, key, None if elsewhere else f"kept{step}")
        _ = _embedder(run, r, start).complete
    except KeyError:
        return None
    except JobError:
        raise
    except Exception as error:  # the embedder may say anything of a start that it did not make
        _log.warning("the shared start is made again: %s", error)
        return None
    return start


def _start(run: EmbeddingRun, r: int, step: int, before: Start | None) -> Start:
    """Return the start of a run after a round; if the store does not have it, all patches prepare for it."""
    start = _stored_start(run, r, step, before)
    if start is not None:
        return start
    p, content = run.patch_graph.n_patches, f"kept{step}"
    patches = range(r * p, (r + 1) * p)
    run.take_lock()
    if run.sample is None:
        PatchSweep(run, content, [before] * run.settings.recipe.runs).share(patches)
    with run.alone(START, f"round {step + 1} of the shared start"):
        start = _stored_start(run, r, step, before)  # another shard may have made it by now
        if start is not None:
            return start
        kept = (run.store[patch_key(patch, content)].arrays for patch in patches)
        embedder, key = _embedder(run, r, before), f"starts/{r}/{step}"
        arrays = _combine(run, embedder, kept if run.sample is None else _prepared_sample(run, embedder), content)
        run.store[key] = Record(arrays, _parameters(run, r, step, before))
        return Start(arrays, run.store[key].digest, key, content if run.sample is None else None)


def _prepared_sample(run: EmbeddingRun, embedder: SharedStart) -> Iterator[Arrays]:
    """Yield what the sampled nodes keep, as one patch that knows the rest of the graph on average."""
    if run.graph is None:
        raise JobError(f"the shared start of {store_name(run.store)} is made from its graph, and none was given.")
    survey = run.inputs.survey
    assert survey is not None
    once = {name: rows for name, rows in survey.nodes.items() if name != "patches"}  # each node counts once
    part, far = cut_patch(run.graph.undirected(), np.asarray(run.sample), dataclasses.replace(survey, nodes=once))
    yield embedder.prepare(part, patch_seed(run.settings.seed, 0), far=far)


def _combine(run: EmbeddingRun, embedder: SharedStart, kept: Iterable[Arrays], content: str) -> Arrays:
    """Add up what all patches contribute, and return the arrays of the start that follows."""
    try:
        total: Arrays | None = None
        for arrays in kept:
            total = embedder.add(total, embedder.contribute(arrays))
        assert total is not None
        combined = embedder.combine(total, run.settings.seed).start
    except QuiltError:
        raise
    except MemoryError as error:
        dim = run.settings.dim
        raise InputError(f"{dim} dimensions do not fit in memory ({error}). Use fewer (--dim).") from error
    except Exception as error:
        raise JobError(
            f"the shared start of {store_name(run.store)} cannot be made from what its patches contribute "
            f"({type(error).__name__}: {error}). Remove the records '{content}' of the patches and run again."
        ) from error
    return dict(sorted(checked_arrays(combined, f"start of {type(embedder).__name__}").items()))
