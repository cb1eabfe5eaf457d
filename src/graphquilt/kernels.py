"""Compile numba kernels once, announce the wait for it, and decide where BLAS threads help and where they hurt."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from graphquilt.arrays import AnyArray

__all__ = ["announce", "frozen", "jit", "one_blas_thread", "one_thread", "settle_worker"]

logger = logging.getLogger("graphquilt")
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def jit(function: Kernel) -> Kernel:
    """Compile ``function`` with its result cached on disk; the GIL is released while it runs."""
    import numba

    compiled: Kernel = numba.njit(cache=True, nogil=True)(function)
    return compiled


def frozen(array: AnyArray) -> AnyArray:
    """Return a read-only, contiguous view of ``array`` as a plain array."""
    view = np.ascontiguousarray(array).view(np.ndarray)
    if view.flags.writeable:
        view = view[:]
        view.flags.writeable = False
    return view


_announced: list[bool] = []


def announce(kernel: Any, work: str) -> None:
    """Tell the user, before the first call of ``kernel`` on this machine, that it will be compiled.

    Once a process as a warning, which is seen without any setting; further kernels at the level of information.
    """
    if kernel.signatures or _is_compiled(kernel):
        return
    level = logging.INFO if _announced else logging.WARNING
    _announced.append(True)
    logger.log(level, "%s: compiling, which takes some seconds the first time and is kept for later", work)


def _is_compiled(kernel: Any) -> bool:
    """Return whether numba has an index of compiled versions on disk; True where it does not say."""
    file = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    index = getattr(file, "_index_path", None)
    return index is None or Path(index).exists()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Run the enclosed work on one BLAS thread, and restore the setting afterwards.

    Many small factorisations lose far more to thread hand-overs than they gain: a 128 × 128 singular value
    decomposition can take thirty times as long on two threads as on one.
    """
    from threadpoolctl import ThreadpoolController

    limit: AbstractContextManager[Any] = ThreadpoolController().limit(limits=1, user_api="blas")
    return limit


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
    """Let BLAS, OpenMP and torch use one thread inside, unless the environment says how many they should use.

    Small problems lose more to switching between threads than they gain, and sums that are split over threads are
    added in another order.
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
