"""embed_patches(): a shared start, then every patch is embedded on its own, in several runs, on any executor."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from graphquilt.arrays import AnyArray
from graphquilt.embedders.adapters import EmbedderLike, as_embedder
from graphquilt.embedders.contract import Embedder
from graphquilt.embedders.shared_start import Arrays, SharedStart, checked_arrays, shares_start, with_start
from graphquilt.errors import FormatError, InputError, JobError, PatchesFailedError, QuiltError
from graphquilt.graph import Graph
from graphquilt.jobs.calls import Start, embedder_of_run, embedding_parameters, patch_seed
from graphquilt.jobs.cutting import keep_patch_graph
from graphquilt.jobs.description import describe, differences, fingerprint
from graphquilt.jobs.passes import Pass, share_name, work_through
from graphquilt.jobs.patch_data import PatchData, surveyed
from graphquilt.jobs.recipe import Recipe, check_recipe
from graphquilt.jobs.records import patch_graph_fingerprint, patch_key
from graphquilt.jobs.store import Record, Store, is_shared, locked, store_name
from graphquilt.jobs.stored import StoredPatches
from graphquilt.kernels import loop_threads, one_thread, use_loop_threads
from graphquilt.patches import Patch, PatchGraph
from graphquilt.progress import ProgressCallback, report

__all__ = ["embed_patches"]

_log = logging.getLogger(__name__)


def embed_patches(
    graph: Graph | None,
    patch_graph: PatchGraph,
    embedder: EmbedderLike | Sequence[EmbedderLike],
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

    Where the embedder has a shared start and the recipe wants it, the whole graph is surveyed, every patch contributes
    a sum, and all patches are then embedded in the frame that the sums give together. Otherwise no patch knows anything
    of another.

    The result does not depend on the executor, the order, the number of workers, or on whether the work was
    interrupted and resumed.

    Parameters
    ----------
    graph : Graph or None
        None where a shared store has the data of every patch already.
    patch_graph : PatchGraph
    embedder : Embedder, function, object with ``fit_transform``, or sequence of these
        One for all patches, or one for each. Of a function, the first patch shows in how many dimensions it embeds;
        ``FunctionEmbedder(function, dim)`` says it before, and saves that one call.
    seed : int
        Patch k is embedded with ``patch_seed(seed, k)``.
    recipe : Recipe
        With ``runs``, every patch is embedded that often with other seeds, and the result has the patches of
        ``patch_graph.repeat(runs)``, whose edges align them; a store that has some of the runs already gets the others.
        An embedder with an ``init_seed`` starts run r from ``init_seed + r``. ``start`` allows the shared start.
    executor : concurrent.futures.Executor, optional
        Threads, :class:`graphquilt.Processes`, ``Client(...).get_executor(pure=False)`` of Dask,
        ``MPIPoolExecutor`` of mpi4py; None is a plain loop in this process.
    store : Store, optional
        Where patches and embeddings are kept. What it has already, made with the same embedder and seed, is not made
        again. Workers read and write a shared store themselves; only a few numbers per patch travel.
    progress : callable, optional
        Called with a :class:`graphquilt.progress.Progress` after each patch (stages ``"start"`` and ``"patches"``).
    retries : int
        How often a patch that fails is tried again, unless its input is wrong (:class:`graphquilt.errors.InputError`).
    only : iterable of int, optional
        Embed only these patches, for instance the share of one machine; they count to ``recipe.runs * n_patches``.
        A shared start needs all patches: the first share prepares them, and the others wait for it.

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
        _one_for_each(_with_dims(embedder, graph, patch_graph, seed), patch_graph, recipe),
        recipe,
        seed,
        store={} if store is None else store,
        wanted=_wanted(only, recipe.runs * patch_graph.n_patches),
        share=only is not None,
        executor=executor,
        progress=progress,
        retries=retries,
    )
    threads = loop_threads() if executor is None else 1
    with one_thread(), use_loop_threads(threads), contextlib.ExitStack() as lock:
        work.begin(lock)
        return work.embed(work.start(lock), lock)


def _with_dims(
    given: EmbedderLike | Sequence[EmbedderLike], graph: Graph | None, patch_graph: PatchGraph, seed: int
) -> Embedder | Sequence[Embedder]:
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
    return embedders if several else embedders[0]


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


def _fingerprint(arrays: Mapping[str, AnyArray]) -> str:
    return fingerprint(*(np.atleast_1d(array) for _, array in sorted(arrays.items())))


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

    @functools.cached_property
    def data(self) -> PatchData:
        """The data of the patches; the survey of the whole graph is made, or opened, when this is first asked for."""
        embedder, node_sets = self.embedders[0], self.patch_graph.node_sets
        survey = None
        if self._starts:
            survey = surveyed(self.store, self.graph, embedder, self.seed, node_sets, progress=self.progress)
        return PatchData(self.graph, node_sets, survey)

    @property
    def _starts(self) -> bool:
        """Whether patches get a shared start: it is wanted, and all patches of a run have the same embedder."""
        first, p = self.embedders[0], self.patch_graph.n_patches
        alike = all(one == first for one in self.embedders[:p])
        return self.recipe.start and shares_start(first, self.graph) and alike

    def start(self, lock: contextlib.ExitStack) -> list[Start | None]:
        """Return the shared start of each run, from the store as far as that has it; None where there is none."""
        starts: list[Start | None] = [None] * self.recipe.runs
        if not (self._starts and self.wanted):
            return starts
        for step in itertools.count():
            kept = [self._kept_start(run, step, starts[run]) for run in range(self.recipe.runs)]
            if not all(kept):
                with self._starting(step, lock):
                    kept = [self._make_start(run, step, starts[run], lock) for run in range(self.recipe.runs)]
            starts = [*kept]
            if all(self._embedder(run, starts[run]).complete for run in range(self.recipe.runs)):
                return starts
        raise AssertionError("unreachable")

    def _starting(self, step: int, lock: contextlib.ExitStack) -> contextlib.AbstractContextManager[None]:
        """Lock what a round of the shared start writes: the whole job, or a share of it, until the end.

        The first round is cheap, so one share prepares all patches while the others wait.
        """
        if self.share and step == 0:
            return locked(self.store, "start", wait=True)
        lock.enter_context(locked(self.store, share_name(self._only)))
        return contextlib.nullcontext()

    def _embedder(self, run: int, start: Start | None) -> SharedStart:
        embedder = self.embedders[run * self.patch_graph.n_patches]
        assert isinstance(embedder, SharedStart)
        return embedder if start is None else with_start(embedder, start.arrays)

    def _start_parameters(self, run: int, before: Start | None) -> dict[str, object]:
        """Return what decides a shared start: it is made again where any of this has changed."""
        return {
            "embedder": describe(self._embedder(run, None)),
            "seed": self.seed,
            "patches": patch_graph_fingerprint(self.patch_graph),
            "survey": None if self.data.survey is None else self.data.survey.fingerprint,
            "before": None if before is None else before.fingerprint,
        }

    def _kept_start(self, run: int, step: int, before: Start | None) -> Start | None:
        key = f"starts/{run}/{step}"
        try:
            record = self.store[key]
        except KeyError:
            return None
        except FormatError as error:
            _log.warning("the shared start is made again: %s", error)
            return None
        wanted = self._start_parameters(run, before)
        changes = differences({name: record.parameters.get(name) for name in wanted}, wanted)
        if changes:
            _log.warning("the shared start is made again: it was made with %s", changes)
            return None
        start = Start(record.arrays, _fingerprint(record.arrays), key)
        try:
            if record.parameters.get("start") != start.fingerprint:
                raise FormatError(f"{key} does not have the fingerprint that was noted when it was made.")
            _ = self._embedder(run, start).complete
        except Exception as error:  # the embedder may say anything of a start that it did not make
            _log.warning("the shared start is made again: %s", error)
            return None
        return start

    def _make_start(self, run: int, step: int, before: Start | None, lock: contextlib.ExitStack) -> Start:
        """Let all patches of a run prepare, and combine the sum of their contributions, unless that is there by now."""
        kept = self._kept_start(run, step, before)
        if kept is not None:
            return kept
        p, content = self.patch_graph.n_patches, f"kept{step}"
        wanted = range(run * p, (run + 1) * p)
        own = wanted if step == 0 else [patch for patch in wanted if patch in self.wanted]
        self._go_through(content, own, [before] * self.recipe.runs, lock)
        missing = sum(patch_key(patch, content) not in self.store for patch in wanted)
        if missing:
            raise JobError(
                f"the shared start of {store_name(self.store)} needs what all {p} patches contribute in round "
                f"{step + 1}, and {missing} of them are not done yet. This share is: run the others, and then every "
                "share again."
            )
        embedder = self._embedder(run, before)
        try:
            total: Arrays | None = None
            for patch in wanted:
                total = embedder.add(total, embedder.contribute(self.store[patch_key(patch, content)].arrays))
            assert total is not None
            start = embedder.combine(total, self.seed).start
        except QuiltError:
            raise
        except Exception as error:
            raise JobError(
                f"the shared start of {store_name(self.store)} cannot be made of what its {p} patches contribute "
                f"({type(error).__name__}: {error}). Remove the records '{content}' of the patches and run again."
            ) from error
        arrays = dict(sorted(checked_arrays(start, f"start of {type(embedder).__name__}").items()))
        digest, key = _fingerprint(arrays), f"starts/{run}/{step}"
        self.store[key] = Record(arrays, {**self._start_parameters(run, before), "start": digest})
        return Start(arrays, digest, key)

    def embed(self, starts: list[Start | None], lock: contextlib.ExitStack) -> StoredPatches:
        """Embed all wanted patches, from the shared start of each run."""
        self._go_through("embedding", self.wanted, starts, lock)
        return StoredPatches(self.store, self.repeated.node_sets, which=self._only)

    def _go_through(
        self, content: str, wanted: Sequence[int], starts: list[Start | None], lock: contextlib.ExitStack
    ) -> None:
        """Let each wanted patch prepare for the shared start, or make its embedding."""
        prepares = content != "embedding"
        start = starts[0]
        todo = Pass(
            content,
            self.data,
            self.repeated,
            self.embedders,
            self.seed,
            self.store,
            starts,
            before=None if start is None else f"kept{start.key.rpartition('/')[2]}",
            retries=self.retries,
            only=self._only,
            lock=lock,
            locked=prepares,
        )
        for done, facts in enumerate(work_through(todo, wanted, self.executor, self.progress), 1):
            report(self.progress, "start" if prepares else "patches", done, len(wanted), values=facts)
        if todo.failures:
            n_done = len(wanted) - len(todo.failures)
            raise PatchesFailedError(todo.failures, n_done=n_done, kept=is_shared(self.store))
