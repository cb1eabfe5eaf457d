"""embed_patches(): every patch is embedded on its own, in several runs and rounds, on any executor."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from graphquilt.alignment import Alignment
from graphquilt.arrays import FloatArray
from graphquilt.embedders.contract import Embedder, check_accepts_target
from graphquilt.errors import FormatError, InputError, JobError, PatchesFailedError
from graphquilt.graph import Graph
from graphquilt.kernels import one_thread
from graphquilt.patches import Patch, PatchGraph
from graphquilt.pipeline.calls import embedder_of_run, embedding_parameters, patch_seed
from graphquilt.pipeline.consensus import Round, consensus_targets
from graphquilt.pipeline.cutting import keep_patch_graph
from graphquilt.pipeline.description import differences
from graphquilt.pipeline.passes import Pass, share_name, work_through
from graphquilt.pipeline.recipe import Recipe, check_recipe, common_motions
from graphquilt.pipeline.records import patch_key
from graphquilt.pipeline.stitching import stitch
from graphquilt.pipeline.store import Record, Store, is_shared, locked, store_name
from graphquilt.pipeline.stored import StoredPatches
from graphquilt.progress import ProgressCallback, report

__all__ = ["embed_patches"]

_log = logging.getLogger(__name__)


def embed_patches(
    graph: Graph | None,
    patch_graph: PatchGraph,
    embedder: Embedder | Sequence[Embedder],
    *,
    seed: int = 0,
    recipe: Recipe = Recipe(),
    executor: Executor | None = None,
    store: Store | None = None,
    progress: ProgressCallback | None = None,
    retries: int = 1,
    only: Iterable[int] | None = None,
) -> Sequence[Patch]:
    """Embed the induced subgraph of every patch, each with a seed of its own.

    The result does not depend on the executor, the order, the number of workers, or on whether the work was
    interrupted and resumed.

    Parameters
    ----------
    graph : Graph or None
        None where a shared store has the data of every patch already.
    patch_graph : PatchGraph
    embedder : Embedder or sequence of Embedder
        One for all patches, or one for each.
    seed : int
        Patch k is embedded with ``patch_seed(seed, k)``.
    recipe : Recipe
        With ``runs``, every patch is embedded that often with other seeds, and the result has the patches of
        ``patch_graph.repeat(runs)``, whose edges align them; a store that has some of the runs already gets the others.
        An embedder with an ``init_seed`` starts run r from ``init_seed + r``. With ``rounds``, all runs are stitched
        and embedded again that often, each patch pulled to where the stitched embedding puts its shared nodes.
    executor : concurrent.futures.Executor, optional
        Threads, :class:`graphquilt.Processes`, ``Client(...).get_executor(pure=False)`` of Dask,
        ``MPIPoolExecutor`` of mpi4py; None is a plain loop in this process.
    store : Store, optional
        Where patches and embeddings are kept. What it has already, made with the same embedder and seed, is not made
        again. Workers read and write a shared store themselves; only a few numbers per patch travel.
    progress : callable, optional
        Called with a :class:`graphquilt.progress.Progress` after each patch (stage ``"patches"``).
    retries : int
        How often a patch that fails is tried again, unless its input is wrong (:class:`graphquilt.errors.InputError`).
    only : iterable of int, optional
        Embed only these patches, for instance the share of one machine; they count to ``recipe.runs * n_patches``.
        Not together with rounds, which need all patches.

    Returns
    -------
    sequence of Patch
        Those that were wanted, each opened from the store when it is asked for.

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
    work = _Work(
        graph,
        patch_graph,
        _one_for_each(embedder, patch_graph, recipe),
        recipe,
        seed,
        store={} if store is None else store,
        wanted=_wanted(only, recipe.runs * patch_graph.n_patches),
        share=only is not None,
        executor=executor,
        progress=progress,
        retries=retries,
    )
    work.check()
    with one_thread(), contextlib.ExitStack() as lock:
        work.begin(lock)
        patches = work.embed(Round(), lock)
        for number in range(1, recipe.rounds + 1):
            alignment, X = work.consensus(number, patches, lock)
            targets = consensus_targets(work.repeated.node_sets, alignment, X, pull=recipe.pull)
            patches = work.embed(Round(number, targets), lock)
    return patches


def _one_for_each(embedder: Embedder | Sequence[Embedder], patch_graph: PatchGraph, recipe: Recipe) -> list[Embedder]:
    """Return the embedder of each patch of each run."""
    check_recipe(recipe)
    embedders = list(embedder) if isinstance(embedder, Sequence) else [embedder] * patch_graph.n_patches
    if len(embedders) != patch_graph.n_patches:
        raise InputError(
            f"there are {patch_graph.n_patches} patches and {len(embedders)} embedders; give one, or one for each."
        )
    dims = sorted({one.dim for one in embedders})
    if len(dims) > 1:
        raise InputError(f"the embedders have dims {dims}; patches need one in common.")
    return [embedder_of_run(one, run) for run in range(recipe.runs) for one in embedders]


