"""One run over the patches of a job: what is done, what is left, and who works on it."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import socket
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, wait
from queue import SimpleQueue
from typing import Any

import numpy as np

from graphquilt.consensus import Round
from graphquilt.embedders.contract import Target
from graphquilt.errors import FormatError, JobError
from graphquilt.fanout.calls import Call, Outcome, made_with, other_settings, patch_seed, perform
from graphquilt.graph import Graph
from graphquilt.locking import job_lock
from graphquilt.patches import Patch, PatchGraph
from graphquilt.progress import ProgressCallback
from graphquilt.records import fingerprint, graph_record, patch_key, target_record
from graphquilt.store import DirectoryStore, Record, Store
from graphquilt.workers import Processes

_log = logging.getLogger(__name__)

_AHEAD = 1024  # calls handed to an executor before the first has come back; each is a few hundred bytes …
_AHEAD_WITHOUT_STORE = 32  # … unless the patch itself travels with it


def held(store: Store | None, only: Sequence[int] | None = None) -> contextlib.AbstractContextManager[None]:
    """Hold a job on disk, or the share of it that these patches are; other stores have no lock."""
    if not isinstance(store, DirectoryStore):
        return contextlib.nullcontext()
    return job_lock(store.path, share=None if only is None else fingerprint(np.array(only, dtype=np.int64)))


def begin(
    store: Store | None,
    lacking: Callable[[Store], Mapping[str, Record]],
    hold: contextlib.ExitStack,
    only: Sequence[int] | None,
) -> None:
    """Write the records that a job lacks, holding it from before the first of them.

    A job that lacks nothing is not held: it may be read while others work on it, and where nothing can be written. A
    share without patches leaves the writing to the others.
    """
    if store is not None and lacking(store) and (only is None or only):
        hold.enter_context(held(store, only))
        for key, record in lacking(store).items():  # asked again: who held it before may have written them
            store[key] = record


class Run:
    """One run over the patches: who is waiting, who is under way, who is done, who has failed."""

    def __init__(
        self,
        graph: Graph | None,
        patch_graph: PatchGraph,
        embedders: Sequence[Any],
        seed: int,
        store: Store | None,
        *,
        n_data: int,
        consensus: Round,
        only: Sequence[int] | None = None,
    ) -> None:
        self.graph, self.patch_graph, self.embedders, self.seed, self.store = graph, patch_graph, embedders, seed, store
        self.n_data = n_data  # patch k is another run of patch k % n_data, and has its nodes and edges
        self.round, self.targets = consensus.number, consensus.targets
        self.found: dict[int, Patch] = {}
        self.failures: dict[int, str] = {}
        self.attempts: dict[int, int] = {}
        self.driver = (socket.gethostname(), os.getpid())
        self.only = only  # the share of the job that this run works on, if not on all
        self.hold = contextlib.ExitStack()  # the lock of the job, from the first record that has to be written
        self.locked = False

    def finished(self, patch: int) -> bool:
        """Say whether the store has this patch's embedding, made with the same embedder and seed."""
        if self.store is None:
            return False
        try:
            record = self.store[patch_key(patch, "embedding", self.round)]
        except KeyError:
            return False
        except FormatError as error:
            _log.warning("patch %d is embedded again: %s", patch, error)
            return False
        wanted = made_with(self.embedders[patch], patch_seed(self.seed, patch), self._target(patch))
        shape = (len(self.patch_graph.node_sets[patch]), getattr(self.embedders[patch], "dim", None))
        embedding = record.arrays.get("embedding")
        if any(record.parameters.get(name) != value for name, value in wanted.items()):
            _log.warning(
                "patch %d is embedded again: it was made with %s", patch, other_settings(record.parameters, wanted)
            )
            return False
        if embedding is None or embedding.shape != shape:
            _log.warning("patch %d is embedded again: its embedding does not have the shape %s", patch, shape)
            return False
        return True

    def prepare(self, patch: int, *, afresh: bool = False) -> Call:
        """Return the call that embeds a patch, whose data is in the store by then."""
        attempt = self.attempts.get(patch, 0)
        embedder, seed = self.embedders[patch], patch_seed(self.seed, patch)
        target, data = self._target(patch), patch % self.n_data
        parameters = made_with(embedder, seed, target)
        call = Call(patch, embedder, seed, attempt, self.driver, parameters, data=data, round=self.round)
        if self.store is None:
            return dataclasses.replace(call, graph=self._cut(patch), target=target)
        if not self.locked:
            self.hold.enter_context(held(self.store, self.only))
            self.locked = True
        if target is not None:
            record = dataclasses.replace(target_record(target), durable=False)
            self.store[patch_key(patch, "target", self.round)] = record
        if self.graph is not None and (afresh or patch_key(data, "graph") not in self.store):
            nodes = self.patch_graph.node_sets[patch]
            # Cut from the graph again if the power fails, so the disk need not be waited for.
            record = dataclasses.replace(graph_record(nodes, self._cut(patch)), durable=False)
            self.store[patch_key(data, "graph")] = record
        return dataclasses.replace(call, store=self.store)

    def _target(self, patch: int) -> Target | None:
        return None if self.targets is None else self.targets[patch]

    def _cut(self, patch: int) -> Graph:
        if self.graph is None:
            raise JobError(f"the data of patch {patch} is not in {self.store} and no graph was given to cut it from.")
        return self.graph.subgraph(self.patch_graph.node_sets[patch])

    def settle(self, patch: int, outcome: Outcome, retries: int) -> bool:
        """Take in what came of a call; return True if the patch has to be tried again."""
        if outcome.error is None:
            if outcome.embedding is not None:
                self.found[patch] = Patch(self.patch_graph.node_sets[patch], outcome.embedding)
            elif self.store is not None and patch_key(patch, "embedding", self.round) not in self.store:
                raise JobError(
                    f"a worker embedded patch {patch}, but {type(self.store).__name__} does not have it: workers in "
                    "other processes need a store that they share, such as a DirectoryStore on a shared disk."
                )
            return False
        if outcome.kind == "fatal":
            raise JobError(f"stopped at patch {patch}: {outcome.error}")
        self.attempts[patch] = self.attempts.get(patch, 0) + 1
        if outcome.kind == "input" and self.graph is not None and self.attempts[patch] <= retries + 1:
            _log.warning("the data of patch %d is cut again: %s", patch, outcome.error)
            self.prepare(patch, afresh=True)
            return True
        if outcome.kind != "final" and self.attempts[patch] <= retries:
            _log.warning("patch %d is tried again: %s\n%s", patch, outcome.error, outcome.trace)
            return True
        self.failures[patch] = outcome.error
        return False


