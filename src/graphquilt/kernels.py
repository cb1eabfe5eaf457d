"""Compile numba kernels once, announce the wait for it, and decide where BLAS threads help and where they hurt."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from graphquilt.arrays import AnyArray

__all__ = ["announce", "frozen", "jit", "one_blas_thread"]

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
