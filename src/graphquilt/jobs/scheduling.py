"""Work through patches: in a loop, or on any executor, whose broken workers are found and replaced."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, wait
from queue import SimpleQueue
from typing import Protocol

from graphquilt.errors import JobError
from graphquilt.jobs.store import Store, store_folder
from graphquilt.jobs.tasks import PatchTask, TaskOutcome, perform
from graphquilt.progress import ProgressCallback

_log = logging.getLogger(__name__)

_AHEAD = 1024  # tasks that an executor is given before the first has come back; each is a few hundred bytes …
_AHEAD_WITH_DATA = 32  # … unless the patch itself travels with it


class Sweep(Protocol):
    """One sweep over patches: which are finished, what is left to do, and how an outcome is settled."""

    @property
    def store(self) -> Store:
        """Where records are kept."""
        ...

    @property
    def carries_data(self) -> bool:
        """Whether the data of patches travels with tasks."""
        ...

    def finished(self, patch: int) -> bool:
        """Return whether nothing is left to do for a patch."""
        ...

    def task(self, patch: int, *, here: bool = False) -> PatchTask:
        """Return what is left to do for a patch, in another process or ``here``."""
        ...

    def settle(self, patch: int, outcome: TaskOutcome) -> bool:
        """Take in an outcome; return True if the patch has to be tried again."""
        ...


def work_through(
    sweep: Sweep, wanted: Iterable[int], executor: Executor | None, progress: ProgressCallback | None
) -> Iterator[Mapping[str, float]]:
    """Work through every patch, and yield a few facts about each."""
    waiting = iter(wanted)
    if executor is not None:
        yield from _Dispatcher(sweep, executor).run(waiting)
        return
    for patch in waiting:
        facts: Mapping[str, float] = {}
        if not sweep.finished(patch):
            again = True
            while again:
                outcome = perform(sweep.task(patch, here=True), progress)
                again = sweep.settle(patch, outcome)
                facts = outcome.facts
        yield facts


class _Dispatcher:
    """The tasks that an executor works on.

    When a pool of processes breaks because a worker died, nothing tells whose work it was. The patches that can have
    been under way then become suspects, and each suspect is tried again alone. The one that kills its worker
    is found and reported, and all others finish.
    """

    def __init__(self, sweep: Sweep, executor: Executor) -> None:
        self.sweep, self.executor = sweep, executor
        self.under_way: dict[Future[TaskOutcome], int] = {}
        self.returned: SimpleQueue[Future[TaskOutcome]] = SimpleQueue()
        self.again: deque[int] = deque()
        self.suspects: deque[int] = deque()
        self.n_workers = int(getattr(executor, "n_workers", getattr(executor, "_max_workers", 0)))

    def run(self, waiting: Iterator[int]) -> Iterator[Mapping[str, float]]:
        """Work through every waiting patch, and yield a few facts about each."""
        ahead = _AHEAD_WITH_DATA if self.sweep.carries_data else _AHEAD
        more = True
        try:
            while more or self.again or self.suspects or self.under_way:
                while len(self.under_way) < ahead and (more or self.again):
                    patch = self.again.popleft() if self.again else next(waiting, None)
                    if patch is None:
                        more = False
                    elif self.sweep.finished(patch):
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
        """Cancel the remaining calls."""
        abandon = getattr(self.executor, "abandon", None)
        if self.under_way and abandon is not None:
            abandon()
        else:
            for future in list(self.under_way):
                future.cancel()

    def _submit(self, patch: int) -> None:
        task = self.sweep.task(patch)
        try:
            future = self.executor.submit(perform, task)
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
                outcome = TaskOutcome(error="its worker died: it was killed, or the memory did not suffice")
            except CancelledError as error:
                raise self._gone(error) from error
            except Exception as error:
                outcome = TaskOutcome(error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
            patch = self.under_way.pop(future)
            if self.sweep.settle(patch, outcome):
                (self.suspects if alone else self.again).append(patch)
            else:
                yield outcome.facts

    def _lose(self) -> None:
        """Take back the calls of a broken pool."""
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
        remedy = " What is finished is kept: run again, here or elsewhere, to resume."
        remedy = remedy if store_folder(self.sweep.store) is not None else ""
        return JobError(f"the executor ({type(self.executor).__name__}) takes no more work ({cause}).{remedy}")


def _broken(future: Future[TaskOutcome]) -> bool:
    return not future.cancelled() and isinstance(future.exception(), BrokenExecutor)
