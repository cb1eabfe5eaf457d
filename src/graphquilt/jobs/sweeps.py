"""Sweeps over the patches of a job: find what is missing, and settle each outcome."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import socket
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from graphquilt.embedders.contract import Embedder
from graphquilt.embedders.shared_start import SharedStart, shares_start, with_start
from graphquilt.errors import EmbedderError, FormatError, JobError, PatchesFailedError
from graphquilt.graph import Graph
from graphquilt.jobs.cutting import keep_patch_graph
from graphquilt.jobs.description import describe, differences, fingerprint
from graphquilt.jobs.patch_inputs import PatchInputs, survey_graph
from graphquilt.jobs.records import patch_graph_fingerprint, patch_key
from graphquilt.jobs.scheduling import work_through
from graphquilt.jobs.settings import JobSettings
from graphquilt.jobs.store import Store, locked, record_digest, store_folder, store_name
from graphquilt.jobs.tasks import PatchTask, Start, TaskOutcome, embedder_of_run, patch_seed
from graphquilt.patches import PatchGraph
from graphquilt.progress import ProgressCallback, report

_log = logging.getLogger(__name__)


def shard_name(only: Sequence[int] | None) -> str | None:
    """Return the name of the shard with these patches; None for the whole job."""
    return None if only is None else fingerprint(np.array(only, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class EmbeddingRun:
    """One call of :func:`embed_patches`, with settings whose defaults are filled in.

    The job is locked from the first record that has to be written until ``lock`` is closed. A job that lacks nothing is
    not locked: it may be read while others work on it, and where nothing can be written.
    """

    graph: Graph | None
    patch_graph: PatchGraph
    settings: JobSettings
    store: Store
    wanted: Sequence[int] = ()
    is_shard: bool = False  # whether others embed the rest
    executor: Executor | None = None
    progress: ProgressCallback | None = None
    retries: int = 1
    lock: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @functools.cached_property
    def embedders(self) -> list[Embedder]:
        """The embedder of each patch of each run."""
        p, given = self.patch_graph.n_patches, self.settings.embedders
        each = given if len(given) == p else given * p
        return [embedder_of_run(one, run) for run in range(self.settings.recipe.runs) for one in each]

    @functools.cached_property
    def repeated(self) -> PatchGraph:
        """The patches of all runs."""
        return self.patch_graph.repeat(self.settings.recipe.runs)

    @functools.cached_property
    def patches(self) -> str:
        """The fingerprint of the patch graph."""
        return patch_graph_fingerprint(self.patch_graph)

    @functools.cached_property
    def inputs(self) -> PatchInputs:
        """The inputs of the patches; the survey of the whole graph is made, or opened, when this is first asked for."""
        survey = None
        if self.has_start:
            seed, embedder = self.settings.seed, self.embedders[0]
            survey = survey_graph(self.store, self.graph, embedder, seed, self.patch_graph, progress=self.progress)
        return PatchInputs(self.graph, self.patch_graph.node_sets, survey)

    @functools.cached_property
    def has_start(self) -> bool:
        """Whether patches get a shared start: it is wanted, and all patches of a run have the same embedder."""
        first = self.embedders[0]
        alike = all(one == first for one in self.embedders[: self.patch_graph.n_patches])
        return self.settings.recipe.start and shares_start(first, self.graph) and alike

    def take_lock(self) -> None:
        """Lock the job, or the shard of it, until the end of the run."""
        self.lock.enter_context(locked(self.store, shard_name(self.wanted if self.is_shard else None)))

    def begin(self) -> None:
        """Keep the patch graph, and refuse a store with other patches or embeddings."""
        self._refuse_other_settings()
        if "patch_graph" not in self.store:
            if not self.wanted:
                return  # a shard of no patches writes nothing
            self.take_lock()
        keep_patch_graph(self.store, self.patch_graph, self.graph)

    def _refuse_other_settings(self) -> None:
        """Refuse a store whose embeddings were made by another embedder or seed: a mixture would be worthless.

        The first two decide: a single odd patch among others is embedded again.
        """
        changes: list[str] = []
        for patch, embedder in enumerate(self.embedders):
            try:
                parameters = self.store[patch_key(patch, "embedding")].parameters
            except (KeyError, FormatError):
                continue
            seed = f"seed of patch {patch}"
            before = {"embedder": parameters.get("embedder"), seed: parameters.get("seed")}
            now = {"embedder": describe(embedder), seed: patch_seed(self.settings.seed, patch)}
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

    def sweep(self, content: str, wanted: Sequence[int], starts: Sequence[Start | None]) -> None:
        """Let each wanted patch prepare for the shared start, or make its embedding."""
        stage = "patches" if content == "embedding" else "start"
        sweep = PatchSweep(self, content, starts, locked=content != "embedding")  # starts are made under a lock
        for done, facts in enumerate(work_through(sweep, wanted, self.executor, self.progress), 1):
            report(self.progress, stage, done, len(wanted), values=facts)
        if sweep.failures:
            n_done, kept = len(wanted) - len(sweep.failures), store_folder(self.store) is not None
            raise PatchesFailedError(sweep.failures, n_done=n_done, kept=kept)


@dataclass(eq=False)
class PatchSweep:
    """One sweep over the patches of all runs, in which each prepares for the shared start, or is embedded.

    Patch k is another run of patch ``k % n``, and has the nodes and edges of that patch.

    Attributes
    ----------
    run : EmbeddingRun
    content : str
        What every patch makes: "embedding", or "kept0" in the first round of the shared start.
    starts : sequence of Start or None
        The shared start of each run, as far as it has come.
    failures : dict
        What went wrong with each patch that failed for good.
    """

    run: EmbeddingRun
    content: str
    starts: Sequence[Start | None]
    locked: bool = False
    failures: dict[int, str] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    damaged: set[int] = field(default_factory=set)  # patches whose data in the store cannot be used

    @property
    def store(self) -> Store:
        """The store of the run."""
        return self.run.store

    def parameters(self, patch: int) -> dict[str, object]:
        """Return what a patch's record is made from; if any of it changes, the record is made again."""
        run, start = self.run, self._start(patch)
        parameters: dict[str, object] = {
            "embedder": describe(run.embedders[patch]),
            "seed": patch_seed(run.settings.seed, patch),
            "patches": run.patches,
        }
        if start is not None:
            parameters |= {"start": start.digest, "kept": record_digest(self.store, self._kept_key(patch, start))}
        elif self.content != "embedding" and run.inputs.survey is not None:
            parameters["survey"] = run.inputs.survey.digest
        return parameters

    def finished(self, patch: int) -> bool:
        """Return whether the store has what this patch makes, made from the same things."""
        try:
            record = self.store[patch_key(patch, self.content)]
        except KeyError:
            return False
        except FormatError as error:
            _log.warning("%s: %s", self._redo(patch), error)
            return False
        wanted = self.parameters(patch)
        changes = differences({name: record.parameters.get(name) for name in wanted}, wanted)
        if changes:
            _log.warning("%s: it was made with %s", self._redo(patch), changes)
            return False
        if self.content != "embedding":
            return True
        shape = (len(self.run.repeated.node_sets[patch]), self.run.embedders[patch].dim)
        embedding = record.arrays.get("embedding")
        if embedding is None or embedding.shape != shape:
            _log.warning("patch %d is embedded again: its embedding does not have the shape %s", patch, shape)
            return False
        return True

    def _redo(self, patch: int) -> str:
        """Describe the redo, for the log."""
        return f"patch {patch} {'is embedded' if self.content == 'embedding' else 'is prepared'} again"

    @property
    def carries_data(self) -> bool:
        """Whether the data of patches travels with tasks: workers reach neither the graph nor a store with the data."""
        return store_folder(self.store) is None or (self.run.graph is not None and self.run.inputs.reference is None)

    def task(self, patch: int, *, here: bool = False) -> PatchTask:
        """Return the task that embeds a patch, in another process, or ``here`` with the graph already open."""
        run, inputs, start = self.run, self.run.inputs, self._start(patch)
        if not self.locked:
            run.take_lock()
            self.locked = True
        data, embedder = patch % len(inputs.node_sets), run.embedders[patch]
        undone = run.settings.recipe.undone(run.settings.motions)
        task = PatchTask(
            patch,
            self.content,
            embedder,
            patch_seed(run.settings.seed, patch),
            (socket.gethostname(), os.getpid()),
            self.parameters(patch),
            data,
            inputs.survey is not None,
            start is None and len(run.repeated.node_sets) > 1 and (undone.rotate or undone.scale),
        )
        if start is not None:
            task = dataclasses.replace(task, kept=self._kept_key(patch, start))
        if store_folder(self.store) is not None:
            stored = None if start is None else (start.key, start.digest)
            task = dataclasses.replace(task, store=self.store, start=stored)
            if inputs.graph is None or (not here and self._has_data(data)):
                return task
            if not here and inputs.reference is not None:
                return dataclasses.replace(task, inputs=inputs.reference)
        elif start is not None:
            assert isinstance(embedder, SharedStart)
            kept = self.store[self._kept_key(patch, start)].arrays
            task = dataclasses.replace(task, embedder=with_start(embedder, start.arrays), kept=kept)
        return dataclasses.replace(task, inputs=inputs if here else inputs.extract(data))

    def _start(self, patch: int) -> Start | None:
        return self.starts[patch // len(self.run.inputs.node_sets)]

    def _kept_key(self, patch: int, start: Start) -> str:
        """Return the key of what a patch keeps from the round that made its start."""
        return patch_key(patch, f"kept{start.key.rpartition('/')[2]}")

    def _has_data(self, data: int) -> bool:
        """Return whether the data of a patch was written, for workers that do not have the graph."""
        key = patch_key(data, "graph")
        try:
            usable = data not in self.damaged and key in self.store
            return usable and self.run.inputs.suits(self.store[key].parameters)
        except FormatError:
            return False

    def settle(self, patch: int, outcome: TaskOutcome) -> bool:
        """Take in the outcome of a task; return True if the patch has to be tried again."""
        if outcome.error is None:
            key = patch_key(patch, self.content)
            if outcome.arrays is not None:
                self.store[key] = outcome.record(self.parameters(patch))
            elif key not in self.store:
                raise JobError(
                    f"a worker embedded patch {patch}, but {type(self.store).__name__} does not have it: all workers "
                    "must reach the folder of the store, for example on a shared disk."
                )
            return False
        if outcome.kind == "embedder":
            raise EmbedderError(f"{outcome.error}.")
        if outcome.kind == "fatal":
            raise JobError(f"stopped at patch {patch}: {outcome.error}")
        retries = self.run.retries
        self.attempts[patch] = self.attempts.get(patch, 0) + 1
        if outcome.kind == "input" and self.run.graph is not None and self.attempts[patch] <= retries + 1:
            _log.warning("the data of patch %d is cut again: %s", patch, outcome.error)
            self.damaged.add(patch % len(self.run.inputs.node_sets))
            return True
        if outcome.kind != "final" and self.attempts[patch] <= retries:
            trace = f"\n{outcome.trace}" if sum(self.attempts.values()) == 1 else ""  # others are most likely the same
            _log.warning("patch %d is tried again: %s%s", patch, outcome.error, trace)
            return True
        self.failures[patch] = outcome.error
        return False
