"""Compile loops with numba when they are first called, and decide where BLAS threads help and where they hurt.

A memory map and an array in memory share one compiled version. ``@jit`` marks functions that only other kernels call.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cached_property, lru_cache, update_wrapper
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numpy as np

__all__ = [
    "Kernel",
    "jit",
    "kernel",
    "loop_threads",
    "map_threads",
    "one_blas_thread",
    "one_thread",
    "read_only",
    "settle_worker",
    "thread_count",
    "use_loop_threads",
]

logger = logging.getLogger("graphquilt")
P = ParamSpec("P")
R = TypeVar("R")


class Kernel(Generic[P, R]):
    """A function that numba compiles at its first call; the result is cached on disk, and the GIL released.

    ``work`` is what it computes, for the message that announces the compilation. ``writes`` are the parameters whose
    arrays it changes; the others are passed as read-only contiguous views. None passes all as they are, which saves
    some microseconds per call. ``fastmath`` is what LLVM may change in floating point arithmetic.
    """

    _announced = False  # whether any kernel of this process has announced its compilation

    def __init__(
        self,
        function: Callable[P, R],
        work: str = "",
        *,
        writes: tuple[str, ...] | None = None,
        fastmath: frozenset[str] = frozenset(),
    ) -> None:
        update_wrapper(self, function)
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        if not set(writes or ()) <= set(names):
            raise TypeError(f"{function.__name__} writes to {writes}, but its parameters are {names}.")
        self._function, self._work, self._fastmath = function, work, fastmath
        self._read_only = [writes is not None and name not in writes for name in names]

    @cached_property
    def _dispatcher(self) -> Any:  # numba has no types
        import numba

        dispatcher = numba.njit(cache=True, nogil=True, fastmath=set(self._fastmath))(self._function)
        if self._work and not _is_compiled(dispatcher):
            # A warning is seen without any setting; one per process is enough.
            level = logging.INFO if Kernel._announced else logging.WARNING
            Kernel._announced = True
            message = "%s: compiling, which takes some seconds the first time and is kept for later"
            logger.log(level, message, self._work)
        return dispatcher

    @property
    def _numba_type_(self) -> object:
        """What numba takes this object for inside other kernels: the compiled function."""
        return self._dispatcher._numba_type_

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Compile the function if this is its first call, and run it."""
        if kwargs:
            raise TypeError(f"the kernel {self._function.__name__} takes positional arguments only.")
        pairs = zip(args, self._read_only, strict=True)
        return cast(R, self._dispatcher(*[read_only(value) if only_read else value for value, only_read in pairs]))


def kernel(
    work: str, *, writes: tuple[str, ...] | None = (), fastmath: frozenset[str] = frozenset()
) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Compile the decorated function at its first call, and announce that; see :class:`Kernel`."""
    return lambda function: Kernel(function, work, writes=writes, fastmath=fastmath)


def jit(function: Callable[P, R]) -> Kernel[P, R]:
    """Compile the decorated function when a kernel that calls it is compiled."""
    return Kernel(function)


def read_only(value: Any) -> Any:
    """Return arrays, also those of a tuple, as plain contiguous ones that cannot be written to: views, or copies."""
    if isinstance(value, tuple):
        return tuple(map(read_only, value))
    if not isinstance(value, np.ndarray):
        return value
    if type(value) is np.ndarray and value.flags.c_contiguous and not value.flags.writeable:
        return value
    view = np.ascontiguousarray(value).view(np.ndarray)
    view.flags.writeable = False
    return view


def _is_compiled(dispatcher: Any) -> bool:
    """Return whether numba has an index of compiled versions on disk; True where it does not say."""
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    index = getattr(file, "_index_path", None)
    return index is None or Path(index).exists()


def one_blas_thread() -> AbstractContextManager[object]:
    """Run the enclosed work on one BLAS thread: many small factorisations lose far more to hand-overs than they gain.

    A 128 × 128 singular value decomposition can take thirty times as long on two threads as on one.
    """
    limit: AbstractContextManager[object] = _controller(len(sys.modules)).limit(limits=1, user_api="blas")
    return limit


def thread_count() -> int:
    """Return how many threads environment variables and threadpoolctl allow: as many as BLAS has."""
    return max((library["num_threads"] for library in _controller(len(sys.modules)).info()), default=1)


def map_threads(function: Callable[[Any], Any], items: Iterable[Any]) -> None:
    """Call a function for every item, on as many threads as the user allows, each with one BLAS thread."""
    threads = thread_count()
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        list((pool.map if threads > 1 else map)(function, items))


_loop_threads: ContextVar[int | None] = ContextVar("loop_threads", default=None)


def loop_threads() -> int:
    """Return how many threads a loop over blocks of columns may use."""
    count = _loop_threads.get()
    return thread_count() if count is None else count


@contextlib.contextmanager
def use_loop_threads(count: int) -> Iterator[None]:
    """Let loops over blocks of columns use this many threads inside."""
    token = _loop_threads.set(count)
    try:
        yield
    finally:
        _loop_threads.reset(token)


@lru_cache(maxsize=1)
def _controller(_modules: int) -> Any:
    """Return a control of the thread pools that are loaded, which takes long to find, for this number of modules."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_settled: list[contextlib.ExitStack] = []  # the thread limit of this process, kept as long as the process lives


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
    """Let BLAS, OpenMP and torch use one thread inside, unless the environment says how many they should use."""
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