def drive(
    run: Run, wanted: Iterable[int], executor: Executor | None, retries: int, progress: ProgressCallback | None
) -> Iterator[Mapping[str, float]]:
    """Bring every patch to an end, good or bad, and yield a few facts about each."""
    waiting = iter(wanted)
    if executor is not None:
        yield from Hands(run, executor, retries).work(waiting)
        return
    for patch in waiting:
        facts: Mapping[str, float] = {}
        if not run.finished(patch):
            again = True
            while again:
                outcome = perform(run.prepare(patch), progress)
                again = run.settle(patch, outcome, retries)
                facts = outcome.facts
        yield facts


class Hands:
    """The calls that are in an executor's hands.

    When a pool of processes breaks because a worker died, nobody says whose work it was. The patches that can have
    been under way then become suspects, and each suspect is tried again alone, so that the one that kills its worker
    is found and reported while all others finish.
    """

    def __init__(self, run: Run, executor: Executor, retries: int) -> None:
        self.run, self.executor, self.retries = run, executor, retries
        self.under_way: dict[Future[Outcome], int] = {}
        self.back: SimpleQueue[Future[Outcome]] = SimpleQueue()
        self.again: deque[int] = deque()
        self.suspects: deque[int] = deque()
        self.n_workers = int(getattr(executor, "n_workers", getattr(executor, "_max_workers", 0)))

    def work(self, waiting: Iterator[int]) -> Iterator[Mapping[str, float]]:
        """Bring every waiting patch to an end and yield a few facts about each."""
        ahead = _AHEAD_WITHOUT_STORE if self.run.store is None else _AHEAD
        more = True
        try:
            while more or self.again or self.suspects or self.under_way:
                while len(self.under_way) < ahead and (more or self.again):
                    patch = self.again.popleft() if self.again else next(waiting, None)
                    if patch is None:
                        more = False
                    elif self.run.finished(patch):
                        yield {}
                    else:
                        self._submit(patch)
                    yield from self._take(block=False)
                if self.suspects and not self.under_way:
                    self._submit(self.suspects.popleft())
                if self.under_way:
                    yield from self._take(block=True)
        finally:
            self._drop()

    def _drop(self) -> None:
        """Let go of calls that nobody waits for any more."""
        if self.under_way and isinstance(self.executor, Processes):
            self.executor.abandon()
        else:
            for future in list(self.under_way):
                future.cancel()

    def _submit(self, patch: int) -> None:
        call = self.run.prepare(patch)
        try:
            future = self.executor.submit(perform, call)
        except (BrokenExecutor, RuntimeError, OSError) as error:
            raise self._gone(error) from error
        self.under_way[future] = patch
        future.add_done_callback(self.back.put)

    def _take(self, *, block: bool) -> Iterator[Mapping[str, float]]:
        """Take in what has come back; with ``block``, wait until something has."""
        while self.under_way and (block or not self.back.empty()):
            block = False
            future = self.back.get()
            if future not in self.under_way:
                continue
            alone = len(self.under_way) == 1
            try:
                outcome = future.result()
            except BrokenExecutor:
                if not alone:
                    self._lost()
                    continue
                outcome = Outcome({}, error="its worker died: it was killed, or the memory did not suffice")
            except CancelledError as error:
                raise self._gone(error) from error
            except Exception as error:
                outcome = Outcome({}, error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
            patch = self.under_way.pop(future)
            if self.run.settle(patch, outcome, self.retries):
                (self.suspects if alone else self.again).append(patch)
            else:
                yield outcome.facts

    def _lost(self) -> None:
        """Take back the calls that went down with a broken pool."""
        ended, _ = wait(self.under_way, timeout=30)  # a broken pool ends all its calls, one after the other
        lost = [future for future in self.under_way if future in ended and _broken(future)]
        patches = [self.under_way.pop(future) for future in lost]
        # Pools begin calls in the order in which they were handed over.
        n_suspects = self.n_workers or len(patches)
        self.suspects.extend(patches[:n_suspects])
        self.again.extend(patches[n_suspects:])
        _log.warning("a worker died; %d patches are handed out again", len(patches))

    def _gone(self, error: BaseException) -> JobError:
        cause = f"{type(error).__name__}: {error}"
        if isinstance(error, CancelledError):
            cause = "calls were cancelled that nobody here cancelled: its scheduler went away or was shut down"
        kept = "" if self.run.store is None else " What is finished is kept: run again, here or elsewhere, to go on."
        return JobError(f"the executor ({type(self.executor).__name__}) takes no more work ({cause}).{kept}")


def _broken(future: Future[Outcome]) -> bool:
    return not future.cancelled() and isinstance(future.exception(), BrokenExecutor)
