"""Sweeps over the patches of a job: find what is missing, make it here or on an executor, and settle each outcome."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from graphquilt.arrays import AnyArray, Float64Array
from graphquilt.embedders.contract import Embedder
from graphquilt.embedders.shared_start import SharedStart, shares_start, with_start
from graphquilt.errors import EmbedderError, FormatError, JobError, PatchesFailedError
from graphquilt.files import translate_disk_errors
from graphquilt.graph import Graph
from graphquilt.jobs.records import (
    describe,
    differences,
    graph_version,
    patch_graph_fingerprint,
    patch_key,
    patch_seed,
    shard_name,
    survey_graph,
)
from graphquilt.jobs.settings import JobSettings
from graphquilt.jobs.store import UPDATE, Record, Store, locked, record_digest, store_folder, stored_record
from graphquilt.jobs.stored_patches import RowFile
from graphquilt.jobs.tasks import (
    GraphReference,
    PatchInput,
    PatchInputs,
    PatchTask,
    Start,
    TaskOutcome,
    embedder_of_run,
    perform,
)
from graphquilt.jobs.versions import FRAME, frame_rotation, taken_over
from graphquilt.patches import PatchGraph
from graphquilt.progress import ProgressCallback, report

_SURVEY, START, _PATCHES = 0, 1, 2  # what shards claim: the survey, the shared start, and from 2 on the patches
_INTERVAL = 0.2  # seconds between two looks at what another shard makes

_log = logging.getLogger(__name__)


class FileClaims:
    """Numbers that shards of a job claim, as locked bytes of one file; a claim ends with its process."""

    def __init__(self, folder: Path) -> None:
        import fcntl  # not on Windows

        self._lockf, self._alone, self._free = fcntl.lockf, fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN
        with translate_disk_errors(folder):
            self._handle = os.open(folder / "lock.claims", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)

    def close(self) -> None:
        """Give all numbers back."""
        os.close(self._handle)

    def take(self, number: int) -> bool:
        """Claim a number; return whether no other process has claimed it."""
        try:
            self._lockf(self._handle, self._alone, 1, number)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def release(self, number: int) -> None:
        """Give a number back."""
        self._lockf(self._handle, self._free, 1, number)


@dataclass(eq=False)
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
    claims: FileClaims | None = None  # of a shard that has locked the job
    is_locked: bool = False
    embedders: list[Embedder] = field(init=False)  # of each patch of each run
    repeated: PatchGraph = field(init=False)  # the patches of all runs
    patches: str = field(init=False)  # the fingerprint of the patch graph
    reused: Mapping[str, str] = field(init=False)  # digests of records that an update has taken over
    frame: tuple[Float64Array, str] | None = field(init=False)  # the rotation onto the frame of an earlier version
    version: object = field(init=False)  # of the files of the graph, when the run began
    has_start: bool = field(init=False)  # it is wanted, and all patches of a run have the same embedder
    averages_at_once: bool = field(init=False)  # rows go straight into the average; patches are not kept

    def __post_init__(self) -> None:
        p, given, recipe = self.patch_graph.n_patches, self.settings.embedders, self.settings.recipe
        each = given if len(given) == p else given * p
        self.embedders = [*each]
        for run in range(1, recipe.runs):
            self.embedders += [embedder_of_run(one, run) for one in each]
        self.repeated = self.patch_graph.repeat(recipe.runs)
        self.patches = patch_graph_fingerprint(self.patch_graph)
        self.reused = taken_over(self.store) if UPDATE in self.store else {}
        self.frame = frame_rotation(self.store) if FRAME in self.store else None
        self.version = graph_version(self.graph)
        self.has_start = recipe.start and shares_start(each[0], self.graph) and all(one == each[0] for one in each)
        sizes = self.patch_graph.n_nodes, p, self.settings.dim
        self.averages_at_once = self.has_start and recipe.averages_at_once(self.settings.motions, *sizes)

    @functools.cached_property
    def inputs(self) -> PatchInputs:
        """The inputs of the patches; the survey of the whole graph is made, or opened, when this is first asked for."""
        survey = None
        if self.has_start:
            seed, embedder = self.settings.seed, self.embedders[0]
            with self.alone(_SURVEY, "the survey of the graph"):
                survey = survey_graph(self.store, self.graph, embedder, seed, self.patch_graph, progress=self.progress)
        return PatchInputs(self.graph, self.patch_graph.node_sets, survey)

    @functools.cached_property
    def sample(self) -> AnyArray | None:
        """The nodes that decide the start in place of all patches, if the survey names them."""
        return None if self.inputs.survey is None else self.inputs.survey.shared.get("sample")

    @functools.cached_property
    def row_file(self) -> RowFile | None:
        """The file for rows that are not kept; None if patches are kept."""
        if not self.averages_at_once or store_folder(self.store) is None or self.inputs.survey is None:
            return None
        node_sets, n, dtype = self.patch_graph.node_sets, self.patch_graph.n_nodes, self.settings.recipe.precision
        return RowFile(self.store, node_sets, n, dim=self.settings.dim, dtype=dtype)

    def take_lock(self) -> None:
        """Lock the job, or the shard of it, until the end of the run."""
        if not self.is_locked:
            self.lock.enter_context(locked(self.store, shard_name(self.wanted) if self.is_shard else None))
            folder = store_folder(self.store)
            if self.is_shard and folder is not None:
                self.claims = self.lock.enter_context(contextlib.closing(FileClaims(folder)))
            self.is_locked = True

    @contextlib.contextmanager
    def alone(self, number: int, work: str) -> Iterator[None]:
        """Do something that only one shard may do at a time, and say what it waits for."""
        if self.claims is None:
            yield
            return
        if not self.claims.take(number):
            _log.warning("waiting for another shard, which makes %s", work)
            while not self.claims.take(number):
                time.sleep(_INTERVAL)
        try:
            yield
        finally:
            self.claims.release(number)


@dataclass(eq=False)
class PatchSweep:
    """One sweep over the patches of all runs; patch k is another run of patch ``k % n``, with its nodes and edges."""

    run: EmbeddingRun
    content: str  # what every patch makes: "embedding", or "kept0" in the first round of the shared start
    starts: Sequence[Start | None]  # the shared start of each run, as far as it has come
    failures: dict[int, str] = field(default_factory=dict)  # what went wrong with each patch that failed for good
    attempts: dict[int, int] = field(default_factory=dict)
    outdated: set[int] = field(default_factory=set)  # patches of which the log says that they are made again

    def work_through(self, patches: Iterable[int], *, before: int = 0, total: int | None = None) -> None:
        """Work through patches, and report how many of ``total`` are done, with ``before`` others."""
        patches = list(patches)
        total = len(patches) if total is None else total
        stage = "patches" if self.content == "embedding" else "start"
        for done, facts in enumerate(self._outcomes(patches), before + 1):
            report(self.run.progress, stage, done, total, values=facts)
        if self.failures:
            n_done, kept = total - len(self.failures), store_folder(self.run.store) is not None
            raise PatchesFailedError(self.failures, n_done=n_done, kept=kept)

    def share(self, patches: Sequence[int]) -> None:
        """Work through patches together with the other shards: first its own, then any that nobody is at work on."""
        claims, own = self.run.claims, set(self.run.wanted)
        if claims is None:
            self.work_through(patches)
            return
        first = next((k for k, patch in enumerate(patches) if patch in own), 0)
        left = sorted([*patches[first:], *patches[:first]], key=lambda patch: patch not in own)
        at_once = 2 * getattr(self.run.executor, "n_workers", 8) if self.run.executor is not None else 1
        waiting = False
        while left := [patch for patch in left if not self.finished(patch)]:
            claimed = list(itertools.islice((patch for patch in left if claims.take(_PATCHES + patch)), at_once))
            try:
                # Another shard may have finished a patch just before it was claimed.
                self.work_through(claimed, before=len(patches) - len(left), total=len(patches))
            finally:
                for patch in claimed:
                    claims.release(_PATCHES + patch)
            if not claimed:
                if not waiting:
                    what = f"{len(left)} of {len(patches)} patches, the first is {min(left)}"
                    _log.warning("waiting for other shards, which prepare %s", what)
                waiting = True
                time.sleep(_INTERVAL)

    def _outcomes(self, patches: list[int]) -> Iterator[Mapping[str, float]]:
        """Work through patches here or on the executor, and yield a few facts about each."""
        if self.run.executor is not None:
            from graphquilt.jobs.workers import Dispatcher

            yield from Dispatcher(self, self.run.executor).run(iter(patches))
            return
        for patch in patches:
            facts: Mapping[str, float] = {}
            again = not self.finished(patch)
            while again:
                outcome = perform(self.task(patch, here=True), self.run.progress)
                again = self.settle(patch, outcome)
                facts = outcome.facts
            yield facts

    def parameters(self, patch: int) -> dict[str, object]:
        """Return what a patch's record is made from; if any of it changes, the record is made again."""
        run, start = self.run, self.starts[patch // self.run.patch_graph.n_patches]
        survey, seed = run.inputs.survey, patch_seed(run.settings.seed, patch)
        parameters = {"embedder": describe(run.embedders[patch]), "seed": seed, "patches": run.patches}
        if start is not None:
            parameters["start"] = start.digest
        if start is not None and start.kept is not None:
            parameters["kept"] = record_digest(run.store, patch_key(patch, start.kept))
        elif survey is not None and (start is not None or self.content != "embedding"):
            parameters["survey"] = survey.digest
        if start is not None and self.content == "embedding" and run.frame is not None:
            parameters["frame"] = run.frame[1]
        return parameters

    def finished(self, patch: int) -> bool:
        """Return whether the store has what this patch makes, made from the same things."""
        try:
            record = self.run.store[patch_key(patch, self.content)]
            if self.run.reused.get(patch_key(patch, self.content)) == record.digest:
                return True
            wanted = self.parameters(patch)
            changes = differences({name: record.parameters.get(name) for name in wanted}, wanted)
            problem = f"it was made with {changes}" if changes else ""
            shape = (len(self.run.repeated.node_sets[patch]), self.run.embedders[patch].dim)
            embedding = record.arrays.get("embedding")
            if "rows" in record.parameters:
                problem = problem or self._lost_rows(patch, record)
            elif self.content == "embedding" and (embedding is None or embedding.shape != shape):
                problem = problem or f"its embedding does not have the shape {shape}"
        except KeyError:
            return False
        except FormatError as error:
            problem = str(error)
        if problem and patch not in self.outdated:
            self.outdated.add(patch)
            done = "embedded" if self.content == "embedding" else "prepared"
            _log.warning("patch %d is %s again: %s", patch, done, problem)
        return not problem

    def _lost_rows(self, patch: int, record: Record) -> str:
        """Return what is wrong with the rows of a patch that are not in its record, or nothing."""
        run, rows = self.run, self.run.row_file
        if rows is not None and rows.is_whole:
            damaged = rows.of_patch(patch).checksum() != record.parameters["rows"]
            return f"its rows in {rows.path.name} have changed" if damaged else ""
        # They are averaged, or about to be, with an alignment that is stored.
        begun = (rows is not None and rows.blocks_left >= 0) or "embedding" in run.store
        fits = begun and stored_record(run.store, "alignment", run.settings.stitching) is not None
        return "" if fits else "its rows are gone, or were averaged in another way"

    def task(self, patch: int, *, here: bool = False) -> PatchTask:
        """Return the task that embeds a patch, in another process, or ``here`` with the graph already open."""
        run, inputs, start = self.run, self.run.inputs, self.starts[patch // self.run.patch_graph.n_patches]
        run.take_lock()
        embedder, store = run.embedders[patch], run.store
        in_folder = store_folder(store) is not None
        kept = None if start is None or start.kept is None else patch_key(patch, start.kept)
        if start is not None and not in_folder:
            assert isinstance(embedder, SharedStart)
            embedder = with_start(embedder, start.arrays)
        source: PatchInputs | GraphReference | PatchInput = inputs
        if not here:
            source = (inputs.reference if in_folder else None) or inputs.extract(patch % len(inputs.node_sets))
        recipe, rows = run.settings.recipe, None
        undone, half = recipe.undone(run.settings.motions), recipe.precision == "float16"
        if self.content == "embedding" and run.row_file is not None:
            if not run.row_file.is_whole:
                with run.alone(START, "the file of rows"):
                    run.row_file.create(store)
            rows = run.row_file.of_patch(patch)
        return PatchTask(
            patch,
            self.content,
            embedder,
            patch_seed(run.settings.seed, patch),
            (socket.gethostname(), os.getpid()),
            self.parameters(patch),
            start is None and len(run.repeated.node_sets) > 1 and (undone.rotate or undone.scale),
            source,
            start=(start.key, start.digest) if start is not None and in_folder else None,
            kept=kept if kept is None or in_folder else store[kept].arrays,
            precision=recipe.precision if half or run.averages_at_once else None,
            rows=rows,
            store=store if in_folder else None,
            rotation=None if start is None or run.frame is None else run.frame[0],
        )

    def settle(self, patch: int, outcome: TaskOutcome) -> bool:
        """Take in the outcome of a task; return True if the patch has to be tried again."""
        run, key, error = self.run, patch_key(patch, self.content), outcome.error
        if run.graph is not None and graph_version(run.graph) != run.version:
            run.store[key] = Record({}, {})  # nobody knows what it was made from
            raise JobError(
                f"the files of the graph in {run.graph.folder} changed while patch {patch} was at work. Bring them "
                "back, and run again; or embed the new graph in another folder."
            )
        if error is None:
            if outcome.arrays is not None:
                run.store[key] = outcome.record(self.parameters(patch))
            elif key not in run.store:
                where = f"{type(run.store).__name__} does not have it: all workers must reach its folder"
                raise JobError(f"a worker embedded patch {patch}, but {where}.")
            return False
        if outcome.kind == "embedder":
            raise EmbedderError(f"{error}.")
        if outcome.kind == "fatal":
            raise JobError(f"stopped at patch {patch}: {error}")
        self.attempts[patch] = self.attempts.get(patch, 0) + 1
        if outcome.kind != "final" and self.attempts[patch] <= run.retries:
            trace = f"\n{outcome.trace}" if sum(self.attempts.values()) == 1 else ""  # others are most likely the same
            _log.warning("patch %d is tried again: %s%s", patch, error, trace)
            return True
        self.failures[patch] = error
        return False
