"""One pass over the patches of a job: which are done, which are left, and how an executor works on them."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import socket
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass, field
from queue import SimpleQueue

import numpy as np

from graphquilt.embedders.contract import Embedder
from graphquilt.embedders.shared_start import SharedStart, with_start
from graphquilt.errors import EmbedderError, FormatError, JobError
from graphquilt.jobs.calls import Call, Outcome, Start, embedding_parameters, patch_seed, perform
from graphquilt.jobs.description import differences, fingerprint
from graphquilt.jobs.patch_data import PatchData
from graphquilt.jobs.records import patch_key
from graphquilt.jobs.store import Store, is_shared, locked
from graphquilt.patches import PatchGraph
from graphquilt.progress import ProgressCallback

__all__ = ["Pass", "share_name", "work_through"]

_log = logging.getLogger(__name__)

_AHEAD = 1024  # calls that an executor is given before the first has come back; each is a few hundred bytes …
_AHEAD_WITH_DATA = 32  # … unless the patch itself travels with it


def share_name(only: Sequence[int] | None) -> str | None:
    """Return a name for the share of a job that these patches are; None for the whole job."""
    return None if only is None else fingerprint(np.array(only, dtype=np.int64))


@dataclass(eq=False)
class Pass:
    """One pass over the patches of all runs, in which each prepares for the shared start, or is embedded.

    The job is locked from the first record that has to be written until ``lock`` is closed. A job that lacks nothing is
    not locked: it may be read while others work on it, and where nothing can be written.

    Attributes
    ----------
    content : str
        What every patch makes: "embedding", or "kept0" in the first round of the shared start.
    data : PatchData
        Patch k is another run of patch ``k % n``, and has the nodes and edges of that patch.
    patch_graph : PatchGraph
        The patches of all runs.
    starts : sequence of Start or None
        The shared start of each run, as far as it has come.
    only : sequence of int, optional
        The share of the job that is worked on, if not all of it.
    """

    content: str
    data: PatchData
    patch_graph: PatchGraph
    embedders: Sequence[Embedder]
    seed: int
    store: Store
    starts: Sequence[Start | None]
    before: str | None = None  # the content of what patches keep from the last round
    only: Sequence[int] | None = None
    retries: int = 1
    lock: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    failures: dict[int, str] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    damaged: set[int] = field(default_factory=set)  # patches whose data in the store cannot be used
    driver: tuple[str, int] = field(default_factory=lambda: (socket.gethostname(), os.getpid()))
    locked: bool = False  # whether the caller has locked what this pass writes

    def __post_init__(self) -> None:
        self._shared = is_shared(self.store)

    def take_lock(self) -> None:
        """Lock the job, or the share of it, once."""
        if not self.locked:
            self.lock.enter_context(locked(self.store, share_name(self.only)))
            self.locked = True

    def parameters(self, patch: int) -> dict[str, object]:
        """Return what decides what a patch makes."""
        return embedding_parameters(self.embedders[patch], patch_seed(self.seed, patch), self._start(patch))

    def finished(self, patch: int) -> bool:
        """Return whether the store has what this patch makes, made with the same embedder, seed and start."""
        try:
            record = self.store[patch_key(patch, self.content)]
        except KeyError:
            return False
        except FormatError as error:
            _log.warning("%s: %s", self._again(patch), error)
            return False
        wanted = self.parameters(patch)
        changes = differences({name: record.parameters.get(name) for name in wanted}, wanted)
        if changes:
            _log.warning("%s: it was made with %s", self._again(patch), changes)
            return False
        if self.content != "embedding":
            return True
        shape = (len(self.patch_graph.node_sets[patch]), self.embedders[patch].dim)
        embedding = record.arrays.get("embedding")
        if embedding is None or embedding.shape != shape:
            _log.warning("patch %d is embedded again: its embedding does not have the shape %s", patch, shape)
            return False
        return True

    def _again(self, patch: int) -> str:
        """Say that what a patch has made is made again."""
        return f"patch {patch} {'is embedded' if self.content == 'embedding' else 'is prepared'} again"

    @property
    def carries(self) -> bool:
        """Whether the data of patches travels with calls: workers reach neither the graph nor a store with the data."""
        return not self._shared or (self.data.graph is not None and self.data.origin is None)

    def call(self, patch: int, *, here: bool = False) -> Call:
        """Return the call that embeds a patch, in another process or ``here``, where the graph is open already."""
        self.take_lock()
        data, start = patch % len(self.data.node_sets), self._start(patch)
        call = Call(
            patch,
            self.content,
            self.embedders[patch],
            patch_seed(self.seed, patch),
            self.driver,
            self.parameters(patch),
            data=data,
            surveyed=self.data.survey is not None,
        )
        if not self._shared:
            kept = None if self.before is None else self.store[patch_key(patch, self.before)].arrays
            embedder = call.embedder
            if start is not None:
                assert isinstance(embedder, SharedStart)
                embedder = with_start(embedder, start.arrays)
            where = {"source": self.data} if here else {"given": self.data.cut(data)}
            return dataclasses.replace(call, embedder=embedder, kept=kept, **where)
        stored = None if start is None else (start.key, start.fingerprint)
        call = dataclasses.replace(call, store=self.store, start=stored, before=self.before)
        if self.data.graph is None or (not here and self._has_data(data)):
            return call
        if not here and self.data.origin is not None:
            return dataclasses.replace(call, origin=self.data.origin)
        where = {"source": self.data} if here else {"given": self.data.cut(data)}
        return dataclasses.replace(call, **where)

    def _start(self, patch: int) -> Start | None:
        return self.starts[patch // len(self.data.node_sets)]

    def _has_data(self, data: int) -> bool:
        """Return whether the data of a patch was written, for workers that do not have the graph."""
        key = patch_key(data, "graph")
        try:
            return data not in self.damaged and key in self.store and self.data.suits(self.store[key].parameters)
        except FormatError:
            return False

    def settle(self, patch: int, outcome: Outcome) -> bool:
        """Take in the outcome of a call; return True if the patch has to be tried again."""
        if outcome.error is None:
            key = patch_key(patch, self.content)
            if outcome.arrays is not None:
                self.store[key] = outcome.record(self.parameters(patch))
            elif key not in self.store:
                raise JobError(
                    f"a worker embedded patch {patch}, but {type(self.store).__name__} does not have it: a store that "
                    "says it is shared must be reached by all workers, as a folder on a shared disk is."
                )
            return False
        if outcome.kind == "embedder":
            raise EmbedderError(f"{outcome.error}.")
        if outcome.kind == "fatal":
            raise JobError(f"stopped at patch {patch}: {outcome.error}")
        self.attempts[patch] = self.attempts.get(patch, 0) + 1
        if outcome.kind == "input" and self.data.graph is not None and self.attempts[patch] <= self.retries + 1:
            _log.warning("the data of patch %d is cut again: %s", patch, outcome.error)
            self.damaged.add(patch % len(self.data.node_sets))
            return True
        if outcome.kind != "final" and self.attempts[patch] <= self.retries:
            trace = f"\n{outcome.trace}" if sum(self.attempts.values()) == 1 else ""  # others are most likely the same
            _log.warning("patch %d is tried again: %s%s", patch, outcome.error, trace)
            return True
        self.failures[patch] = outcome.error
        return False


def work_through(
    work: Pass, wanted: Iterable[int], executor: Executor | None, progress: ProgressCallback | None
) -> Iterator[Mapping[str, float]]:
    """Bring every patch to an end, good or bad, and yield a few facts about each."""
    waiting = iter(wanted)
    if executor is not None:
        yield from _Dispatcher(work, executor).run(waiting)
        return
    for patch in waiting:
        facts: Mapping[str, float] = {}
        if not work.finished(patch):
            again = True
            while again:
                outcome = perform(work.call(patch, here=True), progress)
                again = work.settle(patch, outcome)
                facts = outcome.facts
        yield facts


class _Dispatcher:
    """The calls that an executor works on.

    When a pool of processes breaks because a worker died, nothing tells whose work it was. The patches that can have
    been under way then become suspects, and each suspect is tried again alone, so that the one that kills its worker
    is found and reported while all others finish.
    """

    def __init__(self, work: Pass, executor: Executor) -> None:
        self.work, self.executor = work, executor
        self.under_way: dict[Future[Outcome], int] = {}
        self.returned: SimpleQueue[Future[Outcome]] = SimpleQueue()
        self.again: deque[int] = deque()
        self.suspects: deque[int] = deque()
        self.n_workers = int(getattr(executor, "n_workers", getattr(executor, "_max_workers", 0)))

    def run(self, waiting: Iterator[int]) -> Iterator[Mapping[str, float]]:
        """Bring every waiting patch to an end and yield a few facts about each."""
        ahead = _AHEAD_WITH_DATA if self.work.carries else _AHEAD
        more = True
        try:
            while more or self.again or self.suspects or self.under_way:
                while len(self.under_way) < ahead and (more or self.again):
                    patch = self.again.popleft() if self.again else next(waiting, None)
                    if patch is None:
                        more = False
                    elif self.work.finished(patch):
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
        """Give up the calls that nobody waits for any more."""
        abandon = getattr(self.executor, "abandon", None)
        if self.under_way and abandon is not None:
            abandon()
        else:
            for future in list(self.under_way):
                future.cancel()

    def _submit(self, patch: int) -> None:
        call = self.work.call(patch)
        try:
            future = self.executor.submit(perform, call)
        except (BrokenExecutor, RuntimeError, OSError) as error:
            raise self._gone(error) from error
        self.under_way[future] = patch
        future.add_done_callback(self.returned.put)

    def _take(self, *, block: bool) -> Iterator[Mapping[str, float]]:
        """Take in the calls that have returned; with ``block``, wait for the first."""
        while self.under_way and (block or not self.returned.empty()):
            block = False
            future = self.returned.get()
            if future not in self.under_way:
                continue
            alone = len(self.under_way) == 1
            try:
                outcome = future.result()
            except BrokenExecutor:
                if not alone:
                    self._lose()
                    continue
                outcome = Outcome(error="its worker died: it was killed, or the memory did not suffice")
            except CancelledError as error:
                raise self._gone(error) from error
            except Exception as error:
                outcome = Outcome(error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
            patch = self.under_way.pop(future)
            if self.work.settle(patch, outcome):
                (self.suspects if alone else self.again).append(patch)
            else:
                yield outcome.facts

    def _lose(self) -> None:
        """Take back the calls that went down with a broken pool."""
        ended, _ = wait(self.under_way, timeout=30)  # a broken pool ends all its calls, one after the other
        lost = [future for future in self.under_way if future in ended and _broken(future)]
        patches = [self.under_way.pop(future) for future in lost]
        # Pools begin calls in the order in which they were submitted.
        n_suspects = self.n_workers or len(patches)
        self.suspects.extend(patches[:n_suspects])
        self.again.extend(patches[n_suspects:])
        _log.warning("a worker died; %d patches are submitted again", len(patches))

    def _gone(self, error: BaseException) -> JobError:
        cause = f"{type(error).__name__}: {error}"
        if isinstance(error, CancelledError):
            cause = "calls were cancelled that nobody here cancelled: its scheduler went away or was shut down"
        remedy = " What is finished is kept: run again, here or elsewhere, to go on."
        remedy = remedy if is_shared(self.work.store) else ""
        return JobError(f"the executor ({type(self.executor).__name__}) takes no more work ({cause}).{remedy}")


def _broken(future: Future[Outcome]) -> bool:
    return not future.cancelled() and isinstance(future.exception(), BrokenExecutor)
