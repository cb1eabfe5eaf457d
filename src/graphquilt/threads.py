"""Where BLAS threads help and where they hurt."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

__all__ = ["one_blas_thread"]


def one_blas_thread() -> AbstractContextManager[Any]:
    """Run the enclosed work on one BLAS thread, and restore the setting afterwards.

    Many small factorisations lose far more to thread hand-overs than they gain: a 128 × 128 singular value
    decomposition can take thirty times as long on two threads as on one.
    """
    from threadpoolctl import ThreadpoolController

    limit: AbstractContextManager[Any] = ThreadpoolController().limit(limits=1, user_api="blas")
    return limit
