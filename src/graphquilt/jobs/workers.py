"""Tasks on executors, whose broken workers are found; and processes with one thread and one GPU each."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from graphquilt.errors import InputError, JobError
from graphquilt.jobs.store import store_folder
from graphquilt.jobs.tasks import TaskOutcome, perform
from graphquilt.kernels import settle_worker

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

    from graphquilt.jobs.sweeps import PatchSweep

_AHEAD = 1024  # tasks that an executor is given before the first has come back; each is a few hundred bytes …
_AHEAD_WITH_DATA = 32  # … unless the patch itself travels with it
_log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


def _gpus() -> list[str]:
    """Return the GPUs of this machine that the user allows, by default all."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return [name for name in allowed.split(",") if name.strip() not in ("", "-1")]
    folder = Path("/proc/driver/nvidia/gpus")
    return [str(k) for k in range(len(list(folder.iterdir())))] if folder.is_dir() else []


def _begin(counter: Synchronized[int], gpus: list[str]) -> None:
    """Prepare a worker: it ends with its driver, ignores Ctrl-C, and uses one GPU and one thread."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=follow, daemon=True, name="end with the driver").start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    if gpus:
        with counter.get_lock():
            index, counter.value = counter.value, counter.value + 1
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[index % len(gpus)]
    settle_worker()


class Processes(Executor):
    """A pool of ``n_workers`` processes on this machine that replaces workers which die.

    Each worker has one BLAS and torch thread (unless ``OMP_NUM_THREADS`` or a similar variable is set) and one of the
    GPUs, if there are any. A worker ends with its driver, even if that is killed. When a worker dies, running calls
    raise ``BrokenProcessPool`` and the next call starts a new set of workers.

    Examples
    --------
    >>> with Processes(1) as pool:
    ...     pool.submit(max, 3, 5).result()
    5
    """

    def __init__(self, n_workers: int) -> None:
        if n_workers < 1:
            raise InputError(f"a pool needs at least one worker, not {n_workers}.")
        self.n_workers = n_workers
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["graphquilt.jobs"])
        self._pool: ProcessPoolExecutor | None = None
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call ``fn`` in a worker."""
        if self._closed:
            raise RuntimeError("this pool has been shut down")
        if self._pool is not None:
            try:
                return self._pool.submit(fn, *args, **kwargs)
            except BrokenProcessPool:
                self._pool.shutdown(wait=False)
        first = self._context.Value("i", 0), _gpus()
        self._pool = ProcessPoolExecutor(self.n_workers, self._context, initializer=_begin, initargs=first)
        return self._pool.submit(fn, *args, **kwargs)

    def abandon(self) -> None:
        """End the workers at once, in the middle of their work; the next call starts new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in list((pool._processes or {}).values()):
                process.terminate()
            pool.shutdown(wait=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers when their work is done."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if error is not None:  # after Ctrl-C or on a full disk nobody waits for the rest
            self.abandon()
        self.shutdown()
        return None


class Dispatcher:
    """The tasks that an executor works on.

    When a pool of processes breaks because a worker died, nothing tells whose work it was. The patches that can have
    been under way then become suspects, and each suspect is tried again alone. The one that kills its worker
    is found and reported, and all others finish.
    """

    def __init__(self, sweep: PatchSweep, executor: Executor) -> None:
        self.sweep, self.executor = sweep, executor
        self.under_way: dict[Future[TaskOutcome], int] = {}
        self.returned: SimpleQueue[Future[TaskOutcome]] = SimpleQueue()
        self.again: deque[int] = deque()
        self.suspects: deque[int] = deque()
        self.n_workers = int(getattr(executor, "n_workers", getattr(executor, "_max_workers", 0)))

    def run(self, waiting: Iterator[int]) -> Iterator[Mapping[str, float]]:
        """Work through every waiting patch, and yield a few facts about each."""
        run = self.sweep.run
        reached = store_folder(run.store) is not None and (run.graph is None or run.inputs.reference is not None)
        ahead = _AHEAD if reached else _AHEAD_WITH_DATA
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
        done = [future for future in self.under_way if future in ended and not future.cancelled()]
        lost = [future for future in done if isinstance(future.exception(), BrokenExecutor)]
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
        remedy = remedy if store_folder(self.sweep.run.store) is not None else ""
        return JobError(f"the executor ({type(self.executor).__name__}) takes no more work ({cause}).{remedy}")
