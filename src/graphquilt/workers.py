"""Worker processes that behave: one thread and one GPU each, gone when the driver is gone, replaced when they die."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from graphquilt.errors import InputError

__all__ = ["Processes", "one_thread", "settle_worker"]

P = ParamSpec("P")
T = TypeVar("T")

_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_settled: list[Any] = []  # the thread limit of this process, kept so that it lasts as long as the process


def _torch_threads(n: int) -> int | None:
    """Set torch's thread count if torch is loaded, and return what it was."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "set_num_threads"):
        return None
    before = int(torch.get_num_threads())
    if before != n:
        torch.set_num_threads(n)
    return before


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let BLAS, OpenMP and torch use one thread inside, unless the environment says how many they should use.

    Small problems lose more to thread hand-overs than they gain, and sums split over threads come out in another order.
    """
    if any(name in os.environ for name in _SETTINGS):
        yield
        return
    from threadpoolctl import threadpool_limits

    torch_before = _torch_threads(1)
    os.environ |= dict.fromkeys(_SETTINGS, "1")  # for libraries that are loaded from here on
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        for name in _SETTINGS:
            os.environ.pop(name, None)
        if torch_before is not None:
            _torch_threads(torch_before)


def settle_worker() -> None:
    """Give this worker process one thread for good, unless its environment says otherwise."""
    if not _settled:
        limit = contextlib.ExitStack()
        limit.enter_context(one_thread())
        _settled.append(limit)
    if os.environ.get("OMP_NUM_THREADS") == "1":
        _torch_threads(1)


def _gpus() -> list[str]:
    """Return the GPUs of this machine: those that the user allows, or all."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return [name for name in allowed.split(",") if name.strip() not in ("", "-1")]
    found = Path("/proc/driver/nvidia/gpus")
    return [str(k) for k in range(len(list(found.iterdir())))] if found.is_dir() else []


def _begin(counter: Any, gpus: list[str]) -> None:
    """Prepare a worker process: see to its end, its signals, its GPU and its threads."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=follow, daemon=True, name="end with the driver").start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    if gpus:
        with counter.get_lock():
            index, counter.value = counter.value, counter.value + 1
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[index % len(gpus)]
    settle_worker()


class Processes(Executor):
    """A pool of worker processes on this machine that replaces workers which die.

    Each worker has one BLAS and torch thread (unless ``OMP_NUM_THREADS`` or its kin is set) and, where there are
    GPUs, one of them, in turn. A worker ends with its driver, even if that is killed. When a worker dies, the calls
    in flight raise ``BrokenProcessPool`` and the next call starts a new set of workers.

    Parameters
    ----------
    n_workers : int

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
        self._context.set_forkserver_preload(["graphquilt.fanout"])
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
        if error is not None:  # whoever leaves in a hurry (Ctrl-C, a full disk) does not wait for the rest
            self.abandon()
        self.shutdown()
        return None