def _wanted(only: Iterable[int] | None, n_patches: int) -> Sequence[int]:
    wanted = range(n_patches) if only is None else sorted(set(only))
    if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < n_patches:
        raise InputError(f"only patches 0 to {n_patches - 1} exist; asked are {wanted[0]} to {wanted[-1]}.")
    return wanted


@dataclass(frozen=True, eq=False)
class _Work:
    """The work of one call of :func:`embed_patches`, whose arguments these are."""

    graph: Graph | None
    patch_graph: PatchGraph
    embedders: Sequence[Embedder]  # of each patch of each run
    recipe: Recipe
    seed: int
    store: Store
    wanted: Sequence[int]
    share: bool  # whether others embed the rest
    executor: Executor | None
    progress: ProgressCallback | None
    retries: int

    @functools.cached_property
    def repeated(self) -> PatchGraph:
        """The patches of all runs."""
        return self.patch_graph.repeat(self.recipe.runs)

    @property
    def _only(self) -> Sequence[int] | None:
        return self.wanted if self.share else None

    def check(self) -> None:
        """Refuse before any training what would fail after it."""
        if not self.recipe.rounds:
            return
        self.repeated.check_dim(self.embedders[0].dim)
        for embedder in self.embedders:
            check_accepts_target(embedder)
        if self.share:
            raise InputError(
                f"{self.recipe.rounds} consensus rounds need all patches aligned between them and cannot go by shares "
                "(--shard): embed all from one place, or use rounds=0."
            )
        if self.patch_graph.placement_arbitrary:
            raise InputError("consensus rounds need one connected patch graph, and this one has several components.")
        if self.graph is None and self.recipe.coverage:
            raise InputError("coverage is counted in the graph, and none was given; use a recipe with coverage 0.")

    def begin(self, lock: contextlib.ExitStack) -> None:
        """Keep the patch graph, and refuse a store with other patches or embeddings."""
        self.refuse_other_settings()
        if "patch_graph" not in self.store:
            if not self.wanted:
                return  # a share of no patches writes nothing
            lock.enter_context(locked(self.store, share_name(self._only)))
        keep_patch_graph(self.store, self.patch_graph, self.graph)

    def refuse_other_settings(self) -> None:
        """Refuse a store whose embeddings were made by another embedder or seed: a mixture would be worthless.

        The first two decide: a single odd patch among others is embedded again.
        """
        changes: list[str] = []
        for patch, embedder in enumerate(self.embedders):
            try:
                parameters = self.store[patch_key(patch, "embedding")].parameters
            except (KeyError, FormatError):
                continue
            wanted = embedding_parameters(embedder, patch_seed(self.seed, patch))
            before, now = (
                {"embedder": each.get("embedder"), f"seed of patch {patch}": each.get("seed")}
                for each in (parameters, wanted)
            )
            if before == now:
                return
            changes.append(differences(before, now))
            if len(changes) == 2:
                break
        if changes:
            raise JobError(
                f"{store_name(self.store)} is embedded with {changes[0]}. Mixing them would spoil the job: use the "
                "same settings, or another folder."
            )

    def embed(self, consensus: Round, lock: contextlib.ExitStack) -> StoredPatches:
        """Embed all wanted patches in one round."""
        todo = Pass(
            self.graph,
            self.repeated,
            self.embedders,
            self.seed,
            self.store,
            n_data=self.patch_graph.n_patches,
            round=consensus,
            only=self._only,
            retries=self.retries,
            lock=lock,
        )
        for done, facts in enumerate(work_through(todo, self.wanted, self.executor, self.progress), 1):
            report(self.progress, "patches", done, len(self.wanted), values=facts)
        if todo.failures:
            n_done = len(self.wanted) - len(todo.failures)
            raise PatchesFailedError(todo.failures, n_done=n_done, kept=is_shared(self.store))
        return StoredPatches(self.store, self.repeated.node_sets, which=self._only, round_number=consensus.number)

    def consensus(
        self, number: int, patches: Sequence[Patch], lock: contextlib.ExitStack
    ) -> tuple[Alignment, FloatArray]:
        """Stitch what the round before embedded, or open what the store has of that.

        Stitching again elsewhere could differ in the last bits and undo the round, so the store keeps it.
        """
        motions = common_motions(self.embedders)
        settings = self.recipe.consensus(motions)
        key = f"rounds/{number}/consensus"
        try:
            record = self.store[key]
            if dict(record.parameters) == settings:
                return Alignment.from_arrays(record.arrays), np.asarray(record.arrays["centroid"])
        except KeyError:
            pass
        except FormatError as error:
            _log.warning("a consensus round is begun again: %s", error)
        lock.enter_context(locked(self.store))
        alignment, X = stitch(
            self.patch_graph,
            patches,
            motions=motions,
            recipe=self.recipe,
            graph=self.graph,
            executor=self.executor,
            progress=self.progress,
        )
        self.store[key] = Record({**alignment.to_arrays(), "centroid": X}, settings)
        return alignment, X
