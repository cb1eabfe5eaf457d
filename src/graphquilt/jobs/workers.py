"""Worker processes with one thread and one GPU each, which end with their driver and are replaced if they die."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from graphquilt.errors import InputError
from graphquilt.kernels import settle_worker

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

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
        self._pool = ProcessPoolExecutor(
            self.n_workers,
            mp_context=self._context,
            initializer=_begin,
            initargs=(self._context.Value("i", 0), _gpus()),
        )
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
